"""Checks extra arguments of transforms: those that a user's rule asks for, and those that a loop gives to a rule.

A misspelt name would be ignored, in silence.
"""

import difflib
import inspect
import os
import pathlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import jax
import optax
from jax.interpreters import partial_eval

from sgdlab.errors import is_library

OF_UPDATES = ("worker", "delay", "num_gradients")
"""Arguments that a transform of updates is given."""

OF_GRADIENTS = ("worker", "delay", "read_params", "number")
"""Arguments that a transform of single gradients (`receive`) is given."""

_ALL = tuple(dict.fromkeys((*OF_UPDATES, *OF_GRADIENTS)))

_MEANINGS = {
    "worker": "the number of the worker that has sent the gradient, from 0",
    "delay": "1 + the number of updates since the gradient's parameters were read",
    "read_params": "the parameters that the gradient was computed on",
}

_CLOSE = 0.82
"""Least likeness to one of these with which a name counts as misspelt: `dellay` and `workers` do, `decay` does not."""

_UPDATES = "update_fns"
"""Names that optax gives the functions of a chain, which are there without their transforms."""


def check(tx: optax.GradientTransformation, offered: tuple[str, ...]) -> None:
    """Check that a transform, and all that it consists of, asks only for what it will be given.

    What optax and this package define is not asked; chains and wrappers of optax are looked into.

    Args:
      tx: the transform.
      offered: names of the extra arguments that it is given.

    Raises:
      ValueError: where it names another one without a default, or one that is nearly the name of what is given; is no
        transform with extra arguments and names one; or does not take the others. The message names its file.

    Example:
      >>> def update(updates, state, params=None, *, dellay=1, **extra_args):
      ...     return updates, state
      >>> tx = optax.GradientTransformationExtraArgs(lambda params: optax.EmptyState(), update)
      >>> check(optax.chain(optax.sgd(0.1), tx), OF_UPDATES)  # doctest: +ELLIPSIS
      Traceback (most recent call last):
      ...
      ValueError: dellay=... is given to no transform: it must be one of worker, delay, num_gradients (did you mean \
delay?): ..., update
    """
    wanted = [name for name in offered if name != "number" or _names_number(tx)]
    for update, extra in _updates(tx, set()):
        named, takes_all = _named(update)
        for name, has_default in named.items():
            # What has a default may be a constant of the transform's own, such as eps=1e-8.
            meant = difflib.get_close_matches(name, _ALL, n=1, cutoff=_CLOSE)
            if (extra and name in offered) or (has_default and not meant):
                continue
            if not extra:
                raise ValueError(
                    f"{name}=... is never given to an optax.GradientTransformation; make it an "
                    f"optax.GradientTransformationExtraArgs: {_where(update)}"
                )
            hint = f" (did you mean {meant[0]}?)" if meant and meant[0] in offered else ""
            raise ValueError(
                f"{name}=... is given to no transform: it must be one of {', '.join(offered)}{hint}: {_where(update)}"
            )
        if missing := [name for name in wanted if extra and not takes_all and name not in named]:
            raise ValueError(
                f"**extra_args must be there at the end of a transform's arguments: it is given "
                f"{' and '.join(missing)} too: {_where(update)}"
            )


def without_number(tx: optax.GradientTransformation) -> optax.GradientTransformation:
    """Return a transform that is not told a gradient's `number`, where nothing in it names that: some take only others.

    Example:
      >>> def update(updates, state, params=None, *, worker, delay, read_params):
      ...     return updates, state
      >>> tx = optax.GradientTransformationExtraArgs(lambda params: optax.EmptyState(), update)
      >>> without_number(tx).update(1.0, (), worker=0, delay=1, read_params=2.0, number=7)
      (1.0, ())
    """
    if not isinstance(tx, optax.GradientTransformationExtraArgs) or _names_number(tx):
        return tx

    def update(updates: Any, state: Any, params: Any = None, *, number: Any = None, **extra_args: Any) -> Any:
        return tx.update(updates, state, params, **extra_args)

    return optax.GradientTransformationExtraArgs(tx.init, update)


def _names_number(tx: optax.GradientTransformation) -> bool:
    """Return True if a function that somebody else wrote names `number`."""
    return any("number" in _named(update)[0] for update, _ in _updates(tx, set()))


