"""Rules for stale tokens under staleness policies: what they repair, and what they do not (AReaL).

A small policy is trained on what each staleness policy lets through, with each ratio rule: a linear softmax policy on
a toy whose classes share features, and a recurrent one on sums of two digits. Long prompts are a class of their own.
Each cell has the learning rate that was best for it on other seeds; a trainer step has four optimizer steps.
"""

import functools

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from experiments.harness import (
    PALETTE,
    Claim,
    Count,
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
from experiments.thresholds import REWARD_ALIKE
from sgdlab import rollouts

POLICIES = {
    "synchronous": functools.partial(rollouts.synchronous),
    "admission 4": functools.partial(rollouts.admission, eta=4.0),
    "admission 16": functools.partial(rollouts.admission, eta=16.0),
    "discard": functools.partial(rollouts.window, lag=1),
    "discard, again at the back": functools.partial(rollouts.window, lag=1, requeue="back"),
}
COMPARED = {"ppo", "decoupled", "truncated_is"}
QUANTITIES = {
    "reward": "reward in the end, mean of the classes",
    "longest": "reward in the end of the class with the longest prompts",
    "over the run": "mean reward over the steps of the run",
    "rate": "learning rate that was chosen",
    "staleness": "mean staleness of the symbols, versions",
}


@figure(
    AREAL,
    "Rules",
    scales={
        "smoke": Scale("1 min", steps=20, seeds=2, trials=2, rules=["none", "ppo", "decoupled", "truncated_is"]),
        "laptop": Scale("5 min"),
        "decide": Scale("20 min", seeds=32),
    },
    differs="Toys in place of language models: directions, not sizes.",
    stand_in="a toy and sums of two digits in place of mathematics and code",
)
def rules(
    *,
    rules: list[str] = tuple(rollouts.RATIO_RULES),
    steps: Count = 300,
    seeds: Count = 8,
    trials: Count = 8,
    minibatches: Count = 4,
) -> Output:
    """Trains under each policy with each rule.

    Args:
      rules: names of ratio rules.
      steps: trainer steps.
      seeds: number of seeds that are reported.
      trials: learning rates that are tried for each policy and rule.
      minibatches: optimizer steps in a trainer step.
    """
    for name in rules:
        rollouts.RATIO_RULES.check(name, f"rules={name}")
    if not {*rules} >= COMPARED:
        raise ValueError(f"rules={rules} must hold {', '.join(sorted(COMPARED))}, which the claims compare")
    points = [{"task": task, "rule": rule} for task in learning.TASKS for rule in rules]
    common = {"steps": steps, "seeds": seeds, "trials": trials, "minibatches": minibatches}
    found = Sweep(common, points, work=trained).table()
    cells = {(row.task, row.rule): {name: row[name] for name in POLICIES} for _, row in found.iterrows()}
    rows = [
        {
            "task": task,
            "rule": rule,
            "policy": policy,
            "quantity": words,
            "ours": float(np.mean(own[name])),
            "paper": None,
        }
        for (task, rule), of in cells.items()
        for policy, own in of.items()
        for name, words in QUANTITIES.items()
    ]
    notes = [f"Means over {seeds} seeds; rates from {trials} tried on {learning.TUNING} other seeds."]
    return Output(pd.DataFrame(rows), _drawn(cells), claims(cells), notes)


@goes_by(rollouts.replay, rollouts.simulate, rollouts.lognormal, rollouts.admission)
def trained(*, task: str, rule: str, steps: int, seeds: int, trials: int, minibatches: int) -> dict[str, dict]:
    """Returns what is learned under all policies, a list of seeds for each number."""
    return learning.learned(task, rule, POLICIES, steps=steps, seeds=seeds, trials=trials, minibatches=minibatches)


def claims(cells: dict[tuple[str, str], dict[str, dict[str, list[float]]]]) -> list[Claim]:
    """Return what is said of rules and policies, judged by paired seeds on both tasks."""

    def less(one: tuple[str, str, str], other: tuple[str, str, str], name: str) -> np.ndarray:
        """Return how much more the first cell has than the second, by seed."""
        values = [np.array(cells[task, rule][policy][name]) for task, rule, policy in (one, other)]
        return values[0] - values[1]

    tasks = list(dict.fromkeys(task for task, _ in cells))
    starved = {key: less((*key, "discard"), (*key, "admission 4"), "longest") for key in cells}
    again = {key: less((*key, "discard, again at the back"), (*key, "discard"), "longest") for key in cells}
    held = {
        (task, rule): less((task, rule, "admission 16"), (task, rule, "admission 4"), "reward")
        for task in tasks
        for rule in ("decoupled", "truncated_is")
    }
    clipped = {
        task: less((task, "ppo", "admission 16"), (task, "truncated_is", "admission 16"), "over the run")
        for task in tasks
    }
    said = lambda found: ", ".join(
        f"{' '.join(key) if isinstance(key, tuple) else key} {interval(value)}" for key, value in found.items()
    )
    return [
        Claim(
            "no rule for stale tokens repairs starvation: the longest prompts are learned worse where the stale is "
            "discarded than where what begins is paced",
            "problem of tinker-cookbook #822; ours",
            ours=f"reward of the longest class less that under admission with 4: {said(starved)}",
            holds=all_of(below(value, 0.0) for value in starved.values()),
        ),
        Claim(
            "trying discarded prompts again repairs it, with every rule",
            "ours",
            ours=f"reward of the longest class less that without trying again: {said(again)}",
            holds=all_of(above(value, 0.0) for value in again.values()),
        ),
        Claim(
            "with decoupled PPO or truncated importance sampling, what is four times as stale is learned from as well "
            f"(here: within {REWARD_ALIKE:g} of the reward)",
            "arXiv 2505.24298, in kind",
            ours=f"reward with eta 16 less that with 4: {said(held)}",
            holds=all_of(above(value, -REWARD_ALIKE) for value in held.values()),
        ),
        Claim(
            "clipping against the behaviour learns less from stale tokens than truncated importance sampling",
            "arXiv 2505.24298, in kind",
            ours=f"mean reward over the run with eta 16, less that of truncated importance sampling: {said(clipped)}",
            holds=all_of(below(value, 0.0) for value in clipped.values()),
        ),
    ]


def _drawn(cells: dict[tuple[str, str], dict[str, dict[str, list[float]]]]) -> Figure:
    tasks = list(dict.fromkeys(task for task, _ in cells))
    drawn, panels = canvas(len(tasks), 2, width=13, height=4.2 * len(tasks))
    for line, task in zip(panels, tasks, strict=True):
        labels = {"reward": "reward in the end", "longest": "reward of the longest prompts"}
        for panel, (name, label) in zip(line, labels.items(), strict=True):
            own = {rule: of for (of_task, rule), of in cells.items() if of_task == task}
            for index, (rule, of) in enumerate(own.items()):
                places = np.arange(len(POLICIES)) + (index - len(own) / 2 + 0.5) * 0.8 / len(own)
                found = [interval(of[policy][name], resolution=1e-3) for policy in POLICIES]
                shade = PALETTE[index % len(PALETTE)]
                bars(panel, places, found, color=shade, label=rule, fmt="o", capsize=2)
            panel.set_xticks(range(len(POLICIES)), [name.replace(", ", ",\n") for name in POLICIES], fontsize=8)
            panel.set(ylabel=label, title=task, ylim=(-0.03, 1.05))
    panels[0, 1].legend(fontsize=8, ncols=2, loc="center left")  # where all is learned
    return drawn
