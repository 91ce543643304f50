"""Deadlines of sgdlab-record: predictors are sgdlab's own, false drops stay below their bound, healing is paid for."""

import numpy as np
import pytest
import scipy.special
import scipy.stats
from sgdlab_record import deadlines, special
from sgdlab_record.deadlines import Deadline, replay

from sgdlab.predictors import Guarded, dropping, run_online

SPEEDS = np.array([1.0, 1.0, 1.0, 1.0, 1.3, 2.0])


def drawn(rounds, seed=0):
    """Gamma times of six workers, one of them half as fast: float64[T, 6], seconds."""
    return np.random.default_rng(seed).gamma(25, 1 / 25, (rounds, SPEEDS.size)) * SPEEDS


@pytest.mark.parametrize("name", deadlines.PREDICTORS)
def test_the_number_to_wait_for_is_that_of_sgdlab(name):
    times = drawn(120)
    expected = run_online(times[40:], Guarded(deadlines.PREDICTORS[name]()), history=times[:40], seed=3).cutoff
    deadline = Deadline.fit(times[:40], predictor=name, max_false_drop=1, seed=3)
    for row, cutoff in zip(times[40:], expected, strict=True):
        seconds, how_many = deadline.next()
        assert how_many == cutoff
        closes = np.sort(row)[cutoff - 1]
        assert 0.2 < seconds / closes < 5
        deadline.next(np.where(row <= closes, row, np.nan), cut_at=closes)


def test_a_deadline_waits_for_the_last_of_the_number_that_is_expected():
    times = np.array([[1.0, 1.1, 0.9, 5.0]] * 20)
    assert Deadline.fit(times, max_false_drop=1).next() == pytest.approx((1.1, 3))
    for price in (0.0, 0.1):  # which makes no number smaller than the predictor's
        given = {"max_false_drop": 1, "deviations": 50.0, "rejoin_seconds": price}
        assert Deadline.fit(times, **given).next() == pytest.approx((5.0, 4))
    deadline = Deadline.fit(times, max_false_drop=1)
    assert deadline.next(7 * times[0]) == pytest.approx((1.1, 3))  # a pause of all teaches nothing
    assert deadline.next([1.0, 1.1, 0.9, np.inf]).how_many == 3
    assert deadline.next([1.0, np.inf, 0.9, np.inf]).how_many == 2  # of those that are there
    assert deadline.next([1.0, 1.1, 0.9, 5.0]).how_many == 3


def test_the_bound_on_a_probability_is_clopper_and_pearsons():
    for drops, rounds in ((0, 1), (0, 299), (3, 40), (39, 40), (40, 40)):
        test = scipy.stats.binomtest(drops, rounds, alternative="less")
        expected = test.proportion_ci(0.9, method="exact").high
        assert dropping.most_likely(drops, rounds, confidence=0.9) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(("rounds", "share", "confidence"), [(40, 0.1, 0.95), (299, 0.01, 0.95), (500, 0.03, 0.5)])
def test_the_least_deadline_is_the_shortest_that_covers(rounds, share, confidence):
    """Of uniform times, F(x) = x: the k-th of n is long enough with the probability that a beta(k, n - k + 1) has."""
    times = np.random.default_rng(0).random((rounds, 4000))
    found = dropping.least_deadline(times, share, confidence=confidence)
    k = np.arange(1, rounds + 1)
    covers = scipy.stats.beta.sf(1 - share, k, rounds - k + 1)
    first = int(np.argmax(covers >= confidence))
    np.testing.assert_array_equal(found, np.sort(times, axis=0)[first])
    draws = np.count_nonzero(found >= 1 - share)
    assert abs(draws - 4000 * covers[first]) < 4 * np.sqrt(4000 * 0.25)
    assert draws >= scipy.stats.binom.ppf(0.001, 4000, confidence)


def test_few_rounds_and_late_workers_leave_a_deadline_open():
    times = np.random.default_rng(0).random((299, 4))
    times[5, 1] = np.inf  # the one that the deadline of 299 rounds would be
    times[:1, 2] = np.nan  # took part in 298
    found = dropping.least_deadline(times, 0.01)
    np.testing.assert_array_equal(found, [times[:, 0].max(), np.inf, np.inf, times[:, 3].max()])
    assert dropping.least_deadline(np.zeros((0, 2)), 0.5).tolist() == [np.inf, np.inf]


@pytest.mark.covering
@pytest.mark.parametrize("name", ["deadline", "kalman"])
@pytest.mark.parametrize("share", [0.01, 0.05])
def test_no_worker_is_dropped_in_more_rounds_than_was_allowed(name, share):
    """While the deadline sees only whom it waited for; without a bound the slow worker is dropped nearly always."""
    times = drawn(1400, seed=1)
    seconds, in_time = replay(Deadline.fit(times[:400], predictor=name, max_false_drop=share), times[400:])
    dropped = 1 - in_time.mean(axis=0)
    assert dropped.max() <= share
    assert dropped[-1] > 0  # it is the one that the bound is about, and no more is waited for than that takes
    free, in_time = replay(Deadline.fit(times[:400], predictor=name, max_false_drop=1), times[400:])
    assert in_time[:, -1].mean() < 0.2
    assert free.sum() < 0.8 * seconds.sum()


