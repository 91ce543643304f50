"""Workers that connect: parameters there and a gradient back, against the same bytes over a plain socket.

    python -m experiments.benchmarks joined
    python -m experiments.benchmarks live --transport=joined

Both ends hold arrays before and after, in processes of their own; the socket copies nothing else, checks nothing, and
does not know where a message ends. The second command measures what the loop costs a gradient.
"""

import contextlib
import json
import os
import pathlib
import secrets
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from experiments.benchmarks.timing import Figure, at_most
from sgdlab.live.messages import Came
from sgdlab.live.remote import Remote
from sgdlab.live.settings import VARIABLE, Endpoint

SIZE = 25_000_000
ROUNDS = 15
_SLOWEST = 2.0
"""Times as many seconds as over the socket."""
_ROOT = pathlib.Path(__file__).parents[2]


def figures() -> Iterator[Figure]:
    """Yield the seconds of a large gradient over gRPC, relative to those over a socket."""
    params = {"w": np.linspace(0, 1, SIZE, dtype=np.float32)}
    params["w"].flags.writeable = False  # as arrays of JAX are
    with contextlib.ExitStack() as stack:
        functions = {
            "socket": stack.enter_context(_over_socket(params["w"])),
            "gRPC": stack.enter_context(_over_grpc(params)),
        }
        seconds: dict[str, list[float]] = {name: [] for name in functions}
        for turn in range(ROUNDS + 2):
            for name, there_and_back in functions.items():
                begun = time.perf_counter()
                there_and_back()
                if turn >= 2:
                    seconds[name].append(time.perf_counter() - begun)
    medians = {name: 1e3 * statistics.median(found) for name, found in seconds.items()}
    detail = "ms there and back: " + ", ".join(f"{name} {median:.0f}" for name, median in medians.items())
    quickest = {name: 1e3 * min(found) for name, found in seconds.items()}
    detail += f"; at best {quickest['socket']:.0f} and {quickest['gRPC']:.0f}"
    value = statistics.median(a / b for a, b in zip(seconds["gRPC"], seconds["socket"], strict=True))
    yield at_most(f"joined worker, {SIZE:,} parameters: over a plain socket", value, "", _SLOWEST, detail)


@contextlib.contextmanager
def started(argument: dict[str, Any], params: Any, aux: Any, workers: int) -> Iterator[Remote]:
    """Yield a transport, while processes of this machine compute the work of `live_work`."""
    token = secrets.token_urlsafe()
    with Remote(params, aux, num_workers=workers, endpoint=Endpoint(token=token)) as transport:
        # Where there are fewer than two cores a worker, each computes in one thread, as in `sgdlab.live.environment`.
        flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_multi_thread_eigen=false".strip()
        more = {VARIABLE: token, "JAX_PLATFORMS": "cpu", "OMP_NUM_THREADS": "1", "XLA_FLAGS": flags}
        children = [_child("compute", transport.address, json.dumps(argument), **more) for _ in range(workers)]
        try:
            yield transport
        finally:
            transport.end()
            for child in children:
                child.wait()


@contextlib.contextmanager
def _over_grpc(params: dict[str, np.ndarray]) -> Iterator[Callable[[], None]]:
    token, ticket = secrets.token_urlsafe(), iter(range(sys.maxsize))
    aux = {"loss": np.zeros([], np.float32)}
    with Remote(params, aux, num_workers=1, endpoint=Endpoint(token=token)) as transport:
        transport.spawn(0)
        child = _child("echo", transport.address, **{VARIABLE: token})
        transport.next(None)

        def there_and_back() -> None:
            transport.begin(0, next(ticket), transport.publish(params))
            (came,) = transport.next(None)
            assert isinstance(came, Came)

        yield there_and_back
        transport.end()
        child.wait()


@contextlib.contextmanager
def _over_socket(params: np.ndarray) -> Iterator[Callable[[], None]]:
    memory = np.empty_like(params).view(np.uint8)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        child = _child("socket", str(listening.getsockname()[1]), str(memory.size))
        line, _ = listening.accept()

    def there_and_back() -> None:
        line.sendall(params.view(np.uint8).data)
        _fill(line, memory)

    with line:
        yield there_and_back
    child.wait()


def _fill(line: socket.socket, memory: np.ndarray) -> bool:
    view, at = memory.data, 0
    while at < len(view):
        found = line.recv_into(view[at:])
        if not found:
            return False
        at += found
    return True


def _child(kind: str, *arguments: str, **environment: str) -> subprocess.Popen:
    given = {**os.environ, "PYTHONPATH": os.pathsep.join([str(_ROOT), *filter(None, sys.path)]), **environment}
    return subprocess.Popen([sys.executable, "-m", "experiments.benchmarks.joined", kind, *arguments], env=given)


def _echo(address: str) -> None:
    from sgdlab.live import join  # noqa: PLC0415

    with join(address) as worker:
        for _, params in worker:
            worker.send(params)


def _answer_socket(port: str, size: str) -> None:
    memory = np.empty(int(size), np.uint8)
    with socket.create_connection(("127.0.0.1", int(port))) as line:
        while _fill(line, memory):
            line.sendall(memory.data)


def _compute(address: str, argument: str) -> None:
    from experiments.benchmarks import live_work  # noqa: PLC0415
    from sgdlab.live import join  # noqa: PLC0415
    from sgdlab.live.gradients import Gradients  # noqa: PLC0415

    work = live_work.work(json.loads(argument))
    with join(address) as worker:
        gradients = Gradients(work, worker=worker.number)
        gradients.compile()
        for ticket, params in worker:
            found = gradients.compute(ticket, params, lambda: worker.interrupted)
            if found is not None:
                worker.send_with(*found)


if __name__ == "__main__":
    {"echo": _echo, "socket": _answer_socket, "compute": _compute}[sys.argv[1]](*sys.argv[2:])
