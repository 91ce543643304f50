"""What `Schedule` says of all protocols: rows by first arrival at any server, equal times by worker number.

Further: with one worker every protocol is serial.
"""

import functools

import numpy as np
import pytest
from comparison import RUNTIMES, assert_equal, check
from hypothesis import given, settings
from lib.tiers import examples

from sgdlab import protocols

PROTOCOLS = {
    "asynchronous": protocols.asynchronous,
    "synchronous": protocols.synchronous,
    "backup_workers": lambda runtimes: protocols.backup_workers(runtimes, backups=runtimes.shape[1] // 2),
    "layers": functools.partial(protocols.layerwise, num_blocks=3, reads="forward"),
    "timeout": functools.partial(protocols.timeout, at_least=0.5, seconds=1.0),
    "interrupting timeout": functools.partial(protocols.timeout, at_least=0.5, seconds=1.0, interrupt=True),
    "softsync": functools.partial(protocols.softsync, gradients_per_update=1),
    "rennala": functools.partial(protocols.rennala, gradients_per_update=1),
    "ringmaster": functools.partial(protocols.ringmaster, max_delay=2),
    "interrupting ringmaster": functools.partial(protocols.ringmaster, max_delay=2, interrupt=True),
    "bounded_staleness": functools.partial(protocols.bounded_staleness, bound=1),
    "partial": functools.partial(protocols.partial, num_servers=3, push_at_least=0.5, pull_delays=1.0),
}


@pytest.mark.parametrize("protocol", PROTOCOLS.values(), ids=PROTOCOLS)
class TestEveryProtocol:
    @pytest.mark.sample(6)
    @settings(check, max_examples=examples(60))
    @given(runtimes=RUNTIMES)
    def test_rows_by_first_arrival_then_worker(self, protocol, runtimes):
        schedule = protocol(runtimes)
        rows = list(zip(schedule.arrived.min(axis=1).tolist(), schedule.worker.tolist(), strict=True))
        assert rows == sorted(rows)

    @settings(check, max_examples=examples(30))
    @given(runtimes=RUNTIMES)
    def test_one_worker_is_serial(self, protocol, runtimes):
        schedule = protocol(runtimes[:, :1])
        assert schedule.used().all()
        assert (schedule.staleness() == 0).all()
        assert schedule.num_updates == schedule.num_gradients == len(runtimes)
        if schedule.num_blocks == 1:
            assert_equal(schedule, protocols.synchronous(runtimes[:, :1]))


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("protocol", [protocols.softsync, protocols.rennala])
def test_one_worker_fills_every_update_by_itself(protocol, size):
    schedule = protocol(np.arange(1.0, 3 * size + 1)[:, None], gradients_per_update=size)
    np.testing.assert_array_equal(schedule.update[:, 0], np.repeat(np.arange(3), size))
    assert (schedule.staleness() == 0).all()
