"""Compares methods over numbers of workers and seeds: a grid of runs that survives being killed."""

import concurrent.futures
import dataclasses
import functools
import multiprocessing
import os
import queue
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
from absl import logging
from ml_collections import ConfigDict
from tqdm import tqdm

from sgdlab import train
from sgdlab.methods import BASELINES, METHODS
from sgdlab.plan import check, dataset, make_plan
from sgdlab.results.directory import RunDirectory
from sgdlab.results.summary import Group

GRID = ("method", "seed", "cluster.num_workers")
"""What differs between the runs of one directory; everything else is its configuration."""


@dataclasses.dataclass(frozen=True)
class Cell:
    """One run of the grid."""

    method: str
    num_workers: int
    seed: int

    @property
    def name(self) -> str:
        """The name of its metrics file."""
        return f"{self.method}-n{self.num_workers}-seed{self.seed}"

    def __str__(self) -> str:
        return f"{self.method}, {self.num_workers} worker{'s' * (self.num_workers > 1)}, seed {self.seed}"

    def configured(self, config: ConfigDict) -> ConfigDict:
        """The configuration of this run."""
        config = config.copy_and_resolve_references()
        config.method, config.seed, config.cluster.num_workers = self.method, self.seed, self.num_workers
        return config


def grid(methods: Sequence[str], num_workers: Sequence[int], seeds: int) -> list[Cell]:
    """All runs of a comparison: first the single workers, then method by method.

    Example:
      >>> [cell.name for cell in grid(["dana"], [4], 2)]
      ['nag_asgd-n1-seed0', 'nag_asgd-n1-seed1', 'dana-n4-seed0', 'dana-n4-seed1']
    """
    alone = [name for name in BASELINES if any(METHODS[m].is_adam == METHODS[name].is_adam for m in methods)]
    pairs = [(name, 1) for name in alone] + [(method, n) for method in methods for n in num_workers]
    return [Cell(*pair, seed) for pair in dict.fromkeys(pairs) for seed in range(seeds)]


def is_baseline(method: str, num_workers: int) -> bool:
    """Whether these are the single workers that the others are compared with."""
    return num_workers == 1 and method in BASELINES


def shared_config(config: ConfigDict) -> dict[str, Any]:
    """The configuration less what the grid varies."""
    shared = config.to_dict()
    for name in GRID:
        *parents, last = name.split(".")
        functools.reduce(dict.__getitem__, parents, shared).pop(last)
    return shared


def run_all(config: ConfigDict, cells: Sequence[Cell], directory: RunDirectory, *, processes: int | None = None) -> int:
    """Runs the cells that have not finished yet, each method's by one process, and shows progress.

    Args:
      config: the configuration.
      cells: the grid; every one is checked before the first one runs.
      directory: finished runs are found and written there.
      processes: how many at once. None: one for each core where the backend is the CPU (a small net is faster on one
        core than on two), else one.

    Returns:
      How many runs it did.

    Raises:
      ConfigError: where a cell's configuration is impossible.
    """
    for cell in cells:
        check(cell.configured(config))
    missing = [cell for cell in cells if directory.read(cell.name) is None]
    by_method: dict[str, list[Cell]] = {}
    for cell in missing:
        by_method.setdefault(cell.method, []).append(cell)
    if processes is None:
        processes = len(_cores()) if jax.default_backend() == "cpu" else 1
    with _Progress(len(missing), len(cells) - len(missing), _total_gradients(config, missing)) as progress:
        if processes == 1 or len(by_method) <= 1:
            for group in by_method.values():
                _run_group(config, group, directory, progress.take)
        else:
            _run_in_processes(config, list(by_method.values()), directory, progress, min(processes, len(by_method)))
    return len(missing)


def groups(cells: Sequence[Cell], directory: RunDirectory) -> list[Group]:
    """Finished cells, seeds put together: single workers first, then by number of workers."""
    runs: dict[tuple[str, int], list[list[dict[str, Any]]]] = {}
    for cell in cells:
        records = directory.read(cell.name)
        if records is not None:
            runs.setdefault((cell.method, cell.num_workers), []).append(records)
    found = [
        Group(
            method=method,
            title=BASELINES[method] if is_baseline(method, workers) else METHODS[method].title,
            num_workers=workers,
            baseline=is_baseline(method, workers),
            runs=tuple(records),
        )
        for (method, workers), records in runs.items()
    ]
    return sorted(found, key=lambda group: (not group.baseline, group.num_workers, list(METHODS).index(group.method)))


