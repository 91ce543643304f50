"""Who the stragglers are, in sentences."""

from collections.abc import Sequence

import numpy as np

from sgdlab.advice import measured, stragglers
from sgdlab.advice.stragglers import Stragglers
from sgdlab.advice.words import counted, some
from sgdlab.cluster import Recording

_OFTENEST = 3
"""Workers that are slow at times and called by name."""

_REMEMBERED = 0.2
"""Correlation from step to step from which a model of the dynamics has something to learn."""


def told(seen: Stragglers, complete: Recording) -> str:
    """The stragglers: named where they are always the same; and whether their slowness lasts."""
    names = complete.workers
    sentences = _persistent(seen, complete) if seen.persistent.size else [_changing(seen, names)]
    if seen.passing.size:
        times = [f"worker {names[i]} in {100 * seen.slow[i]:.0f} %" for i in seen.passing[:_OFTENEST]]
        sentences.append(
            f"{counted(seen.passing.size, 'worker')} {'is' if seen.passing.size == 1 else 'are'} slow at times (more "
            f"than {stragglers.SLOW:g} times the step's median)"
            f"{', most often' if seen.passing.size > _OFTENEST else ':'} {some(times)} of the steps."
        )
    return " ".join([*sentences, _memory(seen)])


def _persistent(seen: Stragglers, complete: Recording) -> list[str]:
    slow, runtimes = seen.persistent, complete.runtimes
    one = slow.size == 1
    each = some([f"{complete.workers[i]} ({seen.ratio[i]:.2f})" for i in slow])
    workers = runtimes.shape[1]
    now = measured.interrupted(runtimes, workers).gradients_per_second
    then = measured.interrupted(stragglers.repaired(runtimes, slow), workers).gradients_per_second
    return [
        f"{'Worker' if one else 'Workers'} {each} {'is' if one else 'are'} persistently slow (in brackets: times the "
        f"step's median): look at {'that machine' if one else 'those machines'} before anything else.",
        f"Were {'it' if one else 'they'} as fast as the median of the others, full synchrony alone would give "
        f"{then / now:.2f} times the gradients per second.",
    ]


def _changing(seen: Stragglers, names: Sequence[str]) -> str:
    often, ever = int(seen.last.argmax()), np.count_nonzero(seen.last)
    who = f"all {ever} workers" if ever == len(names) else f"{ever} of the {len(names)} workers"
    return (
        f"No worker is persistently slow: {who} were the last at least once, and worker {names[often]}, most often of "
        f"all, in {100 * seen.last[often]:.0f} % of the steps."
    )


def _memory(seen: Stragglers) -> str:
    if seen.memory is None:
        return "Too few recorded steps follow each other to say whether slowness lasts."
    if seen.memory >= _REMEMBERED:
        reading = "slowness lasts, which is what a model of the dynamics can use"
    else:
        reading = (
            "how late a worker is says next to nothing of how late it will be, and no model foresees more than that"
        )
    return (
        "From one step to the next, a worker's lateness (less its own average) has a correlation of "
        f"{seen.memory:.2f}, from {seen.pairs} pairs of consecutive steps: {reading}."
    )
