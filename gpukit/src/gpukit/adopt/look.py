"""What a repository is, as far as its files say it: read, and never run."""

from __future__ import annotations

import ast
import itertools
import json
import os.path
import posixpath
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from gpukit.host.git import attempt, git, sources, status
from gpukit.project import dependencies
from gpukit.project.dependencies import Line
from gpukit.project.location import ADOPTED, EXTRA, is_adopted
from gpukit.project.messages import RefusalError, some
from gpukit.project.modules import NEEDS, PACKAGES, SHARED
from gpukit.validate import image

LAUNCH = "launch"
FOLDERS = (".gpukit", ".devcontainer/gpukit", ".devcontainer/gpukit-cpu")
USERS = (EXTRA, ADOPTED["apt.txt"], ADOPTED[".env"])  # the user's own from the first commit, which --undo keeps
COMMIT = 'git add -A && git commit -m "..."'
PROJECT_FILES = ("pyproject.toml", "setup.cfg", "setup.py")
PIXI = "pixi.toml"
CONDA = ("environment.yml", "environment.yaml", "conda.yml", "conda.yaml", PIXI)
UNREAD = ("Pipfile",)  # which name dependencies, too
# What setup.py computes, and what to do about it.
COMPUTED = {
    "ext_modules": "extensions: `./launch run -- python setup.py build_ext --inplace` compiles them in the container",
    "extras_require": "extras are computed, and it is not run: `--extra` names packages",
}
# In the name of a file: what a run of the program does not need.
TOOLS = re.compile(r"dev|test|doc(?!ker)|lint|build|ci\b")
# The settings of builds, in [tool], that name the files of dynamic dependencies.
DYNAMIC = (
    ("setuptools", "dynamic", "dependencies", "file"),
    ("hatch", "metadata", "hooks", "requirements_txt", "files"),
)
# Conda's names of what the package index calls otherwise; None: the image brings it, or has it from its system.
CONDA_NAMES = {
    "pytorch": "torch",
    "pytorch-cpu": "torch",
    "pytorch-gpu": "torch",
    "opencv": "opencv-python-headless",
    **dict.fromkeys(("pip", "cudatoolkit", "cuda", "cuda-toolkit", "cudnn", "nccl", "pytorch-cuda")),
    **dict.fromkeys(("pytorch-mutex", "cuda-version", "cuda-nvcc", "mkl", "blas", "openblas", "setuptools", "wheel")),
}
# Conda's programs whose names the package index gives to other packages, and Debian to the same programs.
PROGRAMS = ("curl", "ffmpeg", "git", "graphviz", "jq", "make", "rsync", "sox", "tmux", "unzip", "wget")
ASSUMED = ("numpy", "torchvision", "torchaudio", "tensorboard")  # which many images have beside PyTorch
IMPORTS = "the imports of its scripts"
MOST_FILES = 2000  # scripts that are read for their imports
MOST_BYTES = {".py": 1 << 20, ".ipynb": 1 << 24}  # of one; notebooks contain images


@dataclass
class Found:
    """`sources`: the answer `dependencies`. `extra`: lines for extra.txt that only these words name: conda's file, or
    imports. `origin`: where those come from. `left_out`: what is there and not installed, each with its reason.
    """

    name: str
    sources: list[str] = field(default_factory=list)
    lines: list[Line] = field(default_factory=list)
    extra: list[str] = field(default_factory=list)
    origin: str = ""
    left_out: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    computed: str = ""  # the file that computes its dependencies; it is not run
    python: str = ""  # the range of versions that the project accepts


def refuse_generated(root: Path) -> None:
    if (root / "stack.json").is_file() and (root / ".copier-answers.yml").is_file():
        raise RefusalError(
            "This project was generated from the template and has all of it: `./launch update` updates it.",
            id="adopt-generated",
        )


def refuse_no_git(root: Path) -> None:
    if attempt(root, "rev-parse", "--show-toplevel").code:
        raise RefusalError(f"{root} is not in a git repository: `git init && {COMMIT}` first.", id="adopt-no-git")


