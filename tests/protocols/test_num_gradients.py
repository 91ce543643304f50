"""Protocols in rounds stop behind the update that uses the last of the gradients asked for.

They then equal themselves on the rows of run-times that so many updates take, which a first run of all rows tells.
"""

import functools

import numpy as np
import pytest
from comparison import RUNTIMES, assert_equal, check
from hypothesis import given
from hypothesis import strategies as st

from sgdlab import Schedule, cluster, predictors, protocols

DELAYS = cluster.MessageDelays(base_seconds=0.5, late_share=0.2, late_seconds=3.0)


class Scripted:
    """Says cutoffs that were written down beforehand, whatever it sees."""

    title = "scripted"

    def start(self, window: np.ndarray, *, seed: int) -> tuple[int, int]:
        return len(window), np.shape(window)[1]

    def predict(self, state: tuple[int, int], *, rate: float | None = None) -> predictors.Prediction:
        step, workers = state
        return predictors.Prediction(1 + (7 * step) % workers, np.full(workers, np.nan), np.full(workers, np.nan))

    def observe(self, state: tuple[int, int], runtimes: np.ndarray, cut_at: float) -> tuple[int, int]:
        return state[0] + 1, state[1]


PROTOCOLS = {
    "synchronous": protocols.synchronous,
    "all_reduce": protocols.all_reduce,
    "backup_workers": lambda runtimes, **given: protocols.backup_workers(
        runtimes, backups=runtimes.shape[1] // 2, **given
    ),
    "timeout": functools.partial(protocols.timeout, at_least=0.5, seconds=1.0),
    "timeout, interrupted": functools.partial(protocols.timeout, at_least=0.5, seconds=1.0, interrupt=True),
    "cutoff": functools.partial(protocols.cutoff, predictor=Scripted(), window=2),
    "cutoff, learned": functools.partial(
        protocols.cutoff, predictor=predictors.RunningMean(window=2), window=3, objective="rate"
    ),
    "cutoff, oracle": functools.partial(
        protocols.cutoff, predictor=lambda runtimes: predictors.Oracle(runtimes, whole=True), window=2
    ),
    "partial": functools.partial(protocols.partial, num_servers=3, push_at_least=0.5, push_timeout=0.5),
    "partial, delayed": functools.partial(
        protocols.partial, num_servers=2, push_at_least=0.5, pull_at_least=0.5, pull_delays=DELAYS, push_delays=DELAYS
    ),
}


def updates_that_use(schedule: Schedule, num_gradients: int) -> int | None:
    """How many updates have used so many gradients, by the block that has them last; None where all have not."""
    longest = 0
    for block in range(schedule.num_blocks):
        entered = schedule.update[schedule.used()[:, block], block]
        if entered.size < num_gradients:
            return None
        longest = max(longest, int(np.sort(entered)[num_gradients - 1]) + 1)
    return longest


@pytest.mark.representatives("synchronous", "timeout, interrupted", "partial")
@pytest.mark.parametrize("name", PROTOCOLS)
@check
@given(runtimes=RUNTIMES, data=st.data())
def test_equals_the_run_of_so_many_rows(name, runtimes, data):
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


def test_a_record_ends_with_its_run():
    runtimes = np.random.default_rng(0).uniform(1, 3, (50, 4))
    schedule, record = protocols.cutoff_with_record(runtimes, predictor=Scripted(), window=2, num_gradients=20)
    for array in (record.cutoff, record.mean, record.std, record.observed, record.seconds):
        assert len(array) == schedule.num_updates
    assert record.cutoff.sum() >= 20 > record.cutoff[:-1].sum()
