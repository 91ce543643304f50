"""DANA, DANA-SA, DANA-GA and DANA-DC: a velocity per worker, reads of an estimated future (Barkai et al. 2020, C.1)."""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from sgdlab import arguments
from sgdlab.knobs import Knob
from sgdlab.rules import accumulators
from sgdlab.rules.family import RULES
from sgdlab.rules.gap import COEFFICIENTS, Gap, Penalised, Printed
from sgdlab.rules.hyperparameters import (
    Rate,
    checked,
    like,
    max_learning_rate_argument,
    number,
    rate_at,
    static,
)
from sgdlab.rules.penalty import DelayPenalty, NoPenalty, Penalty
from sgdlab.rules.server_rule import ServerRule, Tree, rule_of
from sgdlab.rules.worker_table import rows, written


class DanaState(NamedTuple):
    """State of the DANA rules; velocities and their sum in float32 at least."""

    count: jax.Array  # shape=(), dtype=int32: updates.
    velocity: Tree  # [num_workers, *params_shape]: each worker's own.
    total: Tree  # *params_shape: the sum of the velocities, updated incrementally.
    penalty: Tree  # of `dana_gap_aware`: a GapState; else empty.


@RULES.register(title="DANA", source="Barkai et al. 2020, Alg. 6", families=("Look-ahead (DANA)",))
def dana(*, learning_rate: Rate, momentum: float = 0.9, weight_decay: float = 0.0, num_workers: int) -> ServerRule:
    r"""DANA: each worker's gradients feed a velocity of their own, and it reads an estimate of the future parameters.

    .. math:: v_i \leftarrow \gamma v_i + g_k + \lambda \theta_k, \qquad \theta_{k+1} = \theta_k - \eta_k v_i, \qquad
        \hat\theta = \theta_{k+1} - \eta_k \gamma \sum_j v_j

    With one worker it is momentum SGD whose gradient is taken at the look-ahead.

    Args:
      learning_rate: eta, or an optax schedule counted in updates.
      momentum: gamma in (-1, 1).
      weight_decay: lambda, added to the gradient at the server's parameters.
      num_workers: N, number of velocities; a number above the schedule's only takes more memory.

    Returns:
      A `ServerRule` for schedules with one gradient per update; its state holds N velocities.

    Raises:
      ValueError: where a hyperparameter is not finite or out of its range; from `update`, where an update has
        several gradients and therefore no single worker.

    Source: Hakimi et al. 2019; Barkai et al. 2020, Algorithm 6.

    Example:
      >>> rule, params = dana(learning_rate=1.0, momentum=0.5, num_workers=2), jnp.zeros(1)
      >>> updates, state = rule.update(jnp.ones(1), rule.init(params), params, worker=1)
      >>> rule.send(params + updates, state)
      Array([-1.5], dtype=float32)
    """
    return _rule(learning_rate, momentum, weight_decay, num_workers, NoPenalty())


@RULES.register(title="DANA-SA", source="Barkai et al. 2020, Alg. 7", families=("Look-ahead (DANA)",))
def dana_staleness_aware(
    *, learning_rate: Rate, momentum: float = 0.9, weight_decay: float = 0.0, num_workers: int
) -> ServerRule:
    r"""DANA-SA: `dana` whose gradients are divided by their delay.

    .. math:: v_i \leftarrow \gamma v_i + \frac{g_k + \lambda \theta_k}{\tau_k}

    The rest, the arguments and the errors are those of `dana`. Source: Barkai et al. 2020, Algorithm 7.

    Example:
      >>> rule, params = dana_staleness_aware(learning_rate=1.0, num_workers=2), jnp.zeros(1)
      >>> rule.receive(jnp.ones(1), rule.init(params), params, worker=0, delay=4, read_params=params)
      Array([0.25], dtype=float32)
    """
    return _rule(learning_rate, momentum, weight_decay, num_workers, DelayPenalty())


