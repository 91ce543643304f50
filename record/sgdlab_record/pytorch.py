"""PyTorch: a communication hook for `DistributedDataParallel`, by which the wait inside of backward is seen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

from sgdlab_record.recorder import Recorder


def record_ddp(model: Any, recorder: Recorder, hook: Callable[..., Any] | None = None, state: Any = None) -> Any:
    """Register a hook that tells when the last bucket of gradients is ready, and return the model.

    Averaging is as before, by `hook` with its state, by default an all-reduce. On a GPU the host waits in the last
    bucket until its gradients are there, and the phase must end with `torch.cuda.synchronize()`. In a loop:

        for batch in recorder.each("data", loader):
            with recorder.phase("forward"):
                loss = model(batch).mean()
            with recorder.phase("backward", waits=True):
                loss.backward()
            with recorder.phase("update"):
                optimizer.step()
            recorder.step()
    """
    hook = hook or default_hooks.allreduce_hook

    def recorded(state, bucket):  # annotations other than PyTorch's are refused
        if bucket.is_last():
            if bucket.buffer().is_cuda:  # the host is ahead of the device
                torch.cuda.current_stream().synchronize()
            recorder.cut("all_reduce")
        return hook(state, bucket)

    model.register_comm_hook(state, recorded)
    return model
