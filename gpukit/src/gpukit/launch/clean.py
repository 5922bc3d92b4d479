"""`./launch clean`: what this project has left on the disk, listed first, removed after a question for each kind."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from gpukit.findings.finding import count
from gpukit.host import uv
from gpukit.host.project import Project
from gpukit.launch import compose, environment, layers
from gpukit.launch.found import Found, own, vscode
from gpukit.project.messages import RefusalError, announced, confirmed, say

FORMAT = "--format={{.ID}}\t{{.Repository}}:{{.Tag}}\t{{.Size}}"
PRUNE = {"docker": "docker builder prune", "podman": "podman image prune"}
CHECKPOINTS = ("checkpoints/step-*", "step-*.pt", "checkpoint-*", "*.ckpt")


class Part(NamedTuple):
    """What is asked about in one question."""

    what: str
    lines: list[str]
    remove: Callable[[], dict[str, int]]  # how many of which things were removed
    note: str = ""


def clean(
    project: Project,
    keep: int = 1,
    yes: bool = False,
    only_images: bool = False,
    only_checkpoints: bool = False,
    native: bool = False,
) -> int:
    kept: list[str] = []
    folders = idle_environments(project) if native else []
    containers = [] if native else ended_containers(project)
    parts = []
    if not only_checkpoints or only_images:
        parts.append(created_here(project, folders) if native else built_here(project, containers, kept))
    parts += [] if only_images and not only_checkpoints else [checkpoints_here(project, keep)]
    parts = [part for part in parts if part.lines]
    if not parts:
        say("There is nothing of this project to remove.")
        return 0
    terminal = sys.stdin.isatty()
    chosen = []
    for part in parts:
        print(*part.lines, sep="\n", flush=True)
        if part.note:
            say(part.note)
        if not project.dry and (yes or (terminal and confirmed(f"Remove these {part.what}?"))):
            chosen.append(part)
    if project.dry:
        return 0
    if not yes and not terminal:
        flags = "--yes, with --images or --checkpoints for one kind only"
        raise RefusalError(f"Nothing was removed: run this in a terminal, or pass {flags}.")
    removed = [count(number, thing) for part in chosen for thing, number in part.remove().items() if number]
    say(f"Removed {', '.join(removed) or 'nothing'}.")
    if kept:
        raise RefusalError(f"{', '.join(kept)} is in use by a container of another project, so it was kept.")
    return 0


def ended_containers(project: Project) -> list[Found]:
    """Refuses while one of them runs: it may write a checkpoint."""
    containers = own(project) + compose.all_of(project)
    alive = [found.name for found in containers if found.running]
    if alive:
        raise RefusalError(f"{', '.join(alive)} is still running: run `./launch stop` first.")
    return containers


def idle_environments(project: Project) -> list[Path]:
    """The project's native environments; refuses while a program runs in one."""
    folders = sorted(path for path in uv.environments(project.env).glob(f"{project.name}-*") if path.is_dir())
    used = [str(folder) for folder in folders if environment.in_use(folder)]
    if used:
        raise RefusalError(f"A program still runs in {', '.join(used)}: wait for it, or run `./launch --native stop`.")
    return folders


def built_here(project: Project, containers: list[Found], kept: list[str]) -> Part:
    """Containers that have ended, their networks, and images; an image that stays after all is noted in `kept`."""
    theirs = vscode(project)
    for found in theirs:
        if found.running:
            name = found.name
            say(f"{name} runs in VS Code, so it and its image are kept: close VS Code, or run `./launch stop` first.")
    containers = containers + [found for found in theirs if not found.running]
    pictures = images(project, theirs)
    nets = networks(project, containers)
    lines = [f"  {'':>8}  container {found.name}" for found in containers]
    lines += [f"  {'':>8}  network {name}" for name in nets]
    sizes = layers.added(project, [identity for identity, _, _ in pictures]) if pictures else {}
    for identity, name, size in pictures:
        size = human(sizes[identity]) if identity in sizes else size
        lines.append(f"  {size:>8}  image {name if not name.startswith('<none>') else identity}")

    def remove() -> dict[str, int]:
        for found in containers:
            project.engine.call("rm", found.name)
        for name in nets:
            project.engine.call("network", "rm", name)
        kept.extend(
            name for identity, name, _ in pictures if project.engine.call("image", "rm", "--force", identity)[0]
        )
        return {"container": len(containers), "network": len(nets), "image": len(pictures) - len(kept)}

    note = (
        "A layer that several images share is counted once, and not if another project's image needs it. The build "
        f"cache of all projects also keeps layers: `{PRUNE[project.engine.name]}` frees their space."
    )
    return Part("containers, networks, and images", lines, remove, note * bool(pictures))


