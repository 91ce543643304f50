r"""The theorem's bounds on distance and consensus of pull gossip, against measured values (Jin et al. 2016, section 3).

The objective is a quadratic with curvatures from m = 1 to L = 10 in four dimensions and gradient noise of total
variance sigma^2 = 1; step sizes alpha go up to the largest that the theorem allows, 2 / (m + L). Measured are
E sum |theta_i - theta*|^2 (distance) and E sum |theta_i - mean|^2 (consensus) of the parameters that the nodes have in
memory after t ticks or rounds of three processes of `protocols.gossip(kind="pull", include_self=True)`:

* step, then average: at a tick of a Poisson clock a node ends its step, taken at its own parameters, and averages it
  with its partner's parameters. This is the recursion of the appendix, theta <- D (theta - alpha g), and what nodes
  with exponential compute times do;
* average, then step: at a tick a node averages, takes the gradient at the average, and steps. This is Algorithm 3 made
  instantaneous;
* rounds: all nodes average, then all step.

The appendix bounds E |D (theta - alpha g)|^2 by E |theta - alpha g|^2, as if D and g were independent. But both are of
the node that ticks, and averaging undoes half of its own last step. So the printed distance bound fails for the
recursion of the appendix where steps are small; `inequalities.distance_bound(corrected=True)` accounts for this.

The consensus bound assumes |gradient| <= c everywhere, which no quadratic satisfies. Its proof only uses, at every t,
the mean over nodes of E |gradient(theta_i)|^2 without the noise, so c^2 is here the largest value of this mean in the
run. The theorem prints a lambda that ends in 2 b^2 / p; the appendix derives 2 b^2 / p^2.

The diffusion potential (section 3) is the sum over i and j of (w_ij - 1/p)^2, where w_ij is what node j's first
parameters contribute to node i's when nodes only average.
"""

from collections.abc import Mapping
from typing import Annotated

import numpy as np
import pandas as pd
from annotated_types import Ge
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments import papers
from experiments.gossip import cases
from experiments.gossip.cases import Case
from experiments.gossip.inequalities import contraction
from experiments.gossip.margins import (
    CORRECTED,
    DISTANCE,
    LAST,
    PRINTED,
    PROVED,
    TITLES,
    Results,
    averaging,
    bounds_of,
    is_pulled,
    margins,
    sampling,
)
from experiments.gossip.quadratic import ROUNDS, RUN_TIMES, TICKS
from experiments.harness import (
    PALETTE,
    Claim,
    Interval,
    Output,
    Scale,
    Share,
    Sweep,
    all_of,
    below,
    between,
    canvas,
    figure,
    prepare,
)
from experiments.thresholds import BOUNDS_FIXED

STYLES = {RUN_TIMES: "o-", TICKS: "s:", ROUNDS: "^:"}
Nodes = Annotated[int, Ge(2)]


@figure(
    papers.GOSSIP,
    "Bounds",
    scales={"smoke": Scale("5 s", num_nodes=[16], fractions=[0.3], runs=8), "laptop": Scale("2 min")},
    differs="The paper prints formulas and no numbers; the column `paper` is its printed lambda.",
    full_size=True,
)
def bounds(
    *, num_nodes: list[Nodes] = (4, 16, 64), fractions: list[Share] = (1.0, 0.3, 0.1), runs: Nodes = 1000
) -> Output:
    """Simulates pull gossip and compares with the bounds.

    Args:
      num_nodes: numbers of nodes, p.
      fractions: step sizes, as shares of the largest one that the theorem allows.
      runs: runs in each mean, each with its own schedule and noise.
    """
    listed = [
        *cases.bound_cases(num_nodes, fractions),
        *cases.contraction_cases(num_nodes),
        *cases.diffusion_cases(num_nodes, LAST),
    ]
    sweep = Sweep({"runs": runs}, [vars(case) for case in listed], cases.simulated, together=("process", "num_nodes"))
    push = Sweep({"rounds": LAST, "runs": runs}, {"num_nodes": num_nodes}, cases.push_sum)
    prepare(sweep, push)
    measured = dict(zip(listed, rows_of(sweep), strict=True))
    pushed = dict(zip(num_nodes, rows_of(push), strict=True))
    found = pd.DataFrame([row for case in listed for row in margins(case, measured[case])])
    worst = found.sort_values("ours").groupby(["quantity", "process", "p", "alpha"], sort=False).first()
    order = {name: rank for rank, name in enumerate([DISTANCE, CORRECTED, PROVED, PRINTED, *TITLES.values()])}
    worst = worst.sort_index(key=lambda keys: keys.map(lambda key: order.get(key, key))).reset_index()
    worst = worst.assign(quantity="margin: " + worst.quantity)
    worst = worst.drop(columns=["start", "fails", "end"])
    table = pd.concat([worst, averaging(measured, pushed)], ignore_index=True)
    notes = [
        "A margin is the smallest ratio of bound and value, over time and over what the nodes begin with; below 1 the "
        "bound fails. `ours` is of simulated means, ± one standard error; `exact` is of exact expectations, to which "
        f"simulated means are as near as {sampling(measured):.1f} standard errors. Bounds are judged by these: they "
        "are statements of mathematics.",
        "With alpha = 0 nodes only average.",
        "For nodes that step, then average, the corrected bound (its rate is multiplied by r = 1 - b + b / p and its "
        f"last term by s / r, with s = (1 - b)^2 (1 - 1 / p) + 1 / p) {tally(found, CORRECTED, RUN_TIMES)[0]}.",
    ]
    return Output(table, draw(measured, found, pushed), claims(found, measured, pushed, runs), notes)


