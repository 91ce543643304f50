"""A predictor at work, watched by one that writes down what it is shown: what it may see, when, and what counts.

Further: the paper's oracle is the best of every iteration, and the objective "rate" makes it the best of a run.
"""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lib.tiers import examples

from sgdlab import cluster, predictors
from sgdlab.predictors import Prediction, run_online
from sgdlab.runtimes import NotEnoughRuntimes

check = settings(derandomize=True, deadline=None, max_examples=examples(100), database=None)
RUNTIMES = np.random.default_rng(0).uniform(0.5, 2.0, (30, 6))


class Spy:
    """Says cutoffs one after the other, and keeps what it is given."""

    title = "spy"

    def __init__(self, cutoffs):
        self.cutoffs, self.shown, self.cut_at, self.rates = list(cutoffs), [], [], []

    def start(self, window, *, seed):
        self.window, self.seed = np.array(window), seed
        return 0

    def predict(self, state, *, rate=None):
        assert state == len(self.rates)
        self.rates.append(rate)
        return Prediction(self.cutoffs[state], np.full(self.window.shape[1], state), np.full(self.window.shape[1], 0.5))

    def observe(self, state, runtimes, cut_at):
        self.shown.append(np.array(runtimes))
        self.cut_at.append(cut_at)
        runtimes[:] = -1.0  # what a predictor does with its copy is its own affair
        return state + 1


@st.composite
def runs(draw):
    """Compute times full of ties, a first window, and a cutoff for each iteration after it."""
    steps, workers = draw(st.integers(1, 7)), draw(st.integers(1, 5))
    numbers = st.lists(st.sampled_from([1.0, 2.0, 3.0]), min_size=steps * workers, max_size=steps * workers)
    window = draw(st.integers(1, steps))
    counts = draw(st.lists(st.integers(1, workers), min_size=steps - window, max_size=steps - window))
    return np.array(draw(numbers)).reshape(steps, workers), window, counts


@check
@given(runs())
def test_a_censored_predictor_sees_those_in_time_alone(run):
    runtimes, window, counts = run
    spy = Spy(counts)
    record = run_online(runtimes, spy, window=window)
    np.testing.assert_array_equal(spy.window, runtimes[:window])
    for row, count, shown, cut_at in zip(runtimes[window:], counts, spy.shown, spy.cut_at, strict=True):
        finished = sorted(range(row.size), key=lambda i, row=row: (row[i], i))  # of equals, the lower number first
        expected = [row[i] if i in finished[:count] else math.nan for i in range(row.size)]
        np.testing.assert_array_equal(shown, expected)
        assert cut_at == row[finished[count - 1]]
    np.testing.assert_array_equal(record.cutoff, [runtimes.shape[1]] * window + counts)


@check
@given(runs())
def test_an_uncensored_one_sees_all(run):
    runtimes, window, counts = run
    spy, censored = Spy(counts), Spy(counts)
    record = run_online(runtimes, spy, window=window, censored=False)
    assert len(spy.shown) == len(counts)
    for row, shown in zip(runtimes[window:], spy.shown, strict=True):
        np.testing.assert_array_equal(shown, row)
    run_online(runtimes, censored, window=window)
    assert spy.cut_at == censored.cut_at
    np.testing.assert_array_equal(record.seconds[window:], spy.cut_at)


@check
@given(runs())
def test_record(run):
    runtimes, window, counts = run
    record = run_online(runtimes, Spy(counts), window=window)
    every = [runtimes.shape[1]] * window + counts
    seconds = [sorted(row)[count - 1] for row, count in zip(runtimes.tolist(), every, strict=True)]
    assert record.warm_up == window
    np.testing.assert_array_equal(record.observed, np.sort(runtimes, axis=1))
    np.testing.assert_array_equal(record.seconds, seconds)
    for of, value in ((record.mean, np.arange(len(counts))[:, None]), (record.std, 0.5)):
        assert np.isnan(of[:window]).all()
        assert (of[window:] == value).all()
    assert record.gradients_per_second(warm_up=True) == pytest.approx(sum(every) / sum(seconds), rel=1e-12)
    if counts:
        assert record.gradients_per_second() == pytest.approx(sum(counts) / sum(seconds[window:]), rel=1e-12)
    else:
        says = f"record of {window} iterations must have more than its warm-up, {window}"
        with pytest.raises(ValueError, match=says):
            record.gradients_per_second()


