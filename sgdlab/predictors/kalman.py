"""`Kalman`: a Kalman filter for each worker, whose compute time is a level that reverts to its mean, plus noise."""

import dataclasses
import itertools

import numpy as np

from sgdlab import arguments
from sgdlab.predictors import censoring, order_statistics
from sgdlab.predictors.family import PREDICTORS
from sgdlab.predictors.predictor import Prediction
from sgdlab.runtimes import checked

_MEMORIES = (0.3, 0.6, 0.8, 0.9, 0.95, 0.98, 0.99)
_SHARES = (0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 0.98)


@dataclasses.dataclass(frozen=True)
class KalmanParameters:
    r"""The parameters of the Kalman filter of each worker.

    .. math:: \ell_t = \phi \ell_{t-1} + \sqrt{s (1 - \phi^2)}\, \sigma\, u_t, \qquad
        x_t = \mu + \ell_t + \sqrt{1 - s}\, \sigma\, v_t

    Attributes:
      mean: float64[N], seconds, mu.
      std: float64[N], seconds, sigma.
      memory: float64[N], phi, autocorrelation of the level.
      share: float64[N], s, share of the variance that is due to the level.
    """

    mean: np.ndarray
    std: np.ndarray
    memory: np.ndarray
    share: np.ndarray


def fit(runtimes: np.ndarray) -> KalmanParameters:
    """Fit the mean and deviation of each worker, and the memory and share of greatest likelihood on a grid.

    Args:
      runtimes: float64[T, N], seconds, complete.

    Raises:
      ValueError: if compute times are not positive and finite.

    Example:
      >>> from sgdlab import cluster
      >>> fit(cluster.gamma(num_workers=3, num_gradients=50, seed=0)).memory.shape
      (3,)
    """
    runtimes = checked(runtimes)
    mean = runtimes.mean(axis=0)
    std = np.maximum(runtimes.std(axis=0), 1e-3 * mean)
    scaled = (runtimes - mean) / std
    best = np.concatenate([_likelihoods(scaled, memory) for memory in _MEMORIES]).argmax(axis=0)
    memory, share = np.array(list(itertools.product(_MEMORIES, _SHARES))).T
    return KalmanParameters(mean, std, memory[best], share[best])


def _likelihoods(scaled: np.ndarray, memory: float) -> np.ndarray:
    """Return the log-likelihoods of each worker's times, up to a constant, if all have one memory, for each share.

    The gains of filters with the same memory and share are the same, since variances do not depend on what is observed;
    so are the variances of compute times in units of their standard deviations, to which compute times, float64[T, N],
    are scaled.
    """
    share = np.array(_SHARES)[:, None]
    level, noise, drift = share, 1 - share, share * (1 - memory**2)
    gains, variances = [], []
    for _ in range(len(scaled)):
        variances.append(level + noise)
        gains.append(level / (level + noise))
        level = memory**2 * (1 - gains[-1]) * level + drift
    mean, total, error, moved = np.zeros((4, share.size, scaled.shape[1]))
    for row, gain, variance in zip(scaled, gains, variances, strict=True):
        np.subtract(row, mean, out=error)
        mean += np.multiply(gain, error, out=moved)
        mean *= memory
        np.square(error, out=error)
        error /= -2 * variance
        total += error
    return total - np.log(np.concatenate(variances, axis=1)).sum(axis=1, keepdims=True) / 2


def log_density(law: KalmanParameters, runtimes: np.ndarray) -> np.ndarray:
    """Return the one-step predictive log densities, float64[T, N], of complete compute times."""
    state = _stationary(law)
    densities = np.empty(runtimes.shape)
    for step, row in enumerate(runtimes):
        mean, variance = _predicted(law, state)
        densities[step] = -((row - mean) ** 2) / (2 * variance) - np.log(2 * np.pi * variance) / 2
        state = _after(law, state, row)
    return densities


@dataclasses.dataclass(frozen=True, eq=False)
class _Level:
    """Expected level of the next step and its variance, float64[N] each."""

    mean: np.ndarray
    variance: np.ndarray


