"""JAX: a loop whose step is one jitted function; in one that averages by itself, where the wait for others begins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import io_callback

from sgdlab_record.recorder import Recorder


def recorded(step: Callable[..., Any], recorder: Recorder, name: str = "compute") -> Callable[..., Any]:
    """Return a step whose calls, and the device's work, are a phase that contains the wait for other processes."""

    def call(*arguments: Any, **named: Any) -> Any:
        with recorder.phase(name, waits=True):
            return jax.block_until_ready(step(*arguments, **named))

    return call


def ready(gradients: Any, recorder: Recorder, collective: str = "all_reduce") -> Any:
    """Return gradients as they are, inside a jitted step, before `psum` or `pmean`: own work ends here.

    The time after it is that of the collective; a call of the host for each device and step, some 0.1 ms.
    """

    def reached(_: Any) -> Any:
        recorder.cut(collective)
        return jnp.zeros((), jnp.float32)

    leaves, tree = jax.tree.flatten(gradients)
    probe = sum(jnp.ravel(leaf)[0].astype(jnp.float32) for leaf in leaves)
    nothing = io_callback(reached, jax.ShapeDtypeStruct((), jnp.float32), probe)
    # What is averaged depends on the call, so that it is not begun before.
    return jax.tree.unflatten(tree, [leaf + nothing.astype(leaf.dtype) for leaf in leaves])
