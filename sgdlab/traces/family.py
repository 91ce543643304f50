"""Formats of recorded run-times: their registry."""

from sgdlab.registry import Registry

TRACES = Registry(
    "trace",
    given={"path": "", "options": ""},
    # Where several have one ending, they are tried in this order: the files of chrome are the least special.
    modules=(
        "sgdlab.traces.parquet",
        "sgdlab.traces.delimited",
        "sgdlab.traces.npy",
        "sgdlab.traces.json_lines",
        "sgdlab.jobs.live_as_trace",
        "sgdlab.traces.kineto",
        "sgdlab.traces.jax_profiler",
        "sgdlab.traces.nccl_flight_recorder",
        "sgdlab.traces.chrome",
    ),
)
"""Formats of recorded run-times: `(*, path, options) -> Recording`; `options` is given to one that names it. Facts:
`endings`, those of its files' names; `recognises`, a function of the path, where the endings do not tell; `whole`,
whether `path` may be a directory or a pattern. By default those of this package take these, and one's own is called
for each file, and what it returns is joined, unless it recognises the directory itself."""
