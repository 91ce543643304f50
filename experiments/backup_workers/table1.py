"""Table 1 of Chen et al. 2016: how stale the gradients of each layer are, 40 workers and an 18-layer network.

    python -m experiments.backup_workers.table1 --workdir=runs/backup_workers

Takes 3 seconds. Nothing is trained: who reads and pushes when decides the staleness. Workers take gamma-distributed
times (Barkai et al. 2020, Appendix C.3, homogeneous), nobody waits, and each worker reads all layers when it begins a
gradient and pushes the layers' gradients one by one during the backward pass, which takes 2/3 of its time. The paper
numbers its layers from 0 to 18: 19 blocks.

Expect a mean of (N - 1)(1 - 2/3 l/L) for layer l of L: 39.0 at the bottom (paper 38.97), 14.4 at the top (14.54).
Layer 12 of the paper, fresher than the top, fits no such timing. Two other readings stand beside it: layers read one by
one in the forward pass, and all layers pushed at the end, as clipping by the global norm forces.

Leaves table1.md, .csv, .png and .svg in the work directory.
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
"""Table 1, by layer."""

BACKWARD_SHARE = 2 / 3
SETTLING = 50
"""Gradients of each worker before counting begins: all start at once, and need a while to get out of step."""

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
"""When layers are read and pushed; each a reading of the paper."""


def main(argv: Sequence[str]) -> None:
    """Makes the table with the flags' numbers."""
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
    """Simulates the three readings and publishes the table; returns its rows."""
    found = {
        reading: staleness(num_workers, num_layers, num_gradients, seed, **timing)
        for reading, timing in READINGS.items()
    }
    layers = [layer for layer in PAPER if layer < num_layers]
    rows = [row for layer in layers for row in _rows(layer, found, expected(num_workers, num_layers)[layer])]
    figure.publish(
        path,
        "table1",
        rows,
        title=f"Table 1: staleness by layer, in updates; {num_workers} workers, layers 0 (bottom) to {num_layers - 1}",
        reading=_reading(found[MAIN], found[FORWARD]),
        figure=_draw(found, num_workers),
    )
    return rows


def staleness(
    num_workers: int, num_layers: int, num_gradients: int, seed: int, *, reads: str = "start", pushes: str = "backward"
) -> np.ndarray:
    """Updates between the reading and the entering of each gradient of each layer.

    Returns:
      int[num_gradients, num_layers], once the workers are out of step.
    """
    before = SETTLING * num_workers
    total = before + num_gradients + 2 * num_workers
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
    return schedule.staleness()[before : before + num_gradients].filled(0)


def expected(num_workers: int, num_layers: int) -> np.ndarray:
    r"""The mean staleness of each layer where all are read at the start: :math:`(N - 1)(1 - \beta l / L)`.

    While one worker holds a layer's parameters, a share of its time, each of the N - 1 others pushes that share of a
    gradient.

    Returns:
      float64[num_layers].
    """
    return (num_workers - 1) * (1 - BACKWARD_SHARE * np.arange(num_layers) / num_layers)


def _rows(layer: int, found: Mapping[str, np.ndarray], formula: float) -> list[figure.Row]:
    here = found[MAIN][:, layer]
    ours = {
        "min": int(here.min()),
        "mean": float(here.mean()),
        "median": float(np.median(here)),
        "max": int(here.max()),
        "std": float(here.std(ddof=1)) if here.size > 1 else 0.0,
        "count": here.size,
    }
    others = {f"mean, {name}": float(found[name][:, layer].mean()) for name in (FORWARD, CLIPPED)}
    return [
        {"layer": layer, "from": "ours", **ours, "formula": float(formula), **others},
        {"layer": layer, "from": "paper", **PAPER[layer], "formula": "", **dict.fromkeys(others, "")},
    ]


def _reading(main: np.ndarray, forward: np.ndarray) -> list[str]:
    sentences = [
        f"`ours` is the reading that reproduces both ends: {MAIN}, with the backward pass 2/3 of a gradient's time; "
        "`formula` is its mean, (N - 1)(1 - 2/3 l/L).",
        "The paper's layer 12 fits no timing in which layers are read from the bottom up and pushed from the top "
        "down, as staleness then never rises with the layer: its mean, 11.35, is below that of layer 18 above it "
        "(14.54). It has 44478 gradients where layer 0 has 178, so several parameters may have been counted together "
        "there.",
        "Ours falls evenly from layer to layer because every layer takes the same time here; Inception's do not, so "
        "the paper's layer 11 (19.8) is fresher than ours.",
        "Ours are spread a little less, as the gamma cluster's workers vary by 10 %. Minimum and maximum depend on the "
        "count, so they are not to be compared.",
    ]
    if main.shape[1] > 1:
        sentences.insert(
            1,
            f"Figure 1's text says that layers are read in the forward pass; the top layer would then be only "
            f"{forward[:, -1].mean():.2f} updates stale on average, though layers 11 and 12 would lie nearer to the "
            "paper's. The bottom layer is the same in all readings. "
            "Where clipping forces all layers to be pushed together at the end, all are as stale as the bottom one.",
        )
    return sentences


def _draw(found: Mapping[str, np.ndarray], num_workers: int) -> Figure:
    colours = {MAIN: "#2166ac", FORWARD: "#d95f02", CLIPPED: "#7a7a7a"}
    with mpl.rc_context(STYLE):
        drawn = mpl.figure.Figure(figsize=(10.4, 4.6))
        means, histograms = drawn.subplots(1, 2)
        for name, values in found.items():
            layers, mean, std = np.arange(values.shape[1]), values.mean(axis=0), values.std(axis=0)
            means.plot(layers, mean, color=colours[name], label=name)
            means.fill_between(layers, mean - std, mean + std, color=colours[name], alpha=0.12, linewidth=0)
        shown = [layer for layer in PAPER if layer < found[MAIN].shape[1]]
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
        means.set_title("Mean by layer; bands and bars are one standard deviation")
        means.legend(loc="upper left", bbox_to_anchor=(0, -0.16), ncols=2, borderaxespad=0)
        _draw_histograms(histograms, found[MAIN], shown)
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
    flags.DEFINE_integer("workers", 40, "Workers, none of which waits.")
    flags.DEFINE_integer("layers", 19, "Parameter blocks; the paper's are numbered from 0 to 18.")
    flags.DEFINE_integer("gradients", 20000, "Gradients to count.")
    flags.DEFINE_integer("seed", 0, "Of the run-times.")
    launch.run(main, __doc__, configured=False)
