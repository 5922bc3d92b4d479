"""`plan` for all hardware, use cases, and bases of the catalogue: uv run python benchmarks/plan.py

Generates a project for each combination that the catalogue supports, and runs `./launch plan --json` in it, first
without and then with what it has cached; combinations with the same stack share a cache. The worst case is the use case
llm on arm64 without a cache, which has the most packages: --only "gh200 wheel llm" measures it alone. In a project of
each stack, `--for` asks about all hardware, also what the stack does not support. A proxy on loopback counts what is
received.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import socketserver
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from harness import ROOT, Benchmark, say

sys.path.insert(0, str(ROOT / "catalogue"))
import support

HERE = ("disk", "memory")  # what depends on this machine: its disk, and whether it has PyTorch


class Proxy(socketserver.ThreadingTCPServer):
    """Passes connections on (CONNECT), and counts the bytes that come back."""

    daemon_threads = True
    received = 0

    class RequestHandlerClass(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            method, place, _ = self.rfile.readline().decode().split()
            while self.rfile.readline().strip():
                pass
            if method != "CONNECT":
                self.wfile.write(b"HTTP/1.1 405 Only CONNECT\r\n\r\n")
                return
            host, _, port = place.rpartition(":")
            try:
                there = socket.create_connection((host, int(port)), timeout=20)
            except OSError:
                self.wfile.write(b"HTTP/1.1 502 Unreachable\r\n\r\n")
                return
            self.wfile.write(b"HTTP/1.1 200 OK\r\n\r\n")
            with there, contextlib.suppress(OSError):
                pairs = {self.connection: there, there: self.connection}
                while True:
                    for one in select.select(list(pairs), [], [])[0]:
                        data = one.recv(1 << 16)
                        if not data:
                            return
                        pairs[one].sendall(data)
                        self.server.received += len(data) * (one is there)


@contextlib.contextmanager
def proxy() -> Iterator[Proxy]:
    with Proxy(("127.0.0.1", 0), Proxy.RequestHandlerClass) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def plan(project: Path, cache: Path, port: int, *arguments: str) -> tuple[dict[str, Any], float]:
    """The targets in the document of the project's own `plan`, and its seconds."""
    env = {**os.environ, "XDG_CACHE_HOME": str(cache), "HTTPS_PROXY": f"http://127.0.0.1:{port}"}
    started = time.monotonic()
    command = [project / "launch", "plan", "--json", *arguments]
    done = subprocess.run(command, cwd=project, env=env, capture_output=True, text=True)
    took = time.monotonic() - started
    try:
        return json.loads(done.stdout)["targets"], took
    except ValueError:
        sys.exit(f"plan failed in {project.name}: {done.stderr}")


def alarms(target: dict[str, Any]) -> list[str]:
    return [
        each["cause_id"] for each in target["findings"] if each["status"] in ("FAIL", "WARN") if each["id"] not in HERE
    ]


def unknown(target: dict[str, Any]) -> list[str]:
    return [each["id"] for each in target["findings"] if not each["completed"]]


def combinations(only: str) -> list[tuple[str, str, str, str]]:
    """Hardware, base, use case, and the release that the catalogue chooses."""
    cases = support.load("packages")["use_cases"]
    return [
        (id, base, case, release)
        for case in cases
        for id in support.load("hardware")["hardware"]
        for base, release in support.bases([id], case).items()
        if only in f"{id} {base} {case}"
    ]


def on_examples(spare: Path) -> list[str]:
    """The alarms on the examples."""
    found = []
    for example in sorted((ROOT / "examples").iterdir()):
        if (example / "stack.json").is_file():
            env = {**os.environ, "GPUKIT_PROJECT": str(example), "PYTHONPATH": str(ROOT / "gpukit/src")}
            env["XDG_CACHE_HOME"] = str(spare / "examples")
            command = [sys.executable, "-m", "gpukit", "plan", "--json"]
            done = subprocess.run(command, cwd=example, env=env, capture_output=True, text=True)
            for target in json.loads(done.stdout)["targets"].values():
                found += alarms(target)
    return found


