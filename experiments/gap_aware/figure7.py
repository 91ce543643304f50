"""Test error by epoch with 16 workers, three frameworks (Barkai et al. 2020, Figure 7).

The runs are those of Tables 4 to 6 with 16 workers. Lines are geometric means over seeds, as the logarithmic axes have
them, and bands their 95 % intervals; the black line is the single worker. A run's convergence is measured by the epoch
at which its smoothed test loss first reaches one that all compared methods reach, interpolated between evaluations: in
its logarithm, nine tenths of the way from a guess to the loss that the worst of them comes to.
"""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from experiments import harness, papers
from experiments.gap_aware import frameworks, lines
from experiments.gap_aware.accuracies import SINGLE_TITLE, paper_accuracy
from experiments.gap_aware.frameworks import FRAMEWORKS, METHODS, SINGLE, Letter, Size
from experiments.harness import PAPER, Claim, Count, Output, Scale, Share, all_of, between, canvas, figure, interval
from experiments.thresholds import CONVERGENCE_ALIKE_SHARE
from sgdlab.runs import crossing

COMPARED = ("GA", "SA", "DANA-GA", SINGLE_TITLE)
"""The methods that all reach the common loss."""
WAY = 0.9
"""Share of the way to the worst of them, from a guess, that the common loss is at."""
KEYS = ["framework", "method", "seed"]


