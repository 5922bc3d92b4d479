"""Real engines, real users, real projects. Run as root: the tests create regular users and remove them.

Engines   those of tests/conftest.py that answer. Each is asked whether it accepts GPU requests. If none does, tests
          that need one are skipped, and the others run without the request in the project's devcontainer.json.
Bases     STANDINS if every engine has them; otherwise PUBLIC images, which are pulled, and an image built from them.
PyTorch   CPU builds: the wheels of pip's find-links folder, served as an index, or download.pytorch.org.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import http.server
import io
import json
import os
import pwd
import re
import shutil
import signal
import subprocess
import tarfile
import tempfile
import threading
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from gpukit.host.preflight import empty_image
from gpukit.wheel import vendor, writer
from tests.conftest import ENGINE, GPU_ENGINE, ROOT, cannot

HERE = Path(__file__).parent
SLUG = "engine-tests"  # the same name for every project, so that images share layers
STANDINS = {"wheel": "standin/python:slim", "ngc": "standin/pytorch:ngc", "cuda": "standin/cuda:runtime"}
PUBLIC = {"wheel": "python:3.12-slim-trixie", "ngc": "gpu-template-tests/pytorch:ngc", "cuda": "ubuntu:24.04"}
# Answers for each base. With `wheel`, they include a second service, a secret, and all mounts.
ANSWERS: dict[str, dict[str, Any]] = {
    "wheel": {
        "hardware": "rtx-50",
        "tracking": ["tensorboard", "wandb"],
        "credentials": ["aws"],
        "data_dir": "~/data sets",
    },
    "ngc": {"hardware": "dgx-spark"},
    "cuda": {"hardware": "rtx-40"},
}
SLIGHT = """\
ARG BASE_IMAGE
FROM ${BASE_IMAGE}
ARG USER_UID=1000
ARG USER_GID=1000
RUN groupadd -o -g "$USER_GID" dev && useradd -o -m -u "$USER_UID" -g dev dev \\
    && mkdir -p /workspace /home/dev/.cache/huggingface && chown -R dev:dev /workspace /home/dev
USER ${USER_UID}
WORKDIR /workspace
CMD ["bash"]
"""
LABELS = ("gpukit.project", "devcontainer.local_folder", "com.docker.compose.project.working_dir")
Done = subprocess.CompletedProcess


@pytest.hookimpl(tryfirst=True)  # before tests/conftest.py reads the markers
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.engine)


# Engines


@dataclass(frozen=True)
class Engine:
    host: str

    def ask(self, *arguments: str, timeout: float = 120, stdin: bytes | None = None) -> Done[str]:
        command = ["docker", "-H", self.host, *arguments]
        done = subprocess.run(command, input=stdin, capture_output=True, timeout=timeout)
        out, err = (stream.decode(errors="replace") for stream in (done.stdout, done.stderr))
        return Done(command, done.returncode, out, err)

    def get(self, *arguments: str, timeout: float = 120) -> str:
        done = self.ask(*arguments, timeout=timeout)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def inspect(self, name: str) -> dict[str, Any]:
        return json.loads(self.get("inspect", name))[0]

    def has(self, image: str) -> bool:
        return self.ask("image", "inspect", image).returncode == 0

    @functools.cached_property
    def grants(self) -> bool:
        """Whether an engine accepts a GPU request: if so, the error is that the program does not exist."""
        probe = f"{SLUG}-probe-{os.getpid()}"
        self.ask("import", "-", probe, stdin=empty_image())
        answer = self.ask("run", "--rm", "--pull=never", "--gpus=all", probe, "/none").stderr
        self.ask("rmi", probe)
        return "no such file" in answer

    @functools.cached_property
    def gateway(self) -> str:
        """The address at which this engine's containers and builds reach this machine."""
        return self.get("network", "inspect", "bridge", "--format={{(index .IPAM.Config 0).Gateway}}")


