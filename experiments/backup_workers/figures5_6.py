"""Reproduces Figures 5 and 6 of Chen et al. 2016: how many of 100 machines' gradients an update should wait for.

    python -m experiments.backup_workers.figures5_6 --workdir=runs/backup_workers

Writes figures5_6.md, .csv, .png and .svg, and the runs in figures5_6/. Makes 150 runs in about 2 minutes on two cores;
a command that was killed continues where it stopped.

Figure 5 shows the updates to converge if each averages N gradients. The paper's text gives two of its numbers, 137.5e3
at N = 50 and 76.2e3 at N = 100; a + b/N is drawn through them, a constant part and a part that falls with the number of
gradients. The updates here are measured: a perceptron on the digits, 2 examples per gradient, momentum 0.9 and a
learning rate of r N that is multiplied by 0.94 every 2 epochs (Appendix A.2 has 0.045 N and the same decay), until the
test accuracy, evaluated after every update, first reaches 95 %. The rate was not tuned for any N; three values of r are
shown because the result depends on r.

Figure 6 shows the estimated time to converge with N of 100 machines: these updates, interpolated linearly between the
measured N as in the paper, times the mean time to collect N of 100 gradients (sgdlab.cluster.long_tailed, see
figures3_4).

Results: 1.5 to 1.8 times as many updates at N = 50 as at N = 100 (paper: 1.80), and the shortest time at N = 95 or 96
(paper: N = 96, b = 4). The minimum is flat: the times for N = 94 to 96 differ by less than 1 %, so other seeds can move
it. Waiting for all 100 takes 3.6 times as long.
"""

import math
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
from experiments.backup_workers import gathering, options, trained
from sgdlab.commands import launch
from sgdlab.errors import UsageError
from sgdlab.jobs.compare import Cell
from sgdlab.jobs.plan import dataset_of, num_gradients
from sgdlab.results.plots import STYLE

DEFAULT_WORKDIR = "runs/backup_workers"

PAPER_ITERATIONS = {50: 137.5e3, 100: 76.2e3}
"""N -> iterations to converge (section 3.1)."""
PAPER_BEST = 96
"""N with the shortest time to converge, of 100."""
CLOSE = 0.01
"""Two times are taken as equal if they differ by less than this share of the shortest time."""
PAPER = "paper's updates"

Updates = Mapping[int, Sequence[int | None]]
"""N -> updates to the target of each seed, None if the target was not reached."""


def main(argv: Sequence[str]) -> None:
    """Trains the missing runs and draws both figures for the values of the flags."""
    del argv
    given = flags.FLAGS
    gradients = options.wholes("gradients", given.gradients)
    if len(gradients) < 2 or gradients[-1] > gathering.MACHINES:
        raise UsageError(
            f"--gradients={','.join(given.gradients)} must be two or more whole numbers of at most {gathering.MACHINES}"
        )
    make(
        figure.directory(DEFAULT_WORKDIR),
        gradients=gradients,
        rates=options.rates("rates", given.rates),
        seeds=options.whole("seeds", given.seeds),
        epochs=options.positive("epochs", given.epochs),
        target=options.positive("target", given.target, most=1.0),
        num_iterations=options.whole("iterations", given.iterations),
    )


