"""Hide secrets in everything that is printed, and the names of users and machines in reports.

Values are read from where they are stored, so that they are recognized in the output of any tool. Texts with the format
of a secret, or in the place of one, are hidden as well.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import pwd
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from gpukit.project.location import place

HIDDEN = "***"
MIN_LENGTH = 6  # shorter values are words that occur in any text
SECRET_NAMES = re.compile(
    r"token|secret|passw|passphrase|passwd|api_?key|access_?key|private_?key|account_?key|credential|authorization|"
    r"cookie|webhook|connection_?string|extraheader|(^|[_.-])(auth|key|pat|pass|dsn|pwd|sas)$",
    re.IGNORECASE,
)
# Exceptions: the shell's working directory, paths and addresses, and numbers of tokens.
NOT_SECRET = re.compile(
    r"^(old)?pwd$|[_-](file|path|dir|directory|url|uri|host|name|type|socket|sock)$|^tokenizers_|"
    r"(^|_)(max|min|num|n)_\w*tokens?$",
    re.IGNORECASE,
)
NOT_SECRET_VALUES = ("disabled", "enabled", "offline", "online", "dryrun", "x-oauth-basic", "x-access-token")
# Names of shared or default accounts, which identify nobody.
GENERIC_NAMES = ("", "root", "localhost", "user", "nvidia", "ubuntu", "debian", "docker", "jetson", "runner", "vscode")
# A secret has a digit or is long; a short word belongs to an error text, as in "Unexpected token: expected".
NOT_A_WORD = r"(?=[^\s\"',;]*\d|[^\s\"',;]{16})(?!\d{1,9}\b)"
# Places where secrets occur.
SECRET_CONTEXTS = (
    (re.compile(r"(?<=://)[^\s/?#]*@"), f"{HIDDEN}@"),
    (re.compile(r"(?<=://)[^\s/@:]*:[^\s@]+@(?=[\w\[])"), f"{HIDDEN}@"),  # a password with a slash in it
    (re.compile(r"([?&;](?:[\w-]*(?:token|key|secret|signature|password|auth)[\w-]*|sig)=)[^&\s\"']+", re.I), r"\1***"),
    (re.compile(rf"(\b(?:bearer|authorization:\s*\w+)\s+){NOT_A_WORD}[\w.~+/=-]{{6,}}", re.I), r"\1***"),
    (
        re.compile(r"(\b[\w-]*(?:passw(?:or)?d|api[_-]?key|access[_-]?key)[\"']?\s*[=:]\s*[\"']?)"
                   r"(?![/*])[^\s\"',;]{4,}", re.I),
        r"\1***"
    ),
    (
        re.compile(rf"(\b[\w-]*(?:token|secret)(?:[\"']?\s*[=:]\s*[\"']|=|[\"']?\s*[=:]\s*{NOT_A_WORD}))"
                   r"(?![/*])[^\s\"',;]{4,}", re.I),
        r"\1***"
    )
)  # fmt: skip
TOKEN_FORMATS = re.compile(
    r"\b(?:hf_[A-Za-z0-9]{8,}|gh[pousr]_[A-Za-z0-9]{16,}|github_pat_\w{16,}|glpat-[\w-]{10,}|sk-[\w-]{16,}|"
    r"(?:AKIA|ASIA)[A-Z0-9]{12,}|AIza[\w-]{30,}|xox[abprs]-[\w-]{8,}|eyJ[\w-]{8,}\.[\w-]+(?:\.[\w-]*)?|npm_\w{20,}|"
    r"pypi-[\w-]{16,}|nvapi-[\w-]{10,}|wandb_v\d_\w{16,}|dckr_pat_[\w-]{10,}|[0-9a-f]{40})\b"
)
# Files with secrets, in the project and in the home directory.
PROJECT_SECRET_FILES = (".env", ".envrc", ".launch/jupyter-token")
HOME_SECRET_FILES = (
    ".netrc",
    ".cache/huggingface/token",
    ".cache/huggingface/stored_tokens",
    ".aws/credentials",
    ".kaggle/kaggle.json",
    ".docker/config.json",
    ".git-credentials",
    ".gitconfig",
    ".npmrc",
    ".pypirc",
    ".ngc/config",
    ".mlflow/credentials",
    ".config/gh/hosts.yml",
    ".config/git/credentials",
    ".config/containers/auth.json",
    ".config/gcloud/application_default_credentials.json",
    ".local/share/uv/credentials/credentials.toml",
)
# Files with URLs that may contain a password.
PROJECT_URL_FILES = (".git/config", "pyproject.toml", "uv.toml", "requirements.txt", "compose.yaml", "Dockerfile")
HOME_URL_FILES = (".config/pip/pip.conf", ".pip/pip.conf", ".config/uv/uv.toml", "/etc/pip.conf", "/etc/uv/uv.toml")
# Variables with the path of such a file, or of its folder.
FILE_VARIABLES = {
    "NETRC": "",
    "PIP_CONFIG_FILE": "",
    "UV_CONFIG_FILE": "",
    "DOCKER_CONFIG": "config.json",
    "HF_HOME": "token",
}
ASSIGNMENT = re.compile(
    r"^[ \t]*(?:export +)?[\"']?([^\s=]*?[\w-])[\"']?[ \t]*(?:=|:[ \t])[ \t]*(.*?)[ \t]*$", re.MULTILINE
)
MAX_BYTES = 1 << 18  # larger files are not read


class Mask:
    """Hides secrets in texts. `names` and `report` hide more."""

    def __init__(self, secrets: Iterable[str] = (), names: Mapping[str, str] | None = None) -> None:
        values = {each for secret in secrets for each in _variants(secret) if len(each) >= MIN_LENGTH}
        self._secrets = sorted(values, key=len, reverse=True)
        self._names = dict(sorted((names or {}).items(), key=lambda pair: -len(pair[0])))

    def __call__(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, HIDDEN)
        for pattern, instead in SECRET_CONTEXTS:
            text = pattern.sub(instead, text)
        return TOKEN_FORMATS.sub(HIDDEN, text)

    def names(self, text: str) -> str:
        """Also hide the names and addresses of users and machines."""
        text = self(text)
        for name, instead in self._names.items():
            text = re.sub(rf"(?<![\w]){re.escape(name)}(?![\w])", instead, text, flags=re.IGNORECASE)
        text = re.sub(r"/(home|Users)/(?!dev\b)[^/\s:]+", r"/\1/<user>", text)
        text = re.sub(r"\\Users\\[^\\\s:]+", r"\\Users\\<user>", text)
        text = re.sub(r"[\w.+-]+@[\w-]+(\.[\w-]+)+", "<address>", text)
        return re.sub(r"\b(?!127\.)\d{1,3}(?:\.\d{1,3}){3}\b(?=[:/\s,;)]|\.?$)", "<address>", text)

    def report(self, text: str) -> str:
        """As `names`, and also hide the UUIDs of GPUs: for issues."""
        return re.sub(r"\b(GPU|MIG)-[0-9a-f]{8}-[0-9a-f-]{20,}", r"\1-<id>", self.names(text))


def mask(project: Path, environment: Mapping[str, str] = os.environ, spare: Iterable[str] = ()) -> Mask:
    """A mask for this machine. `spare`: names that need not be hidden, such as that of the image's own user."""
    home = Path(environment.get("HOME") or "/nonexistent")
    secrets: list[str] = []
    own = dict.fromkeys([*PROJECT_SECRET_FILES, *(place(project, name) for name in PROJECT_SECRET_FILES)])
    files = [project / name for name in own] + [home / name for name in HOME_SECRET_FILES]
    for name, value in environment.items():
        secrets += _secrets_in_urls(value)
        if value.startswith("{"):
            secrets += _secrets_in_text(value)
        if _is_file(value):
            files += [Path(value)] if SECRET_NAMES.search(name) or name in FILE_VARIABLES else []
        elif _is_secret_name(name) and not _is_path(value):
            secrets.append(value)
    files += [Path(environment[name], file) for name, file in FILE_VARIABLES.items() if file and environment.get(name)]
    with contextlib.suppress(OSError):
        files += Path("/run/secrets").iterdir()
    for file in files:
        secrets += _secrets_in_text(_text(file))
    for file in [project / name for name in PROJECT_URL_FILES] + [home / name for name in HOME_URL_FILES]:
        secrets += _secrets_in_urls(_text(file))
    values = {value for value in secrets if value.strip().lower() not in NOT_SECRET_VALUES}
    return Mask(values, _user_and_host_names(project, environment, home, {*spare, *GENERIC_NAMES}))


