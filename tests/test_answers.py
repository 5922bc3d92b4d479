"""The questions: what is offered, what each answer does, what is refused, and that free text stays text."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jinja2
import pytest
import yaml
from copier import run_copy
from copier.errors import UserMessageError

from catalogue import combine, questions, support
from catalogue.questions import ASKED, CONFIG, QUESTIONS
from tests.conftest import HERE, ROOT, git, quick

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

from gpukit.validate.compose import interpolated
from gpukit.validate.compose import read as compose_yaml
from gpukit.validate.main import Validation

HARDWARE = support.load("hardware")["hardware"]
RELEASES = support.load("images")["releases"]
USE_CASES = support.load("packages")["use_cases"]


@pytest.fixture(scope="module")
def offered() -> Callable[..., dict[str, str]]:
    """The choices of a question, as Copier would show them after some answers: id -> why it is greyed, or ""."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(ROOT),
        extensions=["jinja2_ansible_filters.AnsibleCoreFiltersExtension"],
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )

    def choices(question: str, labels: bool = False, **answers: Any) -> dict[str, str]:
        context = {"catalogue": json.loads(combine.text()), "_copier_conf": {"defaults": False}}
        render = lambda text: environment.from_string(text).render({**context, **answers})  # noqa: E731
        shown = QUESTIONS[question]["choices"]
        if isinstance(shown, str):
            shown = yaml.safe_load(render(shown))
        if labels:
            return {value if isinstance(value, str) else value["value"]: label for label, value in shown.items()}
        pairs = [
            (value, "") if isinstance(value, str) else (value["value"], render(value["validator"]))
            for value in shown.values()
        ]
        return dict(pairs)

    return choices


@pytest.fixture
def refused(plain_template: Path, tmp_path: Path) -> Callable[..., str]:
    """What Copier says of answers that it does not take; nothing is written."""

    def refusal(**data: object) -> str:
        with quick(), pytest.raises(UserMessageError) as error:
            run_copy(str(plain_template), tmp_path / "x", data=data, defaults=True, quiet=True, skip_tasks=True)
        assert not (tmp_path / "x").exists()
        assert "\n" not in str(error.value)
        return re.fullmatch(r"""'None' has no attribute (['"])(.*)\1""", str(error.value))[2]

    return refusal


def stored(project: Path) -> dict:
    return yaml.safe_load((project / ".copier-answers.yml").read_text(encoding="utf-8"))


# ---------------------------------------------------------------------------------------------------------------------
# The questions themselves


@pytest.mark.parametrize("name", ASKED)
def test_each_has_a_help_and_a_default(name: str) -> None:
    assert "default" in ASKED[name]
    assert re.search(r"\w\S*\?", ASKED[name]["help"])


@pytest.mark.parametrize("name", [name for name in ASKED if questions.kind(name)["kind"] == "text"])
def test_a_text_has_an_example_and_its_validator_is_where_data_is_checked(name: str) -> None:
    """Copier prints a traceback for a wrong answer given with --data, unless fragments/given.jinja finds it first."""
    assert "placeholder" in ASKED[name], "add an example of an answer"
    macro = f"wrong_{name}("
    if "validator" in ASKED[name]:
        assert macro in ASKED[name]["validator"], f"let `validator` call {macro}{name}) of fragments/answers.jinja"
        assert macro in (ROOT / "fragments/answers.jinja").read_text(encoding="utf-8"), f"add the macro {macro}text)"


def test_copier_knows_every_key() -> None:
    """It says nothing of one that it does not know, and leaves it out."""
    known = {"type", "help", "choices", "multiselect", "default", "validator", "when", "ask", "placeholder"}
    for name, question in QUESTIONS.items():
        assert set(question) <= known, name
    settings = {
        "_min_copier_version",
        "_subdirectory",
        "_envops",
        "_skip_if_exists",
        "_exclude",
        "_tasks",
        "_migrations",
    }
    settings |= {"_message_before_copy", "_message_after_copy"}
    assert {name for name in CONFIG if name.startswith("_")} <= settings


