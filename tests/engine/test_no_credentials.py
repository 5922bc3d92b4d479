"""`--no-credentials`: planted tokens in all places where one may be; none is readable inside."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable

from tests.conftest import until

from .conftest import Engine, Project

# Reads everything that a program in the container can read, but for the image's own system folders.
LOOK = r"""
import os, pathlib, subprocess
found = set()
texts = [("environment", str(dict(os.environ)).encode())]
for base in ("/workspace", "/home", "/root", "/run", "/etc", "/tmp", "/mnt", "/data", "/proc/self", "/proc/1"):
    for folder, _, names in os.walk(base):
        if folder.startswith("/proc/") and folder.count("/") > 2:
            continue
        for name in names if not base.startswith("/proc") else ("environ", "cmdline", "mountinfo"):
            path = os.path.join(folder, name)
            try:
                if os.path.isfile(path) and os.path.getsize(path) < 10 << 20:
                    texts.append((path, open(path, "rb").read()))
            except OSError:
                pass
git = subprocess.run("git log --all -p; git config --list; git cat-file --batch-all-objects --batch", shell=True,
                     capture_output=True, cwd="/workspace").stdout
texts.append(("git", git))
print([(name, text[at:at + 24]) for name, text in texts for at in [text.find(b"plan" + b"ted-")] if at >= 0])
print(pathlib.Path("/workspace/src/own.txt").read_text(), os.path.exists("/var/run/docker.sock"))
for place in ("/workspace/x", "/workspace/outputs/x", "/tmp/x", "/workspace/data/x", "/etc/x"):
    try:
        open(place, "w").close()
        print("wrote", place)
    except OSError:
        pass
"""
NETWORK = "import socket; print('interfaces', [name for _, name in socket.if_nameindex()], flush=True)"
WAIT = "\nimport time\nwhile not os.path.exists('/workspace/outputs/seen'): time.sleep(0.1)"
WROTE = ["wrote /workspace/x", "wrote /workspace/outputs/x", "wrote /tmp/x"]


def test_no_token_is_readable_inside(project: Callable[..., Project], plain: Engine) -> None:
    one = project(name="sealed", slight=True, on=plain, tracking=["wandb"], credentials=["aws", "gcloud"])
    home = one.user.home
    token = "planted-"
    places = {
        home / ".aws/credentials": "1",
        home / ".config/gcloud/application_default_credentials.json": "2",
        home / ".cache/huggingface/token": "3",
        home / ".cache/wandb/netrc": "4",
        home / ".docker/config.json": "5",
        home / ".git-credentials": "6",
        one.path / ".env": "7",
        one.path / ".launch/jupyter-token": "8",
        one.path / "removed.txt": "9",
    }
    for path, number in places.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}" if path.name == "config.json" else f"WANDB_API_KEY={token}{number}\n", encoding="utf-8")
    one.user.give(home)
    one.write("src/own.txt", "own code")

    def git(*words: str) -> None:
        who = ["-c", "user.name=t", "-c", "user.email=t"]
        subprocess.run(["git", "-c", "safe.directory=*", *who, *words], cwd=one.path, check=True, capture_output=True)

    git("init", "-q")
    git("config", "remote.origin.url", f"https://x:{token}10@example.com/x.git")
    git("add", "-f", "removed.txt")
    git("commit", "-qm", "history with a token")
    git("rm", "-q", "removed.txt")
    git("add", ".")
    git("commit", "-qm", "without it")
    path = one.path / ".devcontainer/cpu/devcontainer.json"
    config = json.loads(path.read_text())
    config["containerEnv"]["HEADER"] = "Bearer ${localEnv:HF_TOKEN}"
    config["runArgs"] += [f"--volume={home}/.docker:/mnt/docker:ro", "--env=OTHER"]
    config["mounts"].append(f"type=bind,source={home}/.aws,target=/data/aws,readonly")
    one.write(".devcontainer/cpu/devcontainer.json", json.dumps(config))
    one.user.give(one.path)
    env = {"HF_TOKEN": f"{token}11", "AWS_SESSION_TOKEN": f"{token}12", "OTHER": f"{token}13"}
    plainly = one.launch("--cpu", "run", "--", "python3", "-c", LOOK, **env)
    assert plainly.stdout.count("planted-") > 6, "the test finds what is there: " + plainly.stdout + plainly.stderr
    for left in ("outputs/x", "x"):
        (one.path / left).unlink(missing_ok=True)

    sealed = one.launch(
        "--cpu", "--no-credentials", "--no-network", "run", "--", "python3", "-c", LOOK + NETWORK, **env
    )
    lines = sealed.stdout.splitlines()
    assert lines[:2] == ["[]", "own code False"] and lines[2:5] == WROTE and lines[5:] == ["interfaces ['lo']"], sealed
    kept = [path.name for path in (one.path / "outputs").glob("run-*-files/*")]
    assert kept == ["x"] and not list((one.path / ".launch/jobs").glob("run-*"))
    assert not (one.path / "x").exists(), "the project's folder is not the container's"

    one.launched("--no-credentials", "submit", "--", "python3", "-c", LOOK + NETWORK + WAIT)
    one.launched("--cpu", "jobs", "run", "-d", **env)
    until(lambda: "interfaces" in one.launch("jobs", "logs", "1").stdout, 180)
    # what the engine itself keeps: the container with its environment and mounts, and the images with their history
    (container,) = one.containers()
    images = one.engine.get("images", "--quiet", f"--filter=label=gpukit.project={one.path}").split()
    assert images
    about = [one.engine.get("inspect", each) for each in (container, *images)]
    about += [one.engine.get("history", "--no-trunc", image) for image in images]
    assert token not in "".join(about)
    (one.path / "outputs/seen").touch()
    one.launched("jobs", "wait", "1", "--timeout", "60")
    log = one.launched("jobs", "logs", "1").splitlines()
    one.launched("--cpu", "stop")
    assert log[:2] == ["[]", "own code False"] and log[2:5] == WROTE and "eth0" in log[5], log
    for refused in (["--native", "--no-credentials", "run", "--", "true"], ["--no-network", "up"]):
        assert one.launch(*refused).returncode != 0
