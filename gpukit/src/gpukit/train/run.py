"""The folder of a run: which one a start goes on with, what it was started with (run.json), and who is writing there.

Nothing that is there is ever overwritten: a start goes on with a run or makes a new folder.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

import torch

from gpukit.project.location import root
from gpukit.project.stack import Stack
from gpukit.train import checkpoint
from gpukit.train.checkpoint import CheckpointError, Loaded
from gpukit.train.errors import DISK, TrainingError
from gpukit.train.ranks import Ranks

FACTS = "run.json"
FORMAT = 1
KINDS = {"settings": dict, "starts": list}  # of what a later start reads
MOST_OF_A_PATCH = 1 << 20

Result = TypeVar("Result")


def on_main(ranks: Ranks, do: Callable[[], Result]) -> Result:
    """What `do()` gives on rank 0, on all ranks. Where it fails rank 0 raises that, and the others end: none waits."""
    if ranks.world == 1:
        return do()
    result = failure = None
    if ranks.main:
        try:
            result = do()
        except Exception as error:
            failure = error
    failed, result = ranks.share((failure is not None, result))
    if failure is not None:
        raise failure
    if failed:
        raise SystemExit(1)
    return result


@dataclass
class Run:
    """A run's folder. `facts`: what run.json holds; on other ranks than the first they are kept and not written.

    A context manager: while it is open no other process can train in that folder.
    """

    folder: Path
    facts: dict[str, Any]
    claim: contextlib.ExitStack | None = None

    @classmethod
    def start(cls, output_dir: Path, name: str, resume: bool, settings: dict[str, Any], stack: Stack) -> Run:
        """Go on with a run, or make a new one.

        With a name it is the folder of that name, made where it is not there. Without one it is the run without a name
        that was started last; where there is none, or not `resume`, or it is in use, a new folder is named after the
        time. TrainingError where a name is taken and not to be resumed, where another process trains in it, where the
        folder cannot be written, or where the last run has checkpoints and no run.json that can be read.
        """
        try:
            output_dir.mkdir(parents=True, exist_ok=True)
            run = cls._named(output_dir / name, resume) if name else cls._unnamed(output_dir, resume)
            run.facts.setdefault("settings", _plain(settings))
            run.facts.setdefault("stack", _of(stack))
            run.facts.setdefault("starts", []).append(_start(settings, run.folder))
            run.keep()
        except OSError as error:
            where, said = error.filename or output_dir, error.strerror
            remedy = DISK.get(error.errno, "--output-dir names another place")
            raise TrainingError(f"Nothing can be written at {where} ({said}): {remedy}.") from error
        return run

    @classmethod
    def _named(cls, folder: Path, resume: bool) -> Run:
        if any(folder.glob("step-*.pt")):
            raise TrainingError(
                f"{folder} holds checkpoints of an earlier version of this template (step-*.pt), which this one cannot "
                "read: --name NEW starts a run of its own."
            )
        if checkpoint.exists(folder) and not resume:
            raise TrainingError(
                f"{folder} holds a run already: without --no-resume it goes on, --name NEW starts anew."
            )
        folder.mkdir(parents=True, exist_ok=True)
        run = cls._open(folder)
        run.facts.setdefault("named", True)
        return run

    @classmethod
    def _unnamed(cls, output_dir: Path, resume: bool) -> Run:
        if resume:
            known = {path.parent: _read(path) for path in output_dir.glob(f"*/{FACTS}")}
            ours = [folder for folder, facts in known.items() if facts.get("named") is False and facts.get("starts")]
            lost = [folder for folder, facts in known.items() if not facts and checkpoint.exists(folder)]
            last = max((*ours, *lost), key=lambda folder: (folder / FACTS).stat().st_mtime, default=None)
            if last in lost:
                raise TrainingError(
                    f"{last} has checkpoints, and its {FACTS} cannot be read: --name {last.name} goes on with it, "
                    "--no-resume starts anew."
                )
            if ours:
                with contextlib.suppress(CheckpointError):  # in use: this one is another
                    return cls._open(max(ours, key=lambda folder: known[folder]["starts"][-1]["at"]))
        stamp = time.strftime("%Y%m%d-%H%M%S")
        for number in count(1):
            folder = output_dir / (stamp if number == 1 else f"{stamp}-{number}")
            with contextlib.suppress(FileExistsError):
                folder.mkdir()
                run = cls._open(folder)
                run.facts["named"] = False
                return run
        raise AssertionError

    @classmethod
    def _open(cls, folder: Path) -> Run:
        claim = contextlib.ExitStack()
        claim.enter_context(checkpoint.claim(folder))
        return cls(folder, _read(folder / FACTS), claim)

    def keep(self, **facts: Any) -> None:
        """Add facts to run.json, written aside, forced to the disk and renamed. What is no JSON is written as text."""
        self.facts = {"format": FORMAT, **self.facts, **facts}
        if self.claim is None:
            return
        aside = self.folder / f".{FACTS}.tmp"
        with aside.open("w", encoding="utf-8") as file:
            file.write(json.dumps(self.facts, indent=2, default=str) + "\n")
            file.flush()
            os.fsync(file.fileno())
        aside.replace(self.folder / FACTS)

    def changed(self, settings: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
        """The settings that differ from those of the first start: name -> (then, now). Not that it resumes."""
        then, now = self.facts["settings"], _plain(settings)
        names = [name for name in now if name in then and name not in ("name", "resume")]
        return {name: (then[name], now[name]) for name in names if then[name] != now[name]}

    def newest(self, ranks: Ranks, about: dict[str, Any]) -> Loaded | None:
        """The newest valid checkpoint, on all ranks: rank 0 finds it (see checkpoint.py), the others read the same."""
        found: list[Loaded | None] = []

        def find() -> Path | None:
            found.append(checkpoint.newest(self.folder, about=about))
            return found[0] and found[0].path

        path = on_main(ranks, find)
        return found[0] if found else path and checkpoint.load(path)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "claim": None}  # for other ranks

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *_: object) -> None:
        if self.claim is not None:
            self.claim.close()


def _read(path: Path) -> dict[str, Any]:
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    whole = isinstance(facts, dict) and all(isinstance(facts.get(name, kind()), kind) for name, kind in KINDS.items())
    return facts if whole else {}


def _plain(settings: dict[str, Any]) -> dict[str, Any]:
    return json.loads(json.dumps(settings, default=str))


def _of(stack: Stack) -> dict[str, Any]:
    names = ("project", "use_case", "base", "release", "image", "torch", "cuda", "python")
    return {**{name: getattr(stack, name) for name in names}, "targets": list(stack.targets)}


def _start(settings: dict[str, Any], folder: Path) -> dict[str, Any]:
    """What one start of a run began with: settings, versions, device and the state of git."""
    return {
        "at": datetime.now().astimezone().isoformat(timespec="milliseconds"),
        "command": sys.argv,
        "settings": _plain(settings),
        "world": int(os.environ.get("WORLD_SIZE", "1")),
        "versions": versions(),
        "git": git_state(folder),
    }


def versions() -> dict[str, Any]:
    """Python, PyTorch, CUDA, the GPU, and every installed package."""
    found = {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version() if torch.version.cuda else None,
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
    }
    packages = {each.metadata["Name"]: each.version for each in importlib.metadata.distributions()}
    return {**found, "packages": dict(sorted((name, version) for name, version in packages.items() if name))}


def git_state(folder: Path) -> dict[str, Any] | None:
    """Commit, branch and changed files of the project; None where it is no git repository, or git cannot tell.

    What differs from the commit is written into `folder`, where it is no more than 1 MB; new files are only named.
    """

    def git(*arguments: str) -> str:
        told = {"capture_output": True, "text": True, "errors": "replace", "timeout": 20}
        return subprocess.run(["git", *arguments], cwd=root(), check=True, **told).stdout

    try:
        state = {"commit": git("rev-parse", "HEAD").strip(), "branch": git("rev-parse", "--abbrev-ref", "HEAD").strip()}
        state["changed"] = git("status", "--porcelain").splitlines()
        patch = git("diff", "HEAD") if state["changed"] else ""
    except (OSError, subprocess.SubprocessError):
        return None
    if patch and len(patch) <= MOST_OF_A_PATCH:
        state["patch"] = f"{hashlib.sha256(patch.encode()).hexdigest()[:12]}.patch"
        (folder / state["patch"]).write_text(patch, encoding="utf-8")
    return state