@pytest.fixture(scope="session")
def engines() -> list[Engine]:
    if not shutil.which("docker"):
        cannot("there is no docker command")
    found = [Engine(host) for host in dict.fromkeys((ENGINE, GPU_ENGINE))]
    found = [engine for engine in found if engine.ask("version").returncode == 0]
    if not found:
        cannot("no Docker engine answers")
    return found


@pytest.fixture(scope="session")
def granting(engines: list[Engine]) -> Engine:
    """An engine that accepts GPU requests."""
    named = os.environ.get("GPU_TEMPLATE_GPU_ENGINE")
    found = [engine for engine in engines if engine.grants]
    if not found and named:
        pytest.fail(f"the engine on {named} does not grant GPUs")
    return found[0] if found else pytest.skip("no engine here grants GPUs (GPU_TEMPLATE_GPU_ENGINE may name one)")


@pytest.fixture(scope="session")
def refusing(engines: list[Engine]) -> Engine:
    """An engine that refuses GPU requests."""
    found = [engine for engine in engines if not engine.grants]
    return found[0] if found else pytest.skip("every engine here grants GPUs")


@pytest.fixture(scope="session")
def engine(engines: list[Engine]) -> Engine:
    """The engine for most tests: one that accepts GPU requests, if there is one."""
    return next((engine for engine in engines if engine.grants), engines[0])


@pytest.fixture(scope="session")
def plain(engines: list[Engine]) -> Engine:
    """The engine for tests without a GPU, with working networks of its own."""
    return next((engine for engine in engines if not engine.grants), engines[0])


# Base images and packages


class Index:
    """PyTorch's index and a few test packages, for builds and containers."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.servers: dict[str, Server] = {}
        ask = [shutil.which("pip") or "pip3", "config", "get", "global.find-links"]
        places = subprocess.run(ask, capture_output=True, text=True, timeout=60).stdout.split()
        found = [wheel for place in places for wheel in Path(place).glob("torch*.whl")]
        self.local = bool(found)
        for wheel in found:
            link = folder / wheel.name.partition("-")[0] / wheel.name
            link.parent.mkdir(exist_ok=True)
            link.symlink_to(wheel)

    def own(self, name: str, *requires: str, version: str = "1.0") -> str:
        """Create a package with nothing but requirements; return its path in the index."""
        path = self.folder / "own" / f"{name}-{version}-py3-none-any.whl"
        path.parent.mkdir(exist_ok=True)
        metadata = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
        metadata += [f"Requires-Dist: {requirement}" for requirement in requires]
        kind = ["Wheel-Version: 1.0", "Generator: tests", "Root-Is-Purelib: true", "Tag: py3-none-any"]
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr(f"{name}.py", "here = True\n")
            for file, lines in {"METADATA": metadata, "WHEEL": kind, "RECORD": []}.items():
                archive.writestr(f"{name}-{version}.dist-info/{file}", "".join(f"{line}\n" for line in lines))
        return f"own/{path.name}"

    def source(self, name: str, *requires: str) -> str:
        """Create a source archive whose build has these requirements; return its path in the index.

        If its build requires torch, the package has its version as `torch`.
        """
        path = self.folder / "own" / f"{name}-1.0.tar.gz"
        path.parent.mkdir(exist_ok=True)
        project = f'[build-system]\nrequires = {json.dumps(requires)}\nbuild-backend = "setuptools.build_meta"\n'
        setup = f"""
