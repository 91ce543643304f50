"""Another name of `sgdlab.runs`, which older code imports."""

import importlib
from typing import Any


def __getattr__(name: str) -> Any:
    return getattr(importlib.import_module("sgdlab.runs"), name)
