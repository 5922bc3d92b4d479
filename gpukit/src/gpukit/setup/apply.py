"""Run the steps one by one, check each result, and record how to revert it.

Two files in ~/.local/state/gpu-template (or XDG_STATE_HOME): a log per day, with every command and its output, and
setup.json, the undo journal: for each step, the packages and files that did not exist before. An entry is written
before its step runs, so that an interrupted step can be reverted or continued as well.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from gpukit.errors.known import match_signs
from gpukit.project import pyproject
from gpukit.project.location import find_root
from gpukit.project.messages import RefusalError, as_called, confirmed, say
from gpukit.setup.machine import installed
from gpukit.setup.steps import Context, Step, as_user, due

APT_LOCK_TIMEOUT = 600.0  # seconds to wait for apt's lock
RETRY_DELAY = 5.0  # seconds between two attempts
CHECK_TIMEOUT = 20.0  # seconds that a service may take to start


def _state_folder() -> Path:
    return Path(os.environ.get("XDG_STATE_HOME") or "~/.local/state").expanduser() / "gpu-template"


class Log:
    """Commands and their output, on the terminal and in the day's log file."""

    def __init__(self) -> None:
        self.path = _state_folder() / f"setup-{datetime.now():%Y-%m-%d}.log"
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._append("")
        except OSError as error:
            raise RefusalError(f"{self.path} cannot be written: {error.strerror}.") from None

    def note(self, text: str) -> None:
        self._append(f"[{datetime.now():%H:%M:%S}] {text}\n")

    def _append(self, text: str) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            file.write(text)

    def say(self, text: str) -> None:
        say(f"setup: {as_called(text, project=find_root() is not None)}")
        self.note(text)

    def run(self, line: str, quiet: bool = False) -> tuple[int, str]:
        """Run a shell line: its exit status and output. Waits while another program uses apt."""
        deadline = time.monotonic() + APT_LOCK_TIMEOUT
        while True:
            code, output = self._run(line, quiet)
            if not code or not match_signs(output, "apt-lock") or time.monotonic() > deadline:
                return code, output
            self.say(f"Another program uses apt: retrying for up to {APT_LOCK_TIMEOUT / 60:.0f} minutes.")
            time.sleep(RETRY_DELAY)

    def _run(self, line: str, quiet: bool) -> tuple[int, str]:
        self.note(f"$ {line}")
        environment = {**os.environ, "LC_ALL": "C.UTF-8"}
        output = b""
        with subprocess.Popen(
            ["/bin/sh", "-c", line],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        ) as process:
            try:
                for part in iter(lambda: process.stdout.read1(65536), b""):
                    output += part
                    self._show(part, quiet)
            except BaseException as stop:
                # The process has received Ctrl-C too; other signals are passed on. A package manager must finish.
                if not isinstance(stop, KeyboardInterrupt):
                    process.send_signal(signal.SIGTERM)
                self._show(process.stdout.read(), quiet)
                self.note(f"stopped; exit status {process.wait()}")
                raise
        self.note(f"exit status {process.returncode}")
        return process.returncode, output.decode(errors="replace")

    def _show(self, part: bytes, quiet: bool) -> None:
        text = part.decode(errors="replace")
        self._append(text)
        if not quiet:
            sys.stderr.write(text)
            sys.stderr.flush()


