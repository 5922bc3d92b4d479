"""What a repository that was not generated requires, read from its own files; nothing of them is changed.

stack.json lists the files: `requirements.txt`, `pyproject.toml` for the dependencies of its project, and
`pyproject.toml#dev` for one of its extras or groups. A line of `.gpukit/extra.txt` replaces theirs for its package.
"""

from __future__ import annotations

import posixpath
import re
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from gpukit.project import pyproject, stack, versions
from gpukit.project.location import ADOPTED, EXTRA, is_adopted
from gpukit.project.messages import RefusalError
from gpukit.project.pyproject import NAME, canonical

PYPROJECT = "pyproject.toml"
TORCH = ("torch", "torchvision", "torchaudio")
STABLE = 11  # torchaudio 2.11 and newer work with torch 2.11 and newer; older ones with the torch of the same number
CONDAS = {"pytorch": "the package index calls it torch: `--extra torch`", "python": "the image has its own"}
INDEX = re.compile(r"(?:-f|-i|--find-links|--index-url|--extra-index-url)\b")
# The option of a requirements file that counts; others, such as an index, are this machine's business.
INCLUDED = re.compile(r"(?:-r|--requirement)[ =]*(\S+)")
# The settings of builds, in [tool], that name the folders of packages, and those that name the packages' own.
FOLDERS = (("setuptools", "package-dir", ""), ("setuptools", "packages", "find", "where"))
FOLDERS += (("pdm", "build", "package-dir"), ("uv", "build-backend", "module-root"), ("maturin", "python-source"))
PACKAGES = (("hatch", "build", "targets", "wheel", "packages"), ("scikit-build", "wheel", "packages"))


class Line(NamedTuple):
    """One requirement, the file that has it, and why it cannot be installed from an index; empty if it can."""

    text: str
    file: str
    unfit: str = ""

    @property
    def name(self) -> str:
        found = re.match(NAME, self.text)
        return canonical(found[0]) if found else ""


def wanted(folder: Path, text: str = "") -> list[str]:
    """Every requirement that the image of the project in `folder` installs, generated or not.

    `text`: instead of the file to which `./launch add` writes.
    """
    if not is_adopted(folder):
        return pyproject.wanted(folder, text)
    return [line.text for line in lines(folder, sources(folder), text) if not line.unfit]


def sources(folder: Path) -> list[str]:
    """The files of an adopted repository that name its dependencies, as stack.json lists them."""
    return stack.read(folder / ADOPTED["stack.json"]).get("dependencies", [])


def edited(folder: Path) -> str:
    """The file to which `./launch add` writes, relative to the project's folder."""
    return EXTRA if is_adopted(folder) else PYPROJECT


def lines(folder: Path, sources: list[str], extra: str = "") -> list[Line]:
    """The requirements of these files, after those of extra.txt (or of `extra`, its text), which replace them.

    Raises:
        RefusalError: a file is missing or cannot be read.
    """
    own = requirements_file(folder, EXTRA, text=extra) if extra or (folder / EXTRA).is_file() else []
    known = {line.name for line in own}
    found = [*own]
    for source in sources:
        file, _, group = source.partition("#")
        for line in of_file(folder, file, group):
            line = named_in_index(of_any_build(line))
            if line.name not in known and line not in found:
                found.append(line)
    return found


def of_any_build(line: Line) -> Line:
    """PyTorch's release alone, of `torch==2.9.1+cu128` or of a wheel's address: the hardware determines the build."""
    if line.name not in TORCH:
        return line
    wheel = re.search(rf"/{NAME}-(\d[\w.]*?)(?:(?:\+|%2B)[\w.]+)?-", line.text)
    text = f"{line.name}=={wheel[1]}" if "@" in line.text and wheel else line.text
    return line._replace(text=re.sub(r"\+(?:cu|cpu|rocm|xpu)[\w.]*", "", text))


