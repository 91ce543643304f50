"""The `ServerRule`: functions that make one (`server_rule`, `lifted`, `rule_of`), and one as an optax transform.

A rule is data: its functions are `jax.tree_util.Partial` objects whose leaves are the hyperparameters. It can be an
argument of a compiled function, so that a new learning rate compiles nothing.

There are two ways to write a rule. If it consists of two chains of optax transforms, a stateless one per gradient and
any one per update, write a function that makes the two and pass it to `lifted` (`asgd`, `staleness_aware`). If
`receive` reads the state, or a message is more than a gradient, write a frozen dataclass of hyperparameters, a
`Settings` with `init`, `receive`, `update` and perhaps `send`, `absorb` and `point` as methods, and bind it with
`rule_of` (`gap_aware`, `dana`; `malenia` for a rule with a table of gradients; `dc_s3gd` for one with points).
"""

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from sgdlab.rules import extra_arguments
from sgdlab.rules.penalty import NoPenalty
from sgdlab.types import Tree


class ServerRule(NamedTuple):
    """A parameter server: the initial state, and three pure functions.

    Attributes:
      init: `(params) -> state`.
      receive: `(grads, state, params, *, worker, delay, read_params) -> message`, once per gradient. It turns a
        gradient into a message, any pytree that can be averaged over the gradients of one update, such as `()` where
        the state says it all. It reads the state and never changes it. Where it names `number`, or takes all keywords,
        as `penalty` and `absorb` may too, it is told the gradient's number, which is that of its batch: random keys
        that are made of it are the same in event mode, in waves and on processes.
      update: `(mean_message, state, params, *, num_gradients, delay, worker) -> (updates, state)`, once per update,
        with optax's sign: new params = params + updates. `delay` is the mean delay of the update's gradients;
        `worker` is the sender, or None where an update has several gradients.
      send: `(params, state) -> what a worker reads`.
      num_workers: number of workers that the state has entries for; None if it has none per worker.
      penalty: `(grads, state, params, *, worker, delay, read_params) -> scalar`, what `receive` makes of a
        gradient because of its age, in one number that a replay can record: what it divides it by, the mean over the
        parameters; of DC-ASGD, the relative length of its correction. None if it says nothing of it.
      absorb: `(grads, state, params, *, worker, delay, read_params) -> state`, once per gradient, in the order of
        their arrival and before `receive`, which sees the new state: what the rule keeps of a gradient whatever update
        it is in, such as a table of the workers' gradients. None if the state changes by updates alone. Where it names
        `anew`, or takes all keywords, it is told whether the worker begins anew with this gradient, as after a loss.
      point: `(sent, state, *, worker) -> the point at which the worker computes its gradient`, like `sent`, where a
        worker adds something of its own to what it has read; `read_params` is then this point. It depends on the state
        of this worker alone, which nobody's messages but its own may change. None: workers compute on what they read.
    """

    init: Callable[..., Tree]
    receive: Callable[..., Tree]
    update: Callable[..., tuple[Tree, Tree]]
    send: Callable[..., Tree]
    num_workers: int | None = None
    penalty: Callable[..., jax.Array] | None = None
    absorb: Callable[..., Tree] | None = None
    point: Callable[..., Tree] | None = None


class Settings:
    """Base of a rule's hyperparameters: a frozen dataclass, registered as a pytree, whose methods are the rule."""

    weight_decay: Any

    def receive(self, grads: Tree, state: Tree, params: Tree, **extra: Any) -> Tree:
        """The message is the gradient, with the weight decay at the server's parameters: g + weight_decay theta."""
        return decayed(grads, params, self.weight_decay)

    def send(self, params: Tree, state: Tree, **extra: Any) -> Tree:
        """Workers read the parameters."""
        return params


