"""`./launch submit` and `./launch jobs`: what they print, and what they refuse."""

from __future__ import annotations

import argparse
import csv
import json
import math
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gpukit.host import frozen, queue
from gpukit.jobs import contract, records
from gpukit.jobs.progress import clean, progress, run_folder, run_of, short
from gpukit.jobs.table import FINAL, Table, find
from gpukit.project.location import is_adopted, located
from gpukit.project.messages import RefusalError, announced, say

ENDED_SHOWN = 20  # of the jobs that have ended, in the table
SEVERAL = ("cancel", "compare", "wait")  # they take any number of jobs; list and run take none, the others one
ONLY_WITH = {"detach": "run", "budget": "run", "keep_free": "run", "watch": "list", "follow": "logs"}
ONLY_WITH |= {"metric": "compare", "csv": "compare", "timeout": "wait"}
SHORT = {"detach": "-d", "follow": "-f"}
CLUSTER_FACTS = ("name", "namespace", "nodes", "queue", "image")  # of jobs on Kubernetes, shown by `jobs show`
STATES = {"finished": "32", "failed": "31", "running": "36"}  # colors


def flags(options: Any) -> list[str]:
    """The options before the command that a follow-up of it needs too."""
    given = vars(options)
    found = ["--native"] * bool(given.get("native")) + ["--cpu"] * bool(given.get("cpu"))
    return found + ([f"--gpus={given['gpus']}"] if given.get("gpus") else [])


def idle(root: Path, options: Any) -> str:
    """That nothing processes the queue, and what does."""
    launch = " ".join(["./launch", *flags(options)])
    if queue.is_service(root) and not vars(options).get("native"):
        return f"Nothing is processing the queue: `{launch} up` starts the service that does."
    here = f"`{launch} jobs run` processes the queue in this terminal, `{launch} jobs run -d` in the background."
    return f"Nothing is processing the queue: {here}"


def submit(root: Path, options: Any) -> int:
    if vars(options).get("gpus"):
        raise RefusalError(
            "Choose GPUs where the queue is processed (`./launch --gpus 0,1 jobs run`); a job has a number."
        )
    if not options.rest:
        raise RefusalError("`submit` needs a command: ./launch submit -- python -m yourpackage.train")
    for name in options.variables:
        if not re.fullmatch(r"[A-Za-z_]\w*", name):
            raise RefusalError(f"-e {name.partition('=')[0]}: give only the variable's name; a queue stores no values.")
    numbers = [number for number in (options.count, options.nodes, options.max_hours) if number is not None]
    if not all(0 < number < math.inf for number in numbers):
        raise RefusalError("--gpus, --nodes, and --max-hours must be numbers greater than 0.")
    without = " ".join(name for name in ("credentials", "network") if vars(options).get(f"no_{name}"))
    if without and (options.latest or options.on):
        raise RefusalError("--no-credentials needs a container and a copy of the code: leave --on and --latest out.")
    if without and is_adopted(root):
        from gpukit.launch import sealed

        raise RefusalError(sealed.UNKNOWN)
    if options.on and options.priority:
        raise RefusalError("--priority is of the queue on this machine: a cluster has priorities of its own.")
    if options.on == "kubernetes":
        return to_kubernetes(root, options)
    if options.nodes or options.queue:
        raise RefusalError("--nodes and --queue go with `--on kubernetes`.")
    gpus = options.count or 1
    if options.on == "slurm":
        from gpukit.jobs import slurm

        facts = {"gpus": gpus, "after": options.after, "max_hours": options.max_hours}
        env = with_variables(root, options.variables)
        with frozen.submitting(root):
            facts["code"] = "" if options.latest else frozen.freeze(root)
            new = slurm.submit(root, options.rest, package(root), env, variables=options.variables, **facts)
        records.forget_old_code(root)
        return submitted(root, slurm.get(root, new), options, f"Job {new} is handed to Slurm.")
    if isinstance(options.after, str):
        raise RefusalError("A job of this queue cannot wait for a job on a cluster.")
    place = queue.folder(root)
    with frozen.submitting(root), Table(place) as table:
        number = table.submit(
            named(options.rest, package(root)),
            gpus=gpus,
            priority=options.priority,
            after=options.after,
            max_hours=options.max_hours,
            variables=options.variables,
            project=queue.fingerprint(root),
            code="" if options.latest else frozen.freeze(root, "" if without else frozen.LATEST),
            sealed=without,
        )
        job = table.get(number)
    held = f" It is held: {job['note']}." if job["note"] else ""
    submitted(root, job, options, f"Job {number} is in the queue.{held}")
    if queue.WorkerLock(place).holder() is None:
        say(idle(root, options))
    return 0


