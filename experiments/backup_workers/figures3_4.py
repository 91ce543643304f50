"""Reproduces Figures 3 and 4 of Chen et al. 2016: the time to collect the k-th of 100 gradients.

    python -m experiments.backup_workers.figures3_4 --workdir=runs/backup_workers

Writes figures3_4.md, .csv, .png and .svg to the work directory. Takes 5 seconds.

Nothing is trained: run-times are drawn from sgdlab.cluster.long_tailed with its default parameters, a log-normal body
with a Pareto tail, which model the paper's 100 GPUs. All machines start at the same time; the time to collect k
gradients ends when the k-th gradient arrives.

Results: about 85 % of the 98th gradients and 25 % of the last ones take less than 2 s (paper: 80 % and 30 %, which
independent machines cannot reach together), the means are 1.4 to 1.8 s for most k, and they rise steeply for the last
few.
"""

import math
import pathlib
from collections.abc import Sequence

import matplotlib as mpl
import numpy as np
import scipy.stats
from absl import flags
from matplotlib.figure import Figure

from experiments import figure
from experiments.backup_workers import gathering, options
from sgdlab.commands import launch
from sgdlab.results.plots import STYLE

DEFAULT_WORKDIR = "runs/backup_workers"

SHOWN = (1, 50, 90, 97, 98, 99, 100)
"""Values of k in Figure 3."""
LIMIT = 2.0
"""Seconds below which the paper gives the share of gradients."""
PAPER_UNDER = {98: 80.0, 100: 30.0}
"""k -> % of the k-th gradients that take less than 2 s (section 3.1)."""
PAPER_MEANS = (1.4, 1.8)
"""Seconds between which most means fall (Figure 4)."""
PAPER_LONGEST = 310.0
"""Seconds of the longest gradient (Figure 3)."""


def main(argv: Sequence[str]) -> None:
    """Draws both figures for the values of the flags."""
    del argv
    make(
        figure.directory(DEFAULT_WORKDIR),
        num_iterations=options.whole("iterations", flags.FLAGS.iterations),
        seed=options.whole("seed", flags.FLAGS.seed, least=0),
    )


def make(path: pathlib.Path, *, num_iterations: int, seed: int) -> list[figure.Row]:
    """Draws the run-times and publishes the figures; returns the rows of their table."""
    times = gathering.collected(num_iterations, seed)
    rows = [
        {
            "k": k,
            "under 2 s, %": 100 * float((times[:, k - 1] < LIMIT).mean()),
            "paper, %": PAPER_UNDER.get(k, ""),
            "median, s": float(np.median(times[:, k - 1])),
            "mean, s": float(times[:, k - 1].mean()),
            "99th percentile, s": float(np.quantile(times[:, k - 1], 0.99)),
            "longest, s": float(times[:, k - 1].max()),
        }
        for k in SHOWN
    ]
    figure.publish(
        path,
        "figures3_4",
        rows,
        title=f"Figures 3 and 4: time to collect k of {gathering.MACHINES} gradients, {num_iterations} iterations",
        reading=_reading(times),
        figure=_draw(times),
    )
    return rows


def under(k: int, late: float) -> float:
    """Probability that k machines take less than `LIMIT`, if each is later, independently, with probability `late`."""
    return float(scipy.stats.binom.cdf(gathering.MACHINES - k, gathering.MACHINES, late))


def lateness(k: int, share: float) -> float:
    """Probability of a machine to be late for which `under(k, late)` is `share`: the inverse of `under`."""
    return float(scipy.stats.beta.ppf(1 - share, gathering.MACHINES - k + 1, k))


def iterations_until(seconds: float) -> float:
    """Number of iterations whose longest gradient takes `seconds` in the median, on the default cluster."""
    beyond = (
        gathering.CLUSTER["tail_share"]
        * (gathering.CLUSTER["tail_start"] / seconds) ** (gathering.CLUSTER["tail_index"])
    )
    return math.log(2) / (gathering.MACHINES * beyond)


