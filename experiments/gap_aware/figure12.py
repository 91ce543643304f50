"""Speed-ups of asynchronous and synchronous SGD with up to 1,000 workers (Barkai et al. 2020, Figure 12).

Compute times are gamma-distributed as in Figure 3. Asynchronous workers (ASGD) never wait; synchronous ones (SSGD) wait
in every iteration for the slowest. The speed-up is gradients per second over those of one worker of the same
environment; communication takes no time. Simulated speed-ups stand beside closed forms: N for ASGD, N over the expected
time of the slowest of N iterations for SSGD. Where machines are unequal, the latter is a little below the mean speed-up
of the runs, since it averages times rather than speeds.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd
import scipy.optimize
from matplotlib.figure import Figure as Picture
from matplotlib.ticker import NullFormatter

from experiments import papers
from experiments.gap_aware import run_times
from experiments.harness import (
    PALETTE,
    Claim,
    Count,
    Output,
    Scale,
    Sweep,
    above,
    all_of,
    below,
    between,
    canvas,
    colour,
    enough,
    figure,
    goes_by,
    interval,
)
from experiments.harness import PAPER as BLACK
from experiments.thresholds import FIGURE12_LINEAR
from sgdlab.cluster import Gamma

ENVIRONMENTS = {  # spread of the machines' means, spread around them, what `Gamma` takes
    "homogeneous": (0.0, 0.1, {"task_variation": 1e-6}),
    "heterogeneous": (0.6, 0.1, {"heterogeneous": True}),
}
PAPER = {"homogeneous": 1.21, "heterogeneous": 6.0}
"""The largest ratio of the speeds of ASGD and SSGD that the paper names."""

LARGEST = 1000
"""Workers at the right end of the paper's axes."""

RATIO = "ASGD over SSGD"
QUANTITIES = ("ASGD speed-up", "SSGD speed-up", RATIO)


@goes_by(Gamma)
def simulated(*, environment: str, num_workers: int, gradients: int, runs: int) -> dict[str, list[float]]:
    """Speed-ups in all runs with one number of workers.

    Args:
      environment: "homogeneous" or "heterogeneous".
      num_workers: N.
      gradients: of all workers together, in each run.
      runs: number of runs, each with a seed of its own.
    """
    between, _, options = ENVIRONMENTS[environment]
    law, single = Gamma(num_workers, mean=1.0, **options), run_times.expected_rate(between)
    found = {
        name: np.array([rate(law, num_gradients=gradients, seed=seed) for seed in range(runs)]) / single
        for name, rate in zip(QUANTITIES, (run_times.asynchronous_rate, run_times.synchronous_rate), strict=False)
    }
    found[RATIO] = found["ASGD speed-up"] / found["SSGD speed-up"]
    return {name: values.tolist() for name, values in found.items()}


def closed_forms(environment: str, num_workers: np.ndarray) -> dict[str, np.ndarray]:
    """Return the expected quantities for each number of workers."""
    between, within, _ = ENVIRONMENTS[environment]
    slowest = run_times.expected_maximum(num_workers, between=between, within=within)
    ratio = slowest * run_times.expected_rate(between)
    return dict(zip(QUANTITIES, (num_workers, num_workers / ratio, ratio), strict=True))


@figure(
    papers.GAP,
    "Figure 12",
    scales={"smoke": Scale("2 s", num_workers=[4, 32], gradients=2000, runs=3), "laptop": Scale("1 min")},
    full_size=True,
    differs="The paper prints neither its curves nor whose speed counts as 1; here that is the mean speed of one "
    "worker, with which ASGD is linear, as the paper says.",
)
def figure12(
    *,
    num_workers: Sequence[Count] = (4, 8, 16, 32, 64, 125, 250, 500, 750, 1000),
    gradients: Count = 100_000,
    runs: Count = 20,
) -> Output:
    """Simulates the clusters and computes the closed forms.

    Args:
      num_workers: numbers of workers.
      gradients: gradients that all workers of a run make together: the paper's iterations.
      runs: runs of each environment and number of workers.
    """
    workers = np.array(sorted(num_workers))
    over = {"environment": list(ENVIRONMENTS), "num_workers": workers.tolist()}
    found = Sweep({"gradients": gradients, "runs": runs}, over, work=simulated).table()
    rows = []
    for environment, of_environment in found.groupby("environment", sort=False):
        for quantity, formula in closed_forms(environment, workers).items():
            middle = [interval(values) for values in of_environment[quantity]]
            about = {"environment": environment, "quantity": quantity}
            for count, exact, ours in zip(workers, formula, middle, strict=True):
                rows.append(about | {"workers": count, "in closed form": exact, "ours": ours.mean, "±": ours.half})
        ours, about = max(middle, key=lambda of_runs: of_runs.mean), about | {"quantity": f"{RATIO}, largest"}
        found_largest = {"in closed form": formula.max(), "ours": ours.mean, "±": ours.half}
        rows.append(about | found_largest | {"paper": PAPER[environment]})
    table = pd.DataFrame(rows).astype({"workers": "Int64"})
    notes = [
        f"± is a 95 % confidence interval over {runs} runs.",
        "All workers begin at once, so that after few gradients per worker ASGD has not quite its long-run speed.",
    ]
    return Output(table, _drawn(table), claims(found, *workers[[0, -1]]), notes)


