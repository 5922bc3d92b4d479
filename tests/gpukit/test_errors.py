"""Error texts: read, matched, and weighed by what is known of the machine."""

from __future__ import annotations

import gzip
import io
import json
import re
from typing import NamedTuple

import jsonschema
import pytest

from catalogue import knowledge, support
from gpukit.errors.conditions import PREDICATES, Case, holds, reason
from gpukit.errors.diagnose import LIKELY, MAX_CAUSES, NOTHING, UNKNOWN, diagnose, engine_matters
from gpukit.errors.machine import Card, Engine, Machine, Torch, from_json, machine_in_text
from gpukit.errors.reading import MAX_TEXT, NotTextError, joined, read
from gpukit.errors.signs import NOTE, signs
from gpukit.findings.causes import COMMANDS, PLACEHOLDER, cause, worded
from tests.conftest import ROOT

PLACES = [*COMMANDS]


class Block(NamedTuple):
    """A text in knowledge/texts/: the id of the sign that must come first, what is stated of the machine, the cause."""

    id: str
    about: dict[str, str]
    text: str


def texts(path):
    blocks = re.split(r"^=== ", path.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    found = [
        re.fullmatch(r"(\S+)\n((?:(?:origin|machine|cause): .+\n)+)([\s\S]+)", each.strip()).groups() for each in blocks
    ]
    return [Block(id, dict(line.split(": ", 1) for line in about.splitlines()), text) for id, about, text in found]


CORPUS = {path.stem: texts(path) for path in sorted((ROOT / "knowledge/texts").glob("*.txt"))}


def explained(block):
    return diagnose(block.text, stated=from_json(json.loads(block.about.get("machine", "{}"))))


def test_the_texts_of_public_threads():
    """Each has the sign under whose id it stands, and the cause that it names.

    Those in unknown.txt name none, those in healthy.txt report no error, and other.txt has errors of other programs.
    """
    wrong = []
    for topic, blocks in CORPUS.items():
        for block in blocks:
            found = explained(block)
            first = found.causes[0].sign.id if found.causes else found.confidence
            cause = found.causes[0].cause.id if found.causes else ""
            fine = {
                "unknown": found.confidence == UNKNOWN,
                "healthy": found.confidence == NOTHING,
                "other": found.confidence == UNKNOWN or found.program,
            }.get(topic, first == block.id and block.about.get("cause", cause) == cause)
            if not fine or len(found.causes) > MAX_CAUSES:
                wrong.append(f"{topic}.txt: {block.id} ({block.about['origin']}): {first}, {cause}, {found.confidence}")
    assert not wrong, "\n".join(["", *wrong])


# Knowledge


def test_knowledge_has_no_faults_and_is_compiled():
    assert knowledge.faults() == []
    message = "knowledge.json is out of date: run `python catalogue/refresh.py`"
    assert knowledge.TARGET.read_text(encoding="utf-8") == knowledge.written(), message


@pytest.fixture(scope="module")
def examples():
    """Each sign, and the diagnosis of its example."""
    return [(sign, diagnose(sign.example)) for sign in signs()]


def test_the_examples_of_the_signs(examples):
    wrong = []
    for sign, found in examples:
        first = found.causes[0].sign.id if found.causes else found.confidence
        if first != sign.id or (found.confidence == NOTHING) != (sign.level == NOTE):
            wrong.append(f"{sign.id}: its example is explained as {first}, {found.confidence}")
        if any(not each.check and not each.when for each in sign.causes[1:]):
            wrong.append(f"{sign.id}: several causes, and nothing tells them apart")
    assert not wrong, "\n".join(["", *wrong])


def test_sentences_are_complete_in_every_place(examples):
    wrong = []
    for _, diagnosis in examples:
        for found in diagnosis.causes:
            for place in PLACES:
                words = found.words(place)
                for text in (words.why, words.remedy, words.check, words.more):
                    if PLACEHOLDER.search(text) or text.count("`") % 2 or not (words.why and words.remedy):
                        wrong.append(f"{found.cause.id}, {place}: {text}")
    assert not wrong, "\n".join(["", *wrong])


def test_a_cause_is_worded_for_its_place_and_values():
    text = {"default": "Run `{gpukit} doctor`{? for {name}?}.", "native": "Run `{launch} build {name:PKG}`."}
    assert worded(text, "project", {}) == "Run `./launch doctor`."
    assert worded(text, "standalone", {"name": "x"}) == "Run `gpukit doctor` for x."
    assert worded(text, "native") == "Run `./launch --native build PKG`."
    assert worded(text, "native", {"name": "x"}) == "Run `./launch --native build x`."
    with pytest.raises(KeyError):
        cause("no-such-cause")


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        (r"a(b|c)defgh", ["defgh"]),
        (r"abcd|efgh", ["abcd", "efgh"]),
        (r"(?:foo|bar)x?", ["foo", "bar"]),
        (r"xy|abcd", []),
        (r"^(?!.*daemon).*Permission denied", ["permission denied"]),
        (r"v\d\.no such file[s]?", [".no such file"]),
    ],
)
def test_anchors(pattern, words):
    assert knowledge.anchors(pattern) == words


