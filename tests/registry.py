"""Debian's docker-registry on loopback."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import yaml

from tests.conftest import cannot
from tests.ports import free_port


@contextlib.contextmanager
def running(folder: Path) -> Iterator[str]:
    """Its address, such as 127.0.0.1:5000; its data is in `folder`."""
    program = shutil.which("docker-registry")
    if not program:
        cannot("docker-registry is not installed: apt-get install docker-registry")
    host = f"127.0.0.1:{free_port()}"
    storage = {"filesystem": {"rootdirectory": str(folder / "data")}, "delete": {"enabled": True}}
    config = {"version": 0.1, "log": {"level": "error"}, "storage": storage, "http": {"addr": host}}
    (folder / "config.yml").write_text(yaml.safe_dump(config))
    with (folder / "log").open("w") as log:
        process = subprocess.Popen([program, "serve", str(folder / "config.yml")], stdout=log, stderr=log)
    try:
        for _ in range(1200):
            try:
                urllib.request.urlopen(f"http://{host}/v2/", timeout=10).close()
                break
            except OSError:
                assert process.poll() is None, (folder / "log").read_text()
                time.sleep(0.05)
        yield host
    finally:
        process.terminate()
        process.wait()
