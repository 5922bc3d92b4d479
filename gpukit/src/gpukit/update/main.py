"""`./launch update`: look at the update on a copy, report it, and apply exactly that."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

from gpukit.host.facts import driver, jetson_release
from gpukit.host.git import unmerged
from gpukit.project import support
from gpukit.project.location import located, place
from gpukit.project.messages import RefusalError, confirmed, say, terminal
from gpukit.update import record, request, summary, trial
from gpukit.update.template import Template
from gpukit.update.trial import Look

TRUST = (
    "Copier runs with --trust: a hook of the template, {address}, writes the gpukit wheel to {vendor}/ and checks the "
    "files. (This is printed once.)"
)


# Pins other wheels in a folder's pyproject.toml where they do not fit its stack.json, and says what it changed.
Renew = Callable[[Path], str]


def update(project: Path | None, options: Any, renew: Renew) -> int:
    """The command. Returns 1 if there are conflicts, or if the updated files are wrong."""
    if project is None:
        raise RefusalError(
            "This is not a generated project: no folder from here upward has stack.json and .devcontainer/."
        )
    if options.undo:
        return undo(project)
    if options.answers == [] and not terminal():
        raise RefusalError(
            "The questions need a terminal: pass answers, as in `./launch update --answers ci=none`.", id="no-terminal"
        )
    trial.pairs(options.answers or [])
    record.refuse_no_git(project)
    with record.locked(project), tempfile.TemporaryDirectory(prefix="gpukit-update-") as folder:
        if record.recover(project):
            say("The last update was interrupted. It has been reverted.")
        record.refuse_dirty(project)
        found = look(project, Path(folder), options, renew)
        # Of what the project has afterwards; said apart from the summary, which names only changes.
        after = found.copy if found else project
        if ending := support.notice(summary.stack(summary.contents(after, summary.STACK, False)[1]), today()):
            say(ending)
        if not found:
            return 0
        if options.request:
            return request.propose(project, found, ending)
        if options.check:
            print(found.summary.text("check"))
            return int(bool(found.conflicts) or not found.valid)
        accept(found, options.accept)
        facts = {"from": found.old_name, "to": found.name, "commit": found.commit, "template": found.template.address}
        record.apply(project, found.copy, found.conflicts, facts)
        # From here on, the wheel that this runs from may be gone: nothing more can be imported.
        print(found.summary.text("update"))
        return int(bool(found.conflicts) or not found.valid)


def today() -> date:
    return date.today()


def undo(project: Path) -> int:
    record.refuse_no_git(project)
    with record.locked(project):
        done = record.undo(project)
    print(f"The update from {done['from']} to {done['to']} is undone: all files are as before.")
    return 0


def look(project: Path, folder: Path, options: Any, renew: Renew) -> Look | None:
    """Update a copy of the project in `folder`; None if there is nothing to update."""
    stored = known_answers(project)
    notes = Notes(project)
    template = Template(stored["_src_path"], folder)
    old = template.commit(stored["_commit"])
    if not old:
        raise RefusalError(
            f"The template {template.address} no longer has {stored['_commit']}, which this project is from. "
            "`copier recopy --trust` generates it again; review with `git diff` what that changes.",
            id="template-commit-gone",
        )
    wanted = target(template, options.to, old)
    name = template.describe(wanted)
    if wanted != old and template.includes(old, wanted):
        if options.to:
            raise RefusalError(
                f"{name} is older than what this project has, {stored['_commit']}, and Copier only updates forward: "
                "`git revert COMMIT` reverts an update.",
                id="downgrade",
            )
        say(f"This project has {stored['_commit']}, which is newer than the newest release, {name}.")
        return None
    moved = notes.moved(template, {stored["_commit"]: old, name: wanted})
    if moved and not options.check:
        raise RefusalError(
            f"{moved} `./launch update --check` shows what it is now; then update.", id="template-tag-moved"
        )
    if moved:
        say(moved)
    notes.remember(template, {stored["_commit"]: old, name: wanted})
    if wanted == old and options.answers is None:
        say(f"This project is up to date: it has {stored['_commit']}.")
        return None
    if not notes.trusted(template):
        say(TRUST.format(address=template.address, vendor=place(project, "vendor")))
    copy = trial.duplicate(project, folder)
    valid = trial.update(copy, template, wanted, options.answers)
    entries = unmerged(copy)
    conflict = any(entry.endswith(f"\t{summary.PYPROJECT}") for entry in entries)
    wheels = renew(copy) if summary.needs_other_wheels(copy) and not conflict else ""
    found = summary.compare(copy, driver(), jetson_release(), wanted, wheels)
    if not found.lines:
        say("Nothing changes: the answers are the same.")
        return None
    return Look(template, wanted, name, old, stored["_commit"], copy, valid, found, entries)


def known_answers(project: Path) -> dict[str, str]:
    """The template's address and version, which Copier has stored."""
    path = located(summary.ANSWERS, project)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        raise RefusalError(
            f"{path.name} cannot be read, so the template is unknown: restore it from git.", id="no-answers"
        ) from None
    for name in (summary.ANSWERS, summary.STACK):
        file = located(name, project)
        content = file.read_text(encoding="utf-8", errors="replace") if file.is_file() else ""
        if re.search(r"^(<<<<<<<|>>>>>>>) ", content, re.MULTILINE):
            remedy = f"`git checkout COMMIT -- {name}` takes the file from one side of the merge"
            raise RefusalError(
                f"{name} contains the marks of a conflict that was not resolved: {remedy}.", id="committed-conflict"
            )
    found = summary.answers(text)
    if not found.get("_src_path") or not found.get("_commit"):
        raise RefusalError(
            f"{path.name} names no template and version: the project was generated from a folder that is not a git "
            "repository, and cannot be updated.",
            id="no-answers",
        )
    return found


