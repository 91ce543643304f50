"""The number of 100 machines' gradients that an update should wait for (Chen et al. 2016, Figures 5 and 6).

Figure 5 shows the updates to converge if each averages N gradients. The paper prints two of them, 137.5e3 at N = 50 and
76.2e3 at N = 100; a + b/N is drawn through them. Here, updates are counted until the test accuracy, evaluated after
every update and smoothed, first reaches 93 %: a perceptron on the digits with the learning rate r N times 0.94 every 2
epochs, as in Appendix A.2. The result depends on r, so that several are shown, tuned for no N (--rates); the paper's
0.045 is for Inception and RMSProp. Verdicts rest on the smallest r, with which an update does least.

Figure 6 shows the time to converge with N of 100 machines: these updates, interpolated linearly between the measured N
as in the paper, times the mean time to collect N of 100 gradients (figures3_4). How these times grow from the 90th
gradient to the 98th depends on the spread of compute times, which is ours (--spreads).

Differences from Appendix A.2: Nesterov SGD with momentum 0.9 instead of RMSProp with decay and momentum 0.9
(--optimizer=rmsprop), which takes as long; 2 examples per gradient instead of 32 (--examples=32); the accuracy of the
parameters instead of their moving average's with decay 0.9999 (--average_decay=0.9999). The paper's 6 backup workers
are left out: they "serve only to reduce our data collection time" (its footnote 2). The sizes gpu and paper have none
of these differences; but there too a run has converged when it reaches a precision (--target), since the paper does not
say how it decides. At the size paper that is 77.75 %, the highest precision that its text names.

A moving average with decay d is about 1/(1 - d) updates behind the parameters: 10,000 of the paper's 76,200 updates at
N = 100, and 50 of about 60 here if d is 0.98. The same delay for all N hides what more gradients gain, so that
--average_decay should grow with the length of the runs: 0.88 has the paper's ratio at r = 0.0008.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from ml_collections import ConfigDict

from configs import digits
from experiments import harness, papers
from experiments.backup_workers import training
from experiments.backup_workers.stragglers import LAW, MACHINES, collected, in_parts
from experiments.backup_workers.training import Size, times
from experiments.harness import (
    Claim,
    Count,
    Evidence,
    Interval,
    Output,
    Positive,
    Premise,
    Scale,
    Share,
    above,
    bars,
    canvas,
    interval,
    known,
    least,
)
from experiments.thresholds import NEARLY_HALF
from sgdlab.runs import resolve

PRINTED, BEST = {50: 137.5e3, 100: 76.2e3}, 96
"""N -> updates to converge (section 3.1), and the N with the shortest time (Figure 6)."""
FACTOR = PRINTED[50] / PRINTED[100]
THROUGH = "paper, a + b/N"
"""The name of the updates through `PRINTED`."""
A2 = {"examples": 32, "optimizer": "rmsprop"}
"""The training of Appendix A.2."""
_BELOW = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.12), "ncols": 2}
"""Places of the legends."""
_Found = tuple[list[str], dict[str, Evidence]]
BACKUPS = 6
"""b of Figure 5, at the sizes gpu and paper."""


@harness.figure(
    papers.CHEN,
    ("Figure 5", "Figure 6"),
    scales={
        "smoke": Scale("5 s", gradients=[90, 100], rates=[0.01], seeds=2, epochs=1.0, target=0.2, iterations=200),
        "laptop": Scale("3 min"),
        "decide": Scale("4 min", seeds=40, iterations=50_000),
        "gpu": Scale(
            "50 min on one GPU, estimated",
            size="gpu",
            rates=[training.RATES["gpu"]],
            seeds=2,
            epochs=40.0,
            target=0.5,
            average_decay=0.99,
            **A2,
        ),
        "paper": Scale(
            "GPU-months, estimated; see --dry_run",
            size="paper",
            rates=[training.RATES["paper"]],
            seeds=1,
            epochs=191.0,
            target=0.7775,
            average_decay=0.9999,
            **A2,
        ),
    },
    differs="At the size laptop not Inception, RMSProp and 32 examples per gradient, but a perceptron on UCI digits, "
    f"Nesterov SGD and 2; at gpu {training.DIFFERS['gpu']}. Run-times are a model's.",
    stand_in="digits (8 x 8) in place of ImageNet",
)
def figures5_6(  # noqa: PLR0913 (its flags)
    *,
    size: Size = "laptop",
    gradients: Sequence[Count] = (50, 70, 80, 90, 100),
    rates: Sequence[Positive] = (0.0004, 0.0008, 0.0016),
    seeds: Count = 10,
    epochs: Positive = 25.0,
    target: Share = 0.93,
    examples: Count = 2,
    optimizer: Literal["nesterov", "rmsprop"] = "nesterov",
    average_decay: Share | None = None,
    iterations: Count = 20_000,
    spreads: Sequence[Positive] = (0.03, 0.05, 0.08),
) -> Output:
    """Trains the runs, and multiplies their updates by the time that an update takes.

    Args:
      size: what is trained; at laptop on digits, with a test fold for each seed.
      gradients: values of N to train with, two or more of at most 100.
      rates: values of r; an update of N gradients has the learning rate r N.
      seeds: number of seeds: 0, 1, ...
      epochs: length of each run, also after the target is reached.
      target: test accuracy at which a run has converged.
      examples: examples per gradient.
      optimizer: Nesterov SGD, or RMSProp with momentum as in A.2; the momentum is 0.9.
      average_decay: decay per update, below 1, of the parameters' moving average, whose accuracy counts; by default
        that of the parameters counts.
      iterations: number of iterations to draw for the mean time to collect N gradients.
      spreads: standard deviations of the logarithm of compute times for which the best N is told.

    Raises:
      ValueError: if `gradients` has another length or a larger value.
    """
    gradients, rates = sorted(gradients), sorted(rates)
    if len(gradients) < 2 or gradients[-1] > MACHINES:
        raise ValueError(f"gradients={','.join(map(str, gradients))} must be two or more, of at most {MACHINES}")
    backups = 0 if size == "laptop" else BACKUPS
    config = configured(size, epochs, examples, optimizer, backups)
    config.average_decay = 0.98 if average_decay is None else average_decay
    if size == "laptop":  # so many that the runs with the smallest N are evaluated after every update
        config.evaluations = math.ceil(resolve(config).num_gradients / gradients[0])
    machines = [n + backups for n in gradients]
    over = {
        "optimizer.learning_rate": rates,
        "cluster.num_workers": machines,
        "seed": range(seeds),
    }
    precision, runs = (
        "average_accuracy" if average_decay else "test_accuracy",
        training.curves(harness.Sweep(config, over)),
    )
    first = np.array([training.reached(run, target, "updates", precision=precision) for run in runs])
    first = first.reshape(len(rates), len(gradients), seeds)
    counts = np.arange(gradients[0], gradients[-1] + 1)
    updates = {THROUGH: {n: np.array([value]) for n, value in zip(counts.tolist(), paper_updates(counts), strict=True)}}
    for rate, of_rate in zip(rates, first, strict=True):
        updates[f"r = {rate:g}"] = dict(zip(gradients, of_rate, strict=True))
    draws = collected(iterations, seed=0)
    others = {spread: collected(iterations, 0, spread)[:, counts - 1].mean(axis=0) for spread in spreads}
    data = training.DATA[size].replace("pairs of ", "")
    table, picture, claims = compared(counts, draws[:, counts - 1], updates, others, data)
    table = with_floors(table, picture, float(draws.mean()))
    notes = [
        f"{int(np.isinf(first).sum())} of {first.size} runs did not reach the target; their N are left out. ± is a "
        "95 % confidence interval over seeds. Updates between the measured N are interpolated linearly. The curve a + "
        "b/N is no measurement: no verdict rests on it.",
        "The larger r is, the less a larger N helps: one update with the rate r N then moves the parameters less than "
        "N updates with the rate r. The minimum is flat: where it lies depends on how fast the times grow from the "
        "90th gradient to the 98th, which the paper does not say, and on a few updates. The spread of the model's "
        f"times, {LAW.spread:g}, was chosen with N = {BEST} in view.",
        least.note(
            f"{least.SYNCHRONOUS} (N = {MACHINES})", "the mean of the model's run-times, in which all are alike"
        ),
    ]
    return Output(table[table.N.isin(gradients) | (table.N >= 94)], picture, claims, notes)


def configured(size: Size, epochs: float, examples: int, optimizer: str, backups: int) -> ConfigDict:
    """Return what is trained: a perceptron on digits, or what `training.inception` says.

    The arguments are those of `figures5_6`, and b.

    Example:
      >>> configured("paper", 191.0, 32, "rmsprop", 6).network.kind
      'inception'
    """
    if size == "laptop":
        config = digits.get_config()
        config.epochs = epochs
        config.network.kind, config.network.mlp.widths, config.optimizer.momentum = "mlp", (64,), 0.9
        config.rate.update(warmup_epochs=0.0, decay="exponential", factor=0.94, period=2.0)
        config.split = "drawn"
    else:
        config = training.inception(size, epochs=epochs)
    config.method, config.batch_size = "backup_workers" if backups else "synchronous", examples
    if backups:
        config.protocol.backup_workers.backups = backups
    config.rule.kind = "rmsprop" if optimizer == "rmsprop" else None  # None: Nesterov SGD, the method's own rule
    return config


def paper_updates(counts: np.ndarray) -> np.ndarray:
    r"""Updates to converge at any N: :math:`a + b / N` through the two values that the paper prints.

    Example:
      >>> paper_updates(np.array([50, 75, 100])).round()
      array([137500.,  96633.,  76200.])
    """
    (low, at_low), (high, at_high) = sorted(PRINTED.items())
    slope = (at_low - at_high) / (1 / low - 1 / high)
    return at_high + slope * (1 / np.asarray(counts, float) - 1 / high)


def resampled(
    counts: np.ndarray, seconds: np.ndarray, updates: Mapping[int, np.ndarray], *, samples: int = 1000
) -> np.ndarray:
    """Bootstraps the best N: seeds, the same for all N, and durations are drawn with replacement.

    Args:
      counts: int[C], values of N.
      seconds: float64[T, C], durations of T updates, of which 20 parts are drawn with replacement.
      updates: N -> float64[seeds], updates to converge; linearly interpolated between.
      samples: number of bootstrap samples.

    Returns:
      int[samples]; of fewer than 2 seeds or durations none.

    Example:
      >>> resampled(np.arange(10, 21), np.ones((2, 11)), {10: [20, 20], 20: [10, 10]}, samples=3)
      array([20, 20, 20])
    """
    generator, measured, parts = np.random.default_rng(0), np.array(list(updates.values()), float).T, in_parts(seconds)
    if min(len(measured), len(parts)) < 2:
        return np.array([], int)
    means, durations = (v[generator.integers(len(v), size=(samples, len(v)))].mean(axis=1) for v in (measured, parts))
    curves = np.array([np.interp(counts, list(updates), mean) for mean in means])
    return counts[np.argmin(curves * durations, axis=1)]


def is_best(drawn: np.ndarray, best: int) -> Evidence:
    """Return the evidence that a number is the best one, from the best ones of bootstrap samples.

    It is against it that nearly all are on one side of it, and not that few are equal: of a flat minimum few are.

    Example:
      >>> flat = np.array([95] * 490 + [96] * 20 + [97] * 490)
      >>> is_best(flat, 96).holds, is_best(flat, 98).holds, is_best(np.full(1000, 96), 96).holds
      (None, False, True)
    """
    others = float(np.mean(drawn != best))
    aside = 2 * min(float(np.mean(drawn <= best)), float(np.mean(drawn >= best)))
    p_for, p_against = (min(1.0, max(p, 1 / drawn.size)) for p in (others, aside))
    return Evidence(p_for, p_against, about=f"the best in {100 * (1 - others):.3g} % of {drawn.size} samples")


def longer(updates: Mapping[int, np.ndarray], seconds: np.ndarray) -> Interval:
    """Return the logarithm of the time with all machines' gradients over that with the paper's best N.

    Args:
      updates: N -> float64[seeds], updates to converge; linearly interpolated between.
      seconds: float64[T, 2], durations of T updates with each.

    Example:
      >>> math.exp(longer({96: [1, 2], 100: [1, 2]}, np.array([[1, 2], [1, 2]])).low)
      2.0
    """
    pairs = [np.interp((BEST, MACHINES), list(updates), of_seed) for of_seed in zip(*updates.values(), strict=True)]
    factors = np.array(pairs).T, in_parts(seconds).T  # independent: squared errors of logarithms add up
    logs = [interval(np.log(of_all / of_best)) for of_best, of_all in factors]
    return Interval(sum(log.mean for log in logs), math.hypot(*(log.half for log in logs)), len(pairs))


def with_floors(table: pd.DataFrame, picture: Figure, gradient: float) -> pd.DataFrame:
    """The table with the least time over the shortest, which is drawn too: all machines' gradients without waiting.

    Args:
      table: as `compared` returns it.
      picture: as `compared` returns it; lines of the least time have the colours of its own.
      gradient: mean seconds of a gradient, in all machines alike.
    """
    times, rows = picture.axes[1], []
    shades = {line.get_label().rpartition(":")[0]: line.get_color() for line in times.lines}
    whole = table[table.N == MACHINES].set_index(["updates of", "quantity"]).ours.to_dict()
    for name, shade in shades.items():
        if (over := whole.get((name, "time, over the shortest"))) is not None:
            floor = over * gradient / whole["all", "seconds per update"]
            rows.append((name, MACHINES, f"{least.FLOOR}, over the shortest time", floor, None, None))
            label = "_" if rows[1:] else f"dotted: {least.FLOOR}"
            times.axhline(floor, color=shade, linestyle=":", linewidth=1.2, label=label)
            times.set_ylim(min(times.get_ylim()[0], floor - 0.02), None)
    times.legend(**_BELOW)
    return pd.concat([table, pd.DataFrame(rows, columns=table.columns)]) if rows else table


def compared(
    counts: np.ndarray,
    seconds: np.ndarray,
    updates: Mapping[str, Mapping[int, np.ndarray]],
    others: Mapping[float, np.ndarray] | None = None,
    data: str = "",
) -> tuple[pd.DataFrame, Figure, list[Claim]]:
    """Compares values of N by their times to converge.

    Args:
      counts: int[C], values of N.
      seconds: float64[T, C], durations of T updates.
      updates: name -> N -> float64[seeds], updates to converge, infinite where a run does not: such an N is left out.
        Verdicts rest on the first that is not through the paper's numbers.
      others: other spreads of compute times -> float64[C], mean durations.
      data: what was trained on.
    """
    draws, seconds = seconds, seconds.mean(axis=0)
    rows = [("all", n, "seconds per update", s, None, None) for n, s in zip(counts.tolist(), seconds, strict=True)]
    halving, fastest, waits = ([], {}), ([], {}), ([], {})  # texts, and evidence by name
    decides, elsewhere = next((name for name in updates if name != THROUGH), THROUGH), {}
    picture, ((left, right),) = canvas(1, 2, width=12, height=5.6)
    styles = zip((harness.PAPER, *harness.PALETTE), itertools.cycle(("--", "-", "-.", ":")), itertools.cycle("so^v"))
    for (name, by_n), (shade, dash, mark) in zip(updates.items(), styles, strict=False):
        found = {n: values for n, values in by_n.items() if np.isfinite(values).all()}
        if len(found) < 2:
            continue
        within = (counts >= min(found)) & (counts <= max(found))
        here, intervals = counts[within], [interval(values) for values in found.values()]
        mean = np.interp(here, list(found), [of_n.mean for of_n in intervals])
        time = mean * seconds[within] / np.min(mean * seconds[within])
        best, close = int(here[time.argmin()]), here[time <= 1.01]
        for n, of_n in zip(found, intervals, strict=True):
            rows.append((name, n, "updates", of_n.mean, of_n.half, PRINTED.get(n) if name == THROUGH else None))
        rows += [(name, n, "time, over the shortest", t, None, None) for n, t in zip(here.tolist(), time, strict=True)]
        rows.append((name, best, "N with the shortest time", best, None, BEST))
        fastest[0].append(f"{name}: N = {best}, {close.min()} to {close.max()} are within 1 %")
        if name != THROUGH:
            drawn = resampled(here, draws[:, within], found)
            if drawn.size:
                low, high = np.quantile(drawn, [0.05, 0.95], method="nearest")
                fastest[0][-1] += f", {low} to {high} in 90 % of bootstrap samples"
            if {50, 100} <= set(found):
                ratio, log = interval(found[50] / found[100]), interval(np.log(found[50] / found[100]))
                rows.append((name, 50, "updates, over those of N = 100", ratio.mean, ratio.half, FACTOR))
                halving[0].append(f"{name}: {times(log)} fewer")
                halving[1][name] = above(log, NEARLY_HALF.rewritten(math.log(NEARLY_HALF)))
            if {BEST, MACHINES} <= set(here.tolist()):
                both = longer(found, draws[:, [BEST - counts[0], -1]])
                waits[0].append(f"{name}: {times(both)} as long")
                waits[1][name] = above(both)
            if drawn.size and BEST in here:
                fastest[1][name] = is_best(drawn, BEST)
            if name == decides:
                elsewhere = {
                    spread: int(here[(mean * of_n[within]).argmin()]) for spread, of_n in (others or {}).items()
                }

        style, marked = {"color": shade, "linestyle": dash}, PRINTED if name == THROUGH else found
        left.plot(here, mean / mean[-1], label=name, **style)
        ratios = {n: interval(found[n] / found[max(found)]) for n in marked if n in found}  # paired by seed
        bars(left, list(ratios), ratios.values(), fmt=mark, color=shade)
        right.plot(here, time, marker=mark, markevery=[time.argmin()], label=f"{name}: N = {best}", **style)
    left.plot(counts, counts[-1] / counts, color="#7a7a7a", linewidth=1, label=f"{counts[-1]}/N")
    left.set(title=f"Figure 5, {data}", ylabel=f"updates to converge, over those of N = {counts[-1]}")
    right.set(title="Figure 6 (marked: the shortest)", ylabel="time to converge, over the shortest", ylim=(0.97, 1.75))
    for axes in (left, right):
        axes.set_xlabel(f"N, gradients per update, of {MACHINES} machines")
        axes.legend(**_BELOW)
    table = pd.DataFrame(rows, columns=["updates of", "N", "quantity", "ours", "±", "paper"])
    return table.replace(math.inf, math.nan), picture, _claims(halving, fastest, waits, decides, elsewhere)


def _claims(
    halving: _Found, fastest: _Found, waits: _Found, decides: str, elsewhere: Mapping[float, int]
) -> list[Claim]:
    """Return the claims from texts and evidence by name, of which one decides, and the best N of other spreads."""
    more: dict[str, Any] = {}
    if elsewhere:
        bests = ", ".join(f"N = {n} with a spread of {spread:g}" for spread, n in elsewhere.items())
        premise = Premise(
            "the run-times of the paper's machines", f"{bests} ({decides})", len({*elsewhere.values()}) < 2
        )
        more = {
            "premises": [premise],
            "because": "" if premise.met else "The best N depends on the spread of run-times.",
        }
    nearly = f"nearly halve ({NEARLY_HALF:g} times fewer at least)"
    return [
        Claim(says, where, "; ".join(texts) or "not measured", found.get(decides, known(None)), *paper, **others)
        for says, where, (texts, found), paper, others in (
            (
                f"As N is doubled from 50 to 100, the iterations to converge {nearly}", "section 3.1", halving,
                ("137.5e3 and 76.2e3", FACTOR > NEARLY_HALF), {},
            ),
            ("Convergence is fastest with N = 96, b = 4", "Figure 6", fastest, ("N = 96",), more),
            (
                "A few backup workers mitigate stragglers (N = 100 takes longer than N = 96)", "section 3.1", waits,
                (), {},
            ),
        )
    ]  # fmt: skip
