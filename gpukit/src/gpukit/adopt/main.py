"""`gpukit adopt`: look at a repository, say what is found, and write what the template adds to it.

The files are rendered aside, and brought in as one step that an interruption reverts (update/record.py).
"""

from __future__ import annotations

import json
import re
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gpukit.adopt import choose, look
from gpukit.adopt.look import FOLDERS, LAUNCH, USERS, Found
from gpukit.findings.causes import PROJECT
from gpukit.findings.finding import count, in_words
from gpukit.host import facts, queue
from gpukit.host.cards import data
from gpukit.host.git import attempt, git, last_line, status
from gpukit.host.project import CPU
from gpukit.plan import packages
from gpukit.plan.index import Indexes, Platform
from gpukit.project import versions
from gpukit.project.dependencies import Line, Lines
from gpukit.project.location import ADOPTED, EXTRA, is_adopted
from gpukit.project.messages import RefusalError, announced, confirmed, say, simple, some, terminal
from gpukit.project.stack import load
from gpukit.update import record, trial

TEMPLATE = "gh:org/gpu-template"
HEADER = """\
# What the image installs besides what the repository's own files require, as in requirements.txt. A line here replaces
# what those files say of the same package: `torch>=2.8`.
"""
CONFLICTS = (
    "requires-other-torch",
    "project-requires-other-torch",
    "requirements-conflict",
    "package-for-other-python",
)
SCRIPTS = ("train.py", "main.py")  # what the example after adopting runs
PLATFORM = Platform("amd64", (3, 12), (2, 39))  # where names are looked up; any would do


def adopt(root: Path, options: Any) -> int:
    """The command, in the folder that is adopted."""
    look.refuse_generated(root)
    look.refuse_no_git(root)
    with record.locked(root):
        if record.recover(root):
            say("The last start was interrupted, and is reverted.")
        if options.undo:
            return undo(root)
        look.refuse(root)
        answers = trial.pairs(options.answers or [])
        found = look.look(root, options.more)
        found.extra = known_names(root, found)
        ids = hardware(options, answers)
        confirm_names(found, options)
        replace(found, options.extra)
        choice = choose.choose(ids, found.lines, answers)
        with tempfile.TemporaryDirectory(prefix="gpukit-adopt-") as folder:
            copy = render(root, Path(folder), found, {**answers, **choice}, options)
            refuse_contradictions(root, copy, found, lambda reason: choose.for_packages(ids, reason, answers))
            report(found, ids, copy)
            # without a terminal, calling the command is the agreement
            if not options.yes and terminal() and not confirmed("Write these files?", usual=True):
                raise RefusalError("Nothing was written.")
            written = list(record.differences(root, copy))
            remember(root, copy, written)
            record.apply(root, copy, [], {"from": "", "to": "", "commit": "", "template": ""})
            record.drop(root)
    show_next(root, written, found)
    return 0


# What is asked for


def hardware(options: Any, answers: dict[str, str]) -> list[str]:
    """The hardware ids: as given, or this machine's, which is asked."""
    others = re.findall(r"[\w-]+", answers.get("also_on", ""))
    if options.hardware:
        answers["hardware"] = options.hardware
    if "hardware" not in answers:
        with announced("Looking for a GPU ..."):
            here = facts.hardware(facts.local(None, ask_engine=False))
        answers["hardware"] = ask_hardware(here)
    unknown = [id for id in (answers["hardware"], *others) if id not in data("cards")]
    if unknown:
        word = simple(unknown[0])
        near = [id for id, card in data("cards").items() if any(word in simple(name) for name in card["names"])]
        ids = ", ".join(f"{id} ({data('cards')[id]['label']})" for id in near) or ", ".join(data("cards"))
        raise RefusalError(f"{unknown[0]} is not a hardware id: choose from {ids}.", id="hardware-unknown")
    return list(dict.fromkeys([answers["hardware"], *others]))


def ask_hardware(here: list[str]) -> str:
    if not terminal():
        if len(here) == 1:
            say(f"The hardware is this machine's, {here[0]}; --hardware names another.")
            return here[0]
        raise RefusalError("For which hardware? Name it: `gpukit adopt --hardware rtx-40`.", id="no-terminal")
    offered = f" [{here[0]}]" if here else ""
    print(f"Hardware ids: {', '.join(data('cards'))}")
    print(f"Which hardware is it mainly for?{offered} ", end="", file=sys.stderr, flush=True)
    answer = sys.stdin.readline()
    chosen = answer.strip() or (here[0] if here and answer else "")
    if not chosen:
        raise RefusalError("Nothing was written: no hardware was named.")
    return chosen


