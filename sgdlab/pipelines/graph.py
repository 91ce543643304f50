"""Graphs of a step of one data-parallel rank: which operations wait for which, and which begin together."""

import collections
import dataclasses
import graphlib
import itertools
import warnings
from collections.abc import Collection, Iterable, Sequence

import numpy as np

from sgdlab.pipelines import operations as kinds
from sgdlab.pipelines.operations import ACROSS, BACKWARD, COMPUTE, FORWARD, KNOWN, TRANSFERS, NotAPipeline, Operations

_SAMPLE = 64
"""Most (step, rank) by which the order of operations is told."""

_SLACK = 5e-5
"""Seconds by which a transfer that belongs to a computation may seem to begin, or to end, on its wrong side."""


@dataclasses.dataclass(frozen=True, eq=False)
class StepGraph:
    """Holds the order of the O operations of a step.

    Attributes:
      before: for each operation, those that must have ended.
      parties: operations that begin together, once the last of them has come, each after all that it waits for; most
        are alone.
      across: bool[parties], where the party of each data-parallel rank also begins with those of all others.
    """

    before: tuple[tuple[int, ...], ...]
    parties: tuple[tuple[int, ...], ...]
    across: np.ndarray


def build(ops: Operations) -> tuple[Operations, StepGraph]:
    """Build the graph of a step from the order in which operations were recorded.

    Within a stage of a rank, computations follow each other in order of their begin, and so do the transfers of each
    kind; a computation waits for its receive, a send for its computation, a receive for the computation before. Sends
    begin with their receives, collectives with those of the same stage on all ranks (`embedding-...`: of the first and
    last stage, `optimizer-clip-main-grad`: of all). The i-th transfer belongs to the i-th computation; where stages
    hold several chunks of the model, to the i-th of its chunk. Schedules are read from the record: 1F1B or interleaved.

    Args:
      ops: the operations.

    Returns:
      The operations without those that are of no use, with notes, and the graph.

    Raises:
      NotAPipeline: where a stage computes nothing, transfers do not fit the computations, or operations wait for each
        other.

    Source: the model of Lin et al. 2025, "Understanding Stragglers in Large Model Training Using What-if Analysis"
    (OSDI), section 4.
    """
    ops = _understood(ops)
    builder = _Builder(ops)
    builder.check_stages()
    paired = builder.transfers()
    builder.collectives()
    graph = builder.finished(paired)
    return dataclasses.replace(ops, notes=(*ops.notes, *builder.notes)), graph


def _understood(ops: Operations) -> Operations:
    """Leave out operations of unknown kinds that go on beside the computations of their stage; the others are work."""
    beside = [operation for kind in set(ops.kind) - KNOWN for operation in ops.of(kind) if _overlaps(ops, operation)]
    if beside:
        names = ", ".join(sorted({ops.kind[operation] for operation in beside}))
        ops = ops.without(beside, f"operations beside computation were left out: {names}")
    if others := sorted(set(ops.kind) - KNOWN):
        note = f"operations of other names count as computation of their stage: {', '.join(others)}"
        ops = ops.without([], note)
    if len(ops.stages) > 1 and 0 < len(TRANSFERS & set(ops.kind)) < len(TRANSFERS):
        ops = ops.without(ops.of(TRANSFERS), "of sends and receives only some were recorded: they were left out")
    return ops


def _overlaps(ops: Operations, operation: int) -> bool:
    """Return whether an operation mostly goes on beside a computation of its stage."""
    work = ops.of(COMPUTE, int(ops.stage[operation]))
    before_end = ops.begin[operation] < ops.end[work] - _SLACK
    return bool((before_end & (ops.end[operation] > ops.begin[work] + _SLACK)).any(axis=0).mean() > 0.5)


