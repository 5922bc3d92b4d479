import itertools
import random

import numpy
import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset

from exactrun import streams
from exactrun.data import DataError
from exactrun.run import Run
from tests.train import stream_kinds
from tests.train.stream_kinds import ALONE, KINDS, Stateless
from tests.train.trainee import PROCESSES


def lists(batches):
    return [stream_kinds.as_lists(batch) for batch in batches]


def stored(state, folder):
    torch.save(state, folder / "state.pt")
    return torch.load(folder / "state.pt", weights_only=True)


@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")  # webdataset, when a pass is left early
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("kind", [kind for kind in {**KINDS, **ALONE} if "Parquet" not in kind])
def test_a_pass_continues_after_any_batch(kind, tmp_path):
    make = {**KINDS, **ALONE}[kind]
    whole = lists(streams.Pass(make(tmp_path / "run", 0), 7))
    total = len(whole)
    assert lists(streams.Pass(make(tmp_path / "run", 0), 7)) == whole
    assert lists(itertools.islice(streams.Pass(make(tmp_path / "run", 0), 8), 8)) != whole[:8]
    for done in (1, 2, total // 2, total):
        batches = streams.Pass(make(tmp_path / "run", 0), 7)
        lists(itertools.islice(batches, done))
        state = stored(batches.state(), tmp_path)
        batches.close()
        source = make(tmp_path / "run", 0)
        assert lists(streams.Pass(source, 7, state)) == whole[done:], done
        if kind not in ("generator", "state that is not restored"):  # the next pass starts at the beginning
            assert lists(itertools.islice(streams.Pass(source, 7), 3)) == whole[:3]


@pytest.mark.parametrize("kind", ["huggingface", "webdataset", "state with a buffer"])
def test_a_killed_run_goes_on_bit_equal(kind, tmp_path):

    def run(name, kill_after=None):
        (tmp_path / name).mkdir(exist_ok=True)
        process = PROCESSES.Process(target=stream_kinds.run, args=(kind, 2, tmp_path / name, kill_after))
        process.start()
        return process

    running = [run("whole"), run("killed", random.randrange(4, 29))]
    for process in running:
        process.join(120)
    assert [process.exitcode for process in running] == [0, -9]
    again = run("killed")
    again.join(120)
    assert again.exitcode == 0
    assert stream_kinds.read(tmp_path / "killed") == (stream_kinds.read(tmp_path / "whole")[0], True)


def test_the_loop_and_the_stream_do_not_disturb_each_other():
    def drawn():
        return torch.rand(()).item(), random.random(), numpy.random.rand()

    def seeded():
        torch.manual_seed(3)
        random.seed(3)
        numpy.random.seed(3)

    seeded()
    expected = [drawn() for _ in range(15)]
    whole = lists(streams.Pass(DataLoader(Stateless(), batch_size=4), 5))
    seeded()
    batches = streams.Pass(DataLoader(Stateless(), batch_size=4), 5)
    both = [(stream_kinds.as_lists(batch), drawn()) for batch in batches]
    assert both == list(zip(whole, expected, strict=True))


def test_what_cannot_continue_is_one_sentence():
    def state_of(source, done=5):
        batches = streams.Pass(source, 1)
        lists(itertools.islice(batches, done))
        return batches.state()

    def refused(source, state):
        with pytest.raises(DataError) as error:
            streams.Pass(source, 1, state)
        return str(error.value)

    state = state_of(DataLoader(Stateless(), batch_size=4))
    assert "0 workers and batch size 4" in refused(DataLoader(Stateless(), batch_size=8), state)
    assert "0 workers" in refused(DataLoader(Stateless(), batch_size=4, num_workers=1), state)
    assert "ended after 3 batches, but 5" in refused(range(3), state_of(range(9)))
    assert "Batch 5 of this pass" in refused(range(1, 9), state_of(range(9)))
    unseeded = "Batch 5 of this pass over map is not the same as before"
    assert unseeded in refused(map(fresh, range(9)), state_of(map(fresh, range(9))))


def fresh(_):
    return numpy.random.default_rng().random()


def test_a_loader_left_early_starts_again():
    class Counted(IterableDataset):
        def __iter__(self):
            yield from range(8)

    loader = DataLoader(Counted(), batch_size=2)
    for _ in range(2):
        for batch in streams.Pass(loader, 1):
            assert batch.tolist() == [0, 1]
            break


def test_a_stream_that_is_kept_continues_from_its_own_state(tmp_path):
    """In a plain loop, without being read again."""

    class Lines:
        def __init__(self):
            self.at = self.read = 0

        def __iter__(self):
            while self.at < 20:
                self.at += 1
                self.read += 1
                yield self.at
            self.at = 0

        def state_dict(self):
            return {"at": self.at}

        def load_state_dict(self, state):
            self.at = state["at"]

    def train(seen, fails_at=0):
        lines = Lines()
        with Run(tmp_path, save_steps=1) as run:
            run.keep(lines=lines)
            state = run.state(epoch=0)
            while state.epoch < 2:
                for line in lines:
                    seen.append(line + torch.rand(()).item())
                    run.step()
                    if run.completed == fails_at:
                        raise ValueError
                state.epoch += 1
        return lines.read

    torch.manual_seed(0)
    seen = []
    with pytest.raises(ValueError):
        train(seen, 27)
    assert train(seen) == 13 and len(seen) == 40
    assert [int(each) for each in seen] == [*range(1, 21)] * 2
