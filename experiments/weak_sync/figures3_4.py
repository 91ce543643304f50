"""Test error against epochs and against time, without and with injected delays (Figures 3 and 4).

The runs are those of Table 1: at the size laptop a small perceptron on UCI digits, at gpu ResNet-20 and at paper
ResNet-50 on CIFAR-10, with the schedules of the simulated cluster (32 workers, 32 servers, about 900 iterations). The
panel (a) counts iterations as epochs of the paper, of which 90 are all iterations; with injected delays it is the same
to less than a line's width, and is drawn once. The panels (b) have the cluster's virtual time. The curves are means
over the seeds, with 95 % confidence intervals.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from experiments import papers
from experiments.harness import (
    Claim,
    Count,
    Evidence,
    Output,
    Positive,
    Scale,
    Share,
    all_of,
    below,
    canvas,
    figure,
    interval,
    least,
    prepare,
    quartiles,
    throughout,
)
from experiments.thresholds import MUCH_FASTER, SAME_POINTS
from experiments.weak_sync import training
from experiments.weak_sync.settings import BOTH, HALF_WIDTH, SETTINGS, SYNCHRONOUS
from experiments.weak_sync.simulation import Cluster
from sgdlab.report.words import listed
from sgdlab.runs import crossing

EPOCHS = 90
REACHED, ALL, END = "minutes to {}", "minutes in all", "final error, %"
FIGURES = {False: "Figure 3", True: "Figure 4"}
LABELS = {"epochs": "epochs of the paper", "minutes": "virtual time (min); bars are the ends of runs"}


@figure(
    papers.WEAK,
    ("Figure 3", "Figure 4"),
    scales={
        "smoke": Scale("5 s", blocks=2, iterations=7, seeds=1),
        "laptop": Scale("2 min"),
        "decide": Scale("20 min", after="weak_sync.table1", seeds=20, variations=[0.015, 0.035]),
        "gpu": Scale("40 min on one GPU, estimated", size="gpu", target=0.2, **training.WHOLE),
        "paper": Scale("3 h on one GPU, estimated; see --dry_run", size="paper", target=0.2, **training.WHOLE),
    },
    differs=f"{training.DIFFERS} The available text has lost the paper's curves; its numbers here are its Table 1's.",
    stand_in=training.STAND_IN,
)
def figures3_4(
    *,
    size: training.Size = "laptop",
    iterations: Count = 900,
    seeds: Count = 3,
    target: Share = 0.05,
    mean_seconds: Positive = 9.0,
    variation: Share = 0.025,
    variations: Sequence[Share] | None = None,
    blocks: Count = 32,
    learning_rate: Positive = 0.1,
) -> Output:
    """Trains, and draws the error.

    Args:
      size: what is trained: a perceptron on digits (laptop), ResNet-20 (gpu) or ResNet-50 (paper) on CIFAR-10.
      iterations: number of updates.
      seeds: number of seeds; the paper has 3.
      target: test error to which the time is measured.
      mean_seconds: mean compute time of a gradient.
      variation: coefficient of variation of the compute times.
      variations: others, which the claim without injected delays is looked at with; none: it is with that one only.
      blocks: number of blocks into which the parameters are split, each with a server.
      learning_rate: of an update of 32 gradients; an update of d gradients has d / 32 of it.
    """
    cluster = Cluster(iterations=iterations, mean_seconds=mean_seconds, variation=variation)
    shared = {"seeds": seeds, "size": size, "blocks": blocks, "learning_rate": learning_rate}
    sweeps = [training.sweep(cluster, **shared)]
    for other in variations or ():
        scattered = dataclasses.replace(cluster, variation=other)
        sweeps.append(training.sweep(scattered, kinds=((SYNCHRONOUS, False), (BOTH, False)), **shared))
    prepare(*sweeps)
    curves, *otherwise = (_curves(each.evaluations(), iterations) for each in sweeps)
    target_is = f"{100 * target:g} % error"
    found = {(s, late): results(s.of(curves, late=late), target) for late in FIGURES for s in SETTINGS}
    rows = []
    for (setting, late), values in found.items():
        paper = {ALL: setting.paper_minutes, END: setting.paper_error} if late else {}
        rows += [
            setting.row(v, paper.get(name), figure=FIGURES[late], quantity=name.format(target_is))
            for name, v in values.items()
        ]
    example = training.TEST_EXAMPLE[size]
    naive = [results(SYNCHRONOUS.of(each, late=False), target) for each in (curves, *otherwise)]
    both = [results(BOTH.of(each, late=False), target) for each in (curves, *otherwise)]
    same, much = (SAME_POINTS.rewritten(math.log1p(SAME_POINTS / 100)), MUCH_FASTER.rewritten(math.log(MUCH_FASTER)))
    without = f"{SYNCHRONOUS} without injected delays"
    faster = [compared(*pair, REACHED, 0.0, example) for pair in zip(both, naive, strict=True)]
    scatters = listed([f"{100 * each:g} %" for each in (variation, *(variations or ()))])
    of_all = "; ".join(words.format(target_is) for words, _ in faster)
    sooner = throughout(evidence for _, evidence in faster)
    gained = interval(100 * (1 - both[0][ALL] / naive[0][ALL]))
    few = f"Without injected delays an iteration takes {gained} % less time, and has an eighth fewer gradients."
    remain, remains = compared(found[BOTH, True], found[BOTH, False], REACHED, same, example)
    late, is_late = compared(found[BOTH, True], found[SYNCHRONOUS, True], ALL, much, example)
    where = "section 4.3, Figure"
    claims = [
        Claim(
            "using partial pushing and partial pulling, the algorithms can still have low validation error and "
            "converge faster at the same time", f"{where} 3",
            f"{BOTH} against {without}, with run-times that scatter by {scatters}: {of_all}",
            sooner, because=few if sooner.holds is False else "",
        ),
        Claim(
            "the algorithms can remain as effective as when there is no extra delay at all", f"{where} 4",
            f"{BOTH} against itself without injected delays: {remain.format(target_is)}", remains,
        ),
        Claim(
            "when there are slow servers, our algorithm can train the model much faster than the baseline with almost "
            "the same validation accuracy", f"{where} 4",
            f"{BOTH} against {SYNCHRONOUS} with injected delays: {late}", is_late,
        ),
    ]  # fmt: skip
    notes = [
        HALF_WIDTH,
        f"Almost the same: within {SAME_POINTS:g} points of per cent; much faster: by {100 * (1 - MUCH_FASTER):.0f} %.",
        least.note(f"{SYNCHRONOUS}", f"{mean_seconds:g} s, the mean of the model's run-times, in which all are alike"),
    ]
    drawn = draw(curves, training.DATA[size], example, cluster.num_workers / mean_seconds)
    return Output(pd.DataFrame(rows), drawn, claims, notes)


def _curves(evaluations: pd.DataFrame, iterations: int) -> pd.DataFrame:
    """Return evaluations with their error in per cent, their minutes and their epochs of the paper."""
    found = evaluations.assign(error=100 * (1 - evaluations.test_accuracy), minutes=evaluations.seconds / 60)
    return found.assign(epochs=found.updates * EPOCHS / iterations)


def results(curves: pd.DataFrame, target: float) -> dict[str, np.ndarray]:
    """Return what is compared, float64[seeds]; the time to an error that is not reached is NaN."""
    runs = [run for _, run in curves.groupby("seed")]
    places = [crossing.first(run.gradients, run.error, 100 * target, higher_is_better=False) for run in runs]
    at = lambda name: np.array(
        [
            np.nan if at is None else np.interp(at, range(len(run)), run[name])
            for run, at in zip(runs, places, strict=True)
        ]
    )
    ends = {ALL: [run.minutes.iloc[-1] for run in runs], END: [run.error.iloc[-1] for run in runs]}
    return {"epochs to {}": at("epochs"), REACHED: at("minutes")} | {name: np.array(v) for name, v in ends.items()}


def compared(
    mine: Mapping[str, np.ndarray], its: Mapping[str, np.ndarray], name: str, limit: float, resolution: float
) -> tuple[str, Evidence]:
    """Return in words, and as evidence, that one takes less time than another, without more error; paired by seed.

    Args:
      mine: results of one setting.
      its: results of the other.
      name: of the time.
      limit: logarithm of the factor of times that is not to be reached.
      resolution: what errors are known to.
    """
    with np.errstate(divide="ignore", invalid="ignore"):  # a target that is reached at the start, or never
        slower = np.log(mine[name] / its[name])
    worse = interval(mine[END] - its[END], resolution=resolution)
    words = f"{name} differ by {interval(100 * np.expm1(slower))} %, the error by {worse} points"
    return words, all_of([below(slower, limit), below(worse, SAME_POINTS)])


def draw(curves: pd.DataFrame, data: str, resolution: float, pace: float) -> Figure:
    """Return the error by epochs and by time: medians over seeds, and bands between quartiles."""
    drawn, (panels,) = canvas(1, 3, width=15, height=4.8, sharey=True)
    titles = {("epochs", False): "Figures 3 (a) and 4 (a)", ("minutes", False): "Figure 3 (b): no injected delays"}
    titles |= {("minutes", True): "Figure 4 (b): 0.16 % of the responses 4 s later"}
    for panel, ((x, late), title) in zip(panels, titles.items(), strict=True):
        for index, setting in enumerate(SETTINGS):
            of_setting = setting.of(curves, late=late)
            across = of_setting.groupby("gradients")[x].mean()
            error = of_setting.pivot(index="seed", columns="gradients", values="error").clip(lower=resolution)
            line = quartiles(panel, across, error, **setting.line, markevery=(3 * index, 12))
            end = across.iloc[-1], line.get_ydata()[-1]
            panel.plot(*end, "|", color=setting.shade, markersize=16, mew=3)
        panel.set(title=title, xlabel=LABELS[x], xlim=(0, None))
        if x == "minutes":
            whole = SYNCHRONOUS.of(curves, late=late).groupby("gradients")[["gradients", "error"]].median()
            least.line(panel, least.seconds(whole.gradients, pace) / 60, whole.error)
    panels[0].set(yscale="log", yticks=[1, 2, 5, 10, 20, 50, 100], ylabel=f"test error, {data} (%)")
    panels[0].yaxis.set_major_formatter(mpl.ticker.StrMethodFormatter("{x:g}"))
    panels[0].yaxis.set_minor_formatter(mpl.ticker.NullFormatter())
    panels[1].legend(title="(c, b)", loc="upper right")
    drawn.suptitle("medians over seeds, bands between quartiles")
    return drawn
