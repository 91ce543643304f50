"""`DeepMarkov`: the deep Markov model as a predictor, from the last window to its `Forecast`."""

import dataclasses
import functools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from sgdlab import arguments
from sgdlab.deep_markov.model import Architecture, WindowModel
from sgdlab.deep_markov.trained import TrainedModel
from sgdlab.predictors import censoring
from sgdlab.predictors.order_statistics import best_cutoff
from sgdlab.predictors.predictor import Prediction

_SHORTEST = 1e-6
"""Seconds, below which no expected compute time counts: those of draws that are used as they are can be negative."""


class Forecast(NamedTuple):
    """A prediction of the next compute times, in seconds.

    Attributes:
      cutoff: int32[], c.
      mean: float32[N], means of the order statistics.
      std: float32[N], standard deviations of the order statistics.
      worker_mean: float32[K, N], means; each worker's compute time is a mixture of K normal distributions.
      worker_std: float32[K, N], standard deviations of these distributions.
    """

    cutoff: jax.Array
    mean: jax.Array
    std: jax.Array
    worker_mean: jax.Array
    worker_std: jax.Array


@dataclasses.dataclass(frozen=True, eq=False)
class _State:
    window: np.ndarray  # float64[lag, N], seconds, complete
    seed: int
    step: int
    divisor: float
    longest: float  # seconds, the longest observed compute time
    made: dict[float | None, Forecast] = dataclasses.field(default_factory=dict)  # by the rate of the prediction


