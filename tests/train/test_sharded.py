"""Checkpoints in shards: what two processes save comes back on any number of them, whatever happens to one of them."""

from __future__ import annotations

import json
import os
import pickle
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
import torch.distributed.checkpoint as dcp

from exactrun import checkpoint
from exactrun.adapters import sharded
from exactrun.checkpoint import CheckpointError
from exactrun.ranks import Ranks
from tests.train.shards import ABOUT, QUIET, look, put, whole

ONE = Ranks()
ROOT = Path(__file__).resolve().parents[2]


class Ended(NamedTuple):
    code: int
    messages: list[Any]
    error: str


class Nursery:
    """One process that has all imported, and forks ranks."""

    def __init__(self, out: Path, errors: Any) -> None:
        paths = os.pathsep.join([str(ROOT / "template"), *sys.path])
        self.out = out
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.train.shards"],
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1"},
            stdin=-1,
            stdout=-1,
            stderr=errors,
            text=True,
        )

    def __call__(
        self,
        what: str,
        run: Path,
        *given: object,
        world: int = 2,
        patience: float = 40,
        kill: tuple[int, ...] = (),
        after: float = 0.0,
    ) -> list[Ended]:
        asked = {"what": what, "run": str(run), "given": given, "world": world, "patience": patience}
        line = json.dumps(asked | {"kill": kill, "after": after, "out": str(self.out)})
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return [Ended(*each) for each in json.loads(self.process.stdout.readline())]

    def well(self, what: str, run: Path, *given: object, **options: Any) -> list[Any]:
        """The last message of rank 0; all ranks must succeed."""
        ended = self(what, run, *given, **options)
        assert [each.code for each in ended] == [0] * len(ended), ended
        return ended[0].messages[-1]


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nursery]:
    folder = tmp_path_factory.mktemp("ranks")
    with (folder / "errors").open("w") as errors:
        nursery = Nursery(folder / "out", errors)
        with nursery.process:
            yield nursery
            nursery.process.stdin.close()


def left(run: Path) -> list[str]:
    return sorted(path.name for path in (run / "checkpoints").iterdir() if path.name != ".lock")


# What is saved comes back.


def test_another_number_of_ranks_reads_it(tmp_path: Path, ranks: Nursery) -> None:
    ranks.well("saves", tmp_path, [1, 2])
    assert ranks.well("reads", tmp_path) == [2, 2, []]
    assert ranks.well("reads", tmp_path, world=1) == [2, 2, []]
    ranks.well("saves", tmp_path, [3], world=1)
    assert ranks.well("reads", tmp_path) == [3, 1, []]
    ranks.well("saves", tmp_path, [4, 5], world=3)
    assert ranks.well("reads", tmp_path) == [5, 3, []]
    assert left(tmp_path) == ["step-00000003", "step-00000004", "step-00000005"]


def test_each_rank_writes_its_own_and_no_number_twice(tmp_path: Path, ranks: Nursery) -> None:
    ranks.well("saves", tmp_path, [1])
    folder = tmp_path / "checkpoints/step-00000001"
    sizes = {path.name: path.stat().st_size for path in folder.iterdir()}
    own = ("__%d_0.distcp", "rank-%d.pt")
    assert set(sizes) == {".metadata", "manifest.json", "state.pt", *(name % rank for name in own for rank in (0, 1))}
    wide = whole(1)["wide"].nbytes
    assert all(wide / 2 < sizes[name] < 0.75 * wide for name in ("__0_0.distcp", "__1_0.distcp"))


def test_training_goes_on_to_the_same_numbers(tmp_path: Path, ranks: Nursery) -> None:
    """FSDP's shards of a model and AdamW; with the same number of ranks to the bit."""
    for folder in ("unbroken", "broken", "on one"):
        (tmp_path / folder).mkdir()
    assert [each.code for each in ranks("trains", tmp_path / "unbroken", 0, 8)] == [0, 0]
    for folder, world in (("broken", 2), ("on one", 1)):
        assert [each.code for each in ranks("trains", tmp_path / folder, 0, 5)] == [0, 0]
        ended = ranks("trains", tmp_path / folder, 5, 8, world=world)
        assert {each.code for each in ended} == {0}, ended
    unbroken = torch.load(tmp_path / "unbroken/0-8-2.pt")
    broken, on_one = torch.load(tmp_path / "broken/5-8-2.pt"), torch.load(tmp_path / "on one/5-8-1.pt")
    assert unbroken.keys() == broken.keys() == on_one.keys()
    assert sum("exp_avg_sq" in name for name in unbroken) == 4
    assert all(torch.equal(broken[name], unbroken[name]) for name in unbroken)
    assert all(torch.allclose(on_one[name], unbroken[name], rtol=1e-4, atol=1e-6) for name in unbroken)


