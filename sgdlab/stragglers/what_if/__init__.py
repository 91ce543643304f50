"""Computes what a job would gain if one cause of waiting were mended: `sgdlab advise FILE --what_if`."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__, submod_attrs={"what_if": ["RepairRow", "WhatIf", "try_repairs"]}
)
