"""`Protocol`: a row of the comparison, a protocol with its measurements, and whose gradients it uses."""

import dataclasses
from collections.abc import Mapping

import numpy as np

from sgdlab.predictors import Predictor
from sgdlab.stragglers.comparison.measured import Measured
from sgdlab.theory import participation

DEPLOYABLE, HINDSIGHT, DRAINED, STALE, CEILING = "deployable", "hindsight", "drained", "asynchronous", "ceiling"
"""Roles: deployable; tuned on the evaluation steps themselves; full synchrony of fewer workers; deployable if stale
gradients are; an upper bound."""

REFITTED = " (re-fit)"
"""Ending of the titles of protocols that are fitted again while they run."""


@dataclasses.dataclass(frozen=True, eq=False)
class Protocol:
    """A protocol with its measurements on the evaluation steps.

    Attributes:
      method: its name, without what `title` adds; of full synchrony without some workers, their names.
      setting: its parameters as tables show them.
      role: one of the five above.
      result: the measurements, with its `objective`.
      backups: b, if the number of workers that an update waits for is fixed.
      flags: flags of `sgdlab train` that select it; empty if no flags do.
      by_rate: the same protocol with the rate of the run as its objective; None where its cutoffs do not differ.
      without: indices of the workers that are left out, if its role is `DRAINED`.
      warm_up: number of first updates that wait for all workers in the schedule of the flags.
      predictor: the predictor of its cutoffs, as it was measured; None if there is none.
      history: float64[W, N], seconds, what this predictor has observed when the evaluation steps begin.
      parameters: its tuned parameters by their names.
      objective: "throughput", that of each iteration, as in the paper, or "rate", that of the whole run.
      refitted: whether it is fitted again while it runs.
    """

    method: str
    setting: str
    role: str
    result: Measured
    backups: int | None = None
    flags: tuple[str, ...] = ()
    by_rate: "Protocol | None" = None
    without: tuple[int, ...] = ()
    warm_up: int = 0
    predictor: Predictor | None = None
    history: np.ndarray | None = None
    parameters: Mapping[str, float] = dataclasses.field(default_factory=dict)
    objective: str = "throughput"
    refitted: bool = False

    @property
    def title(self) -> str:
        """The name in tables."""
        return f"without {self.method}" if self.without else self.method + self.ending

    @property
    def ending(self) -> str:
        """The end of the names of protocols that are fitted again."""
        return REFITTED * self.refitted


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Usage(participation.OfWorkers):
    """Holds what the schedule of a protocol says of convergence, whatever is trained.

    Attributes:
      tree_distance: R, the largest distance in Birch SGD's computation tree.
    """

    tree_distance: int


def usage(protocol: Protocol) -> Usage:
    """The usage of a protocol of the comparison, with the paper's objective."""
    result, used = protocol.result, protocol.result.used
    if used is None:
        raise ValueError(f"protocol {protocol.title} must be measured by itself, so that it is known who was used")
    if protocol.without:
        others = used
        used = np.zeros(others.size + len(protocol.without))
        used[np.setdiff1d(np.arange(used.size), protocol.without)] = others
    most = int(np.max(result.gradients))
    return Usage(tree_distance=most - 1 + result.largest_staleness, shares=participation.shares(used))
