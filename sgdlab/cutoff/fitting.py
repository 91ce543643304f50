"""Training of the deep Markov model: stochastic variational inference on windows of a recorded or simulated run."""

import dataclasses
import functools
import hashlib
import math
import os
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from numpyro.infer import SVI, Trace_ELBO

from sgdlab import arguments
from sgdlab.cutoff.checkpoints import Checkpoints
from sgdlab.cutoff.model import Architecture, WindowModel
from sgdlab.cutoff.trained import TrainedModel
from sgdlab.runtimes import checked

Report = Callable[[dict[str, float]], None]


@dataclasses.dataclass(frozen=True)
class Fitting:
    """How the model is trained.

    Attributes:
      steps: of the optimiser, at most.
      batch: windows in a step.
      learning_rate: Adam's, falling to a twentieth by a cosine.
      clip: the largest norm of a gradient (of the negative ELBO per value).
      blind_share: of a batch's windows, in which the guide's right network sees each step alone, as it does at the last
        step of every window, from which everything is predicted. Both bounds are evidence lower bounds; without the
        second, the guide is good inside a window and poor at its end.
      annealing: steps over which the weight of the states' terms rises from 0 to 1.
      validation_share: of the run, its end, that is not trained on.
      every: steps from one look at the validation windows to the next.
      patience: looks without a better validation ELBO, after which training stops.

    Raises:
      ValueError: where a number is out of its range.
    """

    steps: int = 8000
    batch: int = 32
    learning_rate: float = 3e-3
    clip: float = 1.0
    annealing: int = 500
    blind_share: float = 0.5
    validation_share: float = 0.15
    every: int = 250
    patience: int = 8

    def __post_init__(self) -> None:
        for name in ("steps", "batch", "every", "patience"):
            arguments.whole(name, getattr(self, name))
        arguments.whole("annealing", self.annealing, least=0)
        for name in ("learning_rate", "clip"):
            arguments.real(name, getattr(self, name), above=0)
        arguments.real("validation_share", self.validation_share, least=0, most=0.9)
        arguments.real("blind_share", self.blind_share, least=0, most=1)


def fit(
    runtimes: np.ndarray,
    widths: Architecture,
    fitting: Fitting,
    *,
    seed: int,
    report: Report | None = None,
    checkpoints: str | os.PathLike[str] | None = None,
) -> TrainedModel:
    """Trains a deep Markov model of a cluster.

    Run-times are divided by twice the mean of the first window. The best parameters by the ELBO of the validation
    windows are kept.

    Args:
      runtimes: float64[T, N], seconds, complete; at least a window to train on, and one to validate with.
      widths: of the networks, and the lag.
      fitting: how to train.
      seed: of the initial parameters, of batches and of draws.
      report: called at every look, with `step`, `elbo` and `validation_elbo`, both in nats per value.
      checkpoints: a directory for Orbax checkpoints, one at each look; training that was killed continues there.

    Returns:
      The trained model.

    Raises:
      ValueError: where there are too few steps, run-times are not positive and finite, or checkpoints are of another
        training.

    Source: Teng and Wood 2018, section 3.1.3.

    Example:
      >>> from sgdlab import cluster
      >>> runtimes = cluster.gamma(num_workers=3, num_gradients=60, seed=0)
      >>> model = fit(runtimes, Architecture(lag=5, state=2), Fitting(steps=20, every=10), seed=0)
      >>> len(model.history), model.num_workers
      (2, 3)
    """
    train, validation, divisor = _split(runtimes, widths.lag, fitting.validation_share)
    model = WindowModel(train.shape[1], widths, seed=seed)
    training = _Training(model, fitting, widths.lag, jnp.asarray(train, float), jnp.asarray(validation, float), seed)
    settings = {
        "widths": dataclasses.asdict(widths),
        "fitting": dataclasses.asdict(fitting),
        "seed": seed,
        "runtimes": hashlib.sha256(np.ascontiguousarray(runtimes, np.float64).tobytes()).hexdigest(),
    }
    with Checkpoints(checkpoints, settings) as keeper:
        progress = keeper.latest(training.begin())
        while not training.is_done(progress):
            progress = training.advance(progress)
            keeper.save(int(progress["step"]), progress)
            if report is not None:
                report(training.history(progress)[-1])
    parameters = jax.tree.map(np.asarray, progress["best"])
    return TrainedModel(widths, train.shape[1], divisor, parameters, training.history(progress))


def windows_of(runtimes: jax.Array, starts: jax.Array, lag: int) -> jax.Array:
    """The windows that begin at given steps: [T, N] and [B] -> [B, lag, N]."""
    return runtimes[starts[:, None] + jnp.arange(lag)]


_LOOK = ("step", "elbo", "validation_elbo")


