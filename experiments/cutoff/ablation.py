"""What each addition to the paper's deep Markov model is worth: throughput without it, and without all of them.

The model of this project has six additions that the paper does not have. Each row of the table takes one of them away,
one row takes two that make up for each other, and the last takes all, which is the paper's form:

* literal_guide: at step t the guide does not read x_t, as it is printed, so that at the last step, from which
  everything is predicted, it does not know the newest run-times;
* no_blind_share: all windows are trained with future run-times, though there are none where predictions are made;
* no_annealing: the states' terms of the objective have full weight from the first step;
* no_least_share: an iteration may wait for fewer than half of the workers;
* own_scale: run-times are divided by twice the mean of the test run's first window, and not of the training run's;
* literal_draws: predicted run-times may be shorter than all of the window, imputed ones have no upper bound.

All are compared on the same test runs of configs/cutoff.py, censored as in production.
"""

import collections
from collections.abc import Sequence
from typing import Literal

import pandas as pd
from matplotlib.figure import Figure
from ml_collections import ConfigDict

from experiments import papers
from experiments.cutoff import cases, contenders, models
from experiments.cutoff.contenders import STATIC
from experiments.cutoff.throughput import PRIOR_ART, SUBSTANTIAL, Cluster
from experiments.harness import PALETTE, Claim, Count, Output, Scale, above, all_of, canvas, figure, interval

Addition = Literal["literal_guide", "no_blind_share", "no_annealing", "no_least_share", "own_scale", "literal_draws"]
TRAINING = {
    "literal_guide": {"widths.literal": True},
    "no_blind_share": {"fitting.blind_share": 0.0},
    "no_annealing": {"fitting.annealing": 0},
}
"""Entries of the configuration with which a model is trained without an addition."""
PREDICTION = {
    "no_least_share": {"at_least": 0.0},
    "own_scale": {"literal_scale": True},
    "literal_draws": {"literal_draws": True},
}
"""Options of `sgdlab.deep_markov.DeepMarkov` without an addition."""
AS_IS, WITHOUT_ALL = "as it is", "without all of these"
PAIR = ("literal_guide", "no_blind_share")
"""Two that make up for each other: either addition prepares the guide for the last step of a window."""


@figure(
    papers.CUTOFF,
    "ablation",
    scales={
        "smoke": Scale("5 s", without=list(PREDICTION), seeds=2, small=True),  # no model is trained for these
        "laptop": Scale("5 min"),
    },
    differs="The paper has no such comparison; the cluster is simulated.",
    full_size=True,
)
def ablation(
    *,
    clusters: list[Cluster] = ("two_state",),
    without: list[Addition] = (*TRAINING, *PREDICTION),
    seeds: Count = 5,
    small: bool = False,
) -> Output:
    """Trains the variants and compares them.

    Args:
      clusters: simulated clusters of configs/cutoff.py.
      without: what is taken away, one by one and all together.
      seeds: number of test runs.
      small: 8 workers and models that are hardly trained, to try the code.
    """
    if "recorded" in clusters:
        raise ValueError(f"clusters={','.join(clusters)} must be simulated ones")
    runs = pd.concat([measured(cases.configured(name, small=small), without, seeds) for name in clusters])
    rows, leads = [], {}
    for cluster, here in runs.groupby("cluster", sort=False):
        share = here.pivot(index="seed", columns="title", values="share")
        for title in dict.fromkeys(here.title):
            rows.append((cluster, title, "% of the oracle", *contenders.spread(share[title])))
            if title != AS_IS:
                rows.append((cluster, title, "change in points", *contenders.spread(share[title] - share[AS_IS])))
        leads[cluster] = [interval(share[form] - share[STATIC]) for form in (WITHOUT_ALL, AS_IS)]
    claim = Claim(
        f"{PRIOR_ART} (the model in the paper's literal form)",
        "abstract",
        ours=", ".join(f"{paper}, as it is {ours} ({cluster})" for cluster, (paper, ours) in leads.items())
        + f" points of the oracle above the best static cutoff; above {SUBSTANTIAL:g} is substantial",
        holds=all_of(above(paper, SUBSTANTIAL) for paper, _ in leads.values())
        if len(without) == len(TRAINING | PREDICTION) and not small
        else None,
        because="The cluster is simulated, and the paper prints neither the widths of its networks nor Adam's rate.",
    )
    table = pd.DataFrame(rows, columns=["cluster", "model", "quantity", "ours", "±"]).assign(paper=None)
    notes = [
        "± is half of the 95 % confidence interval over test runs of one trained model; changes are paired by run.",
        "Because each model is trained once, differences of some tenths of a point may be due to the training.",
    ]
    return Output(table, draw(runs), [claim], notes)


def variants(without: Sequence[str]) -> dict[str, tuple[dict[str, object], dict[str, object]]]:
    """Title -> entries of the configuration that a model is trained with, and options of the predictor.

    Example:
      >>> variants(["own_scale"])
      {'as it is': ({}, {}), 'own scale': ({}, {'literal_scale': True}),
       'without all of these': ({}, {'literal_scale': True})}
    """
    each = {name: (TRAINING.get(name, {}), PREDICTION.get(name, {})) for name in without}
    every = tuple(dict(collections.ChainMap(*parts)) for parts in zip(*each.values(), strict=True))
    titled = {name.replace("_", " "): parts for name, parts in each.items()}
    if set(PAIR) < set(without):
        titled["literal guide, no blind share"] = (TRAINING[PAIR[0]] | TRAINING[PAIR[1]], {})
    return {AS_IS: ({}, {}), **titled, WITHOUT_ALL: every}


def measured(config: ConfigDict, without: Sequence[str], seeds: int) -> pd.DataFrame:
    """Return a row for each variant and test run, and for the best static cutoff: see `contenders.compared`."""
    forms = variants(without)
    configs = [config.copy_and_resolve_references() for _ in forms]
    for changed, (entries, _) in zip(configs, forms.values(), strict=True):
        changed.update_from_flattened_dict(entries)
    found = models.trained(configs)
    selected = [
        (title, {"kind": "deep_markov", "model": model, "options": options})
        for (title, (_, options)), model in zip(forms.items(), found, strict=True)
    ]
    selected.append((STATIC, contenders.contenders(config, found[0])[STATIC]))
    return contenders.compared(config, selected, seeds).assign(cluster=config.name)


def draw(runs: pd.DataFrame) -> Figure:
    """Draws the share of the oracle by variant, with a point for each test run."""
    clusters, names = list(dict.fromkeys(runs.cluster)), list(dict.fromkeys(runs.title))[::-1]
    drawn, panels = canvas(1, len(clusters), width=4 + 5 * len(clusters), height=5, sharey=True)
    for axes, cluster in zip(panels[0], clusters, strict=True):
        here = runs[runs.cluster == cluster]
        means = here.groupby("title").share.mean()
        axes.plot(here.share, [names.index(title) for title in here.title], "o", color=PALETTE[4], label="a test run")
        axes.plot(means[names], range(len(names)), "D", color=PALETTE[0], label="mean")
        axes.axvline(means[AS_IS], color=PALETTE[-1], linestyle=":", linewidth=1.2)
        axes.set_yticks(range(len(names)), names)
        axes.set_title(cluster.replace("_", " "))
        axes.set_xlabel("gradients per second, % of the oracle's")
    drawn.legend(*panels[0, 0].get_legend_handles_labels(), loc="outside upper right", ncols=2)
    return drawn
