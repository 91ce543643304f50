"""Six runs behind a queue that drops the oldest: mean staleness by closed form and simulation (Applied Compute).

Of each run are taken: slots, rollouts of a step, batches that the queue holds, the rate of the engines over that of the
trainer, and how much longer the longest rollout of a group is than a rollout. Group, lengths and seconds are ours:
log-normal lengths whose spread is fitted to the last of these numbers, and a trainer step that makes the rates right.
Nothing is trained. The printed predictions of three runs do not follow from the formula and these numbers; as the
article could be read up to its introduction alone, claims on them are not in our regime.
"""

from typing import NamedTuple

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from scipy import optimize

from experiments.harness import (
    PALETTE,
    Claim,
    Count,
    Output,
    Premise,
    Scale,
    Sweep,
    all_of,
    bars,
    below,
    canvas,
    figure,
    goes_by,
    interval,
)  # fmt: skip
from experiments.rollouts.sources import APPLIED_COMPUTE
from experiments.thresholds import STALENESS_CLOSE, STALENESS_FOLLOWS
from sgdlab import rollouts

GROUP, SHARE, SPEED = 8, 0.3, 100.0


class Run(NamedTuple):
    """Holds what is noted of a run."""

    slots: int
    rollouts: int  # of a trainer step
    queue: int  # batches that it holds
    rho: float
    tailness: float
    predicted: float
    measured: float


RUNS = [
    Run(120, 240, 2, 0.63, 1.42, 1.34, 1.26),
    Run(240, 120, 2, 0.92, 1.43, 3.86, 3.59),
    Run(128, 128, 2, 1.07, 1.44, 3.29, 3.09),
    Run(240, 120, 1, 0.86, 1.42, 3.34, 3.40),
    Run(120, 120, 1, 0.67, 1.42, 1.95, 1.92),
    Run(128, 128, 1, 1.14, 1.45, 2.24, 2.01),
]


@figure(
    APPLIED_COMPUTE,
    "Six runs",
    scales={"smoke": Scale("10 s", steps=40, seeds=2), "laptop": Scale("1 min")},
    differs="The six runs' numbers are by notes of readers: the article could be read up to its introduction. Groups, "
    "lengths and seconds are ours.",
    full_size=True,
)
def six_runs(*, steps: Count = 300, seeds: Count = 6) -> Output:
    """Simulates the six runs.

    Args:
      steps: trainer steps; the first sixth is not counted.
      seeds: number of seeds.
    """
    points = [{"run": run, "seed": seed} for run in range(len(RUNS)) for seed in range(seeds)]
    found = Sweep({"steps": steps}, points, work=simulated).table()
    simulations = [found[found.run == run].sort_values("seed").staleness.to_numpy() for run in range(len(RUNS))]
    rows = [
        {"run": number + 1, **run._asdict(), "closed form": closed(run), "ours": float(own.mean())}
        for number, (run, own) in enumerate(zip(RUNS, simulations, strict=True))
    ]
    table = pd.DataFrame(rows).rename(columns={"measured": "paper"})
    notes = [f"Mean staleness by rollout, in versions: simulated, means over {seeds} seeds; and as measured."]
    return Output(table, _drawn(simulations), claims(simulations), notes)