class _Builder:
    """The edges of a graph, as they are found."""

    def __init__(self, ops: Operations):
        self.ops, self.notes = ops, []
        self.before: list[set[int]] = [set() for _ in ops.kind]
        self.place = _places(ops)
        self.work = {*COMPUTE, *(kind for kind in ops.kind if kind not in KNOWN)}
        self.streams = [self.in_order(self.work, stage) for stage in ops.stages]

    def check_stages(self) -> None:
        ops, last = self.ops, self.ops.stages[-1]
        for stage in range(last + 1):
            if not all(ops.of(kind, stage) for kind in COMPUTE):
                raise NotAPipeline(f"stage {stage} of {last + 1} must compute forward and backward")
        other = np.any([(np.diff(ops.begin[stream], axis=0) < 0).any(axis=0) for stream in self.streams], axis=0)
        if other.any():
            self.notes.append(f"in {other.sum()} of {other.size} (step, rank) the order of computation is another")

    def in_order(self, kinds: Collection[str], stage: int) -> list[int]:
        found = self.ops.of(sorted(kinds), stage)
        return sorted(found, key=lambda o: (self.place[o], self.ops.number[o], self.ops.kind[o]))

    def chain(self, members: Sequence[int]) -> None:
        for first, second in itertools.pairwise(members):
            self.before[second].add(first)

    def transfers(self) -> list[tuple[int, ...]]:
        """Chain what a stage computes and transfers, and return the pairs of a send and its receive."""
        ops, recorded, pairs = self.ops, not TRANSFERS.isdisjoint(self.ops.kind), []
        for stage, stream in zip(ops.stages, self.streams, strict=True):
            self.chain(stream)
            # The first backward transfers are posted once the forward before the last of the warm-up is done.
            first = next(i for i, o in enumerate(stream) if ops.kind[o] == BACKWARD)
            for kind in ("backward-send", "backward-recv") if first >= 2 else ():
                self.chain([stream[first - 2], *ops.of(kind, stage)[:1]])
        for way, after in (("forward", 1), ("backward", -1)):
            receives = self.ends_of(way, "recv", recorded=recorded)
            for (chunk, number), o in self.ends_of(way, "send", recorded=recorded).items():
                if 0 <= chunk + after < ops.chunks:
                    if (chunk + after, number) not in receives:
                        raise NotAPipeline(f"no receive belongs to {ops.named(o)}: was the stage beside it recorded?")
                    pairs.append((o, receives[chunk + after, number]))
        if recorded:
            return pairs
        if len(self.streams) > 1:
            self.notes.append("sends and receives were not recorded: a stage begins when the one before it has ended")
        for pair in pairs:
            self.chain(pair)
        return []

    def ends_of(self, way: str, end: str, *, recorded: bool) -> dict[tuple[int, int], int]:
        """The sends, or the receives, of the n-th computation of each chunk; if not recorded, the computations."""
        ops, found, last = self.ops, {}, self.ops.stages[-1]
        for stage, stream in zip(ops.stages, self.streams, strict=True):
            work = [o for o in stream if ops.kind[o] == f"{way}-compute"]
            count: collections.Counter[int] = collections.Counter()
            pairs = [(o, i) for i, o in enumerate(work)]
            if recorded:
                transfers = self.in_order({f"{way}-{end}"}, stage)
                self.chain(transfers)
                pairs = _matches(ops, transfers, work, end, outer=stage in (0, last))
                beyond = stage == (0 if (way == "forward") == (end == "recv") else last)
                if beyond and ops.chunks == len(ops.stages) and len(pairs) == len(work):
                    raise NotAPipeline(
                        f"stage {stage} has a {way}-{end} for each computation: a stage beside it was not recorded, or "
                        "an interleaved schedule lacks the column 'gmc' or 'mc'"
                    )
            for o, i in pairs:
                if recorded and end == "send":
                    self.chain([work[i], o])
                elif recorded:
                    self.chain([*work[max(i - 1, 0) : i], o, work[i]])
                chunk = ops.chunk_of(work[i])
                found[chunk, count[chunk]] = o
                count[chunk] += 1
        return found

    def collectives(self) -> None:
        """Chain what comes before the first and after the last computation of each stage."""
        ops, overlap = self.ops, bool(self.ops.of(kinds.SEPARATE))
        for stage, stream in enumerate(self.streams):
            gathers, scatters = (self.in_order({kind}, stage) for kind in (kinds.GATHER, kinds.SCATTER))
            self.chain(gathers + scatters)
            for o, work in self._of_chunks(reversed(gathers), FORWARD, stream):  # the last gather of a chunk
                self.chain([o, work[0]])
            tail = ops.of((kinds.COLLECT, kinds.NORM), stage)
            tail += ops.of(kinds.EMBEDDING, stage) if stage in (0, ops.stages[-1]) else []
            if overlap:  # gradients are reduced as soon as those of a chunk are there
                for o, work in self._of_chunks(scatters, BACKWARD, stream):
                    self.chain([work[-1], o])
                rest = ops.of(kinds.SEPARATE, stage)
                after = [o for o in tail if ops.kind[o] != kinds.COLLECT] + rest
                self.chain([*scatters[-1:], *after[:1]])
                tail += rest
            else:
                tail += scatters
            self.chain([stream[-1], *tail, *ops.of((kinds.CLIP, kinds.UPDATE), stage)])

    def _of_chunks(
        self, collectives: Iterable[int], kind: str, stream: Sequence[int]
    ) -> Iterable[tuple[int, list[int]]]:
        """Yield the first of these collectives for each chunk, and the computations of a kind in that chunk."""
        ops, members, seen = self.ops, list(collectives), set()
        for o in members:
            chunk = ops.chunk[o]
            work = [w for w in stream if ops.kind[w] == kind and (len(members) == 1 or ops.chunk[w] == chunk)]
            if work and chunk not in seen:
                seen.add(chunk)
                yield o, work

    def finished(self, pairs: Sequence[tuple[int, ...]]) -> StepGraph:
        ops = self.ops
        parties = [*pairs, *(tuple(party) for party in (ops.of(kinds.EMBEDDING), ops.of(kinds.CLIP)) if party)]
        together = {o for party in parties for o in party}
        parties += [(o,) for o in range(len(ops.kind)) if o not in together]
        of = {o: i for i, party in enumerate(parties) for o in party}
        needs = {i: sorted({of[needed] for o in party for needed in self.before[o]}) for i, party in enumerate(parties)}
        try:
            parties = [parties[i] for i in graphlib.TopologicalSorter(needs).static_order()]
        except graphlib.CycleError as error:
            circle = ", ".join(ops.named(parties[i][0]) for i in error.args[1][:6])
            raise NotAPipeline(f"operations wait for each other: {circle}") from error
        across = np.array([ops.kind[party[0]] in ACROSS for party in parties])
        before = tuple(tuple(sorted(needed)) for needed in self.before)
        return StepGraph(before, tuple(parties), across)


