"""Checkpoints: what is saved comes back, bit for bit, whatever happens while it is saved or to what was saved."""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
import random
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch", exc_type=ImportError)
from exactrun import checkpoint, hashed  # noqa: E402
from exactrun.checkpoint import CheckpointError, load, newest, save  # noqa: E402
from exactrun.run import Run  # noqa: E402

ABOUT = {"batch_size": 64, "seed": 0, "samples": 1000}
FILES = ("model.pt", "state.pt", "manifest.json")
GPUKIT = Path(checkpoint.__file__).resolve().parents[2]


def weights(step: int, size: int = 1000) -> dict[str, torch.Tensor]:
    return {"layer.weight": torch.arange(size) + 0.5 * step, "layer.bias": torch.full((3,), float(step))}


def state(step: int) -> dict:
    return {"step": step, "optimizer": {"state": {0: {"exp_avg": torch.full((500,), float(step))}}}}


def put(run: Path, step: int, **given: object) -> Path:
    return save(run, step, weights(step), state(step), **{"about": ABOUT} | given)


def same(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Bit for bit: NaN is itself and 0.0 is not -0.0."""
    bits = [tensor.resolve_conj().contiguous().reshape(-1).view(torch.uint8) for tensor in (one, other)]
    return one.dtype == other.dtype and one.shape == other.shape and torch.equal(*bits)


def assert_of_step(loaded: checkpoint.Loaded | None, step: int) -> None:
    assert loaded is not None and loaded.step == loaded.state["step"] == step
    assert all(same(loaded.weights[name], tensor) for name, tensor in weights(step).items())
    assert same(loaded.state["optimizer"]["state"][0]["exp_avg"], torch.full((500,), float(step)))


def steps(run: Path) -> list[int]:
    return sorted(int(path.name[5:]) for path in (run / "checkpoints").glob("step-*"))


NURSERY = """
import json, os, sys, traceback
sys.path[:0] = json.loads(sys.argv[1])
from test_checkpoint import *
import resource, signal, time
torch.set_num_threads(1)
for line in sys.stdin:
    source, arguments, out = json.loads(line)
    child = os.fork()
    if not child:
        os.dup2(os.open(out, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 1)
        sys.argv[1:], status = arguments, 1
        try:
            exec(source)
            status = 0
        except BaseException:
            traceback.print_exc()
        sys.stdout.flush()
        os._exit(status)
    print(os.waitpid(child, 0)[1], flush=True)
"""


@pytest.fixture(scope="module")
def in_child(tmp_path_factory: pytest.TempPathFactory):
    """`in_child(code, *arguments)` -> what it prints, in a process of its own that has all names of this file."""
    here = json.dumps([str(GPUKIT), str(Path(__file__).parent)])
    with (tmp_path_factory.mktemp("checkpoints") / "errors").open("w+") as errors:
        command = [sys.executable, "-c", NURSERY, here]
        with subprocess.Popen(command, text=True, stdin=-1, stdout=-1, stderr=errors) as nursery:

            def run(code: str, *arguments: object) -> str:
                out = Path(errors.name).with_name("out")
                request = [textwrap.dedent(code), [str(argument) for argument in arguments], str(out)]
                nursery.stdin.write(json.dumps(request) + "\n")
                nursery.stdin.flush()
                status = nursery.stdout.readline().strip()
                assert status == "0", Path(errors.name).read_text()
                return out.read_text()

            yield run
            nursery.stdin.close()


# What is saved comes back.


def test_every_kind_of_tensor_comes_back_bit_for_bit(tmp_path: Path) -> None:
    base = torch.randn(6, 8, generator=torch.Generator().manual_seed(0))
    given = {
        str(dtype)[6:]: (100 * base).to(dtype)
        for dtype in (torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int8, torch.uint8, torch.uint16)
    }
    given |= {
        "bool": base > 0,
        "fp8": base.to(torch.float8_e4m3fn),
        "complex64": torch.complex(base, -base),
        "complex128": torch.complex(base.double(), -base.double()),
        "conjugated": torch.complex(base, base).conj(),
        "0-d": torch.tensor(math.nan),
        "empty": torch.empty(0, 3),
        "negative zero": torch.tensor([-0.0, math.inf]),
        "transposed": base.t(),
        "strided": base[::2, 1::3],
        "expanded": base[:1].expand(4, 8),
        "channels last": torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
        "parameter": torch.nn.Parameter(base.clone()),
        "%s ünicode \"quoted'": torch.ones(1),
    }
    save(tmp_path, 1, given, {}, about={})
    found = newest(tmp_path).weights
    assert list(found) == list(given)
    assert all(same(found[name], tensor.detach()) for name, tensor in given.items())


def test_tied_weights_are_written_once_and_are_tied_again(tmp_path: Path) -> None:
    embedding = torch.randn(1000, 16)
    overlapping = torch.arange(20.0)
    given = {
        "embedding": embedding,
        "head": embedding,
        "first": overlapping[:15],
        "second": overlapping[5:],
        "transposed": embedding.t(),
    }
    path = save(tmp_path, 1, given, {}, about={})
    found = load(path).weights
    assert found["head"].data_ptr() == found["embedding"].data_ptr()
    assert list(found) != [] and set(found) == set(given)
    assert all(same(found[name], tensor) for name, tensor in given.items())
    assert (path / "model.pt").stat().st_size < 1.1 * embedding.nbytes


def test_files_of_many_chunks_are_what_the_manifest_says(tmp_path: Path) -> None:
    large = torch.randn(3 * hashed.BUFFER // 4 + 5)
    plain = [None, True, 2**70, 1.5, 1j, "text", b"bytes", {1, 2}, (torch.float16, torch.Size([2]))]
    path = save(tmp_path, 1, {"a": large, "b": large[7:100]}, {"plain": plain}, about={})
    manifest = json.loads((path / "manifest.json").read_text())
    for name, entry in manifest["files"].items():
        data = (path / name).read_bytes()
        assert entry == {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    found = newest(tmp_path)
    assert same(found.weights["a"], large) and same(found.weights["b"], large[7:100])
    assert found.state["plain"] == plain


class Custom(dict):
    pass


@pytest.mark.parametrize(
    ("value", "messages"),
    [
        (lambda: None, "is a function"),
        (Path("x"), "PosixPath"),
        (Custom(), "Custom"),
        (torch.eye(3).to_sparse(), "torch.sparse_coo"),
        (torch.empty(2, device="meta"), "on meta"),
        ({("a", object()): 1}, "object"),
    ],
)
def test_what_could_not_be_loaded_is_refused_when_it_is_saved(value: object, messages: str, tmp_path: Path) -> None:
    put(tmp_path, 1)
    with pytest.raises(CheckpointError, match=r"state\['here'\]\[1\] ?") as refused:
        save(tmp_path, 2, weights(2), {"here": [1, value]}, about=ABOUT)
    assert messages in str(refused.value) and "\n" not in str(refused.value)
    assert_of_step(newest(tmp_path, about=ABOUT), 1)
    assert not list((tmp_path / "checkpoints").glob(".*tmp"))


# Which are kept.


def test_the_newest_few_and_the_best_are_kept(tmp_path: Path) -> None:
    for step, metric in enumerate([math.nan, 5.0, 0.5, 2.0, math.inf, 3.0, -math.inf, 4.0, 0.5], start=1):
        put(tmp_path, step, keep=2, metric=metric)
    assert steps(tmp_path) == [3, 8, 9]
    manifests = [json.loads(path.read_text()) for path in sorted((tmp_path / "checkpoints").glob("*/manifest.json"))]
    assert [manifest["metric"] for manifest in manifests] == [0.5, 4.0, 0.5]


def test_what_cannot_be_read_is_neither_counted_nor_removed(tmp_path: Path) -> None:
    for step in (10, 20, 30):
        put(tmp_path, step)
    (tmp_path / "checkpoints/step-00000030/manifest.json").unlink()
    assert_of_step(newest(tmp_path), 20)
    put(tmp_path, 25, keep=2)
    assert steps(tmp_path) == [20, 25, 30]
    put(tmp_path, 30, keep=2)  # the run came by again
    assert_of_step(newest(tmp_path), 30)


def test_killed_while_a_step_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = put(tmp_path, 5)
    really = Path.rename
    renamed = []

    def rename(this: Path, to: Path) -> Path:
        renamed.append(to)
        if to == path:
            raise KeyboardInterrupt
        return really(this, to)

    monkeypatch.setattr(Path, "rename", rename)
    with pytest.raises(KeyboardInterrupt):
        put(tmp_path, 5)
    assert len(renamed) == 2
    assert_of_step(newest(tmp_path), 5)


# Which is taken.


def damage(path: Path, what: str) -> None:
    if what == "missing":
        (path / "state.pt").unlink()
    elif what == "short":
        os.truncate(path / "model.pt", 100)
    elif what == "no manifest":
        (path / "manifest.json").unlink()
    elif what == "empty manifest":
        (path / "manifest.json").write_bytes(b"")
    elif what == "renamed":
        shutil.move(path, path.with_name("step-00000099"))
    else:  # another format, and every sum right
        _, _, below = (path / "manifest.json").read_bytes().partition(b"\n")
        below = below.replace(f'"format": {checkpoint.FORMAT}'.encode(), b'"format": 7')
        first = f'{{"sha256 of the lines below": "{hashlib.sha256(below).hexdigest()}",\n'
        (path / "manifest.json").write_bytes(first.encode() + below)


@pytest.mark.parametrize(
    ("what", "messages"),
    [
        ("missing", "step-00000002 is skipped: state.pt is missing."),
        ("short", "model.pt has 100 bytes instead of"),
        ("no manifest", "manifest.json is missing"),
        ("empty manifest", "manifest.json has a wrong checksum"),
        ("renamed", "step-00000099 is skipped: its name does not match its step, 2."),
    ],
)
def test_what_is_damaged_is_passed_over_and_named(what: str, messages: str, tmp_path: Path) -> None:
    put(tmp_path, 1)
    path = put(tmp_path, 2)
    damage(path, what)
    loaded = newest(tmp_path, about=ABOUT)
    assert_of_step(loaded, 1)
    assert len(loaded.passed_over) == 1 and messages in loaded.passed_over[0]
    if path.exists():
        with pytest.raises(CheckpointError, match="cannot be used"):
            load(path)


def test_one_of_another_version_is_kept_and_told(tmp_path: Path) -> None:
    """It is intact: if it were skipped, it would be overwritten when training reached its step again."""
    put(tmp_path, 1)
    path = put(tmp_path, 2)
    damage(path, "format")
    for read in (lambda: newest(tmp_path, about=ABOUT), lambda: load(path)):
        with pytest.raises(CheckpointError, match=r"has format 7.*reads format \d"):
            read()
    put(tmp_path, 3)
    assert path.is_dir()


def test_any_flipped_bit_is_found(tmp_path: Path) -> None:
    put(tmp_path, 1)
    path = put(tmp_path, 2)
    chance = random.Random(0)
    for name in FILES:
        data = (path / name).read_bytes()
        for bit in chance.sample(range(8 * len(data)), 30):
            flipped = bytearray(data)
            flipped[bit // 8] ^= 1 << bit % 8
            (path / name).write_bytes(flipped)
            loaded = newest(tmp_path, about=ABOUT)
            assert loaded.step == 1, (name, bit)
            assert loaded.passed_over[0].startswith(f"step-00000002 is skipped: {name} has a wrong ")
        (path / name).write_bytes(data)
    assert_of_step(newest(tmp_path), 2)


def test_none_is_none_and_none_whole_is_an_error(tmp_path: Path) -> None:
    assert newest(tmp_path) is None and not checkpoint.exists(tmp_path)
    (tmp_path / "checkpoints/.step-00000001.tmp").mkdir(parents=True)
    assert newest(tmp_path) is None and not checkpoint.exists(tmp_path)
    for step in (1, 2):
        damage(put(tmp_path, step), "missing" if step == 1 else "short")
    assert checkpoint.exists(tmp_path)
    with pytest.raises(CheckpointError, match=r"step-00000002.*bytes.*step-00000001.*state\.pt is missing.*folder"):
        newest(tmp_path)


MODEL = {"fc.weight": "float32 [10, 5]", "fc.bias": "float32 [10]"}


@pytest.mark.parametrize(
    ("change", "messages"),
    [
        ({"batch_size": 32}, "batch_size = 64, but this run has 32: resume with the same, or start a new run"),
        ({"model": MODEL | {"fc.bias": "float32 [12]"}}, "fc.bias is float32 [10] there and float32 [12] here"),
        ({"model": MODEL | {"new": "float32 [1]"}}, "new is absent there and float32 [1] here"),
    ],
)
def test_another_runs_checkpoint_is_an_error_that_names_the_difference(
    change: dict, messages: str, tmp_path: Path
) -> None:
    about = ABOUT | {"model": MODEL}
    put(tmp_path, 1, about=about)
    with pytest.raises(CheckpointError) as refused:
        newest(tmp_path, about=about | change)
    assert messages in str(refused.value) and "\n" not in str(refused.value)
    assert_of_step(newest(tmp_path, about=about), 1)


def test_nothing_runs_on_loading(tmp_path: Path) -> None:
    """A state that would run something, put there with every sum right."""

    class Runs:
        def __reduce__(self) -> tuple:
            return os.mkdir, (str(tmp_path / "ran"),)

    path = put(tmp_path, 1)
    torch.save({"step": Runs()}, path / "state.pt")
    manifest = json.loads((path / "manifest.json").read_text())
    data = (path / "state.pt").read_bytes()
    manifest["files"]["state.pt"] = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    manifest.pop("sha256 of the lines below")
    below = json.dumps(manifest)[1:].encode()
    first = f'{{"sha256 of the lines below": "{hashlib.sha256(below).hexdigest()}",\n'
    (path / "manifest.json").write_bytes(first.encode() + below)
    with pytest.raises(CheckpointError, match=r"state\.pt is intact, but torch"):
        newest(tmp_path)
    assert not (tmp_path / "ran").exists()


# What happens while it is saved.


def test_all_is_forced_to_the_disk_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No loss of power can be tried here: at least the order is right."""
    done = []
    really = os.fsync
    rename = Path.rename

    def fsync(file: int) -> None:
        done.append(Path(f"/proc/self/fd/{file}").readlink().name)
        really(file)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(Path, "rename", lambda this, to: (done.append("rename"), rename(this, to)))
    put(tmp_path, 1)
    assert set(done[1:4]) == set(FILES)
    assert (done[0], *done[4:]) == (tmp_path.name, ".step-00000001.tmp", "rename", "checkpoints")


@pytest.mark.parametrize("number", [errno.EINVAL, errno.ENOTSUP, errno.EROFS, errno.EIO])
def test_fsync_may_be_unsupported_but_not_fail(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fsync(file: int) -> None:
        raise OSError(number, os.strerror(number))

    (tmp_path / "checkpoints").mkdir()
    monkeypatch.setattr(os, "fsync", fsync)
    if number == errno.EIO:
        with pytest.raises(CheckpointError, match=r"cannot be read or written \(Input/output error\): check its disk"):
            put(tmp_path, 1)
        assert steps(tmp_path) == []
    else:
        put(tmp_path, 1)
        assert_of_step(newest(tmp_path), 1)


def test_a_folder_that_was_deleted_is_one_sentence(tmp_path: Path) -> None:
    with checkpoint.claim(tmp_path / "run"):
        put(tmp_path / "run", 1)
        shutil.rmtree(tmp_path / "run")
        with pytest.raises(CheckpointError, match=r"checkpoints .*\(No such file or directory\): it was deleted"):
            put(tmp_path / "run", 2)


KILLED = """
    run, kills, chance = Path(sys.argv[1]), int(sys.argv[2]), random.Random(0)
    put(run, 1)
    begun = time.perf_counter()
    for _ in range(3):
        put(run, 1)
    took = (time.perf_counter() - begun) / 3
    caught = 0
    for kill in range(kills):
        step = newest(run, about=ABOUT).step
        ready, say = os.pipe()
        child = os.fork()
        if not child:
            os.write(say, b".")
            for number in range(step + 1, step + 1000):
                put(run, number, keep=2)
            os._exit(0)
        os.read(ready, 1)
        time.sleep(chance.uniform(0, 3 * took))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(ready), os.close(say)
        caught += any((run / "checkpoints").glob(".*.tmp"))
        loaded = newest(run, about=ABOUT)
        assert_of_step(loaded, loaded.step)
        assert loaded.step >= step and not loaded.passed_over
    print(caught)
    put(run, loaded.step + 1)
    print(*(path.name for path in (run / "checkpoints").glob(".*.tmp")))
"""


def test_killed_at_any_moment_the_run_resumes(tmp_path: Path, in_child) -> None:
    caught, left = in_child(KILLED, tmp_path, 30).splitlines()
    assert int(caught) > 2, "no kill met a save: this proves nothing"
    assert left == ""


TOO_LARGE = """
    run = Path(sys.argv[1])
    os.statvfs = lambda path: os.statvfs_result((4096, 4096, 1 << 40, 1 << 40, 1 << 40, 0, 0, 0, 0, 255))
    if sys.argv[2:]:
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), int(sys.argv[2])))
    try:
        save(run, 2, {"w": torch.randn(4 << 20)}, {"o": torch.randn(2 << 20)}, about=ABOUT)
    except CheckpointError as error:
        print(error)
    print(*sorted(path.name for path in (run / "checkpoints").iterdir()))
    assert_of_step(newest(run, about=ABOUT), 1)
"""


@pytest.fixture
def small_disk(tmp_path: Path):
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", tmp_path], capture_output=True).returncode:
        pytest.skip("needs to mount a small disk")
    yield tmp_path
    subprocess.run(["umount", tmp_path], check=True)


def test_training_goes_on_while_the_disk_is_full(small_disk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def said() -> list[str]:
        return [line for line in capsys.readouterr().err.splitlines() if "saved" in line or "space" in line]

    model = torch.nn.Linear(512, 512)
    filler = small_disk / "filler"
    run = Run(small_disk / "run", save_steps=1)
    run.keep(model=model)
    filler.write_bytes(bytes(7 << 20))
    for _ in range(2):  # reported once
        run.step()
    with pytest.raises(CheckpointError, match="free space or keep fewer") as refused:
        run.finish()
    assert refused.value.full
    (message,) = said()
    assert "Step 1 was not saved: " in message and "the next save tries again" in message
    run = Run(small_disk / "run", save_steps=1)
    run.keep(model=model)
    run.step()
    filler.unlink()
    run.step()
    run.finish()
    assert said()[-1] == "There is space again: step 2 is saved."
    assert newest(small_disk / "run").step == 2


@pytest.mark.parametrize("limit", [4096, 12 << 20])
def test_a_limit_on_files_in_mid_save_leaves_the_others(limit: int, tmp_path: Path, in_child) -> None:
    put(tmp_path, 1)
    messages, left = in_child(TOO_LARGE, tmp_path, limit).splitlines()
    assert "raise the limit that `ulimit -f` shows" in messages
    assert left == ".lock step-00000001"


def test_room_is_looked_for_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path, 1)
    really = os.statvfs

    def little(path: object) -> os.statvfs_result:
        found = list(really(path))
        found[4] = (4 << 20) // found[1]
        return os.statvfs_result(found)

    monkeypatch.setattr(os, "statvfs", little)
    with pytest.raises(CheckpointError, match=r"has [\d.]+ MB free, but the checkpoint needs [\d.]+ MB: free space"):
        save(tmp_path, 2, {"w": torch.randn(1 << 20)}, {"o": torch.randn(1 << 20)}, about=ABOUT)
    put(tmp_path, 3)


def test_a_file_in_its_place_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "run").touch()
    with pytest.raises(CheckpointError, match=r"run.*\(Not a directory\): it is not a folder: move the file away"):
        newest(tmp_path / "run")
    with pytest.raises(CheckpointError, match="is not a folder"):
        put(tmp_path / "run", 1)
    assert (tmp_path / "run").read_bytes() == b""


# Who may save.


TRIES = """
try:
    put(Path(sys.argv[1]), 2)
except CheckpointError as error:
    print(error)
"""


def test_only_one_process_saves_into_a_run(tmp_path: Path, in_child) -> None:
    leftover = tmp_path / "checkpoints/.step-00000003.tmp"
    with checkpoint.claim(tmp_path):
        with checkpoint.claim(tmp_path):
            put(tmp_path, 1)
        leftover.mkdir()
        messages = in_child(TRIES, tmp_path)
        assert "Another process writes to" in messages and "another folder" in messages and messages.count("\n") == 1
        assert leftover.exists(), "what another process is writing must stay"
    assert_of_step(newest(tmp_path), 1)
    assert in_child(TRIES, tmp_path) == "" and not leftover.exists()
    assert_of_step(newest(tmp_path), 2)


def test_a_worker_that_outlives_its_run_does_not_hold_it(tmp_path: Path, in_child) -> None:
    code = """
        run = Path(sys.argv[1])
        ready, say = os.pipe()
        trainer = os.fork()
        if not trainer:
            with checkpoint.claim(run):
                put(run, 2)
                worker = os.fork()
                if worker:
                    os.write(say, str(worker).encode())
                time.sleep(60)
        worker = int(os.read(ready, 100))
        try:
            os.kill(trainer, signal.SIGKILL)
            os.waitpid(trainer, 0)
            put(run, 3)
        finally:
            os.kill(worker, signal.SIGKILL)
        """
    in_child(code, tmp_path)
    assert_of_step(newest(tmp_path), 3)
