"""Staleness policies: which groups of rollouts may begin, which are discarded, and which are trained on next.

A policy answers with the verbs of NeMo-RL's samplers, and sees a `RolloutRun`, whose attributes it only reads. In what
follows v is the newest version at the engines, u the next trainer step, B the groups of a batch.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from sgdlab import arguments
from sgdlab.bounds import Count, NotNegative, Whole
from sgdlab.rollouts.family import STALENESS_POLICIES
from sgdlab.rollouts.schedule import OVERFLOW, STALE

if TYPE_CHECKING:
    from sgdlab.rollouts.simulate import RolloutRun

REQUEUES = ("never", "front", "back")
"""Names when the prompt of a discarded group is tried again: never, before new prompts, or behind those that wait."""

STALES = ("discard", "abort", "withhold")
"""Names what becomes of what is too stale: groups are discarded when they are ready; or aborted besides while they are
decoded; or single rollouts of a group are withheld, whose rewards count for its baseline and whose tokens do not."""

_ORDERS = ("ready", "begun", "oldest", "freshest")


@dataclasses.dataclass
class StalenessPolicy:
    """Group n, counted from 0, may begin where n < (eta + v + 1) B; ready groups are trained on in an order.

    None is discarded without a bound; one that is gives its place back.

    Attributes:
      batch: B, groups of a trainer step.
      eta: bound of the gate in versions; without one, slots are always full.
      lag: bound of the staleness in versions; ready groups that would be staler in the next step are discarded.
      stale: "discard"; "abort": groups are aborted where a version comes of which their first rollout is more than
        `lag` versions behind; "withhold": only groups all of whose rollouts would be too stale are discarded.
      capacity: groups that may wait; of more, those that have waited longest are discarded.
      order: "ready": the first ready ones are trained on; "begun": exactly the groups n of step n // B; "oldest": those
        of the oldest versions, once none of an older one than they have still runs; "freshest": of the newest ones.
      requeue: when the prompt of a discarded or aborted group is tried again: "never", "front" or "back".
    """

    batch: int
    _: dataclasses.KW_ONLY
    eta: float = math.inf
    lag: float = math.inf
    stale: str = "discard"
    capacity: float = math.inf
    order: str = "ready"
    requeue: str = "never"

    def __post_init__(self) -> None:
        for name, known in (("requeue", REQUEUES), ("order", _ORDERS), ("stale", STALES)):
            arguments.one_of(name, getattr(self, name), known)

    @property
    def trained_lag(self) -> float:
        """The staleness up to which rollouts of a step's groups are trained on; staler ones are withheld."""
        return self.lag if self.stale == "withhold" else math.inf

    def admit(self, run: "RolloutRun") -> bool:
        """Return True if another group may begin now; it is asked only where a slot is free."""
        return run.begun - run.discarded < (self.eta + run.version + 1) * self.batch

    def abort(self, run: "RolloutRun") -> int | None:
        """Return a group that is aborted while it is decoded; it is asked where a version has come, until none is."""
        oldest = run.oldest_running() if self.stale == "abort" else None
        return None if oldest is None or run.version - run.read[oldest] <= self.lag else oldest

    def evict(self, run: "RolloutRun") -> Mapping[int, int]:
        """Return the ready groups that are thrown away now, and the fate of each: `STALE` or `OVERFLOW`."""
        ready = run.ready
        if self.lag == math.inf and len(ready) <= self.capacity:
            return {}
        read = run.newest if self.stale == "withhold" else run.read.__getitem__
        gone = dict.fromkeys((group for group in ready if run.step - read(group) > self.lag), STALE)
        over = len(ready) - len(gone) - self.capacity
        if over <= 0:
            return gone
        kept = [group for group in ready if group not in gone]
        return gone | dict.fromkeys(kept[: int(over)], OVERFLOW)

    def select(self, run: "RolloutRun") -> Sequence[int] | None:
        """Return the groups of the next step; None: it waits."""
        ready, batch = run.ready, self.batch
        if len(ready) < batch:
            return None
        match self.order:
            case "begun":
                ready = [group for group in ready if group // batch == run.step]
            case "oldest":
                ready = sorted(ready, key=run.read.__getitem__)  # stable: ready first within a version
                running = run.oldest_running()
                if running is not None and run.read[running] < run.read[ready[batch - 1]]:
                    return None
            case "freshest":
                ready = sorted(ready, key=lambda group: -run.read[group])
        return ready[:batch] if len(ready) >= batch else None

    def published(self, run: "RolloutRun") -> None:
        """Takes note of a version that has just come to the engines."""


@dataclasses.dataclass
class Budget(StalenessPolicy):
    """Counts the groups begun since a version came; at the next one the count is that of groups not yet taken."""

    theta: float
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


@STALENESS_POLICIES.register(title="synchronous", source="on-policy GRPO; NeMo-RL's in_order with a window of 0")
def synchronous(*, batch: Count) -> StalenessPolicy:
    """Begins a batch when the version before it has come: nothing is stale."""
    return StalenessPolicy(batch, eta=0.0, order="begun")


@STALENESS_POLICIES.register(title="one step off", source="Noukhovitch et al. 2025 (arXiv 2410.18252)")
def one_step_off(*, batch: Count) -> StalenessPolicy:
    """Begins the next batch while one is trained on: staleness is at most 1."""
    return StalenessPolicy(batch, eta=1.0, order="begun")


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
    return StalenessPolicy(batch, eta=eta, order="begun")


@STALENESS_POLICIES.register(title="oldest version first", source="NeMo-RL, WeightFifoSampler")
def version_fifo(*, batch: Count, eta: NotNegative = 2.0) -> StalenessPolicy:
    """Admits as `admission` does, and trains on the groups of the oldest version first, ready first within a version.

    Args:
      batch: B, groups of a trainer step.
      eta: bound of the staleness of every rollout, in versions; rounded up.
    """
    return StalenessPolicy(batch, eta=eta, order="oldest")


@STALENESS_POLICIES.register(
    title="discard the stale", source="tinker-cookbook, slime, NeMo-RL's WindowedSampler, trl #7176, prime-rl #2960"
)
def window(
    *,
    batch: Count,
    lag: Whole | None = 1,
    stale: str = "discard",
    gate: NotNegative | None = None,
    requeue: str = "never",
    freshest: bool = False,
) -> StalenessPolicy:
    """Trains on ready groups whose first rollout began at most `lag` versions ago; staler ones are thrown away.

    Args:
      batch: B, groups of a trainer step.
      lag: largest staleness in versions. None: any.
      stale: what becomes of the others: discard (when their group is ready), abort (also while it is decoded: NeMo-RL,
        trl) or withhold (by rollout: the reward counts for the group's baseline, the tokens do not; prime-rl).
      gate: eta of a gate as `admission` has it; what is thrown away gives its place back. None: no gate.
      requeue: when the prompt of a discarded group is tried again: never, front (before new prompts) or back.
      freshest: whether the freshest ready groups are taken, not the first.
    """
    bound, eta = (math.inf if value is None else float(value) for value in (lag, gate))
    order = "freshest" if freshest else "ready"
    return StalenessPolicy(batch, eta=eta, lag=bound, stale=stale, order=order, requeue=requeue)


@STALENESS_POLICIES.register(title="queue that drops the oldest", source="Applied Compute 2026")
def queue_drop(*, batch: Count, capacity: Count | None = 1, requeue: str = "never") -> StalenessPolicy:
    """Keeps slots full; where more groups are ready than the queue holds, those that wait longest are thrown away.

    Args:
      batch: B, groups of a trainer step.
      capacity: q, batches that the queue holds. None: any number.
      requeue: when the prompt of a discarded group is tried again: never, front or back.
    """
    return StalenessPolicy(batch, requeue=requeue, capacity=math.inf if capacity is None else capacity * batch)


@STALENESS_POLICIES.register(title="unbounded", source="the limit of the others")
def unbounded(*, batch: Count) -> StalenessPolicy:
    """Keeps slots full and trains on all groups as they are ready; staleness grows for ever if engines are faster."""
    return StalenessPolicy(batch)
