"""Tasks: a network as pure functions for replay, with the metric that it is judged by.

`classification`, `density` and `language` make a `NetworkTask` of a Flax network, and `make_task` one for any loss that
is registered in `TASKS`; Flax is imported when one is called.
"""

from sgdlab import lazy

__getattr__, __dir__, __all__ = lazy.attach(
    __name__,
    names={
        "baselines": ["interpolated_trigram", "pixel_histogram"],
        "evaluation": ["evaluate", "evaluation", "padded_batches", "text_batches"],
        "family": ["TASKS"],
        "makers": ["classification", "density", "language"],
        "network": ["NetworkTask", "make_task"],
        "task": ["Task"],
    },
)
