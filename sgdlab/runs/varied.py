"""Entries that a comparison varies besides methods, workers and seeds, and their values."""

import ast
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ml_collections import ConfigDict

from sgdlab.runs.configuration import flat, value_of
from sgdlab.runs.sweep import meant
from sgdlab.runs.tuning import Tuned

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
    """Return the entries and values that flags name, checked as by `check`; several numbers are in brackets.

    Example:
      >>> from configs import digits
      >>> texts = ["optimizer.learning_rate=0.01,0.05", "network.conv.channels=(8,16),(32,64)"]
      >>> read(texts, digits.get_config())
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


def check(over: Mapping[str, Any], config: ConfigDict) -> dict[str, list[Any]]:
    """Return the entries that a comparison varies besides methods, workers and seeds, and their values, each once.

    Raises:
      ValueError: where there is no such entry, a value is not one of it, or a comparison sets the entry otherwise.
    """
    checked = {}
    if not isinstance(over, Mapping):
        raise ValueError(f"sweep={over!r} must be a mapping of entries to their values")
    for name, given in over.items():
        _check_name(name, config)
        values = list(each(given))
        if not values:
            raise ValueError(f"sweep={name}={given!r} must be at least one value")
        copy = config.copy_and_resolve_references()
        for value in values:
            try:
                copy.update_from_flattened_dict({name: value})
            except TypeError as error:
                kind = _type(name, config).__name__
                raise ValueError(f"sweep={name}={value!r} must be of type {kind}, as the entry is") from error
        checked[name] = [value for place, value in enumerate(values) if value not in values[:place]]
    return checked


def check_beside_tuning(over: Mapping[str, Any], trials: int, tuned: Tuned | None) -> None:
    """Check that a comparison varies nothing that tuning sets, or that its tuning would not know of.

    Raises:
      ValueError: where it does.
    """
    set_by_tuning = {entry for settings in (tuned or {}).values() for entry in settings}
    for name in over:
        if trials:
            raise ValueError(
                f"sweep={name} must be left out beside tune={trials}: each method is tuned once, as the configuration "
                "is; compare first, and then with tune=tuned.json"
            )
        if name in set_by_tuning:
            raise ValueError(f"sweep={name} must be left out: tune gives each method its own value")


def _check_name(name: str, config: ConfigDict) -> None:
    if name in _SET_OTHERWISE:
        raise ValueError(f"sweep={name} must be left out: a comparison sets it by {_SET_OTHERWISE[name]}")
    known = [entry for entry, _ in flat(config)]
    if name not in known:
        raise ValueError(f"sweep={name} must be an entry of the configuration{meant(name, known)}")


def _type(name: str, config: ConfigDict) -> type:
    group, _, last = name.rpartition(".")
    return (value_of(config, group) if group else config).get_type(last)


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


def each(values: Any) -> Iterable[Any]:
    """Return several values, or a single one as the only one."""
    return [values] if isinstance(values, str | os.PathLike) or not isinstance(values, Iterable) else values
