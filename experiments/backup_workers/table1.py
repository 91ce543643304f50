"""Reproduces Table 1 of Chen et al. 2016: the staleness of each layer's gradients, 40 workers and an 18-layer network.

    python -m experiments.backup_workers.table1 --workdir=runs/backup_workers

Writes table1.md, .csv, .png and .svg to the work directory. Takes 3 seconds.

Nothing is trained, because the staleness depends only on when layers are read and pushed. The run-times of workers are
gamma-distributed (Barkai et al. 2020, Appendix C.3, homogeneous), and workers never wait. Each worker reads all layers
when it begins a gradient and pushes the layers' gradients one by one during the backward pass, which takes 2/3 of its
time. The paper numbers its layers from 0 to 18: 19 blocks. Two other interpretations are shown as well: layers are read
one by one in the forward pass, and all layers are pushed at the end, as clipping by the global norm requires.

Results: the mean staleness of layer l of L is (N - 1)(1 - 2/3 l/L): 39.0 at the bottom (paper: 38.97) and 14.4 at the
top (paper: 14.54). The paper's layer 12, whose gradients are less stale than those of the top layer, fits no such
timing.
"""

import pathlib
from collections.abc import Mapping, Sequence

import matplotlib as mpl
import numpy as np
from absl import flags
from matplotlib.figure import Figure

from experiments import figure
from experiments.backup_workers import options
from sgdlab import cluster, protocols
from sgdlab.commands import launch
from sgdlab.results.plots import STYLE

DEFAULT_WORKDIR = "runs/backup_workers"

PAPER = {
    18: {"min": 4, "mean": 14.54, "median": 13.94, "max": 29, "std": 3.83, "count": 10908},
    12: {"min": 5, "mean": 11.35, "median": 11.3, "max": 23, "std": 3.09, "count": 44478},
    11: {"min": 8, "mean": 19.8, "median": 19.59, "max": 34, "std": 3.65, "count": 187},
    0: {"min": 24, "mean": 38.97, "median": 38.43, "max": 61, "std": 5.43, "count": 178},
}
"""Layer -> its row of Table 1."""

BACKWARD_SHARE = 2 / 3
SETTLING = 50
"""Gradients of each worker that are not counted: all workers start at the same time and are in step at first."""

MAIN, FORWARD, CLIPPED = (
    "read at the start, pushed backward",
    "read forward, pushed backward",
    "pushed at the end (clipping)",
)
READINGS = {
    MAIN: {"reads": "start", "pushes": "backward"},
    FORWARD: {"reads": "forward", "pushes": "backward"},
    CLIPPED: {"reads": "start", "pushes": "end"},
}
"""Interpretations of the paper: when layers are read and when their gradients are pushed."""


def main(argv: Sequence[str]) -> None:
    """Makes the table for the values of the flags."""
    del argv
    given = flags.FLAGS
    make(
        figure.directory(DEFAULT_WORKDIR),
        num_workers=options.whole("workers", given.workers),
        num_layers=options.whole("layers", given.layers, least=2),
        num_gradients=options.whole("gradients", given.gradients),
        seed=options.whole("seed", given.seed, least=0),
    )


def make(path: pathlib.Path, *, num_workers: int, num_layers: int, num_gradients: int, seed: int) -> list[figure.Row]:
    """Simulates the three interpretations and publishes the table; returns its rows."""
    simulated = {
        reading: staleness(num_workers, num_layers, num_gradients, seed, **timing)
        for reading, timing in READINGS.items()
    }
    layers = [layer for layer in PAPER if layer < num_layers]
    rows = [row for layer in layers for row in _rows(layer, simulated, expected(num_workers, num_layers)[layer])]
    figure.publish(
        path,
        "table1",
        rows,
        title=f"Table 1: staleness by layer, in updates; {num_workers} workers, layers 0 (bottom) to {num_layers - 1}",
        reading=_reading(simulated[MAIN], simulated[FORWARD]),
        figure=_draw(simulated, num_workers),
    )
    return rows


def staleness(
    num_workers: int, num_layers: int, num_gradients: int, seed: int, *, reads: str = "start", pushes: str = "backward"
) -> np.ndarray:
    """Simulates the staleness of each gradient of each layer: the updates between its read and its use.

    Args:
      num_workers: N.
      num_layers: L.
      num_gradients: T, gradients to count after the first `SETTLING` of each worker.
      seed: seed of the run-times.
      reads: when layers are read, "start" or "forward".
      pushes: when the layers' gradients are pushed, "backward" or "end".

    Returns:
      int[T, L].
    """
    skipped = SETTLING * num_workers
    total = skipped + num_gradients + 2 * num_workers
    schedule = protocols.with_enough_rows(
        lambda runtimes: protocols.asynchronous(
            runtimes,
            num_gradients=total,
            num_blocks=num_layers,
            reads=reads,
            pushes=pushes,
            backward_share=BACKWARD_SHARE,
        ),
        lambda rows: cluster.gamma(num_workers=num_workers, num_gradients=rows, seed=seed),
        rows=total // num_workers + 20,
    )
    return schedule.staleness()[skipped : skipped + num_gradients].filled(0)


def expected(num_workers: int, num_layers: int) -> np.ndarray:
    r"""Mean staleness of each layer if all layers are read at the start: :math:`(N - 1)(1 - \beta l / L)`.

    A worker holds a layer's parameters for a share of the time of its gradient. In that time each of the N - 1 other
    workers pushes the same share of a gradient.

    Returns:
      float64[num_layers].
    """
    return (num_workers - 1) * (1 - BACKWARD_SHARE * np.arange(num_layers) / num_layers)


