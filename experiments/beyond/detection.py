"""Goodput under failures, by protocol, against how soon a failure is detected (sgdlab).

Gradients take 1 s (gamma, coefficient of variation 0.2). A worker is up for 500 s on average, is repaired in 50 s, and
reads a checkpoint for 30 s before it begins again; what it computes when it fails is lost. Goodput is the share of the
time of all workers, down or not, in which they computed gradients that were used. Nothing is trained.
"""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from experiments.beyond.sources import SGDLAB
from experiments.harness import (
    Claim,
    Count,
    NotNegative,
    Output,
    Positive,
    Scale,
    Sweep,
    above,
    all_of,
    band,
    below,
    canvas,
    colour,
    figure,
    goes_by,
    interval,
    look,
)
from experiments.thresholds import GOODPUT_LOST
from sgdlab import failures, policies, protocols

TITLES = {
    "synchronous": "Synchronous SGD",
    "backup_workers": "2 backup workers",
    "bounded_staleness": "Bounded staleness, 4",
    "asynchronous": "ASGD",
}
NEVER = "no failures"


@figure(
    SGDLAB,
    "Failures",
    scales={
        "smoke": Scale("2 s", num_workers=8, gradients=800, seconds=[0.0, 30.0], seeds=2),
        "laptop": Scale("1 min"),
    },
    differs="There is no paper: rates of failure are those of a cluster that fails often, so that runs are short.",
    full_size=True,
)
def detection(
    *,
    num_workers: Count = 32,
    seconds: list[NotNegative] = (0.0, 1.0, 2.0, 5.0, 10.0, 30.0),
    up_seconds: Positive = 500.0,
    gradients: Count = 30_000,
    seeds: Count = 10,
) -> Output:
    """Measure the goodput of protocols.

    Args:
      num_workers: N.
      seconds: until the server knows that a worker is lost.
      up_seconds: mean time that a worker is up.
      gradients: of a run.
      seeds: number of seeds.
    """
    base = {"num_workers": num_workers, "up_seconds": up_seconds, "gradients": gradients}
    times = sorted(seconds)
    over = {"protocol": list(TITLES), "detected": [-1.0, *times], "seed": range(seeds)}
    runs = Sweep(base, over, work=measured).table()
    means = runs.groupby(["protocol", "detected"]).goodput.mean()
    rows = [
        {
            "protocol": TITLES[name],
            "detected after, s": NEVER if detected < 0 else f"{detected:g}",
            "quantity": "goodput",
            "ours": value,
            "paper": None,
        }
        for (name, detected), value in means.items()
    ]
    return Output(pd.DataFrame(rows), _drawn(runs), claims(runs))


@goes_by(
    policies.asynchronous,
    policies.synchronous,
    policies.backup_workers,
    policies.bounded_staleness,
    failures.independent,
)
def measured(
    *, protocol: str, detected: float, num_workers: int, up_seconds: float, gradients: int, seed: int
) -> dict[str, float]:
    """Return the goodput of a protocol.

    Args:
      protocol: of `TITLES`.
      detected: seconds until the server knows of a loss; below 0: nobody fails.
      num_workers: N.
      up_seconds: mean time that a worker is up.
      gradients: of the run.
      seed: of compute times and failures.
    """
    runtimes = np.random.default_rng([seed, 1]).gamma(25, 1 / 25, (4 * gradients // num_workers + 200, num_workers))
    outages = None
    if detected >= 0:
        recovery = failures.Recovery(detect_seconds=detected, rejoin_seconds=30.0)
        hours = {"mean_up_hours": up_seconds / 3600, "repair_minutes": 50 / 60}
        outages = failures.independent(num_workers=num_workers, seed=seed, **hours, recovery=recovery)
    own = {"backup_workers": {"backups": 2}, "bounded_staleness": {"bound": 4}}.get(protocol, {})
    schedule = getattr(protocols, protocol)(runtimes, num_gradients=gradients, outages=outages, **own)
    return {"goodput": schedule.goodput()}


def claims(runs: pd.DataFrame) -> list[Claim]:
    """Return what we say of detection."""
    of = {key: found.sort_values("seed").goodput.to_numpy() for key, found in runs.groupby(["protocol", "detected"])}
    times = sorted(detected for detected in set(runs.detected) if detected >= 0)
    soon, late = times[0], times[-1]
    lost = of["asynchronous", soon] - of["asynchronous", late]
    words = lambda name: " to ".join(f"{interval(of[name, when])}" for when in (soon, late))
    return [
        Claim(
            f"Synchronous SGD loses most of its goodput where a failure is detected after {late:g} s instead of "
            f"{soon:g} s, with backup workers or without",
            "docs/messages.md",
            ours="; ".join(f"{TITLES[name]}: {words(name)}" for name in ("synchronous", "backup_workers")),
            holds=all_of(above(of[name, soon] - 2 * of[name, late]) for name in ("synchronous", "backup_workers")),
        ),
        Claim(
            "Asynchronous SGD loses no more than the time of the workers that are down",
            "docs/messages.md",
            ours=f"{words('asynchronous')}; {interval(of['asynchronous', -1.0])} without failures",
            holds=below(np.abs(lost), GOODPUT_LOST, resolution=0.001),
        ),
    ]


def _drawn(runs: pd.DataFrame) -> Figure:
    drawn, panels = canvas(1, 1, width=6.4, height=4.4)
    panel = panels[0, 0]
    times = sorted(detected for detected in set(runs.detected) if detected >= 0)
    places = np.arange(len(times))
    for name, title in TITLES.items():
        found = runs[(runs.protocol == name) & (runs.detected >= 0)].pivot(index="seed", columns="detected")["goodput"]
        shade = colour(name)
        means = [interval(found[when]) for when in times]
        band(panel, places, means, marker=look(name).marker, color=shade)
        panel.annotate(f"  {title}", (places[-1], means[-1].mean), fontsize=8, va="center", color=shade)
        free = runs[(runs.protocol == name) & (runs.detected < 0)].goodput.mean()
        panel.axhline(free, color=shade, linestyle=":", linewidth=1)
    panel.set_xticks(places, [f"{when:g}" for when in times])
    panel.set(xlabel="seconds until a failure is detected (dotted: no failures)", ylabel="goodput", ylim=(0, 1.02))
    panel.set_xlim(-0.3, places[-1] + 1.6)
    return drawn
