"""Which method Birch SGD's theorem promises the earliest end, in four regimes of computing and messages.

A gradient of worker i takes h_i seconds, a message with what it has computed tau_i, there and back, during which it
waits. The regimes are those of the comparison of Tyurin and Sivtsov 2025, as far as they were at hand: free messages
(h = 10, tau = 0), slow messages (tau = 100), unequal computing (half of the workers with h = 1, half with 10) and
unequal messages (tau from 1 to 100). Where one of the two is not given, it is h = 10 or tau = 0: our choice.

As in `beyond.birch`, the promised time is the theorem's number of gradients, 4 (R + 1) + 8 sigma^2 / epsilon for
L = Delta = epsilon = 1, times the seconds of a gradient in a simulated schedule, and R is measured. A message of H
local steps is H gradients. Rennala SGD collects sigma^2 / epsilon gradients for an update, Ringmaster ASGD takes
gradients with so small a delay; with local steps, an H-th of it. Methods with local steps are promised what the best H
of a few promises. Where both take one gradient at a time (sigma^2 = epsilon), R is 0, and of equal workers only one is
of use. These combinations stand for the paper's own eight methods, which are built differently; so its table of winners
is not repeated, but only what follows from the theorem in the same regimes. Nothing is trained.
"""

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from experiments.beyond.sources import BIRCH
from experiments.harness import PALETTE, Claim, Count, Output, Scale, Sweep, canvas, figure, goes_by, least
from sgdlab import protocols, theory

TITLES = {
    "synchronous": "full synchrony",
    "rennala": "Rennala SGD",
    "ringmaster": "Ringmaster ASGD",
    "asynchronous": "ASGD",
}
LOCAL = ", local steps"
REGIMES = {
    "free": "free messages",
    "slow": "slow messages",
    "computing": "unequal computing",
    "messages": "unequal messages",
}
UNEQUAL = ("computing", "messages")
STEPS = (2, 8, 32)
LEAST = "least time"
"""In the legend: that of theory, and not the "no loss" of pictures of runs."""


@figure(
    BIRCH,
    "Winners",
    scales={
        "smoke": Scale("2 s", num_workers=[4], rounds=8, steps=[2, 4]),
        "laptop": Scale("1 min"),
    },
    differs="The paper's table of winners and its own eight methods were not at hand.",
    full_size=True,
)
def birch_winners(
    *,
    num_workers: list[Count] = (16, 64, 256),
    rounds: Count = 6,
    steps: list[Count] = STEPS,
) -> Output:
    """Simulates the schedules.

    Args:
      num_workers: numbers of workers, N.
      rounds: number of messages of a schedule, in multiples of N.
      steps: numbers of local steps that are tried.
    """
    over = [
        {"regime": regime, "num_workers": count, "noise": noise, "method": method, "steps": tried}
        for regime in REGIMES
        for count in sorted(num_workers)
        for noise in (1, count)
        for method in TITLES
        for tried in ([1], sorted(steps))
    ]
    runs = Sweep({"rounds": rounds}, over, work=promised).table()
    runs = runs.assign(local=runs.chosen > 1)
    keys = ["regime", "num_workers", "noise"]
    runs = runs.assign(ratio=runs.seconds / runs.groupby(keys).seconds.transform("min"))
    rows = [
        {
            "regime": REGIMES[run.regime],
            "N": run.num_workers,
            "sigma^2 / epsilon": run.noise,
            "method": _title(run),
            "H": run.chosen,
            "R": run.tree_distance,
            "quantity": "promised time over the earliest",
            "ours": run.ratio,
            "paper": None,
        }
        for run in runs.itertuples()
    ]
    notes = [_winners(runs, noise) for noise in ("much", "little")]
    notes.append(
        f'Dotted, "{LEAST}": what no method can beat up to a constant (Tyurin and Richtarik 2023), with the same '
        "L, Delta, sigma^2 and epsilon and the seconds of a gradient; where messages take time, no such time is known."
    )
    return Output(pd.DataFrame(rows), _drawn(runs), claims(runs), notes)


