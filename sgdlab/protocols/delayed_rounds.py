"""Delayed rounds: workers compute the next gradient while the messages of the last are averaged (Rigazzi 2019)."""

import numpy as np

from sgdlab.bounds import Count, NotNegative
from sgdlab.protocols.family import PROTOCOLS
from sgdlab.protocols.in_seconds import in_seconds
from sgdlab.runtimes import NotEnoughRuntimes, checked, too_short
from sgdlab.schedule import PENDING, Schedule
from sgdlab.transports.star import Star


@PROTOCOLS.register(
    title="Delayed rounds",
    source="Rigazzi 2019",
    families=("Limits on staleness",),
    rule=None,
    no_policy="its messages overlap with the next gradients, computed on parameters of each worker's own",
)
@in_seconds
def delayed_rounds(
    runtimes: np.ndarray,
    *,
    communication: NotNegative = 0.0,
    num_gradients: Count | None = None,
    transport: Star | None = None,
) -> Schedule:
    r"""Every update averages one gradient of every worker; meanwhile the workers compute those of the next.

    A worker ends gradient t, waits until the messages of the round before have been averaged (it needs the mean for its
    next message), sends that, and begins gradient t + 1 at once:

    .. math:: s_{t+1,i} = \max(s_{t,i} + d_{t,i},\; c_{t-1}), \qquad c_t = \max_j s_{t+1,j} + c

    with s and d the beginning and the seconds of a gradient, :math:`c_t` the time of update t, and c the seconds of an
    all-reduce. Gradient t is computed on the version before update t - 1, though the last worker of a round could have
    a newer one: all workers have heard of the same rounds. So a worker can be a round ahead of the slowest, and an
    all-reduce takes no time that is shorter than a gradient.

    The workers are idle between the end of a gradient and its message. A gradient counts as arrived at its end, so that
    rows are in the order of rounds, and of arrival within a round.

    Args:
      runtimes: float64[T, N], seconds; row t holds each worker's gradient for update t.
      communication: c, seconds from the last message of a round to its update.
      transport: in its place, an all-reduce (`transports.all_reduce`).
      num_gradients: how many gradients to use, rounded up to whole updates. None: all T N.

    Returns:
      A `Schedule` of updates with N gradients each, and the pending ones of the next round.

    Source: Rigazzi 2019 (arXiv 1911.02516), DC-S3GD, whose all-reduce overlaps with the next gradient. The paper's own
    text was not at hand: a reconstruction.

    Example:
      The fast worker waits at 4 s for the message of the slow one, and no more than that.

      >>> schedule = delayed_rounds(np.array([[1.0, 4.0], [1.0, 4.0], [1.0, 1.0]]))
      >>> schedule.started.reshape(3, 2), schedule.read[:, 0]
      (array([[0., 0.],
             [1., 4.],
             [4., 8.]]), array([0, 0, 0, 0, 1, 1], dtype=int32))
      >>> schedule.applied[:, 0]
      array([4., 8., 9.])
    """
    runtimes = checked(runtimes)
    if transport is not None:
        if not transport.collective or communication:
            raise ValueError("transport must be an all-reduce, without communication=, for rounds that are delayed")
        communication = transport.update_seconds
    rows, workers = runtimes.shape
    updates = rows
    if num_gradients is not None:
        updates = -(-num_gradients // workers)
        if updates >= rows:  # one row more, of the gradients that are pending at the end
            raise NotEnoughRuntimes.after(num_gradients, rows=rows, done=(rows - 1) * workers, spare=True)
    started, ended = np.full((2, updates + 1, workers), np.nan)
    applied = np.empty(updates)
    started[0] = 0.0
    for t in range(updates):
        ended[t] = started[t] + runtimes[t]
        started[t + 1] = np.maximum(ended[t], applied[t - 1] if t else 0.0)
        applied[t] = started[t + 1].max() + communication
    pending = np.zeros(workers, bool)
    if updates < rows:
        ended[updates] = started[updates] + runtimes[updates]
        pending = started[updates] < applied[-1]
    begun = np.append(np.full((updates, workers), True), pending[None], axis=0)
    stuck = np.argwhere(begun & ~(ended > started))
    if stuck.size:
        t, worker = stuck[0]
        raise too_short(t, worker, runtimes[t, worker], started[t, worker])
    worker = np.argsort(ended, axis=1, kind="stable")
    of_round = np.repeat(np.arange(updates + 1), workers)
    worker = worker.ravel()
    kept = begun[of_round, worker]
    of_round, worker = of_round[kept], worker[kept]
    return Schedule(
        worker=worker,
        read=np.maximum(of_round - 1, 0)[:, None],
        update=np.where(of_round < updates, of_round, PENDING)[:, None],
        started=started[of_round, worker],
        arrived=ended[of_round, worker][:, None],
        applied=applied[:, None],
        num_workers=workers,
    )
