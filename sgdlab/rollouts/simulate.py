"""Simulation of asynchronous reinforcement learning, exactly: engines, a queue of ready groups, a trainer, a transfer.

At one instant come, in this order: steps that are over, versions that are loaded, rollouts that are over; then groups
are discarded, a step begins, and free slots are filled. Nothing polls, and nothing is drawn.
"""

import collections
import heapq
import math
from collections.abc import Callable, Sequence

import numpy as np

from sgdlab import arguments
from sgdlab.rollouts.engines import Decoder, System
from sgdlab.rollouts.policies import StalenessPolicy
from sgdlab.rollouts.schedule import QUEUED, RUNNING, TRAINED, RolloutSchedule
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


class RolloutRun:
    """A run while it is simulated; policies read it.

    Attributes:
      version: v, the newest version at the engines.
      step: u, the next trainer step.
      begun: groups that have begun; they are numbered as they begin.
      taken: groups that have entered a step.
      discarded: groups that were thrown away.
      ready: groups that are ready and wait, in the order in which they became ready.
      read: of each group, the version on which its first rollout began.
    """

    def __init__(self, workload: Workload, system: System, policy: StalenessPolicy, num_steps: int):
        self.workload, self.system, self.policy, self.num_steps = workload, system, policy, num_steps
        self.version = self.step = self.begun = self.taken = self.discarded = 0
        self.ready: list[int] = []
        self.read: list[int] = []
        self.events = 0  # rollouts and steps that were over, and versions that were loaded
        self._now = 0.0
        rates = system.rates()
        self._engines = [Decoder(rates) for _ in range(system.engines)]
        self._load = [0] * system.engines  # busy slots of each engine
        self._heap: list[tuple[float, int, int, int]] = []  # (seconds, kind, engine, stamp)
        self._prompts, self._again = 0, collections.deque[tuple[int, int]]()
        self._lengths: list[list[int]] = []  # of each group
        self._pending = 0  # rollouts of the last group that have not begun
        self._training, self._settled = False, False
        self._applied: list[float] = []
        self._began: list[float] = []
        self._ended: list[float] = []
        # Of groups: prompt, attempt, rollouts not yet over, when it was ready, fate, step.
        self._prompt: list[int] = []
        self._attempt: list[int] = []
        self._left: list[int] = []
        self._ready_at: list[float] = []
        self._fate: list[int] = []
        self._entered: list[int] = []
        self._first_running = 0
        # Of rollouts: group, engine, clock and second at which they began, version, length, second at which they ended.
        self._group: list[int] = []
        self._engine: list[int] = []
        self._clock: list[float] = []
        self._started: list[float] = []
        self._row_read: list[int] = []
        self._length: list[int] = []
        self._finished: list[float] = []

    def oldest_running(self) -> int | None:
        """Return the first of the groups, in the order in which they began, that is not ready; None where all are."""
        while self._first_running < self.begun and not self._left[self._first_running]:
            self._first_running += 1
        return self._first_running if self._first_running < self.begun else None

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
            group = self._group[row]
            self._left[group] -= 1
            if not self._left[group]:
                self._fate[group], self._ready_at[group] = QUEUED, now
                over.append(group)
        if engine.version != self.version:  # it drains
            if rollouts:
                return
            engine.load(self.version)
        self._load[index] = len(rollouts)

    def _step_over(self) -> None:
        self.events += 1
        self._ended.append(self._now)
        self._training = self.system.trainer_waits
        self._settled = False
        if self.system.engines_wait:
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
        self._settled = False
        if self.system.trainer_waits:
            self._training = False
        self.policy.published(self)
        drain = self.system.refresh == "drain"
        for index, engine in enumerate(self._engines):
            engine.advance(self._now)
            engine.paused = False
            if drain and engine.rollouts:
                self._load[index] = _UNAVAILABLE
            else:
                engine.load(self.version)
                self._load[index] = len(engine.rollouts)
            touched.append(index)

    def _settle(self, touched: list[int]) -> None:
        """Does what can be done at this instant: discards, begins a step, fills slots; asks engines what is next."""
        while not self._settled:
            self._settled = True
            for group, fate in self.policy.evict(self):
                self.ready.remove(group)
                self._fate[group] = fate
                self.discarded += 1
                again = (self._prompt[group], self._attempt[group] + 1)
                if self.policy.requeue != "never":
                    (self._again.appendleft if self.policy.requeue == "front" else self._again.append)(again)
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

    def _begin_step(self, batch: Sequence[int]) -> None:
        chosen, self._training = set(batch), True
        self.ready = [group for group in self.ready if group not in chosen]
        tokens = 0
        for group in batch:
            self._fate[group], self._entered[group] = TRAINED, self.step
            tokens += sum(self._lengths[group])
        self.taken += len(batch)
        self._began.append(self._now)
        self.step += 1
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
            engine, group = self._engines[index], self.begun - 1
            engine.advance(now)
            length = self._lengths[group][size - self._pending]
            if self._pending == size:
                self.read.append(engine.version)
            self._pending -= 1
            load[index] = least + 1
            heapq.heappush(engine.rollouts, (engine.clock + length, len(self._group)))
            self._group.append(group)
            self._engine.append(index)
            self._clock.append(engine.clock)
            self._started.append(now)
            self._row_read.append(engine.version)
            self._length.append(length)
            self._finished.append(math.nan)
            touched.append(index)

    def _begin_group(self) -> None:
        """Numbers the next group: of the prompts that are tried again the first, else of the next prompt."""
        if self._again:
            prompt, attempt = self._again.popleft()
        else:
            attempt, prompt = divmod(self._prompts, self.workload.prompts)
            self._prompts += 1
        self._prompt.append(prompt)
        self._attempt.append(attempt)
        self._lengths.append(self.workload.tokens[attempt % self.workload.attempts, prompt].tolist())
        self._left.append(self.workload.group)
        self._ready_at.append(math.nan)
        self._fate.append(RUNNING)
        self._entered.append(-1)
        self.begun += 1
        self._pending = self.workload.group

    def schedule(self) -> RolloutSchedule:
        """Return what has become of every rollout; a step that the end has cut off has trained on nothing."""
        steps, engine, clock = self.num_steps, np.array(self._engine), np.array(self._clock)
        finished, length = np.array(self._finished), np.array(self._length)
        clocks = np.array([decoder.clock for decoder in self._engines])
        made = np.where(np.isnan(finished), np.minimum(np.floor(clocks[engine] - clock), length), length)
        step, fate = np.array(self._entered), np.array(self._fate)
        fate = np.where((fate == TRAINED) & (step >= steps), QUEUED, fate)
        return RolloutSchedule(
            group=np.array(self._group),
            engine=engine,
            read=np.array(self._row_read),
            tokens=made,
            started=np.array(self._started),
            finished=finished,
            **_spans(self._engines, engine, clock, made.astype(np.int64)),
            prompt=np.array(self._prompt),
            attempt=np.array(self._attempt),
            ready=np.array(self._ready_at),
            fate=fate,
            step=np.where(fate == TRAINED, step, -1),
            began=np.array(self._began[:steps]),
            ended=np.array(self._ended[:steps]),
            applied=np.array(self._applied),
            busy=np.array([decoder.busy_seconds for decoder in self._engines]),
            slots=np.full(len(self._engines), self.system.slots),
        )


