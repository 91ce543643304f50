"""Staleness of each layer's gradients with 40 asynchronous workers and 18 layers (Chen et al. 2016, Table 1).

Nothing is trained, because the staleness depends only on when layers are read and pushed. Workers, whose compute times
are gamma-distributed (Barkai et al. 2020, C.3, homogeneous), never wait. Each reads all layers when it begins a
gradient and pushes them one by one from the top during the backward pass, which takes 2/3 of its time; in the picture,
layers are also read one by one in the forward pass, or pushed all at the end, as clipping by the global norm requires.
The paper numbers its layers from 0 to 18: 19 blocks, which take equal times here.
"""

import numpy as np
import pandas as pd

from experiments import papers
from experiments.harness import PALETTE, Claim, Count, Output, Scale, Whole, all_of, below, between, canvas, figure
from experiments.thresholds import LAYER_WITHIN
from sgdlab import cluster, protocols

STATISTICS = {"minimum": np.min, "mean": np.mean, "median": np.median, "maximum": np.max}
STATISTICS["standard deviation"] = lambda values: np.std(values, ddof=len(values) > 1)
STATISTICS["number of gradients"] = np.size
PRINTED = {
    18: (4, 14.54, 13.94, 29, 3.83, 10908),
    12: (5, 11.35, 11.3, 23, 3.09, 44478),
    11: (8, 19.8, 19.59, 34, 3.65, 187),
    0: (24, 38.97, 38.43, 61, 5.43, 178),
}
"""Layer -> its row of Table 1, in the order of `STATISTICS`."""
BACKWARD_SHARE = 2 / 3
SETTLING = 50
"""Gradients of each worker that are not counted: all workers start at the same time and are in step at first."""
MAIN, FORWARD, CLIPPED = "read at the start, pushed backward", "read forward, pushed backward", "pushed at the end"
TIMINGS = {MAIN: ("start", "backward"), FORWARD: ("forward", "backward"), CLIPPED: ("start", "end")}
"""When layers are read and when their gradients are pushed."""