def rows_of(sweep: Sweep) -> list[pd.Series]:
    """Return the rows of a sweep's table, with arrays for lists."""
    arrays = sweep.table().map(lambda value: np.array(value) if isinstance(value, list) else value)
    return [row for _, row in arrays.iterrows()]


def of_bound(found: pd.DataFrame, quantity: str, *processes: str) -> pd.DataFrame:
    """Return the margins of a bound with some processes."""
    return found[(found.quantity == quantity) & found.process.isin([TITLES[process] for process in processes])]


def tally(found: pd.DataFrame, quantity: str, *processes: str) -> tuple[str, bool]:
    """In how many cases a bound fails and by how much, in words, and whether it holds in all; by exact expectations."""
    rows = of_bound(found, quantity, *processes)
    if rows.fails.any():
        by = f"by a factor of up to {1 / rows.exact.min():.3g}"
        return f"fails in {rows.fails.sum()} of {len(rows)} cases, {by}.", False
    end = f", at the end at least {rows.end.min():.3g}" if quantity == DISTANCE else ""
    return f"holds in all {len(rows)} cases; bound / value is at least {rows.exact.min():.4g}{end}", True


def claims(found: pd.DataFrame, measured: Results, pushed: Mapping[int, pd.Series], runs: int) -> list[Claim]:
    """Return the theorem's statements, and that of the diffusion potential.

    Args:
      found: margins of the bounds in all cases.
      measured: results of the cases.
      pushed: number of nodes -> diffusion potential of push-sum.
      runs: runs in each mean.
    """
    rest = "D_0 + p alpha sigma^2 (m + L) / 2mL, where D_t is the expected sum of squared distances from the minimum"
    consensus = "The bound on the expected squared distances from the mean, with lambda = 1 - 2b(1 - b)/p - 2b^2/"
    both, theorem = (RUN_TIMES, TICKS), "section 3 and supplement, 6.2"
    stated = (
        (f"Synchronous: D_t <= (1 - 2 alpha mL/(m + L))^t {rest}", "supplement, 6.1", DISTANCE, (ROUNDS,), ""),
        (
            f"Asynchronous, theta <- D (theta - alpha g): D_t <= (1 - 2 alpha/p mL/(m + L))^t {rest}",
            theorem,
            DISTANCE,
            (RUN_TIMES,),
            "D and g are both of the node that ticks: averaging undoes half of the step it has just made.",
        ),
        ("The same bound for Algorithm 3, made instantaneous: average, then step", "section 3", DISTANCE, (TICKS,), ""),
        (
            f"{consensus}p, as the theorem prints it",
            theorem,
            PRINTED,
            both,
            "It allows a contraction by 1 - 1/p a tick; averaging contracts by about 1 - 1/(2p).",
        ),
        (f"{consensus}p^2, as the appendix derives it", theorem, PROVED, both, ""),
    )
    checked = []
    for says, where, quantity, processes, because in stated:
        words, holds = tally(found, quantity, *processes)
        checked.append(Claim(says, where, words, holds, because="" if holds else because, identity=True))
    p = max(pushed)
    push, pull = pushed[p], next(values for case, values in measured.items() if is_pulled(case) and case.num_nodes == p)
    rounds, left, rate = np.arange(1, LAST + 1), push.potential[1:], 0.5 - 0.25 / p
    factors = (left / push.potential[0]) ** (1 / rounds)  # of a round, on average since the first
    errors = factors / rate * push.error[1:] / left / rounds
    relative = [Interval.of_error(mean, error, runs) for mean, error in zip(factors / rate, errors, strict=True)]
    share = pull.expected_distance / (p - 1)
    left_of_pull = zip(pull.distance / (p - 1), pull.distance_error / (p - 1), strict=True)
    remains = [Interval.of_error(*pair, runs) for pair in left_of_pull]
    ends = [BOUNDS_FIXED.rewritten(1 + side * BOUNDS_FIXED) for side in (-1, 1)]
    return [
        *checked,
        Claim(
            "Repeated rounds of a form of gossiping reduce the diffusion potential by a fixed rate per round",
            "section 3",
            ours=f"push-sum, p = {p}: on average over the first 1 to {LAST} rounds, one multiplies it by "
            f"{factors.min():.3f} to {factors.max():.3f}, ± at most {rate * max(r.half for r in relative):.2g}; "
            f"exactly 1/2 - 1/(4p) = {rate:.3f}",
            holds=all_of(between(each, *ends) for each in relative),
            because=f"Fixed: within {100 * BOUNDS_FIXED:g} % of the exact rate.",
        ),
        Claim(
            "The same of synchronous pull gossip, whose E[M^T M] has the eigenvalues 1 and 1/2",
            "section 3 and supplement, 6.1",
            ours=f"p = {p}: round 1 multiplies it by {share[1]:.3f}, round {LAST} by {share[-1] / share[-2]:.3f}, "
            f"and 1/(2p + 1) of it remains. The disagreement falls by a fixed {0.5 - 0.25 / p:.3f} a round.",
            holds=all_of(below(each, 0.5**after) for after, each in enumerate(remains) if after),
            because="A pull does not conserve the mean: nodes agree on an average with random weights, not on 1/p.",
        ),
    ]


