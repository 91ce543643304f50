"""Describes the stragglers in sentences: which workers are slow, how often, and how long slowness lasts."""

from collections.abc import Sequence

import numpy as np

from sgdlab.advice import measured, stragglers
from sgdlab.advice.stragglers import Stragglers
from sgdlab.advice.words import counted, some
from sgdlab.cluster import Recording

_MOST_NAMED = 3
"""Largest number of workers that are slow at times and mentioned by name."""

_LASTING = 0.2
"""Correlation between consecutive steps from which slowness is said to last."""


def describe(result: Stragglers, complete: Recording) -> str:
    """Sentences on the persistently slow workers, on those that are slow at times, and on how long slowness lasts.

    Args:
      result: the stragglers that were detected.
      complete: the complete steps of the recording.
    """
    names = complete.workers
    sentences = _persistent(result, complete) if result.persistent.size else [_changing(result, names)]
    if result.passing.size:
        shares = [f"worker {names[i]} in {100 * result.slow[i]:.0f} %" for i in result.passing[:_MOST_NAMED]]
        sentences.append(
            f"{counted(result.passing.size, 'worker')} {'is' if result.passing.size == 1 else 'are'} slow at times "
            f"(run-time above {stragglers.SLOW:g} times the median of the step)"
            f"{', most often' if result.passing.size > _MOST_NAMED else ':'} {some(shares)} of the steps."
        )
    return " ".join([*sentences, _duration(result)])


def _persistent(result: Stragglers, complete: Recording) -> list[str]:
    slow, runtimes = result.persistent, complete.runtimes
    one = slow.size == 1
    each = some([f"{complete.workers[i]} ({result.ratio[i]:.2f})" for i in slow])
    workers = runtimes.shape[1]
    now = measured.interrupted(runtimes, workers).gradients_per_second
    repaired = measured.interrupted(stragglers.repaired(runtimes, slow), workers).gradients_per_second
    return [
        f"{'Worker' if one else 'Workers'} {each} {'is' if one else 'are'} persistently slow (in brackets: run-time "
        f"relative to the median of the step). Check {'this machine' if one else 'these machines'} first.",
        f"If {'it were' if one else 'they were'} as fast as the median of the others, full synchrony would give "
        f"{repaired / now:.2f} times the gradients per second.",
    ]


def _changing(result: Stragglers, names: Sequence[str]) -> str:
    often, ever = int(result.last.argmax()), np.count_nonzero(result.last)
    who = f"all {ever} workers" if ever == len(names) else f"{ever} of the {len(names)} workers"
    return (
        f"No worker is persistently slow: {who} finished last in at least one step. Worker {names[often]} finished "
        f"last most often, in {100 * result.last[often]:.0f} % of the steps."
    )


def _duration(result: Stragglers) -> str:
    if result.memory is None:
        return "There are too few consecutive recorded steps to estimate how long slowness lasts."
    if result.memory >= _LASTING:
        reading = "slowness lasts for several steps, so a model of the dynamics can predict it"
    else:
        reading = "the run-time of a step hardly depends on that of the step before, so no model can predict it well"
    return (
        "The correlation of a worker's relative run-time (less its own mean) between consecutive steps is "
        f"{result.memory:.2f}, from {result.pairs} pairs of steps: {reading}."
    )
