"""Slurm on this machine: its controller, two nodes, and munge, on loopback, in one folder.

The daemons run in their own mount namespace, with two private mounts: /etc/hosts, which names the nodes, and an empty
/sys/fs/cgroup, without which slurmd does not start in a container.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tests.ports import free_port

ROOT = [] if os.getuid() == 0 else ["sudo", "-n", "--preserve-env"]
TOOLS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "scontrol", "scancel", "unshare", "nsenter", "setpriv")
SBIN = os.pathsep.join([os.environ["PATH"], "/usr/sbin", "/sbin"])
NODES = ("node1", "node2")
PATIENCE = 400  # seconds; on an idle machine, everything takes a minute
# A requeued job waits for the lifetime of a credential, which is two minutes by default.
CONFIG = """\
ClusterName=tests
SlurmctldHost=localhost
SlurmUser=root
SlurmdUser=root
AuthInfo=socket={folder}/munge,cred_expire=5
SlurmctldPort={ports[0]}
StateSaveLocation={folder}/state
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
SlurmdSpoolDir={folder}/%n
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
ReturnToService=2
KillWait=15
MailProg=/bin/true
NodeName=node1 NodeHostname=localhost NodeAddr=127.0.0.1 Port={ports[1]} CPUs=4
NodeName=node2 NodeHostname=localhost NodeAddr=127.0.0.1 Port={ports[2]} CPUs=4
PartitionName=all Nodes=ALL Default=YES State=UP
"""
# Each daemon is a child of this shell, and ends with it.
START = """\
set -e
chown "$(id -u)" "$1/key"
echo $$ > "$1/pid"
mount -t tmpfs none /sys/fs/cgroup
mount --bind "$1/hosts" /etc/hosts
munged --force --socket="$1/munge" --key-file="$1/key" --log-file="$1/munged.log" --pid-file="$1/munged.pid" \\
  --seed-file="$1/seed" --foreground &
until [ -S "$1/munge" ]; do sleep 0.1; done
slurmctld -D > "$1/slurmctld.log" 2>&1 &
slurmd -D -N node1 > "$1/node1.log" 2>&1 &
slurmd -D -N node2 > "$1/node2.log" 2>&1 &
trap 'kill $(jobs -p); wait' TERM
wait
"""


def lacking() -> str:
    """Why Slurm cannot run here; empty if it can."""
    missing = [tool for tool in TOOLS if not shutil.which(tool, path=SBIN)]
    if missing:
        return f"{', '.join(missing)} not here: apt-get install slurm-wlm munge"
    try:
        subprocess.run([*ROOT, "unshare", "--mount", "true"], capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "only root, or who may use sudo without a password, can make the namespace that Slurm's daemons need"
    return ""


class Slurm:
    """A cluster in `folder`, whose path must be short because it contains a socket."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("state", *NODES):
            (folder / name).mkdir(parents=True)
        folder.chmod(0o755)  # munged refuses a socket that other users cannot reach
        (folder / "hosts").write_text(Path("/etc/hosts").read_text() + f"127.0.0.1 {' '.join(NODES)}\n")
        (folder / "key").write_bytes(os.urandom(128))
        (folder / "key").chmod(0o400)
        (folder / "slurm.conf").write_text(CONFIG.format(folder=folder, ports=[free_port() for _ in range(3)]))
        asked = subprocess.run(["slurmd", "-V"], capture_output=True, text=True, env={"PATH": SBIN}, check=True)
        version = tuple(map(int, re.findall(r"\d+", asked.stdout)[:2]))
        plugin = "disabled" if version >= (23, 2) else "cgroup/v1"
        (folder / "cgroup.conf").write_text(f"CgroupPlugin={plugin}\n")
        self.version = ".".join(map(str, version))
        self.env = {**os.environ, "PATH": SBIN, "SLURM_CONF": str(folder / "slurm.conf")}
        with (folder / "start.log").open("w") as log:
            command = [*ROOT, "unshare", "--mount", "bash", "-c", START, "-", str(folder)]
            self.daemons = subprocess.Popen(command, env=self.env, stdout=log, stderr=log, start_new_session=True)
        try:
            self.wait(lambda: self.ask("sinfo", "--noheader", "--format=%T").split() == ["idle"], "its nodes")
        except BaseException:
            self.close()
            raise

    def ask(self, *command: str | Path, cwd: Path | None = None, **env: str) -> str:
        """The output of a Slurm command, run as this user; "" if it fails."""
        pid = self.folder / "pid"
        if not pid.exists():  # not yet
            return ""
        inside = [*ROOT, "nsenter", f"--target={pid.read_text().strip()}", "--mount", f"--wd={cwd or self.folder}"]
        inside += ["setpriv", f"--reuid={os.getuid()}", f"--regid={os.getgid()}", "--clear-groups"]
        done = subprocess.run([*inside, *command], env={**self.env, **env}, capture_output=True, text=True, timeout=60)
        if done.returncode:
            print(*command, done.stdout, done.stderr, file=sys.stderr)
        return "" if done.returncode else done.stdout

    def wait(self, there: Callable[[], bool], what: str, job: str = "", within: float = PATIENCE) -> None:
        until = time.monotonic() + within
        while not there():
            if time.monotonic() > until or self.daemons.poll() is not None:
                raise AssertionError(f"{what} not there after {within} s\n{self.report(job)}")
            time.sleep(0.2)

    def report(self, job: str = "") -> str:
        """The logs of the daemons, for a test that failed."""
        logs = [path.read_text(errors="replace")[-1500:] for path in sorted(self.folder.glob("*.log"))]
        return "\n".join([self.ask("scontrol", "show", "job", job), *logs])

    def submit(self, project: Path, *arguments: str, options: tuple[str, ...] = (), **env: str) -> str:
        """The id of the project's job; `arguments` go to its train.py, `options` to sbatch."""
        env = {"OMP_NUM_THREADS": "1", **env}
        script = ["sbatch", "--parsable", *options, "cluster/train.sbatch", *arguments]
        return self.ask(*script, cwd=project, **env).strip()

    def facts(self, job: str) -> dict[str, str]:
        return dict(re.findall(r"(\w+)=(\S*)", self.ask("scontrol", "show", "job", job)))

    def end(self, job: str, within: float = PATIENCE) -> str:
        """The final state of a job."""
        going = ("PENDING", "RUNNING", "COMPLETING", "CONFIGURING", "REQUEUED")
        self.wait(lambda: self.facts(job).get("JobState", "PENDING") not in going, f"the end of job {job}", job, within)
        return self.facts(job)["JobState"]

    def close(self) -> None:
        """End all jobs, then the daemons."""
        self.ask("scancel", f"--user={os.getuid()}")
        with contextlib.suppress(AssertionError):
            self.wait(lambda: not self.ask("squeue", "--noheader"), "an empty queue", within=40)
        self.daemons.terminate()
        try:
            self.daemons.wait(30)
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.daemons.pid, signal.SIGKILL)  # also daemons that outlived the shell
