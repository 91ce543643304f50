r"""Holds the bounds of Jin et al. 2016 for pull gossip against simulation, and shows which of two lambdas is right.

    python -m experiments.gossip.bounds --workdir=runs/gossip

About a minute on one core. A quadratic with curvatures from m = 1 to L = 10 in four dimensions, gradient noise of
total variance sigma^2 = 1, p = 4, 16 and 64 nodes, step sizes alpha up to the largest that the theorem allows,
2 / (m + L); means over --seeds runs, each with its own schedule and noise. Leaves bounds/bounds.md and
bounds/contraction.md (tables, .csv, pictures) and one file for each finished case: the same command continues.

What is measured. The theorem speaks of all nodes' parameters between ticks. At a tick of node i its step ends and it
averages with what its partner has in memory, in one instant:

    theta_i <- (theta_i - alpha g(theta_i) + theta_j) / 2, with j uniform among all p nodes, i among them.

That is `protocols.gossip(include_self=True)` with exponential run-times, where a node's memory is the version 2 k + 1
that it computes on, and a tick is the end of its k-th gradient together with the averaging before the next. What a
replay shows at its pauses is another thing, the versions 2 k + 2: every node after its step but before its next
averaging, which adds a step's noise to every node. So memory is replayed here, in float64, from the edges of the
library's schedules (a test holds it against `replay.run_peers`), and t counts ticks. In synchronous rounds nodes
average, then step, and theta is what they have at the end of round t.

The consensus bound needs |gradient| <= c everywhere, which no quadratic satisfies. Its proof only uses, at every t, the
mean over nodes of E |gradient(theta_i)|^2, without the noise: so c^2 is here the largest value of that mean on the
run. The root mean square over all steps of the run is shown beside it: where a run begins far from the minimum it is
much smaller, and nothing promises that the bound holds with it.

Expected. In rounds the distance bound holds. In ticks it fails: where steps are small and p is 16 or more, the measured
distance is up to 1.7 times what is promised, because the proof takes the averaging to be independent of the gradient,
while both are the ticking node's and averaging takes half of its step back (`quadratic.slower_distance_bound` derives
what holds instead: the rate with alpha (1 - b + b / p), which no case breaks). Were the node to average first and step
in the same instant, the printed bound would hold; the table shows that too. The consensus bound holds in all these
cases with the lambda of the proof, 1 - 2 b (1 - b) / p - 2 b^2 / p^2. With the printed one, 2 b^2 / p at the end, it
fails: where nodes begin apart and steps are small, disagreement after 6 p ticks is 13 to 20 times what it allows.
"""

import dataclasses
import math
from collections.abc import Iterator, Sequence

import matplotlib as mpl
import numpy as np
from absl import flags
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments import figure, launch
from experiments.gossip import quadratic, store
from sgdlab.results.directory import RunDirectory
from sgdlab.results.plots import STYLE

DEFAULT_WORKDIR = "runs/gossip"
PROBLEM = quadratic.Quadratic(np.geomspace(1.0, 10.0, 4), variance=1.0)
FRACTIONS = (1.0, 0.3, 0.1)
"""Step sizes, of the largest that the theorem allows."""
SMALL = 0.01
"""The step size where averaging does nearly all, likewise."""
DECAYS = 5.0
"""The bound's first term has fallen to exp(-5) at the end of a run."""
COLOURS = {4: "#2166ac", 16: "#d95f02", 64: "#1b7837"}
PROVED, PRINTED = "proof's lambda", "printed lambda"
TICKS, AVERAGES_FIRST, ROUNDS = MODES = "ticks", "ticks, averages first", "rounds"
"""A tick ends a step, then averages, as the paper and the library have it; the other order; synchronous rounds."""
ERRORS = 4.0
"""A bound is said to fail where the measured mean is so many of its standard errors above it."""


