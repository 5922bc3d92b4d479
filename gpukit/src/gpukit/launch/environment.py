"""The environment of `./launch --native`: uv creates it on this machine from what the image is built from.

It is outside the project, so that containers do not see it. A stamp in it, written last, records what is in it.
"""

from __future__ import annotations

import contextlib
import csv
import fcntl
import hashlib
import importlib.metadata
import json
import os
import pkgutil
import platform
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from gpukit.errors.known import match_signs
from gpukit.host import refusals, uv
from gpukit.host.cards import data
from gpukit.host.engine import stream
from gpukit.host.project import Project
from gpukit.image import editable, guard
from gpukit.project import dependencies, pyproject
from gpukit.project.inputs import dependency_files
from gpukit.project.location import is_adopted, located
from gpukit.project.messages import RefusalError, announced, say
from gpukit.project.stack import version

FORMAT = 3
STAMP = "stamp.json"
# Settings of uv's that would make it use another environment or other packages than those on its command line.
OTHERS = (
    "UV_SYSTEM_PYTHON",
    "UV_TARGET",
    "UV_PREFIX",
    "UV_TORCH_BACKEND",
    "UV_CONSTRAINT",
    "UV_BUILD_CONSTRAINT",
    "UV_PYTHON",
    "VIRTUAL_ENV",
)
WANTED = """
import pathlib, sys
sys.path.insert(0, sys.argv[1])
from gpukit.image.layers import TORCH, name, wanted
print(*(line for line in wanted(pathlib.Path()) if name(line) in TORCH), sep="\\n", end="")
"""
OLDEST = (3, 11)  # requires-python of projects
# Prints version and interpreter. A shim, such as pyenv's, may exist and fail; a free-threaded Python has other wheels.
INTERPRETER = """
import sys, sysconfig
if sys.implementation.name == "cpython" and not sysconfig.get_config_var("Py_GIL_DISABLED"):
    print("%d.%d" % sys.version_info[:2], sys.executable, sep="\\n")
"""
HTTP_TIMEOUT = str(data("stacks")["uv"]["http_timeout"])
# Enough for an index that responds; one that does not is given up after 10 seconds, and not after uv's two minutes.
PROBE = {"UV_HTTP_RETRIES": "0", "UV_HTTP_CONNECT_TIMEOUT": "5", "UV_HTTP_TIMEOUT": "10"}


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
        say(f"{path.parent} does not support locks ({error.strerror}): start nothing else during the setup.")
    return file


