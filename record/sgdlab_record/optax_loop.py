"""Flax and Optax: the mean over workers as the first transform of an optimizer, with where the wait for them begins."""

from __future__ import annotations

from typing import Any

import jax
import optax

from sgdlab_record.jax_loop import ready
from sgdlab_record.recorder import Recorder


def averaged(recorder: Recorder, axis: str, collective: str = "all_reduce") -> optax.GradientTransformation:
    """Return a transform that averages gradients over an axis of `shard_map` or `pmap`, and records when it begins.

    It stands in the place of `jax.lax.pmean` before the optimizer, in Optax, `flax.nnx.Optimizer` or a `TrainState`:
    `optax.chain(averaged(recorder, "data"), optax.adam(1e-3))`. The step itself is called through `jax_loop.recorded`.
    """

    def update(gradients: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        del params
        return jax.lax.pmean(ready(gradients, recorder, collective), axis), state

    return optax.GradientTransformation(lambda _: optax.EmptyState(), update)