@dataclasses.dataclass(frozen=True)
class Case:
    """One setting, of which `runs` runs are averaged.

    Attributes:
      mode: one of `MODES`.
      num_nodes: p.
      fraction: alpha, of the largest step.
      start: "together", all nodes at one point away from the minimum; "apart", scattered around that point; "around",
        scattered around the minimum; "minimum", all there.
      steps: ticks or rounds.
      runs: seeds.
    """

    mode: str
    num_nodes: int
    fraction: float
    start: str
    steps: int
    runs: int

    @property
    def name(self) -> str:
        """The name of its file."""
        mode = self.mode.replace(", ", "-").replace(" ", "-")
        return f"{mode}-t{self.steps}-p{self.num_nodes}-alpha{self.fraction:g}-{self.start}-seeds{self.runs}"

    @property
    def synchronous(self) -> bool:
        """In rounds."""
        return self.mode == ROUNDS

    @property
    def alpha(self) -> float:
        """The step size."""
        return self.fraction * PROBLEM.largest_step

    def first(self) -> np.ndarray:
        """float64[p, d]: what the nodes have in memory before the first tick."""
        shape = (self.num_nodes, PROBLEM.curvature.size)
        scatter = np.random.default_rng(0).standard_normal(shape)  # the same in all runs: theta_0 is given
        return (self.start in ("together", "apart")) * np.ones(shape) + (self.start in ("apart", "around")) * scatter


def bound_cases(num_nodes: Sequence[int], runs: int) -> list[Case]:
    """Where the bounds are tested."""
    starts = {TICKS: ("together", "apart"), AVERAGES_FIRST: ("together",), ROUNDS: ("together", "apart")}
    rounds = [math.ceil(DECAYS / (2 * f * PROBLEM.largest_step * PROBLEM.harmonic)) for f in FRACTIONS]
    return [
        Case(mode, p, fraction, start, count * (1 if mode == ROUNDS else p), runs)
        for mode in MODES
        for p in num_nodes
        for fraction, count in zip(FRACTIONS, rounds, strict=True)
        for start in starts[mode]
    ]


def contraction_cases(num_nodes: Sequence[int], runs: int) -> list[Case]:
    """Where steps are so small, or left out, that the contraction by averaging itself shows."""
    settings = ((0.0, "around", 6), (SMALL, "around", 6), (SMALL, "minimum", 40))
    return [Case(TICKS, p, fraction, start, ticks * p, runs) for fraction, start, ticks in settings for p in num_nodes]


def main(argv: Sequence[str]) -> None:
    """Simulates what is missing, then reports."""
    del argv
    runs = store.whole("seeds", flags.FLAGS.seeds, least=2)
    num_nodes = store.node_counts(flags.FLAGS.num_nodes)
    path = figure.directory(DEFAULT_WORKDIR) / "bounds"
    shared = {"curvature": PROBLEM.curvature.tolist(), "variance": PROBLEM.variance}
    directory = store.finished_parts(path, shared)
    tests, contractions = bound_cases(num_nodes, runs), contraction_cases(num_nodes, runs)
    measured = simulate([*tests, *contractions], directory)
    figure.publish(
        path,
        "bounds",
        [bound_row(case, measured[case]) for case in tests],
        title=f"Bounds of Jin et al. 2016 over the measured value, smallest over time (@ when); {runs} seeds",
        reading=bound_reading(tests, measured),
        figure=draw_bounds(tests, measured),
    )
    figure.publish(
        path,
        "contraction",
        [contraction_row(case, measured[case]) for case in contractions],
        title=f"Disagreement of the nodes in asynchronous pull gossip, against both lambdas; {runs} seeds",
        reading=contraction_reading(contractions, measured),
        figure=draw_contraction(contractions, measured),
    )


def simulate(cases: Sequence[Case], directory: RunDirectory) -> dict[Case, quadratic.Measured]:
    """Runs the cases that are not in the directory yet, one by one, and says how far it is."""
    found = {case: directory.read(case.name) for case in cases}
    missing = [case for case, records in found.items() if records is None]
    missing.sort(key=lambda case: (case.synchronous, case.num_nodes))  # those that share schedules, one after the other
    if len(missing) < len(found):
        print(f"{len(found) - len(missing)} finished cases found, {len(missing)} to do", flush=True)
    schedules: dict[tuple[bool, int], quadratic.Partners] = {}
    for number, case in enumerate(missing, start=1):
        key = case.synchronous, case.num_nodes
        if key not in schedules:
            longest = max(other.steps for other in missing if (other.synchronous, other.num_nodes) == key)
            schedules = {  # those of other settings are not needed again
                key: quadratic.partners(
                    num_nodes=case.num_nodes, num_steps=longest, runs=case.runs, synchronous=case.synchronous, seed=0
                )
            }
        measured = quadratic.measure(
            schedules[key],
            PROBLEM,
            start=case.first(),
            alpha=case.alpha,
            steps=case.steps,
            looks=looks(case.steps),
            seed=1,
            averages_first=case.mode == AVERAGES_FIRST,
        )
        columns = {name: np.asarray(value).tolist() for name, value in dataclasses.asdict(measured).items()}
        directory.write(case.name, [{"kind": "summary", "case": dataclasses.asdict(case), **columns}])
        print(f"[{number}/{len(missing)}] {case.name}", flush=True)
    return {case: read(directory, case) for case in cases}