def test_other_programs_read_the_shards(tmp_path: Path) -> None:
    path = put(ONE, tmp_path, 3)
    into = {name: torch.zeros_like(one) for name, one in whole(3).items()}
    with pytest.warns(UserWarning, match="single process"):
        dcp.load(into, checkpoint_id=path)
    assert all(torch.equal(into[name], one) for name, one in whole(3).items())


def test_the_newest_few_and_the_best_are_kept(tmp_path: Path) -> None:
    for step, metric in enumerate([5.0, 0.5, 2.0, float("nan"), 3.0, 4.0], start=1):
        put(ONE, tmp_path, step, keep=2, metric=metric)
    assert left(tmp_path) == [f"step-{step:08d}" for step in (2, 5, 6)]
    assert look(ONE, tmp_path).metric == 4.0


# Which is taken.


def test_any_flipped_bit_is_found_by_all(tmp_path: Path, ranks: Nursery) -> None:
    ranks.well("saves", tmp_path, [1, 2])
    assert ranks.well("flips", tmp_path, 0, 42) == [2, 42, 7]


@pytest.mark.parametrize("name", ["manifest.json", ".metadata", "__0_0.distcp", "state.pt", "rank-0.pt"])
def test_what_is_missing_is_named(name: str, tmp_path: Path) -> None:
    put(ONE, tmp_path, 1)
    (put(ONE, tmp_path, 2) / name).unlink()
    found = look(ONE, tmp_path)
    assert found.step == 1 and found.passed_over == [f"step-00000002 is skipped: {name} is missing."]
    shutil.rmtree(tmp_path / "checkpoints/step-00000001")
    with pytest.raises(CheckpointError, match=rf"No checkpoint in .* can be used.*{name} is missing.*another folder"):
        sharded.newest(tmp_path, ranks=ONE)


def test_none_is_none(tmp_path: Path) -> None:
    assert sharded.newest(tmp_path, ranks=ONE) is None


def test_another_run_is_said_once(tmp_path: Path, ranks: Nursery) -> None:
    ranks.well("saves", tmp_path, [1])
    first, second = ranks("reads", tmp_path, ABOUT | {"batch_size": 32})
    assert "resume with --batch-size 64, or start a new run in another folder" in first.error
    assert (second.code, second.error) == (QUIET, "")


def test_shards_and_whole_checkpoints_are_told_apart(tmp_path: Path) -> None:
    put(ONE, tmp_path / "shards", 1)
    for read in (checkpoint.newest, lambda run: checkpoint.load(run / "checkpoints/step-00000001")):
        with pytest.raises(CheckpointError, match="is a sharded checkpoint: resume with --fsdp"):
            read(tmp_path / "shards")
    checkpoint.save(tmp_path / "whole", 1, whole(1), {}, about=ABOUT)
    with pytest.raises(CheckpointError, match="is not a sharded checkpoint: resume without --fsdp"):
        sharded.newest(tmp_path / "whole", ranks=ONE)


@pytest.mark.parametrize(
    ("name", "shape", "messages"), [("wide", [1001, 8], "1001, 8"), ("none such", [1], "none such")]
)
def test_what_does_not_fit_is_a_sentence(name: str, shape: list[int], messages: str, tmp_path: Path) -> None:
    put(ONE, tmp_path, 1)
    found = sharded.newest(tmp_path, ranks=ONE)
    with pytest.raises(CheckpointError, match=r"does not match the model") as refused:
        found.fill({name: torch.zeros(shape)}, ranks=ONE)
    assert messages in str(refused.value) and "\n" not in str(refused.value)


def replaced(path: Path, name: str, data: bytes) -> None:
    """Another file in a checkpoint, with every sum right."""
    (path / name).write_bytes(data)
    manifest = json.loads((path / "manifest.json").read_text())
    del manifest["sha256 of the lines below"]
    manifest["files"][name] = {"bytes": len(data), "sha256": sharded.checkpoint.hashlib.sha256(data).hexdigest()}
    (path / "manifest.json").unlink()
    checkpoint.seal(path, **manifest)


