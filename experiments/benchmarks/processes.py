"""Speed of two processes relative to one, and what they send each other, for networks of several sizes.

On one machine two processes share its cores and its memory: a gain is not to be expected, and the figures show the cost
of communication. Each process has one core; there are eight lanes, a batch has eight examples.

    python -m experiments.benchmarks processes
"""

import contextlib
import functools
import json
import os
import pathlib
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator

import jax
from flax import nnx

import sgdlab
from experiments.benchmarks import collectives, setup
from experiments.benchmarks.timing import Figure
from sgdlab import hosts, networks, tasks

LANES = 8
BATCH_SIZE = 8
WIDTHS = {4_000: 36, 100_000: 280, 1_000_000: 960, 10_000_000: 3_120}
"""Units of the two hidden layers, by number of parameters."""

GRADIENTS = {4_000: 4_096, 100_000: 2_048, 1_000_000: 128, 10_000_000: 16}
"""Of one run, which then takes about a second."""

PROTOCOLS = ("asynchronous", "synchronous")
ROUNDS = 3
RULE = sgdlab.rules.asgd(learning_rate=setup.LEARNING_RATE, momentum=setup.MOMENTUM)
_ROOT = pathlib.Path(__file__).parents[2]


def figures() -> Iterator[Figure]:
    """Two processes over one, in both layouts, and the fixed cost of a wave."""
    with contextlib.ExitStack() as stack:
        one, two = (stack.enter_context(_Group(count)) for count in (1, 2))
        for parameters in WIDTHS:
            for protocol in PROTOCOLS:
                for layout in sgdlab.replay.sharding.KINDS:
                    yield _figure(one, two, parameters, protocol, layout)


def _figure(one: "_Group", two: "_Group", parameters: int, protocol: str, layout: str) -> Figure:
    alone, both = [], []
    for turn in range(ROUNDS + 1):
        for group, seconds in ((one, alone), (two, both)):
            took = group.seconds(parameters, protocol, layout)
            if turn:  # the first compiles
                seconds.append(took)
    gradients = GRADIENTS[parameters]
    waves = gradients / LANES
    more = 1000 * (statistics.median(both) - statistics.median(alone)) / waves
    sent = two.sent(parameters, protocol, layout)
    words = ", ".join(f"{kind} of {size:,} bytes" for kind, size, depth in sent if depth == 1)
    within = sum(depth == 2 for _, _, depth in sent)
    return Figure(
        f"2 processes over 1, {parameters:,} parameters, {protocol}, {layout}",
        statistics.median(a / b for a, b in zip(alone, both, strict=True)),
        "x",
        detail=f"{gradients / statistics.median(alone):,.0f}/s alone; {more:+.2f} ms a wave; a wave: {words}; "
        f"a gradient: {within or 'no'} all-reduces",
    )


class _Group:
    """Processes that run what they are asked to, each on a core of its own."""

    def __init__(self, count: int):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{probe.getsockname()[1]}"
        environment = os.environ | {"JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": "1", "XLA_FLAGS": ""}
        command = [sys.executable, "-m", "experiments.benchmarks.processes", address, str(count)]
        self._children = [
            subprocess.Popen(
                [*command, str(i)], cwd=_ROOT, env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
            for i in range(count)
        ]

    def __enter__(self) -> "_Group":
        return self

    def __exit__(self, *error: object) -> None:
        for child in self._children:
            child.stdin.close()
        for child in self._children:
            try:
                child.wait(timeout=60)
            except subprocess.TimeoutExpired:
                child.kill()

    def seconds(self, *what: object) -> float:
        """Return what a run takes."""
        return float(self._answers("seconds", *what)[0])

    def sent(self, *what: object) -> list[tuple[str, int, int]]:
        """(kind, bytes, depth) of the collectives of a run."""
        return json.loads(self._answers("sent", *what)[0])

    def _answers(self, *words: object) -> list[str]:
        for child in self._children:
            child.stdin.write(json.dumps(words) + "\n")
            child.stdin.flush()
        return [self._answer(child) for child in self._children]

    def _answer(self, child: subprocess.Popen) -> str:
        for line in child.stdout:  # gloo and JAX may write lines of their own
            if line.startswith("answer "):
                return line.removeprefix("answer ")
        raise RuntimeError(f"a process ended with exit code {child.wait()}")


def _member(address: str, count: int, index: int) -> None:
    """One process of a group: answers on standard output what is asked on standard input."""
    if hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[index % len(cores)]})
    if count > 1:
        hosts.connect(address, num_processes=count, process_id=index, facts={"benchmark": "processes"})
    for line in sys.stdin:
        what, parameters, protocol, layout = json.loads(line)
        replayed = _replayed(parameters, protocol, layout)
        if what == "sent":
            found = [(one.kind, one.bytes, one.depth) for one in collectives.of_run(replayed)]
            print("answer", json.dumps(found), flush=True)
            continue
        begun = time.perf_counter()
        jax.block_until_ready(jax.tree.leaves(replayed().params))
        print("answer", time.perf_counter() - begun, flush=True)
    hosts.disconnect()


def _replayed(parameters: int, protocol: str, layout: str) -> functools.partial:
    task, program = _task(parameters), _program(parameters, protocol)
    on = {"mode": "wave"} if hosts.mesh() is None else {"mesh": hosts.mesh(), "layout": layout}
    return functools.partial(sgdlab.replay.run, program, RULE, task, setup.batches(BATCH_SIZE), **on)


@functools.cache
def _task(parameters: int) -> tasks.NetworkTask:
    width = WIDTHS[parameters]
    return tasks.classification(networks.MLP((64, width, width, 10), rngs=nnx.Rngs(0)))


@functools.cache
def _program(parameters: int, protocol: str) -> sgdlab.replay.Program:
    runtimes = sgdlab.cluster.gamma(num_workers=LANES, num_gradients=GRADIENTS[parameters] // LANES, seed=0)
    return sgdlab.replay.lower(getattr(sgdlab.protocols, protocol)(runtimes), width=LANES)


if __name__ == "__main__":
    _member(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
