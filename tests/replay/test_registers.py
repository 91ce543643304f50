"""`allocate`: values that live at one time have slots of their own, and there are no more slots than necessary."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from lib.tiers import examples

from sgdlab.replay.registers import allocate

check = settings(derandomize=True, deadline=None, max_examples=examples(300), database=None)
TIMES = st.integers(-1, 12)
CASES = st.lists(st.tuples(TIMES, TIMES), max_size=14).map(lambda pairs: np.array(pairs, int).reshape(-1, 2).T)


def lives(born, last_use):
    """For each value, the times at which it needs its slot: from its birth, if only to be written, to its last use."""
    return [set(range(begin, max(begin, end) + 1)) for begin, end in zip(born, last_use, strict=True)]


def clashes(born, last_use, slot):
    """Pairs of values that need one slot at one time."""
    needed = lives(born.tolist(), last_use.tolist())
    pairs = [(a, b) for b in range(len(needed)) for a in range(b) if needed[a] & needed[b]]
    return [pair for pair in pairs if slot[pair[0]] == slot[pair[1]]]


@check
@given(case=CASES)
def test_values_that_live_at_one_time_have_places_of_their_own(case):
    slot, _ = allocate(*case)
    assert clashes(*case, slot) == []


@check
@given(case=CASES)
def test_there_are_as_many_places_as_values_that_live_at_one_time(case):
    slot, size = allocate(*case)
    needed = lives(*(array.tolist() for array in case))
    assert size == max((sum(time in times for times in needed) for time in range(-1, 13)), default=0)
    assert slot.dtype == np.int32
    assert slot.shape == case[0].shape
    assert set(slot.tolist()) == set(range(size))


@check
@given(case=CASES)
def test_each_value_takes_the_lowest_place_that_is_free(case):
    slot, _ = allocate(*case)
    needed = lives(*(array.tolist() for array in case))
    order = np.argsort(case[0], kind="stable").tolist()
    for rank, value in enumerate(order):
        taken = {slot[before] for before in order[:rank] if case[0][value] in needed[before]}
        assert slot[value] == min(set(range(len(order) + 1)) - taken)


def test_the_check_can_fail():
    born, last_use = np.array([0, 1, 3]), np.array([2, 2, 3])
    assert clashes(born, last_use, np.array([0, 1, 0])) == []
    assert clashes(born, last_use, np.array([0, 0, 0])) == [(0, 1)]
