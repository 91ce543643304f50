"""Recorded operations of pipeline stages as arrays [O, T, N]: of a step, in each step, on each data-parallel rank."""

import dataclasses
import functools
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float64, Int

FORWARD, BACKWARD = "forward-compute", "backward-compute"
COMPUTE = (FORWARD, BACKWARD)
SENDS, RECEIVES = ("forward-send", "backward-send"), ("forward-recv", "backward-recv")
TRANSFERS = frozenset((*SENDS, *RECEIVES))
GATHER, SCATTER, SEPARATE = "params-all-gather", "grads-reduce-scatter", "separate-grads-all-reduce"
NORM, EMBEDDING, CLIP = "layernorm-grads-all-reduce", "embedding-grads-all-reduce", "optimizer-clip-main-grad"
COLLECT, UPDATE = "gc", "optimizer"
ACROSS = frozenset((GATHER, SCATTER, SEPARATE, CLIP))
"""Collectives that all data-parallel ranks begin together."""
COMMUNICATION = TRANSFERS | ACROSS | {NORM, EMBEDDING}
KNOWN = COMMUNICATION | {*COMPUTE, COLLECT, UPDATE}

SAME = {"all-grads-sync": SCATTER, "grads-all-reduce": SCATTER, "optimizer-inner-step": UPDATE}
"""Other names that Megatron-LM's timers give to them."""

MOST_LACKING = 0.05
"""Largest share of a step's operations that may lack; a step that lacks more is left out."""

_LEAST_GAP = 2
"""Least number of steps at the end that a rank that has stopped lacks."""

_USUAL = 0.5
"""Share of the steps and ranks that must have an operation, for it to be one of each step."""


class NotAPipeline(ValueError):
    """Says that operations do not make steps whose order is understood, and what does not fit."""


@dataclasses.dataclass(frozen=True, eq=False)
class Operations:
    """Holds the O operations that each step of each data-parallel rank consists of.

    Attributes:
      kind: names of the O kinds, such as "forward-compute".
      stage: int[O], pipeline stage.
      number: int[O], counts those of a kind in a stage, by their begin.
      chunk: int[O], model chunk in the whole model where stages hold several in turn (interleaved); -1: not recorded.
      steps: int[T], the recorder's step numbers.
      ranks: int[N], data-parallel ranks.
      begin: float64[O, T, N], seconds since the first operation of the step; NaN where it lacks.
      end: float64[O, T, N], likewise.
      notes: what was decided, in sentences.
    """

    kind: tuple[str, ...]
    stage: Int[np.ndarray, " O"]
    number: Int[np.ndarray, " O"]
    chunk: Int[np.ndarray, " O"]
    steps: Int[np.ndarray, " T"]
    ranks: Int[np.ndarray, " N"]
    begin: Float64[np.ndarray, "O T N"]
    end: Float64[np.ndarray, "O T N"]
    notes: tuple[str, ...] = ()

    @functools.cached_property
    def stages(self) -> list[int]:
        """Return the stages, from the first on."""
        return np.unique(self.stage).tolist()

    @functools.cached_property
    def chunks(self) -> int:
        """Return the number of chunks of the whole model; as many as stages, unless these are interleaved."""
        return max(int(self.chunk.max()) + 1, len(self.stages))

    def chunk_of(self, operation: int) -> int:
        """Return the chunk of the whole model that an operation computes: of its own, or all of its stage."""
        return int((self.chunk if self.chunks > len(self.stages) else self.stage)[operation])

    @functools.cached_property
    def _found(self) -> dict[tuple[str, int], list[int]]:
        found: dict[tuple[str, int], list[int]] = {}
        for operation in np.lexsort((self.number, self.stage)).tolist():
            found.setdefault((self.kind[operation], int(self.stage[operation])), []).append(operation)
        return found

    def of(self, kinds: str | Collection[str], stage: int | None = None) -> list[int]:
        """Return the operations of kinds, in one stage or all, by kind, stage and number."""
        kinds = (kinds,) if isinstance(kinds, str) else kinds
        stages = self.stages if stage is None else (stage,)
        return [operation for kind in kinds for s in stages for operation in self._found.get((kind, s), ())]

    def named(self, operation: int) -> str:
        """Return what messages call an operation."""
        return f"{self.kind[operation]} {self.number[operation]} of stage {self.stage[operation]}"

    def select(self, rows: Any = slice(None), ranks: Any = slice(None)) -> "Operations":
        """Return the same with fewer steps or ranks."""
        begin, end = (times[:, rows][:, :, ranks] for times in (self.begin, self.end))
        return dataclasses.replace(self, steps=self.steps[rows], ranks=self.ranks[ranks], begin=begin, end=end)

    def without(self, operations: Sequence[int], note: str) -> "Operations":
        """Return the same without some operations, and a note why."""
        kept = np.delete(np.arange(len(self.kind)), operations)
        columns = {name: getattr(self, name)[kept] for name in ("stage", "number", "chunk", "begin", "end")}
        kind = tuple(self.kind[operation] for operation in kept)
        return dataclasses.replace(self, kind=kind, **columns, notes=(*self.notes, note))


@dataclasses.dataclass(frozen=True, eq=False)
class OperationRows:
    """Holds a table of operations, a row each.

    Attributes:
      kinds: distinct names.
      kind: int[R], which of them.
      step, rank, stage: int[R]; rank is the data-parallel one.
      start: float64[R], seconds; of a clock that begins anew in each step, or runs on.
      seconds: float64[R], duration.
      number: int[R], as in `Operations`; None: by their start.
      chunk: int[R], as in `Operations`, -1 where it is unknown; None: of all.
      device: int[R], of which several may do a stage of a rank; None: each has one.
    """

    kinds: Sequence[str]
    kind: np.ndarray
    step: np.ndarray
    rank: np.ndarray
    stage: np.ndarray
    start: np.ndarray
    seconds: np.ndarray
    number: np.ndarray | None = None
    chunk: np.ndarray | None = None
    device: np.ndarray | None = None


