"""Reproduces Figure 2 of Teng and Wood 2018: throughput while a slow node recovers, and the run-times of all workers.

    python -m experiments.cutoff.figure2 --workdir=runs/cutoff

Writes figure2.md, .csv, .png and .svg to the work directory. Takes about 20 seconds on two cores, and a minute more if
runs/cutoff/two_state does not have the trained model of throughput or another figure yet; a training that was killed
continues.

The cluster is the paper's, 158 workers on 4 nodes, in the iterations that the paper shows: until iteration 61 the 40
workers of one node are slow, and afterwards as fast as the others. The model was trained on the law of
configs/cutoff.py:two_state, in which every node sometimes enters the slow regime. In the run shown here no other node
does (`slow_share` is 0), and everything else is as in training: `mean` and `std` are set to the training law's
`ordinary_mean` and `ordinary_mean * noise`, so that ordinary run-times have the same mean (0.944 s) and the same
relative noise, and slow ones are 1.8 times as long. The first window of the model is the 20 iterations before the first
one, in which the node is slow too and all run-times are observed. Afterwards every iteration ends at the predicted
cutoff, and later run-times are not observed but imputed.

The oracle knows the run-times of each iteration and takes the cutoff with the largest c / x_(c), which no predictor can
reach because run-times are noisy. The throughput in the table is the number of gradients used, divided by the seconds,
over all runs; the picture shows the first run.

Results: full synchrony uses 60 gradients per second until iteration 61 and 99 after it; the cutoff 89 and 113, which is
97.5 and 98.5 % of the oracle. In the first iteration after the change the cutoff still excludes the node that was slow
and reaches 92 %; from the second one on it is within 2 % of the oracle. In the paper it takes until iteration 85.
"""

import dataclasses
import pathlib
from collections.abc import Mapping, Sequence

import matplotlib as mpl
import numpy as np
from absl import flags
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from ml_collections import ConfigDict

from configs import cutoff as configurations
from experiments import figure
from experiments.cutoff import cases, models
from sgdlab import cluster
from sgdlab.commands import launch
from sgdlab.deep_markov import DeepMarkov, TrainedModel
from sgdlab.errors import UsageError
from sgdlab.predictors import elfving, run_online
from sgdlab.results.plots import STYLE

DEFAULT_WORKDIR = "runs/cutoff"
CLUSTER = "two_state"
CHANGE = 61
"""The last iteration in which the first node is slow."""
RECOVERED = 85
"""The iteration after which the paper's cutoff is near its maximum again."""
PANELS = (1, 50, 100, 150, 200)
"""Iterations for which the run-times of all workers are shown."""
CLOSE = 0.02
"""Share of the oracle's throughput by which a throughput that is close to it is lower at most."""
SMOOTHED = 5
"""Number of iterations over which shares of the oracle are averaged."""
PAPER_MAXIMUM, PAPER_IDLE = 2.1063, 1.049
"""Longest run-time and idle time in seconds, by Elfving's formula (section 4.1)."""

SYNCHRONOUS, CUTOFF, UNCENSORED, ORACLE = "full synchrony", "cutoff", "cutoff, uncensored", "oracle"
COLOURS = {SYNCHRONOUS: "#1b7837", CUTOFF: "#c51b1b", ORACLE: "#2b2b2b"}


@dataclasses.dataclass(frozen=True, eq=False)
class Line:
    """The cutoffs and durations of one protocol.

    Attributes:
      cutoff: int64[R, T], number of gradients that each iteration of each run used.
      seconds: float64[R, T], duration of the iteration.
    """

    cutoff: np.ndarray
    seconds: np.ndarray

    @property
    def throughput(self) -> np.ndarray:
        """float64[R, T], gradients per second of each iteration: Omega(c)."""
        return self.cutoff / self.seconds

    def over(self, first: int, last: int) -> "Line":
        """The iterations from `first` to `last`, counted from 1."""
        return Line(self.cutoff[:, first - 1 : last], self.seconds[:, first - 1 : last])

    def gradients_per_second(self) -> float:
        """Total gradients divided by total seconds, over all runs."""
        return float(self.cutoff.sum() / self.seconds.sum())


