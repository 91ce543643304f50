"""What the server does with a gradient: the ServerRule, and how any optax transform becomes one (or the reverse).

A rule is data: its functions are `jax.tree_util.Partial` objects whose leaves are the hyperparameters. It can be an
argument of a compiled function, so another learning rate is another argument and never another program.

A rule is written in one of two ways. Where it is a chain of optax transforms, one stateless per gradient and any per
update, write a function that makes the two and pass it to `lifted` (`asgd`, `staleness_aware`). Where `receive` reads
the state, or a message is more than a gradient, no chain will do: write a frozen dataclass of hyperparameters, a
`Settings` with `init`, `receive`, `update` and perhaps `send` as methods, and bind it with `rule_of` (`gap_aware`,
`dana`).
"""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import optax

Tree = Any
"""A pytree of arrays."""


class ServerRule(NamedTuple):
    """Three pure functions of a parameter server, and the start of its state.

    Attributes:
      init: `(params) -> state`.
      receive: `(grads, state, params, *, worker, delay, read_params) -> message`, once per gradient. It turns a
        gradient into a message, any pytree that can be averaged over the gradients of one update. It reads the
        state and never changes it.
      update: `(mean_message, state, params, *, num_gradients, delay, worker) -> (updates, state)`, once per update,
        with optax's sign: new params = params + updates. `delay` is the mean delay of the update's gradients;
        `worker` is the sender, or None where an update has several gradients.
      send: `(params, state) -> what a worker reads`.
      num_workers: how many workers the state has rows for; None where it keeps none.
    """

    init: Callable[..., Tree]
    receive: Callable[..., Tree]
    update: Callable[..., tuple[Tree, Tree]]
    send: Callable[..., Tree]
    num_workers: int | None = None


class Settings:
    """Base of the settings of a rule: a frozen dataclass, registered as a pytree, whose methods are the rule."""

    def receive(self, grads: Tree, state: Tree, params: Tree, **extra: Any) -> Tree:
        """The message is the gradient, with the weight decay at the server's parameters: g + weight_decay theta."""
        del state, extra
        return decayed(grads, params, self.weight_decay)

    def send(self, params: Tree, state: Tree, **extra: Any) -> Tree:
        """Workers read the parameters."""
        del state, extra
        return params


def rule_of(settings: Settings, num_workers: int | None = None) -> ServerRule:
    """Binds the methods of `settings`; its leaves become data of the rule."""
    bound = (
        jax.tree_util.Partial(getattr(type(settings), name), settings) for name in ("init", "receive", "update", "send")
    )
    return ServerRule(*bound, num_workers=num_workers)


def decayed(grads: Tree, params: Tree, weight_decay: Any) -> Tree:
    """g + weight_decay theta, before any penalty, so that the penalty divides it too (Barkai et al., C.5)."""
    if isinstance(weight_decay, float | int) and weight_decay == 0.0:
        return grads
    return jax.tree.map(lambda g, p: g + jnp.asarray(weight_decay, g.dtype) * p, grads, params)


class _Transforms(Protocol):
    def __call__(self, **hyperparameters: Any) -> tuple[optax.GradientTransformation, optax.GradientTransformation]: ...


@jax.tree_util.register_pytree_node_class
class _Lifted(Settings):
    """A rule made of two optax transforms: a stateless one per gradient, any one per update."""

    def __init__(self, transforms: _Transforms, hyperparameters: dict[str, Any], options: tuple[tuple[str, Any], ...]):
        self.transforms, self.hyperparameters, self.options = transforms, hyperparameters, options

    def tree_flatten(self):
        return (self.hyperparameters,), (self.transforms, self.options)

    @classmethod
    def tree_unflatten(cls, static, children):
        transforms, options = static
        return cls(transforms, *children, options)

    def _made(self) -> tuple[optax.GradientTransformation, optax.GradientTransformation]:
        return self.transforms(**self.hyperparameters, **dict(self.options))

    def init(self, params: Tree, **extra: Any) -> Tree:
        del extra
        receive, update = self._made()
        if jax.tree.leaves(jax.eval_shape(receive.init, params)):
            raise ValueError("receive must be a stateless optax transform: an update can receive many gradients")
        return update.init(params)

    def receive(self, grads: Tree, state: Tree, params: Tree, **extra: Any) -> Tree:
        del state
        transform = optax.with_extra_args_support(self._made()[0])
        return _like(grads, transform.update(grads, transform.init(params), params, **extra)[0])

    def update(self, message: Tree, state: Tree, params: Tree, *, num_gradients=1, delay=1, worker=None, **extra):
        transform = optax.with_extra_args_support(self._made()[1])
        updates, new_state = transform.update(
            message, state, params, num_gradients=num_gradients, delay=delay, worker=worker, **extra
        )
        return _like(message, updates), _like(state, new_state)


