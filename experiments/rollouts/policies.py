"""Staleness policies: what bounds them, what they cost, and whom they starve (tinker-cookbook #822).

Engines decode groups of rollouts with log-normal lengths, half of whose variance is the prompt's own; a trainer takes
batches. Admission and order are tried with bounds eta, discarding with and without trying prompts again, and a queue
that drops the oldest. Where lengths are wholly the prompt's and discarded prompts come again first, seconds a step are
measured over the run. Nothing is trained: these are claims on which rollouts enter which step.
"""

import functools
import textwrap

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

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
    below,
    between,
    canvas,
    figure,
    goes_by,
    interval,
)
from experiments.rollouts.sources import TINKER
from experiments.thresholds import BUSY_ENOUGH, FAIR_SHARE, STARVED_SHARE
from sgdlab import rollouts

QUANTITIES = {
    "staleness": "mean staleness by rollout",
    "largest_staleness": "staleness of the stalest rollout",
    "seconds_per_step": "seconds a step",
    "trainer_busy": "share of the time in which the trainer trains",
    "wasted": "share of the tokens thrown away",
    "goodput": "trained tokens a second",
    "trained_over_offered": "trained over offered length",
    "longest_tenth": "share of the longest tenth of the prompts, over an equal one",
}
RESOLUTION = 0.005
"""Of shares, which are of some thousands of groups, or of seconds."""
DISCARDING = {"discard": "never", "discard, again at the back": "back", "discard, again first": "front"}


@figure(
    TINKER,
    "Policies",
    scales={"smoke": Scale("5 s", steps=30, seeds=2, etas=[0.0, 2.0]), "laptop": Scale("2 min")},
    differs="The thread has no numbers; lengths, engines and trainer are ours.",
    full_size=True,
)
def policies(*, etas: list[NotNegative] = (0, 1, 2, 4, 8), steps: Count = 200, seeds: Count = 4) -> Output:
    """Simulates the policies.

    Args:
      etas: bounds of admission, in versions.
      steps: trainer steps; the first tenth is not counted.
      seeds: number of seeds.
    """
    points = [{"policy": policy, "value": float(eta)} for policy in ("admission", "in_order") for eta in etas]
    points += [{"policy": name, "value": 1.0} for name in (*DISCARDING, "queue_drop", "discard, own length")]
    points += [{"policy": "discard, again first, own length", "value": 1.0}]
    points = [point | {"seed": seed} for point in points for seed in range(seeds)]
    runs = Sweep({"steps": steps}, points, work=simulated).table()
    rows = [
        {"policy": policy, "bound": value, "quantity": words, "ours": float(found[name].mean()), "paper": None}
        for (policy, value), found in runs.groupby(["policy", "value"], sort=False)
        for name, words in QUANTITIES.items()
    ]
    found = {key: own.sort_values("seed") for key, own in runs.groupby(["policy", "value"])}
    notes = [f"Means over {seeds} seeds. Of 4 engines with 64 slots of 100 tokens a second, and 32 groups of 4 a step."]
    return Output(pd.DataFrame(rows), _drawn(runs), claims(found, sorted(map(float, etas))), notes)