def test_hidden_questions_are_hidden() -> None:
    for name in questions.HIDDEN:
        assert str(QUESTIONS[name]["when"]).lower().endswith("false")


def test_labels_fit_a_terminal(offered: Callable[..., dict]) -> None:
    labels = offered("hardware", labels=True)
    assert list(labels) == list(HARDWARE)
    assert labels["rtx-50"].startswith("GeForce RTX 50 series: RTX 5090 desktop 32 GB, ")
    assert labels["rtx-50"].endswith(", …")
    assert labels["cpu"] == "No NVIDIA GPU"
    assert labels["jetson-thor"].partition(":")[0].endswith("(experimental)")
    for name, label in labels.items():
        assert label.count(" GB") <= 5, name
        assert len(label) < 200, name
        assert ("…" in label) == (len(HARDWARE[name]["cards"]) > 5), name


def test_questions_fit_a_terminal_of_80_columns() -> None:
    """Copier does not wrap the text of a question with choices, it cuts it."""
    for name, question in ASKED.items():
        assert len(question["help"]) <= 76, name


# ---------------------------------------------------------------------------------------------------------------------
# What is offered is what catalogue/support.py allows


def test_bases_are_offered_where_they_serve(offered: Callable[..., dict]) -> None:
    for name, machine in HARDWARE.items():
        for use_case in USE_CASES:
            shown = offered("base", hardware=name, also_on=[], use_case=use_case)
            assert next(iter(shown)) == machine["base"]["recommended"]
            assert {base for base, reason in shown.items() if not reason} == set(support.bases([name], use_case)), name


@pytest.mark.slow
def test_releases_are_offered_where_they_serve(offered: Callable[..., dict]) -> None:
    for name in HARDWARE:
        for base, use_case in ((base, case) for case in USE_CASES for base in support.bases([name], case)):
            shown = offered("release", hardware=name, also_on=[], use_case=use_case, base=base)
            assert next(iter(shown.items())) == ("current", "")
            reasons = {release: support.refused(item, [name], use_case) for release, item in RELEASES[base].items()}
            assert shown == {"current": "", **reasons}


def test_other_machines_are_offered_where_one_build_serves_both(offered: Callable[..., dict]) -> None:
    for name in HARDWARE:
        shown = offered("also_on", hardware=name)
        assert list(shown) == [other for other in HARDWARE if other != name]
        possible = {other for other in HARDWARE if other != name and support.bases([name, other])}
        assert {other for other, reason in shown.items() if not reason} == possible


def test_use_cases_are_offered_where_their_torch_serves(offered: Callable[..., dict]) -> None:
    for targets in ([name] for name in HARDWARE):
        shown = offered("use_case", hardware=targets[0], also_on=targets[1:])
        assert list(shown) == list(USE_CASES)
        assert {case for case, reason in shown.items() if not reason} == {
            c for c in USE_CASES if support.bases(targets, c)
        }


def test_skypilot_is_offered_where_some_cloud_rents_a_card_or_none_is_needed(offered: Callable[..., dict]) -> None:
    for name, machine in HARDWARE.items():
        shown = offered("cluster", hardware=name, also_on=[])
        assert list(shown) == ["slurm", "kubernetes", "skypilot"] and not shown["slurm"]
        assert not shown["skypilot"] or machine["label"] in shown["skypilot"]
        assert bool(shown["skypilot"]) == (
            machine["capability"] is not None and not machine["skypilot"]["accelerators"]
        )
    assert not offered("cluster", hardware="dgx-spark", also_on=["h100"])["skypilot"]
    assert offered("cluster", hardware="cpu", also_on=["dgx-spark"])["skypilot"]


