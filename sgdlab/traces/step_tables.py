"""Long tables, of a row for each worker and step or each phase of it; and wide ones, of a column for each worker."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from sgdlab.report.words import some
from sgdlab.traces import phases as kinds
from sgdlab.traces import stages
from sgdlab.traces.cells import IMPOSSIBLE, Cells, Names, are_dates, indexed, ordered, seconds_since
from sgdlab.traces.column_names import base, start_per_second
from sgdlab.traces.columns import ColumnLayout, check_workers
from sgdlab.traces.problems import BadTrace, CheckedRows
from sgdlab.traces.recording import Recording

WHOLE = "compute"
"""The phase of compute times whose parts are unknown, beside phases of communication."""

_MOST_OF_STEP = 0.9
"""A phase called as the whole step is that if it takes at least so much of what the others take together."""

_MOST_EMPTY = 100
"""So many cells a row, at most: with more, a column was mistaken for that of the steps or of the workers."""


def build_long(cells: Cells, *, skip: bool) -> Recording:
    """Build the recording of a long table: see `sgdlab.traces.tables.build`."""
    layout, columns, rows = cells.layout, cells.layout.columns, cells.rows
    tell_apart(cells)
    notes = [*layout.notes, *cells.said]
    step = cells.wholes(columns["step"])
    workers, worker = ordered(cells.named(columns["worker"]))
    named = cells.named(columns["phase"]) if "phase" in columns else Names((), np.zeros(0, np.int64))
    phases, phase = named.values, named.codes if "phase" in columns else None  # as they come in a step
    table = _Table(workers, worker, step, own_times(cells), phases, phase)
    left_out = table.wholes(notes)
    left_out[_find_repeated(rows, table, np.flatnonzero(~rows.bad & ~left_out), columns["step"], notes)] = True
    if phase is not None:
        _find_impossible_sums(rows, table, np.flatnonzero(~rows.bad & ~left_out), columns["duration"])
    notes += rows.left_out(skip=skip)
    kept = np.flatnonzero(~rows.bad & ~left_out)
    if not kept.size:
        raise BadTrace("must have compute times; no row can be used")
    nodes = _nodes(cells.names[columns["node"]], kept, table, notes) if "node" in columns else ()
    table = table.at(kept)
    used = np.bincount(table.worker, minlength=len(workers)) > 0
    if lost := [name for name, is_used in zip(workers, used.tolist(), strict=True) if not is_used]:
        notes.append(f"workers without any row that can be used were left out: {some(lost)}")
        table = dataclasses.replace(table, workers=_those(workers, used), worker=(np.cumsum(used) - 1)[table.worker])
    steps, place = table.places()
    fields = table.times(steps, place, layout.per_second)
    if layout.parts is not None:
        fields |= _parts(cells, kept, table, steps, place)
    elif taken := fields.get("communication"):
        notes.append(f"read as communication: {', '.join(map(repr, taken))}")
    named_stages = phases or [base(name) for name in layout.times]
    order = stages.in_usual_order(named_stages)
    if (start := columns.get("start")) in cells.numbers:
        starts = cells.numbers[start][kept]
        fields["began"] = _began(starts, place // len(table.workers), steps.size, layout, notes)
        if table.phase is not None:
            order = _by_start(starts, place, table.phase, phases)
    elif order != list(named_stages):
        notes.append(f"stages are in alphabetical order; the usual one was taken: {', '.join(order)}")
    whole = Recording(**fields, steps=steps, workers=table.workers, nodes=_those(nodes, used), notes=tuple(notes))
    return stages.without_waits(whole, order)


def _those(names: Sequence[str], used: np.ndarray) -> tuple[str, ...]:
    return tuple(name for name, is_used in zip(names, used.tolist(), strict=False) if is_used)


@dataclasses.dataclass
class _Table:
    """Rows, and the indices of the worker and the phase of each; `phase` is None without a column of phases."""

    workers: tuple[str, ...]
    worker: np.ndarray
    step: np.ndarray
    duration: np.ndarray
    phases: tuple[str, ...]
    phase: np.ndarray | None

    def wholes(self, notes: list[str]) -> np.ndarray:
        """bool[R], rows of phases that are the whole step, of which other phases are parts."""
        own = [name for name in self.phases if not kinds.is_communication(name)]
        whole = [name for name in own if kinds.is_total(name)]
        if self.phase is not None and whole and len(whole) < len(own):  # a shorter one is the optimizer's
            rows = self.phase >= 0
            seconds = np.bincount(self.phase[rows], np.nan_to_num(self.duration[rows]), len(self.phases))
            parts = sum(float(seconds[self.phases.index(name)]) for name in own if name not in whole)
            whole = [name for name in whole if seconds[self.phases.index(name)] >= _MOST_OF_STEP * parts]
        if self.phase is None or not whole or len(whole) == len(own):
            return np.zeros(self.worker.size, bool)
        named = " and ".join(map(repr, whole))
        notes.append(f"phase {named} was left out: it is the whole step, of which the others are parts")
        return np.isin(self.phase, [self.phases.index(name) for name in whole])

    def at(self, rows: np.ndarray) -> "_Table":
        """Some of the rows."""
        if rows.size == self.worker.size:
            return self
        columns = {name: getattr(self, name)[rows] for name in ("worker", "step", "duration")}
        return dataclasses.replace(self, **columns, phase=None if self.phase is None else self.phase[rows])

    def places(self) -> tuple[np.ndarray, np.ndarray]:
        """The steps, and each row's place among steps x workers."""
        steps, step = indexed(self.step)
        if steps.size * len(self.workers) > _MOST_EMPTY * max(self.worker.size, 100_000):
            raise BadTrace(
                f"has {self.worker.size:,} rows of {steps.size:,} steps and {len(self.workers):,} workers, so that "
                "nearly all compute times are missing: --columns=WORKER,STEP,DURATION names the right columns"
            )
        step *= len(self.workers)
        step += self.worker
        return steps, step

    def spread(self, steps: np.ndarray, place: np.ndarray, values: np.ndarray) -> np.ndarray:
        """float64[T, N], values at their places, and NaN elsewhere."""
        whole = np.full((steps.size, len(self.workers)), np.nan)
        whole.ravel()[place] = values
        return whole

    def times(self, steps: np.ndarray, place: np.ndarray, per_second: int) -> dict[str, Any]:
        """The fields of a recording that hold times."""
        seconds = self.duration if per_second == 1 else self.duration / per_second
        if self.phase is None:
            return {"runtimes": self.spread(steps, place, seconds)}
        own, others = {}, {}
        began = np.zeros((steps.size, len(self.workers)), bool)  # whether a worker has work of its own in a step
        for index, name in enumerate(self.phases):
            rows = np.flatnonzero(self.phase == index)
            if rows.size and kinds.is_communication(name):
                others[name] = self.spread(steps, place[rows], seconds[rows])
            elif rows.size:
                own[name] = self.spread(steps, place[rows], seconds[rows]), rows
                began.ravel()[place[rows]] = True
        if not own:
            raise BadTrace(
                f"must have a phase of a worker's own work; there is only communication: {', '.join(others)}"
            )
        runtimes = np.where(began, 0.0, np.nan)
        for times, rows in own.values():
            absent = began.copy()
            absent.ravel()[place[rows]] = False
            times[absent] = 0.0
            runtimes += times  # NaN stays NaN: a step with an unknown phase is unknown
        parts = {} if list(own) == [WHOLE] else {name: times for name, (times, _) in own.items()}
        return {"runtimes": runtimes, "phases": parts, "communication": others}