def make(
    path: pathlib.Path,
    *,
    gradients: Sequence[int],
    rates: Sequence[float],
    seeds: int,
    epochs: float,
    target: float,
    num_iterations: int,
) -> list[figure.Row]:
    """Trains the missing runs and publishes the figures; returns the rows of their table."""
    cells = [Cell("synchronous", n, seed) for n in gradients for seed in range(seeds)]
    measured: dict[float, Updates] = {}
    for rate in rates:
        print(f"Learning rate {rate:g} N", flush=True)
        runs = trained.finished(config(rate, epochs, min(gradients)), cells, path / "figures5_6" / f"rate-{rate:g}")
        measured[rate] = {
            n: [updates_to(target, records) for records in runs if records[-1]["num_workers"] == n] for n in gradients
        }
    counts = np.arange(min(gradients), max(gradients) + 1)
    curves = {PAPER: paper_iterations(counts)}
    for rate, updates in measured.items():
        means = {n: _mean(updates[n]) for n in gradients}
        reached = [n for n in gradients if means[n] is not None]
        if len(reached) > 1:
            curves[f"r = {rate:g}"] = np.interp(
                counts, reached, [means[n] for n in reached], left=math.nan, right=math.nan
            )
    seconds = gathering.collected(num_iterations, seed=0).mean(axis=0)[counts - 1]
    rows = _rows(counts, seconds, curves, measured)
    figure.publish(
        path,
        "figures5_6",
        rows,
        title=f"Figures 5 and 6: updates and time to converge with N of {gathering.MACHINES} machines; paper's updates "
        f"in thousands, measured ones to {100 * target:g} % test accuracy on the digits, {seeds} seeds",
        reading=_reading(counts, seconds, curves, measured, epochs),
        figure=_draw(counts, seconds, curves, measured),
    )
    return rows


def config(rate: float, epochs: float, least: int) -> ConfigDict:
    """The configuration of the runs: gradients of 2 examples; an update of N gradients has the learning rate r N.

    Args:
      rate: r.
      epochs: length of the runs in epochs.
      least: the smallest N; there are enough evaluations for one after every update of a run with this N.
    """
    config = digits.get_config()
    config.epochs, config.batch_size = epochs, 2
    config.network.kind, config.network.mlp.widths = "mlp", (64,)
    config.optimizer.learning_rate, config.optimizer.momentum = rate, 0.9
    config.rate.warmup_epochs, config.rate.decay = 0.0, "exponential"
    config.rate.factor, config.rate.period = 0.94, 2.0
    config.evaluations = math.ceil(num_gradients(config, dataset_of(config)) / least)
    return config


def updates_to(target: float, records: Sequence[Mapping[str, Any]]) -> int | None:
    """Number of updates after which the test accuracy was first at least `target`; None if it never was."""
    evaluations = (record for record in records if record["kind"] == "evaluation")
    return next((record["updates"] for record in evaluations if record["test_accuracy"] >= target), None)


def paper_iterations(counts: np.ndarray) -> np.ndarray:
    r"""Iterations to converge at any N: :math:`a + b / N` through the two values that the paper gives.

    Args:
      counts: int[C], values of N.

    Returns:
      float64[C].
    """
    (low, at_low), (high, at_high) = sorted(PAPER_ITERATIONS.items())
    slope = (at_low - at_high) / (1 / low - 1 / high)
    return at_high + slope * (1 / np.asarray(counts, float) - 1 / high)


def fastest(counts: np.ndarray, seconds: np.ndarray) -> tuple[int, int, int]:
    """The N with the shortest time, and the smallest and largest N whose time is longer by at most `CLOSE`."""
    close = counts[seconds <= (1 + CLOSE) * np.nanmin(seconds)]
    return int(counts[np.nanargmin(seconds)]), int(close.min()), int(close.max())


def resampled(counts: np.ndarray, seconds: np.ndarray, updates: Updates, *, times: int = 1000) -> tuple[int, int]:
    """Bootstraps the best N over seeds: its 5th and 95th percentile when seeds are drawn with replacement.

    Args:
      counts: int[C], values of N.
      seconds: float64[C], duration of one update.
      updates: measured updates, without None.
      times: number of bootstrap samples.
    """
    generator = np.random.default_rng(0)
    measured = np.array(list(updates.values()), float)
    drawn = generator.integers(measured.shape[1], size=(times, *measured.shape))
    means = np.take_along_axis(measured[None], drawn, axis=2).mean(axis=2)
    best = [counts[np.argmin(np.interp(counts, list(updates), mean) * seconds)] for mean in means]
    low, high = np.quantile(best, [0.05, 0.95], method="nearest")
    return int(low), int(high)


