"""A module's `__getattr__` for names that have moved: they work for two minor versions, with a warning."""

import importlib
import warnings
from collections.abc import Callable, Mapping
from typing import Any


def moved(module: str, homes: Mapping[str, str], *, until: str) -> Callable[[str], Any]:
    """Return the `__getattr__` of a module whose names have moved.

    Args:
      module: the module's `__name__`.
      homes: name -> the module in which it is now; it is imported when the name is asked for.
      until: the version from which on the names are gone.

    Returns:
      A function that gives the object with a `DeprecationWarning`, and raises an AttributeError for other names.

    Example:
      >>> import warnings
      >>> getattr_ = moved("sgdlab.old", {"Schedule": "sgdlab.schedule"}, until="9.0")
      >>> with warnings.catch_warnings(record=True) as caught:
      ...     warnings.simplefilter("always")
      ...     getattr_("Schedule").__name__
      'Schedule'
      >>> str(caught[0].message)
      'sgdlab.old.Schedule is sgdlab.schedule.Schedule now; the old name works until sgdlab 9.0'
    """

    def getattr_(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        says = f"{module}.{name} is {homes[name]}.{name} now; the old name works until sgdlab {until}"
        warnings.warn(says, DeprecationWarning, stacklevel=2)
        return getattr(importlib.import_module(homes[name]), name)

    return getattr_