def own_times(cells: Cells) -> np.ndarray:
    """Return float64[R], the time of each row, in units of the durations; rows in which it is impossible are bad."""
    columns, parts = cells.layout.columns, cells.layout.parts
    if parts is None:
        return cells.durations(columns["duration"], zero="phase" in columns)
    for name in cells.layout.times:
        cells.durations(name)
    name = " - ".join([" + ".join(parts.added), *parts.subtracted])
    added, less = (np.sum([cells.numbers[each] for each in names], axis=0) for names in (parts.added, parts.subtracted))
    cells.numbers[name] = added - less
    return cells.durations(name, zero=False)


def _parts(cells: Cells, kept: np.ndarray, table: _Table, steps: np.ndarray, place: np.ndarray) -> dict[str, Any]:
    """The fields of a recording that several columns of times are, beside the compute times."""
    own = np.isfinite(table.duration)

    def times(names: Sequence[str], known: np.ndarray | bool) -> dict[str, np.ndarray]:
        parts = {base(name): cells.numbers[name][kept] / cells.layout.per_second for name in names}
        return {name: table.spread(steps, place, np.where(known, part, np.nan)) for name, part in parts.items()}

    # pyrefly: ignore[missing-attribute]  # there are parts
    added, communication = cells.layout.parts.added, cells.layout.parts.communication
    return {"phases": times(added, own) if len(added) > 1 else {}, "communication": times(communication, True)}


