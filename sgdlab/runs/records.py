"""The records of a run: one that says what it is, one for each evaluation, and a summary; plain numbers."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sgdlab.data import Text
from sgdlab.errors import UsageError
from sgdlab.replay import History
from sgdlab.runs import crossing, datasets, digests, effective_rate, parts
from sgdlab.runs.datasets import AnyDataset
from sgdlab.runs.experiment import Experiment
from sgdlab.runs.methods import UsedPart, baselines
from sgdlab.runs.plan import Plan
from sgdlab.types import Tree

Record = dict[str, Any]

_IN_A_ROW = 5
"""Evaluations after which a run that is as bad as guessing does not come back."""


def opening(plan: Plan, params: Tree = None) -> Record:
    """Return the first record of a run: what it is, all its configuration entries, and what made it.

    By the parameters of the network, if they are given, the bytes of compressed messages are counted.
    """
    made = {"made": digests.made_with(), "code": digests.of_run(plan.experiment)}
    return {**what(plan), "config": plan.experiment.identity, "about": about_run(plan, params), **made}


def evaluation(plan: Plan, history: History, *, first: int = 0) -> Record:
    """Return the record of the newest evaluation, by a history of all gradients but the `first` ones.

    Its `train_loss`, `staleness`, `gap` and `penalty` are means over the gradients since the evaluation before; the
    penalty is what the rule itself divides gradients by, such as Gap-Aware's own gap; of DC-ASGD, the length of its
    correction over that of the gradient. Gap and penalty are not a number where they were not measured, as in a run on
    processes.
    """
    task = plan.experiment.task.facts
    newest, served, metric = history.evaluations[-1], plan.schedule.has_server, task.metric
    measured = served and history.distance is not None
    # Of several nodes, the one that has learned least.
    worst = "lowest" if task.higher_is_better else "highest"
    now = newest["gradients"]
    before: Any = max(history.evaluations[-2]["gradients"] - first, 0) if now else 0
    return {
        "kind": "evaluation",
        "gradients": now,
        "updates": newest["updates"],
        "epoch": now / plan.gradients_per_epoch,
        "seconds": newest["seconds"],
        "test_loss": newest["loss"],
        f"test_{metric}": newest[metric],
        f"average_{metric}": newest.get(f"average_{metric}"),
        f"node_{metric}": newest.get(f"node_mean_{metric}"),
        f"worst_{metric}": newest.get(f"node_{worst}_{metric}"),
        f"center_{metric}": newest.get(f"center_{metric}"),
        "consensus": newest.get("consensus"),
        "train_loss": _mean(history.aux["loss"][before:]),
        "staleness": _mean(history.delay[before:] - 1 if served else np.empty(0)),
        "gap": _mean(gap(history, plan.rates, before) if measured else np.empty(0)),
        "penalty": _mean(history.penalty[before:]) if history.penalty is not None else math.nan,
    }


def check_first(plan: Plan, record: Record) -> None:
    """Raise a `UsageError` where the loss is not finite before anything was trained, which no method has caused."""
    if record["gradients"] or math.isfinite(record["test_loss"]):
        return
    experiment = plan.experiment
    raise UsageError(
        f"--config.network.kind={experiment.network.name} on --config.data.kind={experiment.data.kind} has a test loss "
        f"of {record['test_loss']} before the first update: look at what the network returns, and at the data"
    )


def closing(
    plan: Plan, history: History, evaluations: Sequence[Record], final: Mapping[str, float], compute_seconds: float
) -> Record:
    """Return the last record of a finished run: `final` has loss and metric on the training set, or a sample of it."""
    last, metric = evaluations[-1], plan.experiment.task.facts.metric
    reached = None if plan.experiment.reporting.target is None else crossing_of(plan, evaluations).place()
    whole = plan.schedule.wall_clock()
    if plan.experiment.ending.until_target:  # the rest of its schedule was not executed
        plan = dataclasses.replace(plan, schedule=plan.schedule.until(last["seconds"]))
    return {
        **what(plan),
        "kind": "summary",
        "diverged": diverged(evaluations, plan.experiment.outcomes),
        f"test_{metric}": last[f"test_{metric}"],
        f"train_{metric}": final[metric],
        **{f"{of}_{metric}": last[f"{of}_{metric}"] for of in ("average", "node", "worst", "center")},
        "consensus": last["consensus"],
        "test_loss": last["test_loss"],
        "train_loss": final["loss"],
        "gradients": last["gradients"],
        "updates": last["updates"],
        "epochs": last["epoch"],
        "seconds": last["seconds"],
        "whole_seconds": whole,
        "speedup": plan.speedup,
        "seconds_to_target": _at(reached, [record["seconds"] for record in evaluations]),
        "epochs_to_target": _at(reached, [record["epoch"] for record in evaluations]),
        "gap": _mean(gap(history, plan.rates) if history.distance is not None else np.empty(0)),
        "penalty": _mean(history.penalty if history.penalty is not None else np.empty(0)),
        **effective_rate.figures(plan),
        "test_examples": len(plan.experiment.data.dataset.test),
        **plan.schedule.figures(),
        **plan.certified,
        "compute_seconds": compute_seconds,
    }


class End:
    """The end of a run that ends at its target, or once it has diverged: asked after each evaluation of its replay.

    It has reached the target when later evaluations leave its crossing where it is. It has diverged where its loss is
    not finite, or where it is no better than guessing, after it had blown up, at `_IN_A_ROW` evaluations.
    """

    def __init__(self, plan: Plan):
        self._metric, self._outcomes = plan.experiment.task.facts.metric, plan.experiment.outcomes
        self._losses, self._lost = [], 0
        self._crossing = crossing_of(plan)

    def __call__(self, evaluations: Sequence[Mapping[str, Any]]) -> bool:
        """Return if the run is to end with the last of its evaluations."""
        for newest in evaluations[len(self._losses) :]:
            self._losses.append(newest["loss"])
            self._crossing.add(newest["gradients"], newest[self._metric])
            self._lost = self._lost + 1 if _lost(self._losses, self._outcomes) else 0
        return self._crossing.known() or self._lost >= _IN_A_ROW or not math.isfinite(self._losses[-1])


def crossing_of(plan: Plan, evaluations: Sequence[Record] = ()) -> crossing.Crossing:
    """Return the crossing of a run's target by its evaluations."""
    task, target = plan.experiment.task.facts, plan.experiment.reporting.target
    found = crossing.Crossing(math.inf if target is None else target, higher_is_better=task.higher_is_better)
    for record in evaluations:
        found.add(record["gradients"], record[f"test_{task.metric}"])
    return found