import setuptools, torch
open("{name}.py", "w").write("torch = '%s'" % torch.__version__)
setuptools.setup(py_modules=["{name}"])
"""
        files = {
            "PKG-INFO": f"Metadata-Version: 2.2\nName: {name}\nVersion: 1.0\n",
            "pyproject.toml": f'{project}[project]\nname = "{name}"\nversion = "1.0"\n',
            "setup.py": setup if "torch" in requires else "",
        }
        with tarfile.open(path, "w:gz") as archive:
            for file, text in files.items():
                member = tarfile.TarInfo(f"{name}-1.0/{file}")
                member.size = len(text)
                archive.addfile(member, io.BytesIO(text.encode()))
        return f"own/{path.name}"

    def at(self, engine: Engine) -> str:
        address = engine.gateway
        for port in range(8931, 8999):  # always the same, or PyTorch's layer would be rebuilt
            if address in self.servers:
                break
            with contextlib.suppress(OSError):
                handler = functools.partial(Quiet, directory=str(self.folder))
                self.servers[address] = server = Server((address, port), handler)
                threading.Thread(target=server.serve_forever, daemon=True).start()
        if address not in self.servers:
            cannot(f"no free port on {address} for the package index of these tests")
        return f"http://{address}:{self.servers[address].server_port}"

    def pytorch(self, engine: Engine) -> str:
        return f"pytorch={self.at(engine)}/" if self.local else "pytorch=https://download.pytorch.org/whl/cpu"


class Server(http.server.ThreadingHTTPServer):
    request_queue_size = 128  # uv opens up to 50 connections at once, and with the default of 5 some are dropped


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves a folder as a list of links (PEP 503), without logging."""

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="session")
def index(place: Path) -> Iterator[Index]:
    (place / "index").mkdir()
    found = Index(place / "index")
    yield found
    for server in found.servers.values():
        server.shutdown()
        server.server_close()


@pytest.fixture(scope="session")
def bases(engines: list[Engine]) -> dict[str, str]:
    """Substitutes for the catalogue's images, in every engine."""
    if all(engine.has(image) for engine in engines for image in STANDINS.values()):
        for engine in engines:
            if not engine.has(PUBLIC["wheel"]):  # the base of the configuration without a GPU
                engine.get("tag", STANDINS["wheel"], PUBLIC["wheel"])
        return STANDINS
    for engine in engines:
        for image in (PUBLIC["wheel"], PUBLIC["cuda"]):
            if not engine.has(image) and engine.ask("pull", "--quiet", image, timeout=300).returncode:
                cannot(f"{engine.host} has no stand-ins for the bases and cannot pull {image}")
        file = HERE / "standin-ngc.Dockerfile"
        engine.get("build", "--quiet", f"--file={file}", f"--tag={PUBLIC['ngc']}", str(HERE), timeout=900)
    return PUBLIC


# Users


@dataclass(frozen=True)
class User:
    """A user of this machine, with a home directory for the tests."""

    name: str
    uid: int
    gid: int
    home: Path
    groups: tuple[int, ...]
    environment: dict[str, str] = field(default_factory=dict)

    def start(self, *command: str, cwd: Path, env: dict[str, str], **options: Any) -> subprocess.Popen[str]:
        who = {"user": self.uid, "group": self.gid, "extra_groups": self.groups} if os.getuid() == 0 else {}
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        return subprocess.Popen(command, cwd=cwd, env={**self.environment, **env}, **{**who, **pipes, **options})

    def run(self, *command: str, timeout: float, cwd: Path, env: dict[str, str], **options: Any) -> Done[str]:
        process = self.start(*command, cwd=cwd, env=env, **options)
        try:
            out, err = process.communicate(timeout=timeout)
        except BaseException:
            process.send_signal(signal.SIGINT)  # so that launch also stops its container
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(20)
            process.kill()
            raise
        return Done(command, process.returncode, out, err)

    def give(self, path: Path) -> None:
        """Change the owner of a tree to this user."""
        for file in [path, *path.rglob("*")]:
            os.chown(file, self.uid, self.gid, follow_symlinks=False)