def _find_repeated(rows: CheckedRows, table: _Table, kept: np.ndarray, column: str, notes: list[str]) -> np.ndarray:
    """Mark rows of a worker's step (and phase) that has one already, and return those that merely repeat a time.

    Of phases, a second time that is the same may be that of another micro-batch: such rows are marked too.
    """
    part = table.at(kept)
    _, place = part.places()
    if part.phase is not None:
        place = place * len(table.phases) + part.phase
    in_order = np.sort(place)
    repeated = in_order[1:][in_order[1:] == in_order[:-1]]
    if not repeated.size:
        return repeated
    suspects = np.flatnonzero(np.isin(place, repeated))
    _, first, number = np.unique(place[suspects], return_index=True, return_inverse=True)
    later, before = np.delete(kept[suspects], first), np.delete(kept[suspects[first[number]]], first)
    now, then = table.duration[later], table.duration[before]
    same = (now == then) | (np.isnan(now) & np.isnan(then))
    earlier = dict(zip(later.tolist(), before.tolist(), strict=True))

    def copied(row: int) -> str:
        return f"{rows.name(row)} is the same as {rows.name(earlier[row])}: delete one"

    def second(row: int) -> str:
        worker, both = table.workers[table.worker[row]], f"({rows.both(earlier[row], row)})"
        what, cure = "compute times", "delete one, or a column `phase` tells parts apart"
        if table.phase is not None:
            what, cure = f"times of phase {table.phases[table.phase[row]]!r}", "delete one"
        return f"worker {worker} has two {what} in {column} {table.step[row]:.0f} {both}: {cure}"

    rows.add("second compute times of a step, of which the first is kept", later[~same], second)
    if table.phase is not None:
        rows.add("repeated rows", later[same], copied)
    copies = later[same & (table.phase is None)]
    if copies.size:
        one = "1 row that is the same as another was"
        notes.append(
            f"{one if copies.size == 1 else f'{copies.size:,} rows that are the same as others were'} left out"
        )
    return copies


def _find_impossible_sums(rows: CheckedRows, table: _Table, kept: np.ndarray, column: str) -> None:
    """Marks rows of a worker's step whose own work adds up to nothing, or to more than a number can hold."""
    own = [index for index, name in enumerate(table.phases) if not kinds.is_communication(name)]
    kept = kept[np.isin(table.phase[kept], own)]  # pyrefly: ignore[unsupported-operation]  # there are phases
    if not kept.size:
        return
    part = table.at(kept)
    _, place = part.places()
    with np.errstate(over="ignore"):
        total = np.bincount(place, weights=part.duration)[place]
    bad = np.flatnonzero(~(np.isnan(total) | (np.isfinite(total) & (total > 0))))
    sums = dict(zip(kept[bad].tolist(), total[bad].tolist(), strict=True))
    rows.add(
        "compute times that are not positive and finite",
        kept[bad],
        lambda row: f"{rows.name(row)}, column {column!r} adds up to {sums[row]:g}; {IMPOSSIBLE}",
    )


