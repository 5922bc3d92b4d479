import itertools
import random
import weakref

import numpy
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, Sampler, WeightedRandomSampler

from exactrun import seeds
from exactrun.data import Batch, Keyed, collated
from exactrun.passes import View
from exactrun.seeds import mix

NAMED = numpy.random.default_rng()


class Slotted:
    """A transform without a __dict__."""

    __slots__ = ("drawn",)

    def __init__(self):
        self.drawn = random.Random()

    def __call__(self):
        return self.drawn.random()


class Guarded:
    """It looks up every name elsewhere, as wandb's summary, so that questions to it may raise any error."""

    __slots__ = ("__drawn", "later")

    def __init__(self, drawn):
        self.__drawn = drawn

    def __getattr__(self, name):
        raise KeyError(name)


def recursive():
    """A function whose closure has a variable without a value."""

    second = None

    def first():
        return second()  # noqa: F821 (which is what is tested)

    del second
    return first


def test_generators_are_found_behind_what_cannot_be_asked():
    drawn = random.Random()
    gone = weakref.proxy(Augmented())
    assert seeds.generators([Guarded(drawn), recursive(), gone]) == [drawn]


class Augmented(Dataset):
    """Every way to draw a random number that a sample may use, how often depending on the sample."""

    shared = numpy.random.default_rng()

    def __init__(self, length=40):
        self.length = length
        self.slotted = Slotted()
        self.modern = numpy.random.default_rng()
        self.own = random.Random()
        self.transforms = [lambda value: value + self.torch_own(), torch.nn.Dropout(0.5)]
        generator = torch.Generator()
        self.torch_own = lambda: torch.rand((), generator=generator)

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        drawn = [random.random(), numpy.random.rand(), self.modern.normal(), self.own.gauss(0, 1)]
        drawn += [NAMED.random(), self.shared.random(), self.slotted()]
        noise = torch.randn(1 + index % 3).sum() + numpy.random.default_rng(numpy.random.randint(2**63)).random()
        return torch.tensor([*drawn, self.transforms[0](noise), self.transforms[1](torch.ones(8)).sum(), index])


class Sometimes(Dataset):
    """Samples that draw in different ways, or not at all, and whose second generator is only created with the first."""

    def __init__(self):
        self.own = numpy.random.RandomState(3)
        self.late = None

    def __getitem__(self, index):
        self.late = self.late or random.Random(3)
        ways = (
            float,
            lambda: torch.rand(()).item(),
            random.random,
            numpy.random.randn,
            self.own.rand,
            self.late.random,
        )
        return torch.tensor([index, ways[index % 7 % 6](), ways[index % 11 % 6]()], dtype=torch.float64)


class Plain(Dataset):
    """Draws nothing, except where `rarely` says so; counts what is asked of it."""

    def __init__(self, rarely=(), length=40):
        self.rarely = rarely
        self.length = length
        self.single = 0
        self.batched = 0

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        self.single += 1
        return index + (torch.rand(()).item() if index in self.rarely else 0.0)


class Batched(Plain):
    def __getitems__(self, indices):
        self.batched += 1
        return [self[index] for index in indices]


class Wide(Dataset):
    """Sums whose last bits depend on the number of threads."""

    def __len__(self):
        return 4

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        wide = torch.rand(300_000, generator=generator)
        return torch.stack([wide.mean(), wide.std(), (wide / 3).sum()])


def noisy_collate(samples):
    return torch.stack(samples) + torch.rand(())


def loader(dataset, size, key, *, first=0, workers=0, collate=None):
    """The batches of a pass from `first` on, with seeds for each sample."""
    options = {"shuffle": True, "num_workers": workers, "collate_fn": collate}
    return View(DataLoader(dataset, size, **options), each=True).batches(key, first)


def take(batches, count):
    """That many batches, as lists of bytes: bits are compared, not numbers."""
    return [batch.numpy().tobytes() for batch in itertools.islice(batches, count)]


