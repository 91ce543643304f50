"""Names of a package that are imported at their first use, so that none waits for libraries that it does not need."""

import importlib
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType, ModuleType
from typing import Any


class _Package(ModuleType):
    """A package some of whose names are those of its modules too: it has the name, whoever imports the module."""

    def __setattr__(self, name: str, value: Any) -> None:
        """Set what is named, where the import system sets the module of that name."""
        if isinstance(value, ModuleType) and name in self.__dict__.get("_named_alike", ()):
            value = getattr(value, name)
        super().__setattr__(name, value)


def attach(
    package: str, modules: Collection[str] = (), names: Mapping[str, Sequence[str]] = MappingProxyType({})
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return the `__getattr__`, `__dir__` and `__all__` of a package whose names are imported at their first use.

    Args:
      package: its `__name__`.
      modules: its modules that are names of it.
      names: module -> those of its names that the package has too.

    Example:
      >>> first_use, names, _ = attach("collections", ["abc"])
      >>> first_use("abc").__name__, names()
      ('collections.abc', ['abc'])
    """
    homes = {name: module for module, found in names.items() for name in found}
    known = sorted({*modules, *homes})
    if alike := {name for name, module in homes.items() if name == module}:
        sys.modules[package].__class__ = _Package
        sys.modules[package].__dict__["_named_alike"] = alike

    def first_use(name: str) -> Any:
        if name not in known:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = importlib.import_module(f"{package}.{homes.get(name, name)}")
        value = getattr(module, name) if name in homes else module
        setattr(sys.modules[package], name, value)  # the next use finds it there
        return value

    return first_use, known.copy, known
