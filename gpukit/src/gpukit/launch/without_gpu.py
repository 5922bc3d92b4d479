"""On a machine without a GPU: ask once whether to use the CPU configuration. Nothing falls back to it silently."""

from __future__ import annotations

import shlex

from gpukit.host.project import CPU
from gpukit.host.refusals import no_gpu
from gpukit.project.location import located
from gpukit.project.messages import confirmed, terminal

# Those that start a container of the project; of `jobs`, that is `jobs run`.
COMMANDS = ("run", "verify", "shell", "notebook", "up", "add", "rehearse", "jobs")


def is_wanted(name: str, native: bool = False) -> bool:
    """Whether to run this command with --cpu; False if the project has no such configuration.

    Raises:
        RefusalError: there is nobody to ask, or the answer is no.
    """
    if not located(CPU).is_file():
        return False
    if terminal() and confirmed("No NVIDIA GPU here. Use the CPU configuration?", usual=True):
        return True
    # not the whole command line: over ssh, it has words that are not the user's
    words = ["./launch", *(["--native"] if native else []), "--cpu", name, *(["run"] if name == "jobs" else [])]
    raise no_gpu(f"{shlex.join(words)} ...")
