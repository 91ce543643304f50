"""Staleness policies: which groups of rollouts may begin, which are discarded, and which are trained on next.

A policy answers with the verbs of NeMo-RL's samplers, and sees a `RolloutRun`, whose attributes it only reads. In what
follows v is the newest version at the engines, u the next trainer step, B the groups of a batch.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from sgdlab import arguments
from sgdlab.bounds import Count, NotNegative, Whole
from sgdlab.rollouts.family import STALENESS_POLICIES
from sgdlab.rollouts.schedule import OVERFLOW, STALE

if TYPE_CHECKING:
    from sgdlab.rollouts.simulate import RolloutRun

REQUEUES = ("never", "front", "back")
"""Names when the prompt of a discarded group is tried again: never, before new prompts, or behind those that wait."""


class Discard(NamedTuple):
    """The ready group is thrown away."""

    group: int
    fate: int  # `STALE` or `OVERFLOW`


@dataclasses.dataclass
class StalenessPolicy:
    """Group n, counted from 0, may begin where n < (eta + v + 1) B; ready groups are trained on as they come.

    None is discarded; where one is, by a policy that is made of this one, it gives its place back.

    Attributes:
      batch: B, groups of a trainer step.
      eta: bound of the gate in versions; without one, slots are always full.
      requeue: when the prompt of a discarded group is tried again: "never", "front" or "back".
    """

    batch: int
    eta: float = dataclasses.field(default=math.inf, kw_only=True)
    requeue: str = dataclasses.field(default="never", kw_only=True)

    def __post_init__(self) -> None:
        arguments.one_of("requeue", self.requeue, REQUEUES)

    def admit(self, run: "RolloutRun") -> bool:
        """Return True if another group may begin now; it is asked only where a slot is free."""
        return run.begun - run.discarded < (self.eta + run.version + 1) * self.batch

    def evict(self, run: "RolloutRun") -> Sequence[Discard]:
        """Return the ready groups that are thrown away now."""
        return ()

    def select(self, run: "RolloutRun") -> Sequence[int] | None:
        """Return the groups of the next step; None: it waits."""
        return run.ready[: self.batch] if len(run.ready) >= self.batch else None

    def published(self, run: "RolloutRun") -> None:
        """Takes note of a version that has just come to the engines."""


@dataclasses.dataclass
class Budget(StalenessPolicy):
    """Counts the groups begun since a version came; at the next one the count is that of groups not yet taken."""

    theta: float = dataclasses.field(kw_only=True)
    count: int = dataclasses.field(default=0, init=False)

    def admit(self, run: "RolloutRun") -> bool:
        """Return True if the budget has a place, which is then taken."""
        if self.count >= (1 + self.theta) * self.batch:
            return False
        self.count += 1
        return True

    def published(self, run: "RolloutRun") -> None:
        """Counts anew: groups that run, or wait to be trained on."""
        self.count = run.begun - run.taken - run.discarded


@dataclasses.dataclass
class InOrder(StalenessPolicy):
    """Group n is of step n // B."""

    def select(self, run: "RolloutRun") -> Sequence[int] | None:
        """Return the groups of that step, if all are ready."""
        if len(run.ready) < self.batch:
            return None
        due = [group for group in run.ready if group // self.batch == run.step]
        return due if len(due) == self.batch else None


@dataclasses.dataclass
class VersionFifo(StalenessPolicy):
    """The oldest version first: a group waits for all that began on an older one."""

    def select(self, run: "RolloutRun") -> Sequence[int] | None:
        """Return the ready groups of the oldest versions, if none of an older one than they have still runs."""
        if len(run.ready) < self.batch:
            return None
        first = sorted(run.ready, key=run.read.__getitem__)[: self.batch]  # stable: ready first within a version
        running = run.oldest_running()
        return None if running is not None and run.read[running] < run.read[first[-1]] else first


@dataclasses.dataclass
class LagWindow(StalenessPolicy):
    """Discards ready groups that would be staler than `lag` in the next step."""

    lag: float = dataclasses.field(kw_only=True)
    freshest: bool = dataclasses.field(kw_only=True)

    def evict(self, run: "RolloutRun") -> Sequence[Discard]:
        """Return those that began more than `lag` versions ago."""
        return [Discard(group, STALE) for group in run.ready if run.step - run.read[group] > self.lag]

    def select(self, run: "RolloutRun") -> Sequence[int] | None:
        """Return the first ready, or the freshest."""
        if self.freshest and len(run.ready) >= self.batch:
            return sorted(run.ready, key=lambda group: -run.read[group])[: self.batch]
        return super().select(run)


@dataclasses.dataclass
class QueueDrop(StalenessPolicy):
    """Discards the ready groups that have waited longest, where more wait than the queue holds."""

    capacity: float = dataclasses.field(kw_only=True)  # groups

    def evict(self, run: "RolloutRun") -> Sequence[Discard]:
        """Return those beyond the capacity."""
        over = len(run.ready) - self.capacity
        return [Discard(group, OVERFLOW) for group in run.ready[: int(over)]] if over > 0 else ()


@STALENESS_POLICIES.register(title="synchronous", source="on-policy GRPO; NeMo-RL's in_order with a window of 0")
def synchronous(*, batch: Count) -> StalenessPolicy:
    """Begins a batch when the version before it has come: nothing is stale."""
    return InOrder(batch, eta=0.0)


@STALENESS_POLICIES.register(title="one step off", source="Noukhovitch et al. 2025 (arXiv 2410.18252)")
def one_step_off(*, batch: Count) -> StalenessPolicy:
    """Begins the next batch while one is trained on: staleness is at most 1."""
    return InOrder(batch, eta=1.0)


@STALENESS_POLICIES.register(
    title="bounded admission", source="AReaL (arXiv 2505.24298), StalenessManager.get_capacity; NeMo-RL's ready_first"
)
def admission(*, batch: Count, eta: NotNegative = 2.0) -> StalenessPolicy:
    """Lets group n begin where n < (eta + v + 1) B, and trains on whichever are ready first.

    Args:
      batch: B, groups of a trainer step.
      eta: bound of the mean staleness in versions (rounded up to a whole group); single rollouts can be far staler.
    """
    return StalenessPolicy(batch, eta=eta)


@STALENESS_POLICIES.register(
    title="budget", source="verl, fully asynchronous: max_required_samples, staleness_threshold"
)
def budget(*, batch: Count, theta: NotNegative = 2.0) -> StalenessPolicy:
    """Lets (1 + theta) B groups begin from one version to the next, those that run or wait at the version counted.

    Args:
      batch: B, groups of a trainer step; a version comes after each.
      theta: verl's staleness_threshold. Where the trainer waits for the transfer this is `admission` with eta = theta.
    """
    return Budget(batch, theta=theta)


@STALENESS_POLICIES.register(title="in order", source="NeMo-RL, InOrderSampler")
def in_order(*, batch: Count, eta: NotNegative = 2.0) -> StalenessPolicy:
    """Admits as `admission` does, and trains on exactly the groups n of step n // B: the slowest of them is waited for.

    Args:
      batch: B, groups of a trainer step.
      eta: bound of the staleness of every rollout, in versions; rounded up.
    """
    return InOrder(batch, eta=eta)


@STALENESS_POLICIES.register(title="oldest version first", source="NeMo-RL, WeightFifoSampler")
def version_fifo(*, batch: Count, eta: NotNegative = 2.0) -> StalenessPolicy:
    """Admits as `admission` does, and trains on the groups of the oldest version first, ready first within a version.

    Args:
      batch: B, groups of a trainer step.
      eta: bound of the staleness of every rollout, in versions; rounded up.
    """
    return VersionFifo(batch, eta=eta)


@STALENESS_POLICIES.register(
    title="discard the stale", source="tinker-cookbook, slime, NeMo-RL's WindowedSampler (which aborts in flight too)"
)
def window(
    *,
    batch: Count,
    lag: Whole | None = 1,
    gate: NotNegative | None = None,
    requeue: str = "never",
    freshest: bool = False,
) -> StalenessPolicy:
    """Trains on ready groups whose first rollout began at most `lag` versions ago; staler ones are thrown away.

    Args:
      batch: B, groups of a trainer step.
      lag: largest staleness in versions. None: any.
      gate: eta of a gate as `admission` has it; what is thrown away gives its place back. None: no gate.
      requeue: when the prompt of a discarded group is tried again: never, front (before new prompts) or back.
      freshest: whether the freshest ready groups are taken, not the first.
    """
    bound, eta = (math.inf if value is None else float(value) for value in (lag, gate))
    return LagWindow(batch, requeue=requeue, eta=eta, lag=bound, freshest=freshest)


@STALENESS_POLICIES.register(title="queue that drops the oldest", source="Applied Compute 2026")
def queue_drop(*, batch: Count, capacity: Count | None = 1, requeue: str = "never") -> StalenessPolicy:
    """Keeps slots full; where more groups are ready than the queue holds, those that wait longest are thrown away.

    Args:
      batch: B, groups of a trainer step.
      capacity: q, batches that the queue holds. None: any number.
      requeue: when the prompt of a discarded group is tried again: never, front or back.
    """
    return QueueDrop(batch, requeue=requeue, capacity=math.inf if capacity is None else capacity * batch)


@STALENESS_POLICIES.register(title="unbounded", source="the limit of the others")
def unbounded(*, batch: Count) -> StalenessPolicy:
    """Keeps slots full and trains on all groups as they are ready; staleness grows for ever if engines are faster."""
    return StalenessPolicy(batch)
