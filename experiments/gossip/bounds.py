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

Expected: the bounds on the distance hold everywhere, with 1.01 to 3 times the measured value; the bound on consensus
holds with the lambda of the proof, 1 - 2 b (1 - b) / p - 2 b^2 / p^2. With the printed one, 2 b^2 / p at the end, it
fails: where nodes begin apart and steps are small, disagreement after 6 p ticks is 4 to 18 times what it allows.
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


@dataclasses.dataclass(frozen=True)
class Case:
    """One setting, of which `runs` runs are averaged.

    Attributes:
      synchronous: in rounds.
      num_nodes: p.
      fraction: alpha, of the largest step.
      start: "together", all nodes at one point away from the minimum; "apart", scattered around that point; "around",
        scattered around the minimum; "minimum", all there.
      steps: ticks or rounds.
      runs: seeds.
    """

    synchronous: bool
    num_nodes: int
    fraction: float
    start: str
    steps: int
    runs: int

    @property
    def name(self) -> str:
        """The name of its file."""
        mode = "rounds" if self.synchronous else "ticks"
        return f"{mode}{self.steps}-p{self.num_nodes}-alpha{self.fraction:g}-{self.start}-seeds{self.runs}"

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
    """Where both bounds are tested."""
    rounds = {fraction: math.ceil(DECAYS / (2 * fraction * PROBLEM.largest_step * PROBLEM.harmonic)) for fraction in
              FRACTIONS}  # fmt: skip
    return [
        Case(synchronous, p, fraction, start, rounds[fraction] * (1 if synchronous else p), runs)
        for synchronous in (False, True)
        for p in num_nodes
        for fraction in FRACTIONS
        for start in ("together", "apart")
    ]


def contraction_cases(num_nodes: Sequence[int], runs: int) -> list[Case]:
    """Where steps are so small, or left out, that the contraction by averaging itself shows."""
    settings = ((0.0, "around", 6), (SMALL, "around", 6), (SMALL, "minimum", 40))
    return [Case(False, p, fraction, start, ticks * p, runs) for fraction, start, ticks in settings for p in num_nodes]


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
    """Bound over measured value where that is smallest."""

    value: float
    place: int
    step: int

    def __str__(self) -> str:
        return f"{self.value:.3g} @ {self.step}"


def smallest(step: np.ndarray, bound: np.ndarray, measured: np.ndarray) -> Margin:
    """Looks at which the measured value is 0 say nothing."""
    with np.errstate(divide="ignore"):
        ratio = np.where(measured > 0, bound / np.where(measured > 0, measured, 1.0), np.inf)
    place = int(ratio.argmin())
    return Margin(float(ratio[place]), place, int(step[place]))


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
    """Of every bound that speaks of the case; the theorem on rounds says nothing on consensus."""
    found = {"distance": smallest(measured.step, distance_bound(case, measured), measured.distance)}
    if not case.synchronous:
        for name, arguments in {
            "consensus": {},
            "consensus, c the mean": {"mean_gradient": True},
            "consensus, printed": {"printed": True},
        }.items():
            bound = consensus_bound(case, measured, **arguments)
            found[name] = smallest(measured.step, bound, measured.consensus)
    return found


def bound_row(case: Case, measured: quadratic.Measured) -> figure.Row:
    """A line of the first table."""
    found = margins(case, measured)
    promised = [found[name].value >= 1 for name in ("distance", "consensus") if name in found]
    return {
        "mode": "rounds" if case.synchronous else "ticks",
        "p": case.num_nodes,
        "alpha": case.alpha,
        "nodes begin": case.start,
        "t": case.steps,
        "distance": str(found["distance"]),
        "consensus": str(found.get("consensus", "")),
        "holds": "yes" if all(promised) else "NO",
        "c root mean square": str(found.get("consensus, c the mean", "")),
        PRINTED: str(found.get("consensus, printed", "")),
    }


def bound_reading(cases: Sequence[Case], measured: dict[Case, quadratic.Measured]) -> list[str]:
    """What the first table says."""
    found = {case: margins(case, measured[case]) for case in cases}
    tightest = lambda name: min(found.values(), key=lambda m: m[name].value if name in m else math.inf)[name].value
    broken = [case for case in cases if any(found[case][n].value < 1 for n in ("distance", "consensus") if n in
              found[case])]  # fmt: skip
    by_mean = [case for case in cases if not case.synchronous and found[case]["consensus, c the mean"].value < 1]
    asynchronous = sum(not case.synchronous for case in cases)
    return [
        "distance: sum over nodes of |theta_i - theta*|^2; consensus: of |theta_i - mean|^2, with the proof's lambda "
        "and c^2 the largest value on the run of the mean over nodes of E |gradient|^2 (a 1 would be an equality).",
        f"The promised bounds hold in {len(cases) - len(broken)} of {len(cases)} cases; the tightest allows "
        f"{tightest('distance'):.3g} times the measured distance and {tightest('consensus'):.3g} times the measured "
        "disagreement.",
        "c root mean square: the same with c^2 the mean over all steps of the run, which the theorem does not promise; "
        f"it fails in {len(by_mean)} of {asynchronous} cases, at the first ticks of runs that begin far away.",
        f"{PRINTED}: with 2 b^2 / p, which large gradients can hide here; contraction.md shows where it fails.",
        "A theorem on rounds is only given for the distance.",
    ]


