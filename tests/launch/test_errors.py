"""What engines print, old and new: its kind, its cause, and one sentence with a remedy."""

from __future__ import annotations

import pytest

from gpukit.errors.machine import Card, Engine, Machine
from gpukit.errors.signs import signs
from gpukit.host.refusals import BUILD_KINDS, KINDS, classify, explain, lacks_gpu
from tests.gpukit.test_errors import CORPUS

STEP = 'ERROR: failed to solve: process "x" did not complete successfully'


def test_an_engines_text_has_a_kind_and_a_cause() -> None:
    """The examples of the signs, and the texts that were written for them."""
    of_kind = {sign.id: sign for sign in signs() if sign.kind in KINDS}
    texts = [(sign.id, sign.example) for sign in of_kind.values()]
    texts += [
        (block.id, block.text) for blocks in CORPUS.values() for block in blocks if block.about["origin"] == "made"
    ]
    wrong = []
    for id, text in texts:
        if id in of_kind:
            known = classify(f"{text}\n\nRun 'docker run --help' for more information\n", (of_kind[id].kind,))
            refusal = str(explain(text, "It cannot start"))
            if not known or known[1].sign.kind != of_kind[id].kind or "{name" in refusal or "\n" in refusal:
                wrong.append((id, text, refusal))
    assert not wrong


def test_the_way_without_a_gpu_is_named_where_there_is_one() -> None:
    text = "docker: Error response from daemon: unknown or invalid runtime name: nvidia"
    assert "./launch --cpu" in str(explain(text, "x", cpu=True))
    assert "--cpu" not in str(explain(text, "x"))
    assert "--cpu" not in str(explain("the --mount option requires BuildKit", "x", cpu=True))


REFUSED_GPU = [
    'could not select device driver "" with capabilities: [[gpu]]',
    "failed to discover GPU vendor from CDI: no known GPU vendor found",
    "unknown or invalid runtime name: nvidia",
]
TOOLKIT_WITHOUT_GPU = [
    'exec: "nvidia-container-runtime-hook": executable file not found in $PATH',
    "nvidia-container-cli: initialization error: load library failed: libnvidia-ml.so.1: cannot open",
    "nvidia-container-cli: initialization error: nvml error: driver not loaded: unknown",
    "nvidia-container-cli: device error: 0: unknown device: unknown",
    "CDI device injection failed: unresolvable CDI devices nvidia.com/gpu=all",
]
CARD = (Card("NVIDIA GeForce RTX 5090"),)


@pytest.mark.parametrize("text", REFUSED_GPU + TOOLKIT_WITHOUT_GPU)
def test_what_is_missing_for_the_gpu_is_looked_for_from_the_gpu_on(text: str) -> None:
    """Without a GPU or its driver, no advice is about the toolkit: `./launch setup` would install nothing."""
    none = Machine(gpus=(), driver="", engine=Engine(toolkit=""))
    refusal = explain(text, "x", cpu=True, machine=none)
    assert lacks_gpu(refusal) and str(refusal).count("--cpu") == 1
    assert explain(text, "x", machine=Machine(gpus=CARD, driver="")).id == "driver-not-installed"
    assert not lacks_gpu(explain(text, "x", machine=Machine(gpus=CARD, driver="580.95.05")))
    if text in REFUSED_GPU:
        machine = Machine(gpus=CARD, driver="580.95.05", engine=Engine(toolkit=""))
        assert explain(text, "x", machine=machine).id == "toolkit-not-installed"


def test_an_unknown_text_is_handed_on() -> None:
    text = "docker: Error response from daemon: the moon is full"
    assert str(explain(f"{text}\nSee 'docker run --help'.\n", "It cannot start")) == f"It cannot start: {text}"
    assert str(explain("", "It cannot start")) == "It cannot start."


def test_a_build_is_not_judged_by_what_its_steps_print() -> None:
    text = f"nvml error: driver not loaded, never mind\n{STEP}"
    assert classify(text)[0] == "gpu"
    assert classify(text, BUILD_KINDS) is None
    assert explain(text, "No image", kinds=BUILD_KINDS).kind == "build"


def test_a_user_program_in_the_log_is_no_refusal() -> None:
    assert classify("KeyError: 'WANDB_PROJECT'\nos.environ['WANDB_PROJECT']") is None
