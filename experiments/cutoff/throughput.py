"""Compares the gradients per second of all predictors of the cutoff, as shares of the oracle's.

    python -m experiments.cutoff.throughput --clusters=two_state,memory --workdir=runs/cutoff

Writes to a directory for each cluster of configs/cutoff.py: throughput.md, .csv, .png and .svg, the trained model, and
a file for each predictor and test run. All five clusters take about 15 minutes on two cores; a command that was killed
continues where it stopped.

On each cluster a deep Markov model is trained on one run, and the parameters of the other predictors are tuned on it.
All predictors are compared on the same test runs, which none of them has seen, censored as in production: run-times
after the cutoff are not observed but imputed, by Kalman and deep Markov from their own predictions, and by all others
from the worker's own last 20 iterations.

The oracle knows the run-times of each iteration and takes the cutoff with the largest c / x_(c), as in the paper. Over
a whole run the best cutoff maximises c - lambda x_(c), with lambda the rate of the run; the columns `rate` show the
predictors with this objective.
"""

import dataclasses
import pathlib
import re
import statistics
from collections.abc import Mapping, Sequence

import matplotlib as mpl
import numpy as np
import scipy.stats
from absl import flags
from matplotlib.figure import Figure
from ml_collections import ConfigDict

from configs import cutoff as configurations
from experiments import figure
from experiments.cutoff import cases, contenders, models
from experiments.cutoff.contenders import DEEP_MARKOV, INFORMED, ORACLE
from sgdlab.commands import launch
from sgdlab.errors import UsageError
from sgdlab.jobs import provenance
from sgdlab.predictors import run_online
from sgdlab.results.directory import RunDirectory
from sgdlab.results.plots import STYLE

DEFAULT_WORKDIR = "runs/cutoff"

_AHEAD = "more than every deployable predictor, and at least 98 % of the predictor that knows the true law"
GOALS = {
    "two_state": _AHEAD,
    "memory": f"{_AHEAD}, by a larger margin than on two_state",
    "large": _AHEAD,
    "identical": "at least 97.3 % of the oracle",
    "recorded": "at least 1.6 times full synchrony",
}
"""Cluster -> throughput that the deep Markov model should reach."""

Measured = Mapping[str, Sequence[Mapping[str, float]]]
"""Predictor -> its measurements on each test run; see `_measure`."""


def main(argv: Sequence[str]) -> None:
    """Trains the missing models, runs the missing tests, and writes the table and figure of every cluster."""
    del argv
    given = flags.FLAGS
    for name in given.clusters:
        if name not in configurations.CLUSTERS:
            raise UsageError(f"--clusters={name} must be one of {', '.join(configurations.CLUSTERS)}")
    if ("recorded" in given.clusters) != (given.trace is not None):
        raise UsageError("--clusters=recorded and --trace=FILE, a file of recorded run-times, must be given together")
    if given.seeds < 2:
        raise UsageError(f"--seeds={given.seeds} must be at least 2, for a confidence interval")
    path = figure.directory(DEFAULT_WORKDIR)
    for name in given.clusters:
        config = configurations.get_config(name)
        config.widths.literal = given.literal
        if name == "recorded":
            config.cluster.recorded.trace = given.trace
        compare(config, path / (f"{name}-literal" if given.literal else name), seeds=given.seeds)


