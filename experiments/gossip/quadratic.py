r"""Pull gossip on a quadratic, many runs at once, and the bounds that Jin et al. 2016 print for it.

The objective is :math:`f(x) = \frac12 \sum_k h_k x_k^2` with curvatures h between m and L and its minimum at 0;
gradients come with Gaussian noise of total variance sigma^2. Who averages with whom comes from the edges of
`protocols.gossip(kind="pull", include_self=True)`, one schedule a run.
"""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from sgdlab import cluster, protocols
from sgdlab.peer_schedule import PeerSchedule

BETA = 0.5
"""Weight of what is pulled."""


@dataclasses.dataclass(frozen=True)
class Quadratic:
    """The problem.

    Attributes:
      curvature: float64[d], h; the smallest is m and the largest is L.
      variance: sigma^2, of the noise of a whole gradient.
    """

    curvature: np.ndarray
    variance: float

    @property
    def m(self) -> float:
        """Strong convexity."""
        return float(self.curvature.min())

    @property
    def lipschitz(self) -> float:
        """L."""
        return float(self.curvature.max())

    @property
    def largest_step(self) -> float:
        """2 / (m + L), up to which the theorem holds."""
        return 2.0 / (self.m + self.lipschitz)

    @property
    def harmonic(self) -> float:
        """M L / (m + L)."""
        return self.m * self.lipschitz / (self.m + self.lipschitz)


@dataclasses.dataclass(frozen=True)
class Partners:
    """Who averages with whom, in S runs; a node that pulls from itself is its own partner.

    Attributes:
      node: int64[S, T], who ticks; None in rounds, where everybody does.
      partner: int64[S, T], whom it pulls from; in rounds int64[S, T, p].
      num_nodes: p.
    """

    node: np.ndarray | None
    partner: np.ndarray
    num_nodes: int


def partners(*, num_nodes: int, num_steps: int, runs: int, synchronous: bool, seed: int) -> Partners:
    """Draws schedules and reads their edges.

    Args:
      num_nodes: p.
      num_steps: T, ticks or rounds.
      runs: S.
      synchronous: in rounds; else every node ticks as a Poisson process.
      seed: of the run-times and partners.

    Example:
      >>> partners(num_nodes=3, num_steps=5, runs=2, synchronous=False, seed=0).partner.shape
      (2, 5)
    """
    seeds = np.random.SeedSequence(seed).generate_state(2 * runs).reshape(runs, 2)
    drawn = [_schedule(num_nodes, num_steps, synchronous, *pair) for pair in seeds.tolist()]
    shape = (runs, num_steps, num_nodes) if synchronous else (runs, num_steps)
    # No node averages before its first gradient: those p events are no ticks.
    pulled = np.stack([partner_of(schedule)[num_nodes:] for schedule in drawn]).reshape(shape)
    ticking = np.stack([schedule.node[num_nodes:] for schedule in drawn]).astype(np.int64)
    return Partners(None if synchronous else ticking, pulled, num_nodes)


def _schedule(num_nodes: int, num_steps: int, synchronous: bool, clock_seed: int, partner_seed: int) -> PeerSchedule:
    num_gradients = num_nodes * (num_steps + 1) if synchronous else num_nodes + num_steps
    return protocols.with_enough_rows(
        lambda runtimes: protocols.gossip(
            runtimes, include_self=True, synchronous=synchronous, num_gradients=num_gradients, seed=partner_seed
        ),
        lambda rows: cluster.exponential(num_workers=num_nodes, num_gradients=rows, seed=clock_seed),
        rows=num_steps + 1 if synchronous else 2 * num_steps // num_nodes + 10,
    )


def partner_of(schedule: PeerSchedule) -> np.ndarray:
    """int64[E]: whom each event of a schedule of pull gossip pulls from, itself where it averages nothing."""
    found = schedule.node.astype(np.int64)
    pulls = schedule.source != schedule.node[schedule.event]
    found[schedule.event[pulls]] = schedule.source[pulls]
    return found


def tick(
    theta: np.ndarray,
    node: np.ndarray,
    partner: np.ndarray,
    noise: np.ndarray,
    problem: Quadratic,
    alpha: float,
    *,
    averages_first: bool = False,
) -> np.ndarray:
    """One tick in each run, in place: the node ends its step, then averages with what its partner has in memory.

    Args:
      theta: float64[S, p, d], what all nodes have in memory; changed.
      node: int64[S].
      partner: int64[S].
      noise: float64[S, d], of the gradients.
      problem: see `Quadratic`.
      alpha: step size.
      averages_first: the other order: the node averages, then takes a whole step in the same instant.

    Returns:
      float64[S], the squared norm of the noise-free gradient of each step.
    """
    run = np.arange(len(theta))
    if averages_first:
        theta[run, node] += BETA * (theta[run, partner] - theta[run, node])
    gradient = problem.curvature * theta[run, node]
    theta[run, node] -= alpha * (gradient + noise)
    if not averages_first:
        theta[run, node] += BETA * (theta[run, partner] - theta[run, node])
    return np.square(gradient).sum(axis=-1)


