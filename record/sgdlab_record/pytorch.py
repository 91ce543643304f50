"""PyTorch: a communication hook for `DistributedDataParallel`, by which the wait inside of backward is seen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

from sgdlab_record.recorder import Recorder


def record_ddp(model: Any, recorder: Recorder, hook: Callable[..., Any] | None = None, state: Any = None) -> Any:
    """Register a hook that tells the recorder when the last bucket of gradients is ready; return the model.

    The backward pass then is two phases, own work and `all_reduce`, in a loop such as

        for batch in recorder.each("data", loader):
            with recorder.phase("forward"):
                loss = model(batch).mean()
            with recorder.phase("backward", waits=True):
                loss.backward()
            with recorder.phase("update"):
                optimizer.step()
            recorder.step()

    Averaging is as before, by `hook` with its state, by default an all-reduce. On a GPU the host waits in the last
    bucket until its gradients are there, and the phase must end with `torch.cuda.synchronize()`.
    """
    hook = hook or default_hooks.allreduce_hook

    def recorded(state, bucket):  # PyTorch refuses other annotations than its own
        if bucket.is_last():
            if bucket.buffer().is_cuda:
                torch.cuda.current_stream().synchronize()
            recorder.cut("all_reduce")
        return hook(state, bucket)

    model.register_comm_hook(state, recorded)
    return model
