r"""Pull gossip on a quadratic: its simulation in many runs at once, and its exact expectations.

The objective is :math:`f(x) = \frac12 \sum_k h_k x_k^2` with curvatures h from m to L and its minimum at 0. Gradients
have Gaussian noise of total variance sigma^2. The nodes that average, and the order of their ticks, are those of
`protocols.gossip(kind="pull", include_self=True)`, with one schedule for each run. Measured are the parameters that
every node has in memory between ticks, or between rounds.
"""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from sgdlab import cluster, protocols, runtimes
from sgdlab.peer_schedule import PeerSchedule

BETA = 0.5
"""Weight of the pulled parameters in an average."""
TICKS, ROUNDS, RUN_TIMES = PROCESSES = "ticks", "rounds", "run-times"
"""Compute times: at a tick of its Poisson clock a node ends its step, taken at its own parameters, and then averages
with the parameters in its partner's memory: theta <- D (theta - alpha g), the recursion of the appendix. Ticks: at a
tick a node averages, computes a gradient at the average and steps: Algorithm 3 made instantaneous. Rounds: all nodes do
so together."""
CLOCKS = {TICKS: "poisson", ROUNDS: "rounds", RUN_TIMES: "own"}
"""Process -> value of the argument `clock` of `protocols.gossip`."""


@dataclasses.dataclass(frozen=True)
class Quadratic:
    """The objective and the noise of its gradients.

    Attributes:
      curvature: float64[d], h; the smallest is m and the largest is L.
      variance: sigma^2, total variance of the noise of a gradient.
    """

    curvature: np.ndarray
    variance: float

    @property
    def m(self) -> float:
        """Return the constant of strong convexity, m."""
        return float(self.curvature.min())

    @property
    def largest_step(self) -> float:
        """Return the largest step size for which the theorem holds, 2 / (m + L)."""
        return 2.0 / float(self.curvature.min() + self.curvature.max())

    @property
    def harmonic(self) -> float:
        """Return the constant m L / (m + L) of the bounds."""
        return self.m * float(self.curvature.max()) / (self.m + float(self.curvature.max()))


class Partners(NamedTuple):
    """Of S runs, int32[S, T]: the node of each tick and its partner, which is the node itself if it pulls from itself.

    In rounds `node` is None, since all nodes act, and `partner` is int32[S, T, p].
    """

    node: np.ndarray | None
    partner: np.ndarray


def partners(process: str, *, num_nodes: int, num_steps: int, runs: int, seed: int) -> Partners:
    """Draws the partners of S runs from the edges of their schedules.

    Args:
      process: one of `PROCESSES`.
      num_nodes: p.
      num_steps: T, number of ticks or rounds.
      runs: S.
      seed: seed of the compute times and partners.

    Example:
      >>> partners(TICKS, num_nodes=3, num_steps=5, runs=2, seed=0).partner.shape
      (2, 5)
    """
    seeds = np.random.SeedSequence(seed).generate_state(2 * runs).reshape(runs, 2)
    drawn = [_schedule(process, num_nodes, num_steps, *pair) for pair in seeds.tolist()]
    first = first_tick(process, num_nodes)
    shape = (runs, num_steps, num_nodes) if process == ROUNDS else (runs, num_steps)
    pulled = np.stack([partner_of(schedule)[first:] for schedule in drawn]).reshape(shape)
    ticking = None if process == ROUNDS else np.stack([schedule.node[first:] for schedule in drawn])
    return Partners(ticking, pulled)


def first_tick(process: str, num_nodes: int) -> int:
    """Events before the first tick: with compute times and in rounds no node averages before its first gradient."""
    return 0 if process == TICKS else num_nodes


def _schedule(process: str, num_nodes: int, num_steps: int, clock_seed: int, partner_seed: int) -> PeerSchedule:
    ticks = num_steps * num_nodes if process == ROUNDS else num_steps
    return runtimes.with_enough_rows(
        lambda times: protocols.gossip(
            times,
            kind="pull",
            include_self=True,
            clock=CLOCKS[process],
            num_gradients=first_tick(process, num_nodes) + ticks,
            seed=partner_seed,
        ),
        lambda rows: cluster.exponential(num_workers=num_nodes, num_gradients=rows, seed=clock_seed),
        rows=num_steps + 1 if process == ROUNDS else 2 * num_steps // num_nodes + 10,
    )


