"""Checkpoints: a folder for each saved step, never half written, checked when read, the newest few and the best kept.

A step is written aside, forced to the disk and renamed: after a kill, a full disk or a loss of power there is either
the whole folder or none, and those before it are as they were. A manifest holds size and SHA-256 of each file, and its
own. Nothing in a checkpoint can run on loading. The order of fsync and rename is that of LWN, "Ensuring data reaches
disk", https://lwn.net/Articles/457667/.
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
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any

import torch
from torch import Tensor, nn

from gpukit.train import weights as safetensors
from gpukit.train.hashed import CHUNK, DamageError, Written, readable, sync_folder, verify

FORMAT = 1
FOLDER, LOCK, MANIFEST, WEIGHTS, STATE = "checkpoints", ".lock", "manifest.json", "model.safetensors", "state.pt"
NAME = re.compile(r"step-(\d{8,})(\.old)?")
SPARE = ".tmp"  # ends the name of a folder that is being written or removed
SUM = '{"sha256 of the lines below": "%s",\n'  # the manifest's first line
RANKS = "ranks"  # in the manifest of a checkpoint in shards: how many saved it (sharded.py)
ANEW = "or start anew with another --name"
PLAIN = {dict, OrderedDict, Counter, list, tuple, set, str, bytes, int, float, complex, bool, type(None)}
PLAIN |= {torch.Size, torch.dtype, torch.device}


class CheckpointError(Exception):
    """A checkpoint cannot be saved or used; the text is one sentence for a person, with the remedy."""


@dataclass(frozen=True)
class Loaded:
    """What a checkpoint holds, on the CPU; the weights are views of one piece of memory.

    `passed_over`: a sentence for each newer checkpoint that cannot be used.
    """

    path: Path
    step: int
    weights: dict[str, Tensor]
    state: dict[str, Any]
    about: dict[str, Any]
    metric: float | None = None
    passed_over: list[str] = field(default_factory=list)


def fingerprint(model: nn.Module) -> dict[str, str]:
    """What tells one model from another, for `about`: name -> type and shape of each tensor of its state_dict."""
    tensors = {name: one for name, one in model.state_dict().items() if isinstance(one, Tensor)}
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
    """Write the checkpoint of `step` below the folder `run` and return its folder.

    `weights`: a state_dict, tensors of any shape and type. `state`: nested dicts and lists of tensors and plain values,
    which torch.load(weights_only=True) takes. Both may lie on any device; in memory, one tensor at a time is copied.
    `about` tells what run this is, in values that JSON can hold. Kept are the `keep` newest and the one of the lowest
    `metric` (nan is never the best). CheckpointError where it cannot be saved: those before are then as they were.
    """
    _check(weights, state, keep)
    folder, name = run / FOLDER, f"step-{step:08d}"
    with _told(folder), claim(run):
        _sweep(folder)
        _room(folder, safetensors.size(weights) + _size(state))
        spare = folder / f".{name}{SPARE}"
        try:
            spare.mkdir()
            manifest = {"format": FORMAT, "step": step, "metric": _metric(metric), "about": about}
            _write(spare, weights, state, manifest)
            _place(spare, folder / name)
        except BaseException:
            shutil.rmtree(spare, ignore_errors=True)
            raise
        _prune(folder, step, keep)
    return folder / name


def newest(run: Path, *, about: dict[str, Any] | None = None) -> Loaded | None:
    """The checkpoint of the highest step that is whole; None where none was ever saved.

    CheckpointError where there are some and none is whole, or where the run that saved it was another than `about`.
    """
    passed_over = []
    for path in _saved(run / FOLDER):
        try:
            manifest = _manifest(path)
            if about is not None:
                _compare(path, manifest["about"], about)
            loaded = _load(path, manifest)
        except DamageError as damage:
            passed_over.append(f"{path.name} is passed over: {damage}.")
        else:
            loaded.passed_over.extend(passed_over)
            return loaded
    if passed_over:
        raise _none_whole(run, passed_over)
    return None


def _none_whole(run: Path, passed_over: list[str]) -> CheckpointError:
    said = f"No checkpoint in {run / FOLDER} can be used: {' '.join(passed_over)}"
    return CheckpointError(f"{said} Restore one from a copy, {ANEW}.")


def load(path: Path) -> Loaded:
    """The checkpoint in the folder `path`; CheckpointError, which says why, where it is not whole."""
    try:
        return _load(path, _manifest(path))
    except DamageError as damage:
        raise CheckpointError(f"{path} cannot be used: {damage}; take another checkpoint, {ANEW}.") from damage


def exists(run: Path) -> bool:
    """Whether a checkpoint was ever saved there, whole or not."""
    return bool(_saved(run / FOLDER))


@contextlib.contextmanager
def claim(run: Path) -> Iterator[None]:
    """Be the one process that saves into `run`; CheckpointError where there is another. May be nested.

    The lock is the process's own (POSIX, fcntl(2)): its data loader's workers do not have it, and however it ends, the
    lock is gone with it.
    """
    folder = run / FOLDER
    with _told(folder):
        if not folder.exists():
            folder.mkdir(parents=True, exist_ok=True)
            sync_folder(run)
        holder = (os.getpid(), folder.resolve())
        lock = None if holder in _holders else _lock(folder / LOCK)
    if lock is None:
        yield
        return
    _holders.add(holder)
    try:
        yield
    finally:
        _holders.discard(holder)
        os.close(lock)


def _lock(path: Path) -> int:
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        os.close(file)
        run = path.parents[1]
        raise CheckpointError(f"Another process trains into {run}: let it end, or choose another --name.") from None
    except OSError:
        pass  # a file system without locks
    return file


_holders: set[tuple[int, Path]] = set()


def _write(folder: Path, weights: Mapping[str, Tensor], state: dict[str, Any], manifest: dict[str, Any]) -> None:
    """The three files, on the disk when this returns."""
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()  # the thread below copies on a stream of its own
    with contextlib.ExitStack() as files, ThreadPoolExecutor(4) as threads:
        one, other, last = (files.enter_context(Written(folder / name, threads)) for name in (WEIGHTS, STATE, MANIFEST))
        put_weights = partial(safetensors.write, weights, one.write)
        beside = threads.submit(put_weights) if safetensors.size(weights) > CHUNK else put_weights()
        torch.save(state, other)
        if beside is not None:
            beside.result()
        last.write(_sealed(manifest | {"files": {WEIGHTS: one.end(), STATE: other.end()}}))
        last.end()
        for file in (one, other, last):  # all are on their way since `end`: a journal takes them together
            file.sync()
        sync_folder(folder)


def _metric(value: float | None) -> float | None:
    """As a manifest has it: no number is none."""
    return None if value is None or not math.isfinite(value) else float(value)


def _sealed(manifest: dict[str, Any]) -> bytes:
    """The manifest as it is written: its own sum is its first line."""
    below = json.dumps(manifest, indent=1)[2:].encode()
    return _first_line(below) + below


def _first_line(below: bytes) -> bytes:
    return (SUM % hashlib.sha256(below).hexdigest()).encode()


def _manifest(path: Path) -> dict[str, Any]:
    """What the manifest says, once its own sum is right; CheckpointError where another gpukit wrote it."""
    with readable(path / MANIFEST):
        first, _, below = (path / MANIFEST).read_bytes().partition(b"\n")
    if first + b"\n" != _first_line(below):
        raise DamageError(f"{MANIFEST} is not what was written")
    manifest = json.loads(b"{" + below)
    if manifest["format"] != FORMAT:
        raise CheckpointError(  # it is whole: to pass it over would be to write over it some time
            f"{path} is of format {manifest['format']}, and this gpukit reads format {FORMAT}: use the version of the "
            f"template that saved it, {ANEW}."
        )
    if _step(path) != manifest["step"]:
        raise DamageError(f"it is that of step {manifest['step']} under another name")
    return manifest


def _load(path: Path, manifest: dict[str, Any]) -> Loaded:
    if RANKS in manifest:
        raise CheckpointError(f"{path} was saved in shards: resume with --fsdp, {ANEW}.")
    with ThreadPoolExecutor(2) as threads:
        reads = {name: threads.submit(read, path / name, manifest["files"][name]) for name, read in READERS.items()}
    weights, state = (reads[name].result() for name in (WEIGHTS, STATE))
    return Loaded(path, manifest["step"], weights, state, manifest["about"], manifest["metric"])


def _read_weights(path: Path, entry: dict[str, Any]) -> dict[str, Tensor]:
    data = torch.empty(entry["bytes"], dtype=torch.uint8)
    verify(path, entry, memoryview(data.numpy()))
    return safetensors.read(data)


def _read_state(path: Path, entry: dict[str, Any]) -> dict[str, Any]:
    verify(path, entry)
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, RuntimeError, pickle.UnpicklingError) as error:
        said = str(error).strip().partition("\n")[0]
        raise DamageError(f"{path.name} is what was written, but torch {torch.__version__} says: {said}") from error


READERS = {WEIGHTS: _read_weights, STATE: _read_state}


def _compare(path: Path, saved: dict[str, Any], wanted: dict[str, Any]) -> None:
    """CheckpointError that names the first thing in which the run that saved it was another."""
    for key, value in json.loads(json.dumps(wanted)).items():
        before = saved.get(key)
        if before == value:
            continue
        if isinstance(value, dict) and isinstance(before, dict):
            name = next(name for name in [*value, *before] if before.get(name) != value.get(name))
            there, here = before.get(name, "absent"), value.get(name, "absent")
            said = f"another {key}: {name} is {there} there and {here} here"
        else:
            said = f"{key} = {before}, and this run has {value}"
        raise CheckpointError(f"{path} was saved with {said}; {_remedy(key, before)}, {ANEW}.")


def _remedy(key: str, before: Any) -> str:
    if key == "samples":
        return "give it the data that it had"
    if isinstance(before, (str, int, float)):
        return f"resume with --{key.replace('_', '-')} {before}"
    return f"resume with the same {key.replace('_', ' ')}"


def _check(weights: Mapping[str, Tensor], state: dict[str, Any], keep: int) -> None:
    if keep < 1:
        raise CheckpointError(f"keep is {keep}: at least 1 checkpoint has to be kept.")
    for name, tensor in weights.items():
        if not safetensors.plain(tensor):
            raise CheckpointError(
                f"weights[{name!r}] is {_kind(tensor)}, which a checkpoint cannot hold: make it an ordinary tensor."
            )
    _check_plain(state, "state")


def _check_plain(value: Any, where: str) -> None:
    """CheckpointError where torch.load(weights_only=True) would refuse it: said now, not when it is needed."""
    if safetensors.plain(value):
        _check_plain(vars(value), where)
    elif type(value) not in PLAIN:
        raise CheckpointError(
            f"{where} is {_kind(value)}, and a checkpoint holds tensors and plain values only: "
            "leave it out, or make it a number, a text, a list or a dict."
        )
    elif isinstance(value, dict):
        for key, one in value.items():
            _check_plain(key, f"a key of {where}")
            _check_plain(one, f"{where}[{key!r}]")
    elif isinstance(value, (list, tuple, set)):
        for number, one in enumerate(value):
            _check_plain(one, f"{where}[{number}]")


def _kind(value: Any) -> str:
    if not isinstance(value, Tensor):
        return f"a {type(value).__module__}.{type(value).__qualname__}".replace("builtins.", "")
    if type(value) not in (Tensor, nn.Parameter):
        return f"a {type(value).__name__}"
    form = "quantized" if value.is_quantized else str(value.layout)[6:]
    return f"a {form} tensor on {value.device}"


def _size(state: Any) -> int:
    """Bytes of the tensors in it, those that share memory once."""
    found: dict[int, int] = {}

    def look(value: Any) -> None:
        if isinstance(value, Tensor):
            found[value.untyped_storage().data_ptr()] = value.untyped_storage().nbytes()
        elif isinstance(value, dict):
            for one in value.values():
                look(one)
        elif isinstance(value, (list, tuple)):
            for one in value:
                look(one)

    look(state)
    return sum(found.values())


def _room(folder: Path, needed: int) -> None:
    needed += needed // 50 + (1 << 20)  # names, sums and blocks
    disk = os.statvfs(folder)
    free = disk.f_bavail * disk.f_frsize
    if disk.f_blocks and free < needed:
        raise CheckpointError(
            f"{folder} has {free / 1e6:,.1f} MB of room and the checkpoint needs {needed / 1e6:,.1f} MB: make room or "
            "keep fewer checkpoints, then resume; those saved before are as they were."
        )


@contextlib.contextmanager
def _told(folder: Path) -> Iterator[None]:
    """Errors of the file system as a sentence."""
    try:
        yield
    except OSError as error:
        raise CheckpointError(f"{_reason(folder, error)}; those saved before are as they were.") from error


def _reason(folder: Path, error: OSError) -> str:
    said = error.strerror or str(error)
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"The disk is full, so no checkpoint was saved in {folder} ({said}): make room, then resume"
    if error.errno == errno.EFBIG:
        return f"No checkpoint was saved in {folder} ({said}): raise the limit that `ulimit -f` shows, then resume"
    if error.errno == errno.EROFS:
        return f"{folder} is on a file system that is read-only ({said}): mount it anew, or choose another --output-dir"
    if error.errno in (errno.ENOTDIR, errno.EEXIST):
        return f"{folder} is no folder ({said}): move what is in its place, or choose another --name"
    if error.errno in (errno.EACCES, errno.EPERM):
        return f"{folder} cannot be used by this user ({said}): give it to this user, or choose another --output-dir"
    return f"{folder} cannot be read or written ({said}): see whether its disk is there, then resume"


def _saved(folder: Path) -> list[Path]:
    """Folders of checkpoints, whole or not, the newest first."""
    with _told(folder):
        try:
            found = [path for path in folder.iterdir() if NAME.fullmatch(path.name)]
        except FileNotFoundError:
            return []
    return sorted(found, key=lambda path: (_step(path), not path.suffix), reverse=True)


def _step(path: Path) -> int:
    return int(NAME.fullmatch(path.name)[1])


def _place(spare: Path, path: Path) -> None:
    """Rename, and let the disk know. What has the name already stays a checkpoint until the new one has it."""
    old = path.with_name(f"{path.name}.old")
    if path.exists():
        if old.exists():
            _remove(old)
        path.rename(old)
    spare.rename(path)
    sync_folder(path.parent)
    if old.exists():
        _remove(old)


def _prune(folder: Path, step: int, keep: int) -> None:
    """Remove all but the `keep` newest up to `step` and the best of all. Those that cannot be read are not counted."""
    metrics: dict[Path, float] = {}
    for path in _saved(folder):
        with contextlib.suppress(DamageError, CheckpointError):
            metric = _manifest(path)["metric"]
            metrics[path] = math.inf if metric is None else metric
    ours = [path for path in metrics if _step(path) <= step]
    best = min(reversed(metrics), key=metrics.__getitem__)
    for path in ours[keep:]:
        if path != best or math.isinf(metrics[best]):
            with contextlib.suppress(OSError):
                _remove(path)


def _remove(path: Path) -> None:
    """Renamed first: half of it is then no checkpoint.

    The names are gone when this returns. A file's blocks are freed when it is closed, which takes 1 ms for 1 MiB, and
    long for a large one: training goes on meanwhile.
    """
    spare = path.with_name(f".{path.name}{SPARE}")
    shutil.rmtree(spare, ignore_errors=True)
    path.rename(spare)
    files = [file.open("rb") for file in spare.iterdir() if os.access(file, os.R_OK)]
    shutil.rmtree(spare, ignore_errors=True)
    Thread(target=lambda: [file.close() for file in files]).start()


def _sweep(folder: Path) -> None:
    """Remove what a killed process left. The caller has the claim: none of it is being written."""
    for path in folder.glob(f".step-*{SPARE}"):
        shutil.rmtree(path, ignore_errors=True)
