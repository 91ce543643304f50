"""Computes what Birch SGD's theorem promises of four methods, with 16, 64 and 256 workers (Tyurin and Sivtsov 2025).

The theorem needs one number of a method, the largest distance R in its computation tree:

    K >= 4 (R + 1) L Delta / epsilon + 8 sigma^2 L Delta / epsilon^2

gradients are enough. R is measured here of simulated schedules (`sgdlab.theory.certificate`), and the promised time is
K times the seconds of a gradient in the same schedule. Workers are equally fast, or rise from 1 s to the N-th square
root or N seconds; noise is little (sigma^2 = epsilon) or much (sigma^2 = N epsilon). Rennala SGD collects sigma^2 /
epsilon gradients for an update, and Ringmaster ASGD takes gradients with so small a delay. The least time is what no
method can beat up to a constant (Tyurin and Richtarik 2023), with L = Delta = epsilon = 1. Nothing is trained.

The paper's own comparison, with times of messages and local steps, was not at hand; `beyond.birch_winners` applies the
theorem in its regimes.
"""

from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from experiments.beyond.sources import BIRCH
from experiments.harness import PALETTE, Claim, Count, NotNegative, Output, Scale, Sweep, canvas, figure, goes_by
from experiments.thresholds import BIRCH_CONSTANT
from sgdlab import cluster, protocols, theory

TITLES = {
    "synchronous": "full synchrony",
    "rennala": "Rennala SGD",
    "ringmaster": "Ringmaster ASGD",
    "asynchronous": "ASGD",
}
OPTIMAL = ("rennala", "ringmaster")


@figure(
    BIRCH,
    "Regimes",
    scales={
        "smoke": Scale("2 s", num_workers=[4, 8], powers=[0.0, 1.0], rounds=10),
        "laptop": Scale("1 min"),
    },
    differs="The paper compares other regimes and methods too; here the theorem is applied to simulated schedules.",
    full_size=True,
)
def birch(
    *,
    num_workers: list[Count] = (16, 64, 256),
    powers: list[NotNegative] = (0.0, 0.5, 1.0),
    rounds: Count = 40,
) -> Output:
    """Simulates the schedules.

    Args:
      num_workers: numbers of workers, N.
      powers: the slowest worker takes N to this power times as long as the fastest.
      rounds: number of gradients of a schedule, in multiples of N.
    """
    over = [
        {"num_workers": count, "power": power, "noise": noise, "method": method}
        for count in sorted(num_workers)
        for power in sorted(powers)
        for noise in (1, count)
        for method in TITLES
    ]
    runs = Sweep({"rounds": rounds}, over, work=promised).table()
    runs = runs.assign(ratio=runs.seconds / runs.least)
    keys = ["num_workers", "power", "noise"]
    rows = [
        {
            "N": run.num_workers,
            "slowest over fastest": float(run.num_workers) ** run.power,
            "sigma^2 / epsilon": run.noise,
            "method": TITLES[run.method],
            "R": run.tree_distance,
            "quantity": "promised time over the least",
            "ours": run.ratio,
            "paper": None,
        }
        for run in runs.itertuples()
    ]
    first = runs.loc[runs.groupby(keys).seconds.idxmin()]
    won = first.method.map(TITLES).value_counts()
    note = f"The earliest promise, of {len(first)} cases: {', '.join(f'{title} {n}' for title, n in won.items())}."
    return Output(pd.DataFrame(rows), _drawn(runs), claims(runs), [note])


@goes_by(
    cluster.Ladder, theory.certificate, theory.homogeneous, protocols.synchronous, protocols.rennala,
    protocols.ringmaster, protocols.asynchronous,
)  # fmt: skip
def promised(*, num_workers: int, power: float, noise: int, method: str, rounds: int) -> dict[str, Any]:
    """Return the certificate of a schedule, and the least time.

    Args:
      num_workers: N.
      power: of the cluster.
      noise: sigma^2 over epsilon.
      method: of `TITLES`.
      rounds: number of gradients, in multiples of N.

    Returns:
      `tree_distance`, R; `seconds` that the theorem promises; `least`, the least time.
    """
    law = cluster.Ladder(num_workers, power=power, noise=0.0)
    gradients = rounds * num_workers
    # The fastest worker may compute nearly all.
    times = law.draw(2 * gradients + 2, seed=0)
    own = {"rennala": {"gradients_per_update": noise}, "ringmaster": {"max_delay": noise}}.get(method, {})
    schedule = getattr(protocols, method)(times, num_gradients=gradients, **own)
    problem, found = theory.Problem(variance=float(noise)), theory.certificate(schedule)
    return {
        "tree_distance": found.tree_distance,
        "seconds": found.seconds_to(problem),
        "least": theory.homogeneous(times[0], problem).seconds,
    }


def claims(runs: pd.DataFrame) -> list[Claim]:
    """Return what the paper says of R, and which methods are optimal: identities, as schedules have no noise."""
    of = {method: runs[runs.method == method] for method in TITLES}
    exact = (of["rennala"].tree_distance == of["rennala"].noise - 1).all()
    most = (of["ringmaster"].tree_distance <= of["ringmaster"].noise - 1).all()
    worst = {method: float((found.seconds / found.least).max()) for method, found in of.items()}
    return [
        Claim(
            "Rennala SGD with batches of B has R = B - 1",
            "as summarised: R of known methods",
            ours=f"in {len(of['rennala'])} schedules" if exact else "not in all schedules",
            holds=bool(exact),
            identity=True,
        ),
        Claim(
            "Ringmaster ASGD with delays below G has R = G - 1 at most",
            "as summarised: R of known methods",
            ours=f"in {len(of['ringmaster'])} schedules" if most else "not in all schedules",
            holds=bool(most),
            identity=True,
        ),
        Claim(
            f"Rennala SGD and Ringmaster ASGD are optimal up to a constant (here: {BIRCH_CONSTANT:g})",
            "abstract: optimal computational time complexity",
            ours=", ".join(f"at most {worst[m]:.3g} times the least time ({TITLES[m]})" for m in OPTIMAL),
            holds=all(worst[m] <= BIRCH_CONSTANT for m in OPTIMAL),
            identity=True,
        ),
        Claim(
            "full synchrony and asynchronous SGD are not",
            "the reason for such methods",
            ours=", ".join(f"up to {worst[m]:.3g} times ({TITLES[m]})" for m in TITLES if m not in OPTIMAL),
            holds=all(worst[m] > BIRCH_CONSTANT for m in TITLES if m not in OPTIMAL),
            identity=True,
        ),
    ]


def _drawn(runs: pd.DataFrame) -> Figure:
    powers, counts = sorted(set(runs.power)), sorted(set(runs.num_workers))
    drawn, panels = canvas(1, len(powers), width=4.4 * len(powers), height=4.4, sharey=True)
    for panel, power in zip(panels[0], powers, strict=True):
        for shade, (method, title) in zip(PALETTE, TITLES.items(), strict=False):
            for much, style in ((False, "o--"), (True, "o-")):
                of = runs[(runs.power == power) & (runs.method == method)]
                of = of[(of.noise > 1) == much].sort_values("num_workers")
                label = title if much else None
                panel.plot(of.num_workers, of.seconds / of.least, style, color=shade, label=label)
        panel.set(xscale="log", yscale="log", title=f"slowest: N^{power:g} s", xlabel="workers")
        panel.set_xticks(counts, map(str, counts))
        panel.minorticks_off()
    panels[0, 0].set_ylabel("promised time over the least\n(broken: little noise)")
    panels[0, -1].legend(fontsize=8)
    return drawn
