"""Slow machines and links of pipelines: stages of a rank, and its messages, that take longer than those of others.

They are found by the diagnosis of run-times, of the usual seconds of a step over those of all ranks, and mended
together.
"""

import dataclasses
import functools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from sgdlab.pipelines.job import PipelineJob
from sgdlab.pipelines.operations import COMMUNICATION, COMPUTE, TRANSFERS
from sgdlab.report.words import some
from sgdlab.stragglers.diagnosis import blame, pauses
from sgdlab.stragglers.diagnosis.causes import Cause
from sgdlab.stragglers.what_if.candidates import Repair, rows_of, since_of, when
from sgdlab.stragglers.what_if.in_turn import NOTHING
from sgdlab.stragglers.what_if.operation_times import LINK, LINKS, STAGE_OF_RANK, OperationTimes
from sgdlab.traces.recording import Recording

SLOWER_LINK = 2.0
"""Multiple of the messages between other stages from which those between two stages are slow."""

_MOST_WEIGHED = 16
"""Most machines of which each is weighed after all the others; of more, all count."""

_COMPUTES = "computes"


class _Unit(NamedTuple):
    """Operations of one data-parallel rank that one machine, or one link, does."""

    name: str
    group: str  # of all ranks
    verb: str  # what it does for too long
    rank: int
    operations: tuple[int, ...]


def slow_stages(times: OperationTimes, recording: Recording, *, medians: bool = True) -> Iterator[Repair]:
    """Yield the repair of all stages of a rank that compute, load or update longer than the same of the other ranks.

    Args:
      times: of the operations, after earlier repairs.
      recording: the complete steps.
      medians: whether the median of the micro-batches tells, or their sum.
    """
    ops = times.job.operations
    others = sorted(set(ops.kind) - COMMUNICATION - {*COMPUTE})
    units = []
    for stage in ops.stages:
        place = "" if len(ops.stages) == 1 else f"stage {stage}"
        for kinds in (COMPUTE, *((kind,) for kind in others)):
            found = tuple(ops.of(kinds, stage))
            group = place if kinds == COMPUTE else f"{kinds[0]}{' of ' * bool(place)}{place}"
            verb = _COMPUTES if kinds == COMPUTE else "takes"
            for rank, name in enumerate(recording.workers if found else ()):
                units.append(_Unit(f"{group}{' of ' * bool(group)}rank {name}", group, verb, rank, found))
    yield from _slow(times.job, recording, units, STAGE_OF_RANK, medians=medians)


def slow_links(times: OperationTimes, recording: Recording) -> Iterator[Repair]:
    """Yield the repairs of messages between two stages that are slow: of single ranks, then of all."""
    job = times.job
    between: dict[tuple[int, int], list[int]] = {}
    for party in job.graph.parties:
        if len(party) == 2 and job.operations.kind[party[0]] in TRANSFERS:
            low, high = sorted(job.operations.stage[list(party)].tolist())
            between.setdefault((low, high), []).extend(party)
    if not between:
        return
    units = [
        _Unit(
            f"the messages between stages {low} and {high} of rank {name}", f"{low}-{high}", "take", rank, tuple(found)
        )
        for (low, high), found in between.items()
        for rank, name in enumerate(recording.workers)
    ]
    yield from _slow(job, recording, units, LINK, medians=True)
    yield from _links_of_all(job, between)


def _links_of_all(job: PipelineJob, between: dict[tuple[int, int], list[int]]) -> Iterator[Repair]:
    """Yield the repairs of messages between two stages that are slow on all ranks, in one direction or both."""
    kinds = np.array(job.operations.kind)
    ways = {
        (pair, way): [operation for operation in found if kinds[operation].startswith(way)]
        for pair, found in between.items()
        for way in ("forward", "backward")
    }
    usual = {key: float(np.median(job.seconds[found])) for key, found in ways.items() if found}
    slow: dict[tuple[int, int], dict[str, float]] = {}
    for (pair, way), value in usual.items():
        others = [other for (place, its), other in usual.items() if place != pair and its == way]
        if others and value >= SLOWER_LINK * np.median(others) > 0:
            slow.setdefault(pair, {})[way] = value / float(np.median(others))
    for pair, factors in slow.items():
        which = "" if len(factors) > 1 else f"{next(iter(factors))} "
        title = f"the {which}messages between stages {pair[0]} and {pair[1]}"
        factor = np.ones(len(kinds))
        for way, times in factors.items():
            factor[ways[pair, way]] = times
        yield Repair(
            LINKS,
            title,
            "as fast as those between other stages",
            functools.partial(_scaled, factor=factor),
            said=f"{title} take {max(factors.values()):.2f} times as long as those between other stages, on all ranks",
        )


