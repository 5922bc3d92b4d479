"""Which steps a host lacks, what they would run, and that it is what the vendors say."""

from __future__ import annotations

import re
import subprocess
from functools import cached_property
from pathlib import Path

import pytest

from gpukit.doctor.host import Result, Specification, Toolkit
from gpukit.project.messages import RefusalError
from gpukit.setup.machine import Machine
from gpukit.setup.main import _refuse_unsupported, show
from gpukit.setup.steps import STEPS, as_user, missing_steps, other_problems
from gpukit.setup.systems import read_mirrors
from tests.conftest import cannot
from tests.gpukit.setup.conftest import MORE, bare

VENDORS = Path(__file__).with_name("vendors.txt")
SYSTEMS = [("ubuntu", "22.04"), ("ubuntu", "24.04"), ("debian", "12"), ("debian", "13")]
EVERYTHING = ["driver", "docker", "toolkit", "runtime", "cdi", "group", "uv"]


def lacks(context) -> list[str]:
    return [step.id for step in missing_steps(context)]


def commands(context, id: str) -> list[str]:
    return [as_user(line, context) for step in STEPS if step.id == id for line in step.commands(context)]


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_healthy_host_lacks_nothing(make_context, system) -> None:
    assert lacks(make_context(system)) == []
    assert other_problems(make_context(system)) == []


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_bare_host_lacks_all_of_it_in_this_order(make_context, system) -> None:
    assert lacks(make_context(system, **bare())) == EVERYTHING


def test_after_docker_and_toolkit_the_rest(make_context) -> None:
    """What each step leaves is what the next one finds; the list of GPUs waits for the driver."""
    done = bare(next_driver="580.95.05")
    assert lacks(make_context(**done)) == EVERYTHING[1:]
    context = make_context(**done)
    waiting = {step.id: step.waits(context) for step in STEPS if step.waits(context)}
    assert waiting.keys() == {"cdi"}
    done |= {"client": Result(0, "Docker version 29.1.2, build 890dcca"), "packages": frozenset({"docker-ce"})}
    stopped = Result(1, "", "Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is it running?")
    done["info"] = stopped
    assert lacks(make_context(**done)) == ["engine", *EVERYTHING[2:]]
    done |= {"toolkit": Toolkit("1.20.1", True, True), "info": Result(0, '{"ServerVersion": "29.1.2", "Runtimes": {}}')}
    assert lacks(make_context(**done)) == EVERYTHING[3:]


OLD = Result(0, "NVIDIA GeForce RTX 5070 Ti, 570.124.04, 12.0\n")
LIST = Specification("/etc/cdi/nvidia.yaml", "580.95.05")
NO_CARD = {"cards": Result(None), "module": "", "pci": (), "toolkit": Toolkit(), "next_driver": ""}
IN_DESKTOP = {"OperatingSystem": "Docker Desktop", "Runtimes": {}}
HOSTS = {
    "an interrupted installation": ({"unfinished": True}, ["dpkg"]),
    "not in the group": ({"in_group": False}, ["group"]),
    "root": ({"in_group": False, "user": "root", "root": True}, []),
    "no uv": ({"uv": False}, ["uv"]),
    "half a toolkit": ({"toolkit": Toolkit("1.19.1", False, True, (LIST,))}, ["toolkit"]),
    "no runtime": ({"engine": {"Runtimes": {"runc": {}}}}, ["runtime"]),
    "no list of GPUs": ({"toolkit": Toolkit("1.19.1", True, True)}, ["cdi"]),
    "the list of another driver": (
        {"toolkit": Toolkit("1.19.1", True, True, (Specification("/etc/cdi/nvidia.yaml", "570.86.16"),))},
        ["cdi"],
    ),
    "an old driver": (
        {
            "cards": OLD,
            "module": "570.124.04",
            "next_driver": "570.124.04",
            "toolkit": Toolkit("1.19.1", True, True, (Specification("/etc/cdi/nvidia.yaml", "570.124.04"),)),
        },
        ["driver"],
    ),
    "no card": (NO_CARD, []),
    "no card, and asked for by name": ({**NO_CARD, "wanted": ("toolkit",)}, ["toolkit"]),
    "a project without GPUs": ({"targets": ("cpu",), "toolkit": Toolkit()}, []),
    "Docker Desktop": ({"system": "wsl", "engine": IN_DESKTOP, "toolkit": Toolkit(), "in_group": False}, []),
    "asked for one": ({"uv": False, "in_group": False, "wanted": ("group",)}, ["group"]),
}


