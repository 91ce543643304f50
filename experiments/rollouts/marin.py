"""Two pilots of asynchronous reinforcement learning: the larger cap from the numbers of the smaller (marin #8936).

32 prompts with 4 answers are a step, 25 steps a pilot; what is staler than a version is thrown away. Of the pilot with
a cap of 2,048 tokens are taken: mean and share at the cap of the trained lengths, which give a log-normal law; seconds
of training and sending; and the share of the time in which the trainer waits, to which the speed of a slot is fitted.
The gate of the loop, the prompt's share of the variance, and who waits for the transfer are in neither pilot's table:
of twelve variants, that one is kept which comes nearest to the small pilot's share of stale tokens. With it the pilot
of 4,096 tokens is predicted; none of its numbers is used. Nothing is trained.
"""

import functools
import itertools

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from scipy import optimize, stats

from experiments.harness import PALETTE, Claim, Count, Output, Scale, Sweep, canvas, figure, goes_by
from experiments.rollouts.sources import MARIN
from experiments.thresholds import PILOT_CLOSE
from sgdlab import rollouts

STEPS, TRAIN, TRANSFER, SLOTS = 25, 9.45, 20.4, 256
PRINTED = {
    2048: {"seconds": 914.4, "stale": 0.014, "waiting": 0.186, "mean": 981.2, "at the cap": 0.146},
    4096: {"seconds": 1202.4, "stale": 0.329, "waiting": 0.376, "mean": 1134.0, "at the cap": 0.036},
}
UNITS = {
    "seconds": "seconds of the pilot", "stale": "share of the tokens that were stale",
    "waiting": "share of the time in which the trainer waits", "mean": "mean tokens of a trained answer",
    "at the cap": "share of the trained answers at the cap",
}  # fmt: skip
VARIANTS = list(itertools.product(("both", "trainer"), (0.25, 0.5, 1.0), (0.3, 0.6)))
"""Lists who waits for the transfer, the gate of the loop, and the prompt's share of the variance of log length."""


@figure(
    MARIN,
    "Pilots",
    scales={"smoke": Scale("10 s", seeds=1, bisections=3, variants=2), "laptop": Scale("1 min")},
    differs="The law of the lengths and the loop are reconstructions: one parameter is fitted to the small pilot, and "
    "one of twelve variants chosen by it.",
    full_size=True,
)
def marin(*, seeds: Count = 6, bisections: Count = 9, variants: Count = 12) -> Output:
    """Fits the small pilot and predicts the large one.

    Args:
      seeds: number of seeds.
      bisections: of the speed of a slot, between 15 and 400 tokens a second.
      variants: how many of the variants are tried, the first ones.
    """
    points = [{"hold": h, "gate": g, "share": s} for h, g, s in VARIANTS[:variants]]
    found = Sweep({"seeds": seeds, "bisections": bisections}, points, work=fitted).table()
    chosen = found.loc[(found["2048 stale"] - PRINTED[2048]["stale"]).abs().idxmin()]
    rows = [
        {"cap": cap, "quantity": words, "is": "fitted" if cap == 2048 else "predicted"}
        | {"ours": float(chosen[f"{cap} {name}"]), "paper": printed[name]}
        for cap, printed in PRINTED.items()
        for name, words in UNITS.items()
    ]
    notes = [
        f"Kept of {len(found)} variants: hold {chosen.hold}, gate {chosen.gate:g}, share {chosen.share:g}; fitted "
        f"speed {chosen.speed:.1f} tokens a second of a slot. Over all variants the stale share with 4,096 tokens is "
        f"{found['4096 stale'].min():.2f} to {found['4096 stale'].max():.2f}.",
        "Where trained answers are too short with 4,096 tokens, the log-normal tail is too thin. A few answers that "
        "loop until the cap would mend that, but nothing in the small pilot says how many.",
    ]
    return Output(pd.DataFrame(rows), _drawn(found, chosen), claims(chosen), notes)