def to_kubernetes(root: Path, options: Any) -> int:
    """Submit to Kubernetes."""
    if options.after is not None:
        raise RefusalError("--after has no effect on Kubernetes: submit the job when the other one is finished.")
    if options.latest:
        raise RefusalError("--latest has no effect on Kubernetes: the image contains the code.")
    from gpukit.jobs import kubernetes

    asked = {"nodes": options.nodes, "gpus": options.count, "queue": options.queue, "max_hours": options.max_hours}
    with frozen.submitting(root):
        code = frozen.freeze(root, otherwise="")
        new = kubernetes.submit(root, options.rest, package(root), code, variables=options.variables, **asked)
    records.forget_old_code(root)
    return submitted(root, new, options, f"Job {new['id']} is handed to Kubernetes.")


def submitted(root: Path, job: dict[str, Any], options: Any, sentence: str) -> int:
    """Print the number of a new job, or all of it as JSON."""
    print(json.dumps(contract.job_as_json(root, job)) if options.json else job["id"])
    say(sentence)
    return 0


def with_variables(root: Path, names: list[str]) -> dict[str, str]:
    """This environment, with the values of variables that .env may have."""
    from gpukit.host.project import Project

    given = Project(root, os.environ).env
    missing = [name for name in names if name not in given]
    if missing:
        raise RefusalError(f"{', '.join(missing)} not set: add to .env, or set here.")
    return {**os.environ, **{name: given[name] for name in names}}


def package(root: Path) -> str:
    try:
        return str(json.loads(located("stack.json", root).read_text(encoding="utf-8")).get("package", ""))
    except (OSError, ValueError, AttributeError):
        return ""


def named(command: list[str], package: str) -> list[str]:
    """Give the project's training a run of its own, so that a restart resumes this job and no other."""
    module = next(
        (at for at, word in enumerate(command) if command[at - 1 : at] == ["-m"] and word == f"{package}.train"), 0
    )
    if not module or not package:
        return command
    arguments = command[module + 1 :]
    if records.run_and_arguments(arguments)[0]:
        return command
    return [*command[: module + 1], "--name=job-{job}", *arguments]


def jobs(root: Path, options: Any) -> int:
    action = options.ACTION
    numbers = options.ID
    number = numbers[0] if numbers else None
    most = 0 if action in ("list", "run") else 1
    if len(numbers) > most and action not in SEVERAL:
        raise RefusalError(f"`jobs {action}` takes {'one job' if most else 'no job'}.")
    for option, only in ONLY_WITH.items():
        if vars(options)[option] and action != only:
            name = SHORT.get(option) or f"--{option.replace('_', '-')}"
            raise RefusalError(f"{name} goes with `jobs {only}`.")
    if options.watch and options.json:
        raise RefusalError("--watch draws a table for people: omit it, or --json.")
    if action == "run" and options.json:
        raise RefusalError("`jobs run` prints the log of each job: omit --json; `./launch jobs --json` lists the jobs.")
    if action == "run" and Path("/etc/gpukit").is_dir():
        raise RefusalError("This is the inside of the container: `./launch jobs run` on the host processes the queue.")
    if vars(options).get("dry_run") and action in ("run", "cancel", "retry", "move"):
        raise RefusalError("--dry-run does not apply to the queue: `./launch jobs` shows what is next.")
    if action == "cancel" and len(numbers) > 1:
        return cancel_several(root, numbers, options)
    if action == "compare":
        return compare(root, numbers, options)
    if action == "wait":
        return wait(root, numbers, options)
    if isinstance(number, str):
        return reported(root, options, on_cluster(root, action, number, options))
    try:
        place = queue.folder(root)
    except RefusalError:  # a network file system
        elsewhere = on_clusters(root) if action == "list" else []
        if not elsewhere:
            raise
        print_list(root, elsewhere, False, options.json)
        return 0
    if action == "run":
        return run(root, options, place)
    if action not in ("list", "logs") and number is None:
        raise RefusalError(f"`jobs {action}` needs the number of a job: `./launch jobs` lists the jobs.")
    with Table(place) as table:
        if action == "list":
            return watch(table, place) if options.watch else show_all(table, place, options)
        if action == "show":
            return show(table.get(number), root, options.json)
        if action == "logs":
            return logs(table, place, number, options)
        if action == "move":
            table.move(number)
            say(f"Job {number} is the next one.")
            return reported(root, options, 0)
        if action == "cancel":
            return reported(root, options, cancel(table, place, number, options))
        new = retried(table, root, number)
        sentence = f"Job {new} is in the queue: the same command, code, and run as job {number}."
        submitted(root, table.get(new), options, sentence)
    if queue.WorkerLock(place).holder() is None:
        say(idle(root, options))
    return 0