def round_(
    theta: np.ndarray, partner: np.ndarray, noise: np.ndarray, problem: Quadratic, alpha: float
) -> tuple[np.ndarray, np.ndarray]:
    """One round in each run: all nodes average with their partners, then take their steps.

    Args:
      theta: float64[S, p, d].
      partner: int64[S, p].
      noise: float64[S, p, d].
      problem: see `Quadratic`.
      alpha: step size.

    Returns:
      The new theta, and float64[S], the nodes' mean squared norm of the noise-free gradient.
    """
    mixed = theta + BETA * (np.take_along_axis(theta, partner[..., None], axis=1) - theta)
    gradient = problem.curvature * mixed
    return mixed - alpha * (gradient + noise), np.square(gradient).sum(axis=-1).mean(axis=-1)


@dataclasses.dataclass(frozen=True)
class Measured:
    """Means over runs, and their standard errors; float64[K] unless said otherwise.

    Attributes:
      step: int64[K], ticks or rounds done at each look.
      distance: sum over nodes of the squared distance from the minimum.
      distance_error: its standard error.
      consensus: sum over nodes of the squared distance from the nodes' average.
      consensus_error: its standard error.
      gradient: mean over nodes of the squared norm of the noise-free gradient at what they have in memory.
      gradient_of_steps: a number: the same at the steps that were taken, mean over all of them.
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
    averages_first: bool = False,
) -> Measured:
    """Runs the process and measures what the theorem bounds.

    Args:
      drawn: of S runs.
      problem: see `Quadratic`.
      start: float64[p, d], what the nodes have in memory before the first tick.
      alpha: step size; 0 only averages.
      steps: how many ticks or rounds.
      looks: after how many of them to measure.
      seed: of the noise.
      averages_first: see `tick`.
    """
    runs, shape = len(drawn.partner), start.shape
    generator = np.random.default_rng(seed)
    scale = np.sqrt(problem.variance / shape[1])
    theta = np.tile(start, (runs, 1, 1))
    wanted, seen, norms = set(looks), [], []
    for step in range(steps + 1):
        if step in wanted:
            seen.append((step, *_measured(theta, problem)))
        if step == steps:
            break
        if drawn.node is None:
            noise = scale * generator.standard_normal(theta.shape)
            theta, norm = round_(theta, drawn.partner[:, step], noise, problem, alpha)
        else:
            noise = scale * generator.standard_normal((runs, shape[1]))
            pair = drawn.node[:, step], drawn.partner[:, step]
            norm = tick(theta, *pair, noise, problem, alpha, averages_first=averages_first)
        norms.append(norm.mean())
    return Measured(*(np.array(column) for column in zip(*seen, strict=True)), float(np.mean(norms)))


def _measured(theta: np.ndarray, problem: Quadratic) -> tuple[float, ...]:
    distance = np.square(theta).sum(axis=(1, 2))
    consensus = np.square(theta - theta.mean(axis=1, keepdims=True)).sum(axis=(1, 2))
    error = lambda values: values.std(ddof=1) / np.sqrt(values.size) if values.size > 1 else 0.0
    gradient = np.square(problem.curvature * theta).sum(axis=2).mean()
    return distance.mean(), error(distance), consensus.mean(), error(consensus), gradient


class Expected(NamedTuple):
    """Without sampling; float64[K]."""

    distance: np.ndarray
    consensus: np.ndarray
    gradient: np.ndarray


def expected(problem: Quadratic, *, start: np.ndarray, alpha: float, looks: Sequence[int]) -> Expected:
    r"""The exact expectations of asynchronous ticks: on a quadratic, second moments follow a linear recursion.

    For each coordinate, of :math:`A = E \sum_i \theta_i^2` and :math:`B = E (\sum_i \theta_i)^2`, over the p^2 equally
    likely pairs of a node and its partner.

    Args:
      problem: see `Quadratic`.
      start: float64[p, d].
      alpha: step size.
      looks: rising numbers of ticks.

    Example:
      >>> import numpy as np
      >>> start = np.array([[1.0], [-1.0]])
      >>> expected(Quadratic(np.ones(1), 0.0), start=start, alpha=0.0, looks=[0, 1]).consensus
      array([2.  , 1.25])
    """
    p, shrink = len(start), alpha * problem.curvature
    noise = alpha**2 * problem.variance / problem.curvature.size
    squares, whole = np.square(start).sum(axis=0), np.square(start.sum(axis=0))
    own, pulled = (1.0 - BETA) * (1.0 - shrink), BETA
    moved = own - 1.0
    wanted, found = set(looks), []
    for step in range(max(looks) + 1):
        if step in wanted:
            found.append((squares.sum(), (squares - whole / p).sum(), (problem.curvature**2 * squares).sum() / p))
        cross = whole - squares  # of two different nodes
        others = own**2 * (p - 1) * squares + p * (p - 1) * (1.0 - BETA) ** 2 * noise
        others = others + pulled**2 * (p - 1) * squares + 2.0 * own * pulled * cross
        itself = (1.0 - shrink) ** 2 * squares + p * noise
        move = moved**2 * (p - 1) * squares + p * (p - 1) * (1.0 - BETA) ** 2 * noise
        move = move + pulled**2 * (p - 1) * squares + 2.0 * moved * pulled * cross + shrink**2 * squares + p * noise
        drift = -shrink * whole * ((p - 1) * (1.0 - BETA) + 1.0)
        squares, whole = (1.0 - 1.0 / p) * squares + (others + itself) / p**2, whole + (2.0 * drift + move) / p**2
    return Expected(*(np.array(column) for column in zip(*found, strict=True)))


def contraction(num_nodes: int, *, printed: bool) -> float:
    r"""The factor by which averaging alone shrinks the nodes' disagreement in one tick, in expectation.

    .. math:: \lambda = 1 - \frac{2 \beta (1 - \beta)}{p} - \frac{2 \beta^2}{p^2}

    The theorem, in the paper and in its supplement, prints :math:`2 \beta^2 / p` at the end; the proof derives the
    form above.

    Example:
      >>> contraction(4, printed=False), contraction(4, printed=True)
      (0.84375, 0.75)
    """
    power = 1 if printed else 2
    return 1.0 - 2.0 * BETA * (1.0 - BETA) / num_nodes - 2.0 * BETA**2 / num_nodes**power


def distance_bound(
    problem: Quadratic, *, step: np.ndarray, first: float, alpha: float, num_nodes: int, synchronous: bool
) -> np.ndarray:
    r"""What the theorem allows for the sum over nodes of the squared distance from the minimum.

    .. math:: \left(1 - \frac{2 \alpha}{p} \frac{m L}{m + L}\right)^t D_0 + p \alpha \sigma^2 \frac{m + L}{2 m L}

    In rounds the p in the first term is 1.

    Args:
      problem: see `Quadratic`.
      step: int64[K], t.
      first: D_0.
      alpha: step size.
      num_nodes: p.
      synchronous: in rounds.
    """
    each = 1 if synchronous else num_nodes
    rate = 1.0 - 2.0 * alpha / each * problem.harmonic
    return rate**step * first + num_nodes * alpha * problem.variance / (2.0 * problem.harmonic)


def slower_distance_bound(
    problem: Quadratic, *, step: np.ndarray, first: float, alpha: float, num_nodes: int
) -> np.ndarray:
    r"""What ticks that step, then average, can be held to.

    .. math:: \left(1 - \frac{2 \alpha r}{p} \frac{m L}{m + L}\right)^t D_0 +
        \frac{s}{r} p \alpha \sigma^2 \frac{m + L}{2 m L}, \qquad
        r = 1 - \beta + \frac{\beta}{p}, \quad s = (1 - \beta)^2 \left(1 - \frac1p\right) + \frac1p

    The paper's proof bounds :math:`E |D (\theta - \alpha g)|^2` by :math:`E |\theta - \alpha g|^2`, as if the averaging
    D and the gradient g were independent; but both belong to the node that ticks, and averaging takes the share beta of
    its step back. With the node fixed, convexity gives for a partner that is another node

    .. math:: E |(1 - \beta)(\theta_i - \alpha g_i) + \beta \theta_j|^2 \le
        (1 - \beta) \left(1 - 2 \alpha \frac{m L}{m + L}\right) |\theta_i|^2 + \beta |\theta_j|^2
        + (1 - \beta)^2 \alpha^2 \sigma^2

    and for the node itself the usual step; their mean over all pairs is the recursion above.

    Args:
      problem: see `Quadratic`.
      step: int64[K], t.
      first: D_0.
      alpha: step size.
      num_nodes: p.
    """
    p = num_nodes
    slower, noisier = 1.0 - BETA + BETA / p, (1.0 - BETA) ** 2 * (1.0 - 1.0 / p) + 1.0 / p
    rate = 1.0 - 2.0 * alpha * slower / p * problem.harmonic
    return rate**step * first + noisier / slower * p * alpha * problem.variance / (2.0 * problem.harmonic)


def consensus_bound(
    problem: Quadratic,
    *,
    step: np.ndarray,
    first: float,
    alpha: float,
    num_nodes: int,
    gradient: float,
    printed: bool = False,
) -> np.ndarray:
    r"""What the theorem allows for the sum over nodes of the squared distance from their average, in ticks.

    .. math:: \left(\lambda \left(1 - \frac{\alpha m}{p}\right)\right)^t C_0 +
        \frac{\lambda \alpha^2 (c^2 + \sigma^2)}{1 - \lambda (1 - \alpha m / p)}

    Args:
      problem: see `Quadratic`.
      step: int64[K], t.
      first: C_0.
      alpha: step size.
      num_nodes: p.
      gradient: c^2.
      printed: with the lambda of the theorem, not of its proof.
    """
    factor = contraction(num_nodes, printed=printed)
    rate = factor * (1.0 - alpha * problem.m / num_nodes)
    return rate**step * first + factor * alpha**2 * (gradient + problem.variance) / (1.0 - rate)
