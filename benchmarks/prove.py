"""`plan --prove` with a new and an old Triton: uv run python benchmarks/prove.py

Installs the wheels of triton 3.9.0 and 3.2.0 and of the catalogue's bitsandbytes into throwaway environments, and
proves all capabilities of the catalogue. No GPU is needed. --torch adds the wheel of a torch, of more than 500 MB,
without what it depends on: the time that its libraries take.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import yaml
from measure import ROOT, machine, options, run, write

NEW, OLD = "3.9.0", "3.2.0"
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
    given = options(__doc__, torch="")
    load = machine()["load"]
    hardware = yaml.safe_load((ROOT / "catalogue/hardware.yml").read_text(encoding="utf-8"))["hardware"]
    kernels = yaml.safe_load((ROOT / "catalogue/packages.yml").read_text(encoding="utf-8"))["kernels"]["bitsandbytes"]
    capabilities = {one["capability"] for one in hardware.values() if one["capability"]}
    capabilities = sorted(capabilities, key=lambda text: tuple(map(int, text.split("."))))
    rows, found, slowest, agree = [], {}, 0.0, 0
    with tempfile.TemporaryDirectory(prefix="benchmark-") as spare:
        for version in (NEW, OLD):
            # triton 3.2.0 imports setuptools, which torch brings
            wheels = (f"triton=={version}", f"bitsandbytes=={kernels['version']}", "setuptools")
            python = environment(Path(spare, version), *wheels)
            findings, took, contained = prove(python, capabilities, Path(spare))
            compiled = {each["id"].partition("-")[2]: each for each in findings if each["id"].startswith("triton-")}
            found[version] = {capability: compiled[capability]["status"] for capability in capabilities}
            slowest = max(slowest, *(each["seconds"] for each in compiled.values()))
            for capability, each in compiled.items():
                rows.append([version, capability, each["status"], each["cause_id"] or each["seen"], each["seconds"]])
            print(f"triton {version}: {took:.0f} s", file=sys.stderr)
            if version == NEW:
                for cuda, wanted in kernels["amd64"].items():
                    agree += contained[f"libbitsandbytes_cuda{cuda.replace('.', '')}.so"] == wanted
        reading = None
        if given.torch:
            python = environment(Path(spare, "torch"), f"triton=={NEW}", f"torch=={given.torch}")
            started = time.monotonic()
            findings, *_ = prove(python, capabilities[-1:], Path(spare))
            reading = time.monotonic() - started
            rows += [[NEW, "torch", each["status"], each["seen"], ""] for each in findings if "torch" in each["id"]]
    newer = [capability for capability in capabilities if int(capability.partition(".")[0]) >= 10]
    passing = {version: [one for one in capabilities if found[version][one] == "PASS"] for version in found}
    write(
        "prove",
        load,
        engine=False,
        title="Kernels for GPUs that are not here",
        repeats=1,
        table={"columns": ["triton", "capability", "status", "cause or target", "seconds"], "rows": rows},
        results=[
            {
                "what": f"capabilities that triton {NEW} compiles for, of {len(capabilities)} in the catalogue",
                "value": len(passing[NEW]),
                "at_least": len(capabilities),
            },
            {
                "what": f"capabilities named that triton {OLD} lacks, of those from 10.0 on",
                "value": len([one for one in newer if found[OLD][one] == "FAIL"]),
                "at_least": len(newer),
            },
            {
                "what": f"other capabilities that triton {OLD} does not compile for",
                "value": len(capabilities) - len(newer) - len(set(passing[OLD]) - set(newer)),
                "at_most": 0,
            },
            {"what": "slowest capability, both kernels", "value": round(slowest, 1), "unit": "s", "at_most": 60},
            {
                "what": "libraries of bitsandbytes that contain what the catalogue says",
                "value": agree,
                "at_least": len(kernels["amd64"]),
            },
            {
                "what": f"one capability and the libraries of torch {given.torch}".strip(),
                "value": reading and round(reading, 1),
                "unit": "s",
                "at_most": 60,
            },
        ],
        notes=[
            "Compiled without a GPU, a driver, or torch, with the ptxas in each wheel: CUDA 12.4's in triton 3.2.0, "
            "those of 12.9 and (from 9.0 on) 13.4 in triton 3.9.0.",
            "That a kernel compiles does not prove that it works on that GPU, or that it is fast.",
        ],
    )


if __name__ == "__main__":
    main()