def _at(place: float | None, values: Sequence[float]) -> float | None:
    """Return the value at a place between evaluations."""
    return None if place is None else float(np.interp(place, np.arange(len(values)), values))


def what(plan: Plan) -> dict[str, Any]:
    """Return what tables and pictures need to know of a run besides its numbers."""
    return what_before(plan.experiment) | ({"live": True} if plan.recorded is not None else {})  # by a real clock


def what_before(experiment: Experiment) -> dict[str, Any]:
    """Return `what` a run is before it is planned."""
    method, task, outcomes = experiment.method, experiment.task.facts, experiment.outcomes
    serial = experiment.num_workers == 1 and method.name in baselines()
    return {
        "kind": "run",
        "method": method.name,
        "title": baselines()[method.name] if serial else method.title,
        "protocol": experiment.protocol.name,
        "rule": experiment.rule.name,
        "families": list(method.families),
        "rank": experiment.rank,
        "baseline": method.baseline,
        "serial": serial,
        "never_waits": experiment.protocol.facts.never_waits,
        "measures_gap": experiment.rule.facts.measures_gap,
        "num_workers": experiment.num_workers,
        "seed": experiment.seeds.run,
        "metric": task.metric,
        "higher_is_better": task.higher_is_better,
        **({"metric_words": dict(task.words)} if task.words else {}),
        "guess": task.of_guess(outcomes) if task.of_guess and outcomes else None,
        "target": experiment.reporting.target,
    }


