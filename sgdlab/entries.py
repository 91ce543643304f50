"""Entries of a part: its arguments by keyword, with their defaults, types and descriptions, as a configuration."""

import dataclasses
import functools
import inspect
import re
import typing
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ml_collections import ConfigDict

_KINDS = (bool, int, float, str, tuple)
_SECTION = re.compile(r"^ *(?:Args|Attributes):\n((?:(?: .*)?\n)+?)(?=\n *\w+:|\n *$|\Z)", re.MULTILINE)
_ARGUMENT = re.compile(r"(\w+): (.*)")


def described(make: Callable, defaults: Mapping[str, Any]) -> dict[str, str]:
    """Return what a docstring says of arguments, and of the fields of dataclasses among them."""
    lines: dict[str, str] = {}
    last = None
    section = _SECTION.search((inspect.getdoc(make) or "") + "\n\n")
    for line in section.group(1).splitlines() if section else ():
        named = _ARGUMENT.fullmatch(line.strip()) if len(line) - len(line.lstrip()) <= 2 else None
        if named:
            last = named.group(1)
            lines[last] = named.group(2)
        elif last and line.strip():
            lines[last] += " " + line.strip()
    for name, default in defaults.items():
        if dataclasses.is_dataclass(default):
            lines |= {f"{name}.{entry}": line for entry, line in described(type(default), fields_of(default)).items()}
    return lines


def fields_of(group: Any) -> dict[str, Any]:
    """Return the fields of a dataclass, which is a group of entries, and their values."""
    return {field.name: getattr(group, field.name) for field in dataclasses.fields(group)}


def called_of(make: Callable) -> Callable:
    """Return the function that takes the arguments: of a class its constructor."""
    return make.__init__ if isinstance(make, type) else make


def check_default(where: str, value: Any, givers: str = "") -> None:
    """Check that a configuration can hold a default; the message begins with `where` and ends with `givers`.

    Raises:
      ValueError: where it is no number, text, tuple, None, or dataclass of these.
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            check_default(f"{where}.{field.name}", getattr(value, field.name))
    elif value is not None and not isinstance(value, _KINDS):
        raise ValueError(
            f"{where} must be given by runs, or have a default that a configuration can hold: a number, a text, a "
            f"tuple, None, or a dataclass of these{givers}"
        )


def entries_of(make: Callable, defaults: Mapping[str, Any], changed: Mapping[str, Any], where: str) -> "ConfigDict":
    """Return the entries of a function or class as a configuration, with the types of its annotations.

    Args:
      make: the function or class.
      defaults: its entries, and their defaults.
      changed: values that differ from the defaults.
      where: what has the entries, for the message.

    Raises:
      ValueError: where `changed` names another entry.
    """
    from ml_collections import ConfigDict, config_dict  # noqa: PLC0415 (an optax loop needs no configuration)

    for name in changed:
        if name not in defaults:
            raise ValueError(f"{where}.{name}={changed[name]!r} must be one of {', '.join(defaults) or 'no entries'}")
    called = called_of(make)
    hints = typing.get_type_hints(function_of(called) if isinstance(called, functools.partial) else called)
    config = ConfigDict()
    for name, default in defaults.items():
        value = changed.get(name, default)
        if dataclasses.is_dataclass(default):
            fields = fields_of(default)
            config[name] = entries_of(type(default), fields, dict(value) if name in changed else {}, f"{where}.{name}")
            continue
        kinds = typing.get_args(hints.get(name)) or (hints.get(name),)
        kinds = [type(typing.get_args(k)[0]) if typing.get_origin(k) is typing.Literal else k for k in kinds]
        kind = next((kind for kind in (float, int, bool, str) if kind in kinds), type(default))
        if value is None:
            value = config_dict.placeholder(tuple if any(typing.get_origin(k) is tuple for k in kinds) else kind)
        elif kind is float and isinstance(value, int) and not isinstance(value, bool):
            value = float(value)  # so that a flag may set it to a fraction
        config[name] = value
    return config


def as_arguments(defaults: Mapping[str, Any], entries: Mapping[str, Any]) -> dict[str, Any]:
    """Return entries as arguments: groups become the dataclasses that they stand for."""
    arguments = {}
    for name, value in entries.items():
        default: Any = defaults.get(name)
        if dataclasses.is_dataclass(default) and hasattr(value, "items"):  # a mapping or a ConfigDict
            try:
                value = dataclasses.replace(default, **as_arguments(fields_of(default), value))  # noqa: PLW2901
            except ValueError as error:
                raise ValueError(f"{name}.{str(error).removeprefix(f'{name}.')}") from error
        arguments[name] = value
    return arguments


def function_of(make: Callable) -> Callable:
    """Return the function that a decorator or a `functools.partial` was given."""
    while isinstance(make, functools.partial):
        make = make.func
    return inspect.unwrap(make)
