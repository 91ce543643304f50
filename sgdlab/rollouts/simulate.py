"""Simulation of asynchronous reinforcement learning, exactly: engines, a queue of ready groups, a trainer, a transfer.

At one instant come, in this order: steps that are over, versions that are loaded, rollouts that are over; then groups
are aborted, others discarded, a step begins, and free slots are filled. Nothing polls, and nothing is drawn.
"""

import collections
import dataclasses
import heapq
import math
from collections.abc import Callable, Sequence

import numpy as np

from sgdlab import arguments
from sgdlab.rollouts.engines import Decoder, System
from sgdlab.rollouts.policies import StalenessPolicy
from sgdlab.rollouts.schedule import ABORTED, QUEUED, RUNNING, TRAINED, RolloutSchedule
from sgdlab.rollouts.workload import Workload

_STEP_OVER, _LOADED, _ROLLOUT_OVER = range(3)
_UNAVAILABLE = 1 << 40
"""Stands for the busy slots of an engine that takes no rollouts."""


def simulate(
    workload: Workload, system: System, make_policy: Callable[..., StalenessPolicy], *, num_steps: int
) -> RolloutSchedule:
    """Return what becomes of every rollout until a number of versions have come to the engines.

    Args:
      workload: lengths of the rollouts; prompts come in order, and again where all have been taken.
      system: machines and their times.
      make_policy: a registered policy, or one of a user's own: `(batch=...) -> StalenessPolicy`.
      num_steps: U, trainer steps.

    Raises:
      ValueError: where all would wait for ever.

    Example:
      >>> import functools
      >>> from sgdlab import rollouts
      >>> work = rollouts.lognormal(prompts=2000, group=4, seed=0)
      >>> machines = rollouts.System(engines=4, slots=32, batch=8)
      >>> print(simulate(work, machines, functools.partial(rollouts.admission, eta=2), num_steps=50))
      RolloutSchedule: 50 steps of 32 rollouts in 492.61 s, mean staleness 1.86 by rollout, largest 16, 0.0 % of the
      tokens wasted
    """
    arguments.whole("num_steps", num_steps)
    run = RolloutRun(workload, system, make_policy(batch=system.batch), num_steps)
    run.go()
    return run.schedule()


@dataclasses.dataclass(slots=True)
class _RolloutGroup:
    """Holds a group: what it is of, the row of its first rollout, how many are not over, and what has become of it."""

    prompt: int
    attempt: int
    lengths: list[int]
    left: int
    first: int
    ready: float = math.nan
    fate: int = RUNNING
    step: int = -1


