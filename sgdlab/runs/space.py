"""The space that tuning searches: the same points of a unit cube for every method, each in units of its own."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy  # its modules are imported at their first use

from sgdlab.knobs import Knob
from sgdlab.replay.program import power_of_two
from sgdlab.runs.effective_rate import default_momentum, momentum
from sgdlab.runs.experiment import Experiment

COORDINATES = ("rate", "momentum", "own", "warmup", "decay")
"""Of the unit cube. A method that lacks one of them takes no notice of it."""

DECADES = 3.0
"""Of the learning rate, around the one that the configuration has."""

OF_THE_RATE = 0.9
"""The momentum for which the configuration's learning rate is meant; that of another is as long a step."""

MOMENTUM = Knob("optimizer.momentum", 0.02, 1.0)
"""1 less the momentum."""


def points(number: int) -> np.ndarray:
    """Return the first points of a scrambled Sobol sequence, float64[number, 5]; the same for every method.

    They are the first of 32, or of the next power of two where more are asked for.

    Source: Sobol 1967; Owen 1998.

    Example:
      >>> bool((points(24) == points(32)[:24]).all())
      True
    """
    sequence = scipy.stats.qmc.Sobol(len(COORDINATES), scramble=True, seed=0)
    return sequence.random(max(32, power_of_two(number)))[:number]


def rates(centre: float, number: int) -> list[float]:
    """Return the learning rates of the first points, where nothing but the rate is searched.

    Example:
      >>> found = rates(0.1, 24)
      >>> len(found), bool(0.1 / 10**1.5 < min(found) < max(found) < 0.1 * 10**1.5)
      (24, True)
    """
    return _rate_at(centre, points(number)[:, 0]).tolist()


def _rate_at(centre: float, share: Any) -> Any:
    """Return the rate at shares of `DECADES`, of which the centre is one half."""
    return centre * 10 ** (DECADES * (share - 0.5))


def settings(experiment: Experiment, point: Sequence[float]) -> dict[str, Any]:
    r"""Return the entries of an experiment that a point of the unit cube (`COORDINATES`) stands for.

    The learning rate of a method with momentum SGD is :math:`\eta = (1 - \gamma) c \cdot 10^{3 (u - 1/2)}`, with c the
    configuration's over 1 - 0.9: at one u, all methods take equally long steps. The rate of another rule, and that of
    workers with local steps, is over three decades around its own default. 1 - gamma is from 0.02 to 1, for rules that
    have a momentum by default. Then comes the method's own knob (`tunes=`), a warm-up of nothing or of a quarter of the
    run, and a rate that is constant or falls by a cosine; methods whose rate has a schedule of its own keep that.

    Example:
      >>> from configs import digits
      >>> from sgdlab.runs.experiment import resolve
      >>> config = digits.get_config()
      >>> config.method = "nag_asgd"
      >>> found = settings(resolve(config), [0.5, 1.0, 0.5, 0.2, 0.7])
      >>> round(found.pop("optimizer.learning_rate"), 6), found
      (0.125, {'optimizer.momentum': 0.0, 'rate.warmup_epochs': 0.0, 'rate.decay': 'cosine'})
    """
    at = dict(zip(COORDINATES, map(float, point), strict=True))
    found: dict[str, Any] = {}
    if default_momentum(experiment):
        found["optimizer.momentum"] = 1.0 - MOMENTUM.value(at["momentum"], num_workers=experiment.num_workers)
    name, centre = f"optimizer.{experiment.rule.facts.rate or 'learning_rate'}", experiment.optimizer.learning_rate
    if experiment.local.active:
        name, centre = "local.learning_rate", experiment.local.learning_rate
    if name == "optimizer.learning_rate" and (of_sgd := momentum(experiment)) is not None:
        centre *= (1 - found.get("optimizer.momentum", of_sgd)) / (1 - OF_THE_RATE)
    found = {name: _rate_at(centre, at["rate"]), **found}
    if (knob := own(experiment)) is not None:
        found[knob.entry] = knob.value(at["own"], num_workers=experiment.num_workers)
    if not experiment.rule.facts.own_schedule:
        found["rate.warmup_epochs"] = 0.0 if at["warmup"] < 0.5 else None
        found["rate.decay"] = "constant" if at["decay"] < 0.5 else "cosine"
    return found


def own(experiment: Experiment) -> Knob | None:
    """Return the own knob of a method, its protocol or its rule, by its whole name; None where none has one.

    An entry that the method's name means is none.
    """
    if experiment.method.tunes is not None:
        return experiment.method.tunes
    method = experiment.method
    for used, meant in ((experiment.protocol, method.entries), (experiment.rule, method.rule_entries)):
        knob = used.facts.tunes
        if knob is not None and (knob.entry not in meant or used.part.defaults[knob.entry] is None):
            own_entry = "." not in knob.entry
            return dataclasses.replace(knob, entry=f"{used.registry.family}.{used.name}." * own_entry + knob.entry)
    return None