@pytest.mark.parametrize("name", HOSTS)
def test_missing_steps_of_a_host(make_context, name) -> None:
    changes, expected = HOSTS[name]
    assert lacks(make_context(**changes)) == expected


def test_kernel_modules_and_branch_are_the_hardwares(make_context) -> None:
    def driver(*targets: str, hardware: str = "") -> list[str]:
        return commands(make_context(targets=targets, hardware=hardware, **bare()), "driver")

    assert driver("rtx-50")[-1].endswith(" nvidia-open")
    assert driver("rtx-40", "h100")[-1].endswith(" nvidia-open")
    old = driver("v100")
    assert old[-2].endswith(" nvidia-driver-pinning-580")
    assert old[-1].endswith(" cuda-drivers")
    mixed = make_context(targets=("v100", "h100"), **bare())
    blocked = next(step for step in STEPS if step.id == "driver").blocks(mixed)
    assert "./launch setup --hardware v100" in blocked
    assert driver("v100", "h100", hardware="h100")[-1].endswith(" nvidia-open")
    named = make_context(targets=("v100", "h100"), hardware="h100", **bare())
    assert next(step for step in STEPS if step.id == "driver").blocks(named) == ""


def test_the_driver_is_proved_at_the_floor_of_base_and_card(make_context) -> None:
    check = next(step for step in STEPS if step.id == "driver").check
    assert check(make_context(**bare())).endswith(" ge 580")
    assert make_context(targets=("dgx-spark",), arch="arm64").floor == "580.95.05"


def test_a_driver_that_only_needs_a_restart_is_not_installed_again(make_context) -> None:
    context = make_context(**bare(next_driver="580.95.05"))
    assert "driver" not in lacks(context)
    assert any("580.95.05 is installed but not loaded yet" in each for each in other_problems(context))
    assert "driver" in lacks(make_context(**bare(next_driver="550.163.01")))


def test_in_wsl_never_a_linux_driver(make_context) -> None:
    context = make_context(("ubuntu", "24.04"), **bare(system="wsl", files=("/dev/dxg",), systemd=False))
    assert lacks(context) == ["docker", "toolkit", "runtime", "cdi", "group", "uv"]
    assert any("in Windows, and none in this WSL" in each for each in other_problems(context))
    assert any("--mode=wsl" in line for line in commands(context, "cdi"))
    assert "service docker start" in commands(context, "docker")[-1]
    notes = next(step for step in STEPS if step.id == "docker").notes(context)
    assert "Docker Desktop" in notes[0]


@pytest.mark.parametrize(
    ("file", "name"),
    [("/etc/fastos-release", "DGX OS"), ("/etc/dgx-release", "DGX OS"), ("/etc/nv_tegra_release", "JetPack")],
)
def test_systems_with_a_preinstalled_driver(make_context, file, name) -> None:
    context = make_context(
        ("ubuntu", "24.04"), ("dgx-spark",), arch="arm64", **bare(files=(file,), texts={file: "R38 (release)"})
    )
    assert lacks(context) == ["group", "earlyoom", "uv"]
    assert any(sentence.startswith(f"{name} includes the driver") for sentence in other_problems(context))


