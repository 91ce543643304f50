"""Checks the values of these commands' flags; an impossible value is refused with one line that says what is right."""

import math
from collections.abc import Sequence

from sgdlab.errors import UsageError


def whole(flag: str, value: int, *, least: int = 1) -> int:
    """Returns the flag's value, a whole number of at least `least`.

    Raises:
      UsageError: if it is less than `least`.
    """
    if value < least:
        raise UsageError(f"--{flag}={value} must be a whole number of at least {least}")
    return value


def wholes(flag: str, values: Sequence[str], *, least: int = 1) -> list[int]:
    """Returns a flag's whole numbers, sorted and without duplicates.

    Raises:
      UsageError: if the list is empty, or a value is not a whole number of at least `least`.
    """
    if not values or any(not value.strip().isdecimal() or int(value) < least for value in values):
        given = ",".join(values)
        raise UsageError(f"--{flag}={given} must be whole numbers of at least {least}, separated by commas")
    return sorted({int(value) for value in values})


def positive(flag: str, value: float, *, most: float = math.inf) -> float:
    """Returns the flag's value, a finite number above 0 and at most `most`.

    Raises:
      UsageError: if it is not.
    """
    if not (math.isfinite(value) and 0 < value <= most):
        limit = f" and at most {most:g}" if math.isfinite(most) else ""
        raise UsageError(f"--{flag}={value:g} must be a finite number above 0{limit}")
    return value


def rates(flag: str, values: Sequence[str]) -> list[float]:
    """Returns a flag's learning rates in the given order and without duplicates.

    Raises:
      UsageError: if the list is empty, or a value is not a finite number above 0.
    """
    try:
        numbers = [float(value) for value in values]
    except ValueError:
        numbers = []
    if not numbers or any(not math.isfinite(number) or number <= 0 for number in numbers):
        raise UsageError(f"--{flag}={','.join(values)} must be finite numbers above 0, separated by commas")
    return list(dict.fromkeys(numbers))