def partner_of(schedule: PeerSchedule) -> np.ndarray:
    """int32[E]: the node that each event of a pull gossip schedule pulls from; its own node if it does not average."""
    partner = schedule.node.copy()
    pulls = schedule.source != schedule.node[schedule.event]
    partner[schedule.event[pulls]] = schedule.source[pulls]
    return partner


def tick(
    theta: np.ndarray,
    node: np.ndarray,
    partner: np.ndarray,
    noise: np.ndarray | float,
    problem: Quadratic,
    alpha: float,
    *,
    instantaneous: bool,
) -> None:
    """Advances each run by one tick, in place.

    Args:
      theta: float64[S, p, d], parameters in the memory of all nodes; changed in place.
      node: int32[S], node that ticks.
      partner: int32[S], node it pulls from.
      noise: float64[S, d], noise of the gradients; 0 for none.
      problem: objective and its noise.
      alpha: step size.
      instantaneous: whether the node averages, then steps from the average; else it ends its step, then averages.
    """
    run = np.arange(len(theta))
    if instantaneous:
        theta[run, node] += BETA * (theta[run, partner] - theta[run, node])
    theta[run, node] -= alpha * (problem.curvature * theta[run, node] + noise)
    if not instantaneous:
        theta[run, node] += BETA * (theta[run, partner] - theta[run, node])


def round_(
    theta: np.ndarray, partner: np.ndarray, noise: np.ndarray | float, problem: Quadratic, alpha: float
) -> np.ndarray:
    """Advances each run by one round: all nodes average with their partners, then step.

    Args:
      theta: float64[S, p, d], parameters in the memory of all nodes.
      partner: int32[S, p], node that each node pulls from.
      noise: float64[S, p, d], noise of the gradients; 0 for none.
      problem: objective and its noise.
      alpha: step size.

    Returns:
      float64[S, p, d], the new theta.
    """
    mixed = theta + BETA * (np.take_along_axis(theta, partner[..., None], axis=1) - theta)
    return mixed - alpha * (problem.curvature * mixed + noise)


def measure(
    drawn: Partners,
    problem: Quadratic,
    *,
    start: np.ndarray,
    alpha: float,
    when: Sequence[int],
    seed: int,
    instantaneous: bool = True,
) -> dict[str, np.ndarray]:
    """Simulates the runs and measures the quantities that the theorem bounds.

    Args:
      drawn: nodes and partners of S runs.
      problem: objective and its noise.
      start: float64[p, d], parameters in the nodes' memory before the first tick.
      alpha: step size; with 0 the nodes only average.
      when: int[K], increasing numbers of ticks or rounds after which to measure; the runs end at the last.
      seed: seed of the noise.
      instantaneous: see `tick`; without effect in rounds.

    Returns:
      Means over runs, float64[K]: `distance`, the sum over nodes of the squared distance from the minimum; `consensus`,
      that from the nodes' average; `gradient`, the mean over nodes of the squared norm of the noise-free gradient at
      the parameters in memory. And the standard errors `distance_error` and `consensus_error`.
    """
    runs, shape = len(drawn.partner), start.shape
    generator = np.random.default_rng(seed)
    scale = np.sqrt(problem.variance / shape[1])
    draw = lambda *size: scale * generator.standard_normal(size) if scale else 0.0
    theta = np.tile(start, (runs, 1, 1))
    measurements = []
    for step in range(when[-1] + 1):
        if step in when:
            measurements.append(_measured(theta, problem))
        if step == when[-1]:
            break
        if drawn.node is None:
            theta = round_(theta, drawn.partner[:, step], draw(*theta.shape), problem, alpha)
        else:
            pair = drawn.node[:, step], drawn.partner[:, step]
            tick(theta, *pair, draw(runs, shape[1]), problem, alpha, instantaneous=instantaneous)
    return {name: np.array([values[name] for values in measurements]) for name in measurements[0]}


