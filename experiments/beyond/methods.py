"""Every method side by side: accuracy, and time to 95 %, on digits and unequal workers.

All share the hyperparameters of `configs/digits.py`, which are tuned for none of the methods, and use as many
gradients; how good their learning rate is for a single worker, `beyond.single_worker` shows. The pages of the methods
and the page that helps to choose one have their numbers from here. What stands for a rule alone is the single worker
with that rule.
"""

import math
from collections.abc import Sequence

import pandas as pd

from configs import digits
from experiments.beyond.sources import SGDLAB
from experiments.harness import Count, Output, Positive, Scale, figure
from sgdlab.results import standing, summary
from sgdlab.results.summary import Group
from sgdlab.runs import compared
from sgdlab.runs.methods import methods as known_methods

QUANTITIES = (
    *("seconds_to_target", "speedup", "staleness", "wasted_share"),
    *("effective_workers", "effective_rate", "summed_rate"),
)
"""Entries of summaries whose means over seeds have columns of their own, empty where some seed has none."""


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
    runs = compared.comparison(config, names, sorted(num_workers), seeds).records()
    found = summary.groups(records for _, records in runs)
    notes = [
        f"Means over {seeds} seeds, ± one standard deviation; where a run diverged, the median accuracy, without ±. "
        "Seconds are virtual, until the test accuracy is "
        f"{100 * config.target:g} %; empty where not every seed comes there. Speed-up: used gradients per second over "
        "those of synchronous SGD. Staleness in updates. Effective rate: learning rate / (1 - momentum) of a used "
        "gradient at the largest rate; summed over all updates it is the summed rate.",
    ]
    return Output(table(found), standing.standing(found), (), notes)


def table(groups: Sequence[Group]) -> pd.DataFrame:
    """Return a row for each method and number of workers, the single workers first."""
    rows = []
    for group in groups:
        score = group.test
        middle = score.mean if score else group.median(group.metric.test)
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
                "ours": math.nan if middle is None else 100 * middle,
                "±": 100 * score.std if score else math.nan,
                "paper": None,
            }
        )
    return pd.DataFrame(rows)