class Environment:
    def __init__(self, project: Project) -> None:
        self.project = project
        facts = project.stack.get("native")
        if not facts:
            raise RefusalError("stack.json has no `native` part yet: `./launch update` adds it.")
        self.gpu = project.gpus is not None
        self.cuda = facts["cuda"] if self.gpu else None
        self.torch = facts["torch"]
        self.driver = facts["driver"]
        self.patterns = facts["protected"]
        self.index = facts["index"] if self.gpu else facts["cpu_index"]
        self.allocator_cap = facts["allocator_cap"]
        self.package_index = facts["package_index"] or not self.gpu  # whether its build supports every target
        self.pythons = facts["pythons"]
        self.base = {
            "format": FORMAT,
            "python": facts["python"],
            "requirement": facts["requirement"],
            "index": self.index,
        }
        home = uv.environments(project.env)
        if project.root in [home.resolve(), *home.resolve().parents]:
            raise RefusalError(f"GPUKIT_NATIVE is {home}: it must lie outside the project, which containers see.")
        if re.search(r"\s", str(home)):
            raise RefusalError(f"{home} has a blank in it, which uv's settings cannot hold: set GPUKIT_NATIVE.")
        flavour = self.index.rstrip("/").rpartition("/")[2]
        # a home directory may be shared by machines of another kind
        self.path = home / f"{project.name}-{platform.machine()}-{flavour}{own_inputs(project)}"
        self.interpreter = self.path / "bin/python"
        self.record = self.path / "protected.txt"
        self.stamp = self.path / STAMP
        self.torch_index = self.path / "torch-index.txt"  # verify reads it; exists if torch is not from PyTorch's index
        self.pythonpath = "" if is_adopted(project.code) else str(project.code / "src")  # of what is started in it
        self.held: list[int] = []

    @property
    def site(self) -> Path:
        return next(self.path.glob("lib/python*/site-packages"), self.path / "none")

    @property
    def wheel(self) -> Path:
        """gpukit's, which the project carries."""
        found = list(located("vendor", self.project.code).glob("gpukit-*.whl"))
        if len(found) != 1:
            raise RefusalError(
                f"{self.project.located('vendor').name}/ has {len(found) or 'no'} gpukit wheels: it must have one."
            )
        return found[0]

    # Whether it is there

    def made(self) -> dict[str, object]:
        """What it was created from; nothing if it does not exist or is incomplete."""
        with contextlib.suppress(OSError, ValueError):
            found = json.loads(self.stamp.read_text(encoding="utf-8"))
            return found if isinstance(found, dict) else {}
        return {}

    def wanted(self) -> dict[str, object]:
        digest = hashlib.sha256()
        for name in dependency_files(self.project.code):
            file = self.project.code / name
            digest.update(file.read_bytes() if file.is_file() else b"")
        wheel = hashlib.sha256(self.wheel.read_bytes()).hexdigest()
        return {**self.base, "packages": digest.hexdigest(), "gpukit": wheel}

    def current(self, except_gpukit: bool = False, exact: bool = False) -> bool:
        """Whether it is what is wanted, and has every package that was installed with it. `exact`: in that version."""
        made = self.made()
        wanted = self.wanted()
        packages = made.pop("installed", None)
        if except_gpukit:
            made["gpukit"] = wanted["gpukit"]
        if made != wanted or not isinstance(packages, list) or not self.interpreter.exists():
            return False
        there = self.installed()
        return set(packages) <= there if exact else names(packages) <= names(there)

    def installed(self) -> set[str]:
        """The packages that are there, as name-version."""
        return {path.name[: -len(".dist-info")] for path in self.site.glob("*.dist-info")}

    def ensure(self, fresh: bool = False, exact: bool = False) -> None:
        """Create it, or install what is new; from then on this process, and what it becomes, holds it.

        `exact`: also repair it if a user installed other versions. uv replaces those outside the ranges in
        pyproject.toml and those that conflict, and keeps the others.

        Raises:
            RefusalError: it cannot be created, or a protected package in it was changed.
        """
        using = Path(f"{self.path}.use")
        waiting = f"Another command recreates {self.path.name}: waiting for it."
        while True:
            use = locked(using, fcntl.LOCK_SH, waiting)
            if not fresh and self.current(exact=exact):
                self.held = [use]
                return self.check()
            os.close(use)
            waiting = f"Another command sets up {self.path.name}: waiting for it."
            setting_up = locked(Path(f"{self.path}.lock"), fcntl.LOCK_EX, waiting)
            self.held = [setting_up]  # uv has it open too: also one that outlives us
            try:
                self.set_up(fresh, exact)
            finally:
                self.held = []
                os.close(setting_up)
            fresh = exact = False

    @property
    def recreate(self) -> str:
        return f"`{self.project.launch('--native build --no-cache')}` recreates the environment"

    def check(self) -> None:
        changes = guard.changed(guard.recorded(self.record), [str(self.site)])
        if changes:
            raise RefusalError(f"{'; '.join(map(str, changes))}: {self.recreate}.")

    # How it is created

    def set_up(self, fresh: bool, exact: bool = False) -> None:
        if self.current(exact=exact) and not fresh:
            return  # by the command that this one waited for
        made = self.made()
        wanted = self.wanted()
        create = fresh or {name: made.get(name) for name in self.base} != self.base or not self.interpreter.exists()
        if create:
            self.make_room()
            build = f"for CUDA {self.cuda}" if self.cuda else "for CPUs"
            say(f"Creating {self.path}, once: PyTorch {build}, and the project's dependencies.")
            self.make()
        else:
            self.check()
        if create or not self.current(except_gpukit=True, exact=exact):
            if not create:
                say(f"Installing the project's dependencies into {self.path}.")
            self.uv("pip", "install", *self.requirements())
        self.uv("pip", "install", "--quiet", "--offline", "--no-deps", "--reinstall", str(self.wheel))
        self.check()
        self.finish(wanted)

    def make_room(self) -> None:
        if not self.path.exists():
            return
        try:
            remove(self.path)
        except BlockingIOError:
            raise RefusalError(
                f"{self.path} must be recreated, and a program that was started in it still runs: wait for it, or "
                "end it with `./launch --native stop`."
            ) from None

    def make(self) -> None:
        self.uv("venv", "--quiet", "--seed", f"--python={self.python()}", f"--prompt={self.project.slug}")
        look = [self.interpreter, "-I", "-c", WANTED, str(self.wheel)]
        ask = subprocess.run(look, capture_output=True, text=True, check=False)
        if ask.returncode:
            raise RefusalError(f"The dependencies cannot be read: {(ask.stderr.split(chr(10)) or [''])[-2]}")
        requirements = [*ask.stdout.splitlines(), str(self.base["requirement"])]
        self.uv("pip", "install", *requirements, **self.index_for(requirements))
        self.assert_build()
        guard.write(guard.installed(self.patterns, [str(self.site)]), self.record)
        hold(self.site, guard.recorded(self.record))
        configure(self.path, self.holding())
        (self.site / "_gpukit_guard.py").write_bytes(pkgutil.get_data("gpukit.image", "guard.py") or b"")
        # Looking takes 0.1 s. A job's PYTHONPATH is that of its checkout, in .launch/.
        source = str(self.project.root / "src")
        checkouts = f"{self.project.root}/.launch/"
        path = "os.getenv('PYTHONPATH', '')"
        ours = f"{path} in ('', {source!r}) or {path}.startswith({checkouts!r}) and ':' not in {path}"
        own = f"sys.prefix == {str(self.path)!r} and ({ours})"
        line = f"import os, sys; {own} or __import__('_gpukit_guard').overlaid()\n"
        (self.site / "_gpukit_guard.pth").write_text(line, encoding="utf-8")

    def python(self) -> str:
        """The interpreter for uv: of the image's version, otherwise of the nearest one that PyTorch has wheels for.

        uv's own come first, since they have the headers that torch.compile needs. uv stops at the first program of the
        right name, even if that is a shim that fails, so PATH is searched here.

        Returns:
            a path; or the image's version, which uv then downloads
        """
        first = str(self.base["python"])
        minor = version(first)[1]
        wanted = sorted({first, *self.pythons}, key=lambda each: abs(version(each)[1] - minor))
        _, listed, _ = self.ask("python", "list", "--only-installed", UV_PYTHON_PREFERENCE="only-managed")
        programs = [line.split()[1] for line in listed.splitlines() if "/" in line]
        folders = self.project.env.get("PATH", os.defpath).split(os.pathsep)
        for name in [*(f"python{each}" for each in wanted), "python3", "python"]:
            programs += [program for folder in folders if (program := shutil.which(name, path=folder))]
        found: dict[str, str] = {}
        for program in programs:
            ask = [program, "-I", "-S", "-c", INTERPRETER]
            with contextlib.suppress(OSError):  # of another architecture
                output = subprocess.run(ask, capture_output=True, text=True, check=False).stdout.splitlines()
                found |= {output[0]: output[1]} if output and output[0] not in found else {}
            if first in found:
                return found[first]
        for each in wanted:
            if each in found and version(each) >= OLDEST:
                say(f"Python {first} is not installed: using Python {each}, which this PyTorch has wheels for too.")
                return found[each]
        return first

    def index_for(self, requirements: list[str]) -> dict[str, str]:
        """The settings of uv's that name PyTorch's index, or none if the package index's build is to be used instead.

        PyTorch's index answers 403 for what it does not have, so uv goes on with the next index, and does the same if
        a proxy refuses. Packages from PyTorch's index have a local version (+cu130); torch.__version__ has one anyway.
        """
        own = self.project.env.get("UV_INDEX")
        settings = {"UV_INDEX": own or f"pytorch={self.index}"}
        if own or not self.package_index or sys.platform != "linux":
            return settings
        dry = ["pip", "install", "--dry-run", "--no-deps", *requirements]
        for how in (PROBE, {"UV_OFFLINE": "1"}):  # then what uv has in its cache
            code, _, output = self.ask(*dry, **settings, **how)
            if code == 0 and re.search(r"\+ torch==\S+\+", output):
                return settings
            if code and not match_signs(output, "uv-unreachable") and how is PROBE:
                return settings  # another error, which the installation reports
        say(f"{self.index} does not respond: installing the package index's build of PyTorch.")
        return {}

    def assert_build(self) -> None:
        """On arm64 above all, an index may have a build for CPUs under the same version."""
        look = "import torch; print(torch.__version__, torch.version.cuda)"
        with announced("Importing PyTorch for the first time ..."):  # Python compiles it
            done = subprocess.run([self.interpreter, "-I", "-c", look], capture_output=True, text=True, check=False)
        if done.returncode:
            last = (done.stderr.strip() or f"it ended with status {done.returncode}").splitlines()[-1]
            raise RefusalError(f"The torch in {self.path} cannot be imported here: {last}")
        torch, cuda = done.stdout.split()[-2:]
        own = "UV_INDEX" in self.project.env
        if "+" not in guard.installed(["torch"], [str(self.site)])["torch"] and not own and sys.platform == "linux":
            self.torch_index.write_text("package index\n", encoding="utf-8")
        if [*cuda.split(".")[:2]] == [*(self.cuda or "None").split(".")[:2]]:
            return
        if self.cuda or not (own or self.torch_index.exists()):  # such an index may have no builds for CPUs
            kinds = ["without CUDA" if each in (None, "None") else f"for CUDA {each}" for each in (cuda, self.cuda)]
            raise RefusalError(
                f"uv found torch {torch} for {platform.machine()}, a build {kinds[0]}, and this project needs one "
                f"{kinds[1]}: name an index that has it with UV_INDEX=pytorch=URL, then {self.recreate}."
            )

    def requirements(self, file: str = "pyproject.toml") -> list[str]:
        """The same arguments as in the image."""
        root = self.project.code
        if is_adopted(root):
            package = editable.write(root, self.path / "package", str(self.project.root))
            wanted = [*dependencies.wanted(root), *([str(package)] if package else [])]
            listed = self.path / "requirements.txt"
            listed.write_text("".join(f"{line}\n" for line in wanted), encoding="utf-8")
            return [f"--requirement={listed}"]
        pinned = ["--requirement=requirements.txt"] if (root / "requirements.txt").is_file() else []
        return [*pinned, f"--requirement={file}", "--extra=dev"]

    def finish(self, wanted: dict[str, object]) -> None:
        made = {**wanted, "installed": sorted(self.installed())}
        pyproject.write(self.stamp, json.dumps(made, indent=2) + "\n")

    def uv(self, *arguments: str, **more: str) -> None:
        """Run uv with its progress on stderr; without the network, run it again on its cache alone."""
        command = self.command(*arguments)
        env = self.settings(more)
        code, output = stream(command, env, keep=self.held)
        if code and match_signs(output, "uv-unreachable") and "UV_OFFLINE" not in env:
            say("The network does not respond, so uv uses its cache alone.")
            if arguments[0] == "venv":
                shutil.rmtree(self.path, ignore_errors=True)  # it was created without pip
            code, _ = stream(command, {**env, "UV_OFFLINE": "1"}, keep=self.held)
        if code:
            fallback = "uv could not set up the environment"
            unfit = refusals.unfit_pin(output, self.project.code / "requirements.txt")
            raise unfit or refusals.explain(output, fallback, kinds=("uv",), native=True)

    def ask(self, *arguments: str, **more: str) -> tuple[int, str, str]:
        """Run uv quietly: its exit status, output, and errors."""
        done = subprocess.run(self.command(*arguments), env=self.settings(more), capture_output=True, text=True)
        return done.returncode, done.stdout, done.stderr

    def command(self, *arguments: str) -> list[str]:
        where = {"venv": [str(self.path)], "pip": [f"--python={self.interpreter}"]}
        # As in the image, the settings of uv in an adopted repository are not ours: they may even forbid this Python.
        away = [f"--directory={self.path.anchor}"] if is_adopted(self.project.code) else []
        return [uv.program(self.project.env), *away, *arguments, *where.get(arguments[0], [])]

    def settings(self, more: dict[str, str]) -> dict[str, str]:
        """uv's environment. As in the image, PyTorch's index is for PyTorch alone."""
        env = {name: value for name, value in self.project.env.items() if name not in (*OTHERS, "UV_INDEX")}
        env["UV_HTTP_TIMEOUT"] = env.get("UV_HTTP_TIMEOUT") or HTTP_TIMEOUT
        return {**env, **(self.holding() if self.record.is_file() else {}), **more}

    def holding(self) -> dict[str, str]:
        """What holds uv to this environment's PyTorch, also where it builds a package."""
        return {
            "UV_CONSTRAINT": str(self.record),
            "UV_BUILD_CONSTRAINT": str(self.record.with_name(guard.BUILD)),
            "UV_CACHE_DIR": str(self.cache()),
        }

    def cache(self) -> Path:
        """uv's cache of this PyTorch: a package that was built for another one is in another cache.

        uv keeps what it built from source, and would use it with any PyTorch.
        """
        found = guard.recorded(self.record) if self.record.is_file() else {}
        name = f"for-torch-{found.get('torch', self.torch)}"
        cache = uv.cache(self.project.env)
        return cache if cache.name == name else cache / name


