"""`plan` for all hardware, use cases, and bases of the catalogue: uv run python benchmarks/plan.py

Generates a project for each combination that the catalogue supports, and runs `./launch plan --json` in it, first
without and then with what it has cached; combinations with the same stack share a cache. In a project of each stack,
`--for` asks about all hardware, also what the stack does not support. A proxy on loopback counts what is received.
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
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from measure import ROOT, clone, generate, machine, options, write

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
    """The document of the project's own `plan`, and its seconds."""
    env = {**os.environ, "XDG_CACHE_HOME": str(cache), "HTTPS_PROXY": f"http://127.0.0.1:{port}"}
    started = time.monotonic()
    command = [project / "launch", "plan", "--json", *arguments]
    done = subprocess.run(command, cwd=project, env=env, capture_output=True, text=True)
    took = time.monotonic() - started
    try:
        return json.loads(done.stdout), took
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


def main() -> None:
    given = options(__doc__, only="")
    load, cold, warm, received, sent, rows = machine()["load"], [], [], [], [], []
    hardware, releases = support.load("hardware")["hardware"], support.load("images")["releases"]
    found = combinations(given.only)
    stacks: dict[tuple[str, str, str], Path] = {}
    false_alarms, unasked, disagreements, asked = [], set(), [], 0
    with tempfile.TemporaryDirectory(prefix="benchmark-") as spare, proxy() as server:
        template, port = clone(Path(spare, "template")), server.server_address[1]
        for number, (id, base, case, release) in enumerate(found):
            project = generate(
                template, Path(spare, f"project-{number}"), project_name="demo", hardware=id, base=base, use_case=case
            )
            stack = (hardware[id]["arch"], f"{base} {release}", case)
            first = stack not in stacks
            stacks.setdefault(stack, project)
            cache, before = Path(spare, "-".join(stack).replace(" ", "-")), server.received
            document, took = plan(project, cache, port)
            target = document["targets"][id]
            if first:
                cold.append(took)
                received.append(target["bytes"])
                sent.append(server.received - before)
                rows.append([*stack, round(took, 1), round(target["bytes"] / 1e6, 1), len(target["packages"])])
            warm.append(plan(project, cache, port)[1])
            false_alarms += [f"{id}, {base} {release}, {case}: {each}" for each in alarms(target)]
            unasked |= {*unknown(target)}
            print(f"{number + 1} of {len(found)}: {id} {base} {case}, {took:.1f} s", file=sys.stderr, flush=True)
        for (arch, release, case), project in stacks.items():
            if case != "minimal":
                continue
            base, _, name = release.partition(" ")
            cache = Path(spare, f"for-{arch}-{base}-{name}")
            document, _ = plan(project, cache, port, *(f"--for={id}" for id in hardware))
            for id, target in document["targets"].items():
                asked += 1
                supported = not support.supports(hardware[id], releases[base][name])
                said = alarms(target)
                if supported == bool(said):
                    disagreements.append(f"{id} on {release}: {', '.join(said) or 'no alarm'}")
        examples = {}
        for example in sorted((ROOT / "examples").iterdir()):
            if (example / "stack.json").is_file():
                env = {"GPUKIT_PROJECT": str(example), "PYTHONPATH": str(ROOT / "gpukit/src")}
                command = [sys.executable, "-m", "gpukit", "plan", "--json"]
                env = {**os.environ, **env, "XDG_CACHE_HOME": str(Path(spare, "examples"))}
                done = subprocess.run(command, cwd=example, env=env, capture_output=True, text=True)
                targets = json.loads(done.stdout)["targets"]
                examples[example.name] = [each for target in targets.values() for each in alarms(target)]
    overhead = [of - own for own, of in zip(received, sent, strict=True)]
    write(
        "plan",
        load,
        engine=False,
        title="`plan` for the whole catalogue",
        table={
            "columns": ["CPU", "stack", "use case", "first run, s", "index data, MB", "packages"],
            "rows": rows,
        },
        results=[
            {"what": "combinations of hardware, base, and use case", "value": len(found)},
            {"what": "alarms about them", "value": len(false_alarms), "at_most": 0},
            {"what": "questions about hardware in a project of each stack", "value": asked},
            {"what": "answers unlike the catalogue's", "value": len(disagreements), "at_most": 0},
            {"what": "alarms on the examples", "value": sum(map(len, examples.values())), "at_most": 0},
            {"what": "first run, slowest", "unit": "s", "value": round(max(cold), 1), "at_most": 30},
            {"what": "first run, median", "unit": "s", "value": round(statistics.median(cold), 1)},
            {"what": "second run, slowest", "unit": "s", "value": round(max(warm), 1), "at_most": 2},
            {"what": "index data of a first run, most", "unit": "MB", "value": round(max(received) / 1e6, 1)}
            | {"at_most": 50},
            {"what": "received by the proxy beyond that, most", "unit": "MB", "value": round(max(overhead) / 1e6, 1)}
            | {"at_most": 5},
        ],
        notes=[
            "A first run is one without a cache; each row is a stack and use case, which several machines share.",
            "Index data: pages, metadata, and parts of wheels, as they are sent, perhaps uncompressed. Beyond it, the "
            "proxy counts TLS, headers, and the registry's answers. A test checks that no file is fetched whole.",
            "Not counted as alarms: the free disk space of this machine."
            + (f" It cannot reach what these ask: {', '.join(sorted(unasked))}." if unasked else ""),
            *([f"Unlike the catalogue: {'; '.join(disagreements)}."] if disagreements else []),
            *([f"Alarms: {'; '.join(false_alarms)}."] if false_alarms else []),
        ],
    )


if __name__ == "__main__":
    main()
