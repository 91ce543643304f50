"""Reproduces Figure 2 of Chen et al. 2016: test error against the mean staleness of the gradients, by one worker.

    python -m experiments.backup_workers.figure2 --workdir=runs/backup_workers

Writes figure2.md, .csv, .png and .svg, and the runs in figure2/. Makes 144 runs in about 4 minutes on two cores; a
command that was killed continues where it stopped.

The UCI digits and a small conv net replace MNIST and the paper's 4-layer CNN. As in Appendix A.1: SGD without momentum
for 25 epochs, a learning rate of 0.1 that is annealed linearly to 0, and the error of the moving (Polyak) average of
the parameters. Differences: the rate is annealed over the whole run instead of the last 10 epochs, the decay of the
average is 0.98 (with 0.9999 the average of 2200 updates would still be close to the initial parameters), and there is
no weight normalization, pooling or augmentation.

Learning rate: the paper lowers it for a staleness of 20 and more, but does not say to which value. Two interpretations
are shown: the same rate for every staleness (one curve for each of --rates), and the best of --rates for each
staleness, which is the one with the fewest lost runs, then with the lowest error of the average on the test set (the
paper uses a validation set). A run is lost if it diverged or its training error at the end is above 80 % (runs that
explode in the paper end at 90 %); errors are means over the runs that are not lost.

Each staleness is trained with the paper's ramp, from 0 over the first 3 epochs, and without it. Staleness s is that of
s + 1 workers.

Results: at the best rate with the ramp, the errors are 2.3 % at staleness 0, 3.2 % at 20 and 5.9 % at 50, that is 1.4
and 2.6 times as high as at 0 (paper: 0.36 %, 0.47 % and 0.79 %: 1.3 and 2.2 times). At rate 0.1 the first runs are lost
at a staleness of 15 to 20, as in the paper, and all of them from 30 on; with the ramp fewer runs are lost than without.
"""

import dataclasses
import itertools
import pathlib
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from absl import flags
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from ml_collections import ConfigDict

from configs import digits
from experiments import figure
from experiments.backup_workers import options, trained
from sgdlab.commands import launch
from sgdlab.jobs.compare import Cell
from sgdlab.results.plots import STYLE

DEFAULT_WORKDIR = "runs/backup_workers"

PAPER = {0: 0.36, 20: 0.47, 50: 0.79}
"""Staleness -> test error in %, on MNIST (section 2.1)."""
RAMPS = {0.0: "no ramp", 3.0: "ramp over 3 epochs"}
"""Epochs over which the staleness rises -> label."""
LOST_TRAIN_ACCURACY = 0.2

Records = list[dict[str, Any]]


@dataclasses.dataclass(frozen=True)
class Point:
    """The results of all seeds for one staleness, ramp and learning rate.

    Attributes:
      errors: test errors of the final parameters in %, of the runs that were not lost.
      average_errors: test errors of the Polyak average in %, of the same runs.
      lost: number of lost runs.
    """

    errors: tuple[float, ...]
    average_errors: tuple[float, ...]
    lost: int

    @property
    def error(self) -> float | None:
        """Mean error of the final parameters in %; None if all runs were lost."""
        return statistics.fmean(self.errors) if self.errors else None

    @property
    def average_error(self) -> float | None:
        """Mean error of the Polyak average in %; None if all runs were lost."""
        return statistics.fmean(self.average_errors) if self.average_errors else None

    @property
    def spread(self) -> float:
        """Standard deviation over the seeds of the error of the Polyak average."""
        return statistics.stdev(self.average_errors) if len(self.average_errors) > 1 else 0.0


Points = Mapping[tuple[float, float, int], Point]
"""(epochs of the ramp, learning rate, staleness) -> the results of all seeds."""


def main(argv: Sequence[str]) -> None:
    """Trains the missing runs and draws the figure for the values of the flags."""
    del argv
    given = flags.FLAGS
    make(
        figure.directory(DEFAULT_WORKDIR),
        staleness=options.wholes("staleness", given.staleness, least=0),
        rates=options.rates("rates", given.rates),
        seeds=options.whole("seeds", given.seeds),
        epochs=options.positive("epochs", given.epochs),
    )


