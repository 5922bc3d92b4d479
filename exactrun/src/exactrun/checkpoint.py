"""Checkpoints: one folder per saved step, written atomically and verified when loaded; the newest and the best stay.

A checkpoint is written to a temporary folder, flushed to disk, and renamed: after a kill, a full disk, or a power
failure, it exists completely or not at all, and earlier ones are unchanged. A manifest holds the size and SHA-256 of
each file, and its own. Loading a checkpoint never executes code from it. The order of fsync and rename follows LWN,
"Ensuring data reaches disk", https://lwn.net/Articles/457667/.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import math
import os
import pickle
import re
import shutil
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.utils.serialization import config

from exactrun.hashed import DamageError, entry, readable, sync, verify
from exactrun.shards import like

FORMAT = 3
FOLDER = "checkpoints"
LOCK = ".lock"
MANIFEST = "manifest.json"
WEIGHTS = "model.pt"
STATE = "state.pt"
NAME = re.compile(r"step-(\d{8,})(\.old)?")
SPARE = ".tmp"  # ends the name of a folder that is being written or removed
SUM = '{"sha256 of the lines below": "%s",\n'  # the manifest's first line
NEW_RUN = "or start a new run in another folder"
PLAIN = {dict, OrderedDict, Counter, list, tuple, set, str, bytes, int, float, complex, bool, type(None)}
PLAIN |= {torch.Size, torch.dtype, torch.device}
UNCHANGED = "Earlier checkpoints are unchanged."
Result = TypeVar("Result")
DISK = {  # what to do about an error of the file system
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT), "free some space"),
    **dict.fromkeys((errno.EACCES, errno.EPERM), "change its owner or mode, or use another folder"),
    errno.EFBIG: "raise the limit that `ulimit -f` shows",
    errno.EROFS: "remount it, or use another folder",
}
FOLDERS = DISK | {
    **dict.fromkeys((errno.ENOTDIR, errno.EEXIST), "it is not a folder: move the file away, or use another folder"),
    errno.ENOENT: "it was deleted while it was in use: run the same command again",
}


class CheckpointError(Exception):
    """A checkpoint cannot be saved or loaded; the message is one sentence for the user, with the remedy.

    `full`: the cause, if it is that the disk is full or its quota exceeded; otherwise empty.
    """

    def __init__(self, message: str, full: str = "") -> None:
        super().__init__(message)
        self.full = full


@dataclass(frozen=True)
class Loaded:
    """The contents of a checkpoint, on the CPU.

    `passed_over`: a message for each newer checkpoint that cannot be used.
    """

    path: Path
    step: int
    weights: dict[str, Tensor]
    state: dict[str, Any]
    about: dict[str, Any]
    metric: float | None = None
    passed_over: list[str] = field(default_factory=list)


def fingerprint(model: nn.Module) -> dict[str, str]:
    """Identifies a model, for `about`: name -> type and shape of each tensor in its state_dict."""
    tensors = {
        name.replace("_orig_mod.", ""): one for name, one in model.state_dict().items() if isinstance(one, Tensor)
    }
    return {name: f"{str(one.dtype)[6:]} {list(one.shape)}" for name, one in tensors.items()}


def save(
    run: Path,
    step: int,
    weights: Mapping[str, Tensor],
    state: dict[str, Any],
    *,
    about: dict[str, Any],
    keep: int = 3,
    metric: float | None = None,
) -> Path:
    """Write the checkpoint of `step` to the folder of the run; return the checkpoint's folder.

    `weights`: a state_dict. `state`: nested dicts and lists of tensors and plain values that
    torch.load(weights_only=True) accepts. Both may be on any device; one tensor at a time is copied to memory.
    `about` identifies the run, in JSON values. The `keep` newest checkpoints and the one with the lowest `metric` are
    kept (NaN is never the best).

    Raises:
        CheckpointError: it cannot be saved; earlier checkpoints are unchanged.
    """
    if keep < 1:
        raise CheckpointError(f"keep is {keep}, but must be at least 1.")
    values = {WEIGHTS: dict(weights), STATE: state}
    needed = sum((storages(values[WEIGHTS], "weights") | storages(state, "state")).values())
    folder = run / FOLDER
    path = folder / f"step-{step:08d}"
    spare = folder / f".step-{step:08d}{SPARE}"
    with file_errors(folder), claim(run):
        sweep(folder)
        check_room(folder, needed)
        try:
            spare.mkdir()
            for name, one in values.items():
                # Without torch.save's checksums: the manifest has better ones.
                with (spare / name).open("xb") as file, config.patch({"save.compute_crc32": False}):
                    torch.save(one, file)
            seal(spare, step, about, metric)
            place(spare, path)
        except BaseException:
            shutil.rmtree(spare, ignore_errors=True)
            raise
        prune(folder, step, keep)
    return path


def newest(run: Path, *, about: dict[str, Any] | None = None) -> Loaded | None:
    """Load the intact checkpoint with the highest step; None if none was ever saved.

    Raises:
        CheckpointError: all checkpoints are damaged, or they were saved by a run that does not match `about`.
    """

    def found(path: Path) -> Loaded:
        manifest = read_manifest(path)
        if about is not None:
            compare(path, manifest["about"], about)
        return replace(_load(path, manifest), passed_over=passed_over)

    passed_over: list[str] = []
    return first_intact(run, saved(run / FOLDER), found, passed_over)


def load_weights(run: str | Path, *, best: bool = False, **modules: nn.Module) -> int:
    """Load only weights, of modules by the names with which they were kept: `load_weights("outputs/x", model=model)`.

    From the newest intact checkpoint, or the one with the `best` metric; returns its step.

    Raises:
        CheckpointError: there is none, or a module has other parameters.
    """
    found = newest(Path(run))
    if found is None:
        raise CheckpointError(f"{run} has no checkpoint: train first, or use the folder of another run.")
    if best:
        metrics = dict[Path, float]()
        for path in saved(Path(run) / FOLDER):
            with contextlib.suppress(DamageError):
                metrics[path] = read_manifest(path)["metric"]
        measured = [path for path, metric in metrics.items() if metric is not None]
        found = load(min(measured, key=metrics.__getitem__)) if measured else found
    for name, module in modules.items():
        weights = found.state["kept"].get(name, {}) | (found.weights if name == "model" else {})
        compare(found.path, found.about, {name: fingerprint(module)})
        present = module.state_dict()
        module.load_state_dict({key: like(weights[key.replace("_orig_mod.", "")], one) for key, one in present.items()})
    return found.step


def first_intact(run: Path, paths: list[Path], load: Callable[[Path], Result], passed_over: list[str]) -> Result | None:
    """The first of these checkpoints of a run that is not damaged; CheckpointError if there are only damaged ones.

    `passed_over` gets a message for each damaged one.
    """
    for path in paths:
        try:
            return load(path)
        except DamageError as damage:
            passed_over.append(f"{path.name} is skipped: {damage}.")
    if not passed_over:
        return None
    message = f"No checkpoint in {run} can be used: {' '.join(passed_over)}"
    raise CheckpointError(f"{message} Restore one from a backup, {NEW_RUN}.")


def load(path: Path) -> Loaded:
    """Load the checkpoint in the folder `path`; CheckpointError with the reason if it is damaged."""
    try:
        return _load(path, read_manifest(path))
    except DamageError as damage:
        raise CheckpointError(f"{path} cannot be used: {damage}. Use another checkpoint, {NEW_RUN}.") from damage


def exists(run: Path) -> bool:
    """Whether the run has a checkpoint, intact or not."""
    return bool(saved(run / FOLDER))


@contextlib.contextmanager
def claim(run: Path) -> Iterator[None]:
    """Lock the run for this process; CheckpointError if another process holds the lock. May be nested.

    The lock belongs to the process (POSIX, fcntl(2)): its data loader workers do not inherit it, and it is released
    when the process ends.
    """
    folder = run / FOLDER
    holder = (os.getpid(), folder.resolve())
    if holder in _held:
        yield
        return
    with file_errors(folder):
        if not folder.exists():
            folder.mkdir(parents=True, exist_ok=True)
            sync(run)
        _held[holder] = _lock(folder / LOCK)
    try:
        yield
    finally:
        os.close(_held.pop(holder))


_held: dict[tuple[int, Path], int] = {}  # the open lock files: closing another handle of one would release the lock


def _lock(path: Path) -> int:
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        os.close(file)
        run = path.parents[1]
        raise CheckpointError(
            f"Another process writes to {run}: wait until it ends, or use another folder (--name, in a project)."
        ) from None
    except OSError:
        pass  # a file system without locks
    return file


def seal(folder: Path, step: int, about: dict[str, Any], metric: float | None = None) -> None:
    """Write the manifest of all other files of a checkpoint, whose first line is the checksum of the rest, and flush
    everything to disk."""
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file() and path != folder / MANIFEST]
    files = {str(path.relative_to(folder)): entry(path) for path in paths}
    finite = metric if metric is not None and math.isfinite(metric) else None
    manifest = {"format": FORMAT, "metric": finite, "files": files, "step": step, "about": about}
    below = json.dumps(manifest, indent=1)[2:].encode()
    (folder / MANIFEST).write_bytes(_first_line(below) + below)
    for path in (*folder.rglob("*"), folder):  # at the end: one journal commit covers all
        sync(path)


def _first_line(below: bytes) -> bytes:
    return (SUM % hashlib.sha256(below).hexdigest()).encode()


def read_manifest(path: Path) -> dict[str, Any]:
    """The manifest, if its checksum matches; CheckpointError if it has another format."""
    with readable(path / MANIFEST):
        first, _, below = (path / MANIFEST).read_bytes().partition(b"\n")
    if first + b"\n" != _first_line(below):
        raise DamageError(f"{MANIFEST} has a wrong checksum")
    manifest = json.loads(b"{" + below)
    if manifest["format"] != FORMAT:
        raise CheckpointError(  # it is intact: if it were skipped, it would be overwritten later
            f"{path} has format {manifest['format']}, but this exactrun reads format {FORMAT}: use the one that saved "
            f"it, {NEW_RUN}."
        )
    if int(re.search(r"\d+", path.name)[0]) != manifest["step"]:
        raise DamageError(f"its name does not match its step, {manifest['step']}")
    return manifest


def _load(path: Path, manifest: dict[str, Any]) -> Loaded:
    weights, state = (read(path / name, manifest["files"][name]) for name in (WEIGHTS, STATE))
    return Loaded(path, manifest["step"], weights, state, manifest["about"], manifest["metric"])


def read(path: Path, expected: dict[str, Any]) -> dict[str, Any]:
    """The contents of a file of a checkpoint; DamageError if it does not match its entry in the manifest."""
    verify(path, expected)
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, RuntimeError, pickle.UnpicklingError) as error:
        message = str(error).strip().partition("\n")[0]
        raise DamageError(f"{path.name} is intact, but torch {torch.__version__} cannot load it: {message}") from error


def compare(path: Path, saved: dict[str, Any], wanted: dict[str, Any]) -> None:
    """CheckpointError that names the first difference between the run that saved it and this one."""
    for key, value in json.loads(json.dumps(wanted)).items():
        before = saved.get(key)
        if before == value:
            continue
        difference = f"{key} = {before}, but this run has {value}"
        if isinstance(value, dict) and isinstance(before, dict):
            name = next(name for name in [*value, *before] if before.get(name) != value.get(name))
            there = before.get(name, "absent")
            here = value.get(name, "absent")
            difference = f"another {key}: {name} is {there} there and {here} here"
        raise CheckpointError(f"{path} was saved with {difference}: resume with the same, {NEW_RUN}.")


def storages(value: Any, where: str) -> dict[int, int]:
    """Address -> bytes of the memory of all tensors in `value`.

    CheckpointError if torch.load(weights_only=True) would refuse the value: now, instead of when it is loaded.
    """
    tensor = type(value) in (Tensor, nn.Parameter) and value.layout is torch.strided and value.device.type != "meta"
    if not tensor and type(value) not in PLAIN:
        kind = f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")
        form = f" ({value.layout}, on {value.device})" if isinstance(value, Tensor) else ""
        raise CheckpointError(
            f"{where} is a {kind}{form}, but checkpoints contain only ordinary tensors and plain values: "
            "remove it, or convert it to a tensor, a number, a string, a list, or a dict."
        )
    found = {value.untyped_storage().data_ptr(): value.untyped_storage().nbytes()} if tensor else {}
    inner = vars(value) if tensor else value
    if isinstance(inner, dict):
        for key, one in inner.items():
            found |= storages(key, f"a key of {where}") | storages(one, f"{where}[{key!r}]")
    elif isinstance(inner, (list, tuple, set)):
        for number, one in enumerate(inner):
            found |= storages(one, f"{where}[{number}]")
    return found


def check_room(folder: Path, needed: int) -> None:
    needed += needed // 50 + (1 << 20)  # names, checksums, and blocks
    disk = os.statvfs(folder)
    free = disk.f_bavail * disk.f_frsize
    if disk.f_blocks and free < needed:
        cause = f"{folder} has {free / 1e6:,.1f} MB free, but the checkpoint needs {needed / 1e6:,.1f} MB"
        raise CheckpointError(f"{cause}: free space or keep fewer checkpoints, then resume. {UNCHANGED}", cause)


@contextlib.contextmanager
def file_errors(folder: Path) -> Iterator[None]:
    """Report errors of the file system as CheckpointError."""
    try:
        yield
    except (OSError, RuntimeError) as failed:
        error = failed if isinstance(failed, OSError) else failed.__context__  # torch.save raises another one
        if not isinstance(error, OSError):
            raise
        cause = f"{folder} cannot be read or written ({error.strerror or error})"
        full = cause if error.errno in (errno.ENOSPC, errno.EDQUOT) else ""
        remedy = FOLDERS.get(error.errno, "check its disk, or use another folder")
        raise CheckpointError(f"{cause}: {remedy}. {UNCHANGED}", full) from error


def saved(folder: Path) -> list[Path]:
    """The folders of all checkpoints, intact or not, newest first."""
    with file_errors(folder):
        try:
            found = [path for path in folder.iterdir() if NAME.fullmatch(path.name)]
        except FileNotFoundError:
            return []
    return sorted(found, key=lambda path: (_step(path), not path.suffix), reverse=True)


def _step(path: Path) -> int:
    return int(NAME.fullmatch(path.name)[1])


def place(spare: Path, path: Path) -> None:
    """Rename and sync. An existing folder of that name stays a valid checkpoint until the new one replaces it."""
    old = path.with_name(f"{path.name}.old")
    if path.exists():
        _remove(old)
        path.rename(old)
    spare.rename(path)
    sync(path.parent)
    _remove(old)


def prune(folder: Path, step: int, keep: int) -> None:
    """Remove all but the `keep` newest up to `step` and the best. Damaged ones are neither counted nor removed."""
    metrics: dict[Path, float | None] = {}
    for path in saved(folder):
        with contextlib.suppress(DamageError, CheckpointError):
            metrics[path] = read_manifest(path)["metric"]
    measured = [path for path in reversed(metrics) if metrics[path] is not None]
    best = min(measured, key=metrics.__getitem__, default=None)
    for path in [path for path in metrics if _step(path) <= step][keep:]:
        if path != best:
            _remove(path)


def _remove(path: Path) -> None:
    """Rename, then remove, so that a partly removed folder is not mistaken for a checkpoint."""
    if path.exists():
        spare = path.with_name(f".{path.name}{SPARE}")
        with contextlib.suppress(OSError):
            path.rename(spare)
        shutil.rmtree(spare, ignore_errors=True)


def sweep(folder: Path) -> None:
    """Remove what a killed process left behind. The caller holds the lock, so nothing is being written."""
    for path in folder.glob(f".step-*{SPARE}"):
        shutil.rmtree(path, ignore_errors=True)
