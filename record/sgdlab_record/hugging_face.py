"""Hugging Face Trainer: a callback that records data, computation with the wait for others, and the update."""

from __future__ import annotations

from typing import Any

from transformers import TrainerCallback

from sgdlab_record.recorder import Recorder
from sgdlab_record.wrapped import record_wrapped


class RecorderCallback(TrainerCallback):
    """Records each step: `trainer.add_callback(RecorderCallback(recorder, trainer))`; without the trainer, no cut."""

    def __init__(self, recorder: Recorder, trainer: Any = None):
        self.recorder, self._trainer = recorder, trainer

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Begin with the step that the trainer is at, and register the hook of the model."""
        record_wrapped(getattr(self._trainer, "model_wrapped", None), self.recorder)
        self.recorder.step(state.global_step)

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Count what came before as loading; of several batches a step, all are."""
        # The trainer counts the tokens of all workers when it has fetched a batch, and waits for them.
        self.recorder.lap("data", waits=args.world_size > 1 and args.average_tokens_across_devices)

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Count forward and backward passes, of all micro-batches."""
        self.recorder.lap("compute", waits=True)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Count the update, and end the step."""
        self.recorder.lap("update")
        self.recorder.step()
