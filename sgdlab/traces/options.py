"""Options of reading a file of recorded compute times, for what cannot be recognised."""

import dataclasses

from sgdlab import arguments

SECONDS = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
"""Units of time, and how many of them are a second."""


@dataclasses.dataclass(frozen=True)
class Options:
    """Set how a file is read.

    Attributes:
      format: name of the format, a part of the registry `TRACES`; None: recognised.
      columns: which columns to read: the worker's, the step's and the duration's name in this order, or
        `part=name`, where part is one of `sgdlab.traces.columns.PARTS`, as in `("worker=rank", "duration=time_ms")`;
        `workers=rank*` those of a table with a column for each worker.
      unit: of the durations, "s", "ms", "us" or "ns"; None: by the column's name (`time_ms`), or else seconds.
      skip_bad_rows: whether rows that cannot be used are left out and counted in a note, instead of an error.
      workers_per_node: K, so that workers 0 to K - 1 share a machine, and so on; None: as the file says.

    Raises:
      ValueError: where an option is impossible whatever the file.

    Example:
      >>> Options(unit="minutes")
      Traceback (most recent call last):
      ...
      ValueError: unit='minutes' must be one of s, ms, us, ns
    """

    format: str | None = None
    columns: tuple[str, ...] = ()
    unit: str | None = None
    skip_bad_rows: bool = False
    workers_per_node: int | None = None

    def __post_init__(self) -> None:
        if self.unit is not None:
            arguments.one_of("unit", self.unit, tuple(SECONDS))
        if self.workers_per_node is not None:
            arguments.whole("workers_per_node", self.workers_per_node)
