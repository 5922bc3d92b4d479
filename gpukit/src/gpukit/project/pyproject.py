"""Edit the dependencies in pyproject.toml as text, which preserves comments, order, and layout."""

from __future__ import annotations

import contextlib
import fnmatch
import json
import os
import re
import tempfile
from pathlib import Path
from typing import Any

from gpukit.project.messages import RefusalError

TEXT = re.compile(r"\"\"\".*?\"\"\"|'''.*?'''|\"(?:\\.|[^\"\\\n])*\"|'[^'\n]*'|#[^\n]*", re.DOTALL)
HEADER = re.compile(r"^[ \t]*\[\[?[\w.~ \t-]+\]\]?[ \t]*\r?$", re.MULTILINE)
NAME = r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"
VERSIONS = r"(?:[<>=!~]=|===|[<>])\s*[\w.*+!-]+"
REQUIREMENT = re.compile(
    rf"({NAME})\s*(\[\s*{NAME}(?:\s*,\s*{NAME})*\s*\])?\s*(@\s*[^\s;]+(?=\s|$)|{VERSIONS}(?:\s*,\s*{VERSIONS})*)?\s*(;\s*[\w\"'(][^\n]*)?"
)


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def name_of(requirement: str) -> str:
    """The package of a requirement; refuses invalid requirements."""
    match = REQUIREMENT.fullmatch(requirement.strip())
    if not match:
        raise RefusalError(f"{requirement!r} is not a package: write it as in `./launch add 'einops>=0.8'`.")
    return canonical(match[1])


def marker_of(requirement: str) -> str:
    """Its marker without spaces, with single quotes; empty if it has none, or is invalid."""
    match = REQUIREMENT.fullmatch(requirement.strip())
    return re.sub(r"\s+", "", match[4] or "").replace('"', "'") if match else ""


def matches(name: str, patterns: list[str]) -> bool:
    return any(fnmatch.fnmatchcase(canonical(name), canonical(pattern)) for pattern in patterns)


class Requirements:
    """One array of strings in a TOML text, such as [project] dependencies."""

    def __init__(self, text: str, table: str = "project", key: str = "dependencies") -> None:
        self.text = text
        self.key = key
        # strings and comments are blanked out, so that brackets and headers in them do not count
        self.plain = TEXT.sub(lambda match: "~" * len(match[0]) if match[0][0] != "#" else " " * len(match[0]), text)
        header = next((h for h in HEADER.finditer(self.plain) if re.sub(r"\s", "", h[0]) == f"[{table}]"), None)
        if not header:
            raise RefusalError(f"pyproject.toml has no [{table}].")
        following = HEADER.search(self.plain, header.end())
        self.section = (header.end(), following.start() if following else len(text))
        opening = re.compile(rf"^[ \t]*{re.escape(key)}[ \t]*=[ \t]*\[", re.MULTILINE).search(self.plain, *self.section)
        self.span = (opening.end(), self._closing(opening.end())) if opening else None
        self.items = [
            (item.start(), item.end(), _value(item[0]))
            for item in (TEXT.finditer(text, *self.span) if self.span else [])
            if item[0][0] != "#"
        ]

    def _closing(self, position: int) -> int:
        depth = 1
        for bracket in re.compile(r"[\[\]]").finditer(self.plain, position):
            depth += 1 if bracket[0] == "[" else -1
            if not depth:
                return bracket.start()
        raise RefusalError(f"The list {self.key} in pyproject.toml has no closing bracket.")

    def values(self) -> list[str]:
        return [value for _, _, value in self.items]

    def set(self, requirement: str) -> str:
        """The text with this requirement: it replaces one for the same package and marker, or is added at the end."""
        quoted = json.dumps(requirement, ensure_ascii=False)
        for start, end, value in self.items:
            if (name_of(value), marker_of(value)) == (name_of(requirement), marker_of(requirement)):
                return self.text[:start] + quoted + self.text[end:]
        newline = "\r\n" if "\r\n" in self.text else "\n"
        if not self.span:
            end = len(self.text[: self.section[1]].rstrip())
            array = f"{self.key} = [{newline}    {quoted},{newline}]"
            return self.text[:end] + newline + array + (self.text[end:] or newline)
        opening, closing = self.span
        if not self.items:
            inside = self.text[opening:closing].rstrip()  # a comment, perhaps
            return f"{self.text[:opening]}{inside}{newline}    {quoted},{newline}{self.text[closing:]}"
        start, end, _ = self.items[-1]
        comma = "" if "," in self.plain[end:closing] else ","
        line_end = self.text.rfind(newline, end, closing)  # after comments that follow the last item
        if line_end < 0:  # the bracket closes on the line of the last item
            tail = self.text[end:closing]
            return f"{self.text[:end]}{comma}{tail.rstrip()} {quoted}{self.text[closing:]}"
        indent = re.search(r"[ \t]*$", self.text[: self.items[-1][0]])[0]  # type: ignore[index]
        rest = self.text[end:line_end]
        return f"{self.text[:end]}{comma}{rest}{newline}{indent or '    '}{quoted},{self.text[line_end:]}"

    def only(self, requirements: list[str]) -> str:
        """The text in which these requirements, of one package, stand instead of all others for it."""
        own = [item for item in self.items if name_of(item[2]) == name_of(requirements[0])]
        text = self.text
        for index, (start, end, _) in reversed([*enumerate(own)]):
            if index < len(requirements):
                text = text[:start] + json.dumps(requirements[index], ensure_ascii=False) + text[end:]
            else:
                text = _without(text, start, end)
        for requirement in requirements[len(own) :]:
            text = Requirements(text).set(requirement)
        return text