def read(directory: RunDirectory, case: Case) -> quadratic.Measured:
    """What a finished case has measured."""
    (record,) = directory.read(case.name)
    columns = {field.name: record[field.name] for field in dataclasses.fields(quadratic.Measured)}
    return quadratic.Measured(
        **{name: np.array(value) if isinstance(value, list) else value for name, value in columns.items()}
    )


def looks(steps: int) -> list[int]:
    """When to measure: densely at first, and evenly to the end."""
    early = np.geomspace(1, max(steps, 1), 60).round()
    return np.unique(np.concatenate([[0], early, np.linspace(0, steps, 100).round()]).astype(int)).tolist()


@dataclasses.dataclass(frozen=True)
class Margin:
    """Bound over measured value where that is smallest.

    Attributes:
      value: the ratio.
      step: when.
      errors: how far the measured mean is above the bound there, in its standard errors; 0 where it is not.
    """

    value: float
    step: int
    errors: float

    @property
    def fails(self) -> bool:
        """Beyond what sampling explains."""
        return self.errors > ERRORS

    def __str__(self) -> str:
        return f"{self.value:.4g} @ {self.step}" + " FAILS" * self.fails


def smallest(step: np.ndarray, bound: np.ndarray, measured: np.ndarray, error: np.ndarray) -> Margin:
    """Looks at which the measured value is 0 say nothing."""
    positive = measured > 0
    ratio = np.where(positive, bound / np.where(positive, measured, 1.0), np.inf)
    place = int(ratio.argmin())
    above = max(float(measured[place] - bound[place]), 0.0)
    errors = above / float(error[place]) if above > 1e-9 * measured[place] else 0.0
    return Margin(float(ratio[place]), int(step[place]), errors)


def distance_bound(case: Case, measured: quadratic.Measured) -> np.ndarray:
    """float64[K], what the theorem allows."""
    return quadratic.distance_bound(
        PROBLEM,
        step=measured.step,
        first=measured.distance[0],
        alpha=case.alpha,
        num_nodes=case.num_nodes,
        synchronous=case.synchronous,
    )


def corrected_bound(case: Case, measured: quadratic.Measured) -> np.ndarray:
    """float64[K], what asynchronous gossip can be held to."""
    return quadratic.slower_distance_bound(
        PROBLEM, step=measured.step, first=measured.distance[0], alpha=case.alpha, num_nodes=case.num_nodes
    )


def consensus_bound(
    case: Case, measured: quadratic.Measured, *, printed: bool = False, mean_gradient: bool = False
) -> np.ndarray:
    """float64[K], what the theorem allows with one of the lambdas and one of the meanings of c."""
    return quadratic.consensus_bound(
        PROBLEM,
        step=measured.step,
        first=measured.consensus[0],
        alpha=case.alpha,
        num_nodes=case.num_nodes,
        gradient=measured.gradient_of_steps if mean_gradient else measured.gradient.max(),
        printed=printed,
    )


def margins(case: Case, measured: quadratic.Measured) -> dict[str, Margin]:
    """Of every bound that speaks of the case; on consensus the paper has none for rounds."""
    against_distance = {"distance": distance_bound(case, measured)}
    against_consensus = {}
    if case.mode == TICKS:
        against_distance["slower"] = corrected_bound(case, measured)
        against_consensus = {
            "consensus": consensus_bound(case, measured),
            "mean gradient": consensus_bound(case, measured, mean_gradient=True),
            "printed": consensus_bound(case, measured, printed=True),
        }
    return {
        name: smallest(measured.step, bound, measured.distance, measured.distance_error)
        for name, bound in against_distance.items()
    } | {
        name: smallest(measured.step, bound, measured.consensus, measured.consensus_error)
        for name, bound in against_consensus.items()
    }


