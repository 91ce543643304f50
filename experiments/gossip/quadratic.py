r"""Pull gossip on a quadratic: its simulation in many runs at once, and its exact expectations.

The objective is :math:`f(x) = \frac12 \sum_k h_k x_k^2` with curvatures h from m to L and its minimum at 0. Gradients
have Gaussian noise of total variance sigma^2. The nodes that average, and the order of their ticks, are those of
`protocols.gossip(kind="pull", include_self=True)`, with one schedule for each run; a test compares each of the three
modes with `replay.run_peers`. Measured are the parameters that every node has in memory between ticks, or between
rounds.
"""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from sgdlab import cluster, protocols
from sgdlab.peer_schedule import PeerSchedule

BETA = 0.5
"""Weight of the pulled parameters in an average."""
TICKS, ROUNDS, RUN_TIMES = MODES = "ticks", "rounds", "run-times"
"""Ticks: at a tick a node averages, computes a gradient and steps. Rounds: all nodes do so together. Run-times: at a
tick a node ends its step and then averages with the parameters on which its partner computes."""
CLOCKS = {TICKS: "poisson", ROUNDS: "rounds", RUN_TIMES: "own"}
"""Mode -> value of the argument `clock` of `protocols.gossip`."""


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
        """The constant of strong convexity, m."""
        return float(self.curvature.min())

    @property
    def lipschitz(self) -> float:
        """The Lipschitz constant of the gradient, L."""
        return float(self.curvature.max())

    @property
    def largest_step(self) -> float:
        """The largest step size for which the theorem holds, 2 / (m + L)."""
        return 2.0 / (self.m + self.lipschitz)

    @property
    def harmonic(self) -> float:
        """The constant m L / (m + L) of the bounds."""
        return self.m * self.lipschitz / (self.m + self.lipschitz)


@dataclasses.dataclass(frozen=True)
class Partners:
    """The nodes and their partners at each tick of S runs; a node that pulls from itself is its own partner.

    Attributes:
      node: int32[S, T], the node that ticks; None in rounds, in which all nodes do.
      partner: int32[S, T], the node it pulls from; in rounds int32[S, T, p].
      num_nodes: p.
    """

    node: np.ndarray | None
    partner: np.ndarray
    num_nodes: int


def partners(mode: str, *, num_nodes: int, num_steps: int, runs: int, seed: int) -> Partners:
    """Draws the partners of S runs from the edges of their schedules.

    Args:
      mode: one of `MODES`.
      num_nodes: p.
      num_steps: T, number of ticks or rounds.
      runs: S.
      seed: seed of the run-times and partners.

    Example:
      >>> partners(TICKS, num_nodes=3, num_steps=5, runs=2, seed=0).partner.shape
      (2, 5)
    """
    seeds = np.random.SeedSequence(seed).generate_state(2 * runs).reshape(runs, 2)
    drawn = [_schedule(mode, num_nodes, num_steps, *pair) for pair in seeds.tolist()]
    first = first_tick(mode, num_nodes)
    shape = (runs, num_steps, num_nodes) if mode == ROUNDS else (runs, num_steps)
    pulled = np.stack([partner_of(schedule)[first:] for schedule in drawn]).reshape(shape)
    ticking = None if mode == ROUNDS else np.stack([schedule.node[first:] for schedule in drawn])
    return Partners(ticking, pulled, num_nodes)


def first_tick(mode: str, num_nodes: int) -> int:
    """Events before the first tick: with run-times and in rounds no node averages before its first gradient."""
    return 0 if mode == TICKS else num_nodes


