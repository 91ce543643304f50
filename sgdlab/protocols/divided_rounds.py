"""`DividedRounds`, the base of rounds of a fixed number of gradients that are divided among the workers anew."""

import dataclasses

from sgdlab.protocols.quotas import Quotas


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
        """Whether a round has one gradient."""
        return self.total == 1

    def wanted(self) -> int:
        """Number of gradients of a round."""
        return self.total

    def quota(self, worker: int) -> float:
        """The worker's share of the round."""
        return self.chosen.get(worker, 0)