def _drawn(table: pd.DataFrame) -> Picture:
    """Markers with error bars are simulated, lines are closed forms."""
    drawn, (panels,) = canvas(1, 2, width=11, height=4.8)
    workers = table.workers.dropna().astype(int)
    dense = np.unique(np.geomspace(workers.min(), workers.max(), 80).astype(int))
    for environment, line, marker, shade in zip(ENVIRONMENTS, ["-", "--"], "os", PALETTE[2:4], strict=True):
        for (quantity, formula), panel in zip(closed_forms(environment, dense).items(), panels[[0, 0, 1]], strict=True):
            method = "" if quantity == RATIO else f" {quantity[:4]}"
            tint = colour(quantity[:4]) if method else shade
            ours = table[(table.environment == environment) & (table.quantity == quantity)]
            panel.plot(dense, formula, color=tint, linestyle=line)
            style = {"linestyle": "none", "marker": marker, "markerfacecolor": "white", "color": tint}
            panel.errorbar(ours.workers, ours.ours, ours["±"], label=f"{environment}{method}", **style)
        panels[1].axhline(PAPER[environment], color=BLACK, linewidth=1, linestyle=line)
    panels[1].text(dense[0], 6.05, "paper: up to 6", va="bottom")
    panels[1].text(dense[-1], 1.2, "paper: up to 1.21", va="top", ha="right")
    panels[0].plot([0, dense[-1]], [0, dense[-1]], color=BLACK, linewidth=1.2, linestyle=":", label="linear", zorder=5)
    panels[0].set(title="speed-up over one worker", ylabel="speed-up", xlim=(0, None), ylim=(0, None))
    panels[1].set(title="ASGD over SSGD", ylabel="speed of ASGD / speed of SSGD", xscale="log", yscale="log")
    panels[1].set(ylim=(1, 7.5), yticks=range(1, 8), yticklabels=range(1, 8))
    panels[1].yaxis.set_minor_formatter(NullFormatter())
    panels[0].legend()
    panels[1].legend(loc=(0.52, 0.4))
    for panel in panels:
        panel.set_xlabel("workers")
    return drawn


def claims(found: pd.DataFrame, fewest: int, most: int) -> list[Claim]:
    """Return the claims of Appendix D, at the largest number of workers; the paper's is 1,000."""

    def values(environment: str, quantity: str, workers: int) -> np.ndarray:
        (of_runs,) = found[(found.environment == environment) & (found.num_workers == workers)][quantity]
        return np.array(of_runs)

    at_most = f"at {most:,} workers"
    ratio = {name: interval(values(name, RATIO, most)) for name in ENVIRONMENTS}
    linear = {name: values(name, "ASGD speed-up", most) / most for name in ENVIRONMENTS}
    share = {name: [values(name, "SSGD speed-up", n) / n for n in (fewest, most)] for name in ENVIRONMENTS}
    as_many = [enough("workers", most, LARGEST, share=1)]
    return [
        Claim(
            "ASGD-based algorithms are up to 21 % faster than SSGD in homogeneous environments (of at most 1,000)",
            "Appendix D, Figure 12(b)",
            ours=f"{ratio['homogeneous']} times as fast {at_most}; in closed form at most 1.21 times with up to "
            f"{_workers_with('homogeneous')} workers",
            holds=below(ratio["homogeneous"], PAPER["homogeneous"]),
            paper="up to 21 %",
            because=f"The axes end at {LARGEST:,} workers. 21 % is the most there with a coefficient of variation of "
            f"{_spread():.2f}; that of Algorithm 12 is 0.1.",
            premises=as_many,
        ),
        Claim(
            "in heterogeneous environments, ASGD methods can be 6x faster than SSGD",
            "Appendix D, Figure 12(b)",
            ours=f"{ratio['heterogeneous']} times as fast {at_most}; in closed form less than 6 times with up to "
            f"{_workers_with('heterogeneous')} workers",
            holds=above(ratio["heterogeneous"], PAPER["heterogeneous"]),
            paper="6x",
            premises=as_many,
        ),
        Claim(
            "ASGD enjoys linear speed-up in both environments",
            "Appendix D, Figure 12(a)",
            ours=", ".join(f"{name}: {interval(of)} of linear" for name, of in linear.items()) + f" {at_most}",
            holds=all_of(between(of - 1, -FIGURE12_LINEAR, FIGURE12_LINEAR) for of in linear.values()),
        ),
        Claim(
            "SSGD falls short as the number of workers increases",
            "Appendix D, Figure 12(a)",
            ours="; ".join(
                f"{name}: {interval(100 * first)} % of linear at {fewest} workers, {interval(100 * last)} % {at_most}"
                for name, (first, last) in share.items()
            ),
            holds=all_of(above(first - last) for first, last in share.values()),
        ),
    ]


def _workers_with(environment: str) -> int:
    """Return the largest number of workers with which the ratio is, in closed form, at most what the paper names."""
    workers = np.arange(1, LARGEST + 1)
    return int(workers[closed_forms(environment, workers)[RATIO] <= PAPER[environment]].max())


def _spread() -> float:
    """Return the spread of homogeneous compute times with which the ratio is what the paper names at most workers."""
    slowest = lambda within: run_times.expected_maximum(np.array(LARGEST), between=0.0, within=within)
    return scipy.optimize.brentq(lambda within: slowest(within) - PAPER["homogeneous"], 0.02, 0.1, xtol=1e-4)
