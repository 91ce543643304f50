r"""Perplexity of Adam, Adam-SA and Adam-GA on a Transformer-XL with 4 and 8 workers (Barkai et al. 2020, Table 2).

At the size of a laptop the network has two layers of width 32 and reads the source text of Python's standard library,
byte by byte; dropout, the clipping norm, the share of the run that is warm-up (from the N-th part of the rate) and the
cosine decay are the paper's. The learning rate is the one of `rates` with which a single Adam worker ends at the lowest
perplexity; all methods and numbers of workers share it, as in the paper. 16 workers are not in the paper.

The paper's perplexity is one of words and punctuation marks, ours of bytes. A ratio of perplexities of bytes is turned
into the one of words that is as likely a text: its power b, the number of bytes for each word or punctuation mark of
the test text. What does not depend on the unit is the share of the loss that staleness costs Adam and that a penalty
regains, with P the perplexity:

.. math:: \frac{\ln P(\text{Adam}) - \ln P(\text{method})}{\ln P(\text{Adam}) - \ln P(\text{single worker})}
"""

import math
from collections.abc import Callable, Mapping
from typing import Any, Literal

import numpy as np
import pandas as pd
from matplotlib.figure import Figure as Picture
from ml_collections import ConfigDict

from configs import wikitext103_transformer_xl as transformer_xl
from experiments import papers
from experiments.gap_aware import printed, text
from experiments.harness import PAPER as BLACK
from experiments.harness import Sweep
from experiments.harness.claims import Claim, enough
from experiments.harness.evidence import Evidence, above, all_of, below
from experiments.harness.figures import Output, Scale, figure
from experiments.harness.intervals import Interval, interval
from experiments.harness.pictures import canvas, look
from experiments.thresholds import PERPLEXITY_ALMOST_TWO_ORDERS, PERPLEXITY_NEAR, PERPLEXITY_REGAINED
from sgdlab.bounds import Count, Positive
from sgdlab.runs import resolve
from sgdlab.runs.configuration import shorten

METHODS = {"adam": "Adam", "adam_staleness_aware": "Adam-SA", "adam_gap_aware": "Adam-GA"}
LINES = {name: (look(name).colour, look(name).marker) for name in ("Adam", "Adam-SA", "Adam-GA")}
SINGLE = "single worker"
BYTE, WORD, TIMES = "test perplexity of a byte", "test perplexity of a word", "times the single worker's, of a word"
REGAINED = "share of Adam's loss that is regained, %"
SHORT = "the runs of Table 2 are short"
"""Why what is said of how much staleness costs in the end cannot be said of ours."""
Size = Literal["laptop", "gpu", "paper"]
Values = Mapping[tuple[str, int], np.ndarray]


