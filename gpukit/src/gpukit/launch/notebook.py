"""JupyterLab, detached: a token always, the loopback address only, a free port, back after a reboot."""

from __future__ import annotations

import contextlib
import http.client
import socket
import sys
import time
from collections.abc import Callable

from gpukit.host.project import Project, secret
from gpukit.launch import image
from gpukit.launch.container import flags, make_room, on_host_network, start
from gpukit.launch.found import own
from gpukit.project.location import is_adopted
from gpukit.project.messages import RefusalError, say

INSIDE = 8888
PORTS = range(8888, 8988)


def token(project: Project) -> str:
    """The project's token, made once. initialize.sh makes it too; whoever comes first."""
    return secret(project.located(".launch/jupyter-token"))


def arguments(project: Project, name: str, port: int) -> list[str]:
    if on_host_network(project):
        raise RefusalError(
            "With --network=host in runArgs Jupyter would be open to the network: remove that flag first."
        )
    root = ["--allow-root"] * project.as_root
    jupyter = ["jupyter", "lab", "--ip=0.0.0.0", f"--port={INSIDE}", "--no-browser", *root]
    published = ["--restart=unless-stopped", f"--publish=127.0.0.1:{port}:{INSIDE}"]
    return ["--detach", *published, *flags(project, name, "notebook"), project.tag, *jupyter]


def refuse_without_notebooks(project: Project) -> None:
    if is_adopted(project.root):
        raise RefusalError("JupyterLab is not set up in an adopted repository: open its notebooks with VS Code.")
    if not (project.root / "notebooks").is_dir():
        raise RefusalError("This project has no notebooks: `./launch update --answers workflow=notebook` adds them.")


def notebook(project: Project) -> int:
    refuse_without_notebooks(project)
    name = f"{project.tag}-notebook"
    if project.show_start("run", *arguments(project, name, INSIDE)):
        return 0
    if any(found.name == name and found.running for found in own(project)):
        say(f"{name} is already running; `./launch stop` stops it.")
    else:
        make_room(project, name, "")
        image.make_ready(project)
        token(project)
        publish(project, name)
    try:
        port = project.engine.get("port", name, str(INSIDE)).splitlines()[0].rpartition(":")[2]
        wait(int(port), lambda: ended(project, name))
    except KeyboardInterrupt:
        advice = f"`{project.launch('notebook')}` prints its address, `./launch stop` stops it"
        raise RefusalError(f"JupyterLab is still starting: {advice}.", 130) from None
    print(address(project, port), flush=True)
    return 0


def address(project: Project, port: str | int) -> str:
    """JupyterLab's address, which opens the project's first notebook if that is still there."""
    first = "notebooks/quickstart.ipynb"
    place = f"lab/tree/{first}" if (project.root / first).is_file() else "lab"
    return f"http://127.0.0.1:{port}/{place}?token={token(project)}"


def publish(project: Project, name: str) -> None:
    """Start on the first free port. Only the engine knows which one that is, so it is asked by trying."""
    for port in PORTS:
        try:
            start(project, *arguments(project, name, port))
        except RefusalError as refusal:
            if refusal.kind != "port" or port == PORTS[-1]:
                raise
            continue
        if port != PORTS[0]:
            say(f"Port {PORTS[0]} is in use, so this uses port {port}.")
        return


def free_port(wanted: int = PORTS[0]) -> int:
    """A free port of this machine: the wanted one, or another of PORTS."""
    for port in (wanted, *PORTS):
        with contextlib.suppress(OSError), socket.socket() as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            trial.bind(("127.0.0.1", port))
            return port
    raise RefusalError(f"No port from {PORTS[0]} to {PORTS[-1]} is free on this machine.")


def ended(project: Project, name: str) -> str | None:
    """The last words of a container that has ended, which is then taken away; None while it runs."""
    state = project.engine.get("inspect", "--format={{.State.Running}} {{.RestartCount}}", name).split()
    if state[0] == "true" and int(state[1]) == 0:
        return None
    last = "".join(project.engine.call("logs", "--tail=5", name)[1:]).strip()
    project.engine.call("rm", "--force", name)
    return last


def wait(port: int, ended: Callable[[], str | None], seconds: int = 120) -> None:
    """Until Jupyter answers, or has ended."""
    until = time.monotonic() + seconds
    dots = sys.stderr.isatty()
    while time.monotonic() < until:
        with contextlib.suppress(OSError, http.client.HTTPException):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)  # no proxy for this one
            connection.request("GET", "/api")
            if connection.getresponse().status == 200:
                return
        last = ended()
        if last is not None:
            raise RefusalError(f"JupyterLab exited at once; its last output:\n{last}")
        if dots:
            print(".", end="", file=sys.stderr, flush=True)
        time.sleep(0.3)
    raise RefusalError(f"JupyterLab does not respond on port {port} yet: `./launch logs notebook` shows why.")
