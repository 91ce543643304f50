"""Workers of a real transport, which tests share, and what is asked of them."""

import select
import time

import jax
import jax.numpy as jnp
import numpy as np
import process_works
import psutil
from joining import Joining

from sgdlab.live.messages import Joined
from sgdlab.live.processes import Processes
from sgdlab.live.work import WorkSource

PATIENCE = 120
"""Seconds after which a test fails; nothing here takes as long, however busy the machine is."""

SLOW = 1
"""The worker whose gradients take for ever, each run's first one excepted."""

AUX = {"loss": jax.ShapeDtypeStruct((), jnp.float32), "stats": [jax.ShapeDtypeStruct((2,), jnp.bfloat16)]}


def made(function="plus", argument=None, *, transport=Processes, params=None, num_workers=2, **settings):
    source, like = WorkSource(f"process_works:{function}", argument), params or process_works.params()
    return transport(source, like, AUX, num_workers=num_workers, **{"env": {"JAX_ENABLE_X64": "0"}, **settings})


class Pool:
    """Workers, and what is known of them; the tickets of a run only grow."""

    def __init__(self, transport):
        self.transport, self.params = transport, process_works.params()
        self.processes, self.tickets = {}, 0
        self.version = transport.publish(self.params)

    def ready(self, *workers):
        """Sees that workers are there, and free."""
        for worker in workers:
            self.transport.spawn(worker)
        joined = self.heard(len(workers))
        assert {type(message) for message in joined} == {Joined}, joined
        self.processes |= {message.worker: message.process for message in joined}

    def begin(self, worker, version=None):
        self.tickets += 1
        self.transport.begin(worker, self.tickets, self.version if version is None else version)
        return self.tickets

    def heard(self, count):
        return heard(self.transport, count)

    def answered(self, *workers):
        """Waits until workers have sent something, without hearing it."""
        for worker in workers:
            if isinstance(self.transport, Processes):
                assert select.select([self.transport._workers[worker].line.socket], [], [], PATIENCE)[0]
            elif isinstance(self.transport, Joining):
                there = lambda worker=worker: worker in [stream.worker for stream, _ in self.transport._inbox]
                with self.transport._news:
                    assert self.transport._news.wait_for(there, PATIENCE)
            else:
                asked = lambda call, worker=worker: call.worker == worker and call.asked is not None
                calls = [each for each, call in self.transport._calls.items() if asked(call)]
                assert self.transport._ray.wait(calls, num_returns=len(calls), timeout=PATIENCE)[1] == []


def heard(transport, count):
    """The next messages."""
    end, messages = time.monotonic() + PATIENCE, []
    while len(messages) < count:
        assert time.monotonic() < end, f"only {messages} have come"
        messages += transport.next(1.0)
    return messages


def wait_until_gone(*pids):
    end = time.monotonic() + PATIENCE
    while any(psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE for pid in pids):
        assert time.monotonic() < end, f"one of {pids} is left"
        time.sleep(0.01)


def assert_equal(found, wanted):
    jax.tree.map(np.testing.assert_array_equal, found, jax.tree.map(np.asarray, wanted))
    assert jax.tree.map(lambda leaf: leaf.dtype, found) == jax.tree.map(lambda leaf: leaf.dtype, wanted)


def assert_answers(came, params, ticket):
    """Asserts that this is the gradient of a ticket, computed on these parameters."""
    assert came.ticket == ticket
    assert came.seconds > 0
    assert_equal(came.grads, {name: leaf + jnp.asarray(ticket, leaf.dtype) for name, leaf in params.items()})
    assert_equal(came.aux, {"loss": jnp.float32(ticket / 2), "stats": [jnp.full([2], ticket, jnp.bfloat16)]})
