"""All-reduce: all nodes average their gradients (Jin et al. 2016, Algorithm 1)."""

import numpy as np

from sgdlab.failures.outages import Outages
from sgdlab.protocols.family import PROTOCOLS
from sgdlab.protocols.in_seconds import in_seconds
from sgdlab.schedule import Schedule
from sgdlab.transports.star import Star


@PROTOCOLS.register(
    title="All-reduce",
    source="Jin et al. 2016, Alg. 1",
    families=("Decentralised",),
    rule="nag_asgd",
    no_policy="there is no server in it; synchronous makes the same parameters",
)
@in_seconds
def all_reduce(
    runtimes: np.ndarray,
    *,
    num_gradients: int | None = None,
    transport: Star | None = None,
    outages: Outages | None = None,
) -> Schedule:
    """All nodes average their gradients after every iteration, which gives the parameters of `synchronous`.

    Args:
      runtimes: float64[T, p], seconds; row t holds each node's t-th gradient.
      num_gradients: how many gradients to use, rounded up to whole updates. None: all T p.
      transport: what messages cost, such as `transports.all_reduce`.
      outages: who fails.

    Returns:
      A `Schedule` of updates, each with one gradient of every node.

    Source: Jin et al. 2016, Algorithm 1.

    Example:
      >>> import numpy as np
      >>> all_reduce(np.array([[1.0, 3.0], [2.0, 1.0]])).applied[:, 0]
      array([3., 5.])
    """
    given = {"num_gradients": num_gradients, "transport": transport, "outages": outages}
    return PROTOCOLS["synchronous"].make(runtimes, **given)
