"""Ringleader ASGD and others where every client has labels of its own (Maranjyan and Richtarik 2025, toy experiment).

100 clients have equal shares of the training examples, with labels drawn from a Dirichlet distribution of 0.1 for each
label (`heterogeneity.alpha` = 0.1 times the number of labels, which is of all labels together). Client i takes pi(i)
seconds for a gradient, a permutation of 1 to 100, and the absolute value of a normal number of standard deviation
sqrt(i) on top. A gradient is of 4 examples, the network a perceptron with 128 hidden units, without momentum, decay or
warm-up. These settings are those of the authors' code (vectozavr/ringmaster-lmo, `run_experiments.py` and
`tune_and_plot_single_seed.py`); the paper's text was not at hand.

The rate of each method is the one of the authors' grid with which one seed's training loss is lowest in the end; all
others are run with it. The authors' code chooses by the squared norm of the whole gradient in the end (and calls it the
loss). That prefers lost runs: a network whose units have died has a tiny gradient and the loss of a guess. The rates
that it would choose are in the notes, with the loss that they have. The authors' own table shows the same: the squared
norm of the run that it chooses for Ringleader ASGD is 412 on average over time, and 0.4 to 4 at its lower rates.

Their repository has two such tables, of one seed each, with the squared norm in the end and its integral over time,
which the code offers as another criterion. In both, by both, Ringleader ASGD is last: the order of the paper's curves
is not that of the tables that are stored with its code (`THEIRS`), which are not the paper's numbers.

The authors' data are Fashion-MNIST for 300,000 s. At the size laptop they are UCI digits, 14 or 15 examples a client;
at gpu and paper, MNIST. Asynchronous SGD, which ignores whose gradient it is, is added, and Ringleader ASGD is run
both as in the paper, where a worker goes on with its own version, and as in the authors' code, with the newest. The
squared norm is that of the gradient of the mean loss of all training examples. A run is a hundredth of the authors' at
the size laptop, and one network can fit all clients: `beyond.disagreeing` has clients that disagree, and long runs.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from configs import digits
from experiments.beyond import by_time
from experiments.beyond.sources import RINGLEADER
from experiments.harness import (
    Claim,
    Count,
    Output,
    Positive,
    Premise,
    Scale,
    Sweep,
    above,
    canvas,
    colour,
    enough,
    figure,
    goes_by,
    interval,
    quartiles,
)
from experiments.thresholds import RINGLEADER_AGREE
from sgdlab import cluster, data, policies, rules

TITLES = {
    "ringleader": "Ringleader ASGD",
    "newest": "Ringleader ASGD, newest",
    "ace": "IA²SGD",
    "malenia": "Malenia SGD",
    "asgd": "ASGD",
}
GRIDS = {
    "ringleader": (0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2),
    "newest": (0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2),
    "ace": (0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2),
    "malenia": (0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 1.5, 2.0),
    "asgd": (0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2),
}
"""The authors' grids; that of asynchronous SGD, which they do not run, is that of IA²SGD."""
THEIRS = (
    {"ringleader": 0.0015473, "ace": 0.00080249, "malenia": 0.0014145},
    {"ringleader": 0.42124, "ace": 0.21872, "malenia": 0.10531},
    {"ringleader": 0.031982, "ace": 0.016946, "malenia": 0.019137},
    {"ringleader": 0.10882, "ace": 0.065469, "malenia": 0.082777},
)
"""Squared norms at the best rate of each criterion: in the end, and on average over time, in the authors'
`results_fashion/tuning_table_single_seed.csv` (300,000 s), then in their `tune_single` (200,000 s); one seed each."""
HORIZON = 300_000.0
"""Seconds of the authors' runs."""
CURVE = 60
"""Points in time at which seeds are averaged."""
NAMES = {"loss": "training loss", "squared_norm": "squared norm of the whole gradient"}
MEAN = "mean_norm"
"""The squared norm on average over time, which theorems bound (over updates)."""


