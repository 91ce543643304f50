"""`optax.inject_hyperparams` for rules: hyperparameters in the state, where a run can read and change them."""

import functools
import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from sgdlab.rules.server_rule import ServerRule, Tree, absorbed, called


class InjectedState(NamedTuple):
    """State of a rule with injected hyperparameters."""

    hyperparams: dict[str, jax.Array]  # shape=() each.
    inner: Tree


def inject_hyperparams(factory: Callable[..., ServerRule]) -> Callable[..., ServerRule]:
    """Makes the float hyperparameters of a rule part of its state.

    A learning-rate schedule depends on the number of updates alone; a hyperparameter in the state can depend on
    anything that a run observes, also inside compiled loops, and is saved with checkpoints. Integers, strings, booleans
    and schedules are not injected.

    Args:
      factory: one of this package's rules, or any function that returns a `ServerRule`.

    Returns:
      A factory with the same arguments.

    Example:
      The rate is halved whenever the loss x^2 stops falling (the first step leads from x to -x).

      >>> from sgdlab import rules
      >>> rule, params = rules.inject_hyperparams(rules.asgd)(learning_rate=1.0), jnp.ones(1)
      >>> state, loss = rule.init(params), jnp.sum(params**2)
      >>> for _ in range(2):
      ...     updates, state = rule.update(2 * params, state, params)
      ...     params, before = params + updates, loss
      ...     loss = jnp.sum(params**2)
      ...     state.hyperparams["learning_rate"] *= jnp.where(loss < before, 1.0, 0.5)
      >>> params, state.hyperparams["learning_rate"].item()
      (Array([0.], dtype=float32), 0.5)
    """
    signature = inspect.signature(factory)

    @functools.wraps(factory)
    def injected(*args: Any, **kwargs: Any) -> ServerRule:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        given = factory(*bound.args, **bound.kwargs)  # refuses bad values at once
        numeric = {name: value for name, value in bound.arguments.items() if _is_float(value)}
        others = {name: value for name, value in bound.arguments.items() if name not in numeric}

        def at(state: InjectedState) -> Any:
            return factory(**others, **state.hyperparams)

        def init(params: Tree, **extra: Any) -> InjectedState:
            # In a narrow dtype 0.999 would be 1; the rules preserve the dtypes of the parameters regardless.
            dtype = jnp.promote_types(optax.tree.dtype(params, "highest"), jnp.float32)
            return InjectedState({k: jnp.asarray(v, dtype) for k, v in numeric.items()}, given.init(params))

        def of_gradients(name: str) -> Callable[..., Tree]:
            return lambda grads, state, params, **extra: called(
                getattr(at(state), name), grads, state.inner, params, **extra
            )

        def update(message, state, params, **extra):
            updates, inner = at(state).update(message, state.inner, params, **extra)
            return updates, InjectedState(state.hyperparams, inner)

        def send(params, state, **extra):
            return at(state).send(params, state.inner, **extra)

        def absorb(grads, state, params, **extra):
            return InjectedState(state.hyperparams, absorbed(at(state), grads, state.inner, params, **extra))

        def point(sent, state, **extra):
            return at(state).point(sent, state.inner, **extra)

        penalty = None if given.penalty is None else of_gradients("penalty")
        kept = None if given.absorb is None else absorb
        own = None if given.point is None else point
        return ServerRule(init, of_gradients("receive"), update, send, given.num_workers, penalty, kept, own)

    return injected


def _is_float(value: Any) -> bool:
    return isinstance(value, (float, jax.Array, np.ndarray, np.floating))
