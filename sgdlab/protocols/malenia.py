"""Malenia SGD: an update waits until the workers' numbers of fresh gradients have a harmonic mean that is enough."""

import dataclasses
import fractions

from sgdlab.bounds import Count, NotNegative
from sgdlab.knobs import Knob
from sgdlab.protocols.policy import Action, Base, Drop, Interrupt, Take
from sgdlab.protocols.register import register

_ROUNDING = 1e-9
"""Sums of floats that are closer, relatively, are compared exactly."""


@dataclasses.dataclass
class Malenia(Base):
    """Gradients on the newest version are collected from all workers; older ones are dropped.

    A worker that is lost is waited for no more; what it has sent stays in the update. Should that be enough, the next
    arrival closes it. One that joins is waited for as the others are.

    Attributes:
      collected: S, which the harmonic mean times the number of workers must be above; 0: one gradient of each worker.
      interrupt: whether workers give up gradients that an update has made old, rather than finish them in vain.
      counts: worker -> how many gradients of it the open update has.
    """

    collected: float = 0.0
    interrupt: bool = False
    counts: dict[int, int] = dataclasses.field(default_factory=dict, init=False)

    def arrival(self, now: float, worker: int, version: int, seconds: float) -> list[Action]:
        """Takes fresh gradients; the worker goes on with the newest version in any case."""
        if version < self.version:
            return [Drop(worker), *self.begin([worker])]
        self.counts[worker] = self.counts.get(worker, 0) + 1
        actions: list[Action] = [Take(worker, self.version)]
        late: list[int] = []
        if self._complete():
            self.counts = {}
            late = sorted(self.busy) if self.interrupt else []
            actions += [*map(Interrupt, late), self.close()]
        return actions + self.begin(sorted([worker, *late]))

    def _complete(self) -> bool:
        """Tell whether every worker that is there has a gradient, and the harmonic mean is above S / n."""
        if len(self.counts) < len(self.alive) or not self.alive <= self.counts.keys():
            return False
        left, right = len(self.counts) ** 2, self.collected * sum(1 / count for count in self.counts.values())
        if abs(left - right) > _ROUNDING * left:
            return left > right
        # Too close for floats: equal numbers of S / n gradients each would be above S / n by rounding.
        exact = sum(fractions.Fraction(1, count) for count in self.counts.values())
        return left > fractions.Fraction(self.collected) * exact


@register(
    "malenia",
    title="Malenia SGD",
    source="Tyurin and Richtarik 2023",
    families=("Heterogeneous data",),
    rule="malenia",
    tunes=Knob("collected", 0.125, 4.0, per_worker=True),
)
def malenia(*, num_workers: Count, collected: NotNegative | None = None, interrupt: bool = False) -> Malenia:
    r"""An update collects fresh gradients of all workers until their numbers have a harmonic mean above S / n.

    .. math:: \left( \frac{1}{n} \sum_{i=1}^{n} \frac{1}{B_i} \right)^{-1} > \frac{S}{n}

    :math:`B_i` is the number of gradients of worker i. So there is at least one of each; fast workers send more, which
    makes their means less noisy, and not their weight higher (the rule `malenia`). Gradients on older versions are
    dropped, and their workers begin again on the newest.

    With one gradient of each worker (S = 0) and equally fast workers it is `synchronous`.

    Args:
      num_workers: n.
      collected: S. None: an update is made as soon as it has a gradient of every worker, as for any S below n.
      interrupt: whether a worker gives up a gradient as soon as an update has made it old, rather than finish it in
        vain; the paper leaves open which.

    Source: Tyurin and Richtarik 2023 (arXiv 2305.12387), Malenia SGD; verified in the form of Algorithm 1 of Tyurin,
    Bridging the Gap between Homogeneous and Heterogeneous Asynchronous Optimization.

    Example:
      >>> policy = malenia(num_workers=2)
      >>> _ = policy.start([0, 1])
      >>> policy.arrived(1.0, worker=0, version=0, seconds=1.0)
      [Take(worker=0, update=0), Begin(worker=0, version=0)]
      >>> policy.arrived(1.5, worker=1, version=0, seconds=1.5)
      [Take(worker=1, update=0), Close(update=0), Begin(worker=1, version=1)]
      >>> policy.arrived(2.0, worker=0, version=0, seconds=1.0)
      [Drop(worker=0), Begin(worker=0, version=1)]
    """
    enough = 0.0 if collected is None else collected
    return Malenia(collected=enough, interrupt=bool(interrupt))
