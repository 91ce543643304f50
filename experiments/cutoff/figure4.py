"""Reproduces Figure 4 of Teng and Wood 2018: validation loss against time of Cutoff, synchronous and asynchronous SGD.

    python -m experiments.cutoff.figure4 --workdir=runs/cutoff

Writes figure4.md, .csv, .png and .svg, and the runs in figure4/. Takes about two minutes on two cores, and a minute
more if runs/cutoff/two_state does not have the trained model of throughput or another figure yet; a command that was
killed continues where it stopped.

Four methods train a small conv net on the digits, on 158 workers whose run-times have the regimes of
configs/cutoff.py:two_state (`sgdlab.cluster.regimes`; for each seed the same for all methods, and none of the model's
training run):

* cutoff: every update waits for as many workers as the deep Markov model predicts, the first 20 updates for all;
* sync: every update waits for all;
* order: the cutoff by Elfving's formula with the moments of the last 20 iterations, as if workers were independent;
* wild: no worker waits, and every gradient is an update.

As in the paper: plain SGD with a constant rate, no momentum and no weight decay, batches drawn with replacement and
split over the workers, and one rate alpha for all methods: an update of c gradients is theta - alpha (1/c) sum f, and
wild has the rate alpha / 158. The paper's update has 10112 examples, 64 per worker, 17 % of MNIST; here it has 316, 2
per worker, 22 % of the 1437 digits. alpha is the value of --rates with the lowest final loss of full synchrony with the
first 3 seeds. Because single evaluations of the validation loss fluctuate, the final loss is the mean of the last tenth
of them.

The configurations set `rate.of = "update"`, so `optimizer.learning_rate` is the rate of an update: alpha, and
alpha / 158 for wild. The table shows the rates of the updates.

All runs use the same number of gradients, 158 times --updates, so methods end at different times, as in the paper's
figure ("finishes faster than all other synchronous-family methods too"). Methods that use fewer gradients per update
make more updates. The validation loss is that of the 360 test images; there is no other held-out set, and the rate is
chosen on it too.

Results: cutoff uses 97 gradients per second, order 93, sync 77 and wild 151. Cutoff reaches a loss of 0.15 after 137 s,
54 s before sync and 40 s after wild; order takes 4 s more than cutoff, which is within its confidence interval of 6 s.
Unlike in the paper all four methods end at the same loss, 0.114, within confidence intervals of 0.002, and 0.005 for
wild: after 66 epochs the loss hardly falls any more, and the staleness of wild, 157 updates, does no harm because each
of its updates is so small.
"""

import dataclasses
import math
import pathlib
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import matplotlib as mpl
import numpy as np
from absl import flags
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from ml_collections import ConfigDict

from configs import cutoff as configurations
from configs import digits
from experiments import figure
from experiments.backup_workers import options
from experiments.cutoff import figure2, models
from experiments.cutoff.throughput import Interval, interval
from experiments.weak_sync import kept
from sgdlab.commands import launch
from sgdlab.errors import UsageError
from sgdlab.jobs import plan, provenance, train
from sgdlab.jobs.configuration import identity
from sgdlab.results.directory import OtherConfiguration, RunDirectory
from sgdlab.results.plots import STYLE
from sgdlab.results.summary import spread

BATCH_SIZE = 2
"""Number of examples of one gradient."""
CHANNELS = (8, 16)
"""Channels of the conv net."""
TUNING_SEEDS = 3
"""Number of seeds with which alpha is chosen."""
LOOKS = 120
"""Number of evaluations of a run."""
LAST = 0.1
"""Share of the evaluations, at the end of a run, whose mean is the final loss; single ones fluctuate."""
TARGETS = (0.3, 0.2, 0.15, 0.13)
"""Validation losses; the table has the time to reach each of them."""


@dataclasses.dataclass(frozen=True)
class Way:
    """One of the methods that the figure compares.

    Attributes:
      title: the paper's name for the method.
      method: its name in `sgdlab.jobs.methods`.
      predictor: predictor of the cutoff; empty if there is none.
      colour: colour of its curve.
    """

    title: str
    method: str
    predictor: str = ""
    colour: str = ""


CUTOFF = Way("cutoff", "cutoff", "deep_markov", "#c51b1b")
SYNC = Way("sync", "synchronous", "", "#1b7837")
ORDER = Way("order", "cutoff", "elfving", "#2166ac")
WILD = Way("wild", "asgd", "", "#7a7a7a")
WAYS = (CUTOFF, SYNC, ORDER, WILD)

Line = TypeVar("Line")
Records = list[dict[str, Any]]
Runs = Mapping[Way, Sequence[Records]]
"""The records of all seeds."""