def _schedule(mode: str, num_nodes: int, num_steps: int, clock_seed: int, partner_seed: int) -> PeerSchedule:
    ticks = num_steps * num_nodes if mode == ROUNDS else num_steps
    return protocols.with_enough_rows(
        lambda runtimes: protocols.gossip(
            runtimes,
            kind="pull",
            include_self=True,
            clock=CLOCKS[mode],
            num_gradients=first_tick(mode, num_nodes) + ticks,
            seed=partner_seed,
        ),
        lambda rows: cluster.exponential(num_workers=num_nodes, num_gradients=rows, seed=clock_seed),
        rows=num_steps + 1 if mode == ROUNDS else 2 * num_steps // num_nodes + 10,
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
    noise: np.ndarray,
    problem: Quadratic,
    alpha: float,
    *,
    instantaneous: bool,
) -> np.ndarray:
    """Advances each run by one tick, in place.

    Args:
      theta: float64[S, p, d], parameters in the memory of all nodes; changed in place.
      node: int32[S], node that ticks.
      partner: int32[S], node it pulls from.
      noise: float64[S, d], noise of the gradients.
      problem: objective and its noise.
      alpha: step size.
      instantaneous: whether the node averages, then steps from the average; else it ends its step, then averages.

    Returns:
      float64[S], the squared norm of the noise-free gradient of each step.
    """
    run = np.arange(len(theta))
    if instantaneous:
        theta[run, node] += BETA * (theta[run, partner] - theta[run, node])
    gradient = problem.curvature * theta[run, node]
    theta[run, node] -= alpha * (gradient + noise)
    if not instantaneous:
        theta[run, node] += BETA * (theta[run, partner] - theta[run, node])
    return np.square(gradient).sum(axis=-1)


def round_(
    theta: np.ndarray, partner: np.ndarray, noise: np.ndarray, problem: Quadratic, alpha: float
) -> tuple[np.ndarray, np.ndarray]:
    """Advances each run by one round: all nodes average with their partners, then step.

    Args:
      theta: float64[S, p, d], parameters in the memory of all nodes.
      partner: int32[S, p], node that each node pulls from.
      noise: float64[S, p, d], noise of the gradients.
      problem: objective and its noise.
      alpha: step size.

    Returns:
      The new theta, and float64[S], the mean over nodes of the squared norm of the noise-free gradient.
    """
    mixed = theta + BETA * (np.take_along_axis(theta, partner[..., None], axis=1) - theta)
    gradient = problem.curvature * mixed
    return mixed - alpha * (gradient + noise), np.square(gradient).sum(axis=-1).mean(axis=-1)


@dataclasses.dataclass(frozen=True)
class Measured:
    """Means over runs, and their standard errors; float64[K] unless said otherwise.

    Attributes:
      step: int64[K], number of ticks or rounds before each measurement.
      distance: sum over nodes of the squared distance from the minimum.
      distance_error: standard error of `distance`.
      consensus: sum over nodes of the squared distance from the nodes' average.
      consensus_error: standard error of `consensus`.
      gradient: mean over nodes of the squared norm of the noise-free gradient at the parameters in memory.
      gradient_of_steps: float, mean over all steps of the squared norm of the noise-free gradient of the step.
    """

    step: np.ndarray
    distance: np.ndarray
    distance_error: np.ndarray
    consensus: np.ndarray
    consensus_error: np.ndarray
    gradient: np.ndarray
    gradient_of_steps: float


def measure(
    drawn: Partners,
    problem: Quadratic,
    *,
    start: np.ndarray,
    alpha: float,
    steps: int,
    looks: Sequence[int],
    seed: int,
    instantaneous: bool = True,
) -> Measured:
    """Simulates the runs and measures the quantities that the theorem bounds.

    Args:
      drawn: nodes and partners of S runs.
      problem: objective and its noise.
      start: float64[p, d], parameters in the nodes' memory before the first tick.
      alpha: step size; with 0 the nodes only average.
      steps: number of ticks or rounds.
      looks: numbers of ticks or rounds after which to measure.
      seed: seed of the noise.
      instantaneous: see `tick`; without effect in rounds.
    """
    runs, shape = len(drawn.partner), start.shape
    generator = np.random.default_rng(seed)
    scale = np.sqrt(problem.variance / shape[1])
    theta = np.tile(start, (runs, 1, 1))
    wanted, measurements, norms = set(looks), [], []
    for step in range(steps + 1):
        if step in wanted:
            measurements.append((step, *_measured(theta, problem)))
        if step == steps:
            break
        if drawn.node is None:
            noise = scale * generator.standard_normal(theta.shape)
            theta, norm = round_(theta, drawn.partner[:, step], noise, problem, alpha)
        else:
            noise = scale * generator.standard_normal((runs, shape[1]))
            pair = drawn.node[:, step], drawn.partner[:, step]
            norm = tick(theta, *pair, noise, problem, alpha, instantaneous=instantaneous)
        norms.append(norm.mean())
    return Measured(*(np.array(column) for column in zip(*measurements, strict=True)), float(np.mean(norms)))


