r"""What could be mended in a job of pipelines: slow stages of a rank, links, long data, a long stage, communication.

Each repair changes the seconds of operations, and the longest path through each step is taken again. The order is
fixed, since one cause hides another: a slow machine would be taken for long data, and long data for a long stage.

1. **Pauses** of all ranks, as the diagnosis of run-times finds them. Mended, their operations take the median of the
   other steps.
2. **Workers**, a stage of a data-parallel rank each, that compute longer than the same stage of the other ranks: found
   by the diagnosis (`sgdlab.advice.diagnosis`) in the medians over micro-batches. Mended, all of them take the median
   of the others.
3. **Links**, the messages between two stages of a rank, likewise; and between two stages of all ranks, if they take
   `SLOWER_LINK` times as long as those between the other stages.
4. **Long data**: within a step and rank the same micro-batches are long forward and backward, and in the first and the
   last stage: the length travels with the data. Mended, the micro-batches of a step are dealt to the ranks anew, the
   longest first to the rank that has least to do.
5. **A long stage**, `LONGER` times the median of the others on all ranks. Mended, layers move; what the stage does
   beyond the others, such as an output head, stays.
6. **Uneven workers**, whose sums over a step are long, though not their medians: as 2.
7. **All ranks slower** since some step. Mended, they compute as before.
8. **Communication** that takes longer than its median.

Source: Lin et al. 2025, "Understanding Stragglers in Large Model Training Using What-if Analysis" (OSDI), section 5,
has the causes and the correlation of 0.9; the order, the thresholds and the repairs are this package's own.
"""

import dataclasses
import functools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from sgdlab.advice.diagnosis import blame, pauses
from sgdlab.advice.diagnosis.causes import ALL_SLOWER, DRIFT, Cause
from sgdlab.advice.what_if.candidates import CHANCE, COMMUNICATION, SLOWER, Repair, rows_of, since_of, when
from sgdlab.advice.what_if.in_turn import NOTHING, Mended
from sgdlab.pipelines.job import PipelineJob
from sgdlab.pipelines.operations import COMMUNICATION as TRANSFERRING
from sgdlab.pipelines.operations import COMPUTE, TRANSFERS
from sgdlab.report.words import listed, some
from sgdlab.traces.recording import Recording

STAGE_OF_RANK, LINK, LINKS = "stage of a rank", "link", "links"
LENGTHS, LONG_STAGE, PAUSED = "sequence lengths", "long stage", "pauses"

LONGER = 1.1
"""Multiple of the median of the others from which a stage is long."""

SLOWER_LINK = 2.0
"""Multiple of the messages between other stages from which those between two stages are slow."""

ALIKE = 0.9
"""Correlation from which micro-batches are long by themselves."""

VARIES = 0.05
"""Coefficient of variation of the micro-batches of a rank and step from which their lengths matter."""

_CHANCE_TITLE = "all computation"


@dataclasses.dataclass(frozen=True, eq=False)
class OperationTimes:
    """Holds the seconds of the operations of a job, between repairs.

    Attributes:
      job: with these seconds.
    """

    job: PipelineJob

    def seconds(self) -> np.ndarray:
        """Return float64[T], the longest path through each step."""
        return self.job.steps

    def having(self, seconds: np.ndarray) -> "OperationTimes":
        """Return the same job with other seconds, float64[O, T, N]."""
        return OperationTimes(dataclasses.replace(self.job, seconds=seconds))


_COMPUTES = "computes"


class _Unit(NamedTuple):
    """Operations of one data-parallel rank that one machine, or one link, does."""

    name: str
    group: str  # of all ranks
    verb: str  # what it does for too long
    rank: int
    operations: tuple[int, ...]


def order(recording: Recording) -> Iterator[Mended]:
    """Yield the repairs of a job of pipelines, each made after those before it; the last one is waiting by chance.

    Those that save next to nothing are left out.
    """
    times = OperationTimes(recording.job)  # pyrefly: ignore[bad-argument-type]  # of pipelines alone
    least = NOTHING * times.seconds().sum()
    uneven = functools.partial(_workers, medians=False)
    finders = (_pauses, _workers, _links, _lengths, _long_stage, uneven, _slower, _communication, _chance)
    for find in finders:
        for repair in find(times, recording):
            after = repair.apply(times)
            if repair.kind == CHANCE or times.seconds().sum() - after.seconds().sum() >= least:
                times = after
                yield Mended(repair, times, repair.kind != CHANCE)


