"""`submit --on kubernetes`: jobs that a cluster runs with the project's cluster/job.yaml.

Its Service and its volume are created once and stay. Each job is a Job of its own, with the project's image and source;
what is known of it here is in .launch/kubernetes, the rest is asked of the cluster in which it was created.
"""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gpukit.jobs import manifest, pods, records
from gpukit.jobs.kubectl import DRY, SECONDS, Object, Place, context, explained, kubectl, parse, read
from gpukit.jobs.progress import run_of
from gpukit.jobs.table import FINAL, find, refuse_ended, refuse_open
from gpukit.project.location import located
from gpukit.project.messages import RefusalError, say

LETTERS = "bcdfghjklmnpqrstvwxz2456789"  # of Kubernetes' own suffixes: they make no words
CREATE = ("create", "--output=json", "--filename=-")
CREATING = 3 * SECONDS  # in which a new Job may not exist yet: it is recorded here first
EVERY = 2.0  # seconds between two looks, for `logs -f`


def folder(root: Path) -> Path:
    return located(records.PLACES["kubernetes"], root)


def submit(
    root: Path, command: list[str], package: str, code: str, image: tuple[str, str] | None = None, **asked: Any
) -> dict[str, Any]:
    """Create a Job in the cluster; what is recorded of it here, with its ID, such as kx7f4z.

    `code`: the commit of the project's files. `image`: one that has them, and its architecture; by default, it is built
    and pushed. `asked`: nodes, gpus, queue, max_hours, and variables; None or empty for those in the file.
    """
    from gpukit.host.project import Project

    if not (root / manifest.SCRIPT).is_file():
        raise records.lacking(root, "kubernetes")
    objects = read(str(root / manifest.SCRIPT), "app.kubernetes.io/managed-by=gpukit")
    suffix = "".join(secrets.choice(LETTERS) for _ in range(5))
    try:
        (job,) = [each for each in objects if each["kind"] == "Job"]
        container = manifest.container_of(job)
        nodes, gpus = manifest.sizes(job, asked["nodes"], asked["gpus"])
        name = manifest.job_name(job["metadata"]["name"], suffix, nodes)
        command = manifest.program(job, command, package, name)
        job["metadata"].setdefault("annotations", {})["gpukit/code"] = code
        manifest.adapt(job, name, asked["queue"], asked["max_hours"], asked["variables"])
        repository = manifest.repository(job, Project(root, os.environ).env)
    except (KeyError, IndexError, TypeError, ValueError, AttributeError):
        sentence = f"{manifest.SCRIPT} must have one Job with a container: restore it with `git checkout`."
        raise RefusalError(sentence) from None
    place = context()
    missing = lacking(place, [each for each in objects if each is not job])
    container["image"] = f"{repository}:checked"
    # What the cluster refuses is known before the image is built.
    accepted = parse(kubectl(place, *CREATE, DRY, objects=[*missing, job]))
    container["image"], architecture = image or manifest.build(root, code, repository)
    job["spec"]["template"]["spec"].setdefault("nodeSelector", {})["kubernetes.io/arch"] = architecture
    facts = {"context": place, "namespace": accepted[-1]["metadata"]["namespace"], "name": name}
    facts |= {"image": container["image"], "architecture": architecture, "nodes": nodes, "gpus": nodes * gpus}
    facts |= {name: asked[name] for name in ("queue", "max_hours", "variables")}
    facts |= {"code": code, "log": ""}
    new = records.new(f"k{suffix}", command, run_folder=run_folder(container, command), **facts)
    records.write(folder(root), new)  # before it exists, so that none is lost
    try:
        if missing:
            kubectl(place, *CREATE, objects=missing)
        if not kubectl(place, *CREATE, objects=[job]):
            raise RefusalError(f"The cluster has another Job {name}: submit again, for another name.")
    except RefusalError:
        (folder(root) / f"{new['id']}.json").unlink()
        raise
    return new