def _places(ops: Operations) -> np.ndarray:
    """int[O], the place of each operation in its stage: how many of them mostly begin before it.

    Medians of begins would do if nothing lacked; so pairs are compared where both were recorded.
    """
    begin = ops.begin.reshape(len(ops.kind), -1)
    begin = begin[:, np.argsort(np.isnan(begin).sum(axis=0), kind="stable")[:_SAMPLE]]
    place = np.zeros(len(ops.kind), int)
    for stage in ops.stages:
        of = np.flatnonzero(ops.stage == stage)
        for o in of:
            place[o] = ((begin[of] < begin[o]).sum(axis=1) > (begin[of] > begin[o]).sum(axis=1)).sum()
    return place


def _matches(
    ops: Operations, transfers: Sequence[int], work: Sequence[int], end: str, *, outer: bool
) -> list[tuple[int, int]]:
    """Pair transfers with the number of the computation that each belongs to.

    Recorders write transfers that do nothing: a receive that begins after the last computation has begun, or a send
    that ends before the first one has.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # never recorded together
        if end == "recv":
            real = [o for o in transfers if np.nanmedian(ops.begin[o] - ops.begin[work[-1]]) <= _SLACK]
        else:
            real = [o for o in transfers if np.nanmedian(ops.end[o] - ops.end[work[0]]) >= -_SLACK]
    if len(real) == len(work) or (outer and not real):
        return list(zip(real, range(len(real)), strict=True))
    if outer and len(real) + 1 == len(work):  # the model's first receive, or its last send, was not recorded
        return [(o, i + (end == "recv")) for i, o in enumerate(real)]
    kind = ops.kind[transfers[0]] if transfers else end
    raise NotAPipeline(f"{len(real)} {kind} do not fit {len(work)} computations of stage {ops.stage[work[0]]}")
