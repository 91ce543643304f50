"""Measures the worth of each addition to the paper's deep Markov model: throughput without it, and without all of them.

The model of this project has six additions that the paper does not have. Each row of the table takes one of them away,
one row takes two that make up for each other, and the last takes all, which is the paper's form:

* literal_guide: at step t the guide does not read x_t, as it is printed, so that at the last step, from which
  everything is predicted, it does not know the newest compute times;
* no_blind_share: all windows are trained with future compute times, though there are none where predictions are made;
* no_annealing: the states' terms of the objective have full weight from the first step;
* no_least_share: an iteration may wait for fewer than half of the workers;
* own_scale: compute times are divided by twice the mean of the test run's first window, and not of the training run's;
* literal_draws: predicted compute times may be shorter than all of the window, imputed ones have no upper bound.

All are compared on the same test runs of configs/cutoff.py, censored as in production. The paper prints neither the
widths of its networks nor Adam's rate: its form is trained with multiples of ours too (--widths, --rates), and what is
said of it is said of all of these.
"""

import collections
import itertools
from collections.abc import Sequence
from typing import Literal

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from ml_collections import ConfigDict

from experiments import papers
from experiments.cutoff import cases, contenders, models
from experiments.cutoff.contenders import STATIC
from experiments.cutoff.throughput import PRIOR_ART, Cluster
from experiments.harness import PALETTE, Claim, Count, Output, Positive, Scale, above, canvas, figure, interval
from experiments.harness.regions import throughout
from experiments.thresholds import CUTOFF_SUBSTANTIAL

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
        "decide": Scale("40 min", widths=[0.5, 1.0, 2.0], rates=[0.5, 1.0, 2.0]),
    },
    differs="The paper has no such comparison; the cluster is simulated.",
    full_size=True,
)
def ablation(
    *,
    clusters: list[Cluster] = ("two_state",),
    without: list[Addition] = (*TRAINING, *PREDICTION),
    widths: list[Positive] = (1.0,),
    rates: list[Positive] = (1.0,),
    seeds: Count = 5,
    small: bool = False,
) -> Output:
    """Trains the variants and compares them.

    Args:
      clusters: simulated clusters of configs/cutoff.py.
      without: what is taken away, one by one and all together.
      widths: widths of the paper's form, as multiples of the configuration's.
      rates: learning rates of it, in the same way.
      seeds: number of test runs.
      small: 8 workers and models that are hardly trained, to try the code.
    """
    if "recorded" in clusters:
        raise ValueError(f"clusters={','.join(clusters)} must be simulated ones")
    points = list(itertools.product(sorted(widths), sorted(rates)))
    runs = pd.concat([measured(cases.configured(name, small=small), without, points, seeds) for name in clusters])
    rows, leads, ours = [], {}, {}
    for cluster, here in runs.groupby("cluster", sort=False):
        share = here.pivot(index="seed", columns="title", values="share")
        for title in dict.fromkeys(here.title):
            rows.append((cluster, title, "% of the oracle", *contenders.spread(share[title])))
            if title != AS_IS:
                rows.append((cluster, title, "change in points", *contenders.spread(share[title] - share[AS_IS])))
        leads |= {
            f"{cluster}{title.removeprefix(WITHOUT_ALL)}": interval(share[title] - share[STATIC])
            for title in share
            if title.startswith(WITHOUT_ALL)
        }
        ours[cluster] = interval(share[AS_IS] - share[STATIC])
    ahead = throughout(above(lead, CUTOFF_SUBSTANTIAL) for lead in leads.values())
    claim = Claim(
        f"{PRIOR_ART} (the model in the paper's literal form)",
        "abstract",
        ours=", ".join(f"{lead} ({where})" for where, lead in leads.items())
        + f" points of the oracle above the best static cutoff, as it is {', '.join(map(str, ours.values()))}; above "
        f"{CUTOFF_SUBSTANTIAL:g} is substantial",
        holds=None if small or len(points) == 1 or len(without) < len(TRAINING | PREDICTION) else ahead,
        because="The paper prints neither the widths of its networks nor Adam's rate, on which it may depend (both are "
        "varied at decide); it fails where the paper's form, without our additions, is not ahead with any of them.",
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


def resized(config: ConfigDict, width: float, rate: float) -> dict[str, object]:
    """Return the entries of a configuration whose widths and learning rate are multiples of another's."""
    names = ("state", "gate", "emission", "scale", "recurrent")
    widths = {f"widths.{name}": max(round(width * config.widths[name]), 1) for name in names}
    return {**widths, "fitting.learning_rate": rate * config.fitting.learning_rate}


def measured(
    config: ConfigDict, without: Sequence[str], points: Sequence[tuple[float, float]], seeds: int
) -> pd.DataFrame:
    """Return a row for each variant and test run, and for the best static cutoff: see `contenders.compared`.

    Args:
      config: of the cluster.
      without: what is taken away.
      points: multiples of the widths and of the learning rate of the form without all.
      seeds: number of test runs.
    """
    forms = variants(without)
    entries, options = forms[WITHOUT_ALL]
    for width, rate in points:
        if (width, rate) != (1.0, 1.0):
            title = f"{WITHOUT_ALL}, widths x {width:g}, rate x {rate:g}"
            forms[title] = (entries | resized(config, width, rate), options)
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
    height = max(5.0, 1 + 0.4 * len(names))
    drawn, panels = canvas(1, len(clusters), width=4 + 5 * len(clusters), height=height, sharey=True)
    for axes, cluster in zip(panels[0], clusters, strict=True):
        here = runs[runs.cluster == cluster]
        found = here.groupby("title").share.apply(interval)
        axes.plot(here.share, [names.index(title) for title in here.title], "o", color=PALETTE[4], label="a test run")
        means, halves = ([getattr(found[name], part) for name in names] for part in ("mean", "half"))
        bars = {"xerr": np.nan_to_num(halves, posinf=0.0), "color": PALETTE[0], "label": "mean, 95 % interval"}
        axes.errorbar(means, range(len(names)), fmt="D", **bars)
        axes.axvline(found[AS_IS].mean, color=PALETTE[-1], linestyle=":", linewidth=1.2)
        axes.set_yticks(range(len(names)), names)
        axes.set_title(cluster.replace("_", " "))
        axes.set_xlabel("gradients per second, % of the oracle's")
    drawn.legend(*panels[0, 0].get_legend_handles_labels(), loc="outside upper right", ncols=2)
    return drawn
