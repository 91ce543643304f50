"""Validation loss against time of cutoff, synchronous and asynchronous SGD (Teng and Wood 2018, Figure 4).

Four methods, with the paper's names, train a network, at the size laptop a small conv net on the digits, on 158 workers
whose compute times have the regimes of configs/cutoff.py:two_state (for each seed the same for all methods, and none of
the model's training run):

* cutoff: every update waits for as many workers as the deep Markov model predicts, the first 20 updates for all;
* sync: every update waits for all;
* order: the cutoff by Elfving's formula with the moments of the last 20 iterations, as if workers were independent;
* wild: no worker waits, and every gradient is an update.

As in the paper: plain SGD with a constant rate, no momentum and no weight decay, batches drawn with replacement and
split over the workers, and one rate alpha for all methods: an update of c gradients is theta - alpha (1/c) sum f, and
wild has the rate alpha / 158. The paper's update has 10112 examples, 64 per worker, 17 % of MNIST; here it has 316, 2
per worker, 22 % of the 1437 digits. alpha is the value of --rates with the lowest final loss of full synchrony with the
first 3 seeds; at the sizes gpu and paper it is the paper's 0.64, with 64 of the 60,000 images of MNIST per worker and
two 5x5 convolutions and a linear layer for its "3-layer CNN". How many updates it makes is not printed. Because single
evaluations of the validation loss fluctuate, the final loss is the mean of the last tenth of them.

All runs use the same number of gradients, 158 times --updates, so methods end at different times, as in the paper's
figure. Methods that use fewer gradients per update make more updates. The validation loss is that of the test images,
a fifth of the digits, another with each of four seeds, or 10,000 of MNIST; there is no other held-out set, and the rate
is chosen on it too.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from experiments import papers
from experiments.cutoff import cases, models
from experiments.cutoff.training import CUTOFF, METHODS, ORDER, SYNC, WILD, Size, configured, trained
from experiments.harness import (
    Claim,
    Count,
    Output,
    Positive,
    Scale,
    above,
    all_of,
    below,
    canvas,
    colour,
    figure,
    interval,
    least,
    quartiles,
)
from sgdlab.results.records import Records
from sgdlab.runs import crossing

TUNING_SEEDS = 3
"""Number of seeds with which alpha is chosen."""
LAST = 0.1
"""Share of the evaluations, at the end of a run, whose mean is the final loss; single ones fluctuate."""
TARGETS = (3.0, 2.0, 1.5, 1.2)
"""Validation losses to which the time is measured, over the lowest that all methods come to with the same seed."""
TICKS = {"laptop": (0.1, 0.15, 0.2, 0.3, 0.5, 1, 2)}
"""Of the axis of losses, where they are not the usual ones."""
TO = "seconds to a loss, over the lowest of all, of "
LOSS, END, RATE = "final loss", "seconds in all", "rate of an update"

STYLES = {CUTOFF: ("cutoff", "-"), SYNC: ("synchronous", "--"), ORDER: ("order", "-."), WILD: ("hogwild", ":")}
"""Method -> the name of its colour, and the style of its line."""
MEANS = {
    CUTOFF: "cutoff: waits for as many as the model predicts",
    SYNC: "sync: waits for all",
    ORDER: "order: cutoff as if workers were independent",
    WILD: "wild: Hogwild, no worker waits",
}
"""Method -> the paper's name of it, and what it is."""
DATA = {"laptop": "digits (in place of MNIST)"}
PAPER_RATES = {SYNC: 0.64, WILD: 0.004}
"""Rates of an update of 10,112 examples and of 64."""