def _reading(times: np.ndarray) -> list[str]:
    low, high = PAPER_MEANS
    means = times.mean(axis=0)
    inside = int(((means >= low) & (means <= high)).sum())
    by_last, by_98th = lateness(100, 0.3), lateness(98, 0.8)
    late = float((times >= LIMIT).mean())
    cluster = ", ".join(f"{name}={value:g}" for name, value in gathering.CLUSTER.items())
    return [
        f"The run-times have a log-normal body and a Pareto tail: {cluster}.",
        f"The paper's two shares do not fit independent machines. If 30 % of the last gradients take less than 2 s, a "
        f"gradient takes longer with probability {by_last:.4f}, and {100 * under(98, by_last):.0f} % of the 98th take "
        f"less than 2 s; if 80 % of the 98th do, the probability is {by_98th:.4f}, and {100 * under(100, by_98th):.0f} "
        f"% of the last take less than 2 s. The probability here, {late:.4f}, lies between these two and gives "
        f"{100 * under(98, late):.0f} % and {100 * under(100, late):.0f} %. The paper's shares mean that machines are "
        f"late together more often than by chance.",
        f"The mean is between {low:g} and {high:g} s for {inside} of the {gathering.MACHINES} values of k (paper: for "
        f"most of them); it is smaller for the first {int((means < low).sum())} and larger for the last "
        f"{int((means > high).sum())}.",
        f"The longest gradient took {times.max():,.0f} s (paper: {PAPER_LONGEST:g} s). The longest time grows with the "
        f"number of iterations, which the paper does not give; its median is {PAPER_LONGEST:g} s for "
        f"{iterations_until(PAPER_LONGEST):,.0f} iterations. The Pareto tail has infinite variance if tail_index is at "
        f"most 2; the mean of the last gradient ({means[-1]:.2f} s) then depends strongly on the seed.",
    ]


def _draw(times: np.ndarray) -> Figure:
    with mpl.rc_context(STYLE):
        drawn = mpl.figure.Figure(figsize=(10.4, 4.2))
        shares, by_count = drawn.subplots(1, 2)
        level = 100 * np.arange(1, times.shape[0] + 1) / times.shape[0]
        colours = mpl.colormaps["viridis_r"](np.linspace(0.1, 1, len(SHOWN)))
        for k, colour in zip(SHOWN, colours, strict=True):
            seconds = np.sort(times[:, k - 1])
            shares.step(np.r_[0, seconds, 1e9], np.r_[0, level, 100], where="post", color=colour, label=f"k = {k}")
        shares.plot(
            [LIMIT] * len(PAPER_UNDER),
            PAPER_UNDER.values(),
            "ks",
            markersize=5,
            zorder=3,
            label="paper, k = 98 and 100",
        )
        shares.set_xlim(0, 6)
        shares.set_ylim(0, 102)
        shares.set_xlabel("time to collect k gradients, s")
        shares.set_ylabel("share of iterations, %")
        shares.set_title("Figure 3")
        shares.legend(loc="lower right", bbox_to_anchor=(1, 0.02))
        count = np.arange(1, gathering.MACHINES + 1)
        by_count.axhspan(*PAPER_MEANS, color="black", alpha=0.1, linewidth=0, label="most of the paper's means")
        by_count.plot(count, times.mean(axis=0), color="#c51b1b", label="mean")
        by_count.plot(count, np.median(times, axis=0), color="#2166ac", linestyle="--", label="median")
        by_count.set_xlim(0, 101)
        by_count.set_ylim(0)
        by_count.set_xlabel("k, gradients collected")
        by_count.set_ylabel("time to collect k gradients, s")
        by_count.set_title("Figure 4")
        by_count.legend(loc="upper left")
    return drawn


if __name__ == "__main__":
    flags.DEFINE_integer("iterations", 20000, "Number of iterations to draw, with 100 gradients each.")
    flags.DEFINE_integer("seed", 0, "Seed of the run-times.")
    launch.run(main, __doc__, configured=False)
