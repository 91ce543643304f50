"""Jobs of pipelines of which every cause is known: operations by a recursion of their own, and planted causes."""

import dataclasses
import graphlib
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from sgdlab.pipelines import OperationRows, PipelineJob, arranged
from sgdlab.stragglers import what_if
from sgdlab.stragglers.diagnosis import pauses
from sgdlab.stragglers.what_if import pipeline_words
from sgdlab.stragglers.what_if.candidates import LENGTHS, LINK, LONG_STAGE, STAGE_OF_RANK
from sgdlab.traces.operations import of_pipeline

WAYS = ("forward", "backward")
_SECONDS = (0.010, 0.020)
_MESSAGE, _GATHER, _SCATTER, _EMBEDDING, _CLIP, _UPDATE = 0.0005, 0.010, 0.020, 0.005, 0.002, 0.010


@dataclasses.dataclass(frozen=True)
class Shape:
    """The shape of a job.

    Attributes:
      ranks: N, data-parallel.
      stages: S.
      chunks: of each stage; more than one: interleaved.
      batches: M micro-batches, a multiple of S where it is interleaved.
      steps: T.
    """

    ranks: int = 4
    stages: int = 4
    chunks: int = 1
    batches: int = 8
    steps: int = 40


@dataclasses.dataclass(frozen=True, eq=False)
class Durations:
    """Seconds of what a step consists of.

    Attributes:
      work: float64[2, C, M, T, N], forward and backward, of the C = S x chunks chunks of the model.
      messages: float64[2, C, M, T, N]: forward from chunk c, backward from chunk c.
      delays: largest launch delay, seconds.
    """

    work: np.ndarray
    messages: np.ndarray
    delays: float = 0.0005


def durations(shape: Shape, generator: np.random.Generator, spread: float = 0.02) -> Durations:
    """Draw a job without any cause: computations and messages that differ by chance, log-normally."""
    size = (2, shape.stages * shape.chunks, shape.batches, shape.steps, shape.ranks)
    base = np.reshape(_SECONDS, (2, 1, 1, 1, 1))
    speed = np.exp(0.005 * generator.standard_normal((1, 1, 1, 1, shape.ranks)))
    work = base * speed * np.exp(spread * generator.standard_normal(size))
    return Durations(work, _MESSAGE * np.exp(0.2 * generator.standard_normal(size)))


class _Name(NamedTuple):
    """An operation of a step."""

    rank: int
    stage: int
    kind: str
    number: int


def order(shape: Shape, stage: int) -> list[tuple[int, int, int]]:
    """Return the computations of a stage in their order: (way, chunk of the stage, micro-batch), 1F1B of Megatron-LM.

    Source: Narayanan et al. 2021, "Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM",
    figures 3 and 4.

    Example:
      >>> ["FB"[way] + str(batch) for way, _, batch in order(Shape(stages=2, batches=3), 0)]
      ['F0', 'F1', 'B0', 'F2', 'B1', 'B2']
    """
    total, stages, chunks = shape.batches * shape.chunks, shape.stages, shape.chunks

    def unit(k: int, way: int) -> tuple[int, int, int]:
        if chunks == 1:
            return way, 0, k
        chunk = k % (stages * chunks) // stages
        return way, chunks - 1 - chunk if way else chunk, k // (stages * chunks) * stages + k % stages

    warm = stages - stage - 1 if chunks == 1 else 2 * (stages - stage - 1) + (chunks - 1) * stages
    warm = min(total, warm)
    steady = [one for k in range(total - warm) for one in (unit(warm + k, 0), unit(k, 1))]
    return [unit(k, 0) for k in range(warm)] + steady + [unit(k, 1) for k in range(total - warm, total)]


@dataclasses.dataclass
class _Step:
    """The operations of a step, each with what it waits for, and with which others it begins."""

    seconds: dict[_Name, Any] = dataclasses.field(default_factory=dict)
    after: dict[_Name, list[_Name]] = dataclasses.field(default_factory=dict)
    party: dict[_Name, Any] = dataclasses.field(default_factory=dict)
    chunk: dict[_Name, int] = dataclasses.field(default_factory=dict)

    def add(self, name: _Name, seconds: Any, after: list[_Name], party: Any = None, chunk: int = -1) -> _Name:
        self.seconds[name], self.after[name], self.chunk[name] = seconds, after, chunk
        self.party[name] = name if party is None else party
        return name

    def run(self, lag: Callable[[], np.ndarray]) -> tuple[dict[_Name, np.ndarray], dict[_Name, np.ndarray]]:
        """Return begins and ends: a party goes on when the last of its members has come."""
        members: dict[Any, list[_Name]] = {}
        for name, party in self.party.items():
            members.setdefault(party, []).append(name)
        needs = {party: {self.party[a] for name in of for a in self.after[name]} for party, of in members.items()}
        begin, end = {}, {}
        for party in graphlib.TopologicalSorter(needs).static_order():
            for name in members[party]:
                begin[name] = np.maximum.reduce([end[a] for a in self.after[name]] or [np.zeros(())]) + lag()
            met = np.maximum.reduce([begin[name] for name in members[party]])
            end |= {name: met + self.seconds[name] for name in members[party]}
        return begin, end


