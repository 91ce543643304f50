"""`fit`: training of the deep Markov model by stochastic variational inference on windows of times; `Fitting`."""

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
    """Settings of the training.

    Attributes:
      steps: most steps of the optimiser, rounded up to a multiple of `every`.
      batch: number of windows per step.
      learning_rate: of Adam; it decays to a twentieth by a cosine.
      clip: the largest norm of a gradient (of the negative ELBO per value).
      blind_share: share of training windows in which the guide's backward network gets no future input, as at the last
        step of every window, from which everything is predicted. The objective is an evidence lower bound for every
        share; with a share of 0 the guide is good inside a window and poor at its end.
      annealing: number of steps over which the weight of the states' terms rises from 0 to 1.
      validation_share: share of the run, at its end, that is used for validation and not for training.
      every: number of steps between two evaluations of the validation windows.
      patience: number of evaluations without a better validation ELBO after which training stops.

    Raises:
      ValueError: if a number is out of its range.
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
        for name, value in checked_values.items():  # plain numbers, which JSON can hold
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
    """Train a deep Markov model of a cluster.

    Compute times are divided by twice the mean of the first window. The result has the parameters of the evaluation
    with the best ELBO on the validation windows.

    Args:
      runtimes: float64[T, N], seconds, complete; at least one window for training and one for validation.
      widths: widths of the networks, and the lag.
      fitting: settings of the training.
      seed: seed of the initial parameters, the batches and the draws.
      report: called at every evaluation, with `step`, `elbo` and `validation_elbo`, both in nats per value.
      checkpoints: a directory for Orbax checkpoints, one at each evaluation; an interrupted training continues from the
        last one. None: no checkpoints.

    Raises:
      ValueError: if there are too few steps, compute times are not positive and finite, checkpoints are of another
        training, or the training diverges.

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
        progress, _ = keeper.latest(training.begin())
        while not training.is_done(progress):
            progress = training.advance(progress)
            keeper.save(int(progress["step"]), progress)
            if report is not None:
                report(training.history(progress)[-1])
    parameters = jax.tree.map(np.asarray, progress["best"])
    return TrainedModel(widths, train.shape[1], divisor, parameters, training.history(progress))


def windows_of(runtimes: jax.Array, starts: jax.Array, lag: int) -> jax.Array:
    """Return the windows that begin at given steps: [T, N] and [B] -> [B, lag, N]."""
    return runtimes[starts[:, None] + jnp.arange(lag)]


_EVALUATION = ("step", "elbo", "validation_elbo")


class _Data(NamedTuple):
    """The data of a training: the normalised run, the validation windows, and the key of its random numbers."""

    train: jax.Array  # float[T, N]
    validation: jax.Array  # float[B, lag, N]
    key: jax.Array


