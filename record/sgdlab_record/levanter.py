"""Levanter: a hook for `trainer.add_hook`, which records loading and the step, that contains the wait for others."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from sgdlab_record.recorder import Recorder


def step_hook(recorder: Recorder) -> Callable[[Any], None]:
    """Return a hook for each step: `trainer.add_hook(step_hook(recorder), every=1)`, behind all other hooks.

    The trainer measures a step until its loss is there, and calls hooks behind it. What a step takes beside is `data`:
    loading, and the other hooks.
    """
    last: list[float] = []

    def hook(info: Any) -> None:
        now, number = time.perf_counter(), int(info.step)
        if recorder.number == number + 1 and last:
            return  # the trainer calls its hooks again when it ends
        recorder.number = number
        if last:
            began = max(last[0], now - float(info.step_duration))
            recorder.add("data", last[0], began)
            recorder.add("compute", began, now, waits=True)
            recorder.step()
        last[:] = [time.perf_counter()]

    return hook