@dataclasses.dataclass(frozen=True, eq=False)
class _State:
    law: KalmanParameters
    level: _Level
    draws: np.ndarray  # float64[K, N], standard normal, the same for every prediction
    seed: int
    step: int


class Kalman:
    """Predicts each worker by its own Kalman filter; order statistics are sampled assuming independent workers.

    The compute time of a worker that was cut off is drawn from its predicted distribution, truncated below.

    Args:
      law: the law of each worker, as `fit` returns it. None: fitted on the first window of every run.
      samples: K, number of draws for the order statistics.

    Raises:
      ValueError: in `start`, if the law is of another number of workers.

    Example:
      >>> from sgdlab import cluster
      >>> runtimes = cluster.gamma(num_workers=3, num_gradients=50, seed=0)
      >>> predictor = Kalman(fit(runtimes))
      >>> predictor.predict(predictor.start(runtimes[:20], seed=0)).mean.shape
      (3,)
    """

    title = "Kalman"

    def __init__(self, law: KalmanParameters | None = None, *, samples: int = 64):
        self._law = law
        self._samples = arguments.whole("samples", samples)

    def start(self, window: np.ndarray, *, seed: int) -> _State:
        """Return the state after a first window."""
        law = fit(window) if self._law is None else self._law
        workers = law.mean.size
        if np.ndim(window) != 2 or np.shape(window)[1] != workers:
            raise ValueError(f"window of shape {np.shape(window)} must have {workers} columns, the law's workers")
        level = _stationary(law)
        for row in window:
            level = _after(law, level, row)
        # The same draws for every prediction, so that predictions differ by what was learned only.
        draws = np.random.default_rng(0).standard_normal((self._samples, workers))
        return _State(law, level, draws, seed, 0)

    def predict(self, state: _State, *, rate: float | None = None) -> Prediction:
        """Return the prediction of the next iteration."""
        mean, variance = _predicted(state.law, state.level)
        draws = mean + np.sqrt(variance) * state.draws
        return Prediction.of(*order_statistics.monte_carlo(np.maximum(draws, 0.01 * state.law.mean)), rate)

    def observe(self, state: _State, runtimes: np.ndarray, cut_at: float) -> _State:
        """Return the state after one more iteration."""
        missing = np.isnan(runtimes)
        mean, variance = _predicted(state.law, state.level)
        filled = np.array(runtimes, float)
        generator = np.random.default_rng((state.seed, state.step))
        filled[missing] = censoring.truncated_normal(generator, mean[missing], np.sqrt(variance[missing]), cut_at)
        level = _after(state.law, state.level, filled)
        return dataclasses.replace(state, level=level, step=state.step + 1)


@PREDICTORS.register("kalman", title="Kalman")
def from_window(*, samples: int = 64) -> Kalman:
    """Kalman filters that are fitted on the first window of the run; a longer window gives better fits.

    Args:
      samples: K, number of draws for the order statistics.

    Raises:
      ValueError: if `samples` is below 1.

    Example:
      >>> predictor = from_window()
      >>> predictor.predict(predictor.start(np.ones((5, 3)), seed=0)).cutoff
      3
    """
    return Kalman(samples=samples)


def _stationary(law: KalmanParameters) -> _Level:
    return _Level(np.zeros_like(law.mean), law.share * law.std**2)


def _predicted(law: KalmanParameters, level: _Level) -> tuple[np.ndarray, np.ndarray]:
    return law.mean + level.mean, level.variance + (1 - law.share) * law.std**2


def _after(law: KalmanParameters, level: _Level, runtimes: np.ndarray) -> _Level:
    mean, variance = _predicted(law, level)
    gain = level.variance / variance
    updated = level.mean + gain * (runtimes - mean)
    drift = law.share * (1 - law.memory**2) * law.std**2
    return _Level(law.memory * updated, law.memory**2 * (1 - gain) * level.variance + drift)
