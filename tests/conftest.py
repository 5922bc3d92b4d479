"""Fixtures for all tests: the template from the working tree, projects rendered from it, and the catalogue."""

from __future__ import annotations

import contextlib
import gc
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType
from typing import TYPE_CHECKING, Any

import copier._template
import pytest
import yaml
from copier import run_copy
from jinja2 import Environment

from catalogue.support import parse

if TYPE_CHECKING:
    from playwright.sync_api import Browser
    from xdist.workermanage import WorkerController

ROOT = Path(__file__).resolve().parents[1]

# The tests start Python hundreds of times, and compiling the imports takes up to 2 s each time.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# The engines of tests marked `engine`; the second accepts GPU requests. With DOCKER_HOST, no other is used unnamed.
ENGINE = os.environ.get("DOCKER_HOST") or "unix:///var/run/docker.sock"
GPU_ENGINE = os.environ.get("GPU_TEMPLATE_GPU_ENGINE") or (
    "unix:///run/docker-gpu.sock" if "DOCKER_HOST" not in os.environ else "unix:///nonexistent/docker.sock"
)


# The quick tier leaves out these folders, the files whose `pytestmark` is one of these markers, and the tests that have
# one. The folders and files are not even imported. Each says what it needs.
FULL_FOLDERS = {
    "tests/cluster": "PyTorch, Slurm, and SkyPilot",
    "tests/engine": "a Docker engine",
    "tests/gpu": "a GPU and PyTorch",
    "tests/train": "PyTorch",
}
FULL_MARKERS = {
    "engine": "a Docker engine",
    "network": "a network",
    "program": "a browser, npm, Prometheus, sshd, or a registry",
    "slow": "minutes",
}
MARKED = re.compile(rf"^pytestmark = pytest\.mark\.({'|'.join(FULL_MARKERS)})\b", re.MULTILINE)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--full", action="store_true", help="run all tests, not only the quick tier")
    parser.addoption(
        "--shuffle-sentences",
        action="store_true",
        help="shuffle the words of all causes: only tests marked `golden` may then fail, and they must",
    )


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("shuffle_sentences", False):
        shuffle_sentences()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background processes ignore it
    if hasattr(config, "workerinput"):
        config.option.full = config.workerinput["full"]
    elif config.args_source is not pytest.Config.ArgsSource.TESTPATHS:
        config.option.full = True  # a file or folder was named


def pytest_collection_finish() -> None:
    gc.collect()
    gc.freeze()  # thousands of tests and their modules stay to the end: each collection would go through them again


@pytest.fixture(scope="module", autouse=True)
def collect_garbage() -> Iterator[None]:
    """What a file of tests leaves open is reported in that file, not where Python happens to collect it later."""
    yield
    gc.collect()


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: WorkerController) -> None:
    node.workerinput["full"] = node.config.option.full


def needs(path: Path) -> str:
    """What a folder or file needs that the quick tier does without; empty if nothing."""
    name = path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else ""
    if name in FULL_FOLDERS:
        return FULL_FOLDERS[name]
    if path.suffix == ".py" and (marked := MARKED.search(path.read_text(encoding="utf-8"))):
        return FULL_MARKERS[marked[1]]
    return ""


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    return True if not config.option.full and needs(collection_path) else None


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if config.option.full:
        return
    paths = [ROOT / name for name in FULL_FOLDERS] + sorted((ROOT / "tests").rglob("test_*.py"))
    left_out: dict[str, list[str]] = {need: [] for need in FULL_MARKERS.values()}
    for path in paths:
        if need := needs(path):
            left_out.setdefault(need, []).append(path.relative_to(ROOT).as_posix())
    terminalreporter.section("left out of the quick tier")
    for need, names in left_out.items():
        marked = [f"tests marked `{name}`" for name, other in FULL_MARKERS.items() if other == need]
        terminalreporter.write_line(f"needs {need}: {', '.join(names + marked)}")
    terminalreporter.write_line("To run all tests, add --full; to run all tests of a file or folder, name it.")


# Ctrl-C: each process ends its test and the fixtures, which remove containers, users, and folders.

WORKERS: list[WorkerController] = []


@pytest.hookimpl(optionalhook=True)
def pytest_testnodeready(node: WorkerController) -> None:
    WORKERS.append(node)