@pytest.mark.slow
def test_an_anchor_is_in_every_text_that_the_pattern_matches():
    """In every text of the sign's topic: those of other topics are five million pairs more."""
    topics = {topic: [(block.text, block.text.lower()) for block in blocks] for topic, blocks in CORPUS.items()}
    for sign in signs():
        for pattern, *words in sign.text:
            for text, lower in topics[sign.topic]:
                if words and not any(word in lower for word in words):
                    assert not re.search(pattern, text, re.IGNORECASE | re.MULTILINE), (sign.id, pattern, text)


@pytest.mark.parametrize(
    ("when", "message"),
    [
        ("wsll", "wsll is neither a fact"),
        ("machine.gpu", "does not describe machine.gpu"),
        ("text('(')", "missing )"),
        ("text('\bword')", "cannot be printed"),
        ("wsl and", "invalid syntax"),
        ("later(wsl)", "neither a function"),
        ("1 + 1", "not allowed"),
    ],
)
def test_a_condition_that_is_wrong(when, message):
    assert message in knowledge.wrong_condition(when, {"wsl"})


# Confidence and evidence

TRAINING = "\n".join(f"step {number} loss 0.{number} lr 0.001" for number in range(5, 9))


def test_the_machine_decides():
    text = "RuntimeError: CUDA error: no kernel image is available for execution on the device"
    new = Machine(gpus=(Card("", "12.0"),))
    old = Machine(gpus=(Card("", "6.1"),))
    assert diagnose(text, new).causes[0].cause.id == "no-kernel-newer-card"
    assert diagnose(text, old).causes[0].cause.id == "no-kernel-older-card"
    assert diagnose(text, new).causes[0].because and not diagnose(text).causes[0].because
    ids = [[found.cause.id for found in diagnose(text, machine).causes] for machine in (new, old)]
    assert "no-kernel-older-card" not in ids[0] and "no-kernel-newer-card" not in ids[1]


@pytest.mark.parametrize(
    ("capability", "arches", "has", "below"),
    [
        ("7.5", ("sm_80", "sm_120"), False, True),
        ("8.9", ("sm_80", "sm_120"), True, False),
        ("12.0", ("sm_80", "compute_90"), False, False),
        ("7.5", (), None, None),
        (None, ("sm_80",), None, None),
    ],
)
def test_a_card_and_the_architectures_of_torch(capability, arches, has, below):
    case = Case("", Machine(gpus=(Card("", capability),), torch=Torch(arch_list=arches)))
    assert (PREDICATES["torch_has_kernels"](case), PREDICATES["card_below_kernels"](case)) == (has, below)


OUT_OF_MEMORY = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {} MiB. GPU 0 has a total capacity of 23.65 GiB of "
    "which 100.00 MiB is free. Process 7 has {} GiB memory in use. Including non-PyTorch memory, this process has {} "
    "GiB memory in use. Of the allocated memory 6 GiB is allocated by PyTorch, and {} GiB is reserved by PyTorch but "
    "unallocated."
)


