"""The times of every protocol's schedule agree with its reads.

Further, as `Schedule` says: rows are by first arrival at any server, equal times by worker number; with one worker
every protocol is serial; and those in rounds stop behind the update that uses the last of the gradients asked for.
"""

import functools

import numpy as np
import pytest
from comparison import RUNTIMES, assert_equal, check
from hypothesis import given, settings
from hypothesis import strategies as st
from lib.tiers import examples

from sgdlab import Schedule, cluster, predictors, protocols

PROTOCOLS = {
    "synchronous": protocols.synchronous,
    "all_reduce": protocols.all_reduce,
    "backup_workers": lambda runtimes, **given: protocols.backup_workers(
        runtimes, backups=runtimes.shape[1] // 2, **given
    ),
    "timeout": functools.partial(protocols.timeout, at_least=0.5, seconds=1.0),
    "interrupting timeout": functools.partial(protocols.timeout, at_least=0.5, seconds=1.0, interrupt=True),
    "cutoff": functools.partial(
        protocols.cutoff, predictor=predictors.RunningMean(window=2), window=3, objective="rate"
    ),
    "cutoff, oracle": functools.partial(
        protocols.cutoff, predictor=lambda runtimes: predictors.Oracle(runtimes, whole=True), window=2
    ),
    "partial": functools.partial(
        protocols.partial, num_servers=3, push_at_least=0.5, push_timeout=0.5, pull_at_least=0.5
    ),
    "partial, delays": functools.partial(
        protocols.partial,
        num_servers=2,
        push_at_least=0.5,
        pull_at_least=0.5,
        pull_delays=cluster.MessageDelays(late_share=0.3),
        push_delays=cluster.MessageDelays(base_seconds=0.5, late_share=0.2, late_seconds=3.0),
        keep_newer=True,
    ),
    "rennala": functools.partial(protocols.rennala, gradients_per_update=1),
    "softsync": functools.partial(protocols.softsync, gradients_per_update=1),
    "bounded_staleness": functools.partial(protocols.bounded_staleness, bound=1),
    "ringmaster": functools.partial(protocols.ringmaster, max_delay=2),
    "interrupting ringmaster": functools.partial(protocols.ringmaster, max_delay=2, interrupt=True),
    "asynchronous": protocols.asynchronous,
    "layers pushed": functools.partial(protocols.layerwise, num_blocks=3),
    "layers read and pushed": functools.partial(protocols.layerwise, num_blocks=3, reads="forward"),
    "simulated_staleness": functools.partial(protocols.simulated_staleness, average=2.0, ramp_epochs=0.0),
}
ROUNDS = [name for name in PROTOCOLS if name.split(",")[0].split()[-1] in (
    "synchronous", "all_reduce", "backup_workers", "timeout", "cutoff", "partial"
)]  # fmt: skip


def first_read(schedule: Schedule, row: int) -> float:
    """When the first version that a gradient read was applied, seconds."""
    return min(
        schedule.applied[version - 1, block] if version else 0.0 for block, version in enumerate(schedule.read[row])
    )


@pytest.mark.parametrize("protocol", PROTOCOLS.values(), ids=PROTOCOLS)
class TestEveryProtocol:
    @pytest.mark.sample(8)
    @settings(check, max_examples=examples(40))
    @given(runtimes=RUNTIMES)
    def test_reads_what_has_been_applied(self, protocol, runtimes):
        schedule = protocol(runtimes)
        for row in range(schedule.num_gradients):
            assert first_read(schedule, row) <= schedule.started[row]
            for block, version in enumerate(schedule.read[row]):
                assert not version or schedule.applied[version - 1, block] <= schedule.arrived[row, block]

    @pytest.mark.sample(8)
    @settings(check, max_examples=examples(40))
    @given(runtimes=RUNTIMES)
    def test_its_workers_begin_one_gradient_at_a_time(self, protocol, runtimes):
        schedule = protocol(runtimes)
        begun = list(zip(schedule.worker.tolist(), schedule.started.tolist(), strict=True))
        assert len(set(begun)) == len(begun)

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
        if protocol in (PROTOCOLS["simulated_staleness"], PROTOCOLS["partial, delays"]):
            return  # they are stale by themselves
        schedule = protocol(runtimes[:, :1])
        assert schedule.used().all()
        assert (schedule.staleness() == 0).all()
        assert schedule.num_updates == schedule.num_gradients == len(runtimes)
        if schedule.num_blocks == 1:
            assert_equal(schedule, protocols.synchronous(runtimes[:, :1]))


def updates_that_use(schedule: Schedule, num_gradients: int) -> int | None:
    """Return how many updates have used so many gradients, by the last block; None where not all have."""
    longest = 0
    for block in range(schedule.num_blocks):
        entered = schedule.update[schedule.used()[:, block], block]
        if entered.size < num_gradients:
            return None
        longest = max(longest, int(np.sort(entered)[num_gradients - 1]) + 1)
    return longest


@pytest.mark.representatives("synchronous", "partial")
@pytest.mark.parametrize("name", ROUNDS)
@check
@given(runtimes=RUNTIMES, data=st.data())
def test_a_number_of_gradients_ends_rounds_where_a_table_of_so_many_rows_does(name, runtimes, data):
    num_gradients = data.draw(st.integers(1, runtimes.size + 1))
    protocol = PROTOCOLS[name]
    enough = updates_that_use(protocol(runtimes), num_gradients)
    if enough is None:
        with pytest.raises(protocols.NotEnoughRuntimes) as caught:
            protocol(runtimes, num_gradients=num_gradients)
        assert caught.value.rows > len(runtimes)
        assert caught.value.rows * runtimes.shape[1] >= num_gradients
    else:
        assert_equal(protocol(runtimes, num_gradients=num_gradients), protocol(runtimes[:enough]))


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("protocol", [protocols.softsync, protocols.rennala])
def test_one_worker_fills_every_update_by_itself(protocol, size):
    schedule = protocol(np.arange(1.0, 3 * size + 1)[:, None], gradients_per_update=size)
    np.testing.assert_array_equal(schedule.update[:, 0], np.repeat(np.arange(3), size))
    assert (schedule.staleness() == 0).all()
