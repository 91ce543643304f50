"""Runs jobs in several processes and stores the records of each; jobs with finished records are not run again."""

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
    """Runs the jobs that have no finished records, with a progress bar in a terminal or else a message for each job.

    Args:
      jobs: name -> job; the name is that of the job's file of records.
      work: function from a job to its records, the last of which is a summary; it must be a module's function so that
        other processes can import it.
      directory: directory of the records.
      processes: number of processes; None: one for each core.
      what: plural noun for progress messages.

    Returns:
      The records of all jobs, by name.
    """
    stored = {name: directory.read(name) for name in jobs}
    missing = {name: jobs[name] for name, records in stored.items() if records is None}
    done = {name: records for name, records in stored.items() if records is not None}
    if not missing:
        return done
    print(f"{len(missing)} {what} to do, {len(done)} found", flush=True)
    processes = min(processes or len(_cores()), len(missing))
    begun = time.monotonic()
    with tqdm(total=len(missing), dynamic_ncols=True, disable=None) as bar:

        def store(name: str, records: Records) -> None:
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
                store(name, work(job))
        else:
            _in_processes(missing, work, store, processes)
    return done


def _in_processes(
    jobs: Mapping[str, Job], work: Callable[[Job], Records], store: Callable[[str, Records], None], processes: int
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
                store(names[future], future.result())
        except BaseException:
            workers = list((pool._processes or {}).values())
            pool.shutdown(wait=False, cancel_futures=True)
            for worker in workers:  # unfinished jobs are lost: whoever interrupts does not want to wait for them
                worker.terminate()
            raise


def _start_process(parent: int, slots: Any) -> None:
    """Binds a process to a core of its own, and ends it when its parent has ended."""
    logging.set_verbosity(logging.ERROR)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent is interrupted, and ends its processes
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