def test_mix_stays_what_it_is():
    assert mix(0) == 0xE220A8397B1DCDAF  # splitmix64's own first number
    assert (mix(1), mix(1, 2), mix(2, 1)) == (0xE4D971771B652C20, 0x51B01D53CA27E54D, 0xB554DB55F29981A6)
    assert mix(-1) == mix(2**64 - 1)


@pytest.mark.filterwarnings("ignore:This DataLoader will create")
@pytest.mark.parametrize("collate", [None, noisy_collate])
def test_batches_are_bit_equal_for_any_number_of_workers_and_from_any_step(collate):
    def run(workers, first, count):
        return take(loader(Augmented(88), 8, 5, first=first, workers=workers, collate=collate), count)

    whole = run(0, 0, 11)
    assert len(set(whole)) == 11
    assert run(2, 0, 11) == whole
    assert run(4, 5, 6) == whole[5:]
    assert run(0, 7, 4) == whole[7:]


def test_workers_sum_as_the_training_process_does():
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        alone, workers = (take(loader(Wide(), 2, 0, workers=count), 2) for count in (0, 2))
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(threads)
    assert alone == workers


def drawn():
    """What the training process would draw next from each global generator, and from NAMED."""
    torch.manual_seed(1)
    random.seed(1)
    numpy.random.seed(1)
    numpy.random.randn(), random.gauss(0, 1), torch.randn(1)  # they keep a second normal number
    yield
    yield numpy.random.randn(2).tolist(), random.gauss(0, 1), random.random(), torch.randn(2).tolist()


def together(samples):
    return torch.stack(samples) + random.random()


