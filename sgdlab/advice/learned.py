"""The deep Markov model, trained on the first part of the run, however few steps that has."""

import dataclasses
import math
import pathlib
import shlex

import numpy as np
from tqdm import tqdm

from sgdlab import deep_markov
from sgdlab.advice.tuning import Tuned, cutoff_flags
from sgdlab.deep_markov import Architecture, Fitting

LAG = 20
"""The paper's, and its predictors', iterations in a window."""

ENOUGH = 500
"""Steps from which the model is trained as in the paper. A shorter run has not shown all that its cluster does, and
what was learned too well misleads in a new regime: there, training is looked at more often and stops earlier."""

SOME = 12
"""Steps from which there is a validation part at all."""

_HELD_OUT = 0.25
"""Share of a short run that says when to stop."""

_SHORT = 250
"""Steps of the optimiser, where nothing says when to stop."""


@dataclasses.dataclass(frozen=True)
class Plan:
    """How the model is trained on so many steps.

    Attributes:
      widths: of the networks, and the lag.
      fitting: how to train.
      note: a sentence on what is not as in the paper; empty where nothing is.
    """

    widths: Architecture
    fitting: Fitting
    note: str


def plan(train_steps: int, most_steps: int) -> Plan:
    """The lag and the training that so short a run allows.

    Args:
      train_steps: iterations to train on.
      most_steps: of the optimiser.
    """
    if train_steps >= ENOUGH:
        fitting = Fitting(steps=most_steps, every=min(250, most_steps), annealing=min(500, most_steps // 2))
        return Plan(Architecture(lag=LAG), fitting, "")
    looks = {"every": min(50, most_steps), "annealing": min(100, most_steps // 2)}
    if train_steps >= SOME:
        held_out = math.ceil(_HELD_OUT * train_steps)
        lag = min(LAG, held_out - 1)
        fitting = Fitting(steps=most_steps, validation_share=_HELD_OUT, **looks)
        how = f"stopped by the last {held_out} of them"
    else:
        lag = max(1, train_steps // 2)
        fitting = Fitting(steps=min(_SHORT, most_steps), validation_share=0.0, **looks)
        how = f"stopped after {fitting.steps} steps of the optimiser, as none are left to stop it by"
    windows = f"windows of {lag} steps instead of {LAG}, and " if lag < LAG else ""
    note = f"The deep Markov model had {train_steps} steps to learn from, which is few: {windows}training was {how}."
    return Plan(Architecture(lag=lag), fitting, note)


def trained(train: np.ndarray, plan: Plan, *, seed: int, directory: pathlib.Path) -> Tuned:
    """Trains, with a bar; the model is saved in `directory` for use."""
    with tqdm(total=plan.fitting.steps, desc="deep Markov model", dynamic_ncols=True, disable=None) as bar:

        def report(look: dict[str, float]) -> None:
            bar.update(min(int(look["step"]), plan.fitting.steps) - bar.n)
            bar.set_postfix_str(f"validation ELBO {look['validation_elbo']:.3f} nats per value")

        model = deep_markov.fit(train, plan.widths, plan.fitting, seed=seed, report=report)
    model.save(directory)
    lag = plan.widths.lag
    flags = cutoff_flags("deep_markov", lag, f"model={shlex.quote(str(directory))}")
    return Tuned(deep_markov.DeepMarkov(model), f"lag {lag}", lag, flags)
