"""Compares all-reduce, elastic averaging and gossip by time and by epochs: a small version of Jin et al.'s experiment.

    python -m experiments.gossip.comparison --workdir=runs/gossip

Writes comparison.md, .csv, .png and .svg to comparison/ in the work directory, and one metrics file for each run; a
command that was killed continues where it stopped. Takes about three minutes on one core: p = 8 and 16 nodes, seven
methods, three seeds. --heterogeneous does the same on machines of unequal speed, in a directory of its own.

As in the paper the aggregate minibatch is fixed, so that an iteration of all nodes uses the same number of examples for
every p. Nesterov momentum is 0.9; the learning rate begins at 0.1 and is multiplied by 0.1 after each of the first two
thirds of the run; there is no warm-up; beta = 0.8 / p. Differences: the aggregate minibatch is 128 (16 examples per
node at p = 8, 8 at p = 16) instead of 256; UCI digits and a small conv net replace ImageNet and ResNet-18; the rate is
annealed after about 220 and 440 iterations (set by --epochs) instead of 150,000 and 300,000; run-times are
gamma-distributed (10 % scatter, with a mean in virtual seconds equal to the number of examples of a node's batch) and
communication takes no time, so all-reduce waits for stragglers but never for messages.

Learning rates: the paper's 0.1 is the rate of a node's own step, and of all-reduce's step along the averaged gradient:
`rate.of = "update"`.

Results: at p = 8 all methods end between 96.9 and 97.2 % test accuracy; at p = 16 elastic averaging with period 10 ends
at 94 %, and all others within a point of 97 %. Unlike in the paper, elastic averaging with period 10 is last for both
p, and all-reduce is the first to reach a low training loss, although its nodes wait for 13 to 16 % of the time; gossip
that averages before every gradient is as fast to a low test loss. The sentences below the table compare the paper's
statements with the results.
"""

import dataclasses
import functools
import itertools
import time
from collections.abc import Callable, Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from absl import flags
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from ml_collections import ConfigDict

from configs import digits
from experiments import figure
from experiments.gossip import store
from sgdlab.commands import launch
from sgdlab.errors import UsageError
from sgdlab.jobs import train
from sgdlab.jobs.methods import methods
from sgdlab.jobs.plan import make_plan
from sgdlab.results.directory import RunDirectory
from sgdlab.results.plots import STYLE
from sgdlab.results.summary import spread

DEFAULT_WORKDIR = "runs/gossip"
AGGREGATE = 128
"""Examples of one iteration of all nodes."""
RATE = 0.1
TARGETS = {"test_loss": 0.15, "train_loss": 0.05}
"""Losses that are reached at the first learning rate, or soon after; the times to reach them measure speed."""
METHODS_AND_PERIODS = (
    ("all_reduce", 1),
    ("elastic_averaging", 1),
    ("elastic_averaging", 10),
    ("push_gossip", 1),
    ("push_gossip", 10),
    ("pull_gossip", 1),
    ("pull_gossip", 10),
)
COLOURS = {
    "all_reduce": "black",
    "elastic_averaging": "#d95f02",
    "push_gossip": "#2166ac",
    "pull_gossip": "#1b7837",
}


@dataclasses.dataclass(frozen=True)
class Setting:
    """A method, its period and a number of nodes: one row of the table.

    Attributes:
      method: name of the method.
      period: number of gradients of a node from one averaging to the next.
      num_nodes: p.
    """

    method: str
    period: int
    num_nodes: int

    @property
    def title(self) -> str:
        """The title of the method and its period."""
        return methods()[self.method].title + ("" if self.method == "all_reduce" else f", period {self.period}")

    def name(self, seed: int) -> str:
        """The name of the metrics file of one run."""
        return f"{self.method}-period{self.period}-p{self.num_nodes}-seed{seed}"

    def configured(self, shared: ConfigDict, seed: int) -> ConfigDict:
        """The configuration of one run."""
        config = shared.copy_and_resolve_references()
        config.method, config.seed = self.method, seed
        config.cluster.num_workers, config.batch_size = self.num_nodes, AGGREGATE // self.num_nodes
        config.protocol.gossip.period = config.protocol.elastic_averaging.period = self.period
        return config