def used(apply: Callable, grads: Any, state: Any, params: Any, extra: Mapping[str, Any]) -> frozenset[str]:
    """Return the names of the extra arguments that what a rule computes depends on; none where that is not known.

    It is not known of a rule that decides in Python by the value of an argument, which has none while it is traced.

    Args:
      apply: `(grads, state, params, extra) -> anything`, the rule.
      grads: a gradient.
      state: of the rule.
      params: of the server.
      extra: values of the extra arguments.

    Example:
      >>> sorted(used(lambda g, state, params, extra: g / extra["delay"], 1.0, (), 1.0, {"delay": 1, "worker": 0}))
      ['delay']
    """
    flat, tree = jax.tree.flatten_with_path(dict(extra))
    names = [path[0].key for path, _ in flat]
    try:
        traced = jax.make_jaxpr(lambda *rest: apply(*rest[:3], jax.tree.unflatten(tree, rest[3:])))(
            grads, state, params, *(leaf for _, leaf in flat)
        )
    except TypeError:  # of JAX, where a traced value is needed
        return frozenset()
    _, reached = partial_eval.dce_jaxpr(traced.jaxpr, [True] * len(traced.jaxpr.outvars))
    return frozenset(name for name, is_used in zip(names, reached[-len(names) :], strict=True) if is_used)


def check_missing(missing: Sequence[str], wanted: Collection[str], others: Collection[str]) -> None:
    """Check that a rule can do without the extra arguments that are missing.

    Args:
      missing: their names.
      wanted: names of those that the rule uses.
      others: names of further arguments that were given, perhaps to another transform of a chain.

    Raises:
      ValueError: where it cannot, or another name is nearly one of these.
    """
    for name in others:
        if meant := difflib.get_close_matches(name, missing, n=1, cutoff=_CLOSE):
            raise ValueError(f"{name}=... must be one of {', '.join(_MEANINGS)} (did you mean {meant[0]}?)")
    for name in missing:
        if name in wanted:
            raise ValueError(f"{name}=None must be {_MEANINGS[name]}: this rule uses it")


def _updates(tx: Any, seen: set[int]) -> Iterator[tuple[Callable, bool]]:
    """Functions that somebody else wrote, and whether they are given extra arguments."""
    if isinstance(tx, optax.GradientTransformation):
        yield from _functions(tx.update, isinstance(tx, optax.GradientTransformationExtraArgs), seen)
    elif isinstance(tx, dict):
        for value in tx.values():
            yield from _updates(value, seen)
    elif isinstance(tx, tuple | list):
        for value in tx:
            yield from _updates(value, seen)


def _functions(update: Any, extra: bool, seen: set[int]) -> Iterator[tuple[Callable, bool]]:
    if id(update) in seen:
        return
    seen.add(id(update))
    code = getattr(inspect.unwrap(getattr(update, "func", update)), "__code__", None)
    if code is None:
        return
    if not _is_known(code.co_filename):
        yield update, extra
        return
    cells = dict(zip(code.co_freevars, getattr(update, "__closure__", None) or (), strict=False))
    for name, cell in cells.items():
        try:
            value = cell.cell_contents
        except ValueError:  # not yet assigned
            continue
        if name == _UPDATES:
            for function in value:
                yield from _functions(function, True, seen)
        else:
            yield from _updates(value, seen)


def _named(update: Callable) -> tuple[dict[str, bool], bool]:
    """Return what a function takes besides gradients, state and parameters: name -> whether it has a default.

    And whether it takes whatever it is given.
    """
    parameters = list(inspect.signature(update).parameters.values())
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    bound = getattr(update, "keywords", {})  # of a functools.partial
    keyword = [p for p in parameters if p.kind == p.KEYWORD_ONLY and p.name not in bound]
    named = {p.name: p.default is not p.empty for p in (*positional[3:], *keyword)}
    return named, any(p.kind == p.VAR_KEYWORD for p in parameters)


def _is_known(filename: str) -> bool:
    return is_library(filename) or filename.startswith(f"{pathlib.Path(__file__).parents[1]}{os.sep}")


def _where(update: Callable) -> str:
    code = inspect.unwrap(getattr(update, "func", update)).__code__
    return f"{pathlib.PurePath(code.co_filename).name}, line {code.co_firstlineno}, {code.co_name}"
