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
import csv
import hashlib
import json
import os
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
from gpukit.project import devcontainer
from gpukit.project.location import located
from gpukit.project.messages import announced

PASSED = 0
FAILED = 10
SKIPPED = 11
MAIN = ".devcontainer/devcontainer.json"
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
    config = devcontainer.load(located(MAIN, project), os.environ)
    client = docker.DockerClient(base_url=planned.engine, timeout=60)
    with (
        contextlib.closing(client),
        tempfile.TemporaryDirectory(prefix="smoke-") as spare,
        announced(f"smoke: starting {planned.image} ... (GPU_TEMPLATE_SMOKE=off skips this)"),
    ):
        try:
            arguments, left_out = docker_arguments(config, client, Path(spare))
        except ValueError as error:
            say(f"the flags of {MAIN} are invalid: {error}")
            return FAILED
        if left_out:
            say(f"without {' '.join(left_out)}, which it cannot translate.")
        refusal = ""
        try:
            machine = about(client, planned.image)
            try:
                ran = run_container(client, planned, project, machine, arguments)
            except docker.errors.APIError as error:
                kind, id, refusal = explain_error(error)
                if kind != "gpu" or id == WRONG_FLAG or not requests_gpu(arguments):
                    raise
                arguments = without_gpu(arguments)
                ran = run_container(client, planned, project, machine, arguments)
        except docker.errors.APIError as error:
            return refused(error)
        unnamed = any(argument.startswith("--gpus") for argument in config.run_args)
        return report(ran, machine, arguments, refusal, "GPUS names no GPU" if unnamed else "no GPU asked for")


def report(ran: probe.Run, machine: probe.Machine, arguments: Mapping[str, Any], refusal: str, no_gpu: str) -> int:
    """Report what the flags came to. What is wrong is the image's, the engine's, or this machine's: a notice.

    `refusal`: why the engine refused the GPU; `no_gpu`: why none was requested, if so
    """
    broken = probe.broken_image(ran, machine)
    if broken:
        say(broken)
        return SKIPPED
    gpu = requests_gpu(arguments)
    wrong = [*probe.problems(ran, machine, arguments, gpu)]
    starts = f"{machine.image} starts with the flags of {MAIN}"
    came_to = probe.summary(ran, arguments, gpu)
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
    text = error.explanation or str(error)
    known = errors.classify(text)
    if known and known[0] == "gpu":
        known = errors.classify(text, machine=facts.local(None))
    if not known:
        return "", "", ""
    kind, found = known
    words = found.words(PROJECT)
    return kind, found.cause.id, f"{words.why} {words.remedy}"


def run_container(
    client: Any, planned: Plan, project: Path, machine: probe.Machine, arguments: Mapping[str, Any]
) -> probe.Run:
    """Start a container that runs probe.sh, wait for its end, and remove it."""
    import docker
    import requests

    name = f"smoke-{os.urandom(6).hex()}"
    labels = {"gpukit.project": str(project), "gpukit.role": "smoke"}
    targets = [mount["Target"] for mount in probe.bind_mounts(arguments)]
    with removed_afterwards(planned.engine, name):
        container = client.containers.create(
            planned.image,
            name=name,
            labels=labels,
            user=machine.user,
            entrypoint=["/bin/sh"],
            command=probe.command(targets, requests_gpu(arguments)),
            log_config=docker.types.LogConfig(type="json-file"),  # whatever the engine's default is, it can be read
            **arguments,
        )
        try:
            container.start()
        except docker.errors.APIError as error:
            text = error.explanation or str(error)
            if not probe.CANNOT_EXECUTE.search(text):
                raise
            return probe.Run(text, error.status_code, has_shell(container))
        try:
            status = container.wait(timeout=probe.TIME_LIMIT)["StatusCode"]
        except requests.exceptions.RequestException:
            status = None
        return probe.Run(container.logs().decode(errors="replace"), status, has_shell(container))


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
            remove(engine, name, 1 if os.read(done, 1) else 20)
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


def remove(engine: str, name: str, attempts: int) -> None:
    for _ in range(attempts):
        with contextlib.suppress(OSError, ValueError, IndexError):
            # 404: the engine was still creating it when its creator ended
            if request_status(engine, f"/containers/{name}?force=1&v=1", "DELETE") != 404:
                return
        time.sleep(0.1)


