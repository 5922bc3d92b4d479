"""The batch finder on real models with limited memory, compared with accelerate and Lightning:
python benchmarks/finder_real.py --caps 8 16 24 80

On a GPU, whose allocator limits the memory (in GiB). Each finder runs in its own process, and its answer must then
train for 100 steps in another process. The largest such size is found by bisection. Requires
benchmarks/requirements.txt.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "gpukit/src")]

import torch  # noqa: E402
from torch import Tensor, nn  # noqa: E402
from torch.nn import functional  # noqa: E402
from torch.utils.data import DataLoader, Dataset  # noqa: E402

from gpukit.script.device import Device, choose  # noqa: E402
from gpukit.script.finder import find  # noqa: E402
from gpukit.script.loader import Loading, loader  # noqa: E402
from gpukit.script.step import Step, is_oom  # noqa: E402
from gpukit.script.task import Task  # noqa: E402

PATIENCE = 3000  # seconds for one process
SAMPLES = 1_000_000
TRIED = 5  # steps of a library's trial
SEARCHED = 10  # steps for finding the largest size; the first steps use the most memory
MODELS = ("mlp", "resnet", "transformer")


@dataclass(frozen=True)
class Settings:
    model: str = "mlp"
    compile: bool = False


class Made(Dataset):
    """Images or rows of numbers, each with a class; with `tokens`, rows of tokens with themselves as targets."""

    def __init__(self, shape: tuple[int, ...], tokens: int = 0) -> None:
        self.shape, self.tokens = shape, tokens

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> tuple[Tensor, Any]:
        if self.tokens:
            row = torch.randint(self.tokens, self.shape)
            return row, row
        return torch.randn(self.shape), index % 10


class Block(nn.Module):
    """A residual block with two convolutions."""

    def __init__(self, channels: int, out: int) -> None:
        super().__init__()
        stride = 1 if out == channels else 2
        self.first, self.one = nn.Conv2d(channels, out, 3, stride, 1, bias=False), nn.BatchNorm2d(out)
        self.second, self.two = nn.Conv2d(out, out, 3, 1, 1, bias=False), nn.BatchNorm2d(out)
        self.around = nn.Identity() if stride == 1 else nn.Conv2d(channels, out, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.one(self.first(x)))
        return torch.relu(self.two(self.second(y)) + self.around(x))


class Transformer(nn.Module):
    def __init__(self, vocabulary: int, width: int, layers: int, length: int) -> None:
        super().__init__()
        self.embed, self.place = nn.Embedding(vocabulary, width), nn.Parameter(torch.zeros(length, width))
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.1, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.out = nn.Linear(width, vocabulary)

    def forward(self, tokens: Tensor) -> Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1], device=tokens.device)
        return self.out(self.layers(self.embed(tokens) + self.place, mask=mask, is_causal=True))


def mlp(width: int, layers: int) -> nn.Module:
    hidden = [part for _ in range(layers) for part in (nn.Linear(width, width), nn.ReLU(), nn.Dropout(0.1))]
    return nn.Sequential(*hidden, nn.Linear(width, 10))


def resnet(channels: int, stages: int) -> nn.Module:
    blocks = [Block(channels, channels)]
    for _ in range(stages):
        blocks += [Block(channels, 2 * channels), Block(2 * channels, 2 * channels)]
        channels *= 2
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 10)]
    return nn.Sequential(nn.Conv2d(3, blocks[0].first.in_channels, 3, 1, 1), *blocks, *head)


def made(settings: Settings) -> tuple[nn.Module, Dataset]:
    torch.manual_seed(0)
    if settings.model == "mlp":
        return mlp(4096, 24), Made((4096,))
    if settings.model == "resnet":
        return resnet(64, 3), Made((3, 128, 128))
    return Transformer(8192, 512, 8, 512), Made((512,), 8192)


def loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    """The sum over samples, or over tokens."""
    answer = model(batch[0])
    return functional.cross_entropy(answer.flatten(0, -2), batch[1].flatten(), reduction="sum")


def build(settings: Settings, device: Device) -> Task:
    model, data = made(settings)
    model = device.prepare(model)
    return Task(model, torch.optim.AdamW(model.parameters()), data, loss)


def survive(settings: Settings, size: int, steps: int) -> None:
    """Train; exit with 3 if a batch did not fit without being split."""
    device = choose(compile=settings.compile)
    task = build(settings, device)
    step = Step(task, device)
    for seed, batch in enumerate(loader(task.dataset, size, seed=0, loading=Loading(), device=device.device)):
        step(batch, seed)
        if step.retries:
            sys.exit(3)
        if seed + 1 == steps:
            return


def by_accelerate(settings: Settings, start: int) -> tuple[int, int]:
    """The answer, and how often accelerate called the function."""
    from accelerate.utils import find_executable_batch_size

    tried = []

    @find_executable_batch_size(starting_batch_size=start)
    def train(batch_size: int) -> int:
        tried.append(batch_size)
        device = choose(compile=settings.compile)
        task = build(settings, device)
        for number, batch in enumerate(DataLoader(task.dataset, batch_size), 1):
            task.optimizer.zero_grad()
            with device.autocast():
                value = task.loss(task.model, device.move(batch)) / batch_size
            value.backward()
            task.optimizer.step()
            if number == TRIED:
                return batch_size
        raise AssertionError("there are fewer samples")

    return train(), len(tried)


def by_lightning(settings: Settings, mode: str) -> tuple[int, int]:
    """The answer, and how many sizes Lightning tried."""
    from lightning.pytorch import LightningModule, Trainer
    from lightning.pytorch.tuner import Tuner

    device, tried = choose(compile=settings.compile), set()

    class Module(LightningModule):
        batch_size = 2

        def __init__(self) -> None:
            super().__init__()
            self.model, self.data = made(settings)
            if settings.compile:
                self.model.compile()

        def train_dataloader(self) -> DataLoader:
            return DataLoader(self.data, self.batch_size)

        def training_step(self, batch: Any, index: int) -> Tensor:
            tried.add(len(batch[0]))
            return loss(self.model, batch) / len(batch[0])

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.AdamW(self.parameters())

    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(
            default_root_dir=folder,
            accelerator="gpu",
            devices=1,
            precision="bf16-mixed" if device.dtype == torch.bfloat16 else "32-true",
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            max_steps=TRIED,
        )
        return Tuner(trainer).scale_batch_size(Module(), mode=mode, steps_per_trial=TRIED), len(tried)


@dataclass(frozen=True)
class Case:
    """A model and its memory in GiB."""

    settings: Settings
    cap: float
    steps: int

    @property
    def name(self) -> str:
        return f"{self.settings.model}{', compiled' * self.settings.compile}, {self.cap:g} GB"

    def options(self) -> list[str]:
        return ["--model", self.settings.model, *["--compile"] * self.settings.compile, "--cap", str(self.cap)]

    def child(self, *what: object) -> subprocess.CompletedProcess[str]:
        """Run a process with limited memory and its own torch.compile cache.

        With a shared cache, a process would use less memory for a size that was compiled before.
        """
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TORCHINDUCTOR_COMPILE_THREADS": "1"}
        with tempfile.TemporaryDirectory(prefix="benchmark-") as kept:
            return subprocess.run(
                [sys.executable, str(HERE / "finder_real.py"), *self.options(), "--do", *map(str, what)],
                env={**env, "TORCHINDUCTOR_CACHE_DIR": kept},
                capture_output=True,
                text=True,
                timeout=PATIENCE,
            )

    def survives(self, size: int, steps: int = 0) -> bool:
        if not size:  # the finder failed
            return False
        done = self.child("survive", size, steps or self.steps)
        message = done.stderr.strip().splitlines()[-1:]
        if done.returncode not in (0, 3) and done.returncode > 0 and not is_oom(RuntimeError(done.stderr)):
            sys.exit(f"{self.name} with {size} samples failed, but not because of memory: {message}")
        return done.returncode == 0

    def exhaustive(self, size: int) -> int:
        """The largest size that survives, within 1 %, found with few steps, starting from an estimate."""
        low, high = 0, 0
        while not (low and high):
            if self.survives(size, SEARCHED):
                low, size = size, max(size + 1, int(size * 1.3))
            else:
                high, size = size, max(1, int(size * 0.8))
            if high == 1:
                return 0
            if low and high and low > high:  # sizes in this range succeed or fail at random
                low = high - 1
        while high - low > max(1, low / 100):
            middle = (low + high) // 2
            low, high = (middle, high) if self.survives(middle, SEARCHED) else (low, middle)
        while low and not self.survives(low):
            low -= max(1, low // 100)
        return low

    def answer(self, *what: object) -> tuple[int, int]:
        """A finder's size and number of trials; 0 if it failed."""
        done = self.child(*what)
        with contextlib.suppress(ValueError, IndexError):
            return tuple(json.loads(done.stdout.strip().splitlines()[-1]))
        print(done.stderr, file=sys.stderr)
        return 0, 0


