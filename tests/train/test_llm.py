"""The use case `llm`: the promises of a run, measured with TRL's training loop on a tiny generated model."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from safetensors.torch import load_file

from exactrun import checkpoint, read_metrics
from tests.train.test_script import same, sentence, weights
from tests.train.trainee import LIMIT, PROCESSES, Trainee

MISSING = [name for name in ("transformers", "peft", "trl", "datasets") if importlib.util.find_spec(name) is None]
pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}")

GO_ON = ("--name", "run", "--max-steps", "4", "--save-steps", "2", "--log-steps", "1")


def elsewhere(do: Callable[..., None], *arguments: object, **options: object) -> None:
    """Call it in a process that has the libraries already; what they warn of would be an error in this one."""
    process = PROCESSES.Process(target=alone, args=(do, *arguments), kwargs=options)
    process.start()
    process.join(LIMIT)
    assert process.exitcode == 0


def alone(do: Callable[..., None], *arguments: object, **options: object) -> None:
    import torch

    torch.set_num_threads(1)
    do(*arguments, **options)


@pytest.fixture
def project(generate, tmp_path: Path) -> Trainee:
    """With a tiny model and 76 samples to train on, both made on the spot: 9 steps are an epoch."""
    folder = shutil.copytree(generate(hardware="cpu", workflow="scripts", use_case="llm"), tmp_path / "project")
    always = ("--model", "tiny", "--data", "tiny", "--batch-size", "8", "--warmup-steps", "2")
    return Trainee(folder, always=always, by=Path(__file__).with_name("torchvision_anyway.py"))


def written(path: Path, *samples: dict) -> str:
    path.write_text("".join(f"{json.dumps(sample)}\n" for sample in samples))
    return str(path)


def test_killed_and_resumed_repeats_an_unbroken_run(project: Trainee) -> None:
    """In mid-epoch, between two checkpoints, with dropout."""
    steps = ("--max-steps", "16", "--save-steps", "3", "--log-steps", "1", "--dropout", "0.2", "--clip", "None")
    project.train(*steps, "--name", "unbroken")
    project.killed(8, *steps)
    assert "Resuming" in project.train(*steps, "--name", "killed")
    assert project.losses("killed") == project.losses("unbroken")
    assert list(project.losses("killed")) == list(range(1, 17))
    assert same(weights(project, "killed"), weights(project, "unbroken"))


def test_making_the_tiny_model_leaves_the_random_numbers_alone(tmp_path: Path) -> None:
    """Only the first run makes it, and the next one must begin with the same adapter."""
    elsewhere(draws_the_same, tmp_path / "model")


def draws_the_same(folder: Path) -> None:
    import torch

    from gpukit.script.tiny import make_model

    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    make_model(folder)
    assert torch.equal(torch.rand(3), expected)


def test_two_processes_take_the_steps_of_one(project: Trainee) -> None:
    """trl averages over both; the figures differ by rounding alone."""
    steps = ("--max-steps", "3", "--log-steps", "1", "--dropout", "0")
    with project.torchrun(*steps, "--name", "two", "--microbatch", "3") as process:
        out, err = process.communicate(timeout=LIMIT)
    assert process.returncode == 0, out + err
    project.train(*steps, "--name", "one")
    assert project.losses("two") == pytest.approx(project.losses("one"), rel=1e-5)
    two = weights(project, "two")
    one = weights(project, "one")
    assert all(two[name].allclose(one[name], atol=1e-5) for name in one)


def test_in_shards_killed_and_resumed_repeats_an_unbroken_run(project: Trainee) -> None:
    """First one of the two processes is killed, then both; with dropout, between two checkpoints."""
    steps = ("--fsdp", "--max-steps", "12", "--save-steps", "3", "--log-steps", "1", "--dropout", "0.2")
    assert [one.end().code for one in project.start_two(*steps, "--name", "unbroken")] == [0, 0]
    for step, whom in ((5, (1,)), (8, (0, 1))):
        started = project.start_two(*steps, "--name", "killed", hold=(step * (0 in whom), step))
        started[0].wait_for(lambda step=step: step in project.losses("killed"))
        for rank in whom:
            started[rank].send(signal.SIGKILL)
        ended = [one.end() for one in started]
        assert [one.code for one in ended] == [-signal.SIGKILL if rank in whom else 1 for rank in (0, 1)], ended
    assert "Another process of this run has ended" in (project.folder.parent / "2.err").read_text()
    first, second = (one.end() for one in project.start_two(*steps, "--name", "killed"))
    assert (first.code, second.code) == (0, 0), first + second
    assert "Resuming" in first.out and "skipped" not in first.out
    assert project.losses("killed") == project.losses("unbroken")
    assert list(project.losses("killed")) == list(range(1, 13))
    assert same(adapter(project, "killed"), adapter(project, "unbroken"))


def adapter(project: Trainee, name: str) -> dict:
    found = load_file(project.run_folder(name) / "adapter/adapter_model.safetensors")
    assert found
    return found


def test_in_shards_the_steps_are_those_of_one_process(project: Trainee) -> None:
    """And so is what is left behind, which one process can go on with."""
    steps = ("--max-steps", "3", "--log-steps", "1", "--dropout", "0")
    both = project.start_two(*steps, "--fsdp", "--name", "two", "--microbatch", "3")
    assert [one.end().code for one in both] == [0, 0], both[0].output()
    project.train(*steps, "--name", "one")
    assert project.losses("two") == pytest.approx(project.losses("one"), rel=1e-5)
    two = adapter(project, "two")
    one = adapter(project, "one")
    assert two.keys() == one.keys()
    assert all(two[name].allclose(one[name], atol=1e-5) for name in one)
    project.train(
        "--max-steps", "4", "--log-steps", "1", "--dropout", "0", "--name", "two", "--no-fsdp", "--other-processes"
    )
    assert list(project.losses("two")) == [1, 2, 3, 4]


def test_a_signal_saves_and_tells(project: Trainee) -> None:
    started = project.start("--max-steps", "1000", "--log-steps", "1", "--name", "run")
    started.wait_for(lambda: 3 in project.losses("run"))
    started.send(signal.SIGTERM)
    ended = started.end()
    assert (ended.code, ended.err.strip()) == (128 + signal.SIGTERM, "SIGTERM: saving after this step.")
    assert read_metrics(project.run_folder("run"))[1]["tokens_per_second"] > 0
    step = checkpoint.newest(project.run_folder("run")).step
    assert f"at step {step}." in project.train("--max-steps", str(step + 1), "--name", "run")


def test_the_adapter_and_the_merged_model_are_saved(project: Trainee) -> None:
    """The merged model says what base and adapter together say; a finished run is left as it is."""
    project.train(*GO_ON, "--lr", "0.05", "--merge")
    run = project.run_folder("run")
    facts = json.loads((run / "run.json").read_text())
    assert facts["finished"] == {"step": 4, "held_out_loss": checkpoint.newest(run).metric}
    elsewhere(merged_is_both, project.folder / "data/tiny/model", run)
    assert "is finished" in project.train(*GO_ON)


def merged_is_both(base: Path, run: Path) -> None:
    from peft import PeftModel
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokens = AutoTokenizer.from_pretrained(run / "merged")("a red cat sees", return_tensors="pt")
    model = AutoModelForCausalLM.from_pretrained(base)
    before = model(**tokens).logits
    both = PeftModel.from_pretrained(model, run / "adapter")(**tokens).logits
    merged = AutoModelForCausalLM.from_pretrained(run / "merged")(**tokens).logits
    assert merged.allclose(both, atol=1e-4)
    assert not merged.allclose(before, atol=1e-2)


def test_other_forms_of_data(project: Trainee, tmp_path: Path) -> None:
    """All with the same samples; "NA" is a text."""
    import pyarrow
    import pyarrow.parquet

    pairs = [{"prompt": f"a {word}: ", "completion": "sleeps"} for word in ("cat", "NA", "bird") * 7]
    data = {name: str(tmp_path / f"data.{name}") for name in ("jsonl", "csv", "parquet")}
    written(Path(data["jsonl"]), *pairs)
    lines = ["prompt,completion", *(f"{one['prompt']},{one['completion']}" for one in pairs)]
    Path(data["csv"]).write_text("".join(f"{line}\n" for line in lines))
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(pairs), data["parquet"])
    for name, path in data.items():
        project.train(*GO_ON, "--data", path, "--eval-data", data["jsonl"], "--max-steps", "2", "--name", name)
        assert project.losses(name) == project.losses("jsonl")


def test_packed_rows_have_the_loss_of_their_samples(project: Trainee, tmp_path: Path) -> None:
    """Nothing is seen across the borders of samples."""
    data = written(tmp_path / "data.jsonl", *[{"text": "a red cat sees a dog " * (1 + n % 4)} for n in range(20)])
    options = (*GO_ON, "--data", data, "--dropout", "0", "--max-steps", "1", "--max-length", "64")
    project.train(*options, "--batch-size", "19", "--name", "alone")
    rows = sentence(project.run(*options, "--batch-size", "99", "--packing", "--name", "many"), "data set (")
    count = rows.partition("data set (")[2].split()[0]
    packed = (*options, "--batch-size", count, "--packing", "--name", "packed")
    sentence(project.run(*packed, "--microbatch", "3"), "which --microbatch cannot divide")
    project.train(*packed)
    assert project.losses("packed") == pytest.approx(project.losses("alone"), rel=1e-4)


def test_the_traced_step_is_that_of_trl(project: Trainee) -> None:
    """The same loss of the same batch; the longest samples first."""
    project.train(*GO_ON, "--max-steps", "1", "--batch-size", "76", "--dropout", "0")
    elsewhere(trace_sees, project.folder, list(project.always), project.losses("run")[1])


def trace_sees(folder: Path, arguments: list[str], expected: float) -> None:
    sys.path.insert(0, str(folder / "src"))
    os.chdir(folder)
    from my_gpu_project.config import Settings
    from my_gpu_project.train import make_trainer

    from gpukit.script import memory
    from gpukit.script.settings import parse
    from gpukit.script.start import start

    settings = parse(Settings, "", [*arguments, "--dropout", "0", "--no-resume", "--device", "cpu"])
    traced = make_trainer(settings, start(settings)).traced()
    samples = [traced.dataset[index] for index in range(len(traced.dataset))]
    lengths = [len(sample["input_ids"]) for sample in samples]
    assert lengths == sorted(lengths, reverse=True) and lengths[0] > lengths[-1]
    batch = traced.collate(samples)
    found = traced.loss(traced.model, batch).item() / int((batch["labels"][:, 1:] != -100).sum())
    assert abs(found - expected) < 1e-5 * expected, (found, expected)
    build, settings = memory.of_project([*arguments])
    lower, whole = (memory.estimate(build, settings, 4, dtype) for dtype in ("bf16", "fp32"))
    assert lower.parts["weights"] < 0.75 * whole.parts["weights"], "frozen weights are loaded in the number format"


# ---------------------------------------------------------------------------------------------------------------------
# Bad ends


@pytest.fixture
def saved(project: Trainee) -> Trainee:
    project.train(*GO_ON, "--max-steps", "2", "--save-steps", "1")
    return project


def still_whole(project: Trainee, step: int = 2) -> None:
    found = checkpoint.newest(project.run_folder("run"))
    assert (found.step, found.passed_over) == (step, [])


def test_a_run_of_another_kind_is_not_resumed(saved: Trainee, tmp_path: Path) -> None:
    sentence(saved.run(*GO_ON, "--rank", "4"), "another model", "another folder")
    sentence(saved.run(*GO_ON, "--batch-size", "4"), "19 batches instead of 9")
    shorter = written(tmp_path / "data.jsonl", *[{"text": "a red cat"}] * 60)
    sentence(saved.run(*GO_ON, "--data", shorter), "57 samples instead of 76")
    other = shutil.copytree(saved.folder / "data/tiny/model", tmp_path / "other")
    sentence(saved.run(*GO_ON, "--model", str(other)), "an adapter of model")
    still_whole(saved)


def test_another_learning_rate_applies_from_the_checkpoint(project: Trainee) -> None:
    """Also without warm-up; and the run that is resumed then has it."""
    steps = ("--save-steps", "2", "--log-steps", "1", "--dropout", "0", "--warmup-steps", "0", "--name")
    project.train(*steps, "whole", "--max-steps", "6", "--lr", "0.01")
    project.train(*steps, "run", "--max-steps", "2", "--lr", "0.01")
    project.train(*steps, "run", "--max-steps", "4", "--lr", "0.02")
    project.train(*steps, "run", "--max-steps", "6")
    whole = project.losses("whole")
    changed = project.losses("run")
    assert [step for step in whole if changed[step] != whole[step]] == [4, 5, 6]
    kept = checkpoint.newest(project.run_folder("run")).state["kept"]
    assert kept["optimizer"]["param_groups"][0]["lr"] == 0.02


def test_what_cannot_be_had_is_said(project: Trainee, tmp_path: Path) -> None:
    sentence(project.run("--model", str(tmp_path)), "Cannot load the model", "Hugging Face or a folder")
    sentence(project.run("--model", "nobody/nothing"), "Cannot load the model nobody/nothing", "HF_TOKEN")
    sentence(project.run("--data", "nobody/nothing"), "Cannot read the data nobody/nothing", "HF_TOKEN")
    odd = written(tmp_path / "odd.jsonl", {"prompt": "why?", "answer": "so"}, {"prompt": "how?", "answer": "so"})
    sentence(project.run("--data", odd), "has the columns prompt, answer", "`text`")
    (tmp_path / "odd.jsonl").write_text("no JSON\n")
    assert "Cannot read the data" in project.run("--data", odd).err.splitlines()[-1]  # below what datasets says
    sentence(project.run("--four-bit"), "--four-bit needs an NVIDIA GPU")
    assert project.run("--fsdp", "--four-bit").code == 2
    sentence(project.run("--fsdp"), "--fsdp needs several processes")
    sentence(project.run("--batch-size", "77"), "76 samples")
