"""Bounds of admission and the speed of learning: seconds to a reward (AReaL).

A linear softmax policy is trained on a toy under `admission` with bounds eta, without a correction for stale tokens and
with truncated importance sampling; rates are tuned for each bound, on other seeds. A larger bound makes a step shorter
until the trainer is always busy, and its tokens staler for ever.
"""

import functools
import math

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from scipy import stats

from experiments.harness import (
    PALETTE,
    Claim,
    Count,
    NotNegative,
    Output,
    Scale,
    Sweep,
    above,
    all_of,
    bars,
    below,
    canvas,
    figure,
    goes_by,
    interval,
)  # fmt: skip
from experiments.rollouts import learning
from experiments.rollouts.sources import AREAL
from experiments.thresholds import LEARNS_FASTER, REWARD_ALIKE
from sgdlab import rollouts

RULES = ("none", "truncated_is")
MISS = 2.0
"""Times the run's length that a run takes which misses the target, as where methods are compared."""


@figure(
    AREAL,
    "Speed",
    scales={
        "smoke": Scale("30 s", steps=20, seeds=2, trials=2, etas=[0.0, 4.0, 16.0]),
        "laptop": Scale("2 min"),
    },
    differs="A toy in place of language models, and machines of our own: directions, not sizes.",
    stand_in="a toy in place of mathematics and code",
)
def speed(
    *,
    etas: list[NotNegative] = (0, 1, 2, 4, 8, 16, 32),
    steps: Count = 300,
    seeds: Count = 16,
    trials: Count = 8,
    minibatches: Count = 1,
) -> Output:
    """Trains with each bound.

    Args:
      etas: bounds of admission, in versions; among them 0.
      steps: trainer steps.
      seeds: number of seeds that are reported.
      trials: learning rates that are tried for each bound and rule.
      minibatches: optimizer steps in a trainer step.
    """
    bounds = sorted({0.0, *map(float, etas)})
    common = {"steps": steps, "seeds": seeds, "trials": trials, "minibatches": minibatches, "etas": bounds}
    found = Sweep(common, [{"rule": rule} for rule in RULES], work=trained).table()
    cells = {row.rule: {eta: row[f"eta {eta:g}"] for eta in bounds} for _, row in found.iterrows()}
    rows = [
        {"rule": rule, "eta": eta, "quantity": words, "ours": float(mean(own[name])), "paper": None}
        for rule, of in cells.items()
        for eta, own in of.items()
        for name, words, mean in (
            ("to target", f"seconds to a mean reward of {learning.TARGET:g}", stats.gmean),
            ("step", "seconds a step", np.mean),
            ("reward", "reward in the end", np.mean),
            ("staleness", "mean staleness of the symbols, versions", np.mean),
            ("rate", "learning rate that was chosen", np.mean),
        )
    ]
    enough = found.enough.max()
    notes = [
        f"Means over {seeds} seeds, of seconds to a reward geometric ones. The smallest bound that keeps the trainer "
        f"busy is {enough} by the closed form. A run that misses it counts as one of {MISS:g} times its seconds."
    ]
    return Output(pd.DataFrame(rows), _drawn(cells, enough), claims(cells, int(enough)), notes)


@goes_by(rollouts.replay, rollouts.simulate, rollouts.lognormal, rollouts.admission, rollouts.predict)
def trained(*, rule: str, etas: list[float], steps: int, seeds: int, trials: int, minibatches: int) -> dict:
    """Returns what is learned with each bound, a list of seeds for each number."""
    policies = {f"eta {eta:g}": functools.partial(rollouts.admission, eta=eta) for eta in etas}
    how = {"steps": steps, "seeds": seeds, "trials": trials, "minibatches": minibatches}
    found = learning.learned("toy", rule, policies, **how)
    for own in found.values():
        seconds, whole = np.array(own["seconds"]), np.array(own["whole"])
        own["to target"] = np.where(np.isfinite(seconds), seconds, MISS * whole).tolist()
        own["step"] = (whole / steps).tolist()
        own["seconds"] = [second if np.isfinite(second) else None for second in seconds.tolist()]
    return {**found, "enough": rollouts.predict(learning.workload(0), learning.SYSTEM).smallest_eta()}


