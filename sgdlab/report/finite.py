"""Numbers that JSON cannot hold: NaN and the infinities."""

import math
from collections.abc import Callable, Mapping
from typing import Any


def finite(value: Any, instead: Callable[[float], Any] = lambda number: None) -> Any:
    """Return a value for `json.dumps`, with something else in the place of numbers that are not finite.

    Mappings, lists and tuples are searched, to any depth; both of the latter become lists. In the place of such a
    number comes what `instead` returns, null by default.

    Example:
      >>> finite({"loss": float("nan"), "rates": (0.1, float("inf"))})
      {'loss': None, 'rates': [0.1, None]}
      >>> finite([float("-inf")], str)
      ['-inf']
    """
    if isinstance(value, Mapping):
        return {name: finite(entry, instead) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [finite(entry, instead) for entry in value]
    return instead(value) if isinstance(value, float) and not math.isfinite(value) else value
