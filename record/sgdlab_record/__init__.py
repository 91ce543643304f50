"""Recorders for training jobs: how long each phase of each step took, for `sgdlab advise`; without dependencies."""

__version__ = "0.1.0"
