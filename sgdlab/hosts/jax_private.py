"""Uses what JAX does not promise to keep: all of it is here, and each use names the version of JAX where it fails."""

import importlib
import re
from typing import Any

from sgdlab.errors import UsageError

FIRST, BEFORE = (0, 10), (0, 12)
"""The versions of JAX with which this was tried: from the first on, before the second."""


def coordination_client() -> Any:
    """Return the client of JAX's coordination service, whose key-value store has no public name."""
    return _found("jax._src.distributed", "global_state").client


def clusters() -> Any:
    """Return the class that detects clusters, which there is no public way to ask."""
    return _found("jax._src.clusters", "ClusterEnv")


def uses_devices() -> bool:
    """Return True if JAX has been asked for a device already."""
    return _found("jax._src.xla_bridge", "backends_are_initialized")()


def check() -> None:
    """Check that JAX is a version whose private interfaces are known.

    Raises:
      UsageError: where it is another one.
    """
    version = importlib.import_module("jax").__version__
    if not FIRST <= tuple(map(int, re.findall(r"\d+", version)[:2])) < BEFORE:
        raise UsageError(f"--hosts needs a JAX whose private interfaces are known, {_RANGE}, not {version}")


def _found(module: str, name: str) -> Any:
    check()
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError):
        version = importlib.import_module("jax").__version__
        raise UsageError(f"--hosts needs {module}.{name}, which JAX {version} does not have; try {_RANGE}") from None


_RANGE = "one from {}.{} on, before {}.{}".format(*FIRST, *BEFORE)
