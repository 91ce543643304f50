"""Synchronous training with backup workers against asynchronous training, with 53, 106 and 212 machines (Figure 8).

As in Appendix A.3: RMSProp; the initial rate is r for each asynchronous update and r N for a synchronous one, and falls
by the same factor for the same number of examples; an asynchronous worker clips its gradient by the global norm, and so
sends all layers together; the test precision is that of the parameters' moving average, with the same decay for both.
An epoch is a synchronous update, or N + b asynchronous ones (section 4.2). Of 106 machines 6 are backups (section 4.1),
of 53 and 212 here the same share. All runs use the same number of gradients. A run has converged where it is first
within 0.25 points of its highest precision: the paper does not say how it decides. As this comes early in a run that
ends at a poorer precision, the methods are compared by what they need to a precision that both reach, with each seed:
the lower of the two highest, less 0.25 points. Curves are smoothed, and interpolated between evaluations.

The rate r is that of `training.RATES`, the same for both. The paper does not print the norm to which gradients are
clipped. Here it is 1, of 1, 2, 4 and 8 the one with the highest test precision of 212 asynchronous machines with seed
0; of several (--clip_norm) the best is chosen so. No verdict rests on seed 0.

Time is the virtual time of the paper's cluster (long_tailed). Where only gradients take time, an asynchronous epoch is
as long as a mean gradient, however many machines there are, and what the paper says of seconds is not what is run: the
idle time of its machines tells. So runs are repeated with a server that works some milliseconds for each update, of
which the paper prints nothing: claims on seconds are about these, and hold where they do with each of them. From which
milliseconds on epochs are comparable, `backup_workers.server_seconds` simulates.
"""

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from experiments import harness, papers, premises
from experiments.backup_workers import training
from experiments.backup_workers.training import (
    PRECISION,
    Size,
    at_convergence,
    curves,
    highest,
    late,
    reached,
    times,
)
from experiments.harness import (
    Claim,
    Count,
    Interval,
    NotNegative,
    Output,
    Positive,
    Scale,
    Sweep,
    above,
    all_of,
    bars,
    below,
    canvas,
    interval,
    more_often,
)
from experiments.harness.evidence import Evidence
from experiments.harness.regions import throughout
from experiments.thresholds import CONVERGED_WITHIN, EPOCH_COMPARABLE, MESSAGES_COST, UNSTABLE_BELOW

SYNC, ASYNC, UNCLIPPED = "synchronous", "asynchronous", "asynchronous, not clipped"
KINDS = (SYNC, ASYNC, UNCLIPPED)
SHARE = 6 / 106
"""Backup workers of all machines (section 4.1)."""
BETTER = 0.5
"""Points of precision by which synchronous training is better (section 4.2)."""
EARLIER = {53: -3, 106: 6, 212: 18}
"""Machines -> hours by which synchronous training converges earlier (section 4.2)."""
PRECISE, HOURS, EPOCH = "test precision, %", "hours to converge", "seconds per epoch"
COMMON = {of: f"{of} to the precision of both" for of in ("epochs", "hours")}
QUANTITIES: dict[str, Callable[[pd.DataFrame], float]] = {
    PRECISE: lambda run: 100 * highest(run),
    "epochs to converge": lambda run: at_convergence(run, "epochs"),
    HOURS: lambda run: at_convergence(run, "hours"),
    EPOCH: lambda run: 3600 * run.hours.iloc[-1] / run.epochs.iloc[-1],
    "mean staleness, updates": lambda run: run.staleness.iloc[1:].mean(),
}
"""Entries that are measured of a run."""
EARLY = "Few updates are made while the rate is high, and stale gradients make as much of them as others."
"""Why fewer epochs may not be needed."""


