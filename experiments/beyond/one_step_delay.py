"""Gradients that are one update late: AdamW against Muon (Zmushko et al. 2026).

A pipeline without bubbles that keeps two versions of the parameters (PipeDream-2BW) computes every gradient on the
version before the newest, whatever its depth. Here one worker trains so: update k applies a gradient of version k - 1
(`simulated_staleness`). The rate of each optimizer is the one of a grid with which one seed's test loss is lowest in
the end, once without the delay and once with it; a third case delays the gradients and keeps the rate found without.
Weight decay is 0, so that AdamW is Adam. The paper's correction in the manner of error feedback is not here: its
formula was not at hand.
"""

import math

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from ml_collections import ConfigDict

from configs import digits
from experiments.beyond.sources import ZMUSHKO
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
    interval,
)
from experiments.thresholds import ONE_STEP_ROBUST

GRIDS = {
    "adam": ("AdamW", "optimizer.adam_learning_rate", tuple(0.0005 * 2.0**k for k in range(7))),
    "muon": ("Muon", "optimizer.muon_learning_rate", tuple(0.0025 * 2.0**k for k in range(7))),
}
"""Rule -> title, entry of its rate, and rates."""
DELAY = "protocol.simulated_staleness.average"
CASES = {"none": "no delay", "same": "one step late, at the rate found without delay", "own": "one step late"}
TASKS = {"digits": "digits", "text": "bytes of Python's library"}


@figure(
    ZMUSHKO,
    "One step",
    scales={
        "smoke": Scale("15 s", tasks=["digits"], epochs=2.0, seeds=1, rates=1),
        "laptop": Scale("10 min"),
        "decide": Scale("40 min", seeds=30),
        "gpu": Scale("1 h on one GPU, estimated", gradients=30_000),
        "paper": Scale("1 day on one GPU, estimated", gradients=300_000),
    },
    differs="The paper trains language models of up to 10 billion parameters; an abstract and summaries of it were "
    "read. Its correction is not among what is compared.",
    stand_in="bytes of Python's standard library",
)
def one_step_delay(
    *,
    tasks: list[str] = ("text",),
    epochs: Positive = 20.0,
    gradients: Count = 2048,
    seeds: Count = 8,
    rates: Count = 7,
) -> Output:
    """Tunes each optimizer with and without the delay with one seed, and runs it with others.

    Args:
      tasks: text, digits; on digits the test loss of one seed hardly tells rates apart, so that the choice of the rates
        is most of what is measured.
      epochs: of digits.
      gradients: of the language model.
      seeds: number of seeds besides the one that rates are tuned with.
      rates: most rates of the grids that are tried, the smallest first.
    """
    runs = pd.concat([of_task(task, epochs, gradients, rates, seeds) for task in tasks], ignore_index=True)
    rows = [
        {
            "task": TASKS[task],
            "optimizer": GRIDS[rule][0],
            "gradients": CASES[case],
            "rate": found.rate.iloc[0],
            "ours": found.test_loss.mean(),
            "±": interval(found.test_loss).half,
        }
        for (task, rule, case), found in runs.groupby(["task", "rule", "case"], sort=False)
    ]
    notes = [
        "Test losses in the end. ± is half the width of the 95 % confidence interval of the mean over the seeds.",
        f"Robust is a test loss that the delay raises by at most {100 * ONE_STEP_ROBUST:g} %.",
    ]
    ends = {rule: (grid[0], grid[min(rates, len(grid)) - 1]) for rule, (_, _, grid) in GRIDS.items()}
    edges = {f"{GRIDS[rule][0]} ({TASKS[task]})" for (task, rule, rate), _ in runs.groupby(["task", "rule", "rate"])
             if rates > 1 and rate in ends[rule]}  # fmt: skip
    if edges:
        notes.append(f"The best rate is at an edge of the grid for {', '.join(sorted(edges))}: others may be better.")
    return Output(pd.DataFrame(rows).assign(paper=None), _drawn(runs), claims(runs), notes)