def claims(cells: dict[str, dict[float, dict[str, list[float]]]], enough: int) -> list[Claim]:
    """Return what is said of bounds, judged by paired seeds."""

    def times(rule: str, one: float, other: float) -> np.ndarray:
        """Return the logarithm of how many times as long the first bound takes as the second, by seed."""
        found = [np.log(cells[rule][eta]["to target"]) for eta in (one, other)]
        return found[0] - found[1]

    def in_words(found: dict[str, np.ndarray]) -> str:
        """Return the geometric means of ratios, with intervals."""
        logs = {rule: interval(value) for rule, value in found.items()}
        ends = {rule: np.exp([log.mean, log.low, log.high]) for rule, log in logs.items()}
        return ", ".join(f"{rule} {mean:.3g} ({low:.3g} to {high:.3g})" for rule, (mean, low, high) in ends.items())

    bounds = sorted(cells[RULES[0]])
    busy = next((eta for eta in bounds if eta >= enough), bounds[-1])
    first = {rule: times(rule, 0.0, busy) for rule in RULES}
    more = {rule: times(rule, bounds[-1], busy) for rule in RULES}
    reward = {rule: [np.array(cells[rule][eta]["reward"]) for eta in (bounds[-1], busy)] for rule in RULES}
    worse = {rule: high - low for rule, (high, low) in reward.items()}
    said = lambda found: ", ".join(f"{rule} {interval(value)}" for rule, value in found.items())
    return [
        Claim(
            "training on stale rollouts reaches a reward in less time than synchronous training",
            "arXiv 2505.24298, in kind",
            ours=f"seconds of synchronous training over those with eta {busy:g}: {in_words(first)}",
            holds=all_of(above(value, 0.0) for value in first.values()),
        ),
        Claim(
            "a bound beyond the one that keeps the trainer busy makes learning slower where stale tokens are not "
            "corrected for",
            "ours",
            ours=f"seconds with eta {bounds[-1]:g} over those with eta {busy:g}: {in_words({'none': more['none']})}",
            holds=above(more["none"], 0.0),
        ),
        Claim(
            "no larger bound than that learns faster, whatever the rule (here: by more than "
            f"{100 * LEARNS_FASTER:g} %)",
            "ours",
            ours=f"seconds with eta {bounds[-1]:g} over those with eta {busy:g}: {in_words(more)}",
            holds=all_of(above(value, math.log(1 - LEARNS_FASTER)) for value in more.values()),
        ),
        Claim(
            "tokens that are staler than that are learned from worse without a correction, and as well with truncated "
            f"importance sampling (here: within {REWARD_ALIKE:g} of the reward)",
            "ours",
            ours=f"reward in the end with eta {bounds[-1]:g} less that with eta {busy:g}: {said(worse)}",
            holds=all_of([below(worse["none"], 0.0), above(worse["truncated_is"], -REWARD_ALIKE)]),
        ),
    ]


def _drawn(cells: dict[str, dict[float, dict[str, list[float]]]], enough: int) -> Figure:
    drawn, panels = canvas(1, 2, width=11, height=4.4)
    labels = {
        "to target": f"seconds to a mean reward of {learning.TARGET:g}",
        "reward": "reward in the end",
    }
    for panel, (name, label) in zip(panels[0], labels.items(), strict=True):
        logarithmic = name == "to target"
        for shade, mark, (rule, of) in zip(PALETTE, "os", cells.items(), strict=False):
            found = [interval(np.log(own[name]) if logarithmic else own[name]) for own in of.values()]
            style = {"color": shade, "marker": mark, "label": rule, "capsize": 3}
            bars(panel, list(of), found, logarithmic=logarithmic, **style)
        panel.axvline(enough, color="black", linewidth=1, linestyle=":", label="trainer busy from here on")
        bounds = sorted(cells[RULES[0]])
        panel.set_xscale("symlog")
        panel.set_xticks(bounds, [f"{eta:g}" for eta in bounds])
        panel.set(xlabel="bound eta, versions", ylabel=label, xlim=(-0.3, 1.5 * max(bounds)))
        panel.minorticks_off()
        panel.legend(fontsize=9)
    panels[0, 0].set_yscale("log")
    return drawn
