"""sgdlab: whom to wait for, and what to do with a gradient that comes late."""

import importlib
from typing import Any

__version__ = "0.4.0.dev0"

_PACKAGES = ("cluster", "cutoff", "data", "deep_markov", "models", "predictors", "protocols", "replay", "rules")
_NAMES = {
    "DROPPED": "sgdlab.schedule",
    "PENDING": "sgdlab.schedule",
    "PeerSchedule": "sgdlab.peer_schedule",
    "Schedule": "sgdlab.schedule",
}
__all__ = [*_PACKAGES, *_NAMES]  # noqa: PLE0604 (strings all)


def __getattr__(name: str) -> Any:
    """Packages are imported at their first use: an optax transform needs neither NumPyro nor PyArrow."""
    if name in _PACKAGES:
        return importlib.import_module(f"sgdlab.{name}")
    if name in _NAMES:
        return getattr(importlib.import_module(_NAMES[name]), name)
    raise AttributeError(f"module 'sgdlab' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
