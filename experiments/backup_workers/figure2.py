"""Figure 2 of Chen et al. 2016: test error against the average staleness of the gradients, simulated by one worker.

    python -m experiments.backup_workers.figure2 --workdir=runs/backup_workers

144 runs in about 5 minutes on two cores; a command that was killed continues where it stopped. The UCI digits and a
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

Expect an error of about 3 % up to staleness 10 at any rate, losses at rate 0.1 from staleness 15 to 20 on, and at 50 an
error many times as high even at the best rate (paper: 0.36 % at 0, 0.47 % at 20, 0.79 % at 50).

Leaves figure2.md, .csv, .png and .svg, and the runs in figure2/.
"""

import dataclasses
import pathlib
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib as mpl
from absl import flags
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from ml_collections import ConfigDict

from configs import digits
from experiments import figure, launch
from experiments.backup_workers import options, trained
from sgdlab.compare import Cell
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
            runs = trained.finished(config(ramp, rate, epochs), cells, path / "figure2" / f"ramp-{ramp:g}-rate-{rate:g}")
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
    config.schedule.warmup_epochs, config.schedule.decay = 0.0, "linear"
    config.protocol.ramp_epochs = ramp_epochs
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
    least, most = min(staleness), max(staleness)
    for ramp, name in RAMPS.items():
        fresh, stale = (points[ramp, best_rate(points, ramp, s, rates), s].average_error for s in (least, most))
        if fresh and stale and most > least:
            sentences.append(
                f"At the best rate, {name}: {fresh:.2f} % at staleness {least}, {stale:.2f} % at {most}, "
                f"{stale / fresh:.1f} times as much (paper: {PAPER[50] / PAPER[0]:.1f} times as much at 50 as at 0)."
            )
    for rate in rates:
        counts = [sum(points[ramp, rate, s].lost for s in staleness) for ramp in RAMPS]
        sentences.append(
            f"Rate {rate:g}: "
            + " and ".join(f"{n} of {seeds * len(staleness)} lost, {name}" for n, name in zip(counts, RAMPS.values(), strict=True))
            + "."
        )
    sentences.append(
        "The paper's errors are of MNIST, with 33 times the training images and updates that change less; 25 epochs "
        "here are 2200 updates, so that 50 updates of staleness weigh more."
    )
    return sentences


def _draw(points: Points, staleness: Sequence[int], rates: Sequence[float], seeds: int) -> Figure:
    colours = ("#c51b1b", "#d95f02", "#2166ac", "#1b7837", "#7570b3", "#7a7a7a")
    with mpl.rc_context(STYLE):
        drawn = mpl.figure.Figure(figsize=(10.4, 4.6))
        same, best = drawn.subplots(1, 2, sharey=True)
        for rate, colour in zip(rates, colours * len(rates), strict=False):
            for ramp, name in RAMPS.items():
                here = {s: points[ramp, rate, s] for s in staleness}
                _line(same, here, seeds, colour=colour, ramp=ramp, label=f"rate {rate:g}, {name}")
        for ramp, colour in zip(RAMPS, ("#7a7a7a", "#1b7837"), strict=True):
            here = {s: points[ramp, best_rate(points, ramp, s, rates), s] for s in staleness}
            _line(best, here, seeds, colour=colour, ramp=ramp, label=f"digits, {RAMPS[ramp]}")
        best.plot(list(PAPER), list(PAPER.values()), "ks", markersize=5, label="paper, MNIST")
        for axes, title in ((same, "The same learning rate at every staleness"), (best, "The best of these rates")):
            axes.set_yscale("log")
            axes.set_ylim(0.25, 130)
            axes.set_yticks([0.3, 1, 3, 10, 30, 90], ["0.3", "1", "3", "10", "30", "90"])
            axes.minorticks_off()
            axes.set_xlabel("average staleness, updates")
            axes.set_title(title)
            axes.legend(loc="upper left", bbox_to_anchor=(0, -0.16), ncols=2, borderaxespad=0)
        same.set_ylabel("test error of the Polyak average, %")
        drawn.suptitle(f"Means over the runs that were not lost; x: runs were lost (of {seeds})")
    return drawn


def _line(axes: Axes, points: Mapping[int, Point], seeds: int, *, colour: str, ramp: float, label: str) -> None:
    kept = {s: found for s, found in points.items() if found.average_error is not None}
    axes.errorbar(
        list(kept),
        [found.average_error for found in kept.values()],
        yerr=[found.spread for found in kept.values()],
        color=colour,
        linestyle="-" if ramp else "--",
        marker="o" if ramp else "^",
        markersize=4,
        capsize=2,
        elinewidth=0.8,
        label=label,
    )
    for s, found in points.items():
        if found.lost == seeds:  # at the foot of guessing: none is left to be averaged
            axes.plot([s], [90], color=colour, marker="x", markersize=7, linestyle="none")
        elif found.lost:
            axes.plot([s], [found.average_error], color=colour, marker="x", markersize=10, linestyle="none")
            axes.annotate(f"{found.lost}", (s, found.average_error or 90), (5, 4), textcoords="offset points", fontsize=8, color=colour)


if __name__ == "__main__":
    flags.DEFINE_list("staleness", ["0", "5", "10", "15", "20", "30", "40", "50"], "Average staleness, whole numbers.")
    flags.DEFINE_list("rates", ["0.1", "0.05", "0.02"], "Learning rates; the best is chosen for each staleness.")
    flags.DEFINE_integer("seeds", 3, "How many seeds: 0, 1, ...")
    flags.DEFINE_float("epochs", 25.0, "Epochs of each run.")
    launch.run(main, __doc__, configured=False)