def _slow(
    job: PipelineJob, recording: Recording, units: Sequence[_Unit], kind: str, *, medians: bool
) -> Iterator[Repair]:
    """Yield one repair of all machines, or links, that are slower than the same ones of other ranks.

    They are mended together: of two that are equally slow, the repair of one gains nothing.
    """
    seconds = np.stack([_usual(job, unit, medians=medians) for unit in units], axis=-1)  # [T, units]
    kept = np.flatnonzero(np.median(seconds, axis=0) > 0).tolist()
    units, seconds = [units[i] for i in kept], seconds[:, kept]
    if len(units) < 2:
        return
    groups = [[i for i, unit in enumerate(units) if unit.group == group] for group in {unit.group for unit in units}]
    values = seconds.copy()
    for of in groups:
        values[:, of] /= np.median(np.median(seconds[:, of], axis=0))
    values = np.maximum(values, _LEAST)  # a step in which an operation took no time
    names = tuple(unit.name for unit in units)
    medians_of = Recording(values, recording.steps, names)
    causes = [
        cause
        for cause, _ in blame.find_suspects(medians_of, pauses.find_pauses(medians_of))[0]
        if 0 < len(cause.workers) < len(units)
    ]
    blamed = {worker for cause in causes for worker in cause.workers}
    found = [
        one
        for cause in causes
        for worker in cause.workers
        if (one := _Slowness.of(cause, worker, units, seconds, blamed, recording.steps)) is not None
    ]
    before = OperationTimes(job)
    whole = _all_mended(before, found).seconds().sum()
    least = NOTHING * before.seconds().sum()
    # Each must be worth something once the others are mended.
    slow = [
        one for one in found
        if len(found) > _MOST_WEIGHED
        or _all_mended(before, [other for other in found if other is not one]).seconds().sum() - whole >= least
    ]  # fmt: skip
    if slow:
        yield _together(slow, kind, recording, units)


_LEAST = 0.01
"""Least value, over the usual one, that is compared."""


@dataclasses.dataclass(frozen=True, eq=False)
class _Slowness:
    """A machine, or link, that is slow in some steps.

    Attributes:
      unit: it.
      cause: of the diagnosis.
      rows: in which it is slow.
      well: ranks of the same machine that are not slow.
      factor: its time over theirs; where there are none, over its own in the other steps.
    """

    unit: _Unit
    cause: Cause
    rows: np.ndarray
    well: tuple[int, ...]
    factor: float

    @classmethod
    def of(
        cls, cause: Cause, worker: int, units: Sequence[_Unit], seconds: np.ndarray, blamed: set[int], steps: np.ndarray
    ) -> "_Slowness | None":
        """Return it; None where it has always been slow, and no other does the same."""
        unit, inside = units[worker], rows_of(cause, len(steps))
        peers = [i for i, other in enumerate(units) if other.group == unit.group and i not in blamed]
        rows = np.flatnonzero(inside)
        own = seconds[rows, worker]
        if peers:
            usual = np.median(seconds[np.ix_(rows, peers)], axis=1)
        elif inside.all():
            return None
        else:
            usual = np.median(seconds[~inside, worker])
        factor = float(np.median(own / np.maximum(usual, 1e-300)))
        return cls(unit, cause, rows, tuple(units[i].rank for i in peers), factor)

    def mend(self, seconds: np.ndarray) -> None:
        """Shortens its operations, in place."""
        of = np.ix_(self.unit.operations, self.rows, [self.unit.rank])
        if self.well:
            others = seconds[np.ix_(self.unit.operations, self.rows, self.well)]
            seconds[of] = np.minimum(seconds[of], np.median(others, axis=2, keepdims=True))
        else:
            seconds[of] /= self.factor