def refuse(root: Path) -> None:
    """Refuse what cannot be adopted, each in a sentence."""
    top = attempt(root, "rev-parse", "--show-toplevel")
    if is_adopted(root):
        raise RefusalError(
            "This repository has adopted gpukit: `./launch update` updates it, and `gpukit adopt --undo` removes it.",
            id="adopted-already",
        )
    kept = (*USERS, ADOPTED[".gitignore"])
    # Other files that git ignores are no obstacle: `git reset` to a commit before the adoption leaves logs and reports.
    present = {*sources(root), *(name for name in ADOPTED.values() if (root / name).is_file())} - {*kept}
    for name in (LAUNCH, *FOLDERS):
        path = root / name
        inside = any(each.startswith(f"{name}/") for each in present)
        if path.is_symlink() or path.is_file() or inside or (name == LAUNCH and path.exists()):
            other = " If a branch has adopted gpukit, merge it instead." if name == FOLDERS[0] else ""
            raise RefusalError(
                f"{name} exists here, and adopting needs that name: rename it first.{other}", id="adopt-taken"
            )
    if (root / ".devcontainer").is_symlink():
        raise RefusalError(".devcontainer is a link: make it a folder first.", id="adopt-taken")
    refuse_workspace(root)
    toplevel = Path(top.out.strip("\n")).resolve()
    own = [name for name in PROJECT_FILES if (root / name).is_file()] or requirement_files(root) or conda_files(root)
    if toplevel != root.resolve() and not own:
        raise RefusalError(
            f"This folder names no dependencies: run `gpukit adopt` in the repository's root, {toplevel}, or in a "
            "folder that is a project.",
            id="adopt-not-root",
        )
    if attempt(root, "rev-parse", "--verify", "-q", "HEAD").code:
        raise RefusalError(f"The repository has no commit yet: `{COMMIT}` first.", id="adopt-dirty")
    changed = [name for name, letters in status(root).items() if letters != "??" or name not in kept]
    if changed:
        raise RefusalError(
            f"Commit or stash your changes first, so that you see what adopting adds: {some(changed)}.",
            id="adopt-dirty",
        )


def refuse_workspace(root: Path) -> None:
    """Refuse the root of several projects: which one the container is for is not to be guessed."""
    paths = (path for name in PROJECT_FILES for depth in ("*", "*/*") for path in root.glob(f"{depth}/{name}"))
    folders = {path.parent.relative_to(root) for path in paths}
    members = sorted(
        folder.as_posix()
        for folder in folders
        if not any(part.startswith(".") or part in ("node_modules", "venv") for part in folder.parts)
    )
    project = dependencies.Project(root) if (root / "pyproject.toml").is_file() else None
    workspace = project is not None and "workspace" in project.tool.get("uv", {})
    own = (project is not None and project.name) or any((root / name).is_file() for name in ("setup.cfg", "setup.py"))
    own = own or main_files(requirement_files(root)) or conda_files(root)
    if not own and not members:
        members = sorted(path.parent.name for path in root.glob("*/requirements.txt"))
    if len(members) > 1 and (workspace or not own):
        raise RefusalError(
            f"This is a repository of several projects ({some(members)}): run `gpukit adopt` in the folder of one.",
            id="adopt-workspace",
        )


