r"""Purely autoregressive predictors: a perceptron or a GRU that maps the last compute times to the next ones (Flax).

.. math:: \log x_{t+1, i} \sim N(m_i, s_i^2), \qquad m_i = \mu_i + \sum_{k=1}^{l} w_k u_{t-k+1, i} + f_i(u), \qquad
    u_{t, i} = \log x_{t, i} - \mu_i

with :math:`\mu_i` the mean of the worker's logarithms in the training run. The network f has the window of all workers
as its input and gives s too; w is the same for all workers. Given the window, workers are independent: there is no
state behind them. Trained by the likelihood, and selected by that of the last 15 % of the run, as the deep Markov
model is; at least half of the workers are waited for, and compute times that were cut off are imputed, as there.
"""

import dataclasses
import functools
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

from sgdlab.predictors import Prediction, monte_carlo, truncated_normal

Kind = Literal["perceptron", "gru"]
HIDDEN, BATCH, VALIDATION = 64, 32, 0.15
EVERY, PATIENCE = 250, 8
"""Steps between two evaluations, and evaluations without a better one after which training stops."""
RATE, DECAY = 1e-3, 1e-3
"""Of AdamW; the rate decays to 0 by a cosine."""
AT_LEAST, MOST = 0.5, 2.0
"""The least share of workers that is waited for, and the longest imputed compute time over the longest observed one."""