def shared_config(epochs: float, *, heterogeneous: bool) -> ConfigDict:
    """The configuration that all runs share."""
    config = digits.get_config()
    config.epochs, config.evaluations = epochs, 36
    config.network.conv.channels = (8, 16)
    config.cluster.gamma.heterogeneous = heterogeneous
    config.optimizer.learning_rate, config.optimizer.momentum, config.optimizer.weight_decay = RATE, 0.9, 1e-4
    config.rate.of, config.rate.warmup_epochs, config.rate.decay, config.rate.factor = "update", 0.0, "step", 0.1
    config.rate.steps = (epochs / 3, 2 * epochs / 3)
    return config


def settings(num_nodes: Sequence[int]) -> list[Setting]:
    """The settings of all rows of the table."""
    return [Setting(method, period, p) for p in num_nodes for method, period in METHODS_AND_PERIODS]


def main(argv: Sequence[str]) -> None:
    """Trains the missing runs, then writes the table and the figure."""
    del argv
    seeds, num_nodes = store.whole("seeds", flags.FLAGS.seeds), store.node_counts(flags.FLAGS.num_nodes)
    epochs, heterogeneous = flags.FLAGS.epochs, flags.FLAGS.heterogeneous
    if not 1 <= epochs < float("inf"):
        raise UsageError(f"--epochs={epochs} must be a finite number of at least 1")
    for p in num_nodes:
        if AGGREGATE % p:
            raise UsageError(f"--num_nodes={p} must divide the aggregate minibatch of {AGGREGATE}")
    path = figure.directory(DEFAULT_WORKDIR) / ("comparison" + "-heterogeneous" * heterogeneous)
    config = shared_config(epochs, heterogeneous=heterogeneous)
    directory = store.finished_parts(path, {"aggregate": AGGREGATE, "rate": RATE, **config.to_dict()})
    lines = settings(num_nodes)
    train_all(config, lines, seeds, directory)
    runs = {line: [directory.read(line.name(seed)) for seed in range(seeds)] for line in lines}
    machines = "machines of unequal speed" if heterogeneous else "equal machines with stragglers"
    figure.publish(
        path,
        "comparison",
        [row(line, runs[line]) for line in lines],
        title=f"Peers on UCI digits, aggregate minibatch {AGGREGATE}, {epochs:g} epochs, {machines}, {seeds} seeds",
        reading=reading(runs),
        figure=draw(runs, machines),
    )


def train_all(config: ConfigDict, lines: Sequence[Setting], seeds: int, directory: RunDirectory) -> None:
    """Trains the runs that have not finished yet, one after the other; those of a setting share a compiled program."""
    missing = {line: [s for s in range(seeds) if directory.read(line.name(s)) is None] for line in lines}
    total = sum(map(len, missing.values()))
    if total < len(lines) * seeds:
        print(f"{len(lines) * seeds - total} finished runs found, {total} to do", flush=True)
    done, begun = 0, time.monotonic()
    for line, wanted in missing.items():
        plans = [make_plan(line.configured(config, seed)) for seed in wanted]
        capacity = functools.reduce(lambda a, b: a | b, (plan.program.capacity for plan in plans)) if plans else None
        for seed, plan in zip(wanted, plans, strict=True):
            directory.write(line.name(seed), records(train.train(plan, capacity=capacity)))
            done += 1
            left = (time.monotonic() - begun) / done * (total - done)
            print(f"[{done}/{total}] {line.title}, {line.num_nodes} nodes, seed {seed}: {left:.0f} s to go", flush=True)


