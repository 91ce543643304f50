"""Learning rates in epochs of used gradients, turned into one rate per update: the one place that converts."""

import numpy as np
import optax
from ml_collections import ConfigDict

DECAYS = ("constant", "step", "linear", "cosine", "exponential")


def rates(config: ConfigDict, *, peak: float, num_workers: int, epochs: float, updates_per_epoch: float) -> np.ndarray:
    r"""The learning rate of every update of a run.

    .. math:: \eta(e) = \eta_{peak} \left( \frac{1}{N} + \left(1 - \frac{1}{N}\right) \min(1, e / e_{warm}) \right) d(e)

    with e the epoch, N the number of workers (Barkai et al., C.4, after Goyal et al. 2017), and d the decay, 1 at
    e = 0.

    Args:
      config: the `schedule` entry of a configuration:
        `warmup_epochs`: e_warm; 0 for none.
        `decay`: "constant"; "step": times `factor` from each of the epochs `steps` on; "linear" or "cosine": to 0 at
        the end of the run; "exponential": times `factor` every `period` epochs.
      peak: the rate after warm-up.
      num_workers: N.
      epochs: length of the run.
      updates_per_epoch: updates that use one epoch of gradients.

    Returns:
      float64[ceil(epochs updates_per_epoch)].

    Raises:
      ValueError: where the decay is not known.

    Example:
      >>> config = ConfigDict({"warmup_epochs": 1.0, "decay": "constant"})
      >>> rates(config, peak=0.4, num_workers=4, epochs=2, updates_per_epoch=2)
      array([0.1 , 0.25, 0.4 , 0.4 ])
    """
    epoch = np.arange(int(np.ceil(epochs * updates_per_epoch))) / updates_per_epoch
    ramp = np.minimum(1.0, epoch / config.warmup_epochs) if config.warmup_epochs else np.ones_like(epoch)
    return peak * (1 / num_workers + (1 - 1 / num_workers) * ramp) * _decay(config, epochs)(epoch)


def _decay(config: ConfigDict, epochs: float):
    """optax's schedules, with the epoch in the place of the step."""
    match config.decay:
        case "constant":
            return np.ones_like
        case "step":
            schedule = optax.piecewise_constant_schedule(1.0, dict.fromkeys(config.steps, config.factor))
        case "linear":
            schedule = optax.linear_schedule(1.0, 0.0, epochs)
        case "cosine":
            schedule = optax.cosine_decay_schedule(1.0, epochs)
        case "exponential":
            schedule = optax.exponential_decay(1.0, config.period, config.factor)
        case other:
            raise ValueError(f"decay={other!r} must be one of {', '.join(DECAYS)}")
    return lambda epoch: np.asarray(schedule(epoch), float)