def reported(root: Path, options: Any, code: int) -> int:
    """After a job was canceled or moved: print it as JSON if that is asked for."""
    if options.json and options.ACTION in ("cancel", "move"):
        print(json.dumps(contract.job_as_json(root, jobs_of(root, options.ID)[0])))
    return code


def retried(table: Table, root: Path, number: int) -> int:
    """The number of a new job, which retries this one with the same code."""
    code = table.get(number)["code"]
    with frozen.submitting(root):
        if code:
            frozen.keep(root, code)
        return table.retry(number, queue.fingerprint(root))


def on_cluster(root: Path, action: str, number: str, options: Any) -> int:
    """What `jobs` does with a job on Slurm or Kubernetes."""
    from gpukit.jobs import kubernetes, slurm

    cluster = kubernetes if number.startswith("k") else slurm
    name = "Kubernetes" if number.startswith("k") else "Slurm"
    if action == "show":
        return show(cluster.get(root, number), root, options.json)
    if action == "logs":
        logs_of = logs_of_kubernetes if cluster is kubernetes else logs_of_slurm
        return logs_of(root, number, options)
    if action == "cancel":
        return cluster.cancel(root, number)
    if action == "move":
        raise RefusalError(f"{name} orders its jobs itself.")
    with frozen.submitting(root):
        if cluster is kubernetes:
            new = kubernetes.retry(root, number, package(root))
        else:
            env = with_variables(root, slurm.get(root, number)["variables"])
            new = slurm.get(root, slurm.retry(root, number, package(root), env))
    sentence = f"Job {new['id']} is handed to {name}: the same command, code, and run as job {number}."
    return submitted(root, new, options, sentence)


def logs_of_slurm(root: Path, number: str, options: Any) -> int:
    from gpukit.jobs import slurm

    job = slurm.get(root, number)
    path = root / job["log"]
    if not path.exists() and not (options.follow and job["state"] not in FINAL):
        raise RefusalError(f"Job {number} has no log: it has not started.")
    if options.json:
        return print_log_as_json(job, [path])
    return print_log(path, options.follow, lambda: slurm.get(root, number)["state"] in FINAL, every=2)


def logs_of_kubernetes(root: Path, number: str, options: Any) -> int:
    from gpukit.jobs import kubernetes

    text: list[bytes] = []
    write = text.append if options.json else lambda line: print(plain(line), end="", flush=True)
    code = kubernetes.logs(root, number, options.follow, write)
    return print_end_as_json(kubernetes.get(root, number), b"".join(text)) if options.json else code


def on_clusters(root: Path) -> list[dict[str, Any]]:
    from gpukit.jobs import kubernetes, slurm  # not for `submit`, which they would make a third slower

    return slurm.jobs(root) + kubernetes.jobs(root)


def cancel(table: Table, place: Path, number: int, options: Any) -> int:
    state = table.cancel(number)
    if state == "canceled":  # the checkout of a job that was interrupted
        left = frozen.remove(place.parents[1], place / str(number), f"job-{number}-files")
        say(f"Job {number} is canceled" + (f"; {left}." if left else "."))
    if state == "running":
        if queue.WorkerLock(place).holder() is None:
            say(f"Job {number} was interrupted; it is canceled as soon as the queue is processed.")
            say(idle(place.parents[1], options))
        else:
            say(f"Job {number} is being canceled: it has one minute to save.")
    return 0