@figure(
    RINGLEADER,
    "Toy",
    scales={
        "smoke": Scale("20 s", num_workers=6, seconds=100.0, hidden=8, seeds=1, rates=1),
        "laptop": Scale("5 min"),
        "gpu": Scale("2 h on one GPU, estimated", images="mnist", seconds=30_000.0, seeds=10),
        "paper": Scale("2 days on one GPU, estimated", images="mnist", seconds=300_000.0, seeds=30),
    },
    differs=(
        "The authors' data are Fashion-MNIST: numbers cannot be compared, only their order. Theirs are of one seed, "
        "and from their repository; the paper's text was not at hand."
    ),
    stand_in="digits (8 x 8) in place of Fashion-MNIST",
)
def ringleader(
    *,
    images: str = "digits",
    num_workers: Count = 100,
    seconds: Positive = 3000.0,
    hidden: Count = 128,
    alpha: Positive = 0.1,
    seeds: Count = 5,
    rates: Count = 8,
) -> Output:
    """Tunes each method with one seed, and runs it with others.

    Args:
      images: the data set, such as digits or mnist.
      num_workers: number of clients.
      seconds: virtual time of a run.
      hidden: hidden units.
      alpha: concentration of each label.
      seeds: number of seeds besides the one that rates are tuned with.
      rates: most rates of the grids that are tried, the largest first.
    """
    base = {"images": images, "num_workers": num_workers, "seconds": seconds, "hidden": hidden, "alpha": alpha}
    grids = {method: sorted(grid)[-rates:] for method, grid in GRIDS.items()}
    points = [{"method": m, "rate": rate, "seed": 0} for m, grid in grids.items() for rate in grid]
    tuned = Sweep(base, points, work=trained, together=("method",)).table()
    tuned[MEAN] = [_mean_norm(run, seconds) for _, run in tuned.iterrows()]
    tuned = tuned.assign(**{name: tuned[name].map(lambda values: values[-1]) for name in NAMES})
    chosen = {name: {m: tuned.loc[tuned[tuned.method == m][name].idxmin()] for m in TITLES} for name in (*NAMES, MEAN)}
    best = {method: float(run.rate) for method, run in chosen["loss"].items()}
    points = [{"method": m, "rate": best[m], "seed": seed} for m in TITLES for seed in range(1, seeds + 1)]
    runs = Sweep(base, points, work=trained, together=("method",)).table()
    runs[MEAN] = [_mean_norm(run, seconds) for _, run in runs.iterrows()]
    ends = {name: {m: _ends(runs, m, name) for m in TITLES} for name in NAMES}
    ends[MEAN] = {m: runs[runs.method == m].sort_values("seed")[MEAN].to_numpy() for m in TITLES}
    words = {name: f"{title}, end" for name, title in NAMES.items()}
    words[MEAN] = f"{NAMES['squared_norm']}, mean over time"
    rows = [
        {
            "method": TITLES[method],
            "rate": best[method],
            "quantity": words[name],
            "ours": float(np.median(values)),
            "± (half of the middle 50 %)": float(np.subtract(*np.quantile(values, [0.75, 0.25])) / 2),
            "updates": float(runs[runs.method == method].updates.mean()),
            "paper": None,  # of other data
        }
        for name, found in ends.items()
        for method, values in found.items()
    ]
    steps = {m: float(runs[runs.method == m].updates.mean()) for m in TITLES}
    early = float(np.median(_after(runs, "ace", steps["ringleader"])))
    by_norm = (f"{TITLES[m]} {run.rate:g} (loss {run.loss:.3g})" for m, run in chosen["squared_norm"].items())
    by_mean = (f"{TITLES[m]} {run.rate:g} ({run[MEAN]:.3g})" for m, run in chosen[MEAN].items())
    notes = [
        "Medians over seeds. The rate is that of the authors' grid with the lowest training loss of seed 0 in the end: "
        f"{', '.join(f'{TITLES[m]} {rate:g}' for m, rate in best.items())}. Claims rest on 95 % intervals of "
        "differences of the losses' logarithms in the end, paired by seed.",
        f"By the squared norm in the end, as in the authors' code, the choice would be {', '.join(by_norm)}. A guess "
        f"has the loss {np.log(_labels(images)):.3g}.",
        "By the squared norm on average over time, the other criterion of the authors' code, the choice and that norm "
        f"would be {', '.join(by_mean)}: with seed 0 the lowest is that of "
        f"{TITLES[min(chosen[MEAN], key=lambda m: chosen[MEAN][m][MEAN])]}. The two tables that are stored with that "
        "code have the same quantities, of one seed each: there too Ringleader ASGD is behind both others.",
        f"In the same time Ringleader ASGD makes {steps['ringleader']:.0f} updates and IA²SGD {steps['ace']:.0f}; "
        f"after {steps['ringleader']:.0f}, IA²SGD has a loss of {early:.3g}.",
    ]
    theirs = "; ".join(", ".join(f"{TITLES[m]} {norm:.3g}" for m, norm in found.items()) for found in THEIRS)
    notes.append(
        f"Their repository: squared norms at the best rate, in the end and on average over time, twice: {theirs}."
    )
    norms = {m: np.log(values) for m, values in ends[MEAN].items()}
    notes.append(
        "At the rates with the lowest loss in the end, the logarithm of the squared norm on average over time is, less "
        "that of Ringleader ASGD, "
        + ", ".join(f"{interval(norms[m] - norms['ringleader'])} ({TITLES[m]})" for m in ("malenia", "ace"))
        + "; the order turns with the criterion, one of several that were looked at."
    )
    notes.append(
        "No least time is drawn: where every client has its own data it is tau_N L Delta / epsilon + (mean tau) "
        "sigma^2 L Delta / (N epsilon^2), whose two parts these runs do not tell apart; none has exact gradients."
    )
    at_an_edge = [TITLES[m] for m, rate in best.items() if len(grids[m]) > 1 and rate in (grids[m][0], grids[m][-1])]
    if at_an_edge:
        notes.append(f"The best rate is at an edge of its grid for {', '.join(at_an_edge)}: others may be better.")
    return Output(
        pd.DataFrame(rows), _drawn(runs, seconds, images), claims(ends, _ends(runs, "asgd", "accuracy"), seconds), notes
    )