@RULES.register(
    title="DANA-GA", source="Barkai et al. 2020, Alg. 8", families=("Look-ahead (DANA)",), measures_gap=True
)
def dana_gap_aware(
    *,
    learning_rate: Rate,
    momentum: float = 0.9,
    weight_decay: float = 0.0,
    max_learning_rate: float | None = None,
    granularity: str = "parameter",
    coefficient: str = "settled",
    num_workers: int,
) -> ServerRule:
    r"""DANA-GA: `dana` whose gradients are divided by their gap, measured from the estimate that was sent.

    .. math:: G_k = \frac{|\theta_k - \hat\theta_i|}{C_k} + 1, \qquad
        v_i \leftarrow \gamma v_i + \frac{g_k + \lambda \theta_k}{G_k}

    C averages the velocities :math:`v_i` of earlier updates ("settled"), or, as printed, :math:`\gamma v_i + g_k` of
    all gradients, the measured one included (`sgdlab.rules.gap`). The rest is as in `dana`.

    Args:
      learning_rate: eta, or an optax schedule counted in updates.
      momentum: gamma in (-1, 1).
      weight_decay: lambda, added to the gradient before the gap divides it.
      max_learning_rate: eta_max of the gap; the learning rate by default, required where that is a schedule.
      granularity: a gap for each "parameter", for each "layer", or one for all ("global"), as in `gap_aware`.
      coefficient: which velocities the gap's C averages: "settled" or "printed", as in `gap_aware`.
      num_workers: N, number of velocities; a number above the schedule's only takes more memory.

    Returns:
      A `ServerRule` for schedules with one gradient per update; its state holds N velocities and the state of the gap.

    Raises:
      ValueError: as in `dana`.

    Source: Barkai et al. 2020, Algorithm 8; Algorithm 14 for C.

    Example:
      >>> rule, params = dana_gap_aware(learning_rate=1.0, momentum=0.0, num_workers=2), jnp.zeros(1)
      >>> updates, state = rule.update(jnp.ones(1), rule.init(params), params, worker=0)
      >>> rule.receive(jnp.ones(1), state, params + updates, worker=1, delay=2, read_params=params)
      Array([0.5], dtype=float32)
    """
    gap = Gap(max_learning_rate_argument(max_learning_rate, learning_rate), granularity=granularity)
    printed = arguments.one_of("coefficient", coefficient, COEFFICIENTS) == "printed"
    return _rule(learning_rate, momentum, weight_decay, num_workers, gap, _PrintedDana if printed else _Dana)


