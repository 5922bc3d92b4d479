"""Ask the catalogue's sources what is new, moved, or gone; write digests and leads to images.yml, and refresh the rest.

uv run --group test python catalogue/watch.py [--check] [--pull-request]

A lead is what a source says and nobody has confirmed: nothing but a person acts on it (CONTRIBUTING.md). Sources are
the images' registries, PyTorch's index, the package index as uv is configured, the indexes of extensions.yml, and
NVIDIA's lists of toolkits and drivers. Exit status: 0 if all have answered, 3 if one has not; for that one nothing is
changed. 1: an error.
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import html
import http.client
import json
import re
import subprocess
import sys
import tempfile
import urllib.parse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import yaml
from packaging.requirements import Requirement
from packaging.version import Version

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "gpukit/src"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # so that this file can be run directly
from catalogue import refresh, support
from gpukit.host.client import Client
from gpukit.host.git import git
from gpukit.host.registry import Registry, bare, parse
from gpukit.plan import index as simple
from gpukit.plan import wheels
from gpukit.plan.packages import GLIBC
from gpukit.project.messages import RefusalError, say
from gpukit.update import request

ROOT = Path(__file__).resolve().parents[1]
IMAGES = ROOT / "catalogue/images.yml"
PACKAGES = ROOT / "catalogue/packages.yml"
TORCH = "https://download.pytorch.org/whl/torch/"
TOOLKITS = "https://developer.download.nvidia.com/compute/cuda/redist/"
DRIVERS = "https://docs.nvidia.com/datacenter/tesla/drivers/releases.json"
INDEX = "the package index (uv pip compile --no-deps)"
SECONDS = 30  # for one answer
UNREACHABLE = 3  # exit status
FIELDS = ("kind", "name", "change", "found", "source", "checked", "dismissed")
HEADER = """\
leads: # what catalogue/watch.py found and nobody has confirmed; CONTRIBUTING.md says what to do with one
"""
BRANCH = "catalogue-watch"
MARK = "<!-- catalogue-watch {} -->"  # in the pull request: what it is about

Lead = dict[str, str]


class SourceError(Exception):
    """A source gave no usable answer."""


def lead(kind: str, name: str, change: str, found: str, source: str) -> Lead:
    return {"kind": kind, "name": name, "change": change, "found": found, "source": source}


# ---------------------------------------------------------------------------------------------------------------------
# Sources. Each yields the leads of one source, by its address.


def get(address: str) -> str:
    """The text at an address."""
    client = Client(SECONDS)
    try:
        response = client.ask("GET", address, {"User-Agent": "gpukit"})
    except TimeoutError:
        raise SourceError(f"it did not respond within {SECONDS} seconds") from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise SourceError(f"it cannot be reached: {error}") from None
    finally:
        client.close()
    if response.status != 200:
        raise SourceError(f"it answered with status {response.status}")
    return response.body.decode(errors="replace")


def numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text))


def series(tag: str) -> tuple[tuple[int, ...], str] | None:
    """The version that a tag begins with, and the rest: 13.0.3-devel-ubuntu24.04, 26.07-py3."""
    match = re.fullmatch(r"(\d+(?:\.\d+)+)(-[\w.-]+)?", tag)
    return (numbers(match[1]), match[2] or "") if match else None


def newer(known: list[str], tags: list[str]) -> list[str]:
    """The tags that are newer than the known ones of their series.

    A tag is compared with those that differ in the last number only, or with all if there are none: with 13.0.3 and
    13.2.1 known, 13.0.4 and 13.3.0 are newer, and 13.1.2 is not.
    """
    own = [found for found in map(series, known) if found]
    result = []
    for tag in tags:
        found = series(tag)
        same = [number for number, rest in own if found and rest == found[1] and len(number) == len(found[0])]
        if found and same:
            near = [number for number in same if number[:-1] == found[0][:-1]]
            if found[0] > max(near or same):
                result.append(tag)
    return sorted(set(result), key=lambda tag: series(tag) or ())


def image_sources(images: dict[str, Any], packages: dict[str, Any]) -> dict[str, Callable[[], Iterator[Lead]]]:
    """By address of the tag list: what is new, moved, and gone in a repository. Adds `digest` to the releases."""
    registry = Registry(SECONDS)
    releases = [release for base in images["releases"].values() for release in base.values()]
    needed: dict[str, set[str]] = {}  # CPU architectures by image
    for release in releases:
        needed.setdefault(bare(release["image"]), set()).update(release["kernels"])
    for server in packages["servers"].values():
        needed.setdefault(bare(server["image"]), set())
    names: dict[str, list[str]] = {}  # images by repository
    for name in needed:
        image = parse(name)
        names.setdefault(f"https://{image.host}/v2/{image.repository}/tags/list", []).append(name)

    def look(source: str, own: list[str]) -> Iterator[Lead]:
        tags = registry.tags(own[0])
        digests = {name: registry.digest(name) for name in own}
        platforms = {name: registry.platforms(name) for name in own if digests[name]}
        fresh = newer([parse(name).tag for name in own], tags)
        built = {tag: registry.platforms(f"{own[0].rpartition(':')[0]}:{tag}") for tag in fresh}
        for name in own:  # all answers are there: from here on, digests are changed
            if not digests[name] and parse(name).tag in tags:
                raise SourceError(f"it lists {name} and does not have it")
        for name in own:
            mine = [release for release in releases if bare(release["image"]) == name]
            before = next((release["digest"] for release in mine if release.get("digest")), "")
            if not digests[name]:
                yield lead("image", name, "gone", f"was {before}" if before else "", source)
                continue
            for release in mine:
                release["digest"] = digests[name]
            if before and before != digests[name]:
                yield lead("image", name, "moved", f"{before} to {digests[name]}", source)
            for arch in sorted(needed[name]):
                if f"linux/{arch}" not in platforms[name]:
                    yield lead("image", f"{name} for linux/{arch}", "gone", "", source)
        for tag in fresh:
            name = f"{own[0].rpartition(':')[0]}:{tag}"
            yield lead("image", name, "new", ", ".join(built[tag]), source)

    return {source: (lambda source=source, own=own: look(source, own)) for source, own in names.items()}


def torch_builds(images: dict[str, Any]) -> Iterator[Lead]:
    """Builds on PyTorch's index that are newer than the releases of their flavor, and releases without a build."""
    page = html.unescape(urllib.parse.unquote(get(TORCH)))
    found = set(re.findall(r"\btorch-(\d+\.\d+\.\d+\+(?:cpu|cu\d{3}))-cp", page))
    if not found:
        raise SourceError("its page lists no builds of torch")
    bases = [images["releases"][base] for base in ("wheel", "cuda")]
    known = {release["torch"] for base in bases for release in base.values()}
    highest: dict[str, tuple[int, ...]] = {}
    for build in known:
        version, flavor = build.split("+")
        highest[flavor] = max(highest.get(flavor, ()), numbers(version))
    for build in sorted(found - known, key=lambda build: numbers(build)):
        version, flavor = build.split("+")
        if numbers(version) > highest.get(flavor, max(highest.values())):
            yield lead("torch", build, "new", "", TORCH)
    for build in sorted(known - found):
        yield lead("torch", build, "gone", "", TORCH)