def refused(error: Any) -> int:
    """Report the engine's refusal; FAILED if the project's flags are invalid, SKIPPED if it is about this machine."""
    message = (error.explanation or str(error)).strip().splitlines()[0]
    _, id, sentence = explain_error(error)
    if sentence and id != WRONG_FLAG:
        say(f"not run: {sentence}")
        return SKIPPED
    if error.status_code == 400 or message.startswith("invalid "):
        say(f"the engine does not accept the flags of {MAIN}: {message}")
        return FAILED
    say(f"not run: the engine reports: {message}")
    return SKIPPED


def docker_arguments(config: Any, client: Any, spare: Path) -> tuple[dict[str, Any], list[str]]:
    """devcontainer.json as arguments for docker-py, and the flags that docker-py does not support.

    Secrets, ports, and named volumes are not passed, only the mounted folders. Mount sources are created at the first
    start; until then, an empty folder replaces them.
    """
    from docker.types import DeviceRequest, Mount, Ulimit

    from gpukit.project.flags import long_mount, options, short_mount, size

    names = {"--ipc": "ipc_mode", "--runtime": "runtime", "--pid": "pid_mode", "--hostname": "hostname"}
    names.update({"--memory": "mem_limit", "--cpuset-cpus": "cpuset_cpus", "--userns": "userns_mode"})
    lists = {"--cap-add": "cap_add", "--cap-drop": "cap_drop", "--security-opt": "security_opt"}
    unneeded = ("--env", "--env-file", "--publish", "--publish-all", "--user", "--workdir", "--label", "--name", "--rm")
    arguments: dict[str, Any] = {"environment": dict(config.container_env), "init": config.init}
    left_out = []
    requests = []
    limits = []
    mounts = [config.workspace_mount, *config.mounts]
    for option, value in options(config.run_args):
        if option in names:
            arguments[names[option]] = value
        elif option in lists:
            arguments.setdefault(lists[option], []).append(value)
        elif option == "--gpus":
            requests += [DeviceRequest(**request(value))] if request(value) else []
        elif option == "--device" and "=" in value:
            requests.append(DeviceRequest(driver="cdi", device_ids=[value]))
        elif option == "--device":
            arguments.setdefault("devices", []).append(value)
        elif option == "--shm-size":
            arguments["shm_size"] = size(value)
        elif option == "--ulimit":
            name, _, limit = value.partition("=")
            soft, _, hard = limit.partition(":")
            limits.append(Ulimit(name=name, soft=int(soft), hard=int(hard or soft)))
        elif option == "--init":
            arguments["init"] = value != "false"
        elif option == "--network":
            if client.networks.list(names=[value]):  # initialize.sh creates the project's own
                arguments["network"] = value
        elif option in ("--mount", "--volume"):
            mounts.append(long_mount(value) if option == "--mount" else short_mount(value))
        elif option not in unneeded:
            left_out.append(option)
    arguments["device_requests"] = requests
    arguments["ulimits"] = limits
    arguments["mounts"] = []
    folder = config.workspace_folder
    targets = [mount["target"] for mount in mounts if mount]
    for number, mount in enumerate(filter(None, mounts)):
        source = mount["source"]
        target = mount["target"]
        if target.startswith(f"{folder}/") and not (config.root / target[len(folder) + 1 :]).exists():
            continue  # the engine would create that folder in the project, as root
        missing = mount["type"] == "bind" and not Path(source).exists()
        if missing and any(target.startswith(f"{other}/") for other in targets):
            continue  # it would have to be created in another mount, which may be read-only
        if missing:
            source = str(spare / str(number))
            Path(source).mkdir()
        elif mount["type"] == "volume":
            source = None
        arguments["mounts"].append(Mount(target, source, type=mount["type"], read_only=bool(mount["readonly"])))
    return arguments, left_out


def request(value: str) -> dict[str, Any]:
    """--gpus as a device request, as the docker command sends it; empty if GPUS must name GPUs but does not."""
    wanted: dict[str, Any] = {"capabilities": [["gpu"]]}
    for part in next(csv.reader([value]), []):
        key, equals, text = part.partition("=")
        if key == "device":
            wanted["device_ids"] = [item for item in text.split(",") if item]
        elif key == "capabilities":
            wanted["capabilities"] = [["gpu", *text.split(",")]]
        elif key == "driver":
            wanted["driver"] = text
        else:
            text = text if equals else key
            wanted["count"] = -1 if text == "all" else int(text)
    return wanted if wanted.get("device_ids") or "count" in wanted else {}


def requests_gpu(arguments: Mapping[str, Any]) -> bool:
    return bool(arguments["device_requests"] or arguments.get("runtime"))


def without_gpu(arguments: Mapping[str, Any]) -> dict[str, Any]:
    return {**{key: value for key, value in arguments.items() if key != "runtime"}, "device_requests": []}


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