def look(root: Path, more: list[str]) -> Found:
    """What the repository requires. `more`: extras, groups, and files of requirements to install too.

    Raises:
        RefusalError: a file cannot be read, or which ones count is not certain.
    """
    found = Found(root.resolve().name)
    project = dependencies.Project(root) if (root / "pyproject.toml").is_file() else None
    files = requirement_files(root)
    if project is not None:
        found.name = project.name or found.name
        found.python = project.python
        add_project(root, found, project)
    setup = [name for name in ("setup.cfg", "setup.py") if (root / name).is_file() and not found.sources]
    for name in setup:
        add_setup(root, found, name)
    named = any(dependencies.of_file(root, *source.partition("#")[::2]) for source in found.sources)
    own = requirements(root, found)  # without `more`
    groups = groups_of(root, project)
    condas = conda_files(root)
    chosen = [each for each in more if each.endswith((".yml", ".yaml", PIXI)) and (root / each).is_file()]
    for each in more:
        if each in groups:
            found.sources.append(groups[each])
        elif (root / each).is_file() and each not in chosen:
            found.sources += dependencies.included_files(root, each)
        elif each not in chosen:
            known = ", ".join([*groups, *files, *condas]) or "none"
            raise RefusalError(
                f"There is no extra, group, or file {each} here; there are: {known}.", id="adopt-no-source"
            )
    if not named or (setup and "requirements.txt" in files):
        add_requirements(root, found, files, more)
    found.sources = list(dict.fromkeys(found.sources))
    installed = {line.text for line in requirements(root, found)}
    others = {name: dependencies.of_file(root, *source.split("#")) for name, source in groups.items()}
    unused = [name for name, lines in others.items() if not {line.text for line in lines} <= installed]
    unused += [name for name in files if name not in found.sources]
    if condas and not chosen and not main_files(files) and (setup or not own):
        chosen = [one_of(condas)]
    for name in chosen:
        lines, left_out = pixi_lines(root) if name == PIXI else conda_lines(root, name)
        found.extra += [line for line in lines if Line(line, name).name != "python"]
        found.python = found.python or next((line[6:] for line in lines if Line(line, name).name == "python"), "")
        found.origin = name
        found.left_out += left_out
    if not chosen and not requirements(root, found):
        found.extra, left_out = imports(root)
        found.origin = IMPORTS
        found.left_out += left_out
    unused += [name for name in condas if name not in chosen]
    if unused:
        found.left_out.append(f"{', '.join(unused)}: `--with NAME` installs one too")
    found.left_out += [f"{name}: not read; `--extra` names packages" for name in UNREAD if (root / name).is_file()]
    found.left_out += unapplied(project) if project is not None else []
    if found.computed and not any(source.endswith(".txt") for source in found.sources):
        found.left_out.append(f"what {found.computed} computes, which is not run: `--with FILE` names a file of it")
    computed = dependencies.setuptools(root, "setup.py")["computed"] if (root / "setup.py").is_file() else []
    found.left_out += [f"setup.py's {text}" for key, text in COMPUTED.items() if key in computed]
    found.left_out += links_outside(root)
    found.lines = requirements(root, found)
    found.left_out += [f"{line.text} ({line.file}): {line.unfit}" for line in found.lines if line.unfit]
    found.lines = [line for line in found.lines if not line.unfit]
    return found


def groups_of(root: Path, project: dependencies.Project | None) -> dict[str, str]:
    """The extras and groups by their names, as stack.json lists them."""
    found = {name: f"pyproject.toml#{name}" for name in project.names()} if project is not None else {}
    for file in ("setup.cfg", "setup.py"):
        extras = dependencies.setuptools(root, file)["extras"] if (root / file).is_file() else {}
        found = {**{name: f"{file}#{name}" for name in extras}, **found}
    return found


def unapplied(project: dependencies.Project) -> list[str]:
    """uv's settings that change what is installed, and count in its own commands alone."""
    kinds = ("override-dependencies", "constraint-dependencies")
    named = {kind: project.tool.get("uv", {}).get(kind) for kind in kinds}
    found = [f"uv's {kind}, {', '.join(lines)}: not applied" for kind, lines in named.items() if lines]
    pixis = [name for name in project.tool.get("pixi", {}).get("dependencies", {}) if CONDA_NAMES.get(name, name)]
    return found + ([f"pixi's dependencies, {', '.join(pixis)}: not read; `--extra` names packages"] if pixis else [])