@dataclass(frozen=True)
class Result:
    size: int
    trials: int
    survived: bool
    share: float


def run(case: Case, times: int, of_others: int) -> dict[str, Any]:
    """The true maximum, and for each finder its answers, its trials, and whether each answer survived."""
    begun = time.monotonic()

    def say(text: str) -> None:
        print(f"{time.monotonic() - begun:6.0f} s  {case.name}: {text}", file=sys.stderr, flush=True)

    found: dict[str, list[tuple[int, int, bool]]] = {"gpukit": []}
    for _ in range(times):
        size, trials = case.answer("gpukit")
        found["gpukit"].append((size, trials, case.survives(size)))
        say(f"gpukit {found['gpukit'][-1]}")
    truth = case.exhaustive(statistics.median_low(size for size, _, _ in found["gpukit"]) or 64)
    say(f"the largest is {truth}")
    start = 2 ** (truth.bit_length() + 1)
    asked = {
        "accelerate": ("accelerate", start),
        "Lightning, power": ("lightning", "power"),
        "Lightning, binsearch": ("lightning", "binsearch"),
    }
    for name, what in asked.items() if of_others else ():
        found[name] = []
        for _ in range(of_others):
            size, trials = case.answer(*what)
            found[name].append((size, trials, case.survives(size)))
            say(f"{name} {found[name][-1]}")
    return {"case": case.name, "truth": truth, "found": found}