def bound_row(case: Case, measured: quadratic.Measured) -> figure.Row:
    """A line of the first table."""
    found = margins(case, measured)
    return {
        "mode": case.mode,
        "p": case.num_nodes,
        "alpha": case.alpha,
        "nodes begin": case.start,
        "t": case.steps,
        "distance": str(found["distance"]),
        "distance, corrected": str(found.get("slower", "")),
        "consensus": str(found.get("consensus", "")),
        "consensus, c root mean square": str(found.get("mean gradient", "")),
        f"consensus, {PRINTED}": str(found.get("printed", "")),
    }


def bound_reading(cases: Sequence[Case], measured: dict[Case, quadratic.Measured]) -> list[str]:
    """What the first table says."""
    found = {case: margins(case, measured[case]) for case in cases}

    def tally(name: str, mode: str) -> str:
        ours = [found[case][name] for case in cases if case.mode == mode]
        return (
            f"fails in {sum(margin.fails for margin in ours)} of {len(ours)} cases (smallest "
            f"{min(margin.value for margin in ours):.3g})"
        )

    return [
        "distance: sum over nodes of |theta_i - theta*|^2; consensus: of |theta_i - mean|^2, with the proof's lambda "
        "and c^2 the largest value on the run of the mean over nodes of E |gradient|^2. Below 1 the measured mean is "
        f"above the bound; FAILS: by more than {ERRORS:g} standard errors.",
        f"The printed distance bound {tally('distance', ROUNDS)} in rounds, {tally('distance', TICKS)} in ticks, where "
        f"averaging takes half of a node's step back, and {tally('distance', AVERAGES_FIRST)} if nodes average first "
        f"and step in the same instant. The corrected one {tally('slower', TICKS)}.",
        f"The consensus bound with the proof's lambda {tally('consensus', TICKS)}; with c the root mean square over "
        f"the steps of the run, which the theorem does not promise, it {tally('mean gradient', TICKS)}; with the "
        f"printed lambda, 2 b^2 / p, it {tally('printed', TICKS)}: contraction.md.",
        f"Simulated means of ticks differ from their exact expectations by at most {_sampling(cases, measured):.1f} "
        "standard errors (second moments on a quadratic follow a linear recursion).",
    ]


def _sampling(cases: Sequence[Case], measured: dict[Case, quadratic.Measured]) -> float:
    """The largest difference between a mean and its expectation, in standard errors."""
    largest = 0.0
    for case in cases:
        if case.mode == TICKS:
            values = measured[case]
            exact = quadratic.expected(PROBLEM, start=case.first(), alpha=case.alpha, looks=values.step.tolist())
            for name in ("distance", "consensus"):
                error = getattr(values, f"{name}_error")
                difference = np.abs(getattr(values, name) - getattr(exact, name))[error > 1e-9]
                largest = max(largest, float((difference / error[error > 1e-9]).max(initial=0.0)))
    return largest


def contraction_row(case: Case, measured: quadratic.Measured) -> figure.Row:
    """A line of the second table."""
    found = margins(case, measured)
    exact = quadratic.expected(PROBLEM, start=case.first(), alpha=case.alpha, looks=measured.step.tolist())
    proved = smallest(measured.step, consensus_bound(case, measured), exact.consensus, measured.consensus_error)
    return {
        "p": case.num_nodes,
        "alpha": case.alpha,
        "nodes begin": case.start,
        "ticks": case.steps,
        "per tick, measured": f"{_rate(measured):.5f}" if case.fraction == 0 else "",
        PROVED: f"{quadratic.contraction(case.num_nodes, printed=False):.5f}",
        PRINTED: f"{quadratic.contraction(case.num_nodes, printed=True):.5f}",
        "proof's bound / measured": str(found["consensus"]),
        "/ expected": f"{proved.value:.3f}",
        "printed bound / measured": str(found["printed"]),
        "standard errors above": round(found["printed"].errors, 1),
    }


def _rate(measured: quadratic.Measured) -> float:
    """The factor per tick by which the mean disagreement falls over a run."""
    return float((measured.consensus[-1] / measured.consensus[0]) ** (1.0 / measured.step[-1]))


