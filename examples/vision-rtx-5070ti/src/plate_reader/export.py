"""Exports the model of a run to ONNX, and compares it with the original.

For the run "a": `python -m plate_reader.export --name a`.
"""

import json
import math
import os
from dataclasses import replace
from pathlib import Path

import onnx
import timm
import torch
from exactrun import load_weights
from gpukit.script.errors import report_errors
from gpukit.script.settings import parse

from .config import Settings
from .data import classes
from .model import build_model

os.environ["ORT_DISABLE_TELEMETRY"] = "1"  # onnxruntime reads this when it is imported


@torch.no_grad()
def export(settings: Settings) -> Path:
    """Write model.onnx, with the weights of the newest checkpoint, to the folder of the run; return its path."""
    import onnxruntime

    folder = settings.output_dir / settings.name
    model = build_model(replace(settings, pretrained=False)).eval()
    step = load_weights(folder, model=model)
    batch = torch.randn(17, 3, settings.image_size, settings.image_size)
    exported = torch.onnx.export(
        model,
        (batch,),
        input_names=["input"],
        output_names=["output"],
        dynamic_shapes=({0: torch.export.Dim("batch", min=1)},),
        dynamo=True,
        verbose=False,
    ).model_proto
    about = {"input": "input", "shape": ["batch", *batch.shape[1:]], "dtype": "float32", "step": step}
    onnx.helper.set_model_props(exported, {"gpukit": json.dumps(about | use(settings))})
    new = folder / ".model.onnx"
    onnx.save(exported, new)
    session = onnxruntime.InferenceSession(new, providers=["CPUExecutionProvider"])
    for samples in (batch[:1], batch):
        (outputs,) = session.run(None, {"input": samples.numpy()})
        torch.testing.assert_close(torch.from_numpy(outputs), model(samples), rtol=1e-3, atol=1e-4)
    return new.replace(folder / "model.onnx")


def use(settings: Settings) -> dict[str, object]:
    """What is needed to use the model; written into the ONNX file."""
    known = timm.get_pretrained_cfg(settings.model)
    size = settings.image_size
    preprocessing = {"resize": math.ceil(size / 0.9), "crop": size, "mean": list(known.mean), "std": list(known.std)}
    return {"classes": classes(settings), **preprocessing}


if __name__ == "__main__":
    with report_errors():
        print("Exported:", export(parse(Settings, prog=f"python -m {__package__}.export")))
