"""What exactness rests on: faults are found, with the user's function and line, and what is right is left alone."""

from __future__ import annotations

import contextlib
import copy
import functools
import random
import types
from collections.abc import Callable
from typing import Any

import numpy
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import Dataset, TensorDataset

from exactrun import checks
from exactrun.checks import check, first_sample
from gpukit.script.device import choose

SIZE = 32
CPU = choose(device="cpu")


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def line(function: Callable[..., Any]) -> str:
    name, code = function.__qualname__.replace("<locals>.", ""), function.__code__
    return f"`{name}` (tests/train/test_checks.py:{code.co_firstlineno})"


def drawing() -> list[Any]:
    return [torch.get_rng_state(), random.getstate(), numpy.random.get_state()]


# Losses: model, batch, and what they are.


def classifier() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.5), nn.Linear(16, 4))


def wide() -> nn.Module:
    return nn.Linear(60, 60)


def images() -> tuple[Tensor, Tensor]:
    return torch.randn(SIZE, 6), torch.randint(0, 4, (SIZE,))


class Coder(nn.Module):
    """A VAE, an MAE, a diffusion model: random numbers in every call."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.decoder = nn.Linear(6, 8), nn.Linear(4, 6)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        mean, log = self.encoder(x).chunk(2, dim=1)
        return self.decoder(mean + torch.randn_like(mean) * (log / 2).exp()), mean, log


class Experts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.router, self.experts = nn.Linear(6, 3), nn.ModuleList(nn.Linear(6, 4) for _ in range(3))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        shares = self.router(x).softmax(dim=1)
        chosen = functional.one_hot(shares.argmax(dim=1), 3).float()
        outputs = torch.stack([expert(x) for expert in self.experts], dim=1)
        return (outputs * (chosen * shares)[:, :, None]).sum(dim=1), 3 * (chosen.mean(0) * shares.mean(0)).sum()


def entropy(model: nn.Module, batch: Any, **options: Any) -> Tensor:
    return functional.cross_entropy(model(batch[0]), batch[1], **{"reduction": "sum", **options})


def with_metrics(model: nn.Module, batch: Any) -> tuple[Tensor, dict[str, Tensor]]:
    logits = model(batch[0])
    return functional.cross_entropy(logits, batch[1], reduction="sum"), {"right": (logits.argmax(1) == batch[1]).sum()}


def weighted_rows(model: nn.Module, batch: Any) -> Tensor:
    return (functional.cross_entropy(model(batch[0]), batch[1], reduction="none") * batch[2]).sum()


def vae(model: nn.Module, batch: Any) -> Tensor:
    made, mean, log = model(batch[0])
    return (made - batch[0]).square().sum() - 0.5 * (1 + log - mean.square() - log.exp()).sum()


def diffusion(model: nn.Module, batch: Any, reduction: str = "sum") -> Tensor:
    x = batch[0]
    noise, time = torch.randn_like(x), torch.rand(len(x), 1)
    return functional.mse_loss(model(x * (1 - time) + noise * time), noise, reduction=reduction)


def masked(model: nn.Module, batch: Any) -> Tensor:
    hidden = torch.rand(batch[0].shape) < 0.75
    return ((model(batch[0].masked_fill(hidden, 0)) - batch[0]).square() * hidden).sum()


def experts(model: nn.Module, batch: Any) -> Tensor:
    logits, balance = model(batch[0])
    return functional.cross_entropy(logits, batch[1], reduction="sum") + 0.01 * len(batch[0]) * balance


def penalty(model: nn.Module, batch: Any) -> Tensor:
    """Needs gradients within the loss, as WGAN-GP does."""
    x = batch[0].clone().requires_grad_()
    (slope,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
    return (slope.norm(dim=1) - 1).square().sum()


def policy(model: nn.Module, batch: Any) -> Tensor:
    """Of both signs: the whole is near 0."""
    advantage = batch[0][:, 0] - batch[0][:, 0].mean() if len(batch) < 3 else batch[2] - 0.5
    return -(model(batch[0]).log_softmax(1)[:, 0] * advantage).sum()


def clip(model: nn.Module, batch: Any) -> Tensor:
    one = functional.normalize(model(batch[0]), dim=1)
    logits = one @ functional.normalize(model(batch[0] + 0.1), dim=1).T / 0.07
    return functional.cross_entropy(logits, torch.arange(len(one)))


def triplet(model: nn.Module, batch: Any) -> Tensor:
    """Batch-hard: the farthest of the same class, the nearest of another."""
    one = model(batch[0])
    distance, same = torch.cdist(one, one), batch[1][:, None] == batch[1][None]
    return functional.relu((distance * same).amax(1) - (distance + 1e6 * same).amin(1) + 0.2).sum()


def normalized(model: nn.Module, batch: Any) -> Tensor:
    one = model(batch[0])
    return ((one - one.mean(0)) / one.std(0)).abs().sum() + one.square().sum()


def ignoring() -> tuple[Tensor, Tensor]:
    x, labels = images()
    labels[: SIZE // 4] = -100
    labels[-3:] = -100
    return x, labels


CLASSES = torch.tensor([0.1, 1.0, 3.0, 10.0])
weighted = functools.partial(entropy, weight=CLASSES)
KINDS = [
    # id, model, batch, loss, declared
    ("ok", classifier, images, entropy, "sum"),
    ("ok", classifier, ignoring, entropy, "sum"),
    ("ok", classifier, images, weighted, "sum"),
    ("ok", classifier, images, functools.partial(weighted, label_smoothing=0.1), "sum"),
    ("ok", classifier, images, functools.partial(entropy, reduction="mean"), "mean"),
    ("ok", classifier, images, with_metrics, "sum"),
    ("ok", classifier, lambda: (*images(), torch.rand(SIZE)), weighted_rows, "sum"),
    ("ok", classifier, lambda: (*images(), torch.rand(SIZE)), policy, "sum"),
    ("ok", lambda: classifier().bfloat16(), lambda: (images()[0].bfloat16(), images()[1]), entropy, "sum"),
    ("ok", lambda: nn.Linear(6, 1), images, penalty, "sum"),
    ("noise", Coder, images, vae, "sum"),
    ("noise", lambda: nn.Linear(6, 6), images, diffusion, "sum"),
    ("noise", lambda: nn.Linear(6, 6), images, masked, "sum"),
    ("noise", classifier, images, lambda model, batch: entropy(model.train(), batch), "sum"),
    ("mixes", Experts, images, experts, "sum"),
    ("mixes", lambda: nn.Linear(6, 4), images, clip, "sum"),
    ("mixes", lambda: nn.Linear(6, 4), images, clip, "mean"),
    ("mixes", lambda: nn.Linear(6, 4), images, triplet, "sum"),
    ("mixes", lambda: nn.Linear(6, 4), images, normalized, "sum"),
    ("mean", classifier, images, functools.partial(entropy, reduction="mean"), "sum"),
    ("unknown", classifier, ignoring, functools.partial(entropy, reduction="mean"), "mean"),
    ("weighted", classifier, images, functools.partial(weighted, reduction="mean"), "sum"),
    ("mean", wide, lambda: (torch.randn(SIZE, 60),), functools.partial(diffusion, reduction="mean"), "sum"),
    ("mean", lambda: classifier().bfloat16(), lambda: (images()[0].bfloat16(), images()[1]),
     functools.partial(entropy, reduction="mean"), "sum"),
    ("sum", classifier, images, entropy, "mean"),
    ("unknown", classifier, lambda: tuple(each[:1] for each in images()), entropy, "sum"),
    ("unknown", classifier, images, lambda model, batch: 0 * entropy(model, batch), "sum"),
    ("unknown", classifier, images, lambda model, batch: entropy(model, batch[5]), "sum"),
    ("solid", classifier, lambda: types.SimpleNamespace(x=1), entropy, "sum"),
]  # fmt: skip


@pytest.mark.parametrize(("id", "build", "data", "loss", "declared"), KINDS)
def test_how_losses_of_parts_relate(id: str, build: Any, data: Any, loss: Any, declared: str):
    for seed in range(4):
        torch.manual_seed(seed)
        model, batch = build(), data()
        one = next(model.parameters())
        model(torch.randn(64, one.shape[1], dtype=one.dtype))  # BatchNorm's statistics
        before, drawn, modes = (
            copy.deepcopy(model.state_dict()),
            drawing(),
            [each.training for each in model.modules()],
        )
        found = check(loss, model, batch, declared=declared)
        assert found.id == id, found
        assert found.id in ("ok", "unknown", "solid") or found.text.startswith(checks.place(loss))
        assert checks.difference(before, model.state_dict()) is None
        assert checks.difference(drawn, drawing()) is None
        assert modes == [each.training for each in model.modules()]


def test_the_function_is_named_with_its_line():
    torch.manual_seed(0)
    found = check(clip, nn.Linear(6, 4), images())
    assert found.text.startswith(f"{line(clip)} compares the samples")


def test_a_check_leaves_a_model_as_it_was():
    """Counters, a queue, a momentum encoder, a cache, and generators of its own."""

    class Momentum(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.online, self.slow = nn.Linear(6, 4), nn.Linear(6, 4).requires_grad_(False)
            self.register_buffer("queue", torch.zeros(8))
            self.calls, self.history, self.average = 0, [], torch.zeros(3)
            self.random = torch.Generator().manual_seed(1)

        def forward(self, x: Tensor) -> Tensor:
            with torch.no_grad():
                self.slow.weight.mul_(0.9).add_(self.online.weight, alpha=0.1)
            self.queue[self.calls % 8] = 1
            self.queue = self.queue + torch.rand((), generator=self.random)
            self.calls, self.average, self.cache = self.calls + 1, self.average + 1, x
            self.history.append(len(x))
            return self.online(x)

    def state(model: nn.Module) -> Any:
        rest = {name: value for name, value in vars(model).items() if not name.startswith("_")}
        return copy.deepcopy([model.state_dict(), {**rest, "random": model.random.get_state()}])

    model = Momentum()
    before = state(model)
    assert check(entropy, model, images(), declared="sum").id == "ok"
    assert checks.difference(before, state(model)) is None and checks.difference(state(model), before) is None


# Samples.


class Data(Dataset):
    def __len__(self) -> int:
        return 100


class Augmented(Data):
    """Everything that a seed reaches, an own generator made late, a cache, a handle, and statistics of its own."""

    def __init__(self) -> None:
        self.random, self.late, self.file, self.cache, self.reads = numpy.random.default_rng(3), None, None, {}, 0

    def __getitem__(self, index: int) -> dict[str, Any]:
        self.reads += 1
        self.late = self.late or torch.Generator()
        self.file = self.file or object()
        self.cache.setdefault(index, float("nan"))
        noise = [torch.rand(2), numpy.random.rand(2), random.random(), self.random.random(2)]
        noise.append(torch.rand(2, generator=self.late))
        return {
            "noise": noise,
            "nan": self.cache[index],
            "graph": types.SimpleNamespace(x=torch.zeros(2)),
            "of": object(),
        }


def test_reading_the_first_sample_changes_nothing():
    data, drawn = Augmented(), drawing()
    state = data.random.bit_generator.state
    assert first_sample(data)
    assert checks.difference(drawn, drawing()) is None and data.random.bit_generator.state == state
    # A file that each worker opens for itself must not be open already when they are forked.
    assert data.file is None and data.late is None and data.cache == {} and data.reads == 0
    assert checks.alike(first_sample(data), first_sample(Augmented()))
    assert first_sample(iter([])) == first_sample(TensorDataset(torch.zeros(0))) == ()


# State.


class Forgetful(torch.optim.lr_scheduler.StepLR):
    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict({name: value for name, value in state.items() if name != "last_epoch"})


def trained(scheduler: type = torch.optim.lr_scheduler.StepLR, steps: int = 0) -> dict[str, Any]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4))
    optimizer = torch.optim.AdamW(model.parameters())
    kept = {"model": model, "optimizer": optimizer, "scheduler": scheduler(optimizer, 2)}
    for _ in range(steps):
        model(torch.randn(8, 6)).square().sum().backward()
        optimizer.step()
        kept["scheduler"].step()
    return kept


def test_state_that_is_not_restored_is_named():
    saved = {name: copy.deepcopy(one.state_dict()) for name, one in trained(steps=3).items()}
    for scheduler in (torch.optim.lr_scheduler.StepLR, Forgetful):
        now = trained(scheduler)
        for name, one in now.items():
            one.load_state_dict(saved[name])
        found = {name: checks.restored(name, one, saved[name]) for name, one in now.items()}
        assert found["model"].id == found["optimizer"].id == "ok"
    assert found["scheduler"].id == "state-not-restored"
    assert found["scheduler"].text.startswith("`scheduler['last_epoch']` is not what was saved: ")
    assert line(Forgetful.load_state_dict) in found["scheduler"].text
    now["model"][1].running_mean[2] += 1e-7
    assert "`model['1.running_mean']`" in checks.restored("model", now["model"], saved["model"]).text


def test_an_optimizer_of_other_parameters():
    kept = trained()
    assert checks.strangers(kept).id == "ok"
    kept["model"] = nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4))
    found = checks.strangers(kept)
    assert found.id == "parameters-not-kept" and found.text.startswith("`optimizer` updates 4 of 4 parameters")
    picture = torch.zeros(3, requires_grad=True)
    optimizer = torch.optim.LBFGS([picture])
    assert checks.strangers({"picture": picture, "optimizer": optimizer}).id == "ok"
    assert checks.strangers({"picture": picture}, [optimizer]).id == "optimizer-not-kept"
    assert checks.strangers({"picture": torch.zeros(3)}, [optimizer]).id == "ok"


def test_a_scheduler_that_is_not_kept():
    kept = trained()
    scheduler = kept.pop("scheduler")
    assert checks.strangers(kept).id == "scheduler-not-kept"
    for inside in (scheduler, [scheduler], types.SimpleNamespace(scheduler=scheduler)):
        assert checks.strangers(kept | {"inside": inside}).id == "ok"


def test_differences():
    same = [{"a": [1, torch.ones(2, dtype=torch.bfloat16), {3}]}, float("nan"), numpy.float32("nan"), "text", print]
    assert checks.difference(same, copy.deepcopy(same)) is None
    assert checks.difference({"a": (1, [2, 3])}, {"a": [1, (2, 4)]}) == "['a'][1][1]"
    assert checks.difference({"a": 1}, {"a": 1, "b": 2}) == "['b']"
    assert checks.difference([torch.tensor(0.0)], [torch.tensor(-0.0)]) == "[0]"
    assert checks.difference([torch.zeros(2)], [torch.zeros(2, dtype=torch.int64)]) == "[0]"
    assert checks.difference(types.SimpleNamespace(x=1), types.SimpleNamespace(x=2)) == ""
    loop: list[Any] = []
    loop.append(loop)
    with contextlib.suppress(RecursionError):
        assert checks.difference(loop, [loop]) is None
