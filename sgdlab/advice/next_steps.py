"""What to do next, as command lines that run."""

import shlex

from sgdlab.advice import learned
from sgdlab.advice.comparison import Protocol
from sgdlab.advice.recording import Parts

_RECORD = 2 * learned.ENOUGH
"""Steps that are worth recording: half of them let the deep Markov model be trained as in the paper."""

_DIGITS_BATCHES = 44
"""Gradients in an epoch of configs/digits.py, whose batches hardly bear more workers than that."""


def commands(parts: Parts, chosen: Protocol, trace: str, workdir: str) -> list[tuple[str, str]]:
    """Pairs of a purpose and a command line.

    Args:
      parts: of the recording.
      chosen: the recommended protocol.
      trace: the recording's path.
      workdir: where these answers are.
    """
    pairs = []
    if parts.recording.gaps or parts.complete.steps.size < _RECORD:
        purpose = f"Record at least {_RECORD} consecutive steps under full synchrony, as rows of worker, step, duration"
        pairs.append((purpose, "python -m experiments.advise --trace=longer.csv"))
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
                "See who computes, waits and is dropped on this cluster under the recommended protocol",
                f"python -m experiments.timeline {shared} --workdir={where}/timeline",
            ),
            (
                "Train the lab's small network on digits with it, on this cluster's run-times, and look at the loss",
                f"python -m experiments.main {shared} --workdir={where}/digits",
            ),
        ]
    return pairs


def _epochs(parts: Parts, chosen: Protocol) -> float:
    """How many epochs of digits these run-times are enough for; 0 where that is not worth a run."""
    steps, workers = parts.complete.runtimes.shape
    if workers > _DIGITS_BATCHES:
        return 0.0
    gradients = min((steps - 2) * workers / 2, 0.9 * steps * chosen.paper.waited_for)
    return min(20.0, int(10 * gradients / _DIGITS_BATCHES) / 10)
