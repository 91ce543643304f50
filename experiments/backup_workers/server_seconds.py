"""Seconds of an epoch where the server works for each update, with 53, 106 and 212 machines (Figure 8e).

An asynchronous epoch has N + b updates, a synchronous one a single update, of the first N gradients. If the server
works s seconds for each update, N + b workers whose gradients take W seconds are at most min((N + b) / (W + s), 1 / s)
updates a second: an asynchronous epoch is no shorter than (N + b) s, however fast the workers are. The paper prints
neither s nor the number of its parameter servers; so s is swept, and the region is said in which the signs of its
Figure 8 appear: synchronous training later with 53 machines, earlier with 106 and 212. Nothing is trained.
"""

import functools
import itertools

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from experiments import papers
from experiments.backup_workers.figure8 import SHARE
from experiments.harness import (
    PALETTE,
    Count,
    NotNegative,
    Output,
    Scale,
    Sweep,
    band,
    canvas,
    figure,
    goes_by,
    interval,
)
from experiments.thresholds import EPOCH_COMPARABLE
from sgdlab import cluster, protocols, transports

SYNC, ASYNC = "synchronous", "asynchronous"


@figure(
    papers.CHEN,
    "Server",
    scales={
        "smoke": Scale("2 s", machines=[5, 20], milliseconds=[0.0, 100.0], epochs=8, seeds=2),
        "laptop": Scale("30 s"),
    },
    differs="The paper's seconds are those of Inception on GPUs with a number of parameter servers that it does not "
    "print; the cluster is a model of its machines, with one server that works for each update.",
    full_size=True,
)
def server_seconds(
    *,
    machines: list[Count] = (53, 106, 212),
    milliseconds: list[NotNegative] = (0.0, 5.0, 10.0, 12.0, 15.0, 18.0, 20.0, 25.0, 33.0),
    epochs: Count = 60,
    seeds: Count = 5,
) -> Output:
    """Simulate epochs.

    Args:
      machines: numbers of machines, N + b.
      milliseconds: that the server works for each update.
      epochs: of a run; the first half is left out.
      seeds: number of seeds.
    """
    counts, times = sorted(machines), sorted(milliseconds)
    over = {"machines": counts, "milliseconds": times, "method": [SYNC, ASYNC], "seed": range(seeds)}
    runs = Sweep({"epochs": epochs}, over, work=simulated).table()
    of = {key: found.seconds.to_numpy() for key, found in runs.groupby(["machines", "milliseconds", "method"])}
    rows = [
        {
            "machines": n,
            "server, ms": ms,
            "method": method,
            "quantity": "seconds per epoch",
            "ours": values.mean(),
            "paper": None,
        }
        for (n, ms, method), values in of.items()
    ]
    return Output(pd.DataFrame(rows), _drawn(of, counts, times), notes=_notes(of, counts, times))


@goes_by(cluster.LongTailed, protocols.backup_workers, protocols.asynchronous, transports.star)
def simulated(*, machines: int, milliseconds: float, method: str, epochs: int, seed: int) -> dict[str, float]:
    """Return the seconds of an epoch.

    Args:
      machines: N + b.
      milliseconds: of the server, for each update.
      method: synchronous or asynchronous.
      epochs: of the run.
      seed: of the compute times.
    """
    runtimes = cluster.LongTailed(machines).draw(3 * epochs + 20, seed=seed)
    server = transports.ServerCosts(update_ms=milliseconds)
    given = {"transport": transports.star(num_workers=machines, server=server)}
    if method == SYNC:
        backups = round(SHARE * machines)
        make = functools.partial(protocols.backup_workers, backups=backups, num_gradients=epochs * (machines - backups))
        each = 1
    else:
        make, each = functools.partial(protocols.asynchronous, num_gradients=epochs * machines), machines
    applied = make(runtimes, **given).applied[:, 0]
    half = len(applied) // 2
    return {"seconds": float(each * (applied[-1] - applied[half]) / (len(applied) - 1 - half))}


def _notes(of: dict[tuple[int, float, str], np.ndarray], counts: list[int], times: list[float]) -> list[str]:
    """Return from which seconds of the server on synchronous epochs are comparable, or shorter."""
    found = []
    for count, (name, most) in itertools.product(
        counts, {"no longer than asynchronous ones": 1.0, "at most 10 % longer": EPOCH_COMPARABLE}.items()
    ):
        ratios = {ms: interval(of[count, ms, SYNC] / of[count, ms, ASYNC]) for ms in times}
        first = next((ms for ms in times if all(ratios[later].high < most for later in times if later >= ms)), None)
        when = "with none of these" if first is None else f"from {first:g} ms an update on"
        found.append(f"With {count} machines synchronous epochs are {name} {when}.")
    return found


def _drawn(of: dict[tuple[int, float, str], np.ndarray], counts: list[int], times: list[float]) -> Figure:
    drawn, panels = canvas(1, 1, width=6.4, height=4.6)
    panel = panels[0, 0]
    for shade, count in zip(PALETTE, counts, strict=False):
        for method, style in ((SYNC, "-"), (ASYNC, "--")):
            values = [interval(of[count, ms, method]) for ms in times]
            band(panel, times, values, linestyle=style, color=shade, label=f"{method}, {count}")
        panel.plot(times, [count * ms / 1e3 for ms in times], ":", color=shade, linewidth=1)
    highest = max(values.mean() for values in of.values())
    panel.set(
        xlabel="milliseconds that the server works for an update", ylabel="seconds per epoch", ylim=(0, 1.1 * highest)
    )
    panel.legend(fontsize=8, title="dotted: (N + b) s")
    return drawn
