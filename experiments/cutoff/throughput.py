"""Gradients per second of every predictor of the cutoff, as shares of the oracle's.

    python -m experiments.cutoff.throughput --clusters=two_state,memory --workdir=runs/cutoff

On each cluster of configs/cutoff.py a deep Markov model is trained on one run, the others are tuned on it, and all are
compared on the same runs that none has seen, each censored as in production: what comes after the cutoff is never seen
but filled in, by Kalman and deep Markov from their own predictions, by all others from each worker's own last 20
iterations. All five clusters take about 15 minutes on two cores; finished parts are kept, a command that was killed
continues where it stopped.

The oracle knows each iteration's run-times and takes the best c / x_(c) of each, as in the paper. Over a run the best
is c - lambda x_(c) with lambda the run's own rate; the columns `rate` show predictors that are asked for that.
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

GOALS = {
    "two_state": "above every deployable predictor, and at least 98 % of the one that knows the true law",
    "memory": "the same, by a larger margin",
    "large": "the same",
    "identical": "at least 97.3 % of the oracle",
    "recorded": "at least 1.6 times full synchrony",
}

Measured = Mapping[str, Sequence[Mapping[str, float]]]
"""Predictor -> for each test run what was measured; see `_measure`."""


def main(argv: Sequence[str]) -> None:
    """Trains and compares what is missing, and shows every cluster's table."""
    del argv
    given = flags.FLAGS
    for name in given.clusters:
        if name not in configurations.CLUSTERS:
            raise UsageError(f"--clusters={name} must be one of {', '.join(configurations.CLUSTERS)}")
    if given.seeds < 2:
        raise UsageError(f"--seeds={given.seeds} must be at least 2, for a confidence interval")
    path = figure.directory(DEFAULT_WORKDIR)
    for name in given.clusters:
        config = configurations.get_config(name)
        config.widths.literal = given.literal
        compare(config, path / (f"{name}-literal" if given.literal else name), seeds=given.seeds)


def compare(config: ConfigDict, path: pathlib.Path, *, seeds: int) -> list[figure.Row]:
    """Trains and compares what is missing on one cluster, and publishes; returns the table's rows."""
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
            found = directory.read(part)
            if found is None:
                found = [{"kind": "summary", **_measure(make, test, seed, config.widths.lag)}]
                directory.write(part, found)
            measured[name].append(found[-1])
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
    """Its name, as a file may have it: the list of predictors can change, and finished numbers stay those of theirs."""
    return re.sub(r"[^a-z0-9]+", "_", predictor.lower()).strip("_")


def _title(config: ConfigDict, case: cases.Case) -> str:
    guide = ", guide as printed" if config.widths.literal else ""
    steps, workers = case.tests[0].runtimes.shape
    runs = f"{len(case.tests)} runs of" if len(case.tests) > 1 else "one run of"
    confidence = "; +- 95 % confidence" if len(case.tests) > 1 else ""
    title = f"{config.name}{guide}: throughput as a share of the oracle's"
    return f"{title}, {runs} {steps} iterations, {workers} workers{confidence}"


def _measure(make: contenders.Contender, test: cases.Test, seed: int, lag: int) -> dict[str, float]:
    """Gradients per second of one predictor on one run, in the four ways that the table has."""

    def run(**ways: object) -> object:
        return run_online(test.runtimes, make(test), window=lag, history=test.history, seed=seed, **ways)

    censored, rate = run(), run(objective="rate")
    learns = not isinstance(make(test), contenders.LEARN_NOTHING)  # else what it sees changes nothing
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
    """Per cent, run by run, of what `base` reached on the same run."""
    pairs = zip(measured[name], measured[base], strict=True)
    return [100 * ours[way] / theirs[base_way or way] for ours, theirs in pairs]


def table(measured: Measured) -> list[figure.Row]:
    """One row a predictor: per cent of the oracle's gradients per second."""
    rows = []
    ours = shares(measured, DEEP_MARKOV, "censored")
    for name in measured:
        censored = shares(measured, name, "censored")
        ahead = interval([a - b for a, b in zip(ours, censored, strict=True)])
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
    """What the table says, beside what the deep Markov model must reach."""
    sentences = [f"Goal: {GOALS.get(name, 'none')}."]
    others = [other for other in contenders.deployable(measured) if other != DEEP_MARKOV]
    ours = shares(measured, DEEP_MARKOV, "censored")
    if len(ours) > 1:
        lead = {
            o: interval([a - b for a, b in zip(ours, shares(measured, o, "censored"), strict=True)]) for o in others
        }
        nearest = min(others, key=lambda o: lead[o].mean)
        behind = [o for o in others if lead[o].mean - lead[o].half <= 0]
        verdict = "it is above every other" if not behind else f"its interval is not apart from {', '.join(behind)}"
        sentences.append(
            f"The nearest deployable predictor is {nearest}: deep Markov is ahead of it by {lead[nearest]} points of "
            f"the oracle, run by run; {verdict}."
        )
    if INFORMED in measured:
        share = interval(shares(measured, DEEP_MARKOV, "censored", INFORMED))
        sentences.append(f"Deep Markov reaches {share} % of the predictor that knows the true law, censored.")
    gain = interval(shares(measured, ORACLE, "rate", base_way="censored"))
    sentences.append(f"The oracle of the run's own rate reaches {gain} % of the paper's oracle.")
    return sentences


def draw(measured: Measured) -> Figure:
    """Shares of the oracle with their intervals, censored and not."""
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
    flags.DEFINE_list("clusters", list(configurations.CLUSTERS), "Clusters of configs/cutoff.py.")
    flags.DEFINE_integer("seeds", 5, "Test runs of each simulated cluster.")
    flags.DEFINE_bool("literal", False, "Train the guide as it is printed, which at step t does not see x_t.")
    launch.run(main, __doc__, configured=False)
