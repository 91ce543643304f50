"""Heavy tails: trials with a time limit against methods that wait for what was begun (Maranjyan et al. 2025, UAI).

Of a worker's gradients, a share takes a time from a Pareto distribution, whose mean is infinite where its index is at
most 1; the others take about a second. MindFlayer SGD gives each worker two trials for an update, and throws away those
that take longer than 1.5 s: as in the authors' code, limits are given, and all of the body is below. It is run a second
time with limits that are learned: while they are, a trial may take four times the median of those that have come, of
its worker or of all workers. Rennala SGD collects as many fresh gradients as there are workers from whoever sends them,
asynchronous SGD applies each as it comes, and full synchrony waits for all. The rate of each method is the one of a
grid with which one seed's training loss is lowest in the end, of each tail by itself. All train for the same virtual
time.

The abstract is what was at hand of the paper: its laws and functions are not these.
"""

import math
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from configs import digits
from experiments.beyond import by_time
from experiments.beyond.sources import MINDFLAYER
from experiments.harness import (
    PALETTE,
    Claim,
    Count,
    Output,
    Positive,
    Scale,
    Share,
    Sweep,
    above,
    below,
    canvas,
    colour,
    figure,
    goes_by,
    interval,
    quartiles,
)
from experiments.thresholds import MINDFLAYER_ALIKE
from sgdlab import cluster, policies, protocols, rules

TITLES = {
    "mindflayer": "MindFlayer SGD",
    "learned": "MindFlayer SGD, limits learned",
    "rennala": "Rennala SGD",
    "asgd": "ASGD",
    "synchronous": "full synchrony",
}
GRID = (2.0, 1.0, 0.5, 0.2, 0.1, 0.05, 0.02)
IMAGES = {"digits": "digits (in place of the paper's functions)"}
CURVE = 60
TRIALS, LIMIT = 2, 1.5
"""MindFlayer SGD's, of every worker: trials for an update, and seconds of a trial."""


