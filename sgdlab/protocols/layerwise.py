"""Asynchronous SGD layer by layer: layers are read and sent one by one (Chen et al. 2016, section 2 and A.3)."""

import numpy as np

from sgdlab import arguments
from sgdlab.bounds import Count, Share
from sgdlab.protocols.family import PROTOCOLS
from sgdlab.protocols.fast_arrivals import Arrivals, arrivals
from sgdlab.protocols.in_seconds import in_seconds
from sgdlab.runtimes import checked
from sgdlab.schedule import PENDING, Schedule


@PROTOCOLS.register(
    title="ASGD by layers",
    source="Chen et al. 2016, section 2",
    families=("Sources of staleness",),
    rule="asgd",
    blocks="num_blocks",
    no_policy="its layers are sent one by one; asynchronous sends them together",
)
@in_seconds
def layerwise(
    runtimes: np.ndarray,
    *,
    num_gradients: Count | None = None,
    num_blocks: Count = 4,
    reads: str = "start",
    pushes: str = "backward",
    backward_share: Share = 2 / 3,
) -> Schedule:
    r"""Every worker sends its gradient layer by layer as the backward pass leaves them, and nobody waits.

    With L blocks, one per layer, bottom (0) to top (L - 1), each layer's parameters may be read when the forward pass
    reaches it, and its gradient sent when the backward pass leaves it. A gradient of d seconds begun at s, whose
    backward pass takes the share :math:`\beta`, reads and pushes layer l at

    .. math:: s + (1 - \beta) d \frac{l}{L} \;\text{("forward"; else s)}, \qquad
        s + d - \beta d \frac{l}{L} \;\text{("backward"; else s + d)}

    so lower layers are staler. Clipping by the global norm forces `pushes="end"`. What is pushed and read at one
    instant is ordered by worker, a worker's own push before its read. With one block it is `asynchronous`.

    Args:
      runtimes: float64[T, N], seconds; row t holds each worker's t-th gradient.
      num_gradients: how many gradients to apply in all blocks. None: until the first worker runs out of compute times.
      num_blocks: L, number of layers, each a block of parameters, from bottom to top.
      reads: when layers are read: all at the "start" of the gradient, or one by one in the "forward" pass.
      pushes: when layers are sent: all at the "end" of the gradient, or one by one in the "backward" pass.
      backward_share: beta, the share of the backward pass in a gradient's compute time, above 0 and at most 1.

    Returns:
      A `Schedule` that ends when the last of `num_gradients` gradients has arrived in all blocks; gradients in flight
      are pending in the blocks at which they have not arrived.

    Source: Chen et al. 2016, section 2, Table 1 and A.3.

    Example:
      >>> schedule = layerwise(np.random.default_rng(0).uniform(1, 2, (50, 40)), num_blocks=2)
      >>> schedule.staleness().mean(axis=0).round().data
      array([39., 26.])
    """
    blocks = num_blocks
    arguments.one_of("reads", reads, ("start", "forward"))
    arguments.one_of("pushes", pushes, ("end", "backward"))
    runtimes = checked(runtimes)
    if blocks == 1:
        return PROTOCOLS["asynchronous"].make(runtimes, num_gradients=num_gradients)
    gradients = arrivals(runtimes, num_gradients)
    return _layers(gradients, blocks, reads == "forward", pushes == "backward", float(backward_share))


def _layers(gradients: Arrivals, blocks: int, forward: bool, backward: bool, share: float) -> Schedule:
    seconds, layer = gradients.arrived - gradients.started, np.arange(blocks) / blocks
    read_at = gradients.started[:, None] + ((1 - share) * seconds)[:, None] * layer * forward
    pushed_at = gradients.arrived[:, None] - (share * seconds)[:, None] * layer * backward
    # NumPy orders complex numbers by their real, then their imaginary part: by time, then by worker.
    order = np.argsort(_key(pushed_at[:, -1], gradients.worker), kind="stable")
    end = _key(gradients.arrived[gradients.count - 1], gradients.worker[gradients.count - 1])
    worker, read_at, pushed_at = gradients.worker[order], read_at[order], pushed_at[order]

    update = np.full(pushed_at.shape, PENDING)
    read = np.empty(pushed_at.shape, np.int64)
    applied = []
    for block in range(blocks):
        pushes = _key(pushed_at[:, block], worker)
        entered = np.argsort(pushes, kind="stable")
        entered = entered[: np.searchsorted(pushes[entered], end, side="right")]
        update[entered, block] = np.arange(entered.size)
        reading = np.argsort(read_at[:, block])  # searches in rising order are faster, since they hit the cache
        reads = _key(read_at[reading, block], worker[reading])
        read[reading, block] = np.searchsorted(pushes[entered], reads, side="right")
        applied.append(pushed_at[entered, block])
    times = np.full((max(map(len, applied)), blocks), np.nan)
    for block, column in enumerate(applied):
        times[: column.size, block] = column
    return Schedule(
        worker=worker,
        read=read,
        update=update,
        started=gradients.started[order],
        arrived=pushed_at,
        applied=times,
        num_workers=gradients.num_workers,
    )


def _key(seconds: np.ndarray, worker: np.ndarray) -> np.ndarray:
    return seconds + 1j * worker
