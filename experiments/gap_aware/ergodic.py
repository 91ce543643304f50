"""Gap-Aware SGD on known objectives, and the bounds on its gradients (Barkai et al. 2020, section 5.2, appendix B)."""

import dataclasses
import math

import numpy as np

from sgdlab.cluster import Gamma
from sgdlab.protocols import asynchronous


@dataclasses.dataclass(frozen=True)
class Objective:
    r"""A smooth function of independent coordinates, with its minimum 0 at 0.

    .. math:: f(\theta) = \sum_i \tfrac12 \lambda_i \theta_i^2 + a (1 - \cos b \theta_i), \qquad
        L = \max_i \lambda_i + a b^2

    Attributes:
      curvatures: lambda, above 0, one for each coordinate.
      height: a, of the waves; 0: the function is quadratic, and above lambda / b^2 it is not convex.
      frequency: b, of the waves.

    Example:
      >>> quadratic = Objective((0.5, 1.0))
      >>> quadratic.value(np.array([2.0, 1.0])), quadratic.gradient(np.array([2.0, 1.0])), quadratic.smoothness
      (np.float64(1.5), array([1., 1.]), 1.0)
    """

    curvatures: tuple[float, ...]
    height: float = 0.0
    frequency: float = 1.0

    @property
    def smoothness(self) -> float:
        """L, the Lipschitz constant of the gradient."""
        return max(self.curvatures) + self.height * self.frequency**2

    def value(self, theta: np.ndarray) -> np.ndarray:
        """f, float64[...], at float64[..., d]."""
        waves = self.height * (1 - np.cos(self.frequency * theta))
        return (np.array(self.curvatures) * theta**2 / 2 + waves).sum(axis=-1)

    def gradient(self, theta: np.ndarray) -> np.ndarray:
        """Return the gradient, float64[..., d], at float64[..., d]."""
        slope = np.array(self.curvatures) * theta
        return slope + self.height * self.frequency * np.sin(self.frequency * theta) if self.height else slope


OBJECTIVES = {
    "quadratic": Objective(tuple(np.linspace(0.1, 1.0, 10).tolist())),
    "non-convex": Objective((0.1,) * 10, height=0.1, frequency=3.0),
}
"""Both have L = 1; the second has 59,049 local minima, and curvatures down to -0.8."""

START = 3.0
"""Every coordinate of theta_1."""


