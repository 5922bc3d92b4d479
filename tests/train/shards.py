"""What ranks do for test_sharded.py: forked by one process that has imported all before, asked in lines of JSON."""

from __future__ import annotations

import json
import os
import random
import resource
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch._dynamo  # which DTensor imports at its first use: once here, not in each rank
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Shard, distribute_tensor

from exactrun import ranks as gpukit_ranks
from exactrun.adapters import sharded
from exactrun.checkpoint import CheckpointError
from exactrun.ranks import Ranks

QUIET = 7  # the exit code of a rank that leaves it to another to say what is wrong
ABOUT = {"batch_size": 64, "seed": 0}
Say = Callable[[object], None]


def whole(step: int) -> dict[str, torch.Tensor]:
    """Each number belongs to one step. Of two ranks the second has no part of `single`."""
    return {
        "wide": torch.arange(7007.0).view(1001, 7) + step,
        "odd": torch.full((5,), step, dtype=torch.int64),
        "single": torch.full((1, 3), float(step), dtype=torch.bfloat16),
        "same on all": torch.full((4,), float(step)),
    }


def weights(ranks: Ranks, step: int) -> dict[str, torch.Tensor]:
    given = whole(step)
    if ranks.world == 1:
        return given
    mesh = init_device_mesh("cpu", (ranks.world,))
    alone = {"same on all": given.pop("same on all")}
    # Each rank makes the whole and keeps its part: none waits for another, as in `save` alone they are to do.
    parts = {name: distribute_tensor(one, mesh, [Shard(0)], src_data_rank=None) for name, one in given.items()}
    return parts | alone


def put(ranks: Ranks, run: Path, step: int, **given: Any) -> Path:
    own = {"rank": ranks.rank, "random": torch.full((16,), step + ranks.rank)}
    kept = {"about": ABOUT} | given
    return sharded.save(run, step, weights(ranks, step), {"step": step}, own, ranks=ranks, **kept)


def look(ranks: Ranks, run: Path, about: dict[str, Any] | None = None) -> sharded.Sharded:
    """The newest, once every number in it is that of its step."""
    found = sharded.newest(run, ranks=ranks, about=ABOUT if about is None else about)
    into = weights(ranks, -1)
    found.fill(into, ranks=ranks)
    for name, one in weights(ranks, found.step).items():
        mine, expected = sharded.local(into[name]), sharded.local(one)
        assert mine.dtype == expected.dtype and torch.equal(mine, expected), name
    assert found.state == {"step": found.step}
    if ranks.rank < found.ranks:
        assert found.own["rank"] == ranks.rank and found.own["random"].tolist() == [found.step + ranks.rank] * 16
    else:
        assert found.own is None
    return found


def saves(ranks: Ranks, run: Path, say: Say, steps: list[int], **given: Any) -> None:
    for step in steps:
        say(step)
        put(ranks, run, step, **given)


def reads(ranks: Ranks, run: Path, say: Say, about: dict[str, Any] | None = None) -> None:
    found = look(ranks, run, about)
    say([found.step, found.ranks, found.passed_over])


def goes_on(ranks: Ranks, run: Path, say: Say, steps: int) -> None:
    """From the newest: that many more."""
    step = look(ranks, run).step
    ranks.barrier()
    for number in range(step + 1, step + 1 + steps):
        say(number)
        put(ranks, run, number, keep=2)


def flips(ranks: Ranks, run: Path, say: Say, seed: int, count: int) -> None:
    """Flip bits of the newest checkpoint, one after the other: each is to be found, and the one before to be taken."""
    chance, folder = random.Random(seed), max((run / "checkpoints").glob("step-*"))
    before = int(folder.name[5:]) - 1
    files, sizes = zip(*sorted((path, path.stat().st_size) for path in folder.iterdir()), strict=True)
    ranks.barrier()  # before a file is short for a moment, because it is written again
    for number in range(count):
        path, bit = files[number % len(files)], chance.randrange(8 * sizes[number % len(files)])
        if ranks.main:
            flip(path, bit)
        ranks.barrier()
        found = look(ranks, run)
        assert found.step == before and len(found.passed_over) == 1, (path, bit)
        assert f"{folder.name} is skipped: {path.name} has a wrong " in found.passed_over[0]
        ranks.barrier()
        if ranks.main:
            flip(path, bit)
    ranks.barrier()
    say([look(ranks, run).step, count, len(files)])