def draw(measured: Results, found: pd.DataFrame, pushed: Mapping[int, pd.Series]) -> Figure:
    """Values with their bounds for the largest number of nodes, the margins of the distance bound, and averaging."""
    drawn, ((curves, ratios), (consensus, diffusion)) = canvas(2, 2, width=13, height=10)
    p = max(pushed)
    stepping = [case for case in measured if (case.process, case.num_nodes, case.start) == (RUN_TIMES, p, "together")]
    for case, shade in zip(stepping, PALETTE, strict=False):
        values = measured[case]
        limits, progress = bounds_of(case, values, values.gradient), case.alpha * values.step / p
        curves.plot(progress, values.distance, color=shade, label=f"alpha = {case.alpha:.3g}")
        curves.plot(progress, limits[DISTANCE], "--", color=shade)
        curves.plot(progress, limits[CORRECTED], ":", color=shade)
    curves.plot([], [], "k--", label="printed bound")
    curves.plot([], [], "k:", label="corrected bound")
    curves.set(yscale="log", xlabel="alpha t / p", ylabel="sum of squared distances from the minimum")
    curves.set_title(f"Step, then average: p = {p}, nodes begin together")
    draw_margins(ratios, found[found.quantity == DISTANCE])
    values = measured[Case(TICKS, p, 0.0, "around", 6 * p)]
    share = values.consensus / values.consensus[0]
    consensus.plot(values.step / p, share, color=PALETTE[0], linewidth=6, alpha=0.5, label="measured")
    for printed, style, label in ((False, "k--", "the appendix's lambda"), (True, "k:", "the printed lambda")):
        consensus.plot(values.step / p, contraction(p, printed=printed) ** values.step, style, label=label)
    consensus.set(yscale="log", xlabel="ticks per node", ylabel="disagreement, over at first")
    consensus.set_title(f"Averaging only, p = {p}: bounds on consensus")
    pulled = {case.num_nodes: values for case, values in measured.items() if is_pulled(case)}
    for (count, values), shade in zip(pulled.items(), PALETTE, strict=False):
        diffusion.plot(values.step, values.distance / (count - 1), "o-", color=shade, label=f"pull, p = {count}")
    rounds = np.arange(LAST + 1)
    diffusion.plot(rounds, pushed[p].potential / (p - 1), "ks", fillstyle="none", label=f"push-sum, p = {p}")
    diffusion.plot(rounds, 0.5**rounds, "k:", label="halved each round")
    diffusion.set(yscale="log", xlabel="rounds", ylabel="diffusion potential, over at first")
    diffusion.set_title("Averaging only, in rounds: diffusion potential")
    for axes in (curves, consensus, diffusion):
        axes.legend(loc="lower left")
    return drawn


def draw_margins(axes: Axes, found: pd.DataFrame) -> None:
    """The smallest margins of the printed distance bound: a colour for each p, a marker for each process."""
    for p, shade in zip(sorted(found.p.unique()), PALETTE, strict=False):
        axes.plot([], [], color=shade, label=f"p = {p}")
        for process, style in STYLES.items():
            of_process = found[(found.p == p) & (found.process == TITLES[process])]
            smallest_of = of_process.groupby("alpha").ours.min()
            axes.plot(smallest_of.index, smallest_of, style, color=shade)
    for process, style in STYLES.items():
        axes.plot([], [], style, color="black", label=TITLES[process])
    axes.axhline(1.0, color="black", linewidth=1)
    axes.set(xscale="log", xlabel="step size alpha", ylabel="printed bound / distance, smallest")
    axes.set_xticks(sorted(found.alpha.unique()), [f"{alpha:.3g}" for alpha in sorted(found.alpha.unique())])
    axes.minorticks_off()
    axes.set_title("The printed distance bound fails below 1")
    axes.legend(loc="lower right")