def named_in_index(line: Line) -> Line:
    """Not installed: what only conda calls so, and the package index has as another package, or not at all."""
    return line._replace(unfit=line.unfit or CONDAS[line.name]) if line.name in CONDAS else line


def of_file(folder: Path, file: str, group: str = "") -> list[Line]:
    if file.endswith(".toml"):
        return Project(folder, file).requirements(group)
    if file.endswith((".cfg", ".py")):
        known = setuptools(folder, file)
        return [Line(text, file) for text in (known["extras"].get(group, []) if group else known["install_requires"])]
    return requirements_file(folder, file)


def text_of(folder: Path, file: str) -> str:
    try:
        return (folder / file).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is not UTF-8"
        raise RefusalError(f"{file} names dependencies of this repository and cannot be read: {why}.") from None


def allowed(line: Line, torch: str, python: str) -> bool:
    """Whether a requirement, if it is one of PyTorch, allows this version."""
    return line.name not in TORCH or not versions.applies(line.text, python) or fits(line, torch)


def built_for(name: str, torch: str) -> list[tuple[int, int]]:
    """The releases of torch, torchvision, or torchaudio, without their last number, that work with this torch 2.

    https://github.com/pytorch/vision#installation, https://docs.pytorch.org/audio/2.11.0/installation.html (2026-11-26)
    """
    minor = versions.version(torch)[1]
    if name == "torchvision":
        return [(0, minor + 15)]
    return [(2, each) for each in range(STABLE, minor + 1)] if name == "torchaudio" and minor > STABLE else [(2, minor)]


def fits(line: Line, torch: str) -> bool:
    """Whether a requirement allows this torch, or what is built for it."""
    if line.name == "torch":
        return versions.allows(line.text, torch)
    local = torch.partition("+")[2]
    built = [f"{major}.{minor}.{patch}+{local}" for major, minor in built_for(line.name, torch) for patch in range(4)]
    return any(versions.allows(line.text, each) for each in built)


class Lines:
    """The lines of extra.txt, edited as pyproject.Requirements edits an array in pyproject.toml."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.listed = text.splitlines(keepends=True)

    def at(self) -> dict[int, str]:
        plain = {index: re.sub(r"(^|\s)#.*", "", line).strip() for index, line in enumerate(self.listed)}
        return {index: line for index, line in plain.items() if line and not line.startswith("-")}

    def values(self) -> list[str]:
        return [*self.at().values()]

    def set(self, requirement: str) -> str:
        """The text with this requirement: it replaces one for the same package and marker, or is added at the end."""
        key = (pyproject.name_of(requirement), pyproject.marker_of(requirement))
        for index, line in self.at().items():
            if (Line(line, EXTRA).name, pyproject.marker_of(line)) == key:
                return "".join([*self.listed[:index], f"{requirement}\n", *self.listed[index + 1 :]])
        return f"{self.text}{'' if self.text.endswith(chr(10)) or not self.text else chr(10)}{requirement}\n"

    def only(self, requirements: list[str]) -> str:
        """The text in which these requirements, of one package, stand instead of all others for it."""
        name = pyproject.name_of(requirements[0])
        gone = [index for index, line in self.at().items() if Line(line, EXTRA).name == name]
        kept = "".join(line for index, line in enumerate(self.listed) if index not in gone)
        return f"{kept}{'' if kept.endswith(chr(10)) or not kept else chr(10)}" + "".join(
            f"{each}\n" for each in requirements
        )


def editor(folder: Path, text: str) -> Any:
    """What edits the text of the file `edited(folder)`."""
    return Lines(text) if is_adopted(folder) else pyproject.Requirements(text)


# Requirements files


def requirements_file(folder: Path, file: str, seen: tuple[str, ...] = (), text: str = "") -> list[Line]:
    """Its lines, and those of the files that it includes."""
    found: list[Line] = []
    for written in re.sub(r"\\\r?\n", " ", text or text_of(folder, file)).splitlines():
        text = re.sub(r"(^|\s)#.*", "", written).strip()
        text = re.sub(r"\s--(?:hash|config-settings?|global-option)[ =]\S+", "", text).strip()
        included = INCLUDED.fullmatch(text)
        if included:
            other = included_path(file, included[1])
            found += requirements_file(folder, other, (*seen, file)) if other not in (*seen, file) else []
        elif text.startswith(("-e ", "--editable", "-e=", ".", "/", "git+")) or re.match(r"[\w.-]+/", text):
            path = re.sub(r"^(?:-e|--editable)[ =]*", "", text)
            if re.match(r"git\+|https?:", path):
                name = re.search(r"[#&]egg=([\w.-]+)", path)
                plain = re.sub(r"&egg=[\w.-]+", "", re.sub(r"#egg=[\w.-]+&?", "#", path)).rstrip("#")
                found.append(Line(f"{name[1]} @ {plain}" if name else plain, file))
            elif path.rstrip("/") not in (".", "./."):
                found.append(Line(path, file, unfit_path(path)))
        elif re.match(r"(?:-c|--constraint)\b", text):
            found.append(Line(text, file, f"constraints are not applied; {EXTRA} can pin packages"))
        elif INDEX.match(text) and "download.pytorch.org" not in text:
            found.append(Line(text, file, "the image takes packages from this machine's index"))
        elif text and not text.startswith("-"):
            found.append(Line(text, file))
    return found


def unfit_path(path: str) -> str:
    return f"it is a path{', which the container does not have' if path.startswith('..') else ''}"


def included_path(file: str, other: str) -> str:
    """The path of an included file, from the repository's folder."""
    parts: list[str] = []
    for part in (*Path(file).parent.parts, *Path(other).parts):
        if part == ".." and parts:
            parts.pop()
        elif part != ".":
            parts.append(part)
    if parts[:1] in ([".."], ["/"]):
        raise RefusalError(f"{file} includes {other}, which is not in this folder: no build could read it.")
    return "/".join(parts)