def wanted(images: dict[str, Any], packages: dict[str, Any]) -> dict[str, list[Requirement]]:
    """What the catalogue says of packages, by name: ranges, and the newest version that it knows."""
    texts = [each["name"] for case in packages["use_cases"].values() for each in case["packages"]]
    texts += [each for group in ("workflows", "tracking") for part in packages[group].values() for each in part]
    texts += [*packages["tools"], *(server["requirement"] for server in packages["servers"].values())]
    texts += [f"{each['package']}=={each['version']}" for each in packages["exact"]]
    texts.append(f"uv=={packages['uv']['version']}")
    releases = [release for base in ("wheel", "cuda") for release in images["releases"][base].values()]
    texts.append(f"torch<={max((release['torch'].split('+')[0] for release in releases), key=numbers)}")
    newest = max(images["toolkits"]["drivers"], key=numbers)
    texts.append(f"cuda-toolkit<{newest.split('.')[0]}.{int(newest.split('.')[1]) + 1}")
    found: dict[str, list[Requirement]] = {}
    for requirement in map(Requirement, texts):
        if requirement.specifier:
            found.setdefault(requirement.name, []).append(requirement)
    return found


def newest_versions(names: list[str]) -> dict[str, str]:
    """The newest version of each package on the package index, which uv's configuration names."""
    command = ["uv", "pip", "compile", "-q", "--no-deps", "--no-header", "--no-annotate", "--no-emit-index-url"]
    glibc = "_".join(map(str, GLIBC["container"]))  # some packages have wheels for newer systems only
    command += ["--python-version=3.12", f"--python-platform=x86_64-manylinux_{glibc}", "-"]
    try:
        done = subprocess.run(command, cwd=ROOT, input="\n".join(names), capture_output=True, text=True, timeout=300)
    except OSError as error:
        raise SourceError(f"uv cannot run: {error.strerror}") from None
    except subprocess.TimeoutExpired:
        raise SourceError("it did not respond within 300 seconds") from None
    if done.returncode:
        raise SourceError(f"uv found no versions: {' '.join(done.stderr.split())[-300:]}")
    return dict(re.findall(r"^([\w.-]+)==([^\s;]+)", done.stdout, re.MULTILINE))


