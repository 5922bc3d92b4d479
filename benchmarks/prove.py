"""`plan --prove` with a new and an old Triton: uv run python benchmarks/prove.py

The worst case is --torch: its wheel of more than 500 MB, without what it depends on, whose libraries are read. Then all
capabilities of the catalogue, with the wheels of triton 3.9.0 and 3.2.0 and of the catalogue's bitsandbytes. Everything
is installed into throwaway environments. No GPU is needed. With --rounds 1, only the newer triton and three
capabilities.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import yaml
from harness import ROOT, Benchmark, run, say

NEW = "3.9.0"
OLD = "3.2.0"
CALL = """
import json, sys, time
from dataclasses import asdict
from gpukit.plan import prove
started = time.monotonic()
findings = [asdict(each) for each in prove.prove(sys.argv[2:])]
took = time.monotonic() - started
tool = prove.cuobjdump(prove.triton_folder())
libraries = [path for folder in sys.path for path in prove.Path(folder).glob("bitsandbytes/*_cuda*.so")]
contained = {path.name: prove.read(tool, path).sass for path in libraries}
assert "triton" not in sys.modules and "torch" not in sys.modules
prove.Path(sys.argv[1]).write_text(json.dumps([findings, took, contained]))
"""


def environment(folder: Path, *packages: str) -> Path:
    run("uv", "venv", "--quiet", "--python", sys.executable, folder)
    run("uv", "pip", "install", "--quiet", "--no-deps", "--python", folder / "bin/python", *packages)
    return folder / "bin/python"


def prove(
    python: Path, capabilities: list[str], spare: Path
) -> tuple[list[dict[str, Any]], float, dict[str, list[str]]]:
    answer = spare / "answer.json"
    env = {name: value for name, value in os.environ.items() if not name.startswith("TRITON_")}
    env["PYTHONPATH"] = str(ROOT / "gpukit/src")
    run(python, "-c", CALL, answer, *capabilities, cwd=spare, env=env)
    return json.loads(answer.read_text(encoding="utf-8"))


def main() -> None:
    with Benchmark("Kernels for GPUs that are not here", __doc__, rounds=2, torch="") as bench:
        measure(bench, bench.given.torch)


def measure(bench: Benchmark, torch: str) -> None:
    hardware = yaml.safe_load((ROOT / "catalogue/hardware.yml").read_text(encoding="utf-8"))["hardware"]
    kernels = yaml.safe_load((ROOT / "catalogue/packages.yml").read_text(encoding="utf-8"))["kernels"]["bitsandbytes"]
    capabilities = {one["capability"] for one in hardware.values() if one["capability"]}
    capabilities = sorted(capabilities, key=lambda text: tuple(map(int, text.split("."))))
    if bench.rounds == 1:
        capabilities = capabilities[-3:]
    bench.columns = ["triton", "capability", "status", "cause or target", "seconds"]
    reading = None
    if torch:
        python = environment(bench.spare / "torch", f"triton=={NEW}", f"torch=={torch}")
        started = time.monotonic()
        findings, *_ = prove(python, capabilities[-1:], bench.spare)
        reading = time.monotonic() - started
        for each in findings:
            if "torch" in each["id"]:
                bench.row(NEW, "torch", each["status"], each["seen"], "")
    status = {}
    slowest = 0.0
    agree = 0
    for version in (NEW, OLD)[: bench.rounds]:
        # triton 3.2.0 imports setuptools, which torch brings
        wheels = (f"triton=={version}", f"bitsandbytes=={kernels['version']}", "setuptools")
        python = environment(bench.spare / version, *wheels)
        findings, took, contained = prove(python, capabilities, bench.spare)
        say(f"triton {version}: {took:.0f} s")
        for each in findings:
            if each["id"].startswith("triton-"):
                capability = each["id"].partition("-")[2]
                bench.row(version, capability, each["status"], each["cause_id"] or each["seen"], each["seconds"])
                status[version, capability] = each["status"]
                slowest = max(slowest, each["seconds"])
        if version == NEW:
            for cuda, wanted in kernels["amd64"].items():
                agree += contained[f"libbitsandbytes_cuda{cuda.replace('.', '')}.so"] == wanted
    total = len(capabilities)
    passed = sum(status[NEW, one] == "PASS" for one in capabilities)
    bench.result(f"capabilities that triton {NEW} compiles for, of {total} in the catalogue", passed, at_least=total)
    if bench.rounds > 1:
        newer = [one for one in capabilities if int(one.partition(".")[0]) >= 10]
        lacking = [one for one in capabilities if status[OLD, one] != "PASS"]
        named = sum(status[OLD, one] == "FAIL" for one in newer)
        bench.result(f"capabilities named that triton {OLD} lacks, of those from 10.0 on", named, at_least=len(newer))
        others = len(set(lacking) - set(newer))
        bench.result(f"other capabilities that triton {OLD} does not compile for", others, at_most=0)
    bench.result("slowest capability, both kernels", slowest, "s", at_most=60, digits=1)
    wanted = len(kernels["amd64"])
    bench.result("libraries of bitsandbytes that contain what the catalogue says", agree, at_least=wanted)
    what = f"one capability and the libraries of torch {torch}".strip()
    bench.result(what, reading, "s", at_most=60, digits=1)
    bench.notes = [
        "Compiled without a GPU, a driver, or torch, with the ptxas in each wheel: CUDA 12.4's in triton 3.2.0, those "
        "of 12.9 and (from 9.0 on) 13.4 in triton 3.9.0.",
        "That a kernel compiles does not prove that it works on that GPU, or that it is fast.",
    ]


if __name__ == "__main__":
    main()