def _nodes(node: Names, kept: np.ndarray, table: _Table, notes: list[str]) -> tuple[str, ...]:
    """The node of each worker: that of its last row that names one."""
    kept = kept[node.codes[kept] >= 0]
    if not kept.size:
        return ()
    worker, codes = table.worker[kept], node.codes[kept]
    code = np.full(len(table.workers), -1)
    code[worker] = codes
    if moved := [table.workers[index] for index in np.unique(worker[code[worker] != codes])]:
        notes.append(f"workers that were on several nodes count as on their last: {some(moved)}")
    return tuple(node.values[index] if index >= 0 else "" for index in code.tolist())


def build_wide(cells: Cells, *, skip: bool) -> Recording:
    """Build the recording of a wide table: see `sgdlab.traces.tables.build`."""
    check_workers(cells.layout, cells.numbers)
    layout, rows, notes = cells.layout, cells.rows, [*cells.layout.notes, *cells.said]
    steps = np.arange(len(rows), dtype=np.float64)
    if column := layout.columns.get("step"):
        steps = cells.wholes(column)
        highest = np.maximum.accumulate(np.where(rows.bad, -np.inf, steps))
        fallen = np.zeros(steps.size, bool)
        fallen[1:] = ~rows.bad[1:] & (steps[1:] <= highest[:-1])
        cells.add_bad("steps that do not rise", column, fallen, "it must rise from row to row")
    for worker in layout.workers:
        cells.durations(worker, zero=False)
    notes += rows.left_out(skip=skip)
    kept = slice(None) if not rows.bad.any() else np.flatnonzero(~rows.bad)
    runtimes = np.stack([cells.numbers[worker][kept] for worker in layout.workers], axis=1)
    if layout.per_second != 1:
        runtimes /= layout.per_second
    whole = steps[kept].astype(np.int64)
    start, clock = layout.columns.get("start"), None
    if start in cells.numbers:
        clock = _began(cells.numbers[start][kept], np.arange(whole.size), whole.size, layout, notes)
    return Recording(runtimes, whole, layout.workers, began=clock, notes=tuple(notes))


def _began(
    starts: np.ndarray, step: np.ndarray, steps: int, layout: ColumnLayout, notes: list[str]
) -> np.ndarray | None:
    """When the first worker began each of T steps, float64[T], by the start of each row and the index of its step.

    It is None where no start is known, or steps began before earlier ones, as where the clock begins anew in each.
    """
    name = layout.columns["start"]
    known = np.flatnonzero(np.isfinite(starts))
    if not known.size:
        return None
    if are_dates(starts):
        starts, scale = seconds_since(starts, np.datetime64(0, "s")), 1
    else:
        scale = start_per_second(name, float(starts[known[0]]), layout.per_second)
    first = np.full(steps, np.inf)
    np.minimum.at(first, step[known], starts[known])
    first = np.where(np.isfinite(first), first / scale, np.nan)
    if (np.diff(first[np.isfinite(first)]) <= 0).any():
        notes.append(f"column {name!r} was left out: steps begin no later than steps before them, so it is no clock")
        return None
    return first


def _by_start(starts: np.ndarray, place: np.ndarray, phase: np.ndarray, phases: Sequence[str]) -> list[str]:
    """Phases in the order in which they begin after the first one of their worker and step, by the median."""
    known = np.isfinite(starts) & (phase >= 0)
    seconds = seconds_since(starts, np.datetime64(0, "s")) if are_dates(starts) else starts
    seconds, place, phase = seconds[known], place[known], phase[known]
    first = np.full(place.max(initial=0) + 1, np.inf)
    np.minimum.at(first, place, seconds)
    after = seconds - first[place]
    medians = [np.median(after[phase == code]) if (phase == code).any() else np.inf for code in range(len(phases))]
    return [phases[code] for code in np.argsort(medians, kind="stable")]


