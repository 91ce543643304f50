"""Diagnosis of a recording: which worker, node or step, since when, how much, and what is only chance."""

from sgdlab import lazy

__getattr__, __dir__, __all__ = lazy.attach(__name__, names={"diagnosis": ["Diagnosis", "find_causes"]})
