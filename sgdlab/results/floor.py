"""The least time to the target: that of the single worker's gradients, shared out among workers who never wait.

With K the gradients that the single worker needs, and tau_i the seconds that worker i takes for one, this is

    T = K / sum_i (1 / tau_i).

Where the noise of the gradients decides how many are needed, no method is sooner on every problem, up to a constant
(Tyurin and Richtarik 2023, `sgdlab.theory.homogeneous`). On a single problem a method can be, if it needs fewer
gradients than the single worker does.
"""

import statistics
from collections.abc import Sequence
from typing import Any

from sgdlab.results.summary import Group, compared, single_workers


def seconds(groups: Sequence[Group]) -> dict[tuple[str, int], float]:
    """The least seconds to the target, calibrated on the single workers' runs.

    Returns:
      (name of what the single worker ran, number of workers) -> virtual seconds, a mean over the seeds; without those
      whose single worker did not reach the target in every run, and without records of how fast the workers are.
    """
    found = {}
    for name, alone in single_workers(groups).items():
        needed = gradients_to_target(alone)
        for count in sorted({group.num_workers for group in compared(groups)}):
            paces = _paces(groups, count)
            if needed is not None and paces:
                found[name, count] = statistics.fmean(needed / pace for pace in paces)
    return found


def gradients_to_target(group: Group) -> float | None:
    """Used gradients until the target, a mean over the seeds; None where some seed does not reach it, or has no epochs.

    Each of several local steps counts.
    """
    counts = []
    for summary in group.summaries:
        epochs, whole, used = (summary.get(name) for name in ("epochs_to_target", "epochs", "steps"))
        if epochs is None or not whole or not used:
            return None
        counts.append(epochs * used / whole)
    return statistics.fmean(counts)


def _paces(groups: Sequence[Group], count: int) -> list[float]:
    """Gradients per second of all workers together if none ever waited, of each seed: that of any method's runs."""
    for group in compared(groups):
        found: list[Any] = [summary.get("capacity") for summary in group.summaries]
        if group.num_workers == count and all(found):
            return found
    return []
