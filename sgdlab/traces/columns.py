"""Which column of a table holds what, and in which unit: by its name, or as a person says."""

import dataclasses
import re
from collections.abc import Mapping, Sequence

from sgdlab.traces.options import SECONDS, Options
from sgdlab.traces.problems import BadTrace

PARTS = ("worker", "step", "duration", "node", "phase", "start")
"""What columns of a long table hold; the first three are necessary."""

NECESSARY = PARTS[:3]

OPERATIONS = ("dp_rank", "stage", "step", "optype", "duration")
"""Columns of a table of operations."""

_UNITS = {
    "s": ("s", "sec", "secs", "second", "seconds"),
    "ms": ("ms", "msec", "msecs", "millis", "millisecond", "milliseconds"),
    "us": ("us", "µs", "μs", "usec", "usecs", "micros", "microsecond", "microseconds"),
    "ns": ("ns", "nsec", "nsecs", "nanos", "nanosecond", "nanoseconds"),
}
_UNIT_OF = {word: unit for unit, words in _UNITS.items() for word in words}

# Our own name first, then names that say it, then names that may say it; a name of an earlier group is preferred.
_NAMES: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "worker": (
        ("worker",),
        ("rank", "global_rank", "world_rank", "worker_id", "worker_rank", "worker_name", "dp_rank", "process_index"),
        ("process", "process_id", "proc", "replica", "replica_id", "device", "device_id", "gpu", "gpu_id"),
        ("host", "hostname", "host_name", "node", "node_name", "node_id", "machine"),
    ),
    "step": (
        ("step",),
        ("iteration", "iter", "global_step", "global_iteration", "step_num", "step_id", "step_number", "train_step"),
        ("batch", "batch_idx", "batch_index", "batch_id", "it"),
    ),
    "duration": (
        ("duration",),
        ("compute", "compute_time", "compute_duration"),
        ("step_time", "step_duration", "iteration_time", "iter_time", "batch_time", "time_per_step", "time_per_iter",
         "time_per_iteration", "runtime", "run_time", "elapsed", "elapsed_time", "dur"),
        ("time", "wall_time", "latency", ""),  # the last is a unit alone: `ms`, `seconds`
    ),
    "node": (("node",), ("host", "hostname", "host_name", "node_name", "node_id", "node_rank", "machine")),
    "phase": (("phase",), ("op", "operation", "event", "op_name", "event_name")),
    "start": (
        ("start",),
        ("began", "begin", "started", "start_ts", "start_time", "timestamp", "time_stamp", "ts", "datetime"),
    ),
}  # fmt: skip
_CERTAIN = 2
"""So many groups of names are such that no worker of a wide table has them."""

_EXAMPLE = "--columns=WORKER,STEP,DURATION"


@dataclasses.dataclass(frozen=True)
class Layout:
    """What the columns of a table hold.

    Attributes:
      kind: "long", "wide" or "operations".
      columns: part -> the column's name; of a wide table `step` and `start`, if it has them.
      workers: of a wide table, the columns that hold run-times.
      unit: of the durations.
      guessed: parts that were recognised by another name than ours, and "unit" if the unit was recognised.
    """

    kind: str
    columns: Mapping[str, str] = dataclasses.field(default_factory=dict)
    workers: tuple[str, ...] = ()
    unit: str = "s"
    guessed: frozenset[str] = frozenset()

    @property
    def per_second(self) -> int:
        """How many units of the durations are a second: durations are divided by it."""
        return SECONDS[self.unit]

    @property
    def notes(self) -> tuple[str, ...]:
        """What was guessed, as a sentence, if anything was."""
        notes = [
            f"column {name!r} was read as the {part}" for part, name in self.columns.items() if part in self.guessed
        ]
        if "unit" in self.guessed:
            notes.append(f"the durations were read as {_UNITS[self.unit][-1]}")
        return ("; ".join(notes),) if notes else ()

    def without(self, part: str) -> "Layout":
        """The same, with a column that is not read."""
        return dataclasses.replace(self, columns={key: name for key, name in self.columns.items() if key != part})


