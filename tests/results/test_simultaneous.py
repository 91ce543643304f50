"""Sets of methods that cannot be told apart: planted copies stay together, planted differences are found."""

import numpy as np
import pytest
import scipy.stats

from sgdlab.results import simultaneous


def test_twenty_copies_are_one_set_and_doubled_times_never_in_it():
    """Times with independent noise of 30 per cent, 20 seeds, 100 draws; a seed's own speed is common to all methods."""
    whole = 0
    for draw in range(100):
        generator = np.random.default_rng(draw)
        times = generator.normal(0, 0.3, (21, 20)) + generator.normal(0, 1.0, 20)
        times[20] += np.log(2)
        found = simultaneous.compare(times)
        whole += found.first[:20].all()
        assert not found.first[20]
    assert whole >= 95


def test_two_methods_are_students_paired_test():
    values = np.random.default_rng(3).normal(size=(2, 12))
    found = simultaneous.compare(values)
    difference = values[1 - found.best] - values[found.best]
    half = scipy.stats.t.ppf(0.99, 11) * difference.std(ddof=1) / np.sqrt(12)
    assert found.half[1 - found.best] == pytest.approx(half, rel=0.02)
    assert found.difference[1 - found.best] == pytest.approx(difference.mean(), rel=1e-12)
    assert (found.difference[found.best], found.half[found.best]) == (0.0, 0.0)


def test_the_direction():
    values = np.array([[0.9], [0.5]]) + np.random.default_rng(0).normal(0, 0.01, (2, 10))
    assert simultaneous.compare(values).first.tolist() == [False, True]
    assert simultaneous.compare(values, higher_is_better=True).first.tolist() == [True, False]


def test_few_seeds_decide_nothing():
    assert simultaneous.compare(np.array([[1.0, 1.0], [9.0, 9.0]])).first.all()


def test_zero_width_decides_nothing():
    """Ten runs of 360 of 360, and ten of 359: one test example may always differ."""
    values = np.repeat([[1.0], [359 / 360]], 10, axis=1)
    assert simultaneous.compare(values, higher_is_better=True).first.all()
    assert simultaneous.compare(values, higher_is_better=True, resolution=1 / 360).first.all()
    values[1] = 0.5
    assert simultaneous.compare(values, higher_is_better=True, resolution=1 / 360).first.tolist() == [True, False]


def test_shares_of_clopper_and_pearson():
    """The ends are where a tail of the binomial distribution has 2.5 per cent."""
    low, high = simultaneous.share(3, 20)
    assert scipy.stats.binom.sf(2, 20, low) == pytest.approx(0.025)
    assert scipy.stats.binom.cdf(3, 20, high) == pytest.approx(0.025)
    assert simultaneous.share(20, 20)[1] == 1.0


@pytest.mark.parametrize("values", [np.zeros(3), np.full((2, 3), np.nan), np.zeros((2, 0))])
def test_bad_values_are_named(values):
    with pytest.raises(ValueError, match="values of shape"):
        simultaneous.compare(values)


def test_bad_counts_are_named():
    with pytest.raises(ValueError, match="count=4"):
        simultaneous.share(4, 3)