class Runs:
    """Makes a folder when it is unpickled by whoever allows that."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> tuple:
        return os.mkdir, (str(self.folder),)


def test_nothing_in_a_list_of_shards_can_run(tmp_path: Path) -> None:
    path, ran = put(ONE, tmp_path, 1), tmp_path / "ran"
    with (path / ".metadata").open("rb") as file:
        metadata = sharded._List(file).load()
    metadata.planner_data = Runs(ran)
    replaced(path, ".metadata", pickle.dumps(metadata))
    with pytest.raises(CheckpointError, match=r"\.metadata is intact, but it names posix\.mkdir"):
        sharded.newest(tmp_path, ranks=ONE)
    assert not ran.exists()
    with (path / ".metadata").open("rb") as file:
        pickle.load(file)
    assert ran.exists(), "this proves nothing"


def test_a_list_of_shards_names_no_file_elsewhere(tmp_path: Path) -> None:
    path = put(ONE, tmp_path, 1)
    with (path / ".metadata").open("rb") as file:
        metadata = sharded._List(file).load()
    next(iter(metadata.storage_data.values())).relative_path = "../../secret"
    replaced(path, ".metadata", pickle.dumps(metadata))
    with pytest.raises(CheckpointError, match=r"\.metadata names \.\./\.\./secret, which is not part"):
        sharded.newest(tmp_path, ranks=ONE)


def test_what_is_no_tensor_is_not_unpickled(tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    with pytest.warns(UserWarning, match="single process"):
        dcp.save({"wide": Runs(ran)}, checkpoint_id=tmp_path / "other")
    with (tmp_path / "other/.metadata").open("rb") as file:
        metadata = pickle.load(file)
    metadata.storage_meta = None  # it names the folder by an object of pathlib
    path = put(ONE, tmp_path, 1)
    replaced(path, ".metadata", pickle.dumps(metadata))
    replaced(path, "__0_0.distcp", (tmp_path / "other/__0_0.distcp").read_bytes())
    found = sharded.newest(tmp_path, ranks=ONE)
    with pytest.raises(CheckpointError, match="wide is not a tensor"):
        found.fill({"wide": torch.zeros(1)}, ranks=ONE)
    assert not ran.exists()
    with pytest.warns(UserWarning, match="single process"):
        dcp.load({"wide": torch.zeros(1)}, checkpoint_id=path)
    assert ran.exists(), "this proves nothing"


# What happens while it is saved.


def test_all_is_forced_to_the_disk_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done, really, rename = [], os.fsync, Path.rename

    def fsync(file: int) -> None:
        done.append(Path(f"/proc/self/fd/{file}").readlink().name)
        really(file)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(Path, "rename", lambda this, to: (done.append(f"-> {to.name}"), rename(this, to))[1])
    put(ONE, tmp_path, 1)
    spare = next(name for name in done if name.startswith(".step-00000001."))
    named = done.index("-> step-00000001")
    assert set(done[:named]) > {"__0_0.distcp", ".metadata", "state.pt", "rank-0.pt", "manifest.json"}
    assert done[named - 1 :] == [spare, "-> step-00000001", "checkpoints"]


def test_killed_at_any_moment_the_run_resumes(tmp_path: Path, ranks: Nursery) -> None:
    """Either rank, or both. Who is left says so in one sentence, and the newest is whole."""
    chance = random.Random(0)
    ranks.well("saves", tmp_path, [1])
    begun = time.perf_counter()
    ranks.well("saves", tmp_path, [1] * 10)
    took = (time.perf_counter() - begun) / 10
    caught = step = 0
    for number in range(30):
        kill = ((0,), (1,), (0, 1))[number % 3]
        ended = ranks("goes_on", tmp_path, 1000, kill=kill, after=chance.uniform(0, 3 * took))
        assert all(ended[rank].code == -9 for rank in kill), ended
        for one in (each for rank, each in enumerate(ended) if rank not in kill):
            assert one.code == 1 and "\n" not in one.error, one
            assert "was not saved in" in one.error and "run the same command again" in one.error
        caught += any((tmp_path / "checkpoints").glob(".*.tmp"))
        found = look(ONE, tmp_path)
        assert found.step >= step and found.passed_over == []
        step = found.step
    assert caught > 5, "no kill met a save: this proves nothing"
    ranks.well("goes_on", tmp_path, 1)
    assert left(tmp_path) == [f"step-{step + more:08d}" for more in (0, 1)]


@pytest.mark.parametrize("how", ["killed", "hangs"])
@pytest.mark.parametrize("who", [0, 1])
def test_a_rank_that_is_gone_in_mid_save(who: int, how: str, tmp_path: Path, ranks: Nursery) -> None:
    ranks.well("saves", tmp_path, [1])
    ended = ranks("dies", tmp_path, who, how, patience=2)
    other = ended[1 - who]
    assert (other.code, "written" in ended[who].messages) == (1, how == "hangs"), ended
    assert other.error.startswith("Step 2 was not saved in ") and "has ended or does not respond" in other.error
    assert ended[who].code == (-9 if how == "killed" else 1)
    assert "step-00000002" not in left(tmp_path)
    assert ranks.well("reads", tmp_path) == [1, 2, []]
    ranks.well("saves", tmp_path, [3])
    assert left(tmp_path) == ["step-00000001", "step-00000003"]


def test_a_folder_that_is_not_the_same_everywhere(tmp_path: Path, ranks: Nursery) -> None:
    ranks.well("saves", tmp_path, [1])
    first, second = ranks("dies", tmp_path, 1, "elsewhere")
    assert "is not the same folder on every machine (rank 0 does not find rank-1.pt)" in first.error
    assert (second.code, second.error) == (QUIET, "")
    assert left(tmp_path) == ["step-00000001"]


@pytest.mark.parametrize("who", [0, 1])
def test_one_rank_cannot_write(who: int, tmp_path: Path, ranks: Nursery) -> None:
    """DCP tells all of them what went wrong on one; one says it."""
    ranks.well("saves", tmp_path, [1])
    first, second = ranks("too_large", tmp_path, who)
    assert (first.code, second.code, second.error) == (1, QUIET, "")
    assert "raise the limit that `ulimit -f` shows. Earlier checkpoints are unchanged." in first.error
    assert left(tmp_path) == ["step-00000001"]
    assert ranks.well("reads", tmp_path) == [1, 2, []]


def test_a_full_disk(tmp_path: Path, ranks: Nursery) -> None:
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", tmp_path], capture_output=True).returncode:
        pytest.skip("needs to mount a small disk")
    try:
        ranks.well("saves", tmp_path / "run", [1])
        first, second = ranks("full", tmp_path / "run")
        names, room = left(tmp_path / "run"), shutil.disk_usage(tmp_path).free
        assert ranks.well("reads", tmp_path / "run") == [1, 2, []]
    finally:
        subprocess.run(["umount", tmp_path], check=True)
    assert "cannot be read or written (No space left on device): free some space" in first.error
    assert (first.code, second.code, second.error) == (1, QUIET, "")
    assert names == ["step-00000001"] and room > 7 << 20


def test_room_is_looked_for_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    little = os.statvfs_result((4096, 4096, 1000, 1000, 5, 0, 0, 0, 0, 255))
    monkeypatch.setattr(os, "statvfs", lambda path: little)
    with pytest.raises(CheckpointError, match=r"has [\d.]+ MB free, but the checkpoint needs [\d.]+ MB: free space"):
        put(ONE, tmp_path, 1)
    assert left(tmp_path) == []


def test_a_folder_that_may_not_be_written(tmp_path: Path, ranks: Nursery) -> None:
    ranks.well("saves", tmp_path, [1])
    for path in (*tmp_path.rglob("*"), tmp_path, *tmp_path.parents):
        if path.stat().st_mode & 0o005 != 0o005:
            path.chmod(0o755)
    (tmp_path / "checkpoints").chmod(0o555)
    (tmp_path / "checkpoints/.lock").chmod(0o666)
    first, second = ranks("nobody", tmp_path)
    assert "checkpoints cannot be read or written (Permission denied): change its owner or mode" in first.error
    assert (first.code, second.code, second.error) == (1, QUIET, "")
    assert ranks.well("reads", tmp_path) == [1, 2, []]


@pytest.mark.parametrize(
    ("given", "messages"),
    [({"state": {"f": print}}, r"state\['f'\] is a builtin"), ({"own": {"p": Path("x")}}, r"own\['p'\] is a pathlib")],
)
def test_what_could_not_be_loaded_is_refused(given: dict, messages: str, tmp_path: Path) -> None:
    put(ONE, tmp_path, 1)
    what = {"state": {}, "own": {}} | given
    with pytest.raises(CheckpointError, match=messages):
        sharded.save(tmp_path, 2, whole(2), what["state"], what["own"], ranks=ONE, about=ABOUT)
    assert left(tmp_path) == ["step-00000001"]


def test_only_one_run_saves_there(tmp_path: Path, ranks: Nursery) -> None:
    with checkpoint.claim(tmp_path):
        first, second = ranks("saves", tmp_path, [1])
    assert "Another process writes to" in first.error
    assert (first.code, second.code, second.error) == (1, QUIET, "")
