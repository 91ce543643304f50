"""Expected order statistics of times (`normal`, `elfving`, `monte_carlo`), and the best cutoff (`best_cutoff`)."""

import math

import numpy as np

from sgdlab import arguments

_REACH, _POINTS = 12.0, 4801
"""The integral's grid, in standard deviations. Its integrand and all derivatives vanish at both ends, where the
trapezoidal rule converges faster than any power of the step."""


def normal(num_workers: int, *, mean: float = 0.0, std: float = 1.0) -> np.ndarray:
    r"""Return the expected order statistics of independent normal compute times, by numerical integration.

    .. math:: E[x_{(j)}] = \mu + \sigma \frac{n!}{(j-1)!\,(n-j)!}
        \int z\, \Phi(z)^{j-1} (1 - \Phi(z))^{n-j} \varphi(z)\, dz

    Args:
      num_workers: n, number of workers.
      mean: mu, seconds.
      std: sigma, seconds.

    Returns:
      float64[n], seconds, ascending.

    Raises:
      ValueError: if a number is out of its range.

    Source: Teng and Wood 2018, section 3.1.1.

    Example:
      >>> normal(2) * math.pi**0.5  # the larger of two: 1 / sqrt(pi)
      array([-1.,  1.])
    """
    workers = arguments.whole("num_workers", num_workers)
    _check_moments(mean, std)
    from scipy import special  # noqa: PLC0415 (SciPy takes a while to import, and not every predictor needs it)

    z = np.linspace(-_REACH, _REACH, _POINTS)
    below, above = special.log_ndtr(z), special.log_ndtr(-z)
    density = -(z**2) / 2 - math.log(2 * math.pi) / 2
    expected = np.empty(workers)
    for start in range(0, workers, 256):  # in chunks: memory does not grow with n squared
        j = np.arange(start + 1, min(start + 256, workers) + 1)[:, None]
        ways = special.gammaln(workers + 1) - special.gammaln(j) - special.gammaln(workers - j + 1)
        weight = np.exp(ways + (j - 1) * below + (workers - j) * above + density)
        expected[start : start + 256] = np.trapezoid(z * weight, z, axis=1)
    return mean + std * (expected - expected[::-1]) / 2  # symmetric, as the integral is


def elfving(num_workers: int, *, mean: float = 0.0, std: float = 1.0) -> np.ndarray:
    r"""Return the expected order statistics of independent normal compute times, by Elfving's approximation.

    .. math:: E[x_{(j)}] \approx \mu + \sigma\, \Phi^{-1}\!\left(\frac{j - \pi/8}{n - \pi/4 + 1}\right)

    Teng and Wood print the reciprocal of the fraction. Arguments, result and errors are those of `normal`.

    Source: Teng and Wood 2018, equation 3; Royston 1982.

    Example:
      >>> round(float(elfving(158, mean=1.057, std=0.393)[-1]), 3)
      2.105
    """
    workers = arguments.whole("num_workers", num_workers)
    _check_moments(mean, std)
    from scipy import special  # noqa: PLC0415 (as in `normal`)

    j = np.arange(1, workers + 1)
    return mean + std * special.ndtri((j - math.pi / 8) / (workers - math.pi / 4 + 1))


def monte_carlo(samples: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean and standard deviation of every order statistic of any model, from its samples.

    Args:
      samples: float64[K, N], joint draws of the compute times.

    Returns:
      float64[N] and float64[N], seconds, ascending in the first.

    Raises:
      ValueError: if samples have another shape.

    Source: Teng and Wood 2018, section 3.1.1, last paragraph.

    Example:
      >>> mean, std = monte_carlo([[3.0, 1.0], [2.0, 5.0]])
      >>> mean, std
      (array([1.5, 4. ]), array([0.5, 1. ]))
    """
    array = np.asarray(samples, np.float64)
    if array.ndim != 2 or 0 in array.shape:
        raise ValueError(f"samples of shape {array.shape} must have shape [K, N], with K and N at least 1")
    ordered = np.sort(array, axis=1)
    return ordered.mean(axis=0), ordered.std(axis=0)


def best_cutoff(expected: np.ndarray, *, rate: float | None = None, at_least: int = 1) -> int:
    r"""Return the number of workers to wait for.

    .. math:: c = \arg\max_c \frac{c}{E[x_{(c)}]}, \qquad \text{or} \qquad
        c = \arg\max_c\, c - \lambda E[x_{(c)}]

    The first is the objective of the paper, optimal for a single iteration. Over a run, the total number of gradients
    per total time is largest for the second, with :math:`\lambda` the rate of the run itself (Dinkelbach 1967): in an
    iteration in which all workers are slow, fewer should be waited for than is optimal for this iteration.

    Args:
      expected: float64[N], seconds, the expected order statistics.
      rate: lambda, gradients per second. None: the objective of the paper.
      at_least: the smallest c that is allowed.

    Returns:
      c, from `at_least` to N; the smallest of several optima.

    Raises:
      ValueError: if expected order statistics have another shape, are not finite, or (without a rate) not positive.

    Source: Teng and Wood 2018, section 3.

    Example:
      >>> best_cutoff([1.0, 1.1, 2.0]), best_cutoff([1.0, 1.1, 2.0], rate=1.0)
      (2, 3)
    """
    expected = np.asarray(expected, np.float64)
    if expected.ndim != 1 or expected.size == 0:
        raise ValueError(f"expected of shape {expected.shape} must have shape [N], with N at least 1")
    bad = ~np.isfinite(expected) | ((expected <= 0) & (rate is None))
    if bad.any():
        index = int(np.argmax(bad))
        right = "finite" if rate is not None else "positive and finite"
        raise ValueError(f"expected[{index}]={expected[index]} must be {right}")
    count = np.arange(1, expected.size + 1)
    arguments.whole("at_least", at_least, most=expected.size)
    gain = count / expected if rate is None else count - rate * expected
    return at_least + int(np.argmax(gain[at_least - 1 :]))


def _check_moments(mean: float, std: float) -> None:
    arguments.real("mean", mean)
    arguments.real("std", std, least=0)
