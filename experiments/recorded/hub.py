"""Averages the gradients of the workers of a job, step by step; between two steps it calls back."""

import concurrent.futures
import contextlib
import socket
import threading
from collections.abc import Callable

import numpy as np

from experiments.recorded.worker import MESSAGE, receive

SECONDS = 60.0
"""In which something must come of each worker."""


def average(listener: socket.socket, workers: int, steps: int, between: Callable[[int], None]) -> list[float]:
    """Wait for the gradients of all workers, and send them the mean, again and again.

    Args:
      listener: a socket that listens, to which so many workers connect.
      workers: how many.
      steps: of the job.
      between: called when steps have ended with how many, while all workers wait.

    Returns:
      The mean loss of each step.

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
        except (TimeoutError, threading.BrokenBarrierError) as error:
            raise ConnectionError(f"a worker is gone, or was not heard of for {SECONDS:g} s") from error
        finally:
            barrier.abort()
            for channel in channels:
                with contextlib.suppress(OSError):  # a thread that still waits for it wakes up
                    channel.shutdown(socket.SHUT_RDWR)
                channel.close()
    return losses
