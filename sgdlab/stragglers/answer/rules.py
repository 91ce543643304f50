"""Describes each protocol: its name in a sentence, its rule, and its training loop in lines of Python.

The loops call what a training program has already: `first_arrivals(params, count)` or `arrivals()`, which `given`
describes, and `update`, `mean` and `steps`, the optimiser's step, the mean of gradients, and the steps of the training.
"""

import pathlib
from typing import NamedTuple

from sgdlab.report.words import counted
from sgdlab.stragglers.comparison.comparison import DEEP_MARKOV
from sgdlab.stragglers.comparison.cutting import BY_RATE
from sgdlab.stragglers.comparison.protocol import Protocol
from sgdlab.stragglers.comparison.sweeps import FINISHING, INTERRUPTED

FULL = "full synchrony"

_INTERRUPT = "and interrupt the others"
_MOST = "for the number c of workers with the most gradients per second, c divided by the"


class _Method(NamedTuple):
    """Tells what all protocols of one method have in common."""

    effort: int  # 0 nothing to set, 1 a fixed number, 2 a formula, 3 a model
    rule: str  # what to do in every step, with the parameters in braces
    made: str = ""  # the predictor in Python, with the parameters in braces
    name: str = ""  # in a sentence; empty: that of tables, with an article


METHODS = {
    FULL: _Method(0, "", name=FULL),
    INTERRUPTED: _Method(1, f"Update as soon as the number of gradients is there that was best before, {_INTERRUPT}."),
    FINISHING: _Method(
        1,
        "Update as soon as the number of gradients is there that was best before; the others finish gradients that are "
        "dropped.",
    ),
    "median + k MAD": _Method(
        2,
        "After each step, take the times of the last {window} steps and their median; in the next step wait for as "
        "many workers as finished, on average, before that median plus {deviations} times the median distance from it, "
        f"{_INTERRUPT}.",
        "sgdlab.predictors.Deadline(deviations={deviations}, window={window})",
        "a deadline of median + k MAD",
    ),
    "running mean": _Method(
        2,
        "After each step, sort the times of each of the last {window} steps and average the shortest, the second "
        f"shortest, and so on; in the next step wait {_MOST} c-th average, {_INTERRUPT}.",
        "sgdlab.predictors.RunningMean(window={window})",
    ),
    "Elfving": _Method(
        2,
        "After each step, take mean and standard deviation of the times of the last {window} steps; in the next "
        f"step wait {_MOST} expected c-th of as many normal compute times, {_INTERRUPT}.",
        "sgdlab.predictors.Elfving(window={window})",
        "Elfving's formula",
    ),
    "Kalman filter": _Method(
        3,
        "Before each step, a Kalman filter predicts the compute time of each worker; wait "
        f"{_MOST} expected c-th compute time, {_INTERRUPT}.",
        "sgdlab.predictors.Kalman(sgdlab.predictors.kalman.fit(history))",
    ),
    DEEP_MARKOV: _Method(
        3,
        "Before each step, the trained model predicts the compute times of all workers; wait "
        f"{_MOST} expected c-th compute time, {_INTERRUPT}.",
        "sgdlab.deep_markov.DeepMarkov(sgdlab.deep_markov.TrainedModel.load({model!r}))",
    ),
}
"""Of the protocols that can be recommended, by `Protocol.method`."""


def effort(protocol: Protocol) -> float:
    """Return the complexity of a protocol; its rate as the objective, and fitting it again, are half a point each."""
    return METHODS[protocol.method].effort + 0.5 * (protocol.objective == "rate") + 0.5 * protocol.refitted


def described(protocol: Protocol, workers: int) -> str:
    """Return the name of a protocol with its parameters and what they mean."""
    if protocol.backups is not None and protocol.method != FULL:
        late = "are interrupted" if protocol.method == INTERRUPTED else "finish gradients that are then dropped"
        waits = f"an update waits for {workers - protocol.backups} of {workers} workers; the others {late}"
        return f"{counted(protocol.backups, 'backup worker')} ({waits})"
    title = (METHODS[protocol.method].name or f"the {protocol.method}") + protocol.ending
    return f"{title} ({protocol.setting})" if protocol.setting else title


def rule(protocol: Protocol, workers: int) -> str:
    """Say in a sentence what to do in every step; empty for full synchrony, of which there is nothing to say.

    Example:
      >>> from sgdlab.stragglers import comparison
      >>> rule(comparison.Protocol("Kalman filter", "", comparison.DEPLOYABLE, {}), 16).partition(";")[0]
      'Before each step, a Kalman filter predicts the compute time of each worker'
    """
    if protocol.backups == 0:
        return ""
    if protocol.backups is not None:
        return _fixed(protocol, workers, protocol.backups)
    said = METHODS[protocol.method].rule.format(**{"window": "few", "deviations": "k", **protocol.parameters})
    by_rate = f" Here a second costs what it earned in the run so far ({BY_RATE})." * (protocol.objective == "rate")
    again = f" Choose the parameters again {protocol.setting}." * protocol.refitted
    return f"{said.replace('the last 1 steps', 'the last step')}{by_rate}{again}"


