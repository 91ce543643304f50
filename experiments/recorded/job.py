"""Runs one episode: the processes of a job, the mean of their gradients, and what is done to them."""

import concurrent.futures
import contextlib
import json
import os
import pathlib
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import psutil

from experiments.benchmarks.faults.namespaces import Machines
from experiments.recorded import episodes, worker
from experiments.recorded.episodes import KINDS, LINK, PACED, Episode
from experiments.recorded.worker import MESSAGE, WARM_UP, receive
from sgdlab import traces
from sgdlab.traces import Recording

_ROOT = pathlib.Path(__file__).parents[2]
_ENV = {
    "PYTHONPATH": os.pathsep.join(map(str, (_ROOT, _ROOT / "record"))),
    **dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"),
}

SECONDS = 60.0
"""In which something must come of each worker."""


def run(
    episode: Episode,
    place: pathlib.Path,
    images: np.ndarray,
    machines: Machines | None,
    *,
    workers: int,
    steps: int,
    seed: int,
) -> tuple[Recording, dict[str, Any]]:
    """Run an episode.

    Args:
      episode: what is done.
      place: an empty folder.
      images: uint8[n, pixels + 1], with the label at the end of a row.
      machines: on which processes are started, that of the hub the first; None: on this one.
      workers: how many.
      steps: that are kept.
      seed: of parameters and noise.

    Returns:
      The recording, and facts for its label: how the fault was made, what was seen of it, what else the machine did.

    Raises:
      RuntimeError: where a worker ended before its time.
    """
    children: list[subprocess.Popen] = []
    names = [f"node{rank + 2}" for rank in range(workers)]
    with (
        contextlib.ExitStack() as lasts,
        machines.listen("node1") if machines else socket.create_server(("127.0.0.1", 0)) as listener,
    ):

        def between(step: int) -> None:
            kept = step - WARM_UP
            if kept == episode.since:
                pid, name = children[episode.worker].pid, names[episode.worker]
                episodes.begin(lasts, episode, pid, machines, name, seed)
            elif not episode.lasts(kept):
                lasts.close()

        before = _seconds()
        try:
            for rank, name in enumerate(names):
                shard, trace = place / f"shard{rank}", place / "trace"
                worker.store(shard, images, np.random.default_rng([seed, rank]))
                given = {"rank": rank, "address": listener.getsockname(), "shard": str(shard), "trace": str(trace)}
                given |= {"steps": steps, "seed": seed, "episode": episode, "paced": not machines}
                command = [sys.executable, "-m", worker.__name__, json.dumps(given)]
                if machines:
                    children.append(machines.start(name, command, **_ENV))
                else:
                    children.append(subprocess.Popen(command, env={**os.environ, **_ENV}, start_new_session=True))
            losses = _average(listener, workers, WARM_UP + steps, between)
            codes = [child.wait(SECONDS) for child in children]
        except ConnectionError as error:
            said = [machines.log(child)[-500:] for child in children] if machines else ""
            raise RuntimeError(f"{episode.file}: {error} {said}") from error
        finally:
            for child in children:
                child.kill()
                child.wait()
    clock, busy, own = np.subtract(_seconds(), before)
    recording = traces.read(place / "trace").select(rows=slice(WARM_UP, None))
    if any(codes) or recording.runtimes.shape != (steps, workers) or recording.missing:
        raise RuntimeError(f"{episode.file}: {recording} of processes that ended with {codes}")
    recording = _in_microseconds(recording)
    facts = {
        "others": round(max(busy - own, 0.0) / (clock * psutil.cpu_count()), 3),
        "seconds_of_a_step": round(float(np.median(np.diff(recording.began))), 6),
        "loss": [round(float(np.mean(some)), 4) for some in (losses[:WARM_UP], losses[-WARM_UP:])],
    }
    if episode.fault is not None:
        kind = KINDS[episode.fault]
        how = PACED if episode.fault == LINK and not machines else kind.how
        facts |= {"strength": episode.strength, "unit": kind.unit, "phase": kind.phase, "how": how}
        facts["seen"] = round(seen(recording.runtimes, episode), 3)
    return recording, facts


def _average(listener: socket.socket, workers: int, steps: int, between: Callable[[int], None]) -> list[float]:
    """Send workers the mean of their gradients, and return the mean loss of each step; between steps, call back.

    Raises:
      ConnectionError: where a worker is gone, or nothing comes of it.
    """
    came, mean, losses, channels = np.zeros((workers, MESSAGE), np.float32), np.zeros(MESSAGE, np.float32), [], []

    def all_came() -> None:
        np.mean(came, axis=0, out=mean)
        losses.append(float(mean[-1]))
        between(len(losses))

    barrier = threading.Barrier(workers, all_came)

    def serve(channel: socket.socket) -> None:
        channel.settimeout(SECONDS)
        channel.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        receive(channel, memoryview(rank := bytearray(1)))
        for _ in range(steps):
            receive(channel, memoryview(came[rank[0]]).cast("B"))
            channel.sendall(b"\1")
            barrier.wait()
            # The next mean is not made before all have sent again, and so have taken this one.
            channel.sendall(memoryview(mean).cast("B"))

    listener.settimeout(SECONDS)
    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        try:
            channels += [listener.accept()[0] for _ in range(workers)]
            for each in concurrent.futures.as_completed([pool.submit(serve, channel) for channel in channels]):
                each.result()
        except (OSError, threading.BrokenBarrierError) as error:
            raise ConnectionError(f"a worker is gone, or was not heard of for {SECONDS:g} s") from error
        finally:
            barrier.abort()
            for channel in channels:
                with contextlib.suppress(OSError):  # a thread that still waits for it wakes up
                    channel.shutdown(socket.SHUT_RDWR)
                channel.close()
    return losses


def _in_microseconds(recording: Recording) -> Recording:
    """Return the recording with steps and clock from 0 on, and times as they are stored in few bytes."""
    parts = [
        {name: np.round(times, 6) for name, times in each.items()}
        for each in (recording.phases, recording.communication)
    ]
    steps, began = np.arange(recording.steps.size), np.round(recording.began - recording.began[0], 6)
    return Recording(sum(parts[0].values()), steps, recording.workers, recording.nodes, *parts, began=began)


def seen(runtimes: np.ndarray, episode: Episode) -> float:
    """Return how many times as long a fault makes its worker's own work, against that of the others, on average.

    Example:
      >>> times = np.array([[1.0, 1.0, 2.0]] * 4)
      >>> times[2:, 0] = 3.0
      >>> seen(times, Episode(0, "slow gradient", worker=0, since=2))
      3.0
    """
    own, others = runtimes[:, episode.worker], np.delete(runtimes, episode.worker, axis=1)
    lasts = np.array([episode.lasts(step) for step in range(len(runtimes))])
    return float(own[lasts].mean() / others[lasts].mean() / (own[~lasts].mean() / others[~lasts].mean()))


def _seconds() -> tuple[float, float, float]:
    """Return the clock, seconds of busy processors, and those of this process and of its children that ended."""
    all_of, own = psutil.cpu_times(), os.times()
    busy = all_of.user + all_of.nice + all_of.system + all_of.irq + all_of.softirq + all_of.steal
    return own.elapsed, busy, sum(own[:4])
