"""`assign`: every reader finds its version in its slot, and no assignment at all could do with fewer slots."""

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from sgdlab.replay.registers import assign

check = settings(derandomize=True, deadline=None, database=None)


@st.composite
def cases(draw, most_uses):
    """(versions, last, reads, when): any uses and computations, of versions that there are by then."""
    uses = draw(st.integers(0, most_uses))
    last = [draw(st.booleans()) for _ in range(uses)]
    made = np.concatenate([[0], np.cumsum(last)]).astype(int).tolist()  # versions after so many uses
    versions = [draw(st.integers(0, made[use])) for use in range(uses)]
    when = draw(st.lists(st.integers(0, uses), max_size=6))
    reads = [draw(st.integers(0, made[at])) for at in when]
    return tuple(np.array(x, kind) for x, kind in ((versions, int), (last, bool), (reads, int), (when, int)))


def found(case, loads, reloads, stores, size):
    """Versions that computations and uses find, with slots that hold what was last stored."""
    versions, last, reads, when = case
    slots, made, uses, computations = [0] * size, 0, [], np.full(len(reads), -1)
    for use in range(len(versions) + 1):
        for place in np.flatnonzero(when == use):
            computations[place] = slots[loads[place]]
        if use < len(versions):
            uses.append(slots[reloads[use]])
            if last[use]:
                made += 1
                slots[stores[use]] = made
    return computations.tolist(), uses


def works(case, slot, size):
    """Whether an assignment, the slot of each version, serves all readers."""
    versions, last, reads, _ = case
    slot = np.array(slot)
    stores = np.zeros(len(last), int)
    stores[last] = slot[1:]
    return found(case, slot[reads], slot[versions], stores, size) == (reads.tolist(), versions.tolist())


@settings(check, max_examples=300)
@given(case=cases(12))
def test_readers_find_their_versions(case):
    loads, reloads, stores, size = assign(*case)
    assert found(case, loads, reloads, stores, size) == (case[2].tolist(), case[0].tolist())
    assert (stores[~case[1]] == 0).all()
    assert all(array.dtype == np.int32 for array in (loads, reloads, stores))
    assert [array.shape for array in (loads, reloads, stores)] == [case[2].shape, case[0].shape, case[0].shape]


@settings(check, max_examples=120)
@given(case=cases(6))
def test_no_assignment_has_fewer_slots(case):
    """All assignments are tried; the initial version is in slot 0."""
    size = assign(*case)[3]
    all_of_them = itertools.product(range(size - 1), repeat=int(case[1].sum()))
    assert size == 1 or not any(works(case, (0, *slots), size - 1) for slots in all_of_them)


def test_the_check_can_fail():
    read = np.array([0, 0, 1])
    case = read, np.ones(3, bool), read, np.arange(3)
    assert works(case, (0, 1, 0, 0), 2)
    assert not works(case, (0, 0, 1, 1), 2)


@settings(check, max_examples=60)
@given(size=st.integers(1, 8))
def test_nothing_is_kept_for_uses_that_read_the_newest(size):
    newest = np.arange(size)
    assert assign(newest, np.ones(size, bool), newest, newest)[3] == 1


@settings(check, max_examples=60)
@given(size=st.integers(1, 8))
def test_everything_is_kept_where_all_is_read_at_the_end(size):
    none = np.zeros(size, int)
    assert assign(none, np.ones(size, bool), np.arange(size + 1), np.full(size + 1, size))[3] == size + 1