def rule_of(settings: Settings, num_workers: int | None = None) -> ServerRule:
    """The rule of the methods of `settings`, whose leaves become data of the rule."""
    bound = (
        jax.tree_util.Partial(getattr(type(settings), name), settings) for name in ("init", "receive", "update", "send")
    )
    measured, absorb, point = (getattr(type(settings), name, None) for name in ("mean_penalty", "absorb", "point"))
    if isinstance(getattr(settings, "penalty", None), NoPenalty):
        measured = None
    penalty, absorb, point = (
        None if method is None else jax.tree_util.Partial(method, settings) for method in (measured, absorb, point)
    )
    return ServerRule(*bound, num_workers=num_workers, penalty=penalty, absorb=absorb, point=point)


def absorbed(rule: Any, grads: Tree, state: Tree, params: Tree, **use: Any) -> Tree:
    """The state after a gradient was absorbed, which is the state itself where the rule keeps nothing of gradients.

    Args:
      rule: a `ServerRule`, or anything else with `absorb`.
      grads: the gradient.
      state: of the rule.
      params: of the server.
      **use: `worker`, `delay` and `read_params`; perhaps `number` and `anew`.
    """
    return state if rule.absorb is None else called(rule.absorb, grads, state, params, **use)


def received(rule: Any, grads: Tree, state: Tree, params: Tree, **use: Any) -> Tree:
    """Return the message of a gradient; arguments are as of `absorbed`, whose state it is given, without `anew`."""
    return called(rule.receive, grads, state, params, **use)


def called(function: Callable[..., Tree], *arguments: Tree, **use: Any) -> Tree:
    """Call a function of a rule without `number` and `anew` where it does not take them: many rules do not.

    Example:
      >>> called(lambda grads, *, worker: grads + worker, 1.0, worker=2, number=7)
      3.0
    """
    parameters = inspect.signature(function).parameters
    if not any(parameter.kind == parameter.VAR_KEYWORD for parameter in parameters.values()):
        use = {name: value for name, value in use.items() if name in parameters or name not in _LATER}
    return function(*arguments, **use)


_LATER = ("number", "anew")
"""Arguments that were not there from the first."""


def decayed(grads: Tree, params: Tree, weight_decay: Any) -> Tree:
    """g + weight_decay theta, before any penalty, so that the penalty divides it too (Barkai et al., C.5)."""
    if isinstance(weight_decay, float | int) and weight_decay == 0.0:
        return grads
    return jax.tree.map(lambda g, p: g + jnp.asarray(weight_decay, g.dtype) * p, grads, params)


_Transforms = Callable[..., tuple[optax.GradientTransformation, optax.GradientTransformation]]


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
        receive, update = self._made()
        if jax.tree.leaves(jax.eval_shape(receive.init, params)):
            raise ValueError("receive must be a stateless optax transform: an update can receive many gradients")
        return update.init(params)

    def receive(self, grads: Tree, state: Tree, params: Tree, **extra: Any) -> Tree:
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
    """A rule of two optax transforms, which are made from hyperparameters that are data of the rule.

    Args:
      transforms: a module-level function, `(**hyperparameters) -> (transform per gradient, transform per update)`.
      **hyperparameters: numbers, arrays or schedules (as pytrees) are data; booleans are static settings.
    """
    options = {name: value for name, value in hyperparameters.items() if isinstance(value, bool)}
    data = {name: value for name, value in hyperparameters.items() if name not in options}
    return rule_of(_Lifted(transforms, data, tuple(sorted(options.items()))))


