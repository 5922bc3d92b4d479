"""Checkpoints of a model that is sharded across processes; any number of processes can load them.

torch.distributed.checkpoint (DCP) writes and reads the shards. The rest is as in checkpoint.py: one folder per step,
written to a temporary folder, flushed to disk, and renamed last, with a manifest of sizes and SHA-256. Rank 0 writes
the manifest after every rank has flushed its files. If a process or a machine dies before that, the previous checkpoint
stays the newest.

Loading a checkpoint never executes code from it. DCP's own list of shards is a pickle, and DCP would unpickle values
that are not tensors: here, the list is read by an unpickler restricted to the classes of such a list, tensors by
torch.load(weights_only=True), and plain values are not passed to DCP.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import re
import secrets
import shutil
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.distributed.checkpoint as dcp
from torch import Tensor, nn
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner, DefaultSavePlanner
from torch.distributed.checkpoint.filesystem import FileSystem
from torch.distributed.checkpoint.metadata import Metadata, StorageMeta
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
)
from torch.distributed.tensor import DTensor

from exactrun import checkpoint
from exactrun.checkpoint import FOLDER, NEW_RUN, RANKS, SPARE, STATE, CheckpointError
from exactrun.errors import lost_rank
from exactrun.folder import on_main
from exactrun.hashed import DamageError, Written, readable, sync, verify
from exactrun.ranks import Ranks

OWN = "rank-{}.pt"
LIST = ".metadata"  # DCP's name for its list of shards
TRAINED = StateDictOptions(ignore_frozen_params=True)
WRAPPERS = re.compile(r"_checkpoint_wrapped_module\.|_orig_mod\.")  # in names of modules, not of a state_dict
# The classes in a list of shards. Unpickling any other name could execute code.
CLASSES = {
    "torch.distributed.checkpoint.metadata": {
        "BytesStorageMetadata",
        "ChunkStorageMetadata",
        "Metadata",
        "MetadataIndex",
        "StorageMeta",
        "TensorProperties",
        "TensorStorageMetadata",
        "_MEM_FORMAT_ENCODING",
    },
    "torch.distributed.checkpoint.filesystem": {"_StorageInfo"},
    "torch.serialization": {"_get_layout"},
    "torch": {"Size"},
}

Result = TypeVar("Result")


@dataclass(frozen=True)
class Sharded:
    """A verified checkpoint; `fill` loads its shards.

    `state`: from rank 0. `own`: from this rank; None if there was no such rank. `ranks`: the number of ranks that saved
    it. `passed_over`: a message for each newer checkpoint that cannot be used.
    """

    path: Path
    step: int
    state: dict[str, Any]
    own: dict[str, Any] | None
    about: dict[str, Any]
    metric: float | None
    ranks: int
    files: frozenset[str]
    passed_over: list[str] = field(default_factory=list)

    def fill(self, weights: Mapping[str, Tensor], *, ranks: Ranks) -> None:
        """Load the saved values into these tensors, in place; all ranks must call this, each with its own shards.

        They may be a subset of the saved tensors, whole or sharded, on any number of ranks. CheckpointError if one was
        not saved, or has another shape.
        """
        reader, planner = _Reader(self.path, self.files), _Tensors(flatten_state_dict=False)
        given = {name: one.detach() for name, one in weights.items()}
        with _report_lost_rank(f"{self.path} was not read"):
            try:
                with _dcp():
                    dcp.load(given, storage_reader=reader, planner=planner, no_dist=ranks.world == 1)
            except (OSError, ValueError, AssertionError, RuntimeError, pickle.UnpicklingError) as error:
                if lost_rank(error):
                    raise
                message = str(error).strip().partition("\n")[0]
                raise CheckpointError(f"{self.path} does not match the model: {message}; {NEW_RUN}.") from error


def save(
    run: Path,
    step: int,
    weights: Mapping[str, Tensor],
    state: dict[str, Any],
    own: dict[str, Any] | None = None,
    *,
    ranks: Ranks,
    about: dict[str, Any],
    keep: int = 3,
    metric: float | None = None,
) -> Path:
    """Write the checkpoint of `step` to the folder of the run, on all ranks together; return the checkpoint's folder.

    `weights`: tensors by name, with the same names on every rank: DTensors, of which each rank writes its shards, or
    tensors that are equal on all ranks. `state` (from rank 0) and `own` (from each rank, such as its random state):
    as `state` in checkpoint.save, like the other parameters. `run` must be on a disk that all ranks share.

    Raises:
        CheckpointError: it cannot be saved: on the first rank that fails, while the others exit; if a rank has died, on
            all others, after ranks.PATIENCE at the latest.
    """
    folder, path = run / FOLDER, run / FOLDER / f"step-{step:08d}"
    with contextlib.ExitStack() as stack, _report_lost_rank(f"Step {step} was not saved in {folder}"):
        needed = sum(_gather_results(ranks, lambda: _needs(weights, state, own or {}, keep, ranks)))

        def begin() -> Path:
            with checkpoint.file_errors(folder):
                stack.enter_context(checkpoint.claim(run))
                checkpoint.sweep(folder)
                checkpoint.check_room(folder, needed)
                # A unique name: a rank that was given up may still write to an earlier one.
                spare = folder / f".{path.name}.{secrets.token_hex(4)}{SPARE}"
                spare.mkdir()
                return spare

        spare = on_main(ranks, begin)
        if ranks.main:
            stack.callback(shutil.rmtree, spare, ignore_errors=True)

        def write() -> dict[str, Any]:
            with checkpoint.file_errors(folder):
                return _write(spare, weights, state if ranks.main else None, own or {}, ranks)

        files = {name: entry for written in _gather_results(ranks, write) for name, entry in written.items()}
        manifest = {"step": step, "metric": metric, "about": about, RANKS: ranks.world, "files": files}

        def name() -> None:
            with checkpoint.file_errors(folder):
                _check_visible(spare, files)
                checkpoint.seal(spare, **manifest)
                checkpoint.place(spare, path)
                checkpoint.prune(folder, step, keep)

        on_main(ranks, name)
    return path


def newest(run: Path, *, ranks: Ranks, about: dict[str, Any] | None = None) -> Sharded | None:
    """Find the intact checkpoint with the highest step, on all ranks together; None if none was ever saved.

    Each rank verifies a share of the files. CheckpointError if all checkpoints are damaged, or if they were saved by a
    run that does not match `about`.
    """
    with _report_lost_rank(f"The checkpoints in {run / FOLDER} were not read"):
        paths = on_main(ranks, lambda: checkpoint.saved(run / FOLDER))
        try:
            return checkpoint.first_intact(run, paths, lambda path: _found(path, about, ranks))
        except CheckpointError:
            if ranks.main:
                raise
            raise SystemExit(1) from None


def model_shards(model: nn.Module) -> dict[str, Tensor]:
    """The trainable parameters and the buffers of a model, by name, for `save` and `Sharded.fill`.

    The tensors are the model's own. The names are the same before and after `fully_shard`.
    """
    frozen = set()
    for name, one in model.named_parameters(remove_duplicate=False):  # TRAINED leaves tied ones in
        if not one.requires_grad:
            frozen.add(WRAPPERS.sub("", name))
    every = get_model_state_dict(model, options=TRAINED)
    return {f"model.{name}": one for name, one in every.items() if name not in frozen}


def optimizer_shards(model: nn.Module, optimizer: torch.optim.Optimizer) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The optimizer's tensors, by name, for `save` and `Sharded.fill`, and its plain values, for `state`.

    Before the optimizer's first step, this creates its state.
    """
    if not optimizer.state:
        get_optimizer_state_dict(model, optimizer)  # creates it
    names = {one: WRAPPERS.sub("", name) for name, one in model.named_parameters()}
    order = [names[one] for group in optimizer.param_groups for one in group["params"]]
    state, tensors = optimizer.state_dict(), dict[str, Tensor]()
    plain = {"order": order, "param_groups": state["param_groups"], "state": dict[int, Any]()}
    for number, kept in state["state"].items():
        for key, value in kept.items():
            if isinstance(value, Tensor):
                tensors[f"optimizer.{order[number]}.{key}"] = value
            else:
                plain["state"].setdefault(number, {})[key] = value
    return tensors, plain