def of_task(task: str, epochs: float, gradients: int, rates: int, seeds: int) -> pd.DataFrame:
    """Return the runs of a task, a row for each rule, case and seed."""
    base = configured(task, epochs, gradients)
    point = lambda rule, rate, delay, seed: {"rule.kind": rule, GRIDS[rule][1]: rate, DELAY: delay, "seed": seed}
    tried = [(rule, rate, delay) for rule, (_, _, grid) in GRIDS.items() for rate in grid[:rates] for delay in (0, 1)]
    tuned = Sweep(base, [point(*each, 0) for each in tried]).table()
    losses = pd.DataFrame(tried, columns=["rule", "rate", "delay"]).assign(loss=tuned.test_loss.fillna(math.inf))
    best = losses.loc[losses.groupby(["rule", "delay"]).loss.idxmin()].set_index(["rule", "delay"]).rate
    cases = [("none", 0, 0), ("same", 1, 0), ("own", 1, 1)]  # name, delay, and the delay that its rate was found with
    found = []
    for name, delay, of in cases:
        points = [point(rule, best[rule, of], delay, seed) for rule in GRIDS for seed in range(1, seeds + 1)]
        runs = Sweep(base, points).table()
        rate = [best[rule, of] for rule in runs["rule.kind"]]
        found.append(
            pd.DataFrame({"task": task, "rule": runs["rule.kind"], "case": name, "rate": rate}).join(
                runs[["seed", "test_loss"]]
            )
        )
    return pd.concat(found, ignore_index=True)


def configured(task: str, epochs: float, gradients: int) -> ConfigDict:
    """Return the configuration of all runs of a task."""
    config = digits.get_config() if task == "digits" else language_model("laptop", gradients)
    if task == "digits":
        config.epochs, config.split = epochs, "drawn"
    config.method, config.cluster.num_workers, config.target = "simulated_staleness", 1, None
    config.protocol.simulated_staleness.ramp_epochs = 0.0
    config.optimizer.weight_decay, config.optimizer.momentum = 0.0, None
    config.rate.warmup_epochs, config.rate.decay = 0.1 * config.epochs, "cosine"
    return config


def claims(runs: pd.DataFrame) -> list[Claim]:
    """Return what the abstract says of AdamW and of Muon.

    Args:
      runs: with columns task, rule, case, seed and test_loss.
    """
    found = []
    for task, here in runs.groupby("task", sort=False):
        of = {
            key: np.log(rows.sort_values("seed").test_loss.to_numpy(float))
            for key, rows in here.groupby(["rule", "case"])
        }
        more = {(rule, case): of[rule, case] - of[rule, "none"] for rule in GRIDS for case in ("own", "same")}
        words = {
            rule: f"test loss higher by {interval(100 * more[rule, 'own'])} %, at the rate found without delay "
            f"by {interval(100 * more[rule, 'same'])} % (logarithms of the ratio)"
            for rule in GRIDS
        }
        found += [
            Claim(
                f"AdamW suffers from a delay of one step, {TASKS[task]}",
                "abstract: severe degradation",
                ours=words["adam"],
                holds=above(more["adam", "own"]),
            ),
            Claim(
                f"Muon is robust to a delay of one step, {TASKS[task]}",
                "abstract: strong robustness",
                ours=words["muon"],
                holds=below(more["muon", "own"], ONE_STEP_ROBUST.rewritten(math.log1p(ONE_STEP_ROBUST))),
            ),
            Claim(
                f"Muon loses less by the delay than AdamW, {TASKS[task]}",
                "abstract",
                ours="AdamW loses more, of test loss: "
                f"{interval(100 * (more['adam', 'own'] - more['muon', 'own']))} % with rates of their own, "
                f"{interval(100 * (more['adam', 'same'] - more['muon', 'same']))} % at those found without delay",
                holds=all_of(above(more["adam", case] - more["muon", case]) for case in ("own", "same")),
            ),
        ]
    return found


def _drawn(runs: pd.DataFrame) -> Figure:
    tasks = list(dict.fromkeys(runs.task))
    drawn, panels = canvas(1, len(tasks), width=max(5.5 * len(tasks), 8.0), height=4.6)
    for panel, task in zip(panels[0], tasks, strict=True):
        here = runs[runs.task == task]
        for place, rule in enumerate(GRIDS):
            losses = here[here.rule == rule].pivot(index="seed", columns="case", values="test_loss").astype(float)
            logs = np.log(losses)
            for shift, case, mark in ((-0.06, "own", "o"), (0.06, "same", "s")):
                found = interval(100 * (logs[case] - logs["none"]))
                panel.errorbar(place + shift, found.mean, yerr=found.half, fmt=mark, color=colour(rule), capsize=4,
                               markerfacecolor=colour(rule) if case == "own" else "white")  # fmt: skip
        panel.axhline(0.0, color="grey", linewidth=0.8)
        panel.set(xticks=range(len(GRIDS)), xticklabels=[title for title, _, _ in GRIDS.values()], xlim=(-0.5, 1.5))
        panel.set(
            title=TASKS[task], ylabel="test loss raised by the delay, %\n(logarithm of the ratio, 95 % intervals)"
        )
        for mark, face, label in (("o", "grey", "rate tuned with the delay"), ("s", "white", "tuned without it")):
            panel.plot([], [], mark, color="grey", markerfacecolor=face, label=label)
        panel.legend()
    return drawn
