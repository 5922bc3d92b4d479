"""What an update changes, in at most ten lines. Everything is read from git's last commit and the folder.

Also used by the template's hook, after a plain `copier update`.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpukit.host.facts import FIRST_JETPACK_7
from gpukit.host.git import attempt, git, names, status, unmerged
from gpukit.project import pyproject
from gpukit.project.location import located, place
from gpukit.project.messages import RefusalError
from gpukit.project.stack import version

ANSWERS = ".copier-answers.yml"
STACK = "stack.json"
PYPROJECT = "pyproject.toml"
OWN_LINES = (ANSWERS, "vendor/", ".gpukit/answers.yml", ".gpukit/gpukit-")  # files whose changes other lines name
MOST = 6  # names in a line
# The lines between conflict markers; the group has those from before the update.
CONFLICT = re.compile(r"^<{7} .*\n((?:.*\n)*?)(?:^\|{7}.*\n(?:.*\n)*?)?^={7}\n(?:.*\n)*?^>{7} .*\n?", re.MULTILINE)
# What follows, by the command that prints it.
NEXT = {
    "check": "`./launch update` applies this",
    "update": "review with `git diff`, then run `./launch verify`; `./launch update --undo` reverts the update",
    "hook": "review with `git diff`, then run `./launch verify`",
    "request": "after merging, run `./launch doctor` and `./launch verify` on the machine with the GPU",
}
RESOLVE = "resolve the conflicts, `git add` these files, then run `./launch verify`"


@dataclass
class Summary:
    lines: list[tuple[str, str]]
    conflicts: list[str] = field(default_factory=list)
    old_floor: str = ""
    floor: str = ""  # the driver that the new stack needs at least
    driver: str = ""  # this machine's, if it is known
    too_old: bool = False  # the update raises the floor above this machine's driver

    def text(self, who: str) -> str:
        """The lines. `who` prints them: a key of NEXT."""
        following = NEXT[who]
        if self.conflicts and who == "check":
            following += ", and you resolve the conflicts"
        elif self.conflicts:
            following = RESOLVE + ("; `./launch update --undo` reverts the update" if who == "update" else "")
        return "\n".join(f"{label:<10} {text}" for label, text in [*self.lines, ("next", following)])


def compare(
    folder: Path, driver: str | None = None, jetson: tuple[int, ...] = (), commit: str = "", wheels: str = ""
) -> Summary:
    """Compare the folder with its last commit. `driver`: this machine's; `commit`: the template's; `wheels`: what
    became of those that pyproject.toml pins by URL.
    """
    conflicts = sorted({entry.partition("\t")[2] for entry in unmerged(folder)})
    old = {}
    new = {}
    for name in (ANSWERS, STACK):
        old[name], new[name] = contents(folder, name, place(folder, name) in conflicts)
    stacks = [stack(texts[STACK]) for texts in (old, new)]
    answered = [answers(texts[ANSWERS]) for texts in (old, new)]
    result = Summary([], conflicts)
    result.old_floor = floor(stacks[0])
    result.floor = floor(stacks[1])
    result.driver = driver or ""
    below = bool(driver and result.floor) and version(driver) < version(result.floor)
    if jetson:  # a Jetson's driver is part of its system, and its number says little
        below = jetson[0] < FIRST_JETPACK_7 and version(result.floor) >= (580,)
    result.too_old = below and version(result.floor) > version(result.old_floor)
    versions = [values.get("_commit", "") for values in answered]
    if versions[0] != versions[1]:
        result.lines.append(("template", arrow(*versions) + (f" (commit {commit[:12]})" if commit else "")))
    details = {
        "base": changes(*stacks, {"image": "", "base": "", "release": "release ", "python": "Python "}),
        "torch": torch_line(*stacks),
        "driver": driver_line(result, stacks, below),
        "packages": "; ".join(filter(None, (package_line(*applied(folder, PYPROJECT)), wheels))),
        "answers": answer_line(*answered),
        "gpukit": gpukit_line(folder),
        "files": file_line(folder, conflicts),
        "conflicts": shown(conflicts),
    }
    result.lines += [(label, text) for label, text in details.items() if text]
    return result


def needs_other_wheels(folder: Path) -> bool:
    """Whether what wheels with CUDA code are built for differs from the last commit."""
    old, new = map(stack, applied(folder, STACK))
    return any(old.get(key) != new.get(key) for key in ("torch", "cuda", "python", "targets"))


def contents(folder: Path, name: str, conflict: bool) -> tuple[str, str]:
    """A file before and after. If it is in conflict: of the template, before and after."""
    if not conflict:
        return applied(folder, name)
    name = place(folder, name)
    before, after = (attempt(folder, "show", f":{stage}:./{name}") for stage in (1, 3))
    return before.out if not before.code else "", after.out if not after.code else ""


def applied(folder: Path, name: str) -> tuple[str, str]:
    """A file before and after, without what is in conflict."""
    name = place(folder, name)
    before = attempt(folder, "show", f"HEAD:./{name}")
    try:
        after = (folder / name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        after = ""
    return before.out if not before.code else "", CONFLICT.sub(r"\1", after)


def stack(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:  # missing, or broken before the update: its lines are left out
        return {}
    return found if isinstance(found, dict) else {}


def answers(text: str) -> dict[str, str]:
    """The answers as Copier writes them, one key a line, with lists on the lines below it; without a YAML parser."""
    found: dict[str, list[str]] = {}
    key = ""
    for line in text.splitlines():
        match = re.match(r"(\w+):(?: (.*))?$", line)
        if match:
            key = match[1]
            found[key] = [match[2]] if match[2] else []
        elif key and line.strip() and not line.startswith("#"):
            found[key].append(line.strip())
    return {key: value(lines) for key, lines in found.items()}


def value(lines: list[str]) -> str:
    if lines and all(line.startswith("- ") for line in lines):
        return f"[{', '.join(plain(line[2:]) for line in lines)}]"
    return plain(" ".join(lines))


def plain(text: str) -> str:
    quoted = re.fullmatch(r"'(.*)'|\"(.*)\"", text)
    return (quoted[1] or quoted[2] or "").replace("''", "'") if quoted else text


def floor(found: dict[str, Any]) -> str:
    """The driver that the base and the least demanding of the targets need."""
    targets = [target.get("driver") for target in found.get("targets", {}).values() if isinstance(target, dict)]
    least = min((driver for driver in targets if driver), key=version, default="")
    return max(found.get("driver") or "", least, key=version)


def arrow(old: Any, new: Any) -> str:
    return f"{old or 'none'} -> {new or 'none'}"


def changes(old: dict[str, Any], new: dict[str, Any], keys: dict[str, str]) -> str:
    if not old or not new:
        return ""
    return "; ".join(
        word + arrow(old.get(key), new.get(key)) for key, word in keys.items() if old.get(key) != new.get(key)
    )


def torch_line(old: dict[str, Any], new: dict[str, Any]) -> str:
    """PyTorch and CUDA; and PyTorch of the native environment, if that is another one."""
    parts = [changes(old, new, {"torch": "", "cuda": "CUDA "})]
    natives = [(each.get("native") or {}).get("torch") for each in (old, new)]
    if all(natives) and natives[0] != natives[1] and natives != [old.get("torch"), new.get("torch")]:
        parts.append(f"with --native {arrow(*natives)}")
    return "; ".join(part for part in parts if part)


def driver_line(result: Summary, stacks: list[dict[str, Any]], below: bool) -> str:
    if not all(stacks):
        return ""
    parts = []
    if result.floor != result.old_floor:
        here = ""
        if result.driver:
            here = f"; this machine has {result.driver}, which is {'too old' if below else 'new enough'}"
        parts.append(f"{arrow(result.old_floor, result.floor)} or newer{here}")
    old, new = ({id: t.get("driver") for id, t in each.get("targets", {}).items()} for each in stacks)
    for id in new:
        if id in old and old[id] != new[id] and new[id] != result.floor:
            parts.append(f"{id} {arrow(old[id], new[id])} or newer")
    return "; ".join(parts)


def requirements(text: str) -> dict[str, str]:
    """The packages in pyproject.toml and their ranges; none if it cannot be read."""
    try:
        found = pyproject.every(text)
    except RefusalError:
        return {}
    split = (re.match(r"\s*([\w.-]+)\s*(.*?)\s*$", requirement) for requirement in found)
    return {pyproject.canonical(match[1]): match[2] for match in split if match and match[2][:1] != "@"}


def package_line(old: str, new: str) -> str:
    before = requirements(old)
    after = requirements(new)
    if not before or not after:
        return ""
    parts = [
        f"{name} {before[name] or 'any'} -> {after[name] or 'any'}"
        for name in after
        if before.get(name, after[name]) != after[name]
    ]
    parts += [f"new {name}{f' {after[name]}' if after[name] else ''}" for name in after if name not in before]
    parts += [f"without {name}" for name in before if name not in after]
    return shown(parts, "; ")


def answer_line(old: dict[str, str], new: dict[str, str]) -> str:
    """Questions that are new, with the answer used; and answers that changed, also those no longer possible."""
    old, new = ({name: text for name, text in each.items() if name[0] != "_"} for each in (old, new))
    if not old or not new:
        return ""
    parts = [f"new question {name} = {new[name] or 'nothing'}" for name in new if name not in old]
    parts += [f"{name} {arrow(old[name], new[name])}" for name in new if name in old and old[name] != new[name]]
    parts += [f"{name} is no longer asked" for name in old if name not in new]
    return shown(parts, "; ")


def gpukit_line(folder: Path) -> str:
    before = names(git(folder, "ls-tree", "-z", "--name-only", "HEAD", f"{place(folder, 'vendor')}/"))
    old, new = (
        [re.split("-", Path(name).name)[1] for name in sorted(each) if re.match(r"gpukit-.+\.whl$", Path(name).name)]
        for each in (before, [path.name for path in located("vendor", folder).glob("*.whl")])
    )
    return "" if old == new else arrow(" ".join(old), " ".join(new))


def file_line(folder: Path, conflicts: list[str]) -> str:
    kinds: dict[str, list[str]] = {"changed": [], "new": [], "removed": []}
    for name in sorted(
        status(folder), key=lambda name: (name != place(folder, STACK), name)
    ):  # the others follow from it
        if name in conflicts or name.startswith(OWN_LINES):
            continue
        known = attempt(folder, "cat-file", "-e", f"HEAD:./{name}").code == 0
        path = folder / name
        kind = ("changed" if known else "new") if path.exists() or path.is_symlink() else "removed"
        kinds[kind].append(name)
    return "; ".join(f"{kind} {shown(found)}" for kind, found in kinds.items() if found)


def shown(parts: list[str], between: str = ", ") -> str:
    rest = len(parts) - MOST
    return between.join(parts if rest <= 0 else [*parts[:MOST], f"and {rest} more"])
