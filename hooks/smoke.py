"""Start the generated container on this machine, if that needs no download.

GPU_TEMPLATE_SMOKE  auto    (default) start the base image with the flags of devcontainer.json, if a Docker engine
                            responds and already has the image; nothing is pulled or built
                    build   build the project's image and run `verify` in it; takes minutes and gigabytes of downloads
                    off     do nothing

A container runs probe.sh, and probe.py judges what each flag came to. What is wrong with the image, the engine, or this
machine is reported, and the hook succeeds. It fails only if the engine rejects the flags, and never during `copier
copy`: a failing hook makes Copier delete the project.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import probe

from gpukit.findings.causes import PROJECT
from gpukit.host import facts
from gpukit.host import refusals as errors
from gpukit.project import devcontainer, flags
from gpukit.project.location import located
from gpukit.project.messages import announced

PASSED = 0
FAILED = 10
SKIPPED = 11
MAIN = ".devcontainer/devcontainer.json"
CREATION_LIMIT = 60  # seconds
UNNEEDED = ("--env", "--env-file", "--publish", "--publish-all", "--user", "--workdir", "--label", "--name", "--rm")
UNNEEDED += ("--attach", "--cidfile", "--detach", "--detach-keys", "--entrypoint", "--log-driver", "--log-opt")
UNNEEDED += ("--pull", "--restart", "--sig-proxy")
INVALID = re.compile(
    r"invalid |unknown (shorthand )?flag|flag needs|conflicting ", re.IGNORECASE
)  # said of wrong flags
WRONG_FLAG = "gpus-form"  # the cause of a refusal that is about the value of --gpus


class Plan(NamedTuple):
    """The smoke test on this machine; `reason`: why there is none."""

    mode: str
    reason: str = ""
    image: str = ""
    engine: str = ""

    @property
    def container(self) -> bool:
        return self.mode == "auto" and not self.reason


def plan(project: Path) -> Plan:
    """Whether an engine responds and has the project's base image; fast, and without packages."""
    mode = os.environ.get("GPU_TEMPLATE_SMOKE", "") or "auto"
    if mode not in ("auto", "build", "off"):
        return Plan("auto", f"GPU_TEMPLATE_SMOKE is {mode!r}; it must be auto, build, or off")
    if mode == "off":
        return Plan(mode)
    if os.name == "nt":
        return Plan(mode, "GPU containers do not run on Windows itself; generate the project inside WSL 2")
    engine = endpoint()
    if not engine.startswith("unix://"):
        return Plan(mode, f"the Docker engine is at {engine}, which does not have this project's folder")
    try:
        image = os.environ.get("BASE_IMAGE") or json.loads(located("stack.json", project).read_bytes())["image"]
        status = request_status(engine, "/_ping")
        if status == 200 and mode == "auto":
            status = request_status(engine, f"/images/{quote(image, safe='/:@')}/json")
            if status == 404:
                return Plan(mode, f"{image} is not on this machine yet; ./launch build fetches it", image, engine)
    except PermissionError:
        return Plan(mode, "this user may not use Docker: `sudo usermod -aG docker $USER`, then log in again")
    except (OSError, IndexError):
        return Plan(mode, f"no Docker engine responds at {engine}")
    except (KeyError, TypeError, ValueError):
        return Plan(mode, "stack.json names no image")
    if status != 200:
        return Plan(mode, f"the Docker engine at {engine} responds with status {status}")
    return Plan(mode, "", image, engine)


def run(project: Path) -> int:
    planned = plan(project)
    if planned.mode == "off":
        return PASSED
    if planned.reason:
        say(f"not run: {planned.reason}.")
        return SKIPPED
    code = build_and_verify(project) if planned.mode == "build" else start_base_image(project, planned)
    if code == FAILED and os.environ.get("COPIER_OPERATION") == "copy":
        return SKIPPED  # it was reported; a failure would delete the project
    return code


# The engine, without the docker package, which takes longer to import than everything else.


