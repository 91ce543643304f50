"""Goodput of learners that fail, and the loss at equal goodput (Decoupled DiLoCo, 2026).

Goodput: a chip fails once a year, and a learner stalls for some seconds after each failure of one of its chips. A job
of one learner stalls as a whole; of several, DiLoCo waits for all after every 24 steps of 1 s, a quorum that drops what
is late for half, Decoupled DiLoCo merges what has come, and asynchronous learners wait for nobody. The seconds of a
stall and the share of the machines that take part, 16.8 s and 95 %, are fitted to two published numbers; so published
numbers stand beside ours without a verdict.

Loss: four learners of equal machines train digits, or a language model of bytes, with as many steps in all, once
without failures and once where a learner fails after half an hour on average and what it has done since its last
message is lost. The server's rate and momentum are those of a grid with which one seed's test loss is lowest without
failures, of each method by itself. Runs of as many used steps have equal goodput but for the time that they take.
"""

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from ml_collections import ConfigDict

from configs import digits
from experiments.beyond.sources import DECOUPLED
from experiments.gap_aware.table2 import configuration as language_model
from experiments.harness import (
    Claim,
    Count,
    Output,
    Positive,
    Scale,
    Sweep,
    above,
    all_of,
    below,
    canvas,
    colour,
    figure,
    goes_by,
    interval,
)
from experiments.thresholds import DECOUPLED_COMPETITIVE, GOODPUT_EXACT, GOODPUT_LOST
from sgdlab import failures, policies, protocols

YEAR = 365.25 * 86400
STALL, TAKING_PART = 16.8, 0.95
"""Seconds of a stall, and share of the machines that are there: fitted to 58 and 88 % at 1.2 million chips."""
PUBLISHED = {("job", 1, 1.2e6): 0.58, ("decoupled", 8, 1.2e6): 0.88, ("decoupled", 16, 1.2e6): 0.93,
             ("job", 1, 2.4e6): 0.40}  # fmt: skip
WAYS = {
    "job": ("One job", "synchronous", {}),
    "diloco": ("DiLoCo", "synchronous", {}),
    "dropping": ("A quorum, the rest dropped", "timeout", {"at_least": 0.5, "seconds": 6.0}),
    "decoupled": ("Decoupled DiLoCo", "quorum", {}),
    "asynchronous": ("Asynchronous learners", "asynchronous", {}),
}
"""Way -> title, protocol and its entries."""
SHADES = {"diloco": "diloco", "decoupled": "decoupled_diloco", "asynchronous": "async_diloco"}
METHODS = {"diloco": "DiLoCo", "decoupled_diloco": "Decoupled DiLoCo", "async_diloco": "Async DiLoCo"}
FAILS = {"none": "no failures", "independent": "failures"}
RATES, MOMENTA = (0.1, 0.3, 0.7), (0.5, 0.9)
SERVER = ("local.server_learning_rate", "optimizer.momentum")
LEARNERS = 4
"""Number of learners that train."""
TASKS = {"digits": "digits", "text": "bytes of Python's library"}


@figure(
    DECOUPLED,
    "Goodput",
    scales={
        "smoke": Scale("1 min", updates=40, seeds=2, tasks=["digits"], epochs=2.0, rates=1),
        "laptop": Scale("25 min"),
        "decide": Scale("90 min", seeds=20),
    },
    differs="The paper trains models of up to 12 billion parameters, whose learners send fragments and go on with "
    "their own parameters; an abstract and summaries of it were read. Its chips fail in a simulation, as here.",
    stand_in="digits, and bytes of Python's standard library",
)
def decoupled_diloco(
    *,
    updates: Count = 600,
    tasks: Sequence[str] = tuple(TASKS),
    epochs: Positive = 20.0,
    gradients: Count = 3072,
    rates: Count = 3,
    seeds: Count = 5,
) -> Output:
    """Measure goodput, and train.

    Args:
      updates: of a run that measures goodput.
      tasks: digits, text.
      epochs: of digits.
      gradients: of the language model.
      rates: most rates of the grid that are tried, the smallest first.
      seeds: number of seeds, of goodput and of training; rates are tuned with another.
    """
    over = [
        {"way": way, "learners": learners, "chips": chips, "seed": seed}
        for chips in (1.2e6, 2.4e6)
        for way in WAYS
        for learners in ([1] if way == "job" else [8, 16])
        for seed in range(seeds)
    ]
    shares = Sweep({"updates": updates}, over, work=measured).table()
    trained = [of_task(task, epochs, gradients, rates, seeds) for task in tasks]
    runs, evaluations = (pd.concat([each[k].assign(task=task) for each, task in zip(trained, tasks, strict=True)])
                         for k in (0, 1))  # fmt: skip
    rows = [
        {
            "task": "goodput",
            "method": WAYS[way][0],
            "learners": learners,
            "with": f"{chips / 1e6:g} million chips",
            "ours": TAKING_PART * found.goodput.mean(),
            "±": TAKING_PART * interval(found.goodput).half,
            "paper": PUBLISHED.get((way, learners, chips)),
        }
        for (chips, learners, way), found in shares.groupby(["chips", "learners", "way"], sort=False)
    ]
    for quantity, name in (("test loss", "test_loss"), ("seconds", "seconds"), ("goodput", "goodput")):
        rows += [
            {
                "task": f"{TASKS[task]}: {quantity}",
                "method": METHODS[method],
                "learners": LEARNERS,
                "with": FAILS[kind],
                "ours": found[name].mean(),
                "±": interval(found[name]).half,
                "paper": None,
            }
            for (task, kind, method), found in runs.groupby(["task", "failures.kind", "method"], sort=False)
            if found[name].notna().all()
        ]
    chosen = runs.groupby(["task", "method"], sort=False)[list(SERVER)].first()
    tuned = ", ".join(
        f"{METHODS[method]} {rate:g} and {momentum:g} ({TASKS[task]})"
        for (task, method), (rate, momentum) in zip(chosen.index, chosen.to_numpy(), strict=True)
    )
    notes = [
        "± is half the width of the 95 % confidence interval of the mean over the seeds.",
        f"Rate and momentum of the server, the best of {', '.join(f'{rate:g}' for rate in RATES[:rates])} and "
        f"{', '.join(f'{momentum:g}' for momentum in MOMENTA)} for one seed: {tuned}.",
        f"Competitive is a test loss of at most {DECOUPLED_COMPETITIVE:g} times the other's.",
    ]
    return Output(pd.DataFrame(rows), _drawn(shares, evaluations), claims(shares, runs), notes)