def included_files(folder: Path, file: str, seen: tuple[str, ...] = ()) -> list[str]:
    """A requirements file, and all that it includes: the image needs each."""
    found = [file]
    for other in re.findall(rf"(?m)^\s*{INCLUDED.pattern}\s*(?:#.*)?$", text_of(folder, file)):
        path = included_path(file, other)
        if path not in (*seen, *found):
            found += included_files(folder, path, (*seen, *found))
    return found


# pyproject.toml


def parsed(text: str, file: str) -> dict[str, Any]:
    for module in ("tomllib", "tomli"):
        try:
            toml = import_module(module)
        except ImportError:  # tomllib is in Python 3.11 and newer
            continue
        try:
            return toml.loads(text)
        except ValueError as error:
            raise RefusalError(f"{file} is not valid TOML: {error}.") from None
    raise RefusalError(f"Reading {file} needs Python 3.11 or newer. To install it: uv python install 3.13")


class Project:
    """A pyproject.toml: the dependencies, the name, and the commands, as PEP 621 or Poetry says them."""

    def __init__(self, folder: Path, file: str = PYPROJECT) -> None:
        self.file = file
        self.content = parsed(text_of(folder, file), file)
        self.tool = self.content.get("tool", {})
        self.poetry = self.tool.get("poetry", {})
        self.project = self.content.get("project", {})
        # What stood for groups before PEP 735 (uv 0.4.27, PDM 1.5), and Rye's.
        before = {**self.tool.get("pdm", {}).get("dev-dependencies", {})}
        for tool in ("rye", "uv"):
            before.update({"dev": old} if (old := self.tool.get(tool, {}).get("dev-dependencies")) else {})
        groups = self.content.get("dependency-groups", {})
        self.groups = {name: [*groups.get(name, []), *before.get(name, [])] for name in {**before, **groups}}
        self.before = [*before]
        self.poetry_groups = {
            **({"dev": {"dependencies": self.poetry["dev-dependencies"]}} if "dev-dependencies" in self.poetry else {}),
            **self.poetry.get("group", {}),
        }

    @property
    def name(self) -> str:
        return self.project.get("name") or self.poetry.get("name") or ""

    @property
    def version(self) -> str:
        return self.project.get("version") or self.poetry.get("version") or ""

    @property
    def python(self) -> str:
        """The range of Python's versions; of Poetry's alternatives (||), none."""
        poetrys = self.poetry.get("dependencies", {}).get("python", "")
        return self.project.get("requires-python", "") or ("" if "||" in poetrys else poetry_range(poetrys))

    @property
    def is_package(self) -> bool:
        """Whether its own tools install it, so that its commands and its name are known to Python."""
        if not self.name or self.tool.get("uv", {}).get("package") is False or self.poetry.get("package-mode") is False:
            return False
        return "build-system" in self.content or bool(self.poetry)

    @property
    def folders(self) -> list[str]:
        """The folders that its packages are in, as far as the settings of its build name them."""
        named = [value for path in FOLDERS for value in self.setting(path)]
        named += [posixpath.dirname(each) for path in PACKAGES for each in self.setting(path)]
        named += [each.get("from", "") for each in self.poetry.get("packages", [])]
        return list(dict.fromkeys(map(posixpath.normpath, named)))

    def setting(self, path: tuple[str, ...]) -> list[str]:
        value: Any = self.tool
        for key in path:
            value = value.get(key) if isinstance(value, dict) else None
        return value if isinstance(value, list) else [value] if isinstance(value, str) else []

    @property
    def has_dependencies(self) -> bool:
        return "dependencies" in self.project or "dependencies" in self.poetry

    def names(self) -> list[str]:
        """The extras and groups."""
        extras = [*self.project.get("optional-dependencies", {}), *self.poetry.get("extras", {})]
        return list(dict.fromkeys([*extras, *self.groups, *self.poetry_groups]))

    def usual(self) -> list[str]:
        """The groups that `uv sync`, `poetry install`, or `pdm install` installs unasked."""
        chosen = self.tool.get("uv", {}).get("default-groups", ["dev"])
        found = [name for name in self.groups if chosen == "all" or name in chosen or name in self.before]
        return found + [name for name, each in self.poetry_groups.items() if not each.get("optional")]

    def requirements(self, group: str = "", seen: tuple[str, ...] = ()) -> list[Line]:
        """Those of the project, or of an extra or a group; of the project's own extras that these name, too."""
        if group in seen:
            return []
        found: list[Line] = []
        for text in self.strings(group, seen):
            own = re.fullmatch(rf"({NAME})\s*\[([^]]+)\]\s*", text)
            if own and canonical(own[1]) == canonical(self.name or "-"):
                for extra in re.split(r"[\s,]+", own[2].strip()):
                    found += self.requirements(extra, (*seen, group))
            else:
                found.append(self.sourced(text))
        tables = [self.poetry_groups[group]] if group in self.poetry_groups else [self.poetry] if not group else []
        for table in tables:
            for name, value in table.get("dependencies", {}).items():
                found += self.poetrys(name, value, group)
        for name in self.poetry.get("extras", {}).get(group, []) if group else []:
            value = self.poetry.get("dependencies", {}).get(name)
            found += self.poetrys(name, value, group) if value is not None else []
        return found

    def strings(self, group: str, seen: tuple[str, ...]) -> list[str]:
        if not group:
            return [*self.project.get("dependencies", [])]
        found = [*self.project.get("optional-dependencies", {}).get(group, [])]
        for each in self.groups.get(group, []):
            if isinstance(each, str):
                found.append(each)
            elif each.get("include-group") not in (*seen, group):
                found += self.strings(each["include-group"], (*seen, group))
        return found

    def sourced(self, text: str) -> Line:
        """A requirement, from where `[tool.uv.sources]` takes it. An index there is for PyTorch, or the machine's."""
        name = re.match(NAME, text.strip())
        source = self.tool.get("uv", {}).get("sources", {}).get(name[0] if name else "", {})
        if isinstance(source, list):  # by markers, extras, or groups
            elsewhere = any({"git", "url", "path", "workspace"} & each.keys() for each in source)
            return Line(text.strip(), self.file, "it has several sources; `--extra` names one" if elsewhere else "")
        marker = text.partition(";")[2]
        marker = f" ; {marker.strip()}" if marker else ""
        if "git" in source:
            extras = re.match(rf"{NAME}\s*(\[[^]]*\])?", text.strip())[1] or ""  # type: ignore[index]
            return Line(f"{name[0]}{extras} @ {git_url(source)}{marker}", self.file)  # type: ignore[index]
        if "url" in source:
            return Line(f"{name[0]} @ {source['url']}{marker}", self.file)  # type: ignore[index]
        unfit = unfit_path(source["path"]) if "path" in source else ""
        unfit = "it is another project of this repository" if "workspace" in source else unfit
        return Line(text.strip(), self.file, unfit)

    def poetrys(self, name: str, value: Any, group: str) -> list[Line]:
        """One of Poetry's dependencies; an optional one only in its extras."""
        if name == "python":
            return []
        if isinstance(value, list):
            return [line for each in value for line in self.poetrys(name, each, group)]
        value = {"version": value} if isinstance(value, str) else value
        if value.get("optional") and not group:
            return []
        extras = f"[{','.join(value['extras'])}]" if value.get("extras") else ""
        markers = [f"({value['markers']})"] if value.get("markers") else []
        if value.get("python"):
            clauses = [clause for clause in poetry_range(value["python"]).split(",") if clause]
            markers += [re.sub(r"([<>=!~]+)(.*)", r"python_version \1 '\2'", clause) for clause in clauses]
        if value.get("platform"):
            markers.append(f"sys_platform == '{value['platform']}'")
        marker = f" ; {' and '.join(markers)}" if markers else ""
        if "git" in value:
            return [Line(f"{name}{extras} @ {git_url(value)}{marker}", self.file)]
        if "url" in value:
            return [Line(f"{name}{extras} @ {value['url']}{marker}", self.file)]
        unfit = unfit_path(value["path"]) if "path" in value else ""
        if "||" in value.get("version", ""):
            unfit = "its range has alternatives (||)"
        return [Line(f"{name}{extras}{poetry_range(value.get('version', '*'))}{marker}", self.file, unfit)]