def endpoint() -> str:
    """The engine's address, as the docker command finds it: DOCKER_HOST, the current context, the default socket."""
    host = os.environ.get("DOCKER_HOST")
    if host:
        return host
    config = Path(os.environ.get("DOCKER_CONFIG") or Path.home() / ".docker")
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        name = os.environ.get("DOCKER_CONTEXT") or json.loads((config / "config.json").read_bytes())["currentContext"]
        if name != "default":
            meta = config / "contexts/meta" / hashlib.sha256(name.encode()).hexdigest() / "meta.json"
            return json.loads(meta.read_bytes())["Endpoints"]["docker"]["Host"]
    return "unix:///var/run/docker.sock"


def request_status(engine: str, path: str, method: str = "GET") -> int:
    """Send an HTTP request to the engine's socket; returns the status of the response."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(5 if method == "GET" else 30)
        connection.connect(engine.partition("://")[2])
        connection.sendall(f"{method} {path} HTTP/1.0\r\nHost: docker\r\n\r\n".encode())
        status = connection.recv(64).split()
    return int(status[1])


# auto: the base image, with the project's flags.


def start_base_image(project: Path, planned: Plan) -> int:
    try:
        import docker
    except ImportError:
        say("not run: it needs the docker package.")
        return SKIPPED
    if not shutil.which("docker"):
        say("not run: it needs the docker command.")
        return SKIPPED
    config = devcontainer.load(located(MAIN, project), os.environ)
    client = docker.DockerClient(base_url=planned.engine, timeout=60)
    with (
        contextlib.closing(client),
        tempfile.TemporaryDirectory(prefix="smoke-") as spare,
        announced(f"smoke: starting {planned.image} ... (GPU_TEMPLATE_SMOKE=off skips this)"),
    ):
        networks = [network.name for network in client.networks.list()]
        try:
            given = docker_flags(config, networks, Path(spare))
            asked = asked_for(given)
        except ValueError as error:
            say(f"the flags of {MAIN} are invalid: {error}")
            return FAILED
        refusal = ""
        try:
            machine = about(client, planned.image)
            try:
                ran = run_container(client, planned, project, machine, given)
            except RefusedError as error:
                kind, id, refusal = explain_error(error)
                if kind != "gpu" or id == WRONG_FLAG or not requests_gpu(given):
                    raise
                given = [flag for flag in given if not requests_gpu([flag])]
                ran = run_container(client, planned, project, machine, given)
        except (RefusedError, docker.errors.APIError) as error:
            return refused(error)
        unnamed = any(argument.startswith("--gpus") for argument in config.run_args)
        no_gpu = "no GPU chosen (GPUS is not set)" if unnamed else "no GPU asked for"
        return report(ran, machine, asked, requests_gpu(given), refusal, no_gpu)


def report(
    ran: probe.Run, machine: probe.Machine, asked: Mapping[str, Any], gpu: bool, refusal: str, no_gpu: str
) -> int:
    """Report what the flags came to. What is wrong is the image's, the engine's, or this machine's: a notice.

    `asked`: what the flags ask for; `gpu`: whether the container requested one;
    `refusal`: why the engine refused the GPU; `no_gpu`: why none was requested, if so
    """
    broken = probe.broken_image(ran, machine)
    if broken:
        say(broken)
        return SKIPPED
    wrong = [*probe.problems(ran, machine, asked, gpu)]
    starts = f"{machine.image} starts with the flags of {MAIN}"
    came_to = probe.summary(ran, asked, gpu)
    if not wrong and not refusal:
        print(f"smoke: {starts}: {came_to}{'' if gpu else f', {no_gpu}'}.", flush=True)
        return PASSED
    say(f"{starts}, but {'without its GPU' if refusal else 'not all of them take effect'}: {came_to}.")
    for sentence in [*[refusal] * bool(refusal), *wrong]:
        say(sentence)
    return SKIPPED


def about(client: Any, image: str) -> probe.Machine:
    """The image, the engine, and the user that the container runs as: the host's, as in the project's own image."""
    rootless = any("rootless" in option for option in client.info().get("SecurityOptions") or [])
    user = "0:0" if rootless else f"{os.getuid()}:{os.getgid()}"  # root in a rootless container is the host's user
    arch = client.version()["Arch"]
    return probe.Machine(image, user, client.images.get(image).attrs.get("Architecture") or arch, arch)


def explain_error(error: Any) -> tuple[str, str, str]:
    """The kind of an engine's error, the id of its cause, and one sentence; all empty if it is unknown."""
    text = explanation(error)
    known = errors.classify(text)
    if known and known[0] == "gpu":
        known = errors.classify(text, machine=facts.local(None))
    if not known:
        return "", "", ""
    kind, found = known
    words = found.words(PROJECT)
    return kind, found.cause.id, f"{words.why} {words.remedy}"