@pytest.hookimpl(tryfirst=True)  # a second signal would end the report of the first, and with it the fixtures
def pytest_keyboard_interrupt() -> None:
    """In each process. A terminal sends Ctrl-C to all of them, `kill` to one; xdist passes it on only after 5 s."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for worker in WORKERS:
        worker.gateway._io.popen.send_signal(signal.SIGINT)


def shuffle_sentences() -> None:
    """Shuffle the words of every cause. Commands in backticks and placeholders stay unchanged."""
    from gpukit.project.data import data

    def shuffled(text: Any) -> Any:
        if isinstance(text, dict):
            return {place: shuffled(form) for place, form in text.items()}
        words = re.findall(r"(?:\{\?.*?\?\}|`[^`]*`|\{[^{}]*\}|\S)+", text)
        return " ".join(sorted(words, key=lambda word: zlib.crc32(word.encode())))

    for cause in data("knowledge")["causes"].values():
        cause.update({name: shuffled(cause[name]) for name in ("why", "remedy", "check") if name in cause})


HERE = "9999.0.0"  # the tag of the working tree, including uncommitted changes
NOT_COPIED = ("benchmarks", "docs", "examples", "tests")  # folders that neither Copier nor a hook reads


def git(*args: str, cwd: Path) -> str:
    """The output of a git command."""
    return subprocess.run(["git", *args], cwd=cwd, check=True, capture_output=True, text=True).stdout


def conflict(project: Path, name: str, theirs: str, ours: str) -> None:
    """Make the project a repository in which a merge has left a conflict in this file."""
    git("init", "-q", "-b", "main", cwd=project)
    git("add", "-A", cwd=project)
    git("commit", "-qm", "one", cwd=project)
    git("branch", "theirs", cwd=project)
    for branch, text in (("main", ours), ("theirs", theirs)):
        git("switch", "-q", branch, cwd=project)
        (project / name).write_text(text, encoding="utf-8")
        git("commit", "-qam", branch, cwd=project)
    git("switch", "-q", "main", cwd=project)
    subprocess.run(["git", "merge", "-q", "theirs"], cwd=project, capture_output=True, check=False)


def change(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.count(old) == 1, f"{path.name} has {text.count(old)} times {old!r}"
    path.write_text(text.replace(old, new), encoding="utf-8")


def working_tree() -> list[str]:
    """The current files of this repository: tracked and untracked, but not ignored."""
    names = git("ls-files", "-co", "--exclude-standard", "-z", cwd=ROOT).split("\0")
    return [name for name in names if name and (ROOT / name).is_file()]


@pytest.fixture(scope="session")
def copier_template(tmp_path_factory: pytest.TempPathFactory, default_gitconfig: object) -> Path:
    """Replaces the fixture of pytest-copier: every released tag, plus the working tree as `HERE`.

    The original commits the tree, and fails on a clean checkout because there is nothing to commit. Folders that no
    project is made from are left out, and so is the history: tests clone this several hundred times.
    """
    repository = tmp_path_factory.mktemp("template") / "repository"
    git("init", "-q", str(repository), cwd=ROOT)
    git("fetch", "-q", str(ROOT), "refs/tags/*:refs/tags/*", cwd=repository)
    for name in working_tree():
        if name.split("/")[0] in NOT_COPIED:
            continue
        (repository / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, repository / name, follow_symlinks=False)
    git("add", "-A", cwd=repository)
    git("commit", "-qm", "working tree", "--allow-empty", cwd=repository)
    git("tag", HERE, cwd=repository)
    git("repack", "-adq", cwd=repository)
    return repository


@pytest.fixture(scope="session")
def plain_template(copier_template: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of the working tree without git. This is faster, but projects get no version."""
    plain = tmp_path_factory.mktemp("plain") / "template"
    return shutil.copytree(copier_template, plain, ignore=shutil.ignore_patterns(".git"))


COMPILED: dict[tuple[object, ...], CodeType] = {}
COMPILE = Environment.compile


def compile_once(
    environment: Environment, source: str, name: str | None = None, filename: str | None = None
) -> CodeType:
    """Jinja's compiled code of a text, kept for other environments with the same syntax and extensions."""
    key = (source, name, environment.lexer, environment.undefined, *environment.extensions)
    if key not in COMPILED:
        COMPILED[key] = COMPILE(environment, source, name, filename)
    return COMPILED[key]


CLONES: dict[str, tempfile.TemporaryDirectory] = {}
CLONE = copier._template.clone


