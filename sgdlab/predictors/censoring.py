"""Imputation of censored compute times: those of workers that were cut off are drawn from truncated distributions."""

import numpy as np


def truncated_normal(
    generator: np.random.Generator, mean: np.ndarray, std: np.ndarray, below: np.ndarray | float
) -> np.ndarray:
    r"""Draw from normal distributions truncated below, also far in the tail.

    .. math:: x = \mu - \sigma\, \Phi^{-1}(u\, \Phi(-a)), \qquad a = (x_c - \mu) / \sigma, \qquad u \sim U(0, 1)

    in logarithms, so that no digits are lost with a bound of 30 standard deviations.

    Args:
      generator: source of the random numbers.
      mean: float64[...].
      std: float64[...], above 0.
      below: float64[...], the bound.

    Returns:
      float64[...], at least `below`.

    Source: Teng and Wood 2018, section 4.2.

    Example:
      >>> draws = truncated_normal(np.random.default_rng(0), np.zeros(3), np.ones(3), 30.0)
      >>> bool(((draws > 30) & (draws < 30.5)).all())
      True
    """
    from scipy import special  # noqa: PLC0415 (SciPy takes a while to import, and not every predictor needs it)

    tail = special.log_ndtr((mean - below) / std)
    share = -generator.standard_exponential(np.shape(tail))  # the logarithm of a uniform number
    return np.maximum(mean - std * special.ndtri_exp(tail + share), below)


def truncated_mixture(
    generator: np.random.Generator, mean: np.ndarray, std: np.ndarray, below: np.ndarray | float
) -> np.ndarray:
    """Draw from mixtures of normal distributions with equal weights, truncated below.

    A component is drawn with a probability proportional to the mass of its tail, then a value from its tail.

    Args:
      generator: source of the random numbers.
      mean: float64[K, ...], means of the components.
      std: float64[K, ...], above 0.
      below: float64[...], the bound.

    Returns:
      float64[...], at least `below`.

    Example:
      >>> mean = np.array([[0.0], [9.0]])  # nearly all that is above 5 is of the second component
      >>> float(truncated_mixture(np.random.default_rng(0), mean, np.ones((2, 1)), 5.0)[0]) > 6
      True
    """
    from scipy import special  # noqa: PLC0415 (as above)

    tail = special.log_ndtr((mean - below) / std)
    # The index of the largest of log-weights plus Gumbel noise has probabilities proportional to the weights.
    component = np.argmax(tail + generator.gumbel(size=tail.shape), axis=0)[None]
    chosen_mean, chosen_std = (np.take_along_axis(values, component, axis=0)[0] for values in (mean, std))
    return truncated_normal(generator, chosen_mean, chosen_std, below)


def from_window(generator: np.random.Generator, window: np.ndarray, runtimes: np.ndarray, cut_at: float) -> np.ndarray:
    """Impute the compute times of workers that were cut off, from the mean and deviation of each worker in a window.

    For predictors that have no distribution of the compute times of each worker.

    Args:
      generator: source of the random numbers.
      window: float64[W, N], seconds, complete compute times of the iterations before.
      runtimes: float64[N], seconds; NaN for workers that were cut off.
      cut_at: seconds, when they were cut off.

    Returns:
      float64[N], complete.

    Example:
      >>> filled = from_window(np.random.default_rng(0), np.ones((20, 3)), np.array([1.0, 1.5, np.nan]), 1.5)
      >>> bool(filled[2] >= 1.5)
      True
    """
    missing = np.isnan(runtimes)
    filled = np.array(runtimes)
    own = window[:, missing]
    # A worker whose compute times were constant may still vary: by a hundredth of its mean.
    mean = own.mean(axis=0)
    filled[missing] = truncated_normal(generator, mean, np.maximum(own.std(axis=0), 0.01 * mean), cut_at)
    return filled
