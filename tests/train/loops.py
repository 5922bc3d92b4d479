"""Training loops of many shapes, as users write them, each with the few lines of exactrun.run that make it resume.

`LOOPS[name](folder, report)` trains in `folder`; `report(*values)` is called with what must be equal at each step.
"""

from __future__ import annotations

import copy
import itertools
import os
import random
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.functional import cross_entropy, mse_loss
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset, WeightedRandomSampler, get_worker_info
from torch.utils.data.distributed import DistributedSampler

from exactrun.run import Run
from tests.ports import free_port

Report = Callable[..., None]
LOOPS: dict[str, Callable[[Path, Report], None]] = {}


def loop(function: Callable[[Path, Report], None]) -> Callable[[Path, Report], None]:
    LOOPS[function.__name__] = function
    return function


class Points(Dataset):
    """Points with noise from all three global generators, and from one that the data set holds."""

    def __init__(self, count: int = 60) -> None:
        self.points = torch.randn(count, 8, generator=torch.Generator().manual_seed(1))
        self.own = numpy.random.default_rng(7)

    def __len__(self) -> int:
        return len(self.points)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        noise = torch.randn(8) + random.random() + numpy.random.rand() + self.own.random()
        return self.points[index] + 0.1 * noise.float(), index % 3


def network(outputs: int = 3) -> nn.Module:
    return nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, outputs))


def seed() -> None:
    torch.manual_seed(3)
    random.seed(3)
    numpy.random.seed(3)


