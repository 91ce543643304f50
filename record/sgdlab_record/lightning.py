"""Lightning: a callback that records data, forward, backward with the wait for others, and the update."""

from typing import Any

from lightning.pytorch import Callback

from sgdlab_record.recorder import Recorder
from sgdlab_record.wrapped import record_wrapped


class RecorderCallback(Callback):
    """Records each batch of a Trainer as a step: `Trainer(callbacks=[RecorderCallback(recorder)])`."""

    def __init__(self, recorder: Recorder):
        self.recorder = recorder

    def on_train_start(self, trainer: Any, *_: Any) -> None:
        """Register the hook by which the wait inside of backward is told, and begin with the trainer's batch."""
        record_wrapped(trainer.strategy.model, self.recorder)
        # Not `global_step`, the number of updates: several batches may make one.
        self.recorder.step(trainer.fit_loop.epoch_loop.batch_progress.total.ready)

    def on_train_batch_start(self, *_: Any) -> None:
        """Count what came before as loading."""
        self.recorder.lap("data")

    def on_before_backward(self, *_: Any) -> None:
        """Count the forward pass."""
        self.recorder.lap("forward")

    def on_after_backward(self, *_: Any) -> None:
        """Count the backward pass."""
        self.recorder.lap("backward", waits=True)

    def on_train_batch_end(self, *_: Any) -> None:
        """Count the update, and end the step."""
        self.recorder.lap("update")
        self.recorder.step()
