"""Test accuracy and error by epoch with 32 to 128 workers, ImageNet (Barkai et al. 2020, Table 3, Figure 8).

At the size of a laptop a conv net with BatchNorm tells apart 100 classes of pairs of UCI digits, as in Table 6, with
the settings of the paper's ResNet-50 in all but the rate, the batch and the length: 9 of 90 epochs, whose rate is
multiplied by 0.1 after each third. The rate is that of Tables 4 to 6. A run has 2,304 gradients, of which each of 128
workers makes 18, and the paper's 450,360, 3,518 each: staleness weighs more here, and fewer workers do as much harm. At
the scale decide it has all 90 epochs, 23,040 gradients.

The paper has one run of each and prints NaN for what was lost; here lost runs count with the accuracy that they end
with. Figure 8 has the runs with 64 workers.
"""

import itertools
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from ml_collections import ConfigDict

from configs import digits, imagenet_resnet50
from experiments import papers
from experiments.gap_aware import lines, printed
from experiments.gap_aware.accuracies import SINGLE_TITLE, Accuracies, accuracies, spread
from experiments.gap_aware.frameworks import METHODS, RATE, SINGLE, Size
from experiments.harness import Sweep
from experiments.harness.claims import Claim, enough
from experiments.harness.evidence import Evidence, above, all_of, below, known
from experiments.harness.figures import Output, Scale, figure
from experiments.harness.intervals import Interval, interval
from experiments.harness.pictures import PAPER, canvas
from experiments.thresholds import IMAGENET_CLOSE, IMAGENET_RELATIVELY_CLOSE
from sgdlab.bounds import Count, Positive
from sgdlab.runs import resolve
from sgdlab.runs.configuration import shorten

LETTER = "I"
GRADIENTS = 450_360
"""Of a run of the paper."""
SHORT = "the runs of Table 3 are short"
"""Why what is said of runs that converge cannot be said of ours."""
TITLES = tuple(METHODS.values())
Values = Callable[[int, str], np.ndarray]
"""(N, method's title) -> final test accuracies in %, one for each seed."""


@figure(
    papers.GAP,
    ("Table 3", "Figure 8"),
    scales={
        "smoke": Scale("20 s", num_workers=[32], curves=32, seeds=1, epochs_share=0.04),
        "laptop": Scale("6 min"),
        "decide": Scale("50 min", num_workers=[32, 64, 128], seeds=5, epochs_share=10.0),
        "gpu": Scale("1 h, estimated", size="gpu", num_workers=[32, 64, 128], seeds=1),
        "paper": Scale("GPU-weeks, estimated", size="paper", seeds=1),
    },
    differs="Pairs of UCI digits and a small conv net with BatchNorm instead of ImageNet and ResNet-50, and 2,304 "
    "gradients a run instead of 450,360.",
    stand_in="pairs of digits in place of ImageNet",
)
def table3_figure8(
    *,
    num_workers: list[Count] = (32, 48, 64, 128),
    curves: Count = 64,
    seeds: Count = 3,
    size: Size = "laptop",
    epochs_share: Positive = 1.0,
) -> Output:
    """Trains all methods with all numbers of workers.

    Args:
      num_workers: numbers of asynchronous workers, N.
      curves: the number of workers whose errors are drawn by epoch, one of `num_workers`.
      seeds: number of seeds; the paper has 1.
      size: laptop; gpu, ResNet-50 on mocked images of 64x64 pixels and 1,000 classes, 9 epochs of 256 gradients; or
        paper.
      epochs_share: of the size's epochs; with 10, the sizes laptop and gpu have as many as the paper.
    """
    if curves not in num_workers:
        raise ValueError(f"curves={curves} must be one of num_workers, {', '.join(map(str, num_workers))}")
    points = [(SINGLE, 1), *((method, workers) for workers in num_workers for method in METHODS)]
    over = [
        {"method": method, "cluster.num_workers": workers, "seed": seed}
        for method, workers in points
        for seed in range(seeds)
    ]
    base = configuration(size, epochs_share)
    sweep = Sweep(base, over)
    found = accuracies({LETTER: sweep})
    notes = [
        "Test accuracies in %; ± is one standard deviation over the seeds. Verdicts rest on 95 % intervals over the "
        "seeds, paired by seed where methods are compared; those on the paper's numbers compare single runs.",
        "Lost: runs that blew up and ended no better than guessing. For reference, Goyal et al. (2017) train the same "
        "network synchronously on 256 GPUs; the paper's 128 workers of 8 GPUs are 1,024.",
    ]
    experiment = resolve(base)
    checked = claims(found, experiment.num_gradients, 100 / len(experiment.data.dataset.test))
    return Output(table(found, num_workers), draw(found, sweep, num_workers, curves, size), checked, notes)