def records(run: train.Run) -> list[dict[str, Any]]:
    """The records of a run; evaluations also have the mean accuracy of nodes and that of the center, or None."""
    first, *evaluations, summary = run.records
    accuracies = [
        {"mean_node_accuracy": values.get("node_mean_accuracy"), "center_accuracy": values.get("center_accuracy")}
        for values in run.result.history.evaluations
    ]
    extended = [record | added for record, added in zip(evaluations, accuracies, strict=True)]
    return [first, *extended, summary | accuracies[-1]]


def row(line: Setting, runs: Sequence[list[dict[str, Any]]]) -> figure.Row:
    """A row of the table: means and standard deviations over seeds."""
    last = [records[-1] for records in runs]
    percent = lambda name: _words([summary[name] for summary in last], "{:.1f}", scale=100)
    reached = lambda loss: _words([seconds_to(records, loss) for records in runs], "{:.0f}")
    return {
        "p": line.num_nodes,
        "method": line.title,
        "idle, %": _words([summary["idle_share"] for summary in last], "{:.1f}", scale=100),
        f"s to test loss {TARGETS['test_loss']}": reached("test_loss"),
        f"s to training loss {TARGETS['train_loss']}": reached("train_loss"),
        "s in all": _words([summary["seconds"] for summary in last], "{:.0f}"),
        "loss, rate 0.1": _words([before_annealing(records)["test_loss"] for records in runs], "{:.3f}"),
        "loss, end": _words([summary["test_loss"] for summary in last], "{:.3f}"),
        "training loss, end": _words([summary["train_loss"] for summary in last], "{:.4f}"),
        "average, %": percent("test_accuracy"),
        "mean node, %": percent("mean_node_accuracy"),
        "worst node, %": percent("worst_accuracy"),
        "center, %": percent("center_accuracy"),
        "consensus": _words([summary["consensus"] for summary in last], "{:.2g}"),
        "diverged": sum(summary["diverged"] for summary in last),
    }


def _words(values: Sequence[float | None], form: str, *, scale: float = 1.0) -> str:
    """Mean and standard deviation as text; empty if a run has no value."""
    over_seeds = spread(None if value is None else scale * value for value in values)
    if over_seeds is None:
        return ""
    return form.format(over_seeds.mean) + (f" ± {form.format(over_seeds.std)}" if len(values) > 1 else "")


def seconds_to(records: Sequence[dict[str, Any]], loss: str) -> float | None:
    """Seconds until a loss first reached its target, interpolated between evaluations; None if it never did."""
    evaluations, target = [record for record in records[1:-1] if record[loss] is not None], TARGETS[loss]
    for before, after in itertools.pairwise(evaluations):
        if after[loss] <= target:
            share = (before[loss] - target) / (before[loss] - after[loss]) if before[loss] > target else 0.0
            return before["seconds"] + share * (after["seconds"] - before["seconds"])
    return None


