"""Proposes the next steps as command lines."""

import shlex

from sgdlab.advice import learned
from sgdlab.advice.comparison import Protocol
from sgdlab.advice.recording import Parts

_RECORD = 2 * learned.ENOUGH
"""Steps to record, so that half of them are enough to train the deep Markov model as in the paper."""

_DIGITS_BATCHES = 179
"""Gradients in an epoch of configs/digits.py. Runs with more workers than that are not proposed."""


def commands(parts: Parts, chosen: Protocol, trace: str, workdir: str) -> list[tuple[str, str]]:
    """Pairs of a purpose and a command line.

    Args:
      parts: the recording, split into tuning and evaluation steps.
      chosen: the recommended protocol.
      trace: path of the recording.
      workdir: directory of the results of `advise`.
    """
    pairs = []
    if parts.recording.gaps or parts.complete.steps.size < _RECORD:
        few = f"the deep Markov model needs {learned.ENOUGH} tuning steps and had {len(parts.train)} here"
        purpose = (
            f"Record at least {_RECORD} consecutive steps under full synchrony (columns worker, step, duration): "
            f"{few if len(parts.train) < learned.ENOUGH else 'predictors need steps without gaps'}"
        )
        pairs.append((purpose, "sgdlab advise --trace=longer.csv"))
    epochs = _epochs(parts, chosen)
    if chosen.flags and epochs:
        entries = (
            *chosen.flags,
            "--config.cluster.kind=recorded",
            f"--config.cluster.recorded.trace={shlex.quote(trace)}",
            f"--config.cluster.num_workers={len(parts.workers)}",
            f"--config.epochs={epochs}",
        )
        shared, where = " ".join(entries), shlex.quote(workdir)
        pairs += [
            (
                "Draw which workers compute, wait and are dropped under the recommended protocol, from the first "
                "recorded step on",
                f"sgdlab timeline {shared} --workdir={where}/timeline",
            ),
            (
                "Train a small network on digits with this protocol and the recorded run-times, from the first step "
                "on, to see the loss",
                f"sgdlab train {shared} --workdir={where}/digits",
            ),
        ]
    return pairs


def _epochs(parts: Parts, chosen: Protocol) -> float:
    """The number of epochs of digits that the recorded run-times are enough for; 0 if there are too many workers."""
    steps, workers = parts.complete.runtimes.shape
    if workers > _DIGITS_BATCHES:
        return 0.0
    gradients = min((steps - 2) * workers / 2, 0.9 * steps * chosen.paper.waited_for)
    return min(20.0, int(10 * gradients / _DIGITS_BATCHES) / 10)