def _is_secret_name(name: str) -> bool:
    return bool(SECRET_NAMES.search(name)) and not NOT_SECRET.search(name)


def _is_path(value: str) -> bool:
    """Whether a value is an existing path."""
    with contextlib.suppress(OSError, ValueError):
        return value.startswith("/") and Path(value).exists()
    return False


def _is_file(value: str) -> bool:
    return _is_path(value) and Path(value).is_file()


def _variants(secret: str) -> Iterator[str]:
    """The forms in which a secret may occur: as it is, in a URL, on one line, line by line, base64-decoded."""
    secret = secret.strip()
    yield secret
    yield quote(secret, safe="")
    yield unquote(secret)
    yield " ".join(secret.split())
    if "\n" in secret:
        yield from (line.strip() for line in secret.splitlines() if len(line.strip()) >= 3 * MIN_LENGTH)
    with contextlib.suppress(ValueError):  # `user:password` in base64, as `docker login` stores it
        yield base64.b64decode(secret, validate=True).decode("ascii").partition(":")[2]


def _secrets_in_urls(text: str) -> Iterator[str]:
    """Passwords in URLs, and users that are tokens."""
    for scheme, user, password in re.findall(r"(\w+)://([^\s/?#:@]*)(?::([^\s@\"']*))?@(?=[\w\[])", text):
        if not re.match(r"\d+/", password):  # otherwise a port, followed by a path with an @
            yield password
        # Without a password, the user is often a token.
        if len(user) >= 20 or (not password and scheme != "ssh"):
            yield user
    yield from re.findall(r"[?&][\w-]*(?:token|key|secret|sig)[\w-]*=([^&\s]+)", text, re.IGNORECASE)