class RolloutRun:
    """A run while it is simulated; policies read it.

    Attributes:
      version: v, the newest version at the engines.
      step: u, the next trainer step.
      begun: groups that have begun; they are numbered as they begin.
      taken: groups that have entered a step.
      discarded: groups that were thrown away or aborted.
      ready: groups that are ready and wait, in the order in which they became ready.
      read: of each group, the version on which its first rollout began.
      events: rollouts and steps that were over, and versions that were loaded.
    """

    def __init__(self, workload: Workload, system: System, policy: StalenessPolicy, num_steps: int):
        self.workload, self.system, self.policy, self.num_steps = workload, system, policy, num_steps
        self.version = self.step = self.begun = self.taken = self.discarded = self.events = 0
        self.ready: list[int] = []
        self.read: list[int] = []
        rates = system.rates()
        self._engines = [Decoder(rates) for _ in range(system.engines)]
        self._load = [0] * system.engines  # busy slots of each
        self._heap: list[tuple[float, int, int, int]] = []  # (seconds, kind, engine, stamp)
        self._now, self._training, self._settled, self._aged = 0.0, False, False, False
        self._fresh, self._again = 0, collections.deque[int]()  # prompts: how many have come, and those to try again
        self._tries = [0] * workload.prompts
        self._groups: list[_RolloutGroup] = []
        self._pending, self._first_running = 0, 0  # rollouts of the last group that have not begun
        self._rows: list[tuple] = []  # of rollouts: group, engine, clock, second and version at the beginning, length
        self._finished: list[float] = []
        self._aborted: dict[int, int] = {}  # row -> tokens that it had then
        self._began: list[float] = []
        self._ended: list[float] = []
        self._applied: list[float] = []

    def oldest_running(self) -> int | None:
        """Return the first group, in the order in which they began, that is still decoded; None where none is."""
        while self._first_running < self.begun and not self._groups[self._first_running].left:
            self._first_running += 1
        return self._first_running if self._first_running < self.begun else None

    def newest(self, number: int) -> int:
        """Return the version on which the last rollout of a ready group began."""
        return self._rows[self._groups[number].first + self.workload.group - 1][4]

    def go(self) -> None:
        """Runs until the last version has come."""
        heap, pop = self._heap, heapq.heappop
        self._settle([])
        while len(self._applied) < self.num_steps:
            if not heap:
                raise ValueError(
                    f"all wait for ever from {self._now:g} s on, after {len(self._applied)} of {self.num_steps} steps: "
                    "the policy lets no group begin and the trainer has no batch"
                )
            now = self._now = heap[0][0]
            touched: list[int] = []
            over: list[int] = []
            while heap and heap[0][0] == now:
                _, kind, index, stamp = pop(heap)
                if kind == _ROLLOUT_OVER:
                    if self._engines[index].stamp == stamp:
                        self._rollouts_over(index, over)
                        touched.append(index)
                elif kind == _STEP_OVER:
                    self._step_over()
                else:
                    self._loaded(touched)
            if over:
                over.sort()
                self.ready += over
                self._settled = False
            if len(self._applied) < self.num_steps:
                self._settle(touched)
        for engine in self._engines:
            engine.advance(self._now)

    def _rollouts_over(self, index: int, over: list[int]) -> None:
        """Ends the rollouts of an engine that are over at this instant; groups that are whole are added to `over`."""
        now, engine = self._now, self._engines[index]
        engine.advance(now)
        rollouts = engine.rollouts
        clock = engine.clock = rollouts[0][0]
        while rollouts and rollouts[0][0] <= clock:
            row = heapq.heappop(rollouts)[1]
            self._finished[row] = now
            self.events += 1
            number = self._rows[row][0]
            group = self._groups[number]
            group.left -= 1
            if not group.left:
                group.fate, group.ready = QUEUED, now
                over.append(number)
        self._count(index)

    def _count(self, index: int) -> None:
        """Counts the busy slots of an engine anew; one that drains loads the newest version when it is empty."""
        engine = self._engines[index]
        if engine.paused:
            return
        if engine.version != self.version:
            if engine.rollouts:
                return
            engine.load(self.version)
        self._load[index] = len(engine.rollouts)

    def _step_over(self) -> None:
        self.events += 1
        self._ended.append(self._now)
        self._training = self.system.trainer_waits
        self._settled = False
        if self.system.hold in ("engines", "both"):
            for index, engine in enumerate(self._engines):
                engine.advance(self._now)
                engine.paused = True
                engine.stamp += 1
                self._load[index] = _UNAVAILABLE
        heapq.heappush(self._heap, (self._now + self.system.transfer, _LOADED, 0, 0))

    def _loaded(self, touched: list[int]) -> None:
        self.events += 1
        self._applied.append(self._now)
        self.version += 1
        self._settled, self._aged = False, True
        if self.system.trainer_waits:
            self._training = False
        self.policy.published(self)
        for index, engine in enumerate(self._engines):
            engine.advance(self._now)
            paused, engine.paused = engine.paused, False
            if self.system.refresh == "in_flight":
                engine.load(self.version)
            self._load[index] = _UNAVAILABLE  # but where it does not drain
            self._count(index)
            touched.append(index)
            if paused and engine.rollouts and engine.rollouts[0][0] <= engine.clock:  # it was over just as that began
                engine.stamp += 1
                heapq.heappush(self._heap, (self._now, _ROLLOUT_OVER, index, engine.stamp))

    def _settle(self, touched: list[int]) -> None:
        """Does what can be done at this instant: aborts, discards, begins a step, fills slots; asks what is next."""
        while not self._settled:
            self._settled = True
            while self._aged and (number := self.policy.abort(self)) is not None:
                self._abort(number, touched)
            self._aged = False
            for number, fate in self.policy.evict(self).items():
                self.ready.remove(number)
                self._discard(number, fate)
            if not self._training and (batch := self.policy.select(self)):
                self._begin_step(batch)
                self._settled = False  # what waits is a step staler
        self._fill(touched)
        heap, now, engines = self._heap, self._now, self._engines
        for index in set(touched):
            engine = engines[index]
            engine.stamp += 1
            if engine.rollouts and not engine.paused:
                # Rounding may put the end of a rollout in the past.
                heapq.heappush(heap, (max(engine.next_end(), now), _ROLLOUT_OVER, index, engine.stamp))

    def _abort(self, number: int, touched: list[int]) -> None:
        """Stops the rollouts of a group, which leave their slots; others of it do not begin."""
        group, now = self._groups[number], self._now
        if not group.left:
            raise ValueError(f"the policy aborts group {number}, which must be one that is decoded")
        if number == self.begun - 1:
            self._pending = 0
        for row in range(group.first, min(group.first + self.workload.group, len(self._rows))):
            if math.isnan(self._finished[row]):
                _, index, clock, _, _, length = self._rows[row]
                engine = self._engines[index]
                engine.advance(now)
                engine.rollouts = [item for item in engine.rollouts if item[1] != row]
                heapq.heapify(engine.rollouts)
                self._finished[row], self._aborted[row] = now, min(math.floor(engine.clock - clock), length)
                self._count(index)
                touched.append(index)
        group.left = 0
        self._discard(number, ABORTED)

    def _discard(self, number: int, fate: int) -> None:
        group = self._groups[number]
        group.fate = fate
        self.discarded += 1
        if self.policy.requeue != "never":
            put = self._again.appendleft if self.policy.requeue == "front" else self._again.append
            put(group.prompt)

    def _begin_step(self, batch: Sequence[int]) -> None:
        chosen, self._training, tokens, oldest = set(batch), True, 0, self.step - self.policy.trained_lag
        self.ready = [number for number in self.ready if number not in chosen]
        for number in batch:
            group = self._groups[number]
            group.fate, group.step = TRAINED, self.step
            rows = self._rows[group.first : group.first + self.workload.group]
            tokens += sum(row[-1] for row in rows if row[-2] >= oldest)
        self.taken += len(batch)
        self.step += 1
        self._began.append(self._now)
        seconds = self.system.train + self.system.train_token * tokens
        heapq.heappush(self._heap, (self._now + seconds, _STEP_OVER, 0, 0))

    def _fill(self, touched: list[int]) -> None:
        """Free slots take the next rollout: on the engine that is least busy, the first of several."""
        load, slots, now, size = self._load, self.system.slots, self._now, self.workload.group
        while (least := min(load)) < slots:
            if not self._pending:
                if not self.policy.admit(self):
                    return
                self._begin_group()
            index = load.index(least)
            engine, number = self._engines[index], self.begun - 1
            engine.advance(now)
            length = self._groups[number].lengths[size - self._pending]
            if self._pending == size:
                self.read.append(engine.version)
            self._pending -= 1
            load[index] = least + 1
            heapq.heappush(engine.rollouts, (engine.clock + length, len(self._rows)))
            self._rows.append((number, index, engine.clock, now, engine.version, length))
            self._finished.append(math.nan)
            touched.append(index)

    def _begin_group(self) -> None:
        """Numbers the next group: of the prompts that are tried again the first, else of the next prompt."""
        if self._again:
            prompt = self._again.popleft()
        else:
            prompt = self._fresh % self.workload.prompts
            self._fresh += 1
        attempt = self._tries[prompt]
        self._tries[prompt] += 1
        lengths = self.workload.tokens[attempt % self.workload.attempts, prompt].tolist()
        self._groups.append(_RolloutGroup(prompt, attempt, lengths, len(lengths), len(self._rows)))
        self.begun += 1
        self._pending = self.workload.group

    def schedule(self) -> RolloutSchedule:
        """Return what has become of every rollout; a step that the end has cut off has trained on nothing."""
        steps = self.num_steps
        group, engine, clock, started, read, length = map(np.array, zip(*self._rows, strict=True))
        finished, clocks = np.array(self._finished), np.array([decoder.clock for decoder in self._engines])
        made = np.where(np.isnan(finished), np.minimum(np.floor(clocks[engine] - clock), length), length)
        made[list(self._aborted)] = list(self._aborted.values())
        step, fate = (np.array([getattr(one, name) for one in self._groups]) for name in ("step", "fate"))
        fate = np.where((fate == TRAINED) & (step >= steps), QUEUED, fate)
        step = np.where(fate == TRAINED, step, -1)
        return RolloutSchedule(
            group=group,
            engine=engine,
            read=read,
            tokens=made,
            started=started,
            finished=finished,
            withheld=step[group] - read > self.policy.trained_lag,
            **_spans(self._engines, engine, clock, made.astype(np.int64)),
            **{name: np.array([getattr(one, name) for one in self._groups]) for name in ("prompt", "attempt", "ready")},
            fate=fate,
            step=step,
            began=np.array(self._began[:steps]),
            ended=np.array(self._ended[:steps]),
            applied=np.array(self._applied),
            busy=np.array([decoder.busy_seconds for decoder in self._engines]),
            slots=np.full(len(self._engines), self.system.slots),
        )


def _spans(engines: list[Decoder], engine: np.ndarray, clock: np.ndarray, made: np.ndarray) -> dict[str, np.ndarray]:
    """Return which version made how many tokens of each rollout; a token is of the version under which it was ended."""
    parts = []
    for index, decoder in enumerate(engines):
        own, switches = np.flatnonzero(engine == index), np.array([*decoder.switches, math.inf])
        first = np.searchsorted(switches, clock[own], side="right") - 1
        counts = np.maximum(np.searchsorted(switches, clock[own] + made[own], side="left") - first, 1)
        row = np.repeat(own, counts)
        at = np.arange(row.size) - np.repeat(np.cumsum(counts) - counts - first, counts)
        begin, end = (np.clip(np.floor(switches[one] - clock[row]), 0, made[row]) for one in (at, at + 1))
        end[np.cumsum(counts) - 1] = made[own]  # whatever rounding says
        parts.append((row, np.array(decoder.loads)[at], (end - begin).astype(np.int64)))
    row, version, tokens = map(np.concatenate, zip(*parts, strict=True))
    order = np.argsort(row, kind="stable")
    kept = order[tokens[order] > 0]
    return {"span_rollout": row[kept], "span_version": version[kept], "span_tokens": tokens[kept]}