def _rows(layer: int, simulated: Mapping[str, np.ndarray], formula: float) -> list[figure.Row]:
    of_layer = simulated[MAIN][:, layer]
    statistics = {
        "min": int(of_layer.min()),
        "mean": float(of_layer.mean()),
        "median": float(np.median(of_layer)),
        "max": int(of_layer.max()),
        "std": float(of_layer.std(ddof=1)) if of_layer.size > 1 else 0.0,
        "count": of_layer.size,
    }
    others = {f"mean, {name}": float(simulated[name][:, layer].mean()) for name in (FORWARD, CLIPPED)}
    return [
        {"layer": layer, "from": "ours", **statistics, "formula": float(formula), **others},
        {"layer": layer, "from": "paper", **PAPER[layer], "formula": "", **dict.fromkeys(others, "")},
    ]


def _reading(main: np.ndarray, forward: np.ndarray) -> list[str]:
    sentences = [
        f"The rows `ours` are simulated with the timing that reproduces the paper's bottom and top layers: {MAIN}, the "
        "backward pass taking 2/3 of a gradient's time. `formula` is the mean for this timing, (N - 1)(1 - 2/3 l/L).",
        "The paper's layer 12 fits no timing in which layers are read from the bottom up and pushed from the top down: "
        "staleness would never rise with the layer, but the mean of layer 12 (11.35) is below that of layer 18 "
        "(14.54). The paper counts 44478 gradients for layer 12 and 178 for layer 0, so several parameters may have "
        "been counted together.",
        "The simulated staleness falls evenly from layer to layer because every layer takes the same time here. The "
        "layers of Inception do not, which may explain why the paper's layer 11 (19.8) is less stale than the "
        "simulated one.",
        "The simulated staleness has a slightly smaller deviation, since the run-times of the gamma cluster vary by "
        "10 %. Minimum and maximum depend on the count and cannot be compared.",
    ]
    if main.shape[1] > 1:
        sentences.insert(
            1,
            "According to the text of Figure 1, layers are read in the forward pass. The mean staleness of the top "
            f"layer would then be only {forward[:, -1].mean():.2f} updates, although layers 11 and 12 would be closer "
            "to the paper's. The bottom layer is the same in all three cases. If clipping requires that all layers are "
            "pushed together at the end, all of them are as stale as the bottom layer.",
        )
    return sentences


def _draw(simulated: Mapping[str, np.ndarray], num_workers: int) -> Figure:
    colours = {MAIN: "#2166ac", FORWARD: "#d95f02", CLIPPED: "#7a7a7a"}
    with mpl.rc_context(STYLE):
        drawn = mpl.figure.Figure(figsize=(10.4, 4.6))
        means, histograms = drawn.subplots(1, 2)
        for name, values in simulated.items():
            layers, mean, std = np.arange(values.shape[1]), values.mean(axis=0), values.std(axis=0)
            means.plot(layers, mean, color=colours[name], label=name)
            means.fill_between(layers, mean - std, mean + std, color=colours[name], alpha=0.12, linewidth=0)
        shown = [layer for layer in PAPER if layer < simulated[MAIN].shape[1]]
        means.errorbar(
            shown,
            [PAPER[layer]["mean"] for layer in shown],
            yerr=[PAPER[layer]["std"] for layer in shown],
            color="black",
            marker="s",
            linestyle="none",
            capsize=3,
            zorder=3,
            label="paper, Table 1",
        )
        means.set_ylim(0, 1.2 * num_workers)
        means.xaxis.set_major_locator(mpl.ticker.MaxNLocator(integer=True))
        means.set_xlabel("layer, from bottom (0) to top")
        means.set_ylabel("staleness, updates")
        means.set_title("Mean by layer; bands and bars: one standard deviation")
        means.legend(loc="upper left", bbox_to_anchor=(0, -0.16), ncols=2, borderaxespad=0)
        _draw_histograms(histograms, simulated[MAIN], shown)
    return drawn


def _draw_histograms(axes: mpl.axes.Axes, values: np.ndarray, layers: Sequence[int]) -> None:
    for layer, colour in zip(layers, ("#7570b3", "#d95f02", "#1b7837", "#2166ac"), strict=False):
        counts = np.bincount(values[:, layer])
        axes.stairs(100 * counts / counts.sum(), np.arange(counts.size + 1) - 0.5, color=colour, label=f"layer {layer}")
        axes.axvline(PAPER[layer]["mean"], color=colour, linestyle=":", linewidth=1.4)
    axes.plot([], [], color="black", linestyle=":", label="paper's means")
    axes.set_xlabel("staleness, updates")
    axes.set_ylabel("share of gradients, %")
    axes.set_title(f"Distribution, {MAIN}")
    axes.legend(loc="upper right")


if __name__ == "__main__":
    flags.DEFINE_integer("workers", 40, "Number of workers; none of them waits for the others.")
    flags.DEFINE_integer("layers", 19, "Parameter blocks; the paper's are numbered from 0 to 18.")
    flags.DEFINE_integer("gradients", 20000, "Number of gradients to count.")
    flags.DEFINE_integer("seed", 0, "Seed of the run-times.")
    launch.run(main, __doc__, configured=False)
