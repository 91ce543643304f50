"""Figure 2 of Chen et al. 2016: test error against the average staleness of the gradients, simulated by one worker.

    python -m experiments.backup_workers.figure2 --workdir=runs/backup_workers

144 runs in about 4 minutes on two cores; a command that was killed continues where it stopped. The UCI digits and a
small conv net stand for MNIST and its 4-layer CNN. As in Appendix A.1: SGD without momentum for 25 epochs, a rate of
0.1 that is annealed linearly to 0, and the error of the moving (Polyak) average. Unlike there: the rate falls over all
of the run instead of the last 10 epochs, the average's decay is 0.98 (over 2200 updates 0.9999 would hold the start),
and there is no weight normalization, pooling or augmentation.

The learning-rate rule. The paper lowers the rate at staleness of 20 and more, and does not say to what. Both readings
are shown: the same rate for every staleness (one curve for each of --rates), and for each staleness the best of
--rates: the one with the fewest lost runs, then with the lowest error of the average on the test set (the paper chose
by a validation set). A run is lost when it diverged or its training error ended above 80 % (the paper's explosions end
at 90 %); errors are means over the runs that were not.

Each staleness is trained with the paper's ramp, from 0 over the first 3 epochs, and without it. Staleness s is that of
s + 1 workers.

Expect, at the best rate with the ramp, errors of 2.3 % at staleness 0, 3.2 % at 20 and 5.9 % at 50: 1.4 and 2.6 times
as high (paper: 0.36 %, 0.47 % and 0.79 %: 1.3 and 2.2 times). At rate 0.1 the first runs are lost at 15 to 20, as in
the paper, and all of them from 30 on; the ramp loses fewer than no ramp.

Leaves figure2.md, .csv, .png and .svg, and the runs in figure2/.
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
"""Epochs over which the staleness rises, and its name."""
LOST_TRAIN_ACCURACY = 0.2

Records = list[dict[str, Any]]


@dataclasses.dataclass(frozen=True)
class Point:
    """The seeds of one staleness, ramp and rate.

    Attributes:
      errors: % of the test set, final parameters, of the runs that were not lost.
      average_errors: the same, of the Polyak average.
      lost: how many runs were.
    """

    errors: tuple[float, ...]
    average_errors: tuple[float, ...]
    lost: int

    @property
    def error(self) -> float | None:
        """Mean error of the final parameters; None where all runs were lost."""
        return statistics.fmean(self.errors) if self.errors else None

    @property
    def average_error(self) -> float | None:
        """Mean error of the Polyak average."""
        return statistics.fmean(self.average_errors) if self.average_errors else None

    @property
    def spread(self) -> float:
        """Standard deviation of the average's error over the seeds."""
        return statistics.stdev(self.average_errors) if len(self.average_errors) > 1 else 0.0


Points = Mapping[tuple[float, float, int], Point]
"""(epochs of ramp, learning rate, staleness) -> the seeds' results."""


def main(argv: Sequence[str]) -> None:
    """Trains what is missing and draws the figure with the flags' numbers."""
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
    """Trains what is missing and publishes; returns the table's rows."""
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
    """The runs' configuration: Appendix A.1 on the digits. The average staleness is the number of workers less 1."""
    config = digits.get_config()
    config.epochs, config.batch_size, config.evaluations = epochs, 16, 10
    config.optimizer.learning_rate = rate
    config.rate.warmup_epochs, config.rate.decay = 0.0, "linear"
    config.protocol.simulated_staleness.ramp_epochs = ramp_epochs
    return config


def lost(records: Records) -> bool:
    """Whether a run diverged, or its training error ended above 80 %."""
    summary = records[-1]
    return summary["diverged"] or (summary["train_accuracy"] or 0.0) < LOST_TRAIN_ACCURACY


def point(runs: Sequence[Records]) -> Point:
    """Puts the seeds of one staleness, ramp and rate together."""
    kept = [records[-1] for records in runs if not lost(records)]
    return Point(
        errors=tuple(100 * (1 - summary["test_accuracy"]) for summary in kept),
        average_errors=tuple(100 * (1 - summary["average_accuracy"]) for summary in kept),
        lost=len(runs) - len(kept),
    )


