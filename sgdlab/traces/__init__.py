"""Files of recorded run-times: `read(path)` recognises the format, the columns and the units.

Each format is a part of the registry `TRACES`, in a module of its own; `docs/traces.md` describes them.
"""

# ruff: isort: skip_file
# In the order in which they are tried, where several have one ending: chrome's files are the least special.
from sgdlab.traces import parquet, delimited, npy, json_lines, live_run
from sgdlab.traces import kineto, jax_profiler, nccl_flight_recorder, chrome
from sgdlab.traces.options import Options
from sgdlab.traces.problems import BadTrace
from sgdlab.traces.read import read
from sgdlab.traces.recording import Recording

__all__ = [
    "BadTrace",
    "Options",
    "Recording",
    "chrome",
    "delimited",
    "jax_profiler",
    "json_lines",
    "kineto",
    "live_run",
    "nccl_flight_recorder",
    "npy",
    "parquet",
    "read",
]
