"""RMSProp with momentum at the server, in TensorFlow's form (Chen et al. 2016, Appendices A.2 to A.4)."""

from typing import Any

import optax

from sgdlab.rules.accumulators import in_float32
from sgdlab.rules.family import RULES
from sgdlab.rules.hyperparameters import Rate, checked, decay_argument, number
from sgdlab.rules.server_rule import ServerRule, lifted


@RULES.register(title="RMSProp", source="Chen et al. 2016, A.2", families=(), method=False, momentum_sgd=False)
def rmsprop(
    *,
    learning_rate: Rate,
    momentum: float = 0.9,
    weight_decay: float = 0.0,
    decay: float = 0.9,
    eps: float = 1.0,
    initial_scale: float = 1.0,
) -> ServerRule:
    r"""RMSProp with momentum at the server, whatever the delay.

    .. math:: s \leftarrow \beta s + (1 - \beta) g^2, \qquad
        v \leftarrow \gamma v + \eta_k \frac{g}{\sqrt{s + \epsilon}}, \qquad \theta \leftarrow \theta - v

    with g the mean of the update's gradients, each plus :math:`\lambda \theta`. The learning rate is inside the
    momentum, as in TensorFlow: when it falls, earlier steps continue at the rate that they were made with. All other
    rules on momentum multiply the velocity by the current rate instead; so do the nodes of runs without a server, since
    there the rate is applied outside of the rule.

    Chen et al. give decay and momentum: 0.9 and 0.9 for Inception (A.2, A.3), 0.95 and 0.9 for PixelCNN (A.4). They
    give neither epsilon nor the initial s. The default epsilon is that of TensorFlow's program for distributed training
    of Inception, which has their decay, momentum and learning rates (0.045, times 0.94 every 2 epochs) and refers to
    their paper. With an epsilon of 1 and gradients well below 1, the step is nearly that of momentum SGD.

    Args:
      learning_rate: eta, or an optax schedule counted in updates. For updates of N gradients, A.2 multiplies it by N.
      momentum: gamma in (-1, 1).
      weight_decay: lambda, added to the gradient at the server's parameters.
      decay: beta of the mean square, in [0, 1).
      eps: epsilon, added to the mean square before its root is taken; above 0.
      initial_scale: initial value of the mean square; TensorFlow 1 has 1, PyTorch and optax have 0.

    Returns:
      A `ServerRule` with a mean square and a velocity as state, around `optax.scale_by_rms` and `optax.trace`.

    Source: Tieleman and Hinton 2012; Chen et al. 2016, A.2 to A.4; `tf.train.RMSPropOptimizer`; TensorFlow's
    `inception_distributed_train.py` for epsilon.

    Example:
      The mean square of one gradient of 2, and of ones before, is 0.5 + 0.5 * 4 = 2.5.

      >>> import jax.numpy as jnp
      >>> rule, params = rmsprop(learning_rate=1.0, decay=0.5, eps=1.5), jnp.zeros(1)
      >>> rule.update(jnp.full(1, 2.0), rule.init(params), params)[0]
      Array([-1.], dtype=float32)
    """
    return lifted(
        _rmsprop,
        **checked(learning_rate=learning_rate, momentum=momentum, weight_decay=weight_decay),
        decay=decay_argument("decay", decay),
        eps=number("eps", eps, above=0),
        initial_scale=number("initial_scale", initial_scale, least=0),
    )


def _rmsprop(*, learning_rate: Rate, momentum: Any, weight_decay: Any, decay: Any, eps: Any, initial_scale: Any):
    update = optax.chain(
        optax.scale_by_rms(decay, eps, initial_scale),
        optax.scale_by_learning_rate(learning_rate),
        optax.trace(momentum),
    )
    return optax.add_decayed_weights(weight_decay), in_float32(update)
