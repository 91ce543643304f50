"""Tells the parts and units of a table by the names of its columns, or as a person says; refuses ids as workers."""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from sgdlab.traces import column_names
from sgdlab.traces.column_names import CERTAIN, NAMES, TIME_AS_STEP, UNITS, WITHIN_NODE, base, unit_of, words
from sgdlab.traces.options import SECONDS, Options
from sgdlab.traces.problems import BadTrace

PARTS = ("worker", "step", "duration", "node", "phase", "start", "epoch", "job")
"""Contents of the columns of a long table; the first three are necessary."""

NECESSARY = PARTS[:3]

OPERATIONS = ("dp_rank", "stage", "step", "optype", "duration")
"""Columns of a table of operations."""

OF_OPERATIONS = ("start_ts", "seq_id", "mc", "gmc", "rank")
"""Its optional columns: begins, numbers, chunks of a stage and of the model, and devices."""

RANKS = ("dp_rank", "stage", "rank")
"""Those of them that may be names, such as "dp3"."""

_WORKERS = "workers"
"""Name in `workers=PATTERN`, by which a wide table is described."""


@dataclasses.dataclass(frozen=True)
class ColumnLayout:
    """Says what the columns of a table hold.

    Attributes:
      kind: "long", "wide" or "operations".
      columns: part -> the column's name; of a wide table `step` and `start`, if it has them.
      workers: of a wide table, the columns that hold compute times.
      unit: of the durations.
      guessed: parts that were recognised by another name than ours, "unit" if the unit was recognised, and "workers"
        if columns count as workers only because nothing else is known of them.
      parts: of a long table with several columns of times, what they make; `columns["duration"]` is the first then.
      remarks: what else was decided, in sentences.
      local: column that counts the workers of a machine; it is not read, as each file is a worker's.
    """

    kind: str
    columns: Mapping[str, str] = dataclasses.field(default_factory=dict)
    workers: tuple[str, ...] = ()
    unit: str = "s"
    guessed: frozenset[str] = frozenset()
    parts: column_names.TimeColumns | None = None
    remarks: tuple[str, ...] = ()
    local: str | None = None

    @property
    def times(self) -> tuple[str, ...]:
        """The columns of times that a long table is made of."""
        if self.parts is None:
            return (self.columns["duration"],) if "duration" in self.columns else ()
        return tuple(dict.fromkeys((*self.parts.added, *self.parts.subtracted, *self.parts.communication)))

    @property
    def needed(self) -> dict[str, str]:
        """Column -> what its cells are: "name", "number", "begin" (number or date), or "start" (one, if all are)."""
        those = lambda kind, *parts: {self.columns[part]: kind for part in parts if part in self.columns}
        return {
            **those("name", "worker", "phase", "node", "optype", "epoch", "job", *RANKS),
            **those("number", "step", "seq_id", "mc", "gmc"),
            **dict.fromkeys((*self.times, *self.workers), "number"),
            **those("begin", "start_ts"),
            **those("start", "start"),
        }

    @property
    def per_second(self) -> int:
        """Return the number of units of the durations in a second, by which durations are divided."""
        return SECONDS[self.unit]

    @property
    def notes(self) -> tuple[str, ...]:
        """Return what was guessed, as a sentence, if anything was."""
        notes = [
            f"column {name!r} was read as the {part}" for part, name in self.columns.items() if part in self.guessed
        ]
        if "unit" in self.guessed:
            notes.append(f"the durations were read as {UNITS[self.unit][-1]}")
        return (*(("; ".join(notes),) if notes else ()), *self.remarks)

    @classmethod
    def without_names(cls, count: int, options: Options, *remarks: str) -> "ColumnLayout":
        """Return that of columns without names, which are workers."""
        if options.columns:
            raise BadTrace(f"--columns={','.join(options.columns)} cannot be found: its columns have no names")
        return cls("wide", workers=tuple(map(str, range(count))), unit=options.unit or "s", remarks=remarks)

    def without(self, part: str) -> "ColumnLayout":
        """Return the same, with a column that is not read."""
        return dataclasses.replace(self, columns={key: name for key, name in self.columns.items() if key != part})


