"""Bounds of numbers, declared in annotations and checked where a part is called."""

import functools
import inspect
import typing
from collections.abc import Callable
from typing import Annotated, Any, TypeVar

import annotated_types

from sgdlab import arguments

F = TypeVar("F", bound=Callable[..., Any])

Whole = Annotated[int, annotated_types.Ge(0)]
"""A whole number of at least 0."""
Count = Annotated[int, annotated_types.Ge(1)]
"""A whole number of at least 1."""
Positive = Annotated[float, annotated_types.Gt(0)]
"""A finite number above 0."""
NotNegative = Annotated[float, annotated_types.Ge(0)]
"""A finite number of at least 0."""
Share = Annotated[float, annotated_types.Gt(0), annotated_types.Le(1)]
"""A number above 0 and at most 1."""
Decay = Annotated[float, annotated_types.Ge(0), annotated_types.Lt(1)]
"""A number of at least 0 and below 1."""

_WORDS = {"ge": "least", "gt": "above", "le": "most", "lt": "below"}


def bounds_of(annotation: Any) -> dict[str, float]:
    """Return the bounds that an annotation declares: `least`, `above`, `most`, `below`.

    Example:
      >>> bounds_of(Share), bounds_of(int)
      ({'above': 0, 'most': 1}, {})
    """
    if typing.get_origin(annotation) is not Annotated:
        return {}
    found = {}
    for bound in annotation.__metadata__:
        for each in bound if isinstance(bound, annotated_types.GroupedMetadata) else (bound,):
            found |= {word: getattr(each, name) for name, word in _WORDS.items() if hasattr(each, name)}
    return found


def bounded(function: F) -> F:
    """Return a function that checks numbers given by keyword against the bounds of its annotations.

    Args:
      function: its annotations may be `Annotated[int, ...]` or `Annotated[float, ...]`, also with None. Where none has
        bounds, and where it is a class or a `functools.partial`, it is returned as it is.

    Raises:
      ValueError: (the new function) where a number is of another kind or out of its bounds.

    Example:
      >>> @bounded
      ... def softsync(*, gradients_per_update: Count = 4, seconds: NotNegative | None = None) -> int:
      ...     return gradients_per_update
      >>> softsync(gradients_per_update=2)
      2
      >>> softsync(gradients_per_update=0)
      Traceback (most recent call last):
      ...
      ValueError: gradients_per_update=0 must be a whole number of at least 1
    """
    if isinstance(function, type | functools.partial):
        return function
    checks = {name: _check(p.annotation) for name, p in inspect.signature(function).parameters.items()}
    checks = {name: check for name, check in checks.items() if check is not None}
    if not checks:
        return function

    @functools.wraps(function)
    def checked(*args: Any, **given: Any) -> Any:
        for name, check in checks.items():
            if name in given:
                given[name] = check(name, given[name])
        return function(*args, **given)

    return typing.cast(F, checked)


def _check(annotation: Any) -> Callable[[str, Any], Any] | None:
    kinds = typing.get_args(annotation) if typing.get_origin(annotation) is not Annotated else (annotation,)
    for kind in kinds:
        bounds = bounds_of(kind)
        if bounds:
            optional = type(None) in kinds
            # A whole number without a lower bound may be negative, and not from 1 as arguments.whole has it.
            whole = functools.partial(arguments.whole, least=None)
            check = functools.partial(whole if typing.get_args(kind)[0] is int else arguments.real, **bounds)
            return lambda name, value: None if optional and value is None else check(name, value)
    return None