def _all_mended(times: OperationTimes, slow: Sequence[_Slowness]) -> OperationTimes:
    seconds = times.job.seconds.copy()
    for one in slow:
        one.mend(seconds)
    return times.having(seconds)


def _together(slow: Sequence[_Slowness], kind: str, recording: Recording, units: Sequence[_Unit]) -> Repair:
    """The repair of all machines, or links, of a kind that are slow."""
    slow = sorted(slow, key=lambda one: -one.factor * one.rows.size)
    groups = _grouped(slow, units, recording)
    said = []
    for title, members in groups:
        one = members[0]
        shown = when(one.cause, recording.steps)
        always = not shown and not one.cause.since and one.cause.until is None
        low, high = (f"{bound(member.factor for member in members):.2f}" for bound in (min, max))
        verb = "compute" if len(members) > 1 else one.unit.verb
        if not one.well:
            than = "in other steps"
        elif kind == LINK or len(members) > 1:
            than = "those of the other ranks"
        else:
            than = f"{one.unit.group} of the other ranks".removeprefix(" of ")
        said.append(f"{title} {verb} {low if low == high else f'{low} to {high}'} times as long as {than}{shown}"
                    f"{', in all steps' * always}")  # fmt: skip
    since = {since_of(one.cause, recording.steps) for one in slow}
    shown = when(slow[0].cause, recording.steps) if len(slow) == 1 else ""
    return Repair(
        kind,
        f"{some([title.removeprefix(_ALL_STAGES) for title, _ in groups])}{shown}",
        "as fast as those of the other ranks",
        functools.partial(_all_mended, slow=slow),
        tuple(sorted({one.unit.rank for one in slow})),
        since.pop() if len(since) == 1 else None,
        all(one.cause.until is not None for one in slow),
        said="; ".join(said[:_SAID]) + (f"; and {len(said) - _SAID} more" if len(said) > _SAID else ""),
    )


_SAID = 3
"""Most slow machines with half a sentence each."""

_ALL_STAGES = "all stages of "


def _grouped(
    slow: Sequence[_Slowness], units: Sequence[_Unit], recording: Recording
) -> list[tuple[str, list[_Slowness]]]:
    """Slow machines by their names: all stages of a rank together, and a stage that is slow on all ranks."""
    found: dict[str, list[_Slowness]] = {}
    for one in slow:
        alike = [unit for unit in units if unit.verb == one.unit.verb]
        of_rank = [other for other in slow if (other.unit.verb, other.unit.rank) == (one.unit.verb, one.unit.rank)]
        of_group = [other for other in slow if other.unit.group == one.unit.group]
        if one.unit.verb == _COMPUTES and 1 < len(of_rank) == sum(unit.rank == one.unit.rank for unit in alike):
            found[f"{_ALL_STAGES}rank {recording.workers[one.unit.rank]}"] = of_rank
        elif one.unit.group and 1 < len(of_group) == sum(unit.group == one.unit.group for unit in alike):
            found[f"{one.unit.group} of all ranks"] = of_group
        else:
            found[one.unit.name] = [one]
    return list(found.items())


def _usual(job: PipelineJob, unit: _Unit, *, medians: bool) -> np.ndarray:
    """float64[T], the sum over kinds of the median over the operations of that kind, or the sum of all."""
    if not medians:
        return job.seconds[list(unit.operations), :, unit.rank].sum(axis=0)
    kinds: dict[str, list[int]] = {}
    for operation in unit.operations:
        kinds.setdefault(job.operations.kind[operation], []).append(operation)
    return np.sum([np.median(job.seconds[of][:, :, unit.rank], axis=0) for of in kinds.values()], axis=0)


def _scaled(times: OperationTimes, factor: np.ndarray) -> OperationTimes:
    return times.having(times.job.seconds / factor[:, None, None])