@pytest.fixture(scope="session")
def users(place: Path, engines: list[Engine]) -> Iterator[Callable[..., User]]:
    """`users(1001)`: the user with this uid, created if necessary; `allowed=False`: not in the group `docker`."""
    made: list[str] = []
    tools = [str(Path(found).parent) for tool in ("docker", "devcontainer", "node") if (found := shutil.which(tool))]
    # the system's Python, because that of the tests may be readable only by root
    path = os.pathsep.join(dict.fromkeys([*tools, "/usr/local/bin", "/usr/bin", "/bin"]))
    sockets = [Path(engine.host.partition("://")[2]) for engine in engines if engine.host.startswith("unix://")]

    @functools.cache
    def user(uid: int = 1000, allowed: bool = True) -> User:
        if os.getuid() != 0 and (uid != 1000 or not allowed):
            cannot("only root can work as another user")
        uid = os.getuid() or uid if uid == 1000 else uid
        try:
            entry = pwd.getpwuid(uid)
        except KeyError:
            made.append(f"gputest{uid}")
            subprocess.run(["useradd", f"--uid={uid}", "--no-create-home", made[-1]], check=True, timeout=60)
            entry = pwd.getpwuid(uid)
        home = place / f"{uid}{'' if allowed else '-outside'}"
        (home / "tmp").mkdir(parents=True)
        environment = {name: value for name, value in os.environ.items() if "proxy" in name.lower()}
        environment.update(PATH=path, HOME=str(home), TMPDIR=str(home / "tmp"), LANG="C.UTF-8", USER=entry.pw_name)
        groups = {socket.stat().st_gid for socket in sockets} if allowed else set()
        found = User(entry.pw_name, uid, entry.pw_gid, home, tuple(groups), environment)
        found.give(home)
        return found

    yield user
    for name in made:
        subprocess.run(["userdel", name], check=False, capture_output=True, timeout=60)


# Projects


@dataclass(frozen=True)
class Project:
    path: Path
    user: User
    engine: Engine
    environment: dict[str, str]

    def start(self, *command: str, env: dict[str, str] | None = None, **options: Any) -> subprocess.Popen[str]:
        return self.user.start(*command, cwd=self.path, env={**self.environment, **(env or {})}, **options)

    def run(self, *command: str, timeout: float = 300, **env: str) -> Done[str]:
        return self.user.run(*command, cwd=self.path, env={**self.environment, **env}, timeout=timeout)

    def launch(self, *arguments: str, **options: Any) -> Done[str]:
        return self.run("./launch", *arguments, **options)

    def launched(self, *arguments: str, **options: Any) -> str:
        """The output of a `./launch` command that must succeed."""
        done = self.launch(*arguments, **options)
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout

    def cli(self, command: str, *arguments: str, **options: Any) -> Done[str]:
        """Run the Dev Containers CLI, which VS Code uses to start containers."""
        if not shutil.which("devcontainer"):
            cannot("the devcontainers CLI is not here (npm install --global @devcontainers/cli)")
        return self.run("devcontainer", command, f"--workspace-folder={self.path}", *arguments, **options)

    def up(self, *arguments: str, **options: Any) -> str:
        """Start a container with the CLI; return its id."""
        done = self.cli("up", *arguments, **{"timeout": 600, **options})
        assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-3000:]
        return json.loads(done.stdout.splitlines()[-1])["containerId"]

    def inside(self, *command: str, **options: Any) -> Done[str]:
        """Run a command in the container started by the CLI."""
        return self.cli("exec", *command, **options)

    def containers(self, *options: str) -> list[str]:
        """The names of this project's containers; `options` are passed to `docker ps`."""
        names = "--format={{.Names}}"
        ours = [f"--filter=label={label}={self.path}" for label in LABELS]
        return sorted({name for one in ours for name in self.engine.get("ps", one, names, *options).split()})

    def stop(self) -> None:
        found = self.containers("--all")
        if found:
            self.engine.get("rm", "--force", *found)

    @property
    def image(self) -> str:
        """The image name used by launch."""
        return f"{SLUG}-{hashlib.sha256(str(self.path).encode()).hexdigest()[:8]}"

    @property
    def stack(self) -> dict[str, Any]:
        return json.loads((self.path / "stack.json").read_text())

    def write(self, name: str, text: str) -> None:
        (self.path / name).write_text(text, encoding="utf-8")
        os.chown(self.path / name, self.user.uid, self.user.gid)


