"""Bounds of numbers, declared in annotations and checked where a part is called."""

import dataclasses
import functools
import inspect
import typing
from collections.abc import Callable
from typing import Annotated, Any, TypeVar

from sgdlab import arguments

F = TypeVar("F", bound=Callable[..., Any])


@dataclasses.dataclass(frozen=True)
class Bounds:
    """Bounds of a number; those of the package annotated_types (`Ge`, `Interval`, ...) are read too.

    Attributes:
      ge: the least.
      gt: what it is above.
      le: the most.
      lt: what it is below.

    Example:
      >>> Momentum = Annotated[float, Bounds(ge=0, lt=1)]
      >>> bounds_of(Momentum)
      {'least': 0, 'below': 1}
    """

    ge: float | None = None
    gt: float | None = None
    le: float | None = None
    lt: float | None = None


Whole = Annotated[int, Bounds(ge=0)]
"""A whole number of at least 0."""
Count = Annotated[int, Bounds(ge=1)]
"""A whole number of at least 1."""
Positive = Annotated[float, Bounds(gt=0)]
"""A finite number above 0."""
NotNegative = Annotated[float, Bounds(ge=0)]
"""A finite number of at least 0."""
Share = Annotated[float, Bounds(gt=0, le=1)]
"""A number above 0 and at most 1."""
Decay = Annotated[float, Bounds(ge=0, lt=1)]
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
        values = {word: getattr(bound, name, None) for name, word in _WORDS.items()}
        found |= {word: value for word, value in values.items() if value is not None}
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