@goes_by(rollouts.simulate, rollouts.lognormal, rollouts.queue_drop)
def simulated(*, run: int, steps: int, seed: int) -> dict[str, float]:
    """Simulates a run, with lengths that have its tailness and a step that has its rate."""
    of = RUNS[run]
    drawn = lambda sigma: rollouts.lognormal(prompts=12_000, group=GROUP, sigma=sigma, share=SHARE, seed=seed)
    work = drawn(optimize.brentq(lambda sigma: drawn(sigma).tailness() - of.tailness, 0.1, 1.0, xtol=1e-4))
    seconds = of.rho * of.rollouts * work.mean() / (of.slots * SPEED)
    system = rollouts.System(1, of.slots, SPEED, batch=of.rollouts // GROUP, train=seconds, transfer=0.0)
    make = lambda *, batch: rollouts.queue_drop(batch=batch, capacity=of.queue)
    return {"staleness": float(rollouts.simulate(work, system, make, num_steps=steps).staleness(steps // 6).mean())}


def closed(run: Run) -> float:
    """Return the printed formula, of the run's numbers as they are noted."""
    longest = round(100 * run.tailness)  # of pairs of rollouts with a mean of 100 tokens
    work = rollouts.Workload(np.array([[[longest, 200 - longest]]]))
    seconds = run.rho * run.rollouts * 100 / run.slots
    system = rollouts.System(1, run.slots, 1.0, batch=run.rollouts // 2, train=seconds, transfer=0.0)
    return rollouts.predict(work, system).queue_staleness(run.queue)


def claims(simulations: list[np.ndarray]) -> list[Claim]:
    """Return the claims; those on runs whose predictions do not follow from the numbers that we have are outside."""
    follows = lambda run: abs(closed(RUNS[run]) - RUNS[run].predicted) <= STALENESS_FOLLOWS
    follow, others = ([run for run in range(len(RUNS)) if follows(run) == does] for does in (True, False))
    ratio = [own / RUNS[run].measured for run, own in enumerate(simulations)]
    formula = [own / closed(RUNS[run]) for run, own in enumerate(simulations)]
    is_near = lambda times: below(np.abs(times - 1), STALENESS_CLOSE)
    near = f"(here: within {100 * STALENESS_CLOSE:g} %)"
    listed = lambda runs, values: ", ".join(f"run {run + 1}: {values[run]}" for run in runs)
    says = "the mean staleness of a run follows from utilisation, batch, queue, concurrency and tailness"
    means, measured = [interval(own) for own in simulations], [f"{run.measured:g}" for run in RUNS]
    predicted, by_formula = [f"{run.predicted:.2f}" for run in RUNS], [f"{closed(run):.2f}" for run in RUNS]
    return [
        Claim(
            f"{says} {near}: the runs whose predictions follow from their numbers",
            "introduction; table of six runs, by notes",
            ours=f"simulated {listed(follow, means)}",
            paper=f"measured {listed(follow, measured)}",
            holds=all_of(is_near(ratio[run]) for run in follow),
        ),
        Claim(
            f"{says} {near}: the other runs",
            "introduction; table of six runs, by notes",
            ours=f"simulated {listed(others, means)}",
            paper=f"measured {listed(others, measured)}",
            holds=all_of(is_near(ratio[run]) for run in others),
            premises=[
                Premise(
                    f"the article's numbers, by which it predicts {listed(others, predicted)}",
                    f"numbers noted by readers, by which its formula predicts {listed(others, by_formula)}",
                    all(follows(run) for run in others),
                    (STALENESS_FOLLOWS,),
                )
            ],
        ),
        Claim(
            f"the closed form is the mean of simulated runs {near}",
            "introduction",
            ours=f"simulated over closed form: {listed(range(len(RUNS)), [interval(value) for value in formula])}",
            holds=all_of(map(is_near, formula)),
        ),
        Claim(
            "a queue of one batch in place of two makes rollouts fresher",
            "runs 3 and 6, by notes",
            ours=f"{interval(simulations[5] / simulations[2])} times as stale",
            paper=f"{RUNS[5].measured / RUNS[2].measured:.2f} times",
            holds=below(simulations[5] / simulations[2], 1.0),
        ),
    ]


def _drawn(simulations: list[np.ndarray]) -> Figure:
    drawn, panels = canvas(1, 1, width=8, height=4.4)
    panel, places = panels[0, 0], np.arange(1, len(RUNS) + 1)
    bars(
        panel, places - 0.15, list(map(interval, simulations)), color=PALETTE[0], fmt="o", capsize=3, label="simulated"
    )
    for shift, mark, shade, label, values in (
        (-0.05, "s", PALETTE[1], "closed form", [closed(run) for run in RUNS]),
        (0.05, "^", PALETTE[2], "prediction in the article", [run.predicted for run in RUNS]),
        (0.15, "x", "black", "measured in the article", [run.measured for run in RUNS]),
    ):
        panel.plot(places + shift, values, mark, color=shade, label=label)
    names = [f"run {n}\n{run.slots} slots,\n{run.rollouts} a step,\nqueue {run.queue}" for n, run in enumerate(RUNS, 1)]
    panel.set_xticks(places, names, fontsize=9)
    panel.set(ylabel="mean staleness by rollout, versions", ylim=(0, None))
    panel.legend(fontsize=9)
    return drawn
