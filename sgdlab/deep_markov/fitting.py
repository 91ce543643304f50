"""Training of the deep Markov model: stochastic variational inference on windows of a recorded or simulated run."""

import dataclasses
import functools
import hashlib
import itertools
import math
import os
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from numpyro.infer import SVI, Trace_ELBO

from sgdlab import arguments
from sgdlab.checkpoints import Checkpoints
from sgdlab.deep_markov.model import Architecture, WindowModel
from sgdlab.deep_markov.trained import TrainedModel
from sgdlab.runtimes import checked

Report = Callable[[dict[str, float]], None]


@dataclasses.dataclass(frozen=True)
class Fitting:
    """How the model is trained.

    Attributes:
      steps: of the optimiser, at most; rounded up to a multiple of `every`.
      batch: windows in a step.
      learning_rate: Adam's, falling to a twentieth by a cosine.
      clip: the largest norm of a gradient (of the negative ELBO per value).
      blind_share: share of a batch's windows in which the guide's backward network gets no later steps, as at the last
        step of every window, from which everything is predicted. Either way the objective is an evidence lower bound;
        with a share of 0 the guide is good inside a window and poor at its end.
      annealing: steps over which the weight of the states' terms rises from 0 to 1.
      validation_share: of the run, its end, that is not trained on.
      every: steps from one evaluation of the validation windows to the next.
      patience: evaluations without a better validation ELBO, after which training stops.

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
        checked_values: dict[str, float] = {
            name: arguments.whole(name, getattr(self, name)) for name in ("steps", "batch", "every", "patience")
        }
        checked_values["annealing"] = arguments.whole("annealing", self.annealing, least=0)
        for name in ("learning_rate", "clip"):
            checked_values[name] = arguments.real(name, getattr(self, name), above=0)
        for name, most in (("validation_share", 0.9), ("blind_share", 1)):
            checked_values[name] = arguments.real(name, getattr(self, name), least=0, most=most)
        for name, value in checked_values.items():  # plain numbers, whatever kind was given: JSON knows no others
            object.__setattr__(self, name, value)


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
      report: called at every evaluation, with `step`, `elbo` and `validation_elbo`, both in nats per value.
      checkpoints: a directory for Orbax checkpoints, one at each evaluation; training that was killed continues there.

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
    training = _Training(widths, fitting, train, validation, seed)
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


class _Data(NamedTuple):
    """The data of a training: the normalised run, the validation windows, and what its draws begin with."""

    train: jax.Array  # float[T, N]
    validation: jax.Array  # float[B, lag, N]
    key: jax.Array


class _Training:
    """One training. What changes in it is its progress, a pytree that Orbax can keep."""

    def __init__(self, widths: Architecture, fitting: Fitting, train: np.ndarray, validation: np.ndarray, seed: int):
        self._settings = (train.shape[1], widths, fitting)
        self._fitting, self._seed = fitting, seed
        last = validation.shape[0] - widths.lag
        starts = np.unique(np.linspace(0, last, min(last + 1, _MOST_WINDOWS)).astype(int))
        windows = windows_of(jnp.asarray(validation, float), jnp.asarray(starts), widths.lag)
        self._data = _Data(jnp.asarray(train, float), windows, jax.random.key(seed))

    def begin(self) -> dict[str, Any]:
        """The progress of a training that has not begun."""
        inference = _inference(*self._settings, seed=self._seed)
        state = inference.init(self._data.key, self._data.validation)
        looks = -(-self._fitting.steps // self._fitting.every)
        return {
            "step": np.asarray(0),
            "optimizer": state.optim_state,
            "best": inference.get_params(state)["parameters"],
            "looks": np.full((looks, len(_LOOK)), np.nan),
        }

    def advance(self, progress: dict[str, Any]) -> dict[str, Any]:
        """The steps up to the next evaluation, and the evaluation."""
        optimizer, parameters, elbo, validation_elbo = _advance(
            *self._settings, self._data, progress["optimizer"], progress["step"]
        )
        step = np.asarray(progress["step"] + self._fitting.every)
        if not np.isfinite(validation_elbo):
            raise ValueError(
                f"learning_rate={self._fitting.learning_rate} must be lower: the training diverged before step {step}"
            )
        looks = np.array(progress["looks"])
        looks[self._made(progress)] = step, elbo, validation_elbo
        later = {"step": step, "optimizer": optimizer, "best": parameters, "looks": looks}
        if self._best_look(later) not in (None, self._made(later) - 1):
            later["best"] = progress["best"]
        return later

    def is_done(self, progress: dict[str, Any]) -> bool:
        """Whether all steps are made, or the last evaluations brought nothing better."""
        best = self._best_look(progress)
        patient = best is None or self._made(progress) - 1 - best < self._fitting.patience
        return progress["step"] >= self._fitting.steps or not patient

    def history(self, progress: dict[str, Any]) -> tuple[dict[str, float], ...]:
        """All evaluations so far."""
        return tuple(
            dict(zip(_LOOK, map(float, look), strict=True)) for look in progress["looks"][: self._made(progress)]
        )

    def _made(self, progress: dict[str, Any]) -> int:
        return int(progress["step"]) // self._fitting.every

    def _best_look(self, progress: dict[str, Any]) -> int | None:
        """None while the states' weight still rises: the training is then not what it will be."""
        looks = progress["looks"]
        settled = looks[:, 0] > self._fitting.annealing  # NaN, a look to come, is not
        return int(np.argmax(np.where(settled, looks[:, 2], -np.inf))) if settled.any() else None