@pytest.mark.parametrize(
    "text",
    [
        "$ uv run python -c 'import torch'\nTraceback (most recent call last):\n"
        "ModuleNotFoundError: No module named 'torch'",
        "$ uv run python -m demo.train\n/usr/bin/python: Error while finding module specification for 'demo.train' "
        "(ModuleNotFoundError: No module named 'demo')",
        "error: Failed to spawn: `jupyter`\n  Caused by: No such file or directory (os error 2)",
    ],
)
def test_uv_run_outside_the_environment(text):
    assert diagnose(text).causes[0].cause.id == "uv-run-outside"
    other = diagnose(text.replace("uv run ", "").replace("Failed to spawn", "x")).causes
    assert "uv-run-outside" not in [each.cause.id for each in other]


def test_figures_decide():
    def ids(*figures):
        return [found.cause.id for found in diagnose(OUT_OF_MEMORY.format(*figures)).causes]

    assert ids(200, 15, 7, 0.1)[0] == "gpu-memory-taken"
    assert ids(200, 0, 23, 0.1) == ["gpu-memory-full"]
    assert "gpu-memory-fragmented" in ids(200, 0, 23, 9)


def test_facts_in_the_text_take_precedence():
    scene = machine_in_text(
        "Linux 5.15.167.4-microsoft-standard-WSL2\nNVIDIA GeForce RTX 5090, Driver Version: 572.16  CUDA Version: 12.8"
    )
    assert (scene.system, scene.driver, scene.cuda, scene.capabilities) == ("wsl", "572.16", "12.8", ("12.0",))
    assert scene.over(Machine(system="linux", python="3.12")) == scene._replace(python="3.12")
    other = Machine(engine=Engine(name="podman", rootless=True), packages={"a": "1"})
    both = Machine(engine=Engine(name="docker"), packages={"b": "2"}).over(other)
    assert (both.engine.name, both.engine.rootless, both.packages) == ("docker", True, {"b": "2"})


def test_what_follows_from_the_facts():
    assert machine_in_text("integration tests: ignoring warnings, storing results").jetson is None
    assert machine_in_text("Linux 5.15.148-tegra aarch64").jetson
    assert Machine(driver="535.104.05").completed().cuda == "12.2"
    assert Machine(driver="410.104").completed().cuda is None


def test_the_engine_is_asked_only_if_that_can_change_the_answer():
    assert engine_matters("could not select device driver nvidia with capabilities: [[gpu]]")
    assert not engine_matters("torch.OutOfMemoryError: CUDA out of memory")


def test_every_card_of_the_catalogue_has_its_capability_by_name():
    """In a text, as nvidia-smi names it, and in a file that a user writes."""
    for machine in support.load("hardware")["hardware"].values():
        for card in machine["cards"]:
            for name in (card["name"], f"NVIDIA {card['name']}", f"NVIDIA {card['name']} Laptop GPU"):
                assert machine_in_text(f"on {name}: it failed").capabilities == (machine["capability"],), name
                assert from_json({"gpus": [{"name": name}]}).capabilities == (machine["capability"],), name


@pytest.mark.parametrize(
    ("when", "expected", "because"),
    [
        ("wsl", True, "this is WSL"),
        ("not wsl", False, ""),
        ("not windows", True, ""),
        ("not no_gpu", True, "the machine has a GPU"),
        ("container", None, ""),
        ("wsl and container", None, ""),
        ("wsl or container", True, "this is WSL"),
        ("no_driver and wsl", True, "no NVIDIA driver is installed and this is WSL"),
        ("sure(container)", False, ""),
        ("maybe(jetson)", None, ""),
        ("text('out of (m\\w+)')", True, 'the text has "out of memory"'),
        ("maybe(text('nothing'))", None, ""),
        ("machine.capability < '8.9'", True, "the GPU's compute capability is 8.6, below 8.9"),
        ("machine.capability < '8.6'", False, ""),
        ("machine.torch.version >= '2.10'", False, ""),
        ("need > '12.4'", True, ""),
    ],
)
def test_conditions_have_three_values(when, expected, because):
    machine = Machine(system="wsl", driver="", gpus=(Card("", "8.6"),), torch=Torch("2.9.1+cu130"))
    case = Case("it ran out of memory", machine, {"need": "12.8"})
    condition = knowledge.condition(when)
    assert holds(condition, case) is expected
    assert reason(condition, case) == because