def configuration(size: Size, share: float = 1.0) -> ConfigDict:
    """Return the configuration of a single worker.

    Args:
      size: laptop, gpu or paper.
      share: of the size's epochs.
    """
    paper = imagenet_resnet50.get_config()
    config, epochs = paper, paper.epochs if size == "paper" else paper.epochs / 10
    if size == "laptop":
        config = digits.get_config()
        config.network.kind, config.network.conv.channels, config.network.conv.batch_norm = "conv", (16, 32), True
        config.data.kind, config.data.digit_pairs.classes = "digit_pairs", 100
        config.epochs, config.rate, config.optimizer = paper.epochs, paper.rate, paper.optimizer
        config.batch_size, config.optimizer.learning_rate = 16, RATE
        config.cluster.gamma.heterogeneous = False
    elif size == "gpu":
        config.data.kind, mock = "mock", config.data.mock
        mock.image_shape, mock.num_examples, mock.num_test = (64, 64, 3), 65_536, 8_192
        config.network.resnet50.dtype = "bfloat16"
    shorten(config, share * epochs)
    config.evaluations = max(round(min(share, 1) * (90 if size == "paper" else 18)), 1)
    config.method, config.target, config.average_decay = SINGLE, None, None
    return config


def in_print(workers: int, method: str) -> float:
    """Return what Table 3 prints, in %; NaN for a lost run, and where it prints nothing.

    Example:
      >>> in_print(128, "DANA-GA"), in_print(128, "DANA"), in_print(1, "single worker")
      (72.18, nan, 75.64)
    """
    if method == SINGLE_TITLE:
        return printed.SINGLE[LETTER]
    return dict(zip(printed.COLUMNS, printed.TABLE_3.get(workers, ()), strict=False)).get(method, np.nan)


def table(found: Accuracies, num_workers: Sequence[int]) -> pd.DataFrame:
    """Final test accuracies with the paper's."""
    rows = []
    for workers, method in [(1, SINGLE_TITLE), *((n, method) for n in num_workers for method in TITLES)]:
        values = found.values((LETTER, workers), method)
        numbers = {"ours": values.mean(), "±": spread(values)}
        lost = found.lost((LETTER, workers), method)
        rows.append({"N": workers, "method": method, "lost": lost, **numbers, "paper": in_print(workers, method)})
    return pd.DataFrame(rows)


def claims(found: Accuracies, gradients: int, example: float) -> list[Claim]:
    """Return the statements of sections 6.2 and C.13, at the numbers of workers that are there.

    Who is ahead of whom is asked of runs of any length. That a method is close to the single worker, or that it alone
    converges, is said of runs that are long enough for it.

    Args:
      found: the runs.
      gradients: of a run.
      example: a test example, in % of all: what an accuracy is known to.
    """
    counts = [n for _, n in found.cells]
    ours = Compared(lambda n, method: found.values((LETTER, n), method), counts, example=example)
    paper = Compared(lambda n, method: np.array([in_print(n, method)]), list(printed.TABLE_3))
    others, most = [method for method in TITLES if method != "DANA-GA"], max(counts)
    long = enough(f"updates for each of {most} workers", gradients / most, GRADIENTS / most)
    statements = (
        ("GA out-performs SA", "section 6.2", lambda runs: runs.lead("GA", ["SA"], runs.counts), False),
        ("Unlike SA, GA out-performs NAG-ASGD as N increases (above 32 workers)", "section 6.2",
         lambda runs: runs.lead("GA", ["NAG-ASGD"], [n for n in runs.counts if n > 32]), False),
        ("DANA-GA is better than any other method as N increases", "section 6.2",
         lambda runs: runs.lead("DANA-GA", others, runs.counts), False),
        (f"DANA-GA remains close to the baseline (within {IMAGENET_CLOSE:g} points)", "section 6.2 and Figure 8",
         lambda runs: runs.close("DANA-GA", IMAGENET_CLOSE, runs.counts), True),
        ("GA surpasses SA and DANA-SA (64 workers)", "Figure 8",
         lambda runs: runs.lead("GA", ["SA", "DANA-SA"], [n for n in runs.counts if n == 64]), False),
        ("128 workers: DANA-GA converges, and no other method does", "section 6.2 and Table 3",
         lambda runs: runs.alone("DANA-GA", others, 128), True),
        ("NAG-ASGD remains relatively close to the baseline even when the number of workers is large (within "
         f"{IMAGENET_RELATIVELY_CLOSE:g} points)", "appendix C.13",
         lambda runs: runs.close("NAG-ASGD", IMAGENET_RELATIVELY_CLOSE, runs.counts), True),
    )  # fmt: skip
    made = []
    for says, where, check, converged in statements:
        (words, holds), (printed_words, on_paper) = check(ours), check(paper)
        regime = {"premises": [long], "cause": "" if long.met else SHORT} if converged else {}
        made.append(Claim(says, where, words, holds, printed_words, on_paper, **regime))
    return made