def about_run(plan: Plan, params: Tree = None) -> dict[str, str]:
    """Return what was run, in words: label -> text; `params` as of `opening`."""
    experiment, used = plan.experiment, plan.experiment.identity
    local, rate, sent = experiment.local, experiment.rate, experiment.compression
    peak = experiment.optimizer.learning_rate
    of = "times the gradients that an update averages" if rate.of == "gradient" else "of an update"
    if local.server_learning_rate is not None:
        peak, of = local.server_learning_rate, "of an update of the server"
    over_time = f"warm-up {rate.warmup(experiment.epochs):g} epochs; {rate.decay.replace('_', ' ')} decay"
    steps = {"local steps": _words(used["local"])} if "local" in used else {}
    if plan.inner is not None:
        steps["local steps"] += f"; their rate: {over_time}"
    if experiment.rate_is_constant:
        over_time = "constant"
    shared = {k: v for k, v in used["optimizer"].items() if v is not None and "learning_rate" not in k}
    rule = [_words({**used["rule"][experiment.rule.name], **shared})]
    rule = [words for words in (*rule, *parts.clauses(experiment.not_taken)) if words]
    return {
        **about_before(experiment),
        "learning rate": f"{peak:g}; {of}; {over_time}",
        "rule": "; ".join(rule) or "as it is",
        "protocol": _words(used["protocol"][experiment.protocol.name]) or "as it is",
        **steps,
        **({} if sent is None else {"messages": sent.words(_words(dict(sent.used.entries)), params)}),
    }


def about_before(experiment: Experiment) -> dict[str, str]:
    """Return what of `about_run` is known before a run is planned: what is trained, how long, and on what."""
    data, network, used = experiment.data, experiment.network, experiment.identity
    alone = "the first worker of " if data.workers.first == 1 else ""
    task = experiment.task
    own = {"task": f"{task.part.title}{_in_brackets(used['task'][task.name])}"} if "task" in used else {}
    return {
        "data": f"{data.used.part.title}, {_amount(data.dataset)}, {data.batch_size} a gradient{_shares(experiment)}",
        "network": f"{network.part.title} ({_words(used['network'][network.name])})",
        **own,
        "length": _length(experiment),
        "cluster": f"{alone}{experiment.cluster.law}",
        **{
            family: f"{part.part.title}{_in_brackets(_changed(part))}"
            for family, part in {"transport": experiment.transport, "failures": experiment.failures}.items()
            if part is not None
        },
    }


def _changed(used: UsedPart) -> dict[str, Any]:
    """Return the entries of a part that are not as by default."""
    of_part = used.part.entries().to_dict()
    return {name: value for name, value in used.entries.items() if value != of_part[name]}


def _length(experiment: Experiment) -> str:
    """Return when the run ends."""
    ending = experiment.ending
    if ending.budget is not None:
        epochs = experiment.source["epochs"]
        times = "" if ending.budget == 1 else f"{ending.budget:g} times "
        length = f"{times}the virtual time that synchronous SGD takes for {epochs:g} epochs"
    elif ending.seconds is not None:
        length = f"{ending.seconds:,.6g} s of virtual time"
    else:
        length = f"{experiment.epochs:g} epochs of used gradients"
    return f"{length}, or to the target" if ending.until_target else length


def _amount(dataset: AnyDataset) -> str:
    """Return how much there is to train on, and which text it is."""
    if not isinstance(dataset, Text):
        return f"{len(dataset.train):,} examples"
    facts = ", ".join(f"{name} {value}" for name, value in dataset.facts.items())
    return f"{len(dataset.train):,} segments of {dataset.train.segment} tokens{f' ({facts})' if facts else ''}"


def _shares(experiment: Experiment) -> str:
    """Return which examples workers have, where they have their own."""
    data = experiment.data
    if data.shares is None:
        return ""
    of = f"Dirichlet labels, alpha {data.alpha:g}"
    # pyrefly: ignore[missing-attribute]  # only images have shares
    return f"; {datasets.words(data.shares, data.dataset.train.labels)}; {of}"


def _in_brackets(entries: dict[str, Any]) -> str:
    return f" ({_words(entries)})" if entries else ""