def test_a_machine_of_another_version_or_written_by_hand():
    machine = {
        "system": "wsl",
        "driver": None,
        "python": 3.12,
        "memory_gb": "64 GB",
        "torch": {"version": "2.9", "x": 1},
        "gpus": [{"name": "NVIDIA H100", "slots": 2}, "?"],
        "engine": "docker",
        "unheard_of": True,
    }
    data = {"schema": 9, "findings": [], "machine": machine}
    cards = (Card("NVIDIA H100", "9.0"),)
    known = Machine(system="wsl", driver="", python="3.12", memory_gb=64.0, torch=Torch("2.9"), gpus=cards)
    assert from_json(data) == from_json(machine) == known
    for wrong in ([], "x", {"machine": 1}):
        with pytest.raises(ValueError):
            from_json(wrong)


# Reading

ERROR = "RuntimeError: CUDA error: an illegal memory access was encountered"


def of(data):
    return read(io.BytesIO(data))


@pytest.mark.parametrize(
    "data",
    [
        ERROR.encode("utf-16"),
        ERROR.encode("utf-16-le"),
        ERROR.encode("utf-16-be"),
        b"\xef\xbb\xbf" + ERROR.encode(),
        f"\x1b[31m{ERROR[:20]}\x1b[0m{ERROR[20:]}\r\n".encode(),
        f"> {ERROR}\n".encode(),
        ("école 漢字 ошибка\n" + ERROR).encode("latin-1", "replace"),
        ("Zugriff verweigert\n" * 3 + ERROR).encode(),
        ("x" * 3_000_000 + "\n" + ERROR + "\n" + "y" * 3_000_000).encode(),
    ],
    ids=range(9),
)
def test_encodings_and_colors(data):
    assert diagnose(of(data)).causes[0].sign.id == "kernel-crashed"


BINARY = [b"\x7fELF\x02\x01\x01\0\0\0\0" + bytes(range(256)), gzip.compress(b"x" * 999), bytes(50)]


@pytest.mark.parametrize("data", BINARY, ids=range(3))
def test_a_binary_file_is_none(data):
    with pytest.raises(NotTextError):
        of(data)


