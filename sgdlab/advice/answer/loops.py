"""The training loop of each protocol in a few lines of Python, with which a server in production would follow it.

The loops call what a training program has already: `first_arrivals(params, count)` sends the parameters to all
workers, returns as soon as `count` gradients are there, with each worker's seconds (NaN of those that had not
finished), and stops the others; `update`, `mean` and `steps` are the optimiser's step, the mean of gradients, and the
steps of the training.
"""

import pathlib

from sgdlab.advice.answer.rules import entries
from sgdlab.advice.comparison.comparison import BY_RATE, DEEP_MARKOV, FINISHING, REFITTED, Protocol

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

_PREDICTED = """\
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
      >>> from sgdlab.advice import comparison
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
        made = "sgdlab.predictors." + _MADE[protocol.title].format(**entries(protocol))
    else:
        return ""
    guarded = f"sgdlab.predictors.Guarded({made})"  # does not learn from steps in which everybody was slow
    text = _BY_RATE if protocol.setting.endswith(BY_RATE) else _PREDICTED
    return text.format(predictor=guarded, history=history, workers=workers)


def given(protocol: Protocol) -> str:
    """What the loop calls that the training program has to bring.

    Args:
      protocol: a protocol of the table.
    """
    return GIVEN_FINISHING if protocol.title == FINISHING else GIVEN