def _spans(engines: list[Decoder], engine: np.ndarray, clock: np.ndarray, made: np.ndarray) -> dict[str, np.ndarray]:
    """Return which version made how many tokens of each rollout; a token is of the version under which it was ended."""
    first, last = np.empty(engine.size, np.int64), np.empty(engine.size, np.int64)
    offset = 0
    for index, decoder in enumerate(engines):
        rows, switches = np.flatnonzero(engine == index), np.array(decoder.switches)
        first[rows] = offset + np.searchsorted(switches, clock[rows], side="right") - 1
        last[rows] = offset + np.searchsorted(switches, clock[rows] + made[rows], side="left") - 1
        offset += switches.size
    switches = np.concatenate([decoder.switches for decoder in engines])
    loads = np.concatenate([decoder.loads for decoder in engines])
    counts = np.maximum(last - first, 0) + 1
    rows = np.repeat(np.arange(engine.size), counts)
    begins = np.cumsum(counts) - counts
    place = np.arange(rows.size) - begins[rows]
    at = first[rows] + place
    cut = np.where(place == 0, 0, np.clip(np.floor(switches[at] - clock[rows]), 0, made[rows]))
    until = np.append(cut[1:], 0)
    until[np.cumsum(counts) - 1] = made
    tokens = (until - cut).astype(np.int64)
    kept = tokens > 0
    return {
        "span_rollout": rows[kept],
        "span_version": loads[at[kept]],
        "span_tokens": tokens[kept],
    }