@dataclasses.dataclass(frozen=True)
class Experiment:
    """The settings that all runs share.

    Attributes:
      machines: entry `cluster` of a configuration of configs/cutoff.py.
      model: directory with the deep Markov model of this cluster.
      lag: number of iterations of the model's window.
      updates: number of updates of full synchrony.
    """

    machines: ConfigDict
    model: str
    lag: int
    updates: int

    @property
    def num_gradients(self) -> int:
        """Number of gradients that every run uses."""
        return self.updates * self.machines.num_workers

    def settings(self) -> dict[str, Any]:
        """The configuration of the directory of runs: everything but their method, learning rate and seed."""
        config = identity(configuration(Job(self, CUTOFF, 1.0, 0)))
        for name in ("method", "seed", "protocol", "predictor"):
            del config[name]
        del config["optimizer"]["learning_rate"], config["epochs"]  # follows from the updates
        return {**config, "lag": self.lag, "updates": self.updates, "model": models.digest(self.model)}


@dataclasses.dataclass(frozen=True)
class Job:
    """One run.

    Attributes:
      experiment: settings that all runs share.
      way: method.
      rate: alpha, the learning rate of an update of full synchrony.
      seed: seed of everything random.
    """

    experiment: Experiment
    way: Way
    rate: float
    seed: int

    @property
    def name(self) -> str:
        """The name of the run's file."""
        return f"{self.way.title}-rate{self.rate:g}-seed{self.seed}"


def main(argv: Sequence[str]) -> None:
    """Trains the missing model and runs, and draws the figure."""
    del argv
    given = flags.FLAGS
    rates = options.rates("rates", given.rates)
    updates, seeds = options.whole("updates", given.updates), options.whole("seeds", given.seeds)
    config = configurations.get_config(figure2.CLUSTER)
    least = config.widths.lag + 1
    if updates < least:
        raise UsageError(f"--updates={updates} must be at least {least}: the first {least - 1} wait for all")
    path = figure.directory(figure2.DEFAULT_WORKDIR)
    models.kept(config, path / figure2.CLUSTER)
    model = str(path / figure2.CLUSTER / "model")
    make(path, Experiment(config.cluster, model, config.widths.lag, updates), rates=rates, seeds=seeds)


def make(
    path: pathlib.Path, experiment: Experiment, *, rates: Sequence[float], seeds: int, processes: int | None = None
) -> list[figure.Row]:
    """Trains the missing runs and publishes the figure; returns the rows of its table.

    Args:
      path: directory for the results.
      experiment: settings that all runs share.
      rates: values of alpha, of which the best is used.
      seeds: number of seeds of each method.
      processes: number of processes; None: one for each core.

    Raises:
      UsageError: if the directory holds runs of other settings.
    """
    try:
        directory = RunDirectory(path / "figure4", experiment.settings(), made=provenance.made_with())
    except OtherConfiguration as error:
        raise UsageError(f"{str(error).split(';')[0]}; name another --workdir") from error
    tuning = {rate: [Job(experiment, SYNC, rate, seed) for seed in range(min(seeds, TUNING_SEEDS))] for rate in rates}
    losses = {rate: mean_final_loss(of_rate) for rate, of_rate in all_runs(tuning, directory, processes).items()}
    rate = min(losses, key=losses.get)
    lines = {way: [Job(experiment, way, rate, seed) for seed in range(seeds)] for way in WAYS}
    runs = all_runs(lines, directory, processes)
    rows = [row(way, records) for way, records in runs.items()]
    workers = experiment.machines.num_workers
    figure.publish(
        path,
        "figure4",
        rows,
        title=f"Figure 4: validation loss on the digits with {workers} workers, alpha {rate:g}, "
        f"{experiment.num_gradients} gradients of {BATCH_SIZE} examples, {seeds} seed{'s' * (seeds > 1)}; seconds are "
        "virtual",
        reading=[tuned(losses), *reading(runs)],
        figure=draw(runs),
    )
    return rows


def all_runs(
    lines: Mapping[Line, Sequence[Job]], directory: RunDirectory, processes: int | None
) -> dict[Line, list[Records]]:
    """Trains the jobs that have no records yet, and returns the records of all jobs by line."""
    jobs = {job.name: job for line in lines.values() for job in line}
    records = kept.run_missing(jobs, trained, directory, processes=processes, what="trainings on digits")
    return {name: [records[job.name] for job in line] for name, line in lines.items()}


