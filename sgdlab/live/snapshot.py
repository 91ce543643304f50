"""Plain state as JSON and arrays, without pickle: what a server needs besides parameters to go on where it was.

What cannot be written so, such as a function, raises `Unwritable`. Nothing that is read is called: objects of
dataclasses and named tuples are filled, without their constructors, and only classes are found that `sgdlab` has, or
that are loaded already.
"""

import collections
import dataclasses
import importlib
import random
import sys
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from sgdlab.live.shared_arrays import dtype_of
from sgdlab.replay.steps import plain

Json = Any
Arrays = dict[str, np.ndarray]
_PLAIN = (int, float, str, bool, type(None))
_OF_ITEMS = {kind.__name__: kind for kind in (list, tuple, set, frozenset)}
_OF_PAIRS = {kind.__name__: kind for kind in (dict, collections.Counter)}


class Unwritable(ValueError):
    """A value that is no plain state; the message names its place."""


class Remembering:
    """Keeps some of its attributes, those that `KEPT` names, over the end of a server."""

    KEPT: tuple[str, ...] = ()

    def state(self) -> dict[str, Any]:
        """Return what another one needs to go on where this one is."""
        return {name: getattr(self, name) for name in self.KEPT}

    def go_on(self, state: Mapping[str, Any]) -> None:
        """Go on where another one was."""
        for name in self.KEPT:
            setattr(self, name, state[name])


class Snapshot(NamedTuple):
    """State of a server: what JSON can write, and arrays by name."""

    tree: Json
    arrays: Arrays


def taken(policy: Any, others: Any) -> Snapshot:
    """Return the state of a policy and other values, which may change afterwards.

    Args:
      policy: its attributes are its state, but for fields that `__init__` takes and that do not count in `==`: they are
        its configuration.
      others: numbers, words, lists, tuples, dicts, sets, deques, Counters, arrays of NumPy and JAX, generators of
        random numbers, and dataclasses and named tuples of such. Of what can change, nothing may be in two places.

    Raises:
      Unwritable: if there is something else in them.

    Example:
      >>> from sgdlab import policies
      >>> policy = policies.softsync(num_workers=2, gradients_per_update=2)
      >>> _ = policy.start([0, 1]), policy.arrived(1.0, worker=0, version=0, seconds=1.0)
      >>> found, other = taken(policy, {1: [2.5, {3}]}), policies.softsync(num_workers=2, gradients_per_update=2)
      >>> put(found, other), other == policy
      ({1: [2.5, {3}]}, True)
      >>> taken(policy, {"choose": [max]})
      Traceback (most recent call last):
      ...
      sgdlab.live.snapshot.Unwritable: choose.0 is a builtin_function_or_method, which no checkpoint can hold
    """
    writer = _Writer()
    tree = [writer.filled(policy, "policy", _configuration(policy)), writer.tree(others, "")]
    return Snapshot(tree, writer.arrays)


def put(snapshot: Snapshot, policy: Any) -> Any:
    """Bring a new policy of the same configuration to the state that was taken, and return the other values.

    Raises:
      ValueError: if the policy is of another class, or a class has other attributes now.
    """
    (_, (name, pairs)), others = snapshot.tree
    found = {key: read(value, snapshot.arrays) for key, value in pairs}
    if name != _name(type(policy)):
        raise ValueError(f"policy must be {name}, as the checkpoint says; it is {_name(type(policy))}")
    if missing := sorted(set(_attributes(policy)) - _configuration(policy) - set(found)):
        raise ValueError(f"policy must be {name} as it was; it has {missing[0]} now")
    for key, value in found.items():
        object.__setattr__(policy, key, value)
    return read(others, snapshot.arrays)


def read(tree: Json, arrays: Arrays) -> Any:  # noqa: PLR0911 (one for each kind)
    """Return the value that was taken, as another object; a ValueError if there is no such class any more."""
    if not isinstance(tree, list):
        return tree
    kind, given = tree
    if kind in _OF_ITEMS:
        return _OF_ITEMS[kind]([read(item, arrays) for item in given])
    if kind in _OF_PAIRS:
        return _OF_PAIRS[kind]({read(key, arrays): read(value, arrays) for key, value in given})
    if kind == "deque":
        return collections.deque([read(item, arrays) for item in given[1]], given[0])
    if kind in ("array", "scalar", "jax"):
        place, dtype = given
        array = arrays[place].view(dtype_of(dtype))
        return array[()] if kind == "scalar" else jnp.asarray(array) if kind == "jax" else array
    if kind == "weak":
        return jnp.asarray(given)
    if kind == "random":
        found = random.Random()
        found.setstate(read(given, arrays))
        return found
    if kind == "generator":
        state = read(given, arrays)
        bits = getattr(np.random, state["bit_generator"])()
        bits.state = state
        return np.random.Generator(bits)
    name, parts = given
    made = _class(name)
    if kind == "named":
        return tuple.__new__(made, [read(item, arrays) for item in parts])
    made = object.__new__(made)
    for key, value in parts:
        object.__setattr__(made, key, read(value, arrays))
    return made