KEYS = [mix(7, epoch) for epoch in range(2)]
INDICES = [[place * place % 37 for place in range(start, start + 8)] for start in range(0, 96, 8)]  # some come again
READ = {
    "batch": [Batch(mix(KEYS[number // 6], number), indices) for number, indices in enumerate(INDICES)],
    "sample": [[(KEYS[number // 6], index) for index in indices] for number, indices in enumerate(INDICES)],
}


@pytest.mark.filterwarnings("ignore:This DataLoader will create")
@pytest.mark.parametrize("seeded", READ)
def test_a_loader_of_ones_own_is_bit_equal_for_any_number_of_workers(seeded):
    """With a sampler that repeats indices, keys of two epochs, a collate that draws, and `spawn`."""
    state = drawn()
    next(state)
    expected = next(state)
    seen = []
    for workers, context in ((0, None), (1, "spawn"), (2, None), (4, None)):
        state = drawn()
        next(state)
        batches = DataLoader(
            Keyed(Sometimes(), together),
            batch_sampler=READ[seeded],
            collate_fn=collated,
            num_workers=workers,
            multiprocessing_context=context,
            generator=torch.Generator(),
        )
        seen.append(take(batches, 12))
        assert next(state) == expected, workers
    assert seen[1:] == seen[:1] * 3
    assert len(set(take(map(Keyed(Sometimes()).__getitems__, (Batch(key, INDICES[0]) for key in KEYS)), 2))) == 2
    again = Keyed(Sometimes(), together)
    assert [again.__getitems__(batch).numpy().tobytes() for batch in reversed(READ[seeded])] == seen[0][::-1]


def test_a_sample_draws_the_same_in_any_batch_if_it_has_a_seed_of_its_own():
    keyed = Keyed(Sometimes(), list)
    whole = keyed.__getitems__([(KEYS[0], index) for index in range(37)])
    halves = [each for half in (range(20), range(20, 37)) for each in keyed.__getitems__([(KEYS[0], i) for i in half])]
    assert torch.equal(torch.stack(whole), torch.stack(halves))
    other = keyed.__getitems__([(KEYS[1], index) for index in range(37)])
    same = torch.stack(whole) == torch.stack(other)
    drew = torch.stack(whole)[:, 1:] != 0
    assert drew.sum() > 25
    assert not (same[:, 1:] & drew).any()


class Draws(Sampler):
    """A batch sampler that draws for each batch, also from a generator of its own."""

    def __init__(self):
        self.generator = torch.Generator().manual_seed(1)

    def __len__(self):
        return 5

    def __iter__(self):
        for _ in range(len(self)):
            own = torch.randint(40, (2,), generator=self.generator).tolist()
            yield [random.randrange(40), numpy.random.randint(40), *own]


LOADERS = {
    "shuffled": {"batch_size": 8, "shuffle": True},
    "with replacement": {"batch_size": 8, "sampler": WeightedRandomSampler(torch.ones(40), 40)},
    "batch sampler": {},
    "no batches": {"batch_size": None, "sampler": range(5)},
}


@pytest.mark.parametrize("each", [False, True])
@pytest.mark.parametrize("name", LOADERS)
def test_a_pass_continues_at_any_batch(name, each):
    def view(workers):
        options = LOADERS[name] or {"batch_sampler": Draws()}
        return View(DataLoader(Augmented(), num_workers=workers, **options), each)

    def rest(key, done=0, workers=0):
        made = view(workers)
        state = made.begin(key, None).state() | {"done": done}
        return take(made.begin(key, state), 9)

    whole = rest(7)
    assert len(set(whole)) == len(whole) == 5
    for done in range(6):
        assert rest(7, done) == whole[done:]
    assert rest(7, 2, workers=2) == whole[2:]
    assert not set(rest(8)) & set(whole)


class Growing(Sampler):
    size = 4

    def __iter__(self):
        return iter(torch.randperm(self.size).tolist())

    def __len__(self):
        return self.size


def test_the_length_of_a_sampler_may_change_with_each_pass():
    """A resumed run begins with a later pass, which has another length."""
    sampler = Growing()
    loader = DataLoader(Augmented(), sampler=sampler)
    whole = View(loader)
    whole.begin(1, None)
    sampler.size = 6
    state = whole.begin(7, None).state() | {"done": 2}
    resumed = View(loader)
    assert resumed.place == whole.place
    assert take(resumed.begin(7, state), 9) == take(whole.begin(7, None), 9)[2:]


def test_a_normal_number_that_numpy_has_kept_is_kept_apart():
    """It is drawn without a change of the generator's words."""
    state = drawn()
    own = numpy.random.get_bit_generator()
    next(state)
    before = seeds.snapshot()
    expected = next(state)
    state = drawn()
    next(state)
    found = []
    for _ in range(2):
        with seeds.Seeds().apart():
            seeds.Seeds().seed(5)
            found.append(numpy.random.randn())
            with seeds.Seeds().apart():
                seeds.Seeds().seed(6)
                numpy.random.randn()
            found.append(numpy.random.randn(2).tolist())
    assert found[:2] == found[2:]
    assert numpy.random.get_bit_generator() is own
    assert next(state) == expected
    seeds.restore(before)
    assert [numpy.random.randn(2).tolist(), random.gauss(0, 1)] == list(expected[:2])


def test_a_keyed_data_set_is_the_data_set_otherwise():
    named = {"a": numpy.arange(3.0), (1, 2): numpy.ones(1)}
    batches = torch.utils.data.DataLoader(
        Keyed(named, torch.from_numpy), sampler=[(5, "a"), (5, (1, 2))], batch_size=None, collate_fn=collated
    )
    assert [len(batch) for batch in batches] == [3, 1]
    keyed = Keyed(Plain(rarely=(3,)))
    keyed.rarely = ()
    assert (len(keyed), keyed.dataset.rarely, keyed.single) == (40, (), 0)
    assert not hasattr(keyed, "other")


def test_a_batched_fetch_is_used_for_a_batch_with_one_seed():
    keyed = Keyed(Batched())
    assert keyed.__getitems__(Batch(1, [3, 4])).tolist() == keyed.__getitems__([(1, 3), (1, 4)]).tolist() == [3, 4]
    assert keyed.batched == 3  # two with the first sample alone, which shows what it draws from
