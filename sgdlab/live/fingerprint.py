"""A digest of what functions and objects hold: the numbers of an optax transform, which its closures hide."""

import dataclasses
import functools
import hashlib
import inspect
import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np

_PLAIN = bool | int | float | complex | str | bytes | None


def fingerprint(value: Any) -> str:
    """Return 16 digits that differ where a number, a word or a function in a value does, in any process.

    Functions are told apart by their names, the numbers in their code, their defaults, and what their closures hold;
    other objects by their fields.

    Example:
      >>> import optax
      >>> rules = [optax.sgd(0.1), optax.sgd(0.1), optax.sgd(0.2), optax.adam(0.1)]
      >>> [fingerprint(rule) == fingerprint(rules[0]) for rule in rules]
      [True, True, False, False]
    """
    hashed = hashlib.sha256()
    for part in _parts(value, {}):
        hashed.update(part + b"\n")
    return hashed.hexdigest()[:16]


def _parts(value: Any, seen: dict[int, Any]) -> Iterator[bytes]:
    if isinstance(value, _PLAIN):
        yield f"{type(value).__name__} {value!r}".encode()
    elif isinstance(value, np.ndarray | np.generic | jax.Array):
        array = np.asarray(value)
        yield f"{array.dtype} {array.shape}".encode() + array.tobytes()
    elif isinstance(value, set | frozenset):
        yield from sorted(b" ".join(_parts(item, dict(seen))) for item in value)
    elif id(value) not in seen:  # a function may hold itself
        seen[id(value)] = value  # kept, so that no other object has its address
        yield from _parts_of_object(value, seen)


def _parts_of_object(value: Any, seen: dict[int, Any]) -> Iterator[bytes]:
    held: Sequence[Any] = ()
    if isinstance(value, Mapping):
        held = sorted(value.items(), key=lambda item: repr(item[0]))
    elif isinstance(value, tuple | list):
        held = value
    elif isinstance(value, functools.partial):
        held = (value.func, value.args, value.keywords)
    elif isinstance(value, types.MethodType):
        held = (value.__func__, value.__self__)
    elif isinstance(value, types.FunctionType):
        cells = [cell.cell_contents for cell in value.__closure__ or () if _is_full(cell)]
        numbers = list(_numbers(value.__code__.co_consts))
        held = (value.__name__, numbers, value.__defaults__, value.__kwdefaults__, cells)
    elif hasattr(value, "__wrapped__"):  # such as a function that is compiled
        held = (value.__wrapped__,)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        held = [getattr(value, field.name) for field in dataclasses.fields(value)]
    elif not isinstance(value, type | types.ModuleType | types.BuiltinFunctionType):
        held = (getattr(value, "__dict__", {}),)
    named = value if inspect.isroutine(value) or isinstance(value, type) else type(value)
    yield f"{getattr(named, '__qualname__', type(value).__name__)} {len(held)}".encode()
    for part in held:
        yield from _parts(part, seen)


def _numbers(constants: Iterable[Any]) -> Iterator[Any]:
    """Yield the numbers among the constants of code, and of the functions within it; Python keeps some in tuples."""
    for constant in constants:
        if isinstance(constant, types.CodeType):
            yield from _numbers(constant.co_consts)
        elif isinstance(constant, tuple | frozenset):
            yield from _numbers(sorted(constant, key=repr) if isinstance(constant, frozenset) else constant)
        elif isinstance(constant, int | float):
            yield constant


def _is_full(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018 (it raises an error where the cell is empty)
    except ValueError:
        return False
    return True