@RULES.register(
    title="DANA-DC",
    source="Hakimi et al. 2019",
    families=("Look-ahead (DANA)",),
    tunes=Knob("variance_control", 0.05, 5.0),
)
def dana_delay_compensated(
    *,
    learning_rate: Rate,
    variance_control: float = 2.0,
    momentum: float = 0.9,
    weight_decay: float = 0.0,
    num_workers: int,
) -> ServerRule:
    r"""DANA-DC: `dana` whose gradients are corrected for how far the parameters are from the estimate that was sent.

    .. math:: v_i \leftarrow \gamma v_i + \tilde g_k, \qquad
        \tilde g_k = g_k + \lambda\, g_k \odot g_k \odot (\theta_k - \hat\theta_i)

    with the weight decay in :math:`g_k`, as in `delay_compensated`. The look-ahead keeps the distance small, so that
    the correction holds where DC-ASGD's does not any more. With lambda 0 it is `dana`, without momentum
    `delay_compensated`.

    Args:
      learning_rate: eta, or an optax schedule counted in updates.
      variance_control: lambda, strength of the correction.
      momentum: gamma in (-1, 1).
      weight_decay: added to the gradient, at the server's parameters, before it is compensated.
      num_workers: N, number of velocities; a number above the schedule's only takes more memory.

    Returns:
      A `ServerRule` for schedules with one gradient per update; its state holds N velocities.

    Raises:
      ValueError: as in `dana`.

    Source: Hakimi, Barkai, Gabel and Schuster 2019, Taming Momentum in a Distributed Asynchronous Environment (arXiv
    1907.11612). The correction and lambda = 2 were verified in a public implementation of it, not in the paper's text;
    that implementation adds the weight decay after the correction.

    Example:
      >>> rule = dana_delay_compensated(learning_rate=1.0, variance_control=0.5, num_workers=2)
      >>> params = jnp.ones(1)
      >>> rule.receive(2 * params, rule.init(params), params, worker=0, delay=2, read_params=0 * params)
      Array([4.], dtype=float32)
    """
    strength = number("variance_control", variance_control, least=0)
    return _rule(learning_rate, momentum, weight_decay, num_workers, _Compensation(variance_control=strength))


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class _Compensation(NoPenalty):
    """No penalty: the first-order change of a gradient since it was computed is added to it.

    Attributes:
      variance_control: lambda, strength of the correction.
    """

    kind: str = static("compensation")
    variance_control: Any = 0.0

    def divide(self, grads: Tree, state: tuple[()], params: Tree, *, delay: Any, read_params: Tree) -> Tree:
        """g + lambda g g (params - read_params), entry by entry."""
        wide = jax.tree.map(
            lambda g, now, then: g + like(self.variance_control, g) * g * g * (like(now, g) - like(then, g)),
            accumulators.wide(grads),
            params,
            read_params,
        )
        return accumulators.narrow(wide, grads)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class _Dana(Penalised):
    learning_rate: Rate
    momentum: Any
    weight_decay: Any
    penalty: Penalty
    num_workers: int = static()

    def init(self, params: Tree, **extra: Any) -> DanaState:
        total = accumulators.zeros(params)
        velocity = jax.tree.map(lambda leaf: jnp.zeros((self.num_workers, *leaf.shape), leaf.dtype), total)
        return DanaState(jnp.zeros([], jnp.int32), velocity, total, self.penalty.init(params))

    def update(
        self, message: Tree, state: DanaState, params: Tree, *, worker: jax.Array | None = None, **extra: Any
    ) -> tuple[Tree, DanaState]:
        if worker is None:
            raise ValueError(
                "worker=None: the DANA rules keep a velocity per worker and need schedules with one gradient per "
                "update, such as protocols.asynchronous makes; this one averages several"
            )
        velocity = self.velocity_after(message, state, worker)
        new_state = DanaState(
            count=optax.safe_increment(state.count),
            velocity=written(state.velocity, worker, velocity),
            total=jax.tree.map(
                lambda total, new, before: total + (new - before), state.total, velocity, rows(state.velocity, worker)
            ),
            penalty=self.penalty.fold(state.penalty, velocity),
        )
        return accumulators.descent(velocity, self.learning_rate, state.count, params), new_state

    def send(self, params: Tree, state: DanaState, **extra: Any) -> Tree:
        # The rate of the update just made; before the first one the sum is zero, and the rate does not matter.
        rate = rate_at(self.learning_rate, jnp.maximum(state.count - 1, 0))
        return jax.tree.map(
            lambda p, total: like(p - like(rate, total) * like(self.momentum, total) * total, p), params, state.total
        )

    def velocity_after(self, message: Tree, state: DanaState, worker: jax.Array) -> Tree:
        return accumulators.momentum_step(message, rows(state.velocity, worker), self.momentum)[0]


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class _PrintedDana(Printed, _Dana):
    """With the gap's coefficient of Algorithm 14 as printed."""


def _rule(
    learning_rate: Rate,
    momentum: Any,
    weight_decay: Any,
    num_workers: int,
    penalty: Any,  # a `Penalty`, or one without a mean, which is never measured
    settings_of: type[_Dana] = _Dana,
) -> ServerRule:
    settings = settings_of(
        **checked(learning_rate=learning_rate, momentum=momentum, weight_decay=weight_decay),
        penalty=penalty,
        num_workers=arguments.whole("num_workers", num_workers),
    )
    return rule_of(settings, num_workers=settings.num_workers)
