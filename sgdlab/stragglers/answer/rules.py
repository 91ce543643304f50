"""The rule of each protocol in one sentence, and its training loop in a few lines of Python.

The loops call what a training program has already: `first_arrivals(params, count)`, which `GIVEN` describes, and
`update`, `mean` and `steps`, the optimiser's step, the mean of gradients, and the steps of the training.
"""

import pathlib

from sgdlab.report.words import counted
from sgdlab.stragglers.comparison.comparison import BY_RATE, DEEP_MARKOV
from sgdlab.stragglers.comparison.protocol import Protocol
from sgdlab.stragglers.comparison.refit import REFITTED
from sgdlab.stragglers.comparison.sweeps import FINISHING, INTERRUPTED

_INTERRUPT = "interrupt the others"
_MOST = "for the number c of workers with the most gradients per second, c divided by the {}"


def rule(protocol: Protocol, workers: int) -> str:
    """Say what to do in every step, in a sentence.

    Example:
      >>> from sgdlab.stragglers import comparison
      >>> rule(comparison.Protocol("full synchrony", "", comparison.DEPLOYABLE, {}, 0), 16)
      'Every update waits for the gradients of all workers.'
    """
    if protocol.without:
        return f"Keep full synchrony, {protocol.title}: every update waits for all of the other workers."
    if protocol.backups == 0:
        return "Every update waits for the gradients of all workers."
    if protocol.backups is not None:
        return _fixed(protocol.title, workers, protocol.backups)
    title = protocol.title.removesuffix(REFITTED)
    sentence = _PREDICTED[title].format(**{"window": "few", "deviations": "k", **protocol.parameters})
    by_rate = f" Here a second costs what it earned in the run so far ({BY_RATE})." if _is_by_rate(protocol) else ""
    again = f" Choose the parameters again {protocol.setting}." if protocol.title.endswith(REFITTED) else ""
    return f"{sentence.replace('the last 1 steps', 'the last step')}{by_rate}{again}"


def _fixed(title: str, workers: int, backups: int) -> str:
    one = backups == 1
    others = "the other worker" if one else f"the other {backups} workers"
    begins = f"Update as soon as {workers - backups} of the {workers} gradients are there"
    if title == INTERRUPTED:
        return f"{begins}, interrupt {others}, and begin the next step with all."
    if one:
        return f"{begins}; {others} finishes its gradient, which is dropped, and then reads the newest parameters."
    return f"{begins}; {others} finish their gradients, which are dropped, and then read the newest parameters."


_PREDICTED = {
    INTERRUPTED: f"Update as soon as the number of gradients is there that was best before, and {_INTERRUPT}.",
    FINISHING: "Update as soon as the number of gradients is there that was best before; the others finish gradients "
    "that are dropped.",
    "median + k MAD": "After each step, take the run-times of the last {window} steps and their median; in the next "
    "step wait for as many workers as finished, on average, before that median plus {deviations} times the median "
    f"distance from it, and {_INTERRUPT}.",
    "running mean": "After each step, sort the run-times of each of the last {window} steps and average the shortest, "
    f"the second shortest, and so on; in the next step wait {_MOST.format('c-th average')}, and {_INTERRUPT}.",
    "Elfving": "After each step, take mean and standard deviation of the run-times of the last {window} steps; in the "
    "next step wait "
    f"{_MOST.format('expected c-th of as many normal run-times')}, and {_INTERRUPT}.",
    "Kalman filter": "Before each step, a Kalman filter predicts the run-time of each worker; wait "
    f"{_MOST.format('expected c-th run-time')}, and {_INTERRUPT}.",
    DEEP_MARKOV: "Before each step, the trained model predicts the run-times of all workers; wait "
    f"{_MOST.format('expected c-th run-time')}, and {_INTERRUPT}.",
}


def _is_by_rate(protocol: Protocol) -> bool:
    return protocol.setting.endswith(BY_RATE)


def who_enters(protocol: Protocol, workers: int) -> str:
    """Say how many gradients enter an update, for a headline."""
    waited = protocol.paper.waited_for
    if protocol.backups is not None:
        return f"{workers - protocol.backups} of {workers} enter every update"
    shown = f"{waited:.0f}" if abs(waited - round(waited)) < 0.05 else f"{waited:.1f}"
    return f"on average {shown} of {workers} enter an update"


