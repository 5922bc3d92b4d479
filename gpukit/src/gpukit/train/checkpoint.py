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
RANKS = "ranks"  # in the manifest of a sharded checkpoint: the number of ranks that saved it (sharded.py)
NEW_RUN = "or start a new run with another --name"
PLAIN = {dict, OrderedDict, Counter, list, tuple, set, str, bytes, int, float, complex, bool, type(None)}
PLAIN |= {torch.Size, torch.dtype, torch.device}


class CheckpointError(Exception):
    """A checkpoint cannot be saved or loaded; the message is one sentence for the user, with the remedy."""


@dataclass(frozen=True)
class Loaded:
    """The contents of a checkpoint, on the CPU; the weights are views of one buffer.

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
    """Write the checkpoint of `step` to the folder of the run; return the checkpoint's folder.

    `weights`: a state_dict. `state`: nested dicts and lists of tensors and plain values that
    torch.load(weights_only=True) accepts. Both may be on any device; one tensor at a time is copied to memory.
    `about` identifies the run, in JSON values. The `keep` newest checkpoints and the one with the lowest `metric` are
    kept (NaN is never the best).

    Raises:
        CheckpointError: it cannot be saved; earlier checkpoints are unchanged.
    """
    _check(weights, state, keep)
    folder, name = run / FOLDER, f"step-{step:08d}"
    with _file_errors(folder), claim(run):
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
    """Load the intact checkpoint with the highest step; None if none was ever saved.

    Raises:
        CheckpointError: all checkpoints are damaged, or they were saved by a run that does not match `about`.
    """
    passed_over = []
    for path in _saved(run / FOLDER):
        try:
            manifest = _manifest(path)
            if about is not None:
                _compare(path, manifest["about"], about)
            loaded = _load(path, manifest)
        except DamageError as damage:
            passed_over.append(f"{path.name} is skipped: {damage}.")
        else:
            loaded.passed_over.extend(passed_over)
            return loaded
    if passed_over:
        raise _none_whole(run, passed_over)
    return None


def _none_whole(run: Path, passed_over: list[str]) -> CheckpointError:
    message = f"No checkpoint in {run / FOLDER} can be used: {' '.join(passed_over)}"
    return CheckpointError(f"{message} Restore one from a backup, {NEW_RUN}.")


def load(path: Path) -> Loaded:
    """Load the checkpoint in the folder `path`; CheckpointError with the reason if it is damaged."""
    try:
        return _load(path, _manifest(path))
    except DamageError as damage:
        raise CheckpointError(f"{path} cannot be used: {damage}. Use another checkpoint, {NEW_RUN}.") from damage


def exists(run: Path) -> bool:
    """Whether the run has a checkpoint, intact or not."""
    return bool(_saved(run / FOLDER))


@contextlib.contextmanager
def claim(run: Path) -> Iterator[None]:
    """Lock the run for this process; CheckpointError if another process holds the lock. May be nested.

    The lock belongs to the process (POSIX, fcntl(2)): its data loader workers do not inherit it, and it is released
    when the process ends.
    """
    folder = run / FOLDER
    with _file_errors(folder):
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
        raise CheckpointError(
            f"Another process is writing to {run}: wait until it ends, or use another --name."
        ) from None
    except OSError:
        pass  # a file system without locks
    return file


_holders: set[tuple[int, Path]] = set()


def _write(folder: Path, weights: Mapping[str, Tensor], state: dict[str, Any], manifest: dict[str, Any]) -> None:
    """Write the three files and flush them to disk."""
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()  # the thread below copies on another stream
    with contextlib.ExitStack() as files, ThreadPoolExecutor(4) as threads:
        one, other, last = (files.enter_context(Written(folder / name, threads)) for name in (WEIGHTS, STATE, MANIFEST))
        put_weights = partial(safetensors.write, weights, one.write)
        beside = threads.submit(put_weights) if safetensors.size(weights) > CHUNK else put_weights()
        torch.save(state, other)
        if beside is not None:
            beside.result()
        last.write(_sealed(manifest | {"files": {WEIGHTS: one.end(), STATE: other.end()}}))
        last.end()
        for file in (one, other, last):  # `end` started writing all of them, so that one journal commit covers them
            file.sync()
        sync_folder(folder)


def _metric(value: float | None) -> float | None:
    """The metric as the manifest stores it: None if it is NaN or infinite."""
    return None if value is None or not math.isfinite(value) else float(value)


def _sealed(manifest: dict[str, Any]) -> bytes:
    """The manifest in bytes; its first line is the checksum of the others."""
    below = json.dumps(manifest, indent=1)[2:].encode()
    return _first_line(below) + below


def _first_line(below: bytes) -> bytes:
    return (SUM % hashlib.sha256(below).hexdigest()).encode()


def _manifest(path: Path) -> dict[str, Any]:
    """The manifest, if its checksum matches; CheckpointError if it has another format."""
    with readable(path / MANIFEST):
        first, _, below = (path / MANIFEST).read_bytes().partition(b"\n")
    if first + b"\n" != _first_line(below):
        raise DamageError(f"{MANIFEST} has a wrong checksum")
    manifest = json.loads(b"{" + below)
    if manifest["format"] != FORMAT:
        raise CheckpointError(  # it is intact: if it were skipped, it would be overwritten later
            f"{path} has format {manifest['format']}, but this gpukit reads format {FORMAT}: use the gpukit that saved "
            f"it, {NEW_RUN}."
        )
    if _step(path) != manifest["step"]:
        raise DamageError(f"its name does not match its step, {manifest['step']}")
    return manifest


def _load(path: Path, manifest: dict[str, Any]) -> Loaded:
    if RANKS in manifest:
        raise CheckpointError(f"{path} is a sharded checkpoint: resume with --fsdp, {NEW_RUN}.")
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
        message = str(error).strip().partition("\n")[0]
        raise DamageError(f"{path.name} is intact, but torch {torch.__version__} cannot load it: {message}") from error


READERS = {WEIGHTS: _read_weights, STATE: _read_state}


def _compare(path: Path, saved: dict[str, Any], wanted: dict[str, Any]) -> None:
    """CheckpointError that names the first difference between the run that saved it and this one."""
    for key, value in json.loads(json.dumps(wanted)).items():
        before = saved.get(key)
        if before == value:
            continue
        if isinstance(value, dict) and isinstance(before, dict):
            name = next(name for name in [*value, *before] if before.get(name) != value.get(name))
            there, here = before.get(name, "absent"), value.get(name, "absent")
            difference = f"another {key}: {name} is {there} there and {here} here"
        else:
            difference = f"{key} = {before}, but this run has {value}"
        raise CheckpointError(f"{path} was saved with {difference}; {_remedy(key, before)}, {NEW_RUN}.")


def _remedy(key: str, before: Any) -> str:
    if key == "samples":
        return "resume with the same data"
    if isinstance(before, (str, int, float)):
        return f"resume with --{key.replace('_', '-')} {before}"
    return f"resume with the same {key.replace('_', ' ')}"


def _check(weights: Mapping[str, Tensor], state: dict[str, Any], keep: int) -> None:
    if keep < 1:
        raise CheckpointError(f"keep is {keep}, but must be at least 1.")
    for name, tensor in weights.items():
        if not safetensors.plain(tensor):
            raise CheckpointError(
                f"weights[{name!r}] is {_kind(tensor)}, which cannot be saved: convert it to an ordinary tensor."
            )
    _check_plain(state, "state")


def _check_plain(value: Any, where: str) -> None:
    """CheckpointError if torch.load(weights_only=True) would refuse the value: now, instead of when it is loaded."""
    if safetensors.plain(value):
        _check_plain(vars(value), where)
    elif type(value) not in PLAIN:
        raise CheckpointError(
            f"{where} is {_kind(value)}, but checkpoints contain only tensors and plain values: "
            "remove it, or convert it to a number, a string, a list, or a dict."
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
    """Bytes of all tensors in `state`; shared memory counts once."""
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
    needed += needed // 50 + (1 << 20)  # names, checksums, and blocks
    disk = os.statvfs(folder)
    free = disk.f_bavail * disk.f_frsize
    if disk.f_blocks and free < needed:
        raise CheckpointError(
            f"{folder} has {free / 1e6:,.1f} MB free, but the checkpoint needs {needed / 1e6:,.1f} MB: free space or "
            "use a smaller --keep, then resume. Earlier checkpoints are unchanged."
        )


@contextlib.contextmanager
def _file_errors(folder: Path) -> Iterator[None]:
    """Report errors of the file system as CheckpointError."""
    try:
        yield
    except OSError as error:
        raise CheckpointError(f"{_reason(folder, error)}. Earlier checkpoints are unchanged.") from error


def _reason(folder: Path, error: OSError) -> str:
    text = error.strerror or str(error)
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"The disk is full, so no checkpoint was saved in {folder} ({text}): free space, then resume"
    if error.errno == errno.EFBIG:
        return f"No checkpoint was saved in {folder} ({text}): raise the limit that `ulimit -f` shows, then resume"
    if error.errno == errno.EROFS:
        return f"{folder} is on a read-only file system ({text}): remount it, or use another --output-dir"
    if error.errno in (errno.ENOTDIR, errno.EEXIST):
        return f"{folder} is not a folder ({text}): move the file away, or use another --name"
    if error.errno in (errno.EACCES, errno.EPERM):
        return f"No permission to use {folder} ({text}): change its owner, or use another --output-dir"
    return f"{folder} cannot be read or written ({text}): check its disk, then resume"


def _saved(folder: Path) -> list[Path]:
    """The folders of all checkpoints, intact or not, newest first."""
    with _file_errors(folder):
        try:
            found = [path for path in folder.iterdir() if NAME.fullmatch(path.name)]
        except FileNotFoundError:
            return []
    return sorted(found, key=lambda path: (_step(path), not path.suffix), reverse=True)


def _step(path: Path) -> int:
    return int(NAME.fullmatch(path.name)[1])


def _place(spare: Path, path: Path) -> None:
    """Rename and sync. An existing folder of that name stays a valid checkpoint until the new one replaces it."""
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
    """Remove all but the `keep` newest up to `step` and the best. Damaged ones are neither counted nor removed."""
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
    """Rename, then remove, so that a partly removed folder is not mistaken for a checkpoint.

    The names are gone when this returns. Freeing the blocks takes about 1 ms per MiB, so a thread does it while
    training continues.
    """
    spare = path.with_name(f".{path.name}{SPARE}")
    shutil.rmtree(spare, ignore_errors=True)
    path.rename(spare)
    files = [file.open("rb") for file in spare.iterdir() if os.access(file, os.R_OK)]
    shutil.rmtree(spare, ignore_errors=True)
    Thread(target=lambda: [file.close() for file in files]).start()


def _sweep(folder: Path) -> None:
    """Remove what a killed process left behind. The caller holds the lock, so nothing is being written."""
    for path in folder.glob(f".step-*{SPARE}"):
        shutil.rmtree(path, ignore_errors=True)