def _text(file: Path) -> str:
    with contextlib.suppress(OSError):
        if file.is_file() and file.stat().st_size <= MAX_BYTES:
            return file.read_text(encoding="utf-8", errors="replace")
    return ""


def _secrets_in_text(text: str) -> Iterator[str]:
    """Secrets in a configuration file: a single word, JSON, netrc, or lines of `name = value`."""
    yield from _secrets_in_urls(text)
    if text.lstrip().startswith("{"):
        with contextlib.suppress(ValueError):
            yield from _secrets_in_json(json.loads(text))
            return
    words = text.split()
    if len(words) == 1 and "=" not in text.strip().rstrip("="):
        yield words[0]
    yield from re.findall(r"\bpassword\s+(\S+)", text)
    yield from (user for user in re.findall(r"\blogin\s+(\S+)", text) if len(user) >= 20)
    for name, value in ASSIGNMENT.findall(text):
        if _is_secret_name(name):
            yield value.strip("\"'")
            yield re.split(r"\s+#", value)[0].strip("\"'")
            yield value.split()[-1] if value.split() else ""  # AUTHORIZATION: basic ...


def _secrets_in_json(data: Any, secret: bool = False) -> Iterator[str]:
    if isinstance(data, dict):
        for name, value in data.items():
            yield from _secrets_in_json(value, secret or _is_secret_name(name))
    elif isinstance(data, list):
        for value in data:
            yield from _secrets_in_json(value, secret)
    elif isinstance(data, str) and secret:
        yield data


def _user_and_host_names(project: Path, environment: Mapping[str, str], home: Path, spare: set[str]) -> dict[str, str]:
    users = {environment.get(name, "") for name in ("USER", "LOGNAME", "SUDO_USER", "USERNAME")} | {home.name}
    for look in (lambda: _owner(os.getuid()), lambda: _owner(project.stat().st_uid)):
        with contextlib.suppress(Exception):  # a uid without an entry in passwd
            users.add(look())
    hosts = {environment.get("HOSTNAME", ""), environment.get("HOST", "")}
    hosts |= set(re.findall(r"^\w+://(?:[^@/]*@)?([\w.-]+)", environment.get("DOCKER_HOST", "")))
    hosts.add(os.uname().nodename)
    hosts |= {host.partition(".")[0] for host in hosts if not host[:1].isdigit()}
    names = {user: "<user>" for user in users if user.lower() not in spare}
    names.update((host, "<host>") for host in hosts if host.lower() not in spare)
    if str(home) not in ("/", "/nonexistent", "/root"):
        names[str(home)] = "~"
    return names


def _owner(uid: int) -> str:
    return pwd.getpwuid(uid).pw_name
