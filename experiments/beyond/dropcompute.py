"""DropCompute's speed-up against the number of workers, and a closed form of it (Giladi et al. 2023).

Every worker accumulates M micro-batches for an update, whose times are log-normal or normal with a given coefficient of
variation; a round ends with the slowest worker, or at a compute threshold, and communication takes a fixed time on top.
The threshold is the one with the largest effective speed-up in the first half of the rounds, as the authors choose it;
the speed-up is measured in the second half: used micro-batches per second, over those of the same rounds without a
threshold. The closed form takes the sums of a worker's times for normal: the M-fold mean, the expected largest of N
normal variables, and the share of the micro-batches that a normal sum has finished by the threshold. So it is judged
with normal times (of at least 1 ms); how far it is off with log-normal times, whose sums are skewed, is measured
too, once with the expected largest sum and once with that of the rounds themselves in its place. Nothing is trained.

The laws of the times are ours, and so is the closed form, derived from the definition, and by how much it may be off:
of the paper, abstract, summaries and the authors' code were at hand, not its own formula or noise.
"""

import itertools

import numpy as np
import pandas as pd
import scipy.stats
from matplotlib.figure import Figure

from experiments.beyond.sources import DROPCOMPUTE
from experiments.harness import (
    PALETTE,
    Claim,
    Count,
    NotNegative,
    Output,
    Positive,
    Scale,
    Sweep,
    above,
    all_of,
    below,
    canvas,
    figure,
    goes_by,
    interval,
)
from experiments.thresholds import DROPCOMPUTE_CLOSE
from sgdlab import protocols

LAWS = {"log-normal": "log-normal times", "normal": "normal times"}
WORDS = {
    "speedup": "speed-up",
    "expected": "speed-up, closed form",
    "given": "speed-up, closed form of the largest sum",
    "dropped": "dropped micro-batches, %",
}


@figure(
    DROPCOMPUTE,
    "Scaling",
    scales={"smoke": Scale("2 s", num_workers=[4, 16], rounds=8, seeds=2), "laptop": Scale("1 min")},
    differs="The paper's noise was not at hand; these are ours. Numbers cannot be compared, only what they show.",
    full_size=True,
)
def dropcompute(
    *,
    num_workers: list[Count] = (8, 16, 32, 64, 112, 200, 400),
    micro_batches: Count = 12,
    variation: Positive = 0.5,
    communication: NotNegative = 1.0,
    rounds: Count = 200,
    seeds: Count = 5,
) -> Output:
    """Simulates the rounds.

    Args:
      num_workers: numbers of workers.
      micro_batches: M, of a worker for an update.
      variation: coefficient of variation of a micro-batch's time; its mean is 1 s.
      communication: seconds of each round that are no computing.
      rounds: number of rounds; a threshold is chosen in the first half.
      seeds: number of seeds.
    """
    base = {"micro_batches": micro_batches, "variation": variation, "communication": communication, "rounds": rounds}
    counts = sorted(num_workers)
    points = {"law": list(LAWS), "num_workers": counts, "seed": range(seeds)}
    runs = Sweep(base, points, work=simulated).table()
    means = runs.groupby(["law", "num_workers"]).mean(numeric_only=True)
    rows = [
        {"times": law, "quantity": title, "N": count, "ours": means.loc[(law, count), name], "paper": None}
        for law in LAWS
        for name, title in WORDS.items()
        for count in counts
    ]
    return Output(pd.DataFrame(rows), _drawn(means), claims(runs), ["Means over seeds."])


