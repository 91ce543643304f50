"""Learning rates in epochs of used gradients, turned into one rate per update: the one place that converts."""

import itertools
import math
import numbers

import numpy as np
import optax
from ml_collections import ConfigDict

from sgdlab import arguments

DECAYS = ("constant", "step", "linear", "hold_linear", "cosine", "exponential")
OF = ("gradient", "update")
"""What a learning rate is given for: one gradient, so that an update that averages n takes n times the rate (Chen et
al. 2016; Goyal et al. 2017), or one update, however many gradients it averages."""


def rates(config: ConfigDict, *, peak: float, num_workers: int, epochs: float, updates_per_epoch: float) -> np.ndarray:
    r"""The learning rate of every update of a run.

    .. math:: \eta(e) = \eta_{peak} \left( \frac{1}{N} + \left(1 - \frac{1}{N}\right) \min(1, e / e_{warm}) \right) d(e)

    with e the epoch, N the number of workers (Barkai et al., C.4, after Goyal et al. 2017), and d the decay, 1 at
    e = 0.

    Args:
      config: the `rate` entry of a configuration:
        `warmup_epochs`: e_warm; 0 for none, None for a quarter of the run.
        `decay`: "constant"; "step": times `factor` from each of the epochs `steps` on; "linear" or "cosine": to 0 at
        the end of the run; "hold_linear": constant, then linearly to 0 over the `last_epochs` (Chen et al. 2016, A.1);
        "exponential": times `factor` every `period` epochs.
      peak: the rate after warm-up.
      num_workers: N.
      epochs: length of the run.
      updates_per_epoch: updates that use one epoch of gradients.

    Returns:
      float64[ceil(epochs updates_per_epoch)].

    Raises:
      ValueError: where the decay is not known, or an entry is out of its range.

    Example:
      >>> config = ConfigDict({"warmup_epochs": 1.0, "decay": "constant"})
      >>> rates(config, peak=0.4, num_workers=4, epochs=2, updates_per_epoch=2)
      array([0.1 , 0.25, 0.4 , 0.4 ])
    """
    check(config)
    epoch = np.arange(int(np.ceil(epochs * updates_per_epoch))) / updates_per_epoch
    warmup = warmup_epochs(config, epochs)
    ramp = np.minimum(1.0, epoch / warmup) if warmup else np.ones_like(epoch)
    return peak * (1 / num_workers + (1 - 1 / num_workers) * ramp) * _decay(config, epochs)(epoch)


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
    if config.warmup_epochs is not None:
        arguments.real("warmup_epochs", config.warmup_epochs, least=0)
    for name in ("factor", "period", "last_epochs"):
        if name in config:
            arguments.real(name, config[name], above=0)
    steps = tuple(config.get("steps", ()))
    numeric = all(isinstance(step, numbers.Real) and math.isfinite(step) and step >= 0 for step in steps)
    if not numeric or any(later <= earlier for earlier, later in itertools.pairwise(steps)):
        raise ValueError(f"steps={steps} must be rising epochs, finite and at least 0")


def _decay(config: ConfigDict, epochs: float):
    """optax's schedules, with the epoch in the place of the step."""
    match config.decay:
        case "constant":
            return np.ones_like
        case "step":
            schedule = optax.piecewise_constant_schedule(1.0, dict.fromkeys(config.steps, config.factor))
        case "linear":
            schedule = optax.linear_schedule(1.0, 0.0, epochs)
        case "hold_linear":
            schedule = optax.linear_schedule(1.0, 0.0, config.last_epochs, max(epochs - config.last_epochs, 0))
        case "cosine":
            schedule = optax.cosine_decay_schedule(1.0, epochs)
        case "exponential":
            schedule = optax.exponential_decay(1.0, config.period, config.factor)
    return lambda epoch: np.asarray(schedule(epoch), float)