def main(argv: Sequence[str]) -> None:
    """Trains the model if it is missing, and draws the figure."""
    del argv
    given = flags.FLAGS
    if given.iterations < PANELS[-1]:
        raise UsageError(
            f"--iterations={given.iterations} must be at least {PANELS[-1]}, the last iteration that is shown"
        )
    if given.runs < 1:
        raise UsageError(f"--runs={given.runs} must be at least 1")
    path = figure.directory(DEFAULT_WORKDIR)
    config = configurations.get_config(CLUSTER)
    make(path, config, models.kept(config, path / CLUSTER), iterations=given.iterations, runs=given.runs)


def make(
    path: pathlib.Path, config: ConfigDict, model: TrainedModel, *, iterations: int, runs: int
) -> list[figure.Row]:
    """Measures the throughput and publishes the figure; returns the rows of its table.

    Args:
      path: directory for the results.
      config: configuration of configs/cutoff.py, with two regimes.
      model: deep Markov model trained on it.
      iterations: length of each run.
      runs: number of runs; the first one is drawn.
    """
    shown = [shown_run(config, iterations, seed) for seed in range(runs)]
    predictor = DeepMarkov(model, samples=config.samples)
    lines = measured(predictor, shown)
    rows = table(lines)
    workers = shown[0].runtimes.shape[1]
    figure.publish(
        path,
        "figure2",
        rows,
        title=f"Figure 2: throughput of {workers} workers on {config.cluster.regimes.num_nodes} nodes, one of them "
        f"slow until iteration {CHANGE}; gradients per second, {runs} run{'s' * (runs > 1)} of {iterations} iterations",
        reading=[*recovery(lines), *idleness(config)],
        figure=draw(lines, shown[0].runtimes, shown_law(config).node),
    )
    return rows


def shown_law(config: ConfigDict) -> cluster.RegimeCluster:
    """The cluster of the figure: its first node is slow until iteration `CHANGE`; ordinary run-times as in training."""
    law = cases.law_of(config.cluster)
    return dataclasses.replace(
        law,
        slow_share=0.0,
        slow_until=config.widths.lag + CHANGE,
        mean=law.ordinary_mean,
        std=law.ordinary_mean * law.noise,
    )


def shown_run(config: ConfigDict, iterations: int, seed: int) -> cases.Test:
    """A run of this cluster, whose history is one window of the model."""
    lag = config.widths.lag
    runtimes = shown_law(config).draw(lag + iterations, seed=seed)
    return cases.Test(runtimes[lag:], history=runtimes[:lag])


def measured(predictor: DeepMarkov, runs: Sequence[cases.Test]) -> dict[str, Line]:
    """Runs full synchrony, both cutoffs and the oracle on all runs."""
    by_name = {name: [] for name in (SYNCHRONOUS, CUTOFF, UNCENSORED, ORACLE)}
    for seed, run in enumerate(runs):
        ordered = np.sort(run.runtimes, axis=1)
        for name, cutoff in (
            (SYNCHRONOUS, np.full(len(ordered), ordered.shape[1])),
            (CUTOFF, _predicted(predictor, run, seed, censored=True)),
            (UNCENSORED, _predicted(predictor, run, seed, censored=False)),
            (ORACLE, 1 + np.argmax(np.arange(1, ordered.shape[1] + 1) / ordered, axis=1)),
        ):
            by_name[name].append((cutoff, ordered[np.arange(len(ordered)), cutoff - 1]))
    return {name: Line(*map(np.stack, zip(*of_runs, strict=True))) for name, of_runs in by_name.items()}


def _predicted(predictor: DeepMarkov, run: cases.Test, seed: int, *, censored: bool) -> np.ndarray:
    return run_online(run.runtimes, predictor, history=run.history, censored=censored, seed=seed).cutoff