def classify(folder: Path, report: Report, workers: int = 0, **how: Any) -> None:
    """As pytorch/examples imagenet: epochs, a scheduler, validation, the best model in a file."""
    seed()
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.7)
    loader = DataLoader(Points(), 8, shuffle=True, num_workers=workers, **how)
    test = DataLoader(TensorDataset(Points(12).points, torch.arange(12) % 3), 6)
    state = {"best": 0.0}
    run = Run(folder, save_steps=1)
    run.keep(model=model, optimizer=optimizer, scheduler=scheduler)
    run.variables(state, "best")
    for epoch in run.epochs(range(3)):
        model.train()
        sums = run.state(total=0.0)
        for i, (inputs, labels) in run.enumerate(loader):
            loss = cross_entropy(model(inputs), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            sums.total += loss.item()
            report(epoch, i, loss.item(), sums.total, random.random(), numpy.random.rand())
            run.step(loss=loss)
        model.eval()
        with torch.no_grad():
            score = sum((model(inputs).argmax(1) == labels).sum().item() for inputs, labels in test)
        if score > state["best"]:
            state["best"] = score
            torch.save(model.state_dict(), folder / "best.pt")
        scheduler.step()
        report("epoch", epoch, score, state["best"])
    report("end", *(one.sum().item() for one in model.state_dict().values()))


@loop
def classify_alone(folder: Path, report: Report) -> None:
    classify(folder, report)


@loop
def classify_with_persistent_workers(folder: Path, report: Report) -> None:
    classify(folder, report, workers=2, persistent_workers=True)


@loop
def warm_up(folder: Path, report: Report) -> None:
    """Steps in a loop, and later in one inside of it."""
    seed()
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    run = Run(folder, save_steps=1, seeds="sample")
    run.keep(model=model, optimizer=optimizer)

    def train(inputs: torch.Tensor, labels: torch.Tensor, *where: int) -> None:
        loss = cross_entropy(model(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        report(*where, loss.item(), random.random())
        run.step(loss=loss)

    for i, (inputs, labels) in run.enumerate(DataLoader(Points(48), 8, shuffle=True)):
        random.random()
        if i < 3:
            train(inputs, labels, i)
            continue
        for j, batch in run.enumerate(DataLoader(Points(24), 8)):
            train(*batch, i, j)


@loop
def while_loop(folder: Path, report: Report) -> None:
    """As nanoGPT: a prefetched batch, accumulation, evaluation that draws random batches."""
    seed()
    data = torch.randn(200, 8, generator=torch.Generator().manual_seed(5))
    model = network(1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)

    def batch() -> tuple[torch.Tensor, torch.Tensor]:
        rows = torch.randint(200, (8,))
        return data[rows], data[rows].sum(1, keepdim=True)

    state: dict[str, Any] = {"step": 0, "best": 1e9}
    run = Run(folder, save_steps=1)
    run.keep(model=model, optimizer=optimizer)
    state["x"], state["y"] = batch()
    run.variables(state, "step", "best", "x", "y")
    while True:
        if state["step"] % 5 == 0:
            with torch.no_grad():
                value = sum(mse_loss(model(x), y).item() for x, y in (batch() for _ in range(3)))
            state["best"] = min(state["best"], value)
        for _ in range(2):
            loss = mse_loss(model(state["x"]), state["y"]) / 2
            state["x"], state["y"] = batch()
            loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        report(state["step"], loss.item(), state["best"])
        state["step"] += 1
        if state["step"] > 20:
            break
        run.step(loss=loss)
    report("end", *(one.sum().item() for one in model.state_dict().values()))


@loop
def truncated_backpropagation(folder: Path, report: Report) -> None:
    """As word_language_model: a hidden state in a function's local variable, a learning rate without an optimizer."""
    seed()
    text = torch.randint(10, (4, 61), generator=torch.Generator().manual_seed(2))
    model = nn.ModuleDict(
        {"embed": nn.Embedding(10, 8), "lstm": nn.LSTM(8, 8, 2, dropout=0.2), "out": nn.Linear(8, 10)}
    )
    state = {"lr": 1.0, "best": None}
    run = Run(folder, save_steps=1)
    run.keep(model=model)
    run.variables(state, "lr", "best")

    def train(epoch: int) -> float:
        now = run.state(total=0.0, hidden=(torch.zeros(2, 4, 8), torch.zeros(2, 4, 8)))
        for number, start in run.enumerate(range(0, 60, 5)):
            hidden = tuple(one.detach() for one in now.hidden)
            model.zero_grad()
            inputs = text[:, start : start + 5].t()
            targets = text[:, start + 1 : start + 6].t()
            output, now.hidden = model["lstm"](model["embed"](inputs), hidden)
            loss = cross_entropy(model["out"](output).flatten(0, 1), targets.flatten())
            loss.backward()
            for one in model.parameters():
                one.data.add_(one.grad, alpha=-state["lr"])
            now.total += loss.item()
            report(epoch, number, now.total)
            run.step(loss=loss)
        return now.total

    for epoch in run.epochs(range(1, 4)):
        total = train(epoch)
        if state["best"] is None or total < state["best"]:
            state["best"] = total
        else:
            state["lr"] /= 4
    report("end", *(one.sum().item() for one in model.state_dict().values()))


class Ascending(torch.optim.Optimizer):
    """Wraps another optimizer, shares its groups, and steps it in `second_step`, as SAM does."""

    def __init__(self, parameters: Iterator[nn.Parameter], inner: type[torch.optim.Optimizer], **how: Any) -> None:
        super().__init__(parameters, how)
        self.inner = inner(self.param_groups, **how)
        self.param_groups = self.inner.param_groups

    @torch.no_grad()
    def first_step(self) -> None:
        for one in self.param_groups[0]["params"]:
            self.state[one]["before"] = one.clone()
            one.add_(one.grad, alpha=0.05)

    @torch.no_grad()
    def second_step(self) -> None:
        for one in self.param_groups[0]["params"]:
            one.copy_(self.state[one]["before"])
        self.inner.step()


@loop
def wrapped_optimizer(folder: Path, report: Report) -> None:
    """An optimizer around another, whose rate the script sets in a group that it has held from the start."""
    seed()
    model = network()
    optimizer = Ascending(model.parameters(), torch.optim.SGD, lr=0.1, momentum=0.9)
    run = Run(folder, save_steps=1)
    run.keep(model=model, inner=optimizer.inner, optimizer=optimizer)
    group = optimizer.param_groups[0]
    for epoch in run.epochs(range(3)):
        group["lr"] = 0.1 / (epoch + 1)
        for _, (inputs, labels) in run.enumerate(DataLoader(Points(40), 8, shuffle=True)):
            for step in (optimizer.first_step, optimizer.second_step):
                optimizer.zero_grad()
                loss = cross_entropy(model(inputs), labels)
                loss.backward()
                step()
            report(epoch, loss.item(), optimizer.inner.param_groups[0]["lr"], random.random())
            run.step(loss=loss)
    report("end", *(one.sum().item() for one in model.state_dict().values()))


@loop
def second_order(folder: Path, report: Report) -> None:
    """LBFGS with its closure, and ReduceLROnPlateau."""
    seed()
    model = nn.Linear(8, 3)
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.5, max_iter=4)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=1)
    run = Run(folder, save_steps=1)
    run.keep(model=model, optimizer=optimizer, scheduler=scheduler)
    for epoch in run.epochs(range(2)):
        for i, (inputs, labels) in run.enumerate(DataLoader(Points(), 12, shuffle=True)):

            def closure(inputs: torch.Tensor = inputs, labels: torch.Tensor = labels) -> torch.Tensor:
                optimizer.zero_grad()
                loss = cross_entropy(model(inputs), labels)
                loss.backward()
                return loss

            loss = optimizer.step(closure)
            scheduler.step(loss.detach())
            report(epoch, i, loss.item(), optimizer.param_groups[0]["lr"])
            run.step(loss=loss)


class Transition(NamedTuple):
    state: torch.Tensor
    reward: float


@dataclass
class Event:
    number: int
    rows: list[float]


class Buffer:
    """A replay buffer."""

    def __init__(self) -> None:
        self.rows = numpy.zeros((50, 9))
        self.size = 0
        self.recent = deque(maxlen=5)
        self.events = deque[Event](maxlen=3)

    def add(self, row: numpy.ndarray) -> None:
        self.rows[self.size % 50] = row
        self.size += 1
        self.recent.append(Transition(torch.from_numpy(row[:-1]), float(row[-1])))
        self.events.append(Event(self.size, [float(row[-1])]))


@loop
def reinforcement(folder: Path, report: Report) -> None:
    """A replay buffer in NumPy, an environment with a generator, a moving average of the network."""
    seed()
    model = network(1).eval()
    buffer = Buffer()
    world = numpy.random.default_rng(4)
    average = copy.deepcopy(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    place = numpy.zeros(8)
    run = Run(folder, save_steps=1)
    run.keep(model=model, average=average, optimizer=optimizer, buffer=buffer, world=world, place=place)
    for i, _ in run.enumerate(range(30)):
        place += world.normal(size=8) * (0.1 if random.random() < 0.5 else 0.2)
        buffer.add(numpy.append(place, place.sum()))
        rows = torch.from_numpy(buffer.rows[numpy.random.randint(min(buffer.size, 50), size=8)]).float()
        loss = mse_loss(model(rows[:, :8]), rows[:, 8:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for one, other in zip(average.parameters(), model.parameters(), strict=True):
                one.lerp_(other, 0.1)
        rewards = sum(one.reward for one in buffer.recent)
        events = [(one.number, one.rows) for one in buffer.events]
        report(i, loss.item(), rewards, buffer.recent[0].state.sum().item(), events)
        report("average", i, *(one.sum().item() for one in average.parameters()))
        run.step(loss=loss)


class Lazy:
    """A sampler that draws from the global generators while it is read."""

    def __iter__(self) -> Any:
        for _ in range(40):
            yield random.randrange(30) + int(torch.randint(30, ())) * (numpy.random.rand() < 0.5)

    def __len__(self) -> int:
        return 40


@loop
def samplers(folder: Path, report: Report) -> None:
    """Weighted, lazy, and with generators of their own; nested loops; accumulation over two batches."""
    seed()
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    weights = torch.rand(60, generator=torch.Generator().manual_seed(9))
    given = torch.Generator().manual_seed(11)
    loaders = [
        DataLoader(Points(), 8, sampler=WeightedRandomSampler(weights, 32)),
        DataLoader(Points(), 8, sampler=Lazy(), num_workers=2),
        DataLoader(Points(), 8, shuffle=True, generator=given),
    ]
    run = Run(folder, save_steps=1)
    run.keep(model=model, optimizer=optimizer)
    for epoch in run.epochs(range(2)):
        scale = 1 + random.random()
        for number, loader in run.enumerate(loaders):
            for i, (inputs, labels) in run.enumerate(loader):
                loss = scale * cross_entropy(model(inputs), labels)
                loss.backward()
                if i % 2:
                    optimizer.step()
                    optimizer.zero_grad()
                report(epoch, number, i, loss.item(), scale)
                run.step(loss=loss)
            optimizer.zero_grad()


@loop
def several_steps_per_batch(folder: Path, report: Report) -> None:
    """As PPO: each batch is used several times, in parts."""
    seed()
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    loader = DataLoader(Points(), 20, shuffle=True, num_workers=1)
    run = Run(folder, save_steps=1)
    run.keep(model=model, optimizer=optimizer)
    for epoch in run.epochs(range(2)):
        for i, (inputs, labels) in run.enumerate(loader):
            order = torch.randperm(20)
            for part, start in run.enumerate(range(0, 20, 5)):
                chosen = order[start : start + 5]
                loss = cross_entropy(model(inputs[chosen]), labels[chosen])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                report(epoch, i, part, loss.item())
                run.step(loss=loss)


class Numbers(IterableDataset):
    """A stream, whose samples draw random numbers; each worker has its part."""

    def __init__(self) -> None:
        self.at = 0
        self.rows = numpy.arange(60.0)

    def __iter__(self) -> Any:
        worker = get_worker_info()
        while self.at < 60:
            self.at += 1
            if worker is None or self.at % worker.num_workers == worker.id:
                yield torch.randn(8) + float(self.rows[self.at - 1] / 60 + numpy.random.rand() + random.random())
        self.at = 0


class Stateful(Numbers):
    """The same with a state."""

    def state_dict(self) -> dict[str, Any]:
        return {"at": self.at, "rows": self.rows}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.at = state["at"]
        self.rows = state["rows"]


def endless(loader: DataLoader, count: int) -> Iterator[Any]:
    for _ in range(count):
        yield from (inputs for inputs, _ in loader)


@loop
def streams(folder: Path, report: Report) -> None:
    """Streams that continue by their state and by reading again, with and without workers, and evaluation in them."""
    seed()
    model = network(1)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    run = Run(folder, save_steps=1)
    run.keep(model=model, optimizer=optimizer)
    loader = DataLoader(Points(), 8, shuffle=True, num_workers=1)
    for epoch in run.epochs(range(6)):
        stream = DataLoader((Numbers, Stateful)[epoch % 2](), 6, num_workers=epoch // 2 % 2)
        if epoch > 3:
            stream = endless(loader, 2)
        for i, inputs in run.enumerate(stream):
            loss = model(inputs).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            tested = [each.sum().item() for _, (each, _) in run.enumerate(DataLoader(Points(6), 6))]
            report(epoch, i, loss.item(), inputs.sum().item(), tested)
            run.step(loss=loss)


class World:
    """Has a generator, a module, counts, and functions and types, as environments do."""

    def __init__(self, seed: int) -> None:
        self.rng = numpy.random.default_rng(seed)
        self.critic = nn.Linear(2, 3)
        self.counts = defaultdict(int)
        self.head = nn.Linear(3, 1)
        self.rules = [torch.tanh, lambda x: 2 * x]
        self.space = {"dtype": numpy.dtype("float32"), "kind": World}


@loop
def folds(folder: Path, report: Report) -> None:
    """Cross-validation: each fold keeps objects of the same names, and a function its own meter in every epoch."""
    seed()
    run = Run(folder, save_steps=1)
    rng = numpy.random.default_rng(3)
    run.keep(rng=rng)

    def drawn() -> Any:
        for _ in range(3):
            yield torch.from_numpy(rng.normal(size=(6, 2)).astype("float32"))

    def train(fold: int, epoch: int) -> None:
        meter = {"sum": 0.0}
        run.variables(meter, "sum")
        for i, inputs in run.enumerate(drawn()):
            loss = world.head(world.critic(inputs)).pow(2).mean() + world.rng.random()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            meter["sum"] += loss.item()
            world.counts[i] += 1
            report(fold, epoch, i, loss.item(), meter["sum"], dict(world.counts), len(world.rules), *world.space)
            run.step(loss=loss)

    for fold in run.epochs(range(4)):
        world = World(int(rng.integers(100)))
        optimizer = torch.optim.Adam([*world.critic.parameters(), *world.head.parameters()], lr=1e-2)
        run.keep(world=world, optimizer=optimizer, **{f"head{fold}": world.head})
        for epoch in run.enumerate(range(2)):
            train(fold, epoch[0])


@loop
def fine_tuning(folder: Path, report: Report) -> None:
    """Two phases of the same function, the first with frozen parameters; results of loops that ended; a validation
    whose loader keeps its workers; groups of parameters that are added to the optimizer."""
    seed()
    model = network()
    state = {"best": 1e9}
    loaders = [DataLoader(Points(count), 8, shuffle=True) for count in (24, 32)]
    test = DataLoader(Points(12).points, 6, shuffle=True, num_workers=1, persistent_workers=True)
    optimizer = torch.optim.Adam(model[0].parameters(), lr=1e-2)
    run = Run(folder, save_steps=1)
    run.keep(model=model, optimizer=optimizer)
    run.variables(state, "best")

    def train(name: Any, loader: DataLoader) -> float:
        now = run.state(total=0.0)
        for i, (inputs, labels) in run.enumerate(loader):
            loss = cross_entropy(model(inputs), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            now.total += loss.item()
            report(name, i, loss.item(), now.total)
            run.step(loss=loss)
        return now.total

    def phase(number: int) -> float:
        now = run.state(total=0.0)
        for epoch in run.epochs(itertools.count()):
            if epoch == 1 and number:
                model[2].eval()
                optimizer.add_param_group({"params": model[4].parameters()})
            losses = [train([number, epoch, part], loader) for part, loader in enumerate(loaders)]
            now.total += sum(losses)
            state["best"] = min(state["best"], *losses)
            with torch.no_grad():
                report(number, epoch, losses, state["best"], sum(model(each).sum().item() for each in test))
            if epoch == 1:
                break
        return now.total

    model[0].requires_grad_(False)
    model[0].bias.requires_grad_()
    first = phase(0)
    model[0].requires_grad_()
    order = torch.randperm(10).tolist()
    second = phase(1)
    report("end", first, second, order, *(one.sum().item() for one in model.state_dict().values()))


@loop
def several_processes(folder: Path, report: Report) -> None:
    """Two ranks with DistributedDataParallel and DistributedSampler."""
    _two_ranks(folder, report, sharded=False)


@loop
def shards(folder: Path, report: Report) -> None:
    """Two ranks with FSDP."""
    _two_ranks(folder, report, sharded=True)


def _two_ranks(folder: Path, report: Report, sharded: bool) -> None:
    torch.multiprocessing.start_processes(_rank, (folder, report, free_port(), sharded), 2, start_method="fork")


def _rank(rank: int, folder: Path, report: Report, port: int, sharded: bool) -> None:
    dist.init_process_group("gloo", f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    seed()
    torch.manual_seed(rank)
    mesh = init_device_mesh("cpu", (2,))
    model = fully_shard(network(), mesh=mesh) if sharded else DistributedDataParallel(network())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    sampler = DistributedSampler(Points())
    own = numpy.random.default_rng(rank)
    run = Run(folder, save_steps=2)
    run.keep(model=model, optimizer=optimizer, own=own)
    for epoch in run.epochs(range(3)):
        sampler.set_epoch(epoch)
        for i, (inputs, labels) in run.enumerate(DataLoader(Points(), 6, sampler=sampler)):
            loss = cross_entropy(model(inputs), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            buffers = [one.sum().item() for one in model.buffers()]
            report(rank, epoch, i, loss.item(), random.random(), own.random(), buffers)
            run.step(loss=loss)
    run.finish()
    os._exit(0)  # gloo may abort at exit