def test_what_ends_a_program_before_shared_memory_is_full(make_context, tmp_path) -> None:
    """Its settings are read by a shell or by systemd, and the pattern fits Python's programs."""
    context = make_context(("ubuntu", "24.04"), ("dgx-spark",), arch="arm64", **bare())
    *_, written, restart = commands(context, "earlyoom")
    file = tmp_path / "earlyoom"
    subprocess.run(["sh", "-c", written.replace("sudo ", "").replace("/etc/default/earlyoom", str(file))], check=True)
    read = subprocess.run(
        ["sh", "-c", f'. {file}; eval "set -- $EARLYOOM_ARGS"; for last; do :; done; echo "$last"'],
        capture_output=True,
        text=True,
        check=True,
    )
    for name, preferred in {"python3.12": True, "python": True, "pt_main_thread": True, "Xorg": False}.items():
        assert bool(re.search(read.stdout.strip(), name)) is preferred
    assert restart == "sudo systemctl restart earlyoom"
    assert "earlyoom" not in lacks(make_context(("ubuntu", "24.04"), ("dgx-spark", "h100"), arch="arm64"))


def test_other_problems_are_reported_as_by_doctor(make_context) -> None:
    lost = make_context(cards=Result(15, "Unable to determine the device handle for GPU0: GPU is lost."))
    assert other_problems(lost)[0].startswith(lost.driver.cause)
    rootless = make_context(engine={"SecurityOptions": ["name=rootless"]})
    assert other_problems(rootless)[0].startswith(rootless.engine.cause)
    denied = Result(1, "", "permission denied while trying to connect to the Docker daemon socket")
    assert "next login" in other_problems(make_context(info=denied))[0]


def test_conflicting_packages_are_not_removed(make_context) -> None:
    docker = next(step for step in STEPS if step.id == "docker")
    context = make_context(**bare(packages=frozenset({"containerd", "podman-docker", "bash"})))
    assert "sudo apt-get remove podman-docker containerd" in docker.blocks(context)
    assert docker.blocks(make_context(**bare())) == ""
    for system in SYSTEMS:
        for id in EVERYTHING:
            for line in commands(make_context(system, **bare()), id):
                assert "apt-get install" not in line or "--no-remove" in line


# The commands


def every_line(make_context) -> list[str]:
    hosts = [make_context(system, **bare()) for system in SYSTEMS]
    hosts.append(make_context(("ubuntu", "24.04"), **bare(system="wsl", files=("/dev/dxg",), systemd=False)))
    hosts.append(make_context(("ubuntu", "22.04"), ("v100",), **bare()))
    return [line for context in hosts for id in ("dpkg", *EVERYTHING, "engine") for line in commands(context, id)]


def test_nothing_from_the_network_is_run_and_no_key_is_trusted_for_all(make_context) -> None:
    for line in every_line(make_context):
        assert not re.search(r"(curl|wget)[^\n]*\|", line), line
        assert "apt-key" not in line, line
        assert "trusted.gpg" not in line, line
        assert "--allow" not in line, line
        if "curl" in line and "apt-get" not in line:
            assert re.fullmatch(r"curl -fsSL https://\S+ -o ~/\.cache/gpu-template/\w+\.key", line), line


def test_each_repository_has_its_own_pinned_key(make_context) -> None:
    for line in every_line(make_context):
        if "/sources.list.d/" in line:
            assert re.search(r"^Signed-By: /|\[signed-by=/", line, re.MULTILINE), line
        if "/keyrings/" in line and "tee" not in line:
            assert re.search(r"= [0-9A-F]{40} &&", line), line


def test_the_shell_takes_every_line(make_context, capsys) -> None:
    for system in SYSTEMS:
        for root in (False, True):
            context = make_context(system, **bare(root=root))
            assert show(context, missing_steps(context)) == 0
            script = capsys.readouterr().out
            assert ("sudo" in script) is not root
            for check in (["sh", "-n"], ["shellcheck", "--shell=sh", "--severity=warning", "-"]):
                done = subprocess.run(check, input=script, capture_output=True, text=True)
                assert done.returncode == 0, done.stdout + done.stderr


