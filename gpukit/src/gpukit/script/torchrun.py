"""torchrun, whose exit status says how the training ended: Kubernetes decides by it whether a new pod makes sense.

torchrun itself ends with 1 whatever happened (torch.distributed.elastic.multiprocessing.errors.record, PyTorch 2.13).
"""

from __future__ import annotations

import sys
from pathlib import Path

from torch.distributed import run
from torch.distributed.elastic.multiprocessing.api import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

AT_START = 2  # an error that a restart would only repeat; argparse's for wrong options


def main(arguments: list[str]) -> int:
    """Run torchrun with its arguments; 0, 128 + a signal, AT_START, or the status of the process that failed first."""
    try:
        run.main(arguments)
    except SignalException as stopped:
        return 128 + stopped.sigval
    except ChildFailedError as error:
        _, failure = error.get_first_failure()
        print(error, file=sys.stderr)
        if failure.exitcode < 0:
            return 128 - failure.exitcode
        return AT_START if failure.exitcode < 128 and is_new(arguments) else failure.exitcode
    return 0


def is_new(arguments: list[str]) -> bool:
    """Whether the run that --output-dir and --name choose has no checkpoint yet; False if they name none."""
    options = dict(zip(arguments, arguments[1:]))
    options.update(word.split("=", 1) for word in arguments if word.startswith(("--output-dir=", "--name=")))
    folder = options.get("--output-dir")
    name = options.get("--name")
    return bool(folder and name) and not any(Path(folder, name, "checkpoints").glob("step-*"))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
