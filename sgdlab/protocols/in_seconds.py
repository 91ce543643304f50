"""`in_seconds`: a protocol that is told how many gradients to use can also be told when to end."""

import functools
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from sgdlab.peer_schedule import PeerSchedule
from sgdlab.runtimes import ending
from sgdlab.schedule import Schedule


def in_seconds(protocol: Callable[..., Any]) -> Callable[..., Schedule | PeerSchedule]:
    """Decorates a protocol: `num_seconds=`, in the place of `num_gradients=`, ends its schedule at an instant.

    Args:
      protocol: `(runtimes, *, num_gradients=None, **own) -> Schedule | PeerSchedule`.

    Returns:
      The protocol, with that argument. It raises a `ValueError` where both are given, and `NotEnoughRuntimes` where the
      compute times end before the instant.

    Example:
      >>> from sgdlab import protocols
      >>> print(protocols.asynchronous(np.array([[2.0, 3.0]] * 5), num_seconds=3.5))
      Schedule: 2 workers, 2 updates from 2 gradients (0 dropped, 1 pending) in 3 s, mean staleness 0.5
    """

    @functools.wraps(protocol)
    def timed(
        runtimes: np.ndarray, *, num_gradients: int | None = None, num_seconds: float | None = None, **own: Any
    ) -> Schedule | PeerSchedule:
        if num_seconds is None:
            return protocol(runtimes, num_gradients=num_gradients, **own)
        if num_gradients is not None:
            raise ValueError(f"num_gradients={num_gradients} must be left out with num_seconds={num_seconds}")
        make = lambda gradients: protocol(runtimes, num_gradients=gradients, **own)
        return ending(make, num_seconds, first=np.shape(runtimes)[-1], name="num_seconds")

    signature = inspect.signature(protocol)
    added = inspect.Parameter("num_seconds", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=float | None)
    # pyrefly: ignore[missing-attribute]  # `inspect.signature` looks for it
    timed.__signature__ = signature.replace(parameters=[*signature.parameters.values(), added])
    return timed