@harness.figure(
    papers.CHEN,
    "Figure 8",
    scales={
        "smoke": Scale("15 s", machines=[5], seeds=2, epochs=0.25, evaluations=6, server_ms=[0.0, 400.0]),
        "laptop": Scale("20 min"),
        "decide": Scale("3 h", seeds=40, clip_norm=[0.25, 0.5, 1.0, 2.0]),
        "gpu": Scale("3 h on one GPU, estimated", size="gpu", seeds=1),
        "paper": Scale("GPU-years, estimated; see --dry_run", size="paper", seeds=1),
    },
    differs=f"Not Inception: at the size laptop {training.DIFFERS['laptop']}, at gpu {training.DIFFERS['gpu']}. The "
    "cluster is a model, and so are the milliseconds of its server.",
    stand_in=training.STAND_IN,
)
def figure8(
    *,
    size: Size = "laptop",
    machines: list[Count] = (53, 106, 212),
    seeds: Count = 3,
    epochs: Positive | None = None,
    evaluations: Count | None = None,
    clip_norm: list[Positive] = (1.0,),
    server_ms: list[NotNegative] = (0.0, 20.0, 33.0),
) -> Output:
    """Trains with both methods.

    Args:
      size: what is trained.
      machines: numbers of machines, N + b.
      seeds: number of seeds: 1, 2, ...
      epochs: length of each run in epochs of the data; by default that of the size.
      evaluations: number of evaluations in a run; by default that of the size.
      clip_norm: global norms to which an asynchronous worker clips its gradient; of several the best with seed 0.
      server_ms: milliseconds that the server works for each update; precision and epochs are those with the first.
    """
    base = training.inception(size, epochs=epochs, evaluations=evaluations)
    largest, norm = max(machines), clip_norm[0]
    if len(clip_norm) > 1:
        tried = curves(Sweep(base, [training.asynchronous(largest, norm) | {"seed": 0} for norm in clip_norm]))
        norm = clip_norm[int(np.argmax([highest(run) for run in tried]))]
    kinds = {(SYNC, count): training.synchronous(count, round(SHARE * count)) for count in machines}
    kinds |= {(ASYNC, count): training.asynchronous(count, norm) for count in machines}
    kinds[UNCLIPPED, largest] = training.asynchronous(largest, None)
    points = [
        (milliseconds, key, settings | _served(milliseconds))
        for milliseconds in server_ms
        for key, settings in kinds.items()
        if key[0] != UNCLIPPED or milliseconds == server_ms[0]
    ]
    over = [settings | {"seed": 1 + seed} for *_, settings in points for seed in range(seeds)]
    found = iter(curves(Sweep(base, over)))
    served: dict[float, dict[tuple[str, int], list[pd.DataFrame]]] = {milliseconds: {} for milliseconds in server_ms}
    for milliseconds, (method, count), _ in points:
        updates = 1 if method == SYNC else count
        of_seeds = [run.assign(epochs=run.updates / updates) for run in itertools.islice(found, seeds)]
        served[milliseconds][method, count] = of_seeds
    output = compared(served, size)
    return dataclasses.replace(output, notes=[*output.notes, f"Gradients are clipped to a norm of {norm:g}."])


def _served(milliseconds: float) -> dict[str, Any]:
    """Return the settings of a server that works so long for each update."""
    return {"transport.kind": "star", "transport.star.server.update_ms": milliseconds} if milliseconds else {}


Runs = Mapping[tuple[str, int], list[pd.DataFrame]]
"""Method and number of machines -> the evaluations of each seed's run."""
Ratios = Mapping[int, Interval]
"""Number of machines -> the logarithm of a ratio."""


def compared(served: Mapping[float, Runs], size: Size = "laptop") -> Output:
    """Return the table, the picture and the claims.

    Args:
      served: milliseconds of the server for an update -> runs; the first also those that are not clipped.
      size: of the runs.
    """
    first, *_ = served
    runs, values = served[first], {milliseconds: _values(runs) for milliseconds, runs in served.items()}
    machines = sorted({count for _, count in runs})
    rows = []
    hours = EARLIER if size == "paper" else {}  # of another network they cannot be compared
    for milliseconds, of_all in values.items():
        for name, of_runs in of_all.items():
            for (method, count), of_seeds in of_runs.items():
                found = interval(of_seeds)
                rows.append((milliseconds, count, method, name, found.mean, found.half, None))
        for count in machines:
            for name, sign, printed in ((PRECISE, 1, BETTER), (HOURS, -1, hours.get(count))):
                found = interval(sign * (of_all[name][SYNC, count] - of_all[name][ASYNC, count]))
                rows.append((milliseconds, count, f"{SYNC} is better by", name, found.mean, found.half, printed))
    columns = ["server, ms", "machines", "method", "quantity", "ours", "±", "paper"]
    table = pd.DataFrame(rows, columns=columns).replace(math.inf, math.nan)

    best, largest = values[first][PRECISE], machines[-1]
    example = 100 / runs[SYNC, largest][0].test_examples.iloc[0]
    better = {count: interval(best[SYNC, count] - best[ASYNC, count], resolution=example) for count in machines}
    ratios = {milliseconds: _ratios(of_all, machines) for milliseconds, of_all in values.items()}
    claims = [*_claims(better, ratios, served), _clipping(best, largest)]
    notes = [
        f"± is a 95 % confidence interval over {len(best[SYNC, largest])} seeds; differences are paired. Precisions "
        "and hours are those of another network than the paper's.",
        "The precision of both is the lower of the two highest of a seed, less 0.25 points.",
    ]
    return Output(table, _picture(served, better, ratios, best, training.DATA[size]), claims, notes)


