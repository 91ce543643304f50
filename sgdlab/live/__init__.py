"""Executes a policy on real processes, and records what happened; `train` does it with gradients of your own."""

from sgdlab import lazy

__getattr__, __dir__, __all__ = lazy.attach(
    __name__,
    names={
        "own_work": ["OwnWork"],
        "recording": ["LiveRecording"],
        "settings": ["LiveSettings"],
        "train": ["Trained", "replay", "train"],
    },
)
