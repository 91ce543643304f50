"""DC-S3GD: stale-synchronous SGD whose workers correct their gradients for the others' steps (Rigazzi 2019)."""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from sgdlab.bounds import Count
from sgdlab.knobs import Knob
from sgdlab.rules import accumulators
from sgdlab.rules.family import RULES
from sgdlab.rules.hyperparameters import Rate, checked, like, number, static
from sgdlab.rules.server_rule import ServerRule, Settings, Tree, decayed, rule_of
from sgdlab.rules.worker_table import rows, written


class DcS3gdState(NamedTuple):
    """State of `dc_s3gd`; in float32 at least."""

    count: jax.Array  # shape=(), dtype=int32: updates.
    velocity: Tree  # [num_workers, *params_shape]: v_i.
    steps: Tree  # [num_workers, *params_shape]: Delta_i, the last step of each worker, as it was sent.
    mean: Tree  # *params_shape: the mean of the steps of the last update.


@RULES.register(
    title="DC-S3GD",
    source="Rigazzi 2019",
    families=(),
    method=False,
    protocols=("delayed_rounds",),
    tunes=Knob("variance_control", 0.02, 2.0),
)
def dc_s3gd(
    *,
    learning_rate: Rate,
    variance_control: float = 0.2,
    momentum: float = 0.9,
    nesterov: bool = False,
    weight_decay: float = 0.0,
    num_workers: Count,
) -> ServerRule:
    r"""Workers step ahead by themselves, hear of the others' steps a round later, and correct their gradients for that.

    .. math:: w_i = \theta + \Delta_i, \qquad D_i = \bar\Delta - \Delta_i, \qquad
        \tilde g_i = g_i + \lambda_i\, g_i \odot g_i \odot D_i, \qquad
        \lambda_i = \lambda_0 \frac{\|g_i\|}{\|g_i \odot g_i \odot D_i\|}

    .. math:: v_i \leftarrow \gamma v_i + \tilde g_i, \qquad \Delta_i \leftarrow -\eta_k v_i, \qquad
        \theta \leftarrow \theta + \bar\Delta

    Every worker has parameters :math:`w_i` of its own: what all have agreed on before the last round, and its own step
    of that round. While it computes a gradient there, the steps are averaged; :math:`D_i` then says how far it was from
    the mean, and the gradient is moved there to first order, as in `delay_compensated`. However small the distance, the
    correction has :math:`\lambda_0` times the length of the gradient, and none where it has no direction. With one
    worker it is `asgd` with that momentum.

    Where workers' steps differ by rounding alone, so does the direction of the correction come from rounding.

    Args:
      learning_rate: eta, or an optax schedule counted in updates.
      variance_control: lambda_0, length of the correction as a share of the gradient's.
      momentum: gamma in (-1, 1), of each worker's own velocity.
      nesterov: whether to use Nesterov's momentum.
      weight_decay: added to the gradient, at the worker's own parameters, before it is corrected.
      num_workers: N, number of rows of the table; a number above the schedule's only takes more memory.

    Returns:
      A `ServerRule` for schedules of `delayed_rounds`; its state holds 2 N + 1 gradients. What is evaluated is theta,
      the mean of the workers' parameters.

    Source: Rigazzi 2019 (arXiv 1911.02516), DC-S3GD. A reconstruction from a note of its formulas: the paper's own text
    and code were not at hand. That norms are over all parameters together, where the weight decay enters, and
    Nesterov's momentum are this library's.

    Example:
      Two workers have sent -1 and -3; the next gradients are moved from their own steps to the mean of both.

      >>> rule, params = dc_s3gd(learning_rate=1.0, momentum=0.0, variance_control=0.5, num_workers=2), jnp.zeros(1)
      >>> state, use = rule.init(params), {"delay": 2, "read_params": params}
      >>> for gradients in ((1.0, 3.0), (1.0, 3.0)):
      ...     messages = []
      ...     for worker, gradient in enumerate(gradients):
      ...         state = rule.absorb(jnp.full(1, gradient), state, params, worker=worker, **use)
      ...         messages.append(rule.receive(jnp.full(1, gradient), state, params, worker=worker, **use))
      ...     _, state = rule.update(sum(messages) / 2, state, params)
      ...     print(*messages, rule.point(params, state, worker=0))
      [-1.] [-3.] [-1.]
      [-0.5] [-4.5] [-0.5]
    """
    return rule_of(
        _DcS3gd(
            **checked(learning_rate=learning_rate, momentum=momentum, weight_decay=weight_decay, nesterov=nesterov),
            variance_control=number("variance_control", variance_control, least=0),
            num_workers=num_workers,
        ),
        num_workers=num_workers,
    )


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class _DcS3gd(Settings):
    learning_rate: Rate
    variance_control: Any
    momentum: Any
    weight_decay: Any
    nesterov: bool = static()
    num_workers: int = static()

    def init(self, params: Tree, **extra: Any) -> DcS3gdState:
        mean = accumulators.zeros(params)
        table = jax.tree.map(lambda leaf: jnp.zeros((self.num_workers, *leaf.shape), leaf.dtype), mean)
        return DcS3gdState(jnp.zeros([], jnp.int32), table, table, mean)

    def absorb(
        self, grads: Tree, state: DcS3gdState, params: Tree, *, worker: jax.Array, read_params: Tree, **extra: Any
    ) -> DcS3gdState:
        gradient = accumulators.wide(decayed(grads, read_params, self.weight_decay))
        apart = jax.tree.map(jnp.subtract, state.mean, rows(state.steps, worker))
        gradient = compensated(gradient, apart, self.variance_control)
        velocity, step = accumulators.momentum_step(
            gradient, rows(state.velocity, worker), self.momentum, nesterov=self.nesterov
        )
        sent = accumulators.wide(accumulators.descent(step, self.learning_rate, state.count, params))
        return state._replace(
            velocity=written(state.velocity, worker, velocity), steps=written(state.steps, worker, sent)
        )

    def receive(self, grads: Tree, state: DcS3gdState, params: Tree, *, worker: jax.Array, **extra: Any) -> Tree:
        """The message is the step that `absorb` has made of the gradient."""
        return accumulators.narrow(rows(state.steps, worker), grads)

    def update(self, message: Tree, state: DcS3gdState, params: Tree, **extra: Any) -> tuple[Tree, DcS3gdState]:
        return message, state._replace(count=optax.safe_increment(state.count), mean=accumulators.wide(message))

    def point(self, sent: Tree, state: DcS3gdState, *, worker: jax.Array, **extra: Any) -> Tree:
        """Return what the worker has read, and its own last step, which is not in that yet."""
        return jax.tree.map(lambda leaf, step: leaf + like(step, leaf), sent, rows(state.steps, worker))