def _inference(num_workers: int, widths: Architecture, fitting: Fitting, *, seed: int = 0) -> SVI:
    model = WindowModel(num_workers, widths, seed=seed)
    rate = optax.cosine_decay_schedule(fitting.learning_rate, fitting.steps, alpha=0.05)
    # SVI's loss is a sum; what is clipped is the gradient per value, so that only outliers are.
    per_value = optax.scale(1 / (fitting.batch * widths.lag * num_workers))
    optimizer = optax.chain(per_value, optax.clip_by_global_norm(fitting.clip), optax.adam(rate))
    return SVI(model.model, model.guide, optimizer, Trace_ELBO())


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _advance(
    num_workers: int, widths: Architecture, fitting: Fitting, data: _Data, optimizer: Any, step: jax.Array
) -> tuple[Any, Any, jax.Array, jax.Array]:
    """The steps up to the next evaluation. Run-times and seed are data: trainings of one shape share the program."""
    inference = _inference(num_workers, widths, fitting)
    per_value = widths.lag * num_workers
    last = data.train.shape[0] - widths.lag
    key = jax.random.fold_in(data.key, step)

    def one(state: Any, index: jax.Array) -> tuple[Any, jax.Array]:
        starts = jax.random.randint(jax.random.fold_in(key, index), (fitting.batch,), 0, last + 1)
        windows = windows_of(data.train, starts, widths.lag)
        weight = jnp.minimum(1.0, (step + index + 1) / max(fitting.annealing, 1))
        foresight = (jnp.arange(fitting.batch) >= fitting.blind_share * fitting.batch).astype(float)
        state, loss = inference.update(state, windows, weight, foresight)
        return state, -loss / (fitting.batch * per_value)

    # SVI knows its parameters only once it is initialised; the values are those that the training has reached.
    state = inference.init(key, data.validation)._replace(optim_state=optimizer)
    state, elbos = jax.lax.scan(one, state, jnp.arange(fitting.every))
    loss = inference.evaluate(state._replace(rng_key=data.key), data.validation)
    parameters = inference.get_params(state)["parameters"]
    return state.optim_state, parameters, elbos.mean(), -loss / (data.validation.shape[0] * per_value)


_MOST_WINDOWS = 128
"""Of the validation part: as many, evenly spread, say enough."""


def _split(runtimes: np.ndarray, lag: int, validation_share: float) -> tuple[np.ndarray, np.ndarray, float]:
    """Training and validation part, normalised, and what they were divided by."""
    runtimes = checked(runtimes)
    steps = runtimes.shape[0]
    held_out = math.ceil(validation_share * steps)
    if steps - held_out < lag or 0 < held_out < lag:
        shares = ((rows, math.ceil(validation_share * rows)) for rows in itertools.count(lag))
        least = next(rows for rows, held in shares if rows - held >= lag and (held >= lag or held == 0))
        raise ValueError(
            f"runtimes of {steps} steps must have at least {least}, for a window of {lag} to train on and one to "
            f"validate with (validation_share={validation_share})"
        )
    divisor = 2 * float(runtimes[:lag].mean())
    normalised = runtimes / divisor
    train = normalised[: steps - held_out]
    return train, normalised[steps - held_out :] if held_out else train, divisor