def cancel_several(root: Path, numbers: list[int | str], options: Any) -> int:
    """Cancel each that can be canceled; 1 if one could not, such as a job that has ended."""
    canceled = []
    for number in dict.fromkeys(numbers):
        try:
            jobs(root, argparse.Namespace(**{**vars(options), "ID": [number], "json": False}))
            canceled.append(number)
        except RefusalError as error:
            say(str(error))
    if options.json:
        print(json.dumps({"jobs": [contract.job_as_json(root, job) for job in jobs_of(root, canceled)]}))
    return 0 if len(canceled) == len({*numbers}) else 1


def jobs_of(root: Path, numbers: list[int | str]) -> list[dict[str, Any]]:
    """Jobs of this queue, or of clusters, each of which is asked once."""
    from gpukit.jobs import kubernetes, slurm

    clusters = {kubernetes if number.startswith("k") else slurm for number in numbers if isinstance(number, str)}
    known = [job for cluster in clusters for job in cluster.jobs(root)]
    here = [number for number in numbers if isinstance(number, int)]
    if here:
        with Table(queue.folder(root)) as table:
            known += [table.get(number) for number in here]
    return [find(known, number) for number in numbers]


def compared(root: Path, numbers: list[int | str], metric: str) -> dict[str, Any]:
    """These jobs, or all that have started."""
    from gpukit.jobs import ledger

    if numbers:
        return ledger.compare(root, jobs_of(root, numbers), metric)
    found = records.stored(root)
    if (located(frozen.PLACE, root) / "queue.sqlite").exists():  # it cannot be on a network file system
        with Table(queue.folder(root)) as table:
            found = table.recent(ledger.MOST) + found
    return ledger.compare(root, [job for job in found if job["starts"]], metric)


def compare(root: Path, numbers: list[int | str], options: Any) -> int:
    found = compared(root, numbers, options.metric)
    if options.json:
        print(json.dumps(found))
        return 0
    from gpukit.jobs import ledger

    rows = ledger.table(found)
    if options.csv:
        csv.writer(sys.stdout, lineterminator="\n").writerows(rows)
        return 0
    if found["jobs"]:
        print("\n".join(ledger.aligned(rows)))
    else:
        print("No job has started yet: `./launch jobs` lists the queue.")
    return 0


def wait(root: Path, numbers: list[int | str], options: Any) -> int:
    """Wait until all of these jobs have ended or are held; how they ended is the exit code."""
    if not numbers:
        raise RefusalError("`jobs wait` needs the numbers of jobs: `./launch jobs` lists the jobs.")
    until = time.monotonic() + (math.inf if options.timeout is None else options.timeout)
    place = located(frozen.PLACE, root)
    idling = 0
    notes: dict[int | str, str] = {}
    with announced("Waiting for the jobs; `./launch jobs --watch` shows their progress."):
        while True:
            found = jobs_of(root, numbers)
            over = all(job["state"] in contract.EXIT for job in found)
            if over or time.monotonic() > until:
                break
            for job in found:  # why it does not start, such as an image that cannot be built
                note = job.get("note") or ""
                if job["state"] in ("queued", "waiting") and note != notes.get(job["id"], ""):
                    notes[job["id"]] = note
                    say(f"Job {job['id']} is {job['state']}: {note}")
            idling = idling + 1 if queue.WorkerLock(place).holder() is None else 0
            if idling == 4 and not isinstance(numbers[0], str):  # not only while it is restarted
                say(idle(root, options))
            time.sleep(min(2.0 if isinstance(numbers[0], str) else 0.5, max(0.01, until - time.monotonic())))
    if options.json:
        print(json.dumps({"jobs": [contract.job_as_json(root, job, detailed=True) for job in found], "over": over}))
    else:
        print("\n".join(f"{job['id']} {job['state']}" for job in found))
    return contract.exit_code([job["state"] for job in found]) if over else contract.TIMED_OUT


