"""Streaming Nesterov: the outer optimizer of Streaming DiLoCo, which moves one fragment at a time."""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from sgdlab.bounds import Count
from sgdlab.rules import accumulators
from sgdlab.rules.family import RULES
from sgdlab.rules.fragments import fragments_of, within
from sgdlab.rules.hyperparameters import Rate, checked, static
from sgdlab.rules.server_rule import ServerRule, Settings, Tree, rule_of
from sgdlab.xla import apart


class StreamingNesterovState(NamedTuple):
    """State of `streaming_nesterov`."""

    count: jax.Array  # shape=(), dtype=int32: updates.
    velocity: Tree  # *params_shape: v of every fragment, in float32 at least.


@RULES.register(
    title="Streaming Nesterov",
    source="Douillard et al. 2025",
    method=False,
    protocols=("synchronous",),
    moves_fragments=True,
)
def streaming_nesterov(
    *, learning_rate: Rate, momentum: float = 0.9, weight_decay: float = 0.0, fragments: Count = 1
) -> ServerRule:
    r"""Nesterov's momentum on one fragment of the parameters per update, the fragments in turn.

    .. math:: p = k \bmod P, \qquad v_p \leftarrow \gamma v_p + g_p, \qquad
        \theta_p \leftarrow \theta_p - \eta_k (\gamma v_p + g_p)

    in update k = 0, 1, ...; all other fragments, and their velocities, stay. With one fragment it is `nag_asgd`.

    Args:
      learning_rate: eta of the server, or an optax schedule counted in updates.
      momentum: gamma in (-1, 1).
      weight_decay: lambda; lambda theta is added to each message.
      fragments: P, shares of about equal size (`sgdlab.rules.fragments.fragments_of`); in a run `local.fragments`.

    Returns:
      A `ServerRule`; its state holds the velocities and counts the updates.

    Raises:
      ValueError: where a hyperparameter is not finite or out of its range; from `init`, where the parameters have too
        few rows for so many fragments.

    Source: Douillard et al. 2025, Streaming DiLoCo with overlapping communication; read in the public code of torchft:
    fragment i is sent after H (i + 1) / P inner steps and then every H, and each has an outer Nesterov step of its own.

    Example:
      >>> rule, params = streaming_nesterov(learning_rate=1.0, momentum=0.5, fragments=2), jnp.zeros(2)
      >>> first, state = rule.update(jnp.full(2, 2.0), rule.init(params), params)
      >>> second, _ = rule.update(jnp.full(2, 4.0), state, params)
      >>> (params + first).tolist(), (params + second).tolist()
      ([-3.0, 0.0], [0.0, -6.0])
    """
    return rule_of(
        _StreamingNesterov(
            **checked(learning_rate=learning_rate, momentum=momentum, weight_decay=weight_decay),
            fragments=fragments,
        )
    )


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class _StreamingNesterov(Settings):
    learning_rate: Rate
    momentum: Any
    weight_decay: Any
    fragments: int = static()

    def init(self, params: Tree, **extra: Any) -> StreamingNesterovState:
        fragments_of(params, self.fragments)  # which refuses what cannot be divided
        return StreamingNesterovState(jnp.zeros([], jnp.int32), accumulators.zeros(params))

    def update(
        self, message: Tree, state: StreamingNesterovState, params: Tree, **extra: Any
    ) -> tuple[Tree, StreamingNesterovState]:
        # Apart: XLA would round the sum of two products otherwise in a replay than on a server of its own.
        return apart(self._updated, state.count, message, state, params)

    def _updated(
        self, count: jax.Array, message: Tree, state: StreamingNesterovState, params: Tree
    ) -> tuple[Tree, StreamingNesterovState]:
        fragment, due = fragments_of(params, self.fragments), count % self.fragments
        wide = accumulators.wide(message)
        moved, steps = accumulators.momentum_step(wide, state.velocity, self.momentum, nesterov=True)
        velocity = within(fragment, due, moved, state.velocity)
        steps = within(fragment, due, steps, jax.tree.map(jnp.zeros_like, steps))
        updates = accumulators.descent(steps, self.learning_rate, state.count, params)
        return updates, StreamingNesterovState(count + 1, velocity)
