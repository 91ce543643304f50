"""Measures predictors, and what else is simulated step by step with NumPy; imports no JAX."""

from collections.abc import Mapping

from sgdlab import predictors
from sgdlab.predictors import OBJECTIVES, CutoffRecord, Guarded
from sgdlab.stragglers.comparison import measured, sweeps, tuning
from sgdlab.stragglers.comparison.protocol import DEPLOYABLE, Protocol
from sgdlab.stragglers.comparison.sweeps import BackupSweep
from sgdlab.stragglers.comparison.tuning import Tuned
from sgdlab.stragglers.recording import SplitTimes

BY_RATE = "objective: rate of the run"


def finishing_and_tuned(steps: SplitTimes, *, seed: int, rejoin_seconds: float) -> tuple[BackupSweep, list[Protocol]]:
    """Return the sweep of finishing backup workers, and the rows of all predictors but the deep Markov model.

    Args:
      steps: of the recording.
      seed: of the predictors' random draws.
      rejoin_seconds: that a worker which is dropped takes until it takes part again.
    """
    tune, (first, _) = tuning.TUNED, OBJECTIVES
    choices: dict[str, dict[str, Tuned]] = {
        "median + k MAD": {first: tune["median + k MAD"](steps.train, first)},  # it has no objective
        **{title: {o: tune[title](steps.train, o) for o in OBJECTIVES} for title in ("running mean", "Elfving")},
        "Kalman filter": dict.fromkeys(OBJECTIVES, tuning.kalman(steps.train)),
    }
    numbers = {"seed": seed, "rejoin_seconds": rejoin_seconds}
    rows = [cut(steps, title, tuned, **numbers)[0] for title, tuned in choices.items()]
    return sweeps.finishing(steps, rejoin_seconds), rows


def run(steps: SplitTimes, tuned: Tuned, objective: str, *, seed: int) -> CutoffRecord:
    """Runs a guarded predictor on the evaluation steps, after the last tuning steps."""
    history = tuned.history(steps.train)
    guarded = Guarded(tuned.predictor)
    return predictors.run_online(steps.test, guarded, objective=objective, history=history, seed=seed)


def cut(
    steps: SplitTimes, title: str, tuned: Mapping[str, Tuned], *, seed: int, rejoin_seconds: float
) -> tuple[Protocol, CutoffRecord]:
    """Return the row of a predictor on the evaluation steps, and its record with the paper's objective.

    Args:
      steps: of the recording.
      title: of the row.
      tuned: objective -> the predictor, tuned for it.
      seed: of its random draws.
      rejoin_seconds: that a worker which is dropped takes until it takes part again.
    """
    records = {o: run(steps, one, o, seed=seed) for o, one in tuned.items()}
    first, rows = records["throughput"], {}
    for objective, one in reversed(tuned.items()):
        cutoff, by_rate = records[objective].cutoff, objective == "rate"
        if by_rate and (cutoff == first.cutoff).all():
            continue
        rows[objective] = Protocol(
            title,
            f"{one.setting}, {BY_RATE}" if by_rate else one.setting,
            DEPLOYABLE,
            measured.interrupted(steps.test, cutoff, rejoin_seconds),
            flags=(*one.flags, *["--config.protocol.cutoff.objective=rate"] * (by_rate and bool(one.flags))),
            by_rate=rows.get("rate"),
            warm_up=one.warm_up,
            predictor=Guarded(one.predictor),
            history=one.history(steps.train),
            parameters=one.parameters,
            objective=objective,
        )
    return rows["throughput"], first