def links_outside(root: Path) -> list[str]:
    """The repository's links to what a container does not have, such as a data set on another disk."""
    found = []
    for link in sorted(path for path in root.iterdir() if path.is_symlink()):
        place = Path(os.path.realpath(link))
        if place.is_dir() and root.resolve() not in place.parents:
            target = posixpath.normpath(posixpath.join("/workspace", link.readlink()))
            mount = f"type=bind,source={place},target={target}"
            file = ADOPTED[".devcontainer/devcontainer.json"]
            found.append(f"{link.name}, a link to {place}: the container has it with `{mount}` in `mounts` of {file}")
    return found


def one_of(files: list[str]) -> str:
    """The only one. Of several, which count is not to be guessed."""
    if len(files) > 1:
        raise RefusalError(
            f"Which of {', '.join(files)} does the image need? Name them: `gpukit adopt --with {files[0]}`.",
            id="adopt-which",
        )
    return files[0]


def conda_files(root: Path) -> list[str]:
    """conda's files: those with its own name, otherwise all that look like one."""
    usual = [name for name in CONDA if (root / name).is_file()]
    others = sorted(path.name for pattern in ("*.yml", "*.yaml") for path in root.glob(pattern))
    return usual[:1] or [name for name in others if is_conda(dependencies.text_of(root, name))]


def is_conda(text: str) -> bool:
    return all(re.search(rf"(?m)^{key}:", text) for key in ("channels", "dependencies"))


def requirements(root: Path, found: Found) -> list[Line]:
    return dependencies.lines(root, found.sources)


def requirement_files(root: Path) -> list[str]:
    patterns = ("requirements*.txt", "requirements/*.txt")
    return sorted(path.relative_to(root).as_posix() for pattern in patterns for path in root.glob(pattern))


def main_files(files: list[str]) -> list[str]:
    """Without those that only developers need, as their names say."""
    return [name for name in files if not TOOLS.search(Path(name).stem)]


def add_project(root: Path, found: Found, project: dependencies.Project) -> None:
    """pyproject.toml, and the groups that its own tools install unasked."""
    dynamic = "dependencies" in project.project.get("dynamic", [])
    if not (dynamic or project.has_dependencies or project.is_package or project.usual()):
        return
    found.sources = ["pyproject.toml", *(f"pyproject.toml#{name}" for name in project.usual())]
    if not dynamic:
        return
    files = [file for path in DYNAMIC for file in project.setting(path)]
    for file in files:
        found.sources += dependencies.included_files(root, file)
    if not files:
        for name in ("setup.cfg", "setup.py"):
            if (root / name).is_file():
                add_setup(root, found, name)


def add_setup(root: Path, found: Found, name: str) -> None:
    known = dependencies.setuptools(root, name)
    found.name = found.name if found.name != root.resolve().name else known.get("name") or found.name
    found.python = found.python or known.get("python_requires", "")
    if known.get("name") or known.get("install_requires"):
        found.sources.append(name)
    if "install_requires" in known.get("computed", []):
        found.computed = name


def add_requirements(root: Path, found: Found, files: list[str], more: list[str]) -> None:
    """requirements.txt; or the only other one, unless `more` names one."""
    chosen = [name for name in files if name in ("requirements.txt", "requirements/requirements.txt")]
    if not chosen and main_files(files) and not {*more} & {*files}:
        chosen = [one_of(main_files(files))]
    for name in chosen:
        found.sources += dependencies.included_files(root, name)


def conda_lines(root: Path, file: str) -> tuple[list[str], list[str]]:
    """The requirements in conda's environment.yml: pip's, then its own by their names in the package index."""
    own: list[str] = []
    pips: list[str] = []
    left_out: list[str] = []
    inside = False
    within_pip = -1
    for line in dependencies.text_of(root, file).splitlines():
        plain = re.sub(r"(^|\s)#.*", "", line).rstrip()
        item = re.match(r"(\s*)-\s+(.+)$", plain)
        if re.match(r"\S+:", plain):
            inside = plain.startswith("dependencies:")
            within_pip = -1
        elif inside and item:
            indent = len(item[1])
            value = item[2].strip("'\" ")
            if value == "pip:":
                within_pip = indent
            elif within_pip >= 0 and indent > within_pip:
                pips.append(value)
            else:
                within_pip = -1
                own.append(value)
    named = dependencies.requirements_file(root, file, text="\n".join(pips)) if pips else []
    lines = [line.text for line in named if not line.unfit]
    left_out += [f"{line.text}: {line.unfit}" for line in named if line.unfit]
    by_index, others = conda_names(own)
    return lines + by_index, left_out + others


