"""The network: names, proxies, certificates, registries, Hugging Face, Weights & Biases, git."""

from __future__ import annotations

from dataclasses import replace

from gpukit.errors.causes import CLOCK_WRONG
from gpukit.errors.engine import NETWORK_DOWN, PROXY, TRY_AGAIN
from gpukit.errors.evidence import CONTAINER, PODMAN, only, text_has, text_must_have, unless_text_has
from gpukit.errors.rule import BUILD, GENERAL, HOST, VERIFY, Rule
from gpukit.findings.finding import Cause

TOKENS, PORTS, CLOCK = "`./launch verify --only credentials`", "`./launch doctor --only ports`", "`date`"
HUB = r"hugging|hf\.co|\bHF_|HfHub|xethub"
LOCAL = r"localhost|127\.0\.0\.1|0\.0\.0\.0|host='[\w-]+', port|https?://[\w-]+:\d"

# Causes that several rules have.
CERTIFICATES_MISSING = Cause(
    "ca-certificates-missing",
    "The system's list of certificate authorities (package ca-certificates) is missing or too old.",
    "Install it: `apt-get update && apt-get install -y ca-certificates` (in a project: a newer base with "
    "`./launch update`).",
    tell="`curl -I https://github.com` works on the machine and fails in the container",
    given=unless_text_has(r"self[- ]signed"),
    standalone="Install it: `apt-get update && apt-get install -y ca-certificates`.",
)
HUB_NO_TOKEN = Cause(
    "hub-token-missing",
    "Hugging Face needs a login for this, and no token was found.",
    "Create a token at https://huggingface.co/settings/tokens, and set it as `HF_TOKEN` before `./launch` or the "
    "program starts.",
    tell="`hf auth whoami` prints `Not logged in`",
    given=text_has(
        r"no token found",
        r"token (?:was )?found",
        r"Token is required",
        r"must (?:be authenticated|have access to it and be auth)",
        r"\b401\b",
    ),
    standalone="Create a token at https://huggingface.co/settings/tokens, and set it as `HF_TOKEN` before "
    "the program starts.",
)
HUB_WRONG_TOKEN = Cause(
    "hub-token-invalid",
    "The Hugging Face token is expired, revoked, or was not copied exactly (for example with a line break). A wrong "
    "token blocks public models as well.",
    "Create a new token at https://huggingface.co/settings/tokens, and set it as `HF_TOKEN`. For public models, log "
    "out: `hf auth logout`, and `unset HF_TOKEN`.",
    tell="`hf auth whoami` prints `Invalid user token`",
    given=text_has(r"Invalid (?:user token|credentials|username)", r"Illegal header", r"[Tt]oken \S* ?is expired"),
)
HUB_TOKEN_RIGHTS = Cause(
    "hub-token-rights",
    "The Hugging Face token does not have the permission for this.",
    "Edit it at https://huggingface.co/settings/tokens: uploads need `write`; gated models need read access to "
    "public gated repositories.",
    tell="the token is fine-grained or read-only; the text has `403`",
    given=text_has(r"fine-grained", r"don.t have the (?:rights|required permissions)", r"403 Forbidden: "),
)
HUB_TERMS = Cause(
    "hub-terms",
    "Access to this model or data set was not granted to your Hugging Face account.",
    "Open its page on huggingface.co while logged in, and accept the terms or request access; some owners approve by "
    "hand.",
    tell="its page shows a form, or that the request is waiting",
    given=text_has(r"not in the authorized list", r"awaiting a review", r"ask for access", r"request access"),
)
HUB_NAME = Cause(
    "hub-name-wrong",
    "No model or data set with this name is on Hugging Face.",
    "Copy the name from its page, as in `Qwen/Qwen3-8B`.",
    tell="https://huggingface.co/NAME does not open in a browser",
)
HUB_PRIVATE = Cause(
    "hub-private",
    "The model or data set is private, and this token does not belong to an account that can read it.",
    "Set `HF_TOKEN` to a token of an account that has access.",
    tell="its page opens only when you are logged in",
)
HUB_FOLDER = Cause(
    "hub-local-folder",
    "The name is meant as a local folder, and there is no such folder where the program runs.",
    "Check it with `ls` in the container: only the project and mounted folders exist there. Pass the folder's full "
    "path.",
    tell="the name is a path, such as ./outputs/model",
    given=text_has(r"'(?:\.{1,2}/|/|~)[^'\n]*'", r"[A-Z]:\\"),
)
HUB_UNREACHABLE = Cause(
    "hub-unreachable",
    "The file is not in the cache, and huggingface.co cannot be reached from here.",
    "Run `curl -I https://huggingface.co`. Behind a proxy, set `HTTPS_PROXY`; without a network, download the model "
    "elsewhere and mount that cache (`HF_HOME`).",
    tell="`curl -I https://huggingface.co` fails in the same place",
    given=unless_text_has(r"\b40[134] Client Error"),
)
TRANSFORMERS_OLD = Cause(
    "transformers-too-old",
    "The installed transformers (or tokenizers) is older than the model.",
    "Upgrade it: `./launch add 'transformers>=VERSION'` with the version that the model's page or its "
    "config.json (`transformers_version`) names.",
    tell="`transformers_version` in the model's config.json is newer than `pip show transformers`",
)
MODEL_CODE = Cause(
    "model-needs-own-code",
    "The model's class is not part of transformers: it comes with the model's repository or with a package of its own.",
    "Load it as its page shows: with `trust_remote_code=True` if you trust its code, or after importing its package.",
    tell="the model's config.json has `auto_map`, or its page imports another package",
    given=text_has(r"trust_remote_code"),
)
SSH_NO_KEY = Cause(
    "ssh-key-missing",
    "No SSH key was offered: the container, build, or CI job has none.",
    "Run `ssh-add` on the host before VS Code opens the container, build with `--ssh default`, or clone with https.",
    tell="`ssh-add -l` prints no key where git runs",
    given=CONTAINER | text_has(r"RUN |#\d+ \d"),
)
SSH_KEY_UNKNOWN = Cause(
    "ssh-key-unknown",
    "The server does not accept your SSH key: it is not registered there, or belongs to another account.",
    "Add your public key (`cat ~/.ssh/*.pub`) to your account there, then test with `ssh -T git@github.com`.",
    tell="`ssh-add -l` prints a key, and `ssh -T git@github.com` is refused",
)
GIT_ADDRESS = Cause(
    "git-address-wrong",
    "The repository's address is wrong, or it was renamed, deleted, or made private.",
    "Open its address in a browser, and correct it in the command or in .gitmodules.",
    tell="its address does not open in a private browser window",
)