def git_url(source: dict[str, Any]) -> str:
    at = next((source[key] for key in ("rev", "tag", "branch") if source.get(key)), "")
    url = re.sub(r"^git@([^:]+):", r"ssh://git@\1/", source["git"])
    folder = f"#subdirectory={source['subdirectory']}" if source.get("subdirectory") else ""
    return f"git+{url.removeprefix('git+')}{'@' if at else ''}{at}{folder}"


def poetry_range(text: str) -> str:
    """Poetry's `^1.2`, `~1.2`, `1.*`, and `1.2` as PEP 440 says them.

    https://python-poetry.org/docs/dependency-specification/ (2026-11-26)
    """
    found = []
    for clause in re.split(r"\s*,\s*|\s+(?=[<>=!~^])", text.strip()):
        sign, version = re.fullmatch(r"(\^|~=|~|[<>=!]=?|===)?\s*(.*)", clause).groups()  # type: ignore[union-attr]
        numbers = [int(part) for part in re.findall(r"\d+", re.match(r"[\d.]*", version)[0])]  # type: ignore[index]
        if version in ("*", ""):
            continue
        if sign == "^":
            place = next((place for place, number in enumerate(numbers) if number), len(numbers) - 1)
            found.append(f">={version},<{above(numbers, place)}")
        elif sign == "~":
            found.append(f">={version},<{above(numbers, min(1, len(numbers) - 1))}")
        elif not sign or sign == "=":
            found.append(f"=={version}")
        else:
            found.append(f"{sign}{version}")
    return ",".join(found)


