"""Measures how many versions behind the blocks at a worker are, because of line 10 of Algorithm 1.

    python -m experiments.weak_sync.blocks_behind --workdir=runs/weak_sync

Writes blocks_behind.md, .csv, .png and .svg, and the runs that it shares with table1. Takes a few seconds after table1,
otherwise about two minutes on two cores.

A worker starts as soon as it has received b of the blocks. By line 10 of Algorithm 1 it discards a block that arrives
later, and continues with its previous version of that block until the block's server is again among the first b. The
command counts, for each block that a gradient was computed on, how many versions it is older than the newest block of
the same gradient. It does so for the paper's four settings at full size (32 workers, 32 servers, 900 iterations), with
and without injected delays, and for (20, 75 %) with workers that also accept late blocks (keep_newer).

Results: 9 % of the blocks are behind at (28, 90 %) and 21 % at (20, 75 %); each further version is a tenth and a fifth
as frequent, and the largest numbers of versions are 6 and 9. If late blocks are accepted, 21 % are behind too, but none
by more than 1 version. Injected delays have almost no effect.
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
    """The runs: the four settings and the last one with `keep_newer`, without and with injected delays."""
    kinds = [(setting, False) for setting in SETTINGS] + [(SETTINGS[-1], True)]
    return [
        Case(setting, late, seed, keep_newer=newer)
        for late in (False, True)
        for setting, newer in kinds
        for seed in range(seeds)
    ]


def histograms(runs: dict[Case, dict[str, Any]]) -> dict[Case, np.ndarray]:
    """Shares of the blocks that are k versions behind, over all seeds.

    Args:
      runs: the summary of each case, with the counts `behind`.

    Returns:
      float64[K] for each case with seed 0.
    """
    most = max(len(run["behind"]) for run in runs.values())
    counts: dict[Case, np.ndarray] = {}
    for case, run in runs.items():
        first = Case(case.setting, case.late, 0, case.num_servers, case.keep_newer)
        padded = np.pad(np.array(run["behind"]), (0, most - len(run["behind"])))
        counts[first] = counts.get(first, 0) + padded
    return {case: count / count.sum() for case, count in counts.items()}


def rows(shares: dict[Case, np.ndarray]) -> list[dict[str, object]]:
    """The rows of the table, one for each histogram."""
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
    """Draws the histograms: a panel without and one with injected delays."""
    with mpl.rc_context(plots.STYLE):
        result = mpl.figure.Figure(figsize=(10.5, 4.6))
        panels = result.subplots(1, 2, sharey=True, sharex=True)
        for axes, late in zip(panels, (False, True), strict=True):
            for case, share in shares.items():
                if case.late != late:
                    continue
                present = np.flatnonzero(share)
                axes.plot(
                    present,
                    share[present],
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
        result.suptitle("Versions that blocks at a worker are behind")
    return result


def reading(shares: dict[Case, np.ndarray]) -> list[str]:
    """Sentences for the table: the effect of line 10."""
    last = SETTINGS[-1]
    line10, newer = (shares[Case(last, True, 0, keep_newer=keep)] for keep in (False, True))
    versions = np.arange(line10.size)
    missed, ratio = 1 - last.pull_at_least, line10[2:].sum() / line10[1:].sum()
    return [
        "By line 10 a block that arrives after the worker has started is discarded, not used one iteration later. "
        "Which servers are late is drawn independently in each iteration, so each further version behind is less "
        f"frequent by a factor of about 1 - b. At (20, 75 %) the factor is {100 * ratio:.0f} % (less than "
        f"{100 * missed:.0f} %, because a worker that ends after the update receives more blocks than it waits for), "
        f"the mean is {line10 @ versions:.3f} versions and the maximum {np.flatnonzero(line10).max()}.",
        f"If workers also accept late blocks, the mean is {newer @ versions:.3f} and the maximum "
        f"{np.flatnonzero(newer).max()}. Line 10 therefore costs {line10 @ versions - newer @ versions:.3f} versions "
        "on average and causes the whole tail, and it saves no communication, since the blocks are received anyway.",
        "Injected delays have almost no effect, since b determines how many blocks are late. With b = 100 % no block "
        "is behind.",
    ]


def main(argv: Sequence[str]) -> None:
    """Runs the missing simulations, then writes the table and the figure."""
    del argv
    cluster, path = simulation.cluster_of_flags(), figure.directory(simulation.DEFAULT_WORKDIR)
    wanted = cases(flags.FLAGS.seeds)
    runs = simulation.simulate(cluster, wanted, path, processes=flags.FLAGS.processes)
    shares = histograms(runs)
    figure.publish(
        path,
        "blocks_behind",
        rows(shares),
        title=f"Versions that blocks at a worker are behind; 32 servers, 32 workers, {cluster.iterations} "
        f"iterations, {flags.FLAGS.seeds} seeds",
        reading=reading(shares),
        figure=draw(shares),
    )


if __name__ == "__main__":
    simulation.define_flags()
    launch.run(main, __doc__, configured=False)