def make(
    path: pathlib.Path, *, staleness: Sequence[int], rates: Sequence[float], seeds: int, epochs: float
) -> list[figure.Row]:
    """Trains the missing runs and publishes the figure; returns the rows of its table."""
    cells = [Cell("simulated_staleness", average + 1, seed) for average in staleness for seed in range(seeds)]
    points: dict[tuple[float, float, int], Point] = {}
    for ramp, name in RAMPS.items():
        for rate in rates:
            print(f"{name}, learning rate {rate:g}", flush=True)
            runs = trained.finished(
                config(ramp, rate, epochs), cells, path / "figure2" / f"ramp-{ramp:g}-rate-{rate:g}"
            )
            for average in staleness:
                points[ramp, rate, average] = point([r for r in runs if r[-1]["num_workers"] == average + 1])
    rows = [_row(points, ramp, average, rates) for ramp in RAMPS for average in staleness]
    figure.publish(
        path,
        "figure2",
        rows,
        title=f"Figure 2: test error in % by average staleness; digits, {epochs:g} epochs, {seeds} seeds",
        reading=_reading(points, staleness, rates, seeds),
        figure=_draw(points, staleness, rates, seeds),
    )
    return rows


def config(ramp_epochs: float, rate: float, epochs: float) -> ConfigDict:
    """The configuration of the runs: Appendix A.1 on the digits. The mean staleness is the number of workers less 1."""
    config = digits.get_config()
    config.epochs, config.batch_size, config.evaluations = epochs, 16, 10
    config.network.conv.channels = (32, 64)
    config.optimizer.learning_rate = rate
    config.rate.warmup_epochs, config.rate.decay = 0.0, "linear"
    config.protocol.simulated_staleness.ramp_epochs = ramp_epochs
    return config


def lost(records: Records) -> bool:
    """Whether a run diverged, or its training error at the end is above 80 %."""
    summary = records[-1]
    return summary["diverged"] or (summary["train_accuracy"] or 0.0) < LOST_TRAIN_ACCURACY


def point(runs: Sequence[Records]) -> Point:
    """Summarises the seeds of one staleness, ramp and learning rate."""
    summaries = [records[-1] for records in runs if not lost(records)]
    return Point(
        errors=tuple(100 * (1 - summary["test_accuracy"]) for summary in summaries),
        average_errors=tuple(100 * (1 - summary["average_accuracy"]) for summary in summaries),
        lost=len(runs) - len(summaries),
    )


def best_rate(points: Points, ramp: float, staleness: int, rates: Sequence[float]) -> float:
    """The rate with the fewest lost runs, then with the lowest error of the Polyak average."""

    def badness(rate: float) -> tuple[int, float]:
        here = points[ramp, rate, staleness]
        return here.lost, 100.0 if here.average_error is None else here.average_error

    return min(rates, key=badness)


def _row(points: Points, ramp: float, staleness: int, rates: Sequence[float]) -> figure.Row:
    row: dict[str, object] = {"ramp, epochs": ramp, "staleness": staleness}
    for rate in rates:
        here = points[ramp, rate, staleness]
        row[f"rate {rate:g}: average"] = _number(here.average_error)
        row[f"rate {rate:g}: lost"] = here.lost
    rate = best_rate(points, ramp, staleness, rates)
    best = points[ramp, rate, staleness]
    return row | {
        "best rate": rate,
        "final": _number(best.error),
        "average": _number(best.average_error),
        "std": best.spread if best.errors else "",
        "paper": PAPER.get(staleness, ""),
    }


def _number(value: float | None) -> float | str:
    return "" if value is None else value


def _reading(points: Points, staleness: Sequence[int], rates: Sequence[float], seeds: int) -> list[str]:
    sentences = [
        "`average` is the error of the Polyak average, as in the paper, and `final` that of the final parameters. Both "
        "are means over the runs that are not lost (a run is `lost` if it diverged or its training error is above "
        "80 %); `std` is the standard deviation over seeds. One test image is 0.28 points.",
        "`best rate` is chosen for each staleness by the fewest lost runs, then by the error of the average on the "
        "test set, which makes the error slightly too low; the paper uses a validation set.",
    ]
    for ramp, name in RAMPS.items():
        best = {s: points[ramp, best_rate(points, ramp, s, rates), s].average_error for s in staleness}
        fresh = best.get(0)
        ratios = [
            f"{best[s]:.2f} % at {s}, {best[s] / fresh:.2f} times as much (paper: {PAPER[s] / PAPER[0]:.2f} times)"
            for s in PAPER
            if fresh and s and best.get(s)
        ]
        if ratios:
            sentences.append(f"At the best rate, {name}: {fresh:.2f} % at staleness 0; {'; '.join(ratios)}.")
    for rate in rates:
        counts = {name: sum(points[ramp, rate, s].lost for s in staleness) for ramp, name in RAMPS.items()}
        by_ramp = " and ".join(f"{count} with {name}" for name, count in counts.items())
        sentences.append(f"Lost runs at rate {rate:g}, of {seeds * len(staleness)} each: {by_ramp}.")
    sentences.append(
        "The errors themselves cannot be compared with the paper's, which are of MNIST, with 42 times as many training "
        "images, a deeper network and augmentation."
    )
    return sentences