@figure(
    papers.GAP,
    "Table 2",
    scales={
        "smoke": Scale("40 s", num_workers=[4], rates=[0.01], seeds=1, gradients=24),
        "laptop": Scale("6 min"),
        "decide": Scale("40 min", num_workers=[4, 8], rates=[0.01], seeds=20),
        "gpu": Scale("1 h, estimated", size="gpu", num_workers=[4, 8, 16], rates=[0.001], seeds=3, gradients=6_000),
        "paper": Scale(
            "GPU-weeks, estimated", size="paper", num_workers=[4, 8], rates=[0.00025], seeds=1, gradients=200_000
        ),
    },
    differs="Bytes of Python's standard library and a Transformer-XL of 33,000 parameters instead of WikiText-103 and "
    "151 million, 768 gradients a run instead of 200,000, and the rate is the best one of that single worker.",
    stand_in="Python's standard library in place of WikiText-103",
)
def table2(
    *,
    num_workers: list[Count] = (4, 8, 16),
    rates: list[Positive] = (0.003, 0.01, 0.03),
    seeds: Count = 5,
    gradients: Count = 768,
    size: Size = "laptop",
) -> Output:
    """Trains a single worker with each rate, then all methods with the best of these.

    Args:
      num_workers: numbers of asynchronous workers.
      rates: learning rates of Adam for the single worker.
      seeds: number of seeds; the paper does not say how many runs its numbers are of.
      gradients: of a run.
      size: laptop; gpu, six layers of width 256 on the same bytes; or paper.
    """
    base = configuration(size, gradients)
    singles = Sweep(base, {"optimizer.adam_learning_rate": rates, "seed": range(seeds)}).table()
    mean_loss = singles.groupby("optimizer.adam_learning_rate").test_loss.mean()
    rate = float(mean_loss.idxmin()) if mean_loss.notna().any() else rates[0]
    base.optimizer.adam_learning_rate = rate
    over = {"method": list(METHODS), "cluster.num_workers": num_workers, "seed": range(seeds)}
    runs = Sweep(base, over).table()
    losses = {
        (METHODS[method], workers): found.test_loss.to_numpy()
        for (method, workers), found in runs.groupby(["method", "cluster.num_workers"])
    }
    losses[SINGLE, 1] = singles[singles["optimizer.adam_learning_rate"] == rate].test_loss.to_numpy()
    unit = 1.0 if size == "paper" else text.bytes_per_word(base)
    table = summarised(losses, unit)
    notes = [
        f"The single worker's best rate is {rate:g}, of "
        + ", ".join(f"{tried:g} (perplexity {math.exp(loss):.4g})" for tried, loss in mean_loss.items())
        + ".",
        "± is half the width of the 95 % confidence interval of the mean over the seeds. Of perplexities and their "
        "ratios means are geometric, and ± is in per cent of them; ratios and shares are paired by seed.",
    ]
    if size != "paper":
        found = text.byte_frequencies(base)
        notes.insert(0, f"A word or mark of the test text has {unit:.3f} bytes. A model that knows how frequent each "
                        f"byte is, and nothing else, has a perplexity of {found:.4g} of a byte.")  # fmt: skip
    return Output(table, draw(losses, size), claims(losses, unit, gradients), notes)


def configuration(size: Size, gradients: int) -> ConfigDict:
    """Return the configuration of a single worker."""
    config = transformer_xl.get_config()
    if size == "paper":
        shorten(config, config.epochs * gradients / transformer_xl.GRADIENTS)
    else:
        sizes = {"layers": 2, "width": 32, "heads": 2, "head_width": 16, "inner": 64}
        segment, config.batch_size = 32, 8
        if size == "gpu":
            sizes = {"layers": 6, "width": 256, "heads": 8, "head_width": 32, "inner": 1024}
            segment, config.batch_size = 128, 32
        config.network.transformer_xl.update(sizes, memory=segment, cutoffs=())
        config.data.kind, config.data.stdlib_text.segment = "stdlib_text", segment
        config.data.stdlib_text.max_bytes = gradients * segment * config.batch_size + 1
        config.train_examples, config.test_examples = 256, 256 if size == "laptop" else None
        per_epoch = resolve(config).data.batches_per_epoch
        shorten(config, gradients / per_epoch)
        config.evaluations = 4 if size == "laptop" else 20
    config.method, config.cluster.num_workers = "adam", 1
    return config


def regained(losses: Values, method: str, workers: int) -> np.ndarray:
    """Return per cent of what staleness costs Adam, in nats, that a penalty regains: one value for each seed."""
    adam, single = losses["Adam", workers], losses[SINGLE, 1]
    return 100 * (adam - losses[method, workers]) / (adam - single)


def in_print() -> Values:
    """Return the paper's Table 2 as losses, in nats per word."""
    rows = {(SINGLE, 1): np.log([printed.SINGLE["T"]])}
    for workers, perplexities in printed.TABLE_2.items():
        for method, perplexity in zip(METHODS.values(), perplexities, strict=True):
            rows[method, workers] = np.log([perplexity])
    return rows