def phases(iterations: int) -> list[tuple[int, int]]:
    """First and last iteration of each phase of the table."""
    return [(1, CHANGE), (CHANGE + 1, RECOVERED), (RECOVERED + 1, iterations)]


def table(lines: Mapping[str, Line]) -> list[figure.Row]:
    """The rows of the table, by phase and protocol: throughput, share of the oracle's, and means of an iteration."""
    rows = []
    for first, last in phases(lines[ORACLE].cutoff.shape[1]):
        oracle = lines[ORACLE].over(first, last)
        for name, line in lines.items():
            phase = line.over(first, last)
            rows.append(
                {
                    "iterations": f"{first} to {last}",
                    "waits": name,
                    "gradients/s": phase.gradients_per_second(),
                    "% of oracle": 100 * share(phase, oracle),
                    "s per iteration": float(phase.seconds.mean()),
                    "gradients used": float(phase.cutoff.mean()),
                }
            )
    return rows


def share(line: Line, oracle: Line) -> float:
    """Gradients per second as a share of the oracle's."""
    return line.gradients_per_second() / oracle.gradients_per_second()


def smoothed_shares(line: Line, oracle: Line) -> np.ndarray:
    """float64[T - SMOOTHED + 1]: share of the oracle's throughput, averaged over runs and `SMOOTHED` iterations."""
    shares = (line.throughput / oracle.throughput).mean(axis=0)
    return np.convolve(shares, np.full(SMOOTHED, 1 / SMOOTHED), mode="valid")


def recovers_at(line: Line, oracle: Line, level: float) -> int | None:
    """The first iteration after the change at which the smoothed share is at least `level`; None if there is none.

    Args:
      line: the cutoff.
      oracle: the oracle on the same runs.
      level: share of the oracle's throughput.
    """
    after = smoothed_shares(line, oracle)[CHANGE:]
    high = np.flatnonzero(after >= level)
    return CHANGE + 1 + int(high[0]) if high.size else None


def recovery(lines: Mapping[str, Line]) -> list[str]:
    """Sentences for the table: how long the cutoff is suboptimal after the change, here and in the paper."""
    oracle = lines[ORACLE]
    last = oracle.cutoff.shape[1]
    sentences = []
    for name in (CUTOFF, UNCENSORED):
        first, settled = (
            100 * share(lines[name].over(*span), oracle.over(*span))
            for span in ((CHANGE + 1, CHANGE + 1), (RECOVERED + 1, last))
        )
        sentences.append(
            f"{name.capitalize()}: {first:.1f} % of the oracle in iteration {CHANGE + 1}, the first one after the "
            f"change, and {settled:.1f} % from iteration {RECOVERED + 1} on. It is within {100 * CLOSE:g} % of the "
            f"oracle (means over {SMOOTHED} iterations and all runs) "
            f"{_when(recovers_at(lines[name], oracle, 1 - CLOSE))}."
        )
    return [
        "The paper: at the change the cutoff is suboptimal only for a few iterations, before recovering near maximum "
        f"performance after iteration {RECOVERED}. The results here:",
        *sentences,
    ]


def _when(iteration: int | None) -> str:
    if iteration is None:
        return "never"
    late = iteration - CHANGE - 1
    return f"from iteration {iteration} on, " + (f"with a delay of {late}" if late else "immediately")


def idleness(config: ConfigDict) -> list[str]:
    """Sentences for the table: longest run-time and idle time, by Elfving's formula and in the training run."""
    workers, regimes = config.cluster.num_workers, config.cluster.regimes
    expected = float(elfving(workers, mean=regimes.mean, std=regimes.std)[-1])
    runtimes = cases.training_run(config)
    longest = runtimes.max(axis=1)
    idle = (longest[:, None] - runtimes).mean()
    return [
        f"The paper: by Elfving's formula the longest of 158 run-times is {PAPER_MAXIMUM} s in expectation, and a "
        f"worker is idle for {PAPER_IDLE} s. For the {workers} workers here the formula gives {expected:.4f} s and "
        f"{expected - regimes.mean:.4f} s. In the training run (mean {runtimes.mean():.3f} s, standard deviation "
        f"{runtimes.std():.3f} s) the means are {longest.mean():.3f} s and {idle:.3f} s. Because the workers of a node "
        "are slow together, the longest run-time is longer than that of independent workers while a node is slow, and "
        "shorter while none is."
    ]