def compare(config: ConfigDict, path: pathlib.Path, *, seeds: int) -> list[figure.Row]:
    """Trains the missing model and runs the missing tests of one cluster; returns the rows of its table."""
    print(f"\n{config.name}", flush=True)
    directory = RunDirectory(path, config.to_dict(), made=provenance.made_with())
    directory.claim()
    model = models.trained(config, path)
    case = cases.case(config, seeds)
    makers = contenders.contenders(case.train, model, lag=config.widths.lag, samples=config.samples)
    if case.tests[0].draw is None:
        del makers[INFORMED]
    measured: dict[str, list[Mapping[str, float]]] = {}
    for name, make in makers.items():
        measured[name] = []
        for seed, test in enumerate(case.tests):
            part = f"{_file_name(name)}-seed{seed}"
            records = directory.read(part)
            if records is None:
                records = [{"kind": "summary", **_measure(make, test, seed, config.widths.lag)}]
                directory.write(part, records)
            measured[name].append(records[-1])
        print(f"  {name}: {_mean(measured[name], 'censored'):.2f} gradients per second", flush=True)
    rows = table(measured)
    figure.publish(
        path,
        "throughput",
        rows,
        title=_title(config, case),
        reading=reading(config.name, measured),
        figure=draw(measured),
    )
    return rows


def _file_name(predictor: str) -> str:
    """The predictor's name as part of a file name, so that stored results do not depend on the list of predictors."""
    return re.sub(r"[^a-z0-9]+", "_", predictor.lower()).strip("_")


def _title(config: ConfigDict, case: cases.Case) -> str:
    guide = ", guide as printed" if config.widths.literal else ""
    steps, workers = case.tests[0].runtimes.shape
    runs = f"{len(case.tests)} runs of" if len(case.tests) > 1 else "one run of"
    confidence = "; +- 95 % confidence" if len(case.tests) > 1 else ""
    title = f"{config.name}{guide}: throughput as a share of the oracle's"
    return f"{title}, {runs} {steps} iterations, {workers} workers{confidence}"


def _measure(make: contenders.Contender, test: cases.Test, seed: int, lag: int) -> dict[str, float]:
    """Gradients per second of one predictor on one run, for each column of the table, and the mean cutoff."""

    def run(**ways: object) -> object:
        return run_online(test.runtimes, make(test), window=lag, history=test.history, seed=seed, **ways)

    censored, rate = run(), run(objective="rate")
    learns = not isinstance(make(test), contenders.LEARN_NOTHING)  # otherwise censoring changes nothing
    uncensored = run(censored=False) if learns else censored
    rate_uncensored = run(objective="rate", censored=False) if learns else rate
    return {
        "censored": censored.gradients_per_second(),
        "with warm-up": censored.gradients_per_second(warm_up=True),
        "uncensored": uncensored.gradients_per_second(),
        "rate": rate.gradients_per_second(),
        "rate, uncensored": rate_uncensored.gradients_per_second(),
        "waited for": float(censored.cutoff[censored.warm_up :].mean()),
    }


@dataclasses.dataclass(frozen=True)
class Interval:
    """A mean and the half-width of its 95 % confidence interval (Student's t); NaN for one value."""

    mean: float
    half: float

    def __str__(self) -> str:
        return f"{self.mean:.2f}" if np.isnan(self.half) else f"{self.mean:.2f} +- {self.half:.2f}"


def interval(values: Sequence[float]) -> Interval:
    """The interval of independent values.

    Example:
      >>> interval([1.0, 2.0, 3.0]).mean
      2.0
    """
    if len(values) < 2:
        return Interval(statistics.fmean(values), np.nan)
    half = scipy.stats.t.ppf(0.975, len(values) - 1) * statistics.stdev(values) / len(values) ** 0.5
    return Interval(statistics.fmean(values), float(half))


def shares(measured: Measured, name: str, way: str, base: str = ORACLE, base_way: str | None = None) -> list[float]:
    """Throughput of a predictor in per cent of that of `base` on the same run, for each run."""
    pairs = zip(measured[name], measured[base], strict=True)
    return [100 * values[way] / base_values[base_way or way] for values, base_values in pairs]