def created_here(project: Project, folders: list[Path]) -> Part:
    def remove() -> dict[str, int]:
        for folder in folders:
            try:
                environment.remove(folder)
            except BlockingIOError:
                raise RefusalError(f"A program was started in {folder}, so it was kept.") from None
        return {"environment": len(folders)}

    cache = uv.cache(project.env)
    note = f"uv's cache, {cache}, also has these packages, for all projects: `uv cache clean` empties it."
    lines = [f"  {human(size_of(folder)):>8}  {folder}" for folder in folders]
    return Part("environments", lines, remove, note * (bool(folders) and cache.is_dir()))


def checkpoints_here(project: Project, keep: int) -> Part:
    with announced("Checking whether the newest checkpoints are complete ..."):
        old = old_checkpoints(project.located("outputs"), keep)

    def remove() -> dict[str, int]:
        for path in old:
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        return {"checkpoint": len(old)}

    lines = [f"  {human(size_of(path)):>8}  {path.relative_to(project.root)}" for path in old]
    return Part("checkpoints", lines, remove)


def images(project: Project, theirs: list[Found]) -> list[tuple[str, str, str]]:
    """Id, name and size of the images that launch, VS Code and compose built for this folder, but for those in use."""
    folder = hashlib.sha256(str(project.root).encode()).hexdigest()
    wanted = [f"label={project.label}", f"reference=vsc-*-{folder}*"]
    if compose.there(project):
        wanted.append(f"label=com.docker.compose.project={compose.name(project)}")
    used = []
    for one in theirs:  # VS Code's name of an image depends on how the folder's path was written
        identity, name = project.engine.get("inspect", "--format={{.Image}} {{.Config.Image}}", one.name).split()
        wanted += [f"reference={name}"] * name.startswith("vsc-")
        used += [identity] * one.running
    found: dict[str, tuple[str, str, str]] = {}
    for one in wanted:
        output = project.engine.get("images", f"--filter={one}", FORMAT)
        for line in output.splitlines():
            identity, name, size = line.replace("localhost/", "").split("\t")  # Podman's prefix of local images
            if not any(image.startswith(f"sha256:{identity}") for image in used):
                found.setdefault(identity, (identity, name, size))
    return list(found.values())


def networks(project: Project, going: list[Found]) -> list[str]:
    """The networks that initialize.sh and compose made for this project, when nothing but what goes is in them."""
    if not compose.there(project):
        return []
    own_one = f"{project.slug}-{project.env.get('USER') or 'me'}"
    gone = {found.name for found in going}
    wanted = (f"name=^{own_one}$", f"label=com.docker.compose.project={compose.name(project)}")
    lists = [project.engine.get("network", "ls", f"--filter={one}", "--format={{.Name}}").split() for one in wanted]
    found = dict.fromkeys(lists[0] + lists[1])

    def inside(name: str) -> list[str]:
        return project.engine.get("ps", "--all", f"--filter=network={name}", "--format={{.Names}}").split()

    return [name for name in found if gone.issuperset(inside(name))]


def old_checkpoints(outputs: Path, keep: int) -> list[Path]:
    """All that are older than the `keep` newest whole ones of each run, but for its best whole one.

    Links are left alone, and so is what they lead to.
    """
    runs: dict[Path, set[Path]] = {}
    for pattern in CHECKPOINTS:
        for path in outputs.rglob(pattern):
            if not any(part.is_symlink() for part in (path, *path.parents)):
                runs.setdefault(path.parent, set()).add(path)
    nested = {path for found in runs.values() for path in found}
    old = []
    for found in runs.values():
        newest_first = sorted(found, key=lambda path: path.stat().st_mtime, reverse=True)
        kept = list(itertools.islice(filter(whole, newest_first), keep))
        if not kept:
            continue  # whatever can be saved of these is for a person to say
        rated = sorted((path for path in newest_first if metric(path) < math.inf), key=metric)
        spared = {*kept, *itertools.islice(filter(whole, rated), 1)}
        older = newest_first[newest_first.index(kept[-1]) :]
        old += [path for path in older if path not in spared and not nested.intersection(path.parents)]
    return sorted(old)


def whole(checkpoint: Path) -> bool:
    """Whether each file is what the manifest says; one of another library, without a manifest, is taken as it is."""
    try:
        files = json.loads((checkpoint / "manifest.json").read_text(encoding="utf-8"))["files"]
        return all(_sha256(checkpoint / name) == entry["sha256"] for name, entry in files.items())
    except FileNotFoundError:
        return not (checkpoint / "manifest.json").exists()
    except NotADirectoryError:
        return True
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


def _sha256(path: Path) -> str:
    found = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(1 << 20):
            found.update(piece)
    return found.hexdigest()


def metric(checkpoint: Path) -> float:
    """By which exactrun knows its best checkpoint, the lower the better; infinite where there is none."""
    try:
        value = json.loads((checkpoint / "manifest.json").read_text(encoding="utf-8"))["metric"]
    except (OSError, ValueError, KeyError):
        return math.inf
    return math.inf if value is None else value


def size_of(path: Path) -> int:
    files = [path, *path.rglob("*")] if path.is_dir() else [path]
    return sum(file.lstat().st_size for file in files)


def human(size: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.3g}{unit}"
        size /= 1000
    return f"{size:.3g}TB"
