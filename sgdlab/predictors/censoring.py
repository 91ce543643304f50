"""Workers that were cut off: a run-time for each is drawn from what was expected of it, given that it took longer."""

import numpy as np
import scipy.special


def truncated_normal(
    generator: np.random.Generator, mean: np.ndarray, std: np.ndarray, below: np.ndarray | float
) -> np.ndarray:
    r"""Draws from normal distributions, given that the values are above a bound, far tails included.

    .. math:: x = \mu - \sigma\, \Phi^{-1}(u\, \Phi(-a)), \qquad a = (x_c - \mu) / \sigma, \qquad u \sim U(0, 1)

    in logarithms, so that a bound of 30 standard deviations loses no digit.

    Args:
      generator: of the random numbers.
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
    tail = scipy.special.log_ndtr((mean - below) / std)
    share = -generator.standard_exponential(np.shape(tail))  # the logarithm of a uniform number
    return np.maximum(mean - std * scipy.special.ndtri_exp(tail + share), below)


def truncated_mixture(
    generator: np.random.Generator, mean: np.ndarray, std: np.ndarray, below: np.ndarray | float
) -> np.ndarray:
    """Draws from mixtures of normal distributions with equal weights, given that the values are above a bound.

    A component is picked by the mass of its tail, and then its own tail is drawn from: together that is the mixture's.

    Args:
      generator: of the random numbers.
      mean: float64[K, ...], of the components.
      std: float64[K, ...], above 0.
      below: float64[...], the bound.

    Returns:
      float64[...], at least `below`.

    Example:
      >>> mean = np.array([[0.0], [9.0]])  # nearly all that is above 5 is of the second component
      >>> float(truncated_mixture(np.random.default_rng(0), mean, np.ones((2, 1)), 5.0)[0]) > 6
      True
    """
    tail = scipy.special.log_ndtr((mean - below) / std)
    # The largest of log-weights plus Gumbel noise is a draw in proportion to the weights.
    component = np.argmax(tail + generator.gumbel(size=tail.shape), axis=0)[None]
    chosen_mean, chosen_std = (np.take_along_axis(values, component, axis=0)[0] for values in (mean, std))
    return truncated_normal(generator, chosen_mean, chosen_std, below)


def from_window(generator: np.random.Generator, window: np.ndarray, runtimes: np.ndarray, cut_at: float) -> np.ndarray:
    """Fills in the run-times of workers that were cut off, from each worker's own mean and deviation in a window.

    This is what predictors do that have no distribution of each worker's run-times.

    Args:
      generator: of the random numbers.
      window: float64[W, N], seconds, complete: the iterations before.
      runtimes: float64[N], seconds; NaN where a worker was cut off.
      cut_at: seconds.

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
    # A worker whose times never varied still may: a hundredth of its mean.
    spread = np.maximum(own.std(axis=0), 0.01 * own.mean(axis=0))
    filled[missing] = truncated_normal(generator, own.mean(axis=0), spread, cut_at)
    return filled