def draw(lines: Mapping[str, Line], runtimes: np.ndarray, node: np.ndarray) -> Figure:
    """Draws the first run: run-times of some iterations, and throughput and seconds of every iteration."""
    with mpl.rc_context(STYLE):
        drawn = mpl.figure.Figure(figsize=(10.4, 8.4))
        small = [f"iteration {number}" for number in PANELS]
        panels = drawn.subplot_mosaic(
            [small, ["throughput"] * len(small), ["seconds"] * len(small)], height_ratios=(1.1, 2, 1.3)
        )
        highest = max(runtimes[number - 1].max() for number in PANELS)
        for number, name in zip(PANELS, small, strict=True):
            _draw_workers(panels[name], runtimes[number - 1], lines[CUTOFF].seconds[0, number - 1], node)
            panels[name].set_ylim(0, 1.05 * highest)
            panels[name].set_title(name)
        for name in small[1:]:
            panels[name].tick_params(labelleft=False)
        panels[small[0]].set_ylabel("run-time, s")
        _draw_iterations(panels["throughput"], {n: lines[n].throughput[0] for n in (ORACLE, CUTOFF, SYNCHRONOUS)})
        panels["throughput"].set_ylabel("gradients per second")
        panels["throughput"].tick_params(labelbottom=False)
        _draw_iterations(panels["seconds"], {n: lines[n].seconds[0] for n in (CUTOFF, SYNCHRONOUS)})
        panels["seconds"].set_ylabel("seconds per iteration")
        panels["seconds"].set_xlabel("iteration")
        panels["throughput"].legend(loc="lower right", ncols=3)
        drawn.suptitle(
            f"Figure 2: a node is slow until iteration {CHANGE}; run-times in red are used, those in grey are cut off"
        )
    return drawn


def _draw_workers(axes: Axes, runtimes: np.ndarray, cut_at: float, node: np.ndarray) -> None:
    """Draws run-times by worker: red if they are used, grey if they are cut off; with lines between nodes."""
    used, index = runtimes <= cut_at, np.arange(1, runtimes.size + 1)
    axes.scatter(index[used], runtimes[used], s=7, color=COLOURS[CUTOFF], linewidths=0)
    axes.scatter(index[~used], runtimes[~used], s=7, color="#9a9a9a", linewidths=0)
    axes.axhline(cut_at, color=COLOURS[CUTOFF], linewidth=1)
    for first in 1 + np.flatnonzero(np.diff(node)):
        axes.axvline(first + 0.5, color="#7a7a7a", linewidth=0.6, linestyle=":")
    axes.set_xlabel("worker")
    axes.grid(visible=False)


def _draw_iterations(axes: Axes, values: Mapping[str, np.ndarray]) -> None:
    for name, line in values.items():
        style = {"linestyle": "--", "linewidth": 1.0} if name == ORACLE else {"linewidth": 1.4}
        axes.plot(np.arange(1, line.size + 1), line, color=COLOURS[name], label=name, **style)
    axes.axvline(CHANGE + 0.5, color="#7a7a7a", linestyle=":", linewidth=1)
    axes.set_xlim(1, line.size)
    axes.set_xticks(PANELS)
    axes.set_ylim(bottom=0)


if __name__ == "__main__":
    flags.DEFINE_integer("iterations", 220, f"Length of each run, at least {PANELS[-1]}.")
    flags.DEFINE_integer("runs", 20, "Number of runs in the table; the picture shows the first one.")
    launch.run(main, __doc__, configured=False)