def configuration(job: Job) -> ConfigDict:
    """The configuration of a run: an update has the learning rate alpha, or alpha / N if it is of one gradient."""
    config, experiment = digits.get_config(), job.experiment
    config.method, config.seed = job.way.method, job.seed
    config.batch_size, config.replacement = BATCH_SIZE, True
    per_epoch = plan.batches_per_epoch(config, plan.dataset_of(config))
    config.epochs = (experiment.num_gradients - 0.5) / per_epoch  # rounded up to num_gradients
    config.evaluations = LOOKS
    config.network.conv.channels = CHANNELS
    config.cluster.kind, config.cluster.num_workers = "regimes", experiment.machines.num_workers
    config.cluster.regimes = experiment.machines.regimes
    config.protocol.cutoff.window = experiment.lag
    predictor = config.predictor
    predictor.kind = job.way.predictor or predictor.kind
    predictor.running_mean.window = predictor.elfving.window = experiment.lag
    predictor.deep_markov.model = experiment.model
    rate = job.rate / experiment.machines.num_workers if job.way == WILD else job.rate
    config.optimizer.learning_rate, config.optimizer.momentum, config.optimizer.weight_decay = rate, 0.0, 0.0
    config.rate.of, config.rate.warmup_epochs, config.rate.decay = "update", 0.0, "constant"
    return config


def trained(job: Job) -> Records:
    """Trains a run and returns its records; the summary also has the rates of the first and the last update."""
    made = plan.make_plan(configuration(job))
    *records, summary = train.train(made).records
    rates = {"first_rate": float(made.rates[0]), "last_rate": float(made.rates[-1])}
    return [*records, summary | rates | {"gradients_per_update": made.schedule.gradients_per_update()}]


def final_loss(records: Records) -> float | None:
    """The mean validation loss of a run's last evaluations; None if the run diverged."""
    losses = [record["test_loss"] for record in records[1:-1]]
    last = losses[-max(1, round(LAST * len(losses))) :]
    return None if records[-1]["diverged"] or None in last else statistics.fmean(last)


def mean_final_loss(runs: Sequence[Records]) -> float:
    """Mean over seeds of the final loss; infinite if a run diverged."""
    over_seeds = spread(final_loss(records) for records in runs)
    return math.inf if over_seeds is None else over_seeds.mean


def seconds_to(records: Records, loss: float) -> float | None:
    """Seconds until the validation loss was first as low, interpolated between evaluations; None if it never was.

    Example:
      >>> evaluations = [{"seconds": 0.0, "test_loss": 2.0}, {"seconds": 4.0, "test_loss": 1.0}]
      >>> seconds_to([{}, *evaluations, {}], 1.5), seconds_to([{}, *evaluations, {}], 0.5)
      (2.0, None)
    """
    before = None
    for after in records[1:-1]:
        if after["test_loss"] is not None and after["test_loss"] <= loss:
            if before is None:
                return after["seconds"]
            part = (before["test_loss"] - loss) / (before["test_loss"] - after["test_loss"])
            return before["seconds"] + part * (after["seconds"] - before["seconds"])
        before = after
    return None


def row(way: Way, runs: Sequence[Records]) -> figure.Row:
    """A row of the table: means and standard deviations over seeds."""
    ends = [records[-1] for records in runs]
    rates = {f"{end[name]:.3g}" for end in ends for name in ("first_rate", "last_rate")}
    return {
        "method": way.title,
        **{f"s to {loss:g}": _words([seconds_to(records, loss) for records in runs], ".0f") for loss in TARGETS},
        "final loss": _words([final_loss(records) for records in runs], ".4f"),
        "accuracy, %": _words([100 * end["test_accuracy"] for end in ends], ".1f"),
        "s in all": _words([end["seconds"] for end in ends], ".0f"),
        "gradients/s": statistics.fmean(end["gradients"] / end["seconds"] for end in ends),
        "updates": round(statistics.fmean(end["updates"] for end in ends)),
        "gradients/update": statistics.fmean(end["gradients_per_update"] for end in ends),
        "rate of an update": " to ".join(sorted(rates)),
    }


def _words(values: Sequence[float | None], form: str) -> str:
    over_seeds = spread(values)
    if over_seeds is None:
        return ""
    return f"{over_seeds.mean:{form}}" + (f" +- {over_seeds.std:{form}}" if len(values) > 1 else "")


def tuned(losses: Mapping[float, float]) -> str:
    """Sentence for the table: how alpha was chosen."""
    best = min(losses, key=losses.get)
    by_rate = ", ".join(f"{loss:.4f} with {rate:g}" if loss < math.inf else f"diverged with {rate:g}"
                     for rate, loss in losses.items())  # fmt: skip
    at_an_end = len(losses) > 1 and best in (min(losses), max(losses))
    edge = ", the smallest or largest of the list: a value beyond it may be better" if at_an_end else ""
    return f"Final validation loss of full synchrony by alpha: {by_rate}; {best:g} is used{edge}."


def reading(runs: Runs) -> list[str]:
    """Sentences for the table: the paper's statements and the results."""
    return [
        f"Differences to cutoff are means of the differences of each of {len(runs[CUTOFF])} seeds, with 95 % "
        "confidence intervals. All methods but wild begin with the same window of synchronous updates.",
        "The paper: of the synchronous family, cutoff converges fastest and to the lowest loss, and finishes first. "
        "The results here:",
        against(runs, SYNC),
        against(runs, ORDER),
        "The paper: Hogwild is ahead of cutoff in wall-clock time, but converges to a higher loss. The result here:",
        against(runs, WILD),
    ]


