"""Jobs in processes of this machine, one on each core, with progress; they end when their parent does."""

import concurrent.futures
import contextlib
import dataclasses
import multiprocessing
import os
import queue
import signal
import statistics
import sys
import threading
import time
import types
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from absl import logging
from tqdm import tqdm

from sgdlab import user_files
from sgdlab.errors import failures_of
from sgdlab.registry import FAMILIES, GRAPHS
from sgdlab.report.words import counted
from sgdlab.runs import digests, parts


@dataclasses.dataclass(frozen=True)
class Message:
    """A report of a job."""

    run: str  # the run's name
    gradients: int = 0  # used since the last message
    result: str | None = None  # of the run, where it has finished: what a person reads
    # seconds to its first gradients, of the first run of a job, which compiles what the others share
    compiling: float = 0.0
    seconds: float = 0.0  # all others that the finished run has taken; 0 where another command has done it


_GRACE = 0.8
"""Seconds in which the processes of a pool may end by themselves when the work is over."""

Job = Callable[[Callable[[Message], None]], None]
"""Runs one after the other; it is given a function that takes its messages."""


def cores() -> list[int]:
    """Return the cores that this process may use."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(os.cpu_count() or 1))


def run(jobs: Sequence[Job], progress: "Progress", processes: int) -> None:
    """Run jobs, here or in at most as many processes, in the order in which they are given; an error of one ends all.

    Processes import the modules outside of this package in which parts are registered. Parts of a notebook stand in no
    file; with them, all jobs run in this process.
    """
    processes = min(processes, len(jobs)) if parts.can_be_imported() else 1
    if processes <= 1:
        for job in jobs:
            job(progress.take)
            progress.finished_job()
        return
    context = multiprocessing.get_context("spawn")
    others = set(multiprocessing.active_children())
    messages, slots, stop = context.Queue(), context.Queue(), context.Event()
    for slot in range(processes):
        slots.put(slot)
    with (
        concurrent.futures.ProcessPoolExecutor(
            processes,
            mp_context=context,
            initializer=_start_process,
            initargs=(os.getpid(), slots, messages, stop, parts.outside()),
        ) as executor,
        _interrupts() as interrupted,
    ):
        pending = {executor.submit(_run_in_process, job) for job in jobs}
        try:
            while pending:
                if interrupted:
                    raise KeyboardInterrupt
                done, pending = concurrent.futures.wait(pending, timeout=0.1)
                for message in _drain(messages):
                    progress.take(message)
                for future in done:
                    future.result()
                    progress.finished_job()
        except BaseException:
            stop.set()
            children = set(multiprocessing.active_children()) - others
            executor.shutdown(wait=False, cancel_futures=True)
            _end(children)
            raise


@contextlib.contextmanager
def _interrupts() -> Iterator[list[int]]:
    """Note the interrupts of a block: Python forgets one that falls into the collection of garbage."""
    seen: list[int] = []

    def note(number: int, frame: types.FrameType | None) -> None:
        seen.append(number)
        signal.default_int_handler(number, frame)

    ours = threading.current_thread() is threading.main_thread()
    if not ours or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield seen
        return
    signal.signal(signal.SIGINT, note)
    try:
        yield seen
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _end(children: Collection[Any]) -> None:
    """End the processes of a pool: whoever interrupts does not want to wait for what they compile or simulate."""
    ends = time.monotonic() + _GRACE
    for child in children:
        child.join(timeout=max(ends - time.monotonic(), 0))
    for child in children:
        child.terminate()


def _drain(messages: Any) -> Iterator[Message]:
    with contextlib.suppress(queue.Empty):
        while True:
            yield messages.get_nowait()


class _Stopped(BaseException):
    """The work is over: another job failed, or a person interrupted it. No failure of the run that it ends."""


_channels: tuple[Any, Any] = (None, None)
"""Of a process of the pool: where it reports, and whether it is to stop."""

_broken: Exception | None = None
"""Of a process of the pool: why it could not start."""


def _start_process(parent: int, slots: Any, messages: Any, stop: Any, modules: Mapping[str, str]) -> None:
    """Put a process on a core of its own, before its first use of JAX, and end it when its parent is gone."""
    logging.set_verbosity(logging.ERROR)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent is interrupted, and says stop
    global _channels  # noqa: PLW0603 (set once per process)
    _channels = messages, stop
    if hasattr(os, "sched_setaffinity"):
        usable = cores()
        os.sched_setaffinity(0, {usable[slots.get() % len(usable)]})

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
    global _broken  # noqa: PLW0603 (likewise)
    try:
        with failures_of("a process of the pool"):
            for name, file in modules.items():
                user_files.import_or_execute(name, file)
            for registry in (*FAMILIES, GRAPHS):
                for part in registry.values():
                    if part.is_foreign:
                        digests.of_code(part.make)  # of the code as it was imported, should the file be edited now
    except Exception as error:  # an initializer that raises would look like a process that was killed
        _broken = error


def _run_in_process(job: Job) -> None:
    if _broken is not None:
        raise _broken
    messages, stop = _channels

    def send(message: Message) -> None:
        if stop.is_set():
            raise _Stopped
        messages.put(message)

    job(send)


class Progress:
    """The result of each finished run, and how many runs and how much time are left; in a terminal, a bar too.

    The time left is an estimate from the first finished run on: jobs that have not finished one compile as long as
    others did, and runs take as long as others did, by the median.

    At most as many `jobs`, groups of runs that one process does, go on at once as there are `processes`. Without
    gradients, runs are counted.
    """

    def __init__(self, missing: int, gradients: int, processes: int, jobs: int):
        self.missing, self.left, self.gradients, self.done = missing, missing, gradients, 0
        self.processes, self.jobs, self.all_jobs = processes, jobs, jobs
        self.compiling: list[float] = []
        self.seconds: list[float] = []
        self.bar = tqdm(
            total=gradients or missing,
            unit=" gradients" if gradients else " runs",
            unit_scale=bool(gradients),
            dynamic_ncols=True,
            disable=None if missing else True,
            bar_format="{desc}: {percentage:3.0f}%|{bar}| {rate_fmt}",
        )

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, *error: object) -> None:
        self.bar.close()

    def take(self, message: Message) -> None:
        """Take in what a job reports."""
        amount = message.gradients if self.gradients else int(message.result is not None)
        self.done += amount
        self.bar.update(amount)
        if message.result is None:
            left = f"{counted(self.left, 'run')} left{self._time_left()}"
            self.bar.set_description(f"{left}; {message.run}", refresh=False)
            return
        self.left -= 1
        self.compiling += [message.compiling] if message.compiling else []
        self.seconds += [message.seconds] if message.seconds else []
        end = self._time_left() if self.bar.disable and self.left else ""
        tqdm.write(f"[{self.missing - self.left}/{self.missing}] {message.run}: {message.result}{end}")
        sys.stdout.flush()

    def finished_job(self) -> None:
        """Take in that a job has ended."""
        self.jobs -= 1

    def _time_left(self) -> str:
        if not self.seconds:
            return ""
        seconds = self.left * statistics.median(self.seconds)
        if self.compiling:
            seconds += max(self.all_jobs - len(self.compiling), 0) * statistics.median(self.compiling)
        return f"; about {tqdm.format_interval(seconds / max(min(self.processes, self.jobs), 1))} left"