def above(numbers: list[int], place: int) -> str:
    return ".".join(map(str, [*numbers[:place], numbers[place] + 1]))


# setup.cfg and setup.py


def setuptools(folder: Path, file: str) -> dict[str, Any]:
    """What setup.cfg, or the call of setup() in setup.py, says in so many words; setup.py is not run.

    Returns:
        name, version, install_requires, python_requires, and entry_points, as far as they are literal; `computed`
        lists the others, `extras` has the requirements of each, and `folders` those that packages are in
    """
    text = text_of(folder, file)
    found: dict[str, Any] = {"install_requires": [], "extras": {}, "computed": [], "folders": []}
    return {**found, **(in_setup_cfg(text) if file.endswith(".cfg") else in_setup_py(text))}


def in_setup_cfg(text: str) -> dict[str, Any]:
    import configparser  # here, and ast below, because few repositories need them

    config = configparser.ConfigParser(interpolation=None)
    try:
        config.read_string(text)
    except configparser.Error:
        return {}
    found: dict[str, Any] = {}
    options = [("options", "install_requires"), ("options", "python_requires")]
    for section, key in (("metadata", "name"), ("metadata", "version"), *options):
        if config.has_option(section, key):
            found[key] = config.get(section, key).strip()
    found["install_requires"] = listed(found.get("install_requires", ""))
    if "".join(found["install_requires"]).startswith("file:"):
        found.update(install_requires=[], computed=["install_requires"])
    for section, key in (("options.entry_points", "entry_points"), ("options.extras_require", "extras")):
        if config.has_section(section):
            found[key] = {name: listed(value) for name, value in config.items(section)}
    named = re.findall(r"(?m)^\s*=\s*(\S+)", config.get("options", "package_dir", fallback=""))
    found["folders"] = named or config.get("options.packages.find", "where", fallback="").split()
    if "attr:" in found.get("version", "") or "file:" in found.get("version", ""):
        found.pop("version")
    return found