def layout(header: Sequence[str], options: Options, *, of_worker: bool = False) -> Layout:
    """Recognises the columns of a table.

    Args:
      header: names of the columns.
      options: what a person says of them.
      of_worker: whether a table without a column of workers is that of a single one, as of a file for each.

    Raises:
      BadTrace: where columns are missing, or two could be meant; it names them.

    Example:
      >>> found = layout(["rank", "iteration", "time_ms", "loss"], Options())
      >>> found.kind, dict(found.columns), found.unit
      ('long', {'worker': 'rank', 'step': 'iteration', 'duration': 'time_ms'}, 'ms')
      >>> layout(["Step", "gpu0", "gpu1"], Options()).workers
      ('gpu0', 'gpu1')
    """
    said = _said(header, options)
    lower = {name.strip().lower(): name for name in header}
    if not {"worker", "duration"} & set(said) and all(name in lower for name in OPERATIONS):
        columns = {name: lower[name] for name in OPERATIONS}
        return Layout("operations", columns, unit=_unit(columns["duration"], options))
    groups = {part: _found(part, header, said) for part in PARTS}
    found = _chosen(groups, said, of_worker=of_worker)
    missing = [part for part in NECESSARY if part not in found and not (part == "worker" and of_worker)]
    if not missing:
        return _long(found, options, said)
    certain = [
        part for part in ("worker", "duration") if part in found and _is_certain(part, found[part], groups, said)
    ]
    if certain:
        raise BadTrace(_lacks(found, certain, missing, header))
    return _wide(header, found, groups, options, said)


def unit_of(name: str) -> str | None:
    """The unit that ends a column's name.

    Example:
      >>> [unit_of(name) for name in ("time_ms", "Step time (us)", "elapsedSeconds", "duration", "rank")]
      ['ms', 'us', 's', None, None]
    """
    words = _words(name)
    return _UNIT_OF.get(words[-1]) if words else None


def is_start(name: str) -> bool:
    """Whether a column of that name holds the times at which steps begin."""
    return any(_base(name) in names for names in _NAMES["start"])


def start_per_second(name: str, first: float, duration_per_second: int) -> int:
    """How many units of a column of starts are a second: by its name, or since 1970, or those of the durations.

    Args:
      name: of the column.
      first: a value of it.
      duration_per_second: of the durations.

    Example:
      >>> start_per_second("timestamp", 1.7e12, 1), start_per_second("start_us", 5.0, 1), start_per_second("ts", 5, 1)
      (1000, 1000000, 1)
    """
    if unit := unit_of(name):
        return SECONDS[unit]
    # A clock that counts from 1970 shows from 1e9 to 1e10 seconds for the next centuries.
    since_1970 = [scale for scale in SECONDS.values() if 1e9 <= first / scale < 1e10]
    return since_1970[0] if since_1970 else duration_per_second


def _words(name: str) -> list[str]:
    apart = re.sub(r"([a-z0-9])([A-Z])", r"\1 \2", name)
    return [word for word in re.split(r"[\s_\-./()\[\]]+", apart.lower()) if word]


def _base(name: str) -> str:
    """A column's name without its unit, words joined by underscores."""
    words = _words(name)
    return "_".join(words[:-1] if words and words[-1] in _UNIT_OF else words)


def _found(part: str, header: Sequence[str], said: Mapping[str, str | None]) -> tuple[int, list[str]]:
    """The first group of names of which columns have one, and these columns."""
    if part in said:
        return 0, [name for name in (said[part],) if name is not None]
    measured = part in ("duration", "start")  # `start_us` is a start, and `rank_s` no rank
    called = {name: _base(name) if measured else "_".join(_words(name)) for name in header if name not in said.values()}
    for group, names in enumerate(_NAMES[part]):
        if matching := [name for name, base in called.items() if base in names and _words(name)]:
            return group, matching
    return len(_NAMES[part]), []