class _Writer:
    def __init__(self) -> None:
        self.arrays: Arrays = {}
        self._seen: dict[int, Any] = {}  # kept, so that no other object gets the number of one

    def tree(self, value: Any, place: str) -> Json:  # noqa: PLR0911, PLR0912 (one for each kind)
        kind = type(value)
        if kind in _PLAIN:
            return value
        if isinstance(value, jax.Array) and not jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
            if value.weak_type and not value.ndim:
                return ["weak", value.item()]
            if not value.weak_type:
                return self._array("jax", value)
        if isinstance(value, np.generic) and not value.dtype.hasobject:
            return self._array("scalar", value)
        if isinstance(value, tuple) and hasattr(kind, "_fields"):
            return ["named", [self._class(kind, place), self._items(value, place)]]
        if kind in (tuple, frozenset):
            return [kind.__name__, self._items(value, place)]
        if id(value) in self._seen:  # two would come of it, of which one changes
            raise Unwritable(f"{place} is in another place too, which no checkpoint can hold")
        self._seen[id(value)] = value
        if kind is np.ndarray and not value.dtype.hasobject and value.dtype.names is None:
            return self._array("array", value)
        if kind in (list, set):
            return [kind.__name__, self._items(value, place)]
        if kind is collections.deque:
            return ["deque", [value.maxlen, self._items(value, place)]]
        if kind in (dict, collections.Counter):
            keys = self._items(value, place)
            values = [self.tree(part, f"{place}.{key}".lstrip(".")) for key, part in value.items()]
            return [kind.__name__, [list(pair) for pair in zip(keys, values, strict=True)]]
        if kind is random.Random:
            return ["random", self.tree(value.getstate(), place)]
        if kind is np.random.Generator:
            return ["generator", self.tree(value.bit_generator.state, place)]
        if dataclasses.is_dataclass(kind):
            self._class(kind, place)
            return self.filled(value, place, set())
        raise Unwritable(f"{place or 'the state'} is a {kind.__name__}, which no checkpoint can hold")

    def filled(self, value: Any, place: str, besides: set[str]) -> Json:
        parts = {name: part for name, part in _attributes(value).items() if name not in besides}
        return ["filled", [_name(type(value)), [[name, self.tree(parts[name], f"{place}.{name}")] for name in parts]]]

    def _items(self, items: Iterable[Any], place: str) -> list[Json]:
        return [self.tree(item, f"{place}.{number}".lstrip(".")) for number, item in enumerate(items)]

    def _array(self, kind: str, value: Any) -> Json:
        place = str(len(self.arrays))
        dtype, foreign = np.dtype(value.dtype), value.dtype.kind == "V"  # such as bfloat16
        self.arrays[place] = plain(value) if foreign else np.array(value)
        return [kind, [place, dtype.name if foreign else dtype.str]]

    def _class(self, kind: type, place: str) -> str:
        name = _name(kind)
        try:
            found = _class(name)
        except ValueError as error:
            raise Unwritable(f"{place} cannot be in a checkpoint: {error}") from error
        if found is not kind:
            raise Unwritable(f"{place} is of a class that is not found by its name, {name}")
        return name


def _attributes(value: Any) -> dict[str, Any]:
    names = [field.name for field in dataclasses.fields(value)] if dataclasses.is_dataclass(value) else []
    own = {name: getattr(value, name) for name in names if hasattr(value, name)}
    return own | getattr(value, "__dict__", {})


def _configuration(policy: Any) -> set[str]:
    fields = dataclasses.fields(policy) if dataclasses.is_dataclass(policy) else ()
    return {field.name for field in fields if field.init and not field.compare}


def _name(kind: type) -> str:
    return f"{kind.__module__}:{kind.__qualname__}"


def _class(name: str) -> Any:
    """Return a class of dataclasses or named tuples."""
    module, _, path = name.partition(":")
    found: Any = importlib.import_module(module) if module.startswith("sgdlab.") else sys.modules.get(module)
    for part in path.split("."):
        found = getattr(found, part, None)
    if not isinstance(found, type) or not (dataclasses.is_dataclass(found) or hasattr(found, "_fields")):
        raise ValueError(f"{name} must be a class of dataclasses or named tuples at the top of a module")
    return found
