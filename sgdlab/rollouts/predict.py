r"""Closed forms of staleness and seconds: what a workload and machines say before anything is simulated.

C slots in all; B rollouts of a trainer step; M, how much longer the longest rollout of a group is than a rollout; rho,
the rollouts that engines can make in the time of a trainer step, over B; q, batches that the queue holds; eta, the
bound of admission. Staleness is in versions and by rollout, unless it says token.
"""

import dataclasses
import math

import numpy as np

from sgdlab.rollouts.engines import System
from sgdlab.rollouts.policies import Budget, StalenessPolicy
from sgdlab.rollouts.workload import Workload


@dataclasses.dataclass(frozen=True)
class ClosedForms:
    """Says what follows from a workload and machines.

    Attributes:
      workload: lengths of rollouts.
      system: engines, trainer, transfer.

    Example:
      >>> from sgdlab import rollouts
      >>> found = predict(rollouts.lognormal(prompts=20_000, group=4), rollouts.System(batch=32))
      >>> round(found.rho, 2), found.smallest_eta()
      (1.2, 5)
    """

    workload: Workload
    system: System

    @property
    def per_rollout(self) -> float:
        """C / B, slots for each rollout of a trainer step."""
        return self.system.engines * self.system.slots / (self.system.batch * self.workload.group)

    @property
    def step_seconds(self) -> float:
        """Least seconds between two versions, of steps with rollouts of mean length."""
        system, tokens = self.system, self.system.batch * self.workload.group * self.workload.mean()
        return system.train + system.train_token * tokens + system.transfer * system.trainer_waits

    @property
    def rho(self) -> float:
        """Rate of the engines, all slots busy, over the rate of the trainer; above 1 the trainer is the slower."""
        return self.per_rollout * self.system.rates()[-1] * self.step_seconds / self.workload.mean()

    @property
    def seconds_per_step(self) -> float:
        """Seconds of a step where slots are always full, and nothing but what a queue cannot hold is thrown away."""
        return self.step_seconds / min(1.0, self.rho)

    def pre_queue(self) -> float:
        r"""Return the staleness that a rollout gets from its beginning until its group is ready, slots being full.

        .. math:: C M / (B \max(1, \rho))

        Source: Applied Compute 2026, by excerpts.
        """
        return self.per_rollout * self.workload.tailness() / max(1.0, self.rho)

    def in_queue(self, batches: float = 1.0, *, exact: bool = True) -> float:
        r"""Return the staleness that it gets in a queue that drops the oldest.

        .. math:: \rho \quad (\rho < 1), \qquad E \lceil U \rceil, \; U \sim U((q - 1) / \rho, q / \rho]
            \quad (\rho \ge 1)

        Args:
          batches: q, that the queue holds.
          exact: else the mean of U plus a half, (2 q + rho - 1) / (2 rho), as it is printed.

        Source: Applied Compute 2026, by excerpts; the exact form is ours.
        """
        if self.rho < 1:
            return self.rho
        if not exact:
            return (2 * batches + self.rho - 1) / (2 * self.rho)
        return mean_ceiling((batches - 1) / self.rho, batches / self.rho)

    def queue_staleness(self, batches: float = 1.0) -> float:
        """Return the whole staleness with a queue that drops the oldest, by the printed formulas.

        Their sum is better than its parts: it is the mean age in steps, and a half. Where the trainer is the slower,
        groups are ready in the last part of a step, and what the exact form adds in the queue is missing before it.
        """
        return self.pre_queue() + self.in_queue(batches, exact=False)

    def admitted(self, eta: float) -> float:
        """Return the bound of the mean staleness under admission: eta, rounded up to a whole group of the batch."""
        return math.ceil(eta * self.system.batch) / self.system.batch if math.isfinite(eta) else math.inf

    def smallest_eta(self) -> int:
        r"""Return the smallest bound of admission that keeps the trainer busy, or one more.

        .. math:: \left\lceil \frac{E \max(L_1 \dots L_G)}{v\, t} \right\rceil + 1

        v: tokens a second of a slot, t: seconds of a step. Ours.
        """
        return math.ceil(self.workload.longest() / (self.system.rates()[-1] * self.step_seconds)) + 1

    def staleness(self, policy: StalenessPolicy) -> tuple[str, float]:
        """Return what is known of the mean staleness under a policy: a relation ("=", "<=" or "") and a number."""
        waits = self.system.trainer_waits
        match policy:
            case StalenessPolicy(eta=0.0):
                return "=", 0.0
            case StalenessPolicy(lag=lag, stale=stale, eta=eta) if math.isfinite(lag):
                return "<=", min(lag, self.admitted(eta)) if waits and stale != "withhold" else lag
            case StalenessPolicy(capacity=capacity) if math.isfinite(capacity):
                return "=", self.queue_staleness(capacity / policy.batch)
            case Budget(theta=bound) | StalenessPolicy(eta=bound) if math.isfinite(bound):
                return ("<=", self.admitted(bound)) if waits else ("", math.nan)
            case _:
                return ("=", self.queue_staleness()) if self.rho < 1 else ("", math.inf)

    def figures(self) -> dict[str, float]:
        """Return the numbers that do not depend on a policy, by name."""
        return {
            "rho": self.rho,
            "tailness": self.workload.tailness(),
            "step_seconds": self.step_seconds,
            "seconds_per_step": self.seconds_per_step,
            "pre_queue": self.pre_queue(),
            "in_queue": self.in_queue(),
            "in_queue_printed": self.in_queue(exact=False),
            "smallest_eta": self.smallest_eta(),
        }

    def __str__(self) -> str:
        faster = "engines" if self.rho > 1 else "trainer"
        return (
            f"rho = {self.rho:.3g}, so the {faster} could be the faster; M = {self.workload.tailness():.3g}"
            f"; staleness {self.pre_queue():.3g} before the queue and {self.in_queue():.3g} in one of a batch; smallest"
            f" eta {self.smallest_eta()}"
        )


predict = ClosedForms
"""Makes the closed forms of a workload on machines."""


def largest_rate(staleness: float) -> float:
    r"""Return the learning rate far below which stale rollouts are harmless, over a constant that is not known.

    .. math:: \eta \ll c / S, \qquad c = R_{batch} / G_{upd}

    S: the largest staleness, in versions; the bias of a step is of order S eta. How far the policy may drift, R_batch,
    and how far an update moves it for its rate, G_upd, are of task and loss: it compares policies, and is no rate.

    Source: Song et al. 2026 (arXiv 2607.01083), by its abstract.

    Example:
      >>> largest_rate(4), largest_rate(0)
      (0.25, inf)
    """
    return 1 / staleness if staleness else math.inf


def mean_ceiling(low: float, high: float) -> float:
    """Return the mean of the number above, rounded up, of a number that is uniform between two others.

    Example:
      >>> mean_ceiling(0.5, 1.5)
      1.5
    """
    whole = np.arange(math.floor(low), math.ceil(high))
    parts = np.minimum(high, whole + 1) - np.maximum(low, whole)
    return float(((whole + 1) * parts).sum() / (high - low))
