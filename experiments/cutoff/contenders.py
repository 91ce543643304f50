"""The predictors that are compared on a cluster, tuned on its training run, and their runs, which all figures share."""

import functools
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import pandas as pd
from ml_collections import ConfigDict

from experiments.cutoff import autoregressive
from experiments.cutoff.cases import test_run, training_run
from experiments.harness import Sweep, goes_by, interval
from sgdlab.deep_markov import DeepMarkov, TrainedModel
from sgdlab.predictors import (
    CutoffRecord,
    Deadline,
    Elfving,
    Informed,
    Kalman,
    Oracle,
    Predictor,
    RunningMean,
    Static,
    kalman,
    run_online,
)
from sgdlab.stragglers.comparison import tuning

WINDOWS = (1, 2, 3, 5, 8, 12, 20)
DEVIATIONS = (0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0)
TUNING_STEPS = 1000
"""Iterations at the end of the training run that are used for tuning; using more changes no choice."""

WIDTH = 2.0
"""Half-width in standard deviations of the band in which order statistics are counted, as in the paper's Figure 3."""

ORACLE, INFORMED, DEEP_MARKOV, STATIC, SYNCHRONOUS = (
    "oracle",
    "true law, regimes one late",
    "deep Markov",
    "best static cutoff",
    "full synchrony",
)
NOT_DEPLOYABLE = (ORACLE, INFORMED)
REGRESSORS = {"auto-regressor, perceptron": "perceptron", "auto-regressor, GRU": "gru"}
"""Title -> kind of `autoregressive.fit`."""

Setting = TypeVar("Setting")


def contenders(config: ConfigDict, model: str) -> dict[str, dict[str, Any]]:
    """Return the predictors, with parameters that are tuned on the training run.

    Returns:
      Title -> the settings of `online` that select the predictor.
    """
    (found,) = tuning_of(config).table().to_dict("records")
    selected = {
        ORACLE: {"kind": "oracle"},
        INFORMED: {"kind": "informed"},
        DEEP_MARKOV: {"kind": "deep_markov", "model": model},
        **{
            title: {"kind": "autoregressive", "options": {"kind": kind, "steps": config.fitting.steps}}
            for title, kind in REGRESSORS.items()
        },
        "Kalman": {"kind": "kalman"},
        "running mean": {"kind": "running_mean", "options": {"window": found["running"]}},
        "median + k MAD": {"kind": "deadline", "options": {k: found[k] for k in ("deviations", "window")}},
        "Elfving": {"kind": "elfving", "options": {"window": config.widths.lag}},
        STATIC: {"kind": "static", "options": {"cutoff": found["static"]}},
        SYNCHRONOUS: {"kind": "static"},
    }
    if config.cluster.kind == "recorded":
        del selected[INFORMED]
    return selected


def tuning_of(config: ConfigDict) -> Sweep:
    """Return the run in which the predictors of few parameters are tuned on a cluster's training run."""
    base = {"machines": config.cluster.to_dict(), "lag": config.widths.lag}
    return Sweep(base, work=tuned, files=("machines.recorded.trace",))


def sweep_of(config: ConfigDict, selected: Sequence[tuple[str, Mapping[str, Any]]], seeds: int) -> Sweep:
    """Return the runs of predictors on the same test runs, and of the oracle at the end; see `compared`."""
    base = {"machines": config.cluster.to_dict(), "lag": config.widths.lag, "samples": config.samples}
    over = [
        {**settings, "seed": seed} for _, settings in [*selected, ("", {"kind": "oracle"})] for seed in range(seeds)
    ]
    return Sweep(base, over, work=online, files=("model", "machines.recorded.trace"))


def compared(config: ConfigDict, selected: Sequence[tuple[str, Mapping[str, Any]]], seeds: int) -> pd.DataFrame:
    """Runs predictors on the same test runs.

    Returns:
      A row for each of them and each test run: its `title` and settings, what `online` returns, and `share`: its
      gradients per second in % of those of the oracle, with the paper's objective, on the same test run.
    """
    runs = sweep_of(config, selected, seeds).table()
    oracle, runs = runs.gradients_per_second.to_numpy()[-seeds:], runs[:-seeds]
    return runs.assign(
        title=[title for title, _ in selected for _ in range(seeds)],
        share=100 * (runs.gradients_per_second / np.tile(oracle, len(selected))),
    )


@goes_by(run_online, Deadline, RunningMean, tuning.static)
def tuned(*, machines: Mapping[str, Any], lag: int) -> dict[str, float]:
    """Tunes the predictors that have few parameters on a training run."""
    train = training_run(ConfigDict(machines), lag)
    running = best(lambda window: RunningMean(window, at_least=0.0), WINDOWS, train, lag)
    grid = [(deviations, window) for deviations in DEVIATIONS for window in WINDOWS[::2]]
    deviations, window = best(lambda s: Deadline(deviations=s[0], window=s[1]), grid, train, lag)
    return {"static": tuning.static(train), "running": running, "deviations": deviations, "window": window}