@goes_by(
    digits.get_config, by_time.measured, data.label_shares, cluster.Ladder, rules.ringleader, rules.malenia, rules.ace,
    policies.ringleader, policies.malenia, rules.asgd,
)  # fmt: skip
def trained(
    *,
    images: str,
    num_workers: int,
    seconds: float,
    hidden: int,
    alpha: float,
    method: str,
    rate: float,
    seed: int,
) -> dict[str, Any]:
    """Trains one run for a given virtual time.

    Who has which examples is the same for all seeds.
    """
    config = digits.get_config()
    config.data.kind, config.seed = images, seed
    config.method = "ringleader" if method == "newest" else method
    if config.method == "ringleader":
        config.protocol.ringleader.points = "newest" if method == "newest" else "own"
    config.cluster.kind, config.cluster.num_workers = "ladder", num_workers
    config.network.kind, config.network.mlp.widths = "mlp", (hidden,)
    config.batch_size, config.evaluations, config.average_decay, config.mode = 4, CURVE, None, "event"
    config.heterogeneity.alpha, config.heterogeneity.seed = alpha * _labels(images), 0
    config.optimizer.learning_rate, config.optimizer.weight_decay = rate, 0.0
    config.optimizer.momentum, config.optimizer.nesterov = 0.0, False
    config.rate.of, config.rate.warmup_epochs, config.rate.decay = "update", 0.0, "constant"
    return by_time.measured(by_time.until(config, seconds))


