"""Trains the deep Markov model on the tuning steps, with settings that depend on how many there are."""

import dataclasses
import math
import pathlib
import shlex
from collections.abc import Sequence

import numpy as np
from tqdm import tqdm

from sgdlab import deep_markov
from sgdlab.deep_markov import Architecture, Fitting
from sgdlab.predictors import OBJECTIVES
from sgdlab.stragglers.comparison.tuning import FEW_DRAWS, MANY_DRAWS, WIDE, Tuned, cutoff_flags

LAG = 20
"""Iterations in a window, as in the paper."""

ENOUGH = 500
"""Number of tuning steps from which the model is trained as in the paper. A model of fewer steps overfits to the
regimes that they happen to show: it is trained on request alone, evaluated more often and stopped earlier."""

SOME = 12
"""Number of tuning steps from which some of them are held out for validation."""

_HELD_OUT = 0.25
"""Share of the tuning steps that is held out, if there are fewer than `ENOUGH`."""

_SHORT = 250
"""Upper bound on the optimiser's steps, if no steps are held out."""

MODELS = ("auto", "yes", "no")
"""Choices of training the model: as far as the size of the recording allows, in any case, or not at all."""

_STEPS_OF_WIDE = 500
"""Most steps of a training on wide clusters: after twice as many the cutoffs of held-out steps are no better (0 to 0.6
points of the oracle worse, with 512 and 1,000 workers), and each step takes long."""

NOT_BY_RATE = "With so many workers it was measured with the paper's objective alone; --model=yes measures both."
"""Why the model is not used with the rate of the run as its objective."""

_MOST_PREDICTED = 20_000_000
"""Most compute times of the evaluation steps that the model is used on: some minutes."""


@dataclasses.dataclass(frozen=True)
class TrainingPlan:
    """The settings of a training.

    Attributes:
      widths: widths of the networks, and the lag.
      fitting: settings of the optimiser and of validation.
      note: a sentence on the differences from the paper; empty if there are none.
      samples: number of draws for a prediction.
      objectives: with which the model is used, the paper's first.
    """

    widths: Architecture
    fitting: Fitting
    note: str
    samples: int = MANY_DRAWS
    objectives: Sequence[str] = OBJECTIVES


def why_not(train_steps: int, test_steps: int, workers: int, model: str) -> str:
    """Say why the model is left out; empty if it is not.

    Args:
      train_steps: number of tuning steps.
      test_steps: number of evaluation steps.
      workers: number of workers.
      model: one of `MODELS`.

    Example:
      >>> why_not(600, 600, 4, "auto"), why_not(600, 600, 4, "no")
      ('', 'It was switched off (--model=no).')
    """
    if model == "no":
        return "It was switched off (--model=no)."
    if model == "auto" and train_steps < ENOUGH:
        return f"It needs {ENOUGH} tuning steps, and there are {train_steps}; --model=yes trains it all the same."
    if model == "auto" and test_steps * workers > _MOST_PREDICTED:
        return (
            f"With {workers} workers and {test_steps} evaluation steps it would take most of the time; "
            "--model=yes trains it."
        )
    return ""


def plan(train_steps: int, most_steps: int, *, workers: int = 1, model: str = "auto") -> TrainingPlan:
    """Chooses the settings of a training by the size of the recording.

    Args:
      train_steps: number of tuning steps.
      most_steps: upper bound on the optimiser's steps.
      workers: number of workers.
      model: "auto", or "yes" for a full training of any number of workers.

    Example:
      >>> plan(30, most_steps=100).note
      'The deep Markov model was trained on 30 steps only: with windows of 7 steps instead of 20, and validation on the
      last 8 steps decided when to stop.'
    """
    if model == "auto" and workers >= WIDE:
        fewer = min(most_steps, _STEPS_OF_WIDE)
        chosen = plan(train_steps, fewer)
        draws = f"predicts from {FEW_DRAWS} draws instead of {MANY_DRAWS}"
        trained = f"was trained for at most {fewer} steps of the optimiser instead of {most_steps}, and "
        wide = f"With {workers} workers, the deep Markov model {trained if fewer < most_steps else ''}{draws}."
        note = f"{chosen.note} {wide}".strip()
        return dataclasses.replace(chosen, note=note, samples=FEW_DRAWS, objectives=OBJECTIVES[:1])
    if train_steps >= ENOUGH:
        fitting = Fitting(steps=most_steps, every=min(250, most_steps), annealing=min(500, most_steps // 2))
        return TrainingPlan(Architecture(lag=LAG), fitting, "")
    evaluations = {"every": min(50, most_steps), "annealing": min(100, most_steps // 2)}
    if train_steps >= SOME:
        held_out = math.ceil(_HELD_OUT * train_steps)
        lag = min(LAG, held_out - 1)
        fitting = Fitting(steps=most_steps, validation_share=_HELD_OUT, **evaluations)
        stop = f"validation on the last {held_out} steps decided when to stop"
    else:
        lag = max(1, train_steps // 2)
        fitting = Fitting(steps=min(_SHORT, most_steps), validation_share=0.0, **evaluations)
        stop = f"without validation, for {fitting.steps} steps of the optimiser"
    windows = f"with windows of {lag} steps instead of {LAG}, and " if lag < LAG else ""
    note = f"The deep Markov model was trained on {train_steps} steps only: {windows}{stop}."
    return TrainingPlan(Architecture(lag=lag), fitting, note)


def trained(train: np.ndarray, plan: TrainingPlan, *, seed: int, directory: pathlib.Path) -> Tuned:
    """Trains the model with a progress bar, and saves it.

    Args:
      train: float64[T1, N], seconds, the tuning steps.
      plan: the settings.
      seed: of the initial parameters, of batches and of draws.
      directory: where the model is saved.
    """
    with tqdm(total=plan.fitting.steps, desc="deep Markov model", dynamic_ncols=True, disable=None) as bar:

        def show(evaluation: dict[str, float]) -> None:
            bar.update(int(evaluation["step"]) - bar.n)
            bar.set_postfix_str(f"validation ELBO {evaluation['validation_elbo']:.3f} nats per value")

        model = deep_markov.fit(train, plan.widths, plan.fitting, seed=seed, report=show)
    model.save(directory)
    lag = plan.widths.lag
    draws = [f"samples={plan.samples}"] if plan.samples != MANY_DRAWS else []
    tuned = Tuned(deep_markov.DeepMarkov(model, samples=plan.samples), f"lag {lag}", lag)
    flags = cutoff_flags("deep_markov", tuned.warm_up, f"model={shlex.quote(str(directory))}", *draws)
    return dataclasses.replace(tuned, flags=flags)