def server_rule(tx: optax.GradientTransformation, *, receive: optax.GradientTransformation | None = None) -> ServerRule:
    """Makes any optax transform a rule of the parameter server.

    The message is the gradient, averaged over the gradients of one update; `tx.update` is called once per update
    with `delay`, `num_gradients` and `worker` as extra arguments. Transforms that take no extra arguments are called
    without them.

    `delay` is a traced scalar: 1 for a fresh gradient, 1 + the number of updates since the parameters were read (in
    `tx`, the mean of these if an update has several gradients). Use `jnp.minimum(delay, cap)`, not `min`.

    Args:
      tx: transform of the mean gradient, once per update.
      receive: a stateless transform of each single gradient, such as clipping; it gets `worker`, `delay`,
        `read_params` and `number` as extra arguments. None: the gradient is not changed.

    Returns:
      A `ServerRule`. Each call compiles a new program; the hyperparameters of this package's rules are data instead.

    Raises:
      ValueError: where a transform names an extra argument that it is not given, such as a misspelt one; from `init`,
        where `receive` has a state.

    Example:
      The step is divided by the delay, but at most by 4; each gradient is clipped.

      >>> import jax, jax.numpy as jnp, optax
      >>> def scale_by_capped_delay(cap):
      ...     def update(updates, state, params=None, *, delay=1, **extra_args):
      ...         return jax.tree.map(lambda u: u / jnp.minimum(delay, cap), updates), state
      ...     return optax.GradientTransformationExtraArgs(lambda params: optax.EmptyState(), update)
      >>> rule = server_rule(optax.chain(optax.sgd(1.0), scale_by_capped_delay(4)), receive=optax.clip(1.0))
      >>> params = jnp.zeros(1)
      >>> state = rule.init(params)
      >>> message = rule.receive(jnp.full(1, 9.0), state, params, worker=0, delay=2, read_params=params)
      >>> update = jax.jit(lambda delay: rule.update(message, state, params, delay=delay)[0])
      >>> [update(delay).item() for delay in (1, 2, 8)]
      [-1.0, -0.5, -0.25]
    """
    receive = optax.identity() if receive is None else receive
    extra_arguments.check(receive, extra_arguments.OF_GRADIENTS)
    extra_arguments.check(tx, extra_arguments.OF_UPDATES)
    pair = (extra_arguments.without_number(receive), tx)
    return lifted(lambda: pair)


def as_transform(rule: ServerRule) -> optax.GradientTransformationExtraArgs:
    """Makes a rule an optax transform for updates of one gradient each: `update(receive(gradient))`, after `absorb`.

    Its `update` takes `worker`, `delay` and `read_params` as extra arguments, so that every rule can be used in an
    optax chain or a training loop; it must be given those that what it computes depends on, and `number` where the rule
    wants the gradient's. Others, as of another transform in the chain, are ignored. What workers read (of DANA, an
    estimate) remains `rule.send`, and the point where they compute `rule.point`.

    Raises:
      ValueError: from `update`, where it is given no parameters; an argument is missing that the rule uses; or one is
        nearly the name of what is missing.

    Example:
      >>> from sgdlab import rules
      >>> transform = as_transform(rules.staleness_aware(learning_rate=1.0, momentum=0.0))
      >>> params = jnp.zeros(1)
      >>> transform.update(jnp.ones(1), transform.init(params), params, delay=4)[0]
      Array([-0.25], dtype=float32)
    """

    def apply(grads, state, params, use):
        state = absorbed(rule, grads, state, params, **use)
        message = received(rule, grads, state, params, **use)
        return rule.update(message, state, params, num_gradients=1, delay=use["delay"], worker=use["worker"])

    used: list[frozenset[str]] = []  # once something is missing

    def update(grads, state, params=None, *, worker=None, delay=None, read_params=None, number=None, **extra):
        if params is None:
            raise ValueError("params=None must be the parameters that the gradient is applied to")
        if read_params is not None and jax.tree.structure(read_params) != jax.tree.structure(params):
            raise ValueError(
                "read_params must be a tree like params; in optax.masked and optax.partition, "
                "mask_compatible_extra_args=True makes it one"
            )
        use = {"worker": worker, "delay": delay, "read_params": read_params}
        fresh = {"worker": 0, "delay": 1, "read_params": params}
        numbered = {} if number is None else {"number": number}
        if missing := [name for name, value in use.items() if value is None]:
            if not used:
                used.append(extra_arguments.used(apply, grads, state, params, fresh | numbered))
            extra_arguments.check_missing(missing, used[0], extra)
            use |= {name: fresh[name] for name in missing}
        return apply(grads, state, params, use | numbered)

    return optax.GradientTransformationExtraArgs(rule.init, update)