def _labels(images: str) -> int:
    return 100 if images == "cifar100" else 10


def _mean_norm(run: pd.Series, seconds: float) -> float:
    """Return the squared norm of a run on average over time."""
    return float(by_time.at_times(run, "squared_norm", np.linspace(0, seconds, 10 * CURVE + 1)).mean())


def _ends(runs: pd.DataFrame, method: str, name: str) -> np.ndarray:
    return np.array([values[-1] for values in runs[runs.method == method].sort_values("seed")[name]])


def _after(runs: pd.DataFrame, method: str, updates: float) -> np.ndarray:
    """Training losses of a method after a number of updates, by seed, as if they came at equal distances."""
    of = runs[runs.method == method].sort_values("seed")
    share = min(updates / of.updates.mean(), 1.0)
    return np.array([by_time.at_times(run, "loss", share * np.array(run.seconds[-1:]))[0] for _, run in of.iterrows()])


def claims(ends: Mapping[str, Mapping[str, Sequence[float]]], fitted: Sequence[float], seconds: float) -> list[Claim]:
    """Return what the paper says of the order of the curves, and what its premise implies for asynchronous SGD.

    Args:
      ends: quantity -> method -> its value at the end of each run.
      fitted: share of all training examples that asynchronous SGD gives their labels, in each run.
      seconds: of a run.
    """
    logs = {method: np.log(values) for method, values in ends["loss"].items()}
    share = 100 * float(np.median(fitted))
    long = enough("virtual seconds", seconds, HORIZON)
    disagree = Premise(
        "clients that disagree, so that no network is best for all",
        f"asynchronous SGD gives {share:.3g} % of all examples their labels",
        met=share < 100 * RINGLEADER_AGREE,
        thresholds=(RINGLEADER_AGREE,),
    )
    found = []
    for other, says, where, premises in (
        (
            "malenia",
            "Ringleader ASGD is faster than Malenia SGD: in the same time, a lower loss",
            "experiments",
            [long],
        ),
        ("ace", "Ringleader ASGD is faster than IA²SGD: in the same time, a lower loss", "experiments", [long]),
        (
            "asgd",
            "where data differ, asynchronous SGD stays away from a stationary point, and Ringleader ASGD does not",
            "section 1",
            [long, disagree],
        ),
    ):
        ahead = logs[other] - logs["ringleader"]
        found.append(
            Claim(
                says,
                f"{where} (as understood from the abstract and the authors' code)",
                ours=", ".join(
                    f"{np.median(ends['loss'][m]):.3g} ({TITLES[m]}; squared norm "
                    f"{np.median(ends['squared_norm'][m]):.3g})"
                    for m in ("ringleader", "newest", other)
                )
                + f"; logarithm of the ratio of the losses {interval(ahead)}",
                holds=above(ahead),
                premises=premises,
                because="beyond.disagreeing has longer runs, in rounds of all workers, of clients that disagree.",
                cause="runs of a hundredth of the authors' length",
            )
        )
    return found


def _drawn(runs: pd.DataFrame, seconds: float, images: str) -> Figure:
    drawn, panels = canvas(1, 2, width=11, height=4.6, sharex=True)
    times = np.linspace(0, seconds, CURVE)
    for panel, (name, title) in zip(panels[0], NAMES.items(), strict=True):
        for method, label in TITLES.items():
            shade, dashes = (colour("ringleader"), "--") if method == "newest" else (colour(method), "-")
            of_method = [by_time.at_times(run, name, times) for _, run in runs[runs.method == method].iterrows()]
            quartiles(panel, times, of_method, linestyle=dashes, color=shade, label=label)
        panel.set(yscale="log", xlabel="virtual time, s", ylabel=title)
    drawn.legend(*panels[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=len(TITLES))
    drawn.suptitle(f"{images} (in place of Fashion-MNIST): medians over seeds, bands between quartiles")
    return drawn
