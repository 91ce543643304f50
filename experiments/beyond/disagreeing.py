r"""Workers whose losses have different minima: which methods come to a stationary point of the mean, and how fast.

.. math:: f_i(x) = \tfrac12 x^\top H x - b_i^\top x, \qquad g = H x - b_i + \xi, \qquad \xi \sim N(0, \sigma^2 I)

20 workers take about sqrt(i) seconds for a gradient, as in the theory of Ringleader ASGD (Maranjyan and Richtarik
2025); b_i is normal, and the eigenvalues of H are 0.1 to 1. So what is best for one worker is best for no other, as it
is not where one network fits all clients (`beyond.ringleader`). Asynchronous SGD weighs workers by their speed, and
has a fixed point of its own.

Measured is the squared norm of the gradient of the mean loss, on average over the last fifth of a run. The rate of each
method and length is the best of 17 for seed 0, of which nothing else is used; b_i, the point where runs begin, noise
and compute times are drawn anew with each seed. Which method is first depends on the length of a run, and the authors'
runs take 3,000 times as long as the slowest worker's gradient; the last two claims are about runs of such a length.
Malenia SGD has a number of its own, of gradients to collect for an update, and is run with several.
"""

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from experiments.beyond import by_time
from experiments.beyond.sources import RINGLEADER
from experiments.harness import (
    Claim,
    Count,
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
    colour,
    enough,
    figure,
    goes_by,
    interval,
)
from experiments.harness.regions import throughout
from experiments.thresholds import DISAGREEING_STAYS
from sgdlab import policies, protocols, replay, rules
from sgdlab.schedule import Schedule
from sgdlab.tasks import Task

TITLES = {
    "asgd": "ASGD",
    "rescaled": "Rescaled ASGD",
    "ace": "IA²SGD",
    "malenia": "Malenia SGD",
    "malenia_4": "Malenia SGD, S = 4 n",
    "malenia_16": "Malenia SGD, S = 16 n",
    "ringleader": "Ringleader ASGD",
}
COLLECTED = {"malenia": 0.0, "malenia_4": 4.0, "malenia_16": 16.0}
"""Gradients of a worker that Malenia SGD collects for an update, in the harmonic mean; 0: one of each is enough."""
RATES = tuple(np.geomspace(1e-4, 2.0, 17).tolist())
EIGENVALUES = np.geomspace(0.1, 1.0, 10)
LAST, EVALUATIONS = 0.2, 100
"""The share of a run, at its end, over which norms are averaged; and how often they are measured."""
HORIZON = 3000.0
"""The authors' runs, in compute times of the slowest worker: 300,000 s, where that takes 100 s."""


@figure(
    RINGLEADER,
    "Disagreeing",
    scales={
        "smoke": Scale("20 s", num_workers=4, horizons=[40.0], seeds=3, rates=3),
        "laptop": Scale("3 min"),
        "decide": Scale("15 min", seeds=30),
    },
    differs="The paper's theorems are of any losses, and it has no such picture; the quadratics are ours.",
    full_size=True,
)
def disagreeing(
    *,
    num_workers: Count = 20,
    horizons: list[Positive] = (300.0, 3000.0, 10_000.0),
    scatter: NotNegative = 0.1,
    noise: Positive = 0.3,
    seeds: Count = 8,
    rates: Count = 17,
) -> Output:
    """Tunes each method with one seed for each length, and runs it with others.

    Args:
      num_workers: number of workers.
      horizons: lengths of runs, in virtual seconds.
      scatter: standard deviation of compute times, as a share of the worker's mean.
      noise: sigma, standard deviation of each entry of a gradient.
      seeds: number of seeds besides the one that rates are tuned with.
      rates: rates of the grid that are tried, the largest first.
    """
    base = {"num_workers": num_workers, "scatter": scatter, "noise": noise, "seeds": seeds, "rates": rates}
    runs = Sweep(base, {"method": list(TITLES), "seconds": sorted(horizons)}, work=trained).table()
    norms = {(run.method, run.seconds): np.array(run.norms) for run in runs.itertuples()}
    rows = [
        {
            "method": TITLES[run.method],
            "seconds": run.seconds,
            "rate": run.rate,
            "updates": run.updates,
            "quantity": "squared norm of the mean gradient, last fifth",
            "ours": float(np.exp(np.log(run.norms).mean())),
            "± (factor)": float(np.exp(interval(np.log(run.norms)).half)),
            "paper": None,
        }
        for run in runs.itertuples()
    ]
    edges = [f"{TITLES[run.method]} at {run.seconds:g} s" for run in runs.itertuples() if run.edge]
    notes = [
        "Geometric means over seeds, with the factor of their 95 % interval; claims rest on differences of logarithms, "
        "paired by seed.",
        f"The best rate is at an edge of the grid for: {', '.join(edges) or 'none'}.",
    ]
    return Output(pd.DataFrame(rows), _drawn(norms), claims(norms, num_workers), notes)