def _draw(points: Points, staleness: Sequence[int], rates: Sequence[float], seeds: int) -> Figure:
    same = [
        _Line(f"rate {rate:g}, {name}", colour, ramp, {s: points[ramp, rate, s] for s in staleness})
        for rate, colour in zip(rates, itertools.cycle(("#c51b1b", "#d95f02", "#2166ac", "#1b7837")), strict=False)
        for ramp, name in RAMPS.items()
    ]
    best = [
        _Line(
            f"digits, {name}",
            colour,
            ramp,
            {s: points[ramp, best_rate(points, ramp, s, rates), s] for s in staleness},
        )
        for (ramp, name), colour in zip(RAMPS.items(), ("#7a7a7a", "#1b7837"), strict=True)
    ]
    with mpl.rc_context(STYLE):
        drawn = mpl.figure.Figure(figsize=(10.4, 5.4))
        panels = drawn.subplots(2, 2, sharex=True, sharey="row", height_ratios=(4, 1))
        for column, lines in enumerate((same, best)):
            for shift, line in zip(np.linspace(-0.6, 0.6, len(lines)), lines, strict=True):
                line.draw(*panels[:, column], shift)
        panels[0, 1].plot(list(PAPER), list(PAPER.values()), "ks", markersize=5, label="paper, MNIST")
        for column, title in enumerate(("The same learning rate at every staleness", "The best of these rates")):
            panels[0, column].set_title(title)
            panels[0, column].set_yscale("log")
            panels[0, column].set_ylim(0.25, 110)
            panels[0, column].set_yticks([0.3, 1, 3, 10, 30, 90], ["0.3", "1", "3", "10", "30", "90"])
            panels[0, column].minorticks_off()
            panels[1, column].set_ylim(-0.15 * seeds, 1.15 * seeds)
            panels[1, column].set_yticks(range(0, seeds + 1, -(-seeds // 4)))
            panels[1, column].set_xlabel("average staleness, updates")
            handles, labels = panels[0, column].get_legend_handles_labels()
            panels[1, column].legend(
                handles, labels, loc="upper left", bbox_to_anchor=(0, -0.65), ncols=2, borderaxespad=0
            )
        panels[0, 0].set_ylabel("error of the Polyak average, %")
        panels[1, 0].set_ylabel(f"lost runs, of {seeds}")
        drawn.suptitle("Mean test error over the runs that are not lost, and number of lost runs")
    return drawn


@dataclasses.dataclass(frozen=True)
class _Line:
    """One curve; dashed, with triangles, without a ramp."""

    label: str
    colour: str
    ramp: float
    points: Mapping[int, Point]

    def draw(self, errors: Axes, losses: Axes, shift: float) -> None:
        """Draws mean errors with standard deviations, and lost runs; shifted sideways so that curves do not overlap."""
        style = {"color": self.colour, "marker": "o" if self.ramp else "^", "markersize": 4}
        finished = {s: point for s, point in self.points.items() if point.average_error is not None}
        errors.errorbar(
            [s + shift for s in finished],
            [point.average_error for point in finished.values()],
            yerr=[point.spread for point in finished.values()],
            linestyle="-" if self.ramp else "--",
            capsize=2,
            elinewidth=0.8,
            label=self.label,
            **style,
        )
        losses.plot(
            [s + shift for s in self.points], [point.lost for point in self.points.values()], linestyle="none", **style
        )


if __name__ == "__main__":
    flags.DEFINE_list(
        "staleness", ["0", "5", "10", "15", "20", "30", "40", "50"], "Values of the mean staleness, whole numbers."
    )
    flags.DEFINE_list("rates", ["0.1", "0.05", "0.02"], "Learning rates; the best is chosen for each staleness.")
    flags.DEFINE_integer("seeds", 3, "Number of seeds: 0, 1, ...")
    flags.DEFINE_float("epochs", 25.0, "Epochs of each run.")
    launch.run(main, __doc__, configured=False)
