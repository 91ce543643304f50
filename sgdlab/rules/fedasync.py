"""FedAsync: the server moves a part of the way to the parameters that a worker has come to (Xie et al. 2019)."""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from sgdlab import arguments
from sgdlab.knobs import Knob
from sgdlab.rules import accumulators
from sgdlab.rules.family import RULES
from sgdlab.rules.hyperparameters import Rate, learning_rate_argument, like, number, static
from sgdlab.rules.penalty import WEIGHTS, staleness_weight
from sgdlab.rules.server_rule import ServerRule, Settings, Tree, decayed, rule_of


class FedAsyncState(NamedTuple):
    """State of `fedasync`."""

    count: jax.Array  # shape=(), dtype=int32: updates.


@RULES.register(
    title="FedAsync",
    source="Xie et al. 2019",
    families=("Local updates",),
    local={"steps": 8, "momentum": 0.9, "server_learning_rate": 0.6},
    tunes=Knob("a", 0.1, 2.0),
)
def fedasync(
    *,
    learning_rate: Rate,
    weight_decay: float = 0.0,
    weight: str = "polynomial",
    a: float = 0.5,
    b: float = 4.0,
    max_learning_rate: float | None = None,
) -> ServerRule:
    r"""Mixes the server's parameters with those of a worker, the less of these the staler what the worker has read.

    .. math:: \theta_{k+1} = (1 - \alpha_k) \theta_k + \alpha_k \theta^{worker}, \qquad \alpha_k = \alpha s(u_k)

    The worker's parameters are what it has read less its message g, so that g may be the difference of several local
    steps. Unlike in `asgd`, what others have done since the worker read is taken back by the share alpha. Where nothing
    is stale, and with alpha = 1, the server takes the worker's parameters. With several gradients in an update it mixes
    with their mean.

    Args:
      learning_rate: alpha in (0, 1], or an optax schedule counted in updates.
      weight_decay: lambda; lambda theta, of the server's parameters, is added to g.
      weight: s, the function of the staleness u: "polynomial" (u + 1)^-a, "hinge" 1 up to u = b, then
        1 / (a (u - b) + 1), or "constant" 1.
      a: of the polynomial and the hinge.
      b: of the hinge.
      max_learning_rate: the largest alpha, at most 1; only looked at where `learning_rate` is a schedule.

    Source: Xie, Koyejo and Gupta 2019, Asynchronous Federated Optimization. The paper's own text was not at hand: the
    mixing and the functions s are those of independent code (Plato, with the + 1 of the hinge). Its proximal term is
    `config.local.proximal`.

    Example:
      Half of the way from 3 to the worker's 1 - 0.5.

      >>> rule, params = fedasync(learning_rate=1.0), jnp.array([3.0])
      >>> state, read = rule.init(params), jnp.array([1.0])
      >>> message = rule.receive(jnp.array([0.5]), state, params, worker=0, delay=4, read_params=read)
      >>> params + rule.update(message, state, params)[0]
      Array([1.75], dtype=float32)
    """
    rate = learning_rate_argument(learning_rate)
    if not callable(rate):
        number("learning_rate", rate, most=1)
    elif max_learning_rate is not None:
        number("max_learning_rate", max_learning_rate, most=1)
    return rule_of(
        _FedAsync(
            learning_rate=rate,
            weight_decay=number("weight_decay", weight_decay, least=0),
            a=number("a", a, least=0),
            b=number("b", b, least=0),
            weight=arguments.one_of("weight", weight, WEIGHTS),
        )
    )


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class _FedAsync(Settings):
    learning_rate: Rate
    weight_decay: Any
    a: Any
    b: Any
    weight: str = static()

    def init(self, params: Tree, **extra: Any) -> FedAsyncState:
        return FedAsyncState(jnp.zeros([], jnp.int32))

    def receive(
        self, grads: Tree, state: FedAsyncState, params: Tree, *, delay: Any, read_params: Tree, **extra: Any
    ) -> Tree:

        def of(g: jax.Array, now: jax.Array, read: jax.Array) -> jax.Array:
            share = staleness_weight(self.weight, like(delay, g) - 1, like(self.a, g), like(self.b, g))
            return share * (now - (read - g))

        return jax.tree.map(of, decayed(grads, params, self.weight_decay), params, read_params)

    def update(self, message: Tree, state: FedAsyncState, params: Tree, **extra: Any) -> tuple[Tree, FedAsyncState]:
        return accumulators.descent(message, self.learning_rate, state.count, params), FedAsyncState(state.count + 1)