def contraction_row(case: Case, measured: quadratic.Measured) -> figure.Row:
    """A line of the second table."""
    proved = smallest(measured.step, consensus_bound(case, measured), measured.consensus)
    bound = consensus_bound(case, measured, printed=True)
    worst = smallest(measured.step, bound, measured.consensus)
    excess = measured.consensus[worst.place] - bound[worst.place]
    rate = _rate(measured) if case.fraction == 0 else math.nan
    return {
        "p": case.num_nodes,
        "alpha": case.alpha,
        "nodes begin": case.start,
        "ticks": case.steps,
        "per tick, measured": f"{rate:.5f}" if case.fraction == 0 else "",
        PROVED: f"{quadratic.contraction(case.num_nodes, printed=False):.5f}",
        PRINTED: f"{quadratic.contraction(case.num_nodes, printed=True):.5f}",
        "bound / measured": str(proved),
        "printed / measured": str(worst),
        "standard errors above": round(float(excess / measured.consensus_error[worst.place]), 1)
        if measured.consensus_error[worst.place] > 0
        else 0.0,
        "printed": "FAILS" if worst.value < 1 else "holds",
    }


def _rate(measured: quadratic.Measured) -> float:
    """The factor per tick by which the mean disagreement falls over a run."""
    return float((measured.consensus[-1] / measured.consensus[0]) ** (1.0 / measured.step[-1]))


def contraction_reading(cases: Sequence[Case], measured: dict[Case, quadratic.Measured]) -> list[str]:
    """What the second table says."""
    broken = sum(
        smallest(
            measured[case].step, consensus_bound(case, measured[case], printed=True), measured[case].consensus
        ).value
        < 1
        for case in cases
    )
    return [
        "Without gradients (alpha = 0) the proof's lambda is the expected contraction of a tick itself, so that its "
        "bound is an equality and the measured ratio differs from 1 by sampling alone.",
        f"The printed lambda, 1 - 2 b (1 - b) / p - 2 b^2 / p, fails in {broken} of {len(cases)} cases: from "
        "disagreement because it promises 1 - 1 / p per tick where averaging gives about 1 - 1 / (2 p), and even from "
        "the minimum, with all nodes together, because the disagreement that noise keeps up is larger by nearly 2.",
        "standard errors above: how far the measured mean is above the printed bound, in its own standard errors.",
    ]


def draw_bounds(cases: Sequence[Case], measured: dict[Case, quadratic.Measured]) -> Figure:
    """Curves with their bounds for one number of nodes, and the margins of all cases."""
    counts = sorted({case.num_nodes for case in cases})
    shown = counts[len(counts) // 2]
    with mpl.rc_context(STYLE):
        drawing = mpl.figure.Figure(figsize=(13.2, 8.0))
        panels = drawing.subplots(2, 3)
        for axes, synchronous, what in ((panels[0, 0], False, "distance"), (panels[0, 1], True, "distance"),
                                        (panels[0, 2], False, "consensus")):  # fmt: skip
            ours = [c for c in cases if c.num_nodes == shown and c.synchronous == synchronous and c.start == "apart"]
            _curves(axes, ours, measured, what)
            unit = "rounds" if synchronous else "ticks"
            axes.set_xlabel(f"t, {unit}")
            words = {
                "distance": r"$\sum_i |\theta_i - \theta_*|^2$",
                "consensus": r"$\sum_i |\theta_i - \bar\theta|^2$",
            }
            axes.set_ylabel(f"mean of {words[what]}")
            axes.set_title(f"{'Rounds' if synchronous else 'Asynchronous'}: {what}, p = {shown}, nodes begin apart")
        for axes, synchronous, what in ((panels[1, 0], False, "distance"), (panels[1, 1], True, "distance"),
                                        (panels[1, 2], False, "consensus")):  # fmt: skip
            _margins(axes, [case for case in cases if case.synchronous == synchronous], measured, what)
            axes.set_title(f"{'Rounds' if synchronous else 'Asynchronous'}: smallest margin, {what}")
        drawing.suptitle("Pull gossip on a quadratic: measured means and the bounds of Jin et al. 2016")
    return drawing


def _curves(axes: Axes, cases: Sequence[Case], measured: dict[Case, quadratic.Measured], what: str) -> None:
    for case, colour in zip(cases, ("#2166ac", "#d95f02", "#1b7837"), strict=True):
        values = measured[case]
        bound = (distance_bound if what == "distance" else consensus_bound)(case, values)
        axes.plot(values.step, getattr(values, what), color=colour, label=rf"$\alpha$ = {case.alpha:.3g}, measured")
        axes.plot(values.step, bound, color=colour, linestyle="--", label=rf"$\alpha$ = {case.alpha:.3g}, bound")
    axes.set_yscale("log")
    axes.set_xscale("symlog", linthresh=1)
    axes.set_xlim(left=0)
    axes.legend()


def _margins(axes: Axes, cases: Sequence[Case], measured: dict[Case, quadratic.Measured], what: str) -> None:
    for count, start in dict.fromkeys((case.num_nodes, case.start) for case in cases):
        ours = sorted((c for c in cases if (c.num_nodes, c.start) == (count, start)), key=lambda case: case.alpha)
        style = {"together": ("-", "o"), "apart": (":", "s")}[start]
        axes.plot(
            [case.alpha for case in ours],
            [margins(case, measured[case])[what].value for case in ours],
            color=COLOURS.get(count, "#7a7a7a"),
            linestyle=style[0],
            marker=style[1],
            markersize=5,
            label=f"p = {count}, begin {start}",
        )
    axes.axhline(1.0, color="black", linewidth=1)
    axes.set_xscale("log")
    if what == "consensus":
        axes.set_yscale("log")
    axes.set_xlabel(r"step size $\alpha$")
    axes.set_ylabel("bound / measured (holds above 1)")
    axes.legend()


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
            axes.set_ylabel(r"mean of $\sum_i |\theta_i - \bar\theta|^2$")
            if case.start == "minimum":
                axes.set_ylim(bottom=0)
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
