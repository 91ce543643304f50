"""Gradients per second of all predictors of the cutoff, as shares of the oracle's, on several clusters.

    python -m experiments cutoff.throughput --clusters=large
    python -m experiments cutoff.throughput --clusters=recorded --trace=mine.parquet

On each cluster of configs/cutoff.py a deep Markov model is trained on one run, and the parameters of the other
predictors are tuned on it. All predictors are compared on the same test runs, which none of them has seen, censored as
in production: compute times after the cutoff are not observed but imputed, by Kalman and deep Markov from their own
predictions, and by all others from the worker's own last 20 iterations.

The oracle knows the compute times of each iteration and takes the cutoff with the largest c / x_(c), as in the paper.
Over a whole run the best cutoff maximises c - lambda x_(c), with lambda the run's rate; this objective is compared too.

Two predictors are deep auto-regressors, a perceptron and a GRU (`autoregressive`): they are trained on the same run as
the deep Markov model, and show whether a generative model is needed.
"""

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from ml_collections import ConfigDict

from experiments import papers
from experiments.cutoff import cases, contenders, models
from experiments.cutoff.contenders import DEEP_MARKOV, INFORMED, NOT_DEPLOYABLE, ORACLE, REGRESSORS, STATIC
from experiments.harness.claims import Claim
from experiments.harness.evidence import above, all_of, below
from experiments.harness.figures import Output, Scale, figure
from experiments.harness.intervals import interval
from experiments.harness.pictures import PALETTE, canvas
from experiments.harness.regions import throughout
from experiments.thresholds import CUTOFF_NEAR, CUTOFF_SUBSTANTIAL
from sgdlab.bounds import Count
from sgdlab.runs.sweep import prepare

Cluster = Literal["two_state", "memory", "large", "identical", "recorded"]
LEARN_NOTHING = ("oracle", "informed", "static")
"""Kinds of predictors that do not learn from the compute times that they observe: censoring changes nothing."""
MODELS = (*NOT_DEPLOYABLE, DEEP_MARKOV, "Kalman")
"""Titles of predictors with a generative model of the cluster, a hidden state that moves, and of the oracle."""
OBSERVED = {
    (True, "throughput"): "% of the oracle, censored",
    (False, "throughput"): "% of the oracle, uncensored",
    (True, "rate"): "% of the oracle, censored, objective of the run",
    (False, "rate"): "% of the oracle, uncensored, objective of the run",
}
"""(Are compute times censored?, objective) -> words of the table."""
USUAL = OBSERVED[True, "throughput"]

PRIOR_ART = "dynamically adjusting the cutoff improves substantially over the static-cutoff prior art"
"""The abstract's sentence."""


@figure(
    papers.CUTOFF,
    "throughput",
    scales={"smoke": Scale("5 s", clusters=["two_state"], seeds=2, small=True), "laptop": Scale("10 min")},
    differs="The clusters are simulated; the paper draws throughput in Figure 2 alone and prints none of it. The model "
    "has six additions to the paper's, see cutoff.ablation.",
    full_size=True,
)
def throughput(
    *,
    clusters: list[Cluster] = ("two_state", "memory", "identical"),
    trace: str = "",
    seeds: Count = 5,
    small: bool = False,
) -> Output:
    """Compares the predictors.

    Args:
      clusters: clusters of configs/cutoff.py.
      trace: file of recorded compute times, for the cluster recorded.
      seeds: number of test runs of each simulated cluster.
      small: 8 workers and a model that is hardly trained, to try the code.
    """
    if trace and "recorded" not in clusters:
        raise ValueError(f"{trace=} must go with --clusters=recorded")
    configs = [cases.configured(name, small=small, trace=trace * (name == "recorded")) for name in clusters]
    pairs = list(zip(configs, models.trained(configs), strict=True))
    prepare(*map(contenders.tuning_of, configs))
    prepare(*(contenders.sweep_of(config, selected(config, model), count(config, seeds)) for config, model in pairs))
    runs = pd.concat([measured(*pair, seeds) for pair in pairs])
    rows = []
    for (cluster, title, *which), here in runs.groupby(["cluster", "title", "censored", "objective"], sort=False):
        quantities = {OBSERVED[tuple(which)]: here.share}
        if OBSERVED[tuple(which)] == USUAL:
            quantities["gradients per second, censored"] = here.gradients_per_second
            quantities["workers waited for, censored"] = here.waited_for
        rows += [(cluster, title, words, *contenders.spread(values)) for words, values in quantities.items()]
    usual = runs[runs.censored & (runs.objective == "throughput")].groupby("cluster", sort=False)
    shares = {cluster: here.pivot(index="seed", columns="title", values="share") for cluster, here in usual}
    table = pd.DataFrame(rows, columns=["cluster", "waits for", "quantity", "ours", "±"]).assign(paper=None)
    notes = [
        "Shares are of the oracle's gradients per second with the paper's objective on the same run; ± is half of the "
        "95 % confidence interval over test runs of one trained model; cutoff.sample_efficiency trains several.",
        "Where the objective is that of the run, the predictor maximises c - lambda x_(c), with lambda the rate of the "
        "run so far.",
        tuned(runs),
    ]
    return Output(table, draw(runs[runs.objective == "throughput"]), claims(shares, small=small), notes)


def measured(config: ConfigDict, model: str, seeds: int) -> pd.DataFrame:
    """A row for each predictor, test run, objective, and whether times are censored: see `contenders.compared`."""
    return contenders.compared(config, selected(config, model), count(config, seeds)).assign(cluster=config.name)