def pixi_lines(root: Path) -> tuple[list[str], list[str]]:
    """The requirements in pixi.toml: those of its default environment that are for every platform.

    https://pixi.prefix.dev/latest/reference/pixi_manifest/ (2026-11-26)
    """
    content = dependencies.Project(root, PIXI)
    named = []
    for name, value in content.content.get("dependencies", {}).items():
        version = value.get("version", "*") if isinstance(value, dict) else value
        named.append(f"{name}{'=' if version[0].isdigit() else ''}{'' if version == '*' else version}")
    lines, left_out = conda_names(named)
    for name, value in content.content.get("pypi-dependencies", {}).items():
        for line in content.poetrys(name, value, ""):
            (left_out if line.unfit else lines).append(f"{line.text}: {line.unfit}" if line.unfit else line.text)
    for kind in {"feature", "target"} & {*content.content}:
        left_out.append(f"{PIXI}'s {kind}s: not read; `--extra` names packages")
    return lines, sorted(left_out)


def conda_names(values: list[str]) -> tuple[list[str], list[str]]:
    """Packages of conda by their names in the package index, and those that it has not."""
    lines: list[str] = []
    left_out: list[str] = []
    for value in values:
        match = re.fullmatch(r"(?:[\w.-]+::)?([\w.-]+?)\s*([=<>!~][\w.,=<>!~* ]*)?", value)
        if not match:
            left_out.append(f"{value}: the package index has no such form; `--extra` names it")
            continue
        name = match[1].lower()
        if name in PROGRAMS:
            left_out.append(f"{value}: a program, which a line `{name}` in {ADOPTED['apt.txt']} installs")
            continue
        if name.startswith("_") or CONDA_NAMES.get(name, name) is None:
            left_out.append(f"{value}: the image has its own, or needs none")
            continue
        lines.append(f"{CONDA_NAMES.get(name, name)}{conda_range(match[2] or '')}")
    return lines, left_out


def conda_range(text: str) -> str:
    """Conda's `=1.2` (any 1.2), `=1.2=build`, and `>=1.2,<2` as PEP 440 says them.

    https://docs.conda.io/projects/conda/en/stable/user-guide/concepts/pkg-specs.html (2026-11-26)
    """
    exact = re.fullmatch(r"==?\s*([\w.]+?(?:\.?\*)?)(=.*)?", text)
    if not exact:
        return text.replace(" ", "")
    if text.startswith("==") or (exact[2] and not exact[1].endswith("*")):
        return f"=={exact[1]}"
    return f"=={exact[1].rstrip('.*')}.*"