@goes_by(
    replay.run, replay.run_many, protocols.asynchronous, protocols.malenia, protocols.ringleader, policies.malenia,
    policies.ringleader, rules.asgd, rules.rescaled, rules.ace, rules.malenia, rules.ringleader,
)  # fmt: skip
def trained(
    *, num_workers: int, scatter: float, noise: float, seeds: int, rates: int, method: str, seconds: float
) -> dict[str, Any]:
    """Trains a method with the best rate of seed 0, with seeds 1, 2 and so on.

    Returns:
      `norms` by seed; `rate`, whether it is at an `edge` of the grid, and `updates` of the last run.
    """
    grid, given = RATES[-rates:], (num_workers, scatter, noise, method, seconds)
    tuned = [measured(result, seconds) for result in _replayed(*given, seed=0, rates=grid)]
    best = int(np.argmin(np.nan_to_num(tuned, nan=np.inf)))
    results = [_replayed(*given, seed=seed, rates=grid[best : best + 1])[0] for seed in range(1, seeds + 1)]
    return {
        "norms": [measured(result, seconds) for result in results],
        "rate": grid[best],
        "edge": len(grid) > 1 and best in (0, len(grid) - 1),
        "updates": results[-1].history.evaluations[-1]["updates"],
    }


def measured(result: replay.Result, seconds: float) -> float:
    """Return the squared norm on average over the last fifth of the time; the run may go on a little after it."""
    run = {name: [each[name] for each in result.history.evaluations] for name in ("seconds", "squared_norm")}
    return float(by_time.at_times(run, "squared_norm", np.linspace((1 - LAST) * seconds, seconds, EVALUATIONS)).mean())


def runtimes(num_workers: int, scatter: float, seconds: float, *, seed: int) -> np.ndarray:
    """Return float64[T, N], seconds: about sqrt(i) of worker i, enough for a run of a length and a little more."""
    rows = int(2 * seconds) + 200
    scale = 1 + scatter * np.random.default_rng([seed, 0]).standard_normal((rows, num_workers))
    return np.sqrt(np.arange(1.0, num_workers + 1)) * np.maximum(scale, 0.1)


def schedule(num_workers: int, scatter: float, method: str, seconds: float, *, seed: int) -> Schedule:
    """Return the schedule of a method that ends a little after a given time."""
    own = {"collected": COLLECTED[method] * num_workers} if method in COLLECTED else {}
    name = "malenia" if own else "ringleader" if method == "ringleader" else "asynchronous"
    make = functools.partial(getattr(protocols, name), runtimes(num_workers, scatter, seconds, seed=seed), **own)
    gradients = max(int(seconds), num_workers)
    while (made := make(num_gradients=gradients)).wall_clock() <= seconds:
        gradients = int(max(1.1, 1.05 * seconds / made.wall_clock()) * gradients) + 1
    return made


def _replayed(
    num_workers: int, scatter: float, noise: float, method: str, seconds: float, *, seed: int, rates: Sequence[float]
) -> list[replay.Result]:
    """Execute a schedule with each of some rates."""
    made = schedule(num_workers, scatter, method, seconds, seed=seed)
    every = tuple(np.unique(np.linspace(1, int(made.used().sum()), EVALUATIONS).astype(int)).tolist())
    program, generator = replay.lower(made, every=every), np.random.default_rng([seed, 1])
    minima = generator.standard_normal((num_workers, EIGENVALUES.size))
    minima -= minima.mean(axis=0)  # so that the mean gradient is H x
    start = jnp.asarray(generator.standard_normal(EIGENVALUES.size) / EIGENVALUES, jnp.float32)
    noises = noise * np.random.default_rng([seed, 2]).standard_normal((len(program.worker), EIGENVALUES.size))
    batch_fn = jax.tree_util.Partial(_batch, jnp.asarray(minima[program.worker] + noises, jnp.float32))
    own = {"momentum": 0.0, "nesterov": False} | ({} if method == "asgd" else {"num_workers": num_workers})
    make = getattr(rules, method.partition("_")[0])
    made_by = [make(learning_rate=rate, **own) for rate in rates]
    watch, task = replay.Watch(every=every, evaluate=_evaluated), Task(_gradient, start)
    if len(rates) == 1:
        return [replay.run(program, made_by[0], task, batch_fn, mode="event", watch=watch)]
    return replay.run_many([program] * len(rates), made_by, task, batch_fn, watch=watch)


