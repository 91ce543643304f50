"""The RolloutSchedule: which rollouts began on which version, what became of them, and when.

Staleness of a rollout is the step that it enters less the version on which it began (0: fresh); of a token, less the
version that made it. The two differ by factors: every number names its unit.
"""

import dataclasses
import heapq
import math
import os
from typing import Any

import numpy as np
from jaxtyping import Bool, Float64, Int8, Int32, Int64

from sgdlab import arguments, arrays
from sgdlab.schedule import DROPPED, PENDING, Schedule

TRAINED, STALE, OVERFLOW, ABORTED, WITHHELD, RUNNING, QUEUED = range(7)
FATES = ("trained", "stale", "overflow", "aborted", "withheld", "running", "queued")
"""Names what becomes of a group: trained on; thrown away as too stale, or from a full queue; aborted while it was
decoded; still decoded, or ready, when the run ends. Single rollouts of a group that is trained on may be withheld."""

WASTED = FATES[STALE:RUNNING]
"""Names the fates of tokens that are not trained on; those of `running` and `queued` groups are surplus."""


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class RolloutSchedule:
    """Holds what became of every rollout of a run.

    R rollouts and K groups, in the order in which they began; S spans of tokens that one version made; U trainer steps;
    E engines. Version v is there for engines after v steps are trained and sent.

    Attributes:
      group: int32[R], the group of each rollout.
      engine: int32[R], the engine that decoded it.
      read: int32[R], the version on which it began.
      tokens: int64[R], tokens made by the end of the run.
      started: float64[R], seconds.
      finished: float64[R], seconds, when it was over or aborted; NaN where it still ran.
      withheld: bool[R], of a group that was trained on: its reward counts, and its tokens are not trained on.
      span_rollout: int64[S], the rollout of each span, in order.
      span_version: int32[S], the version that made its tokens; rises within a rollout.
      span_tokens: int64[S], how many.
      prompt: int64[K], the prompt of each group.
      attempt: int32[K], how often the prompt had been tried before.
      ready: float64[K], seconds when the last of its rollouts was over; NaN where it was not, or was aborted.
      fate: int8[K], of `FATES`.
      step: int32[K], the trainer step that it entered, from 0; -1: none.
      began: float64[U], seconds when each step began.
      ended: float64[U], seconds when it was over.
      applied: float64[U], seconds when version u + 1 was at the engines.
      busy: float64[E], seconds that the slots of each engine decoded, all slots together.
      slots: int32[E], slots of each engine.

    Raises:
      ValueError: from the constructor, where the arrays contradict each other; it names the first row that does.
    """

    group: Int32[np.ndarray, " R"]
    engine: Int32[np.ndarray, " R"]
    read: Int32[np.ndarray, " R"]
    tokens: Int64[np.ndarray, " R"]
    started: Float64[np.ndarray, " R"]
    finished: Float64[np.ndarray, " R"]
    withheld: Bool[np.ndarray, " R"]
    span_rollout: Int64[np.ndarray, " S"]
    span_version: Int32[np.ndarray, " S"]
    span_tokens: Int64[np.ndarray, " S"]
    prompt: Int64[np.ndarray, " K"]
    attempt: Int32[np.ndarray, " K"]
    ready: Float64[np.ndarray, " K"]
    fate: Int8[np.ndarray, " K"]
    step: Int32[np.ndarray, " K"]
    began: Float64[np.ndarray, " U"]
    ended: Float64[np.ndarray, " U"]
    applied: Float64[np.ndarray, " U"]
    busy: Float64[np.ndarray, " E"]
    slots: Int32[np.ndarray, " E"]

    def __post_init__(self) -> None:
        first: dict[str, str] = {}  # column of each axis
        for name, kind in _columns().items():
            array = arrays.frozen_copy(name, getattr(self, name), kind.dtypes[0])
            object.__setattr__(self, name, array)
            other = first.setdefault(kind.dim_str, name)
            shape = getattr(self, other).shape
            if array.ndim != 1 or array.shape != shape or not array.size:
                raise ValueError(f"{name} has shape {array.shape}; {other} of shape {shape} calls for it")
        _check_rollouts(self)
        _check_groups(self)

    @property
    def num_steps(self) -> int:
        """U, trainer steps."""
        return self.applied.size

    @property
    def batch(self) -> int:
        """Groups of a step."""
        return int((self.step == 0).sum())

    def trained(self, warmup: int = 0) -> np.ndarray:
        """bool[R]: the rollout was trained on, from step `warmup` on."""
        return (self.step[self.group] >= warmup) & ~self.withheld  # -1 where the group was not trained on

    def fates(self) -> np.ndarray:
        """int[R]: what became of each rollout, of `FATES`."""
        return np.where(self.withheld, WITHHELD, self.fate[self.group])

    def staleness(self, warmup: int = 0) -> np.ndarray:
        """int[.], versions: of each rollout that was trained on from `warmup` on, in the order in which they began."""
        rows = self.trained(warmup)
        return (self.step[self.group] - self.read)[rows]

    def in_system(self) -> np.ndarray:
        """int[U]: rollouts, trained in the end, begun before version v = 1 ... U came and by then in no step, by times.

        Their sum is that of the staleness, to the last rollout, where the trainer waits for the transfer: Little's law
        without assumptions. Where it does not, a step may take rollouts before the version before it has come.
        """
        rows = self.trained()
        started, taken = np.sort(self.started[rows]), np.sort(self.began[self.step[self.group[rows]]])
        return np.searchsorted(started, self.applied) - np.searchsorted(taken, self.applied)

    def ledger(self) -> dict[str, int]:
        """Return the tokens by fate; they add up to all that were made."""
        counts = np.bincount(self.fates(), self.tokens, len(FATES))
        return dict(zip(FATES, counts.astype(np.int64).tolist(), strict=True))

    def wasted(self) -> dict[str, float]:
        """Return the share of all tokens that were made and are not trained on, by reason."""
        ledger = self.ledger()
        return {name: ledger[name] / max(sum(ledger.values()), 1) for name in WASTED}

    def figures(self, warmup: int = 0) -> dict[str, float]:
        """Return figures for tables; all but the shares of tokens are from the version before step `warmup` on.

        `seconds_per_step`; `staleness` and `largest_staleness` by rollout, `token_staleness` (from start) and
        `token_staleness_in_flight`, in versions; `slots_busy` and `trainer_busy`, shares of the time, the former over
        the whole run; `wasted`, and of these `stale`, `overflow`, `aborted` and `withheld`, shares of all tokens;
        `goodput`, trained tokens a second; `mean_tokens` of a trained rollout.
        """
        arguments.whole("warmup", warmup, least=0, most=self.num_steps - 1)
        begin = self.applied[warmup - 1] if warmup else 0.0
        seconds, rows = float(self.applied[-1] - begin), self.trained(warmup)
        per, spans, tokens = seconds or math.nan, rows[self.span_rollout], self.tokens[rows]
        lag = (self.step[self.group[self.span_rollout]] - self.span_version)[spans]
        return {
            "seconds_per_step": seconds / (self.num_steps - warmup),
            **of_lags(self.staleness(warmup), tokens),
            "token_staleness_in_flight": float(np.average(lag, weights=self.span_tokens[spans])),
            "slots_busy": float(self.busy.sum() / (self.applied[-1] * self.slots.sum())),
            "trainer_busy": float((self.ended - self.began)[warmup:].sum() / per),
            "wasted": sum(self.wasted().values()),
            **self.wasted(),
            "goodput": float(tokens.sum() / per),
        }

    def schedule(self) -> Schedule:
        """Return the run as an ordinary schedule: slots are workers, rollouts that are over are gradients.

        A gradient is sent when its rollout is over and arrives when its group is ready; rows are ordered by step, then
        by when they were ready. Of rollouts that are not over, that is the end of the run; of a group that is aborted,
        when they are over or aborted. One that is aborted when it has just begun is left out.
        """
        used, step = self.trained(), self.step[self.group]
        dropped = np.isin(self.fates(), range(STALE, RUNNING))
        end = np.maximum(self.applied[-1], np.nextafter(self.started, np.inf))
        ready = np.where(self.fate[self.group] == ABORTED, self.finished, self.ready[self.group])
        sent, ready = (np.where(np.isnan(seconds), end, seconds) for seconds in (self.finished, ready))
        arrived = np.maximum(ready, sent)
        rows = np.lexsort((np.arange(step.size), arrived, np.where(used, step, self.num_steps)))
        rows = rows[self.finished[rows] != self.started[rows]]
        return Schedule(
            worker=self._places()[rows],
            read=self.read[rows],
            update=np.where(used, step, np.where(dropped, DROPPED, PENDING))[rows],
            started=self.started[rows],
            arrived=arrived[rows],
            sent=sent[rows],
            applied=self.applied,
            num_workers=int(self.slots.sum()),
        )

    def _places(self) -> np.ndarray:
        """int[R]: a slot for each rollout, the one of its engine that has been free for longest."""
        free = np.split(np.arange(self.slots.sum()), np.cumsum(self.slots)[:-1])
        since = [[(-math.inf, place) for place in places] for places in free]  # heaps
        found, ends = [], np.where(np.isnan(self.finished), np.inf, self.finished)
        for engine, end in zip(self.engine, ends, strict=True):
            found.append(since[engine][0][1])
            heapq.heapreplace(since[engine], (end, found[-1]))
        return np.array(found)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes it to one `.npz` file, whole or not at all."""
        arrays.save(path, {name: getattr(self, name) for name in _columns()})

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "RolloutSchedule":
        """Reads and checks what `save` wrote; nothing is unpickled.

        Raises:
          ValueError: where the file is not such a schedule.
        """
        return arrays.load(path, _columns(), cls, what="a schedule of rollouts")

    def __str__(self) -> str:
        found = self.figures()
        return (
            f"RolloutSchedule: {self.num_steps} steps of {int(self.trained().sum()) // self.num_steps} rollouts in "
            f"{self.applied[-1]:.6g} s, mean staleness {found['staleness']:.3g} by rollout, largest "
            f"{found['largest_staleness']}, {100 * found['wasted']:.1f} % of the tokens wasted"
        )


def of_lags(lag: np.ndarray, tokens: np.ndarray) -> dict[str, float]:
    """Return what is said of trained rollouts, given how many versions each is stale and how many tokens it has."""
    return {
        "staleness": float(lag.mean()),
        "largest_staleness": int(lag.max()),
        "token_staleness": float(np.average(lag, weights=tokens)),
        "mean_tokens": float(tokens.mean()),
    }


def _columns() -> dict[str, Any]:
    """Return name -> type of the arrays, which has their dtype and axis."""
    return {field.name: field.type for field in dataclasses.fields(RolloutSchedule)}


def _check_rollouts(made: RolloutSchedule) -> None:
    """Raises where a rollout, or its spans, contradict themselves."""
    refuse, size = arrays.refuse, made.group.size
    refuse((made.group < 0) | (made.group >= made.prompt.size), "group", made.group, f"0 to {made.prompt.size - 1}")
    refuse((made.engine < 0) | (made.engine >= made.busy.size), "engine", made.engine, f"0 to {made.busy.size - 1}")
    refuse((made.read < 0) | (made.read > made.num_steps), "read", made.read, f"0 to {made.num_steps}, a version")
    refuse(made.tokens < 0, "tokens", made.tokens, "at least 0")
    available = np.append(0.0, made.applied)[made.read]
    early = ~(np.isfinite(made.started) & (made.started >= available))
    refuse(early, "started", made.started, "finite, and no earlier than the version that was read")
    early = (made.finished < made.started) | ((made.finished == made.started) & (made.fates() != ABORTED))
    refuse(early, "finished", made.finished, "later than started")
    refuse((made.span_rollout < 0) | (made.span_rollout >= size), "span_rollout", made.span_rollout, f"0 to {size - 1}")
    refuse(made.span_tokens < 1, "span_tokens", made.span_tokens, "at least 1")
    total = np.bincount(made.span_rollout, made.span_tokens, size).astype(np.int64)
    refuse(total != made.tokens, "tokens", made.tokens, "the sum of its spans")
    step, same = np.diff(made.span_rollout), np.diff(made.span_version)
    refuse((step < 0) | ((step == 0) & (same <= 0)), "span_version", made.span_version[1:], "rising within a rollout")
    before = made.span_version < made.read[made.span_rollout]
    refuse(before, "span_version", made.span_version, "no older than the version that was read")


def _check_groups(made: RolloutSchedule) -> None:
    """Raises where groups contradict their rollouts, or steps their groups."""
    refuse = arrays.refuse
    refuse((made.fate < 0) | (made.fate >= len(FATES)), "fate", made.fate, f"0 to {len(FATES) - 1}")
    trained = made.fate == TRAINED
    wrong = np.where(trained, (made.step < 0) | (made.step >= made.num_steps), made.step != -1)
    refuse(wrong, "step", made.step, f"0 to {made.num_steps - 1} where the group was trained on, else -1")
    last = np.full(made.prompt.size, -np.inf)
    np.maximum.at(last, made.group, np.where(np.isnan(made.finished), np.inf, made.finished))
    never = (made.fate == RUNNING) | (made.fate == ABORTED)
    wrong = np.where(never, ~np.isnan(made.ready), made.ready != last)
    refuse(wrong, "ready", made.ready, "when the last rollout of the group was over, and NaN if it ran or was aborted")
    refuse(~np.isfinite(made.began), "began", made.began, "finite")
    for name, least in (("ended", made.began), ("applied", made.ended)):
        refuse(~(getattr(made, name) >= least), name, getattr(made, name), "no earlier than what comes before it")
    refuse(np.diff(made.applied) < 0, "applied", made.applied[1:], "rising")
    steps = made.step[trained]
    late = trained & (made.ready > made.began[made.step])
    refuse(late, "ready", made.ready, "no later than its step began")
    counts = np.bincount(steps, minlength=made.num_steps)
    refuse(counts != made.batch, "step", counts, f"of as many groups as step 0, {made.batch}")
    refuse(made.withheld & ~trained[made.group], "withheld", made.withheld, "False where the group was not trained on")
    newer = trained[made.group] & (made.read > made.step[made.group])
    refuse(newer, "read", made.read, "no newer than the step that it entered")