@figure(
    papers.CUTOFF,
    "Figure 4",
    scales={
        "smoke": Scale("5 s", updates=22, seeds=1, rates=[0.1], small=True),
        "laptop": Scale("3 min"),
        "decide": Scale("20 min", seeds=40),
        "gpu": Scale("30 min on one GPU, estimated", size="gpu", seeds=5, rates=[0.64]),
        "paper": Scale("2 h on one GPU, estimated; see --dry_run", size="paper", updates=600, rates=[0.64]),
    },
    differs="A simulated cluster; at the size laptop UCI digits, a smaller net and 2 examples a gradient instead of "
    "MNIST and 64: losses and times are not to be compared. "
    "The model of cutoff has six additions to the paper's, see cutoff.ablation.",
    stand_in="digits (8 x 8) in place of MNIST",
)
def figure4(
    *,
    size: Size = "laptop",
    updates: Count = 300,
    seeds: Count = 10,
    rates: list[Positive] = (0.16, 0.32, 0.64, 1.28),
    small: bool = False,
) -> Output:
    """Trains the runs and compares.

    Args:
      size: laptop trains on digits, gpu and paper on MNIST.
      updates: updates of full synchrony; all methods use the same number of gradients.
      seeds: number of seeds of each method.
      rates: values of alpha; the best for full synchrony is used.
      small: 8 workers, a smaller network and a model that is hardly trained, to try the code.
    """
    clusters = cases.configured("two_state", small=small)
    if updates <= clusters.widths.lag:
        raise ValueError(f"{updates=} must be above {clusters.widths.lag}, the first updates, which wait for all")
    base = configured(clusters, models.trained([clusters])[0], updates, size=size, small=small)
    tuning = trained(base, [(SYNC, alpha) for alpha in rates], range(min(seeds, TUNING_SEEDS)))
    losses = {alpha: np.mean([final_loss(records) for records in runs]) for (_, alpha), runs in tuning.items()}
    alpha = min(losses, key=lambda rate: np.nan_to_num(losses[rate], nan=np.inf))
    found = trained(base, [(method, alpha) for method in METHODS], range(seeds))
    runs = {method: records for (method, _), records in found.items()}
    common = [max(map(lowest, of_seed)) for of_seed in zip(*runs.values(), strict=True)]
    values = pd.concat(
        {
            method: pd.DataFrame([measured(run, loss) for run, loss in zip(of_seeds, common, strict=True)])
            for method, of_seeds in runs.items()
        }
    )
    of_methods = values.groupby(level=0, sort=False)
    table = pd.DataFrame({"ours": of_methods.mean(skipna=False).stack(), "±": of_methods.std().stack()})
    table = table.rename_axis(["method", "quantity"]).reset_index()
    is_rate = table.quantity == RATE
    floor = pd.DataFrame(map(least_seconds, runs[SYNC], common)).mean(skipna=False)
    floors = pd.DataFrame({"method": least.FLOOR, "quantity": floor.index, "ours": floor.to_numpy()})
    table = pd.concat([table, floors], ignore_index=True)
    table = table.assign(paper=table.method.map(PAPER_RATES).where(is_rate)).assign(**{"±": table["±"].mask(is_rate)})
    notes = [
        "± is the standard deviation over seeds; seconds are virtual, to the first passage of the smoothed loss "
        "(sgdlab.runs.crossing).",
        "The paper's rates are of updates of 10,112 examples, and of 64 for wild.",
        f"The lowest loss that all methods come to, smoothed, is {interval(common)} over the seeds.",
        f"alpha is {alpha:g}. Final validation loss of full synchrony, nan if a run diverged: "
        + ", ".join(f"{loss:.4f} with {rate:g}" for rate, loss in losses.items())
        + ".",
        least.note(least.SYNCHRONOUS, "the mean of each worker's run-times, which differ little between workers"),
    ]
    return Output(table, draw(runs, TICKS.get(size), DATA.get(size, "MNIST")), claims(values, small=small), notes)