def run_container(client: Any, planned: Plan, project: Path, machine: probe.Machine, given: list[str]) -> probe.Run:
    """Start a container that runs probe.sh with the flags, wait for its end, and remove it.

    Raises:
        RefusedError: the docker command or the engine does not accept the flags, or does not answer.
    """
    import docker
    import requests

    name = f"smoke-{os.urandom(6).hex()}"
    targets = [mount["Target"] for mount in asked_for(given)["mounts"]]
    command = ["docker", "-H", planned.engine, "create", "--pull=never", f"--name={name}"]
    command += [f"--label=gpukit.project={project}", "--label=gpukit.role=smoke", f"--user={machine.user}"]
    command += ["--log-driver=json-file", "--entrypoint=/bin/sh", *given, planned.image]  # logs that can be read
    command += probe.command(targets, requests_gpu(given))
    with removed_afterwards(planned.engine, name):
        try:
            created = subprocess.run(
                command, capture_output=True, text=True, errors="replace", timeout=CREATION_LIMIT, check=False
            )
        except subprocess.TimeoutExpired as error:
            raise RefusedError(f"nothing, for {CREATION_LIMIT} seconds") from error
        if created.returncode:
            raise RefusedError(created.stderr)
        container = client.containers.get(name)
        try:
            container.start()
        except docker.errors.APIError as error:
            text = explanation(error)
            if not probe.CANNOT_EXECUTE.search(text):
                raise RefusedError(text) from error
            return probe.Run(text, error.status_code, has_shell(container))
        try:
            status = container.wait(timeout=probe.TIME_LIMIT)["StatusCode"]
        except requests.exceptions.RequestException:
            status = None
        return probe.Run(container.logs().decode(errors="replace"), status, has_shell(container))


class RefusedError(Exception):
    """The flags are not accepted; the text is what the docker command or the engine says."""


def explanation(error: Any) -> str:
    return getattr(error, "explanation", None) or str(error)


def has_shell(container: Any) -> bool:
    import docker

    try:
        container.get_archive("/bin/sh")
    except docker.errors.NotFound:
        return False
    return True


@contextlib.contextmanager
def removed_afterwards(engine: str, name: str) -> Iterator[None]:
    """Remove the container afterwards, whatever happens: another process does it when this one is done, or dead.

    Copier kills this one a quarter of a second after Ctrl-C, however busy the machine is.
    """
    done, writer = os.pipe()  # closed on this side when the process ends, in whatever way
    remover = os.fork()
    if remover == 0:
        try:
            os.setsid()
            os.dup2(os.open(os.devnull, os.O_RDWR), 1)  # whoever reads our output waits for its end
            os.dup2(1, 2)
            os.close(writer)
            remove(engine, name, finished=bool(os.read(done, 1)))
        finally:
            os._exit(0)
    os.close(done)
    try:
        yield
    except KeyboardInterrupt:
        os.close(writer)
        raise
    except BaseException:
        finish(writer, remover)
        raise
    finish(writer, remover)


def finish(writer: int, remover: int) -> None:
    os.write(writer, b".")
    os.close(writer)
    os.waitpid(remover, 0)


def remove(engine: str, name: str, finished: bool) -> None:
    """Ask until the container is gone: the engine may be busy, or still creating it if its creator was killed."""
    for _ in range(20):
        try:
            status = request_status(engine, f"/containers/{name}?force=1&v=1", "DELETE")
        except TimeoutError:
            return  # it hangs
        except (OSError, ValueError, IndexError):
            status = 0
        if status == 204 or (status == 404 and finished):
            return
        time.sleep(0.1)


def refused(error: Any) -> int:
    """Report the engine's refusal; FAILED if the project's flags are invalid, SKIPPED if it is about this machine."""
    text = re.sub(
        r"^((WARNING|Emulate Docker CLI).*\n)*(docker: )?(Error response from daemon: )?", "", explanation(error)
    )
    message = (text.strip().splitlines() or ["nothing"])[0]
    _, id, sentence = explain_error(error)
    if sentence and id != WRONG_FLAG:
        say(f"not run: {sentence}")
        return SKIPPED
    if INVALID.match(message):
        say(f"the engine does not accept the flags of {MAIN}: {message}")
        return FAILED
    say(f"not run: the engine reports: {message}")
    return SKIPPED


