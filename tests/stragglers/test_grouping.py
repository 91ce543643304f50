"""Workers with one history are one group, and what counts of a history."""

import pytest

from sgdlab.stragglers.diagnosis import grouping, history
from sgdlab.stragglers.diagnosis.history import Episode

ROWS = 600


def groups(episodes, nodes=()):
    return grouping.find_groups(episodes, history.among(episodes, ROWS), nodes)


def fleet(slow, workers=12):
    return [tuple(slow.get(worker, ())) for worker in range(workers)]


SINCE, ALWAYS = (Episode(300, 599, 1.5),), (Episode(0, 599, 1.4),)


def test_workers_that_are_slow_in_the_same_steps_are_one_group():
    (found,) = groups(fleet({2: SINCE, 7: (Episode(303, 599, 1.45),)}))
    assert found.workers == (2, 7)
    assert found.node is None
    (only,) = found.episodes
    assert only.first == 300
    assert only.last == 599
    assert only.factor == pytest.approx((1.5 * 1.45) ** 0.5)  # the median of the logarithms


NODES = [f"n{worker // 4}" for worker in range(12)]


@pytest.mark.parametrize(
    ("slow", "nodes", "expected"),
    [
        ({2: SINCE, 7: (Episode(100, 250, 1.5),)}, (), [(None, (2,)), (None, (7,))]),  # in other steps
        ({2: ALWAYS, 7: ALWAYS}, (), [(None, (2,)), (None, (7,))]),  # two machines
        ({4: ALWAYS, 5: ALWAYS, 6: ALWAYS}, (), [(None, (4, 5, 6))]),  # three neighbours
        (dict.fromkeys(range(4, 8), SINCE), NODES, [("n1", (4, 5, 6, 7))]),
        (dict.fromkeys(range(4, 8), ALWAYS), NODES, [("n1", (4, 5, 6, 7))]),
        ({4: SINCE, 5: SINCE}, NODES, [(None, (4, 5))]),  # half of a node is not the node
        (dict.fromkeys([4, 5, 6, 7, 10], SINCE), NODES, [("n1", (4, 5, 6, 7)), (None, (10,))]),
    ],
)
def test_who_is_one_group(slow, nodes, expected):
    assert [(group.node, group.workers) for group in groups(fleet(slow), nodes)] == expected


@pytest.mark.parametrize(
    ("episodes", "since", "until", "count"),
    [
        ([Episode(0, 599, 1.5)], 0, None, 1),
        ([Episode(300, 599, 1.5)], 300, None, 1),
        ([Episode(300, 499, 1.5)], 300, 499, 1),
        ([Episode(0, 299, 1.1), Episode(300, 599, 1.6)], 300, None, 1),  # a slight offset before does not count
        ([Episode(58, 109, 1.39), Episode(110, 115, 1.2), Episode(116, 599, 1.42)], 58, None, 1),
        ([Episode(s, s + 19, 1.8) for s in range(50, 600, 100)], 50, None, 6),  # the next one may come
        ([Episode(s, s + 19, 1.8) for s in (50, 100, 150)], 50, 169, 3),
        ([Episode(s, s, 1.6) for s in range(3, 600, 12)], 3, None, 50),
    ],
)
def test_what_counts_of_a_history(episodes, since, until, count):
    kept, first, last = grouping.essential(episodes, ROWS)
    assert (first, last, len(kept)) == (since, until, count)


def test_single_slow_steps_near_each_other_are_counted_one_by_one():
    rows = [3, 5, 11, 90, 200, 203, 204, 350, 500, 590]
    own = tuple(Episode(row, row, 2.0) for row in rows)
    (group,) = groups(fleet({4: own}))
    kept, since, until = grouping.essential(group.episodes, ROWS)
    assert [row for e in kept for row in range(e.first, e.last + 1)] == rows
    assert len(kept) == len(rows) - 1  # rows 203 and 204 are one time
    assert (since, until) == (3, None)


def test_a_stretch_with_a_gap_of_few_rows_is_dated_as_one():
    kept, since, until = grouping.essential([Episode(300, 420, 1.5), Episode(424, 599, 1.5)], ROWS)
    assert [(e.first, e.last) for e in kept] == [(300, 599)]
    assert (since, until) == (300, None)