def flip(path: Path, bit: int) -> None:
    data = bytearray(path.read_bytes())
    data[bit // 8] ^= 1 << bit % 8
    path.write_bytes(data)


def dies(ranks: Ranks, run: Path, say: Say, who: int, how: str) -> None:
    """One rank ends or hangs after writing its files, before reporting it; or its files are in another folder."""
    really = sharded._write

    def write(folder: Path, *rest: Any) -> dict[str, Any]:
        entries = really(folder, *rest)
        say("written")
        if ranks.rank == who and how == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if ranks.rank == who and how == "hangs":
            time.sleep(4)
        if ranks.rank == who and how == "elsewhere":
            (folder / f"rank-{who}.pt").unlink()
        return entries

    sharded._write = write
    put(ranks, run, 2)


def too_large(ranks: Ranks, run: Path, say: Say, who: int) -> None:
    """One rank may write no file as large as its shard."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    if ranks.rank == who:
        resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192))
    put(ranks, run, 2)


def full(ranks: Ranks, run: Path, say: Say) -> None:
    """More than there is room for, which statvfs does not tell."""
    plenty = os.statvfs_result((4096, 4096, 1 << 40, 1 << 40, 1 << 40, 0, 0, 0, 0, 255))
    os.statvfs = lambda path: plenty
    big = {"big": torch.ones(3 << 20)}
    if ranks.world > 1:
        big = {"big": distribute_tensor(big["big"], init_device_mesh("cpu", (ranks.world,)), [Shard(0)])}
    sharded.save(run, 2, big, {}, ranks=ranks, about=ABOUT)


def nobody(ranks: Ranks, run: Path, say: Say) -> None:
    """As a user who may not write there; what is needed is imported before."""
    look(ranks, run)
    if not os.getuid():
        os.setgid(65534), os.setuid(65534)
    try:
        put(ranks, run, 2)
    finally:
        say(look(ranks, run).step)


def unfit(ranks: Ranks, run: Path, say: Say, name: str, shape: list[int]) -> None:
    found = sharded.newest(run, ranks=ranks)
    found.fill({name: torch.zeros(shape)}, ranks=ranks)


def network(ranks: Ranks) -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 7), nn.ReLU(), nn.Linear(7, 3), nn.Linear(3, 1))
    model[2].requires_grad_(False)
    if ranks.world > 1:
        fully_shard(model[0])
        fully_shard(model)
    learnt = [one for one in model.parameters() if one.requires_grad]
    return model, torch.optim.AdamW([{"params": learnt}, {"params": [], "weight_decay": 0.0}], 0.1)  # as trl's is


def trains(ranks: Ranks, run: Path, say: Say, first: int, last: int) -> None:
    """FSDP's own shards: from `first`, read back where that is not 0, to `last`, which is saved."""
    model, optimizer = network(ranks)
    if first:
        found = sharded.newest(run, ranks=ranks)
        assert found.step == first
        found.fill(sharded.model_shards(model), ranks=ranks)
        tensors, _ = sharded.optimizer_shards(model, optimizer)
        found.fill(tensors, ranks=ranks)
        sharded.put_back(optimizer, tensors, found.state["optimizer"])
    for step in range(first, last):
        torch.manual_seed(step)
        x = torch.randn(4, 5)[ranks.rank :: ranks.world]
        model(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    tensors, plain = sharded.optimizer_shards(model, optimizer)
    shards = sharded.model_shards(model) | tensors
    sharded.save(run, last, shards, {"optimizer": plain}, ranks=ranks, about={})
    every = {name: one.full_tensor() if isinstance(one, DTensor) else one for name, one in shards.items()}
    if ranks.main:
        torch.save({name: one.detach() for name, one in every.items()}, run / f"{first}-{last}-{ranks.world}.pt")


def fork(asked: dict[str, Any], rank: int, port: int, out: Path, told: int) -> int:
    child = os.fork()
    if child:
        return child
    signal.alarm(120)
    status = 1
    try:
        for number, name in ((1, "out"), (2, "err")):
            os.dup2(os.open(f"{out}.{rank}.{name}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(asked["world"])}
        os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank)}
        messages: list[object] = []

        def say(what: object) -> None:
            messages.append(what)
            os.write(told, b".")

        try:
            gpukit_ranks.PATIENCE = timedelta(seconds=asked["patience"])
            with Ranks.start("cpu") as ranks:
                globals()[asked["what"]](ranks, Path(asked["run"]), say, *asked["given"])
            status = 0
        except CheckpointError as error:
            os.write(2, str(error).encode())
        except SystemExit as error:
            status = QUIET if error.code == 1 else 1
        os.write(1, json.dumps(messages).encode())
    except BaseException:
        os.write(2, traceback.format_exc().encode())
    os._exit(status)


def answer(asked: dict[str, Any], out: Path) -> list[Any]:
    """Exit code (negative for a signal), messages, and stderr of each rank."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    heard, told = os.pipe()
    children = [fork(asked, rank, port, out, told) for rank in range(asked["world"])]
    os.close(told)
    if asked["kill"]:
        os.read(heard, 1)
        time.sleep(asked["after"])
        for rank in asked["kill"]:
            os.kill(children[rank], signal.SIGKILL)
    codes: dict[int, int] = {}
    while len(codes) < len(children):
        child, status = os.waitpid(-1, 0)
        codes[child] = os.waitstatus_to_exitcode(status)
    os.close(heard)
    ended = []
    for rank, child in enumerate(children):
        messages, error = (Path(f"{out}.{rank}.{name}").read_text() for name in ("out", "err"))
        ended.append([codes[child], json.loads(messages or "[]"), error])
    return ended


def main() -> None:
    torch.set_num_threads(1)
    for line in sys.stdin:
        asked = json.loads(line)
        print(json.dumps(answer(asked, Path(asked["out"]))), flush=True)


if __name__ == "__main__":
    main()
