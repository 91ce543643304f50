"""Windows of a profile, such as 20 steps of every 1,000, for JAX and PyTorch; `sgdlab advise` reads the profiles.

They are in a directory beside the recorder's, `runs/trace-profile` of `runs/trace`; a line of the trace names each.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
from collections.abc import Callable
from typing import Any

from sgdlab_record.recorder import Recorder


def jax_windows(recorder: Recorder, *, every: int = 1000, steps: int = 20) -> None:
    """Profile so many steps of every so many with `jax.profiler`; each step must wait for the device's work."""
    import jax  # noqa: PLC0415 (either framework may be missing)

    def start(path: str, number: int) -> None:
        del number
        jax.profiler.start_trace(path)

    def annotate(number: int) -> Callable[[], Any]:
        step = jax.profiler.StepTraceAnnotation("train", step_num=number)
        step.__enter__()
        return lambda: step.__exit__(None, None, None)

    _listen(recorder, every, steps, start, annotate, lambda path: jax.profiler.stop_trace(), "step{1}_rank{0}")


def torch_windows(recorder: Recorder, *, every: int = 1000, steps: int = 20) -> None:
    """Profile so many steps of every so many with `torch.profiler`."""
    from torch import cuda, profiler  # noqa: PLC0415

    kinds = [profiler.ProfilerActivity.CPU, *[profiler.ProfilerActivity.CUDA] * cuda.is_available()]
    running: list[Any] = []

    def start(path: str, number: int) -> None:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        running[:] = [profiler.profile(activities=kinds, schedule=lambda _: profiler.ProfilerAction.RECORD)]
        running[0].step_num = number
        running[0].start()

    def annotate(number: int) -> Callable[[], Any]:
        if running[0].step_num < number:
            running[0].step()
        return lambda: None

    def stop(path: str) -> None:
        running[0].stop()
        running.pop().export_chrome_trace(path)

    name = "rank{0}_step{1}.pt.trace.json.gz"
    _listen(recorder, every, steps, start, annotate, stop, name)


def _listen(
    recorder: Recorder,
    every: int,
    steps: int,
    start: Callable[[str, int], Any],
    annotate: Callable[[int], Callable[[], Any]],
    stop: Callable[[str], Any],
    name: str,
) -> None:
    """Switch a profiler when steps begin: `annotate` marks one, and returns what ends it."""
    if not 0 < steps < every:
        raise ValueError(f"steps={steps} must be at least 1, and below every={every}")
    window: dict[str, Any] = {}

    def ends(last: int) -> None:
        window.pop("end", lambda: None)()
        first, path = window["first"], window["path"]
        window.clear()
        if last >= first:
            stop(path)
            recorder.note(profile=path, first=first, last=last)
        else:  # no step has ended in it
            stop(os.devnull)
            shutil.rmtree(path, ignore_errors=True)

    def at_exit() -> None:  # a profiler that still runs then may end the process by a fault
        if window:
            with contextlib.suppress(Exception):
                ends(recorder.number - 1)

    def begins(number: int) -> None:
        try:
            if window and number >= window["first"] + steps:
                ends(number - 1)
            elif window:
                window["end"]()
            elif number > 0 and number % every == 0:
                path = os.path.join(f"{recorder.directory}-profile", name.format(recorder.worker, number))
                start(path, number)
                window.update(first=number, path=path)
            if window:
                window["end"] = annotate(number)
        except Exception as error:  # no profile is worth the job
            recorder.listeners.remove(begins)
            recorder.failed(error)

    recorder.listeners.append(begins)
    atexit.register(at_exit)