def _measured(theta: np.ndarray, problem: Quadratic) -> tuple[float, ...]:
    distance = np.square(theta).sum(axis=(1, 2))
    consensus = np.square(theta - theta.mean(axis=1, keepdims=True)).sum(axis=(1, 2))
    error = lambda values: values.std(ddof=1) / np.sqrt(values.size) if values.size > 1 else 0.0
    gradient = np.square(problem.curvature * theta).sum(axis=2).mean()
    return distance.mean(), error(distance), consensus.mean(), error(consensus), gradient


class Expected(NamedTuple):
    """Exact expectations of the fields of `Measured` with the same names; float64[K]."""

    distance: np.ndarray
    consensus: np.ndarray
    gradient: np.ndarray


def expected(
    problem: Quadratic, *, start: np.ndarray, alpha: float, looks: Sequence[int], instantaneous: bool = True
) -> Expected:
    r"""The exact expectations over ticks: on a quadratic, second moments follow a linear recursion.

    For each coordinate, of :math:`A = E \sum_i \theta_i^2` and :math:`B = E (\sum_i \theta_i)^2`, over the p^2 equally
    likely pairs of a node and its partner.

    Args:
      problem: objective and its noise.
      start: float64[p, d], parameters in the nodes' memory before the first tick.
      alpha: step size.
      looks: increasing numbers of ticks.
      instantaneous: see `tick`.

    Example:
      >>> import numpy as np
      >>> start = np.array([[1.0], [-1.0]])
      >>> expected(Quadratic(np.ones(1), 0.0), start=start, alpha=0.0, looks=[0, 1]).consensus
      array([2.  , 1.25])
    """
    p, shrink = len(start), alpha * problem.curvature
    noise = alpha**2 * problem.variance / problem.curvature.size
    squares, whole = np.square(start).sum(axis=0), np.square(start.sum(axis=0))
    # A node whose partner is another node becomes own * theta_i + pulled * theta_j plus noise of variance `fresh`.
    own = (1.0 - BETA) * (1.0 - shrink)
    pulled, fresh = (BETA * (1.0 - shrink), noise) if instantaneous else (BETA, (1.0 - BETA) ** 2 * noise)
    wanted, expectations = set(looks), []
    for step in range(max(looks) + 1):
        if step in wanted:
            expectations.append(
                (squares.sum(), (squares - whole / p).sum(), (problem.curvature**2 * squares).sum() / p)
            )
        cross = whole - squares  # of two different nodes
        others = (p - 1) * ((own**2 + pulled**2) * squares + p * fresh) + 2.0 * own * pulled * cross
        itself = (1.0 - shrink) ** 2 * squares + p * noise
        moved = own - 1.0
        move = (p - 1) * ((moved**2 + pulled**2) * squares + p * fresh) + 2.0 * moved * pulled * cross
        move = move + shrink**2 * squares + p * noise
        drift = whole * ((p - 1) * (moved + pulled) - shrink)
        squares, whole = (1.0 - 1.0 / p) * squares + (others + itself) / p**2, whole + (2.0 * drift + move) / p**2
    return Expected(*(np.array(column) for column in zip(*expectations, strict=True)))