def _steps(times: OperationTimes, recording: Recording) -> Recording:
    """The run-times of the ranks, with what follows their last backward computation."""
    own = times.job.runtimes
    return dataclasses.replace(recording, runtimes=own + (times.job.steps - own.max(axis=1))[:, None], phases={})


def _pauses(times: OperationTimes, recording: Recording) -> Iterator[Repair]:
    found = pauses.find_pauses(_steps(times, recording))
    if found.rows.size:
        title = found.describe(recording.steps)
        yield Repair(
            PAUSED,
            "pauses of all",
            "as fast as the other steps",
            functools.partial(_as_usual, rows=found.rows),
            said=title,
        )


def _as_usual(times: OperationTimes, rows: np.ndarray) -> OperationTimes:
    seconds = times.job.seconds.copy()
    usual = np.median(np.delete(seconds, rows, axis=1), axis=1, keepdims=True)
    seconds[:, rows] = np.minimum(seconds[:, rows], usual)
    return times.having(seconds)


def _slower(times: OperationTimes, recording: Recording) -> Iterator[Repair]:
    work, steps = _own(times.job), _steps(times, recording)
    for cause, _ in blame.find_suspects(steps, pauses.find_pauses(steps))[0]:
        if cause.kind in (ALL_SLOWER, DRIFT) and not cause.workers and cause.factor > 1:
            rows = np.flatnonzero(rows_of(cause, len(recording.steps)))
            factor = (
                np.linspace(1, cause.factor, rows.size) if cause.kind == DRIFT else np.full(rows.size, cause.factor)
            )
            yield Repair(
                SLOWER,
                f"all ranks{when(cause, recording.steps)}",
                "as fast as before",
                functools.partial(_divided, operations=work, rows=rows, factor=factor),
                since=since_of(cause, recording.steps),
                over=cause.until is not None,
                said=cause.headline(recording).replace("All workers", "All ranks"),
            )


def _divided(times: OperationTimes, operations: Sequence[int], rows: np.ndarray, factor: np.ndarray) -> OperationTimes:
    seconds = times.job.seconds.copy()
    seconds[np.ix_(operations, rows)] /= factor[None, :, None]
    return times.having(seconds)


def _own(job: PipelineJob) -> list[int]:
    """The operations that are a machine's own work: all but communication."""
    return [operation for operation, kind in enumerate(job.operations.kind) if kind not in TRANSFERRING]


def _workers(times: OperationTimes, recording: Recording, *, medians: bool = True) -> Iterator[Repair]:
    ops = times.job.operations
    others = sorted(set(ops.kind) - TRANSFERRING - {*COMPUTE})
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


def _links(times: OperationTimes, recording: Recording) -> Iterator[Repair]:
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
        if _all_mended(before, [other for other in found if other is not one]).seconds().sum() - whole >= least
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


class _Work(NamedTuple):
    """The computations of a job by micro-batch: int[2, C, M] operations, and the stage of each of the C chunks."""

    operations: np.ndarray
    stage: np.ndarray

    def seconds(self, job: PipelineJob) -> np.ndarray:
        """Return float64[2, C, M, T, N], forward and backward."""
        return job.seconds[self.operations]

    def having(self, times: OperationTimes, seconds: np.ndarray) -> OperationTimes:
        """Return the times with other computations."""
        found = times.job.seconds.copy()
        found[self.operations] = seconds
        return times.having(found)


def _work(job: PipelineJob) -> _Work | None:
    """The computations by micro-batch; None where stages have different numbers of them."""
    ops = job.operations
    chunks: dict[int, tuple[int, list[list[int]]]] = {}
    interleaved = int(ops.chunk.max()) >= len(ops.stages)
    for stage, stream in zip(ops.stages, job.graph.order, strict=True):
        for operation in stream:
            if ops.kind[operation] in COMPUTE:
                chunk = int(ops.chunk[operation]) if interleaved else stage
                chunks.setdefault(chunk, (stage, [[], []]))[1][COMPUTE.index(ops.kind[operation])].append(operation)
    found = [chunks[chunk] for chunk in sorted(chunks)]
    if len({len(of_way) for _, both in found for of_way in both}) != 1:
        return None
    return _Work(np.array([both for _, both in found]).swapaxes(0, 1), np.array([stage for stage, _ in found]))


