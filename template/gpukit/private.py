"""What must not leave this machine: secrets are hidden in everything that is printed, names only in a report.

Values are looked up where they are kept, so that one is recognised whatever tool repeats it; texts that look like a
secret or stand where one does are hidden as well.
"""

from __future__ import annotations

import contextlib
import getpass
import json
import os
import re
import socket
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

HIDDEN = "***"
SHORTEST = 6  # what is shorter is a word that stands in any text
NAMES = re.compile(
    r"token|secret|passw|passphrase|passwd|api_?key|access_?key|private_?key|account_?key|credential|authorization|"
    r"cookie|webhook|(^|_)(auth|key|pat|dsn|pwd)$",
    re.IGNORECASE,
)
NO_SECRET = re.compile(r"_(file|path|dir|url|uri|host|name|type|socket|sock)$", re.IGNORECASE)
# Where a secret stands, and what some look like.
PLACES = (
    (re.compile(r"(?<=://)[^\s/?#]*@"), f"{HIDDEN}@"),
    (re.compile(r"(?<=://)[^\s/@:]*:[^\s@]+@(?=[\w\[])"), f"{HIDDEN}@"),  # a password with a slash in it
    (re.compile(r"([?&;](?:[\w-]*(?:token|key|secret|signature|password|auth)[\w-]*|sig)=)[^&\s\"']+", re.I), r"\1***"),
    (re.compile(r"(\b(?:bearer|authorization:\s*\w+)\s+)[\w.~+/=-]{6,}", re.I), r"\1***"),
    (
        re.compile(r"(\b[\w-]*(?:token|secret|passw(?:or)?d|api[_-]?key|access[_-]?key)[\"']?\s*[=:]\s*[\"']?)"
                   r"(?![/*])[^\s\"',;]{4,}", re.I),
        r"\1***",
    ),
)  # fmt: skip
SHAPES = re.compile(
    r"\b(?:hf_[A-Za-z0-9]{8,}|gh[pousr]_[A-Za-z0-9]{16,}|github_pat_\w{16,}|glpat-[\w-]{10,}|sk-[\w-]{16,}|"
    r"(?:AKIA|ASIA)[A-Z0-9]{12,}|AIza[\w-]{30,}|xox[abprs]-[\w-]{8,}|eyJ[\w-]{8,}\.[\w-]+(?:\.[\w-]*)?|npm_\w{20,}|"
    r"pypi-[\w-]{16,}|nvapi-[\w-]{10,}|wandb_v\d_\w{16,}|dckr_pat_[\w-]{10,}|[0-9a-f]{40})\b"
)
# Files that hold secrets, below the project and below home.
PROJECT_FILES = (".env", ".launch/jupyter-token")
HOME_FILES = (
    ".netrc",
    ".cache/huggingface/token",
    ".cache/huggingface/stored_tokens",
    ".aws/credentials",
    ".kaggle/kaggle.json",
    ".docker/config.json",
    ".git-credentials",
    ".config/gcloud/application_default_credentials.json",
)


class Mask:
    """Hides secrets in texts; `report` hides names of people and machines as well."""

    def __init__(self, secrets: Iterable[str] = (), names: Mapping[str, str] | None = None) -> None:
        values = {value for value in (secret.strip() for secret in secrets) if len(value) >= SHORTEST}
        values |= {quote(value, safe="") for value in values}
        self._secrets = sorted(values, key=len, reverse=True)
        self._names = dict(sorted((names or {}).items(), key=lambda pair: -len(pair[0])))

    def __call__(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, HIDDEN)
        for pattern, instead in PLACES:
            text = pattern.sub(instead, text)
        return SHAPES.sub(HIDDEN, text)

    def report(self, text: str) -> str:
        text = self(text)
        for name, instead in self._names.items():
            text = re.sub(rf"(?<![\w]){re.escape(name)}(?![\w])", instead, text, flags=re.IGNORECASE)
        text = re.sub(r"/(home|Users)/(?!dev\b)[^/\s:]+", r"/\1/<user>", text)
        text = re.sub(r"\b(GPU|MIG)-[0-9a-f]{8}-[0-9a-f-]{20,}", r"\1-<id>", text)
        text = re.sub(r"[\w.+-]+@[\w-]+(\.[\w-]+)+", "<address>", text)
        return re.sub(r"\b(?!127\.)\d{1,3}(?:\.\d{1,3}){3}\b(?=[:/\s,;)]|\.?$)", "<address>", text)


def mask(project: Path, environment: Mapping[str, str] = os.environ, spare: Iterable[str] = ()) -> Mask:
    """For this machine. `spare`: names that tell nothing, such as that of the image's own user."""
    home = Path(environment.get("HOME") or "/nonexistent")
    secrets = [value for name, value in environment.items() if _secret(name)]
    for value in environment.values():
        secrets += _in_addresses(value)
    files = [project / name for name in PROJECT_FILES] + [home / name for name in HOME_FILES]
    if environment.get("HF_HOME"):
        files.append(Path(environment["HF_HOME"], "token"))
    for file in files:
        secrets += _in_file(file)
    words = {value for value in secrets if value.lower() not in ("true", "false", "disabled", "enabled", "offline")}
    return Mask(words, _people(environment, home, {*spare, "root", "localhost", ""}))


def _secret(name: str) -> bool:
    return bool(NAMES.search(name)) and not NO_SECRET.search(name)


def _in_addresses(text: str) -> Iterator[str]:
    """The user and the password in an address."""
    for scheme, found in re.findall(r"(\w+)://([^\s/?#]+)@", text):
        user, colon, password = found.partition(":")
        if colon or scheme != "ssh":  # where there is no password, a token often stands as the user
            yield password if colon else user
    for found in re.findall(r"[?&][\w-]*(?:token|key|secret|sig)[\w-]*=([^&\s]+)", text, re.IGNORECASE):
        yield found


def _in_file(file: Path) -> list[str]:
    with contextlib.suppress(OSError, ValueError):
        if file.stat().st_size > 1 << 16:
            return []
        text = file.read_text(encoding="utf-8", errors="replace")
        if text.lstrip().startswith("{"):
            return list(_in_json(json.loads(text)))
        if file.name in ("token", "jupyter-token"):
            return text.split()
        found = re.findall(r"\bpassword\s+(\S+)", text) + list(_in_addresses(text))
        for name, value in re.findall(r"^\s*(?:export\s+)?([\w.-]+)\s*=\s*(.*?)\s*$", text, re.MULTILINE):
            if _secret(name):
                found.append(value.strip("\"'"))
        return found
    return []


def _in_json(data: Any, secret: bool = False) -> Iterator[str]:
    if isinstance(data, dict):
        for name, value in data.items():
            yield from _in_json(value, secret or _secret(name))
    elif isinstance(data, list):
        for value in data:
            yield from _in_json(value, secret)
    elif isinstance(data, str) and secret:
        yield data


def _people(environment: Mapping[str, str], home: Path, spare: set[str]) -> dict[str, str]:
    users = {environment.get(name, "") for name in ("USER", "LOGNAME", "SUDO_USER", "USERNAME")} | {home.name}
    with contextlib.suppress(Exception):  # a uid without an entry in passwd
        users.add(getpass.getuser())
    hosts = {environment.get("HOSTNAME", "")}
    with contextlib.suppress(OSError):
        hosts.add(socket.gethostname())
    hosts |= {host.partition(".")[0] for host in hosts}
    names = dict.fromkeys(users - spare, "<user>")
    names.update(dict.fromkeys(hosts - spare, "<host>"))
    if str(home) not in ("/", "/nonexistent", "/root"):
        names[str(home)] = "~"
    return names