def lacking(place: Place, objects: list[Object]) -> list[Object]:
    """Those of the objects that the cluster does not have."""
    if not objects:
        return []
    there = parse(kubectl(place, "get", "--ignore-not-found", "--output=json", "--filename=-", objects=objects))
    names = [(each["kind"], each["metadata"]["name"]) for each in there]
    return [each for each in objects if (each["kind"], each["metadata"]["name"]) not in names]


def run_folder(container: Object, command: list[str]) -> str:
    """Where the job's run is, as its pods see it."""
    options = dict(zip(container["args"], container["args"][1:]))
    run = run_of(command)
    return f"{options['--output-dir']}/{run}, in the volume" if run and "--output-dir" in options else ""


def place_of(job: dict[str, Any]) -> Place:
    return [*job["context"], f"--namespace={job['namespace']}"]


# How the jobs are


def jobs(root: Path) -> list[dict[str, Any]]:
    """This project's jobs on Kubernetes, as they are now."""
    found = records.read(folder(root))
    open_ones = [job for job in found if job["state"] not in FINAL]
    for place in {tuple(place_of(job)) for job in open_ones}:
        here = [job for job in open_ones if tuple(place_of(job)) == place]
        try:
            seen = look(list(place), [job["name"] for job in here])
        except RefusalError as refusal:
            for job in here:
                job["note"] = str(refusal)
            continue
        for job in here:
            before = dict(job)
            refresh(job, *seen)
            if job != before:
                records.refreshed(folder(root), job)
    return found


def look(place: Place, names: list[str]) -> tuple[list[Object], list[Object], list[Object]]:
    """The Jobs with these names, their pods, and the events of pods that could not be created."""

    def ask(*arguments: str) -> list[Object]:
        return parse(kubectl(place, "get", *arguments, "--output=json", seconds=10))

    there = ask("job", *names, "--ignore-not-found")
    listed = ask("pod", f"--selector={pods.JOB} in ({','.join(names)})")
    events = []
    if {each["metadata"]["name"] for each in there} - {pod["metadata"]["labels"][pods.JOB] for pod in listed}:
        events = ask("event", "--field-selector=involvedObject.kind=Job,reason=FailedCreate")
    return there, listed, events


def refresh(job: dict[str, Any], there: list[Object], listed: list[Object], events: list[Object]) -> None:
    """Set the state of a job by its Job, its pods, and the events about it."""
    seen = next((each for each in there if each["metadata"]["name"] == job["name"]), None)
    new = not job["started"] and time.time() - job["submitted"] < CREATING
    if seen is None and new and not job["wanted"]:
        return
    if seen is None:
        note = "" if job["wanted"] else "the cluster no longer has it: it was deleted, or it ended long ago"
        job.update(state=job["wanted"] or "failed", note=note, ended=time.time())
        return
    ours = pods.of(job["name"], listed)
    begun = pods.started(ours)
    job["starts"] = max(job["starts"], pods.starts(ours))
    job["started"] = job["started"] or min(begun, default=None)
    conditions = {each["type"]: each for each in seen["status"].get("conditions", []) if each["status"] == "True"}
    end = conditions.get("Complete") or conditions.get("Failed")
    if end:
        state, job["status"], note = outcome(end, ours, job["nodes"])
        job["ended"] = pods.moment(end["lastTransitionTime"])
    elif seen["metadata"].get("deletionTimestamp"):
        state = "running"
        note = "it is being canceled"
    elif seen["spec"].get("suspend"):
        state = "queued"
        note = "Kueue has not admitted it yet" if job["queue"] else "it is suspended"
    elif any(pods.state(pod)[0] == "running" for pod in ours):
        state = "running"
        note = ""
    else:
        messages = [each["message"] for each in events if each["involvedObject"]["name"] == job["name"]]
        why = pods.waits_for(ours) or "".join(messages[-1:])
        known = explained(why)
        state = "queued"
        note = f"{known} ({why})" if known else why
    job.update(state=state, note=note)
    if job["started"]:  # by clocks that may differ
        job["ran"] = max(0.0, (job["ended"] or time.time()) - job["started"])