def docker_flags(config: Any, networks: list[str], spare: Path) -> list[str]:
    """The flags of devcontainer.json as `docker create` takes them, each as one argument.

    Secrets, ports, and named volumes are not passed, only the mounted folders. Mount sources are created at the first
    start; until then, an empty folder replaces them.
    """
    found = ["--init"] if config.init else []
    found += [f"--env={name}={value}" for name, value in config.container_env.items() if name not in config.by_name]
    mounts = [config.workspace_mount, *config.mounts]
    for option in flags.read(config.run_args):
        if option.name in ("--mount", "--volume"):
            mounts.append((flags.long_mount if option.name == "--mount" else flags.short_mount)(option.value))
        elif option.name == "--network" and option.value not in networks:
            continue  # initialize.sh creates the project's own
        elif option.name == "--gpus" and not flags.gpus(option.value):
            continue  # GPUS must name GPUs, but does not
        elif option.name not in UNNEEDED:
            found.append(f"{option.name}={option.value}")
    folder = config.workspace_folder
    targets = [mount["target"] for mount in mounts if mount]
    for number, mount in enumerate(filter(None, mounts)):
        source = Path(mount["source"])
        target = mount["target"]
        if target.startswith(f"{folder}/") and not (config.root / target[len(folder) + 1 :]).exists():
            continue  # the engine would create that folder in the project, as root
        if mount["type"] == "bind" and not source.exists():
            if any(target.startswith(f"{other}/") for other in targets):
                continue  # it would have to be created in another mount, which may be read-only
            source = spare / str(number)
            source.mkdir()
        named = mount["type"] == "volume"
        found.append(f"--mount={devcontainer.mount_argument({**mount, 'source': '' if named else str(source)})}")
    return found


def asked_for(given: list[str]) -> dict[str, Any]:
    """What the flags ask for, as far as probe.py checks it."""
    found: dict[str, Any] = {"ulimits": [], "mounts": []}
    for option, value in flags.options(given):
        if option == "--ulimit":
            name, _, limit = value.partition("=")
            found["ulimits"].append({"Name": name, "Soft": int(limit.partition(":")[0])})
        elif option == "--ipc":
            found["ipc_mode"] = value
        elif option == "--shm-size":
            found["shm_size"] = flags.size(value)
        elif option == "--mount":
            mount = flags.long_mount(value)
            if mount["type"] == "bind":
                found["mounts"].append(
                    {"Source": mount["source"], "Target": mount["target"], "ReadOnly": mount["readonly"]}
                )
    return found


def requests_gpu(given: list[str]) -> bool:
    return any(re.match(r"--gpus=|--runtime=|--device=[^/][^=]*=", flag) for flag in given)


# build: the project's own image, built by its own ./launch.


def build_and_verify(project: Path) -> int:
    cpu = []
    if launch(project, "preflight") != 0 and located(".devcontainer/cpu/devcontainer.json", project).is_file():
        say("no GPU is available here, so the CPU configuration is built.")
        cpu = ["--cpu"]
    say("building the image; this takes minutes, and its progress follows ...")
    if launch(project, *cpu, "build") != 0:
        say("the image was not built; the reason is above.")
        return SKIPPED
    code = launch(project, *cpu, "verify")
    if code == 0:
        print(f"smoke: the image is built, and verify{' --cpu' * bool(cpu)} passed in it.", flush=True)
        return PASSED
    say("verify found something wrong in the image." if code == 1 else "verify could not check everything.")
    return SKIPPED  # the image, or this machine


def launch(project: Path, *arguments: str) -> int:
    with subprocess.Popen([str(project / "launch"), *arguments], cwd=project, stdout=sys.stderr) as process:
        try:
            return process.wait()
        except KeyboardInterrupt:
            process.wait()  # it got the same Ctrl-C and cleans up
            raise


def say(text: str) -> None:
    print(f"smoke: {text}", file=sys.stderr, flush=True)
