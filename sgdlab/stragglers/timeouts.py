"""Time-outs of a fault-tolerant job, from the lowest to the highest, each with the probability that it drops wrongly.

A collective between replicas that hangs is given up first, then its step, and last the wait for who comes to the
quorum: each time-out outlasts those below it, or a high one ends a job that a low one would have mended (torchtitan's
issue 2899).
"""

import math
from typing import NamedTuple

import numpy as np

from sgdlab import arguments
from sgdlab.predictors import dropping
from sgdlab.stragglers.estimate import LEVEL, duration
from sgdlab.stragglers.recording import SplitRecording

NAMES = {
    "process_group": "a collective between replicas (torchft's Manager(timeout=), torchtitan's "
    "process_group_timeout_ms)",
    "step": "a whole step (torchtitan's train_timeout_seconds)",
    "join": "the time from the first to the last request for a quorum (LighthouseServer(join_timeout_ms=); "
    "hivemind's matchmaking_time)",
    "quorum": "a request for a quorum (Manager(quorum_timeout=))",
}
"""The time-outs, and what they are of."""


class Timeout(NamedTuple):
    """Holds a time-out, one of `NAMES`."""

    name: str
    seconds: float
    false_drops: int  # recorded steps that waited longer
    at_most: float  # upper bound of the probability of such a step, 95 %
    longest: float  # seconds of the longest wait


class JobTimeouts(NamedTuple):
    """Holds the time-outs of a job."""

    rows: tuple[Timeout, ...]  # from the lowest to the highest
    steps: int  # that were recorded, pauses among them
    few: bool  # too few for the probability that was wanted: the longest waits stand for the order statistics


def find_timeouts(parts: SplitRecording, max_false_drop: float = 0.001, rejoin_seconds: float = 0.0) -> JobTimeouts:
    r"""Return the shortest time-outs that drop a worker wrongly in no more than a share of the steps.

    With D(w) the shortest deadline of a wait w as `dropping.least_deadline` has it, s the longest and f the shortest
    compute time of a step, x its transfer, and R the seconds after which a dropped replica is back,

    .. math:: p = D(s - f + x), \quad t = D(s + x) + p, \quad j = \max(p, R) + p, \quad q = t + j

    are those of the process group, step, join and quorum: a collective may begin at the end of the computation and is
    given up p seconds later; a replica may come to the quorum p seconds after the others since it gave one up, or R
    since it healed, which a shorter j would keep out for ever; and who asks first waits for a step and for who joins.

    Args:
      parts: the recording; its pauses count, since time-outs must outlast them.
      max_false_drop: the largest probability of a step in which a worker is dropped wrongly.
      rejoin_seconds: R.

    Raises:
      ValueError: if a number is out of its range.

    Source: own derivation.
    """
    healing = arguments.real("rejoin_seconds", rejoin_seconds, least=0)
    times = parts.runtimes  # with the transfer
    longest, arriving = times.max(axis=1), np.ptp(times, axis=1)
    together = arriving + parts.complete.transfer()
    waits = np.stack([together, longest], axis=1)
    least = dropping.least_deadline(waits, max_false_drop, confidence=LEVEL)
    few = not math.isfinite(least[0])
    group, whole = (waits.max(axis=0) if few else least).tolist()
    step, join = whole + group, max(group, healing) + group
    found = {"process_group": (group, together), "step": (step, longest)}
    found |= {"join": (join, arriving), "quorum": (step + join, longest)}
    rows = [_row(name, seconds, wait) for name, (seconds, wait) in found.items()]
    return JobTimeouts(tuple(sorted(rows, key=lambda row: row.seconds)), len(times), few)


def _row(name: str, seconds: float, waits: np.ndarray) -> Timeout:
    drops = int(np.count_nonzero(waits > seconds))
    return Timeout(name, seconds, drops, dropping.most_likely(drops, len(waits), confidence=LEVEL), float(waits.max()))


def said(timeouts: JobTimeouts | None) -> str:
    """Say which time-outs to set, and how often each would drop somebody wrongly; empty where nobody asked."""
    if timeouts is None:
        return ""
    told = "; ".join(
        f"{row.name} {duration(row.seconds)}, of {NAMES[row.name]}: {row.false_drops} of {timeouts.steps} steps waited "
        f"longer, so at most {100 * row.at_most:.2g} % do; the longest wait was {duration(row.longest)}"
        for row in timeouts.rows
    )
    short = " The steps are too few for the probability that was wanted." * timeouts.few
    return (
        f"From the lowest to the highest: {told}.{short} Bounds are of 95 %, for steps that are independent; restarts, "
        "compilation and checkpoints that the trace does not hold take longer."
    )