def contraction_reading(cases: Sequence[Case], measured: dict[Case, quadratic.Measured]) -> list[str]:
    """What the second table says."""
    found = [margins(case, measured[case]) for case in cases]
    counts = sorted({case.num_nodes for case in cases})
    exceeded = ", ".join(
        f"{ratio:.3f} (p = {p}, tick {tick})" for p in counts for ratio, tick in [strict_excess(p)] if ratio > 1
    )
    return [
        "Nodes begin scattered around the minimum (around), or all in it (minimum): noise alone drives them apart.",
        "Without gradients (alpha = 0) the proof's lambda is the expected contraction of a tick itself: its bound is "
        "an equality, and the measured ratio differs from 1 by sampling alone; / expected is without sampling.",
        f"The printed lambda fails in {sum(margin['printed'].fails for margin in found)} of {len(found)} cases: it "
        "promises 1 - 1 / p per tick where averaging gives about 1 - 1 / (2 p). From the minimum it holds, because "
        "averaging takes half of every step's noise back, which the bound does not use.",
        "With the proof's lambda the theorem is nearly, not quite, a bound either: its proof, too, takes averaging and "
        "gradient to be independent. On f = x^2 / 2 without noise, half of the nodes at 1 and half at -1, so that "
        "|gradient| <= c = 1 always, alpha = 0.05, the exact expectation exceeds it: times "
        f"{exceeded or 'at most 1'}.",
    ]


def strict_excess(num_nodes: int, alpha: float = 0.05) -> tuple[float, int]:
    """Expected disagreement over the bound with the proof's lambda, and when that is largest.

    The gradients of f(x) = x^2 / 2 at nodes that begin at 1 and -1 stay within c = 1: all of the theorem's assumptions
    hold, and nothing is sampled.
    """
    problem = quadratic.Quadratic(np.ones(1), variance=0.0)
    start = np.where(np.arange(num_nodes) % 2, -1.0, 1.0)[:, None]
    ticks = np.arange(12 * num_nodes)
    exact = quadratic.expected(problem, start=start, alpha=alpha, looks=ticks.tolist()).consensus
    bound = quadratic.consensus_bound(
        problem, step=ticks, first=exact[0], alpha=alpha, num_nodes=num_nodes, gradient=1.0
    )
    return float((exact / bound).max()), int((exact / bound).argmax())


def draw_bounds(cases: Sequence[Case], measured: dict[Case, quadratic.Measured]) -> Figure:
    """Above, curves with their bounds for the largest number of nodes; below, the margins of all cases."""
    shown = max(case.num_nodes for case in cases)
    kinds = ((TICKS, "distance"), (ROUNDS, "distance"), (TICKS, "consensus"))
    words = {"distance": r"$\sum_i |\theta_i - \theta_*|^2$", "consensus": r"$\sum_i |\theta_i - \bar\theta|^2$"}
    with mpl.rc_context(STYLE):
        drawing = mpl.figure.Figure(figsize=(14.5, 9.0))
        panels = drawing.subplots(2, 3)
        for column, (mode, what) in enumerate(kinds):
            ours = [case for case in cases if case.mode == mode]
            title = f"{what}, {'asynchronous' if mode == TICKS else 'in rounds'}"
            axes = panels[0, column]
            start = "together" if what == "distance" else "apart"
            _curves(axes, [c for c in ours if (c.num_nodes, c.start) == (shown, start)], measured, what)
            axes.set_xlabel(f"t, {mode}")
            axes.set_ylabel(f"mean of {words[what]}")
            axes.set_title(f"{title}: p = {shown}, nodes begin {start}")
            _margins(panels[1, column], ours, measured, what)
            panels[1, column].set_title(f"{title}: smallest margin")
        drawing.suptitle(
            "Pull gossip on a quadratic: measured means (solid), the bounds of Jin et al. 2016 (dashed; with the "
            "proof's lambda), the corrected bound (dotted)"
        )
    return drawing


def _curves(axes: Axes, cases: Sequence[Case], measured: dict[Case, quadratic.Measured], what: str) -> None:
    for case, colour in zip(cases, ("#2166ac", "#d95f02", "#1b7837"), strict=True):
        values = measured[case]
        bound = (distance_bound if what == "distance" else consensus_bound)(case, values)
        axes.plot(values.step, getattr(values, what), color=colour, label=rf"$\alpha$ = {case.alpha:.3g}")
        axes.plot(values.step, bound, color=colour, linestyle="--")
        if what == "distance" and case.mode == TICKS:
            axes.plot(values.step, corrected_bound(case, values), color=colour, linestyle=":")
    axes.set_yscale("log")
    axes.set_xscale("symlog", linthresh=1)
    axes.set_xlim(left=0)
    axes.legend()


