"""The network: names, proxies, certificates, registries, Hugging Face, Weights & Biases, git."""

from __future__ import annotations

from gpukit.errors.rule import BUILD, GENERAL, HOST, VERIFY, Rule
from gpukit.findings.finding import Cause

TOKENS = "./launch verify --only credentials"

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
            Cause(
                "clock",
                "Two clocks differ: this machine's is wrong, as in a WSL that slept, or the other side's is.",
                "date shows it: sudo hwclock -s, or wsl --shutdown in Windows.",
            ),
        ),
        look=HOST,
    ),
    Rule(
        "certificate-expired",
        "certificate verify failed: certificate has expired",
        (r"certificate has expired|CERT_HAS_EXPIRED",),
        (
            Cause(
                "certificate-expired",
                "A certificate is out of date: the server's, the list in an old image, or this machine's clock is ahead.",
                "A newer base image, or ca-certificates in apt.txt; `date` shows the clock.",
            ),
        ),
        look=BUILD,
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
                "certificate-name",
                "The server that answers under that name has a certificate for another one: it was moved, or a "
                "firewall or a login page stands in front of it.",
                "HTTPS_PROXY where the network has a proxy; the address as the project's page names it today; `curl "
                "-v` shows who answers.",
            ),
        ),
        look=HOST,
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
                "certificate-file",
                "A file with certificates that the environment names (SSL_CERT_FILE, REQUESTS_CA_BUNDLE) is missing or broken.",
                "unset SSL_CERT_FILE REQUESTS_CA_BUNDLE CURL_CA_BUNDLE; or name a whole file in PEM form.",
            ),
        ),
        look=HOST,
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
                "certificate",
                "A certificate is not known here: the network puts its own in front (a company's proxy), the server "
                "has one of its own, or the list of known ones (ca-certificates) is missing or old.",
                "Put that certificate as certs/NAME.crt into the project, then ./launch build; in an image of your "
                "own: ca-certificates",
            ),
        ),
        look=BUILD,
    ),
    Rule(
        "insecure-registry",
        "http: server gave HTTP response to HTTPS client",
        (r"server gave HTTP response to HTTPS client",),
        (
            Cause(
                "insecure-registry",
                "The registry speaks no TLS, which Docker expects.",
                '"insecure-registries" with its address in /etc/docker/daemon.json, then restart Docker.',
            ),
        ),
        look=BUILD,
    ),
    Rule(
        "proxy",
        "ProxyError: Cannot connect to proxy., Tunnel connection failed: 407 Proxy Authentication Required",
        (
            r"Cannot connect to proxy|ProxyError",
            r"407 Proxy Authentication Required|Proxy Authentication Required",
            r"Tunnel connection failed",
            r"proxyconnect tcp",
            r"Missing dependencies for SOCKS support|Unable to determine SOCKS version",
            r"unable to access 'https?://(?!127\.|localhost)[^']*': Failed to connect to (?:127\.0\.0\.1|"
            r"localhost) port",
            r"Failed to connect to (?:127\.0\.0\.1|localhost) port (?:7890|1080|10809|8118|3128)\b",
            r"Received HTTP code 40[37] from proxy",
        ),
        (
            Cause(
                "proxy",
                "The proxy that the environment names does not let this through; 127.0.0.1 in it is the container itself.",
                "HTTPS_PROXY as it is reached from a container, in the environment before ./launch build.",
            ),
        ),
        look=HOST,
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
                "tls-broken",
                "The encrypted connection was cut on its way: by a proxy or firewall, by a proxy that is named with "
                "https:// and speaks http://, or because this system is too old for the server's TLS.",
                "HTTPS_PROXY=http://..., or the download from another network; for an old image: a newer base.",
            ),
        ),
        look=HOST,
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
                "hub-rate",
                "The server counts too many requests from here; with a login it allows more.",
                "Wait, and set HF_TOKEN (or docker login for images); a cache that is mounted asks only once.",
            ),
        ),
        look=TOKENS,
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
        (
            Cause(
                "hub-gated",
                "Hugging Face gives this model only to those who are logged in and have accepted its terms.",
                "Accept them on the model's page, and set HF_TOKEN in the environment.",
            ),
        ),
        look=TOKENS,
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
        (
            Cause(
                "hub-token",
                "The token for Hugging Face is missing, wrong (often with a line end in it), or may not do this.",
                "A new one from https://huggingface.co/settings/tokens in HF_TOKEN, with the right that is needed.",
            ),
        ),
        look=TOKENS,
        unless=r"Repository Not Found|RepositoryNotFoundError",
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
            Cause(
                "hub-name",
                "There is no such model or data set on Hugging Face under that name, it is private, or a local folder of "
                "that name was meant and is not in the container.",
                "Check the name; for a private one set HF_TOKEN; for a folder its path in the container.",
            ),
        ),
        look=TOKENS,
    ),
    Rule(
        "hub-access",
        "401 Client Error: Unauthorized for url: https://huggingface.co/meta-llama/Llama-3.1-8B",
        (r"40[13] Client Error[^\n]{0,80}huggingface\.co",),
        (
            Cause(
                "hub-access",
                "Hugging Face gives this only to those who are logged in and have accepted its terms, or there is "
                "nothing under that name.",
                "Check the name, accept the terms on its page, and set HF_TOKEN in the environment.",
            ),
        ),
        look=TOKENS,
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
                "hub-file",
                "The model's folder or page has no such file ({0}): another kind of model, another branch, or a download "
                "that broke off.",
                "Look at the model's list of files; a model of one's own is saved with save_pretrained.",
            ),
        ),
        look=VERIFY,
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
                "hub-offline",
                "The files are not in the cache, and offline mode (HF_HUB_OFFLINE) keeps them from being fetched.",
                "Fetch them once without HF_HUB_OFFLINE; the cache must be the one that is mounted.",
            ),
        ),
        look=VERIFY,
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
            Cause(
                "hub-unreached",
                "The file is not in the cache, and Hugging Face is not reached from here.",
                "Look whether curl -I https://huggingface.co works there (HTTPS_PROXY, HF_ENDPOINT); offline: fetch it "
                "once elsewhere into the cache that is mounted.",
            ),
        ),
        look=HOST,
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
                "hub-code",
                "The model brings Python code of its own, which runs only where it is allowed.",
                "trust_remote_code=True, for a model that you trust.",
            ),
        ),
        look=VERIFY,
    ),
    Rule(
        "dataset-script",
        "RuntimeError: Dataset scripts are no longer supported, but found squad.py",
        (r"Dataset scripts are no longer supported", r"trust_remote_code` is not supported anymore"),
        (
            Cause(
                "dataset-script",
                "The data set is a program, which the package datasets does not run since its version 4.",
                "A version of the data set in files (Parquet), or ./launch add 'datasets<4'",
            ),
        ),
        look=VERIFY,
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
                "hf-transfer",
                "The faster way of downloading from Hugging Face does not get through, or its package is missing.",
                "HF_HUB_DISABLE_XET=1 HF_HUB_ENABLE_HF_TRANSFER=0",
            ),
        ),
        look=VERIFY,
    ),
    Rule(
        "model-class",
        "ValueError: Unrecognized configuration class <class ...> for this kind of AutoModel: AutoModelForCausalLM.",
        (r"Unrecognized configuration class",),
        (
            Cause(
                "model-class",
                "The model is of another kind than the class that loads it serves, or transformers is older than the model.",
                "The class that the model's page names; else ./launch add transformers in a newer release.",
            ),
        ),
        look=VERIFY,
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
        ),
        (
            Cause(
                "transformers-too-old",
                "What loads the model (transformers, vLLM or another) is older than the model.",
                "./launch add 'transformers' in a newer release.",
            ),
        ),
        look=VERIFY,
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
                "wandb-access",
                "Weights & Biases has no key here, or one that may not write to that project.",
                "Set WANDB_API_KEY in the environment before ./launch, or WANDB_MODE=offline.",
            ),
        ),
        look=TOKENS,
    ),
    Rule(
        "mlflow-schema",
        "mlflow.exceptions.MlflowException: Detected out-of-date database schema",
        (r"out-of-date database schema",),
        (
            Cause(
                "mlflow-schema",
                "MLflow's database was made by another release of MLflow.",
                "mlflow db upgrade with its address, after a copy of it; or the release that made it.",
            ),
        ),
        look=VERIFY,
    ),
    Rule(
        "mlflow-host",
        "Invalid Host header - possible DNS rebinding attack detected",
        (
            r"Invalid Host header - possible DNS rebinding",
            r"Blocking request with non-local 'Host'",
        ),
        (
            Cause(
                "mlflow-host",
                "The server answers only under the names that it was given.",
                "mlflow server --allowed-hosts with that name; Jupyter: ServerApp.allow_remote_access = True",
            ),
        ),
        look=VERIFY,
    ),
    Rule(
        "mlflow-param",
        "MlflowException: INVALID_PARAMETER_VALUE: Changing param values is not allowed.",
        (r"Changing param values is not allowed",),
        (
            Cause(
                "mlflow-param",
                "The program itself: a parameter is logged twice in one MLflow run, with two values.",
                "A new run (or a nested one) for each attempt.",
            ),
        ),
        look=VERIFY,
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
                "wandb-network",
                "Weights & Biases is not reached from here, or did not start in time.",
                "WANDB_MODE=offline, then `wandb sync` later.",
            ),
        ),
        look=HOST,
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
                "ssh-host",
                "ssh does not know the other side's key here (known_hosts), or that key has changed.",
                "Clone by https; else ssh-keyscan HOST >> ~/.ssh/known_hosts, once its fingerprint has been compared.",
            ),
        ),
        look=HOST,
    ),
    Rule(
        "ssh-key",
        "git@github.com: Permission denied (publickey).",
        (r"Permission denied \((?:publickey|password)[^)]*\)",),
        (
            Cause(
                "ssh-key",
                "The other side does not know a key of yours, or yours is not in the container.",
                "ssh-add on the machine, from where VS Code hands it on; or clone by https.",
            ),
        ),
        look=HOST,
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
                "git-login",
                "git asks for a login, which a build cannot give: the repository is private, renamed or gone.",
                "Check its address; for a private one a build secret or a token.",
            ),
        ),
        look=HOST,
    ),
    Rule(
        "submodule-entry",
        "fatal: no submodule mapping found in .gitmodules for path 'third_party/foo'",
        (r"no submodule mapping found in \.gitmodules for path '([^']+)'",),
        (
            Cause(
                "submodule-entry",
                "The repository holds {0} as a submodule, and its .gitmodules does not say from where: a mistake in "
                "the repository.",
                "Clone it without --recursive; in a repository of yours: git rm --cached on that path.",
            ),
        ),
        look=HOST,
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
                "git-broken-off",
                "git's download broke off: the network is slow, or cuts long connections.",
                "git clone --depth 1, or once more.",
            ),
        ),
        look=HOST,
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
                "no-name-resolution",
                "The network, or the name service, cannot be reached from here, or there is no such name.",
                "Look whether the machine itself reaches it; behind a proxy set HTTPS_PROXY; offline: HF_HUB_OFFLINE=1",
            ),
        ),
        look=HOST,
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
                "registry-login",
                "The registry does not give this image without a login or from here, or there is none under this name.",
                "Check the image's name, then docker login with its registry (nvcr.io: user $oauthtoken).",
            ),
        ),
        look=BUILD,
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
                "port-in-use",
                "Another program listens on that port.",
                "End it, or take another port: torchrun --master-port, MLFLOW_PORT or TENSORBOARD_PORT in .env.",
            ),
        ),
        look="./launch doctor --only ports",
    ),
    Rule(
        "no-such-address",
        "OSError: [Errno 99] Cannot assign requested address",
        (r"Cannot assign requested address",),
        (
            Cause(
                "no-such-address",
                "The server wants to listen on, or reach, an address that the container does not have.",
                "0.0.0.0 as the address to listen on.",
            ),
        ),
        look=VERIFY,
    ),
    # about: This transformers knows no kind of model named {0}.
    Rule(
        "model-kind-unknown",
        "config_class = CONFIG_MAPPING[config_dict[\"model_type\"]] ... KeyError: 'llaga'",
        (r"CONFIG_MAPPING\[config_dict\[\"model_type\"\]\][\s\S]{0,1500}KeyError: '(\w+)'",),
        (
            Cause(
                "model-kind-unknown-1",
                "It is older than the model.",
                "pip show transformers",
                tell="the model's page names a newer release: ./launch add transformers",
            ),
            Cause(
                "model-kind-unknown-2",
                "The model brings its own code or package.",
                "pip show transformers",
                tell="its page imports a package of its own, or says trust_remote_code=True",
            ),
        ),
        look=VERIFY,
        level=GENERAL,
    ),
    # about: transformers here does not have the model's tokenizer.
    Rule(
        "tokenizer-class",
        "ValueError: Tokenizer class LlamaTokenizer does not exist or is not currently imported.",
        (r"Tokenizer class \w+ does not exist or is not currently imported",),
        (
            Cause(
                "tokenizer-class-1",
                "It is older than the model.",
                "pip show transformers sentencepiece tokenizers",
                tell="the model's page names a newer release: ./launch add transformers",
            ),
            Cause(
                "tokenizer-class-2",
                "A package that this tokenizer needs is missing.",
                "pip show transformers sentencepiece tokenizers",
                tell="./launch add sentencepiece protobuf",
            ),
        ),
        look=VERIFY,
        level=GENERAL,
    ),
    Rule(
        "git-unreachable",
        "fatal: Could not read from remote repository.",
        (r"Could not read from remote repository|Please make sure you have the correct access rights",),
        (
            Cause(
                "git-unreachable",
                "git does not get at that repository: no key of yours is known there, its name is wrong, or the way to it is "
                "closed; the line before says which.",
                "Its address by https; a private one needs a key or a token in the container.",
            ),
        ),
        look=HOST,
        level=GENERAL,
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
            Cause(
                "server-fails", "The server there has trouble of its own.", "Later again; a mirror, where there is one."
            ),
        ),
        look=HOST,
        level=GENERAL,
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
                "address-refused",
                "The server refuses this: a login, token or right is missing, or too many have asked for it.",
                "A token for it in the environment, or the file fetched by hand.",
            ),
        ),
        look=TOKENS,
        level=GENERAL,
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
                "There is nothing at that address (any more): it was moved, or a version in it does not exist.",
                "The address as the project's page names it today.",
            ),
        ),
        look=HOST,
        level=GENERAL,
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
            Cause(
                "hub-missing",
                "transformers finds these files neither in the container nor on Hugging Face: another name, no "
                "network, no right to it, a local folder of that name without them, or a transformers too old to "
                "look there.",
                "Check the name, and that no folder of that name lies where the program starts.",
            ),
        ),
        look=TOKENS,
        level=GENERAL,
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
                "network-breaks",
                "A download broke off, or the server does not answer in time.",
                "Once more; where it stays so, look whether the machine itself reaches that address.",
            ),
        ),
        look=HOST,
        level=GENERAL,
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
                "peer-gone",
                "The other side, a process or a server, ended first; its own error stands further up or in its log.",
                "Look for the first error above, or in that process.",
            ),
        ),
        look=VERIFY,
        level=GENERAL,
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
                "nobody-listens",
                "Nobody listens at that address: the server is not running, its container does not publish that "
                "port, or it runs elsewhere (in a container localhost is the container).",
                "Start it (./launch up), with that port published (-p, forwardPorts); among containers its name is "
                "the address.",
            ),
        ),
        look=VERIFY,
        level=GENERAL,
    ),
)
