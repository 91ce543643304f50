"""Checks the class of a user's policy when it registers itself, so that a slip is not a result."""

import dataclasses
import difflib
import inspect
import re
import typing
from collections.abc import Callable, Iterable
from typing import Any

from sgdlab.protocols.policy import Base

_EVENTS = {
    "arrival": ("now", "worker", "version", "seconds"),
    "timer": ("now",),
    "after_loss": ("now",),
    "lost": ("now", "worker"),
    "joined": ("now", "worker"),
    "start": ("workers",),
    "wanted": (),
}
"""The methods that a class may have, and what each is given."""


def check(make: Callable) -> None:
    """Check that the class of a policy can be one; makers that are functions are not asked.

    Args:
      make: what registers itself.

    Raises:
      ValueError: where it has no `arrival`, a method does not take what it is given, or all runs would share a list, a
        dictionary or a set that is neither in capitals nor declared as the class's own (ClassVar, Final).

    Example:
      >>> class Mine(Base):
      ...     def arrive(self, now, worker, version, seconds):
      ...         return []
      >>> check(Mine)
      Traceback (most recent call last):
      ...
      ValueError: Mine must have a method `arrival(now, worker, version, seconds)`, which returns actions; it has \
`arrive`
    """
    if not isinstance(make, type) or not issubclass(make, Base):
        return
    own = [vars(kind) for kind in make.__mro__ if kind not in Base.__mro__]
    names = {name: value for attributes in reversed(own) for name, value in attributes.items()}
    if make.arrival is Base.arrival:
        near = difflib.get_close_matches("arrival", [name for name in names if not name.startswith("__")], n=1)
        raise ValueError(
            f"{make.__name__} must have a method `arrival({', '.join(_EVENTS['arrival'])})`, which returns actions"
            f"{f'; it has `{near[0]}`' if near else ''}"
        )
    for name, value in names.items():
        if name in _EVENTS and (inspect.isfunction(value) or isinstance(value, staticmethod | classmethod)):
            _check_taken(make, name, value)
        elif not name.startswith("__"):
            _check_own(make, name, value)


def _check_taken(make: type, name: str, value: Any) -> None:
    given = _EVENTS[name]
    unbound = () if isinstance(value, staticmethod | classmethod) else (None,)
    try:
        inspect.signature(getattr(make, name), follow_wrapped=False).bind(*unbound, *given)
    except TypeError as error:
        raise ValueError(f"{make.__name__}.{name} must take ({', '.join(('self', *given))}): {error}") from error


def _check_own(make: type, name: str, value: Any) -> None:
    if isinstance(value, dataclasses.Field):
        raise ValueError(
            f"{make.__name__}.{name} is a dataclass's field: the class must have @dataclasses.dataclass below the line "
            "that registers it"
        )
    if not isinstance(value, list | dict | set) or name.isupper() or _is_of_the_class(make, name):
        return
    kind = type(value).__name__
    default = f"lambda: {value!r}" if value else kind
    raise ValueError(
        f"{make.__name__}.{name} would be shared by all runs; write `{name}: {kind} = dataclasses.field("
        f"default_factory={default}, init=False)`, or, for a table that nobody changes, `{name.upper()}`"
    )


def _is_of_the_class(make: type, name: str) -> bool:
    """Tell whether a class, or one that it inherits from, says that an attribute is the class's: ClassVar or Final."""
    for kind in make.__mro__:
        declared = vars(kind).get("__annotations__", {}).get(name)
        text = declared if isinstance(declared, str) else str(typing.get_origin(declared) or declared)
        if re.match(r"\s*(\w+\.)*(ClassVar|Final)\b", text):
            return True
    return False


def returned(policy: Any, method: str, actions: Any) -> Any:
    """Return what a method of a policy returned, which must be actions: a list, or anything that gives them one by one.

    Raises:
      ValueError: where it is nothing of the kind.
    """
    if isinstance(actions, list | tuple):
        return actions
    if not isinstance(actions, Iterable) or isinstance(actions, str | bytes):
        missing = ": is `return` missing?" if actions is None else ""
        raise ValueError(
            f"policy={type(policy).__name__}: `{method}` must return a list of actions, and returned {actions!r}"
            f"{missing}"
        )
    return list(actions)