def layout(header: Sequence[str], options: Options, *, of_worker: bool = False) -> ColumnLayout:
    """Recognises the columns of a table; with `of_worker`, one without a column of workers is that of a single one.

    Raises:
      BadTrace: where columns are missing, or two could be meant; it names them.

    Example:
      >>> found = layout(["rank", "iteration", "time_ms", "loss"], Options())
      >>> found.kind, dict(found.columns), found.unit
      ('long', {'worker': 'rank', 'step': 'iteration', 'duration': 'time_ms'}, 'ms')
      >>> layout(["Step", "gpu0", "gpu1"], Options()).workers
      ('gpu0', 'gpu1')
    """
    patterns = [
        item.partition("=")[2].strip() for item in options.columns if item.partition("=")[0].strip() == _WORKERS
    ]
    said = _said(header, options)
    header = [name for name in header if name != column_names.INDEX or name in said.values()]
    lower = {name.strip().lower(): name for name in header}
    by_rank = "stage" not in lower and "pp_rank" in lower
    if by_rank:
        lower["stage"] = lower["pp_rank"]
    if not {"worker", "duration"} & set(said) and all(name in lower for name in OPERATIONS):
        columns = {name: lower[name] for name in (*OPERATIONS, *OF_OPERATIONS) if name in lower}
        guessed = frozenset({"stage"} if by_rank else ())
        return ColumnLayout("operations", columns, unit=_unit(columns["duration"], options), guessed=guessed)
    groups = {part: _found(part, header, said) for part in PARTS}
    found = _chosen(groups, said, of_worker=of_worker)
    times = None if patterns else _times(header, found, said, of_worker=of_worker)
    if times is not None:
        found["duration"] = times.added[0]
    missing = [part for part in NECESSARY if part not in found and not (part == "worker" and of_worker)]
    if not missing and not patterns:
        group, matching = groups["worker"]
        local = matching[0] if "worker" not in found and group == WITHIN_NODE and matching else None
        return dataclasses.replace(_long(found, options, said, times), local=local)
    sure = {
        part: name
        for part, name in found.items()
        if part in ("worker", "step", "duration", "start") and _is_certain(part, name, groups, said)
    }
    certain = [sure[part] for part in ("worker", "duration") if part in sure]
    if certain and not patterns and ("worker" in sure or not column_names.alike(header)):
        column = certain[-1] if "worker" in missing else certain[0]
        raise BadTrace(
            f"column {column!r} must come with {', '.join(missing)}: {', '.join(NECESSARY)} make a long table. The "
            f"columns are {', '.join(header)}; --columns=WORKER,STEP,DURATION names them. In a table with a column for "
            "each worker, --columns=workers=rank* names these"
        )
    columns = {part: sure[part] for part in ("step", "start") if part in sure}
    return _wide(header, columns, patterns, options, said)


def _times(
    header: Sequence[str], found: Mapping[str, str], said: Mapping[str, str | None], *, of_worker: bool
) -> column_names.TimeColumns | None:
    """Return what several columns of times make, in a long table without a column of phases."""
    if "duration" in said or "phase" in found or "step" not in found or not (of_worker or "worker" in found):
        return None
    others = {name for part, name in found.items() if part != "duration"} | set(said.values())
    return column_names.split_times([name for name in header if name not in others], found.get("duration"))


def _found(part: str, header: Sequence[str], said: Mapping[str, str | None]) -> tuple[int, list[str]]:
    """The first group of names of which columns have one, and these columns."""
    if part in said:
        return 0, [name for name in (said[part],) if name is not None]
    measured = part in ("duration", "start")  # `start_us` is a start, and `rank_s` no rank
    called = {name: base(name) if measured else "_".join(words(name)) for name in header if name not in said.values()}
    for group, names in enumerate(NAMES[part]):
        if matching := [name for name, bare in called.items() if bare in names and words(name)]:
            return group, matching
    return len(NAMES[part]), []


def _is_certain(
    part: str, name: str, groups: Mapping[str, tuple[int, list[str]]], said: Mapping[str, str | None]
) -> bool:
    """Return whether no worker of a wide table is called like a column."""
    # A unit alone may name a worker (`us`), but not beside phases.
    is_named = part == "duration" and (bool(base(name)) or bool(groups["phase"][1]))
    return part in said or groups[part][0] < CERTAIN[part] or is_named


def _chosen(
    groups: Mapping[str, tuple[int, list[str]]], said: Mapping[str, str | None], *, of_worker: bool
) -> dict[str, str]:
    """Part -> the column that holds it."""
    groups = dict(groups)
    if of_worker and "worker" not in said and groups["worker"][0] >= WITHIN_NODE:
        groups["worker"] = (groups["worker"][0], [])  # each file is a worker's: a host is where it ran
    times = groups["duration"][1]
    if groups["step"][0] == TIME_AS_STEP and not (
        (of_worker or groups["worker"][1]) and set(times) - {*groups["step"][1]}
    ):
        groups["step"] = (TIME_AS_STEP, [])  # it is a duration
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


def _long(
    found: Mapping[str, str], options: Options, said: Mapping[str, str | None], times: column_names.TimeColumns | None
) -> ColumnLayout:
    unit = _unit(found["duration"], options)
    guessed = _guessed(found, said, unit, options)
    if times is None:
        return ColumnLayout("long", dict(found), unit=unit, guessed=guessed)
    others = [name for name in times.communication + times.added if _unit(name, options) != unit]
    if others:
        both = f"{found['duration']!r} and {others[0]!r}"
        raise BadTrace(f"columns {both} must be in one unit: --unit=ms says that they are")
    remarks = (times.remark,)
    return ColumnLayout("long", found, unit=unit, guessed=guessed - {"duration"}, parts=times, remarks=remarks)