@goes_by(protocols.dropcompute, protocols.best_threshold, protocols.expected_speedup)
def simulated(
    *, law: str, num_workers: int, micro_batches: int, variation: float, communication: float, rounds: int, seed: int
) -> dict[str, float]:
    """Simulates rounds with and without a threshold.

    Returns:
      `threshold`, seconds, `speedup`, `expected`, that of the closed form, `given`, that with the mean of the rounds'
      largest sums in it, and `dropped`, per cent.
    """
    shape = (2, max(rounds // 2, 1), num_workers, micro_batches)
    first, second = _times(law, variation, np.random.default_rng([seed, num_workers]), shape)
    given = {"communication": communication, "interrupt": True}
    threshold = protocols.best_threshold(first, **given)
    found = {"threshold": threshold, "speedup": 1.0, "expected": 1.0, "given": 1.0, "dropped": 0.0}
    if not np.isfinite(threshold):
        return found | {"threshold": float(np.cumsum(first, axis=-1).max())}
    # Both in the same rounds: with a threshold, a worker's next round begins with its next row.
    schedules = [
        [_of_round(times, micro_batches, seconds=seconds, **given) for times in second]
        for seconds in (threshold, np.inf)
    ]
    used, seconds = (np.array([each[i] for each in schedules[0]]) for i in (0, 1))
    all_used, all_seconds = (np.array([each[i] for each in schedules[1]]) for i in (0, 1))
    slowest = float(all_seconds.mean()) - communication
    return found | {
        "speedup": float((used.sum() / seconds.sum()) / (all_used.sum() / all_seconds.sum())),
        "dropped": float(100 * (1 - used.sum() / all_used.sum())),
        "expected": protocols.expected_speedup(
            threshold,
            num_workers=num_workers,
            micro_batches=micro_batches,
            mean=1.0,
            deviation=variation,
            communication=communication,
        ),
        "given": _finished(threshold, micro_batches, variation)
        * (slowest + communication)
        / (min(threshold, slowest) + communication),
    }


def _times(law: str, variation: float, generator: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    if law == "normal":
        return np.maximum(generator.normal(1.0, variation, shape), 1e-3)
    sigma = np.sqrt(np.log1p(variation**2))
    return np.exp(generator.normal(-(sigma**2) / 2, sigma, shape))


def _finished(threshold: float, micro_batches: int, variation: float) -> float:
    """Return the share of the micro-batches that normal sums have finished by the threshold."""
    numbers = np.arange(1, micro_batches + 1)
    return float(scipy.stats.norm.cdf((threshold - numbers) / (variation * np.sqrt(numbers))).mean())


def _of_round(
    times: np.ndarray, micro_batches: int, *, seconds: float, interrupt: bool, communication: float
) -> tuple[int, float]:
    """Used micro-batches and seconds of one round, of the protocol's own schedule."""
    schedule = protocols.dropcompute(
        times.T, micro_batches=micro_batches, seconds=seconds, interrupt=interrupt, communication=communication
    )
    return int(schedule.used().sum()), float(schedule.applied[0, 0])


def claims(runs: pd.DataFrame) -> list[Claim]:
    """Return what the paper says of scaling, and of its formula."""
    counts = sorted(set(runs.num_workers))
    of = {key: found.sort_values("seed") for key, found in runs.groupby(["law", "num_workers"])}
    skewed = {n: of["log-normal", n].speedup.to_numpy() for n in counts}
    gains = [skewed[b] - skewed[a] for a, b in itertools.pairwise(counts)]
    off = {key: np.abs(found.expected / found.speedup - 1).to_numpy() for key, found in of.items()}
    given = {key: np.abs(found.given / found.speedup - 1).to_numpy() for key, found in of.items()}
    worst = {law: max(counts, key=lambda n: off[law, n].mean()) for law in LAWS}
    words = {law: f"{interval(100 * off[law, n])} % with N = {n}" for law, n in worst.items()}
    largest = max((interval(100 * given["log-normal", n]) for n in counts), key=lambda found: found.mean)
    return [
        Claim(
            "the more workers, the larger the speed-up",
            "abstract and summaries",
            ours=", ".join(f"{interval(skewed[n])} (N = {n})" for n in counts) + ", log-normal times",
            holds=all_of(above(gain) for gain in gains) if gains else None,
        ),
        Claim(
            f"a closed form of mean and variance predicts it, where times are normal (here: within "
            f"{100 * DROPCOMPUTE_CLOSE:g} %)",
            "abstract: an analytical relation between compute time properties and scalability",
            ours=f"off by at most {words['normal']}; with log-normal times by {words['log-normal']}, and by at most "
            f"{largest} % if it is given the rounds' largest sum",
            holds=all_of(below(off["normal", n], DROPCOMPUTE_CLOSE) for n in counts),
        ),
    ]


def _drawn(means: pd.DataFrame) -> Figure:
    drawn, panels = canvas(1, 3, width=15, height=4.4)
    for panel, law in zip(panels[0], LAWS, strict=False):
        found = means.loc[law]
        panel.plot(found.index, found.speedup, "o-", color=PALETTE[0], label="simulated")
        panel.plot(found.index, found.expected, "--", color=PALETTE[1], label="closed form")
        panel.plot(found.index, found.given, ":", color=PALETTE[2], label="closed form of the largest sum")
        panel.set(xscale="log", xlabel="workers", ylabel="effective speed-up", title=LAWS[law])
    panels[0, 0].legend()
    values = means[["speedup", "expected", "given"]]
    for panel in panels[0, :2]:
        panel.set_ylim(values.min(axis=None) - 0.01, values.max(axis=None) + 0.01)
    for shade, law in zip(PALETTE, LAWS, strict=False):
        panels[0, 2].plot(means.loc[law].index, means.loc[law].dropped, "o-", color=shade, label=LAWS[law])
    panels[0, 2].set(
        xscale="log", xlabel="workers", ylabel="dropped micro-batches, %", ylim=(0, 1.1 * means.dropped.max() + 1)
    )
    panels[0, 2].legend()
    for panel in panels[0]:
        counts = sorted(means.index.unique("num_workers"))
        panel.set_xticks(counts, map(str, counts))
        panel.minorticks_off()
    return drawn
