"""Runs whose results are kept one by one: what was done is never done again, also after a crash."""

import concurrent.futures
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from absl import logging
from tqdm import tqdm

from sgdlab.results.directory import RunDirectory

Job = TypeVar("Job")
Records = list[dict[str, Any]]


def run_missing(
    jobs: Mapping[str, Job],
    work: Callable[[Job], Records],
    directory: RunDirectory,
    *,
    processes: int | None = None,
    what: str,
) -> dict[str, Records]:
    """Does the jobs that have no finished records yet, and shows progress: a bar in a terminal, else a line for each.

    Args:
      jobs: by name.
      work: a function of a module, so that other processes find it; its last record is a summary.
      directory: where the records are.
      processes: how many at once; None: one for each core.
      what: the jobs are, for the eye.

    Returns:
      The records of all jobs by name.
    """
    found = {name: directory.read(name) for name in jobs}
    missing = {name: jobs[name] for name, records in found.items() if records is None}
    done = {name: records for name, records in found.items() if records is not None}
    if not missing:
        return done
    print(f"{len(missing)} {what} to do, {len(done)} found", flush=True)
    processes = min(processes or len(_cores()), len(missing))
    begun = time.monotonic()
    with tqdm(total=len(missing), dynamic_ncols=True, disable=None) as bar:

        def take(name: str, records: Records) -> None:
            directory.write(name, records)
            done[name] = records
            bar.set_description(name, refresh=False)
            bar.update()
            if bar.disable:
                count = len(done) - len(jobs) + len(missing)
                left = (time.monotonic() - begun) / count * (len(missing) - count)
                print(f"[{count}/{len(missing)}] {name}: {tqdm.format_interval(left)} to go", flush=True)

        if processes == 1:
            for name, job in missing.items():
                take(name, work(job))
        else:
            _in_processes(missing, work, take, processes)
    return done


def _in_processes(
    jobs: Mapping[str, Job], work: Callable[[Job], Records], take: Callable[[str, Records], None], processes: int
) -> None:
    context = multiprocessing.get_context("spawn")
    slots = context.Queue()
    for slot in range(processes):
        slots.put(slot)
    with concurrent.futures.ProcessPoolExecutor(
        processes, mp_context=context, initializer=_start_process, initargs=(os.getpid(), slots)
    ) as pool:
        names = {pool.submit(work, job): name for name, job in jobs.items()}
        try:
            for future in concurrent.futures.as_completed(names):
                take(names[future], future.result())
        except BaseException:
            helpers = list((pool._processes or {}).values())
            pool.shutdown(wait=False, cancel_futures=True)
            for helper in helpers:  # what they have begun is lost; a person who interrupts does not want to wait for it
                helper.terminate()
            raise


def _start_process(parent: int, slots: Any) -> None:
    """Puts a process on a core of its own, and ends it when its parent is gone."""
    logging.set_verbosity(logging.ERROR)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent is interrupted, and ends its helpers
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