def package_versions(images: dict[str, Any], packages: dict[str, Any]) -> Iterator[Lead]:
    """Packages whose newest version is above what the catalogue allows."""
    ranges = wanted(images, packages)
    found = newest_versions(sorted(ranges))
    for name in sorted(found):
        above = [str(each) for each in ranges.get(name, []) if is_above(found[name], each)]
        if above:
            yield lead(
                "package", f"{name} {found[name]}", "new", f"outside of {', '.join(dict.fromkeys(above))}", INDEX
            )


def is_above(version: str, requirement: Requirement) -> bool:
    """Whether a version is outside of the range because it is too new; an older one is no news."""
    bounds = [Version(each.version.removesuffix(".*")) for each in requirement.specifier]
    return not requirement.specifier.contains(version) and Version(version) >= max(bounds)


def wheel_sources(images: dict[str, Any], extensions: dict[str, Any]) -> dict[str, Callable[[], Iterator[Lead]]]:
    """By the address of an index with wheels of extensions: packages that have wheels for a newer PyTorch than it was
    seen to have, on its pages for the catalogue's releases, and packages that have none there.
    """
    releases = [each for each in images["releases"]["wheel"].values() if each["cuda"]]
    torches = sorted({".".join(release["torch"].split(".")[:2]) for release in releases})

    def newest(index: dict[str, Any], package: str, client: simple.Indexes) -> str | None:
        found: set[str] = set()
        for cuda in sorted({release["cuda"] for release in releases} & {*index["cuda"]}):
            for torch in torches if "{torch}" in index["page"] else [""]:
                page = index["page"].format(cuda=cuda.replace(".", ""), torch=f"{torch}.0", package=package)
                answer = client.ask(page, {"Accept": simple.DATED}, missing=True)
                listed = simple.files(package, page, answer) if answer else []
                built = [wheels.read(file.filename) for file in listed]
                found |= {each.torch for each in built if each and each.name == package and not each.unknown}
        return max(found, key=numbers, default=None)

    def look(source: str, index: dict[str, Any], packages: dict[str, str]) -> Iterator[Lead]:
        client = simple.Indexes([], simple.Platform("amd64", (), (0, 0)), seconds=SECONDS)
        try:
            found = {package: newest(index, package, client) for package in packages}
        finally:
            client.client.close()
        for package, torch in found.items():
            if torch is None:
                yield lead("wheel", package, "gone", "", source)
            elif torch and numbers(torch)[:2] > numbers(packages[package]):
                yield lead("wheel", f"{package} for torch {'.'.join(torch.split('.')[:2])}", "new", "", source)

    own = {
        id: {
            name: each.get("seen", "") for name, each in extensions["extensions"].items() if each["indexes"][:1] == [id]
        }
        for id in extensions["indexes"]
    }
    return {
        index["page"]: (lambda index=index, packages=own[id]: look(index["page"], index, packages))
        for id, index in extensions["indexes"].items()
    }