def test_a_repository_that_apt_knows_is_not_added_twice(make_context) -> None:
    """Two files with two keys for one address, and apt reads none of its lists any more."""
    theirs = {
        "/etc/apt/sources.list.d/theirs.list": "deb [signed-by=/k.gpg] https://download.docker.com/linux/debian x y"
    }
    assert "tee" in " ".join(commands(make_context(**bare()), "docker"))
    assert "tee" not in " ".join(commands(make_context(**bare(sources=theirs)), "docker"))
    ours = {"/etc/apt/sources.list.d/docker.sources": "URIs: https://download.docker.com/linux/debian"}
    assert "tee" in " ".join(commands(make_context(**bare(sources=ours)), "docker"))


# The key


@pytest.fixture(scope="module")
def keys(tmp_path_factory) -> dict[str, tuple[str, str]]:
    """Two keys made here: the fingerprint of each, and its text."""
    home = tmp_path_factory.mktemp("gnupg")
    home.chmod(0o700)
    found = {}
    for name in ("one", "two"):
        make = [
            "gpg",
            "--homedir",
            home,
            "--batch",
            "--passphrase",
            "",
            "--quick-gen-key",
            name,
            "ed25519",
            "sign",
            "never",
        ]
        try:
            subprocess.run(make, check=True, capture_output=True, timeout=60)
        except FileNotFoundError:
            cannot("there is no gpg")
        listed = subprocess.run(["gpg", "--homedir", home, "--with-colons", "-k", name], capture_output=True, text=True)
        fingerprint = re.search(r"^fpr:+([0-9A-F]{40}):", listed.stdout, re.MULTILINE)[1]
        text = subprocess.run(["gpg", "--homedir", home, "--armor", "--export", name], capture_output=True, text=True)
        found[name] = (fingerprint, text.stdout)
    subprocess.run(["gpgconf", "--homedir", home, "--kill", "all"], capture_output=True)
    return found


@pytest.mark.parametrize("name", ["docker", "toolkit"])
@pytest.mark.parametrize(
    ("served", "taken"), [("one", True), ("two", False), ("one two", False), ("two one", False), ("", False)]
)
def test_only_the_pinned_key_is_installed(make_context, keys, tmp_path, name, served, taken) -> None:
    """Alone in its file, too: apt would trust each key that is in there."""
    mirrors = {name: {"fingerprint": keys["one"][0]}}
    lines = commands(make_context(mirrors=mirrors, **bare(root=True)), name)
    check = next(line for line in lines if "--show-keys" in line)
    home = tmp_path / "home"
    (home / ".cache/gpu-template").mkdir(parents=True)
    text = "".join(keys[word][1] for word in served.split()) or "<html>no key</html>"
    (home / f".cache/gpu-template/{name}.key").write_text(text)
    target = tmp_path / "keyring"
    line = re.sub(r"/(?:etc/apt|usr/share)/keyrings/\S+", str(target), check)
    done = subprocess.run(["sh", "-c", line], env={"HOME": str(home), "PATH": "/usr/bin:/bin"}, capture_output=True)
    assert (done.returncode == 0) is taken
    assert target.exists() is taken


# Mirrors


def test_a_mirror_takes_the_vendors_place(make_context, mirrors_file) -> None:
    path = mirrors_file({"docker": {"address": "https://mirror.example/docker/{id}"}})
    text = "\n".join(commands(make_context(mirrors=read_mirrors(path), **bare()), "docker"))
    assert "download.docker.com" not in text
    assert "URIs: https://mirror.example/docker/debian\n" in text
    assert "curl -fsSL https://mirror.example/docker/debian/gpg " in text
    assert "9DC858229FC7DD38854AE2D88D81803C0EBFCD88" in text