RESTARTS = 0.1
"""Up to this share of a worker's steps may stand for two nodes because it was restarted on another one."""


def several(worker: np.ndarray, step: np.ndarray, other: np.ndarray, *, most: float = 0.0) -> bool:
    """Tell whether a worker has several values in one step, in more than a share `most` of the steps of workers.

    Example:
      >>> several(np.array([0, 1, 0, 1]), np.zeros(4), np.array([0, 0, 1, 1]))
      True
    """
    known = np.flatnonzero((worker >= 0) & (other >= 0) & np.isfinite(step))
    if not known.size:
        return False
    worker, step, other = worker[known].astype(np.int64), step[known], other[known].astype(np.int64)
    values, workers = int(other.max()) + 1, int(worker.max()) + 1
    if (np.bincount(np.unique(worker * values + other) // values) <= 1).all():
        return False
    pairs = np.unique((indexed(step)[1] * workers + worker) * values + other) // values
    return bool((np.unique(pairs, return_counts=True)[1] > 1).mean() > most)


def tell_apart(cells: Cells) -> None:
    """Names workers by their machine, and counts steps over epochs, where their numbers begin anew in each.

    Raises:
      BadTrace: where the rows are those of several jobs.
    """
    columns = cells.layout.columns
    worker, step = cells.names[columns["worker"]], cells.numbers[columns["step"]]
    job = cells.names.get(columns.get("job", ""))
    if job is not None and several(worker.codes, step, job.codes):
        raise BadTrace(
            f"column {columns['job']!r} has {len(job.values)} values, and workers have one step in several of them: "
            f"keep the rows of one job, such as {job.values[0]!r} (--columns=job= says that it names none)"
        )
    node = cells.names.get(columns.get("node", ""))
    if node is not None and several(worker.codes, step, node.codes, most=RESTARTS):
        worker = cells.names[columns["worker"]] = named_by_node(worker, node)
        cells.notes += (f"column {columns['worker']!r} counts on each {columns['node']}: both name a worker",)
    epoch = cells.names.get(columns.get("epoch", ""))
    if epoch is not None and several(worker.codes, step, epoch.codes):
        whole = step[np.isfinite(step)]
        steps = int(whole.max()) + 1
        if whole.min() >= 0 and len(epoch.values) * steps < 2**53:
            cells.numbers[columns["step"]] = over_epochs(step, epoch, steps)
            cells.notes += (f"{columns['epoch']} * {steps:,} + {columns['step']} was read as the step",)


def named_by_node(worker: Names, node: Names) -> Names:
    """Return names such as "host/3" of workers whose numbers are those of their machines."""
    size = len(node.values) + 1
    keys, codes = np.unique(worker.codes.astype(np.int64) * size + (node.codes + 1), return_inverse=True)
    prefixes = ["", *(f"{name}/" for name in node.values)]
    names = [f"{prefixes[key % size]}{worker.values[key // size]}" if key >= 0 else "" for key in keys.tolist()]
    return Names.coded(names, codes)


def over_epochs(step: np.ndarray, epoch: Names, steps: int) -> np.ndarray:
    """Return the steps counted over epochs of so many, float64[R], NaN where the epoch is not known.

    Epochs that are no whole numbers count by their place among them.
    """
    if all(map(str.isdecimal, epoch.values)):
        number = np.array([*map(float, epoch.values), np.nan])[epoch.codes]
    else:
        number = ordered(epoch)[1].astype(np.float64)
    return np.where(epoch.codes >= 0, number * steps + step, np.nan)