class Journal:
    """The undo journal, setup.json: entries in the order in which their steps began."""

    def __init__(self) -> None:
        self.path = _state_folder() / "setup.json"
        try:
            self.entries: list[dict[str, Any]] = json.loads(self.path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            self.entries = []
        except (OSError, ValueError) as error:
            raise RefusalError(f"{self.path} cannot be read: {error}; move it away to start over.") from None

    @property
    def interrupted(self) -> tuple[str, ...]:
        """The steps that did not finish."""
        return tuple(entry["step"] for entry in self.entries if "before" in entry)

    def write(self) -> None:
        pyproject.write(self.path, json.dumps(self.entries, indent=1) + "\n")

    def begin(self, step: Step, context: Context) -> dict[str, Any]:
        """The entry of a step that is about to run; after an interruption, that of the earlier attempt."""
        entry = next((each for each in self.entries if each["step"] == step.id and "before" in each), None)
        if entry is None:
            entry = {
                "step": step.id,
                "began": datetime.now().isoformat(timespec="seconds"),
                "before": sorted(installed()),
                "files": {file: self._keep(step, file) for file in step.writes(context)},
                "undo": [as_user(line, context) for line in step.undo(context)],
            }
            self.entries.append(entry)
            self.write()
        return entry

    def end(self, entry: dict[str, Any]) -> None:
        entry["added"] = sorted(installed() - set(entry.pop("before")))
        self.write()

    def _keep(self, step: Step, file: str) -> str | None:
        """Back up a file that exists before the step, and return the path of the copy; None if it does not exist."""
        if not Path(file).exists():
            return None
        kept = _state_folder() / "before" / step.id / file.strip("/").replace("/", "-")
        kept.parent.mkdir(parents=True, exist_ok=True)
        try:
            shutil.copy2(file, kept)
        except OSError as error:
            raise RefusalError(f"{file} cannot be saved for --undo: {error.strerror}.") from None
        return str(kept)


def undo_commands(entry: dict[str, Any], sudo: str) -> list[str]:
    """The commands that revert a step: its packages, its files, the rest."""
    added = entry["added"] if "added" in entry else sorted(installed() - set(entry["before"]))
    lines = [f"{sudo}env DEBIAN_FRONTEND=noninteractive apt-get purge -y {' '.join(added)}"] if added else []
    for file, kept in entry["files"].items():
        lines.append(f"{sudo}cp -p {shlex.quote(kept)} {file}" if kept else f"{sudo}rm -f {file}")
    return lines + entry["undo"]


def apply(context: Context, steps: list[Step], refresh: Callable[[], Context], yes: bool) -> int:
    """Run each step, on the machine as the previous step left it."""
    todo = ", ".join(step.id for step in steps)
    log = Log()
    journal = Journal()
    _confirm(f"{context.system.name} lacks: {todo}. Do these steps now?", yes, "./launch setup --apply --yes")
    failed = []
    with _keep_sudo(context, log):
        for step in steps:
            try:
                context = refresh()
                problem = _step(step, context, log, journal)
            except BaseException:
                log.say(f"Stopped in the step {step.id}. `./launch setup --apply` continues there; log: {log.path}")
                raise
            if problem:
                log.say(f"{step.id}: {problem}")
                failed.append(step.id)
                if not step.blocks(context):
                    break  # later steps may depend on it
    if failed:
        log.say(f"Not done: {', '.join(failed)}. Log: {log.path}. `./launch setup --undo` reverts what was done.")
        return 1
    for note in dict.fromkeys(note for step in steps for note in step.notes(context) if not step.waits(context)):
        log.say(note)
    log.say(f"All done. Log: {log.path}. `./launch setup --undo` reverts it; `./launch doctor` checks everything.")
    return 0


def _step(step: Step, context: Context, log: Log, journal: Journal) -> str:
    """Run and check one step; return the problem, or an empty string."""
    if not due(step, context):
        log.say(f"{step.id}: is already done.")
        return ""
    if step.waits(context):
        log.say(f"{step.id}: {step.waits(context)} Then run `./launch setup --apply` again.")
        return ""
    if step.blocks(context):
        return step.blocks(context)
    log.say(f"{step.id}: {step.title}")
    entry = journal.begin(step, context) if step.undoable else None
    for line in (as_user(line, context) for line in step.commands(context)):
        say(f"$ {line}")
        code, output = log.run(line)
        if code and "--show-keys" in line:
            wrong = next(each for each in context.repositories.values() if each.fingerprint in line)
            return (
                f"The key at {wrong.key} is not {wrong.vendor}'s {wrong.fingerprint}, so nothing was installed: "
                "someone else answers in the vendor's place, or the vendor has a new key, which "
                "`./launch update` brings."
            )
        if code:
            last = next((text.strip() for text in reversed(output.splitlines()) if text.strip()), f"exit status {code}")
            return f"`{line.splitlines()[0]}` failed: {last}"
    check = as_user(step.check(context), context)
    deadline = time.monotonic() + CHECK_TIMEOUT
    while True:
        code, output = log.run(check, quiet=True)
        if not code or time.monotonic() > deadline:
            break
        time.sleep(1)
    if code:
        return f"Its commands ran, but the check `{check}` fails: {output.strip() or f'exit status {code}'}"
    seen = " ".join(output.split())
    log.say(f"{step.id}: verified{f': {seen}' if seen else ''}.")
    if entry is not None:
        journal.end(entry)
        log.note(f"revert: {' && '.join(undo_commands(entry, '' if context.probes.root else 'sudo '))}")
    return ""


def undo(yes: bool, dry: bool = False) -> int:
    """Revert the steps that were done or begun, the last one first; `dry`: only show the commands."""
    log = Log()
    journal = Journal()
    if not journal.entries:
        say(f"setup: There is nothing to revert: {journal.path} has no entry.")
        return 0
    sudo = "" if os.geteuid() == 0 else "sudo "
    for entry in reversed(journal.entries):
        print(f"# {entry['step']}, begun {entry['began']}")
        print("\n".join(undo_commands(entry, sudo)) or "# nothing to revert", flush=True)
    if dry:
        return 0
    _confirm("Run these lines now?", yes, "./launch setup --undo --yes")
    while journal.entries:
        entry = journal.entries[-1]
        log.say(f"{entry['step']}: reverted")
        problem = _undo_step(undo_commands(entry, sudo), log)
        if problem:
            log.say(f"{entry['step']}: {problem} Log: {log.path}")
            return 1
        journal.entries.pop()
        journal.write()
    log.say(f"Everything was reverted. Log: {log.path}")
    return 0


def _undo_step(lines: list[str], log: Log) -> str:
    for line in lines:
        if "apt-get purge" in line:
            names = line.partition("purge -y ")[2].split()
            code, planned = log.run(f"apt-get purge --simulate {' '.join(names)}", quiet=True)
            more = sorted(set(re.findall(r"^(?:Purg|Remv) ([\w.+-]+)", planned, re.MULTILINE)) - set(names))
            if code or more:
                what = f"other packages need them ({', '.join(more)})" if more else planned.strip().splitlines()[-1]
                return f"Its packages stay: {what}."
        say(f"$ {line}")
        code, _ = log.run(line)
        # A service whose package was just removed cannot be restarted, and need not be.
        if code and not re.search(r"(systemctl|service) ", line):
            return f"`{line}` failed."
    return ""


def _confirm(question: str, yes: bool, command: str) -> None:
    if yes:
        return
    if not sys.stdin.isatty():
        raise RefusalError(f"There is no terminal to ask on: use `{command}`.")
    if not confirmed(question):
        raise RefusalError("Nothing was done.")


@contextlib.contextmanager
def _keep_sudo(context: Context, log: Log) -> Iterator[None]:
    """Ask for sudo's password once, and keep its session alive while the steps run."""
    if context.probes.root:
        yield
        return
    if not context.probes.sudo:
        raise RefusalError("These steps need root, and sudo is not installed: run this as root.")
    log.say("The steps need root: sudo asks for your password once, now.")
    if subprocess.run(["sudo", "-v"]).returncode:
        raise RefusalError("sudo refused: a user who may use sudo here has to run this.")
    over = threading.Event()

    def awake() -> None:
        while not over.wait(60):
            subprocess.run(["sudo", "-n", "-v"], capture_output=True)

    threading.Thread(target=awake, daemon=True).start()
    try:
        yield
    finally:
        over.set()
