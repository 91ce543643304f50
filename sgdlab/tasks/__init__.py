"""Tasks: a network as pure functions for replay, with the metric that it is judged by.

`classification`, `density` and `language` make a `NetworkTask` of a Flax network; Flax is imported when one is called.
"""

import lazy_loader

from sgdlab.tasks.kinds import KINDS, Kind

__getattr__, _, _ = lazy_loader.attach(
    __name__,
    submod_attrs={
        "baselines": ["interpolated_trigram", "pixel_histogram"],
        "classification": ["classification"],
        "density": ["density"],
        "evaluation": ["evaluate", "evaluation", "padded_batches", "text_batches"],
        "language": ["language"],
        "network": ["NetworkTask"],
        "task": ["Task"],
    },
)
__all__ = [
    "KINDS",
    "Kind",
    "NetworkTask",
    "Task",
    "classification",
    "density",
    "evaluate",
    "evaluation",
    "interpolated_trigram",
    "language",
    "padded_batches",
    "pixel_histogram",
    "text_batches",
]


def __dir__() -> list[str]:
    return list(__all__)
