"""The tuner's judgement, on machines that are computed: how long a plan takes there is known, and stays the same."""

import heapq
import json
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from types import SimpleNamespace

import pytest
import torch
from torch.utils.data import Dataset, TensorDataset, get_worker_info

from gpukit.train import costs as costs_module
from gpukit.train import sweep, timing, tuner
from gpukit.train.costs import ALONE, Costs, PlanResult, plans, replay
from gpukit.train.data import DataError, Loading, loader
from gpukit.train.feed import Feed
from gpukit.train.task import Task


@dataclass
class Machine:
    """What loading and training cost on a machine, in ms; all CPUs are shared evenly by whoever computes.

    `smt`: what the second thread of a core adds, 1 where each CPU is a core. `disk`: how many wait for it side by side.
    `handing`: what a batch costs a worker and the training process besides.
    """

    cpus: int
    waits: list[float]
    computes: list[float]
    step: float = 0.0
    step_cpus: int = 0
    handing: tuple[float, float] = (0.3, 0.3)
    smt: float = 1.0
    disk: int = 1000

    def speed(self, running: float) -> float:
        """Of each of so many that compute; two share a core."""
        cores = self.cpus if self.smt == 1 else (self.cpus + 1) // 2
        second = min(running, self.cpus) - cores
        return min(1.0, (cores + self.smt * second) / running) if running > cores else 1.0

    def period(self, workers: int, prefetch: int, seed: int = 0, rounds: int = 8) -> tuple[float, float, float]:
        """Milliseconds from batch to batch, the share of them in which training waits, and in which workers compute."""
        drawn, each = random.Random(seed), len(self.waits)
        rounds = max(rounds, 8 * workers // each)
        batches = [one for _ in range(rounds) for one in drawn.sample(range(each), each)]
        number = len(batches)
        if workers == 0:
            return fmean(self.waits[each] + self.computes[each] for each in batches) + self.step, 0.0, 1.0
        sleeping: list[tuple[float, int]] = []  # (until, who): worker 0.., -1 the training process
        running: dict[int, float] = {}  # who -> ms of computing left
        queue = {worker: [] for worker in range(workers)}
        ready, doing, at_disk, before_disk = set(), {}, 0, []
        now, taken, given, begun, blocked, busy, since = 0.0, 0, 0, 0.0, 0.0, 0.0, 0.0
        state = "waiting"

        def ask() -> None:
            nonlocal given
            if given == number:
                return
            queue[given % workers].append(given)
            given += 1

        def start(worker: int) -> None:
            nonlocal at_disk
            if worker in doing or not queue[worker]:
                return
            doing[worker] = batch = queue[worker].pop(0)
            if self.waits[batches[batch]] == 0:
                running[worker] = self.computes[batches[batch]] + self.handing[0]
            elif at_disk < self.disk:
                at_disk += 1
                heapq.heappush(sleeping, (now + self.waits[batches[batch]], worker))
            else:
                before_disk.append(worker)

        for _ in range(workers * prefetch):
            ask()
        for worker in range(workers):
            start(worker)
        while taken < number:
            if state == "waiting" and taken in ready:
                ready.discard(taken)
                blocked += now - since
                state, running[-1] = "taking", self.handing[1]
            weight = sum(self.step_cpus if who == -1 and state == "step" else 1 for who in running)
            speed = self.speed(weight)
            times = [left / speed for left in running.values()] + ([sleeping[0][0] - now] if sleeping else [])
            passed = max(0.0, min(times))
            now += passed
            busy += passed * sum(who >= 0 for who in running)
            for who in running:
                running[who] -= passed * speed
            ended = [who for who, left in running.items() if left < 1e-9]
            for who in ended:
                del running[who]
            while sleeping and sleeping[0][0] <= now + 1e-9:
                who = heapq.heappop(sleeping)[1]
                if who >= 0:
                    running[who] = self.computes[batches[doing[who]]] + self.handing[0]
                    at_disk -= 1
                    if before_disk:
                        at_disk += 1
                        other = before_disk.pop(0)
                        heapq.heappush(sleeping, (now + self.waits[batches[doing[other]]], other))
                else:
                    ended.append(-1)
            for who in ended:
                if who >= 0:
                    ready.add(doing.pop(who))
                    start(who)
                elif state == "taking":
                    taken += 1
                    if taken == workers:
                        begun, blocked, busy = now, 0.0, 0.0
                    ask()
                    start((given - 1) % workers)
                    state = "step"
                    if self.step_cpus:
                        running[-1] = self.step
                    else:
                        heapq.heappush(sleeping, (now + self.step, -1))
                else:
                    state, since = "waiting", now
        passed = now - begun
        return passed / (number - workers), blocked / passed, busy / passed / workers


class Trials:
    """What gpukit's would see on that machine, with this much noise."""

    def __init__(self, machine, noise, seed):
        self.machine, self.noise, self.random, self.runs = machine, noise, random.Random(seed), []

    def costs(self, batch_size, step, device):
        number = max(3, min(100, round(250 / self.machine.period(0, 2)[0])))
        some = [self.random.randrange(len(self.machine.waits)) for _ in range(number)]
        noisy = self.random.uniform(1 - self.noise, 1 + self.noise) / 1000
        return Costs(
            samples=batch_size,
            waited=tuple(self.machine.waits[each] * noisy for each in some),
            computed=tuple(self.machine.computes[each] * noisy for each in some),
            size=1000,
            step=self.machine.step / 1000,
            step_cpus=self.machine.step_cpus,
            cpus=self.machine.cpus,
        )

    def run(self, plan, costs):
        self.runs.append(plan)
        if plan == ALONE:
            return PlanResult(self.machine.period(*plan)[0] / 1000, 0.0)
        period, blocked, busy = self.machine.period(*plan, seed=len(self.runs), rounds=1)
        period *= self.random.uniform(1 - self.noise, 1 + self.noise) / 1000
        return PlanResult(period, 0.1, self.machine.handing[1] / 1000, blocked, busy)


def tuned(machine, monkeypatch, noise=0.0, seed=0):
    """The plan that is chosen, and how many were run for that."""
    trials = Trials(machine, noise, seed)
    monkeypatch.setattr(tuner, "Trials", lambda *_: trials)
    found = tuner.tune(None, 16)
    return (found.loading.workers, found.loading.prefetch), trials.runs, found


def share(machine, plan):
    """Of the speed of the fastest plan."""
    every = [ALONE, *((count, prefetch) for count in (1, 2, 3, 4, 6, 8, 12, 16) for prefetch in (2, 4, 8))]
    best = min(machine.period(*each)[0] for each in every if each[0] <= max(8, 2 * machine.cpus))
    return best / machine.period(*plan)[0]


def machines(number, seed):
    """All sorts of data, steps and machines."""
    drawn = random.Random(seed)
    for _ in range(number):
        work = 10 ** drawn.uniform(-1, 1.7)
        waiting = drawn.choice([0.0, 0.0, 0.3, 0.9, 0.99])
        spread = drawn.choice([0.0, 0.05, 0.5, 1.0])
        times = [drawn.lognormvariate(0, spread) for _ in range(50)]
        yield Machine(
            cpus=drawn.choice([1, 2, 2, 4, 8]),
            waits=[work * waiting * each for each in times],
            computes=[work * (1 - waiting) * each for each in times],
            step=drawn.choice([0.0, 1.0, 10.0, 30.0]),
            step_cpus=drawn.choice([0, 0, 1]),
            handing=drawn.choice([(0.2, 0.2), (0.5, 0.4), (3.0, 1.0)]),
            smt=drawn.choice([1.0, 1.0, 0.3]),
            disk=drawn.choice([1000, 1000, 4]),
        )


def test_the_choice_is_nearly_the_best_on_nine_machines_of_ten(monkeypatch):
    shares, trials = [], []
    for number, machine in enumerate(machines(60, seed=11)):
        plan, runs, _ = tuned(machine, monkeypatch, noise=0.03, seed=number)
        shares.append(share(machine, plan))
        trials.append(len(runs))
    assert sum(each >= 0.97 for each in shares) >= 0.9 * len(shares)
    assert fmean(shares) > 0.98
    assert fmean(trials) < 1.5
    assert max(trials) <= 4


@pytest.mark.parametrize(
    ("machine", "expected"),
    [
        (Machine(2, waits=[0.0], computes=[0.2]), "0 workers: loading a batch (0.2 ms for a batch of 16) is faster"),
        (Machine(2, waits=[0.0], computes=[0.5], step=300), "takes little time compared with a step of 300 ms"),
    ],
)
def test_cheap_batches_need_no_workers_and_no_trial(machine, expected, monkeypatch):
    plan, runs, found = tuned(machine, monkeypatch)
    assert (plan, runs) == (ALONE, [])
    assert expected in found.reason
    assert len(found.sweep) > 10


@pytest.mark.parametrize(
    ("machine", "workers", "expected"),
    [
        (Machine(2, waits=[0.0], computes=[20.0]), [4], "2.0 times as fast as without workers, limited by 2 CPUs"),
        (Machine(2, waits=[20.0], computes=[0.1]), [8], "mostly waiting for the data"),
        (Machine(4, waits=[20.0], computes=[0.1], step=10), [3, 4], "limited by the training step"),
        (Machine(8, waits=[0.0], computes=[20.0]), [8], "limited by 8 CPUs"),
    ],
)
def test_workers_follow_what_the_data_does(machine, workers, expected, monkeypatch):
    plan, runs, found = tuned(machine, monkeypatch)
    assert plan[0] in workers
    assert 1 <= len(runs) <= 2
    assert expected in found.reason


@pytest.mark.parametrize(("handing", "again"), [((30.0, 20.0), False), ((5.0, 3.0), True)])
def test_workers_that_turn_out_slow_are_not_used(handing, again, monkeypatch):
    """Where they are not much slower, making batches without them is looked at again, in the same way."""
    plan, runs, found = tuned(Machine(2, waits=[0.0], computes=[5.0], handing=handing), monkeypatch)
    assert plan == ALONE
    assert runs[0] != ALONE and (ALONE in runs) is again
    assert "was faster in a trial" in found.reason


def some(**changes):
    return Costs(**{"samples": 8, "waited": (0.02,), "computed": (0.001,), "size": 10**6, "cpus": 4, **changes})


@pytest.mark.parametrize(
    ("shm", "memory", "costs", "most"),
    [
        (1e12, 1e12, some(), (8, 16)),
        (64e6, 1e12, some(), (8, 4)),  # 0.8 * 64 MB hold 51 batches
        (64e6, 1e12, some(size=2 * 10**7), (0, 2)),
        (1e12, 1e9, some(memory=2 * 10**8), (3, 16)),
        (1e12, 1e9, some(objects=7 * 10**8), (1, 16)),
    ],
)
def test_plans_are_bounded_by_memory(shm, memory, costs, most, monkeypatch):
    monkeypatch.setattr(os, "statvfs", lambda path: SimpleNamespace(f_bavail=shm / 4096, f_frsize=4096))
    monkeypatch.setattr(costs_module, "budget", lambda device: SimpleNamespace(free=memory))
    assert max(plans(costs)) == most


def test_plans_reach_up_to_twice_the_cpus():
    for cpus, most in ((1, 8), (4, 8), (8, 16), (24, 48), (30, 48)):
        assert max(plans(some(size=0, cpus=cpus)))[0] == most


def test_what_bounds_the_workers_is_told(monkeypatch):
    monkeypatch.setattr(costs_module, "budget", lambda device: SimpleNamespace(free=1e9))
    monkeypatch.setattr(tuner, "Trials", lambda *_: trials)
    trials = Trials(Machine(4, waits=[20.0], computes=[0.1]), 0.0, 0)
    trials.costs = lambda *_: some(objects=3 * 10**8)
    reason = tuner.tune(None, 8).reason
    assert "2 workers" in reason
    assert "the most that fit in memory" in reason
    assert "copies 0.3 GB of Python objects" in reason
    trials.costs = lambda *_: some(objects=10**9)
    assert "not enough memory" in tuner.tune(None, 8).reason


@pytest.mark.parametrize(
    ("made", "workers", "prefetch", "step", "period"),
    [([2.0], 1, 2, 1.0, 2.0), ([2.0], 2, 2, 1.5, 1.5), ([2.0], 2, 2, 0.0, 1.0), ([0.5], 1, 2, 1.0, 1.0)],
)
def test_replay_knows_what_can_be_told(made, workers, prefetch, step, period):
    assert replay(made, workers, prefetch, step) == pytest.approx(period, rel=0.02)


def test_uneven_batches_want_more_of_them_ahead():
    uneven = [1.0] * 19 + [20.0]
    assert replay(uneven, 2, 8, 0.0) < 0.9 * replay(uneven, 2, 2, 0.0)


class Lazy(Dataset):
    """Opens its file when the first sample is asked for, as many do."""

    def __init__(self, path=os.devnull, seconds=0.0):
        self.path, self.seconds, self.file = path, seconds, None

    def __len__(self):
        return 64

    def __getitem__(self, index):
        if self.file is None:
            self.file = os.open(self.path, os.O_RDONLY)
        time.sleep(self.seconds)
        return torch.rand(3)


class Broken(Lazy):
    def __getitem__(self, index):
        raise KeyError("label")


class Crashing(Lazy):
    def __getitem__(self, index):
        os._exit(7)


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(timing, "MEASURE_SECONDS", 0.02)
    monkeypatch.setattr(timing, "RUN_SECONDS", 0.02)
    monkeypatch.setattr(costs_module, "COUNTS", (1, 2))


def test_trials_leave_nothing_behind(quick):
    dataset, messages, before = Lazy(seconds=0.005), [], torch.get_rng_state()
    found = tuner.tune(dataset, 4, step_seconds=0.001, say=messages.append)
    assert found.loading.workers in (0, 1, 2)
    assert found.loading.reason.startswith(f"{found.loading.workers} worker")
    assert any("trying" in each for each in messages)
    assert dataset.file is None
    assert torch.equal(torch.get_rng_state(), before)
    assert not multiprocessing.active_children()
    next(iter(loader(dataset, 4, 0, loading=found.loading)))


def test_samples_that_cannot_be_made_are_one_sentence():
    with pytest.raises(DataError, match="A sample cannot be read: KeyError: 'label'"):
        tuner.tune(Broken(), 4)
    with pytest.raises(DataError, match="ended with exit code 7"):
        tuner.tune(Crashing(), 4)


def test_a_dataset_that_stays_in_its_process_gets_no_workers():
    class Local(Lazy):
        pass

    found = tuner.tune(Local(), 4, context="spawn")
    assert found.loading.workers == 0
    assert found.reason.startswith("0 workers: the data set cannot be sent to a worker")


class OnTheGpu(Lazy):
    def __getitem__(self, index):
        raise RuntimeError("Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, ...")


def test_samples_on_the_gpu_get_no_workers():
    assert tuner.tune(OnTheGpu(), 4).reason.startswith("0 workers: the data set uses the GPU in a worker")


def test_processes_of_one_machine_share_its_cpus(monkeypatch):
    monkeypatch.setattr(timing, "usable_cpus", lambda: 16)
    trials = timing.Trials(TensorDataset(torch.zeros(64, 2)), None, None, lambda text: None)
    assert trials.costs(8, 0.0, None).cpus == 16
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    assert trials.costs(8, 0.0, None).cpus == 4
    monkeypatch.setattr(costs_module, "budget", lambda device: SimpleNamespace(free=1e9))
    assert max(plans(some(memory=10**8)))[0] == 1


def test_slow_batches_are_tried_in_portions():
    trials = timing.Trials(Lazy(seconds=0.02), None, None, lambda text: None)
    costs = trials.costs(64, 1.28, None)
    assert 1 <= costs.samples <= 4
    assert costs.step == pytest.approx(1.28 * costs.samples / 64)
    assert costs.size == 64 * 3 * 4


def test_objects_of_a_dataset_are_weighed():
    lists = SimpleNamespace(samples=[[f"{row}-{column}" for column in range(10)] for row in range(10_000)])
    assert 4e6 < timing._objects(lists) < 1.2e7
    assert timing._objects(SimpleNamespace(samples=torch.zeros(10**6))) < 1e4


def test_a_sweep_runs_every_plan_and_is_drawn(quick, tmp_path):
    settings = sweep.sweep(TensorDataset(torch.zeros(64, 2)), 8, rounds=1, seconds=0.01)
    assert [each.workers for each in settings] == [0] + [1] * 4 + [2] * 4
    assert all(each.measured > 0 for each in settings)
    text = sweep.bars(settings, Loading(2, 8))
    assert len(text.splitlines()) == 10
    assert "<- chosen" in next(line for line in text.splitlines() if line.split()[:2] == ["2", "8"])
    assert sweep.picture(settings, tmp_path / "new/loader.png", Loading(2, 8)).read_bytes().startswith(b"\x89PNG")


TASK = """
import time
from dataclasses import dataclass
import torch
from torch import nn
from torch.utils.data import Dataset
from gpukit.train.task import Task

@dataclass
class Settings:
    batch_size: int = 8
    seconds: float = 0.0

class Samples(Dataset):
    def __init__(self, seconds): self.seconds = seconds
    def __len__(self): return 64
    def __getitem__(self, index):
        time.sleep(self.seconds)
        return torch.ones(4)

def build(settings: Settings, device):
    model = nn.Linear(4, 1)
    loss = lambda model, batch: model(batch).sum()
    return Task(model, torch.optim.SGD(model.parameters(), 0.1), Samples(settings.seconds), loss)
"""


@pytest.fixture
def task(tmp_path, monkeypatch):
    (tmp_path / "tuned_task.py").write_text(TASK)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    return "tuned_task:build"


def test_the_command_says_what_to_use(task, quick, capsys):
    assert sweep.main(["--task", task, "--json", "--batch-size", "4"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["batch_size"] == 4
    assert result["step_seconds"] > 0
    assert result["loading"]["reason"]
    assert sweep.main(["--task", task, "--step-seconds", "0", "--seconds", "0.01"]) == 0
    messages = capsys.readouterr().out.splitlines()
    assert "worker" in messages[0]
    assert Path(messages[1].removeprefix("Plot: ")).is_file()


@pytest.mark.parametrize("wrong", [("--batch-size", "0"), ("--step-seconds", "-1")])
def test_the_command_refuses_what_cannot_be_meant(task, wrong, capsys):
    with pytest.raises(SystemExit):
        sweep.main(["--task", task, *wrong])
    assert f"{wrong[0]} must be at least" in capsys.readouterr().err


def test_the_answer_is_told_where_no_picture_can_be_written(task, quick, capsys):
    assert sweep.main(["--task", task, "--batch-size", "4", "--picture", "/proc/nowhere/loader.png"]) == 0
    out, err = capsys.readouterr()
    assert "worker" in out.splitlines()[0] and "cannot be written" in err


class Staying(Lazy):
    """No worker can have it."""

    def __getitem__(self, index):
        if get_worker_info() is not None or multiprocessing.parent_process() is not None:
            raise RuntimeError("Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, ...")
        return super().__getitem__(index)


def fed(dataset, messages):
    model = torch.nn.Linear(1, 1)
    task = Task(model, torch.optim.SGD(model.parameters(), 0.1), dataset, lambda *_: None)
    return iter(Feed(task, 4, 0, say=messages.append))


def test_a_feed_opens_nothing_in_its_own_process(quick):
    """A file that were opened here would be shared by all workers that are forked later."""
    dataset, messages = Lazy(), []
    batches = fed(dataset, messages)
    for _ in range(12):
        next(batches)
    assert dataset.file is None and not messages
    next(batches)
    assert messages[0].startswith("Loading data with")


def test_a_feed_of_what_no_worker_can_have(quick):
    messages = []
    batches = fed(Staying(), messages)
    for _ in range(13):
        next(batches)
    assert messages[0].startswith("Loading data with 0 workers: the data set uses the GPU")


def test_ctrl_c_leaves_no_worker(task, tmp_path):
    command = [sys.executable, "-m", "gpukit.train.sweep", "--task", task, "--step-seconds", "0", "--seconds", "0.5"]
    path = os.pathsep.join([str(tmp_path), str(Path(tuner.__file__).parents[2])])
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [path, os.environ.get("PYTHONPATH")]))}
    started = subprocess.Popen(command, env=env, start_new_session=True, stderr=subprocess.PIPE)
    children = Path(f"/proc/{started.pid}/task/{started.pid}/children")
    deadline = time.monotonic() + 60
    while not children.read_text() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert children.read_text()
    os.killpg(started.pid, signal.SIGINT)
    messages = started.communicate(timeout=30)[1].decode()
    assert started.returncode == 130, messages
    assert "Traceback" not in messages, messages
    assert not subprocess.run(["pgrep", "--session", str(started.pid)], capture_output=True).stdout