def in_setup_py(text: str) -> dict[str, Any]:
    import ast

    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return {}
    calls = [each for each in ast.walk(tree) if isinstance(each, ast.Call)]
    call = next((each for each in calls if getattr(each.func, "attr", getattr(each.func, "id", "")) == "setup"), None)
    targets = [(target, each.value) for each in tree.body if isinstance(each, ast.Assign) for target in each.targets]
    assigned = {target.id: value for target, value in targets if isinstance(target, ast.Name)}
    changes: list[ast.AST] = [each.target for each in ast.walk(tree) if isinstance(each, ast.AugAssign)]
    changes += [target for target, _ in targets if isinstance(target, ast.Subscript)]
    changes += [each.func for each in calls if getattr(each.func, "attr", "") in ("append", "extend", "update")]
    for change in changes:  # what the name then has is computed
        assigned.pop(getattr(getattr(change, "value", change), "id", ""), None)
    wanted = ("name", "version", "install_requires", "entry_points", "package_dir", "extras_require", "ext_modules")
    wanted += ("python_requires",)
    said: dict[str, Any] = {}
    computed = []
    for keyword in call.keywords if call else []:
        value = assigned.get(keyword.value.id, keyword.value) if isinstance(keyword.value, ast.Name) else keyword.value
        if keyword.arg in wanted:
            try:
                said[keyword.arg] = ast.literal_eval(value)
            except ValueError:
                computed.append(keyword.arg)
    extras = said.pop("extras_require", {})
    folders = said.pop("package_dir", {})
    return {
        **said,
        "install_requires": listed(said.get("install_requires")),
        "extras": {name: listed(lines) for name, lines in extras.items()} if isinstance(extras, dict) else {},
        "computed": computed,
        "folders": [folders[""]] if isinstance(folders, dict) and folders.get("") else [],
    }


def listed(requirements: Any) -> list[str]:
    """The requirements of setuptools: a list, or a text of several lines."""
    lines = requirements.splitlines() if isinstance(requirements, str) else requirements or []
    return [line.strip() for line in lines if line.strip()]