def _lengths(times: OperationTimes, recording: Recording) -> Iterator[Repair]:
    job = times.job
    work = _work(job)
    if work is None or len(recording.workers) < 2 or work.operations.shape[2] < 2:
        return
    seconds = work.seconds(job)
    centred = seconds - seconds.mean(axis=2, keepdims=True)  # within a step and rank: a slow machine does not count
    both, total = centred.sum(axis=0), seconds.sum(axis=0)
    ways, stages = _alike(centred[0], centred[1]), _alike(both[0], both[-1])
    with np.errstate(invalid="ignore", divide="ignore"):
        varies = float(np.nanmedian(total.std(axis=1) / total.mean(axis=1)))
    if not (min(ways, stages) >= ALIKE and varies >= VARIES):
        return
    in_all = f" and in all stages ({stages:.2f})" if len(work.stage) > 1 else ""
    yield Repair(
        LENGTHS,
        "the sequence lengths",
        "the micro-batches of each step dealt to the ranks by their cost",
        functools.partial(_dealt, work=work),
        said=f"the data are long: micro-batches differ by {100 * varies:.0f} %, and the same ones "
        f"are long forward and backward ({ways:.2f}){in_all}, so that in each step some rank gets more than the others",
    )


def _alike(a: np.ndarray, b: np.ndarray) -> float:
    norm = np.sqrt((a * a).sum() * (b * b).sum())
    return float((a * b).sum() / norm) if norm > 0 else 0.0


def _dealt(times: OperationTimes, work: _Work) -> OperationTimes:
    """The micro-batches of each step dealt anew: the longest first, to the rank that has least to do and has room."""
    seconds = work.seconds(times.job)
    ways, chunks, batches, steps, ranks = seconds.shape
    total = seconds.sum(axis=0)
    usual = np.median(total, axis=(1, 2))  # [C, N]
    factor = (usual / np.median(usual, axis=1, keepdims=True))[:, None, None, :]  # of a machine; it stays with the rank
    of_stage = np.array([(total / factor)[work.stage == stage].sum(axis=0) for stage in np.unique(work.stage)])
    cost = of_stage.max(axis=0).transpose(1, 2, 0).reshape(steps, ranks * batches)  # of the longest stage
    load, held = np.zeros((steps, ranks)), np.zeros((steps, ranks), int)
    dealt, rows = np.empty((steps, ranks, batches), int), np.arange(steps)
    for item in np.argsort(-cost, axis=1, kind="stable").T:
        rank = np.where(held < batches, load, np.inf).argmin(axis=1)
        dealt[rows, rank, held[rows, rank]] = item
        load[rows, rank] += cost[rows, item]
        held[rows, rank] += 1
    flat = (seconds / factor).transpose(0, 1, 3, 4, 2).reshape(ways, chunks, steps, ranks * batches)
    fresh = np.take_along_axis(flat, dealt.reshape(1, 1, steps, -1), axis=3)
    fresh = fresh.reshape(ways, chunks, steps, ranks, batches).transpose(0, 1, 4, 2, 3) * factor
    after = work.having(times, fresh)
    return after if after.seconds().sum() < times.seconds().sum() else times


def _long_stage(times: OperationTimes, recording: Recording) -> Iterator[Repair]:
    job, work = times.job, _work(times.job)
    if work is None or len(job.operations.stages) < 2:
        return
    stages, total, layer = _stage_seconds(job, work)
    longest = int(total.argmax())
    if not total[longest] >= LONGER * layer:
        return
    other = total - layer  # what a stage holds besides layers
    share = np.maximum((total.sum() / total.size - other) / layer, 0.0)
    share *= total.size / share.sum()
    shares = listed([f"{part:.2f}" for part in share])
    long = [str(stage) for stage, seconds in zip(stages, total, strict=True) if seconds >= LONGER * layer]
    names, verb = (f"stage {long[0]}", "computes") if len(long) == 1 else (f"stages {listed(long)}", "compute")
    only = "; with a single rank, a slow machine would look the same" if len(recording.workers) == 1 else ""
    moved = functools.partial(_moved, work=work, share=dict(zip(stages.tolist(), share, strict=True)), longest=longest)
    yield Repair(
        LONG_STAGE,
        names,
        f"layers moved, so that the stages hold {shares} of what one holds now",
        moved,
        said=f"{names} {verb} up to {total[longest] / layer:.2f} times as long as the other stages, on all ranks{only}"
        if len(long) > 1
        else f"{names} {verb} {total[longest] / layer:.2f} times as long as the other stages, on all ranks{only}",
    )