def recorded(shape: Shape, given: Durations, generator: np.random.Generator) -> OperationRows:
    """Return the operations of a job as a recorder of Megatron-LM writes them."""
    step, last = _Step(), shape.stages - 1
    plans = [order(shape, stage) for stage in range(shape.stages)]
    places = [{unit: _number(plan, unit) for unit in plan} for plan in plans]
    for rank in range(shape.ranks):
        for stage in range(shape.stages):
            before = step.add(_Name(rank, stage, "params-all-gather", 0), _GATHER, [], ("gather", stage), 0)
            before = _compute(step, shape, given, plans, places, rank, stage, before)
            before = step.add(_Name(rank, stage, "gc", 0), 0.0, [before])
            before = step.add(_Name(rank, stage, "layernorm-grads-all-reduce", 0), 1e-4, [before])
            if stage in (0, last):
                name = _Name(rank, stage, "embedding-grads-all-reduce", 0)
                before = step.add(name, _EMBEDDING, [before], ("embedding", rank))
            name = _Name(rank, stage, "grads-reduce-scatter", 0)
            before = step.add(name, _SCATTER, [before], ("scatter", stage), 0)
            before = step.add(_Name(rank, stage, "optimizer-clip-main-grad", 0), _CLIP, [before], "clip")
            step.add(_Name(rank, stage, "optimizer", 0), _UPDATE, [before])
    begin, end = step.run(lambda: given.delays * generator.random(shape.steps))
    names, kinds = list(step.seconds), sorted({name.kind for name in step.seconds})
    each = lambda values: np.repeat(np.array(values), shape.steps)
    start = np.concatenate([np.broadcast_to(begin[name], shape.steps) for name in names])
    return OperationRows(
        kinds,
        each([kinds.index(name.kind) for name in names]),
        np.tile(np.arange(shape.steps), len(names)),
        each([name.rank for name in names]),
        each([name.stage for name in names]),
        start,
        np.concatenate([np.broadcast_to(end[name], shape.steps) for name in names]) - start,
        each([name.number for name in names]),
        each([step.chunk[name] for name in names]),
    )


def _number(plan: list[tuple[int, int, int]], unit: tuple[int, int, int]) -> int:
    return [other for other in plan if other[0] == unit[0]].index(unit)


def _compute(
    step: _Step,
    shape: Shape,
    given: Durations,
    plans: list[list[tuple[int, int, int]]],
    places: list[Mapping[tuple[int, int, int], int]],
    rank: int,
    stage: int,
    before: _Name,
) -> _Name:
    """Add the computations of a stage with their messages; the last one is returned."""
    chunks, plan = shape.stages * shape.chunks, plans[stage]
    warm = next(k for k, unit in enumerate(plan) if unit[0] == 1)
    for unit in plan:
        way, chunk, batch = unit
        number, place = places[stage][unit], chunk * shape.stages + stage
        ahead = 1 if way == 0 else -1
        after = [before]
        if 0 <= place - ahead < chunks:
            prior = [_Name(rank, stage, f"{WAYS[way]}-{kind}", number - 1) for kind in ("recv", "compute")]
            prior = prior if number else []
            prior = [name for name in prior if name in step.seconds]
            if way and not number and warm >= 2:
                first = plan[warm - 2]
                prior = [_Name(rank, stage, f"{WAYS[first[0]]}-compute", places[stage][first])]
            seconds = given.messages[way, place - ahead, batch, :, rank]
            party = ("message", rank, way, place - ahead, batch)
            after.append(step.add(_Name(rank, stage, f"{WAYS[way]}-recv", number), seconds, prior, party))
        elif shape.chunks > 1:  # recorders write a receive that does nothing
            after.append(step.add(_Name(rank, stage, f"{WAYS[way]}-recv", number), 1e-5, [before]))
        own = given.work[way, place, batch, :, rank]
        before = step.add(_Name(rank, stage, f"{WAYS[way]}-compute", number), own, after, chunk=place)
        prior = [name for name in [_Name(rank, stage, f"{WAYS[way]}-send", number - 1)] if name in step.seconds]
        if 0 <= place + ahead < chunks:
            seconds, party = given.messages[way, place, batch, :, rank], ("message", rank, way, place, batch)
            step.add(_Name(rank, stage, f"{WAYS[way]}-send", number), seconds, [before, *prior], party)
        elif shape.chunks > 1:
            step.add(_Name(rank, stage, f"{WAYS[way]}-send", number), 1e-5, [before, *prior])
    return before