@goes_by(
    theory.certificate, protocols.synchronous, protocols.rennala, protocols.ringmaster, protocols.asynchronous,
)  # fmt: skip
def promised(
    *, regime: str, num_workers: int, noise: int, method: str, steps: list[int], rounds: int
) -> dict[str, Any]:
    """Return the earliest end that the theorem promises.

    Args:
      regime: one of `REGIMES`.
      num_workers: N.
      noise: sigma^2 over epsilon.
      method: of `TITLES`.
      steps: numbers of local steps to choose from.
      rounds: number of messages, in multiples of N.

    Returns:
      `chosen`, the number of local steps; `seconds` that are promised with it; `tree_distance`, R.
    """
    computing, message = of_regime(regime, num_workers)
    problem, messages = theory.Problem(variance=float(noise)), rounds * num_workers
    found = []
    for each in steps:
        # The fastest worker may compute nearly all.
        times = np.tile(each * computing + message, (2 * messages + 2, 1))
        most = max(noise // each, 1)
        own = {"rennala": {"gradients_per_update": most}, "ringmaster": {"max_delay": most}}.get(method, {})
        schedule = getattr(protocols, method)(times, num_gradients=messages, **own)
        certificate = theory.certificate(schedule, steps=each)
        found.append((certificate.seconds_to(problem), each, certificate.tree_distance))
    seconds, chosen, far = min(found)
    return {"chosen": chosen, "seconds": seconds, "tree_distance": far}


def of_regime(regime: str, num_workers: int) -> tuple[np.ndarray, np.ndarray]:
    """float64[N] each: seconds of a worker's gradient, and of its message.

    Args:
      regime: one of `REGIMES`.
      num_workers: N.

    Example:
      >>> of_regime("computing", 4)
      (array([ 1.,  1., 10., 10.]), array([0., 0., 0., 0.]))
    """
    computing, message = np.full(num_workers, 10.0), np.zeros(num_workers)
    if regime == "slow":
        message[:] = 100.0
    elif regime == "computing":
        computing[: num_workers // 2] = 1.0
    elif regime == "messages":
        message[:] = np.linspace(1.0, 100.0, num_workers)
    return computing, message


def _title(run: Any) -> str:
    return TITLES[run.method] + (LOCAL if run.local else "")


def _much(runs: pd.DataFrame) -> pd.Series:
    return runs.noise == runs.num_workers


def _winners(runs: pd.DataFrame, noise: str) -> str:
    told = []
    for regime, title in REGIMES.items():
        of = runs[(_much(runs) == (noise == "much")) & (runs.regime == regime)]
        earliest = of.groupby("num_workers").seconds.transform("min")
        first: dict[str, list[str]] = {}  # ties are promised the same
        for count, best in of[of.seconds <= earliest * (1 + 1e-9)].groupby("num_workers"):
            first.setdefault(" and ".join(map(_title, best.itertuples())), []).append(str(count))
        told.append(f"{title}: " + ", ".join(f"{names} (N = {', '.join(numbers)})" for names, numbers in first.items()))
    size = {"much": "N epsilon", "little": "epsilon"}[noise]
    return f"The earliest promise with sigma^2 = {size}. {'; '.join(told)}."


def claims(runs: pd.DataFrame) -> list[Claim]:
    """Return what the abstract says of methods that update often, and of those that send seldom: by the theorem alone.

    Args:
      runs: a row for each case and method, with `local`, whether it makes local steps.
    """
    keys = ["regime", "num_workers", "noise"]
    best = runs.groupby([*keys, "local"]).seconds.min().unstack("local")
    gain = best[False] / best[True]  # above 1: local steps are earlier
    free, slow = gain.loc["free"], gain.loc["slow"]
    unequal = runs[runs.regime.isin(UNEQUAL)]
    in_step = unequal.method == "synchronous"
    lead = unequal[in_step].groupby(keys).seconds.min() / unequal[~in_step].groupby(keys).seconds.min()
    return [
        Claim(
            "where messages are free, local steps gain nothing: to update with every gradient is better",
            "abstract: some update iterates more frequently, improving practical performance",
            ours=f"with local steps {(1 / free).min():.3g} to {(1 / free).max():.3g} times the time",
            holds=(free <= 1).all(),
            identity=True,
        ),
        Claim(
            "where messages are slow, methods with local steps are the first",
            "abstract: others are more communication-efficient",
            ours=f"{slow.min():.3g} to {slow.max():.3g} times as fast",
            holds=(slow > 1).all(),
            identity=True,
        ),
        Claim(
            "where workers are unequal, not to wait for all is the first",
            "the reason for such methods",
            ours=f"{lead.min():.3g} to {lead.max():.3g} times as fast as full synchrony, with or without local steps",
            holds=(lead > 1).all(),
            identity=True,
        ),
    ]


def _drawn(runs: pd.DataFrame) -> Figure:
    drawn, panels = canvas(2, len(REGIMES), width=4.2 * len(REGIMES), height=7.6, sharex=True, sharey="row")
    counts = sorted(set(runs.num_workers))
    for row, much in zip(panels, (True, False), strict=True):
        for panel, (regime, title) in zip(row, REGIMES.items(), strict=True):
            for width, shade, method in zip((5, 3.5, 2.3, 1.2), PALETTE, TITLES, strict=False):
                for local, style in ((False, "o-"), (True, "s:")):
                    of = runs[(runs.regime == regime) & (runs.method == method) & (runs.local == local)]
                    of = of[_much(of) == much].sort_values("num_workers")
                    label = TITLES[method] + (LOCAL if local else "")
                    # Those of equal promises are seen through the thinner ones on top.
                    size = {"linewidth": width, "markersize": 2 + 1.5 * width}
                    panel.plot(of.num_workers, of.seconds, style, color=shade, label=label, **size)
            if not of_regime(regime, 1)[1].any():
                problems = [theory.Problem(variance=float(count) if much else 1.0) for count in counts]
                floors = [
                    theory.homogeneous(of_regime(regime, count)[0], problem).seconds
                    for count, problem in zip(counts, problems, strict=True)
                ]
                least.line(panel, counts, floors).set_label(LEAST)
            panel.set(xscale="log", yscale="log", title=title if much else "")
            panel.set_xticks(counts, map(str, counts))
            panel.xaxis.minorticks_off()
        row[0].set_ylabel(f"promised time, s\n({'much' if much else 'little'} noise)")
    for panel in panels[1]:
        panel.set_xlabel("workers")
    panels[0, -1].legend(*panels[0, 0].get_legend_handles_labels(), fontsize=7)  # where there is room
    return drawn