def _without(text: str, start: int, end: int) -> str:
    """The text without an item and its comma, and without its line if that is then empty."""
    end = re.compile(r"[ \t]*,?[ \t]*").match(text, end).end()  # type: ignore[union-attr]
    line = text.rfind("\n", 0, start) + 1
    newline = re.compile(r"\r?\n").match(text, end)
    if newline and not text[line:start].strip():
        start = line
        end = newline.end()
    return text[:start] + text[end:]


def _value(quoted: str) -> str:
    try:
        return json.loads(quoted) if quoted[0] == '"' else quoted.strip("'")
    except ValueError:
        return quoted.strip("\"'")


def write(path: Path, text: str) -> None:
    """Write a file atomically."""
    descriptor, aside = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as file:
            file.write(text)
        Path(aside).chmod(path.stat().st_mode & 0o777 if path.exists() else 0o644)
        Path(aside).replace(path)
    except BaseException:
        Path(aside).unlink(missing_ok=True)
        raise


def read(path: Path) -> str:
    try:
        with path.open(encoding="utf-8", newline="") as file:
            return file.read()
    except (OSError, UnicodeDecodeError) as error:
        raise RefusalError(f"{path} cannot be read: {error}.") from None


def wanted(folder: Path, text: str = "") -> list[str]:
    """The same, of a folder's pyproject.toml or of `text`, pinned where its requirements.txt pins them: what the image
    installs.
    """
    text = text or read(folder / "pyproject.toml")
    with contextlib.suppress(ImportError):  # before Python 3.11
        import tomllib

        try:
            tomllib.loads(text)
        except ValueError as error:
            raise RefusalError(f"pyproject.toml is not valid TOML: {error}.") from None
    own = re.search(r"^\s*name\s*=\s*[\"']([^\"']+)", text, re.MULTILINE)
    found = []
    waiting = every(text)
    seen = set()
    while waiting:
        line = waiting.pop(0)
        match = REQUIREMENT.fullmatch(line.strip())
        extras = match[2] if match and own and canonical(match[1]) == canonical(own[1]) else None
        if not extras:
            found.append(line)
            continue
        for extra in re.split(r"[\s,]+", extras.strip("[] ")):  # `dev = ["demo[lint]"]`
            if extra not in seen:
                seen.add(extra)
                waiting += Requirements(text, "project.optional-dependencies", extra).values()
    pins = folder / "requirements.txt"
    if pins.is_file():
        lines = [line.partition(" #")[0].strip() for line in read(pins).splitlines()]
        pinned = [line.rstrip(" \\") for line in lines if line and not line.startswith(("#", "-"))]
        names = {canonical(match[0]) for line in pinned for match in [re.match(NAME, line)] if match}
        own_names = {line: canonical(re.split(r"[^\w.-]", line.strip())[0]) for line in found}
        found = [*pinned, *(line for line in found if own_names[line] not in names)]
    return found


def every(text: str) -> list[str]:
    """All requirements that the image installs: the project's dependencies and its tools."""
    found: list[Any] = Requirements(text).values()
    with contextlib.suppress(RefusalError):  # there may be no tools
        found += Requirements(text, "project.optional-dependencies", "dev").values()
    return found