def results(case: dict[str, Any], name: str) -> list[Result]:
    """The results of one finder in a case."""
    truth = case["truth"]
    return [Result(*one, share=one[0] / truth if truth else 0.0) for one in case["found"].get(name, [])]


def cell(some: list[Result]) -> str:
    if not some:
        return "not measured"
    held = sum(each.survived for each in some)
    if not any(each.size for each in some):
        return "ended with an error"
    shares = ", ".join(sorted({f"{each.size} ({each.share:.0%})" for each in some}))
    lost = "" if held == len(some) else f", **{held} of {len(some)} survived**"
    return f"{shares}, {statistics.mean(each.trials for each in some):.1f} trials{lost}"


def cases(given: argparse.Namespace) -> Iterator[Case]:
    for cap in given.caps:
        for compiled in (False, True)[: 1 + (not given.eager)]:
            for model in given.models:
                yield Case(Settings(model, compiled), cap, given.steps)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=5, help="runs of gpukit's finder (5)")
    parser.add_argument("--times-of-others", type=int, default=1, help="runs of each library's finder (1)")
    parser.add_argument("--steps", type=int, default=100, help="steps that an answer must survive (100)")
    parser.add_argument("--caps", type=float, nargs="+", default=[8], help="memory limits, in GiB (8)")
    parser.add_argument("--models", nargs="*", default=list(MODELS), choices=MODELS)
    parser.add_argument("--eager", action="store_true", help="without torch.compile")
    parser.add_argument("--more", type=Path, help="a previous result, whose cases are kept and not measured again")
    given = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("This benchmark needs a GPU.")
    from measure import machine

    load, wanted = machine()["load"], list(cases(given))
    done = json.loads(given.more.read_text(encoding="utf-8"))["cases"] if given.more else []
    for case in wanted:
        if case.name not in [one["case"] for one in done]:
            done.append(run(case, given.times, given.times_of_others))
            report(given, load, done, len(wanted))


def report(given: argparse.Namespace, load: float, done: list[dict[str, Any]], wanted: int) -> None:
    """Write the results so far: a complete run takes over an hour, so an interrupted one should leave a result."""
    from measure import write

    names = ["gpukit", *(["accelerate", "Lightning, power", "Lightning, binsearch"] if given.times_of_others else [])]
    all_ours = [one for case in done for one in results(case, "gpukit")]
    rows = [[case["case"], case["truth"], *(cell(results(case, name)) for name in names)] for case in done]
    write(
        "finder_real",
        load,
        engine=False,
        packages=("accelerate", "lightning", "torch"),
        title="The batch finder on real models",
        table={"columns": ["model", "true maximum", *names], "rows": rows},
        cases=done,
        results=[
            {"what": "models measured", "value": len(rows), "at_least": wanted},
            {"what": f"answers that survive {given.steps} steps in a new process", "unit": "%", "at_least": 100}
            | {"value": round(100 * statistics.mean(each.survived for each in all_ours), 1)},
            {"what": "mean share of the true maximum", "unit": "%"}
            | {"value": round(100 * statistics.mean(each.share for each in all_ours), 1)},
            {"what": "mean number of trials", "value": round(statistics.mean(each.trials for each in all_ours), 1)},
        ],
        notes=[
            f"On {torch.cuda.get_device_name()}, with capped memory. The true maximum is the largest size that "
            f"survives {given.steps} steps, within 1 %.",
            "Each cell: the answers and their share of the true maximum. accelerate starts at two to four times the "
            "maximum, because it only reduces the size.",
        ],
    )


def child() -> None:
    """The main function of a child process."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--cap", type=float, required=True)
    parser.add_argument("--do", nargs=argparse.REMAINDER)
    given = parser.parse_args()
    settings = Settings(given.model, given.compile)
    what, *rest = given.do
    if what == "gpukit":  # its processes import this module by name
        import finder_real

        lines: list[str] = []
        size = find(finder_real.build, settings, limit=int(given.cap * 2**30), progress=lines.append)
        print(json.dumps((size, sum(" samples " in line for line in lines[2:-1]))))
        return
    torch.cuda.set_per_process_memory_fraction(given.cap * 2**30 / torch.cuda.mem_get_info()[1])
    if what == "survive":
        survive(settings, *map(int, rest))
        return
    print(json.dumps(by_accelerate(settings, int(*rest)) if what == "accelerate" else by_lightning(settings, *rest)))


if __name__ == "__main__":
    child() if "--do" in sys.argv else main()