def toolkits(images: dict[str, Any]) -> Iterator[Lead]:
    """CUDA toolkits that are newer than those in the catalogue, with the driver that comes with them."""
    listed = set(re.findall(r"redistrib_(\d+\.\d+\.\d+)\.json", get(TOOLKITS)))
    if not listed:
        raise SourceError("its page lists no toolkits")
    last = max(map(numbers, images["toolkits"]["drivers"]))
    for version in sorted((each for each in listed if numbers(each)[:2] > last), key=numbers):
        data = answer(get(f"{TOOLKITS}redistrib_{version}.json"))
        driver = (data.get("nvidia_driver") or {}).get("version")
        said = [f"released {data['release_date']}"] if data.get("release_date") else []
        said += [f"driver {driver}" if driver else "no driver"]
        yield lead("toolkit", version, "new", ", ".join(said), TOOLKITS)


def drivers(images: dict[str, Any]) -> Iterator[Lead]:
    """Driver branches, and the newest driver of one, that the catalogue does not have."""
    data = answer(get(DRIVERS))
    known = {branch["branch"]: branch["newest"] for branch in images["branches"]}
    listed = {
        branch: max(entry["driver_info"], key=lambda info: numbers(info["release_version"]))
        for branch, entry in data.items()
        if branch.isdigit() and isinstance(entry, dict) and entry.get("driver_info")
    }
    if not listed:
        raise SourceError("its list has no drivers")
    for branch in sorted(listed, key=int):
        version = listed[branch]["release_version"]
        before = known.get(branch) or ("0" if int(branch) > max(map(int, known)) else None)
        if before and numbers(version) > numbers(before):
            said = [data[branch].get("type") or "", f"released {listed[branch].get('release_date')}"]
            yield lead("driver", version, "new", ", ".join(filter(None, said)), DRIVERS)


def answer(text: str) -> dict[str, Any]:
    try:
        data = json.loads(text)
    except ValueError:
        data = None
    if not isinstance(data, dict):
        raise SourceError("its answer is not JSON: a proxy or a login page may be in between")
    return data


# ---------------------------------------------------------------------------------------------------------------------
# What is written


def merge(old: list[Lead], found: dict[str, list[Lead]], today: str) -> list[Lead]:
    """The leads after this run. What is known keeps its date; of a source that has not answered, all are kept."""
    known = {(each["kind"], each["name"], each["change"]): each for each in old}
    result = {key: each for key, each in known.items() if each["source"] not in found or each["change"] == "moved"}
    for leads in found.values():
        for each in leads:
            key = (each["kind"], each["name"], each["change"])
            before = known.get(key)
            same = before and (before.get("dismissed") or before["found"] == each["found"])
            result[key] = before if before and same else {**each, "checked": today}
    return sorted(
        result.values(), key=lambda each: (each["kind"], each["source"], each["change"], numbers(each["name"]))
    )


def written(text: str, digests: dict[str, str], leads: list[Lead]) -> str:
    """images.yml with these digests, by image, and these leads; all else stays as it is."""

    def with_digest(match: re.Match[str]) -> str:
        digest = digests.get(bare(match[2]))
        return f'{match[1]}image: "{match[2]}"\n{match[1]}digest: "{digest}"\n' if digest else match[0]

    text = re.sub(r'^( +)image: "([^"]+)"\n(?: +digest: .*\n)?', with_digest, text, flags=re.MULTILINE)
    text = re.sub(r"\n*^leads:.*\Z", "\n", text, flags=re.MULTILINE | re.DOTALL)
    if not leads:
        return text
    lines = [", ".join(f"{name}: {json.dumps(each[name])}" for name in FIELDS if name in each) for each in leads]
    return f"{text.rstrip()}\n\n{HEADER}" + "".join(f"  - {{{line}}}\n" for line in lines)