class Network(nnx.Module):
    """Maps centred logarithms, [B, l, N], to the mean and the standard deviation of the next ones, [B, N] each."""

    def __init__(self, kind: Kind, lag: int, workers: int, *, rngs: nnx.Rngs):
        self.kind, self.own = kind, nnx.Param(jnp.full(lag, 1 / lag))
        self.read = (
            nnx.RNN(nnx.GRUCell(workers, HIDDEN, rngs=rngs), rngs=False)
            if kind == "gru"
            else nnx.Linear(lag * workers, HIDDEN, rngs=rngs)
        )
        self.hidden = nnx.Linear(HIDDEN, HIDDEN, rngs=rngs)
        self.out = nnx.Linear(HIDDEN, 2 * workers, kernel_init=nnx.initializers.zeros, rngs=rngs)

    def __call__(self, windows: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Return mean and standard deviation."""
        if self.kind == "gru":
            read = self.read(windows, initial_carry=jnp.zeros((len(windows), HIDDEN)))[:, -1]
        else:
            read = nnx.relu(self.read(windows.reshape(len(windows), -1)))
        mean, scale = jnp.split(self.out(nnx.relu(self.hidden(read))), 2, axis=-1)
        return jnp.einsum("l,bln->bn", self.own[...], windows) + mean, nnx.softplus(scale - 1) + 1e-3


@dataclasses.dataclass(frozen=True, eq=False)
class Fitted:
    """A trained network: `forecast` maps a centred window, [l, N], to the mean and deviation of the next row."""

    network: nnx.GraphDef
    parameters: nnx.State
    centre: np.ndarray
    lag: int

    def forecast(self, window: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return float64[N] each: mean and standard deviation of the next logarithms."""
        centred = (np.log(window) - self.centre)[None]
        mean, std = (np.asarray(each[0], float) for each in _applied(self.network, self.parameters, centred))
        return self.centre + mean, std


def fit(runtimes: np.ndarray, kind: Kind, *, lag: int, steps: int, seed: int = 0) -> Fitted:
    """Train a network on a run.

    Args:
      runtimes: float64[T, N], seconds, complete.
      kind: of the network.
      lag: l, number of iterations that it reads.
      steps: most steps of the optimiser, rounded up to a multiple of `EVERY`.
      seed: of the initial parameters and the batches.
    """
    logs = np.log(runtimes)
    held_out = int(np.ceil(VALIDATION * len(logs)))
    centre = logs[:-held_out].mean(axis=0)
    train, validation = (jnp.asarray(part - centre, jnp.float32) for part in (logs[:-held_out], logs[-held_out:]))
    network, parameters = nnx.split(Network(kind, lag, logs.shape[1], rngs=nnx.Rngs(seed)))
    rounds = -(-steps // EVERY)
    optimizer = optax.adamw(optax.cosine_decay_schedule(RATE, rounds * EVERY), weight_decay=DECAY)

    def loss_of(parameters: nnx.State, run: jax.Array, starts: jax.Array) -> jax.Array:
        mean, std = nnx.merge(network, parameters)(run[starts[:, None] + jnp.arange(lag)])
        return jnp.mean(((run[starts + lag] - mean) / std) ** 2 / 2 + jnp.log(std))

    @jax.jit
    def advance(parameters: nnx.State, state: optax.OptState, key: jax.Array) -> tuple[nnx.State, optax.OptState]:
        def one(carry: tuple[nnx.State, optax.OptState], key: jax.Array) -> tuple[tuple, None]:
            starts = jax.random.randint(key, (BATCH,), 0, len(train) - lag)
            updates, state = optimizer.update(jax.grad(loss_of)(carry[0], train, starts), carry[1], carry[0])
            return (optax.apply_updates(carry[0], updates), state), None

        return jax.lax.scan(one, (parameters, state), jax.random.split(key, EVERY))[0]

    judge, state, key = jax.jit(loss_of), optimizer.init(parameters), jax.random.key(seed)
    starts, best = jnp.arange(len(validation) - lag), (np.inf, 0, parameters)
    for number in range(rounds):
        parameters, state = advance(parameters, state, jax.random.fold_in(key, number))
        best = min(best, (float(judge(parameters, validation, starts)), number, parameters), key=lambda each: each[0])
        if number - best[1] >= PATIENCE:
            break
    return Fitted(network, best[2], centre, lag)


@functools.partial(jax.jit, static_argnums=0)
def _applied(network: nnx.GraphDef, parameters: nnx.State, windows: jax.Array) -> tuple[jax.Array, jax.Array]:
    return nnx.merge(network, parameters)(windows.astype(jnp.float32))


@dataclasses.dataclass(frozen=True, eq=False)
class _State:
    window: np.ndarray
    seed: int
    step: int
    longest: float


@dataclasses.dataclass(frozen=True, eq=False)
class Autoregressive:
    """Predicts the next compute times by a network that was fitted on another run.

    Attributes:
      fitted: the network.
      samples: number of draws of an iteration's compute times.
    """

    fitted: Fitted
    samples: int = 64
    title = "auto-regressor"

    def start(self, window: np.ndarray, *, seed: int) -> _State:
        """Return the state after a first window."""
        return _State(np.array(window, float)[-self.fitted.lag :], seed, 0, float(np.max(window)))

    def predict(self, state: _State, *, rate: float | None = None) -> Prediction:
        """Return the prediction of the next iteration."""
        mean, std = self.fitted.forecast(state.window)
        draws = np.random.default_rng((state.seed, state.step, 1)).standard_normal((self.samples, mean.size))
        expected, spread = monte_carlo(np.exp(mean + std * draws))
        return Prediction.of(expected, spread, rate, at_least=int(np.ceil(AT_LEAST * mean.size)))

    def observe(self, state: _State, runtimes: np.ndarray, cut_at: float) -> _State:
        """Return the state after one more iteration, with the compute times of workers that were cut off imputed."""
        missing, filled = np.isnan(runtimes), np.array(runtimes, float)
        if missing.any():
            mean, std = (values[missing] for values in self.fitted.forecast(state.window))
            generator = np.random.default_rng((state.seed, state.step, 0))
            drawn = np.exp(truncated_normal(generator, mean, std, np.log(cut_at)))
            filled[missing] = np.clip(drawn, cut_at, max(MOST * state.longest, cut_at))
        longest = float(np.fmax.reduce(runtimes, initial=state.longest))
        return _State(np.concatenate([state.window[1:], filled[None]]), state.seed, state.step + 1, longest)
