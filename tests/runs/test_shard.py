"""Shares of an array's tasks: every run once, none larger than it must be, groups together."""

import collections

import pytest
from hypothesis import given
from hypothesis import strategies as st

from configs import digits
from sgdlab.runs import compared
from sgdlab.runs.sweep import Shard

GROUPS = st.lists(st.integers(0, 9), max_size=12).map(
    lambda sizes: [[(group, run) for run in range(size)] for group, size in enumerate(sizes)]
)


@given(GROUPS, st.integers(1, 15), st.sampled_from([0, 1]))
def test_shares_hold_every_run_once_and_are_as_small_as_can_be(groups, count, first):
    shares = [Shard(index, count).share(groups) for index in range(first, first + count)]
    runs = [run for group in groups for run in group]
    assert sorted(run for share in shares for run in share) == sorted(runs)
    assert max(map(len, shares)) <= -(-len(runs) // count)


@given(GROUPS, st.integers(1, 15))
def test_few_groups_are_divided(groups, count):
    """Every piece of a group ends its group or fills its share."""
    pieces = sum(len({group for group, _ in Shard(index, count).share(groups)}) for index in range(count))
    assert pieces <= sum(map(bool, groups)) + count


@pytest.mark.parametrize(("count", "divided"), [(1, 0), (2, 1), (4, 0), (7, 3)])
def test_methods_stay_together_where_that_balances(count, divided):
    """Three methods of four runs, and two runs of a single worker: two shares of seven cannot hold whole methods."""
    runs = compared.comparison(digits.get_config(), ["asgd", "dana", "gap_aware"], [4, 8], 2).runs
    groups = collections.defaultdict(list)
    for run in runs:
        groups[run.varied["method"]].append(run.varied["method"])
    methods = [set(Shard(index, count).share(groups.values())) for index in range(count)]
    tasks = collections.Counter(method for found in methods for method in found)
    assert sum(number > 1 for number in tasks.values()) == divided


def test_numbers_from_zero_and_from_one_are_the_same_tasks():
    groups = [range(7), range(10, 13)]
    assert Shard.of("0/3").share(groups) == Shard.of("3/3").share(groups)


@pytest.mark.parametrize("text", ["4/3", "/3", "1/", "½/1", "1/٣"])
def test_a_task_that_cannot_be_is_named(text):
    with pytest.raises(ValueError, match="must be like 2/8") as caught:
        Shard.of(text)
    assert repr(text) in str(caught.value)