@check
@given(runs())
def test_rate_is_that_of_the_run_so_far(run):
    runtimes, window, counts = run
    spy, other = Spy(counts), Spy(counts)
    run_online(runtimes, spy, window=window, objective="rate")
    used, seconds = window * runtimes.shape[1], sum(max(row) for row in runtimes[:window].tolist())
    for rate, count, row in zip(spy.rates, counts, runtimes[window:].tolist(), strict=True):
        assert rate == pytest.approx(used / seconds, rel=1e-12)
        used, seconds = used + count, seconds + sorted(row)[count - 1]
    run_online(runtimes, other, window=window)
    assert other.rates == [None] * len(counts)


def test_the_first_window_waits_for_everybody():
    record = run_online(RUNTIMES, predictors.Static(2), window=7)
    assert record.cutoff.tolist() == [6] * 7 + [2] * 23
    np.testing.assert_array_equal(record.seconds[:7], RUNTIMES[:7].max(axis=1))
    assert run_online(RUNTIMES, predictors.Static(2)).warm_up == 20


@pytest.mark.parametrize("objective", predictors.OBJECTIVES)
@pytest.mark.parametrize("history", [None, RUNTIMES[:4]])
@pytest.mark.parametrize("num_gradients", [1, 6, 7, 18, 19, 60, 100])
def test_a_run_that_has_enough_gradients_is_the_beginning_of_a_longer_one(num_gradients, history, objective):
    given = {"predictor": predictors.RunningMean(window=3), "window": 3, "history": history, "objective": objective}
    whole, short = (run_online(RUNTIMES, num_gradients=number, **given) for number in (None, num_gradients))
    steps = 1 + int(np.searchsorted(np.cumsum(whole.cutoff), num_gradients))
    for name in ("cutoff", "mean", "std", "observed", "seconds"):
        np.testing.assert_array_equal(getattr(short, name), getattr(whole, name)[:steps])
    assert short.warm_up == min(whole.warm_up, steps)


def test_a_run_that_is_too_short_says_how_many_iterations_are_enough():
    with pytest.raises(NotEnoughRuntimes, match="num_gradients=100 needs more than the 30 rows") as caught:
        run_online(RUNTIMES, predictors.Static(2), window=5, num_gradients=100)
    assert caught.value.rows == 38  # 80 gradients of 30 iterations


@pytest.mark.parametrize("window", [30, 31, 1000])
def test_a_run_no_longer_than_its_window_is_synchronous(window):
    record = run_online(RUNTIMES, predictors.Static(2), window=window)
    assert (record.cutoff == 6).all()
    assert record.warm_up == 30


def test_history_takes_the_place_of_the_first_window():
    history, spy = np.random.default_rng(1).uniform(0.5, 2.0, (9, 6)), Spy([3] * 30)
    record = run_online(RUNTIMES, spy, history=history, objective="rate", seed=5)
    np.testing.assert_array_equal(spy.window, history)
    assert spy.seed == 5
    assert record.warm_up == 0
    assert (record.cutoff == 3).all()
    assert spy.rates[0] == pytest.approx(history.size / history.max(axis=1).sum(), rel=1e-12)
    assert record.gradients_per_second() == record.gradients_per_second(warm_up=True)
    assert record.gradients_per_second() == pytest.approx(3 * 30 / np.sort(RUNTIMES, axis=1)[:, 2].sum(), rel=1e-12)


