"""`layerwise`: every read and push equals an event simulation, in exact fractions where times tie.

Further: read at the start and pushed at the end, every layer is `asynchronous` of one block; lower layers are staler.
"""

from fractions import Fraction

import numpy as np
import pytest
from comparison import FEW, FIELDS, SHAPES, WHOLE, arrays, assert_schedule_is, check, without_ties
from hypothesis import given, settings
from hypothesis import strategies as st
from lib.tiers import examples
from simulate_layers import RanOut, simulate_layers

from sgdlab import PENDING, cluster, protocols

MODES = [(reads, pushes) for reads in ("start", "forward") for pushes in ("end", "backward")]
TIES = SHAPES.flatmap(lambda shape: st.sampled_from([WHOLE, FEW]).flatmap(lambda elements: arrays(shape, elements)))


@pytest.mark.parametrize(("reads", "pushes"), MODES)
class TestEvents:
    @pytest.mark.covering
    @check
    @given(
        runtimes=TIES,
        blocks=st.sampled_from([1, 2, 4]),
        share=st.sampled_from([Fraction(1, 4), Fraction(1, 2), Fraction(1)]),
        num_gradients=st.one_of(st.none(), st.integers(1, 30)),
    )
    def test_equals_events_where_times_tie(self, reads, pushes, runtimes, blocks, share, num_gradients):
        exact = [[Fraction(seconds) for seconds in row] for row in runtimes.tolist()]
        protocol = lambda: protocols.layerwise(
            runtimes,
            num_gradients=num_gradients,
            num_blocks=blocks,
            reads=reads,
            pushes=pushes,
            backward_share=float(share),
        )
        try:
            expected = simulate_layers(
                exact, num_gradients, blocks, forward=reads == "forward", backward=pushes == "backward", share=share
            )
        except RanOut:
            with pytest.raises(protocols.NotEnoughRuntimes):
                protocol()
        else:
            assert_schedule_is(protocol(), expected, runtimes.shape[1])

    @settings(check, max_examples=examples(60))
    @given(runtimes=without_ties(), blocks=st.integers(1, 4), share=st.sampled_from([1 / 4, 1 / 2, 2 / 3, 1.0]))
    def test_equals_events_where_shares_are_rounded(self, reads, pushes, runtimes, blocks, share):
        expected = simulate_layers(
            runtimes.tolist(), None, blocks, forward=reads == "forward", backward=pushes == "backward", share=share
        )
        schedule = protocols.layerwise(runtimes, num_blocks=blocks, reads=reads, pushes=pushes, backward_share=share)
        for name, dtype in FIELDS.items():
            compare = np.testing.assert_array_equal if dtype == np.int32 else np.testing.assert_allclose
            compare(getattr(schedule, name), np.array(expected[name], dtype), err_msg=name)


@check
@given(runtimes=TIES, blocks=st.integers(2, 4))
def test_all_layers_at_once_are_one_block(runtimes, blocks):
    schedule, whole = protocols.layerwise(runtimes, num_blocks=blocks, pushes="end"), protocols.asynchronous(runtimes)
    repeated = {name: getattr(whole, name) for name in FIELDS}
    for name in ("read", "update", "arrived", "applied"):
        repeated[name] = np.repeat(repeated[name], blocks, axis=1)
    assert_schedule_is(schedule, repeated, whole.num_workers)


def test_by_hand():
    # One gradient of 4 s, half of it backward: layer 1 is read at 1 and pushed at 3. Worker 1, of 10 s, reads layer 1
    # at 2.5 and would push it at 7.5; the run ends at 8, when worker 0's second gradient is whole.
    schedule = protocols.layerwise(
        np.array([[4.0, 10.0]] * 2), num_blocks=2, reads="forward", pushes="backward", backward_share=0.5
    )
    assert_schedule_is(
        schedule,
        {
            "worker": [0, 0, 1],
            "read": [[0, 0], [1, 1], [0, 0]],
            "update": [[0, 0], [1, 1], [PENDING, 2]],
            "started": [0, 4, 0],
            "arrived": [[4, 3], [8, 7], [10, 7.5]],
            "applied": [[4, 3], [8, 7], [np.nan, 7.5]],
        },
        2,
    )


@pytest.mark.parametrize(("reads", "pushes"), MODES[1:])
def test_lower_layers_are_staler(reads, pushes):
    runtimes = cluster.gamma(num_workers=20, num_gradients=60, seed=0)
    schedule = protocols.layerwise(runtimes, num_blocks=4, reads=reads, pushes=pushes)
    assert (np.diff(schedule.staleness().mean(axis=0)) < 0).all()