Message = tuple[str, str, int]
"""(what happened, "advanced" or "finished"; the cell; gradients since the last message)."""


def _run_group(
    config: ConfigDict, cells: Sequence[Cell], directory: RunDirectory, tell: Callable[[Message], None]
) -> None:
    """Runs cells of one method one after the other; they share one compiled program."""
    plans = [make_plan(cell.configured(config)) for cell in cells]
    capacity = functools.reduce(lambda a, b: a | b, (plan.program.capacity for plan in plans))
    for cell, plan in zip(cells, plans, strict=True):
        before = 0

        def report(evaluation: dict[str, float], cell: Cell = cell) -> None:
            nonlocal before
            tell(("advanced", str(cell), int(evaluation["gradients"]) - before))
            before = int(evaluation["gradients"])

        run = train.train(plan, capacity=capacity, report=report)
        directory.write(cell.name, run.records)
        tell(("finished", str(cell), 0))


def _run_in_processes(
    config: ConfigDict, groups: list[list[Cell]], directory: RunDirectory, progress: "_Progress", processes: int
) -> None:
    context = multiprocessing.get_context("spawn")
    messages, slots, stop = context.Queue(), context.Queue(), context.Event()
    for slot in range(processes):
        slots.put(slot)
    with concurrent.futures.ProcessPoolExecutor(
        processes, mp_context=context, initializer=_start_process, initargs=(os.getpid(), slots, messages, stop)
    ) as pool:
        # The longest first, so that the last to end is a short one.
        pending = {pool.submit(_run_in_process, config, group, directory) for group in sorted(groups, key=len)[::-1]}
        try:
            while pending:
                done, pending = concurrent.futures.wait(pending, timeout=0.1)
                for message in _drain(messages):
                    progress.take(message)
                for future in done:
                    future.result()
        except BaseException:
            stop.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _drain(messages: Any) -> Iterator[Message]:
    while True:
        try:
            yield messages.get_nowait()
        except queue.Empty:
            return


class _Stopped(Exception):
    """The job is over: another run failed, or a person interrupted it."""


_channels: tuple[Any, Any] = (None, None)
"""Of a process of the pool: where it reports, and whether it is to stop."""


def _start_process(parent: int, slots: Any, messages: Any, stop: Any) -> None:
    """Puts a process on a core of its own, before its first use of JAX, and ends it when its parent is gone."""
    logging.set_verbosity(logging.ERROR)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent is interrupted, and says stop
    global _channels  # noqa: PLW0603 (set once per process)
    _channels = messages, stop
    if hasattr(os, "sched_setaffinity"):
        cores = _cores()
        os.sched_setaffinity(0, {cores[slots.get() % len(cores)]})

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _cores() -> list[int]:
    """The cores that this process may use."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(os.cpu_count() or 1))


def _run_in_process(config: ConfigDict, cells: Sequence[Cell], directory: RunDirectory) -> None:
    messages, stop = _channels

    def tell(message: Message) -> None:
        if stop.is_set():
            raise _Stopped
        messages.put(message)

    _run_group(config, cells, directory, tell)


def _total_gradients(config: ConfigDict, cells: Sequence[Cell]) -> int:
    per_epoch = len(dataset(config.dataset)[0]) // config.batch_size
    return int(config.epochs * per_epoch) * len(cells)


class _Progress:
    """Which run, how many are left, gradients per second, time left: a bar in a terminal, else a line for each run."""

    def __init__(self, missing: int, finished: int, gradients: int):
        self.missing, self.left, self.gradients, self.done = missing, missing, gradients, 0
        self.begun = time.monotonic()
        if finished:
            print(f"{finished} finished runs found, {missing} to do", flush=True)
        self.bar = tqdm(
            total=gradients, unit=" gradients", unit_scale=True, dynamic_ncols=True, disable=None if missing else True
        )

    def __enter__(self) -> "_Progress":
        return self

    def __exit__(self, *error: object) -> None:
        self.bar.close()

    def take(self, message: Message) -> None:
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