def best_rate(points: Points, ramp: float, staleness: int, rates: Sequence[float]) -> float:
    """The rate with the fewest lost runs, then with the lowest error of the average."""

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
        "`average` is the error of the Polyak average, as in the paper, `final` that of the final parameters; means "
        "over the runs that were not lost (`lost`: diverged, or a training error above 80 %), `std` over seeds. One "
        "test image is 0.28 points.",
        "`best rate` is chosen for each staleness by the fewest lost runs, then by the average's error on the test "
        "set: slightly too good, as the paper's validation set would not be.",
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
        told = " and ".join(f"{count} with {name}" for name, count in counts.items())
        sentences.append(f"Of {seeds * len(staleness)} runs each at rate {rate:g}, lost: {told}.")
    sentences.append(
        "The levels are not to be compared: the paper's errors are of MNIST, which has 42 times as many training "
        "images, with a deeper network and augmentation."
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
        for place, lines in enumerate((same, best)):
            for shift, line in zip(np.linspace(-0.6, 0.6, len(lines)), lines, strict=True):
                line.draw(*panels[:, place], shift)
        panels[0, 1].plot(list(PAPER), list(PAPER.values()), "ks", markersize=5, label="paper, MNIST")
        for place, title in enumerate(("The same learning rate at every staleness", "The best of these rates")):
            panels[0, place].set_title(title)
            panels[0, place].set_yscale("log")
            panels[0, place].set_ylim(0.25, 110)
            panels[0, place].set_yticks([0.3, 1, 3, 10, 30, 90], ["0.3", "1", "3", "10", "30", "90"])
            panels[0, place].minorticks_off()
            panels[1, place].set_ylim(-0.15 * seeds, 1.15 * seeds)
            panels[1, place].set_yticks(range(0, seeds + 1, -(-seeds // 4)))
            panels[1, place].set_xlabel("average staleness, updates")
            handles, labels = panels[0, place].get_legend_handles_labels()
            panels[1, place].legend(
                handles, labels, loc="upper left", bbox_to_anchor=(0, -0.65), ncols=2, borderaxespad=0
            )
        panels[0, 0].set_ylabel("error of the Polyak average, %")
        panels[1, 0].set_ylabel(f"lost of {seeds}")
        drawn.suptitle("Mean test error over the runs that were not lost, and how many were")
    return drawn


@dataclasses.dataclass(frozen=True)
class _Line:
    """One curve: dashed and triangles without a ramp."""

    label: str
    colour: str
    ramp: float
    points: Mapping[int, Point]

    def draw(self, errors: Axes, losses: Axes, shift: float) -> None:
        """Draws the mean errors with their deviations, and the lost runs; shifted sideways, so that none hides."""
        style = {"color": self.colour, "marker": "o" if self.ramp else "^", "markersize": 4}
        kept = {s: found for s, found in self.points.items() if found.average_error is not None}
        errors.errorbar(
            [s + shift for s in kept],
            [found.average_error for found in kept.values()],
            yerr=[found.spread for found in kept.values()],
            linestyle="-" if self.ramp else "--",
            capsize=2,
            elinewidth=0.8,
            label=self.label,
            **style,
        )
        losses.plot(
            [s + shift for s in self.points], [found.lost for found in self.points.values()], linestyle="none", **style
        )


if __name__ == "__main__":
    flags.DEFINE_list("staleness", ["0", "5", "10", "15", "20", "30", "40", "50"], "Average staleness, whole numbers.")
    flags.DEFINE_list("rates", ["0.1", "0.05", "0.02"], "Learning rates; the best is chosen for each staleness.")
    flags.DEFINE_integer("seeds", 3, "How many seeds: 0, 1, ...")
    flags.DEFINE_float("epochs", 25.0, "Epochs of each run.")
    launch.run(main, __doc__, configured=False)