class _Training:
    """One training. Its methods are functions of the progress, a pytree that Orbax can save."""

    def __init__(self, widths: Architecture, fitting: Fitting, train: np.ndarray, validation: np.ndarray, seed: int):
        self._settings = (train.shape[1], widths, fitting)
        self._fitting = fitting
        last = validation.shape[0] - widths.lag
        starts = np.unique(np.linspace(0, last, min(last + 1, _MOST_WINDOWS)).astype(int))
        windows = windows_of(jnp.asarray(validation, float), jnp.asarray(starts), widths.lag)
        self._data = _Data(jnp.asarray(train, float), windows, jax.random.key(seed))

    def begin(self) -> dict[str, Any]:
        """Return the progress before the first step."""
        optimizer, parameters = _begin(*self._settings, self._data)
        evaluations = -(-self._fitting.steps // self._fitting.every)
        return {
            "step": np.asarray(0),
            "optimizer": optimizer,
            "best": parameters,
            "evaluations": np.full((evaluations, len(_EVALUATION)), np.nan),
        }

    def advance(self, progress: dict[str, Any]) -> dict[str, Any]:
        """Make the steps up to the next evaluation, and the evaluation."""
        optimizer, parameters, elbo, validation_elbo = _advance(
            *self._settings, self._data, progress["optimizer"], progress["step"]
        )
        step = np.asarray(progress["step"] + self._fitting.every)
        if not np.isfinite(validation_elbo):
            raise ValueError(
                f"learning_rate={self._fitting.learning_rate} must be lower: the training diverged before step {step}"
            )
        evaluations = np.array(progress["evaluations"])
        evaluations[self._made(progress)] = step, elbo, validation_elbo
        later = {"step": step, "optimizer": optimizer, "best": parameters, "evaluations": evaluations}
        if self._best(later) not in (None, self._made(later) - 1):
            later["best"] = progress["best"]
        return later

    def is_done(self, progress: dict[str, Any]) -> bool:
        """Return if all steps are made, or the last evaluations were no better than one before."""
        best = self._best(progress)
        patient = best is None or self._made(progress) - 1 - best < self._fitting.patience
        return progress["step"] >= self._fitting.steps or not patient

    def history(self, progress: dict[str, Any]) -> tuple[dict[str, float], ...]:
        """Return all evaluations so far."""
        return tuple(
            dict(zip(_EVALUATION, map(float, values), strict=True))
            for values in progress["evaluations"][: self._made(progress)]
        )

    def _made(self, progress: dict[str, Any]) -> int:
        return int(progress["step"]) // self._fitting.every

    def _best(self, progress: dict[str, Any]) -> int | None:
        """Return the index of the best evaluation. None during annealing, when the objective still changes."""
        evaluations = progress["evaluations"]
        annealed = evaluations[:, 0] > self._fitting.annealing  # False for NaN, an evaluation not yet made
        return int(np.argmax(np.where(annealed, evaluations[:, 2], -np.inf))) if annealed.any() else None


def _inference(num_workers: int, widths: Architecture, fitting: Fitting, *, seed: int | jax.Array = 0) -> SVI:
    model = WindowModel(num_workers, widths, seed=seed)
    rate = optax.cosine_decay_schedule(fitting.learning_rate, fitting.steps, alpha=0.05)
    # The loss of SVI is a sum over values; the gradient per value is clipped, so that clipping affects outliers only.
    per_value = optax.scale(1 / (fitting.batch * widths.lag * num_workers))
    optimizer = optax.chain(per_value, optax.clip_by_global_norm(fitting.clip), optax.adam(rate))
    return SVI(model.model, model.guide, optimizer, Trace_ELBO())


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _begin(num_workers: int, widths: Architecture, fitting: Fitting, data: _Data) -> tuple[Any, Any]:
    """Return the optimiser's state and the parameters before the first step: one program, where eagerly it is 116."""
    inference = _inference(num_workers, widths, fitting, seed=data.key)
    state = inference.init(data.key, data.validation)
    return state.optim_state, inference.get_params(state)["parameters"]


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _advance(
    num_workers: int, widths: Architecture, fitting: Fitting, data: _Data, optimizer: Any, step: jax.Array
) -> tuple[Any, Any, jax.Array, jax.Array]:
    """Make the steps up to the next evaluation. Times and seed are data: trainings of a shape share the program."""
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

    # `init` makes the structure of the parameters; their values are replaced by those that the training has reached.
    state = inference.init(key, data.validation)._replace(optim_state=optimizer)
    state, elbos = jax.lax.scan(one, state, jnp.arange(fitting.every))
    loss = inference.evaluate(state._replace(rng_key=data.key), data.validation)
    parameters = inference.get_params(state)["parameters"]
    return state.optim_state, parameters, elbos.mean(), -loss / (data.validation.shape[0] * per_value)


_MOST_WINDOWS = 128
"""Most windows of the validation part, evenly spaced."""


def _split(runtimes: np.ndarray, lag: int, validation_share: float) -> tuple[np.ndarray, np.ndarray, float]:
    """Return the training and the validation part, normalised, and their divisor."""
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
