"""Lowers a schedule, of servers or of peers, to a program for one compiled loop."""

from sgdlab.peer_schedule import PeerSchedule
from sgdlab.replay.peer_program import PeerProgram, lower_peers
from sgdlab.replay.program import Capacity, checked_limits
from sgdlab.replay.server_program import ServerProgram, lower_servers
from sgdlab.schedule import Schedule


def lower(
    schedule: Schedule | PeerSchedule,
    *,
    capacity: Capacity | None = None,
    every: int | None = None,
    width: int | None = None,
) -> ServerProgram | PeerProgram:
    """Lowers a schedule to a program: which slot each gradient reads, what is written where, and what can be at once.

    Only gradients that enter an update are kept. Slots are given out like registers: a version of the parameters lives
    from the gradient that completes it to the last one computed on it; so synchronous runs need one slot and
    asynchronous ones at most N. A wave is a maximal run of gradients that read only versions made before it.

    Args:
      schedule: a `Schedule` of any number of blocks, or a `PeerSchedule`.
      capacity: sizes to allocate at least, but for the width, so that several programs share one compilation.
      every: pause at the first complete update after each `every` gradients; at the gradient itself for peers, and
        where blocks use gradients in orders of their own. None: only at the end.
      width: lanes of wave mode, at which waves are cut. None: the widest power of two, up to the number of workers
        rounded up, that computes at most 1.5 gradients for each that is needed.

    Returns:
      A `ServerProgram` or a `PeerProgram`; the sizes of its capacity are rounded up to powers of two, but for a width
      that was given.

    Raises:
      ValueError: where there is nothing to replay, `every` or `width` is not a whole number of at least 1, the schedule
        has more blocks than can be compiled in reasonable time, or an event of peers does not begin from its node's
        newest parameters.

    Example:
      >>> import numpy as np
      >>> from sgdlab import protocols
      >>> program = lower(protocols.asynchronous(np.array([[2.0, 3.0], [2.0, 3.0], [2.0, 3.0]])))
      >>> program.load.T, program.store.T, program.waves
      (array([[0, 0, 1, 0]], dtype=int32), array([[1, 0, 0, 0]], dtype=int32), array([0, 2, 3, 4], dtype=int32))
    """
    checked_limits(every, width)
    make = lower_peers if isinstance(schedule, PeerSchedule) else lower_servers
    return make(schedule, capacity=capacity, every=every, width=width)