@figure(
    MINDFLAYER,
    "Heavy tails",
    scales={
        "smoke": Scale("20 s", num_workers=3, seconds=40.0, indices=[0.5], hidden=8, seeds=1, rates=1),
        "laptop": Scale("5 min"),
        "decide": Scale("10 min", seeds=30),
        "gpu": Scale("1 h on one GPU, estimated", images="mnist", seconds=2000.0),
        "paper": Scale("1 day on one GPU, estimated", images="mnist", seconds=20_000.0, num_workers=64),
    },
    differs="The paper's own laws and functions were not at hand; here digits are classified, with Pareto tails.",
    stand_in="digits (8 x 8) in place of the paper's functions",
)
def mindflayer(
    *,
    images: str = "digits",
    num_workers: Count = 16,
    seconds: Positive = 200.0,
    indices: list[Positive] = (0.5, 1.5, 6.0),
    tail_share: Share = 0.2,
    hidden: Count = 32,
    target: Positive = 0.3,
    seeds: Count = 5,
    rates: Count = 7,
) -> Output:
    """Tunes each method with one seed, and runs it with others.

    Args:
      images: the data set.
      num_workers: number of workers.
      seconds: virtual time of a run.
      indices: indices of the tail; the mean compute time is infinite where it is at most 1.
      tail_share: share of gradients in the tail.
      hidden: hidden units.
      target: training loss whose time is measured.
      seeds: number of seeds besides the one that rates are tuned with.
      rates: most rates of the grid that are tried, the largest first.
    """
    base = {
        "images": images, "num_workers": num_workers, "seconds": seconds, "tail_share": tail_share, "hidden": hidden,
    }  # fmt: skip
    cases = [(index, method) for index in sorted(indices) for method in TITLES]
    grid = GRID[:rates]
    points = [{"index": i, "method": m, "rate": rate, "seed": 0} for i, m in cases for rate in grid]
    tuned = ended(Sweep(base, points, work=trained, together=("method",)).table(), seconds)
    best = {case: float(found.set_index("rate").end.idxmin()) for case, found in tuned.groupby(["index", "method"])}
    points = [
        {"index": i, "method": m, "rate": best[i, m], "seed": seed} for i, m in cases for seed in range(1, seeds + 1)
    ]
    runs = ended(Sweep(base, points, work=trained, together=("method",)).table(), seconds)
    runs = runs.assign(reached=[by_time.first_time(run, "loss", target) for _, run in runs.iterrows()])
    first = runs[runs.method == "learned"].groupby("index").seconds.agg(lambda of: np.median([each[1] for each in of]))
    rows = [
        {
            "tail's index": index,
            "method": TITLES[method],
            "rate": best[index, method],
            "quantity": title,
            "ours": float(found[name].median()) if math.isfinite(found[name].median()) else None,
            "used gradients": float(found.gradients.mean()),
        }
        for name, title in (("end", "training loss, end"), ("reached", f"seconds to a training loss of {target:g}"))
        for (index, method), found in runs.groupby(["index", "method"], sort=False)
    ]
    table = pd.DataFrame(rows).assign(paper=None)
    notes = [
        "Medians over seeds; empty where most seeds do not reach the target. Losses are those of the last evaluation "
        f"by {seconds:g} s: where no update comes by then, those of the initial parameters.",
        "With learned limits, the first evaluation with an update is at "
        f"{', '.join(f'{value:.3g} s (index {index:g})' for index, value in first.items())}.",
    ]
    notes.append(
        "No least time is drawn: where the mean run-time is infinite, the time of a gradient is no number, and trials "
        "that are thrown away are earlier than any mean; the least time of fixed run-times does not bound them."
    )
    edges = sorted({TITLES[m] for (_, m), rate in best.items() if len(grid) > 1 and rate in (grid[0], grid[-1])})
    if edges:
        notes.append(f"The best rate is at an edge of the grid for {', '.join(edges)}: others may be better.")
    return Output(table, _drawn(runs, seconds, images), claims(runs), notes)


def ended(runs: pd.DataFrame, seconds: float) -> pd.DataFrame:
    """Return the runs with their loss in the end.

    Args:
      runs: a row for each run, as `trained` returns it.
      seconds: when the end is; every run has at least one update, which may come later.
    """
    ends = [float(by_time.at_times(run, "loss", np.array([seconds]))[0]) for _, run in runs.iterrows()]
    return runs.assign(end=ends)


@goes_by(
    digits.get_config, by_time.measured, cluster.LongTailed, policies.mindflayer, rules.expected_count,
    protocols.rennala, protocols.synchronous, rules.asgd,
)  # fmt: skip
def trained(
    *,
    images: str,
    num_workers: int,
    seconds: float,
    tail_share: float,
    hidden: int,
    index: float,
    method: str,
    rate: float,
    seed: int,
) -> dict[str, Any]:
    """Trains one run for a given virtual time.

    It makes one update at least, however late.

    Returns:
      What `by_time.measured` returns, without norms.
    """
    config = digits.get_config()
    config.data.kind, config.seed = images, seed
    config.protocol.kind = {"asgd": "asynchronous", "learned": "mindflayer"}.get(method, method)
    config.rule.kind = "expected_count" if config.protocol.kind == "mindflayer" else "asgd"
    config.cluster.kind, config.cluster.num_workers, law = "long_tailed", num_workers, config.cluster.long_tailed
    law.median, law.spread, law.tail_share, law.tail_start, law.tail_index = 1.0, 0.1, tail_share, 2.0, index
    config.network.kind, config.network.mlp.widths = "mlp", (hidden,)
    own = config.protocol.mindflayer
    own.trials, own.seconds = (TRIALS,) * num_workers, None if method == "learned" else (LIMIT,) * num_workers
    config.protocol.rennala.gradients_per_update = num_workers
    config.batch_size, config.evaluations, config.average_decay, config.mode = 8, CURVE, None, "event"
    config.optimizer.learning_rate, config.optimizer.weight_decay = rate, 0.0
    config.optimizer.momentum, config.optimizer.nesterov = 0.0, False
    config.rate.of, config.rate.warmup_epochs, config.rate.decay = "update", 0.0, "constant"
    return by_time.measured(by_time.until(config, seconds), norms=False)