class DeepMarkov:
    r"""Predicts the next compute times of all workers together by a trained deep Markov model.

    .. math:: z_T^{(k)} \sim q(z_T | x_{T-l:T}), \quad z_{T+1}^{(k)} \sim p(z | z_T^{(k)}), \quad
        x^{(k)} \sim p(x | z_{T+1}^{(k)}), \qquad c = \arg\max_c c / \tfrac1K \sum_k x^{(k)}_{(c)}

    The compute time of a worker that was cut off is drawn from its predicted distribution, truncated below.

    Args:
      trained: the model.
      samples: K, number of draws.
      at_least: least share of the workers that every iteration waits for. Compute times that are not observed are
        imputed from the model's own prediction: a model that observes few can confirm its own error forever, for
        example in a regime that it was not trained on.
      literal_scale: whether to divide compute times by twice the mean of the first window of the run, as in the paper,
        so that the model can be used with networks and batch sizes that take longer. By default the divisor is that of
        the training, which is right for compute times on the same scale, whatever regime the run begins in.
      literal_draws: whether compute times are used as they are drawn, as in the paper. By default those of a prediction
        are at least as long as the shortest of the window, and imputed ones at most as long as the longest seen.

    Raises:
      ValueError: if `samples` is not at least 1, or `at_least` is not from 0 to 1.

    Source: Teng and Wood 2018, equation 5 and section 4.2.
    """

    title = "deep Markov"

    def __init__(
        self,
        trained: TrainedModel,
        *,
        samples: int = 64,
        at_least: float = 0.5,
        literal_scale: bool = False,
        literal_draws: bool = False,
    ):
        self.trained = trained
        self._literal_scale, self._literal_draws = literal_scale, literal_draws
        self._samples = arguments.whole("samples", samples)
        self._least = math.ceil(arguments.real("at_least", at_least, least=0, most=1) * trained.num_workers)
        self._parameters = jax.tree.map(jnp.asarray, trained.parameters)

    def start(self, window: np.ndarray, *, seed: int) -> _State:
        """Return the state after a first window of at least `lag` iterations."""
        window = self.trained.check(window, "window")
        lag = self.trained.widths.lag
        if window.shape[0] < lag:
            raise ValueError(f"window of {window.shape[0]} iterations must have at least {lag}, the model's lag")
        divisor = 2 * float(window.mean()) if self._literal_scale else self.trained.divisor
        return _State(window[-lag:], seed, 0, divisor, float(window.max()))

    def predict(self, state: _State, *, rate: float | None = None) -> Prediction:
        """Return the prediction of the next iteration."""
        forecast = self._forecast(state, rate)
        cutoff, mean = int(forecast.cutoff), np.asarray(forecast.mean, float)
        if cutoff < self._least:
            cutoff = best_cutoff(np.maximum(mean, _SHORTEST), rate=rate, at_least=self._least)
        return Prediction(cutoff, mean, np.asarray(forecast.std, float))

    def observe(self, state: _State, runtimes: np.ndarray, cut_at: float) -> _State:
        """Return the state after one more iteration, with the compute times of workers that were cut off imputed."""
        missing = np.isnan(runtimes)
        filled = np.array(runtimes, float)
        if missing.any():
            forecast = next(iter(state.made.values()), None) or self._forecast(state, None)
            mean, std = (np.asarray(v, float)[:, missing] for v in (forecast.worker_mean, forecast.worker_std))
            generator = np.random.default_rng((state.seed, state.step))
            drawn = censoring.truncated_mixture(generator, mean, std, cut_at)
            # Draws from a model whose inputs are its own draws could grow without bound.
            filled[missing] = drawn if self._literal_draws else np.minimum(drawn, max(state.longest, cut_at))
        window = np.concatenate([state.window[1:], filled[None]])
        longest = float(np.fmax.reduce(runtimes, initial=state.longest))  # of the observed ones: NaN is ignored
        return _State(window, state.seed, state.step + 1, state.divisor, longest)

    def _forecast(self, state: _State, rate: float | None) -> Forecast:
        if rate not in state.made:
            number = np.float64(np.nan if rate is None else rate)  # another type would be another program
            index = (np.uint32(state.seed % 2**32), np.uint32(state.step))
            state.made[rate] = self.forecast(self._parameters, state.window, state.divisor, index, number)
        return state.made[rate]

    def forecast(
        self,
        parameters: dict,
        window: jax.typing.ArrayLike,
        divisor: jax.typing.ArrayLike,
        index: tuple[jax.typing.ArrayLike, jax.typing.ArrayLike],
        rate: jax.typing.ArrayLike,
    ) -> Forecast:
        """Return the forecast after a window.

        Args:
          parameters: parameters of the networks.
          window: float[lag, N], seconds.
          divisor: seconds, by which compute times are divided.
          index: seed and step, uint32, which determine the random numbers.
          rate: gradients per second; NaN for the objective of the paper.
        """
        trained, literal = self.trained, np.bool_(self._literal_draws)
        runtimes, *of_workers = _drawn(
            trained.num_workers, trained.widths, self._samples, parameters, window, divisor, index, literal
        )
        # By NumPy: XLA takes eight times as long to sort on a CPU, and that is most of a forecast.
        return Forecast(*_chosen(np.sort(np.asarray(runtimes), axis=1), divisor, rate), *of_workers)


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _drawn(
    num_workers: int,
    widths: Architecture,
    samples: int,
    parameters: dict,
    window: jax.Array,
    divisor: jax.Array,
    index: tuple[jax.Array, jax.Array],
    literal_draws: jax.Array,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Draw compute times, float[K, N], normalised, and return the laws of workers: one program for all of a shape."""
    # Inside the program: outside of it, making a key takes longer than all networks.
    key = jax.random.fold_in(jax.random.key(index[0]), index[1])
    networks = WindowModel(num_workers, widths, seed=0).networks(parameters)
    for_state, for_next, for_runtimes = jax.random.split(key, 3)
    window = window.astype(networks.before[...].dtype) / divisor
    summaries = networks.guide.summaries(window)
    shape = (window.shape[0], samples, widths.state)
    noise = jax.random.normal(for_state, shape, window.dtype)

    def step(z: jax.Array, given: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, None]:
        mean, std = networks.guide(z, given[0])
        return mean + std * given[1], None

    before = jnp.broadcast_to(networks.guide_before[...], noise.shape[1:])
    last, _ = jax.lax.scan(step, before, (summaries, noise))
    mean, std = networks.transition(last)
    state = mean + std * jax.random.normal(for_next, mean.shape, mean.dtype)
    mean, std = networks.emission(state)
    runtimes = mean + std * jax.random.normal(for_runtimes, mean.shape, mean.dtype)
    # Normal compute times can be near zero or negative, where c / x is unbounded: at least the shortest of the window.
    least = jnp.where(literal_draws, -jnp.inf, window.min())
    return jnp.maximum(runtimes, least), mean * divisor, std * divisor


@jax.jit
def _chosen(ordered: jax.Array, divisor: jax.Array, rate: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Return the cutoff and the moments of the order statistics, from sorted draws, float[K, N], normalised."""
    runtimes = ordered * divisor
    expected, spread = runtimes.mean(axis=0), runtimes.std(axis=0)
    count = jnp.arange(1, expected.size + 1)
    gain = jnp.where(jnp.isnan(rate), count / expected, count - rate * expected)
    return jnp.argmax(gain) + 1, expected, spread