def series(records: Records, across: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the evaluations of a run: values of `across`, and validation losses, NaN if the run diverged."""
    evaluations = [record for record in records if record["kind"] == "evaluation"]
    return np.array([record[across] for record in evaluations]), np.array(
        [record["test_loss"] for record in evaluations], float
    )


def final_loss(records: Records) -> float:
    """Return the mean validation loss of a run's last evaluations; NaN if the run diverged."""
    _, losses = series(records, "seconds")
    return math.nan if records[-1]["diverged"] else losses[-max(1, round(LAST * losses.size)) :].mean()


def lowest(records: Records) -> float:
    """Return the lowest smoothed validation loss of a run; infinite if it diverged."""
    gradients, losses = series(records, "gradients")
    return float(crossing.smoothed(gradients, losses).min()) if np.isfinite(losses).all() else math.inf


def seconds_to(records: Records, loss: float) -> float:
    """Return seconds until the smoothed validation loss is first as low, interpolated; NaN if it never is.

    Example:
      >>> points = [{"seconds": 2.0 * n, "gradients": n, "test_loss": loss} for n, loss in ((0, 2.0), (2, 1.0))]
      >>> run = [{"kind": "evaluation", **point} for point in points]
      >>> seconds_to(run, 1.5), seconds_to(run, 0.5)
      (2.0, nan)
    """
    (seconds, losses), (gradients, _) = series(records, "seconds"), series(records, "gradients")
    place = crossing.first(gradients, losses, loss, higher_is_better=False)
    return math.nan if place is None else float(np.interp(place, np.arange(seconds.size), seconds))


def least_seconds(records: Records, common: float) -> dict[str, float]:
    """Return seconds in which workers who never wait compute what a run needs to losses; NaN if it never does."""
    pace = records[-1]["capacity"]
    shared = [
        record | {"seconds": record["gradients"] / pace} if record["kind"] == "evaluation" else record
        for record in records
    ]
    return {f"{TO}{factor:g}": seconds_to(shared, factor * common) for factor in TARGETS}


def measured(records: Records, common: float) -> dict[str, float]:
    """Return the quantities of the table for one run, of a seed with which all methods come to a common loss."""
    end = records[-1]
    return {
        **{f"{TO}{factor:g}": seconds_to(records, factor * common) for factor in TARGETS},
        LOSS: final_loss(records),
        "test accuracy, %": 100 * end["test_accuracy"],
        END: end["seconds"],
        "gradients per second": end["gradients"] / end["seconds"],
        "updates": end["updates"],
        "gradients per update": end["gradients"] / end["updates"],
        RATE: records[0]["config"]["optimizer"]["learning_rate"],
    }


def claims(values: pd.DataFrame, *, small: bool) -> list[Claim]:
    """Return the paper's sentences on the figure, with verdicts from differences to cutoff that are paired by seed."""
    names = [name for name in values if name.startswith(TO)]
    behind = {
        method: {name: interval(values.loc[method][name] - values.loc[CUTOFF][name]) for name in (*names, END)}
        | {LOSS: interval(100 * np.log(values.loc[method][LOSS] / values.loc[CUTOFF][LOSS]))}
        for method in (SYNC, ORDER, WILD)
    }
    later = {method: [found[name] for name in names] for method, found in behind.items()}
    words = {method: ", ".join(map(str, found)) for method, found in later.items()}
    targets = f"to {', '.join(name.removeprefix(TO) for name in names)} times the lowest loss of all"
    found = [
        (
            "cutoff achieves the fastest convergence among methods performing synchronous SGD",
            "section 4.3",
            f"{targets}: sync {words[SYNC]} s later, order {words[ORDER]} s",
            all_of(map(above, later[SYNC] + later[ORDER])),
        ),
        (
            "cutoff converges to the lowest loss among methods performing synchronous SGD",
            "section 4.3",
            f"final loss of sync {behind[SYNC][LOSS]} % higher (in the logarithm), of order {behind[ORDER][LOSS]} %",
            all_of(above(behind[method][LOSS]) for method in (SYNC, ORDER)),
        ),
        (
            "cutoff finishes faster than all other synchronous-family methods",
            "Figure 4",
            f"sync {behind[SYNC][END]} s later, order {behind[ORDER][END]} s",
            all_of(above(behind[method][END]) for method in (SYNC, ORDER)),
        ),
        (
            "cutoff achieves lower loss faster than all other methods",
            "Figure 4",
            f"{targets}: sync {words[SYNC]} s later, order {words[ORDER]} s, wild {words[WILD]} s",
            all_of(above(lead) for leads in later.values() for lead in leads),
            "What fails is all: section 4.3 itself says that Hogwild outperforms cutoff in wall-clock time.",
        ),
        (
            "Hogwild outperforms cutoff in wall-clock time",
            "section 4.3",
            f"{targets}: {words[WILD]} s after cutoff",
            all_of(map(below, later[WILD])),
        ),
        (
            "Hogwild converges to a higher validation loss than cutoff",
            "section 4.3",
            f"final loss {behind[WILD][LOSS]} % higher (in the logarithm)",
            above(behind[WILD][LOSS]),
        ),
    ]
    return [
        Claim(
            says,
            where,
            ours=ours,
            holds=None if small else holds,
            on_paper=False if because else None,
            because="".join(because),
        )
        for says, where, ours, holds, *because in found
    ]


def draw(runs: Mapping[str, Sequence[Records]], ticks: Sequence[float] | None, data: str) -> Figure:
    """Draws the validation loss against virtual time, and against gradients: medians, and bands between quartiles."""
    drawn, panels = canvas(1, 2, width=11.5, height=5.6, sharey=True)
    for axes, (across, words) in zip(panels[0], (("seconds", "virtual time, s"), ("gradients",) * 2), strict=True):
        for method, of_seeds in runs.items():
            (name, dashes), grid = STYLES[method], np.linspace(0, min(run[-1][across] for run in of_seeds), 200)
            curves = [np.interp(grid, *series(records, across)) for records in of_seeds]
            drawn_line = quartiles(axes, grid, curves, color=colour(name), linestyle=dashes, label=MEANS[method])
            axes.plot(grid[-1:], drawn_line.get_ydata()[-1:], color=colour(name), marker="o")
            if method == SYNC and across == "seconds":
                every = np.linspace(0, min(run[-1]["gradients"] for run in of_seeds), 200)
                losses = np.median([np.interp(every, *series(records, "gradients")) for records in of_seeds], axis=0)
                pace = np.mean([run[-1]["capacity"] for run in of_seeds])
                least.line(axes, least.seconds(every, pace), losses)
        axes.set(xlabel=words, xlim=(0, None), yscale="log")
    if ticks:
        panels[0, 0].set_yticks(ticks, [f"{tick:g}" for tick in ticks])
        panels[0, 0].minorticks_off()
    panels[0, 0].set_ylabel("validation loss")
    drawn.legend(*panels[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    drawn.suptitle(f"{data}: median of {len(runs[SYNC])} runs, bands between quartiles")
    return drawn
