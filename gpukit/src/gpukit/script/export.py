"""A run's model as an ONNX file for other programs, compared with the original.

The file replaces an earlier one only after it has given the same outputs on the CPU, for batches of 1 and 17 samples.
"""

from __future__ import annotations

import json
import logging
import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from exactrun import checkpoint, load_weights
from exactrun.errors import TrainingError
from gpukit.project.location import located
from gpukit.script.settings import RunSettings, parse

Kind = TypeVar("Kind", bound=RunSettings)
BATCHES = 1, 17
LARGEST = 1e-5  # difference, relative to the largest output
PROPERTY = "gpukit"  # of the ONNX file: JSON with `about` and the input


@dataclass(frozen=True)
class Options:
    """Export the newest checkpoint of a run."""

    run: str
    """Name of the run."""
    output_dir: Path = field(default_factory=lambda: located("outputs"))
    """Folder of all runs."""


def export(
    kind: type[Kind],
    build_model: Callable[[Kind], nn.Module],
    example: Callable[[Kind], Tensor],
    about: Callable[[Kind], dict[str, Any]],
    prog: str,
    arguments: list[str] | None = None,
) -> Path:
    """Export the model of the run that the command line names; return the file, in the run's folder.

    `example(settings)`: one sample, without the batch dimension. `about(settings)`: what is needed to use the model, in
    JSON values; it is written into the ONNX file.

    Raises:
        TrainingError, CheckpointError: there is no such run, or its model cannot be exported.
    """
    import tyro

    options = tyro.cli(Options, prog=prog, args=arguments)
    folder = options.output_dir / options.run
    if not options.run or not checkpoint.exists(folder):
        raise TrainingError(f"{folder} has no checkpoint: train with --name {options.run}, or use another --run.")
    settings = parse(kind, prog, ["--name", options.run, "--output-dir", str(options.output_dir), "--device", "cpu"])
    model = build_model(settings).float().eval()
    step = load_weights(folder, model=model)
    sample = example(settings)
    random = torch.Generator().manual_seed(0)
    batches = [torch.randn(size, *sample.shape, generator=random, dtype=sample.dtype) for size in BATCHES]
    path = folder / "model.onnx"
    aside = folder / ".model.tmp.onnx"
    facts = {**about(settings), "shape": ["batch", *sample.shape], "dtype": str(sample.dtype)[6:], "step": step}
    try:
        difference = compare(model, to_onnx(model, batches[-1], aside, facts), batches)
        with aside.open("rb") as file:
            os.fsync(file.fileno())
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)
    size = path.stat().st_size / 1e6
    print(
        f"{path} ({size:.1f} MB), step {step}: largest difference {difference:.1e} of the largest output, for "
        f"batches of {' and '.join(map(str, BATCHES))}"
    )
    return path


def to_onnx(model: nn.Module, batch: Tensor, path: Path, about: dict[str, Any]) -> Callable[[Tensor], Tensor]:
    """Write an ONNX file with the weights inside; return what computes with it, by onnxruntime."""
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"  # read when onnxruntime is imported
    try:
        import onnx
        import onnxruntime
        import onnxscript  # noqa: F401 - torch.onnx needs it
    except ImportError as error:
        raise TrainingError(
            f"Exporting to ONNX needs the package {error.name}: run `./launch add onnx onnxscript onnxruntime`."
        ) from None
    try:
        graph = torch.export.export(model, (batch,), dynamic_shapes=({0: torch.export.Dim("batch", min=1)},))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch.onnx uses what torch itself has deprecated
            logging.getLogger("torch.onnx").setLevel(logging.ERROR)  # it warns where torchvision is not installed
            names = {"input_names": ["input"], "output_names": ["output"]}
            proto = torch.onnx.export(graph, dynamo=True, verbose=False, **names).model_proto
        onnx.helper.set_model_props(proto, {PROPERTY: json.dumps({"input": "input", "output": "output", **about})})
        onnx.save(proto, path)
        onnx.checker.check_model(path, full_check=True)
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    except OSError:
        raise
    except Exception as error:  # of many types: torch._dynamo, torch.onnx, protobuf, onnx, onnxruntime
        cause = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise TrainingError(
            f"The model cannot be exported ({cause}): its forward must not depend on the values of tensors or on the "
            "batch size; torch.cond replaces such an `if`."
        ) from error
    return lambda inputs: torch.from_numpy(session.run(None, {"input": inputs.numpy()})[0])


@torch.no_grad()
def compare(model: nn.Module, compute: Callable[[Tensor], Tensor], batches: list[Tensor]) -> float:
    """The largest difference relative to the largest output; TrainingError if it is too large."""
    largest = 0.0
    for batch in batches:
        ours = model(batch)
        theirs = compute(batch)
        if ours.shape != theirs.shape:
            raise TrainingError(
                f"The exported model gives {list(theirs.shape)} instead of {list(ours.shape)} for a batch of "
                f"{len(batch)}, so it was not kept."
            )
        difference = ((ours - theirs).abs().max() / ours.abs().max()).item()
        if not difference <= LARGEST:  # also if it is NaN
            raise TrainingError(
                f"The exported model differs from the original by {difference:.1e} of the largest output, more than "
                f"{LARGEST:.0e}, for a batch of {len(batch)}, so it was not kept."
            )
        largest = max(largest, difference)
    return largest
