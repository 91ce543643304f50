"""The work of the live benchmarks' workers: next to nothing, for as long as they are told."""

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np

from sgdlab.live.work import Work


def work(argument: Mapping[str, Any]) -> Work:
    """Gradients that are cheap to compute, and take a known time.

    Args:
      argument: `size`, the number of parameters; `seconds`, how long a gradient takes; `slow`, how many times as long
        worker 0 takes (1 if it is left out); `spread`, the standard deviation of the times' logarithm (0).
    """
    slow, spread = float(argument.get("slow", 1.0)), float(argument.get("spread", 0.0))

    def seconds(worker: int, k: int) -> float:
        factor = np.exp(spread * np.random.default_rng([worker, k]).standard_normal()) if spread else 1.0
        return float(argument["seconds"]) * float(factor) * (slow if worker == 0 else 1.0)

    return Work(params=params(int(argument["size"])), grad_fn=gradient, batch_fn=batch, seconds=seconds)


def params(size: int) -> dict[str, jnp.ndarray]:
    """Parameters of that size, in one matrix."""
    return {"kernel": jnp.full((size,), 0.01, jnp.float32)}


def gradient(params: Any, batch: Any) -> tuple[Any, Any]:
    """Return the gradient of a paraboloid, whose minimum depends on the batch."""
    difference = params["kernel"] - batch
    return {"kernel": difference}, {"loss": jnp.mean(jnp.square(difference))}


def batch(ticket: Any) -> Any:
    """Return where the minimum of a gradient lies."""
    return jnp.sin(ticket.astype(jnp.float32))
