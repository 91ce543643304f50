# my_rule.py
import jax, jax.numpy as jnp, optax
from sgdlab.rules import RULES


def scale_by_root_delay(cap):
    def update(updates, state, params=None, *, delay, **extra_args):
        root = jnp.sqrt(jnp.minimum(delay, cap))  # delay is traced: jnp.minimum, not min
        return jax.tree.map(lambda u: u / root, updates), state

    return optax.GradientTransformationExtraArgs(lambda params: optax.EmptyState(), update)


@RULES.register(title="Root delay")
def root_delay(*, learning_rate, momentum: float = 0.9, weight_decay: float = 0.0, cap: int = 64):
    """Divides each step by the root of its delay, so that late gradients count less, but not little."""
    step = optax.chain(optax.trace(momentum), scale_by_root_delay(cap), optax.scale_by_learning_rate(learning_rate))
    return optax.chain(optax.add_decayed_weights(weight_decay), step)