def _words(entries: dict[str, Any]) -> str:
    """Return entries as a reader wants them.

    Example:
      >>> _words({"channels": (32, 64), "batch_norm": False})
      'channels 32, 64; batch norm no'
    """
    words = []
    for name, value in entries.items():
        if isinstance(value, dict):
            words.append(f"{name.replace('_', ' ')}: ({_words(value)})")
            continue
        shown = {True: "yes", False: "no"}[value] if isinstance(value, bool) else value
        shown = ", ".join(map(str, shown)) if isinstance(shown, tuple | list) else shown
        shown = f"{shown:g}" if isinstance(shown, float) else shown
        words.append(f"{name.replace('_', ' ')} {shown if shown is not None else 'by default'}")
    return "; ".join(words)


def diverged(evaluations: Sequence[Record], outcomes: int | None) -> bool:
    """Return if a run was lost: its loss is not finite, or it ended no better than guessing after it had blown up.

    A loss of log(outcomes) alone does not say so, since a run that has just begun has it too: the loss must once have
    been clearly lower than in the end, or twice as high as at first. Without outcomes to guess among, the loss of a
    guess is what the run began with.

    A test loss of exactly 0 is none where the last training loss is more than 2^24 times what the run began with, or 1:
    float32 tells no numbers of that size apart that differ by 1, so that outputs as large, from which all classes are
    as likely, have a loss of 0 instead of log(outcomes). No run that learned ends so: losses above 0 are not looked at.
    """
    # Nothing has been trained on at the first evaluation, so it has no training loss.
    losses = [e["test_loss"] for e in evaluations]
    training = [e["train_loss"] for e in evaluations[1:]]  # of few examples each: they say only whether it blew up
    rounded = losses[-1] == 0 and bool(training) and training[-1] > 2**24 * max(abs(losses[0]), 1)
    finite = all(map(math.isfinite, (*losses, *training)))
    return not finite or rounded or _lost(losses, outcomes, max(training, default=None))


def _lost(losses: Sequence[float], outcomes: int | None, highest: float | None = None) -> bool:
    """Return if test losses end no better than guessing after they have blown up; `highest` is another loss."""
    first, last = losses[0], losses[-1]
    guess = first if outcomes is None else 0.99 * math.log(outcomes)
    highest = max(losses) if highest is None else max(*losses, highest)
    clearly_lower = (0.95 if last > 0 else 1.05) * last  # the loss of a custom task may be negative
    return last >= guess and (min(losses) < clearly_lower or highest > first + abs(first))


def gap(history: History, rates: np.ndarray, begin: int = 0) -> np.ndarray:
    r"""Return the global gap of every gradient, measured alike for every method.

    .. math:: G_k = \frac{\|\theta_k - \theta_{read}\|}{C_k} + 1, \qquad
        C_k = \eta_{max} \operatorname{mean}_{j < k} \|g_j\|

    C is how far the parameters can move in one update by the average gradient: what a method makes of the gradient, a
    momentum or a penalty, does not change the measure.

    Args:
      history: with distances and norms (`Watch.norms`). Of several blocks, the squares of distances add up over those
        that used the gradient.
      rates: float64[U], the learning rate of each update.
      begin: the first gradient whose gap is asked for.

    Returns:
      float64[R - begin]; 1 for the first gradient of the run.

    Source: Barkai et al. 2020, Definition 1.
    """
    # pyrefly: ignore[bad-argument-type]  # norms were recorded
    rows, after = len(history.norm), max(begin, 1)  # before the first gradient there is no mean
    with np.errstate(all="ignore"):  # a diverged run has infinite gradients
        # pyrefly: ignore[unsupported-operation]  # norms were recorded
        squares = np.asarray(history.distance[after:], float) ** 2
        far = np.sqrt(np.nansum(squares, axis=tuple(range(1, squares.ndim))))
        # pyrefly: ignore[unsupported-operation]  # the same
        mean = np.cumsum(history.norm[:-1], dtype=float)[after - 1 :] / np.arange(after, rows)
        gaps = far / (rates.max() * mean) + 1
    return gaps if begin else np.concatenate([np.ones(min(rows, 1)), gaps])


def _mean(values: np.ndarray) -> float:
    """Return the mean; NaN entries of a column each are of blocks that did not use the gradient."""
    if values.ndim > 1:
        values = values[~np.isnan(values)]
    return float(np.mean(values, dtype=float)) if values.size else math.nan
