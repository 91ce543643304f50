"""Rounds of a fixed number of gradients, and how many of them each worker computes, so that the round ends soonest."""

import dataclasses
import heapq
from collections.abc import Mapping

from sgdlab import arguments
from sgdlab.protocols.quotas import Quotas


def allotted(total: int, seconds: Mapping[int, float], *, least: int = 0) -> dict[int, int]:
    r"""Divides gradients among workers so that the last of them is done soonest, if each keeps its pace.

    .. math:: \min_a \max_i a_i \tau_i \quad\text{with}\quad \sum_i a_i = B

    One after the other, gradients go to the worker that would be done first with one more, which is optimal. The
    numbers are in proportion to the workers' speeds, as d'Hondt rounds them. Of equal ones, the first in the order of
    `seconds` is served.

    Args:
      total: B, number of gradients.
      seconds: worker -> tau, how long a gradient takes; at least one worker.
      least: number of gradients that every worker has at least, if there are enough.

    Returns:
      worker -> its number of gradients.

    Raises:
      ValueError: where `total` is below 1, or there is no worker.

    Example:
      >>> allotted(6, {0: 1.0, 1: 2.0})
      {0: 4, 1: 2}
    """
    arguments.whole("total", total)
    if not seconds:
        raise ValueError("seconds={} must have at least one worker")
    each = min(least, total // len(seconds))
    numbers = dict.fromkeys(seconds, each)
    queue = [((each + 1) * time, place, worker) for place, (worker, time) in enumerate(seconds.items())]
    heapq.heapify(queue)
    for _ in range(total - each * len(seconds)):
        _, place, worker = queue[0]
        numbers[worker] += 1
        heapq.heapreplace(queue, ((numbers[worker] + 1) * seconds[worker], place, worker))
    return numbers


@dataclasses.dataclass
class DividedRounds(Quotas):
    """A round has `total` gradients, and each worker its share of them; subclasses divide them by `choose`.

    Attributes:
      total: number of gradients of a round.
      chosen: worker -> number of its gradients of the open round.
    """

    total: int = 1
    chosen: dict[int, int] = dataclasses.field(default_factory=dict, init=False)

    @property
    def single(self) -> bool:
        """Tell whether a round has one gradient."""
        return self.total == 1

    def wanted(self) -> int:
        """Number of gradients of a round."""
        return self.total

    def quota(self, worker: int) -> float:
        """The worker's share of the round."""
        return self.chosen.get(worker, 0)