def _batch(linear: jax.Array, number: jax.Array) -> jax.Array:
    return linear[number]


def _gradient(params: jax.Array, linear: jax.Array) -> tuple[jax.Array, dict[str, jax.Array]]:
    return jnp.asarray(EIGENVALUES, jnp.float32) * params - linear, {}


def _evaluated(params: jax.Array, stats: Any) -> dict[str, jax.Array]:
    return {"squared_norm": jnp.sum((jnp.asarray(EIGENVALUES, jnp.float32) * params) ** 2)}


def claims(norms: dict[tuple[str, float], np.ndarray], num_workers: int) -> list[Claim]:
    """Return what the paper says of its rivals, with differences of logarithms that are paired by seed."""
    horizons = sorted({seconds for _, seconds in norms})
    short, long = horizons[0], horizons[-1]
    logs = {key: np.log(values) for key, values in norms.items()}
    change = {method: logs[method, long] - logs[method, short] for method in ("asgd", "ringleader")}
    halved = DISAGREEING_STAYS.rewritten(float(np.log(DISAGREEING_STAYS)))
    words = lambda method: ", ".join(
        f"{interval(logs[method, seconds] - logs['ringleader', seconds])} ({seconds:,g} s)" for seconds in horizons
    )
    found = [
        Claim(
            "where data differ, asynchronous SGD stays away from a stationary point, and Ringleader ASGD does not",
            "section 1 (as understood from the abstract and the authors' code)",
            ours=f"logarithm of the squared norm after {long:,g} s less that after {short:,g} s: ASGD "
            f"{interval(change['asgd'])}, Ringleader ASGD {interval(change['ringleader'])}; what is above a half, "
            f"{float(halved):.2g}, stays away; that of ASGD less that of Ringleader ASGD {words('asgd')}",
            holds=all_of(
                [
                    above(change["asgd"], halved),
                    below(change["ringleader"], halved),
                    above(logs["asgd", long] - logs["ringleader", long]),
                ]
            )
            if long > short
            else None,
        )
    ]
    slowest = float(np.sqrt(num_workers))
    for title, others, because in (
        (
            "Malenia SGD",
            tuple(COLLECTED),
            "It depends on the length of a run, and on how many gradients Malenia SGD collects for an update (S): "
            "it fails where Ringleader ASGD is behind for each of these.",
        ),
        ("IA²SGD", ("ace",), "It depends on the length of a run: Ringleader ASGD is ahead in short ones, if at all."),
    ):
        found.append(
            Claim(
                f"Ringleader ASGD is faster than {title}: in the same time, a lower squared norm (in long runs)",
                "experiments (as understood from the abstract and the authors' code)",
                ours="logarithm of the squared norm less that of Ringleader ASGD: "
                + "; ".join(f"{TITLES[other]} {words(other)}" for other in others),
                holds=throughout(above(logs[other, long] - logs["ringleader", long]) for other in others),
                premises=[enough("run-times of the slowest worker", long / slowest, HORIZON)],
                because=because,
            )
        )
    return found


def _drawn(norms: dict[tuple[str, float], np.ndarray]) -> Figure:
    horizons = sorted({seconds for _, seconds in norms})
    drawn, panels = canvas(1, 2, width=11.5, height=4.6)
    for method, title in TITLES.items():
        dashes = {"malenia_4": "--", "malenia_16": ":"}.get(method, "-")
        shade = colour(method.partition("_")[0])
        found = [interval(np.log(norms[method, seconds])) for seconds in horizons]
        ratio = [interval(np.log(norms[method, each] / norms["ringleader", each])) for each in horizons]
        for panel, values in zip(panels[0], (found, ratio), strict=True):
            if panel is panels[0, 1] and method == "ringleader":
                continue
            bars(panel, horizons, values, logarithmic=True, fmt="o", linestyle=dashes, color=shade, label=title)
    panels[0, 1].axhline(1, color="black", linewidth=1)
    for panel in panels[0]:
        panel.set(xscale="log", yscale="log", xlabel="length of the run, virtual s")
        panel.set_xticks(horizons, [f"{seconds:,g}" for seconds in horizons])
        panel.minorticks_off()
    panels[0, 0].set_ylabel("squared norm of the mean gradient")
    panels[0, 1].set_ylabel("the same, over Ringleader ASGD's")
    drawn.legend(*panels[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    drawn.suptitle("Quadratics that disagree: geometric means over seeds with 95 % intervals")
    return drawn
