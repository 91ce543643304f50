"""On data of a linear-Gaussian state space the trained model predicts nearly as well as the exact Kalman filter.

Two hidden numbers, each an autoregression that hardly forgets, move the times of twelve workers together. Measured
is the log density of all times of an iteration together, given those before: nats per value, in seconds. A normal
distribution with the training run's mean and full covariance knows which workers are slow together, and nothing of
time; the Kalman filter with the true matrices knows all. (With a diagonal covariance, the first would be about 0.5 nats
worse, and there would be little left to show.)
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import multivariate_normal

from sgdlab.deep_markov import Architecture, DeepMarkov, Fitting, fit

LATENT, WORKERS = 2, 12
DECAY = np.array([0.95, 0.98])
INNOVATION = np.sqrt(1 - DECAY**2)  # so that every hidden number has variance 1
LOADINGS = 0.1 * np.random.default_rng(0).normal(size=(WORKERS, LATENT))  # seconds
MEAN, NOISE = 1.0, 0.05  # seconds
WIDTHS = Architecture(lag=6, state=6, gate=8, emission=8, scale=8, recurrent=32)
FITTING = Fitting(steps=2500, batch=32, learning_rate=1e-2, annealing=200, every=500)
SAMPLES = 500


def draw(steps, *, seed) -> np.ndarray:
    """Compute times, float64[steps, WORKERS]."""
    generator = np.random.default_rng(seed)
    z, rows = generator.normal(size=LATENT), []
    for _ in range(steps):
        z = DECAY * z + INNOVATION * generator.normal(size=LATENT)
        rows.append(MEAN + LOADINGS @ z + NOISE * generator.normal(size=WORKERS))
    return np.array(rows)


def kalman(runtimes) -> np.ndarray:
    """The log density of every row given those before, float64[T]."""
    z, covariance = np.zeros(LATENT), np.eye(LATENT)
    densities = []
    for row in runtimes:
        z = DECAY * z
        covariance = DECAY[:, None] * covariance * DECAY + np.diag(INNOVATION**2)
        expected, spread = MEAN + LOADINGS @ z, LOADINGS @ covariance @ LOADINGS.T + NOISE**2 * np.eye(WORKERS)
        densities.append(multivariate_normal(expected, spread).logpdf(row))
        gain = covariance @ LOADINGS.T @ np.linalg.inv(spread)
        z = z + gain @ (row - expected)
        covariance = covariance - gain @ LOADINGS @ covariance
    return np.array(densities)


def deep_markov(trained, runtimes) -> np.ndarray:
    """The log density of every row given `lag` rows before it, float64[T - lag]."""
    predictor, lag = DeepMarkov(trained, samples=SAMPLES), trained.widths.lag

    @jax.jit
    def density(forecast, row):
        by_sample = jax.scipy.stats.norm.logpdf(row, forecast.worker_mean, forecast.worker_std).sum(axis=1)
        return jax.scipy.special.logsumexp(by_sample) - jnp.log(SAMPLES)

    def forecast(t):
        index = (np.uint32(0), np.uint32(t))
        return predictor.forecast(trained.parameters, runtimes[t - lag : t], trained.divisor, index, np.float64(np.nan))

    at = range(lag, len(runtimes))
    return np.array([density(forecast(t), runtimes[t]) for t in at])


def per_value(densities) -> float:
    return float(np.mean(densities)) / WORKERS


@functools.cache
def found():
    """Return what each gives for a run never seen in training."""
    train, test = draw(2000, seed=1), draw(300, seed=2)
    trained = fit(train, WIDTHS, FITTING, seed=0)
    scored = test[WIDTHS.lag :]
    mean, covariance = train.mean(axis=0), np.cov(train.T)
    return {
        "diagonal": per_value(multivariate_normal(mean, np.diag(np.diag(covariance))).logpdf(scored)),
        "static": per_value(multivariate_normal(mean, covariance).logpdf(scored)),
        "kalman": per_value(kalman(test)[WIDTHS.lag :]),
        "deep Markov": per_value(deep_markov(trained, test)),
    }


def test_the_kalman_filter_is_exact():
    """Its densities of rows multiply to the normal density of all rows together."""
    rows = draw(4, seed=3)
    times = np.arange(len(rows))
    # Hidden numbers have variance 1, and a correlation of the decay to the power of the time between.
    hidden = DECAY ** abs(times[:, None, None] - times[:, None])
    covariance = np.einsum("wl,stl,vl->swtv", LOADINGS, hidden, LOADINGS).reshape(rows.size, rows.size)
    together = multivariate_normal(np.full(rows.size, MEAN), covariance + NOISE**2 * np.eye(rows.size))
    np.testing.assert_allclose(kalman(rows).sum(), together.logpdf(rows.ravel()), rtol=1e-9)


@pytest.mark.full
def test_there_is_something_to_learn_from_time():
    values = found()
    assert values["diagonal"] + 0.3 < values["static"] < values["kalman"] - 0.15


@pytest.mark.full  # a training to its end
def test_the_deep_markov_model_closes_nine_tenths_of_the_gap():
    values = found()
    closed = (values["deep Markov"] - values["static"]) / (values["kalman"] - values["static"])
    assert 0.9 <= closed <= 1.02, values