def target(template: Template, to: str, old: str) -> str:
    """The commit to update to."""
    if to == "current":
        return old
    found = template.commit(to) if to else template.newest()
    if not found:
        raise RefusalError(
            f"The template {template.address} has no release, branch, or commit {to}.", id="release-unknown"
        )
    return found


def accept(found: Look, accepted: bool) -> None:
    """Ask before an update after which the container would not start with this machine's driver."""
    seen = found.summary
    if not seen.too_old or accepted:
        return
    why = f"{found.name} needs NVIDIA driver {seen.floor} or newer, and this machine has {seen.driver}"
    if not terminal():
        raise RefusalError(
            f"Nothing was changed: {why}. Update the driver (`./launch setup --only driver`), or pass --accept-driver.",
            code=1,
            id="driver-below-floor",
        )
    print(seen.text("check"), flush=True)
    if not confirmed(f"{why}: the container will not start with the GPU here. Update anyway?"):
        raise RefusalError("Nothing was changed.", id="driver-below-floor")


class Notes:
    """What was seen and said before, kept beside the record: the commits of tags, and the templates explained."""

    def __init__(self, project: Path) -> None:
        self.path = record.place(project) / "seen.json"
        try:
            found = json.loads(self.path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            found = {}
        self.tags = found.get("tags", {})
        self.explained = found.get("explained", [])

    def moved(self, template: Template, seen: dict[str, str]) -> str:
        """A sentence if a tag was another commit before."""
        known = self.tags.get(template.address, {})
        for name, commit in seen.items():
            if known.get(name, commit) != commit:
                return (
                    f"The template's tag {name} has moved: it was commit {known[name][:12]}, and is now {commit[:12]}."
                )
        return ""

    def remember(self, template: Template, seen: dict[str, str]) -> None:
        self.tags[template.address] = {**self.tags.get(template.address, {}), **seen}
        self._store()

    def trusted(self, template: Template) -> bool:
        known = template.address in self.explained
        if not known:
            self.explained.append(template.address)
            self._store()
        return known

    def _store(self) -> None:
        record.write(self.path, json.dumps({"tags": self.tags, "explained": self.explained}, indent=1).encode())