def compensated(gradient: Tree, apart: Tree, share: Any) -> Tree:
    r"""A gradient moved over a distance to first order, by a correction that has a share of the gradient's length.

    .. math:: g + \lambda \|g\| \frac{c}{\|c\|}, \qquad c = g \odot g \odot D

    Both are scaled before they are multiplied, so that small ones do not vanish.

    Args:
      gradient: g.
      apart: D, like it.
      share: lambda.

    Example:
      >>> compensated(jnp.array([3.0, 4.0]), jnp.array([0.0, -1e-30]), 0.5), compensated(jnp.ones(1), jnp.zeros(1), 0.5)
      (Array([3. , 1.5], dtype=float32), Array([1.], dtype=float32))
    """
    unit, length = _scaled(gradient)
    direction, size = _scaled(jax.tree.map(lambda g, d: g * g * d, unit, _scaled(apart)[0]))
    # A correction without a direction is none: not 0 / 0.
    factor = length * _norm(unit) / jnp.where(size > 0, _norm(direction), 1)
    return jax.tree.map(lambda g, c: g + like(share, g) * like(factor, g) * c, gradient, direction)


def _scaled(tree: Tree) -> tuple[Tree, jax.Array]:
    """The tree over its largest entry, and that; a tree of zeros stays."""
    largest = jnp.stack([jnp.max(jnp.abs(leaf), initial=0.0) for leaf in jax.tree.leaves(tree)]).max()
    safe = jnp.where(largest > 0, largest, 1)
    return jax.tree.map(lambda leaf: leaf / like(safe, leaf), tree), largest


def _norm(tree: Tree) -> jax.Array:
    return jnp.sqrt(sum(jnp.sum(jnp.square(leaf)) for leaf in jax.tree.leaves(tree)))