def two_regimes(seed: int) -> np.ndarray:
    return cluster.regimes(
        num_workers=30, num_nodes=3, num_steps=260, mean=1.0, std=0.5, slow_factor=2.5, slow_share=0.3, slow_steps=10,
        seed=seed,
    )  # fmt: skip


class TestObjectives:
    def test_nobody_is_above_the_oracle_in_any_iteration(self):
        runtimes = two_regimes(0)
        per_second = lambda record: record.cutoff[20:] / record.seconds[20:]
        oracle = per_second(run_online(runtimes, predictors.Oracle(runtimes[20:])))
        best = np.max(np.arange(1, 31) / np.sort(runtimes[20:], axis=1), axis=1)
        np.testing.assert_allclose(oracle, best, rtol=1e-14)
        for predictor in (predictors.RunningMean(window=5), predictors.Elfving(window=20), predictors.Static(27),
                          predictors.Deadline(deviations=2.0, window=5)):  # fmt: skip
            assert (per_second(run_online(runtimes, predictor)) <= oracle).all()

    @pytest.mark.parametrize("seed", range(3))
    def test_the_rate_makes_the_oracle_the_best_of_the_run(self, seed):
        runtimes = two_regimes(seed)
        found = {name: run_online(runtimes, predictors.Oracle(runtimes[20:]), objective=name).gradients_per_second()
                 for name in predictors.OBJECTIVES}  # fmt: skip
        ordered, ceiling = np.sort(runtimes[20:], axis=1), 0.0
        for _ in range(30):  # Dinkelbach: the best of all runs
            counts = np.argmax(np.arange(1, 31) - ceiling * ordered, axis=1)
            ceiling = (counts + 1).sum() / ordered[np.arange(240), counts].sum()
        assert found["throughput"] < found["rate"] <= ceiling * (1 + 1e-12)
        # From a rate that starts at full synchrony's, most of the way.
        assert ceiling - found["rate"] < 0.5 * (ceiling - found["throughput"])


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"window": 0}, "^window=0 must be a whole number of at least 1"),
        ({"window": 2.5}, r"^window=2\.5 must be a whole number of at least 1"),
        ({"objective": "speed"}, "^objective='speed' must be one of throughput, rate"),
        ({"runtimes": np.ones(3)}, r"^runtimes of shape \(3,\) must have shape \[T, N\]"),
        ({"runtimes": np.array([[1.0, np.nan]])}, r"^runtimes\[0, 1\]=nan must be positive and finite"),
        ({"history": np.ones((20, 5))}, r"^history of shape \(20, 5\) must have 6 columns, as runtimes has"),
        ({"predictor": predictors.Static(7)}, "^cutoff=7 must be a whole number from 1 to 6: there are 6 workers"),
        ({"history": np.array([[1.0] * 5 + [np.nan]])}, r"^history\[0, 5\]=nan must be positive and finite"),
        ({"history": np.ones(6)}, r"^history of shape \(6,\) must have shape"),
        ({"seed": -1}, "^seed=-1 must be a whole number of at least 0"),
        ({"predictor": Spy([0] * 10)}, "cutoff=0 must be a whole number from 1 to 6"),
        ({"predictor": Spy([7] * 10)}, "cutoff=7 must be a whole number from 1 to 6"),
        ({"predictor": Spy([2.5] * 10)}, r"cutoff=2\.5 must be a whole number from 1 to 6"),
        # Another run's oracle, or this one's with its first window: no ceiling, and nobody would know.
        ({"predictor": predictors.Oracle(RUNTIMES)}, "oracle|Oracle|runtimes"),
    ],
)
def test_errors_name_the_argument_and_its_value(changed, message):
    with pytest.raises(ValueError, match=message):
        run_online(**{"runtimes": RUNTIMES, "predictor": predictors.RunningMean(window=3)} | changed)