def watch(images_file: Path, packages_file: Path, today: str) -> tuple[str, list[str], dict[str, str]]:
    """The new text of images.yml, what is new in it as lines, and why sources gave no answer."""
    text = images_file.read_text(encoding="utf-8")
    images = yaml.safe_load(text)
    packages = yaml.safe_load(packages_file.read_text(encoding="utf-8"))
    sources = {
        **image_sources(images, packages),
        TORCH: lambda: torch_builds(images),
        INDEX: lambda: package_versions(images, packages),
        TOOLKITS: lambda: toolkits(images),
        DRIVERS: lambda: drivers(images),
        **wheel_sources(images, support.load("extensions")),
    }
    found: dict[str, list[Lead]] = {}
    silent: dict[str, str] = {}
    for source, look in sources.items():
        say(f"Asking {source} ...")
        try:
            found[source] = list(look())
        except (RefusalError, SourceError) as error:
            silent[source] = str(error)
        except (KeyError, TypeError, AttributeError, ValueError) as error:  # another form than ever before
            silent[source] = f"its answer has an unknown form ({type(error).__name__}: {error})"
    old = images.get("leads") or []
    leads = merge(old, found, today)
    digests = {
        bare(release["image"]): release["digest"]
        for base in images["releases"].values()
        for release in base.values()
        if release.get("digest")
    }
    before = re.findall(r'image: "([^"]+)"\n +digest: "([^"]+)"', text)
    news = [
        f"{each['change']}: {each['kind']} {each['name']}" + (f" ({each['found']})" if each["found"] else "")
        for each in leads
        if each not in old
    ]
    first = sorted(set(digests) - {bare(name) for name, _ in before})
    news += [f"digest recorded: {name} ({digests[name]})" for name in first]
    gone = [
        each
        for each in old
        if each not in leads and (each["kind"], each["name"]) not in {(one["kind"], one["name"]) for one in leads}
    ]
    news += [f"no longer {each['change']}: {each['kind']} {each['name']}" for each in gone]
    return written(text, digests, leads), news, silent


# ---------------------------------------------------------------------------------------------------------------------
# The pull request


def propose(root: Path, news: list[str], silent: dict[str, str]) -> None:
    """Commit what has changed on a branch of its own, and open or update the one pull request for it."""
    mark = MARK.format(hashlib.sha256("\n".join(sorted(news)).encode()).hexdigest()[:16])
    branch = request.Branch(root, root, BRANCH, "", mark)
    if branch.opened and mark in branch.opened["body"]:
        say(f"{branch.opened['url']} already has this.")
        return
    if left := branch.left():
        say(left)
        return
    with tempfile.TemporaryDirectory(prefix="catalogue-watch-") as folder:
        index = {"GIT_INDEX_FILE": f"{folder}/index"}
        git(root, "read-tree", "HEAD", **index)
        git(root, "add", "-A", "--", "catalogue", "docs", "examples", "gpukit/src/gpukit/data", **index)
        title = "Catalogue: what its sources say"
        branch.push(git(root, "write-tree", **index).strip(), f"{title}\n\n{request.TRAILER}: watch\n")
        branch.send(Path(folder), title, report(news, silent))


def report(news: list[str], silent: dict[str, str]) -> str:
    lines = [f"- {line}" for line in news] or ["Nothing is new."]
    lines += ["", "No answer, so nothing is changed for these:", ""] * bool(silent)
    lines += [f"- {source}: {reason}" for source, reason in silent.items()]
    lines += ["", "CONTRIBUTING.md says how to confirm or dismiss a lead. Digests are in effect once this is merged."]
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; print what is new")
    parser.add_argument(
        "--pull-request", action="store_true", help="propose the changes on GitHub, with its program gh"
    )
    options = parser.parse_args(arguments)
    today = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
    text, news, silent = watch(IMAGES, PACKAGES, today)
    print(report(news, silent))
    if not options.check and text != IMAGES.read_text(encoding="utf-8"):
        IMAGES.write_text(text, encoding="utf-8")
        if refresh.main():
            return 1
        if options.pull_request:
            propose(ROOT, news, silent)
    return UNREACHABLE if silent else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except RefusalError as error:
        sys.exit(f"{error}")
    except KeyboardInterrupt:
        sys.exit(130)
