"""The environment of `./launch --native`: on this machine, made by uv from what the image is made from.

It lies outside the project, so that no container sees it. A stamp in it, written last, says what it was made from.
"""

from __future__ import annotations

import contextlib
import csv
import fcntl
import hashlib
import importlib.metadata
import json
import os
import platform
import re
import shutil
import subprocess
from pathlib import Path

from gpukit.host.engine import stream
from gpukit.host.project import Project
from gpukit.image import guard
from gpukit.project.messages import RefusalError, say

FORMAT = 1
INSTALLING = "https://docs.astral.sh/uv/getting-started/installation/"
ANEW = "`./launch --native build --no-cache` makes the environment anew"
# Of uv's settings, those that would have it work on something else than it is told.
OTHERS = ("UV_SYSTEM_PYTHON", "UV_TARGET", "UV_PREFIX", "UV_TORCH_BACKEND", "UV_CONSTRAINT", "UV_PYTHON", "VIRTUAL_ENV")
WANTED = """
import pathlib, sys
sys.path.insert(0, "gpukit")
from layers import TORCH, name, wanted
print("\\n".join(line for line in wanted(pathlib.Path()) if name(line) in TORCH))
"""
UNREACHABLE = re.compile(r"(?:Failed to fetch:? `|error sending request for url \()(https?://[^/`)\s]+)|dns error")
# What uv says, and what that means. The first that matches counts; {0} is its first group.
RULES = [
    (
        r"No interpreter found for (Python [\d.]+)|No download found for request: (\S+)",
        "{0} is not on this machine, and uv does not fetch it: `uv python install` does, or your distribution.",
    ),
    (
        r"(?s)(?:Because|╰─▶|hint:).*?\b([\w-]+)(?:[=<>][^ ]*)? has no wheels with a matching "
        r"(?:Python|platform)",
        "There is no wheel of {0} for this system and the Python that stack.json names: it is not built from source.",
    ),
    (
        r"(?:hint:|Because).{0,200}only available for .{0,300}",
        "One of the packages has no wheel for this system or this Python: uv's words above name it.",
    ),
    (UNREACHABLE.pattern, "uv cannot reach {0}: check network and proxy, or name a mirror with UV_INDEX=pytorch=URL."),
    (r"[Nn]o space left on device|[Dd]isk quota exceeded", "The disk is full: GPUKIT_NATIVE names another place."),
    (
        r"No solution found when resolving",
        "What pyproject.toml asks for does not fit together, or not PyTorch as it is here: uv's words above name it.",
    ),
    (
        r"Failed to build `?([\w.=@-]+)",
        "{0} has no wheel for this machine, and building it here failed: uv's words above say why.",
    ),
]


def machine() -> str:
    """This machine's processor, as the catalogue names it."""
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())


