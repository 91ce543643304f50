"""Learning rates in epochs of used gradients or in updates, turned into one rate per update."""

import itertools
import math
import numbers
from collections.abc import Callable
from typing import Any

import numpy as np
import optax
from ml_collections import ConfigDict

from sgdlab import arguments

DECAYS = ("constant", "step", "linear", "hold_linear", "cosine", "exponential")
OF = ("gradient", "update")
"""What a learning rate is given for: one gradient, so that an update that averages n takes n times the rate (Chen et
al. 2016; Goyal et al. 2017), or one update, however many gradients it averages."""
UNITS = ("epochs", "updates")
"""What the lengths of a decay are counted in: epochs of used gradients, or updates of the parameters."""

CONSTANT = ConfigDict({"warmup_epochs": 0.0, "decay": "constant"})
"""The entries of a rate that is the same for all updates."""


def rates(config: ConfigDict, *, peak: float, num_workers: int, epochs: float, updates_per_epoch: float) -> np.ndarray:
    r"""The learning rate of every update of a run.

    .. math:: \eta(e) = \eta_{peak} \left( \frac{1}{N} + \left(1 - \frac{1}{N}\right) \min(1, e / e_{warm}) \right) d(t)

    with e the epoch, N the number of workers (Barkai et al., C.4, after Goyal et al. 2017), and d the decay, 1 at
    t = 0. By `unit`, t is the epoch or the number of updates made before; without a server, each step of a node is an
    update. With f = `final` and L = `length`, d(t) is

    * "constant": 1;
    * "step": `factor` to the power of the number of `steps` that t has reached;
    * "linear": 1 - (1 - f) min(1, t / L);
    * "hold_linear": 1 up to t = L - `last`, then linear down to f at t = L (Chen et al. 2016, A.1);
    * "cosine": f + (1 - f) (1 + cos(pi min(1, t / L))) / 2;
    * "exponential": `factor` to the power of t / `period`;

    and f where that is less than f.

    Args:
      config: the `rate` entry of a configuration:
        `warmup_epochs`: e_warm; 0 for none, None for a quarter of the run. In epochs, whatever the unit.
        `decay`: one of the above.
        `unit`: of `steps`, `period`, `last` and `length`: "epochs" (the default) or "updates".
        `length`: L; None (the default) for the length of the run. Afterwards the rate stays at `final`.
        `final`: f, the share of the peak that the decay ends at; 0 by default.
        `steps`, `factor`, `period`, `last`: as above; only those of the decay are needed.
      peak: the rate after warm-up.
      num_workers: N.
      epochs: length of the run.
      updates_per_epoch: updates that use one epoch of gradients.

    Returns:
      float64[ceil(epochs updates_per_epoch)].

    Raises:
      ValueError: where the decay is not known, or an entry is out of its range.

    Example:
      A warm-up with 4 workers; then a rate that falls from 1e-4 to 3e-6 in 200,000 updates and stays there, as for
      PixelCNN (Chen et al. 2016, A.4).

      >>> config = ConfigDict({"warmup_epochs": 1.0, "decay": "constant"})
      >>> rates(config, peak=0.4, num_workers=4, epochs=2, updates_per_epoch=2)
      array([0.1 , 0.25, 0.4 , 0.4 ])
      >>> config = ConfigDict({"warmup_epochs": 0.0, "decay": "exponential", "unit": "updates"})
      >>> config.update(period=200_000.0, factor=0.03, final=0.03)
      >>> found = rates(config, peak=1e-4, num_workers=1, epochs=24, updates_per_epoch=12_500)
      >>> [f"{found[update]:.2e}" for update in (0, 100_000, 200_000, 299_999)]
      ['1.00e-04', '1.73e-05', '3.00e-06', '3.00e-06']
    """
    check(config)
    updates = np.arange(int(np.ceil(epochs * updates_per_epoch)))
    epoch = updates / updates_per_epoch
    warmup = warmup_epochs(config, epochs)
    ramp = np.minimum(1.0, epoch / warmup) if warmup else np.ones_like(epoch)
    in_updates = config.get("unit", UNITS[0]) == "updates"
    position, run = (updates.astype(float), epochs * updates_per_epoch) if in_updates else (epoch, epochs)
    return peak * (1 / num_workers + (1 - 1 / num_workers) * ramp) * _decay(config, run)(position)


def warmup_epochs(config: ConfigDict, epochs: float) -> float:
    """The epochs over which the rate rises: those that are set, else a quarter of the run.

    Example:
      >>> warmup_epochs(ConfigDict({"warmup_epochs": None}), epochs=20.0)
      5.0
    """
    return epochs / 4 if config.warmup_epochs is None else config.warmup_epochs


def check(config: ConfigDict) -> None:
    """Raises a `ValueError` where an entry of a configuration's `rate` is out of its range; it names the entry."""
    arguments.one_of("of", config.get("of", OF[0]), OF)
    arguments.one_of("decay", config.decay, DECAYS)
    arguments.one_of("unit", config.get("unit", UNITS[0]), UNITS)
    if config.warmup_epochs is not None:
        arguments.real("warmup_epochs", config.warmup_epochs, least=0)
    for name in ("factor", "period", "last", "length"):
        if config.get(name) is not None:
            arguments.real(name, config[name], above=0)
    arguments.real("final", config.get("final", 0.0), least=0, most=1)
    steps: tuple[Any, ...] = tuple(config.get("steps", ()))
    # pyrefly: ignore[unsupported-operation]  # `numbers.Real` has no order to the checker
    numeric = all(isinstance(step, numbers.Real) and math.isfinite(step) and step >= 0 for step in steps)
    if not numeric or any(later <= earlier for earlier, later in itertools.pairwise(steps)):
        raise ValueError(f"steps={steps} must be rising numbers of epochs or updates, finite and at least 0")


def _decay(config: ConfigDict, run: float) -> Callable[[np.ndarray], np.ndarray]:
    """optax's schedules, with the epoch or the number of updates in the place of the step.

    Args:
      config: the `rate` entry of a configuration.
      run: length of the run, in its unit.
    """
    final, length = config.get("final", 0.0), config.get("length")
    length = run if length is None else length
    match config.decay:
        case "constant":
            return np.ones_like
        case "step":
            schedule = optax.piecewise_constant_schedule(1.0, dict.fromkeys(config.steps, config.factor))
        case "linear":
            schedule = optax.linear_schedule(1.0, final, length)
        case "hold_linear":
            schedule = optax.linear_schedule(1.0, final, config.last, max(length - config.last, 0))
        case "cosine":
            schedule = optax.cosine_decay_schedule(1.0, length, final)
        case "exponential":
            schedule = optax.exponential_decay(1.0, config.period, config.factor)
    return lambda position: np.maximum(np.asarray(schedule(position), float), final)