def imports(root: Path) -> tuple[list[str], list[str]]:
    """The packages that the repository's scripts import and that are neither Python's own nor its own; and the other
    projects of the repository among them, which are in no folder of this one.
    """
    if sys.version_info < (3, 10):  # which does not know what is its own
        raise RefusalError("Reading what scripts import needs Python 3.10 or newer: `uvx --python 3.12 gpukit adopt`.")
    names = [name for name in sources(root) if name.endswith(tuple(MOST_BYTES))][:MOST_FILES]
    own = {part for name in names for part in (Path(name).stem, *Path(name).parts[:-1])}
    imported: set[str] = set()
    for name in names:
        if re.search(r"(^|/)(tests?|docs?|examples?)/|(^|/)(test_|conftest|setup\.py$)", name):
            continue
        path = root / name
        try:
            text = path.read_text(encoding="utf-8") if path.stat().st_size < MOST_BYTES[path.suffix] else ""
            cells = notebook(text) if text and path.suffix == ".ipynb" else [text]
        except (OSError, ValueError):
            continue
        if path.suffix == ".ipynb" and any(cells):
            imported.add("ipykernel")  # with which VS Code runs them
        for node in itertools.chain.from_iterable(map(nodes, cells)):
            if isinstance(node, ast.Import):
                imported |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level:
                imported |= {f"{node.module}.{alias.name}" for alias in node.names}
    imported |= {needed for module, needed in NEEDS.items() if any(f"{each}.".startswith(module) for each in imported)}
    modules = {each.partition(".")[0] for each in imported} - own - sys.stdlib_module_names
    foreign = {name for name in modules if not name.startswith("_")}  # an extension of its own is often called _C
    top = Path(git(root, "rev-parse", "--show-toplevel").strip("\n"))
    siblings = {}
    for name in foreign if top.resolve() != root.resolve() else ():
        for place in ("", "*/", "*/src/"):
            for path in (*top.glob(f"{place}{name}.py"), *top.glob(f"{place}{name}/__init__.py")):
                siblings[name] = path.relative_to(top).as_posix().removesuffix("/__init__.py")
    left_out = [f"{name}: the container does not have {path} of this repository" for name, path in siblings.items()]
    foreign -= {*siblings}
    shared = sorted(foreign & {*SHARED})
    left_out += [f"{name}: which package it is does not follow from the import; `--extra` names it" for name in shared]
    foreign -= {*shared}
    return sorted({PACKAGES.get(name, name.replace("_", "-")) for name in foreign}, key=str.lower), sorted(left_out)


def unnamed(root: Path, installed: Iterable[str]) -> list[str]:
    """What scripts import though nothing installs it, of what many images have beside PyTorch."""
    if sys.version_info < (3, 10):
        return []
    missing = [name for name in imports(root)[0] if name in ASSUMED and name not in installed]
    return [f"{name}: imported, and nothing installs it: `--extra {name}` does" for name in missing]


def notebook(text: str) -> list[str]:
    """The cells of a notebook that have code, without IPython's own commands."""
    try:
        cells = ["".join(cell["source"]) for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
    except (KeyError, TypeError):  # of a format before 2015
        return []
    return [re.sub(r"(?m)^\s*[%!?].*", "", cell) for cell in cells]


def nodes(text: str) -> list[ast.AST]:
    """What is in a script, without what it need not have to run."""
    found: list[ast.AST] = []
    try:
        waiting: list[ast.AST] = [ast.parse(text)]
    except (SyntaxError, ValueError):
        return []
    while waiting:
        found.append(waiting.pop())
        waiting += [node for node in ast.iter_child_nodes(found[-1]) if not optional(node)]
    return found


def optional(node: ast.AST) -> bool:
    """Imports that may fail, or that are for type checkers, or only for those who have the package."""
    if isinstance(node, ast.If):
        return bool(re.search(r"TYPE_CHECKING|_available\b", ast.unparse(node.test), re.IGNORECASE))
    caught = [ast.unparse(each.type) if each.type else "Exception" for each in getattr(node, "handlers", [])]
    return bool(re.search(r"ImportError|ModuleNotFoundError|\bException", " ".join(caught)))


def tracked(root: Path, names: list[str]) -> list[str]:
    """Those that git has in its last commit, unchanged."""
    listed = git(root, "ls-tree", "-r", "-z", "--name-only", "HEAD", "--", *names).split("\0")
    changed = status(root)
    return [name for name in listed if name and name not in changed]


def kept_from_builds(root: Path, paths: Iterable[str]) -> list[str]:
    """Those of the paths that the repository's own .dockerignore excludes.

    launch has a file of ours (Dockerfile.dockerignore). VS Code builds from a copy of the Dockerfile in a folder of its
    own, beside which there is none (devcontainers CLI 0.89, Dockerfile-with-features; 2026-11-26).
    """
    rules = image.patterns(root / ".dockerignore")
    return [path for path in dict.fromkeys(paths) if image.excluded(path, rules)]
