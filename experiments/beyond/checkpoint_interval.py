"""The best interval between checkpoints of a job that fails, against its closed forms (Young 1974; Daly 2006).

A job of one worker does 100 s of work for a gradient, writes checkpoints of C seconds, and rolls back to the last of
them at each failure; failures are exponential with mean M, and a restart takes R seconds in which nothing fails. Of an
interval of I seconds of work, the mean time is (M + R) (exp((I + C) / M) - 1), so that the goodput is I over that; its
maximum is near Young's interval, sqrt(2 C M). Parameters are those without failures, so that nothing is trained.
"""

import math
from collections.abc import Iterator

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from experiments.beyond.sources import YOUNG
from experiments.harness import (
    PALETTE,
    Claim,
    Count,
    Output,
    Positive,
    Scale,
    Sweep,
    all_of,
    below,
    canvas,
    figure,
    goes_by,
)
from experiments.thresholds import GOODPUT_EXACT
from sgdlab import failures, protocols

SHARES = (0.25, 0.5, 1.0, 2.0, 4.0)
"""Intervals, over Young's."""


@figure(
    YOUNG,
    "Interval",
    scales={"smoke": Scale("2 s", hours=[1.0], failures_each=50, seeds=2), "laptop": Scale("1 min")},
    differs="Failures are drawn, and the goodput is measured; the formulas are the papers'.",
    full_size=True,
)
def checkpoint_interval(
    *,
    hours: list[Positive] = (1.0, 6.0, 24.0),
    checkpoint_seconds: Positive = 60.0,
    restart_seconds: Positive = 300.0,
    failures_each: Count = 1000,
    seeds: Count = 10,
) -> Output:
    """Measure the goodput of several intervals.

    Args:
      hours: mean times between failures.
      checkpoint_seconds: C.
      restart_seconds: R.
      failures_each: failures of a run, about.
      seeds: number of seeds.
    """
    base = {"checkpoint_seconds": checkpoint_seconds, "restart_seconds": restart_seconds, "number": failures_each}
    runs = Sweep(base, {"hours": sorted(hours), "share": SHARES, "seed": range(seeds)}, work=measured).table()
    means = runs.groupby(["hours", "share"]).mean(numeric_only=True)
    rows = [
        {"M, h": h, "interval over sqrt(2 C M)": share, "quantity": "goodput", "ours": of.goodput, "paper": of.exact}
        for (h, share), of in means.iterrows()
    ]
    return Output(pd.DataFrame(rows), _drawn(runs), claims(runs), ["The column of the papers is the formula."])


@goes_by(protocols.asynchronous, failures.independent, failures.rolled_back)
def measured(
    *, hours: float, share: float, checkpoint_seconds: float, restart_seconds: float, number: int, seed: int
) -> dict[str, float]:
    """Return the goodput of an interval, measured and by the formula.

    Args:
      hours: M.
      share: of Young's interval.
      checkpoint_seconds: C.
      restart_seconds: R.
      number: failures, about.
      seed: of the failures.
    """
    mean = 3600.0 * hours
    interval = share * math.sqrt(2 * checkpoint_seconds * mean)
    costs = failures.CheckpointCosts(
        interval_seconds=interval, checkpoint_seconds=checkpoint_seconds, restart_seconds=restart_seconds
    )
    outages = failures.independent(num_workers=1, seed=seed, mean_up_hours=hours, repair_minutes=0.0, spread=0.0)
    work = protocols.asynchronous(np.full((int(number * mean / 100.0), 1), 100.0))
    job = failures.rolled_back(work, _between_restarts(outages, restart_seconds), costs)
    exact = interval / ((mean + restart_seconds) * (math.exp((interval + checkpoint_seconds) / mean) - 1))
    return {"goodput": work.wall_clock() / job.wall_clock(), "exact": exact}


def _between_restarts(outages: failures.Outages, restart: float) -> Iterator[tuple[float, float]]:
    """Yield failures of which none comes during a restart: each is drawn from the end of the one before."""
    for number, (down, up) in enumerate(outages.of_job()):
        yield down + number * restart, up + number * restart


def claims(runs: pd.DataFrame) -> list[Claim]:
    """Return what the papers say of the best interval, and the formula."""
    of = {key: found.sort_values("seed").goodput.to_numpy() for key, found in runs.groupby(["hours", "share"])}
    hours = sorted(set(runs.hours))
    best = {h: max(SHARES, key=lambda share: of[h, share].mean()) for h in hours}
    groups = [found for _, found in runs.groupby(["hours", "share"])]
    off = [np.abs(found.goodput.mean() / found.exact.mean() - 1) for found in groups]
    errors = [np.abs(found.goodput / found.exact - 1).to_numpy() for found in groups]
    return [
        Claim(
            "The best interval between checkpoints is about the square root of 2 C M",
            "Young 1974",
            ours="; ".join(f"M = {h:g} h: best at {best[h]:g} times that, of {SHARES}" for h in hours),
            holds=all_of(below(of[h, share] - of[h, 1.0], 0.0) for h in hours for share in SHARES if share != 1.0),
        ),
        Claim(
            f"The mean time of an interval is (M + R) (exp((I + C) / M) - 1) (here: within {100 * GOODPUT_EXACT:g} %)",
            "Daly 2006",
            ours=f"goodputs differ by at most {100 * max(off):.2g} % on average over seeds",
            holds=all_of(below(error, GOODPUT_EXACT) for error in errors),
        ),
    ]


def _drawn(runs: pd.DataFrame) -> Figure:
    drawn, panels = canvas(1, 1, width=6.4, height=4.4)
    panel = panels[0, 0]
    for shade, (h, found) in zip(PALETTE, runs.groupby("hours"), strict=False):
        means = found.groupby("share").goodput.agg(["mean", "std"])
        panel.errorbar(means.index, means["mean"], 2 * means["std"], fmt="o", color=shade, label=f"M = {h:g} h")
        exact = found.groupby("share").exact.mean()
        panel.plot(exact.index, exact, "--", color=shade)
    panel.set(xscale="log", xlabel="interval over Young's, sqrt(2 C M)", ylabel="goodput")
    panel.set_xticks(SHARES, [f"{share:g}" for share in SHARES])
    panel.minorticks_off()
    panel.legend(title="points: measured, ± 2 s.d.\nbroken: formula")
    return drawn
