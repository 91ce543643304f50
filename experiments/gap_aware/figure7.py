"""Test error by epoch with 16 workers, three frameworks (Barkai et al. 2020, Figure 7).

The runs are those of Tables 4 to 6 with 16 workers. Lines are means over seeds and bands one standard deviation; the
black line is the single worker. A run's convergence is measured by the epoch from which on its test error stays within
a point of its last one.
"""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from experiments import harness, papers
from experiments.gap_aware import frameworks, lines
from experiments.gap_aware.accuracies import SINGLE_TITLE, paper_accuracy
from experiments.gap_aware.frameworks import METHODS, SINGLE, Letter, Size
from experiments.harness import PAPER, Claim, Count, Output, Scale, Share, all_of, below, canvas, figure, interval

WITHIN = 1.0
"""Points of test error from the last one that count as converged."""
ALIKE = 0.1
"""Share of the run by which epochs of convergence may differ and be alike."""
KEYS = ["framework", "method", "seed"]


@figure(
    papers.GAP,
    "Figure 7",
    scales={
        "smoke": Scale("15 s", frameworks=["R"], num_workers=4, seeds=1, epochs_share=0.02),
        "laptop": Scale("6 min, or seconds after tables4_6"),
        "gpu": Scale("40 min, estimated", size="gpu", seeds=1),
        "paper": Scale("GPU-weeks, estimated", size="paper"),
    },
    differs=frameworks.DIFFERS,
)
def figure7(
    *,
    frameworks: list[Letter] = ("R", "W", "W100"),
    num_workers: Count = 16,
    seeds: Count = 5,
    size: Size = "laptop",
    epochs_share: Share = 1.0,
) -> Output:
    """Draws the test error of the runs with one number of workers.

    Args:
      frameworks: R (CIFAR-10, ResNet-20), W (CIFAR-10, WRN-16-4) and W100 (CIFAR-100, WRN-16-4).
      num_workers: number of workers, N.
      seeds: number of seeds.
      size: laptop: digits and small conv nets; gpu: CIFAR with an eighth or a tenth of the epochs; paper: as printed.
      epochs_share: of the size's epochs, at most 1.
    """
    curves = by_epoch(frameworks, num_workers, seeds, size, epochs_share)
    return Output(summarised(curves, num_workers, size), drawn(curves, size), claims(curves))


def by_epoch(letters: list[str], num_workers: int, seeds: int, size: Size, share: float) -> pd.DataFrame:
    """Test errors: columns framework, method (its title), seed, epoch and error in %."""
    of = {"num_workers": [num_workers], "seeds": seeds, "share": share}
    sweeps = {letter: frameworks.sweep(letter, size, **of) for letter in letters}
    harness.prepare(*sweeps.values())
    frames = []
    for letter, sweep in sweeps.items():
        found = sweep.evaluations()
        alone = (found["cluster.num_workers"] == 1) & (found.method == SINGLE)
        titles = found.method.map(METHODS).mask(alone, SINGLE_TITLE)
        errors = {"epoch": found.epoch, "error": 100 * (1 - found.test_accuracy)}
        frames.append(pd.DataFrame({"framework": letter, "method": titles, "seed": found.seed, **errors}))
    return pd.concat(frames, ignore_index=True)


def converged(epochs: np.ndarray, errors: np.ndarray) -> float:
    """Return the first epoch from which on the error is within a point of the last.

    Example:
      >>> converged(np.array([0.0, 1.0, 2.0, 3.0]), np.array([90.0, 5.5, 8.0, 5.0]))
      3.0
    """
    outside = np.flatnonzero(np.abs(errors - errors[-1]) > WITHIN)
    return float(epochs[outside[-1] + 1] if outside.size else epochs[0])


def convergence(curves: pd.DataFrame) -> pd.Series:
    """Return the epoch of convergence of each run, by framework, method and seed."""
    return pd.Series(
        {
            key: converged(run.epoch.to_numpy(), run.error.to_numpy())
            for key, run in curves.sort_values("epoch").groupby(KEYS)
        }
    )


def summarised(curves: pd.DataFrame, num_workers: int, size: Size) -> pd.DataFrame:
    """Errors at the end, and the epochs of convergence, with the paper's errors."""
    last = curves.sort_values("epoch").groupby(KEYS, sort=False).last()
    epochs, rows = convergence(curves), []
    for (letter, method), errors in last.error.groupby(["framework", "method"], sort=False):
        about = {"framework": frameworks.title(letter, size), "method": method}
        workers = 1 if method == SINGLE_TITLE else num_workers
        for quantity, values, paper in (
            ("test error at the end, %", errors, 100 - paper_accuracy(letter, workers, method)),
            (f"epoch from which on it is within {WITHIN:g} point of that", epochs[letter, method], np.nan),
        ):
            rows.append({**about, "quantity": quantity, "ours": values.mean(), "±": values.std(ddof=1), "paper": paper})
    return pd.DataFrame(rows)


def drawn(curves: pd.DataFrame, size: Size) -> Figure:
    """Return a panel for each framework."""
    letters = list(dict.fromkeys(curves.framework))
    picture, panels = canvas(1, len(letters), width=max(4.8 * len(letters), 7), height=5.5)
    for panel, letter in zip(panels[0], letters, strict=True):
        of_framework = curves[(curves.framework == letter) & (curves.epoch > 0)]
        for method in (*METHODS.values(), SINGLE_TITLE):
            errors = of_framework[of_framework.method == method].pivot_table(
                index="epoch", columns="seed", values="error"
            )
            mean = errors.mean(axis=1).clip(lines.LEAST)
            look = {"color": PAPER, "linestyle": "--", "label": SINGLE_TITLE}
            look = look if method == SINGLE_TITLE else lines.line(method) | {"markevery": 4, "markersize": 5}
            panel.plot(errors.index, mean, linewidth=1.6, **look)
            spread = errors.std(axis=1).fillna(0.0)
            band = (mean - spread).clip(lines.LEAST), (mean + spread).clip(lines.LEAST)
            panel.fill_between(errors.index, *band, color=look["color"], alpha=0.12, linewidth=0)
        lines.logarithmic([panel], [])
        panel.xaxis.set_major_locator(MaxNLocator(integer=True))
        panel.set_xlabel("epoch")
        panel.set_title(f"{frameworks.heading(letter, size)}\ntest error, %", fontsize=10.5)
    lines.legend(picture, panels[0, 0])
    return picture


def claims(curves: pd.DataFrame) -> list[Claim]:
    """Return the statements of appendix C.11."""
    epochs, made = convergence(curves), []
    lengths = curves.groupby("framework", sort=False).epoch.max()
    for says, first, second in (
        ("the convergence rate of GA is similar to that of SA", "GA", "SA"),
        ("DANA-GA's convergence rate remains very close to the baseline", "DANA-GA", SINGLE_TITLE),
    ):
        verdicts, words = [], []
        for letter in dict.fromkeys(curves.framework):
            later = interval(epochs[letter, first] - epochs[letter, second])
            words.append(f"{letter} {later} of {lengths[letter]:g}")
            verdicts += [below(way, ALIKE * lengths[letter]) for way in (later, _negative(later))]
        made.append(
            Claim(
                f"{says} (epochs to converge differ by less than {100 * ALIKE:g} % of the run)",
                "appendix C.11",
                ours=f"epochs that {first} takes longer than {second}: {', '.join(words)}",
                holds=all_of(verdicts),
            )
        )
    return made


def _negative(found: harness.Interval) -> harness.Interval:
    return harness.Interval(-found.mean, found.half, found.count)