def put_back(optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor], plain: dict[str, Any]) -> None:
    """Restore the optimizer from the result of `optimizer_shards`, after its tensors were filled."""
    state: dict[int, Any] = {number: dict(kept) for number, kept in plain["state"].items()}
    numbers = {name: number for number, name in enumerate(plain["order"])}
    for name, one in tensors.items():
        parameter, _, key = name.removeprefix("optimizer.").rpartition(".")
        state.setdefault(numbers[parameter], {})[key] = one
    optimizer.load_state_dict({"state": state, "param_groups": plain["param_groups"]})


def local(tensor: Tensor) -> Tensor:
    """The local shard, as an ordinary tensor."""
    return tensor.detach().to_local() if isinstance(tensor, DTensor) else tensor.detach()


def whole(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The whole tensors, on the CPU of each rank; all ranks must call this."""
    found = {}
    for name, one in weights.items():
        found[name] = (one.full_tensor() if isinstance(one, DTensor) else one).detach().cpu()
    return found


def _needs(weights: Mapping[str, Tensor], state: Any, own: dict[str, Any], keep: int, ranks: Ranks) -> int:
    """Bytes that this rank will write; CheckpointError for what a checkpoint cannot hold."""
    checkpoint.prepare({name: local(one) for name, one in weights.items()}, state, keep)
    other = checkpoint.storages(state if ranks.main else None, "state") | checkpoint.storages(own, "own")
    mine = [local(one) for one in weights.values() if ranks.main or isinstance(one, DTensor)]
    return sum(one.nbytes for one in mine) + sum(other.values())


def _write(
    folder: Path, weights: Mapping[str, Tensor], state: dict[str, Any] | None, own: dict[str, Any], ranks: Ranks
) -> dict[str, Any]:
    """Write this rank's files and flush them to disk; return name -> size and SHA-256."""
    writer, planner = _Writer(folder), DefaultSavePlanner(flatten_state_dict=False)
    with _dcp():
        dcp.save(dict(weights), storage_writer=writer, planner=planner, no_dist=ranks.world == 1)
    others = {STATE: state, OWN.format(ranks.rank): own}
    contents = {name: partial(checkpoint.dump, one) for name, one in others.items() if one is not None}
    entries = writer.fs.entries | checkpoint.write_files(folder, contents)
    for path in (*(folder / name for name in entries), folder):
        sync(path)
    return entries


def _check_visible(folder: Path, files: dict[str, Any]) -> None:
    """Check that the files of all ranks are visible here."""
    for name, entry in files.items():
        try:
            with (folder / name).open("rb") as file:
                there = os.fstat(file.fileno()).st_size == entry["bytes"]
        except FileNotFoundError:
            there = False
        if not there:
            raise CheckpointError(
                f"{folder.parent} is not the same folder on every machine (rank 0 does not find {name}): "
                "set --output-dir to a folder on a shared disk."
            )


def _found(path: Path, about: dict[str, Any] | None, ranks: Ranks) -> Sharded:
    """Open the checkpoint; if any rank finds damage, all raise the same DamageError."""
    manifest, damage = on_main(ranks, lambda: _look(path, about))
    if damage is None:
        (state, own), damage = _checked(path, manifest["files"], ranks)
        damage = next(filter(None, ranks.gather(damage)), None)
    if damage is not None:
        raise DamageError(damage)
    named = (manifest[name] for name in ("about", "metric", RANKS))
    return Sharded(path, manifest["step"], state, own, *named, frozenset(manifest["files"]))


def _look(path: Path, about: dict[str, Any] | None) -> tuple[dict[str, Any], str | None]:
    """The manifest, and why the checkpoint cannot be used; None if the manifest is intact."""
    try:
        manifest = checkpoint.read_manifest(path)
    except DamageError as damage:
        return {}, str(damage)
    if RANKS not in manifest:
        raise CheckpointError(f"{path} is not a sharded checkpoint: resume without --fsdp, {NEW_RUN}.")
    if about is not None:
        checkpoint.compare(path, manifest["about"], about)
    return manifest, None


def _checked(path: Path, files: dict[str, Any], ranks: Ranks) -> tuple[list[Any], str | None]:
    """The states for this rank, and what is damaged: its share of the files, those states, or the list of shards."""
    largest_first = sorted(files.keys() - {LIST}, key=lambda name: (-files[name]["bytes"], name))
    try:
        for name in (LIST, *largest_first[ranks.rank :: ranks.world]):  # each rank reads the list next
            verify(path / name, files[name])
        _Reader(path, frozenset(files)).read_metadata()
        names = (STATE, OWN.format(ranks.rank))
        return [checkpoint.read(path / name, files[name]) if name in files else None for name in names], None
    except DamageError as damage:
        return [None, None], str(damage)


def _gather_results(ranks: Ranks, do: Callable[[], Result]) -> list[Result]:
    """The results of `do()` on all ranks. If it fails, the first rank that failed raises its error; the others exit."""
    result = failure = None
    try:
        result = do()
    except Exception as error:
        failure = error
    results = ranks.gather((failure is not None, result))
    first = next((rank for rank, (failed, _) in enumerate(results) if failed), None)
    if first is None:
        return [each for _, each in results]
    if first == ranks.rank and failure is not None:
        raise failure
    raise SystemExit(1)


@contextlib.contextmanager
def _report_lost_rank(what: str) -> Iterator[None]:
    """Report that another rank has ended, on each remaining rank."""
    try:
        yield
    except RuntimeError as error:
        if not lost_rank(error):
            raise
        raise CheckpointError(
            f"{what}: another process of this run has ended or does not respond. Earlier checkpoints are unchanged; "
            "run the same command again to resume."
        ) from error


@contextlib.contextmanager
def _dcp() -> Iterator[None]:
    """Raise the error of the first rank that failed: DCP wraps it in a class that does not derive from Exception."""
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "torch.distributed is")  # "... disabled", as intended with one process
            yield
    except CheckpointException as error:
        cause, _ = error.failures[min(error.failures)]
        raise cause from error


