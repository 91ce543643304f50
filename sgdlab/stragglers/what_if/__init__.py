"""Computes what a job would gain if one cause of waiting were repaired: `sgdlab advise FILE --what_if`."""

from sgdlab import lazy

__getattr__, __dir__, __all__ = lazy.attach(__name__, names={"what_if": ["RepairRow", "WhatIf", "try_repairs"]})