def against(runs: Runs, way: Way) -> str:
    """Sentences for the table: the differences between a method and cutoff."""
    times = [
        f"{_difference(runs, way, lambda records, loss=loss: seconds_to(records, loss), '.0f', ' s')} to {loss:g}"
        for loss in TARGETS
    ]
    finish = _difference(runs, way, lambda records: records[-1]["seconds"], ".0f", " s")
    final = _difference(runs, way, final_loss, ".4f", "")
    differences = f"{way.title} minus cutoff: {', '.join(times)}; {finish} to the finish; final loss {final}."
    return f"{differences} {verdict(runs, way)}"


def verdict(runs: Runs, way: Way) -> str:
    """Sentence for the table: which of the two is ahead, as far as the confidence intervals exclude 0."""
    later = [_sign(behind(runs, way, lambda records, loss=loss: seconds_to(records, loss))) for loss in TARGETS]
    words = {1: "higher than", -1: "lower than", 0: "not significantly different from"}
    return (
        f"Cutoff is faster to {later.count(1)} of {len(TARGETS)} losses, {way.title} to {later.count(-1)}; the final "
        f"loss of {way.title} is {words[_sign(behind(runs, way, final_loss))]} cutoff's."
    )


def behind(runs: Runs, way: Way, of: Callable[[Records], float | None]) -> Interval | None:
    """The interval of the differences between a method and cutoff over seeds; None if a seed has no value."""
    pairs = [(of(records), of(cutoff)) for records, cutoff in zip(runs[way], runs[CUTOFF], strict=True)]
    return None if any(None in pair for pair in pairs) else interval([value - cutoff for value, cutoff in pairs])


def _sign(difference: Interval | None) -> int:
    """The sign of the mean if 0 is outside the interval, else 0."""
    if difference is None or not abs(difference.mean) > difference.half:
        return 0
    return 1 if difference.mean > 0 else -1


def _difference(runs: Runs, way: Way, of: Callable[[Records], float | None], form: str, unit: str) -> str:
    difference = behind(runs, way, of)
    if difference is None:
        return "not in all seeds"
    return f"{difference.mean:+{form}} +- {difference.half:{form}}{unit}"


def draw(runs: Runs) -> Figure:
    """Draws the validation loss against virtual time, and against gradients."""
    with mpl.rc_context(STYLE):
        drawn = mpl.figure.Figure(figsize=(10.8, 4.4))
        time, work = drawn.subplots(1, 2, sharey=True)
        for axes, across, words in ((time, "seconds", "virtual time, s"), (work, "gradients", "gradients used")):
            for way, of_seeds in runs.items():
                _draw_line(axes, way, of_seeds, across)
            axes.set_xlabel(words)
            axes.set_xlim(left=0)
            axes.set_yscale("log")
        ticks = [0.1, 0.15, 0.2, 0.3, 0.5, 1, 2]
        time.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
        time.minorticks_off()
        time.set_ylabel("validation loss")
        time.legend(loc="upper right")
        drawn.suptitle("Figure 4: medians over seeds, bands between quartiles; curves end with the first run that ends")
    return drawn


def _draw_line(axes: Axes, way: Way, runs: Sequence[Records], across: str) -> None:
    """Draws the median over seeds at equal times, until the first run ends."""
    end = min(records[-1][across] for records in runs)
    grid = np.linspace(0, end, 200)
    curves = np.array([curve(records, across, grid) for records in runs])
    low, middle, high = np.quantile(curves, [0.25, 0.5, 0.75], axis=0)
    axes.plot(grid, middle, color=way.colour, label=way.title)
    axes.plot(grid[-1:], middle[-1:], color=way.colour, marker="o", markersize=4)
    axes.fill_between(grid, low, high, color=way.colour, alpha=0.15, linewidth=0)


def curve(records: Records, across: str, grid: np.ndarray) -> np.ndarray:
    """A run's validation loss at given values of `across`, interpolated between evaluations; NaN if it diverged."""
    evaluations = records[1:-1]
    loss = [math.nan if record["test_loss"] is None else record["test_loss"] for record in evaluations]
    return np.interp(grid, [record[across] for record in evaluations], loss)


if __name__ == "__main__":
    flags.DEFINE_integer(
        "updates", 300, "Number of updates of full synchrony; all methods use the same number of gradients."
    )
    flags.DEFINE_integer("seeds", 10, "Number of seeds: 0, 1, ...")
    flags.DEFINE_list(
        "rates", ["0.16", "0.32", "0.64", "1.28"], "Values of alpha; the best for full synchrony is used."
    )
    launch.run(main, __doc__, configured=False)
