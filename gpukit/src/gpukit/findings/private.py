"""What must not leave this machine: secrets are hidden in everything that is printed, names only in a report.

Values are looked up where they are kept, so that one is recognised whatever tool repeats it; texts that look like a
secret or stand where one does are hidden as well.
"""

from __future__ import annotations

import base64
import contextlib
import getpass
import json
import os
import pwd
import re
import socket
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

HIDDEN = "***"
MIN_LENGTH = 6  # what is shorter is a word that stands in any text
SECRET_NAMES = re.compile(
    r"token|secret|passw|passphrase|passwd|api_?key|access_?key|private_?key|account_?key|credential|authorization|"
    r"cookie|webhook|connection_?string|extraheader|(^|[_.-])(auth|key|pat|pass|dsn|pwd|sas)$",
    re.IGNORECASE,
)
# Not those, in spite of such a word: the shell's own folder, what only says where something is, and numbers of tokens.
NOT_SECRET = re.compile(
    r"^(old)?pwd$|[_-](file|path|dir|directory|url|uri|host|name|type|socket|sock)$|^tokenizers_|"
    r"(^|_)(max|min|num|n)_\w*tokens?$",
    re.IGNORECASE,
)
NOT_SECRET_VALUES = (
    "true",
    "false",
    "disabled",
    "enabled",
    "offline",
    "online",
    "dryrun",
    "x-oauth-basic",
    "x-access-token",
)
# Names under which people share a machine, or that a system's image comes with: they tell nothing about anybody.
GENERIC_NAMES = ("", "root", "localhost", "user", "nvidia", "ubuntu", "debian", "docker", "jetson", "runner", "vscode")
# A secret has a digit or is long; a short word is one of an error text, as in "Unexpected token: expected".
NOT_A_WORD = r"(?=[^\s\"',;]*\d|[^\s\"',;]{16})(?!\d{1,9}\b)"
# Where a secret stands, and what some look like.
SECRET_CONTEXTS = (
    (re.compile(r"(?<=://)[^\s/?#]*@"), f"{HIDDEN}@"),
    (re.compile(r"(?<=://)[^\s/@:]*:[^\s@]+@(?=[\w\[])"), f"{HIDDEN}@"),  # a password with a slash in it
    (re.compile(r"([?&;](?:[\w-]*(?:token|key|secret|signature|password|auth)[\w-]*|sig)=)[^&\s\"']+", re.I), r"\1***"),
    (re.compile(rf"(\b(?:bearer|authorization:\s*\w+)\s+){NOT_A_WORD}[\w.~+/=-]{{6,}}", re.I), r"\1***"),
    (
        re.compile(r"(\b[\w-]*(?:passw(?:or)?d|api[_-]?key|access[_-]?key)[\"']?\s*[=:]\s*[\"']?)"
                   r"(?![/*])[^\s\"',;]{4,}", re.I),
        r"\1***",
    ),
    (
        re.compile(rf"(\b[\w-]*(?:token|secret)(?:[\"']?\s*[=:]\s*[\"']|=|[\"']?\s*[=:]\s*{NOT_A_WORD}))"
                   r"(?![/*])[^\s\"',;]{4,}", re.I),
        r"\1***",
    ),
)  # fmt: skip
TOKEN_FORMATS = re.compile(
    r"\b(?:hf_[A-Za-z0-9]{8,}|gh[pousr]_[A-Za-z0-9]{16,}|github_pat_\w{16,}|glpat-[\w-]{10,}|sk-[\w-]{16,}|"
    r"(?:AKIA|ASIA)[A-Z0-9]{12,}|AIza[\w-]{30,}|xox[abprs]-[\w-]{8,}|eyJ[\w-]{8,}\.[\w-]+(?:\.[\w-]*)?|npm_\w{20,}|"
    r"pypi-[\w-]{16,}|nvapi-[\w-]{10,}|wandb_v\d_\w{16,}|dckr_pat_[\w-]{10,}|[0-9a-f]{40})\b"
)
# Files that hold secrets, below the project and below home.
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
# Files in whose addresses a password may stand.
PROJECT_URL_FILES = (".git/config", "pyproject.toml", "uv.toml", "requirements.txt", "compose.yaml", "Dockerfile")
HOME_URL_FILES = (".config/pip/pip.conf", ".pip/pip.conf", ".config/uv/uv.toml", "/etc/pip.conf", "/etc/uv/uv.toml")
# Variables that name such a file, or its folder.
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
MAX_BYTES = 1 << 18  # bytes of a file that is looked into


