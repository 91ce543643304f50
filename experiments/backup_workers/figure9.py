"""Synchronous, asynchronous and serial RMSProp on PixelCNN (Chen et al. 2016, Figure 9).

As in Appendix A.4: 1, 8 and 16 machines of equal speed, one of them a backup where updates wait; RMSProp with decay
0.95 and momentum 0.9, 4 examples a gradient, and the same number of updates for all, over which the rate falls to 3 %.
Shown is the lowest test negative log-likelihood (nats per dimension) that a run has reached by a virtual time, in which
only gradients take time, and the time that it needs to a level eps. The paper's eps is 2.183, which serial training
reaches in 40 h; here eps is the lowest level of serial training with the same seed, and so on the same test examples.

At the size laptop the rate is, of 0.001, 0.002, 0.004, ..., the best one of serial training (seed 0); all others have
the same, as in the paper.
"""

import itertools
import math
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from experiments import harness, papers
from experiments.backup_workers import training
from experiments.backup_workers.training import Size, late, times
from experiments.harness import (
    Claim,
    Count,
    Evidence,
    Interval,
    Output,
    Positive,
    Scale,
    Sweep,
    above,
    all_of,
    any_of,
    canvas,
    interval,
    least,
)

SERIAL, SYNC, ASYNC = "serial", "synchronous, b = 1", "asynchronous"
EPS, HOURS, UPDATES = 2.183, (40.0, 13.0), 200_000
"""The level of the paper in nats; hours of serial and, at most, of synchronous training to it (section 4.3); updates of
a run (Appendix A.4)."""
SHORT = (
    "The rate must fall before serial or synchronous training comes to a low level, and in a short run the same number "
    "of updates, the same time, goes by until then for both."
)
"""Why synchronous training may not be so much faster."""


@harness.figure(
    papers.CHEN,
    "Figure 9",
    scales={
        "smoke": Scale("15 s", machines=[3, 4], seeds=2, updates=8, evaluations=3),
        "laptop": Scale("4 min"),
        "gpu": Scale("40 min on one GPU, estimated", size="gpu", seeds=1, updates=20_000, rate=3e-4),
        "paper": Scale("GPU-weeks, estimated; see --dry_run", size="paper", seeds=1, updates=UPDATES, rate=1e-4),
    },
    differs="At the size laptop 2 layers of 16 features on UCI digits with 17 grey levels, and 1,200 updates; at gpu 5 "
    "of 64 on CIFAR-10, and 20,000. The paper does not give the size of its network; messages take no time here.",
    stand_in="digits (8 x 8) in place of CIFAR-10",
)
def figure9(
    *,
    size: Size = "laptop",
    machines: list[Count] = (8, 16),
    seeds: Count = 5,
    updates: Count = 1200,
    rate: Positive = 0.004,
    evaluations: Count | None = None,
) -> Output:
    """Trains with one machine, and with several in both ways.

    Args:
      size: what is trained; at laptop on digits, with a test fold for each seed.
      machines: numbers of machines N + b, from 2, besides the single one.
      seeds: number of seeds: 0, 1, ...
      updates: updates of each run.
      rate: initial learning rate of an update.
      evaluations: number of evaluations in a run; by default that of the size.

    Raises:
      ValueError: if there is a single machine among `machines`.
    """
    if min(machines) < 2:
        raise ValueError(f"machines={','.join(map(str, machines))} must be at least 2: one of them is a backup")
    base = training.pixelcnn(size, updates=updates, rate=rate)
    if evaluations is not None:
        base.evaluations = evaluations
    kinds = {(SERIAL, 1): training.synchronous(1, 0)}
    for count in sorted(machines):
        kinds |= {(SYNC, count): training.synchronous(count, 1), (ASYNC, count): training.asynchronous(count, None)}
    over = [training.taking(base, kind, updates) | {"seed": seed} for kind in kinds.values() for seed in range(seeds)]
    runs = [run.assign(best=run.test_loss.cummin()) for run in training.curves(Sweep(base, over))]
    return compared({key: runs[seeds * i : seeds * (i + 1)] for i, key in enumerate(kinds)}, size)