def _measured(theta: np.ndarray, problem: Quadratic) -> dict[str, float]:
    distance = np.square(theta).sum(axis=(1, 2))
    consensus = np.square(theta - theta.mean(axis=1, keepdims=True)).sum(axis=(1, 2))
    error = lambda values: values.std(ddof=1) / np.sqrt(values.size)
    return {
        "distance": distance.mean(),
        "distance_error": error(distance),
        "consensus": consensus.mean(),
        "consensus_error": error(consensus),
        "gradient": np.square(problem.curvature * theta).sum(axis=2).mean(),
    }


def expected(
    problem: Quadratic, *, start: np.ndarray, alpha: float, when: Sequence[int], process: str = TICKS
) -> dict[str, np.ndarray]:
    r"""Return the exact expectations: on a quadratic, second moments follow a linear recursion.

    For each coordinate, of :math:`A = E \sum_i \theta_i^2` and :math:`B = E (\sum_i \theta_i)^2`, over the p^2 equally
    likely pairs of a node and its partner; in rounds over the independent partners of all nodes.

    Args:
      problem: objective and its noise.
      start: float64[p, d], parameters in the nodes' memory before the first tick.
      alpha: step size.
      when: int[K], increasing numbers of ticks or rounds.
      process: one of `PROCESSES`.

    Returns:
      float64[K]: `distance`, `consensus` and `gradient` as in `measure`.

    Example:
      >>> import numpy as np
      >>> start = np.array([[1.0], [-1.0]])
      >>> expected(Quadratic(np.ones(1), 0.0), start=start, alpha=0.0, when=[0, 1])["consensus"]
      array([2.  , 1.25])
    """
    p, shrink = len(start), alpha * problem.curvature
    noise = alpha**2 * problem.variance / problem.curvature.size
    squares, whole = np.square(start).sum(axis=0), np.square(start.sum(axis=0))
    moments = []
    for step in range(when[-1] + 1):
        if step in when:
            moments.append((squares, whole))
        if process == ROUNDS:
            squares, whole = _after_round(squares, whole, p, shrink, noise)
        else:
            squares, whole = _after_tick(squares, whole, p, shrink, noise, instantaneous=process == TICKS)
    squares, whole = np.array(moments).transpose(1, 0, 2)
    return {
        "distance": squares.sum(axis=1),
        "consensus": (squares - whole / p).sum(axis=1),
        "gradient": (problem.curvature**2 * squares).sum(axis=1) / p,
    }


Moments = tuple[np.ndarray, np.ndarray]


def _after_round(squares: np.ndarray, whole: np.ndarray, p: int, shrink: np.ndarray, noise: float) -> Moments:
    """Return a and B after a round: how often each node is pulled from is multinomial."""
    mixed = (1.0 - 2.0 * BETA * (1.0 - BETA)) * squares + 2.0 * BETA * (1.0 - BETA) / p * whole
    total = (1.0 - BETA**2 / p) * whole + BETA**2 * squares
    return (1.0 - shrink) ** 2 * mixed + p * noise, (1.0 - shrink) ** 2 * total + p * noise


def _after_tick(
    squares: np.ndarray, whole: np.ndarray, p: int, shrink: np.ndarray, noise: float, *, instantaneous: bool
) -> Moments:
    """Return a and B after a tick."""
    # A node whose partner is another node becomes own * theta_i + pulled * theta_j plus noise of variance `fresh`.
    own = (1.0 - BETA) * (1.0 - shrink)
    pulled, fresh = (BETA * (1.0 - shrink), noise) if instantaneous else (BETA, (1.0 - BETA) ** 2 * noise)
    cross = whole - squares  # of two different nodes
    others = (p - 1) * ((own**2 + pulled**2) * squares + p * fresh) + 2.0 * own * pulled * cross
    itself = (1.0 - shrink) ** 2 * squares + p * noise
    moved = own - 1.0
    move = (p - 1) * ((moved**2 + pulled**2) * squares + p * fresh) + 2.0 * moved * pulled * cross
    move = move + shrink**2 * squares + p * noise
    drift = whole * ((p - 1) * (moved + pulled) - shrink)
    return (1.0 - 1.0 / p) * squares + (others + itself) / p**2, whole + (2.0 * drift + move) / p**2