class Planted(NamedTuple):
    """A job with a cause, or without one (kind "nothing"), and which title, or part of one, must be named first."""

    kind: str
    title: str
    rows: OperationRows
    since: int | None = None


def stage_of_rank(shape: Shape, generator: np.random.Generator) -> Planted:
    """Plant a machine: one stage of a rank, 1.15 to 2.5 times as slow, from the beginning or from some step on."""
    given, factor = durations(shape, generator), generator.uniform(1.15, 2.5)
    stage, rank = int(generator.integers(shape.stages)), int(generator.integers(shape.ranks))
    since = int(generator.choice([0, shape.steps // 3, shape.steps // 2]))
    for chunk in range(stage, shape.stages * shape.chunks, shape.stages):
        given.work[:, chunk, :, since:, rank] *= factor
    return Planted(STAGE_OF_RANK, f"stage {stage} of rank {rank}", recorded(shape, given, generator), since)


def link(shape: Shape, generator: np.random.Generator) -> Planted:
    """Plant a link: the messages between two stages of a rank take as long as a third of a backward computation."""
    given = durations(shape, generator)
    rank, low = int(generator.integers(shape.ranks)), int(generator.integers(shape.stages - 1))
    for chunk in range(low, shape.stages * shape.chunks, shape.stages):
        given.messages[0, chunk, :, :, rank] *= generator.uniform(10, 30)
        given.messages[1, (chunk + 1) % (shape.stages * shape.chunks), :, :, rank] *= generator.uniform(10, 30)
    title = f"messages between stages {low} and {low + 1} of rank {rank}"
    return Planted(LINK, title, recorded(shape, given, generator))


def lengths(shape: Shape, generator: np.random.Generator) -> Planted:
    """Plant long data: micro-batches differ by 15 to 40 %, in all stages alike."""
    given = durations(shape, generator)
    size = (1, 1, *given.work.shape[2:])
    long = np.exp(generator.uniform(0.15, 0.4) * generator.standard_normal(size))
    return Planted(LENGTHS, "the sequence lengths", recorded(shape, _scaled(given, long), generator))


def long_stage(shape: Shape, generator: np.random.Generator) -> Planted:
    """Plant a stage that holds too many layers, 1.5 to 2.5 times the others."""
    given, factor = durations(shape, generator), np.ones((1, shape.stages * shape.chunks, 1, 1, 1))
    stage = int(generator.integers(shape.stages))
    factor[:, stage :: shape.stages] = generator.uniform(1.5, 2.5)
    return Planted(LONG_STAGE, f"stage {stage}", recorded(shape, _scaled(given, factor), generator))


def nothing(shape: Shape, generator: np.random.Generator) -> Planted:
    """Plant nothing: noise of 0.5 to 5 % alone."""
    given = durations(shape, generator, spread=generator.uniform(0.005, 0.05))
    return Planted("nothing", "", recorded(shape, given, generator))


def _scaled(given: Durations, factor: np.ndarray) -> Durations:
    return dataclasses.replace(given, work=given.work * factor)


PLANTS = {"stage of a rank": stage_of_rank, "link": link, "sequence lengths": lengths, "long stage": long_stage}
"""Causes by name."""

_SHAPES = (
    Shape(),
    Shape(ranks=8, stages=2, batches=6),
    Shape(ranks=4, stages=4, chunks=2),
    Shape(ranks=2, stages=3, batches=9, steps=60),
    Shape(ranks=16, stages=2, batches=4, steps=30),
)


class PipelineTrial(NamedTuple):
    """The name of a planted cause, or "nothing", the number of the draw and the seed of all draws."""

    name: str
    draw: int
    seed: int


class PipelineOutcome(NamedTuple):
    """Holds the answer: the planted cause named first or not, all titles, and the error of the first slow step."""

    right: bool
    told: tuple[str, ...]
    since_error: int | None


def run(trial: PipelineTrial) -> PipelineOutcome:
    """Draw a job, diagnose it, and compare."""
    names = ["nothing", *PLANTS]
    generator = np.random.default_rng([trial.seed, 20_000, names.index(trial.name), trial.draw])
    shape = _SHAPES[trial.draw % len(_SHAPES)]
    planted = PLANTS.get(trial.name, nothing)(shape, generator)
    recording = of_pipeline(PipelineJob.of(arranged(planted.rows)), [])
    result = what_if.try_repairs(recording, pauses.find_pauses(recording), seed=trial.seed)
    rows = pipeline_words.told(result)
    told = tuple(row.title for row in rows)
    if planted.kind == "nothing":
        return PipelineOutcome(not told, told, None)
    right = (
        bool(rows)
        and rows[0].kind == planted.kind
        and rows[0].title.removeprefix("the ").startswith(planted.title.removeprefix("the "))
    )
    error = None if not right or planted.since is None else abs((rows[0].since or 0) - planted.since)
    return PipelineOutcome(right, told, error)