RULES = (
    Rule(
        "clock",
        "E: Release file for http://archive.ubuntu.com is not valid yet (invalid for another 5h)",
        (
            r"Release file for \S+ is not valid yet",
            r"certificate (?:has expired or )?is not yet valid(?!: current time [^\n]*is after)",
            r"Clock skew detected",
            r"RequestTimeTooSkewed|Signature (?:expired|not yet current)|token (?:used before issued|"
            r"is not yet valid)",
        ),
        (
            CLOCK_WRONG,
            Cause(
                "files-from-other-clock",
                "The files were written by a machine whose clock is ahead, as on a network drive.",
                "Run `find . -newermt now -exec touch {} +` there, and set that machine's clock.",
                tell="the text is `Clock skew detected`",
                given=text_must_have(r"Clock skew detected"),
            ),
        ),
        more=CLOCK,
    ),
    Rule(
        "certificate-expired",
        "certificate verify failed: certificate has expired",
        (r"certificate has expired|CERT_HAS_EXPIRED",),
        (
            Cause(
                "server-certificate-expired",
                "The server's certificate has expired.",
                "Only the server's owner can renew it. Use another address or mirror, or try again later.",
                tell="a browser on another computer shows the same error",
            ),
            CERTIFICATES_MISSING,
            CLOCK_WRONG,
        ),
        more=CLOCK,
    ),
    Rule(
        "certificate-name",
        "certificate verify failed: Hostname mismatch, certificate is not valid for 'huggingface.co'",
        (
            r"certificate is not valid for '",
            r"x509: certificate is valid for",
            r"Hostname mismatch|hostname '[^']*' doesn't match",
            r"certificate subject name '[^']*' does not match target host name",
        ),
        (
            Cause(
                "connection-intercepted",
                "Something in the network answers in place of the server: a firewall, a DNS filter, or a login page.",
                "Open the address in a browser to log in to the network, set `HTTPS_PROXY`, or use another network.",
                tell="`curl -v https://HOST` shows a certificate of your network or company",
            ),
            Cause(
                "server-moved",
                "The server was moved, and its certificate is for its new name.",
                "Use the address that the project's page names today.",
                tell="another network shows the same certificate",
            ),
        ),
        more=HOST,
        program=True,
    ),
    Rule(
        "certificate-file",
        "[X509] PEM lib (_ssl.c:4176)",
        (
            r"\[X509\] PEM lib|\[X509(?::|\]) ?(?:NO_CERTIFICATE_OR_CRL_FOUND|no certificate)",
            r"Could not find a suitable TLS CA certificate bundle",
            r"error setting certificate (?:verify locations|file)",
        ),
        (
            Cause(
                "certificate-file-broken",
                "`SSL_CERT_FILE`, `REQUESTS_CA_BUNDLE`, or `CURL_CA_BUNDLE` names a file that is missing or is not a "
                "certificate in PEM format.",
                "Run `unset SSL_CERT_FILE REQUESTS_CA_BUNDLE CURL_CA_BUNDLE`, or set them to an existing file: "
                "`/etc/ssl/certs/ca-certificates.crt` on Debian and Ubuntu.",
                tell="`env | grep -E 'CERT|CA_BUNDLE'` names a file that `openssl x509 -noout -in FILE` cannot read",
            ),
            CERTIFICATES_MISSING,
        ),
        more=HOST,
    ),
    Rule(
        "certificate",
        "SSLError: [SSL: CERTIFICATE_VERIFY_FAILED] self-signed certificate in certificate chain",
        (
            r"CERTIFICATE_VERIFY_FAILED",
            r"certificate signed by unknown authority",
            r"self[- ]signed certificate",
            r"unable to get local issuer certificate|UNABLE_TO_(?:GET_ISSUER_CERT|VERIFY_LEAF)\w*",
            r"unable to verify the first certificate",
            r"SSL certificate problem",
            r"server certificate verification failed",
            r"x509: certificate (?:is valid for|relies on)",
            r"invalid peer certificate: UnknownIssuer",
        ),
        (
            Cause(
                "company-certificate",
                "The network inspects encrypted connections, and its own certificate is not trusted here, as with a "
                "company's proxy.",
                "Copy the company's root certificate to `certs/NAME.crt` in the project, and build the image again.",
                tell="`curl -v https://huggingface.co` names your company or a security product as issuer",
                standalone="Set `SSL_CERT_FILE` and `REQUESTS_CA_BUNDLE` to a file that has the company's root "
                "certificate.",
            ),
            CERTIFICATES_MISSING,
            Cause(
                "server-own-certificate",
                "The server has a certificate that it or its owner signed, as with a private registry or GitLab.",
                "Trust that certificate: for an image registry, copy it to `/etc/docker/certs.d/HOST/ca.crt`; for "
                "programs, to `certs/NAME.crt` in the project.",
                tell="only this server fails, and other addresses work",
                given=unless_text_has(r"huggingface\.co|github\.com|nvcr\.io|docker\.io|pytorch\.org|kaggle\.com"),
            ),
        ),
        more=BUILD,
        kind="image",
    ),
    Rule(
        "insecure-registry",
        "http: server gave HTTP response to HTTPS client",
        (r"server gave HTTP response to HTTPS client",),
        (
            Cause(
                "registry-without-tls",
                "The registry does not use TLS, and Docker requires it.",
                "If you trust the network between, add the registry's address to `insecure-registries` in "
                "/etc/docker/daemon.json, and run `sudo systemctl restart docker`.",
                tell="`curl http://HOST:PORT/v2/` responds",
                given=~PODMAN,
            ),
            Cause(
                "podman-registry-without-tls",
                "The registry does not use TLS, and Podman requires it.",
                "If you trust the network between, use `podman pull --tls-verify=false`, or set `insecure = true` "
                "for it in /etc/containers/registries.conf.",
                tell="the engine is Podman",
                given=only(PODMAN),
            ),
        ),
        more=BUILD,
        kind="image",
    ),
    Rule(
        "socks-proxy",
        "requests.exceptions.InvalidSchema: Missing dependencies for SOCKS support.",
        (r"Missing dependencies for SOCKS support|Unable to determine SOCKS version",),
        (
            Cause(
                "socks-proxy",
                "`ALL_PROXY` or `HTTPS_PROXY` names a SOCKS proxy, and Python's HTTP clients do not support it without "
                "another package.",
                "Run `unset ALL_PROXY all_proxy` if `HTTPS_PROXY` names an http proxy; else `pip install "
                "'requests[socks]' 'httpx[socks]'`.",
                given=unless_text_has(r"Unable to determine SOCKS version"),
            ),
            Cause(
                "socks-scheme",
                "The proxy's address begins with `socks://`, which Python's HTTP clients do not know.",
                "Write it as `socks5h://HOST:PORT` in `ALL_PROXY` and `HTTPS_PROXY`.",
                given=text_must_have(r"Unable to determine SOCKS version"),
            ),
        ),
        certain=True,
        more=HOST,
    ),
    Rule(
        "proxy",
        "ProxyError: Cannot connect to proxy., Tunnel connection failed: 407 Proxy Authentication Required",
        (
            r"Cannot connect to proxy|ProxyError",
            r"407 Proxy Authentication Required|Proxy Authentication Required",
            r"Tunnel connection failed",
            r"proxyconnect tcp",
            r"unable to access 'https?://(?!127\.|localhost)[^']*': Failed to connect to (?:127\.0\.0\.1|"
            r"localhost) port",
            r"Failed to connect to (?:127\.0\.0\.1|localhost) port (?:7890|1080|10809|8118|3128)\b",
            r"Received HTTP code 40[37] from proxy",
        ),
        (
            Cause(
                "proxy-on-localhost",
                "The proxy's address is 127.0.0.1 or localhost, which in a container means the container itself.",
                "Let the proxy listen on the machine's address, and set "
                "`HTTPS_PROXY=http://host.docker.internal:PORT` (on Linux, the machine's own address) in the "
                "container.",
                tell="`echo $HTTPS_PROXY` shows 127.0.0.1 or localhost",
                given=text_has(r"127\.0\.0\.1|localhost"),
            ),
            Cause(
                "proxy-login",
                "The proxy requires a user name and password.",
                "Set `HTTPS_PROXY=http://USER:PASSWORD@HOST:PORT`, with special characters percent-encoded.",
                tell="the text has `407`",
                given=text_has(r"\b407\b|Proxy Authentication"),
            ),
            Cause(
                "proxy-wrong",
                "The proxy in the environment cannot be reached, or does not allow this address.",
                "Check `env | grep -i proxy`: correct the address, or unset it if this network has no proxy.",
                tell="`curl -I -x $HTTPS_PROXY https://github.com` fails",
                given=unless_text_has(r"\b407\b"),
            ),
        ),
        more=HOST,
        kind="image",
    ),
    Rule(
        "tls-broken",
        "SSLError: [SSL: UNEXPECTED_EOF_WHILE_READING] EOF occurred in violation of protocol",
        (
            r"UNEXPECTED_EOF_WHILE_READING|EOF occurred in violation of protocol",
            r"SSL: WRONG_VERSION_NUMBER|wrong version number \(_ssl",
            r"gnutls_handshake\(\) failed|OpenSSL SSL_(?:read|connect)|SSL_ERROR_SYSCALL",
            r"DECRYPTION_FAILED_OR_BAD_RECORD_MAC",
            r"SSLZeroReturnError|SSLEOFError|SSLError\((?:1|6|8), '\[?(?:SSL|TLS)",
            r"TLS/SSL connection has been closed",
            r"Could not handshake:|TLS connection was non-properly terminated",
        ),
        (
            Cause(
                "tls-connection-cut",
                "A firewall, a proxy, or an unstable network cut the encrypted connection.",
                "Try again, and then from another network; behind a proxy, set `HTTPS_PROXY`.",
                tell="it fails only sometimes, or only in this network",
            ),
            Cause(
                "proxy-scheme",
                "The proxy's address begins with `https://`, but the proxy itself uses plain http; or https was used "
                "for a server without TLS.",
                "Set `HTTPS_PROXY=http://HOST:PORT`, and check whether the address itself should begin with `http://`.",
                tell="the text has `WRONG_VERSION_NUMBER`",
                given=text_must_have(r"WRONG_VERSION_NUMBER|wrong version number"),
            ),
            Cause(
                "tls-too-old",
                "This system's TLS library is too old for the server.",
                "Use a newer base image or operating system.",
                tell="`openssl version` prints 1.0 or older, or the system is older than Ubuntu 20.04",
                given=text_has(r"ubuntu1[468]\.04|bionic|xenial|trusty|python(?:2|3\.[4-7])\b|handshake failure"),
            ),
        ),
        more=HOST,
        program=True,
    ),
    Rule(
        "hub-rate",
        "429 Client Error: Too Many Requests for url: https://huggingface.co/api/models",
        (
            r"429 Client Error: Too Many Requests",
            r"429 Too Many Requests",
            r"We had to rate limit (?:your IP|you)",
            r"HTTP Error 429|status code 429|Rate limit(?:ed)? (?:exceeded|reached)",
        ),
        (
            Cause(
                "hub-rate-limit",
                "Hugging Face received too many requests from this address or account.",
                "Wait five minutes, and set `HF_TOKEN`: with a login the limit is higher. For what is already in the "
                "cache, set `HF_HUB_OFFLINE=1`.",
                given=text_must_have(HUB),
            ),
            Cause(
                "server-rate-limit",
                "The server received too many requests from this address or account.",
                "Wait some minutes and send fewer requests at a time; log in if the server offers it (for images: "
                "`docker login`).",
                tell="it works again after a while",
                given=~text_has(HUB),
            ),
        ),
        more=TOKENS,
        program=True,
    ),
    Rule(
        "hub-gated",
        "GatedRepoError: 403 Client Error. Cannot access gated repo",
        (
            r"GatedRepoError",
            r"(?:Cannot access|trying to access a) gated repo",
            r"Access to (?:model|dataset) \S+ is restricted",
            r"is a gated (?:model|dataset|repo)",
            r"visit https://huggingface\.co/\S+ to ask for access|Make sure to request access at",
        ),
        (HUB_NO_TOKEN, HUB_TERMS, HUB_TOKEN_RIGHTS),
        more=TOKENS,
        program=True,
    ),
    Rule(
        "hub-token",
        "Invalid user token. The token in HF_TOKEN environment variable is the one currently used",
        (
            r"Invalid user token",
            r"Invalid credentials in Authorization header",
            r"LocalTokenNotFoundError|Token is required[^\n]{0,60}but no token found",
            r"The token in HF_TOKEN environment variable",
            r"No Hugging ?Face (?:Hub )?token (?:was )?found",
            r"(?:Please|You (?:must|need to)) (?:login|log in|be logged in|"
            r"ensure you have logged in)[^\n]{0,60}(?:huggingface|hf auth|Hugging Face)",
            r"Illegal header value b'Bearer",
            r"Invalid username or password\.?[\s\S]{0,200}huggingface",
            r"huggingface[\s\S]{0,300}Invalid username or password",
            r"403 Forbidden: (?:You don't have|This authentication method does not have|None)",
            r"don't have the rights to (?:create|push)",
            r"Unauthorized[^\n]{0,80}(?:hf_hub|huggingface)[^\n]{0,40}token",
        ),
        (HUB_NO_TOKEN, HUB_WRONG_TOKEN, HUB_TOKEN_RIGHTS),
        more=TOKENS,
        program=True,
        excludes=r"Repository Not Found|RepositoryNotFoundError",
    ),
    Rule(
        "hub-name",
        "OSError: foo/bar is not a local folder and is not a valid model identifier listed on "
        "'https://huggingface.co/models'",
        (
            r"is not a (?:local folder|valid model identifier)",
            r"RepositoryNotFoundError|Repository Not Found for url",
            r"Incorrect path_or_model_id: '([^']+)'",
            r"DatasetNotFoundError|doesn't exist on the Hub or cannot be accessed",
            r"HFValidationError|Repo id must (?:use alphanumeric|be in the form)",
        ),
        (
            HUB_NAME,
            HUB_FOLDER,
            HUB_PRIVATE,
            replace(
                HUB_WRONG_TOKEN, given=text_must_have(r"Invalid (?:user token|credentials)|is expired|Illegal header")
            ),
        ),
        more=TOKENS,
        program=True,
    ),
    Rule(
        "hub-access",
        "401 Client Error: Unauthorized for url: https://huggingface.co/meta-llama/Llama-3.1-8B",
        (r"40[13] Client Error[^\n]{0,80}huggingface\.co",),
        (
            HUB_NO_TOKEN,
            HUB_TERMS,
            HUB_NAME,
            replace(HUB_WRONG_TOKEN, given=text_must_have(r"Invalid (?:user token|credentials)|is expired")),
        ),
        more=TOKENS,
        program=True,
    ),
    Rule(
        "hub-file",
        "OSError: foo/bar does not appear to have a file named config.json",
        (
            r"does not appear to have (?:a file|files) named (\S+)",
            r"(?<!Local)EntryNotFoundError|Entry Not Found for url",
            r"Unrecognized model in [^\n]{1,80} Should have a `model_type` key",
            r"Revision Not Found for url|RevisionNotFoundError|is not a valid git identifier",
            r"no file named ([\w.]+(?:, [\w.]+)*)[^\n]{0,120}found in directory",
        ),
        (
            Cause(
                "model-other-kind",
                "The repository or folder does not have {0}: it holds another kind of model, such as a LoRA adapter, "
                "a GGUF file, or a diffusers pipeline.",
                "List its files on its page or with `ls`, and load it as its page shows.",
                tell="the list has adapter_config.json, model_index.json, or *.gguf",
                given=unless_text_has(r"[Rr]evision|git identifier"),
            ),
            Cause(
                "model-incomplete",
                "The local folder is incomplete: a download or a save was interrupted, or the path should name a "
                "folder inside it.",
                "Download it again with `hf download NAME`, or save it with `save_pretrained` for the model and for "
                "the tokenizer.",
                tell="`ls` on the folder shows no config.json, or no *.safetensors",
                given=unless_text_has(r"[Rr]evision|git identifier|Not Found for url"),
            ),
            Cause(
                "hub-revision",
                "The repository has no such branch, tag, or commit.",
                "Remove `revision=`, or use one that its page lists under Files.",
                tell="`revision` is set",
                given=text_must_have(r"[Rr]evision|git identifier"),
            ),
            replace(TRANSFORMERS_OLD, given=text_must_have(r"no file named pytorch_model\.bin|Unrecognized model in")),
        ),
        more=VERIFY,
        program=True,
    ),
    Rule(
        "hub-offline",
        "Cannot find the requested files in the disk cache and outgoing traffic has been disabled",
        (
            r"outgoing traffic has been disabled",
            r"OfflineModeIsEnabled",
            r"Cannot find the requested files in the (?:local|disk) cache and outgoing",
            r"local_files_only[^\n]{0,60}(?:True|is set)[\s\S]{0,400}(?:not found|Cannot find|cannot find)",
            r"Cannot reach \S+: offline mode is enabled",
        ),
        (
            Cause(
                "hub-cache-incomplete",
                "The files are not in the cache, and offline mode (`HF_HUB_OFFLINE` or `local_files_only`) forbids "
                "downloading them.",
                "Download them once without it: `HF_HUB_OFFLINE=0 hf download NAME`.",
                tell="`hf cache ls` does not list the model",
            ),
            Cause(
                "hub-cache-elsewhere",
                "The files were downloaded into another cache than the one that is used here.",
                "Set `HF_HOME` to the folder that has them, and mount it into the container.",
                tell="`hf cache ls` lists the model on the host and not in the container",
                given=CONTAINER & text_has(r"HF_HOME|cache_dir"),
            ),
        ),
        more="`hf cache ls`",
        program=True,
    ),
    Rule(
        "hub-unreached",
        "LocalEntryNotFoundError: An error happened while trying to locate the file on the Hub",
        (
            r"An error happened while trying to locate the file on the Hub",
            r"(?:Cannot|cannot) find (?:the requested files|an appropriate cached snapshot folder)[^\n]{0,120}",
            r"LocalEntryNotFoundError",
            r"couldn't connect to '?https://(?:huggingface\.co|hf-mirror)",
            r"(?:couldn't|could not) connect to ['\" ]{0,3}https://huggingface",
            r"how to run the library in offline mode at",
        ),
        (
            HUB_UNREACHABLE,
            HUB_NAME,
            Cause(
                "hub-mirror",
                "`HF_ENDPOINT` names a mirror that does not respond or does not have the file.",
                "Run `unset HF_ENDPOINT`.",
                tell="`echo $HF_ENDPOINT` prints an address",
                given=text_must_have(r"hf-mirror|HF_ENDPOINT"),
            ),
        ),
        more=HOST,
        excludes=r"outgoing traffic has been disabled|OfflineMode",
        program=True,
    ),
    Rule(
        "hub-code",
        "requires you to execute the configuration file in that repo on your local machine",
        (
            r"requires you to execute the \w+ ?\w* (?:file|script) in that repo",
            r"pass the argument `trust_remote_code=True`",
        ),
        (
            Cause(
                "model-code-not-allowed",
                "The model or data set comes with Python code of its own, which runs only with permission.",
                "If you trust its author, pass `trust_remote_code=True`, best with a fixed `revision=`.",
            ),
        ),
        certain=True,
        program=True,
        more=VERIFY,
    ),
    Rule(
        "dataset-script",
        "RuntimeError: Dataset scripts are no longer supported, but found squad.py",
        (r"Dataset scripts are no longer supported", r"trust_remote_code` is not supported anymore"),
        (
            Cause(
                "dataset-script",
                "The data set is loaded by a Python script, which the package datasets no longer runs since release 4.",
                'Use a version of the data set in Parquet files (`revision="refs/convert/parquet"`), or `./launch '
                "add 'datasets<4'`.",
                standalone='Use a version of the data set in Parquet files (`revision="refs/convert/parquet"`), or '
                "`pip "
                "install 'datasets<4'`.",
            ),
        ),
        program=True,
        more=VERIFY,
    ),
    Rule(
        "hf-transfer",
        "RuntimeError: An error occurred while downloading using `hf_transfer`",
        (
            r"while downloading using `?hf_transfer",
            r"Fast download using 'hf_transfer' is enabled[^\n]{0,80}not available",
            r"CAS service error|hf_xet[^\n]{0,60}(?:error|failed)",
            r"(?:xet-core|cas_client|xethub\.hf\.co|hf_xet)[\s\S]{0,300}(?:[Ee]rror|Retrying|timed out|Status\(\d+\))",
            r"(?:[Ee]rror|timed out|Status\(40\d\))[\s\S]{0,300}(?:xet-core|cas_client|xethub\.hf\.co)",
        ),
        (
            Cause(
                "hub-fast-download",
                "Hugging Face's fast download (Xet or hf_transfer) was interrupted, or its servers are blocked in "
                "this network.",
                "Run it again; if it fails again, set `HF_HUB_DISABLE_XET=1` and `HF_HUB_ENABLE_HF_TRANSFER=0`.",
                tell="the download works with `HF_HUB_DISABLE_XET=1`",
                given=unless_text_has(r"hf_transfer[^\n]*not available"),
            ),
            Cause(
                "hub-cache-not-written",
                "The cache cannot be written: its disk is full, or the folder belongs to another user.",
                "Check `df -h ~/.cache/huggingface` and `ls -ld ~/.cache/huggingface`; move the cache with "
                "`HF_HOME=FOLDER`.",
                tell="the folder is full or not writable, or the text has `Permission denied` or `No space left`",
                given=text_has(r"No space left|os error (?:28|122|13)\b|Permission denied")
                & unless_text_has(r"not available"),
            ),
            Cause(
                "hf-transfer-missing",
                "`HF_HUB_ENABLE_HF_TRANSFER` is set, but the package hf_transfer is not installed.",
                "Run `unset HF_HUB_ENABLE_HF_TRANSFER`, or `pip install hf_transfer`.",
                tell="the text has `not available`",
                given=text_must_have(r"hf_transfer[^\n]*not available"),
            ),
        ),
        more=HOST,
        program=True,
    ),
    Rule(
        "model-class",
        "ValueError: Unrecognized configuration class <class ...> for this kind of AutoModel: AutoModelForCausalLM.",
        (r"Unrecognized configuration class",),
        (
            Cause(
                "model-class-wrong",
                "The model is of another kind than the `Auto...` class that loads it, for example a vision or "
                "sequence-to-sequence model loaded with `AutoModelForCausalLM`.",
                "Use the class that the model's page shows.",
                tell="the model's page or `architectures` in its config.json names another class",
            ),
            TRANSFORMERS_OLD,
            MODEL_CODE,
        ),
        more=VERIFY,
    ),
    Rule(
        "transformers-too-old",
        "The checkpoint has model type `qwen3` but Transformers does not recognize this architecture",
        (
            r"does not recognize this architecture",
            r"`rope_scaling` must be a dictionary",
            r"data did not match any variant of untagged enum",
            r"Model architectures \[[^\]]*\] are not supported",
            r"^KeyError: '(?:qwen\w*|llama\w*|mistral\w*|gemma\w*|phi\w*|deepseek\w*|mixtral|glm\w*)'",
            r"CONFIG_MAPPING\[config_dict\[\"model_type\"\]\][\s\S]{0,1500}KeyError: '(\w+)'",
        ),
        (
            replace(TRANSFORMERS_OLD, given=text_has(r"untagged enum|not recognize this|rope_scaling|^KeyError")),
            Cause(
                "tokenizer-file-other",
                "The model's tokenizer.json does not fit the installed tokenizers: it was written by another release, "
                "or was replaced on the model's page.",
                "Download it again with `hf download NAME tokenizer.json --force-download`. If that does not help, "
                "install the release that the model's config.json names: `pip install "
                "'transformers==VERSION'`.",
                tell="transformers is already newer than `transformers_version` in the model's config.json",
                given=text_must_have(r"untagged enum"),
            ),
            Cause(
                "architecture-unknown",
                "This release of vLLM (or SGLang) does not support the model's architecture.",
                "Upgrade it: `pip install -U vllm`. If its list of supported models does not have the model, use "
                "transformers.",
                tell="the text has `Model architectures`",
                given=text_must_have(r"Model architectures \["),
            ),
            MODEL_CODE,
        ),
        more=VERIFY,
    ),
    Rule(
        "tokenizer-class",
        "ValueError: Tokenizer class LlamaTokenizer does not exist or is not currently imported.",
        (r"Tokenizer class \w+ does not exist or is not currently imported",),
        (
            TRANSFORMERS_OLD,
            Cause(
                "tokenizer-package-missing",
                "A package that this tokenizer needs is not installed.",
                "Run `./launch add sentencepiece protobuf tiktoken`.",
                tell="`pip show sentencepiece` finds nothing",
            ),
            MODEL_CODE,
        ),
        more=VERIFY,
    ),
    Rule(
        "wandb-access",
        "wandb.errors.UsageError: api_key not configured (no-tty)",
        (
            r"api_key not configured \(no-tty\)",
            r"CommError[^\n]{0,40}(?:permission|denied|not found|403|401)",
            r"wandb: ERROR[^\n]{0,40}API key",
            r"wandb\.errors\.\w*(?:Authentication|Usage)Error",
            r"API key you provided is either invalid or missing",
            r"Your login information seems to be invalid",
            r"\bwandb(?!/)[^\n]{0,200}(?:401|403|Unauthorized|Forbidden)",
            r"(?<!/)\bwandb(?!/)(?:(?! wandb/)[^\n]){0,200}"
            r"(?:API key must be|Invalid API key|user is not logged in|permission denied|"
            r"entity \S+ not found)",
        ),
        (
            Cause(
                "wandb-no-key",
                "Weights & Biases needs a login, and no API key was found.",
                "Set `WANDB_API_KEY` before `./launch` or the program starts, or log without an account: "
                "`WANDB_MODE=offline`.",
                tell="`env | grep -c WANDB_API_KEY` prints 0",
                given=text_has(r"not configured|not logged in|missing"),
                standalone="Set `WANDB_API_KEY` before the program starts, or log without an account: "
                "`WANDB_MODE=offline`.",
            ),
            Cause(
                "wandb-wrong-key",
                "The API key for Weights & Biases is invalid, or is for another server.",
                "Copy the key again from https://wandb.ai/authorize; for a server of your own, also set "
                "`WANDB_BASE_URL`.",
                tell="the text has `401` or `invalid`",
                given=text_has(r"\b401\b|invalid|must be 40"),
            ),
            Cause(
                "wandb-entity",
                "The account may not write to this project, or the team or user name (entity) does not exist.",
                "Correct `entity=` in `wandb.init` or `WANDB_ENTITY`, or ask the team's administrator for access.",
                tell="the text has `403`, `permission denied`, or `entity`",
                given=text_has(r"\b403\b|permission|entity"),
            ),
        ),
        more=TOKENS,
        program=True,
    ),
    Rule(
        "mlflow-schema",
        "mlflow.exceptions.MlflowException: Detected out-of-date database schema",
        (r"out-of-date database schema",),
        (
            Cause(
                "mlflow-database-old",
                "MLflow's database was created by another release of MLflow.",
                "Back it up, then run `mlflow db upgrade <database address>`, such as `sqlite:///mlflow.db`; or "
                "install the release that created it.",
            ),
        ),
        certain=True,
        more="`mlflow --version`",
        program=True,
    ),
    Rule(
        "mlflow-host",
        "Invalid Host header - possible DNS rebinding attack detected",
        (r"Invalid Host header - possible DNS rebinding", r"Blocking request with non-local 'Host'"),
        (
            Cause(
                "mlflow-allowed-hosts",
                "MLflow's server accepts requests only under the host names that it was given.",
                "Start it with `mlflow server --allowed-hosts NAME:PORT`, using the name in the address that clients "
                "use.",
                given=unless_text_has(r"Blocking request with non-local"),
            ),
            Cause(
                "jupyter-remote-access",
                "Jupyter accepts requests only under the name localhost.",
                "Use an SSH tunnel to localhost, or start it with `--ServerApp.allow_remote_access=True` and a token.",
                tell="the server is Jupyter",
                given=text_must_have(r"Blocking request with non-local"),
            ),
        ),
        more=VERIFY,
        program=True,
    ),
    Rule(
        "mlflow-param",
        "MlflowException: INVALID_PARAMETER_VALUE: Changing param values is not allowed.",
        (r"Changing param values is not allowed",),
        (
            Cause(
                "mlflow-param-changed",
                "The program logs a parameter twice in one MLflow run, with two values.",
                "Start a new run for each attempt, with `nested=True` inside of another, or log values that change "
                "as metrics.",
            ),
        ),
        certain=True,
        program=True,
        more=VERIFY,
    ),
    Rule(
        "wandb-network",
        "wandb.errors.CommError: Run initialization has timed out after 90.0 sec.",
        (
            r"Run initialization has timed out",
            r"wandb: Network error|wandb[^\n]{0,60}(?:Error communicating|ConnectTimeout|retrying)",
            r"wandb\.(?:sdk\.\S+|errors\.\S*)?(?:CommError|MailboxError)",
            r"ServiceStart\w*Error|ServicePoll\w+Error",
        ),
        (
            Cause(
                "wandb-unreachable",
                "The server of Weights & Biases cannot be reached, or responds too slowly.",
                "Check `curl -I https://api.wandb.ai`; set `HTTPS_PROXY` behind a proxy. If it is only slow, "
                "`WANDB_INIT_TIMEOUT=300`. Otherwise `WANDB_MODE=offline`, and upload later with `wandb sync "
                "wandb/offline-run-*`.",
                tell="`curl -I https://api.wandb.ai` fails",
            ),
            Cause(
                "wandb-service",
                "wandb's own helper process did not start or stopped, for example on an overloaded machine.",
                "Run `pip install -U wandb`, and start the program again with fewer processes; `WANDB_MODE=disabled` "
                "turns wandb off.",
                tell="the text has `Service`, or wandb/debug-internal.log ends early",
                given=text_must_have(r"ServiceStart|ServicePoll|MailboxError"),
            ),
        ),
        more=HOST,
        program=True,
    ),
    Rule(
        "ssh-host",
        "Host key verification failed.",
        (
            r"Host key verification failed",
            r"authenticity of host '[^']+' can't be established",
            r"No \w+ host key is known for|REMOTE HOST IDENTIFICATION HAS CHANGED",
            r"knownhosts: key (?:is unknown|mismatch)",
        ),
        (
            Cause(
                "ssh-host-unknown",
                "SSH does not know the server's key, as in a new container or a build.",
                "Clone with https, or run `ssh-keyscan HOST >> ~/.ssh/known_hosts` after comparing the fingerprint "
                "with the one that the server's owner publishes.",
                tell="`ssh-keygen -F HOST` prints nothing",
                given=~text_has(r"IDENTIFICATION HAS CHANGED|key mismatch"),
            ),
            Cause(
                "ssh-host-changed",
                "The server's key is not the one that SSH knows: the server was reinstalled, or somebody intercepts "
                "the connection.",
                "Compare the fingerprint with the one that the server's owner publishes; if it is right, run "
                "`ssh-keygen -R HOST` and connect again.",
                tell="the text has `HAS CHANGED`",
                given=text_has(r"IDENTIFICATION HAS CHANGED|key mismatch"),
            ),
        ),
        more=HOST,
        program=True,
    ),
    Rule(
        "ssh-key",
        "git@github.com: Permission denied (publickey).",
        (r"Permission denied \((?:publickey|password)[^)]*\)",),
        (SSH_NO_KEY, SSH_KEY_UNKNOWN),
        more=HOST,
        program=True,
    ),
    Rule(
        "git-login",
        "fatal: could not read Username for 'https://github.com': No such device or address",
        (
            r"could not read (?:Username|Password) for",
            r"fatal: Authentication failed for",
            r"Support for password authentication was removed",
            r"terminal prompts disabled",
        ),
        (
            Cause(
                "git-login-missing",
                "The repository is private, and git has no login for it here.",
                "Use a token: `gh auth login`, VS Code's login, or, in a build, `RUN --mount=type=secret`.",
                tell="its address opens in a browser only when you are logged in",
            ),
            GIT_ADDRESS,
            Cause(
                "git-password",
                "The login for git is wrong, or is a password where the server accepts only tokens.",
                "Create a personal access token on the server, and use it in place of the password.",
                tell="the text has `Authentication failed`",
                given=text_must_have(r"Authentication failed|password authentication was removed"),
            ),
        ),
        more=HOST,
        program=True,
    ),
    # The message: https://github.com/microsoft/AL-Go/issues/159; the setting:
    # https://github.com/peter-evans/create-pull-request/issues/1175 (both 2026-11-23)
    Rule(
        "actions-pull-requests",
        "pull request create failed: GraphQL: GitHub Actions is not permitted to create or approve pull requests "
        "(createPullRequest)",
        (r"GitHub Actions is not permitted to create or approve pull requests",),
        (
            Cause(
                "actions-pull-requests",
                "This repository, or its organization, does not allow GitHub Actions to open pull requests.",
                "Allow it: Settings > Actions > General > `Allow GitHub Actions to create and approve pull requests`.",
            ),
        ),
        certain=True,
        more=HOST,
        program=True,
    ),
    Rule(
        "submodule-entry",
        "fatal: no submodule mapping found in .gitmodules for path 'third_party/foo'",
        (r"no submodule mapping found in \.gitmodules for path '([^']+)'",),
        (
            Cause(
                "submodule-without-address",
                "The repository lists {0} as a submodule, but its .gitmodules has no address for it: an error in "
                "that repository.",
                "Clone it without `--recursive`; in a repository of yours, run `git rm --cached PATH` and commit.",
            ),
        ),
        certain=True,
        more=HOST,
        program=True,
    ),
    Rule(
        "git-broken-off",
        "error: RPC failed; curl 56 GnuTLS recv error",
        (
            r"RPC failed; curl",
            r"fatal: (?:early EOF|fetch-pack: )|fetch-pack: unexpected disconnect",
            r"fatal: index-pack failed",
            r"GnuTLS recv error|Error in the pull function",
        ),
        (
            Cause(
                "git-download-interrupted",
                "The connection was cut while git was downloading.",
                "Try again, with less data: `git clone --depth 1 ADDRESS` (then `git fetch --unshallow`). If it is cut "
                "each time: `git config --global http.version HTTP/1.1`, or clone over SSH.",
                tell="a retry gets further, or works",
            ),
            Cause(
                "git-memory",
                "Memory or disk space ran out while git was unpacking the download.",
                "Free memory and disk space (`free -h`, `df -h`), or use `git clone --depth 1 ADDRESS`.",
                tell="`df -h` or `free -h` shows that nothing is left",
                given=text_has(r"out of memory|No space left|signal 9|unable to write"),
            ),
        ),
        more=HOST,
        program=True,
    ),
    Rule(
        "no-such-service",
        "HTTPConnectionPool(host='mlflow', port=5000): Max retries exceeded (Caused by NameResolutionError(Failed to "
        "resolve 'mlflow'))",
        (
            r"host='([\w-]+)', port=\d+\)[\s\S]{0,600}?(?:Name or service not known|name resolution|Failed to resolve)",
            r"could not translate host name \"([\w-]+)\" to address",
        ),
        (
            Cause(
                "service-name-unknown",
                "The program looks for a server named {0}, and this network has none: the name of a Compose service is "
                "known only in containers of the same Compose project.",
                "Start the service and join its network (in a project, `./launch up`), or use an address that exists, "
                "such as `http://127.0.0.1:5000` on the machine.",
                tell="`docker compose ps` does not list it",
                standalone="Start the service and join its network, or use an address that exists, such as "
                "`http://127.0.0.1:5000` on the machine.",
            ),
        ),
        more="`docker compose ps`",
        program=True,
    ),
    Rule(
        "no-name-resolution",
        "Temporary failure in name resolution",
        (
            r"Temporary failure (?:in name resolution|resolving)",
            r"Could not resolve (?:host|')",
            r"^(?!sudo: )[^\n]*Name or service not known|NameResolutionError|Failed to resolve '",
            r"getaddrinfo (?:failed|ENOTFOUND|EAI_AGAIN)|EAI_AGAIN|nodename nor servname",
            r"dial tcp:? (?!127\.|\[::1\]|localhost)[^\n]{0,60}(?:i/o timeout|no such host|connection refused|"
            r"network is unreachable)",
            r"server misbehaving",
            r"couldn't connect to '?https://huggingface\.co'?",
            r"Network is unreachable|No route to host",
            r"dns error: failed to lookup address|unable to resolve host address|Unknown host",
            r"Couldn't connect to server|Failed to connect to \S+ port (?:443|80)",
            r"Could not connect to \S+:(?:80|443)|Cannot initiate the connection to",
        ),
        (
            Cause(
                "no-name-server",
                "Host names cannot be resolved here: the network or the name server (DNS) is down, or the container "
                "uses one that it cannot reach.",
                "Run `getent hosts github.com` on the machine and in the container. If only the container fails, add "
                '`"dns": ["1.1.1.1"]` (or your network\'s server) to /etc/docker/daemon.json and restart Docker; in '
                "WSL, run `wsl --shutdown` in Windows.",
                tell="`getent hosts github.com` prints nothing",
                given=text_has(
                    r"resol|Name or service|getaddrinfo|EAI_AGAIN|no such host|lookup|Unknown host|server misbehaving"
                ),
            ),
            NETWORK_DOWN,
            PROXY,
        ),
        more=HOST,
        kind="image",
    ),
    Rule(
        "registry-login",
        "unauthorized: authentication required",
        (
            r"unauthorized: (?:authentication required|incorrect username|access token|<html>)",
            r"failed to (?:fetch (?:anonymous|oauth) token|authorize)[^\n]{0,120}40[13]",
            r"requested access to the resource is denied",
            r"pull access denied",
            r"no basic auth credentials",
            r"denied: (?:requested|permission_denied|installation not allowed)|error from registry: denied",
            r"unexpected status (?:code |from )[^\n]{0,160}40[13] (?:Unauthorized|Forbidden)",
            r"invalid username/password: unauthorized",
        ),
        (
            Cause(
                "registry-login-missing",
                "The registry gives this image only to users who are logged in and have access to it.",
                "Run `docker login REGISTRY`; for nvcr.io, the user name is `$oauthtoken` and the password an NGC "
                "API key.",
                tell="the image is private, or its page asks for a login",
            ),
            Cause(
                "registry-login-stale",
                "A stored login is expired or wrong, which blocks public images as well.",
                "Run `docker logout REGISTRY`, then pull again.",
                tell="~/.docker/config.json lists the registry, and the image is public",
                given=unless_text_has(r"anonymous token"),
            ),
            Cause(
                "image-name-unknown",
                "The registry has no image with this name: registries also deny access to images that do not exist.",
                "Correct the name. An image of your own must be built before a container is created from it.",
                tell="the registry's web page does not list the image",
                given=text_has(r"pull access denied|repository does not exist"),
            ),
        ),
        more=BUILD,
        kind="image",
    ),
    Rule(
        "port-in-use",
        "OSError: [Errno 98] Address already in use",
        (
            r"Address already in use|address already in use",
            r"EADDRINUSE",
            r"port is already allocated",
            r"ports are not available",
            r"server socket has failed to listen",
            r"port \d+ is (?:already )?(?:in use|taken|being used|occupied)",
            r"Cannot find empty port in range",
            r"TensorBoard could not bind to port",
            r"no available port could be found",
        ),
        (
            Cause(
                "port-of-other-training",
                "Another training on this machine uses the same port, or an earlier one has not ended.",
                "If an earlier one is left, end it with `kill PID`. To run two at a time, start the second with "
                "`torchrun --standalone` or `--master-port=29501`; without torchrun, set `MASTER_PORT=29501`.",
                tell="`ss -ltnp | grep 29500` lists a python process and its PID",
                given=text_must_have(
                    r"29500|torchrun|TCPStore|server socket has "
                    r"failed|MASTER_PORT|master_port|process_group|torch[./]distributed|c10d|"
                    r"^(?:\S+ )?RuntimeError: Address already in use|NCCL|accelerate|deepspeed"
                ),
            ),
            Cause(
                "port-of-other-program",
                "Another program already listens on this port.",
                "Run `ss -ltnp | grep :PORT` to find and end it, or use another port (in a project: `MLFLOW_PORT` or "
                "`TENSORBOARD_PORT` in .env).",
                tell="`ss -ltnp | grep :PORT` lists it",
            ),
        ),
        more=PORTS,
        program=True,
        kind="port",
    ),
    Rule(
        "no-such-address",
        "OSError: [Errno 99] Cannot assign requested address",
        (r"Cannot assign requested address",),
        (
            Cause(
                "address-not-here",
                "A program tries to listen on, or send from, an address that this machine or container does not have.",
                "Use `0.0.0.0` as the address to listen on. For training on several machines, `MASTER_ADDR` must "
                "be the address of rank 0's machine.",
                tell="`ip addr` does not list the address",
            ),
            Cause(
                "localhost-ipv6",
                "The name localhost means an IPv6 address (::1), and the container has no IPv6, or the server "
                "listens only on IPv4.",
                "Use `127.0.0.1` in place of `localhost`.",
                tell="it works with 127.0.0.1",
                given=text_has(r"localhost|::1"),
            ),
            Cause(
                "connections-used-up",
                "Too many connections were opened in a short time, and no local port is left.",
                "Reuse connections (for example one `requests.Session`), or open fewer at a time.",
                tell="`ss -s` shows tens of thousands of connections",
            ),
        ),
        more="`ip addr`",
        level=GENERAL,
        program=True,
    ),
    Rule(
        "git-unreachable",
        "fatal: Could not read from remote repository.",
        (r"Could not read from remote repository|Please make sure you have the correct access rights",),
        (SSH_NO_KEY, SSH_KEY_UNKNOWN, GIT_ADDRESS),
        more=HOST,
        level=GENERAL,
        program=True,
    ),
    Rule(
        "server-fails",
        "503 Server Error: Service Unavailable for url",
        (
            r"50[0-4] Server Error|HTTP Error 50[0-4]|returned error: 50[0-4]|50[234] (?:Bad Gateway|"
            r"Service Unavailable|Gateway Time-?out)|status code:? 50[0-4]",
            r"HTTP status server error \(50\d",
        ),
        (
            TRY_AGAIN,
            Cause(
                "own-server-failed",
                "A server of your own, such as MLflow or vLLM, failed or is still starting.",
                "Look at its log: `./launch logs mlflow`, or `docker logs NAME`.",
                tell="the address in the text is one of yours",
                given=text_must_have(LOCAL),
                standalone="Look at its log: `docker logs NAME`.",
            ),
            Cause(
                "gateway-fails",
                "A proxy or gateway of your network answers in place of the server, or cannot reach it.",
                "Try `curl -I --noproxy '*' ADDRESS`. If that works, exclude the server: `export "
                "NO_PROXY=localhost,127.0.0.1,HOST`.",
                tell="`env | grep -i proxy` prints an address",
            ),
        ),
        more=HOST,
        level=GENERAL,
        program=True,
    ),
    Rule(
        "address-refused",
        "requests.exceptions.HTTPError: 403 Client Error: Forbidden for url",
        (
            r"ERROR 403: Forbidden|HTTP Error 40[13]|40[13] Client Error|returned error: 40[13]",
            r"NoCredentialsError|Unable to locate credentials|\(AccessDenied\)|AccessDeniedException",
            r"Cannot retrieve the public link of the file|Too many users have viewed or downloaded",
            r"HTTP status client error \(40[13]",
        ),
        (
            Cause(
                "server-login-missing",
                "The server requires a login or token for this, or the account has no access.",
                "Set the token that the server's documentation names, such as `HF_TOKEN`, before the program starts.",
                tell="the address opens in a browser only when you are logged in",
                given=unless_text_has(r"Credentials|AccessDenied|public link|Too many users"),
            ),
            Cause(
                "server-refuses-client",
                "The server refuses programs, this network, or this country, or the file was moved or made private.",
                "Download the file in a browser and put it where the program looks for it, upgrade the package that "
                "asks for it, or try another network or mirror.",
                tell="the address opens in a browser without a login, or in no browser",
                given=unless_text_has(r"NoCredentials|Unable to locate credentials|public link|Too many users"),
            ),
            Cause(
                "cloud-credentials",
                "The credentials for the cloud's storage are missing, or do not allow this.",
                "Check `aws sts get-caller-identity`; pass `AWS_PROFILE` or `AWS_ACCESS_KEY_ID` and "
                "`AWS_SECRET_ACCESS_KEY` to the container.",
                tell="`aws sts get-caller-identity` fails in the container",
                given=text_must_have(r"NoCredentials|Unable to locate credentials|AccessDenied"),
            ),
            Cause(
                "drive-quota",
                "Google Drive limits downloads of this file, or it is not shared with everybody.",
                "Wait a day, or download it in a browser while logged in and mount it.",
                tell="the address is of Google Drive",
                given=text_must_have(r"public link|Too many users"),
            ),
        ),
        more=TOKENS,
        level=GENERAL,
        program=True,
    ),
    Rule(
        "address-gone",
        "urllib.error.HTTPError: HTTP Error 404: Not Found",
        (
            r"ERROR 404: Not Found|HTTP Error 404|404 Client Error|returned error: 404|404 Not Found",
            r"HTTP status client error \(404",
        ),
        (
            Cause(
                "address-gone",
                "Nothing is at this address: the file was moved or deleted, or the version in it does not exist.",
                "Use the address that the project's page names today.",
                tell="a browser shows the same error",
            ),
            Cause(
                "address-private",
                "The address needs a login: GitHub and others answer `404` for what is private.",
                "Set a token for that server, or download the file in a browser while logged in.",
                tell="it opens in a browser when you are logged in",
            ),
            Cause(
                "address-in-old-release",
                "The address is written in an old release of a package, and the files have moved since.",
                "Upgrade that package (`pip install -U PACKAGE`), or download the file by hand and put it where the "
                "package looks for it.",
                tell="the traceback passes through site-packages, such as torchvision or sklearn",
                given=text_has(r"(?:site|dist)-packages/|lib/python3"),
            ),
        ),
        more=HOST,
        level=GENERAL,
        program=True,
    ),
    Rule(
        "hub-missing",
        "OSError: Can't load tokenizer for 'gpt2'.",
        (
            r"Can't load (?:the )?(?:tokenizer|model|config\w*|feature extractor|(?:image )?processor) (?:for|of) '",
            r"Model name '[^'\n]+'\s+was not found in (?:\w+\s+)?model",
            r"We\s+assumed \'[^\'\n]+\' was a path, a model identifier",
        ),
        (
            HUB_NAME,
            Cause(
                "hub-folder-shadows",
                "A local folder has the same name as the model, and does not have the files.",
                "Rename that folder, or start the program in another one.",
                tell="`ls NAME` shows a folder where the program starts",
            ),
            HUB_UNREACHABLE,
        ),
        more=TOKENS,
        level=GENERAL,
        program=True,
    ),
    Rule(
        "network-breaks",
        "requests.exceptions.ConnectionError: ('Connection aborted.', ConnectionResetError(104))",
        (
            r"HTTPS?ConnectionPool\((?!host='(?:localhost|127\.|0\.0\.0\.0))[^\n]{0,200}(?:Max retries exceeded|"
            r"Read timed out|timed out)",
            r"(?:requests\.exceptions|urllib3\.exceptions|httpx|httpcore|aiohttp|urllib\.error)\.?\w*\.?"
            r"(?:Connection|Connect|Read|Timeout|URLError|Chunked|Protocol|Incomplete|Remote|SSL|Server)\w*",
            r"RemoteDisconnected|IncompleteRead|Connection broken",
            r"LocalEntryNotFoundError|An error happened while trying to locate the file on the Hub",
            r"CondaHTTPError|HTTP 000 CONNECTION FAILED",
            r"ClientConnectorError|Cannot connect to host \S+:\d+",
            r"error: Failed to fetch: `?https?://|Failed to download (?:distribution|`)",
            r"httpReadSeeker: failed open",
            r"error pulling image configuration|download failed after attempts",
            r"curl: \((?:7|18|28|35|52|55|56|92)\)",
            r"(?:download|fetch|pull)[^\n]{0,80}(?:timed out|connection reset)",
            r"error sending request for url|operation timed out[^\n]{0,40}(?:http|download)",
            r"ETIMEDOUT|ECONNRESET|net/http: request canceled|(?:https?://|pull|registry|Get "
            r"\\?\")[^\n]{0,200}context deadline exceeded|failed to solve: DeadlineExceeded",
            r"socket\.timeout: |TimeoutError: (?:timed out|\[Errno 110\]|\[WinError 10060\])",
            r"The (?:read|write|handshake) operation timed out",
            r"TLS handshake timeout|Client\.Timeout exceeded|request canceled while waiting for connection",
        ),
        (
            Cause(
                "connection-interrupted",
                "The connection was interrupted, or the server did not respond in time.",
                "Run the command again. If it fails again, check the address with `curl -I ADDRESS` on the machine "
                "and in the container.",
                tell="another try gets further, or works",
            ),
            PROXY,
            Cause(
                "server-slow",
                "The network is too slow for the time limit of the program.",
                "Raise the limit: `HF_HUB_DOWNLOAD_TIMEOUT=60`, `UV_HTTP_TIMEOUT=900`, or `pip --timeout 100`.",
                tell="a large download ends after the same number of seconds each time",
                given=text_must_have(r"timed? ?out|timeout|deadline"),
            ),
        ),
        more=HOST,
        level=GENERAL,
        program=True,
    ),
    Rule(
        "peer-gone",
        "BrokenPipeError: [Errno 32] Broken pipe",
        (
            r"BrokenPipeError|\[Errno 32\] Broken pipe",
            r"^\w*(?:Runtime|OS)Error: (?:Broken pipe|Connection reset by peer)",
            r"Connection closed by peer",
            r"ConnectionResetError: \[Errno 104\]",
        ),
        (
            Cause(
                "other-side-ended",
                "The process or server at the other end of the connection ended.",
                "Look for its own error: further up in this log, in the log of another rank, or in the server's log.",
                tell="another process ended earlier, or the server restarted",
            ),
            Cause(
                "output-closed",
                "The program that reads this one's output ended, as with `| head`.",
                "Write the output to a file: `... > log.txt 2>&1`.",
                tell="the command has a pipe, and the traceback ends in `print` or `flush`",
                given=text_must_have(r"\[Errno 32\]|BrokenPipe|Broken pipe"),
            ),
        ),
        more=VERIFY,
        level=GENERAL,
        program=True,
    ),
    Rule(
        "nobody-listens",
        "ConnectionRefusedError: [Errno 111] Connection refused",
        (
            r"HTTPS?ConnectionPool\(host='(?:localhost|127\.|0\.0\.0\.0)[^\n]{0,300}(?:refused|Max retries)",
            r"\[Errno 111\] Connection refused",
            r"ConnectionRefusedError",
            r"ECONNREFUSED",
            r"connect: connection refused",
            r"connect(?:ion)?(?: to \S+)?(?: port \d+)? ?(?:failed|error)?: Connection refused|refused to connect\b",
        ),
        (
            Cause(
                "server-not-running",
                "No server listens at that address: it is not started, still starting, or has failed.",
                "Start it (in a project: `./launch up`), or look at its log: `./launch logs NAME`.",
                tell="`ss -ltn` on its machine does not list the port",
                standalone="Start it, or look at its log: `docker logs NAME`.",
            ),
            Cause(
                "localhost-in-container",
                "In a container, localhost is the container itself; the server runs on the machine or in another "
                "container.",
                "Use the service's name (`http://mlflow:5000`) or `host.docker.internal` as the host.",
                tell="the same address works on the machine",
                given=text_must_have(r"localhost|127\.0\.0\.1") & CONTAINER,
            ),
            Cause(
                "port-not-published",
                "The server's container does not publish the port, or the server listens only inside of it on "
                "127.0.0.1.",
                "Publish it (`docker run -p 8888:8888 ...`, `forwardPorts` in devcontainer.json), and let the server "
                "listen on 0.0.0.0.",
                tell="`docker port NAME` does not list it",
            ),
        ),
        more=HOST,
        level=GENERAL,
        program=True,
    ),
)