def claims(chosen: pd.Series) -> list[Claim]:
    """Return a claim for each quantity: what is predicted of the large pilot is near what was printed."""
    found = []
    for name, near in (
        ("stale", PILOT_CLOSE),
        ("waiting", PILOT_CLOSE),
        ("seconds", PILOT_CLOSE * PRINTED[4096]["seconds"]),
    ):
        ours, paper = chosen[f"4096 {name}"], PRINTED[4096][name]
        found.append(
            Claim(
                f"the {UNITS[name]} with a cap of 4,096 tokens follows from the pilot with 2,048 (here: within "
                f"{near:.3g})",
                "table of the two pilots",
                ours=f"{ours:.4g}; speed and variant are fitted to the small pilot",
                paper=f"{paper:.4g}",
                holds=bool(abs(ours - paper) <= near),
                identity=True,
            )
        )
    return found


@goes_by(rollouts.simulate, rollouts.window)
def fitted(*, hold: str, gate: float, share: float, seeds: int, bisections: int) -> dict[str, float]:
    """Fits the speed of a slot to the waiting of the small pilot, and returns the numbers of both pilots."""
    low, high = 15.0, 400.0
    for _ in range(bisections):
        middle = (low * high) ** 0.5
        waits = pilot(2048, middle, hold, gate, share, min(seeds, 3))["waiting"]
        low, high = (middle, high) if waits > PRINTED[2048]["waiting"] else (low, middle)
    numbers = {cap: pilot(cap, high, hold, gate, share, seeds) for cap in PRINTED}
    return {"speed": high} | {f"{cap} {name}": value for cap, of in numbers.items() for name, value in of.items()}


def pilot(cap: int, speed: float, hold: str, gate: float, share: float, seeds: int) -> dict[str, float]:
    """Return the means over seeds of what the thread's table has of a pilot."""
    center, sigma = law()
    make = functools.partial(rollouts.window, lag=1, gate=gate)
    found = []
    for seed in range(seeds):
        own = {"mean": float(np.exp(center + sigma**2 / 2)), "sigma": sigma, "share": share, "cap": cap}
        work = rollouts.lognormal(prompts=6000, group=4, seed=seed, **own)
        system = rollouts.System(1, SLOTS, speed, batch=32, train=TRAIN, transfer=TRANSFER, hold=hold)
        run = rollouts.simulate(work, system, make, num_steps=STEPS)
        lengths, seconds = run.tokens[run.trained()], run.applied[-1]
        waits = 1 - (TRAIN + TRANSFER) * STEPS / seconds
        found.append([seconds, run.wasted()["stale"], waits, lengths.mean(), (lengths >= cap).mean()])
    return dict(zip(UNITS, np.mean(found, axis=0).tolist(), strict=True))


@functools.cache
def law() -> tuple[float, float]:
    """Return mean and deviation of log length of the normal law whose cut lengths have the small pilot's numbers."""
    cap, printed = 2048.0, PRINTED[2048]
    at = float(stats.norm.isf(printed["at the cap"]))

    def excess(sigma: float) -> float:
        center = np.log(cap) - at * sigma
        return float(
            np.exp(center + sigma**2 / 2) * stats.norm.cdf(at - sigma) + cap * stats.norm.sf(at) - printed["mean"]
        )

    sigma = float(optimize.brentq(excess, 0.05, 4.0))
    return float(np.log(cap) - at * sigma), sigma


def _drawn(found: pd.DataFrame, chosen: pd.Series) -> Figure:
    drawn, panels = canvas(1, 2, width=10.5, height=4.4)
    for panel, name in zip(panels[0], ("stale", "waiting"), strict=True):
        ends = found[[f"2048 {name}", f"4096 {name}"]].to_numpy().T
        first, *_ = panel.plot([2048, 4096], ends, color="0.8", linewidth=1)
        first.set_label(f"all {len(found)} variants")
        kept = [chosen[f"2048 {name}"], chosen[f"4096 {name}"]]
        panel.plot([2048, 4096], kept, color=PALETTE[0], marker="o", label="kept by the small pilot")
        panel.plot([2048, 4096], [PRINTED[cap][name] for cap in PRINTED], "kx", label="printed", markersize=9)
        panel.set(xlabel="cap, tokens", ylabel=UNITS[name], ylim=(0, None), xticks=[2048, 4096])
        panel.legend(fontsize=9)
    return drawn
