"""Runs of a small policy under staleness policies: learning rates tuned alike for each, and seeds that are paired."""

import functools
from collections.abc import Mapping

import numpy as np

from experiments.rollouts.arithmetic import addition
from sgdlab import rollouts, rules
from sgdlab.rollouts.policies import StalenessPolicy
from sgdlab.runs import space, tuning

TASKS = {
    "toy": (rollouts.toy, rules.asgd, 16.0),
    "addition": (addition, rules.adam, 0.01),
}
"""Tasks, with the rule that steps and the learning rate around which others are tried, over three decades."""

SYSTEM = rollouts.System(engines=4, slots=64, batch=16, train=4.0, transfer=1.0)
GROUP, TUNING = 4, 2
TARGET = 0.5
"""Mean reward to which seconds are counted."""


def learned(
    task: str,
    rule: str,
    policies: Mapping[str, functools.partial],
    *,
    steps: int,
    seeds: int,
    trials: int,
    minibatches: int,
) -> dict[str, dict[str, list[float]]]:
    """Return numbers of each policy, one for each seed, with the learning rate that was best for it.

    A seed draws another workload and other answers. Rates are points of the sequence by which methods are tuned; each
    is tried on two seeds that are not reported, and the one with the highest mean reward of the run is chosen.
    """
    make, step, centre = TASKS[task]
    asked, ratio = make(), rollouts.RATIO_RULES[rule].make()
    numbers = [*range(seeds), *range(tuning.FIRST_SEED, tuning.FIRST_SEED + TUNING)]
    cells = []
    for policy in policies.values():
        runs = [trained_on(asked, policy, steps, seed) for seed in numbers]
        cells.append((runs[seeds:], runs[:seeds]))
    split = numbers[seeds:], numbers[:seeds]
    rates, how = space.rates(centre, trials), {"make": step, "minibatches": minibatches}
    chosen, found = rollouts.tuned(cells, asked, ratio, rates, seeds=split, **how)
    columns = {
        "reward": found.rewards[:, -1].mean(axis=1),
        "longest": found.rewards[:, -1, -1],
        "over the run": found.rewards.mean(axis=(1, 2)),
        "seconds": found.seconds_to(TARGET),
        "whole": found.seconds[:, -1],
        "staleness": np.array([run.lag().mean() for _, reported in cells for run in reported]),
        "rate": np.repeat(chosen, seeds),
    }
    return {
        name: {key: column.reshape(len(policies), seeds)[place].tolist() for key, column in columns.items()}
        for place, name in enumerate(policies)
    }


@functools.cache
def workload(seed: int) -> rollouts.Workload:
    """Return the lengths of a seed; longer prompts are of higher classes."""
    return rollouts.lognormal(prompts=20_000, group=GROUP, share=0.6, attempts=8, seed=seed)


def trained_on(
    task: rollouts.AnswerTask, policy: functools.partial[StalenessPolicy], steps: int, seed: int
) -> rollouts.TrainedOn:
    """Return what a run under a policy trains on."""
    run = rollouts.simulate(workload(seed), SYSTEM, policy, num_steps=steps)
    return rollouts.TrainedOn.of(run, workload(seed), task)
