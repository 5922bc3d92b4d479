import itertools
import random

import numpy
import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset

from exactrun import streams
from exactrun.data import DataError
from tests.train import stream_kinds
from tests.train.stream_kinds import ALONE, KINDS, Liar, Stateless
from tests.train.trainee import PROCESSES

CONTINUED = {"huggingface", "huggingface, StatefulDataLoader", "huggingface alone", "state with a buffer"}


@pytest.fixture
def said(monkeypatch):
    monkeypatch.setattr(streams, "_said", set())
    return []


def needs(kind):
    for library, word in (("webdataset", "web"), ("datasets", "hugging"), ("torchdata", "Stateful")):
        if word in kind:
            pytest.importorskip(library)


def lists(batches):
    return [stream_kinds.as_lists(batch) for batch in batches]


def stored(state, folder):
    torch.save(state, folder / "state.pt")
    return torch.load(folder / "state.pt", weights_only=True)


@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")  # webdataset, when a pass is left early
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("kind", [kind for kind in {**KINDS, **ALONE} if "Parquet" not in kind])
def test_a_pass_continues_after_any_batch(kind, tmp_path, said):
    needs(kind)
    make = {**KINDS, **ALONE}[kind]
    whole = lists(streams.Pass(make(tmp_path / "run", 0), 7))
    total = len(whole)
    assert lists(streams.Pass(make(tmp_path / "run", 0), 7)) == whole
    assert lists(itertools.islice(streams.Pass(make(tmp_path / "run", 0), 8), 8)) != whole[:8]
    for done in (1, 2, total // 2, total):
        batches = streams.Pass(make(tmp_path / "run", 0), 7, say=said.append)
        lists(itertools.islice(batches, done))
        state = stored(batches.state(), tmp_path)
        batches.close()
        source = make(tmp_path / "run", 0)
        assert lists(streams.Pass(source, 7, state, say=said.append)) == whole[done:], done
        if kind not in ("generator", "state that is not restored"):  # the next pass starts at the beginning
            assert lists(itertools.islice(streams.Pass(source, 7), 3)) == whole[:3]
    once = len([text for text in said if text.startswith("To resume within a pass")])
    assert once == (kind in ("webdataset", "without state", "generator"))
    if kind in CONTINUED:
        assert said == []
    elif not once:
        assert any("does not continue exactly from its state" in text for text in said)


@pytest.mark.parametrize("kind", ["huggingface", "webdataset", "state with a buffer"])
def test_a_killed_run_goes_on_bit_equal(kind, tmp_path):
    needs(kind)

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


def test_what_cannot_continue_is_one_sentence(said):
    def state_of(source, done=5):
        batches = streams.Pass(source, 1, say=said.append)
        lists(itertools.islice(batches, done))
        return batches.state()

    def refused(source, state):
        with pytest.raises(DataError) as error:
            streams.Pass(source, 1, state, say=said.append)
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


def test_a_state_that_cannot_be_saved_is_not_used(said):
    class Holding(Liar):
        def state_dict(self):
            return {"kept": object()}

    batches = streams.Pass(DataLoader(Holding(), batch_size=4), 1, say=said.append)
    whole = lists(itertools.islice(batches, 3))
    state = batches.state()
    assert (state["taken"], len(said)) == (None, 1)
    assert "'kept'" in said[0]
    again = lists(itertools.islice(streams.Pass(DataLoader(Holding(), batch_size=4), 1), 3))
    assert (again, lists(streams.Pass(DataLoader(Holding(), batch_size=4), 1, state))) == (whole, lists(batches))


def test_shuffling_without_a_seed_is_reported_once(said):
    datasets = pytest.importorskip("datasets")
    stream = datasets.IterableDataset.from_generator(stream_kinds.numbers, gen_kwargs={"shards": [0, 1, 2]})
    streams.Pass(stream.shuffle(seed=1, buffer_size=5), 1, say=said.append)
    assert said == []
    for _ in range(2):
        streams.Pass(stream.shuffle(buffer_size=5), 1, say=said.append)
    assert ["seed" in text for text in said] == [True]


def test_a_loader_left_early_starts_again():
    class Counted(IterableDataset):
        def __iter__(self):
            yield from range(8)

    loader = DataLoader(Counted(), batch_size=2)
    for _ in range(2):
        for batch in streams.Pass(loader, 1):
            assert batch.tolist() == [0, 1]
            break