class _Training:
    """One training. What changes in it is its progress, a pytree that Orbax can keep."""

    def __init__(
        self, model: WindowModel, fitting: Fitting, lag: int, train: jax.Array, validation: jax.Array, seed: int
    ):
        self._fitting, self._lag, self._train = fitting, lag, train
        self._key = jax.random.key(seed)
        rate = optax.cosine_decay_schedule(fitting.learning_rate, fitting.steps, alpha=0.05)
        self._per_value = lag * train.shape[1]
        # SVI's loss is a sum; what is clipped is the gradient per value, so that only outliers are.
        per_value = optax.scale(1 / (fitting.batch * self._per_value))
        optimizer = optax.chain(per_value, optax.clip_by_global_norm(fitting.clip), optax.adam(rate))
        self._svi = SVI(model.model, model.guide, optimizer, Trace_ELBO())
        last = validation.shape[0] - lag
        starts = jnp.asarray(np.unique(np.linspace(0, last, min(last + 1, _MOST_WINDOWS)).astype(int)))
        self._validation = windows_of(validation, starts, lag)

    def begin(self) -> dict[str, Any]:
        state = self._svi.init(self._key, self._validation)
        looks = -(-self._fitting.steps // self._fitting.every)
        return {
            "step": np.asarray(0),
            "optimizer": state.optim_state,
            "best": self._svi.get_params(state)["parameters"],
            "looks": np.full((looks, len(_LOOK)), np.nan),
        }

    def advance(self, progress: dict[str, Any]) -> dict[str, Any]:
        """So many steps as there are from one look to the next, and the look."""
        state, elbo, validation_elbo = self._advance(progress["optimizer"], progress["step"])
        step = np.asarray(progress["step"] + self._fitting.every)
        looks = np.array(progress["looks"])
        at = int(step) // self._fitting.every - 1
        looks[at] = step, elbo, validation_elbo
        # While the states' weight still rises, the training is not what it will be.
        better = step <= self._fitting.annealing or at == np.nanargmax(
            np.where(self._settled(looks), looks[:, 2], np.nan)
        )
        best = self._svi.get_params(state)["parameters"] if better else progress["best"]
        return {"step": step, "optimizer": state.optim_state, "best": best, "looks": looks}

    def is_done(self, progress: dict[str, Any]) -> bool:
        at = int(progress["step"]) // self._fitting.every
        if progress["step"] >= self._fitting.steps:
            return True
        settled = self._settled(progress["looks"])
        if not settled[:at].any():
            return False
        return at - 1 - int(np.nanargmax(np.where(settled, progress["looks"][:, 2], np.nan))) >= self._fitting.patience

    def history(self, progress: dict[str, Any]) -> tuple[dict[str, float], ...]:
        done = progress["looks"][: int(progress["step"]) // self._fitting.every]
        return tuple(dict(zip(_LOOK, map(float, look), strict=True)) for look in done)

    def _settled(self, looks: np.ndarray) -> np.ndarray:
        return looks[:, 0] > self._fitting.annealing

    @functools.partial(jax.jit, static_argnums=0)
    def _advance(self, optimizer: Any, step: jax.Array) -> tuple[Any, jax.Array, jax.Array]:
        fitting, last = self._fitting, self._train.shape[0] - self._lag
        key = jax.random.fold_in(self._key, step)

        def one(state: Any, index: jax.Array) -> tuple[Any, jax.Array]:
            starts = jax.random.randint(jax.random.fold_in(key, index), (fitting.batch,), 0, last + 1)
            windows = windows_of(self._train, starts, self._lag)
            weight = jnp.minimum(1.0, (step + index + 1) / max(fitting.annealing, 1))
            foresight = (jnp.arange(fitting.batch) >= fitting.blind_share * fitting.batch).astype(float)
            state, loss = self._svi.update(state, windows, weight, foresight)
            return state, -loss / (fitting.batch * self._per_value)

        state = self._svi.init(key, self._validation)._replace(optim_state=optimizer)
        state, elbos = jax.lax.scan(one, state, jnp.arange(fitting.every))
        loss = self._svi.evaluate(state._replace(rng_key=self._key), self._validation)
        return state, elbos.mean(), -loss / (self._validation.shape[0] * self._per_value)


_MOST_WINDOWS = 128
"""Of the validation part: as many, evenly spread, say enough."""


def _split(runtimes: np.ndarray, lag: int, validation_share: float) -> tuple[np.ndarray, np.ndarray, float]:
    """Training and validation part, normalised, and what they were divided by."""
    runtimes = checked(runtimes)
    steps = runtimes.shape[0]
    held_out = math.ceil(validation_share * steps)
    if steps - held_out < lag or 0 < held_out < lag:
        least = lag if validation_share == 0 else math.ceil(lag / min(validation_share, 1 - validation_share)) + 1
        raise ValueError(
            f"runtimes of {steps} steps must have at least {least}, for a window of {lag} to train on and one to "
            f"validate with (validation_share={validation_share})"
        )
    divisor = 2 * float(runtimes[:lag].mean())
    normalised = runtimes / divisor
    train = normalised[: steps - held_out]
    return train, normalised[steps - held_out :] if held_out else train, divisor