@goes_by(rollouts.simulate, rollouts.lognormal, rollouts.length_bias, rollouts.predict)
def simulated(*, policy: str, value: float, steps: int, seed: int) -> dict[str, float | list[float]]:
    """Simulates one run: its figures, the smallest eta by the closed form, and seconds a step in its quarters."""
    own = policy.endswith("own length")
    work = rollouts.lognormal(prompts=20_000, group=4, share=1.0 if own else 0.5, attempts=1 if own else 8, seed=seed)
    system = rollouts.System(engines=4, slots=64, batch=16 if own else 32, train=5.0, transfer=1.0)
    requeue = DISCARDING.get(policy, "front" if "again first" in policy else "never")
    make = {
        "admission": functools.partial(rollouts.admission, eta=value),
        "in_order": functools.partial(rollouts.in_order, eta=value),
        "queue_drop": rollouts.queue_drop,
    }.get(policy, functools.partial(rollouts.window, lag=int(value), requeue=requeue))
    run = rollouts.simulate(work, system, make, num_steps=steps)
    quarters = np.append(0.0, run.applied[[(part * steps) // 4 - 1 for part in (1, 2, 3, 4)]])
    return {
        **run.figures(steps // 10),
        **rollouts.length_bias(run, work, warmup=steps // 10).figures(),
        "whole_staleness": float(run.staleness().mean()),  # which the bound is of, from the first step on
        "smallest_eta": rollouts.predict(work, system).smallest_eta(),
        "growth": float((quarters[4] - quarters[3]) / (quarters[2] - quarters[1])),
    }


def claims(found: dict[tuple[str, float], pd.DataFrame], etas: list[float]) -> list[Claim]:
    """Return what is said of the policies, judged by the runs of each."""
    bounded = [eta for eta in etas if eta > 0]
    soft = {eta: found["admission", eta] for eta in etas}
    hard = {eta: found["in_order", eta] for eta in etas}
    over = {eta: soft[eta].largest_staleness - eta for eta in bounded}
    slower = {eta: hard[eta].seconds_per_step / soft[eta].seconds_per_step.to_numpy() for eta in bounded}
    discard, again = found["discard", 1.0], found["discard, again at the back", 1.0]
    alone = found["discard, own length", 1.0].longest_tenth
    growth = found["discard, again first, own length", 1.0].growth
    enough = soft[bounded[0]].smallest_eta.max()
    busy = [eta for eta in bounded if eta >= enough]
    return [
        Claim(
            "admission with a bound eta bounds the mean staleness, and not that of a rollout",
            "AReaL's bound, arXiv 2505.24298; ours",
            ours=", ".join(
                f"eta {eta:g}: mean {interval(soft[eta].whole_staleness)}, largest "
                f"{interval(soft[eta].largest_staleness)}"
                for eta in bounded
            ),
            holds=all_of(
                [
                    *(bool((soft[eta].whole_staleness <= eta).all()) for eta in bounded),
                    *(above(over[eta]) for eta in bounded),
                ]
            ),
            identity=True,
        ),
        Claim(
            "a bound of every rollout costs speed",
            "ours",
            ours=", ".join(f"{interval(slower[eta])} times as long a step (eta {eta:g})" for eta in bounded),
            holds=all_of(above(slower[eta], 1.0) for eta in bounded),
        ),
        Claim(
            f"from eta = ceil(E max L / (speed step)) + 1 on, the trainer is busy (here: {100 * BUSY_ENOUGH:g} % of "
            "what a transfer leaves)",
            "ours",
            ours=f"eta {enough:g}: "
            + ", ".join(f"{interval(soft[eta].trainer_busy * 6 / 5)} (eta {eta:g})" for eta in busy),
            holds=all_of(above(soft[eta].trainer_busy * 6 / 5, BUSY_ENOUGH, resolution=RESOLUTION) for eta in busy)
            if busy
            else None,
        ),
        Claim(
            "discarding what is too stale systematically starves slow rollouts",
            "problem",
            ours=f"the longest tenth of the prompts has {interval(discard.longest_tenth)} of an equal share, and "
            f"trained answers are {interval(discard.trained_over_offered)} as long; mean staleness "
            f"{interval(discard.staleness)}",
            holds=below(discard.longest_tenth, STARVED_SHARE),
        ),
        Claim(
            "a problem whose rollout reliably takes longer than the bound is never trained on",
            "problem",
            ours=f"lengths wholly the prompt's: the longest tenth has {interval(alone)} of an equal share",
            holds=below(alone, STARVED_SHARE / 10, resolution=RESOLUTION),
        ),
        Claim(
            "pacing what begins keeps the prompts' shares",
            "new semantics",
            ours=", ".join(f"{interval(soft[eta].longest_tenth)} (eta {eta:g})" for eta in bounded),
            holds=all_of(between(soft[eta].longest_tenth, 1 - FAIR_SHARE, 1 + FAIR_SHARE) for eta in bounded),
        ),
        Claim(
            "trying discarded prompts again mends the prompts' shares, and not the answers' lengths",
            "ours",
            ours=f"longest tenth {interval(again.longest_tenth)}, trained over offered length "
            f"{interval(again.trained_over_offered)}",
            holds=all_of(
                [above(again.longest_tenth, STARVED_SHARE), below(again.trained_over_offered, 1 - FAIR_SHARE)]
            ),
        ),
        Claim(
            "where they come again first and lengths are the prompt's, steps take longer and longer",
            "ours",
            ours=f"the last quarter of the run takes {interval(growth)} times as long as the second",
            holds=above(growth, 1.0),
        ),
    ]


def _drawn(runs: pd.DataFrame) -> Figure:
    drawn, panels = canvas(1, 3, width=15, height=4.6)
    means = runs.groupby(["policy", "value"], sort=False).mean(numeric_only=True)
    for shade, mark, policy in zip(PALETTE, "os", ("admission", "in_order"), strict=False):
        own = means.loc[policy]
        wide = 5 if policy == "admission" else 1.5  # the means are nearly equal
        panels[0, 0].plot(own.index, own.staleness, color=shade, marker=mark, linewidth=wide, label=f"{policy}, mean")
        panels[0, 0].plot(own.index, own.largest_staleness, color=shade, marker=mark, linestyle=":", label="largest")
        panels[0, 1].plot(own.index, own.goodput, color=shade, marker=mark, label=policy)
    panels[0, 0].set(xlabel="bound eta, versions", ylabel="staleness by rollout, versions")
    panels[0, 1].set(xlabel="bound eta, versions", ylabel="trained tokens a second", ylim=(0, None))
    others = means[~means.index.get_level_values("policy").isin(["admission", "in_order"])].droplevel("value")
    places = np.arange(len(others))
    for shift, shade, name in ((-0.2, PALETTE[0], "longest_tenth"), (0.2, PALETTE[1], "trained_over_offered")):
        label = textwrap.fill(QUANTITIES[name].partition(",")[0], 24)
        halves = [interval(runs[runs.policy == policy][name], resolution=RESOLUTION).half for policy in others.index]
        own = {"xerr": np.nan_to_num(halves, posinf=0.0), "color": shade, "label": label}  # one seed has no interval
        panels[0, 2].barh(places + shift, others[name], 0.4, **own)
    panels[0, 2].set_yticks(places, list(others.index))
    panels[0, 2].invert_yaxis()
    panels[0, 2].set_xlim(0, 2.2)
    panels[0, 2].axvline(1, color="black", linewidth=1)
    for panel in panels[0]:
        panel.legend(fontsize=9, loc="center right" if panel is panels[0, 2] else "upper left")
    return drawn