def summarised(losses: Values, unit: float) -> pd.DataFrame:
    """Return the table: perplexities, how many times the single worker's they are, and what the penalties regain."""
    order = sorted(losses, key=lambda key: (key[1], [SINGLE, *METHODS.values()].index(key[0])))
    many, rows, paper = [key for key in order if key[0] != SINGLE], [], in_print()

    def add(quantity: str, key: tuple[str, int], ours: np.ndarray | None, theirs: float, *, ratio: bool = True) -> None:
        found = interval([] if ours is None else ours)
        half = found.half if math.isfinite(found.half) else math.nan
        numbers = {"ours": found.mean, "±": half, "paper": theirs}
        if ratio:
            numbers = {"ours": exp(found.mean), "±": 100 * (exp(half) - 1), "paper": exp(theirs)}
        rows.append({"quantity": quantity, "N": key[1], "method": key[0], **numbers})

    def in_paper(key: tuple[str, int], value: Callable[[Values], np.ndarray]) -> float:
        return value(paper).item() if key in paper else math.nan

    if unit != 1:
        for key in order:
            add(BYTE, key, losses[key], math.nan)
    for key in order if unit == 1 else paper:
        add(WORD, key, losses.get(key) if unit == 1 else None, in_paper(key, lambda of, key=key: of[key]))
    for key in many:
        theirs = in_paper(key, lambda of, key=key: of[key] - of[SINGLE, 1])
        add(TIMES, key, unit * (losses[key] - losses[SINGLE, 1]), theirs)
    for key in many:
        if key[0] != "Adam":
            theirs = in_paper(key, lambda of, key=key: regained(of, *key))
            add(REGAINED, key, regained(losses, *key), theirs, ratio=False)
    return pd.DataFrame(rows)


def exp(value: float) -> float:
    """Return the exponential; infinite where it is too large a number."""
    return math.exp(value) if value < 700 else value if math.isnan(value) else math.inf


def claims(losses: Values, unit: float, gradients: int) -> list[Claim]:
    """Return the statements of section 6.3, at the paper's numbers of workers.

    Which method is ahead is asked of runs of any length. How far it is from the others, and from the single worker, is
    said of runs that are long enough for what staleness costs in the beginning to be made up for.

    Args:
      losses: nats, one for each seed.
      unit: bytes of a word.
      gradients: of a run.
    """
    paper, found = in_print(), []
    counts = [workers for workers in printed.TABLE_2 if ("Adam", workers) in losses]
    long = enough("gradients", gradients, transformer_xl.GRADIENTS)
    regime = {"premises": [long], "cause": "" if long.met else SHORT}

    def add(
        says: str, where: str, measure: str, value: Callable[[Values, int, float], np.ndarray],
        test: Callable[[Interval], Evidence], words: Callable[[Interval], str], **options: Any,
    ) -> None:  # fmt: skip
        ours = [interval(value(losses, workers, unit)) for workers in counts]
        theirs = [Interval(value(paper, workers, 1.0).item(), 0.0, 1) for workers in printed.TABLE_2]
        measured, in_paper = (
            f"{measure}: " + ", ".join(f"{words(each)} at N = {n}" for n, each in zip(ns, of, strict=True))
            for ns, of in ((counts, ours), (printed.TABLE_2, theirs))
        )
        found.append(
            Claim(says, where, measured, all_of(map(test, ours)), in_paper, all_of(map(test, theirs)), **options)
        )

    almost_two = PERPLEXITY_ALMOST_TWO_ORDERS.rewritten(math.log(PERPLEXITY_ALMOST_TWO_ORDERS))
    near = PERPLEXITY_NEAR.rewritten(math.log(PERPLEXITY_NEAR))
    for worse in ("Adam", "Adam-SA"):
        add(
            f"Adam-GA achieves almost two orders of magnitude better perplexity than {worse}", "section 1",
            f"{worse}'s over Adam-GA's, per word, at least {PERPLEXITY_ALMOST_TWO_ORDERS:.0f} being almost two",
            lambda of, workers, power, worse=worse: power * (of[worse, workers] - of["Adam-GA", workers]),
            lambda ratio: above(ratio, almost_two), times, **regime,
        )  # fmt: skip
    add(
        "GA successfully mitigates the gradient staleness and achieves near-baseline perplexity", "section 6.3",
        f"Adam-GA's over the single worker's, per word, at most {PERPLEXITY_NEAR:.3g} being near",
        lambda of, workers, power: power * (of["Adam-GA", workers] - of[SINGLE, 1]),
        lambda ratio: below(ratio, near), times, **regime,
    )  # fmt: skip
    add(
        "SA completely fails to mitigate the gradient staleness", "section 6.3",
        f"share of Adam's loss that it regains, in %, at most {PERPLEXITY_REGAINED:g} being a failure",
        lambda of, workers, _: regained(of, "Adam-SA", workers),
        lambda share: below(share, PERPLEXITY_REGAINED), str, **regime,
    )  # fmt: skip
    add(
        "GA regains more of what staleness costs Adam than SA", "Table 2", "difference of the shares, in points of %",
        lambda of, workers, _: regained(of, "Adam-GA", workers) - regained(of, "Adam-SA", workers), above, str,
    )  # fmt: skip
    add(
        "SA is better than no penalty", "Table 2", "Adam's perplexity over Adam-SA's, per word",
        lambda of, workers, power: power * (of["Adam", workers] - of["Adam-SA", workers]), above, times,
    )  # fmt: skip
    return found