def whom_not_to_wait_for(protocol: Protocol, workers: int) -> str:
    """Say what to do, for a headline."""
    late = workers - protocol.paper.waited_for
    if late < 0.5:
        return "do not always wait for the slowest worker"
    return f"do not wait for the slowest {'worker' if late < 1.5 else counted(round(late), 'worker')}"


GIVEN = (
    "first_arrivals(params, count) is yours: it sends the parameters to all workers, returns as soon as count "
    "gradients are there, with the seconds that each worker took (NaN for those that had not finished), and stops the "
    "others."
)
GIVEN_FINISHING = (
    "arrivals() and send() are yours: who has finished a gradient of which version of the parameters, as it comes; and "
    "the newest parameters for a worker, which begins to compute at once."
)

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

_BY_STEP = """\
import numpy as np, sgdlab

predictor = {predictor}
state = predictor.start(history, seed=0)  # float64[{history}, {workers}]: seconds of the last {history} steps of all
for step in steps:
    count = predictor.predict(state).cutoff
    seconds, gradients = first_arrivals(params, count)
    params = update(params, mean(gradients))
    state = predictor.observe(state, seconds, np.nanmax(seconds))
"""

_BY_RATE = """\
import numpy as np, sgdlab

predictor = {predictor}
state = predictor.start(history, seed=0)  # float64[{history}, {workers}]: seconds of the last {history} steps of all
used, spent = history.size, history.max(axis=1).sum()
for step in steps:
    count = predictor.predict(state, rate=used / spent).cutoff
    seconds, gradients = first_arrivals(params, count)
    params = update(params, mean(gradients))
    used, spent = used + count, spent + np.nanmax(seconds)
    state = predictor.observe(state, seconds, np.nanmax(seconds))
"""

_MADE = {
    "median + k MAD": "Deadline(deviations={deviations}, window={window})",
    "running mean": "RunningMean(window={window})",
    "Elfving": "Elfving(window={window})",
    "Kalman filter": "Kalman(sgdlab.predictors.kalman.fit(history))",
}


def loop(protocol: Protocol, workers: int, *, history: int, model: pathlib.Path | None = None) -> str:
    """The loop of a protocol, as lines of Python.

    Args:
      protocol: a protocol of the table.
      workers: N, number of workers.
      history: number of steps of full synchrony that the predictor is given before its first prediction.
      model: directory of the trained deep Markov model.

    Returns:
      The lines; empty for full synchrony, of all workers or of some, which needs no other loop, and for a protocol that
      is fitted again while it runs.

    Example:
      >>> from sgdlab.stragglers import comparison
      >>> backups = comparison.Protocol(comparison.INTERRUPTED, "b = 1", comparison.DEPLOYABLE, {}, 1)
      >>> print(loop(backups, 16, history=20), end="")
      for step in steps:
          seconds, gradients = first_arrivals(params, 15)  # of 16; the others are interrupted
          params = update(params, mean(gradients))
    """
    if protocol.without or protocol.backups == 0 or protocol.title.endswith(REFITTED):
        return ""
    if protocol.backups is not None:
        text = _FINISHING if protocol.title == FINISHING else _FIXED
        return text.format(count=workers - protocol.backups, workers=workers)
    if protocol.title == DEEP_MARKOV:
        made = f"sgdlab.cutoff.DeepMarkov(sgdlab.cutoff.TrainedModel.load({str(model)!r}))"
    elif protocol.title in _MADE:
        made = "sgdlab.predictors." + _MADE[protocol.title].format(**protocol.parameters)
    else:
        return ""
    guarded = f"sgdlab.predictors.Guarded({made})"  # does not learn from steps in which everybody was slow
    text = _BY_RATE if protocol.setting.endswith(BY_RATE) else _BY_STEP
    return text.format(predictor=guarded, history=history, workers=workers)


def given(protocol: Protocol) -> str:
    """Say what the loop calls that the training program has to bring."""
    return GIVEN_FINISHING if protocol.title == FINISHING else GIVEN
