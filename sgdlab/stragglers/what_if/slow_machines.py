"""Slow machines and links of pipelines: stages of a rank, and its messages, that take longer than those of others.

They are found by the diagnosis of compute times, of the usual seconds of a step over those of all ranks, and mended
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
from sgdlab.stragglers import repairs
from sgdlab.stragglers.diagnosis import blame, pauses
from sgdlab.stragglers.diagnosis.causes import ALL_SLOWER, DRIFT, Cause
from sgdlab.stragglers.what_if.candidates import LINK, LINKS, STAGE_OF_RANK, Repair, mending
from sgdlab.stragglers.what_if.in_turn import NOTHING
from sgdlab.traces.recording import Recording

SLOWER_LINK = 2.0
"""Multiple of the messages between other stages from which those between two stages are slow."""

_MOST_WEIGHED = 16
"""Most machines of which each is weighed after all the others; of more, all count."""

_LEAST = 0.01
"""Least value, over the usual one, that is compared."""

_SAID = 3
"""Most slow machines with half a sentence each."""

_COMPUTES, _ALL_STAGES = "computes", "all stages of "


class _Group(NamedTuple):
    """Operations that one machine, or one link, of each rank does, and what it does for too long."""

    name: str
    verb: str
    operations: list[int]

    def of(self, rank: str) -> str:
        """Return what those of a rank are called."""
        return f"{self.name}{' of ' * bool(self.name)}rank {rank}"

    def usual(self, job: PipelineJob, *, medians: bool) -> np.ndarray:
        """Return float64[T, N], the sum over kinds of the median over the operations of a kind, or the sum of all."""
        kinds = np.array(job.operations.kind)[self.operations]
        by_kind = [job.seconds[np.array(self.operations)[kinds == kind]] for kind in dict.fromkeys(kinds)]
        return np.sum([(np.median if medians else np.sum)(seconds, axis=0) for seconds in by_kind], axis=0)


class _Slow(NamedTuple):
    """A machine, or link, that takes `factor` times as long as on the `well` ranks; if none is, as in other steps."""

    group: _Group
    rank: int
    cause: Cause
    rows: np.ndarray  # bool[T], in which it does
    well: list[int]
    factor: float


def slow_stages(job: PipelineJob, recording: Recording, *, medians: bool = True) -> Iterator[Repair]:
    """Yield the repair of all stages of a rank that compute, load or update longer than the same of the other ranks.

    The median of their micro-batches tells, or without `medians` the sum.
    """
    ops, groups = job.operations, []
    others = sorted(set(ops.kind) - COMMUNICATION - {*COMPUTE})
    for stage in ops.stages:
        place = f"stage {stage}" if len(ops.stages) > 1 else ""
        groups.append(_Group(place, _COMPUTES, ops.of(COMPUTE, stage)))
        groups += [_Group(f"{kind}{' of ' * bool(place)}{place}", "takes", ops.of(kind, stage)) for kind in others]
    yield from _slow(job, recording, groups, STAGE_OF_RANK, medians=medians)


def slow_links(job: PipelineJob, recording: Recording) -> Iterator[Repair]:
    """Yield the repairs of messages between two stages that are slow: of single ranks, then of all."""
    between: dict[tuple[int, int], list[int]] = {}
    for party in job.graph.parties:
        if len(party) == 2 and job.operations.kind[party[0]] in TRANSFERS:
            low, high = sorted(job.operations.stage[list(party)].tolist())
            between.setdefault((low, high), []).extend(party)
    names = {f"messages between stages {low} and {high}": found for (low, high), found in between.items()}
    yield from _slow(job, recording, [_Group(f"the {name}", "take", of) for name, of in names.items()], LINK)
    slower: dict[str, list[tuple[str, float, list[int]]]] = {}
    for way in ("forward", "backward"):
        of_way = {name: [o for o in found if job.operations.kind[o].startswith(way)] for name, found in names.items()}
        usual = {name: float(np.median(job.seconds[found])) for name, found in of_way.items() if found}
        for name, seconds in usual.items():
            others = [other for place, other in usual.items() if place != name]
            if others and seconds >= SLOWER_LINK * np.median(others) > 0:
                slower.setdefault(name, []).append((way, seconds / float(np.median(others)), of_way[name]))
    for name, ways in slower.items():
        title = f"the {'' if len(ways) > 1 else f'{ways[0][0]} '}{name}"
        factor = {operation: times for _, times, found in ways for operation in found}
        apply = mending(repairs.faster, [*factor], factor=np.reshape([*factor.values()], (-1, 1, 1)))
        longest = f"{max(factor.values()):.2f} times as long as those between other stages, on all ranks"
        yield Repair(LINKS, title, "as fast as those between other stages", apply, said=f"{title} take {longest}")


def _slow(
    job: PipelineJob, recording: Recording, groups: Sequence[_Group], kind: str, *, medians: bool = True
) -> Iterator[Repair]:
    """Yield one repair of all machines, or links, that are slower than the same ones of other ranks.

    They are mended together: of two that are equally slow, the repair of one gains nothing.
    """
    ranks = len(recording.workers)
    seconds = [(group, group.usual(job, medians=medians)) for group in groups if group.operations]
    seconds = [(group, own) for group, own in seconds if np.median(np.median(own, axis=0)) > 0]
    if len(seconds) * ranks < 2:
        return
    values = np.concatenate([own / np.median(np.median(own, axis=0)) for _, own in seconds], axis=1)
    values = np.maximum(values, _LEAST)  # a step in which an operation took no time
    units = Recording(values, recording.steps, tuple(map(str, range(values.shape[1]))))
    suspects, _ = blame.find_suspects(units, pauses.find_pauses(units))
    causes = [cause for cause in suspects if cause.workers or (kind == LINK and cause.kind in (ALL_SLOWER, DRIFT))]
    blamed = {unit for cause in causes for unit in cause.workers}
    slow = []
    for cause in causes:
        rows = cause.among(len(recording.steps))
        for unit in cause.workers or range(values.shape[1]):  # all links may be slow since a step
            (group, own), rank = seconds[unit // ranks], unit % ranks
            well = [other for other in range(ranks) if cause.workers and unit - rank + other not in blamed]
            if well:
                usual = np.median(own[rows][:, well], axis=1)
            elif not rows.all():
                usual = np.median(own[~rows, rank])
            else:  # it has always been slow, and no other does the same
                continue
            factor = float(np.median(own[rows, rank] / np.maximum(usual, 1e-300)))
            slow.append(_Slow(group, rank, cause, rows, well, factor))
    if 0 < len(slow) <= _MOST_WEIGHED:  # each must be worth something once the others are mended
        whole, least = _all_mended(job, slow).steps.sum(), NOTHING * job.steps.sum()
        without = [_all_mended(job, [other for other in slow if other is not one]) for one in slow]
        slow = [one for one, left in zip(slow, without, strict=True) if left.steps.sum() - whole >= least]
    if slow:
        yield _together(slow, kind, recording, [group for group, _ in seconds])


def _all_mended(job: PipelineJob, slow: Sequence[_Slow]) -> PipelineJob:
    seconds = job.seconds.copy()
    for one in slow:
        rows = np.flatnonzero(one.rows)
        of = np.ix_(one.group.operations, rows, [one.rank])
        if one.well:
            others = seconds[np.ix_(one.group.operations, rows, one.well)]
            seconds[of] = np.minimum(seconds[of], np.median(others, axis=2, keepdims=True))
        else:
            seconds[of] /= one.factor
    return dataclasses.replace(job, seconds=seconds)


def _together(slow: Sequence[_Slow], kind: str, recording: Recording, groups: Sequence[_Group]) -> Repair:
    """The repair of all machines, or links, of a kind that are slow."""
    slow = sorted(slow, key=lambda one: -one.factor * one.rows.sum())
    named, said, steps = _named(slow, recording, groups), [], recording.steps
    for title, members in named.items():
        one = members[0]
        low, high = (f"{bound(member.factor for member in members):.2f}" for bound in (min, max))
        if not one.well:
            than = "in other steps"
        elif kind == LINK or len(members) > 1:
            than = "those of the other ranks"
        else:
            than = f"{one.group.name}{' of ' * bool(one.group.name)}the other ranks"
        verb = one.group.verb.removesuffix("s") if len(members) > 1 else one.group.verb
        times = low if low == high else f"{low} to {high}"
        said.append(f"{title} {verb} {times} times as long as {than}{one.cause.when(steps) or ', in all steps'}")
    since = {one.cause.began(steps) for one in slow}
    return Repair(
        kind,
        some([title.removeprefix(_ALL_STAGES) for title in named]) + slow[0].cause.when(steps) * (len(slow) == 1),
        "as fast as those of the other ranks",
        functools.partial(_all_mended, slow=slow),
        tuple(sorted({one.rank for one in slow})),
        since.pop() if len(since) == 1 else None,
        all(one.cause.over for one in slow),
        said="; ".join(said[:_SAID]) + (f"; and {len(said) - _SAID} more" if len(said) > _SAID else ""),
    )


def _named(slow: Sequence[_Slow], recording: Recording, groups: Sequence[_Group]) -> dict[str, list[_Slow]]:
    """Slow machines by their names: all stages of a rank together, and a stage that is slow on all ranks."""
    found: dict[str, list[_Slow]] = {}
    stages = sum(group.verb == _COMPUTES for group in groups)
    for one in slow:
        alike = [other for other in slow if other.group.verb == one.group.verb and other.rank == one.rank]
        of_group = [other for other in slow if other.group == one.group]
        if one.group.verb == _COMPUTES and 1 < len(alike) == stages:
            found[f"{_ALL_STAGES}rank {recording.workers[one.rank]}"] = alike
        elif one.group.name and 1 < len(of_group) == len(recording.workers):
            found[f"{one.group.name} of all ranks"] = of_group
        else:
            found[one.group.of(recording.workers[one.rank])] = [one]
    return found