def table(measured: Measured) -> list[figure.Row]:
    """The rows of the table, one for each predictor: per cent of the oracle's gradients per second."""
    rows = []
    deep = shares(measured, DEEP_MARKOV, "censored")
    for name in measured:
        censored = shares(measured, name, "censored")
        ahead = interval([a - b for a, b in zip(deep, censored, strict=True)])
        rows.append(
            {
                "predictor": name,
                "censored, %": str(interval(censored)),
                "deep Markov ahead by": "" if name == DEEP_MARKOV else str(ahead),
                "with warm-up, %": str(interval(shares(measured, name, "with warm-up"))),
                "uncensored, %": str(interval(shares(measured, name, "uncensored"))),
                "rate, %": str(interval(shares(measured, name, "rate", base_way="censored"))),
                "rate, uncensored, %": str(interval(shares(measured, name, "rate, uncensored", base_way="censored"))),
                "waited for": _mean(measured[name], "waited for"),
                "gradients/s": _mean(measured[name], "censored"),
                "times synchrony": _mean(measured[name], "censored")
                / _mean(measured[contenders.SYNCHRONOUS], "censored"),
            }
        )
    return rows


def reading(name: str, measured: Measured) -> list[str]:
    """Sentences for the table, among them what the deep Markov model should reach."""
    sentences = [f"The deep Markov model should reach {GOALS[name]}."] if name in GOALS else []
    others = [other for other in contenders.deployable(measured) if other != DEEP_MARKOV]
    deep = shares(measured, DEEP_MARKOV, "censored")
    if len(deep) > 1:
        lead = {
            o: interval([a - b for a, b in zip(deep, shares(measured, o, "censored"), strict=True)]) for o in others
        }
        nearest = min(others, key=lambda o: lead[o].mean)
        behind = [o for o in others if lead[o].mean - lead[o].half <= 0]
        verdict = f"includes 0 for {', '.join(behind)}" if behind else "includes 0 for no predictor"
        sentences.append(
            f"The closest deployable predictor is {nearest}: deep Markov leads by {lead[nearest]} percentage points "
            f"of the oracle (mean of the differences in each run). The confidence interval of its lead {verdict}."
        )
    if INFORMED in measured:
        share = interval(shares(measured, DEEP_MARKOV, "censored", INFORMED))
        sentences.append(f"Censored, deep Markov reaches {share} % of the predictor that knows the true law.")
    gain = interval(shares(measured, ORACLE, "rate", base_way="censored"))
    sentences.append(f"The oracle with the objective of the run's rate reaches {gain} % of the paper's oracle.")
    return sentences


def draw(measured: Measured) -> Figure:
    """Draws the shares of the oracle with their confidence intervals, censored and uncensored."""
    with mpl.rc_context(STYLE):
        drawn = mpl.figure.Figure(figsize=(7.2, 0.42 * len(measured) + 1.4))
        axes = drawn.subplots()
        names = list(measured)[::-1]
        for shift, way, colour in ((0.12, "censored", "#2166ac"), (-0.12, "uncensored", "#d95f02")):
            spread = [interval(shares(measured, name, way)) for name in names]
            axes.errorbar(
                [s.mean for s in spread],
                np.arange(len(names)) + shift,
                xerr=np.nan_to_num([s.half for s in spread]),
                fmt="o",
                markersize=4,
                capsize=3,
                color=colour,
                label=way,
            )
        axes.set_yticks(range(len(names)), names)
        axes.set_xlabel("gradients per second, % of the oracle's")
        axes.legend(loc="lower left")
    return drawn


def _mean(values: Sequence[Mapping[str, float]], way: str) -> float:
    return statistics.fmean(value[way] for value in values)


if __name__ == "__main__":
    simulated = [name for name in configurations.CLUSTERS if name != "recorded"]
    flags.DEFINE_list("clusters", simulated, "Clusters of configs/cutoff.py, separated by commas.")
    flags.DEFINE_string("trace", None, "File of recorded run-times, for --clusters=recorded.")
    flags.DEFINE_integer("seeds", 5, "Number of test runs of each simulated cluster.")
    flags.DEFINE_bool(
        "literal", False, "Trains the guide as it is printed in the paper, which at step t does not see x_t."
    )
    launch.run(main, __doc__, configured=False)
