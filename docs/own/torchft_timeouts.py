"""Time-outs of torchft from the answer of `sgdlab advise trace.csv --timeouts`, its file advice.json."""

import json
import math
import pathlib
from datetime import timedelta


def timeouts(advice):
    """Return the keyword arguments of torchft's `Manager`, and of its `LighthouseServer`."""
    rows = json.loads(pathlib.Path(advice).read_text(encoding="utf-8"))["timeouts"]["rows"]
    seconds = {row["name"]: row["seconds"] for row in rows}
    manager = {
        "timeout": timedelta(seconds=seconds["process_group"]),
        "quorum_timeout": timedelta(seconds=seconds["quorum"]),
    }
    return manager, {"join_timeout_ms": math.ceil(1000 * seconds["join"])}