def _mean(updates: Sequence[int | None]) -> float | None:
    """Mean over the seeds; None if one of them never reached the target."""
    return None if None in updates else statistics.fmean(updates)


def _rows(
    counts: np.ndarray, seconds: np.ndarray, curves: Mapping[str, np.ndarray], measured: Mapping[float, Updates]
) -> list[figure.Row]:
    trained_at = next(iter(measured.values()))
    shown = [n for n in counts.tolist() if n in trained_at or n >= min(90, counts.max()) or n in PAPER_ITERATIONS]
    rows: list[figure.Row] = []
    for n in shown:
        at = int(n - counts[0])
        row: dict[str, object] = {"N": n, "b": gathering.MACHINES - n, "s per update": float(seconds[at])}
        row["paper's updates, 1e3"] = float(curves[PAPER][at] / 1e3)
        row["time, h"] = float(curves[PAPER][at] * seconds[at] / 3600)
        for rate, updates in measured.items():
            name = f"r = {rate:g}"
            here = updates.get(n)
            row[f"{name}: updates"] = float(curves[name][at]) if here and name in curves else ""
            row[f"{name}: time, s"] = float(curves[name][at] * seconds[at]) if name in curves else ""
        rows.append(row)
    return rows


def _reading(
    counts: np.ndarray,
    seconds: np.ndarray,
    curves: Mapping[str, np.ndarray],
    measured: Mapping[float, Updates],
    epochs: float,
) -> list[str]:
    at_low, at_high = (PAPER_ITERATIONS[n] for n in sorted(PAPER_ITERATIONS))
    sentences = [
        f"The paper's text gives the updates for two N only: {at_low:g} at N = 50 and {at_high:g} at N = 100 "
        f"({at_low / at_high:.2f} times as many). Those for other N are estimated here by a + b/N through these two. "
        f"The paper interpolates linearly between N = 50, 70, 80, 90, 100, and so do the times here; updates are left "
        f"blank where they were not measured.",
    ]
    for name, updates in curves.items():
        best, first, last = fastest(counts, updates * seconds)
        relative = updates * seconds / np.nanmin(updates * seconds)
        of_all, is_paper_best = relative[-1], counts == PAPER_BEST
        longer = relative[is_paper_best] - 1
        at_best = f", N = {PAPER_BEST} takes {100 * longer[0]:.2g} % longer" if longer.size else ""
        sentences.append(
            f"{name}: {updates[0] / updates[-1]:.2f} times as many updates at N = {counts[0]} as at N = {counts[-1]}; "
            f"shortest time with N = {best}, b = {gathering.MACHINES - best} (paper: N = {PAPER_BEST}, b = "
            f"{gathering.MACHINES - PAPER_BEST}), N = {first} to {last} are within {100 * CLOSE:g} % of it{at_best}; "
            f"N = {counts[-1]} takes {of_all:.2f} times as long."
        )
    for rate, updates in measured.items():
        missed = {n: sum(u is None for u in of_seeds) for n, of_seeds in updates.items()}
        if not any(missed.values()):
            low, high = resampled(counts, seconds, updates)
            sentences.append(f"r = {rate:g}: the best N is {low} to {high} in 90 % of bootstrap samples of the seeds.")
        else:
            by_count = ", ".join(f"{count} at N = {n}" for n, count in missed.items() if count)
            sentences.append(
                f"r = {rate:g}: runs that did not reach the target in {epochs:g} epochs: {by_count}; these N are left "
                "out."
            )
    sentences.append(
        "The larger r is, the less a larger N helps, because one update with the rate r N then moves the parameters "
        "less than N updates with the rate r. The minimum is flat; where it lies depends on how fast the times grow "
        "from the 90th gradient to the 98th, which the paper's text does not say (long_tailed assumes a growth), and "
        "on differences of a few updates."
    )
    return sentences