def _is_certain(
    part: str, name: str, groups: Mapping[str, tuple[int, list[str]]], said: Mapping[str, str | None]
) -> bool:
    """Whether no worker of a wide table is called like a column."""
    if part in said or groups[part][0] < _CERTAIN:
        return True
    # A unit alone may name a worker (`us`), but not beside phases.
    return part == "duration" and (bool(_base(name)) or bool(groups["phase"][1]))


def _chosen(
    groups: Mapping[str, tuple[int, list[str]]], said: Mapping[str, str | None], *, of_worker: bool
) -> dict[str, str]:
    """Part -> the column that holds it.

    Raises:
      BadTrace: where the table is long and two columns could hold the same part.
    """
    groups = dict(groups)
    if of_worker and "worker" not in said and groups["worker"][0] == len(_NAMES["worker"]) - 1:
        groups["worker"] = (groups["worker"][0], [])  # each file is a worker's: a host is where it ran
    is_long = all(groups[part][1] for part in NECESSARY if part != "worker" or not of_worker)
    chosen: dict[str, str] = {}
    for part, (_, matching) in groups.items():
        names = [name for name in matching if name not in chosen.values()]
        if len(names) > 1 and is_long and part in (*NECESSARY, "phase"):
            both = " and ".join(repr(name) for name in names)
            raise BadTrace(f"columns {both} could be the {part}: name the right one, as in --columns={part}={names[0]}")
        if len(names) == 1 or (names and part != "start"):
            chosen[part] = names[0]
    return chosen


def _long(found: Mapping[str, str], options: Options, said: Mapping[str, str | None]) -> Layout:
    unit = _unit(found["duration"], options)
    return Layout("long", dict(found), unit=unit, guessed=_guessed(found, said, unit, options))


def _guessed(found: Mapping[str, str], said: Mapping[str, str | None], unit: str, options: Options) -> frozenset[str]:
    """The parts that neither a person nor our own name tells."""
    parts = {part for part, name in found.items() if part not in said and name.lower() != part}
    return frozenset(parts | ({"unit"} if options.unit is None and unit != "s" else set()))


def _wide(
    header: Sequence[str],
    found: Mapping[str, str],
    groups: Mapping[str, tuple[int, list[str]]],
    options: Options,
    said: Mapping[str, str | None],
) -> Layout:
    columns = {
        part: found[part]
        for part in ("step", "start")
        if part in found and _is_certain(part, found[part], groups, said)
    }
    workers = tuple(name for name in header if name not in columns.values())
    if not workers:
        raise BadTrace("must have a column for each worker")
    units = {unit_of(name) for name in workers}
    named = units.pop() if len(units) == 1 else None
    unit = options.unit or named or "s"
    return Layout("wide", columns, workers, unit, _guessed(columns, said, unit, options))


def _unit(column: str, options: Options) -> str:
    return options.unit or unit_of(column) or "s"


def _lacks(found: Mapping[str, str], certain: Sequence[str], missing: Sequence[str], header: Sequence[str]) -> str:
    column = found[certain[-1] if "worker" in missing else certain[0]]
    columns = ", ".join(header)
    return (
        f"column {column!r} must come with {', '.join(missing)}: {', '.join(NECESSARY)} make a long table. The columns "
        f"are {columns}; {_EXAMPLE} names them"
    )


def _said(header: Sequence[str], options: Options) -> dict[str, str | None]:
    """Part -> the column that `options.columns` names for it, or None where it is to be ignored."""
    known = {name.strip().lower(): name for name in header}
    said: dict[str, str | None] = {}
    for position, item in enumerate(options.columns):
        part, equals, name = (word.strip() for word in item.partition("="))
        if not equals or part not in PARTS:
            if position >= len(NECESSARY) or equals:
                raise BadTrace(
                    f"--columns={','.join(options.columns)} must be the names of the columns of "
                    f"{', '.join(NECESSARY)}, or part=name, where part is one of {', '.join(PARTS)}"
                )
            part, name = NECESSARY[position], item.strip()
        if name and name.lower() not in known:
            raise BadTrace(f"--columns={','.join(options.columns)} names {name!r}; the columns are {', '.join(header)}")
        said[part] = known[name.lower()] if name else None
    return said