@pytest.fixture(scope="session")
def place() -> Iterator[Path]:
    """A folder that regular users can read, unlike pytest's own."""
    path = Path(tempfile.mkdtemp(prefix="gpu-template-")).resolve()
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


@pytest.fixture(scope="session")
def project(
    generate: Callable[..., Path],
    place: Path,
    engine: Engine,
    engines: list[Engine],
    users: Callable[..., User],
    bases: dict[str, str],
    index: Index,
) -> Iterator[Callable[..., Project]]:
    """`project("wheel", "notebook")`: a project of a regular user, ready to start; the same one for every call.

    `name` creates another project, in a folder with this name. `on` and `user` select the engine and the user. `slight`
    replaces the generated Dockerfile by a few lines, for tests that are not about the image.
    """
    made: dict[str, Project] = {}

    def make(
        base: str = "wheel",
        workflow: str = "scripts",
        name: str = "",
        on: Engine = engine,
        user: User | None = None,
        slight: bool = False,
        **answers: Any,
    ) -> Project:
        user = user or users()
        path = user.home / (name or f"{base}-{workflow}")
        if str(path) not in made:
            answers = {**({"hardware": "rtx-50"} if slight else ANSWERS[base]), **answers}
            shutil.copytree(generate(project_name="Engine tests", workflow=workflow, base=base, **answers), path)
            vendor.put(writer.for_project(ROOT / "gpukit"), path)  # as the hook does
            if slight:
                (path / "Dockerfile").write_text(SLIGHT)
            if not engine.grants:
                without_request(path / ".devcontainer/devcontainer.json")
            user.give(path)
            environment = {"DOCKER_HOST": on.host, "BASE_IMAGE": bases[base], "UV_INDEX": index.pytorch(on)}
            made[str(path)] = Project(path, user, on, environment)
        return made[str(path)]

    yield make
    for one in engines:
        tidy(one, str(place), [project.path for project in made.values()])


def without_request(file: Path) -> None:
    config = json.loads(file.read_text())
    config["runArgs"] = [value for value in config["runArgs"] if not value.startswith(("--gpus", "--runtime"))]
    file.write_text(json.dumps(config, indent=2))


def names(path: Path) -> list[str]:
    """What the names of a project's images and networks begin with."""
    digest = hashlib.sha256(str(path).encode()).hexdigest()
    variables = path / ".env"
    composed = re.findall(r"(?m)^COMPOSE_PROJECT_NAME=(.+)$", variables.read_text()) if variables.exists() else []
    return [f"{SLUG}-{digest[:8]}", *composed]


def tidy(engine: Engine, folder: str, projects: list[Path]) -> None:
    """Remove the containers of the projects in a folder, and the images and networks of these projects.

    No others: another run of the tests may be using the engine.
    """
    row = "\t".join(["{{.ID}}", *(f'{{{{.Label "{label}"}}}}' for label in LABELS)])
    rows = [line.split("\t") for line in engine.ask("ps", "--all", "--no-trunc", f"--format={row}").stdout.splitlines()]
    containers = [identity for identity, *labels in rows if any(label.startswith(folder) for label in labels)]
    if containers:
        engine.ask("rm", "--force", "--volumes", *containers)
    vscode = [f"vsc-.*{hashlib.sha256(str(path).encode()).hexdigest()}" for path in projects]
    ours = re.compile("|".join([*(re.escape(name) for path in projects for name in names(path)), *vscode, "(?!)"]))
    images = engine.ask("images", "--format={{.Repository}}:{{.Tag}}").stdout.splitlines()
    if found := [image for image in images if ours.match(image)]:
        engine.ask("rmi", "--force", *found)
    networks = engine.ask("network", "ls", "--format={{.Name}}").stdout.split()
    if found := [network for network in networks if ours.match(network)]:
        engine.ask("network", "rm", *found)
