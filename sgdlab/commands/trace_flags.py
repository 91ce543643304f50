"""Flags of the commands that read recorded run-times: which file, and how it is to be read."""

from collections.abc import Sequence

from absl import flags

from sgdlab.errors import UsageError, said_of
from sgdlab.traces.options import SECONDS, Options

READING = ("columns", "skip_bad_rows", "trace_format", "unit", "workers_per_node")
"""Those that tell how a trace is read: --help leaves them to --help=all where a trace is one of several sources."""

TRAINING = ("data.kind", "network.kind", "optimizer.learning_rate")
"""Entries of the configuration that only a training needs, which commands that draw schedules do not show first."""


def define() -> None:
    """Defines them: --trace, --recording, --trace_format, --columns, --unit, --skip_bad_rows, --workers_per_node."""
    flags.DEFINE_string("trace", None, "File of recorded run-times, or a directory or glob of one file a worker.")
    flags.DEFINE_string("recording", None, "recording.npz of a run of `sgdlab live`, in the place of a trace.")
    flags.DEFINE_string("trace_format", None, "Format of the trace; by default it is recognised.")
    flags.DEFINE_list(
        "columns",
        [],
        "Columns of the trace: worker, step and duration in this order, as rank,iteration,time_ms; or by name, as "
        "worker=rank,duration=time_ms,node=host,phase=op; of a table with a column for each worker, workers=rank*.",
    )
    flags.DEFINE_enum("unit", None, list(SECONDS), "Unit of the durations; by default as the column's name says.")
    flags.DEFINE_bool("skip_bad_rows", False, "Leave out rows that cannot be used, and count them.")
    flags.DEFINE_integer("workers_per_node", None, "So many consecutive workers share a machine.", lower_bound=1)


def options() -> Options:
    """Return what the flags say of how the trace is read."""
    given = flags.FLAGS
    with said_of("--"):
        return Options(
            format=given.trace_format,
            columns=tuple(given.columns),
            unit=given.unit,
            skip_bad_rows=given.skip_bad_rows,
            workers_per_node=given.workers_per_node,
        )


def path(argv: Sequence[str]) -> str | None:
    """The trace's path: that of --trace, or the argument that is no flag; None where --recording is given instead.

    Raises:
      UsageError: unless there is exactly one trace or recording.
    """
    given = flags.FLAGS
    named = {f"--trace={given.trace}": given.trace, f"--recording={given.recording}": given.recording}
    named |= {argument: argument for argument in argv[1:]}
    found = [flag for flag, value in named.items() if value is not None]
    if not found:
        raise UsageError(
            "--trace must name a file of recorded run-times, as in --trace=trace.csv; or --recording a run of `sgdlab "
            "live`, as in --recording=runs/live/recording.npz"
        )
    if len(found) > 1:
        raise UsageError(f"{found[1]} must be left out beside {found[0]}: there must be one trace")
    return None if found[0] == f"--recording={given.recording}" else named[found[0]]