@figure(
    papers.CHEN,
    "Table 1",
    scales={"smoke": Scale("2 s", gradients=400), "laptop": Scale("5 s")},
    full_size=True,
    differs="Run-times and the layers' equal shares of them are a model: the paper does not print its own.",
)
def table1(*, workers: Count = 40, layers: Count = 19, gradients: Count = 20_000, seed: Whole = 0) -> Output:
    """Simulates the three timings.

    Args:
      workers: number of workers; none of them waits for the others.
      layers: parameter blocks; the paper's are numbered from 0 to 18.
      gradients: number of gradients to count.
      seed: seed of the compute times.
    """
    found = {timing: staleness(workers, layers, gradients, seed, *when) for timing, when in TIMINGS.items()}
    mean = {timing: values.mean(axis=0) for timing, values in found.items()}
    formula = expected(workers, layers)
    mean = {"(N - 1)(1 - 2/3 l/L)": formula, **mean}
    printed = {layer: numbers for layer, numbers in PRINTED.items() if layer < layers}
    rows = [
        (layer, MAIN, name, STATISTICS[name](found[MAIN][:, layer]), number)
        for layer, numbers in printed.items()
        for name, number in zip(STATISTICS, numbers, strict=True)
    ]
    rows += [(layer, t, "mean", mean[t][layer], printed[layer][1]) for layer in printed for t in mean if t != MAIN]
    table = pd.DataFrame(rows, columns=["layer", "timing", "quantity", "ours", "paper"])

    # Means of successive gradients are nearly independent, so that intervals can be made of them.
    parts = np.array([part.mean(axis=0) for part in np.array_split(found[MAIN], min(20, gradients))])
    ends = [(parts[:, layer], PRINTED[layer][1]) for layer in (0, 18) if (workers, layers) == (40, 19)]
    clipped = found[CLIPPED]
    tops = (PRINTED[18][1] / 39 * (1 + sign * LAYER_WITHIN) for sign in (1, -1))
    shares = " to ".join(f"{(1 - top) * 19 / 18:.1%}" for top in tops)  # `expected`, turned round
    claims = [
        Claim(
            "Staleness increases from a mean of ~14.5 in the top layer to ~39.0 in the bottom layer "
            f"(within {100 * LAYER_WITHIN:g} %)",
            "Table 1",
            ours=f"{mean[MAIN][-1]:.2f} and {mean[MAIN][0]:.2f}, by the formula {formula[-1]:.2f} and {formula[0]:.2f} "
            f"with {BACKWARD_SHARE:.1%} of the time in the backward pass; it holds with {shares}",
            holds=all_of(between(part / mean - 1, -LAYER_WITHIN, LAYER_WITHIN) for part, mean in ends),
            paper="14.54 and 38.97",
            on_paper=[round(PRINTED[layer][1], 1) for layer in (18, 0)] == [14.5, 39.0],
            identity=True,
        ),
        Claim(
            "Gradients of lower layers are more stale than top layers",
            "Figure 1",
            ours="the mean falls from each layer to the next.",
            holds=all_of(map(below, np.diff(parts).T)),
            identity=True,
            paper="14.54 in layer 18, 11.35 in layer 12",
            on_paper=list(PRINTED) == sorted(PRINTED, key=lambda layer: PRINTED[layer][1]),
            because="No timing in which layers are read from the bottom up and pushed from the top down gives the "
            "paper's layer 12. It counts 44478 gradients there and 178 in layer 0: parameters may have been pooled.",
        ),
        Claim(
            "Clipping requires the gradient across all layers: staleness of all layers is then the bottom layer's",
            "Appendix A.3",
            ours=f"layers of a gradient differ by at most {np.ptp(clipped, axis=1).max()} updates; the mean over "
            f"layers is {clipped.mean():.1f}, {found[MAIN].mean():.1f} without clipping",
            holds=(clipped == clipped[:, :1]).all(),
            identity=True,
        ),
    ]
    notes = [
        "Of the three timings, the first is compared with the paper because it has the means of its bottom and top "
        f"layers: that it has them is no finding. If layers were read in the forward pass, as Figure 1 says, the top "
        f"layer's would be only {mean[FORWARD][-1]:.2f} updates. Minimum and maximum depend on the number of "
        "gradients: do not compare them.",
        "The layers of Inception do not take equal times, which may explain why the paper's layer 11 is less stale.",
    ]
    picture, ((axes, histogram),) = canvas(1, 2, width=12)
    for (timing, values), shade, dash in zip(found.items(), PALETTE, ("-", "--", "-."), strict=False):
        std = values.std(axis=0)
        axes.plot(mean[timing], color=shade, linestyle=dash, label=timing)
        axes.fill_between(range(layers), mean[timing] - std, mean[timing] + std, color=shade, alpha=0.15, linewidth=0)
    means, deviations = ([numbers[i] for numbers in printed.values()] for i in (1, 4))
    axes.errorbar(list(printed), means, deviations, fmt="ks", label="paper, Table 1", zorder=3)
    axes.set(xlabel="layer, from bottom (0) to top", ylabel="staleness, updates", ylim=0, xticks=range(0, layers, 3))
    axes.set_title("Mean by layer; bands and bars are one standard deviation")
    axes.legend(loc="lower left")
    for layer, shade in zip(printed, PALETTE, strict=False):
        counts = np.bincount(found[MAIN][:, layer])
        edges = np.arange(counts.size + 1) - 0.5
        histogram.stairs(100 * counts / counts.sum(), edges, color=shade, linewidth=2, label=f"layer {layer}")
        histogram.axvline(printed[layer][1], color=shade, linestyle=":")
    histogram.plot([], [], "k:", label="paper's means")
    histogram.set(xlabel="staleness, updates", ylabel="share of gradients, %", title=f"Distribution, {MAIN}")
    histogram.legend(loc="upper right")
    return Output(table, picture, claims, notes)


def staleness(
    workers: int, layers: int, gradients: int, seed: int, reads: str = "start", pushes: str = "backward"
) -> np.ndarray:
    """Simulates the staleness of each layer's gradients: the updates between its read and its use.

    Args:
      workers: N.
      layers: L.
      gradients: T, gradients to count after the first `SETTLING` of each worker.
      seed: seed of the compute times.
      reads: when layers are read, "start" or "forward".
      pushes: when the layers' gradients are pushed, "backward" or "end".

    Returns:
      int[T, L], updates.

    Example:
      >>> staleness(1, 2, 3, seed=0).tolist()
      [[0, 0], [0, 0], [0, 0]]
    """
    skipped = SETTLING * workers
    total = skipped + gradients + 2 * workers
    timing = {"num_blocks": layers, "reads": reads, "pushes": pushes, "backward_share": BACKWARD_SHARE}
    schedule = protocols.with_enough_rows(
        lambda runtimes: protocols.layerwise(runtimes, num_gradients=total, **timing),
        lambda rows: cluster.gamma(num_workers=workers, num_gradients=rows, seed=seed),
        rows=total // workers + 20,
    )
    return schedule.staleness()[skipped : skipped + gradients].filled(0)


def expected(workers: int, layers: int) -> np.ndarray:
    r"""Mean staleness of each layer if all are read at the start: :math:`(N - 1)(1 - \beta l / L)`.

    A worker holds a layer's parameters for a share of the time of its gradient. In that time each of the N - 1 other
    workers pushes the same share of a gradient.

    Example:
      >>> expected(40, 19)[[0, 18]].round(2)
      array([39.  , 14.37])
    """
    return (workers - 1) * (1 - BACKWARD_SHARE * np.arange(layers) / layers)