def _margins(axes: Axes, cases: Sequence[Case], measured: dict[Case, quadratic.Measured], what: str) -> None:
    for count, start in dict.fromkeys((case.num_nodes, case.start) for case in cases):
        ours = sorted((c for c in cases if (c.num_nodes, c.start) == (count, start)), key=lambda case: case.alpha)
        line, marker = {"together": ("-", "o"), "apart": (":", "s")}[start]
        axes.plot(
            [case.alpha for case in ours],
            [margins(case, measured[case])[what].value for case in ours],
            color=COLOURS.get(count, "#7a7a7a"),
            linestyle=line,
            marker=marker,
            markersize=5,
            label=f"p = {count}, {start}",
        )
    axes.axhline(1.0, color="black", linewidth=1)
    axes.set_xscale("log")
    steps = sorted({case.alpha for case in cases})
    axes.set_xticks(steps, [f"{alpha:.3g}" for alpha in steps])
    axes.minorticks_off()
    axes.set_xlabel(r"step size $\alpha$")
    axes.set_ylabel("bound / measured; below 1 it fails")
    if what == "consensus":
        axes.set_yscale("log")
        axes.set_ylim(0.8, 100)
        axes.set_yticks([1, 2, 5, 10, 20, 50], ["1", "2", "5", "10", "20", "50"])
    else:
        axes.set_ylim(0.5, 1.1)
    axes.legend(loc="upper left" if what == "consensus" else "lower right")


def draw_contraction(cases: Sequence[Case], measured: dict[Case, quadratic.Measured]) -> Figure:
    """A column for each number of nodes; a row for each kind of case."""
    counts = sorted({case.num_nodes for case in cases})
    titles = {
        (False, "around"): "averaging only, nodes begin apart",
        (True, "around"): "small steps, nodes begin apart",
        (True, "minimum"): "small steps, nodes begin together",
    }
    with mpl.rc_context(STYLE):
        drawing = mpl.figure.Figure(figsize=(4.2 * len(counts), 8.6))
        panels = drawing.subplots(3, len(counts), squeeze=False)
        for axes, case in _placed(panels, cases, counts, list(titles)):
            values, ticks = measured[case], measured[case].step / case.num_nodes
            axes.plot(ticks, values.consensus, color="#2166ac", label="measured")
            low, high = (values.consensus + sign * 2 * values.consensus_error for sign in (-1, 1))
            axes.fill_between(ticks, low, high, color="#2166ac", alpha=0.25, linewidth=0)
            axes.plot(
                ticks, consensus_bound(case, values), color="black", linestyle="--", label="bound, proof's lambda"
            )
            bound = consensus_bound(case, values, printed=True)
            axes.plot(ticks, bound, color="#c51b1b", linestyle="-.", label="bound, printed lambda")
            axes.set_yscale("linear" if case.start == "minimum" else "log")
            axes.set_title(f"p = {case.num_nodes}: {titles[case.fraction > 0, case.start]}")
            axes.set_xlabel("ticks per node")
            if case.num_nodes == counts[0]:
                axes.set_ylabel(r"mean of $\sum_i |\theta_i - \bar\theta|^2$")
            if case.start == "minimum":
                axes.set_ylim(bottom=0)
                axes.ticklabel_format(axis="y", scilimits=(0, 0))
        panels[0, 0].legend()
        drawing.suptitle(
            "Disagreement: the printed lambda promises more than averaging does (bands: 2 standard errors)"
        )
    return drawing


def _placed(
    panels: np.ndarray, cases: Sequence[Case], counts: Sequence[int], kinds: Sequence[tuple[bool, str]]
) -> Iterator[tuple[Axes, Case]]:
    for case in cases:
        yield panels[kinds.index((case.fraction > 0, case.start)), counts.index(case.num_nodes)], case


if __name__ == "__main__":
    flags.DEFINE_integer("seeds", 1000, "How many runs each mean is over, with a schedule and noise of their own.")
    flags.DEFINE_list("num_nodes", ["4", "16", "64"], "Numbers of nodes, separated by commas.")
    launch.run(main, __doc__, configured=False)
