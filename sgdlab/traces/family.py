"""Formats of recorded compute times: their registry."""

import dataclasses
import pathlib
from collections.abc import Callable

from sgdlab.registry import Facts, Registry


@dataclasses.dataclass(frozen=True, kw_only=True)
class TraceFacts(Facts):
    """Holds what `sgdlab.traces.read` asks of a format.

    Attributes:
      endings: of its files' names.
      recognises: says of a path whether it has the format, where the endings do not tell.
      whole: whether the path may be a directory or a pattern. None: formats of this package take these; a reader of a
        user's own is called for each file, and what it returns is joined, unless it recognises the directory itself.
    """

    endings: tuple[str, ...] = ()
    recognises: Callable[[pathlib.Path], bool] | None = None
    whole: bool | None = None


TRACES = Registry(
    "trace",
    facts=TraceFacts,
    given={"path": "", "options": ""},
    # Where several have one ending, they are tried in this order: the files of chrome are the least special.
    modules=(
        "sgdlab.traces.tables",
        "sgdlab.runs.live_as_trace",
        "sgdlab.traces.kineto",
        "sgdlab.traces.jax_profiler",
        "sgdlab.traces.nccl_flight_recorder",
        "sgdlab.traces.chrome",
    ),
)
"""Formats of recorded compute times: `(*, path, options) -> Recording`; `options` is given to one that names it."""