def selected(config: ConfigDict, model: str) -> list[tuple[str, dict[str, Any]]]:
    """Return the predictors of a cluster with each objective, censored and uncensored: titles and settings."""
    return [
        (title, {**settings, "censored": censored, "objective": objective})
        for title, settings in contenders.contenders(config, model).items()
        for censored, objective in OBSERVED
        if (censored or settings["kind"] not in LEARN_NOTHING)
        and (objective == "throughput" or settings["kind"] != "autoregressive")
    ]


def count(config: ConfigDict, seeds: int) -> int:
    """Return the number of test runs of a cluster."""
    return 1 if config.cluster.kind == "recorded" else seeds


def tuned(runs: pd.DataFrame) -> str:
    """Return the parameters of predictors that were tuned on the training runs."""
    found = {
        f"{title} of {cluster}: " + ", ".join(f"{name} {value:g}" for name, value in options.items())
        for cluster, title, options in zip(runs.cluster, runs.title, runs.options, strict=True)
        if isinstance(options, dict) and title not in REGRESSORS
    }
    return f"Tuned parameters: {'; '.join(sorted(found))}."


def claims(shares: Mapping[str, pd.DataFrame], *, small: bool) -> list[Claim]:
    """Return the paper's sentences on throughput, over all clusters they are about: differences are paired by test run.

    Args:
      shares: cluster -> a row for each test run, a column for each predictor: % of the oracle. Workers of `identical`
        have nothing that a dynamic cutoff could follow.
      small: whether the model is hardly trained, so that nothing can be said.
    """
    leads, without, best, known, iid = {}, {}, {}, {}, {}
    for cluster, here in shares.items():
        deep = here[DEEP_MARKOV]
        if INFORMED in here:
            where = f"{cluster}, {interval(deep)} % of the oracle"
            (iid if cluster == "identical" else known)[where] = interval(100 * deep / here[INFORMED])
        if cluster != "identical":
            leads[cluster] = interval(deep - here[STATIC])
            names = [name for name in here if name not in MODELS]
            without[cluster] = {f"{cluster}, {name}": interval(100 * here[name] / deep) for name in names}
            best |= [max(without[cluster].items(), key=lambda item: item[1].mean)]
    near = f"% of a predictor that knows the true law; above {CUTOFF_NEAR:g} is near optimal"
    found = [
        (
            PRIOR_ART,
            "abstract",
            leads,
            f"points of the oracle above the best static cutoff; above {CUTOFF_SUBSTANTIAL:g}, several times what "
            "another training changes, is substantial",
            all_of(above(lead, CUTOFF_SUBSTANTIAL) for lead in leads.values()),
            "",
        ),
        (
            "a generative model here is nearly absolutely necessary, certainly in comparison to a purely "
            "autoregressive model, for predicting run-times given a lagged window",
            "section 3.1.2",
            best,
            "% of deep Markov's throughput at best without a generative model, be it a deep auto-regressor or a rule; "
            f"above {CUTOFF_NEAR:g}, none is necessary",
            throughout(all_of(below(share, CUTOFF_NEAR) for share in found.values()) for found in without.values()),
            "What cannot be done without a generative model depends on the cluster, whose dynamics are ours: it fails "
            "where it fails on each.",
        ),
        (
            "a model of run-times allows for a near optimal choice of straggler cutoff",
            "section 5",
            known,
            near,
            all_of(above(share, CUTOFF_NEAR) for share in known.values()),
            "",
        ),
        (
            "for well-engineered clusters such a model might learn that run-times are nearly perfectly iid",
            "section 1",
            iid,
            near,
            all_of(above(share, CUTOFF_NEAR) for share in iid.values()),
            "",
        ),
    ]
    return [
        Claim(
            says,
            at,
            ours=", ".join(f"{value} ({where})" for where, value in values.items()) + f" {words}",
            holds=None if small else holds,
            because=because,
        )
        for says, at, values, words, holds, because in found
        if values
    ]


def draw(runs: pd.DataFrame) -> Figure:
    """Draws the shares of the oracle with their confidence intervals, censored and uncensored."""
    clusters, names = (list(dict.fromkeys(column)) for column in (runs.cluster, runs.title))
    names = [name for name in names[::-1] if name != ORACLE]
    drawn, panels = canvas(1, len(clusters), width=3 + 3.6 * len(clusters), height=5.2, sharey=True)
    for axes, cluster in zip(panels[0], clusters, strict=True):
        for shift, censored, marker in ((0.13, True, "o"), (-0.13, False, "s")):
            here = runs[(runs.cluster == cluster) & (runs.censored == censored) & (runs.title != ORACLE)]
            shares = here.groupby("title").share.apply(interval)
            axes.errorbar(
                [share.mean for share in shares],
                [names.index(name) + shift for name in shares.index],
                xerr=[share.half if np.isfinite(share.half) else 0 for share in shares],
                fmt=marker,
                color=PALETTE[0 if censored else 5],
                label="censored" if censored else "uncensored",
            )
        axes.set_title(cluster.replace("_", " "))
        axes.set_xlabel("gradients per second,\n% of the oracle's")
    panels[0, 0].set_yticks(range(len(names)), names)
    drawn.legend(*panels[0, 0].get_legend_handles_labels(), loc="outside upper right", ncols=2)
    return drawn