def _values(runs: Runs) -> dict[str, dict[tuple[str, int], np.ndarray]]:
    """Return quantity -> method and number of machines -> a number for each seed."""
    found = {
        name: {key: np.array([of_run(run) for run in of_seeds]) for key, of_seeds in runs.items()}
        for name, of_run in QUANTITIES.items()
    }
    best, machines = found[PRECISE], sorted({count for _, count in runs})
    level = {count: np.minimum(best[SYNC, count], best[ASYNC, count]) / 100 - CONVERGED_WITHIN for count in machines}
    for of, name in COMMON.items():
        found[name] = {
            (method, count): np.array(
                [reached(run, to, of) for run, to in zip(runs[method, count], level[count], strict=True)]
            )
            for count in machines
            for method in (SYNC, ASYNC)
        }
    return found


def _ratios(values: Mapping[str, Mapping[tuple[str, int], np.ndarray]], machines: list[int]) -> dict[str, Ratios]:
    """Return quantity -> number of machines -> logarithm of synchronous over asynchronous training's."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return {
            name: {m: interval(np.log(values[name][SYNC, m]) - np.log(values[name][ASYNC, m])) for m in machines}
            for name in (*COMMON.values(), EPOCH)
        }


def _claims(
    better: Mapping[int, Interval], ratios: Mapping[float, Mapping[str, Ratios]], served: Mapping[float, Runs]
) -> list[Claim]:
    """Return the claims on both methods.

    Args:
      better: number of machines -> points of precision by which synchronous training is better.
      ratios: milliseconds of the server -> quantity -> number of machines -> logarithm of synchronous over asynchronous
        training's.
      served: milliseconds of the server -> runs.
    """
    first, *_ = served
    idle = {
        milliseconds: np.mean(
            [run.idle.iloc[-1] for (kind, _), found in runs.items() if kind == ASYNC for run in found]
        )
        for milliseconds, runs in served.items()
    }
    costs = premises.messages_cost(float(max(idle.values())))
    free = {"premises": [costs], "cause": "" if costs.met else premises.FREE}
    # Of a server that costs something; without any, of what was run.
    region = [each for each in ratios if idle[each] > MESSAGES_COST] or list(ratios)
    of_sync = itertools.chain(*(found for (method, _), found in served[first].items() if method == SYNC))

    def over(name: str, of: Iterable[float]) -> str:
        words = "; ".join(
            f"{milliseconds:g} ms: " * (len(ratios) > 1)
            + ", ".join(f"{times(each)} with {count}" for count, each in ratios[milliseconds][name].items())
            for milliseconds in of
        )
        return f"{name}, {SYNC} over {ASYNC}: {words}"

    def signs(hours: Ratios) -> Evidence:
        found = {count: below if EARLIER[count] > 0 else above for count in hours if count in EARLIER}
        return all_of(test(hours[count]) for count, test in found.items())

    hours, epochs = COMMON["hours"], ratios[first][COMMON["epochs"]]
    everywhere = lambda test, name: throughout(test(ratios[each][name]) for each in region)
    comparable = EPOCH_COMPARABLE.rewritten(math.log(EPOCH_COMPARABLE))
    precise = all_of(map(above, better.values()))
    printed = ", ".join(f"{found:+g} h at {count}" for count, found in EARLIER.items())
    return [
        Claim(
            f"Synchronous training attains about {BETTER:g} % better test precision for comparable N + b (is better)",
            "section 4.2, Figure 8b",
            ", ".join(f"{each} points with {count}" for count, each in better.items()), precise,
            f"about {BETTER:g} points",
            because="Staleness need not cost precision: of this task it does not." if precise.holds is False else "",
        ),
        Claim(
            "Synchronous training with backup workers converges faster (at every number of machines)",
            "caption of Figure 8", over(hours, region),
            everywhere(lambda of: all_of(map(below, of.values())), hours), printed,
            all(found > 0 for found in EARLIER.values()), **free,
        ),
        Claim(
            "It converges earlier with 106 and 212 machines, and later with 53", "section 4.2, Figure 8d",
            over(hours, region), everywhere(signs, hours), printed, **free,
        ),
        Claim(
            "It needs fewer epochs", "Figure 8c", over(COMMON["epochs"], [first]),
            all_of(map(below, epochs.values())), **late(of_sync, EARLY),
        ),
        Claim(
            f"It has a comparable or better epoch time (at most {100 * (EPOCH_COMPARABLE - 1):.0f} % longer)",
            "Figure 8e", over(EPOCH, region),
            everywhere(lambda of: all_of(below(each, comparable) for each in of.values()), EPOCH), **free,
        ),
    ]  # fmt: skip


def _clipping(best: Mapping[tuple[str, int], np.ndarray], largest: int) -> Claim:
    """Return the claim on the runs that are lost: below half of synchronous training's mean precision."""
    level = UNSTABLE_BELOW * best[SYNC, largest].mean()
    lost = {method: (int((best[method, largest] < level).sum()), best[method, largest].size) for method in KINDS}
    ours = ", ".join(f"{count} of {total} {method}" for method, (count, total) in lost.items())
    oftener = all_of(more_often(lost[UNCLIPPED], lost[method]) for method in (SYNC, ASYNC))
    return Claim(
        "In the asynchronous mode, clipping is needed for stabilization; synchronization is stable without it",
        "Appendix A.3",
        f"lost at {largest} (below half of {SYNC} training's precision): {ours}",
        dataclasses.replace(oftener, thresholds=(UNSTABLE_BELOW,)),
    )


