"""Time to collect the k-th of 100 gradients in synchronous SGD (Chen et al. 2016, Figures 3 and 4).

Nothing is trained: compute times are drawn from sgdlab.cluster.LongTailed with its default parameters, a log-normal
body with a Pareto tail, which model the paper's 100 GPUs. All machines start at the same time; the time to collect k
gradients ends when the k-th gradient arrives. Intervals are over 20 parts of the iterations. As the law was made to
have the means, the tail and the shares that the paper prints, that it has them is checked, and no finding.
"""

import itertools

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from experiments import papers
from experiments.backup_workers.stragglers import (
    LIMIT,
    MACHINES,
    collected,
    in_parts,
    iterations_until,
    lateness,
    under,
)
from experiments.harness import (
    PALETTE,
    PAPER,
    Claim,
    Count,
    Output,
    Scale,
    Whole,
    above,
    all_of,
    between,
    canvas,
    figure,
    some_of,
)

SHOWN = (1, 50, 90, 97, 98, 99, 100)
"""Values of k in Figure 3."""
LONGEST = 310.0
"""Seconds of the longest gradient (Figure 3)."""
LOW, HIGH = 1.4, 1.8
"""Seconds between which most means fall (Figure 4)."""
QUANTITIES = {
    "under 2 s, %": (lambda seconds: 100 * (seconds < LIMIT).mean(), {98: 80.0, 100: 30.0}),
    "median, s": (np.median, {}),
    "mean, s": (np.mean, {}),
    "99th percentile, s": (lambda seconds: np.quantile(seconds, 0.99), {}),
    "longest, s": (np.max, {100: LONGEST}),
}
"""Quantity -> how it is computed, and k -> what the paper prints."""


@figure(
    papers.CHEN,
    ("Figure 3", "Figure 4"),
    scales={"smoke": Scale("2 s", iterations=500), "laptop": Scale("5 s")},
    full_size=True,
    differs="Run-times are independent draws from a model that was chosen to resemble the few that the paper prints.",
)
def figures3_4(*, iterations: Count = 20_000, seed: Whole = 0) -> Output:
    """Draws the compute times.

    Args:
      iterations: number of iterations to draw, with 100 gradients each.
      seed: seed of the compute times.
    """
    times = collected(iterations, seed)
    rows = [
        (k, name, compute(times[:, k - 1]), printed.get(k, np.nan))
        for name, (compute, printed) in QUANTITIES.items()
        for k in SHOWN
    ]
    means, late = times.mean(axis=0), (times >= LIMIT).mean()
    parts = in_parts(times)
    growth = np.diff(np.log(np.diff(parts[:, -7:])))  # its mean over the parts is less skewed than the ratio's
    factors = ", ".join(f"{factor:.1f}" for factor in np.exp(growth.mean(axis=0)))
    most = some_of(MACHINES // 2 + 1, [between(of_k, LOW, HIGH) for of_k in parts.T])
    count = {k: int((times[:, k - 1] < LIMIT).sum()) for k in (98, 100)}
    by_last, by_98th = lateness(100, 0.3), lateness(98, 0.8)
    claims = [
        Claim(
            "Most mean times fall between 1.4s and 1.8s, except of final few gradients",
            "Figure 4",
            ours=f"{np.sum((means >= LOW) & (means <= HIGH))} of {MACHINES} do; {np.sum(means < LOW)} are smaller, and "
            f"the last {np.sum(means > HIGH)} larger",
            holds=all_of([most, above(parts[:, -1], HIGH)]),
            identity=True,
        ),
        Claim(
            "The time to collect the final few gradients grows exponentially (by factors that rise, rather than fall)",
            "section 3.1",
            ours=f"each of the last 5 adds {factors} times as much as the one before",
            holds=all_of([*map(above, growth.T), above(growth[:, -1] - growth[:, 0])]),
            identity=True,
        ),
    ]
    notes = [
        f"Within {LIMIT:g} s, {count[98] / iterations:.0%} of the 98th and {count[100] / iterations:.0%} of the last "
        f"gradients arrive, by the binomial law {under(98, late):.0%} and {under(100, late):.0%} for machines that are "
        f"late with probability {late:.4f}. The paper reads 80% and 30%, which independent machines cannot both have: "
        f"30% at the last means a probability of {by_last:.4f} and {under(98, by_last):.0%} at the 98th; 80% at the "
        f"98th means {by_98th:.4f} and {under(100, by_98th):.0%} at the last.",
        f"The longest time grows with the number of iterations, which the paper does not give: its median is "
        f"{LONGEST:g} s for {iterations_until(LONGEST):,.0f} iterations. The tail's variance is infinite, so that the "
        "mean time of the last gradient depends strongly on the seed.",
    ]
    table = pd.DataFrame(rows, columns=["k", "quantity", "ours", "paper"])
    return Output(table, _picture(times), claims, notes)


def _picture(times: np.ndarray) -> Figure:
    drawn, ((shares, by_count),) = canvas(1, 2, width=12)
    level = 100 * np.arange(len(times) + 1) / len(times)
    for k, shade, dash in zip(SHOWN, PALETTE, itertools.cycle(("-", "--", "-.", ":")), strict=False):
        seconds = np.r_[0, np.sort(times[:, k - 1]), 1e9]
        shares.step(seconds, np.r_[level, 100], where="post", color=shade, linestyle=dash, label=f"k = {k}")
    shares.plot([LIMIT, LIMIT], [80, 30], "s", color=PAPER, zorder=3, label="paper, k = 98 and 100")
    shares.set(xlim=(0, 6), ylim=(0, 102), xlabel="time to collect k gradients, s", ylabel="share of iterations, %")
    shares.set_title("Figure 3")
    count = np.arange(1, MACHINES + 1)
    by_count.axhspan(LOW, HIGH, color=PAPER, alpha=0.12, linewidth=0, label="most of the paper's means")
    by_count.plot(count, times.mean(axis=0), color=PALETTE[5], label="mean")
    by_count.plot(count, np.median(times, axis=0), color=PALETTE[0], linestyle="--", label="median")
    by_count.set(xlim=(0, MACHINES + 1), ylim=(0, None), xlabel="k, gradients collected")
    by_count.set(title="Figure 4", ylabel="time to collect k gradients, s")
    shares.legend(loc="lower right")
    by_count.legend(loc="upper left")
    return drawn
