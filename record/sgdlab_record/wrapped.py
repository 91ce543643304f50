"""A model that a trainer has wrapped: with the hook of `DistributedDataParallel` where it is one, for all callbacks."""

from __future__ import annotations

from typing import Any

from torch.nn.parallel import DistributedDataParallel

from sgdlab_record.pytorch import record_ddp
from sgdlab_record.recorder import Recorder


def record_wrapped(model: Any, recorder: Recorder) -> Any:
    """Return a model, with the hook of `record_ddp` where it averages over workers: trainers of one wrap nothing."""
    return record_ddp(model, recorder) if isinstance(model, DistributedDataParallel) else model
