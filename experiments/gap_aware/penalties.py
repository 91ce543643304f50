"""Over- and under-penalization by the delay, staleness + 1 (Barkai et al. 2020, section 4.1 and appendix C.1).

The rules of the package are run in float64 on random gradients, many parameters at once, and the weight with which a
gradient enters an update is differentiated. Three statements are checked as identities:

* under-penalization: after a gradient of delay tau and a fresh one, the stale gradient's weight in the second update is
  gamma eta under Staleness-Aware (SA), gamma eta / tau if the gradient is divided by its delay (SA-Gradient), and
  gamma eta / G under Gap-Aware (GA);
* over-penalization: where the parameters have returned to those that the gradient was computed on, SA and SA-Gradient
  divide by tau although nothing is stale, and GA by G = 1;
* Adam: dividing the gradients in both moments by one number changes nothing; Adam-SA divides in the first alone.

The momentum is that of section 4.1. With Nesterov's, the weights in the second update are multiplied by gamma.
"""

from collections.abc import Callable, Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from matplotlib.figure import Figure as Picture

from experiments import papers
from experiments.harness import (
    PALETTE,
    Claim,
    Count,
    Interval,
    Output,
    Positive,
    Scale,
    Share,
    Whole,
    any_of,
    below,
    canvas,
    colour,
    figure,
    interval,
)
from experiments.harness import PAPER as BLACK
from experiments.thresholds import PENALTIES_ROUNDING
from sgdlab import rules
from sgdlab.rules import ServerRule

RULES = {"SA": rules.staleness_aware, "SA-Gradient": rules.staleness_aware_gradient, "GA": rules.gap_aware}
NEXT = "weight of a stale gradient in the next update / (gamma eta)"
RETURNED = "weight of a gradient after theta has returned / eta"
BOTH, FIRST = "change of Adam's update / its norm", "update / Adam's update"


@jax.jit
def step(
    rule: ServerRule, grads: jax.Array, state: object, params: jax.Array, read: jax.Array, delay: jax.Array
) -> tuple[jax.Array, object]:
    """One update with one gradient: the parameters and the state after it.

    Args:
      rule: any rule without state per worker.
      grads: shape=[d], computed on `read`.
      state: of the rule.
      params: shape=[d], the server's.
      read: shape=[d], what the worker had read.
      delay: 1 for a fresh gradient.
    """
    message = rule.receive(grads, state, params, worker=0, delay=delay, read_params=read)
    updates, state = rule.update(message, state, params, num_gradients=1, delay=delay, worker=0)
    return params + updates, state


