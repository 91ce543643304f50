"""`check_points`: whether a rule whose workers compute at points of their own can be used with a schedule."""

from typing import Any

import numpy as np

from sgdlab.ordering import by_number
from sgdlab.peer_schedule import PeerSchedule
from sgdlab.replay.peer_program import PeerProgram
from sgdlab.rules.server_rule import ServerRule
from sgdlab.schedule import Schedule


def check_points(schedule: Any, rule: ServerRule) -> None:
    """Checks that every worker's own message, which the rule adds to what it reads, is not in that already.

    A gradient must be computed on the version before the update that its worker's last gradient entered, as in
    `sgdlab.protocols.delayed_rounds`. Rules without `point` go with every schedule.

    Args:
      schedule: a schedule, or its `lower`ed program.
      rule: the rule.

    Raises:
      ValueError: if there is no server or more than one, or at the first gradient that is computed on another version.

    Example:
      >>> from sgdlab import protocols, rules
      >>> rule = rules.dc_s3gd(learning_rate=0.1, num_workers=2)
      >>> check_points(protocols.delayed_rounds(np.ones((3, 2))), rule)
      >>> check_points(protocols.synchronous(np.ones((3, 2))), rule)
      Traceback (most recent call last):
      ...
      ValueError: rule adds a worker's own last message to what it reads, so that read=1 of worker 0 must be 0, the
      version before the update with that message; protocols.delayed_rounds makes such schedules
    """
    if rule.point is None:
        return
    if isinstance(schedule, PeerSchedule | PeerProgram):
        raise ValueError("rule has points of the workers of a server; each node has parameters of its own, without")
    if schedule.num_blocks > 1:
        raise ValueError(f"rule has points of the workers of one server; schedule has {schedule.num_blocks} blocks")
    rows = np.arange(schedule.worker.size)
    if isinstance(schedule, Schedule):
        rows = np.flatnonzero(schedule.used().any(axis=1))
    rows = rows[by_number(schedule.worker[rows], schedule.num_workers)]
    same = np.diff(schedule.worker[rows]) == 0
    before, after = rows[:-1][same], rows[1:][same]
    wrong = (schedule.read[after] != schedule.update[before])[:, 0]
    if wrong.any():
        first = np.flatnonzero(wrong)[np.argmin(after[wrong])]
        raise ValueError(
            "rule adds a worker's own last message to what it reads, so that "
            f"read={schedule.read[after[first], 0]} of worker {schedule.worker[after[first]]} must be "
            f"{schedule.update[before[first], 0]}, the version before the update with that message; "
            "protocols.delayed_rounds makes such schedules"
        )
