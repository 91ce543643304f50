"""Recorders for training jobs: how long each phase of each step took, for `sgdlab advise`; without dependencies.

A callback for each framework stands in a module of its name: `sgdlab_record.pytorch`, `sgdlab_record.jax_loop`, ...
"""

from sgdlab_record.recorder import FORMAT, WAIT, Recorder

__version__ = "0.1.0"
__all__ = ["FORMAT", "WAIT", "Recorder"]