class _Files(FileSystem):
    """Files that DCP writes, hashed. `entries`: name -> size and SHA-256."""

    def __init__(self) -> None:
        self.entries = dict[str, Any]()

    @contextlib.contextmanager
    def create_stream(self, path: str | os.PathLike, mode: str) -> Iterator[Written]:
        with Written(Path(path)) as file:
            yield file
            self.entries[Path(path).name] = file.end()

    def rename(self, path: str | os.PathLike, new_path: str | os.PathLike) -> None:
        super().rename(path, new_path)
        self.entries[Path(new_path).name] = self.entries.pop(Path(path).name)


class _Writer(dcp.FileSystemWriter):
    """DCP's writer, with one file per rank."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, sync_files=False)  # `_write` does that
        self.fs = _Files()

    def storage_meta(self) -> StorageMeta:
        """Omit the folder's name, which changes later."""
        return StorageMeta(save_id=self.save_id)


class _Reader(dcp.FileSystemReader):
    """DCP's reader, which accepts only names in `files`, types, and shapes from its list of shards."""

    def __init__(self, path: Path, files: frozenset[str]) -> None:
        super().__init__(path)
        self.files = files

    def read_metadata(self) -> Metadata:
        try:
            with readable(self.path / LIST), (self.path / LIST).open("rb") as file:
                metadata = _List(file).load()
            others = {place.relative_path for place in metadata.storage_data.values()} - self.files
        except (pickle.UnpicklingError, AttributeError, TypeError, EOFError) as error:
            raise DamageError(f"{LIST} is intact, but {error} (torch {torch.__version__})") from error
        if others:
            raise DamageError(f"{LIST} names {min(others)}, which is not part of this checkpoint")
        metadata.storage_meta = StorageMeta(load_id=self.load_id)
        return metadata


class _List(pickle.Unpickler):
    """Reads a list of shards; UnpicklingError for any name that does not belong in one.

    Source: https://docs.python.org/3/library/pickle.html#restricting-globals
    """

    def find_class(self, module: str, name: str) -> Any:
        if name in CLASSES.get(module, ()) or (module == "torch" and isinstance(getattr(torch, name, 0), torch.dtype)):
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"it names {module}.{name}, which is not allowed in a list of shards")


class _Tensors(DefaultLoadPlanner):
    """Reads only tensors: `save` writes nothing else, and DCP would unpickle it."""

    def load_bytes(self, read_item: Any, value: Any) -> None:
        raise pickle.UnpicklingError(f"{read_item.dest_index.fqn} is not a tensor")