def times(found: Interval) -> str:
    """Return a ratio whose logarithm has this interval.

    Example:
      >>> times(interval([0.0, 0.0, 0.0])), times(Interval(math.log(62.1), 0.0, 1))
      ('1 (1 to 1) times', '62.1 times')
    """
    if found.count < 2:
        return f"{exp(found.mean):.3g} times"
    mean, low, high = (f"{float(f'{exp(value):.2g}'):g}" for value in (found.mean, found.low, found.high))
    return f"{mean} ({low} to {high}) times"


def draw(losses: Values, size: Size) -> Picture:
    """Test perplexity by the number of workers: ours, and the paper's."""
    drawn, panels = canvas(1, 2, width=11, height=5.0)
    unit, data = (
        ("word", "WikiText-103") if size == "paper" else ("byte", "Python's library (in place of WikiText-103)")
    )
    ours, theirs = (losses, f"ours: {data}", unit), (in_print(), "paper: WikiText-103", "word")
    for panel, (of, title, token) in zip(panels[0], (ours, theirs), strict=True):
        panel.axhline(exp(of[SINGLE, 1].mean()), color=BLACK, linestyle="--", linewidth=1.5, label="single worker")
        counts = sorted({workers for method, workers in of if method != SINGLE})
        for method, (shade, marker) in LINES.items():
            found = [interval(of[method, workers]) for workers in counts]
            means = np.array([exp(each.mean) for each in found])
            halves = np.array([each.half if math.isfinite(each.half) else 0.0 for each in found])
            spread = means * [-np.expm1(-halves), np.expm1(halves)]
            panel.errorbar(counts, means, spread, color=shade, marker=marker, label=method)
        panel.set(xscale="log", yscale="log", title=title, xlabel="workers, N", ylabel=f"test perplexity of a {token}")
        panel.set_xticks(counts, [str(workers) for workers in counts])
        panel.minorticks_off()
        low, high = panel.get_ylim()
        ticks = [tick for tick in (5, 6, 8, 10, 12, 15, 20, 25, 30, 50, 100, 200, 500, 1000, 2000) if low < tick < high]
        panel.set_yticks(ticks if token == "byte" else ticks[::2], None)
        panel.yaxis.set_major_formatter("{x:g}")
        panel.margins(x=0.15)
    drawn.legend(*panels[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return drawn
