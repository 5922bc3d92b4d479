"""All of launch's engine tests on rootless Podman: uv run python benchmarks/podman.py

The suite runs a sample of them on Podman, and all on Docker. As root, with the user of rootless Podman whom .ci/run
prepares, or the one whom GPU_TEMPLATE_PODMAN_USER names.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from xml.etree import ElementTree

from harness import ROOT, Benchmark
from harness import run as output_of

TESTS = "tests/launch/test_engine.py"
USER = os.environ.get("GPU_TEMPLATE_PODMAN_USER", "podman-tests")


def main() -> None:
    with Benchmark("Launch's tests on rootless Podman", __doc__, rounds=1, engine=True) as bench:
        report = bench.spare / "report.xml"
        command = [sys.executable, "-m", "pytest", "-n0", f"--junitxml={report}", "-k", "podman", TESTS]
        subprocess.run(command, cwd=ROOT, env={**os.environ, "ALL_ON_PODMAN": "1"}, stdout=sys.stderr, check=False)
        bench.columns = ["test", "on Podman"]
        failed = 0
        for case in ElementTree.parse(report).iter("testcase"):
            name = case.get("name", "").partition("@")[0].partition("[")[0].removeprefix("test_").replace("_", " ")
            bad = [each.tag for each in case if each.tag in ("failure", "error", "skipped")]
            failed += bool(bad)
            bench.row(name, bad[0] if bad else "passes")
        bench.result("tests", len(bench.rows))
        bench.result("tests that do not pass", failed, at_most=0)
        release = re.sub(r".*version ", "", output_of("/opt/podman/bin/podman-as", USER, "podman", "--version").strip())
        bench.notes = [f"Podman {release}. Compose has tests of its own, which Podman does not run."]


if __name__ == "__main__":
    main()