def _guessed(found: Mapping[str, str], said: Mapping[str, str | None], unit: str, options: Options) -> frozenset[str]:
    """The parts that neither a person nor our own name tells."""
    parts = {part for part, name in found.items() if part not in said and name.lower() != part}
    return frozenset(parts | ({"unit"} if options.unit is None and unit != "s" else set()))


def _wide(
    header: Sequence[str],
    columns: Mapping[str, str],
    patterns: Sequence[str],
    options: Options,
    said: Mapping[str, str | None],
) -> ColumnLayout:
    workers, remark = column_names.workers_among([name for name in header if name not in columns.values()], patterns)
    units = {_unit(name, options) for name in workers}
    unit = units.pop() if len(units) == 1 else "s"
    guessed = _guessed(columns, said, unit, options)
    guessed |= {"workers"} if not patterns and not column_names.alike(workers) else set()
    return ColumnLayout("wide", columns, workers, unit, guessed, remarks=(remark,) if remark else ())


def _unit(column: str, options: Options) -> str:
    return options.unit or unit_of(column) or "s"


def _said(header: Sequence[str], options: Options) -> dict[str, str | None]:
    """Part -> the column that `options.columns` names for it, or None where it is to be ignored."""
    known = {name.strip().lower(): name for name in header}
    said: dict[str, str | None] = {}
    for position, item in enumerate(options.columns):
        part, equals, name = (word.strip() for word in item.partition("="))
        if part == _WORKERS:
            continue
        if not equals or part not in PARTS:
            if position >= len(NECESSARY) or equals:
                raise BadTrace(
                    f"--columns={','.join(options.columns)} must be the names of the columns of "
                    f"{', '.join(NECESSARY)}, or part=name, where part is one of {', '.join(PARTS)}; or workers=rank*"
                )
            part, name = NECESSARY[position], item.strip()
        if name and name.lower() not in known:
            raise BadTrace(f"--columns={','.join(options.columns)} names {name!r}; the columns are {', '.join(header)}")
        said[part] = known[name.lower()] if name else None
    return said


_TELL = 8
"""From so many numbers on, a column is known to count."""


def check_workers(layout: ColumnLayout, numbers: Mapping[str, np.ndarray]) -> None:
    """Refuses a wide table whose columns are ids or steps, such as a long one with names that are not recognised.

    A column counts if it holds whole numbers where just one column has fractions; or if it rises by the same number,
    or returns to its least one, with every change. Columns of workers that a person named, or that are alike but for
    their numbers, are not looked at.

    Example:
      >>> rows = {"trainer": [1, 2] * 4, "tick": [1, 1, 2, 2, 3, 3, 4, 4], "took": [0.5, 0.25] * 4}
      >>> found = ColumnLayout("wide", workers=tuple(rows), guessed=frozenset({"workers"}))
      >>> check_workers(found, {name: np.array(values, float) for name, values in rows.items()})
      Traceback (most recent call last):
      ...
      sgdlab.traces.problems.BadTrace: columns 'trainer' and 'tick' only count, and are no compute times of workers: the
      columns were not recognised. --columns=trainer,tick,took names those of the worker, the step and the duration;
      --columns='workers=rank*' those of workers
    """
    if "workers" not in layout.guessed:
        return
    found = {name: numbers[name][np.isfinite(numbers[name])] for name in layout.workers}
    known = {name: values for name, values in found.items() if values.size >= _TELL}
    whole = {name: np.unique(values).size for name, values in known.items() if (values == np.floor(values)).all()}
    beside = len(whole) == len(known) - 1
    counting = [name for name, size in whole.items() if (size > 1 if beside else _counts(known[name], size))]
    others = [name for name in known if name not in counting]
    if not counting or not others:
        return
    each = " and ".join(map(repr, counting))
    many = f"columns {each} only count, and are" if len(counting) > 1 else f"column {each} only counts, and holds"
    rises = len(counting) == 1 and bool((np.diff(known[counting[0]]) > 0).all())
    if rises and len(others) > 1 and "step" not in layout.columns:
        right = f"--columns=step={counting[0]} names that of the step"
    else:
        ids = sorted(counting, key=lambda name: (any(base(name) in names for names in NAMES["step"]), whole[name]))
        step = layout.columns.get("step") or ids.pop()
        worker = [*ids, *(name for name in layout.workers if name not in known), "WORKER"][0]
        right = f"--columns={worker},{step},{others[0] if len(others) == 1 else 'DURATION'}"
        right += " names those of the worker, the step and the duration"
    raise BadTrace(
        f"{many} no compute times of workers: the columns were not recognised. {right}; --columns='workers=rank*' "
        "those of workers"
    )


def _counts(values: np.ndarray, distinct: int) -> bool:
    change = np.diff(values)
    up, back = change[change > 0], values[1:][change < 0]
    return distinct > 2 and bool((up == up[:1]).all() and (back == values.min()).all())