def _like(tree: Tree, values: Tree) -> Tree:
    """`values` in the dtypes of `tree`: a hyperparameter that is an array must not promote narrower parameters."""
    return jax.tree.map(
        lambda leaf, value: value if value.dtype == leaf.dtype else value.astype(leaf.dtype), tree, values
    )


def lifted(transforms: _Transforms, **hyperparameters: Any) -> ServerRule:
    """A rule whose optax transforms are made anew from hyperparameters that are data.

    Args:
      transforms: a module-level function, `(**hyperparameters) -> (transform per gradient, transform per update)`.
      **hyperparameters: numbers, arrays or schedules (as pytrees) are data; True and False are part of the program.
    """
    options = {name: value for name, value in hyperparameters.items() if isinstance(value, bool)}
    data = {name: value for name, value in hyperparameters.items() if name not in options}
    return rule_of(_Lifted(transforms, data, tuple(sorted(options.items()))))


def server_rule(tx: optax.GradientTransformation, *, receive: optax.GradientTransformation | None = None) -> ServerRule:
    """Lifts any optax transform to a rule of the parameter server.

    The message is the gradient, averaged over the gradients of one update; `tx.update` is called once per update
    with `delay`, `num_gradients` and `worker` as extra arguments, which transforms that do not know them never see.

    Args:
      tx: what happens once per update.
      receive: a stateless transform of each single gradient, such as clipping; it gets `worker`, `delay` and
        `read_params` as extra arguments. None: the gradient as it is.

    Returns:
      A `ServerRule`. Each call makes a new program; the rules of this package carry their hyperparameters as data.

    Raises:
      ValueError: from `init`, where `receive` keeps a state.

    Example:
      >>> import jax.numpy as jnp, optax
      >>> rule = server_rule(optax.sgd(0.5), receive=optax.clip(1.0))
      >>> params = jnp.zeros(2)
      >>> state = rule.init(params)
      >>> message = rule.receive(jnp.array([4.0, 1.0]), state, params, worker=0, delay=1, read_params=params)
      >>> rule.update(message, state, params, num_gradients=1, delay=1, worker=0)[0]
      Array([-0.5, -0.5], dtype=float32)
    """
    pair = (optax.identity() if receive is None else receive, tx)
    return lifted(lambda: pair)


def as_transform(rule: ServerRule) -> optax.GradientTransformationExtraArgs:
    """Makes a rule an optax transform for updates of one gradient each: `update(receive(gradient))`.

    Its `update` takes `worker`, `delay` (1 by default) and `read_params` (the parameters by default) as extra
    arguments; so every rule can stand in anybody's optax chain or training loop. What a rule sends to its workers
    (DANA's estimate) stays `rule.send`.

    Example:
      >>> import jax.numpy as jnp
      >>> from sgdlab import rules
      >>> transform = as_transform(rules.staleness_aware(learning_rate=1.0, momentum=0.0))
      >>> params = jnp.zeros(1)
      >>> transform.update(jnp.ones(1), transform.init(params), params, delay=4)[0]
      Array([-0.25], dtype=float32)
    """

    def update(grads, state, params=None, *, worker=0, delay=1, read_params=None, **extra):
        del extra
        if params is None:
            raise ValueError("params=None must be the parameters that the gradient is applied to")
        read_params = params if read_params is None else read_params
        message = rule.receive(grads, state, params, worker=worker, delay=delay, read_params=read_params)
        return rule.update(message, state, params, num_gradients=1, delay=delay, worker=worker)

    return optax.GradientTransformationExtraArgs(rule.init, update)
