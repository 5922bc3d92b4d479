"""The speed in NVIDIA's data sheets: dense matrix products in half precision with fp32 accumulation, in TFLOPS.

Only GPUs with an unambiguous name. MIG slices, laptop GPUs, and GPUs not listed here are measured but not judged. If a
data sheet has the figure with sparsity, half of it.
"""

from __future__ import annotations

A100 = "NVIDIA A100 data sheet: BFLOAT16 Tensor Core 312 TFLOPS | 624 TFLOPS with sparsity"
H100 = "https://www.nvidia.com/en-us/data-center/h100/: BFLOAT16 with sparsity 1,979 (SXM), 1,513 (PCIe), 1,671 (NVL)"
H200 = "https://www.nvidia.com/en-us/data-center/h200/: BFLOAT16 with sparsity 1,979"
GA102 = "NVIDIA Ampere GA102 whitepaper v2: Peak BF16 Tensor TFLOPS with FP32 Accumulate 154.8/309.6 (RTX A6000)"
BLACKWELL = "NVIDIA RTX Blackwell whitepaper, table 3: BF16 with FP32 Accumulate 71.2/142.4, 165.2/330.4, 209.5/419"
# From the documents themselves, or as public repositories quote them.
CHECKED = "2026-11-20"

REFERENCES = {
    "NVIDIA A100-SXM4-40GB": (312, A100),
    "NVIDIA A100-SXM4-80GB": (312, A100),
    "NVIDIA A100-PCIE-40GB": (312, A100),
    "NVIDIA A100 80GB PCIe": (312, A100),
    "NVIDIA H100 80GB HBM3": (989, H100),
    "NVIDIA H100 PCIe": (756, H100),
    "NVIDIA H100 NVL": (835, H100),
    "NVIDIA H200": (989, H200),
    "NVIDIA RTX A6000": (154, GA102),
    "NVIDIA GeForce RTX 3090": (71, BLACKWELL),
    "NVIDIA GeForce RTX 4090": (165, BLACKWELL),
    "NVIDIA GeForce RTX 5090": (209, BLACKWELL),
}


def reference(name: str) -> float | None:
    return REFERENCES[name][0] if name in REFERENCES else None
