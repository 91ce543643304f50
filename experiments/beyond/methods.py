"""Every method side by side: accuracy, and time to 95 %, on digits and unequal workers.

All share the hyperparameters of `configs/digits.py`, which are tuned for a single worker and none of the methods, and
use as many gradients. The pages of the methods and the page that helps to choose one have their numbers from here. What
stands for a rule alone is the single worker with that rule.
"""

import math
from collections.abc import Sequence

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

from configs import digits
from experiments.beyond.sources import SGDLAB
from experiments.harness import PALETTE, Count, Output, Positive, Scale, canvas, figure
from sgdlab.results import floor, summary
from sgdlab.results.summary import Group, Spread
from sgdlab.runs import compare
from sgdlab.runs.methods import methods as known_methods

QUANTITIES = (
    *("seconds_to_target", "speedup", "staleness", "wasted_share"),
    *("effective_workers", "effective_rate", "summed_rate"),
)
"""Entries of summaries whose means over seeds have columns of their own, empty where some seed has none."""
NO_LOSS = "no loss: the single worker's gradients, by all workers, none ever waiting"


@figure(
    SGDLAB,
    "Methods",
    scales={
        "smoke": Scale("15 s", methods=["synchronous", "asgd"], num_workers=[3], seeds=1, epochs=1.0),
        "laptop": Scale("10 min"),
    },
    differs="There is no paper: this is what the pages of the methods show.",
)
def methods(
    *,
    methods: list[str] = ("all",),
    num_workers: list[Count] = (8, 32),
    seeds: Count = 3,
    epochs: Positive = 20.0,
) -> Output:
    """Trains every method, and each rule with a single worker.

    Args:
      methods: their names, or all.
      num_workers: numbers of workers, each above 1.
      seeds: number of seeds.
      epochs: epochs of used gradients.

    Raises:
      ValueError: where a method is not known, or there are fewer than 2 workers.
    """
    known = list(known_methods())
    names = known if list(methods) == ["all"] else list(methods)
    if unknown := [name for name in names if name not in known]:
        raise ValueError(f"methods={','.join(unknown)} must be all, or names of methods, such as {known[0]}")
    if min(num_workers) < 2:
        raise ValueError(f"num_workers={','.join(map(str, num_workers))} must be at least 2: one is trained besides")
    config = digits.get_config()
    config.epochs = epochs
    runs = compare.comparison(config, names, sorted(num_workers), seeds).records()
    found = summary.groups(records for _, records in runs)
    notes = [
        f"Means over {seeds} seeds, ± one standard deviation. Seconds are virtual, until the test accuracy is "
        f"{100 * config.target:g} %; empty where not every seed comes there. Speed-up: used gradients per second over "
        "those of synchronous SGD. Staleness in updates. Effective rate: learning rate / (1 - momentum) of a used "
        "gradient at the largest rate; summed over all updates it is the summed rate.",
    ]
    return Output(table(found), _drawn(found), (), notes)


def table(groups: Sequence[Group]) -> pd.DataFrame:
    """Return a row for each method and number of workers, the single workers first."""
    rows = []
    for group in groups:
        score = group.test or Spread(math.nan, math.nan)
        means = {name: group.spread(name) for name in QUANTITIES}
        rows.append(
            {
                "method": group.method,
                "num_workers": group.num_workers,
                "serial": int(group.serial),
                "seeds": len(group.runs),
                "diverged": group.num_diverged,
                **{name: math.nan if found is None else found.mean for name, found in means.items()},
                "quantity": "test accuracy, %",
                "ours": 100 * score.mean,
                "±": 100 * score.std,
                "paper": None,
            }
        )
    return pd.DataFrame(rows)


def _drawn(groups: Sequence[Group]) -> Figure:
    """Accuracy against time to the target; named are the methods that no other beats in both."""
    compared = table([group for group in groups if not group.serial])
    counts, least = sorted(set(compared.num_workers)), floor.seconds(groups)
    titles = {group.method: group.title for group in groups}
    drawn, panels = canvas(1, len(counts), width=7.5 * len(counts), height=5.5)
    for panel, count in zip(panels[0], counts, strict=True):
        here = compared[(compared.num_workers == count) & compared.seconds_to_target.notna()]
        panel.plot(here.seconds_to_target, here.ours, "o", color=PALETTE[0], markersize=4, alpha=0.6)
        named = here[[_first(row, here) for _, row in here.iterrows()]].sort_values(["ours", "seconds_to_target"])
        for place, row in enumerate(named.itertuples()):
            # In turn left above and right below, so that names of neighbours do not lie on each other.
            offset, side = ((-4, 5), "right") if place % 2 else ((5, -10), "left")
            point = (row.seconds_to_target, row.ours)
            panel.annotate(titles[row.method], point, textcoords="offset points", xytext=offset, ha=side, fontsize=9)
        for name, (of, number) in enumerate(key for key in least if key[1] == count):
            label = NO_LOSS if not name else None
            panel.axvline(least[of, number], color="black", linestyle=":", linewidth=1.2, label=label)
        missed = int((compared.num_workers == count).sum()) - len(here)
        missing = f"{missed} {'method misses' if missed == 1 else 'methods miss'} 95 %"
        panel.set(title=f"{count} workers ({missing})", xlabel="virtual seconds to 95 %", xscale="log")
        panel.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        panel.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        panel.xaxis.set_minor_formatter(NullFormatter())
    panels[0, 0].set_ylabel("test accuracy in the end, %")
    if least:
        drawn.legend(*panels[0, 0].get_legend_handles_labels(), loc="outside lower center")
    return drawn


def _first(row: pd.Series, others: pd.DataFrame) -> bool:
    """Whether no other method is sooner and as accurate, or more accurate and as soon: of a tie, all are first."""
    no_worse = (others.seconds_to_target <= row.seconds_to_target) & (others.ours >= row.ours)
    better = (others.seconds_to_target < row.seconds_to_target) | (others.ours > row.ours)
    return not (no_worse & better).any()