@figure(
    papers.GAP,
    "Figure 7",
    scales={
        "smoke": Scale("15 s", frameworks=["R"], num_workers=4, seeds=1, epochs_share=0.02),
        "laptop": Scale("10 min, or seconds after tables4_6"),
        "decide": Scale("1 min", after="gap_aware.tables4_6", seeds=20),
        "gpu": Scale("40 min, estimated", size="gpu", seeds=1),
        "paper": Scale("GPU-weeks, estimated", size="paper"),
    },
    differs=frameworks.DIFFERS,
    stand_in=frameworks.STAND_IN,
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
    """Test errors: columns framework, method, seed, epoch, error in % and loss, the logarithm of the test loss."""
    of = {"num_workers": [num_workers], "seeds": seeds, "share": share}
    sweeps = {letter: frameworks.sweep(letter, size, **of) for letter in letters}
    harness.prepare(*sweeps.values())
    frames = []
    for letter, sweep in sweeps.items():
        found = sweep.evaluations()
        alone = (found["cluster.num_workers"] == 1) & (found.method == SINGLE)
        titles = found.method.map(METHODS).mask(alone, SINGLE_TITLE)
        guess = np.log(FRAMEWORKS[letter].classes)
        losses = np.log(found.test_loss.fillna(np.inf).clip(1e-12, guess))
        errors = {"epoch": found.epoch, "error": 100 * (1 - found.test_accuracy), "loss": losses}
        frames.append(pd.DataFrame({"framework": letter, "method": titles, "seed": found.seed, **errors}))
    return pd.concat(frames, ignore_index=True)


def common_loss(curves: pd.DataFrame) -> dict[str, float]:
    """Return the logarithm of the test loss that all compared methods reach, by framework."""
    found = {}
    for letter, runs in curves[curves.method.isin(COMPARED)].groupby("framework", sort=False):
        lowest = {
            key: crossing.smoothed(run.epoch, run.loss).min()
            for key, run in runs.sort_values("epoch").groupby(["method", "seed"])
        }
        worst, guess = pd.Series(lowest).groupby(level=0).mean().max(), np.log(np.log(FRAMEWORKS[letter].classes))
        found[letter] = float(guess + WAY * (worst - guess))
    return found


def convergence(curves: pd.DataFrame) -> pd.Series:
    """Return the epoch at which each run reaches the common loss, by framework, method and seed; NaN: it does not."""
    targets, found = common_loss(curves), {}
    for key, run in curves.sort_values("epoch").groupby(KEYS):
        place = crossing.first(run.epoch, run.loss, targets[key[0]], higher_is_better=False)
        found[key] = np.nan if place is None else float(np.interp(place, np.arange(len(run)), run.epoch))
    return pd.Series(found)


def summarised(curves: pd.DataFrame, num_workers: int, size: Size) -> pd.DataFrame:
    """Errors at the end, and the epochs of convergence, with the paper's errors."""
    last = curves.sort_values("epoch", kind="stable").groupby(KEYS, sort=False).last()
    epochs, targets, rows = convergence(curves), common_loss(curves), []
    for (letter, method), errors in last.error.groupby(["framework", "method"], sort=False):
        about = {"framework": frameworks.title(letter, size), "method": method}
        workers = 1 if method == SINGLE_TITLE else num_workers
        for quantity, values, paper in (
            ("test error at the end, %", errors, 100 - paper_accuracy(letter, workers, method)),
            (f"epoch at which the test loss is {np.exp(targets[letter]):.2g}", epochs[letter, method], np.nan),
        ):
            rows.append({**about, "quantity": quantity, "ours": values.mean(), "±": values.std(ddof=1), "paper": paper})
    return pd.DataFrame(rows)


def drawn(curves: pd.DataFrame, size: Size) -> Figure:
    """Test errors by epoch above, epochs to the common loss below, a column for each framework."""
    letters, names = list(dict.fromkeys(curves.framework)), (*METHODS.values(), SINGLE_TITLE)
    epochs, targets = convergence(curves), common_loss(curves)
    picture, panels = canvas(2, len(letters), width=max(4.8 * len(letters), 7), height=9)
    for (panel, below), letter in zip(panels.T, letters, strict=True):
        of_framework = curves[(curves.framework == letter) & (curves.epoch > 0)]
        for place, method in enumerate(names):
            errors = of_framework[of_framework.method == method].pivot_table(
                index="epoch", columns="seed", values="error"
            )
            look = {"color": PAPER, "linestyle": "--", "label": SINGLE_TITLE}
            look = look if method == SINGLE_TITLE else lines.line(method) | {"markevery": 4}
            lines.banded(panel, errors.index, list(errors.to_numpy()), look | {"linewidth": 1.6}, logarithmic=True)
            dot = {"color": look["color"], "marker": look.get("marker", "o"), "linestyle": "none"}
            lines.bars(below, [place], [epochs[letter, method]], dot)
        lines.logarithmic([panel], [])
        panel.xaxis.set_major_locator(MaxNLocator(integer=True))
        panel.set_xlabel("epoch")
        panel.set_title(f"{frameworks.heading(letter, size)}\ntest error, %", fontsize=10.5)
        below.set_title(f"epochs to a test loss of {np.exp(targets[letter]):.2g}", fontsize=10.5)
        below.set_xticks(
            range(len(names)), [name.replace("-", "-\n").replace(" ", "\n") for name in names], fontsize=8.5
        )
        below.set_ylim(bottom=0)
    lines.legend(picture, panels[0, 0], columns=8 if len(letters) > 2 else 4)
    return picture


def claims(curves: pd.DataFrame) -> list[Claim]:
    """Return the statements of appendix C.11."""
    epochs, alike, made = convergence(curves), CONVERGENCE_ALIKE_SHARE, []
    lengths = curves.groupby("framework", sort=False).epoch.max()
    for says, first, second in (
        ("the convergence rate of GA is similar to that of SA", "GA", "SA"),
        ("DANA-GA's convergence rate remains very close to the baseline", "DANA-GA", SINGLE_TITLE),
    ):
        later = {letter: interval(epochs[letter, first] - epochs[letter, second]) for letter in lengths.index}
        most = {letter: alike.rewritten(alike * lengths[letter]) for letter in later}
        holds = all_of(between(found, -most[letter], most[letter]) for letter, found in later.items())
        words = ", ".join(f"{letter} {found} of {lengths[letter]:g}" for letter, found in later.items())
        made.append(
            Claim(
                f"{says} (epochs to a common test loss differ by less than {100 * alike:g} % of the run)",
                "appendix C.11",
                ours=f"epochs that {first} takes longer than {second}: {words}",
                holds=holds,
            )
        )
    return made
