"""The certificate of a schedule: what its events alone say of convergence, before anything is trained.

The largest and the mean staleness, and the gradients that are under way at a time, are what the rates of asynchronous
SGD depend on (Koloskova et al. 2022, arXiv 2206.08307: tau_max, tau_avg, and the concurrency tau_C, whose definition is
reconstructed here as the most gradients under way at any time). The distance in the computation tree is that of
`sgdlab.theory.tree`; shares and the effective number of workers are ours.
"""

import dataclasses
import math
from typing import Any

import numpy as np

from sgdlab.peer_schedule import PeerSchedule
from sgdlab.report.words import number
from sgdlab.schedule import Schedule
from sgdlab.theory import participation, tree
from sgdlab.theory.problem import Problem


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Certificate(participation.OfWorkers):
    r"""Says how far gradients are from where they are used, how many are under way, and whose are used.

    .. math:: N_{eff} = \frac{1}{\sum_i s_i^2}

    is the effective number of workers, s_i being the share of worker i of the used gradients: N if all shares are
    equal. Where workers have data of their own, it says how much of these data a method learns from.

    Attributes:
      num_workers: N.
      gradients: used gradients; of messages of several local steps, the steps.
      updates: of the server's parameters; of peers, the nodes' steps.
      dropped: gradients that were computed and discarded.
      seconds: until the last update.
      block_distances: of each block, the largest distance in the computation tree; None without a server.
      mean_staleness: updates between reading and entering; None without a server.
      largest_staleness: the same of the stalest gradient.
      mean_in_flight: gradients that are being computed or sent at a time, on average over the seconds.
      most_in_flight: the same at most: the concurrency tau_C.
      equal_updates: whether all updates have equally many gradients, so that the mean of an update's gradients is a
        step of one size for each, as the theorem asks.
      note: what is not defined, and why; empty if all is.
    """

    num_workers: int
    gradients: int
    updates: int
    dropped: int
    seconds: float
    block_distances: tuple[int, ...] | None
    mean_staleness: float | None
    largest_staleness: int | None
    mean_in_flight: float
    most_in_flight: int
    equal_updates: bool = True
    note: str = ""

    @property
    def tree_distance(self) -> int | None:
        """R, the largest distance in the computation tree, of all blocks; None without a server."""
        return None if self.block_distances is None else max(self.block_distances)

    @property
    def seconds_per_update(self) -> float:
        """Mean; NaN without updates."""
        return self.seconds / self.updates if self.updates else math.nan

    @property
    def seconds_per_gradient(self) -> float:
        """Mean seconds of the run for each used gradient; NaN without gradients."""
        return self.seconds / self.gradients if self.gradients else math.nan

    @property
    def wasted(self) -> float:
        """Share of the gradients that were used or dropped that were dropped."""
        decided = self.gradients + self.dropped
        return self.dropped / decided if decided else 0.0

    def iterations(self, problem: Problem) -> int | None:
        """Gradients after which Birch SGD's theorem promises the accuracy; None without a server."""
        return None if self.tree_distance is None else tree.iterations(self.tree_distance, problem)

    def seconds_to(self, problem: Problem) -> float | None:
        """The seconds that these take at the pace of the schedule; None without a server."""
        needed = self.iterations(problem)
        return None if needed is None else needed * self.seconds_per_gradient

    def figures(self) -> dict[str, float | None]:
        """Plain numbers for records and tables; None where one is not defined."""
        return {
            "tree_distance": self.tree_distance,
            "largest_staleness": self.largest_staleness,
            "in_flight": self.mean_in_flight,
            "most_in_flight": self.most_in_flight,
            "effective_workers": self.effective_workers,
            "least_share": self.least_share,
        }

    def as_dict(self) -> dict[str, Any]:
        """All of it, for JSON."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        distances = None if self.block_distances is None else list(self.block_distances)
        derived = ("effective_workers", "least_used", "least_share", "seconds_per_update", "seconds_per_gradient")
        return (
            fields
            | {"block_distances": distances, "tree_distance": self.tree_distance, "shares": self.shares.tolist()}
            | {name: getattr(self, name) for name in derived}
            | {"under_used": self.under_used.tolist(), "wasted": self.wasted}
        )

    def __str__(self) -> str:
        far = "R is not defined"
        if self.tree_distance is not None:
            far = (
                # pyrefly: ignore[bad-argument-type]  # of a server
                f"R = {self.tree_distance}, staleness {number(self.mean_staleness)} and at most "
                f"{self.largest_staleness}"
            )
        return (
            f"Certificate: {far}; {number(self.mean_in_flight)} gradients in flight and at most {self.most_in_flight}; "
            f"{number(self.effective_workers)} of {self.num_workers} workers effective, worker {self.least_used} with "
            f"{self.least_share:.3g} of an equal share"
        )


def certificate(schedule: Schedule | PeerSchedule, *, steps: int | np.ndarray = 1) -> Certificate:
    """Return the certificate of a schedule.

    A gradient whose block is used anywhere counts as used; staleness is over all blocks.

    Args:
      schedule: of any protocol, or recorded.
      steps: local steps of every message, or int[G] of each (events of nodes, without a server); 1 is a gradient.

    Raises:
      ValueError: where `steps` are not at least 1 each, or not as many as there are gradients.

    Example:
      >>> from sgdlab import protocols
      >>> runtimes = np.tile([1.0, 1.0, 2.0], (12, 1))
      >>> print(certificate(protocols.asynchronous(runtimes, num_gradients=20)))
      Certificate: R = 4, staleness 1.85 and at most 4; 3 gradients in flight and at most 3; 2.78 of 3 workers
      effective, worker 2 with 0.6 of an equal share
    """
    if isinstance(schedule, PeerSchedule):
        return _of_peers(schedule, steps)
    edges = tree.checked_steps(schedule.num_gradients, steps)
    used, distances, staleness = schedule.used(), tree.tree_distances(schedule, edges), schedule.staleness()
    any_used = used.any(axis=1)
    blocks = range(schedule.num_blocks)
    return Certificate(
        num_workers=schedule.num_workers,
        gradients=int(edges[any_used].sum()),
        updates=schedule.num_updates,
        dropped=int(edges[schedule.dropped().all(axis=1)].sum()),
        seconds=schedule.wall_clock(),
        block_distances=tuple(int(distances[:, block].max()) if used[:, block].any() else 0 for block in blocks),
        mean_staleness=float(staleness.mean()) if any_used.any() else 0.0,
        largest_staleness=int(staleness.max()) if any_used.any() else 0,
        shares=participation.shares(np.bincount(schedule.worker[any_used], edges[any_used], schedule.num_workers)),
        equal_updates=all(
            _all_equal(schedule.update[used[:, block], block], edges[used[:, block]]) for block in blocks
        ),
        note="" if len(blocks) == 1 else "R is that of the block in which it is largest: the theorem knows one server.",
        **_in_flight(schedule.started, schedule.arrived.max(axis=1), schedule.wall_clock()),
    )


def _of_peers(schedule: PeerSchedule, steps: int | np.ndarray) -> Certificate:
    """Return that of methods without a server: whose gradients are used, and how many are under way."""
    rows = schedule.takes_gradient()
    edges = tree.checked_steps(schedule.node.size, steps)
    return Certificate(
        num_workers=schedule.num_nodes,
        gradients=int(edges[rows].sum()),
        updates=int(rows.sum()),
        dropped=0,
        seconds=schedule.wall_clock(),
        block_distances=None,
        mean_staleness=None,
        largest_staleness=None,
        shares=participation.shares(np.bincount(schedule.node[rows], edges[rows], schedule.num_nodes)),
        note="Without a server there is no main branch, and so no R: parameters are averages, not sums of gradients.",
        **_in_flight(schedule.started[rows], schedule.finished[rows], schedule.wall_clock()),
    )


def _all_equal(updates: np.ndarray, weight: np.ndarray) -> bool:
    sizes = np.bincount(updates, weights=weight)
    return bool(sizes.size == 0 or sizes.min() == sizes.max())


def _in_flight(started: np.ndarray, ended: np.ndarray, end: float) -> dict[str, Any]:
    """Count gradients under way until the end, on average over the seconds and at most; one that ends makes place."""
    begun = started < end
    first, last = np.sort(started[begun]), np.sort(np.minimum(ended[begun], end))
    if not first.size:
        return {"mean_in_flight": 0.0, "most_in_flight": 0}
    there = np.arange(1, first.size + 1) - np.searchsorted(last, first, side="right")
    return {"mean_in_flight": float((last.sum() - first.sum()) / end), "most_in_flight": int(there.max())}