def _picture(
    served: Mapping[float, Runs],
    better: Mapping[int, Interval],
    ratios: Mapping[float, Mapping[str, Ratios]],
    best: Mapping[tuple[str, int], np.ndarray],
    data: str,
) -> Figure:
    """Draw curves, differences of precision, ratios of what both need, and the runs with and without clipping."""
    first, *_ = served
    runs, machines = served[first], list(better)
    dashes = dict(zip(machines, itertools.cycle(("-", "--", ":")), strict=False))
    drawn, ((curves_of, precise), (needed, clipped)) = canvas(2, 2, width=13, height=9)
    shade = lambda method: harness.colour(method.partition(",")[0])
    for method, count in runs:
        if method != UNCLIPPED:
            mean = pd.concat(runs[method, count]).groupby("gradients")[["hours", PRECISION]].mean().iloc[1:]
            style = {"color": shade(method), "linestyle": dashes[count]}
            curves_of.plot(60 * mean.hours, 100 * mean[PRECISION], label=f"{method}, {count}", **style)
    curves_of.set(xlabel="virtual time, min", ylabel="test precision, %", xscale="log", ylim=(0, 100))
    curves_of.set_title(f"(a) {data}, mean over seeds, server {first:g} ms")
    curves_of.legend()
    place = np.arange(len(machines))
    bars(precise, place, better.values(), color=harness.PALETTE[0], fmt="o", label="ours, 95 % interval")
    precise.axhline(BETTER, color=harness.PAPER, linestyle="--", label="paper, about")
    precise.set(ylabel=f"points by which {SYNC} is better", title="(b) test precision")
    shown = [(COMMON["epochs"], first), *((name, each) for each in ratios for name in (COMMON["hours"], EPOCH))]
    asides = np.linspace(-0.25, 0.25, len(shown))
    looks = zip(itertools.cycle(harness.PALETTE[2:]), itertools.cycle("os^vDP*"), strict=True)
    for (name, each), aside in zip(shown, asides, strict=True):
        colour, mark = next(looks)
        label = f"{name}, server {each:g} ms" if len(ratios) > 1 else name
        bars(needed, place + aside, ratios[each][name].values(), logarithmic=True, color=colour, fmt=mark, label=label)
    needed.set(
        yscale="log", ylabel=f"{SYNC} over {ASYNC}", title="(c), (d), (e) below 1: synchronous training needs less"
    )
    ticks = [0.25, 0.5, 1, 2, 4]
    needed.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    needed.minorticks_off()
    for panel, equal in ((precise, 0), (needed, 1)):
        panel.axhline(equal, color="#7a7a7a", linewidth=1)
        panel.set_xticks(place, [str(count) for count in machines])
        panel.set(xlabel="machines, N + b", xlim=(-0.5, len(machines) - 0.5))
        panel.legend(fontsize=9)
    low, high = needed.get_ylim()
    needed.set_ylim(low, high * (high / low) ** (0.07 * len(shown)))  # room for the legend
    for index, method in enumerate(KINDS):
        ends = best[method, machines[-1]]
        spread = index + np.linspace(-0.2, 0.2, ends.size)
        face = "none" if method == UNCLIPPED else shade(method)
        clipped.plot(spread, ends, "o", color=shade(method), markerfacecolor=face)
    clipped.set_xticks(range(len(KINDS)), [SYNC, f"{ASYNC},\nclipped", f"{ASYNC},\nnot clipped"])
    clipped.set(ylabel="highest test precision, %", ylim=(0, 100), xlim=(-0.5, len(KINDS) - 0.5))
    clipped.set_title(f"each run with {machines[-1]} machines")
    return drawn
