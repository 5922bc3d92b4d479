"""Compile one small Triton kernel for a GPU that is not here: python kernels.py KERNEL CAPABILITY.

plan runs it as a script, because Triton reads the source of its kernels from a file.
"""

import inspect
import json
import re
import sys

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.compiler import compile as compile_kernel


@triton.jit
def fp32(x, out, size: tl.constexpr):
    """A softmax: arithmetic and a reduction, which all capabilities have."""
    at = tl.program_id(0) * size + tl.arange(0, size)
    value = tl.exp(tl.load(x + at))
    tl.store(out + at, value / tl.sum(value, 0))


@triton.jit
def bf16(x, out, size: tl.constexpr):
    """A product of matrices, on the tensor cores."""
    at = tl.arange(0, size)[:, None] * size + tl.arange(0, size)[None, :]
    value = tl.load(x + at)
    tl.store(out + at, tl.dot(value, value).to(tl.bfloat16))


def main() -> None:
    name, capability = sys.argv[1:]
    kernel = {"fp32": fp32, "bf16": bf16}[name]
    # Named `constants` before Triton 3.3.
    constants = "constexprs" if "constexprs" in inspect.signature(ASTSource).parameters else "constants"
    signature = {"x": f"*{name}", "out": f"*{name}", "size": "constexpr"}
    source = ASTSource(kernel, signature, **{constants: {"size": 32}})
    compiled = compile_kernel(source, target=GPUTarget("cuda", int(capability.replace(".", "")), 32))
    target = re.search(r"^\.target (\w+)", compiled.asm["ptx"], re.MULTILINE)
    print(json.dumps({"target": target[1], "bytes": len(compiled.asm["cubin"])}))


if __name__ == "__main__":
    main()