def before_annealing(records: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The last evaluation at the first learning rate."""
    first = records[0]["config"]["rate"]["steps"][0]
    return [record for record in records[1:-1] if record["epoch"] <= first * (1 + 1e-9)][-1]


def reading(runs: dict[Setting, list[list[dict[str, Any]]]]) -> list[str]:
    """Sentences for the table; for the paper's numbers of nodes, with the paper's statements."""
    sentences = [
        "Losses and accuracies are those of the nodes' average on the test set. The training loss is that of the nodes "
        "between two evaluations, and at the end that of their average. ± is one standard deviation over seeds; the "
        "seconds also vary because the speeds of the machines are drawn for each seed, the same for all methods. A "
        "cell is empty if a target is not reached in all seeds, or if a method has no such value (all nodes of "
        "all-reduce are the same). Consensus is sqrt(mean over nodes of |theta_i - mean|^2).",
    ]
    for p in sorted({line.num_nodes for line in runs}):
        of_p = {(line.method, line.period): seeds for line, seeds in runs.items() if line.num_nodes == p}
        if p in PAPER and len(of_p) == len(METHODS_AND_PERIODS):
            claims = PAPER[p](_Times.of(of_p))
            sentences += [f"p = {p}: the paper: {claim} Here: {result}" for claim, result in claims]
    return [
        *sentences,
        "Possible reasons for the differences: each averaging moves a node towards the center by the share "
        "beta = 0.8 / p, so with period 10 it takes 12.5 p of a node's steps to come close to it, 100 at p = 8 and 200 "
        "at p = 16. An epoch has 11 steps here, and the paper anneals only after 150,000. Communication takes no time "
        "here, and on equal machines run-times scatter by 10 %, so waiting costs all-reduce little. An asynchronous "
        "node that averages with another node's older parameters undoes up to half of its last step (bounds.py), and "
        "all-reduce does not.",
    ]


@dataclasses.dataclass(frozen=True)
class _Times:
    """Means over seeds by (method, period); infinite if a target is not reached in all seeds.

    Attributes:
      test: seconds to the target of the test loss.
      train: seconds to the target of the training loss.
      end: test loss at the end.
    """

    test: dict[tuple[str, int], float]
    train: dict[tuple[str, int], float]
    end: dict[tuple[str, int], float]

    @classmethod
    def of(cls, runs: dict[tuple[str, int], list[list[dict[str, Any]]]]) -> "_Times":
        """The means of the records of all seeds."""
        times = {
            loss: {key: _mean([seconds_to(records, loss) for records in seeds]) for key, seeds in runs.items()}
            for loss in TARGETS
        }
        end = {key: _mean([records[-1]["test_loss"] for records in seeds]) for key, seeds in runs.items()}
        return cls(times["test_loss"], times["train_loss"], end)

    def to_both(self, method: str, period: int) -> str:
        """The seconds to both targets as text."""
        words = [f"{value:.0f}" if np.isfinite(value) else "never" for value in
                 (self.test[method, period], self.train[method, period])]  # fmt: skip
        return " and ".join(words)

    def ahead(self, method: tuple[str, int], other: tuple[str, int]) -> str:
        """Whether one method reaches the targets before another, as text."""
        by_test, by_train = self.test[method] < self.test[other], self.train[method] < self.train[other]
        verdict = "yes" if by_test and by_train else "for one of the two losses" if by_test or by_train else "no"
        return f"{verdict} ({self.to_both(*method)} s against {self.to_both(*other)} s to the test and training loss)"


_ELASTIC, _PUSH, _REDUCE = ("elastic_averaging", 10), ("push_gossip", 1), ("all_reduce", 1)


def _at_8(times: _Times) -> list[tuple[str, str]]:
    """The paper's statements about 8 nodes, and the results."""
    others = [key for key in times.test if key != _ELASTIC]
    first = min(others, key=lambda key: times.test[key])
    low, high = min(times.end.values()), max(times.end.values())
    return [
        ("elastic averaging with period 10 is ahead of the others.", times.ahead(_ELASTIC, first) + "."),
        ("all-reduce is as fast as gossip.", f"ahead of push gossip with period 1: {times.ahead(_REDUCE, _PUSH)}."),
        ("all converge to roughly the same loss.", f"test losses end from {low:.3f} to {high:.3f}."),
    ]


def _at_16(times: _Times) -> list[tuple[str, str]]:
    """The paper's statements about 16 nodes, and the results."""
    rest = [value for key, value in times.end.items() if key[0] != "elastic_averaging"]
    elastic = ", ".join(f"{times.end['elastic_averaging', period]:.3f} (period {period})" for period in (1, 10))
    return [
        ("gossip is faster than elastic averaging with period 10.", times.ahead(_PUSH, _ELASTIC) + "."),
        ("gossip is ahead of all-reduce.", times.ahead(_PUSH, _REDUCE) + "."),
        ("elastic averaging with period 10 is ahead of all-reduce.", times.ahead(_ELASTIC, _REDUCE) + "."),
        (
            "elastic averaging, with either period, does not reach the loss of the others after the rate is annealed.",
            f"it ends at {elastic}; the others end from {min(rest):.3f} to {max(rest):.3f}.",
        ),
    ]


PAPER: dict[int, Callable[[_Times], list[tuple[str, str]]]] = {8: _at_8, 16: _at_16}
"""Number of nodes -> function to pairs of a statement of the paper and the result."""


def _mean(values: Sequence[float | None]) -> float:
    over_seeds = spread(values)
    return over_seeds.mean if over_seeds else np.inf


def draw(runs: dict[Setting, list[list[dict[str, Any]]]], machines: str) -> Figure:
    """Draws losses by time and by epochs, and consensus; a row of panels for each number of nodes."""
    counts = sorted({line.num_nodes for line in runs})
    with mpl.rc_context(STYLE):
        drawing = mpl.figure.Figure(figsize=(19.5, 4.2 * len(counts) + 0.7))
        panels = drawing.subplots(len(counts), 5, squeeze=False)
        for panels_of_p, p in zip(panels, counts, strict=True):
            of_p = {line: seeds for line, seeds in runs.items() if line.num_nodes == p}
            for axes, x, y in zip(
                panels_of_p,
                ("seconds", "epoch", "seconds", "epoch", "seconds"),
                ("test_loss", "test_loss", "train_loss", "train_loss", "consensus"),
                strict=True,
            ):
                _panel(axes, of_p, x, y)
                axes.set_title(f"p = {p}")
        handles, labels = panels[0, 0].get_legend_handles_labels()
        drawing.legend(handles, labels, loc="outside lower center", ncols=len(labels))
        drawing.suptitle(
            f"Peers on UCI digits, {machines}: means over seeds, bands of one standard deviation; "
            "the rate is annealed at the dotted lines"
        )
    return drawing


def _panel(axes: Axes, runs: dict[Setting, list[list[dict[str, Any]]]], x: str, y: str) -> None:
    names = {
        "seconds": "virtual time, s",
        "epoch": "epoch",
        "test_loss": "test loss of the nodes' average",
        "train_loss": "training loss at the nodes",
        "consensus": "consensus distance",
    }
    for line, seeds in runs.items():
        across, mean, deviation = curve(seeds, x, y)
        if not across.size:
            continue
        colour, style = COLOURS[line.method], "--" if line.period > 1 else "-"
        axes.plot(across, mean, color=colour, linestyle=style, label=line.title)
        low = np.maximum(mean - deviation, mean / 10)  # a logarithmic axis has no zero
        axes.fill_between(across, low, mean + deviation, color=colour, alpha=0.12, linewidth=0)
    rate = next(iter(runs.values()))[0][0]["config"]["rate"]
    if x == "epoch":
        for epoch in rate["steps"]:
            axes.axvline(epoch, color="#7a7a7a", linestyle=":", linewidth=1)
    axes.set_yscale("log")
    axes.locator_params(axis="x", nbins=5)
    axes.set_xlabel(names[x])
    axes.set_ylabel(names[y])


def curve(runs: Sequence[list[dict[str, Any]]], x: str, y: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean over seeds of x, and mean and standard deviation of y, for each evaluation at which all seeds have both."""
    columns = []
    for of_seeds in zip(*(records[1:-1] for records in runs), strict=True):
        across, up = (spread(record[name] for record in of_seeds) for name in (x, y))
        defined = of_seeds[0]["gradients"] > 0 or y != "consensus"  # before the first gradient all nodes are equal
        if across is not None and up is not None and defined:
            columns.append((across.mean, up.mean, up.std))
    return tuple(np.array(columns).reshape(-1, 3).T)


if __name__ == "__main__":
    flags.DEFINE_integer("seeds", 3, "Number of seeds: 0, 1, ...")
    flags.DEFINE_list("num_nodes", ["8", "16"], "Numbers of nodes, separated by commas; divisors of 128.")
    flags.DEFINE_float("epochs", 60.0, "Epochs of each run, counting used gradients.")
    flags.DEFINE_bool("heterogeneous", False, "Draws machines of unequal speed.")
    launch.run(main, __doc__, configured=False)