@goes_by(*(getattr(policies, name) for _, name, _ in WAYS.values()), failures.independent)
def measured(*, way: str, learners: int, chips: float, updates: int, seed: int) -> dict[str, float]:
    """Return the goodput of learners that stall, all of whose machines take part.

    Args:
      way: of `WAYS`.
      learners: M.
      chips: of all learners together.
      updates: of the run; of messages one by one, as many for each learner.
      seed: of the failures.
    """
    _, protocol, own = WAYS[way]
    up, pauses = learners * YEAR / chips, failures.Recovery("pause")
    outages = failures.independent(
        num_workers=learners, seed=seed, mean_up_hours=up / 3600, repair_minutes=STALL / 60, spread=0.0,
        recovery=pauses,
    )  # fmt: skip
    runtimes = np.full((4 * updates + 50, learners), 24.0)
    schedule = getattr(protocols, protocol)(runtimes, num_gradients=updates * learners, outages=outages, **own)
    return {"goodput": schedule.goodput()}


def of_task(task: str, epochs: float, gradients: int, rates: int, seeds: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the runs of a task, of each method with its best rate for seed 0, and their evaluations."""
    base = configured(task, epochs, gradients)
    grid = list(itertools.product(RATES[:rates], MOMENTA))
    point = lambda method, found, **own: {"method": method, **dict(zip(SERVER, found, strict=True)), **own}
    tried = Sweep(base, [point(method, each, seed=0) for method in METHODS for each in grid]).table()
    losses = (
        tried.assign(test_loss=tried.test_loss.fillna(math.inf)).set_index(list(SERVER)).groupby("method").test_loss
    )
    best = {method: found.idxmin() for method, found in losses}
    points = [
        point(method, best[method], **{"failures.kind": kind}, seed=seed)
        for kind in FAILS
        for method in METHODS
        for seed in range(1, seeds + 1)
    ]
    sweep = Sweep(base, points)
    return sweep.table().reindex(columns=[*_COLUMNS], fill_value=np.nan), sweep.evaluations()


_COLUMNS = ("method", "failures.kind", "seed", *SERVER, "test_loss", "seconds", "goodput")


def configured(task: str, epochs: float, gradients: int) -> ConfigDict:
    """Return the configuration of all runs of a task."""
    config = digits.get_config() if task == "digits" else language_model("laptop", gradients)
    if task == "digits":
        config.epochs, config.split = epochs, "drawn"
    else:
        config.optimizer.adam_learning_rate = 0.01
    config.cluster.num_workers, config.cluster.gamma.heterogeneous = LEARNERS, False
    config.target, config.evaluations = None, 24
    config.failures.independent.update(mean_up_hours=0.5, repair_minutes=5.0)
    return config


def claims(shares: pd.DataFrame, runs: pd.DataFrame) -> list[Claim]:
    """Return what the abstract says, and what our own model of failures must give."""
    of = {
        key: found.sort_values("seed").goodput.to_numpy() for key, found in shares.groupby(["way", "learners", "chips"])
    }
    groups = sorted({(learners, chips) for way, learners, chips in of if way != "job"})
    exact = {key: _formula(*key[1:]) for key in of if key[0] in ("job", "asynchronous")}
    more = {way: [of["decoupled", *group] - of[way, *group] for group in groups] for way in WAYS if way != "job"}
    more["job"] = [of["decoupled", learners, chips] - of["job", 1, chips] for learners, chips in groups]
    points = {way: ", ".join(str(interval(100 * each)) for each in found) for way, found in more.items()}
    at = ", ".join(f"{learners} at {chips / 1e6:g} million chips" for learners, chips in groups)
    found = [
        Claim(
            "Learners that wait for nobody, and a job of one, have the goodput m / (m + d) of a renewal process",
            "docs/messages.md",
            ours=", ".join(f"{of[key].mean():.3f} of {value:.3f}" for key, value in exact.items()),
            holds=all(abs(of[key].mean() / value - 1) < GOODPUT_EXACT for key, value in exact.items()),
            identity=True,
        ),
        Claim(
            "Decoupled DiLoCo has more goodput than one job that stalls as a whole",
            "abstract",
            ours=f"points of goodput more, with learners of {at}: {points['job']}",
            holds=all_of(map(above, more["job"])),
        ),
        Claim(
            "It has more than learners that wait for all (DiLoCo), or for half and drop what is late",
            "docs/messages.md",
            ours=f"points more than DiLoCo: {points['diloco']}; than a quorum that drops: {points['dropping']}",
            holds=all_of(above(each) for way in ("diloco", "dropping") for each in more[way]),
        ),
        Claim(
            "zero global downtime: its goodput is that of learners that never wait",
            "abstract",
            ours=f"points more than these: {points['asynchronous']}",
            holds=all_of(below(-each, GOODPUT_LOST, resolution=0.001) for each in more["asynchronous"]),
        ),
    ]
    for task, here in runs.groupby("task", sort=False):
        losses, seconds = (
            {
                key: np.log(rows.sort_values("seed")[name].to_numpy(float))
                for key, rows in here.groupby(["method", "failures.kind"])
            }
            for name in ("test_loss", "seconds")
        )
        ratio = losses["decoupled_diloco", "independent"] - losses["diloco", "none"]
        faster = seconds["diloco", "independent"] - seconds["decoupled_diloco", "independent"]
        competitive = DECOUPLED_COMPETITIVE.rewritten(math.log(DECOUPLED_COMPETITIVE))
        found += [
            Claim(
                f"competitive model performance: with failures it loses no quality, {TASKS[task]}",
                "abstract",
                ours="test loss over that of DiLoCo without failures, after as many used steps: "
                f"{interval(100 * ratio)} % (logarithm of the ratio)",
                holds=below(ratio, competitive),
            ),
            Claim(
                f"with failures, it does as many steps in less time than DiLoCo, {TASKS[task]}",
                "abstract",
                ours=f"DiLoCo takes {interval(100 * faster)} % longer (logarithm of the ratio)",
                holds=above(faster),
            ),
        ]
    return found


def _formula(learners: int, chips: float) -> float:
    """Return m / (m + d), with m seconds between a learner's failures and d of its stall."""
    between = learners * YEAR / chips
    return between / (between + STALL)


def _drawn(shares: pd.DataFrame, evaluations: pd.DataFrame) -> Figure:
    tasks = list(dict.fromkeys(evaluations.task))
    drawn, panels = canvas(1, 1 + len(tasks), width=5 * (1 + len(tasks)), height=4.6)
    _draw_goodput(panels[0, 0], shares[shares.chips == shares.chips.min()])
    for panel, task in zip(panels[0, 1:], tasks, strict=True):
        for (method, kind), found in evaluations[evaluations.task == task].groupby(["method", "failures.kind"]):
            of = [rows.sort_values("seconds") for _, rows in found.groupby("seed")]
            times = np.linspace(0, min(rows.seconds.max() for rows in of), 60)
            curves = [np.interp(times, rows.seconds, np.log(rows.test_loss.astype(float))) for rows in of]
            style = {"color": colour(method), "linestyle": "-" if kind == "independent" else ":"}
            label = METHODS[method] if kind == "independent" else None
            panel.plot(times / 60, np.exp(np.mean(curves, axis=0)), label=label, **style)
        panel.set(xlabel="virtual minutes (dotted: no failures)", ylabel="test loss", yscale="log", title=TASKS[task])
        low, high = panel.get_ylim()
        if high < 10 * low:  # less than a decade: few ticks, which have no powers of ten
            panel.yaxis.set_minor_formatter("{x:g}")
        panel.legend()
    return drawn


def _draw_goodput(panel: Any, shares: pd.DataFrame) -> None:
    """Draw the goodput of every way as a bar, with the published numbers as marks."""
    chips, places, names = float(shares.chips.iloc[0]), [], []
    for (way, learners), found in shares.groupby(["way", "learners"], sort=False):
        place, value = len(places), TAKING_PART * interval(found.goodput).mean
        shade = colour(SHADES.get(way, WAYS[way][1]))
        panel.barh(place, value, color=shade, alpha=0.35 if way == "dropping" else 0.85)
        if (published := PUBLISHED.get((way, learners, chips))) is not None:
            panel.plot(published, place, "kD", markersize=5)
        places.append(place)
        names.append(f"{WAYS[way][0]}, {learners}" if way != "job" else WAYS[way][0])
    panel.set_yticks(places, names, fontsize=8)
    panel.invert_yaxis()
    panel.set(xlim=(0, 1), xlabel="goodput (diamonds: published)", title=f"{chips / 1e6:g} million chips")
