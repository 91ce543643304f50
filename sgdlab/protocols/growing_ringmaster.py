"""Ringmaster with a limit on delays that grows with the number of updates (Sadiev et al. 2026)."""

import dataclasses
import math

from sgdlab.bounds import Count
from sgdlab.protocols.collect import Collect
from sgdlab.protocols.register import register


@dataclasses.dataclass
class GrowingLimit(Collect):
    """Ringmaster whose k-th update, counted from 0, takes a gradient with a delay of at most sqrt(k), rounded down.

    The first four (k below 4) take one with a delay of 1: a fresh one. `max_delay` is not used.
    """

    def limit(self, update: int) -> int:
        """The root of the number of updates, and at least 1."""
        return max(math.isqrt(update), 1)


@register(
    title="Parameter-agnostic Ringmaster-Muon",
    source="Sadiev et al. 2026",
    families=("Normalised updates",),
    rule="parameter_agnostic_muon",
)
def growing_ringmaster(*, num_workers: Count, interrupt: bool = False) -> GrowingLimit:
    r"""Every gradient is an update, unless its delay is more than the root of the number of updates.

    .. math:: \text{update } k \text{ takes a gradient of staleness } \delta_k < R_k, \qquad
        R_k = \lfloor \sqrt{\max(k, 1)} \rfloor

    At first it takes the first gradient on every version; R grows without an end, so that in the long run nobody works
    in vain. Nothing has to be known of the workers' speeds. With one worker it is plain SGD; in its first four updates
    it is `ringmaster` with `max_delay` 1.

    Args:
      num_workers: N.
      interrupt: whether a worker restarts as soon as its gradient is too old, rather than when it has finished it.

    Source: Sadiev, Maranjyan, Ilin and Richtarik 2026, Ringmaster LMO (arXiv 2605.18174), Algorithm 1 and the theorem
    on iteration complexity, verified in the LaTeX source of a draft that lies beside the authors' code. The code counts
    the limit of an update from the one before.

    Example:
      >>> policy = growing_ringmaster(num_workers=2)
      >>> _ = policy.start([0, 1]), policy.arrived(1.0, worker=0, version=0, seconds=1.0)
      >>> policy.arrived(2.0, worker=1, version=0, seconds=2.0)
      [Drop(worker=1), Begin(worker=1, version=1)]
      >>> [policy.limit(update) for update in (0, 1, 3, 4, 8, 9)]
      [1, 1, 1, 2, 2, 3]
    """
    return GrowingLimit(size=1, interrupt=bool(interrupt))
