"""The arguments of a figure's function as flags: their types, their bounds, and what its docstring says of them."""

import collections.abc
import dataclasses
import inspect
import types
import typing
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal

from absl import flags

from sgdlab import arguments
from sgdlab.bounds import Count, Positive, bounds_of  # noqa: F401 (two of them for the example)
from sgdlab.entries import described


@dataclasses.dataclass(frozen=True)
class Option:
    """An argument of a figure's function.

    Attributes:
      name: its name, and the flag's.
      default: its value where it is not given.
      help: what the docstring says of it.
      read: from a text, or a value, to the checked value; it raises a ValueError that names what is wrong.
      must: what a value must be, in words.
      is_bool: it is a switch.
    """

    name: str
    default: Any
    help: str
    read: Callable[[Any], Any]
    must: str
    is_bool: bool

    def define(self, value: Any) -> None:
        """Defines the flag, whose default is that of a scale."""
        if self.is_bool:
            flags.DEFINE_bool(self.name, value, self.help)
        else:
            flags.DEFINE(_Parser(self), self.name, shown(value), self.help, serializer=_Serializer())

    def check(self, value: Any) -> Any:
        """Return a value that a person has given, checked.

        Raises:
          ValueError: naming the argument, its value and what would be right.
        """
        try:
            return self.read(value)
        except ValueError as error:
            raise ValueError(f"{self.name}={shown(value)} must be {self.must}") from error


def options(function: Callable[..., Any]) -> dict[str, Option]:
    """Return the options of a function whose arguments are keywords with defaults.

    Raises:
      ValueError: where an argument has no default, or a type that no flag can have.

    Example:
      >>> def drawn(*, rates: list[Positive] = (0.1, 0.2), seeds: Count = 3) -> None: ...
      >>> found = options(drawn)
      >>> found["rates"].check("0.5,1"), found["seeds"].check("2")
      ([0.5, 1.0], 2)
      >>> found["rates"].check("0.5,-1")
      Traceback (most recent call last):
      ...
      ValueError: rates=0.5,-1 must be finite numbers above 0, separated by commas
    """
    hints, found = typing.get_type_hints(function, include_extras=True), {}
    parameters = inspect.signature(function).parameters
    words = described(function, {name: p.default for name, p in parameters.items()})
    for name, parameter in parameters.items():
        if parameter.default is parameter.empty:
            raise ValueError(f"{function.__name__}: {name} must have a default, the value of the scale laptop")
        read, must = _reader(name, hints[name])
        found[name] = Option(name, parameter.default, words.get(name, ""), read, must, hints[name] is bool)
    return found


def shown(value: Any) -> str:
    """Return a value as it is written on a command line.

    Example:
      >>> shown([1, 0.5]), shown(None)
      ('1,0.5', '')
    """
    if isinstance(value, list | tuple | range):
        return ",".join(map(shown, value))
    if value is None:
        return ""
    return f"{value:g}" if isinstance(value, float) and float(f"{value:g}") == value else str(value)


class _Parser(flags.ArgumentParser):
    """Reads a flag as its option does."""

    def __init__(self, option: Option):
        self._option, self.syntactic_help = option, option.must

    def parse(self, argument: Any) -> Any:
        return self._option.read(argument)


class _Serializer(flags.ArgumentSerializer):
    """Writes a flag's value as a person would."""

    def serialize(self, value: Any) -> str:
        return shown(value)


def _reader(name: str, hint: Any) -> tuple[Callable[[Any], Any], str]:
    """Return the function that reads a type's values, and what they must be."""
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        (inner,) = (kind for kind in typing.get_args(hint) if kind is not type(None))
        read, must = _reader(name, inner)
        return lambda value: None if value in (None, "") else read(value), must
    if origin in (list, collections.abc.Sequence):
        read, must = _reader(name, typing.get_args(hint)[0])
        return lambda value: _several(value, read), f"{_plural(must)}, separated by commas"
    if origin is Literal:
        known = typing.get_args(hint)
        return lambda value: arguments.one_of(name, value, known), f"one of {', '.join(known)}"
    bounds = bounds_of(hint)
    if origin is Annotated:
        hint = typing.get_args(hint)[0]
    words = " and ".join(f"{word} {bound:g}" for word, bound in bounds.items()).replace("least", "at least")
    words = words.replace("most", "at most")
    readers: dict[Any, tuple[Callable[[Any], Any], str]] = {
        bool: (bool, "true or false"),
        int: (lambda value: _bounded(int(str(value)), bounds), f"a whole number {words and f'of {words}'}".strip()),
        float: (lambda value: _bounded(float(value), bounds), f"a finite number {words}".strip()),
        str: (str, "a text"),
    }
    if hint not in readers:
        raise ValueError(
            f"{name}: {hint} must be int, float, bool, str, Literal, one of these or None, or a list or Sequence of one"
        )
    return readers[hint]


def _bounded(value: float, bounds: Mapping[str, float]) -> float:
    arguments.real("value", value, **bounds)
    return value


def _several(value: Any, read: Callable[[Any], Any]) -> list[Any]:
    """Return the values of a list, in their order and without duplicates."""
    parts = value.split(",") if isinstance(value, str) else list(value)
    if not parts or parts == [""]:
        raise ValueError("at least one value")
    return list(dict.fromkeys(read(part.strip() if isinstance(part, str) else part) for part in parts))


def _plural(must: str) -> str:
    return (
        must.replace("a whole number", "whole numbers")
        .replace("a finite number", "finite numbers")
        .replace("a text", "texts")
    )