@pytest.mark.parametrize(("memory", "share"), [(1000, 1 / 100), (50, 0.0)])
def test_rounds_of_long_ago_are_forgotten(memory, share):
    times = np.ones((100, 3))
    times[0, 2] = 5.0
    assert Deadline.fit(times, memory=memory).false_drop(2.0)[0] == share


def test_what_is_said_of_a_deadline_is_counted():
    times = np.random.default_rng(0).permutation(np.arange(1.0, 101.0)[:, None] * [1.0, 0.5])
    deadline = Deadline.fit(times, max_false_drop=0.1, window=50)
    assert deadline.next().seconds == pytest.approx(96.0)  # 4 of 100 exceed it: of 0.1, so few have a chance below 5 %
    assert scipy.stats.binom.cdf(4, 100, 0.1) <= 0.05 < scipy.stats.binom.cdf(5, 100, 0.1)
    assert deadline.false_drop() == (0.04, dropping.most_likely(4, 100))
    assert deadline.false_drop(90.0) == (0.10, dropping.most_likely(10, 100))


@pytest.mark.parametrize("name", ["deadline", "running_mean"])
def test_a_cutoff_must_save_more_than_healing_costs(name):
    """Three of four gradients in 1 s, or all in 3: the same for each second with R = 5 (3 / (1 + R / 4) = 4 / 3)."""
    times = np.array([[1.0, 1.0, 1.0, 3.0]] * 30)
    numbers = [
        Deadline.fit(times, predictor=name, max_false_drop=1, rejoin_seconds=price).next().how_many
        for price in (0.0, 4.99, 5.01, 1e6)
    ]
    assert numbers == [3, 3, 4, 4]


def test_gradients_for_each_second_of_a_worker_are_counted_one_by_one():
    times, cutoff, price = drawn(500, seed=2), 4, 7.0
    gradients = spent = 0.0
    for row in times:
        closes = sorted(row)[cutoff - 1]
        for worker in row:
            gradients += worker <= closes
            spent += closes + (price if worker > closes else 0.0)
    seconds = np.sort(times, axis=1)[:, cutoff - 1] + dropping.healing_seconds(6, price)[cutoff - 1]
    assert cutoff * 500 / seconds.sum() == pytest.approx(6 * gradients / spent, rel=1e-12)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda d: Deadline.fit(np.ones((3, 2)), predictor="oracle"), "predictor='oracle' must be one of deadline,"),
        (lambda d: Deadline.fit(np.ones((3, 2)), predictor=Guarded, window=2), "window must be left out"),
        (lambda d: Deadline.fit([[1.0, np.nan]]), r"times\[0, 1\]=nan must be positive"),
        (lambda d: Deadline.fit(np.ones((3, 2)), max_false_drop=0), "max_false_drop=0 must be a finite number"),
        (lambda d: Deadline.fit(np.ones((3, 2)), rejoin_seconds=-1), "rejoin_seconds=-1 must be a finite number"),
        (lambda d: d.next([1.0]), r"arrivals=\[1.0\] must hold the seconds of 2 workers"),
        (lambda d: d.next([np.nan, np.inf]), "at least one must have come"),
        (lambda d: d.next([1.0, -1.0]), "must hold the seconds"),
        (lambda d: d.next([1.0, 2.0], cut_at=1.5), "cut_at=1.5 must be a finite number at least 2"),
    ],
)
def test_mistakes_are_refused(call, said):
    with pytest.raises(ValueError, match=said):
        call(Deadline.fit(np.ones((3, 2))))


def test_special_functions_are_scipys():
    x = np.concatenate([np.linspace(-300, 30, 3000), [-30.0, 0.0]])
    np.testing.assert_allclose(special.log_ndtr(x), scipy.special.log_ndtr(x), rtol=1e-12, atol=1e-300)
    p = np.concatenate([np.geomspace(1e-300, 0.5, 300), 1 - np.geomspace(1e-15, 0.5, 300)])
    np.testing.assert_allclose(special.ndtri(p), scipy.special.ndtri(p), rtol=1e-13, atol=1e-15)
    y = -np.geomspace(1e-18, 1e5, 3000)
    np.testing.assert_allclose(special.ndtri_exp(y), scipy.special.ndtri_exp(y), rtol=1e-11)
    for trials, share in ((5, 0.3), (299, 0.01), (2000, 0.5)):
        k = np.arange(trials)
        expected = scipy.special.bdtr(k.astype(float), trials, share)
        np.testing.assert_allclose(special.bdtr(k, trials, share), expected, rtol=1e-10, atol=1e-300)
    for most, trials in ((0, 299), (3, 1000), (998, 999)):
        assert special.bdtri(most, trials, 0.05) == pytest.approx(scipy.special.bdtri(most, trials, 0.05), rel=1e-11)