def _hours_to(level: float, runs: Sequence[pd.DataFrame]) -> np.ndarray:
    """float64[seeds], when each run first had a loss as low as a level; infinite where it never had."""
    there = ((run.hours.to_numpy(), run.best.to_numpy() <= level) for run in runs)
    return np.array([np.min(hours[low_enough], initial=np.inf) for hours, low_enough in there])


def _over(times: np.ndarray, others: np.ndarray) -> np.ndarray:
    """The ratio of times; NaN where both are 0, since a level is reached at once, or where neither reaches it."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return times / others


def compared(runs: Mapping[tuple[str, int], Sequence[pd.DataFrame]], size: Size = "laptop") -> Output:
    """Return the table, the picture and the claims."""
    best = {key: np.array([run.best.iloc[-1] for run in of_seeds]) for key, of_seeds in runs.items()}
    eps = best[SERIAL, 1]
    beyond = {
        key: [run.assign(best=run.best - level) for run, level in zip(of_seeds, eps, strict=True)]
        for key, of_seeds in runs.items()
    }
    hours = {key: _hours_to(0.0, of_seeds) for key, of_seeds in beyond.items()}
    rows = []
    for (kind, count), losses in best.items():
        found, spent = interval(losses), hours[kind, count]
        there = interval(spent[np.isfinite(spent)])
        rows.append((count, kind, "lowest test NLL, nats", found.mean, found.half, None))
        printed = dict(zip((SERIAL, SYNC), HOURS, strict=True)).get(kind)
        rows.append((count, kind, "hours to eps", there.mean, there.half, printed if size == "paper" else None))
        share = interval(_over(spent, hours[SERIAL, 1]))
        rows.append((count, kind, "time to eps, over serial's", share.mean, share.half, printed and printed / HOURS[0]))
        rows.append((count, kind, "runs that do not reach eps", int(np.isinf(spent).sum()), None, None))
    rows += [
        (count, least.FLOOR, "hours to eps", interval(least.seconds(hours[SERIAL, 1], count)).mean, None, None)
        for count in sorted({count for kind, count in runs if kind == SYNC})
    ]
    columns = ["machines", "kind", "quantity", "ours", "±", "paper"]
    table = pd.DataFrame(rows, columns=columns).replace(np.inf, np.nan)

    counts = sorted({count for kind, count in runs if kind == SYNC})
    lower = {count: interval(best[ASYNC, count] - best[SYNC, count]) for count in counts}
    behind = {count: interval(best[ASYNC, count] - eps) for count in counts}
    worse = {pair: interval(best[ASYNC, pair[1]] - best[ASYNC, pair[0]]) for pair in itertools.pairwise(counts)}
    with np.errstate(invalid="ignore", divide="ignore"):
        faster = {count: interval(np.log(hours[SERIAL, 1]) - np.log(hours[SYNC, count])) for count in counts}
    missed = {count: int(np.isinf(hours[ASYNC, count]).sum()) for count in counts}
    factor = HOURS[0] / HOURS[1]

    def words(found: Mapping[int, Interval], unit: str) -> str:
        return ", ".join(f"{each} {unit} with {count}" for count, each in found.items())

    claims = [
        Claim(
            "Synchronous training obtains a lower NLL than asynchronous training", "section 4.3, Figure 9a",
            words(lower, "nats lower"), all_of(map(above, lower.values())),
        ),
        Claim(
            "Asynchronous training is even outperformed by serial RMSProp with one worker, whose level it never has",
            "section 4.3, Figures 9a and 9b",
            ", ".join(f"{missed[count]} of {len(best[ASYNC, count])} runs with {count} did not reach the lowest NLL of "
                      f"serial training with the same seed: they end {behind[count]} nats above" for count in counts),
            all_of(never_reached(best[ASYNC, count] - eps) for count in counts),
        ),
        Claim(
            "Asynchronous training degrades as N increases from 8 to 16", "section 4.3, Figure 9a",
            ", ".join(f"{each} nats more with {more} than with {few}" for (few, more), each in worse.items()),
            all_of(map(above, worse.values())),
        ),
        Claim(
            "Synchronous training reduces the time to a level that serial training reaches from 40 h to less than 13 h "
            f"(the fastest is {factor:.2g} times as fast)", "section 4.3, Figure 9b",
            f"to {interval(eps)} nats {', '.join(f'{times(each)} as fast with {n}' for n, each in faster.items())}",
            any_of(above(each, math.log(factor)) for each in faster.values()),
            f"{HOURS[0]:g} h and less than {HOURS[1]:g} h to {EPS:g} nats",
            **late(itertools.chain(*runs.values()), SHORT, UPDATES),
        ),
    ]  # fmt: skip
    notes = [
        f"± is a 95 % confidence interval over {len(best[SERIAL, 1])} seeds; differences are paired. eps is "
        f"{interval(eps)} nats, the lowest NLL of serial training with the same seed.",
        f"The paper's eps is {EPS:g}, reached serially in {HOURS[0]:g} h, synchronously in less than {HOURS[1]:g}.",
        "All runs have the same number of updates, so that asynchronous ones end first; a synchronous update uses N "
        "times as many examples as any other.",
        least.note(least.SINGLE, "all machines are equally fast"),
    ]
    data = "digits (in place of CIFAR-10)" if size == "laptop" else "CIFAR-10"
    return Output(table, _picture(beyond, data), claims, notes)


def never_reached(above_level: np.ndarray) -> Evidence:
    """Return the evidence that runs never reach their levels: it is open where the mean is above and one reaches it.

    Args:
      above_level: float64[seeds], how far above its level each run ends, in nats; 0 is reached.

    Example:
      >>> [never_reached(np.array(ends)).holds for ends in ([0.3, 0.4, 0.5], [0.4, 0.4, 0.5, 0.0], [-0.3, -0.4, -0.5])]
      [True, None, False]
    """
    return all_of([above(above_level), *[None] * bool((above_level <= 0).any())])


def _picture(runs: Mapping[tuple[str, int], Sequence[pd.DataFrame]], data: str) -> Figure:
    """Draw (a) the lowest loss so far, above eps, by time, (b) the time to each level."""
    drawn, ((left, right),) = canvas(1, 2, width=12)
    lows = [run.best.iloc[-1] for of_seeds in runs.values() for run in of_seeds]
    highest = max(0.2, max(lows) + 0.05)
    levels = np.linspace(min(lows), highest, 200)
    counts = sorted({count for _, count in runs})
    dashes = dict(zip(counts, ("-", "-", "--", ":", "-."), strict=False))
    for (kind, count), of_seeds in runs.items():
        shade = harness.PALETTE[3] if kind == SERIAL else harness.colour(kind.partition(",")[0])
        style = {"color": shade, "linestyle": dashes.get(count, "-")}
        label = SERIAL if kind == SERIAL else f"{kind}, {count} machines"
        mean = pd.concat(of_seeds).groupby("gradients")[["hours", "best"]].mean()
        left.plot(mean.hours, mean.best, label=label, **style)
        spent = np.array([_hours_to(level, of_seeds) for level in levels])
        there = np.isfinite(spent).all(axis=1)
        right.plot(levels[there], spent[there].mean(axis=1), label=label, **style)
        if kind == SERIAL:
            for index, number in enumerate(each for each in counts if each > 1):
                of = f"{number} machines"
                least.line(left, least.seconds(mean.hours, number), mean.best, of=of, index=index % 4)
                least.line(
                    right, levels[there], least.seconds(spent[there].mean(axis=1), number), of=of, index=index % 4
                )
    left.axhline(0, color="#7a7a7a", linewidth=1)
    right.axvline(0, color="#7a7a7a", linewidth=1, label="eps: serial training's lowest")
    left.set(
        xlabel="virtual time, h", ylabel="lowest test NLL so far, above eps, nats", ylim=(min(lows) - 0.02, highest)
    )
    left.set_title(f"(a) {data}, mean over seeds")
    right.set(xlabel="test NLL, above eps, nats", ylabel="virtual time to reach it, h")
    right.set_title("(b) a line ends where a seed fails")
    right.invert_xaxis()
    right.legend(loc="upper left")
    return drawn
