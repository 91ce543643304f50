"""FADAS: AMSGrad at the server, with shorter steps where a message is very stale (Wang et al. 2024)."""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from sgdlab import arguments
from sgdlab.rules import accumulators
from sgdlab.rules.family import RULES
from sgdlab.rules.hyperparameters import Rate, checked, like, number, rate_at, static
from sgdlab.rules.server_rule import ServerRule, Settings, Tree, rule_of

ADAPTATIONS = ("capped", "divided", "none")


class FadasState(NamedTuple):
    """State of `fadas`; the moments in float32 at least."""

    count: jax.Array  # shape=(), dtype=int32: updates.
    mu: Tree  # *params_shape: first moment.
    nu: Tree  # *params_shape: second moment.
    largest: Tree  # *params_shape: the largest second moment so far.
    delay: jax.Array  # shape=(), dtype=int32: largest delay among the messages of the open update; 0 before the first.


@RULES.register(title="FADAS", source="Wang et al. 2024", method=False, rate="adam_learning_rate", baseline="adam")
def fadas(
    *,
    learning_rate: Rate,
    b1: float = 0.9,
    b2: float = 0.99,
    eps: float = 1e-8,
    weight_decay: float = 0.0,
    adaptation: str = "divided",
    threshold: float = 1.0,
) -> ServerRule:
    r"""AMSGrad on the mean message of an update, with a rate that is smaller where the stalest message is too stale.

    .. math:: m \leftarrow b_1 m + (1 - b_1) \bar g, \quad v \leftarrow b_2 v + (1 - b_2) \bar g^2, \quad
        \hat v \leftarrow \max(\hat v, v), \quad \theta \leftarrow \theta - \eta_k \frac{m}{\sqrt{\hat v} + \epsilon}

    The moments are not corrected for their start at zero. With u the largest staleness of the update's messages, and
    where u is above the `threshold`, the rate is eta / u ("divided"), or the smaller of eta and 1 / u ("capped");
    otherwise, and with "none", it is eta. So "capped" changes nothing where eta is at most the inverse of the largest
    staleness: with eta = 0.01, unless a message is more than a hundred updates old. Messages are gradients, or the
    differences of local steps (`config.local`), which the paper has. Without stale messages it is AMSGrad.

    Args:
      learning_rate: eta of the server, or an optax schedule counted in updates.
      b1: decay of the first moment, in [0, 1).
      b2: decay of the second moment, in [0, 1).
      eps: epsilon, added to the root of the second moment.
      weight_decay: lambda; lambda theta is added to each message.
      adaptation: "divided", as the authors' code does, "capped" or "none".
      threshold: the largest staleness with the whole rate, tau_c.

    Returns:
      A `ServerRule`; its state holds three moments.

    Source: Wang, Wang, Lu and Chen 2024, FADAS. The moments and "capped" are the paper's equations as a public
    collection of optimizers (zij) restates them; "divided", and the numbers b1, b2, epsilon and tau_c, are those of the
    authors' code, which also corrects the moments for their start. The paper's own pseudocode was not at hand.

    Example:
      >>> rule, params = fadas(learning_rate=1.0, b1=0.0, b2=0.0, eps=0.0), jnp.zeros(1)
      >>> use = {"worker": 0, "delay": 5, "read_params": params}
      >>> state = rule.absorb(jnp.ones(1), rule.init(params), params, **use)
      >>> rule.update(jnp.ones(1), state, params)[0]
      Array([-0.25], dtype=float32)
    """
    return rule_of(
        _Fadas(
            **checked(learning_rate=learning_rate, b1=b1, b2=b2, eps=eps, weight_decay=weight_decay),
            threshold=number("threshold", threshold, least=0),
            adaptation=arguments.one_of("adaptation", adaptation, ADAPTATIONS),
        )
    )


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class _Fadas(Settings):
    learning_rate: Rate
    b1: Any
    b2: Any
    eps: Any
    weight_decay: Any
    threshold: Any
    adaptation: str = static()

    def init(self, params: Tree, **extra: Any) -> FadasState:
        zeros = accumulators.zeros(params)
        return FadasState(jnp.zeros([], jnp.int32), zeros, zeros, zeros, jnp.zeros([], jnp.int32))

    def absorb(self, grads: Tree, state: FadasState, params: Tree, *, delay: Any, **extra: Any) -> FadasState:
        return state._replace(delay=jnp.maximum(state.delay, like(delay, state.delay)))

    def update(self, message: Tree, state: FadasState, params: Tree, **extra: Any) -> tuple[Tree, FadasState]:
        squared = jax.tree.map(jnp.square, accumulators.wide(message))
        mu = accumulators.moving_average(state.mu, message, self.b1)
        nu = accumulators.moving_average(state.nu, squared, self.b2)
        largest = jax.tree.map(jnp.maximum, state.largest, nu)
        rate = rate_at(self.learning_rate, state.count)

        def step(m: jax.Array, v: jax.Array) -> jax.Array:
            own = self._rate(like(rate, m), like(state.delay, m) - 1)
            # A parameter that has had no gradient yet stays, also where epsilon is 0.
            return jnp.where(m == 0, 0, -own * (m / (jnp.sqrt(v) + like(self.eps, v))))

        updates = accumulators.narrow(jax.tree.map(step, mu, largest), params)
        return updates, FadasState(state.count + 1, mu, nu, largest, jnp.zeros_like(state.delay))

    def _rate(self, rate: jax.Array, staleness: jax.Array) -> jax.Array:
        if self.adaptation == "none":
            return rate
        late = jnp.maximum(staleness, 1)
        smaller = rate / late if self.adaptation == "divided" else jnp.minimum(rate, 1 / late)
        return jnp.where(staleness > like(self.threshold, staleness), smaller, rate)