def test_a_retired_machine_is_shown_only_to_those_who_have_it(
    offered: Callable[..., dict], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(HARDWARE["gtx-10"], "status", "retired")
    assert "gtx-10" not in offered("hardware")
    assert "gtx-10" not in offered("hardware", hardware="rtx-50")
    assert "gtx-10" in offered("hardware", hardware="gtx-10")
    assert "gtx-10" not in offered("also_on", hardware="v100")
    assert "gtx-10" in offered("also_on", hardware="v100", also_on=["gtx-10"])


# ---------------------------------------------------------------------------------------------------------------------
# What is answered


def test_defaults_alone_give_a_good_project(generate: Callable[..., Path]) -> None:
    project = generate()
    assert Validation(project).problems() == []
    asked = set(ASKED) - {"base", "podman", "registry"}  # stored where they were asked or chosen
    assert {name for name in stored(project) if not name.startswith("_")} == asked


GIVEN = {"hardware": "dgx-spark", "base": "ngc", "release": "2.13.0-cu130"}  # others go with few defaults


def other(name: str) -> Any:
    """An answer that is not the default."""
    question = ASKED[name]
    found = questions.kind(name)
    if name in GIVEN:
        return GIVEN[name]
    if found["kind"] == "switch":
        return not question["default"]
    if found["kind"] == "text":
        return question["placeholder"]
    if found["kind"] == "several":
        return [found["choices"][0] if name != "also_on" else "h100"]
    return next(choice for choice in found["choices"] if choice != question["default"])


@pytest.mark.parametrize("name", ASKED)
def test_each_can_be_given(generate: Callable[..., Path], name: str) -> None:
    """It is stored as it was given, and changes what is generated."""
    needed = {"registry": {"cluster": ["kubernetes"]}}.get(name, {})  # it is asked only then
    project = generate(**{name: other(name)}, **needed)
    plain = generate(**needed)
    assert stored(project)[name] == other(name)
    if name != "advanced":
        texts = [
            {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
            for folder in (project, plain)
        ]
        texts[0].pop(Path(".copier-answers.yml"))
        texts[1].pop(Path(".copier-answers.yml"))
        assert texts[0] != texts[1]


@pytest.mark.parametrize(
    ("answers", "base"),
    [
        ({"hardware": "dgx-spark"}, "ngc"),
        ({"hardware": "dgx-spark", "base": "wheel"}, "wheel"),
        ({"base": "ngc"}, "ngc"),
    ],
)
def test_the_base_follows_the_hardware_unless_it_is_chosen(
    generate: Callable[..., Path], answers: dict, base: str
) -> None:
    project = generate(**answers)
    assert json.loads((project / "stack.json").read_text(encoding="utf-8"))["base"] == base
    assert stored(project).get("base") == answers.get("base")


def test_a_pin_keeps_its_base(generate: Callable[..., Path]) -> None:
    """A release is one of a base: should another base be recommended one day, this project stays where it is."""
    assert stored(generate(release="2.13.0-cu130"))["base"] == "wheel"


@pytest.mark.parametrize("also_on", [["rtx-50"], ["rtx-50", "h100"], ["h100", "h100"], []])
def test_the_main_machine_may_be_among_the_others(generate: Callable[..., Path], also_on: list[str]) -> None:
    project = generate(hardware="rtx-50", also_on=also_on)
    stack = json.loads((project / "stack.json").read_text(encoding="utf-8"))
    assert list(stack["targets"]) == list(dict.fromkeys(["rtx-50", *also_on]))
    assert Validation(project).problems() == []


@pytest.mark.parametrize(
    ("name", "package"),
    [
        ("Torch", "torch_project"),
        ("import", "import_project"),
        ("3D Nets", "d_nets"),
        ("项目", "project"),
        ("Ünïcode näme", "n_code_n_me"),
        ("x" * 80, "x" * 40),
    ],
)
def test_a_package_is_named_after_any_project(generate: Callable[..., Path], name: str, package: str) -> None:
    project = generate(project_name=name)
    assert (project / "src" / package / "train.py").exists()
    slug = json.loads((project / "stack.json").read_text(encoding="utf-8"))["project"]
    assert re.fullmatch(r"[a-z]([a-z0-9-]{0,38}[a-z0-9])?", slug)


@pytest.mark.parametrize("name", ["Null", "yes", "Host", "2026-11-20", "1.10", "0x1f"])
def test_a_name_that_yaml_or_docker_takes_for_something_else(generate: Callable[..., Path], name: str) -> None:
    project = generate(project_name=name, package_name="pkg", tracking=["mlflow"])
    slug = "project-" + re.sub(r"\W", "-", name.lower())
    compose = compose_yaml(project / "compose.yaml")
    assert compose["networks"]["default"]["name"] == slug + "-${USER:-me}"
    assert f"COMPOSE_PROJECT_NAME={slug}-" in (project / ".devcontainer/initialize.sh").read_text(encoding="utf-8")
    assert Validation(project).problems() == []


def test_lists_may_be_written_as_on_the_command_line(generate: Callable[..., Path]) -> None:
    assert stored(generate(tracking="[wandb, mlflow]", also_on="[]"))["tracking"] == ["wandb", "mlflow"]
    assert stored(generate(tracking='["wandb"]', also_on="['h100']"))["also_on"] == ["h100"]


# ---------------------------------------------------------------------------------------------------------------------
# What is refused


REFUSED = [
    ({"hardware": "rtx-60"}, 'hardware: Unknown value "rtx-60"; the choices are rtx-50, '),
    *[
        ({"hardware": text}, f'hardware: Unknown value "{text}": did you mean {meant}? The choices are rtx-50, ')
        for text, meant in {
            "rtx50": "rtx-50",
            "RTX 5090": "rtx-50",
            "5090": "rtx-50",
            "NVIDIA GeForce RTX 4070 Laptop GPU": "rtx-40",
            "h200": "h100",
            "gb10": "dgx-spark",
            "spark": "dgx-spark",
            "dgx-sprak": "dgx-spark",
            "jetson": "jetson-orin or jetson-thor",
        }.items()
    ],
    ({"workflow": "Notebooks"}, 'workflow: Unknown value "Notebooks": did you mean notebook? The choices are '),
    ({"tracking": ["mlfow"]}, 'tracking: Unknown value "mlfow": did you mean mlflow? The choices are '),
    ({"hardware": ""}, 'hardware: Unknown value ""; the choices are '),
    (
        {"hardware": '["rtx-50", "h100"]'},
        "hardware: Give one value, such as rtx-50, not a list; other machines go into also_on.",
    ),
    ({"hardware": ["rtx-50"]}, "hardware: Give one value, such as rtx-50, not a list; other machines go into also_on."),
    ({"workflow": "[scripts]"}, "workflow: Give one value, such as notebook, not a list."),
    ({"also_on": ["h100", "h1000"]}, 'also_on: Unknown value "h1000": did you mean h100? '),
    ({"also_on": "h100"}, "also_on: Give a list, such as [h100]."),
    ({"also_on": "[h100"}, "also_on: Give a list, such as ["),
    ({"tracking": "[neptune]"}, 'tracking: Unknown value "neptune"; the choices are tensorboard, wandb, mlflow.'),
    ({"credentials": ["azure"]}, 'credentials: Unknown value "azure"; '),
    ({"services": ["predict"], "use_case": "llm"}, "services: predict is not for language models: "),
    ({"cluster": ["lsf"]}, 'cluster: Unknown value "lsf"; '),
    (
        {"hardware": "dgx-spark", "cluster": ["slurm", "skypilot"]},
        "cluster: SkyPilot is not possible, because no cloud offers DGX Spark (GB10).",
    ),
    ({"workflow": "both"}, 'workflow: Unknown value "both"; the choices are notebook, scripts.'),
    ({"use_case": "audio"}, 'use_case: Unknown value "audio"; '),
    ({"ci": "gitlab"}, 'ci: Unknown value "gitlab"; the choices are github, none.'),
    ({"base": "conda"}, 'base: Unknown value "conda"; the choices are wheel, ngc, cuda.'),
    ({"shared_machine": "maybe"}, "shared_machine: Answer yes or no."),
    ({"advanced": "\n"}, "advanced: Answer yes or no."),
    # pairs that nothing can serve
    (
        {"hardware": "gtx-10", "also_on": ["rtx-50"]},
        "also_on: No PyTorch build runs on all of GeForce GTX 10 series/P40 and ",
    ),
    (
        {"hardware": "dgx-spark", "also_on": ["v100"]},
        "also_on: No PyTorch build runs on all of DGX Spark (GB10) and V100",
    ),
    ({"hardware": "rtx-40", "also_on": ["gtx-10", "b200"]}, "also_on: No PyTorch build runs on all of "),
    ({"hardware": "gtx-10", "base": "ngc"}, "base: ngc does not support GeForce GTX 10 series/P40: CUDA "),
    (
        {"hardware": "rtx-50", "base": "wheel", "release": "2.14.1-cu126"},
        "release: 2.14.1-cu126 does not support GeForce RTX 50",
    ),
    ({"release": "26.07"}, "release: 26.07 is a release of the base ngc, but the base is wheel: add base=ngc."),
    ({"release": "1.0"}, 'release: wheel has no release "1.0"; the choices are current, '),
    ({"base": "ngc", "use_case": "llm", "release": "latest"}, 'release: ngc has no release "latest"; '),
    # names that are no directory
    *[
        ({"project_name": name}, "project_name: Use one line without slashes")
        for name in ("a/b", "..", ".", "/", "../../x")
    ],
    *[({"project_name": name}, "project_name: Use 1 to 80 characters.") for name in ("", "  ", "x" * 300)],
    *[
        ({"project_name": f"a{c}b"}, "project_name: Use one line")
        for c in "\n\r\t\0\x1b\x7f\x85\u2028\u2029\u202e\ud800\uffff"
    ],
    ({"project_name": "a "}, "project_name: Remove the spaces at the beginning or end."),
    # names that are no package
    *[
        (
            {"package_name": name},
            "package_name: Use at most 60 lower-case letters, digits, and underscores, starting with a letter",
        )
        for name in ("", "1x", "a-b", "a.b", "A", "é", "a\n", "_a", "a b", "x" * 61, "../a", "$(touch x)")
    ],
    *[
        (
            {"package_name": name},
            f"package_name: {name} is the name of a module that Python or this project imports.",
        )
        for name in ("class", "torch", "tests", "gpukit", "json", "mlflow")
    ],
    # folders that cannot be mounted
    ({"data_dir": "data"}, "data_dir: Use a path that begins with / or ~/, or leave it empty."),
    ({"data_dir": "./data"}, "data_dir: Use a path that begins with / or ~/, or leave it empty."),
    ({"data_dir": "~bob/data"}, "data_dir: Use a path that begins with / or ~/, or leave it empty."),
    *[
        (
            {"data_dir": f"/srv/{text}"},
            "data_dir: Use a path without commas, double quotes, ${, or control characters",
        )
        for text in ("a,b", 'a"b', "${HOME}", "${localEnv:HOME}", "a\nb", "a\0b")
    ],
    *[({"data_dir": path}, "data_dir: Use a path without .. in it.") for path in ("/srv/../etc", "~/..", "/..")],
    ({"data_dir": "/" + "x" * 300}, "data_dir: Use at most 255 characters."),
    *[
        ({"registry": name, "cluster": ["kubernetes"]}, "registry: Use the address of a registry")
        for name in ("you", "https://ghcr.io/you", "ghcr.io/You", "ghcr.io/you/", "ghcr.io/you:1", "ghcr.io/a b")
    ],
    # what follows from the answers, and what is not asked
    *[({name: "{}"}, f"{name}: This follows from the other answers and cannot be set.") for name in questions.HIDDEN],
    (
        {"hardwear": "h100"},
        "hardwear: There is no such question: did you mean hardware? The questions are project_name, ",
    ),
    ({"gpu": "h100"}, "gpu: There is no such question; the questions are project_name, "),
]


@pytest.mark.parametrize(("answers", "sentence"), REFUSED, ids=lambda value: ascii(value)[1:60])
def test_refused_in_a_sentence(refused: Callable[..., str], answers: dict, sentence: str) -> None:
    said = refused(**answers)
    assert said.encode().decode("unicode_escape" if "\\\\" in said else "utf-8").startswith(sentence), said
    assert said.rstrip("'").endswith(".")


def copier(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The command, as it is typed, with an answer that is not accepted."""
    command = [sys.executable, "-m", "copier", *arguments]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout) == (1, "")
    assert "Traceback" not in result.stderr
    return result


WRONG = "hardware=rtx50"
SENTENCE = 'hardware: Unknown value "rtx50": did you mean rtx-50? The choices are rtx-50, '


def test_the_command_reports_that_sentence_on_its_own_line(plain_template: Path, tmp_path: Path) -> None:
    """First, and as it is, in a new and in an existing project. Copier adds one line, in which nothing is repeated."""
    for project in (tmp_path / "new", tmp_path / "existing"):
        if project.name == "existing":
            with quick():
                run_copy(str(plain_template), project, defaults=True, quiet=True, skip_tasks=True)
        given = ("--trust", "--defaults", "--overwrite", "-d", WRONG, str(plain_template), str(project))
        sentence, copiers = copier("copy", *given).stderr.splitlines()
        assert sentence.startswith(SENTENCE)
        assert copiers == "parameter 'valid_answers' was not provided"
        assert not (tmp_path / "new").exists()


@pytest.mark.slow
def test_without_messages_the_command_reports_it_once(copier_template: Path, tmp_path: Path) -> None:
    """Copier hides the template's messages with --quiet and in an update."""
    project = tmp_path / "project"
    with quick():
        run_copy(str(copier_template), project, defaults=True, quiet=True, skip_tasks=True, unsafe=True, vcs_ref=HERE)
    for command in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "made"]):
        git(*command, cwd=project)
    given = ("--trust", "--defaults", "--quiet", "-d", WRONG)
    for report in (
        copier("copy", *given, str(copier_template), str(tmp_path / "x")),
        copier("recopy", *given, "--overwrite", str(project)),
        copier("update", *given, f"--vcs-ref={HERE}", str(project)),
    ):
        assert report.stderr.count("hardware: Unknown value") == 1
        assert len(report.stderr.splitlines()) == 1
    assert not git("status", "--porcelain", cwd=project)


def test_an_answer_is_checked_against_those_of_the_project(
    plain_template: Path, generate: Callable[..., Path], tmp_path: Path
) -> None:
    """Which are not known before the first question."""
    project = shutil.copytree(generate(hardware="gtx-10"), tmp_path / "project")
    given = ("--defaults", "--overwrite", "--skip-tasks", "-d", "also_on=[rtx-50]", str(plain_template), str(project))
    report = copier("copy", "--trust", *given).stderr
    assert report.count("also_on: No PyTorch build runs on all of GeForce GTX 10 series/P40 and ") == 1
    assert len(report.strip().splitlines()) == 1


# ---------------------------------------------------------------------------------------------------------------------
# Free text stays text


HOSTILE = [
    "It's \"quoted\" & 'single'",
    "back\\slash \\n \\\\ \\",
    "$(touch PWNED)",
    "`touch PWNED`; touch PWNED & touch PWNED",
    "${HOME} $HOME $$ %HOME%",
    "{{ 7*7 }} {{ facts.slug }}",
    "{% raw %}{{ x }} {# note #}",
    "emoji 🚀 👩‍💻 é",
    "שלום עולם",
    "中文 项目",
    "# not a heading #comment",
    "<script>alert(1)<script> <!-- &amp; &lt;",
    "a | b || c |",
    "---",
    "key: value: [x] {y} - z",
    "!include &anchor *alias @at",
    "null",
    "1.10",
    "**bold** _it_ ~~no~~ [a](b) `code` $x^2$",
    '"""',
    "'''",
    "-n --flag",
    "%s %(x)s {0}",
]


@pytest.fixture(params=HOSTILE, ids=ascii)
def hostile(request: pytest.FixtureRequest, generate: Callable[..., Path]) -> tuple[str, str, Path]:
    """A text, a path of which it is part, and the project that has both."""
    text = request.param
    path = "~/" + (re.sub(r'["/,]|\$\{', "", text).strip() or "x")
    return text, path, generate(project_name=text, data_dir=path, tracking=["mlflow"], package_name="the_package")


def test_free_text_comes_out_intact(hostile: tuple[str, str, Path]) -> None:
    text, path, project = hostile
    assert (stored(project)["project_name"], stored(project)["data_dir"]) == (text, path)
    for name, title in (
        (".devcontainer/devcontainer.json", text),
        (".devcontainer/cpu/devcontainer.json", f"{text} (CPU)"),
    ):
        config = json.loads((project / name).read_text(encoding="utf-8"))
        assert config["name"] == title
        assert f"type=bind,source=${{localEnv:HOME}}{path[1:]},target=/data,readonly" in config["mounts"]
    assert tomllib.loads((project / "pyproject.toml").read_text(encoding="utf-8"))["project"]["description"] == text
    compose = compose_yaml(project / "compose.yaml")
    volumes = interpolated(compose["services"]["dev"]["volumes"], {"HOME": "/home/you"})
    assert [volume["source"] for volume in volumes if volume["target"] == "/data"] == ["/home/you" + path[1:]]
    notebook = json.loads((project / "notebooks/quickstart.ipynb").read_text(encoding="utf-8"))
    readme = (project / "README.md").read_text(encoding="utf-8")
    for markdown in (notebook["cells"][0]["source"][0], readme.splitlines(keepends=True)[0]):
        assert re.sub(r"\\([!-/:-@\[-`{-~])", r"\1", markdown) == f"# {text}\n"
        assert "<script" not in markdown.replace("\\<", "")
    assert Validation(project).problems() == []


def test_free_text_is_nowhere_else(hostile: tuple[str, str, Path], generate: Callable[..., Path]) -> None:
    """Dockerfile, shell, workflows and Python are those of a project with a plain name."""
    text, _, project = hostile
    plain = generate(project_name="Plain", data_dir="~/plain", tracking=["mlflow"], package_name="the_package")
    slug = json.loads((project / "stack.json").read_text(encoding="utf-8"))["project"]
    holds = {
        "README.md",
        "pyproject.toml",
        "compose.yaml",
        ".copier-answers.yml",
        "devcontainer.json",
        "quickstart.ipynb",
    }
    for path in (path for path in plain.rglob("*") if path.is_file() and path.name not in {*holds, "initialize.sh"}):
        here = (project / path.relative_to(plain)).read_text(encoding="utf-8")
        assert re.sub(rf"\b{slug}\b", "plain", here) == path.read_text(encoding="utf-8"), (text, path)


@pytest.mark.skipif(sys.platform == "win32", reason="a shell of POSIX runs it, on a host that is not Windows")
def test_initialize_runs_nothing_of_it(hostile: tuple[str, str, Path], tmp_path: Path) -> None:
    _, path, project = hostile
    project = shutil.copytree(project, tmp_path / "project", symlinks=True)
    home = tmp_path / "home"
    tools = tmp_path / "tools"
    home.mkdir()
    tools.mkdir()
    (tools / "docker").write_text("#!/bin/sh\nexit 1\n")
    (tools / "docker").chmod(0o755)
    environment = {"HOME": str(home), "PATH": f"{tools}:{os.environ['PATH']}", "GPUKIT_ENTRANCE": "launch"}
    command = ["sh", ".devcontainer/initialize.sh"]
    result = subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (0, "")
    assert (home / path[2:]).is_dir()
    assert {entry.name for entry in home.iterdir()} == {".cache", path[2:].split("/")[0]}
    assert list(tmp_path.rglob("PWNED*")) == []


def test_an_absolute_data_dir_is_mounted_as_it_is(generate: Callable[..., Path]) -> None:
    project = generate(data_dir="/srv/a b's $x", tracking=["tensorboard"])
    config = json.loads((project / ".devcontainer/devcontainer.json").read_text(encoding="utf-8"))
    assert "type=bind,source=/srv/a b's $x,target=/data,readonly" in config["mounts"]
    compose = compose_yaml(project / "compose.yaml")
    assert "/srv/a b's $$x" in [volume["source"] for volume in compose["services"]["dev"]["volumes"]]
    assert '\nfolder "/srv/a b\'s \\$x"\n' in (project / ".devcontainer/initialize.sh").read_text(encoding="utf-8")