def arranged(rows: OperationRows) -> Operations:
    """Arrange rows as operations that all steps and ranks have.

    An operation that most steps and ranks lack is none; a step that lacks more than `MOST_LACKING` of the operations
    is left out, and so is a rank that has stopped recording. Where an operation is there several times, as of each of
    several tensor-parallel devices, the longest computation and the shortest communication count: the devices of a
    group wait for each other.

    Raises:
      NotAPipeline: where no step is complete.

    Example:
      >>> made = arranged(OperationRows(
      ...     ["forward-compute", "backward-compute"], kind=np.array([0, 1, 0, 1]), step=np.array([3, 3, 4, 4]),
      ...     rank=np.zeros(4, int), stage=np.zeros(4, int), start=np.array([0.0, 1.0, 0.0, 1.5]),
      ...     seconds=np.array([1.0, 2.0, 1.5, 2.0])))
      >>> made.kind, (made.end - made.begin)[:, :, 0].tolist()
      (('backward-compute', 'forward-compute'), [[2.0, 2.0], [1.0, 1.5]])
    """
    kinds = [SAME.get(name, name) for name in rows.kinds]
    names = sorted(set(kinds))
    kind = np.array([names.index(name) for name in kinds])[rows.kind]
    number = _counted(rows, kind) if rows.number is None else rows.number - rows.number.min()
    chunk = np.full(len(kind), -1) if rows.chunk is None else rows.chunk
    (steps, t), (ranks, n) = (np.unique(column, return_inverse=True) for column in (rows.step, rows.rank))
    key = np.ravel_multi_index((kind, rows.stage, number), (len(names), rows.stage.max() + 1, number.max() + 1))
    _, first, o = np.unique(key, return_index=True, return_inverse=True)
    shape = (first.size, steps.size, ranks.size)
    place = np.ravel_multi_index((o, t, n), shape)
    count = np.bincount(place, minlength=int(np.prod(shape))).reshape(shape)
    begin, end = np.full((2, *shape), np.nan)
    # Of several, the one that counts is written last.
    communicates = np.isin(kind, [names.index(name) for name in names if name in COMMUNICATION])
    order = np.argsort(np.where(communicates, -rows.seconds, rows.seconds), kind="stable")
    begin.flat[place[order]] = rows.start[order]
    end.flat[place[order]] = (rows.start + rows.seconds)[order]
    notes: list[str] = []
    stay = _staying(count, ranks, steps, notes)
    ranks, count, begin, end = ranks[stay], count[:, :, stay], begin[:, :, stay], end[:, :, stay]
    if (several := int(count.max())) > 1:
        notes.append(
            f"operations are there up to {several} times, as of tensor-parallel devices: the longest computation and "
            "the shortest communication of them count"
        )
    if from_one := int(rows.stage.min()) == 1:
        notes.append("stages count from 0 here, and from 1 in the trace")
    usual = (count > 0).mean(axis=(1, 2)) >= _USUAL
    if not usual.all():
        notes.append(f"{int((~usual).sum())} operations that most steps lack were left out")
    lacking = count[usual] == 0
    whole = lacking.mean(axis=(0, 2)) <= MOST_LACKING if usual.any() else np.zeros(steps.size, bool)
    lack = f"lack more than {100 * MOST_LACKING:g} % of their operations"
    if not whole.any():
        raise NotAPipeline(f"all steps {lack}")
    if not whole.all():
        notes.append(f"{int((~whole).sum())} of {whole.size} steps {lack} and were left out")
    lacking = lacking[:, whole]
    if lacking.any():
        notes.append(
            f"{lacking.sum()} of {lacking.size} operations lack, and count as long as others of their kind there"
        )
    begin, end = begin[usual][:, whole], end[usual][:, whole]
    zero = np.nanmin(begin, axis=(0, 2))[:, None]
    return Operations(
        tuple(names[code] for code in kind[first][usual]),
        rows.stage[first][usual] - from_one,
        number[first][usual],
        chunk[first][usual],
        steps[whole],
        ranks,
        begin - zero,
        end - zero,
        tuple(notes),
    )


def _staying(count: np.ndarray, ranks: np.ndarray, steps: np.ndarray, notes: list[str]) -> np.ndarray:
    """bool[N], the ranks that did not stop, if some have operations in the last steps and others have none."""
    there = (count > 0).sum(axis=0) > _USUAL * np.median((count > 0).sum(axis=0))  # [T, N]
    last = np.where(there.any(axis=0), steps.size - 1 - there[::-1].argmax(axis=0), -1)
    stay = last >= steps.size - max(_LEAST_GAP, steps.size // 10)
    if not stay.any():
        return ~stay
    for rank in np.flatnonzero(~stay):
        since = f"since step {steps[last[rank] + 1]}" if last[rank] >= 0 else "in any step"
        notes.append(f"rank {ranks[rank]} has no operations {since}: it is left out")
    return stay


def _counted(rows: OperationRows, kind: np.ndarray) -> np.ndarray:
    """int[R], the place of each row among those of its kind, stage, step and rank, by their start."""
    device = np.zeros(len(kind), int) if rows.device is None else rows.device
    columns = (device, kind, rows.stage, rows.rank, rows.step)
    order = np.lexsort((rows.start, *columns))
    fresh = np.any([np.diff(column[order], prepend=-2) != 0 for column in columns], axis=0)
    number, place = np.empty(len(order), int), np.arange(len(order))
    number[order] = place - np.maximum.accumulate(np.where(fresh, place, 0))
    return number
