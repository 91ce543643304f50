"""Jobs in processes of this machine, one on each core, with progress; they end when their parent does."""

import concurrent.futures
import multiprocessing
import os
import queue
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from absl import logging
from tqdm import tqdm

Message = tuple[str, str, int]
"""(what happened, "advanced" or "finished"; the run; gradients since the last message)."""

Job = Callable[[Callable[[Message], None]], None]
"""Runs one after the other; it is given where to report."""


def cores() -> list[int]:
    """The cores that this process may use."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(os.cpu_count() or 1))


def run(jobs: Sequence[Job], progress: "Progress", processes: int) -> None:
    """Runs jobs, here or in as many processes; an error of one ends all."""
    processes = min(processes, len(jobs))
    if processes <= 1:
        for job in jobs:
            job(progress.take)
        return
    context = multiprocessing.get_context("spawn")
    messages, slots, stop = context.Queue(), context.Queue(), context.Event()
    for slot in range(processes):
        slots.put(slot)
    with concurrent.futures.ProcessPoolExecutor(
        processes, mp_context=context, initializer=_start_process, initargs=(os.getpid(), slots, messages, stop)
    ) as executor:
        pending = {executor.submit(_run_in_process, job) for job in jobs}
        try:
            while pending:
                done, pending = concurrent.futures.wait(pending, timeout=0.1)
                for message in _drain(messages):
                    progress.take(message)
                for future in done:
                    future.result()
        except BaseException:
            stop.set()
            executor.shutdown(wait=False, cancel_futures=True)
            raise


def _drain(messages: Any) -> Iterator[Message]:
    while True:
        try:
            yield messages.get_nowait()
        except queue.Empty:
            return


class _Stopped(Exception):
    """The work is over: another job failed, or a person interrupted it."""


_channels: tuple[Any, Any] = (None, None)
"""Of a process of the pool: where it reports, and whether it is to stop."""


def _start_process(parent: int, slots: Any, messages: Any, stop: Any) -> None:
    """Puts a process on a core of its own, before its first use of JAX, and ends it when its parent is gone."""
    logging.set_verbosity(logging.ERROR)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent is interrupted, and says stop
    global _channels  # noqa: PLW0603 (set once per process)
    _channels = messages, stop
    if hasattr(os, "sched_setaffinity"):
        ours = cores()
        os.sched_setaffinity(0, {ours[slots.get() % len(ours)]})

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _run_in_process(job: Job) -> None:
    messages, stop = _channels

    def tell(message: Message) -> None:
        if stop.is_set():
            raise _Stopped
        messages.put(message)

    job(tell)


class Progress:
    """Which run, how many are left, gradients per second, time left: a bar in a terminal, else a line for each run.

    Args:
      missing: runs to do.
      finished: runs that were there before.
      gradients: of all runs to do.
    """

    def __init__(self, missing: int, finished: int, gradients: int):
        self.missing, self.left, self.gradients, self.done = missing, missing, gradients, 0
        self.begun = time.monotonic()
        if finished:
            print(f"{finished} finished runs found, {missing} to do", flush=True)
        self.bar = tqdm(
            total=gradients, unit=" gradients", unit_scale=True, dynamic_ncols=True, disable=None if missing else True
        )

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, *error: object) -> None:
        self.bar.close()

    def take(self, message: Message) -> None:
        """Takes in what a job reports."""
        kind, cell, gradients = message
        self.left -= kind == "finished"
        self.done += gradients
        self.bar.set_description(f"{self.left} of {self.missing} runs left; {cell}", refresh=False)
        self.bar.update(gradients)
        if self.bar.disable and kind == "finished":
            rate = self.done / (time.monotonic() - self.begun)
            remaining = max(self.gradients - self.done, 0) / rate
            print(
                f"[{self.missing - self.left}/{self.missing}] {cell}: {rate:,.0f} gradients/s, {self.left} runs left, "
                f"{tqdm.format_interval(remaining)} to go",
                flush=True,
            )
