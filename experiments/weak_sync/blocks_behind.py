"""How far behind a slow block can fall at a worker: what line 10 of Algorithm 1 costs.

    python -m experiments.weak_sync.blocks_behind --workdir=runs/weak_sync

A worker that has b of the blocks starts, and by line 10 of the algorithm it drops a block that comes later: it keeps
the version that it had, until that server is among the first b again. For the four settings at full size (32 workers,
32 servers, 900 iterations), with and without injected delays, how many versions each block that a gradient was computed
on lay behind the newest of them; and for (20, 75 %) with workers that take late blocks too (keep_newer). It shares its
runs with table1.

Expected: 9 % of the blocks are behind at (28, 90 %) and 21 % at (20, 75 %), each further version a tenth and a fifth as
often, up to 6 and 9 versions; with late blocks taken, 21 % too, but none by more than 1. Injected delays change next to
nothing. A few seconds after table1, alone about two minutes on two cores.
"""

from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from absl import flags
from matplotlib.figure import Figure

from experiments import figure
from experiments.weak_sync import simulation
from experiments.weak_sync.simulation import SETTINGS, Case
from sgdlab.commands import launch
from sgdlab.results import plots

MARKERS = dict(zip(SETTINGS, "sD^o", strict=True))
COLOURS = dict(zip(SETTINGS, ("#1b7837", "#7570b3", "#2166ac", "#c51b1b"), strict=True))
NEWER = "#e08214"


def cases(seeds: int) -> list[Case]:
    """The four settings, and the last one with `keep_newer`, without and with injected delays."""
    kinds = [(setting, False) for setting in SETTINGS] + [(SETTINGS[-1], True)]
    return [
        Case(setting, late, seed, keep_newer=newer)
        for late in (False, True)
        for setting, newer in kinds
        for seed in range(seeds)
    ]


def histograms(runs: dict[Case, dict[str, Any]]) -> dict[Case, np.ndarray]:
    """The share of blocks k versions behind, over all seeds; by the case of seed 0."""
    most = max(len(run["behind"]) for run in runs.values())
    counts: dict[Case, np.ndarray] = {}
    for case, run in runs.items():
        first = Case(case.setting, case.late, 0, case.num_servers, case.keep_newer)
        padded = np.pad(np.array(run["behind"]), (0, most - len(run["behind"])))
        counts[first] = counts.get(first, 0) + padded
    return {case: count / count.sum() for case, count in counts.items()}


def rows(shares: dict[Case, np.ndarray]) -> list[dict[str, object]]:
    """What the histograms say in numbers."""
    return [
        {
            "(c, b)": _title(case),
            "injected delays": "yes" if case.late else "no",
            "newest, %": f"{100 * share[0]:.2f}",
            "1 behind, %": f"{100 * share[1:2].sum():.2f}",
            "2 behind, %": f"{100 * share[2:3].sum():.3f}",
            "5 or more, %": f"{100 * share[5:].sum():.4f}",
            "mean": f"{share @ np.arange(share.size):.4f}",
            "farthest": int(np.flatnonzero(share).max()),
        }
        for case, share in shares.items()
    ]


def _title(case: Case) -> str:
    return f"{case.setting}{', late blocks taken' * case.keep_newer}"


def draw(shares: dict[Case, np.ndarray]) -> Figure:
    """One panel without injected delays, one with."""
    with mpl.rc_context(plots.STYLE):
        result = mpl.figure.Figure(figsize=(10.5, 4.6))
        panels = result.subplots(1, 2, sharey=True, sharex=True)
        for axes, late in zip(panels, (False, True), strict=True):
            for case, share in shares.items():
                if case.late != late:
                    continue
                there = np.flatnonzero(share)
                axes.plot(
                    there,
                    share[there],
                    color=NEWER if case.keep_newer else COLOURS[case.setting],
                    linestyle="--" if case.keep_newer else "-",
                    marker="x" if case.keep_newer else MARKERS[case.setting],
                    markersize=5,
                    label=_title(case),
                )
            axes.set_yscale("log")
            axes.xaxis.set_major_locator(mpl.ticker.MaxNLocator(integer=True))
            axes.set_xlabel("versions behind the newest block of the same gradient")
            axes.set_title("With injected delays" if late else "Without injected delays")
        panels[0].set_ylabel("share of the blocks")
        panels[1].legend(loc="upper right")
        result.suptitle("How far blocks fall behind at their worker")
    return result


def reading(shares: dict[Case, np.ndarray]) -> list[str]:
    """What line 10 costs."""
    last = SETTINGS[-1]
    line10, newer = (shares[Case(last, True, 0, keep_newer=keep)] for keep in (False, True))
    versions = np.arange(line10.size)
    missed, ratio = 1 - last.pull_at_least, line10[2:].sum() / line10[1:].sum()
    return [
        "By line 10 a block that comes after the worker has started is lost, not used an iteration later. Which "
        "servers are late is drawn anew in each iteration, so every further version behind is about 1 - b as frequent, "
        f"without end: at (20, 75 %) each is {100 * ratio:.0f} % of the one before (below "
        f"{100 * missed:.0f} %, as a worker that ends after the update finds more blocks than it needs), the mean is "
        f"{line10 @ versions:.3f}, the farthest {np.flatnonzero(line10).max()}.",
        f"Workers that take late blocks too are {newer @ versions:.3f} behind on average and "
        f"{np.flatnonzero(newer).max()} at most: line 10 costs {line10 @ versions - newer @ versions:.3f} versions on "
        "average and the whole tail, and saves nothing, since the blocks have come anyway.",
        "Injected delays hardly change that: it is b that decides how many blocks are late. b = 100 % has none behind.",
    ]


def main(argv: Sequence[str]) -> None:
    """Runs what is missing, then counts."""
    del argv
    cluster, path = simulation.cluster_of_flags(), figure.directory(simulation.DEFAULT_WORKDIR)
    wanted = cases(flags.FLAGS.seeds)
    runs = simulation.simulate(cluster, wanted, path, processes=flags.FLAGS.processes)
    shares = histograms(runs)
    figure.publish(
        path,
        "blocks_behind",
        rows(shares),
        title=f"Versions that blocks lie behind at their worker; 32 servers, 32 workers, {cluster.iterations} "
        f"iterations, {flags.FLAGS.seeds} seeds",
        reading=reading(shares),
        figure=draw(shares),
    )


if __name__ == "__main__":
    simulation.define_flags()
    launch.run(main, __doc__, configured=False)