@pytest.mark.parametrize(
    ("output", "words"),
    [
        ("{", "is not JSON"),
        ([], "must hold an object"),
        ({"docker": "x"}, "must hold an object"),
        ({"pip": {"address": "https://x"}}, "names pip.address"),
        ({"docker": {"keyring": "/x"}}, "names docker.keyring"),
        ({"docker": {"address": "https://x; reboot"}}, "must be an https:// address"),
        ({"docker": {"fingerprint": "0EBFCD88"}}, "40 digits"),
    ],
)
def test_mirrors_that_cannot_be_used(mirrors_file, output, words) -> None:
    with pytest.raises(RefusalError, match=words):
        read_mirrors(mirrors_file(output))


def test_braces_that_cannot_be_filled(make_context) -> None:
    with pytest.raises(RefusalError, match=r"docker.address has unknown names"):
        make_context(mirrors={"docker": {"address": "https://x/{distribution}"}})


# Other machines


@pytest.mark.parametrize(
    ("release", "words"),
    [
        ({"ID": "fedora", "VERSION_ID": "43", "PRETTY_NAME": "Fedora Linux 43"}, "engine/install/fedora/"),
        ({"ID": "linuxmint", "ID_LIKE": "ubuntu debian", "PRETTY_NAME": "Linux Mint 22"}, "engine/install/ubuntu/"),
        ({"ID": "debian", "VERSION_ID": "11", "PRETTY_NAME": "Debian 11"}, "engine/install/debian/"),
        ({"ID": "nixos", "PRETTY_NAME": "NixOS"}, "engine/install/, "),
    ],
)
def test_other_distributions_get_the_vendors_page(make_context, release, words) -> None:
    with pytest.raises(RefusalError) as refused:
        _refuse_unsupported(make_context(release=release).probes)
    assert release["PRETTY_NAME"] in str(refused.value)
    assert words in str(refused.value)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"system": "macos"}, "Docker Desktop"),
        ({"endpoint": "ssh://me@lab"}, "another machine"),
        ({"root": True, "user": "me"}, "as me, without sudo"),
    ],
)
def test_machines_that_setup_is_not_for(make_context, changes, words) -> None:
    with pytest.raises(RefusalError, match=words):
        _refuse_unsupported(make_context(**changes).probes)


# What the vendors say


def blocks() -> list:
    """vendors.txt: `=== step, system`, its source, then `= line` the same here, `- line` theirs, `+ line` ours."""
    found = []
    for block in re.split(r"^=== ", VENDORS.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
        head, *lines = block.rstrip().splitlines()
        found.append(
            pytest.param(head.split(", "), [line for line in lines if line[:2] in ("= ", "- ", "+ ", "# ")], id=head)
        )
    return found


@pytest.mark.parametrize(("head", "lines"), blocks())
def test_the_commands_are_the_vendors(make_context, head, lines) -> None:
    """Each of ours is in the record, as theirs or with the reason why not; and so in that order."""
    step, name, *target = head
    system = next(each for each in SYSTEMS if " ".join(each) == name)
    context = make_context(system, tuple(target) or ("rtx-50",), **bare(in_group=False))
    ours = [re.sub(r"\s*\n\s*", " ", line) for line in commands(context, step)]
    assert ours == [line[2:] for line in lines if line[0] in "=+"]
    for number, line in enumerate(lines):
        if line[0] in "-+":  # a difference has its reason below it
            rest = [kind[0] for kind in lines[number:]]
            assert "#" in rest[: rest.index("=")] if "=" in rest else "#" in rest, f"no reason for {line}"


def test_record_has_its_origin() -> None:
    for block in re.split(r"^=== ", VENDORS.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
        assert re.search(r"^source: \S+", block, re.MULTILINE), block
        assert re.search(r"^read: 2026-\d\d-\d\d", block, re.MULTILINE), block


def test_fixtures_match_the_probes_of_setup() -> None:
    assert {name for name, value in vars(Machine).items() if isinstance(value, cached_property)} == {*MORE}
