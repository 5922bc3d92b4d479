"""torchvision as it is, on a PyTorch that its C++ part was not built for: to be imported before it, for tests only.

Wheels for CPUs are in PyTorch's own index alone. One with CUDA works beside a PyTorch without it, except for its own
operators (boxes of detectors, `io`), which nothing here needs: image files go through Pillow, transforms and models
through PyTorch. But on import it describes two of those operators, which must then have been declared.

As a script, `torchvision_anyway.py MODULE [ARGUMENT ...]`, it goes on as `python -m MODULE` would.
"""

from __future__ import annotations

import runpy
import sys

import torch

try:
    import torchvision  # noqa: F401
except RuntimeError:
    for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
        del sys.modules[name]
    LIBRARY = torch.library.Library("torchvision", "DEF")
    for name in ("nms", "qnms"):
        LIBRARY.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")

if __name__ == "__main__":
    sys.argv = sys.argv[1:]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