def own_inputs(project: Project) -> str:
    """The end of the name of an environment: empty, unless a job's code needs another one than the project now."""

    def digest(folder: Path) -> str:
        files = [*(folder / name for name in dependency_files(folder)), located("stack.json", folder)]
        files += sorted(located("vendor", folder).glob("gpukit-*.whl"))
        found = [file.read_bytes() if file.is_file() else b"" for file in files]
        return hashlib.sha256(b"\0".join(found)).hexdigest()[:8]

    if project.code == project.root or digest(project.code) == digest(project.root):
        return ""
    return f"-{digest(project.code)}"


def in_use(path: Path) -> bool:
    try:
        os.close(locked(Path(f"{path}.use"), fcntl.LOCK_EX))
    except BlockingIOError:
        return True
    return False


def remove(path: Path) -> None:
    """Remove an environment; raises BlockingIOError while a program uses it. The file with the lock stays."""
    use = locked(Path(f"{path}.use"), fcntl.LOCK_EX)
    try:
        (path / STAMP).unlink(missing_ok=True)  # first: if this is interrupted, it is created again
        shutil.rmtree(path)
    finally:
        os.close(use)


def names(packages: Iterable[str]) -> set[str]:
    """Those of name-version; the names of installed packages have no hyphen."""
    return {package.partition("-")[0] for package in packages}


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


def configure(path: Path, variables: dict[str, str]) -> None:
    """Make pip, and uv in an activated environment, refuse what is incompatible before they change anything."""
    pip = {name: variables[f"UV_{name.upper().replace('-', '_')}"] for name in ("constraint", "build-constraint")}
    lines = [f"{name} = {file}\n" for name, file in pip.items()]
    (path / "pip.conf").write_text("[global]\n" + "".join(lines), encoding="utf-8")
    script = path / "bin/activate"
    text = script.read_text(encoding="utf-8")
    undo = f"\n    unset {' '.join(variables)}"
    text = re.sub(r"^deactivate *\(\) *\{", lambda match: match[0] + undo, text, flags=re.MULTILINE)
    exports = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in variables.items())
    script.write_text(f"{text}\n{exports}", encoding="utf-8")
    rc = f'[ -f ~/.bashrc ] && . ~/.bashrc\n. "{script}"\n'
    (path / "bashrc").write_text(rc, encoding="utf-8")