def _fixed(protocol: Protocol, workers: int, backups: int) -> str:
    others = "the other worker" if backups == 1 else f"the other {backups} workers"
    begins = f"Update as soon as {workers - backups} of the {workers} gradients are there"
    if protocol.method == INTERRUPTED:
        return f"{begins}, interrupt {others}, and begin the next step with all."
    finish = "finishes its gradient, which is" if backups == 1 else "finish their gradients, which are"
    read = "reads" if backups == 1 else "read"
    return f"{begins}; {others} {finish} dropped, and then {read} the newest parameters."


def waits(protocol: Protocol, workers: int) -> str:
    """Say for whom not to wait, and how many gradients enter an update, for a headline."""
    waited = protocol.result.waited_for
    late = workers - waited
    said = "do not always wait for the slowest worker"
    if late >= 0.5:
        said = f"do not wait for the slowest {'worker' if late < 1.5 else counted(round(late), 'worker')}"
    if protocol.backups is not None:
        return f"{said}: {workers - protocol.backups} of {workers} enter every update"
    shown = f"{waited:.0f}" if abs(waited - round(waited)) < 0.05 else f"{waited:.1f}"
    return f"{said}: on average {shown} of {workers} enter an update"


_FIXED = """\
for step in steps:
    seconds, gradients = first_arrivals(params, {count})  # of {workers}; the others are interrupted
    params = update(params, mean(gradients))
"""

_FINISHING = """\
version, done, gradients = 0, [], []
for worker, made_of, gradient in arrivals():
    if made_of < version:  # late: dropped
        send(worker, params, version)
        continue
    done, gradients = [*done, worker], [*gradients, gradient]
    if len(gradients) == {count}:  # of {workers}
        params, version = update(params, mean(gradients)), version + 1
        for ready in done:
            send(ready, params, version)
        done, gradients = [], []
"""

_PREDICTED = """\
import numpy as np, sgdlab

predictor = sgdlab.predictors.Guarded({predictor})
state = predictor.start(history, seed=0)  # float64[{history}, {workers}]: seconds of the last {history} steps of all
{begin}for step in steps:
    count = predictor.predict(state{rate}).cutoff
    seconds, gradients = first_arrivals(params, count)
    params = update(params, mean(gradients))
{count}    state = predictor.observe(state, seconds, np.nanmax(seconds))
"""

_BY_RATE = {
    "begin": "used, spent = history.size, history.max(axis=1).sum()\n",
    "rate": ", rate=used / spent",
    "count": "    used, spent = used + count, spent + np.nanmax(seconds)\n",
}


def loop(protocol: Protocol, workers: int, *, model: pathlib.Path | None = None) -> str:
    """The loop of a protocol, as lines of Python.

    Args:
      protocol: a protocol of the table.
      workers: N, number of workers.
      model: directory of the trained deep Markov model.

    Returns:
      The lines; empty for full synchrony, which needs no other loop, and for a protocol that is fitted again while it
      runs.

    Example:
      >>> from sgdlab.stragglers import comparison
      >>> backups = comparison.Protocol(comparison.INTERRUPTED, "b = 1", comparison.DEPLOYABLE, {}, 1)
      >>> print(loop(backups, 16), end="")
      for step in steps:
          seconds, gradients = first_arrivals(params, 15)  # of 16; the others are interrupted
          params = update(params, mean(gradients))
    """
    if protocol.backups == 0 or protocol.refitted:
        return ""
    if protocol.backups is not None:
        text = _FINISHING if protocol.method == FINISHING else _FIXED
        return text.format(count=workers - protocol.backups, workers=workers)
    made = METHODS[protocol.method].made.format(**protocol.parameters, model=str(model))
    history = 0 if protocol.history is None else len(protocol.history)
    by_rate = _BY_RATE if protocol.objective == "rate" else dict.fromkeys(_BY_RATE, "")
    return _PREDICTED.format(predictor=made, history=history, workers=workers, **by_rate)


def given(protocol: Protocol) -> str:
    """Say what the loop calls that the training program has to bring."""
    if protocol.method == FINISHING:
        return (
            "arrivals() and send() are yours: who has finished a gradient of which version of the parameters, as it "
            "comes; and the newest parameters for a worker, which begins to compute at once."
        )
    return (
        "first_arrivals(params, count) is yours: it sends the parameters to all workers, returns as soon as count "
        "gradients are there, with the seconds that each worker took (NaN for those that had not finished), and stops "
        "the others."
    )
