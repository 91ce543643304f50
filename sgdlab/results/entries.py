"""Nested configuration entries of several runs: put together, compared, and those that some runs still have."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

ABSENT = object()
"""In the place of the value of an entry that is not there."""


def differences(old: Any, new: Any, name: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Dotted name, old and new value of each entry that differs; a side that lacks the entry has `ABSENT`."""
    groups = [isinstance(side, dict) for side in (old, new)]
    if all(groups) or (any(groups) and ABSENT in (old, new)):
        old, new = ({} if side is ABSENT else side for side in (old, new))
        for key in sorted(old.keys() | new.keys()):
            yield from differences(old.get(key, ABSENT), new.get(key, ABSENT), f"{name}.{key}" if name else key)
    elif old != new:
        yield name, old, new


def merged(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    """The entries of both; those that both have are equal."""
    both = {
        key: merged(first[key], second[key])
        for key in first.keys() & second.keys()
        if isinstance(first[key], dict) and isinstance(second[key], dict)
    }
    return first | second | both


def present(entries: Mapping[str, Any], configs: Sequence[Any]) -> dict[str, Any]:
    """Those of some nested entries that at least one configuration has."""
    found = {}
    for name, value in entries.items():
        having = [config[name] for config in configs if isinstance(config, dict) and name in config]
        if having:
            found[name] = present(value, having) if isinstance(value, dict) else value
    return found
