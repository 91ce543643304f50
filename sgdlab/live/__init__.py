"""Executes a policy on real processes, and records what happened.

`train` does it with gradients of your own, `LiveServer` with those of processes that others start, and that `join`.
"""

from sgdlab import lazy

__getattr__, __dir__, __all__ = lazy.attach(
    __name__,
    names={
        "join": ["join"],
        "own_run": ["LiveServer", "Trained", "replay", "train"],
        "recording": ["LiveRecording"],
        "settings": ["Endpoint", "LiveSettings"],
        "work": ["OwnWork"],
    },
)