def run(root: Path, options: Any, place: Path) -> int:
    from gpukit.host.project import Project
    from gpukit.host.refusals import no_gpu
    from gpukit.jobs import worker

    given = vars(options)

    def make(gpus: str, folder: Path = root) -> Project:
        return Project(folder, os.environ, given.get("cpu", False), gpus or given.get("gpus", ""))

    project = make("")
    if project.gpus is not None and project.lacks_gpu(given.get("native", False)):
        raise no_gpu()
    if not options.detach:
        limits = worker.Limits(options.budget or math.inf, options.keep_free)
        return worker.process(project, given.get("native", False), make, place, limits)
    lock = queue.WorkerLock(place)
    if lock.holder() is not None:
        say(f"The queue is already being processed, by {lock.name()}.")
        return 0
    limits = [f"--budget={options.budget}h"] if options.budget else []
    if options.keep_free:
        limits.append(f"--keep-free={options.keep_free:.0f}B")
    own = [str(root / "launch")] if ".whl" in __file__ else [sys.executable, "-m", "gpukit"]
    log = place / "worker.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*own, *flags(options), "jobs", "run", *limits],
            cwd=root,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    until = time.monotonic() + 20
    while not (lock.holder() or {}).get("pid") and time.monotonic() < until:
        if process.poll() is not None:
            text = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
            raise RefusalError(f"The queue could not be started: {text[-1] if text else 'no error text'}")
        time.sleep(0.05)
    stop = "./launch --native stop" if given.get("native") else "./launch stop"
    say(f"The queue is processed in the background; `{stop}` stops it, and {log} is its log.")
    return 0


# Printing


def show_all(table: Table, place: Path, options: Any) -> int:
    processing = queue.WorkerLock(place).holder() is not None
    print_list(place.parents[1], every(table, place), processing, options.json)
    if not processing and table.counts():
        say(idle(place.parents[1], options))
    return 0


def print_list(root: Path, jobs: list[dict[str, Any]], processing: bool, as_json: bool) -> None:
    if as_json:
        print(json.dumps({"jobs": [contract.job_as_json(root, job) for job in jobs], "processing": processing}))
    else:
        print("\n".join(lines(jobs, root, sys.stdout.isatty())))


def every(table: Table, place: Path) -> list[dict[str, Any]]:
    """The jobs of the queue that are of interest, and those on clusters."""
    return table.recent(ENDED_SHOWN) + on_clusters(place.parent.parent)


def lines(every: list[dict[str, Any]], root: Path, color: bool = False) -> list[str]:
    """The table: what runs, how far it is, what is next, in order, and what has ended lately."""
    order = {"running": 0, "queued": 1, "waiting": 1, "held": 2}
    todo = [job for job in every if job["state"] not in FINAL]
    todo.sort(key=lambda job: (order.get(job["state"], 3), -job["priority"], job["position"], job["id"]))
    ended = sorted((job for job in every if job["state"] in FINAL), key=lambda job: job["ended"])[-ENDED_SHOWN:]
    rows = [["ID", "STATE", "RAN", "SUBMITTED", "COMMAND"]]
    for job in ended + todo:
        when = time.strftime("%m-%d %H:%M", time.localtime(job["submitted"]))
        rows.append([str(job["id"]), job["state"], duration(job["ran"]), when, clean(shlex.join(job["command"]))])
    if len(rows) == 1:
        return ["There are no jobs: `./launch submit -- python -m yourpackage.train` adds one."]
    widths = [max(len(row[at]) for row in rows) for at in range(4)]
    found = []
    for row, job in zip(rows, [None, *ended, *todo]):
        line = "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths)), row[4]])
        if color and job and job["state"] in STATES:
            line = f"\x1b[{STATES[job['state']]}m{line}\x1b[0m"
        found.append(line)
        far = short(progress(root, job)) if job and job["state"] == "running" else ""
        if job and (far or job["note"]):
            found.append(f"{' ' * (widths[0] + 2)}{clean('; '.join(filter(None, (far, job['note']))))}")
    return found


def duration(value: float) -> str:
    minutes, rest = divmod(int(value), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}"


def watch(table: Table, place: Path) -> int:
    """Draw the table every two seconds, until Ctrl-C."""
    tty = sys.stdout.isatty()
    try:
        while True:
            text = "\n".join(lines(every(table, place), place.parent.parent, tty))
            print(f"\x1b[H\x1b[2J{text}" if tty else f"{text}\n", flush=True)
            time.sleep(2)
    except KeyboardInterrupt:
        return 0


