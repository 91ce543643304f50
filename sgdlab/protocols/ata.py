"""ATA, adaptive task allocation: a round's gradients go where lower confidence bounds say that they end soonest."""

import dataclasses
import math

from sgdlab.bounds import Count, NotNegative
from sgdlab.knobs import Knob
from sgdlab.protocols.allotments import DividedRounds, allotted
from sgdlab.protocols.register import register
from sgdlab.protocols.softsync import half_of


@dataclasses.dataclass
class TaskAllocation(DividedRounds):
    """Rounds of B gradients, divided by lower confidence bounds of the seconds that a worker's gradient takes.

    Workers without a gradient so far come first, with one each; workers whose bound is not above 0 share the rest
    equally; where there is none of either, the round is divided so that it ends soonest by the bounds. Of equal ones,
    those come first that have the fewest gradients so far, then the lowest numbers.

    Who joins waits for the next round, unless all do.

    Attributes:
      alpha: the scale of the bounds, seconds; None: of each worker `relative_alpha` times its mean.
      relative_alpha: this factor.
      numbers: worker -> number of its gradients so far.
      sums: worker -> their seconds.
      rounds: number of rounds begun.
    """

    alpha: float | None = None
    relative_alpha: float = 0.1
    numbers: dict[int, int] = dataclasses.field(default_factory=dict, init=False)
    sums: dict[int, float] = dataclasses.field(default_factory=dict, init=False)
    rounds: int = dataclasses.field(default=0, init=False)

    def bound(self, worker: int) -> float:
        """The lower confidence bound of the seconds that a gradient of the worker takes, not below 0."""
        number, k = self.numbers[worker], max(self.rounds, 1)
        mean = self.sums[worker] / number
        ratio = math.log(2 * k**2) / number
        alpha = self.relative_alpha * mean if self.alpha is None else self.alpha
        return max(mean - 4 * math.e * alpha * (math.sqrt(ratio) + ratio), 0.0)

    def choose(self) -> None:
        """Divides the round among the workers that are there."""
        self.chosen = {}
        workers = sorted(self.alive, key=lambda worker: (self.numbers.get(worker, 0), worker))
        if workers:
            new = [worker for worker in workers if worker not in self.numbers]
            self.chosen = dict.fromkeys(new[: self.total], 1)
            left, tried = self.total - len(self.chosen), [worker for worker in workers if worker in self.numbers]
            if left:
                self._divide(left, tried or new)
        self.rounds += 1

    def _divide(self, left: int, workers: list[int]) -> None:
        bounds = {worker: self.bound(worker) if worker in self.numbers else 0.0 for worker in workers}
        unsure = [worker for worker in workers if bounds[worker] == 0.0]
        shares = allotted(left, dict.fromkeys(unsure, 1.0) if unsure else bounds)
        self.chosen = {w: self.chosen.get(w, 0) + shares.get(w, 0) for w in {*self.chosen, *shares}}

    def learn(self, worker: int, seconds: float, *, came: bool = True) -> None:
        """Moves the worker's mean."""
        self.numbers[worker] = self.numbers.get(worker, 0) + 1
        self.sums[worker] = self.sums.get(worker, 0.0) + seconds


@register(
    title="ATA",
    source="Maranjyan et al. 2025c",
    families=("Time-limited rounds",),
    rule="nag_asgd",
    waste="gradients_per_update",
    tunes=Knob("gradients_per_update", 0.125, 2.0, whole=True, per_worker=True),
)
def ata(
    *,
    num_workers: Count,
    gradients_per_update: Count | None = None,
    alpha: NotNegative | None = None,
    relative_alpha: NotNegative = 0.1,
    communication: NotNegative = 0.0,
) -> TaskAllocation:
    r"""Every update averages B gradients on the newest version, of workers that are likely to be done soonest.

    .. math:: s_{k,i} = \Big(\hat\mu_i - 4 e \alpha \Big(\sqrt{\tfrac{\ln 2 k^2}{n_i}} + \tfrac{\ln 2 k^2}{n_i}
        \Big)\Big)_+, \qquad a_k = \arg\min_a \max_i a_i s_{k,i}, \quad \sum_i a_i = B

    mu is the mean time of the n gradients that worker i has computed before round k. Unlike `rennala`, it computes no
    gradient that is not used: slow workers are tried now and then, and rest.

    Args:
      num_workers: N.
      gradients_per_update: B. None: N / 2, rounded up.
      alpha: scale of the confidence bounds, seconds: a bound on how heavy the tails of the times are. None: of each
        worker `relative_alpha` times its mean. 0: no confidence is asked for.
      relative_alpha: that factor; 2 is the paper's ATA-Empirical. While bounds are 0, workers take turns: of 8 workers
        with 4 gradients per update for the first 204 gradients at 0.1, for some 85,000 at 2.
      communication: seconds from the end of a round's last gradient to its update.

    Source: Maranjyan, El Mehdi Saad, Richtarik and Orabona 2025 (ICML), ATA, read in the authors' code (`ATA`,
    `harmonia`, `discordia` with equal shares), which draws where this takes the first.

    Example:
      >>> import numpy as np
      >>> from sgdlab.protocols.family import PROTOCOLS
      >>> times = np.array([[1.0, 3.0]] * 20)
      >>> schedule = PROTOCOLS["ata"].make(times, gradients_per_update=4, alpha=0.0, num_gradients=12)
      >>> schedule.applied[:, 0], np.bincount(schedule.worker)
      (array([ 6.,  9., 12.]), array([8, 4]))
    """
    total = half_of(num_workers) if gradients_per_update is None else gradients_per_update
    return TaskAllocation(communication=communication, total=total, alpha=alpha, relative_alpha=relative_alpha)
