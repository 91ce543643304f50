"""Hugging Face Accelerate: its backward pass and its optimizer, recorded where a prepared loop calls them."""

from __future__ import annotations

from typing import Any

from sgdlab_record.recorder import Recorder
from sgdlab_record.wrapped import record_wrapped


def record(accelerator: Any, recorder: Recorder, model: Any, optimizer: Any) -> None:
    """Record a loop of what `accelerator.prepare` has returned: forward, backward with the wait, update.

    The loop fetches its batches by `recorder.each("data", loader)`. A step ends with the optimizer's, where gradients
    were synchronised; micro-batches of it add up.
    """
    backward, update = accelerator.backward, optimizer.step

    def recorded_backward(loss: Any, **named: Any) -> None:
        recorder.lap("forward")
        backward(loss, **named)
        recorder.lap("backward", waits=accelerator.sync_gradients)

    def recorded_update(*arguments: Any, **named: Any) -> Any:
        result = update(*arguments, **named)
        if accelerator.sync_gradients:
            recorder.lap("update")
            recorder.step()
        return result

    accelerator.backward, optimizer.step = recorded_backward, recorded_update
    record_wrapped(model, recorder)