@dataclasses.dataclass(frozen=True)
class Problem:
    """Holds what the bounds depend on.

    Attributes:
      smoothness: L.
      excess: f(theta_1) - f(theta*).
      variance: sigma^2, of the gradient of one example.
      batch_size: B, examples whose gradients an update adds up.
      max_delay: T, the largest number of updates between reading and updating.
    """

    smoothness: float
    excess: float
    variance: float
    batch_size: int
    max_delay: int

    def least_updates(self) -> float:
        r"""Condition (10) on the number of updates: :math:`K \ge 4 B L (T + 1)^2 (f(\theta_1) - f^*) / \sigma^2`."""
        return 4 * self.batch_size * self.smoothness * (self.max_delay + 1) ** 2 * self.excess / self.variance

    def corollary_step(self, updates: int) -> float:
        r"""Equation 9: :math:`\eta_k / G_k = \sqrt{(f(\theta_1) - f^*) / (B L K \sigma^2)}`."""
        return math.sqrt(self.excess / (self.batch_size * self.smoothness * updates * self.variance))

    def corollary_bound(self, updates: int) -> float:
        r"""Corollary 1: :math:`4 \sqrt{(f(\theta_1) - f^*) L \sigma^2 / (B K)}` on the mean squared gradient."""
        return 4 * math.sqrt(self.excess * self.smoothness * self.variance / (self.batch_size * updates))

    def largest_rate(self) -> float:
        r"""Return the largest constant eta that meets condition (7) whatever the gaps, which are at least 1.

        .. math:: B L \eta + 2 B^2 L^2 T^2 \eta^2 = 1
        """
        scale = self.batch_size * self.smoothness
        return 2 / (scale * (1 + math.sqrt(1 + 8 * self.max_delay**2)))

    def conditions(self, steps: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        r"""Return the left side of condition (7), at most 1: as the proof needs it, and as printed.

        .. math:: B L w_k + 2 B^2 L^2 T w_k \sum_{t=1}^T w_{k+t}, \qquad
            B L w_k + 2 B^2 L^2 T \sum_{t=1}^T w_{k+t}^2, \qquad w_k = \eta_k / G_k

        Args:
          steps: float64[K, ...], w.

        Returns:
          Two arrays float64[K, ...].
        """
        scale = self.batch_size * self.smoothness
        delayed = [2 * scale**2 * self.max_delay * _next(values, self.max_delay) for values in (steps, steps**2)]
        return scale * steps + delayed[0] * steps, scale * steps + delayed[1]

    def theorem_bound(self, steps: np.ndarray) -> np.ndarray:
        r"""Return the right side of (8) for every number of updates.

        .. math:: \frac{2 (f(\theta_1) - f^*) / B
            + \sum_k \left( L w_k^2 + 2 B L^2 w_k \sum_{j=k-T}^{k-1} w_j^2 \right) \sigma^2}{\sum_k w_k}

        Args:
          steps: float64[K, ...], w.

        Returns:
          float64[K, ...]; row k is the bound after k + 1 updates.
        """
        before = _next(steps[::-1] ** 2, self.max_delay)[::-1]
        scale = 2 * self.batch_size * self.smoothness**2
        noise = self.variance * np.cumsum(self.smoothness * steps**2 + scale * steps * before, axis=0)
        return (2 * self.excess / self.batch_size + noise) / np.cumsum(steps, axis=0)


def ergodic_mean(squared: np.ndarray, steps: np.ndarray) -> np.ndarray:
    """The left side of (8): squared gradients averaged with weights w, float64[K, ...], for every number of updates."""
    return np.cumsum(squared * steps, axis=0) / np.cumsum(steps, axis=0)


def staleness(num_workers: int, updates: int, *, seed: int) -> np.ndarray:
    """int[K], updates between reading and updating on the homogeneous cluster, whose workers never wait: tau of (6)."""
    rows = math.ceil(1.3 * updates / num_workers) + 10
    runtimes = Gamma(num_workers).draw(rows, seed=seed)
    return asynchronous(runtimes, num_gradients=updates).staleness().compressed()[:updates]


def train(
    objective: Objective,
    delays: np.ndarray,
    problem: Problem,
    rate: float,
    *,
    runs: int,
    seed: int,
    gap_aware: bool,
) -> tuple[np.ndarray, np.ndarray]:
    r"""Runs SGD with delays, all runs at once.

    .. math:: \theta_{k+1} = \theta_k - w_k \sum_{b=1}^B \nabla F(\theta_{k - \tau_k}; \xi_b), \qquad
        w_k = \eta / G_k, \qquad G_k = |\theta_k - \theta_{k - \tau_k}| / C_k + 1

    :math:`C_k` is eta times the mean norm of the sums of gradients so far, that of update k included. The noise of the
    examples is Gaussian, so that that of their sum is drawn at once.

    Args:
      objective: f.
      delays: int[K], tau; 0 is fresh.
      problem: its batch size, variance and largest delay.
      rate: eta.
      runs: number of runs, with the same delays and other noise.
      seed: of the noise.
      gap_aware: whether steps are divided by the gap; else w is eta, as where eta_k is proportional to G_k.

    Returns:
      squared: float64[K, runs], squared norms of the gradients at theta_k.
      steps: float64[K, runs], w.

    Source: Barkai et al. 2020, equation 3 and Definition 1.
    """
    generator, size = np.random.default_rng(seed), len(objective.curvatures)
    noise = math.sqrt(problem.batch_size * problem.variance / size)
    versions = np.full((problem.max_delay + 1, runs, size), START)
    gradients = objective.gradient(versions)
    theta, norms = versions[0], np.zeros(runs)
    squared, steps = np.empty((len(delays), runs)), np.full((len(delays), runs), rate)
    for k, delay in enumerate(delays):
        now, then = k % len(versions), (k - delay) % len(versions)
        versions[now], gradients[now] = theta, objective.gradient(theta)
        total = problem.batch_size * gradients[then] + noise * generator.standard_normal((runs, size))
        squared[k] = np.einsum("rd,rd->r", gradients[now], gradients[now])
        if gap_aware:
            norms += np.sqrt(np.einsum("rd,rd->r", total, total))
            distance = np.linalg.norm(theta - versions[then], axis=1)
            steps[k] = rate / (distance / (rate * norms / (k + 1)) + 1)
        theta = theta - steps[k][:, None] * total
    return squared, steps


def _next(values: np.ndarray, count: int) -> np.ndarray:
    """Sums of the `count` entries after each, along the first axis; there is nothing after the last."""
    sums = np.concatenate([np.zeros_like(values[:1]), np.cumsum(values, axis=0)])
    ends = np.minimum(np.arange(1, len(values) + 1) + count, len(values))
    return sums[ends] - sums[1:]
