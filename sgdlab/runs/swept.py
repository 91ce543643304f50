"""What a comparison varies besides methods, workers and seeds: entries of the configuration, and their values."""

import ast
import re
from collections.abc import Mapping, Sequence
from typing import Any

from ml_collections import ConfigDict

from sgdlab import arguments
from sgdlab.runs.configuration import flat

_SET_OTHERWISE = {
    "method": "methods",
    "protocol.kind": "methods",
    "rule.kind": "methods",
    "cluster.num_workers": "num_workers",
    "cluster.first_workers": "num_workers",
    "seed": "seeds",
}
"""Entries that a comparison sets by what it calls otherwise."""

_COMMAS = re.compile(r",(?![^(\[]*[)\]])")
"""Between values, and not inside of one."""


def read(texts: Sequence[str], config: ConfigDict) -> dict[str, list[Any]]:
    """Return the entries and values that flags name.

    Args:
      texts: such as "optimizer.learning_rate=0.01,0.05"; values of several numbers are in brackets.
      config: whose entries they are.

    Raises:
      ValueError: where there is no such entry, or a value is not one of it.

    Example:
      >>> from configs import digits
      >>> read(["optimizer.learning_rate=0.01,0.05", "network.conv.channels=(8,16),(32,64)"], digits.get_config())
      {'optimizer.learning_rate': [0.01, 0.05], 'network.conv.channels': [(8, 16), (32, 64)]}
    """
    over: dict[str, Any] = {}
    for text in texts:
        name, equals, values = text.partition("=")
        if not equals or not values:
            raise ValueError(f"sweep={text} must be an entry and its values, as in optimizer.learning_rate=0.01,0.05")
        if name in over:
            raise ValueError(f"sweep={text} must be joined with sweep={name}={','.join(map(str, over[name]))}")
        _check_name(name, config)
        over[name] = [_value(name, value.strip(), config) for value in _COMMAS.split(values)]
    return check(over, config)


def check(over: Mapping[str, Sequence[Any]], config: ConfigDict) -> dict[str, list[Any]]:
    """Return entries and their values, each once.

    Args:
      over: by name of the entry.
      config: whose entries they are.

    Raises:
      ValueError: where there is no such entry, a value is not one of it, or a comparison sets the entry otherwise.
    """
    checked = {}
    for name, values in over.items():
        _check_name(name, config)
        if isinstance(values, str) or not list(values):
            raise ValueError(f"sweep={name}={values!r} must be several values")
        copy = config.copy_and_resolve_references()
        for value in values:
            try:
                copy.update_from_flattened_dict({name: value})
            except TypeError as error:
                kind = _type(name, config).__name__
                raise ValueError(f"sweep={name}={value!r} must be of type {kind}, as the entry is") from error
        checked[name] = [value for place, value in enumerate(values) if value not in list(values)[:place]]
    return checked


def _check_name(name: str, config: ConfigDict) -> None:
    if name in _SET_OTHERWISE:
        raise ValueError(f"sweep={name} must be left out: a comparison sets it by {_SET_OTHERWISE[name]}")
    known = [entry for entry, _ in flat(config)]
    if name not in known:
        near = " or ".join(arguments.nearest(name, known))
        raise ValueError(f"sweep={name} must be an entry of the configuration{near and f'; did you mean {near}?'}")


def _type(name: str, config: Any) -> type:
    *parents, last = name.split(".")
    for parent in parents:
        config = config[parent]
    return config.get_type(last)


def _value(name: str, text: str, config: ConfigDict) -> Any:
    """Return the value that a text stands for; `check` says where it is none of the entry."""
    if _type(name, config) is str:
        return text
    words: dict[str, Any] = {"true": True, "false": False, "none": None}
    if text.lower() in words:
        return words[text.lower()]
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text