def locked(path: Path, kind: int, waiting: str = "") -> int:
    """An open file with a lock on it, which ends with the last process that has it open.

    Raises BlockingIOError where another holds it and `waiting`, what to say then, is empty.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        if kind != fcntl.LOCK_SH or not path.is_file():
            place = f"{path.parent} cannot be written ({error.strerror})"
            raise RefusalError(f"{place}: GPUKIT_NATIVE names another place for environments.") from None
        file = os.open(path, os.O_RDONLY)  # made before, where nobody may write by now
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        if not waiting:
            os.close(file)
            raise
        say(waiting)
        fcntl.flock(file, kind)
    except OSError as error:  # a file system of a network, without its service for locks
        say(f"{path.parent} has no locks ({error.strerror}): while an environment is made, start nothing else.")
    return file


class Environment:
    def __init__(self, project: Project) -> None:
        self.project = project
        facts = project.stack.get("native")
        if not facts:
            raise RefusalError("stack.json says nothing of `--native` yet: `copier update --trust` brings it.")
        self.gpu = project.gpus is not None
        self.cuda = facts["cuda"] if self.gpu else None
        self.torch, self.driver, self.patterns = facts["torch"], facts["driver"], facts["protected"]
        self.index = facts["index"] if self.gpu else facts["cpu_index"]
        self.base = {
            "format": FORMAT,
            "python": facts["python"],
            "requirement": facts["requirement"],
            "index": self.index,
        }
        shared = project.env.get("XDG_DATA_HOME") or Path.home() / ".local/share"
        home = Path(project.env.get("GPUKIT_NATIVE") or Path(shared, "gpu-template")).expanduser().absolute()
        if project.root in [home.resolve(), *home.resolve().parents]:
            raise RefusalError(f"GPUKIT_NATIVE is {home}: it must lie outside the project, which containers see.")
        if re.search(r"\s", str(home)):
            raise RefusalError(f"{home} has a blank in it, which uv's settings cannot hold: set GPUKIT_NATIVE.")
        place = hashlib.sha256(str(project.root).encode()).hexdigest()[:8]
        flavour = self.index.rstrip("/").rpartition("/")[2]
        # a home directory may be shared by machines of another kind
        self.path = home / f"{project.slug}-{place}-{platform.machine()}-{flavour}"
        self.interpreter = self.path / "bin/python"
        self.site = self.path / f"lib/python{facts['python']}/site-packages"
        self.record, self.stamp = self.path / "protected.txt", self.path / "stamp.json"
        self.pythonpath = f"{project.root / 'src'}{os.pathsep}{project.root}"  # of what is started in it
        self.held: list[int] = []

    # Whether it is there

    def made(self) -> dict[str, object]:
        """What it was made from; nothing where it is not there, or was not finished."""
        with contextlib.suppress(OSError, ValueError):
            found = json.loads(self.stamp.read_text(encoding="utf-8"))
            return found if isinstance(found, dict) else {}
        return {}

    def wanted(self) -> dict[str, object]:
        digest = hashlib.sha256()
        for name in ("pyproject.toml", "requirements.txt"):
            file = self.project.root / name
            digest.update(file.read_bytes() if file.is_file() else b"")
        return {**self.base, "packages": digest.hexdigest()}

    def current(self) -> bool:
        """Whether it is what is wanted, and nothing that was installed with it has been taken away since."""
        made = self.made()
        names = made.pop("names", None)
        return made == self.wanted() and isinstance(names, list) and set(names) <= self.names()

    def names(self) -> set[str]:
        """Of the packages that are there."""
        return {path.name.partition("-")[0] for path in self.site.glob("*.dist-info")}

    def ensure(self, fresh: bool = False) -> None:
        """Make it, or install what is new; from then on it is held, by this process and by what becomes of it.

        Raises:
            RefusalError: it cannot be made, or a package that is protected was changed in it.
        """
        using, waiting = Path(f"{self.path}.use"), f"{self.path.name} is being made anew by another command: waiting."
        while True:
            use = locked(using, fcntl.LOCK_SH, waiting)
            if not fresh and self.current():
                self.held = [use]
                return self.check()
            os.close(use)
            waiting = f"Another command sets up {self.path.name}: waiting for it."
            setting_up = locked(Path(f"{self.path}.lock"), fcntl.LOCK_EX, waiting)
            self.held = [setting_up]  # uv has it open too: also one that outlives us
            try:
                self.set_up(fresh)
            finally:
                self.held = []
                os.close(setting_up)
            fresh = False

    def check(self) -> None:
        changes = guard.changed(guard.recorded(self.record), [str(self.site)])
        if changes:
            raise RefusalError(f"{'; '.join(map(str, changes))}: {ANEW}.")

    # How it is made

    def set_up(self, fresh: bool) -> None:
        if self.current() and not fresh:
            return  # made by whoever was waited for
        made, wanted = self.made(), self.wanted()
        if fresh or {name: made.get(name) for name in self.base} != self.base:
            self.make_room()
            build = f"for CUDA {self.cuda}" if self.cuda else "for CPUs"
            say(f"Making {self.path}, once: PyTorch {build}, and what pyproject.toml asks for.")
            self.make()
        else:
            self.check()
            say(f"Installing what pyproject.toml asks for now into {self.path}.")
        self.uv("pip", "install", *self.requirements())
        self.check()
        self.finish(wanted)

    def make_room(self) -> None:
        if not self.path.exists():
            return
        try:
            use = locked(Path(f"{self.path}.use"), fcntl.LOCK_EX)
        except BlockingIOError:
            raise RefusalError(
                f"{self.path} must be made anew, and a program that was started in it still runs: wait for it, or "
                "end it with `./launch --native stop`."
            ) from None
        try:
            self.stamp.unlink(missing_ok=True)  # first: what is interrupted here is made again
            shutil.rmtree(self.path)
        finally:
            os.close(use)

    def make(self) -> None:
        self.uv("venv", "--quiet", "--seed", f"--python={self.base['python']}", f"--prompt={self.project.slug}")
        ask = subprocess.run([self.interpreter, "-I", "-c", WANTED], capture_output=True, text=True, check=False)
        if ask.returncode:
            raise RefusalError(f"pyproject.toml cannot be read: {(ask.stderr.split(chr(10)) or [''])[-2]}")
        index = self.project.env.get("UV_INDEX") or f"pytorch={self.index}"
        self.uv("pip", "install", *ask.stdout.split("\n")[:-1], str(self.base["requirement"]), UV_INDEX=index)
        self.assert_build()
        guard.write(guard.installed(self.patterns, [str(self.site)]), self.record)
        hold(self.site, guard.recorded(self.record))
        configure(self.path, self.record)
        shutil.copy2(guard.__file__, self.site / "_gpukit_guard.py")
        own = f"sys.prefix == {str(self.path)!r} and os.getenv('PYTHONPATH', '') in ('', {self.pythonpath!r})"
        line = f"import os, sys; {own} or __import__('_gpukit_guard').overlaid()\n"
        (self.site / "_gpukit_guard.pth").write_text(line, encoding="utf-8")

    def assert_build(self) -> None:
        """On arm64 above all, where an index may hand out a build for CPUs under the same version."""
        look = "import torch; print(torch.__version__, torch.version.cuda)"
        done = subprocess.run([self.interpreter, "-I", "-c", look], capture_output=True, text=True, check=False)
        if done.returncode:
            last = (done.stderr.strip() or f"it ended with status {done.returncode}").splitlines()[-1]
            raise RefusalError(f"The torch in {self.path} cannot be imported here: {last}")
        version, cuda = done.stdout.split()[-2:]
        if [*cuda.split(".")[:2]] == [*(self.cuda or "None").split(".")[:2]]:
            return
        if self.cuda or "UV_INDEX" not in self.project.env:  # a mirror may have no builds for CPUs
            kinds = ["without CUDA" if each in (None, "None") else f"for CUDA {each}" for each in (cuda, self.cuda)]
            raise RefusalError(
                f"What uv found for {platform.machine()} is torch {version}, a build {kinds[0]}, and this is to be one "
                f"{kinds[1]}: name an index that has it with UV_INDEX=pytorch=URL, then {ANEW}."
            )

    def requirements(self, file: str = "pyproject.toml") -> list[str]:
        """The very arguments of the build."""
        pinned = ["--requirement=requirements.txt"] if (self.project.root / "requirements.txt").is_file() else []
        return [*pinned, f"--requirement={file}", "--extra=dev"]

    def finish(self, wanted: dict[str, object]) -> None:
        draft = self.stamp.with_name(f".{self.stamp.name}")
        made = {**wanted, "names": sorted(self.names())}
        draft.write_text(json.dumps(made, indent=2) + "\n", encoding="utf-8")
        draft.replace(self.stamp)

    def uv(self, *arguments: str, **more: str) -> None:
        """Run uv with its progress on stderr. Without the network it is asked again for what it has kept."""
        command, env = self.command(*arguments), self.settings(more)
        code, said = stream(command, env, keep=self.held)
        if code and UNREACHABLE.search(said) and "UV_OFFLINE" not in env:
            say("The network does not answer, so uv is asked for what it has kept of earlier downloads.")
            if arguments[0] == "venv":
                shutil.rmtree(self.path, ignore_errors=True)  # it was made, and has no pip
            code, _ = stream(command, {**env, "UV_OFFLINE": "1"}, keep=self.held)
        if code:
            raise explain(said)

    def ask(self, *arguments: str) -> tuple[int, str]:
        """Run uv quietly: exit status, and what it says."""
        done = subprocess.run(self.command(*arguments), env=self.settings({}), capture_output=True, text=True)
        return done.returncode, done.stderr

    def command(self, *arguments: str) -> list[str]:
        own = Path.home() / ".local/bin/uv"  # where its installer puts it, which a fresh shell has on its PATH
        uv = shutil.which("uv", path=self.project.env.get("PATH")) or (str(own) if own.is_file() else None)
        if uv is None:
            raise RefusalError(f"uv makes the environment, and it is not installed here: {INSTALLING} says how.")
        return [uv, *arguments, *([str(self.path)] if arguments[0] == "venv" else [f"--python={self.interpreter}"])]

    def settings(self, more: dict[str, str]) -> dict[str, str]:
        """uv's environment. As in the build, PyTorch's index is for PyTorch alone."""
        env = {name: value for name, value in self.project.env.items() if name not in (*OTHERS, "UV_INDEX")}
        if self.record.is_file():
            env["UV_CONSTRAINT"] = str(self.record)
        return {**env, **more}


def hold(site: Path, names: dict[str, str]) -> None:
    """From now on no installer takes these packages away or puts others in their place, root's neither.

    By the specification of installed projects a package without RECORD, the list of its files, is left alone: pip
    refuses it by name. uv goes on with a warning, and refuses where it cannot read the list: so RECORD becomes a
    folder, with the list in it. Python reads that as a package without a list (importlib.metadata), and takes the
    names to import from top_level.txt instead.
    """
    for distribution in importlib.metadata.distributions(path=[str(site)]):
        folder = Path(str(distribution._path))  # type: ignore[attr-defined]
        listed = folder / "RECORD"
        if guard.normalised(distribution.metadata["Name"] or "") not in names or not listed.is_file():
            continue
        if not (folder / "top_level.txt").exists():
            (folder / "top_level.txt").write_text("".join(f"{name}\n" for name in modules(listed)), encoding="utf-8")
        aside = folder / "RECORD.aside"
        listed.rename(aside)
        listed.mkdir()
        aside.rename(listed / "RECORD")


def modules(record: Path) -> list[str]:
    """The names to import that a list of files brings."""
    with record.open(encoding="utf-8", newline="") as file:
        first = [Path(row[0]).parts[0] for row in csv.reader(file) if row]
    return sorted({name.partition(".")[0] for name in first if not re.search(r"^\.\.$|\.dist-info$|\.data$", name)})


def configure(path: Path, record: Path) -> None:
    """Who activates the environment, or calls its pip, is told by name what does not fit before anything is done."""
    (path / "pip.conf").write_text(f"[global]\nconstraint = {record}\n", encoding="utf-8")
    script = path / "bin/activate"
    text = script.read_text(encoding="utf-8")
    undo = "\n    unset UV_CONSTRAINT"
    text = re.sub(r"^deactivate *\(\) *\{", lambda match: match[0] + undo, text, flags=re.MULTILINE)
    script.write_text(f"{text}\nexport UV_CONSTRAINT={record}\n", encoding="utf-8")
    rc = f'[ -f ~/.bashrc ] && . ~/.bashrc\n. "{script}"\n'
    (path / "bashrc").write_text(rc, encoding="utf-8")


def explain(said: str) -> RefusalError:
    """uv's error in one sentence."""
    text = re.sub(r"\s+", " ", said)
    for pattern, sentence in RULES:
        found = re.search(pattern, text)
        if found:
            seen = next((group for group in found.groups() if group), "PyTorch's index")
            return RefusalError(sentence.replace("{0}", seen), said=said)
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return RefusalError(f"uv could not set up the environment: {lines[-1] if lines else 'it said nothing'}", said=said)