def _draw(
    counts: np.ndarray, seconds: np.ndarray, curves: Mapping[str, np.ndarray], measured: Mapping[float, Updates]
) -> Figure:
    colours = dict(zip(curves, ("black", "#c51b1b", "#d95f02", "#2166ac", "#1b7837", "#7570b3") * 9, strict=False))
    last = counts[-1]
    with mpl.rc_context(STYLE):
        drawn = mpl.figure.Figure(figsize=(10.4, 4.6))
        iterations, time = drawn.subplots(1, 2)
        iterations.plot(counts, last / counts, color="#999999", linestyle=":", label=f"{last}/N")
        for name, updates in curves.items():
            style = {"color": colours[name], "linestyle": "--" if name == PAPER else "-"}
            label = "paper, a + b/N through 2 points" if name == PAPER else f"digits, {name}"
            iterations.plot(counts, updates / updates[-1], label=label, **style)
            relative = updates * seconds / np.nanmin(updates * seconds)
            best, _, _ = fastest(counts, relative)
            time.plot(counts, relative, label=f"{name}: best N = {best}", **style)
            time.plot([best], [1], color=colours[name], marker="o", markersize=10 if name == PAPER else 5, zorder=3)
        _draw_measured(iterations, counts, curves, measured, colours)
        if PAPER_BEST in counts:
            time.axvline(PAPER_BEST, color="#999999", linestyle=":", label=f"paper's best: N = {PAPER_BEST}")
        time.set_ylim(0.97, 1.75)
        iterations.set_title("Figure 5")
        iterations.set_ylabel(f"updates to converge, relative to N = {last}")
        time.set_title(
            f"Figure 6 (N = {last} is off the scale; see the table)" if last == gathering.MACHINES else "Figure 6"
        )
        time.set_ylabel("time to converge, relative to the shortest")
        for axes in (iterations, time):
            axes.set_xlabel(f"N, gradients per update, of {gathering.MACHINES} machines")
            axes.legend(loc="upper left", bbox_to_anchor=(0, -0.16), ncols=2, borderaxespad=0)
    return drawn


def _draw_measured(
    axes: Axes,
    counts: np.ndarray,
    curves: Mapping[str, np.ndarray],
    measured: Mapping[float, Updates],
    colours: Mapping[str, str],
) -> None:
    """Draws means and standard errors at the measured N, shifted sideways to be visible, and the paper's two points."""
    printed = {n: count for n, count in PAPER_ITERATIONS.items() if n in counts}
    axes.plot(list(printed), [n / curves[PAPER][-1] for n in printed.values()], "ks", markersize=6, zorder=3)
    for shift, (rate, updates) in zip(np.linspace(-0.5, 0.5, len(measured)), measured.items(), strict=True):
        name = f"r = {rate:g}"
        reached = {n: of_seeds for n, of_seeds in updates.items() if name in curves and None not in of_seeds}
        axes.errorbar(
            [n + shift for n in reached],
            [statistics.fmean(of_seeds) / curves[name][-1] for of_seeds in reached.values()],
            yerr=[_standard_error(of_seeds) / curves[name][-1] for of_seeds in reached.values()],
            color=colours.get(name),
            marker="o",
            markersize=4,
            capsize=2,
            elinewidth=1,
            linestyle="none",
        )


def _standard_error(values: Sequence[int]) -> float:
    return statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else 0.0


if __name__ == "__main__":
    flags.DEFINE_list(
        "gradients", ["50", "70", "80", "90", "100"], "Values of N to train with, whole numbers of at most 100."
    )
    flags.DEFINE_list(
        "rates", ["0.0004", "0.0008", "0.0016"], "Values of r; an update of N gradients has the learning rate r N."
    )
    flags.DEFINE_integer("seeds", 10, "Number of seeds: 0, 1, ...")
    flags.DEFINE_float("epochs", 25.0, "Epochs of each run, also after the target is reached.")
    flags.DEFINE_float("target", 0.95, "Test accuracy at which a run has converged.")
    flags.DEFINE_integer("iterations", 20000, "Number of iterations to draw for the mean time to collect N gradients.")
    launch.run(main, __doc__, configured=False)