@jax.jit
def weights(
    rule: ServerRule, state: object, params: jax.Array, read: jax.Array, delay: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Weights of a gradient, for each parameter, in its own update and in the next, whose gradient is fresh.

    Minus the derivatives of the two updates by the gradient; arguments as in `step`.
    """

    def updates(grads):
        after, new = step(rule, grads, state, params, read, delay)
        following, _ = step(rule, grads * 0, new, after, after, jnp.ones_like(delay))
        return after - params, following - after

    point = jnp.ones_like(params)
    return jax.tree.map(jnp.negative, jax.jvp(updates, (point,), (point,))[1])


def gap(versions: np.ndarray, delay: int, learning_rate: float) -> np.ndarray:
    """G of every parameter for a gradient that was computed on `versions[-delay]`, by the formulas of the paper alone.

    Definition 1 by parameter, with the coefficient of Algorithm 14 over the velocities of the updates that were made.

    Args:
      versions: float64[k + 1, d], the parameters before and after each of k updates.
      delay: tau.
      learning_rate: eta, of all updates.
    """
    velocities = np.diff(versions, axis=0) / learning_rate
    ages = np.arange(len(velocities))[::-1]
    shares = 0.999**ages * (1 - 0.999) / (1 - 0.999 ** len(velocities))
    coefficient = learning_rate * (np.sqrt(shares @ velocities**2) + 1e-8)
    return np.abs(versions[-1] - versions[-delay]) / coefficient + 1


def fresh(rule: ServerRule, gradients: np.ndarray) -> tuple[object, np.ndarray]:
    """Return the state after fresh gradients, and the parameters before and after each: float64[k + 1, d]."""
    versions = [jnp.zeros(gradients.shape[1])]
    state = rule.init(versions[0])
    for grads in gradients:
        params, state = step(rule, grads, state, versions[-1], versions[-1], 1)
        versions.append(params)
    return state, np.stack(versions)


def returning(gradients: np.ndarray, updates: int, momentum: float) -> np.ndarray:
    """Return the gradients, the last one changed so that the last `updates` updates lead back to where they began.

    Args:
      gradients: float64[k, d], fresh ones from velocity 0 on.
      updates: from 1 to k.
      momentum: gamma.
    """
    velocities = np.zeros_like(gradients)
    velocity = 0.0
    for row, grads in enumerate(gradients):
        velocities[row] = velocity = momentum * velocity + grads
    before = velocities[-2] if len(gradients) > 1 else 0.0
    return np.vstack([gradients[:-1], -velocities[-updates:-1].sum(axis=0) - momentum * before])


def adam_updates(make: Callable[..., ServerRule], gradients: np.ndarray, delays: np.ndarray) -> np.ndarray:
    """Updates of one of the Adams, without its epsilon: float64[k, d]."""
    rule, params, found = make(learning_rate=1.0, eps=0.0), jnp.zeros(gradients.shape[1]), []
    state = rule.init(params)
    for grads, delay in zip(gradients, delays, strict=True):
        after, state = step(rule, grads, state, params, params, delay)
        found.append(after - params)
        params = after
    return np.stack(found)


def first_moments(gradients: np.ndarray) -> np.ndarray:
    """Adam's first moments, of which only ratios are used, by the formula: float64[k, d]."""
    moments, moment = np.zeros_like(gradients), 0.0
    for row, grads in enumerate(gradients):
        moments[row] = moment = 0.9 * moment + 0.1 * grads
    return moments


@figure(
    papers.GAP,
    "over- and under-penalization",
    scales={"smoke": Scale("5 s", delays=[2, 8], parameters=10), "laptop": Scale("5 s")},
    full_size=True,
    differs="They do not: the paper argues by formulas, which the rules meet to rounding.",
)
def penalties(
    *,
    delays: Sequence[Count] = (2, 3, 6, 12, 24, 48),
    parameters: Count = 1000,
    momentum: Share = 0.9,
    learning_rate: Positive = 0.1,
    seed: Whole = 0,
) -> Output:
    """Runs the rules and differentiates them.

    Args:
      delays: tau, delays of the stale gradient, above 1.
      parameters: number of parameters, each with gradients of its own.
      momentum: gamma, below 1.
      learning_rate: eta.
      seed: of the gradients, which are standard normal.
    """
    stale = sorted(set(delays) - {1})
    if not stale:
        raise ValueError(f"delays={list(delays)} must hold one above 1")
    with jax.enable_x64(True):
        gradients = np.random.default_rng(seed).standard_normal((2 * max(delays), parameters))
        table = pd.DataFrame(_weight_rows(gradients, stale, momentum, learning_rate))
        adam, changes = pd.DataFrame(_adam_rows(gradients, stale)), varied(gradients, stale)
    rows = [
        {"quantity": BOTH, "rule": "Adam, both moments / 1 to tau at random", "delay": delay}
        | {"ours": change.mean, "±": change.half}
        for delay, change in changes.items()
    ]
    notes = [
        f"Weights are means over {parameters} parameters; the column paper has the formulas' values.",
        "G is computed from the parameters alone, by Definition 1, and Algorithm 14 with the velocities of the updates "
        "that were made.",
        "The largest error is that of any parameter, relative to the formula. ± is half the width of the 95 % "
        "confidence interval of the mean over parameters.",
    ]
    shown = pd.concat([table, adam, pd.DataFrame(rows)])
    return Output(shown, _drawn(table), claims(table, adam, changes), notes)


def _weight_rows(gradients: np.ndarray, delays: Sequence[int], momentum: float, rate: float) -> list[dict[str, object]]:
    """Return a row for each rule, delay and statement of section 4.1."""
    rows = []
    for name, make in RULES.items():
        rule = make(learning_rate=rate, momentum=momentum, nesterov=False)
        straight = fresh(rule, gradients)
        for delay in delays:
            state, versions = straight
            _, following = weights(rule, state, versions[-1], versions[-delay], jnp.asarray(delay))
            stale = {"SA": 1.0, "SA-Gradient": 1 / delay, "GA": 1 / gap(versions, delay, rate)}[name]
            state, versions = fresh(rule, returning(gradients, delay - 1, momentum))
            own, _ = weights(rule, state, versions[-1], versions[-delay], jnp.asarray(delay))
            returned = 1.0 if name == "GA" else 1 / delay
            for quantity, ours, formula in (NEXT, following / momentum / rate, stale), (RETURNED, own / rate, returned):
                row = {"quantity": quantity, "rule": name, "delay": delay}
                values = {"ours": float(ours.mean()), "paper": float(np.mean(formula))}
                rows.append(row | {"largest error": float(np.abs(ours / formula - 1).max())} | values)
    return sorted(rows, key=lambda row: row["quantity"])


def _adam_rows(gradients: np.ndarray, delays: Sequence[int]) -> list[dict[str, object]]:
    """Return rows of one penalty on both moments of Adam, and of penalties on the first alone."""
    ones, rows = np.ones(len(gradients), int), []
    adam = adam_updates(rules.adam, gradients, ones)
    size = np.linalg.norm(adam, axis=1)
    for delay in delays:
        both = float((np.linalg.norm(adam_updates(rules.adam, gradients / delay, ones) - adam, axis=1) / size).max())
        rows.append({"quantity": BOTH, "rule": "Adam, both moments / tau", "delay": delay, "ours": both, "paper": 0.0})
        penalized = adam_updates(rules.adam_staleness_aware, gradients, delay * ones)
        error = float((np.linalg.norm(delay * penalized - adam, axis=1) / size).max())
        ratio = float(np.mean((penalized * adam).sum(axis=1) / size**2))
        first = {"quantity": FIRST, "rule": "Adam-SA", "delay": delay, "largest error": error}
        rows.append(first | {"ours": ratio, "paper": 1 / delay})
    random = np.random.default_rng(0).integers(1, max(delays) + 1, len(gradients))
    penalized = adam_updates(rules.adam_staleness_aware, gradients, random)
    formula = adam * first_moments(gradients / random[:, None]) / first_moments(gradients)
    error = float((np.linalg.norm(penalized - formula, axis=1) / size).max())
    ratios = [float(np.mean((updates * adam).sum(axis=1) / size**2)) for updates in (penalized, formula)]
    first = {"quantity": FIRST, "rule": f"Adam-SA, delays from 1 to {max(delays)}", "largest error": error}
    return [*rows, first | dict(zip(("ours", "paper"), ratios, strict=True))]


def varied(gradients: np.ndarray, delays: Sequence[int]) -> dict[int, Interval]:
    """Return how much penalties on both moments change Adam's updates, where they are random numbers from 1 to tau.

    Args:
      gradients: float64[k, d], of independent parameters.
      delays: tau.

    Returns:
      tau -> norm of the change of a parameter's k updates over theirs, its mean over parameters.
    """
    ones, found = np.ones(len(gradients), int), {}
    adam = adam_updates(rules.adam, gradients, ones)
    for delay in delays:
        penalties = np.random.default_rng(0).integers(1, delay + 1, gradients.shape)
        change = adam_updates(rules.adam, gradients / penalties, ones) - adam
        found[delay] = interval(np.linalg.norm(change, axis=0) / np.linalg.norm(adam, axis=0))
    return found


def _drawn(table: pd.DataFrame) -> Picture:
    drawn, (panels,) = canvas(1, 2, height=4.6, sharey=True)
    for quantity, panel in zip((NEXT, RETURNED), panels, strict=True):
        for name, marker, shade in zip(RULES, "so^", (colour("sa"), PALETTE[5], colour("ga")), strict=True):
            large = {"markersize": 11, "linewidth": 4} if name == "SA" else {}  # under SA-Gradient, where they coincide
            ours = table[(table.quantity == quantity) & (table.rule == name)]
            panel.plot(ours.delay, ours.ours, color=shade, marker=marker, label=name, **large)
            panel.plot(ours.delay, ours.paper, color=BLACK, linestyle="none", marker="+", markersize=10)
        panel.set_xscale("log", base=2)
        panel.set(xlabel="delay of the gradient", ylim=(0, 1.1))
        panel.xaxis.set_major_formatter("{x:.0f}")
    panels[0].plot([], [], color=BLACK, linestyle="none", marker="+", markersize=10, label="formula")
    panels[0].set(title="stale gradient: weight in the next update", ylabel="weight, relative to an unpenalized one")
    panels[1].set(title="theta has returned: weight of the gradient")
    panels[0].legend(loc=(0.55, 0.55))
    return drawn


def claims(table: pd.DataFrame, adam: pd.DataFrame, changes: Mapping[int, Interval]) -> list[Claim]:
    """Return the identities, and what penalties that vary do to Adam: `changes`, as `varied` has them."""

    def largest(quantity: str, *names: str) -> float:
        return table[(table.quantity == quantity) & table.rule.isin(names)]["largest error"].max()

    constant = adam[adam.quantity == BOTH].ours.max()
    first = adam["largest error"].max()
    both = "penalizing the gradient before the first and second moments does not affect Adam's update"
    under, cured = largest(NEXT, "SA"), largest(NEXT, "SA-Gradient", "GA")
    over, gap_over = largest(RETURNED, "SA", "SA-Gradient"), largest(RETURNED, "GA")
    return [
        Claim(
            "under SA a stale gradient is multiplied by gamma eta / tau of the next update, which is large where that "
            "is fast: it is under-penalized",
            "section 4.1",
            ours=f"its weight there is gamma eta whatever its delay; relative error at most {under:.1g}",
            holds=under < PENALTIES_ROUNDING,
            identity=True,
        ),
        Claim(
            "penalizing the gradient itself accounts for its staleness within the update vector",
            "section 4.1",
            ours=f"weights gamma eta / tau (SA-Gradient) and gamma eta / G (GA); relative error at most {cured:.1g}",
            holds=cured < PENALTIES_ROUNDING,
            identity=True,
        ),
        Claim(
            "where theta returns to what the gradient was computed on, the delay penalizes although nothing is stale",
            "section 4.1",
            ours=f"weights eta / tau under SA and SA-Gradient; relative error at most {over:.1g}",
            holds=over < PENALTIES_ROUNDING,
            identity=True,
        ),
        Claim(
            "the gap is then zero distance and does not penalize",
            "section 5.1",
            ours=f"G - 1 at most {gap_over:.1g}",
            holds=gap_over < PENALTIES_ROUNDING,
            identity=True,
        ),
        Claim(
            f"{both}, where all have the same penalty",
            "appendix C.1",
            ours=f"relative change at most {constant:.1g}",
            holds=constant < PENALTIES_ROUNDING,
            identity=True,
        ),
        Claim(
            f"{both}, where penalties vary",
            "appendix C.1",
            ours="of its norm, it changes by "
            + ", ".join(f"{change} with penalties from 1 to {delay}" for delay, change in changes.items()),
            holds=any_of(below(change, PENALTIES_ROUNDING) for change in changes.values()),
            because="The two moments forget at different rates, so that penalties cancel out only where those of all "
            "gradients are one number; delays of asynchronous workers are not.",
        ),
        Claim(
            "penalizing only the first moment decreases the step by the desired amount",
            "appendix C.1",
            ours="each gradient's part of Adam-SA's update is that of Adam's over its own tau, whether delays vary or "
            f"not; relative error at most {first:.1g}",
            holds=first < PENALTIES_ROUNDING,
            identity=True,
        ),
    ]