def show(job: dict[str, Any], root: Path, as_json: bool) -> int:
    if as_json:
        print(json.dumps(contract.job_as_json(root, job, detailed=True)))
        return 0
    run = run_of(job["command"])
    log = contract.log_of(root, job)
    failure = contract.cause(root, job) or {"message": "", "remedy": ""}
    stamp = {
        name: time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(job[name])) if job[name] else ""
        for name in ("submitted", "started", "ended")
    }
    facts = {
        "job": job["id"],
        "state": job["state"] + (f" (exit status {job['status']})" if job["status"] is not None else ""),
        "note": job["note"],
        "cause": failure["message"],
        "remedy": failure["remedy"],
        "command": shlex.join(job["command"]),
        "code": job.get("code", "")[:10] or "the project, as it is when the job starts",
        "run folder": job.get("run_folder") or run_folder(root, job) or (root / "outputs" / run if run else ""),
        "progress": short(progress(root, job)),
        "GPUs": job["gpus"],
        "priority": job["priority"],
        "after": job["after"] or "",
        "max hours": job["max_hours"] or "",
        "variables": ", ".join(job["variables"]),
        **stamp,
        "ran": duration(job["ran"]),
        "starts": job["starts"],
        "log": root / log if log else "",
        **{name: job[name] for name in CLUSTER_FACTS if job.get(name)},
    }
    for name, value in facts.items():
        if value != "":
            print(f"{name + ':':<13}{clean(str(value))}")
    return 0


def logs(table: Table, place: Path, number: int | None, options: Any) -> int:
    """A job's log, without escape codes; by default that of the job that runs, or that ran last."""
    if number is None:
        last = table.last_started()
        if not last:
            raise RefusalError("There are no logs: no job has started yet.")
        number = last["id"]
        say(f"The log of job {number}:")
    job = table.get(number)
    path = place / f"{number}.log"
    follow = options.follow
    earlier = Path(f"{path}.1")
    if not path.exists() and not (follow and job["state"] not in FINAL):
        if not job["starts"]:
            why = "it has not started yet"
        elif job["state"] in FINAL:
            why = "it printed nothing, or ended more than 30 days ago"
        else:
            why = "it has printed nothing yet"
        raise RefusalError(f"Job {number} has no log: {why}.")
    if options.json:
        return print_log_as_json(job, [earlier, path])
    if earlier.exists():
        with earlier.open("rb") as file:
            copy(file)
    return print_log(path, follow, lambda: table.get(number)["state"] in FINAL)


def print_log_as_json(job: dict[str, Any], files: list[Path]) -> int:
    return print_end_as_json(job, b"".join(file.read_bytes() for file in files if file.exists()))


def print_end_as_json(job: dict[str, Any], log: bytes) -> int:
    """The end of its log."""
    shown = "".join(map(plain, log[-contract.LOG_BYTES :].splitlines(keepends=True)))
    print(json.dumps({"id": job["id"], "state": job["state"], "text": shown}))
    return 0


def print_log(path: Path, follow: bool, has_ended: Callable[[], bool], every: float = 0.3) -> int:
    """`every`: seconds between two looks."""
    while not path.exists():
        if has_ended():
            return 0
        time.sleep(every)
    file = path.open("rb")
    try:
        while True:
            ended = not follow or has_ended()
            copy(file)
            if ended:
                return 0
            if path.exists() and path.stat().st_ino != os.fstat(file.fileno()).st_ino:  # rotated
                copy(file)
                file.close()
                file = path.open("rb")
                continue
            sys.stdout.flush()
            time.sleep(every)
    except KeyboardInterrupt:
        return 130
    finally:
        file.close()


ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[ -/]*[0-~]")


def copy(file: Any) -> None:
    """Print the rest of a log."""
    for line in file:
        print(plain(line), end="")


def plain(line: bytes) -> str:
    """A line of a log: colors and other escape codes are left out, other control characters are visible."""
    text = ESCAPES.sub("", line.decode("utf-8", errors="replace")).rstrip("\r\n").replace("\r", "\n")
    safe = "".join(one if one in "\n\t" or one.isprintable() else repr(one)[1:-1] for one in text)
    return safe + "\n" * line.endswith(b"\n")


def act(root: Path, options: argparse.Namespace) -> int:
    """`submit`, or `jobs`."""
    if options.command == "submit":
        return submit(root, options)
    return jobs(root, options)
