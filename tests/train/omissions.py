"""Scripts that forget to keep something, each with the variables of which a rehearsal has to name one."""

from __future__ import annotations

from dataclasses import dataclass

SCRIPT = """
import copy, itertools, random
from collections import deque
import numpy, torch
from torch import nn
from torch.nn.functional import cross_entropy, mse_loss
from torch.utils.data import DataLoader, Dataset, TensorDataset, WeightedRandomSampler, random_split
from exactrun.run import Run

{classes}

def main():
    torch.manual_seed(0)
    inputs, labels = torch.randn(120, 8), torch.randint(3, (120,))
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    data, sampler = TensorDataset(inputs, labels), None
    {before}
    loader = DataLoader(data, {size}, sampler=sampler, shuffle=sampler is None)
    run = Run("outputs/x")
    run.keep(model=model{kept})
    for epoch in run.epochs(range(8)):
        {epoch}
        for i, (x, y) in run.enumerate(loader):
            {first}
            loss = cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            {step}
            run.step(loss=loss)
        {end}

main()
"""


@dataclass(frozen=True)
class Omission:
    """A script by its parts; `name`: of one of these variables, the rehearsal names at least one."""

    name: tuple[str, ...]
    before: str = "pass"
    epoch: str = "pass"
    first: str = "pass"
    step: str = "pass"
    end: str = "pass"
    classes: str = ""
    kept: str = ", optimizer=optimizer"
    size: int = 30

    def script(self) -> str:
        parts = {name: getattr(self, name) for name in ("classes", "before", "epoch", "first", "step", "end", "size")}
        for name, spaces in (("before", 4), ("epoch", 8), ("first", 12), ("step", 12), ("end", 8)):
            parts[name] = parts[name].replace("\n", "\n" + " " * spaces)
        return SCRIPT.format(**parts, kept=self.kept)


OMISSIONS = {
    "scheduler of each step": Omission(
        ("scheduler.last_epoch",),
        before="scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 40)",
        step="scheduler.step()",
    ),
    "scheduler of each epoch": Omission(
        ("scheduler.last_epoch",),
        before="scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)",
        end="scheduler.step()",
    ),
    "a list of losses": Omission(
        ("len(losses)",),
        before="losses = []",
        step="losses.append(loss.item())",
    ),
    "a count that sets the learning rate": Omission(
        ("it",),
        before="it = 0",
        first="it += 1\nfor group in optimizer.param_groups: group['lr'] = 0.1 / it",
    ),
    "the running sum of an epoch": Omission(
        ("total",), epoch="total = 0.0", step="total += loss.item()", end="print(total)"
    ),
    "a moving average by deepcopy": Omission(
        ("average",),
        before="average = copy.deepcopy(model)",
        step="for one, other in zip(average.parameters(), model.parameters()): one.data.lerp_(other.data, 0.1)",
    ),
    "a sampler whose weights change": Omission(
        ("sampler.weights",),
        before="sampler = WeightedRandomSampler(torch.ones(120), 120)",
        step="sampler.weights[y.argmax()] += loss.item()",
    ),
    "the norm that gradients are clipped to": Omission(
        ("clip.norm", "clip"),
        classes="class Clip:\n    def __init__(self): self.norm = 1.0\n    def __call__(self, model):\n"
        "        now = nn.utils.clip_grad_norm_(model.parameters(), self.norm).item()\n"
        "        self.norm = 0.9 * self.norm + 0.1 * now",
        before="clip = Clip()",
        step="clip(model)\noptimizer.step()",
    ),
    "a data set that becomes harder": Omission(
        ("data.noise",),
        classes="class Noisy(TensorDataset):\n    noise = 0.0\n    def __getitem__(self, i):\n"
        "        x, y = super().__getitem__(i)\n        return x + self.noise, y",
        before="data = Noisy(inputs, labels)\ndata.noise = 0.0",
        end="data.noise += 0.1",
    ),
    "the patience of early stopping": Omission(
        ("stopper.bad", "stopper.best"),
        classes="class Stopper:\n    def __init__(self): self.best, self.bad = 1e9, 0\n    def __call__(self, loss):\n"
        "        self.bad = 0 if loss < self.best else self.bad + 1\n        self.best = min(loss, self.best)",
        before="stopper = Stopper()",
        end="stopper(loss.item())",
    ),
    "a replay buffer": Omission(
        ("memory", "len(memory)"),
        before="memory = deque(maxlen=200)",
        first="memory.append(x[0])\nx = torch.cat([x, random.choice(memory)[None]])\ny = torch.cat([y, y[:1]])",
    ),
    "an attribute of the model": Omission(("model.2.p",), end="model[2].p = min(0.5, model[2].p + 0.05)"),
    "a buffer that no state_dict has": Omission(
        ("model.2.seen",),
        classes="class Counted(nn.Dropout):\n    def __init__(self, p):\n        super().__init__(p)\n"
        "        self.register_buffer('seen', torch.zeros(()), persistent=False)\n    def forward(self, x):\n"
        "        self.seen += 1\n        return super().forward(x) / (1 + 0.01 * self.seen)",
        before="model[2] = Counted(0.2)",
    ),
    "an iterator of a second loader": Omission(
        ("second",),
        before="second = itertools.cycle(DataLoader(TensorDataset(torch.randn(7, 8)), 1))",
        first="x = x + next(second)[0]",
    ),
    "a generator function": Omission(
        ("noise",),
        classes="def drift():\n    scale = 0.0\n    while True:\n        scale += 0.01\n        yield scale",
        before="noise = drift()",
        first="x = x + next(noise)",
    ),
    "the optimizer": Omission(("len(optimizer.state)",), kept=""),
    "a tensor of weights of the loss": Omission(
        ("weights",),
        before="weights = torch.ones(3)",
        first="model.zero_grad()",
        step="weights[y[0]] *= 1.1\nsum(weights[k] * model[3].bias[k] for k in range(3)).backward()\noptimizer.step()",
    ),
    "a list that is shuffled again": Omission(
        ("order",), before="order = list(range(8))", epoch="random.shuffle(order)", first="x = x[:, order]"
    ),
    "a split that nothing seeds": Omission(
        ("data.indices", "rows"),
        before="numpy.random.shuffle(rows := numpy.arange(120))\n"
        "data = torch.utils.data.Subset(data, rows[:100].tolist())",
    ),
    "a global variable of a function": Omission(
        ("seen",),
        classes="seen = 0\ndef count():\n    global seen\n    seen += 1\n    return seen",
        first="x = x / count()",
    ),
    "an attribute of a class": Omission(
        ("Warmup.steps",),
        classes="class Warmup:\n    steps = 0",
        first="Warmup.steps += 1\noptimizer.param_groups[0]['lr'] = 0.1 / Warmup.steps",
    ),
    "a closure": Omission(
        ("calls",),
        classes="def decay():\n    calls = 0\n    def rate():\n        nonlocal calls\n        calls += 1\n"
        "        return 0.1 / calls\n    return rate",
        before="rate = decay()",
        first="optimizer.param_groups[0]['lr'] = rate()",
    ),
}