def _stage_seconds(job: PipelineJob, work: "_Work") -> tuple[np.ndarray, np.ndarray, float]:
    """The stages, the usual seconds of a micro-batch in each, and of one that holds nothing but layers."""
    usual, stages = np.median(work.seconds(job), axis=(2, 3, 4)).sum(axis=0), np.unique(work.stage)
    total = np.array([usual[work.stage == stage].sum() for stage in stages])
    return stages, total, float(np.median(np.delete(total, int(total.argmax()))))


def whole_layers(job: PipelineJob, layers: int) -> tuple[list[int], float]:
    """Split layers over stages such that the longest stage is shortest, and price it by the longest path.

    Args:
      job: of at least two stages.
      layers: L, that a stage holds now.

    Returns:
      The layers of each stage, and the seconds that all steps take with them.

    Raises:
      ValueError: where stages compute different numbers of micro-batches.
    """
    work = _work(job)
    if work is None:
        raise ValueError("stages must compute the same number of micro-batches")
    stages, total, layer = _stage_seconds(job, work)
    longest = int(total.argmax())
    held = np.zeros(total.size, int)
    for _ in range(layers * total.size):  # one after the other, to where the stage is then shortest
        held[((total - layer) + (held + 1) / layers * layer).argmin()] += 1
    share = dict(zip(stages.tolist(), held / layers, strict=True))
    return held.tolist(), float(_moved(OperationTimes(job), work, share, longest).seconds().sum())


def _moved(times: OperationTimes, work: _Work, share: dict[int, float], longest: int) -> OperationTimes:
    """Layers moved: one takes for each micro-batch what it takes in the other stages, so that long data go with it."""
    seconds = work.seconds(times.job)
    stages = np.unique(work.stage)
    each = np.median(seconds[:, work.stage != stages[longest]], axis=1, keepdims=True)  # of a chunk
    more = np.array([share[stage] for stage in work.stage]) - 1
    return work.having(times, np.maximum(seconds + more[None, :, None, None, None] * each, 0.0))


def _communication(times: OperationTimes, recording: Recording) -> Iterator[Repair]:
    del recording
    now = times.seconds().sum()
    kinds = sorted(set(times.job.operations.kind) & TRANSFERRING)
    saved = {kind: now - _transfers_at_median(times, [kind]).seconds().sum() for kind in kinds}
    if kinds:
        most = max(saved, key=lambda kind: saved[kind])
        yield Repair(
            COMMUNICATION,
            "communication",
            "never longer than its median",
            functools.partial(_transfers_at_median, kinds=kinds),
            said=f"communication takes longer than its median in some steps or ranks, most of all {most}",
        )


def _transfers_at_median(times: OperationTimes, kinds: Sequence[str]) -> OperationTimes:
    ops, seconds = times.job.operations, times.job.seconds.copy()
    for kind in kinds:
        for stage in ops.stages:
            of = ops.of(kind, stage)
            if of:
                seconds[of] = np.minimum(seconds[of], np.median(seconds[of]))
    return times.having(seconds)


def _chance(times: OperationTimes, recording: Recording) -> Iterator[Repair]:
    del times, recording
    yield Repair(CHANCE, _CHANCE_TITLE, "every rank as fast as the median of its step", _all_at_median)


def _all_at_median(times: OperationTimes) -> OperationTimes:
    seconds = times.job.seconds.copy()
    of = _own(times.job)
    seconds[of] = np.minimum(seconds[of], np.median(seconds[of], axis=2, keepdims=True))
    return times.having(seconds)
