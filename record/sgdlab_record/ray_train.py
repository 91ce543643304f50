"""Ray Train: a recorder for the worker that calls it, and a model prepared so that the wait in backward is seen."""

from __future__ import annotations

import os
from typing import Any

import ray.train
import ray.train.torch

from sgdlab_record.recorder import Recorder
from sgdlab_record.wrapped import record_wrapped


def recorder(directory: str | os.PathLike[str], **named: Any) -> Recorder:
    """Return the recorder of this worker, inside of `train_loop_per_worker`; the directory must be one of all nodes."""
    return Recorder(directory, ray.train.get_context().get_world_rank(), **named)


def prepare_model(model: Any, recorder: Recorder, **named: Any) -> Any:
    """Return what `ray.train.torch.prepare_model` makes of a model; of several workers, with the recorder's hook.

    The loop has its phases as one of `sgdlab_record.pytorch` has.
    """
    return record_wrapped(ray.train.torch.prepare_model(model, **named), recorder)