class Mask:
    """Hides secrets in texts; `names` and `report` hide more."""

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
        """Without secrets, and without the names and addresses of people and machines."""
        text = self(text)
        for name, instead in self._names.items():
            text = re.sub(rf"(?<![\w]){re.escape(name)}(?![\w])", instead, text, flags=re.IGNORECASE)
        text = re.sub(r"/(home|Users)/(?!dev\b)[^/\s:]+", r"/\1/<user>", text)
        text = re.sub(r"\\Users\\[^\\\s:]+", r"\\Users\\<user>", text)
        text = re.sub(r"[\w.+-]+@[\w-]+(\.[\w-]+)+", "<address>", text)
        return re.sub(r"\b(?!127\.)\d{1,3}(?:\.\d{1,3}){3}\b(?=[:/\s,;)]|\.?$)", "<address>", text)

    def report(self, text: str) -> str:
        """As `names`, and without the ids of GPUs: for what is pasted into an issue."""
        return re.sub(r"\b(GPU|MIG)-[0-9a-f]{8}-[0-9a-f-]{20,}", r"\1-<id>", self.names(text))


def mask(project: Path, environment: Mapping[str, str] = os.environ, spare: Iterable[str] = ()) -> Mask:
    """For this machine. `spare`: names that tell nothing, such as that of the image's own user."""
    home = Path(environment.get("HOME") or "/nonexistent")
    secrets: list[str] = []
    files = [project / name for name in PROJECT_SECRET_FILES] + [home / name for name in HOME_SECRET_FILES]
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
    words = {value for value in secrets if value.strip().lower() not in NOT_SECRET_VALUES}
    return Mask(words, _user_and_host_names(project, environment, home, {*spare, *GENERIC_NAMES}))


def _is_secret_name(name: str) -> bool:
    return bool(SECRET_NAMES.search(name)) and not NOT_SECRET.search(name)


def _is_path(value: str) -> bool:
    """Whether a value only says where something is."""
    with contextlib.suppress(OSError, ValueError):
        return value.startswith("/") and Path(value).exists()
    return False


def _is_file(value: str) -> bool:
    return _is_path(value) and Path(value).is_file()


def _variants(secret: str) -> Iterator[str]:
    """A secret as it may be met: as it is, as a part of an address, on one line, line by line, out of its wrapping."""
    secret = secret.strip()
    yield secret
    yield quote(secret, safe="")
    yield unquote(secret)
    yield " ".join(secret.split())
    if "\n" in secret:
        yield from (line.strip() for line in secret.splitlines() if len(line.strip()) >= 3 * MIN_LENGTH)
    with contextlib.suppress(ValueError):  # `user:password` in base64, as Docker's login keeps it
        yield base64.b64decode(secret, validate=True).decode("ascii").partition(":")[2]


def _secrets_in_urls(text: str) -> Iterator[str]:
    """The password in an address, and the user where that is one."""
    for scheme, user, password in re.findall(r"(\w+)://([^\s/?#:@]*)(?::([^\s@\"']*))?@(?=[\w\[])", text):
        if not re.match(r"\d+/", password):  # a port, with the @ in the path behind it
            yield password
        # Where there is no password, a token often stands as the user.
        if len(user) >= 20 or (not password and scheme != "ssh"):
            yield user
    yield from re.findall(r"[?&][\w-]*(?:token|key|secret|sig)[\w-]*=([^&\s]+)", text, re.IGNORECASE)


def _text(file: Path) -> str:
    with contextlib.suppress(OSError):
        if file.is_file() and file.stat().st_size <= MAX_BYTES:
            return file.read_text(encoding="utf-8", errors="replace")
    return ""


def _secrets_in_text(text: str) -> Iterator[str]:
    """What looks like a secret in a file of settings: a single word, JSON, netrc, or lines of `name = value`."""
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
    for look in (getpass.getuser, lambda: _owner(os.getuid()), lambda: _owner(project.stat().st_uid)):
        with contextlib.suppress(Exception):  # a uid without an entry in passwd
            users.add(look())
    hosts = {environment.get("HOSTNAME", ""), environment.get("HOST", "")}
    hosts |= set(re.findall(r"^\w+://(?:[^@/]*@)?([\w.-]+)", environment.get("DOCKER_HOST", "")))
    with contextlib.suppress(OSError):
        hosts.add(socket.gethostname())
    hosts |= {host.partition(".")[0] for host in hosts if not host[:1].isdigit()}
    names = {user: "<user>" for user in users if user.lower() not in spare}
    names.update((host, "<host>") for host in hosts if host.lower() not in spare)
    if str(home) not in ("/", "/nonexistent", "/root"):
        names[str(home)] = "~"
    return names


def _owner(uid: int) -> str:
    return pwd.getpwuid(uid).pw_name