def claims(runs: pd.DataFrame) -> list[Claim]:
    """Return what the abstract says of heavy tails."""
    indices, found = sorted(set(runs["index"])), []
    logs = {
        (index, method): np.log(of.sort_values("seed").end.to_numpy(float))
        for (index, method), of in runs.groupby(["index", "method"])
    }
    heavy, light = indices[0], indices[-1]
    for other in ("rennala", "asgd", "synchronous"):
        ahead = logs[heavy, other] - logs[heavy, "mindflayer"]
        found.append(
            Claim(
                f"with heavy tails MindFlayer SGD is better than {TITLES[other]}: as much time, a lower loss",
                "abstract: it consistently outperforms existing baselines, particularly with heavy tails",
                ours=", ".join(f"{np.exp(np.median(logs[heavy, m])):.3g} ({TITLES[m]})" for m in ("mindflayer", other))
                + f", index {heavy:g}",
                holds=above(ahead),
            )
        )
        if len(indices) > 1:
            found.append(
                Claim(
                    f"the heavier the tail, the further it is ahead of {TITLES[other]}",
                    "abstract",
                    ours=f"logarithm of the ratio of the losses {interval(ahead)} with index {heavy:g}, "
                    f"{interval(logs[light, other] - logs[light, 'mindflayer'])} with {light:g}",
                    holds=above(ahead - (logs[light, other] - logs[light, "mindflayer"])),
                )
            )
    alike = interval(logs[heavy, "learned"] - logs[heavy, "mindflayer"])
    found.append(
        Claim(
            f"limits that are learned do as well as given ones (a loss that is at most {100 * MINDFLAYER_ALIKE:g} % "
            "higher)",
            "not of the paper, whose limits are given",
            ours=", ".join(f"{np.exp(np.median(logs[heavy, m])):.3g} ({TITLES[m]})" for m in ("mindflayer", "learned"))
            + f", index {heavy:g}",
            holds=below(alike, MINDFLAYER_ALIKE.rewritten(math.log1p(MINDFLAYER_ALIKE))),
        )
    )
    return found


def _drawn(runs: pd.DataFrame, seconds: float, images: str) -> Figure:
    indices = sorted(set(runs["index"]))
    drawn, panels = canvas(1, len(indices), width=max(4.6 * len(indices), 11.0), height=5.2, sharey=True)
    times = np.linspace(0, seconds, CURVE)
    for panel, index in zip(panels[0], indices, strict=True):
        for method, title in TITLES.items():
            shade = PALETTE[2] if method == "learned" else colour(method)
            of_method = runs[(runs.method == method) & (runs["index"] == index)]
            losses = [by_time.at_times(run, "loss", times) for _, run in of_method.iterrows()]
            # Learned limits end near the given ones: dashes on top of their line.
            style, order = ("--", 3) if method == "learned" else ("-", 2)
            quartiles(panel, times, losses, linestyle=style, color=shade, label=title, zorder=order)
        mean = "infinite mean" if index <= 1 else "finite mean"
        panel.set(
            yscale="log", title=f"index of the tail {index:g} ({mean})", xlabel="virtual time, s", xlim=(0, seconds)
        )
    panels[0, 0].set_ylabel("training loss")
    drawn.legend(*panels[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=len(TITLES))
    drawn.suptitle(f"{IMAGES.get(images, images)}: medians over seeds, bands between quartiles")
    return drawn