def best(make: Callable[[Setting], Predictor], settings: Iterable[Setting], train: np.ndarray, lag: int) -> Setting:
    """The setting with the most gradients per second on the end of the training run, censored as in production."""
    end = train[-TUNING_STEPS:]
    window = min(lag, len(end) // 2)
    return max(settings, key=lambda s: run_online(end, make(s), window=window).gradients_per_second())


def spread(values: Iterable[float]) -> tuple[float, float | None]:
    """The columns `ours` and `±` of values: their mean, and half of its 95 % confidence interval, None for one value.

    Example:
      >>> spread([2.0, 2.0]), spread([1.0])
      ((2.0, 0.0), (1.0, None))
    """
    found = interval(values)
    return found.mean, found.half if np.isfinite(found.half) else None


@goes_by(
    run_online, DeepMarkov, autoregressive.Autoregressive, autoregressive.fit, Deadline, Elfving, Informed, Kalman,
    Oracle, RunningMean, Static,
)  # fmt: skip
def online(
    *,
    machines: Mapping[str, Any],
    lag: int,
    samples: int,
    kind: str,
    options: Mapping[str, Any] | None = None,
    model: str = "",
    censored: bool = True,
    objective: str = "throughput",
    seed: int = 0,
    showing: Sequence[int] = (),
) -> dict[str, Any]:
    """Runs one predictor on one test run.

    Args:
      machines: a configuration's entry `cluster`.
      lag: number of iterations of the first window.
      samples: number of draws for one prediction, of the predictors that draw.
      kind: of the predictor.
      options: parameters of the predictor; None: its own defaults.
      model: directory of the trained model, of the deep Markov predictor.
      censored: whether compute times after the cutoff are hidden from the predictor.
      objective: "throughput" or "rate", as `sgdlab.predictors.run_online` takes it.
      seed: of the test run, and of the predictor's draws.
      showing: iterations, counted from 0, of which the order statistics are returned.

    Returns:
      Gradients per second and the mean cutoff after the first window, `cutoff` and `seconds` of all iterations, the
      errors of the predicted order statistics, and `shown`: predictions and observations of `showing`.
    """
    test, options = test_run(ConfigDict(machines), lag, seed), dict(options or {})
    law = json.dumps(machines, sort_keys=True), lag
    makers: dict[str, Callable[[], Predictor]] = {
        "oracle": lambda: Oracle(test.runtimes, whole=test.history is None),
        "informed": lambda: Informed(test.draw),
        "deep_markov": lambda: DeepMarkov(_loaded(model), samples=samples, **options),
        "kalman": lambda: Kalman(_kalman_law(*law), samples=samples),
        "autoregressive": lambda: autoregressive.Autoregressive(_regressor(*law, **options), samples),
        "running_mean": lambda: RunningMean(**options, at_least=0.0),  # the paper has no least share
        "deadline": lambda: Deadline(**options),
        "elfving": lambda: Elfving(**options),
        "static": lambda: Static(**options),
    }
    settings = {"window": lag, "history": test.history, "censored": censored, "objective": objective, "seed": seed}
    record = run_online(test.runtimes, makers[kind](), **settings)
    return {
        "gradients_per_second": record.gradients_per_second(),
        "waited_for": float(record.cutoff[record.warm_up :].mean()),
        "cutoff": record.cutoff.tolist(),
        "seconds": record.seconds.tolist(),
        **errors(record),
        "shown": {name: getattr(record, name)[list(showing)].tolist() for name in ("mean", "std", "observed")},
    }


def errors(record: CutoffRecord) -> dict[str, float]:
    """Errors of the predicted order statistics: of all, of those up to the cutoff (`uncut`), and of that at the cutoff.

    `within` is the share, in %, inside of `WIDTH` predicted standard deviations; `error` the mean absolute error in
    seconds and `relative` in % of the observed compute time.
    """
    after = slice(record.warm_up, None)
    mean, std, observed = record.mean[after], record.std[after], record.observed[after]
    error = np.abs(observed - mean)
    within, relative = error <= WIDTH * std, error / observed
    uncut = np.arange(1, mean.shape[1] + 1) <= record.cutoff[after, None]
    at_cutoff = np.arange(mean.shape[0]), record.cutoff[after] - 1
    return {
        "within": 100 * float(within.mean()),
        "error": float(error.mean()),
        "relative": 100 * float(relative.mean()),
        "uncut_within": 100 * float(within[uncut].mean()),
        "uncut_error": float(error[uncut].mean()),
        "at_cutoff": 100 * float(relative[at_cutoff].mean()),
    }


_loaded = functools.lru_cache(maxsize=2)(TrainedModel.load)


@functools.lru_cache(maxsize=2)
def _kalman_law(machines: str, lag: int) -> kalman.KalmanParameters:
    """Fitted once in a process: it takes longer than a run."""
    return kalman.fit(training_run(ConfigDict(json.loads(machines)), lag))


@functools.lru_cache(maxsize=8)
def _regressor(machines: str, lag: int, kind: autoregressive.Kind, steps: int) -> autoregressive.Fitted:
    """Fitted once in a process, too."""
    return autoregressive.fit(training_run(ConfigDict(json.loads(machines)), lag), kind, lag=lag, steps=steps)