def outcome(end: Object, ours: list[Object], nodes: int) -> tuple[str, int | None, str]:
    """The state, the exit status, and a note, of a Job's last condition and its pods."""
    if end["type"] == "Complete":
        return "finished", 0, ""
    if end.get("reason") == "DeadlineExceeded":
        return "out of time", None, ""
    failed = pods.failures(ours)
    if not failed:
        return "failed", None, end.get("message", "")
    pod, facts = failed[-1]
    which = f" on machine {pods.index(pod)}" if nodes > 1 else ""
    if facts.get("reason") == "OOMKilled":
        return "failed", facts["exitCode"], f"memory was full{which}: raise its limit in {manifest.SCRIPT}"
    return "failed", facts["exitCode"], f"exit status {facts['exitCode']}{which}"


# The commands


def get(root: Path, number: str) -> dict[str, Any]:
    return find(jobs(root), number)


def logs(root: Path, number: str, follow: bool, write: Callable[[bytes], None]) -> int:
    """Print the logs of a job's first machine, one for each start, and of pods that failed. `write` gets each line."""
    last: dict[str, str] = {}  # of each pod, the time of the newest line
    complete: set[str] = set()
    note = ""
    try:
        while True:
            job = get(root, number)
            place = place_of(job)
            selector = f"--selector={pods.JOB}={job['name']}"
            ours = pods.of(job["name"], parse(kubectl(place, "get", "pod", selector, "--output=json")))
            failed = [pod["metadata"]["name"] for pod, _ in pods.failures(ours)]
            for pod in ours:
                name = pod["metadata"]["name"]
                state = pods.state(pod)[0]
                if name in complete or state == "waiting" or (pods.index(pod) and name not in failed):
                    continue
                if name not in last:
                    say(f"The log of the pod {name}:")
                last[name] = print_log(place, name, follow, last.get(name, ""), write)
                if state == "terminated":
                    complete.add(name)
            if not follow or job["state"] in FINAL:
                break
            if job["note"] != note:
                note = job["note"]
                say(": ".join(filter(None, (f"Job {number} is {job['state']}", note))))
            time.sleep(EVERY)
    except KeyboardInterrupt:
        return 130
    if not last:
        why = job["note"] or ("its pods are gone" if job["state"] in FINAL else "it has not started")
        raise RefusalError(f"Job {number} has no log: {why.rstrip('.')}.")
    return 0


def print_log(place: Place, pod: str, follow: bool, since: str, write: Callable[[bytes], None]) -> str:
    """Print a pod's log, until the connection ends or breaks; the time of the newest line.

    `since`: the time of the newest line that was printed before a connection broke.
    """
    command = ["kubectl", *place, "logs", pod, "--timestamps", *["--follow"] * follow]
    command += [f"--since-time={since}"] if since else []  # it counts in whole seconds
    last = since
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            for line in process.stdout or ():
                stamp, _, text = line.partition(b" ")
                if not stamp[:4].isdigit():  # a message of the node
                    write(line)
                    continue
                # All have nine digits after the second: timeFormatOut of the kubelet's logs.go (2026-11-26).
                moment = stamp.decode(errors="replace")
                last = max(last, moment)
                if moment > since:
                    write(text)
        except BaseException:
            process.terminate()
            raise
    sys.stdout.flush()
    return last


def cancel(root: Path, number: str) -> int:
    """Delete the Job; it stays, with the note that it is being canceled, until its pods have saved and ended."""
    job = get(root, number)
    refuse_ended(job)
    kubectl(place_of(job), "delete", "job", job["name"], "--cascade=foreground", "--wait=false", "--ignore-not-found")
    records.write(folder(root), {**job, "wanted": "canceled"})
    say(f"Job {number} is being canceled.")
    return 0


def retry(root: Path, number: str, package: str) -> dict[str, Any]:
    """Create a Job with the same command, run, and image."""
    job = get(root, number)
    refuse_open(job)
    same = {name: job[name] for name in ("nodes", "queue", "max_hours", "variables")}
    same["gpus"] = job["gpus"] // job["nodes"]
    return submit(root, job["command"], package, job["code"], (job["image"], job["architecture"]), **same)