# Packages


def name(line: str) -> str:
    return Line(line, "").name


def known_names(root: Path, found: Found) -> list[str]:
    """The lines whose package the index has; the others are left out, and named."""
    if not found.extra:
        return []
    with announced("Looking for the packages in the index ..."):
        try:
            indexes = Indexes(packages.indexes(Path(root.resolve().anchor)), PLATFORM)
            absent = [line for line in found.extra if "@" not in line and not indexes.releases(name(line))]
        except RefusalError as error:
            say(f"Whether the index has these packages is not known: {error}")
            absent = []
    found.left_out += [f"{line}: the package index has none of this name" for line in absent]
    return [line for line in found.extra if line not in absent]


def confirm_names(found: Found, options: Any) -> None:
    """Names that come from imports may be wrong: they are never installed unasked, nor beside those of --extra."""
    if not found.extra or found.origin in look.CONDA or options.yes:
        return
    if options.extra:
        given = set(map(name, options.extra))
        found.left_out += [f"{line}: imported, and not named by --extra" for line in found.extra if line not in given]
        found.extra = []
        return
    shown = ", ".join(found.extra)
    why = f"{found.computed} computes the dependencies, and is not run" if found.computed else ""
    why = why or "No file names the dependencies"
    if not terminal():
        raise RefusalError(
            f"{why}. By {found.origin}, they are {shown}: `gpukit adopt --yes` takes these, "
            f"or name them: `gpukit adopt --extra {' --extra '.join(found.extra)}`.",
            id="adopt-no-dependencies",
        )
    print(f"{why}. By {found.origin}, they are: {shown}")
    if not confirmed("Install these?", usual=True):
        raise RefusalError("Nothing was written. Name the packages with --extra.")


def replace(found: Found, extra: list[str]) -> None:
    """Let these lines for extra.txt replace all others for their packages."""
    names = set(map(name, extra))
    others = [line for line in found.extra if name(line) not in names]
    own = [Line(line, EXTRA) for line in extra] + [Line(line, found.origin) for line in others]
    names |= {line.name for line in own}
    found.lines = own + [line for line in found.lines if line.name not in names]
    found.extra = [*extra, *others]


def refuse_contradictions(root: Path, copy: Path, found: Found, helps: Callable[[str], str]) -> None:
    """Refuse packages that cannot be installed together, or not with the PyTorch that was chosen; name those that are
    missing among them, and those that the image has to build. `helps`: the remedy where the reason is about PyTorch.
    """
    stack = load(copy / ADOPTED["stack.json"])
    target = next(iter(stack.targets.values()))
    requirements = [line.text for line in found.lines]
    with announced("Resolving the packages, without downloading them ..."):
        try:
            asked = packages.question(stack, target, requirements, copy)
            answer, _ = packages.answer(asked, False, {})
        except RefusalError as error:
            say(f"Whether the packages fit together is not known yet: {error}")
            return
    if not answer.error:
        if found.origin != look.IMPORTS:
            found.left_out += look.unnamed(root, {*answer.packages, *data("stacks")["brings"].get(stack.base, ())})
        built = [f"{name} {each.version}" for name, each in answer.packages.items() if each.kind == "source"]
        if built:
            found.notes.append(f"without a wheel for Python {stack.python}, built from source: {', '.join(built)}")
        if answer.unread:
            found.notes.append(f"not checked, because their requirements could not be read: {', '.join(answer.unread)}")
        return
    finding, *others = [in_words(each, PROJECT) for each in packages.judge(answer, asked)]
    missing = [each.cause.rstrip(".") for each in others if each.cause_id == "package-not-for-this-cpu"]
    reason = ", ".join(missing) if missing else finding.seen or finding.cause
    if finding.cause_id not in CONFLICTS and not (missing and not answer.without_pytorch):
        why = "PyTorch's index does not answer, and without it" if answer.without_pytorch else "For now,"
        say(f"{why} the packages cannot be resolved: {reason}")
        return
    remedy = helps(reason) or f"A line in {EXTRA} replaces theirs: `gpukit adopt --extra 'PACKAGE>=VERSION'`."
    raise RefusalError(
        f"With torch {stack.torch}, these packages cannot be installed together: {reason.rstrip('.')}. {remedy}",
        id="adopt-packages-contradict",
    )