class Compared:
    """Comparisons of methods, for our runs and for the paper's single ones, which are taken as they are.

    Args:
      values: accuracies by number of workers and method; NaN where the paper prints that a run was lost.
      counts: numbers of workers.
      example: a test example, in % of all; None: the values are printed.
    """

    def __init__(self, values: Values, counts: Sequence[int], *, example: float | None = None):
        self.values, self.counts, self.example = values, sorted(set(counts)), example

    def interval(self, numbers: np.ndarray) -> Interval:
        """Return that of the seeds, or the printed number; what was lost counts as 0."""
        numbers = np.nan_to_num(numbers)
        if self.example is None:
            return Interval(float(numbers[0]), 0.0, 1)
        return interval(numbers, resolution=self.example)

    def lead(self, method: str, others: Sequence[str], counts: Sequence[int]) -> tuple[str, Evidence]:
        """Return how far a method is above the best of others, and whether it is above each.

        Of two that the paper prints as lost neither is better, and they are left out.
        """
        leads: dict[tuple[int, str], Interval] = {}
        for n, other in itertools.product(counts, others):
            one, two = self.values(n, method), self.values(n, other)
            if not (np.isnan(one).any() and np.isnan(two).any()):
                leads[n, other] = self.interval(np.nan_to_num(one) - np.nan_to_num(two))
        shown = []
        for n in counts:
            there = [leads[n, other] for other in others if (n, other) in leads]
            shown.append(f"{min(there, key=lambda lead: lead.mean) if there else 'lost'} (N = {n})")
        best = f"points above{' the best of them' * (len(others) > 1)}: {', '.join(shown) or 'not run'}"
        return best, all_of(map(above, leads.values()))

    def close(self, method: str, points: float, counts: Sequence[int]) -> tuple[str, Evidence]:
        """Return how far a method is below the single worker; what was lost is not close."""
        lost = {n: np.isnan(self.values(n, method)).any() for n in counts}
        single = self.values(1, SINGLE_TITLE)
        found = {n: self.interval(single - np.nan_to_num(self.values(n, method))) for n in counts}
        words = ", ".join(f"{'lost' if lost[n] else gap} (N = {n})" for n, gap in found.items())
        return f"points below the single worker: {words or 'not run'}", all_of(
            below(gap, points) for gap in found.values()
        )

    def alone(self, method: str, others: Sequence[str], workers: int) -> tuple[str, Evidence]:
        """Return whether one method alone gets more than half of the single worker's accuracy."""
        if workers not in self.counts:
            return "not run", known(None)
        half = self.values(1, SINGLE_TITLE).mean() / 2
        found = {each: self.interval(self.values(workers, each)) for each in (method, *others)}
        words = ", ".join(f"{accuracy} ({each})" for each, accuracy in found.items())
        verdicts = [above(found[method], half), *(below(found[each], half) for each in others)]
        return f"test accuracy in %, of which more than {half:.1f} converges: {words}", all_of(verdicts)


def draw(found: Accuracies, sweep: Sweep, num_workers: Sequence[int], curves: int, size: Size) -> Figure:
    """Test error by the number of workers, ours and the paper's, and ours by epoch with one number of workers."""
    drawn, panels = canvas(1, 3, width=16, height=5.6)
    ours, theirs, by_epoch = panels[0]
    for method in TITLES:
        lines.banded(
            ours, num_workers, [100 - found.values((LETTER, n), method) for n in num_workers], lines.line(method)
        )
        errors = [100 - in_print(n, method) for n in printed.TABLE_3]
        theirs.plot(list(printed.TABLE_3), errors, markersize=5, **lines.line(method))
    theirs.text(0.97, 0.55, "128 workers: NaN,\nbut for DANA-GA", transform=theirs.transAxes, ha="right")
    lines.level(ours, 100 - found.single(LETTER).mean())
    lines.level(theirs, 100 - printed.SINGLE[LETTER])
    data = {"laptop": "pairs of digits (in place of ImageNet)", "gpu": "mocked images", "paper": "ImageNet"}[size]
    for panel, counts, title in (
        (ours, num_workers, f"Table 3, ours: {data}"),
        (theirs, printed.TABLE_3, "Table 3, paper: ImageNet"),
    ):
        panel.set(title=title, xlabel="workers, N", ylabel="final test error, %", xticks=list(counts))
    evaluations = sweep.evaluations().rename(columns={"cluster.num_workers": "N"})
    evaluations = evaluations[evaluations.epoch > 0].assign(error=lambda rows: 100 * (1 - rows.test_accuracy))
    for method, title in (*METHODS.items(), (SINGLE, SINGLE_TITLE)):
        own = evaluations[(evaluations.method == method) & ((1 if title == SINGLE_TITLE else curves) == evaluations.N)]
        errors = own.pivot_table(index="epoch", columns="seed", values="error")
        style: Mapping[str, object] = {"color": PAPER, "linestyle": "--", "linewidth": 1.5, "label": SINGLE_TITLE}
        style = style if title == SINGLE_TITLE else {**lines.line(title), "markevery": 3}
        lines.banded(by_epoch, errors.index, list(errors.to_numpy()), style)
    by_epoch.set(title=f"Figure 8, ours: {curves} workers", xlabel="epoch", ylabel="test error, %")
    for panel in (ours, by_epoch):  # intervals of lost runs reach beyond all errors
        panel.set_ylim(0, min(100, panel.get_ylim()[1]))
    lines.legend(drawn, ours)
    return drawn