def main() -> None:
    with Benchmark("`plan` for the whole catalogue", __doc__, rounds=1, only="") as bench, proxy() as server:
        measure(bench, server, combinations(bench.given.only))


def measure(bench: Benchmark, server: Proxy, found: list[tuple[str, str, str, str]]) -> None:
    port = server.server_address[1]
    hardware = support.load("hardware")["hardware"]
    releases = support.load("images")["releases"]
    stacks: dict[tuple[str, str, str], Path] = {}
    cold = []
    warm = []
    received = []
    beyond = []
    false_alarms = []
    unasked = set()
    disagreements = []
    asked = 0
    bench.columns = ["CPU", "stack", "use case", "first run, s", "index data, MB", "packages"]
    for number, (id, base, case, release) in enumerate(found):
        project = bench.project(f"project-{number}", project_name="demo", hardware=id, base=base, use_case=case)
        stack = (hardware[id]["arch"], f"{base} {release}", case)
        cache = bench.spare / "-".join(stack).replace(" ", "-")
        before = server.received
        targets, took = plan(project, cache, port)
        target = targets[id]
        if stack not in stacks:
            stacks[stack] = project
            cold.append(took)
            received.append(target["bytes"])
            beyond.append(server.received - before - target["bytes"])
            bench.row(*stack, round(took, 1), round(target["bytes"] / 1e6, 1), len(target["packages"]))
        warm.append(plan(project, cache, port)[1])
        false_alarms += [f"{id}, {base} {release}, {case}: {each}" for each in alarms(target)]
        unasked |= {*unknown(target)}
        say(f"{number + 1} of {len(found)}: {id} {base} {case}, {took:.1f} s")
    for (arch, release, case), project in stacks.items():
        if case != "minimal":
            continue
        base, _, name = release.partition(" ")
        cache = bench.spare / f"for-{arch}-{base}-{name}"
        targets, _ = plan(project, cache, port, *(f"--for={id}" for id in hardware))
        for id, target in targets.items():
            asked += 1
            supported = not support.supports(hardware[id], releases[base][name])
            said = alarms(target)
            if supported == bool(said):
                disagreements.append(f"{id} on {release}: {', '.join(said) or 'no alarm'}")

    bench.result("combinations of hardware, base, and use case", len(found))
    bench.result("alarms about them", len(false_alarms), at_most=0)
    bench.result("questions about hardware in a project of each stack", asked)
    bench.result("answers unlike the catalogue's", len(disagreements), at_most=0)
    bench.result("alarms on the examples", len(on_examples(bench.spare)), at_most=0)
    bench.result("first run, slowest", max(cold), "s", at_most=30, digits=1)
    bench.result("first run, median", statistics.median(cold), "s", digits=1)
    bench.result("second run, slowest", max(warm), "s", at_most=2, digits=1)
    bench.result("index data of a first run, most", max(received) / 1e6, "MB", at_most=50, digits=1)
    bench.result("received by the proxy beyond that, most", max(beyond) / 1e6, "MB", at_most=5, digits=1)
    bench.notes = [
        "A first run is one without a cache; each row is a stack and use case, which several machines share.",
        "Index data: pages, metadata, and parts of wheels, as they are sent, perhaps uncompressed. Beyond it, the "
        "proxy counts TLS, headers, and the registry's answers. A test checks that no file is fetched whole.",
        "Not counted as alarms: the free disk space of this machine."
        + (f" It cannot reach what these ask: {', '.join(sorted(unasked))}." if unasked else ""),
    ]
    if disagreements:
        bench.notes.append(f"Unlike the catalogue: {'; '.join(disagreements)}.")
    if false_alarms:
        bench.notes.append(f"Alarms: {'; '.join(false_alarms)}.")


if __name__ == "__main__":
    main()