# The files


def render(root: Path, folder: Path, found: Found, answers: dict[str, str], options: Any) -> Path:
    """A repository in `folder` with what the template adds, uncommitted. Its one commit has the files that it reads."""
    copy = folder / "project"
    git(folder, "init", "-q", "--template=", str(copy))
    git(copy, "config", "core.excludesFile", "/dev/null")
    kept = [path for path in (EXTRA, ADOPTED["apt.txt"]) if (root / path).is_file()]  # by an earlier --undo
    for file in dict.fromkeys([*(source.partition("#")[0] for source in found.sources), *kept]):
        (copy / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(root / file, copy / file)
    git(copy, "add", "-A", "-f")
    tree = git(copy, "write-tree").strip()
    git(copy, "update-ref", "HEAD", git(copy, "commit-tree", tree, "-m", "before", **trial.IDENTITY).strip())
    write_extra(copy / EXTRA, found, options.extra)  # before the hook, which validates the requirements
    source = options.template or TEMPLATE
    source = str(Path(source).expanduser().resolve()) if Path(source).expanduser().is_dir() else source
    values = {"project_name": found.name, **answers}
    values.update(project="existing", dependencies=json.dumps(found.sources))
    command = [*trial.copier(folder), "copy", "--trust", "--quiet", "--defaults"]
    command += [
        f"--answers-file={ADOPTED['.copier-answers.yml']}",
        *([f"--vcs-ref={options.to}"] if options.to else []),
    ]
    command += [part for key, value in values.items() for part in ("--data", f"{key}={value}")]
    note = f"Rendering the files from {source} ..."
    done = trial.quietly([*command, source, str(copy)], folder, note, trial.settings(folder / "result"))
    if done.code:
        reason = trial.sentence(last_line(done))
        raise RefusalError(
            f"Copier could not render the template, and nothing was written: {reason}", id="copier-failed"
        )
    if not (copy / ADOPTED["stack.json"]).is_file():
        raise RefusalError(
            f"The template {source} cannot be adopted: it is older than `gpukit adopt`.", id="template-old"
        )
    return copy


def write_extra(file: Path, found: Found, given: list[str]) -> None:
    """Write extra.txt, first the lines of --extra; one that an earlier --undo has kept gets the new lines."""
    text = file.read_text(encoding="utf-8") if file.is_file() else HEADER
    others = [line for line in found.extra if line not in given]
    for heading, lines in (("", given), (f"# From {found.origin}.\n", others)):
        if lines:
            text += f"\n{heading}"
        for line in lines:
            text = Lines(text).set(line)
    file.parent.mkdir(exist_ok=True)
    file.write_text(text, encoding="utf-8")


def report(found: Found, ids: list[str], copy: Path) -> None:
    stack = load(copy / ADOPTED["stack.json"])
    origin = ", ".join(dict.fromkeys([*found.sources, *(line.file for line in found.lines)]))
    print(f"{found.name}: {count(len({line.name for line in found.lines}), 'package')}, from {origin or 'no file'}")
    print(f"  hardware  {', '.join(ids)}: {stack.base} {stack.release}, torch {stack.torch}, Python {stack.python}")
    if not versions.allows(f"python{found.python}", f"{stack.python}.99"):
        found.notes.append(f"it accepts Python {found.python}, and may not run with the image's {stack.python}")
    for each in found.notes:
        print(f"  note      {each}")
    for each in found.left_out:
        print(f"  left out  {each}")
    for each, letters in sorted(status(copy).items()):
        print(f"  {'new    ' if letters == '??' else 'changed'}   {each}")


def show_next(root: Path, written: list[str], found: Found) -> None:
    paths = [LAUNCH, *(folder for folder in FOLDERS if (root / folder).is_dir())]
    ignored = attempt(root, "check-ignore", "--no-index", *written, GIT_LITERAL_PATHSPECS="0")  # which it refuses
    forced = " -f" if ignored.code == 0 else ""
    command = next((f"python {name}" for name in SCRIPTS if (root / name).is_file()), "YOUR COMMAND")
    print(f"Wrote {len(written)} files; none of yours changed. `gpukit adopt --undo` removes them. Next:")
    print(f'  git add{forced} {" ".join(paths)} && git commit -m "Adopt gpukit"')
    cpu = "; --cpu without a GPU" if (root / ADOPTED[CPU]).is_file() else ""
    print(f"  ./launch run -- {command}        in the container{cpu}")
    if kept := look.kept_from_builds(root, [FOLDERS[0], *(each.partition("#")[0] for each in found.sources)]):
        lines = " and ".join(f"`!{each}`" for each in kept)
        print(f"For VS Code, add {lines} to the end of your .dockerignore: its builds read that file, and need these.")


# What was written


def notes(root: Path) -> Path:
    return record.place(root) / "adopted.json"


def remember(root: Path, copy: Path, written: list[str]) -> None:
    """The contents of the files as they are written, by which edits are told."""
    record.write(notes(root), json.dumps({path: record.state(copy / path) for path in written}, indent=1).encode())


def undo(root: Path) -> int:
    """Remove what adopting and its commands wrote; keep what the user edited of their own lists, and name it."""
    if not is_adopted(root):
        remove_empty(root)  # which an undo that was interrupted has left
        raise RefusalError("There is nothing to undo: this repository has not adopted gpukit.", id="nothing-to-undo")
    if queue.WorkerLock(root / ADOPTED[".launch"] / "jobs").holder() is not None:
        raise RefusalError("The queue of this repository is being processed: `./launch stop` ends that.", id="in-use")
    try:
        known = json.loads(notes(root).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        known = {}
    committed = set(look.tracked(root, [LAUNCH, *FOLDERS]))
    present = files(root)
    changed = [path for path in present if known.get(path) != record.state(root / path)]
    kept = [path for path in USERS if path in changed]
    if ADOPTED[".env"] in kept:
        kept.append(ADOPTED[".gitignore"])  # without it, `git add` would take the tokens
    edited = [path for path in changed if path not in (*committed, *kept)]
    if edited:
        raise RefusalError(
            f"Nothing was removed: {some(edited)} {'was' if len(edited) == 1 else 'were'} edited. Commit it, "
            "or move it elsewhere first.",
            id="edited-since-adopt",
        )
    for path in local(root):
        if path.is_symlink() or path.is_file():
            record.remove(path)
        else:
            shutil.rmtree(path, ignore_errors=True)
    with record.uninterrupted():
        remove_exclusion(root)
        # stack.json is last: it says that there is more to remove
        for path in sorted(present, key=lambda path: path == ADOPTED["stack.json"]):
            if path not in kept:
                record.remove(root / path)
        remove_empty(root)
        notes(root).unlink(missing_ok=True)
        record.drop(root)
    print("Removed what adopting wrote; your own files are as they were.")
    if kept:
        print(f"Kept, because of what you may have written there: {', '.join(kept)}.")
    return 0


def remove_empty(root: Path) -> None:
    """Remove the folders in which nothing is left, `.devcontainer` too."""
    for path in sorted((each for folder in FOLDERS for each in (root / folder).glob("**/")), reverse=True):
        record.remove_folders(path / "-", root)


def remove_exclusion(root: Path) -> None:
    """Remove the line of initialize.sh from the patterns that git ignores in this clone."""
    file = root / git(root, "rev-parse", "--git-path", "info/exclude").strip("\n")
    prefix = git(root, "rev-parse", "--show-prefix").strip("\n")
    line = f"\n/{prefix}{FOLDERS[0]}/*\n".encode()
    if file.is_file() and line in file.read_bytes():
        file.write_bytes(file.read_bytes().replace(line, b""))


def files(root: Path) -> list[str]:
    """Everything in the places that adopting has, links too; nothing behind a link."""
    found = [LAUNCH] if record.state(root / LAUNCH) else []
    others = local(root)
    for folder in FOLDERS:
        for path in (root / folder).rglob("*"):
            if record.state(path) and not any(other in (path, *path.parents) for other in others):
                found.append(path.relative_to(root).as_posix())
    return found


def local(root: Path) -> list[Path]:
    """What ./launch keeps for this machine, beside the files that adopting wrote: queue, logs, links, and reports."""
    own = {Path(path).name for path in (*ADOPTED.values(), EXTRA)} - {Path(ADOPTED["outputs"]).name}
    found = (root / FOLDERS[0]).glob("*")
    return [path for path in found if path.name not in (*own, "certs") and not path.name.startswith("gpukit-")]
