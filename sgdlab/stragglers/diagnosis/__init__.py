"""Diagnosis of a recording: which worker, node or step, since when, how much, and what is only chance."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(__name__, submod_attrs={"diagnosis": ["Diagnosis", "find_causes"]})