@pytest.mark.slow
def test_long_log_is_reduced_to_its_errors():
    steps = b"".join(b"step %d loss 0.%d\n" % (number, number) for number in range(200_000))
    text = of(steps[: len(steps) // 2] + ERROR.encode() + b"\n" + steps[len(steps) // 2 :])
    assert len(text) < 500 and ERROR in text
    noise = b"".join(b"%x:%x\n" % (number * 7919, number * 104729) for number in range(300_000))
    assert len(of(noise + ERROR.encode() + b"\n" + noise)) <= MAX_TEXT
    assert ERROR in of(noise + ERROR.encode() + b"\n" + noise)


@pytest.mark.parametrize("width", [60, 80])
def test_lines_that_a_terminal_broke(width):
    text = "RuntimeError: CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)` in this program"
    wrapped = "\n".join(text[start : start + width] for start in range(0, len(text), width))
    assert diagnose(wrapped).causes[0].sign.id == "gpu-memory-or-libraries"
    assert joined("one line") == []


@pytest.mark.parametrize(("name", "program"), [("torch", False), ("xformers==0.0.20", False), ("djangoo", True)])
def test_a_missing_wheel_is_an_error_of_the_program_only_if_the_package_is_not_for_gpus(name, program):
    assert diagnose(f"ERROR: No matching distribution found for {name}").program is program


def test_a_reason_quotes_whole_versions_and_paths():
    found = diagnose("A module that was compiled using NumPy 1.x cannot be run in NumPy 2.2.3 as it may crash.")
    assert found.causes[0].because == 'the text has "cannot be run in NumPy 2.2.3"'
    text = "compiling for torch.float16\n/tmp/tmp1/main.c:1:10: fatal error: cuda.h: No such file or directory"
    assert "float16" not in diagnose(text).causes[0].because


def test_two_unrelated_errors_are_both_named():
    found = diagnose(f"{ERROR}\nstep 1\nOSError: [Errno 28] No space left on device: '/data/x'")
    assert found.confidence == LIKELY
    assert {"kernel-crashed", "disk-full"} <= {each.sign.id for each in found.causes}


NOISE = "\n".join(f"Downloading shard {number}" for number in range(60))
FALLBACK = "warning: failed to query the mirror: connection refused, falling back to the package index"


def test_the_last_errors_decide_and_those_before_are_evidence():
    early = "error: creating server TCP listening socket: Address already in use"
    found = diagnose(f"{early}\n{NOISE}\n{ERROR}")
    assert found.causes[0].sign.id == "kernel-crashed" and found.line == ERROR
    assert diagnose(f"{ERROR}\n{NOISE}\n{early}").causes[0].sign.id != "kernel-crashed"


def test_an_error_that_was_handled_is_no_cause():
    """It was handled if the program says so and goes on; a text that ends with it reports it."""
    found = diagnose(f"{FALLBACK}\n{NOISE}\n{ERROR}")
    assert [each.sign.id for each in found.causes][:1] == ["kernel-crashed"]
    assert all("mirror" not in each.line for each in found.causes)
    assert diagnose(f"{FALLBACK}\nstep 1 loss 2.0\nstep 2 loss 1.9").confidence == NOTHING
    assert diagnose("OSError: [Errno 28] No space left on device, skipping checkpoint").causes


def test_success_does_not_silence_a_warning_that_nothing_runs_on_the_gpu():
    warning = (
        "NVIDIA GeForce RTX 5090 with CUDA capability sm_120 is not compatible with the current PyTorch installation."
    )
    assert diagnose(f"UserWarning: {warning}\n{TRAINING}").causes[0].cause.id == "no-kernel-newer-card"


@pytest.mark.parametrize("last", ["done", "Finished.", "Job finished at Fri Nov 27", "real\t0m56.895s\ndone"])
def test_what_a_script_prints_after_a_traceback_is_no_success(last):
    frames = '  File "train.py", line 3, in step\n    loss.backward()\n' * 20
    error = "RuntimeError: CUDA out of memory. Tried to allocate 2.93 GiB"
    found = diagnose(f"Traceback (most recent call last):\n{frames}{error}\n\n{last}\n")
    assert found.confidence != NOTHING


def test_interleaved_ranks_and_a_log_that_was_cut():
    ranks = f"[rank1]: Traceback (most recent call last):\n[rank0]: step 7\n[rank1]: {ERROR}\n[rank0]: step 8"
    assert diagnose(ranks).causes[0].sign.id == "kernel-crashed"
    assert diagnose(f'    return forward_call(*args)\n{ERROR[14:]}\n  File "x.p').causes[0].sign.id == "kernel-crashed"


def test_an_id_of_a_newer_release_is_ignored():
    machine = from_json({"targets": ["rtx-9000"], "torch": {"version": "3.0", "engine": "x"}, "later": 1})
    assert machine.completed() == machine
    assert from_json({"targets": ["dgx-spark"]}).completed().unified_memory is True


def test_a_remedy_needs_a_form_for_each_place():
    schema = json.loads(knowledge.SCHEMA.read_text(encoding="utf-8"))
    validator = jsonschema.Draft202012Validator({**schema, "$ref": "#/$defs/forms"})
    assert validator.is_valid("Restart it.") and validator.is_valid({"default": "x", "podman": "y"})
    assert validator.is_valid({"project": "x", "native": "y", "standalone": "z"})
    assert not validator.is_valid({"project": "x", "native": "y"}) and not validator.is_valid("")
