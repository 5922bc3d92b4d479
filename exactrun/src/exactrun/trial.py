"""Whether this process rehearses the script (`python -m exactrun rehearse`): then `Run` calls a recorder."""

from __future__ import annotations

import json
import os
from typing import Any

NAME = "EXACTRUN_REHEARSAL"  # the environment variable that has the recorder's settings, in JSON


def current() -> Any:
    """The recorder of a run of this process; None if it rehearses nothing."""
    if NAME not in os.environ:
        return None
    from exactrun.rehearse.recorder import recorder

    return recorder(**json.loads(os.environ[NAME]))