def clone_once(url: str, ref: str = "HEAD", location: str | None = None) -> str:
    """A clone that Copier made of a commit before, if there is one: an update needs six, which takes most of its time.

    The last few are kept. Copier reads them, and removes only the empty folder that it made for the clone.
    """
    if ref == "HEAD" or not Path(url).is_dir():
        return CLONE(url, ref, location)
    source = Path(url)
    key = git("rev-parse", f"{ref}^{{commit}}", cwd=source) + git("describe", "--tags", "--always", ref, cwd=source)
    folder = CLONES.pop(key, None)
    if folder is None:
        folder = tempfile.TemporaryDirectory(prefix="clone-")
        CLONE(url, ref, folder.name)
    CLONES[key] = folder
    if len(CLONES) > 6:
        CLONES.pop(next(iter(CLONES))).cleanup()
    return folder.name


@contextlib.contextmanager
def quick() -> Iterator[None]:
    """Make the many renders of the tests faster.

    Skips a `git config` for each file, which only matters on file systems without modes, and asking git whether the
    template is a bundle; replaces the YAML parser in Python with libyaml, which takes a tenth of the time; compiles
    each Jinja text once, not once per render; and clones each commit of a template once.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("copier._main.is_git_available", lambda: False)
        patch.setattr("copier._vcs.is_git_bundle", lambda path: False)
        patch.setattr("yaml.SafeLoader", getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        patch.setattr(Environment, "compile", compile_once)
        patch.setattr("copier._template.clone", clone_once)
        yield


@pytest.fixture(scope="session")
def generate(plain_template: Path, tmp_path_factory: pytest.TempPathFactory):
    """Render a project: `generate(hardware="h100", ...)` -> its folder. The same answers give the same folder."""
    made: dict[str, Path] = {}

    def render(**answers: object) -> Path:
        key = repr(sorted(answers.items()))
        if key not in made:
            path = tmp_path_factory.mktemp("project") / "project"
            with quick():
                run_copy(str(plain_template), path, data=answers, defaults=True, quiet=True, skip_tasks=True)
            made[key] = path
        return made[key]

    return render


@pytest.fixture(scope="session")
def catalogue() -> dict[str, dict]:
    """The catalogue's files by name: `catalogue["hardware"]["hardware"]["h100"]`."""
    files = (ROOT / "catalogue").glob("*.yml")
    return {file.stem: parse(file.read_text(encoding="utf-8")) for file in files}


DEAR = ("engine", "cluster", "network")  # markers of tests that take long and mostly wait
# Where the tests are that take longest, as their names begin: what computes beside what mostly waits.
LONG = ("tests/engine/", "tests/cluster/", "tests/train/", "tests/launch/test_engine", "tests/test_", "tests/launch/")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """A process per core. Full runs get one more: the one with the containers mostly waits for them."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return cores + (config.option.full and config.args_source is pytest.Config.ArgsSource.TESTPATHS)


def group(item: pytest.Item) -> str:
    """What runs in one process: a file, because of its fixtures, or a folder whose files share images or daemons."""
    file = item.location[0]
    return next((folder for folder in ("tests/engine/", "tests/cluster/") if file.startswith(folder)), file)


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Run fast tests first. Several processes start with those that take long, so that all end at the same time."""
    if config.getoption("shuffle_sentences", False):
        for item in items:
            if item.get_closest_marker("golden"):
                item.add_marker(pytest.mark.xfail(reason="it holds the sentences", strict=True))
    if not config.option.full:
        items[:] = [item for item in items if not any(item.get_closest_marker(name) for name in FULL_MARKERS)]
    if "PYTEST_XDIST_WORKER" not in os.environ:
        items.sort(key=lambda item: [bool(item.get_closest_marker(name)) for name in DEAR])
        return
    dear = {group(item) for item in items if any(map(item.get_closest_marker, DEAR))}

    def rank(item: pytest.Item) -> int:
        name = group(item)
        long = (place for place, start in enumerate(LONG) if name.startswith(start))
        return next(long, len(LONG) + (name not in dear))

    items.sort(key=rank)
    for item in items:
        item.add_marker(pytest.mark.xdist_group(group(item)))


@contextlib.contextmanager
def started(*command: object, **options: Any) -> Iterator[subprocess.Popen]:
    """A process that does not outlive its test, however that ends."""
    with subprocess.Popen(command, **options) as process:
        try:
            yield process
        finally:
            process.kill()


def until(holds: Callable[[], object], seconds: float = 60, shown: Callable[[], object] = str) -> None:
    """Wait until something holds; `shown` is asked what there is instead."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, shown()
        time.sleep(0.02)


def cannot(reason: str) -> None:
    """Skip a test that cannot run on this machine; in CI, fail instead."""
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A browser without a window."""
    path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if path is None:
        cannot("there is no Chromium: `apt-get install chromium`")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=path)
        yield found
        found.close()
