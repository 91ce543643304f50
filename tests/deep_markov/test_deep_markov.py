"""The deep Markov predictor: its forecast is the second implementation's, and its window is always full."""

import functools
import math
import re

import jax
import naive_model as naive
import numpy as np
import pytest
from lib.compiling import compilations
from naive_model import LAG, WIDTHS, WORKERS

from sgdlab.deep_markov import DeepMarkov, TrainedModel
from sgdlab.deep_markov.model import WindowModel
from sgdlab.predictors import best_cutoff

SAMPLES, DIVISOR = 5, 2.5
RATES = [None, 0.5, 1.3, 20.0]


@functools.cache
def trained(literal) -> TrainedModel:
    """Random parameters in float64; of the mean compute times, about a half and apart from one another."""
    widths = naive.small(literal=literal)
    parameters = naive.parameters_of(WindowModel(WORKERS, widths, seed=0), seed=5)
    parameters["emission"]["mean"]["bias"] = np.array([0.4, 0.9, 0.5])
    parameters["emission"]["mean"]["kernel"] *= 0.2
    parameters["emission"]["std"]["bias"] -= 2.0
    return TrainedModel(widths, WORKERS, DIVISOR, parameters)


@functools.cache
def made(literal, literal_scale) -> DeepMarkov:
    return DeepMarkov(trained(literal), samples=SAMPLES, at_least=0.0, literal_scale=literal_scale)


def predictor(*, literal=False, literal_scale=False) -> DeepMarkov:
    """One of each kind, since every one compiles its own program."""
    return made(literal, literal_scale)


def runtimes(rows=LAG, *, seed=0) -> np.ndarray:
    return np.random.default_rng(seed).uniform(0.5, 2.5, (rows, WORKERS))


def cut(row, at):
    """The row as it is seen when workers are cut off."""
    return np.where(row > at, np.nan, row)


def states(count=6):
    """States of a run in which some are cut off."""
    state = predictor().start(runtimes(LAG + 3), seed=1)
    for row in runtimes(count, seed=2):
        yield state
        state = predictor().observe(state, cut(row, 1.5), 1.5)


class TestForecast:
    @pytest.mark.covering
    @pytest.mark.parametrize("seed", [0, 1])
    @pytest.mark.parametrize("literal", [False, True], ids=["default", "literal"])
    def test_is_the_second_implementation_s_on_the_same_random_numbers(self, seed, literal):
        model, window = trained(literal), runtimes(seed=seed)
        key = jax.random.fold_in(jax.random.key(seed), 3)
        for_state, for_next, for_runtimes = jax.random.split(key, 3)
        draws = naive.forecast(
            model.parameters,
            window / DIVISOR,
            jax.random.normal(for_state, (LAG, SAMPLES, WIDTHS["state"])),
            jax.random.normal(for_next, (SAMPLES, WIDTHS["state"])),
            jax.random.normal(for_runtimes, (SAMPLES, WORKERS)),
            literal=literal,
        )
        samples, mean, std = (np.asarray(values) * DIVISOR for values in draws)
        forecast = predictor(literal=literal).forecast(model.parameters, window, DIVISOR, (seed, 3), np.nan)
        ordered = np.sort(np.maximum(samples, window.min()), axis=1)  # none is expected sooner than the fastest seen
        np.testing.assert_allclose(forecast.mean, ordered.mean(axis=0), rtol=1e-12)
        np.testing.assert_allclose(forecast.std, ordered.std(axis=0), rtol=1e-10)
        np.testing.assert_allclose(forecast.worker_mean, mean, rtol=1e-12)
        np.testing.assert_allclose(forecast.worker_std, std, rtol=1e-12)
        assert forecast.cutoff == best_cutoff(ordered.mean(axis=0))

    @pytest.mark.parametrize("rate", RATES)
    def test_order_statistics_rise_and_the_cutoff_is_their_best(self, rate):
        for state in states():
            prediction = predictor().predict(state, rate=rate)
            assert prediction.mean.shape == prediction.std.shape == (WORKERS,)
            assert prediction.mean.dtype == prediction.std.dtype == np.float64
            assert (np.diff(prediction.mean) >= 0).all()
            assert (prediction.std >= 0).all()
            assert isinstance(prediction.cutoff, int)
            assert prediction.cutoff == best_cutoff(prediction.mean, rate=rate)

    def test_nobody_is_expected_sooner_than_the_fastest_that_was_seen(self):
        """However uncertain the model is: c / x has no bound near zero."""
        window = runtimes() + 5.0
        prediction = predictor().predict(predictor().start(window, seed=0))
        np.testing.assert_array_equal(prediction.mean >= window.min(), np.ones(WORKERS, bool))

    def test_the_same_state_gives_the_same_answer(self):
        for first, second in zip(states(), states(), strict=True):
            predictor().predict(first, rate=2.0)
            predictions = [predictor().predict(state) for state in (first, first, second)]
            for again in predictions[1:]:
                assert again.cutoff == predictions[0].cutoff
                np.testing.assert_array_equal(again.mean, predictions[0].mean)
                np.testing.assert_array_equal(again.std, predictions[0].std)

    def test_another_seed_and_another_step_draw_other_numbers(self):
        window = runtimes()
        first, other = (predictor().start(window, seed=seed) for seed in (0, 1))
        again = first
        for row in window:  # after a whole lag of the same rows, the window is what it was
            again = predictor().observe(again, row, math.inf)
        means = [predictor().predict(state).mean for state in (first, other, again)]
        np.testing.assert_array_equal(again.window, first.window)
        assert (means[0] != means[1]).all()
        assert (means[0] != means[2]).all()

    def test_sees_no_more_than_the_last_lag_of_the_first_window(self):
        window = runtimes(LAG + 4)
        long, short = (predictor().start(rows, seed=0) for rows in (window, window[-LAG:]))
        np.testing.assert_array_equal(predictor().predict(long).mean, predictor().predict(short).mean)


class TestObserving:
    def test_the_window_moves_by_one_and_stays_complete(self):
        window = runtimes()
        state = predictor().start(window, seed=0)
        for row in runtimes(2 * LAG, seed=3):
            before, state = state.window, predictor().observe(state, cut(row, 1.2), 1.2)
            assert state.window.shape == (LAG, WORKERS)
            assert np.isfinite(state.window).all()
            np.testing.assert_array_equal(state.window[:-1], before[1:])

    @pytest.mark.parametrize("at", [0.6, 1.2, 3.0])
    def test_who_finished_is_as_seen_and_who_did_not_took_longer(self, at):
        state = predictor().start(runtimes(), seed=0)
        row = np.array([0.5, np.nan, np.nan])
        newest = predictor().observe(state, row, at).window[-1]
        assert newest[0] == row[0]
        assert (newest[1:] >= at).all()
        assert (newest[1] != newest[2]) == (at < state.longest)
        np.testing.assert_array_equal(row, [0.5, np.nan, np.nan])

    def test_nobody_is_taken_to_be_slower_than_the_slowest_that_was_seen(self):
        window = runtimes()
        state = predictor().start(window, seed=0)
        newest = predictor().observe(state, np.array([0.5, np.nan, np.nan]), 40.0).window[-1]
        assert (newest[1:] == 40.0).all()  # cut off so late that only the cutoff itself is known
        for seed in range(50):
            state = predictor().start(window, seed=seed)
            state = predictor().observe(state, np.array([2.6, np.nan, np.nan]), 1.0)
            assert (state.window[-1] <= max(window.max(), 2.6)).all()
            assert state.longest == max(window.max(), 2.6)

    def test_does_not_depend_on_what_was_asked_before(self):
        row = np.array([0.5, np.nan, np.nan])
        after = []
        for rates in ((), (None,), (3.0,), (3.0, None)):
            state = predictor().start(runtimes(), seed=0)
            for rate in rates:
                predictor().predict(state, rate=rate)
            after.append(predictor().observe(state, row, 1.0).window)
        for window in after[1:]:
            np.testing.assert_array_equal(window, after[0])

    def test_missing_runtimes_are_drawn_from_what_was_expected_of_the_worker(self):
        """Cut off long before, so that nothing is truncated: draws have the mixture's mean and deviation."""
        filled, means, squares = [], [], []
        drawing = DeepMarkov(trained(False), literal_draws=True)  # not truncated from above either
        for seed in range(300):
            state = drawing.start(runtimes(), seed=seed)
            filled.append(drawing.observe(state, np.full(WORKERS, np.nan), -1e6).window[-1])
            forecast = predictor().forecast(trained(False).parameters, runtimes(), DIVISOR, (1000 + seed, 0), np.nan)
            means.append(np.mean(forecast.worker_mean, axis=0))
            squares.append(np.mean(np.square(forecast.worker_mean) + np.square(forecast.worker_std), axis=0))
        mean = np.mean(means, axis=0)
        variance = np.mean(squares, axis=0) - mean**2
        # Draws of one seed, and what is expected from those of another: the second errs by less than the first.
        assert (abs(np.mean(filled, axis=0) - mean) < 5 * np.sqrt(2 * variance / 300)).all()
        np.testing.assert_allclose(np.var(filled, axis=0), variance, rtol=0.4)


class TestScale:
    def predictions(self, factor, *, literal_scale):
        chosen = predictor(literal_scale=literal_scale)
        state = chosen.start(factor * runtimes(LAG + 2), seed=0)
        for row in runtimes(3, seed=2):
            yield chosen.predict(state)
            state = chosen.observe(state, factor * cut(row, 1.5), factor * 1.5)

    def test_with_the_run_s_own_scale_thrice_the_runtimes_are_thrice_the_prediction(self):
        for one, three in zip(*(self.predictions(factor, literal_scale=True) for factor in (1, 3)), strict=True):
            assert one.cutoff == three.cutoff
            np.testing.assert_allclose(three.mean, 3 * one.mean, rtol=1e-9)
            np.testing.assert_allclose(three.std, 3 * one.std, rtol=1e-9)

    def test_the_run_s_own_scale_is_twice_the_mean_of_its_first_window(self):
        window = runtimes(LAG + 2)
        own, factor = predictor(literal_scale=True), DIVISOR / (2 * window.mean())
        found = own.predict(own.start(window, seed=0))
        expected = predictor().predict(predictor().start(factor * window, seed=0))
        np.testing.assert_allclose(found.mean, expected.mean / factor, rtol=1e-9)

    def test_by_default_the_scale_is_that_of_the_training(self):
        one, three = (next(self.predictions(factor, literal_scale=False)) for factor in (1, 3))
        assert not np.allclose(three.mean, 3 * one.mean, rtol=0.01)


def test_nothing_is_compiled_after_the_first_prediction():
    chosen = predictor()
    state = chosen.start(runtimes(), seed=0)
    chosen.predict(state)
    with compilations() as seen:
        jax.jit(lambda x: x + 1)(1.0)
    assert seen
    with compilations() as seen:
        for rate in (None, 1.0, np.float64(2.0), 3):
            chosen.predict(state, rate=rate)
            state = chosen.observe(state, np.array([0.5, np.nan, 2.0]), np.float64(1.0))
            chosen.predict(chosen.start(3 * runtimes(LAG + 3), seed=7), rate=rate)
    assert not seen


class TestErrors:
    @pytest.mark.parametrize("workers", [WORKERS - 1, WORKERS + 1])
    def test_another_number_of_workers(self, workers):
        expected = re.escape(f"window of shape {(LAG, workers)} must have {WORKERS} columns")
        with pytest.raises(ValueError, match=f"^{expected}"):
            predictor().start(np.ones((LAG, workers)), seed=0)

    @pytest.mark.parametrize("rows", [0, LAG - 1])
    def test_a_window_shorter_than_the_lag(self, rows):
        with pytest.raises(ValueError, match=f"^window of {rows} iterations must have at least {LAG}"):
            predictor().start(np.ones((rows, WORKERS)), seed=0)

    @pytest.mark.parametrize("samples", [0, -1, 2.0, None])
    def test_a_number_of_samples_that_is_none(self, samples):
        with pytest.raises(ValueError, match=f"^samples={samples} must be a whole number"):
            DeepMarkov(trained(False), samples=samples)


def test_at_least_so_many_are_waited_for():
    """The best of those that are allowed, where the best of all is not."""
    state = predictor().start(runtimes(), seed=0)
    free = predictor().predict(state, rate=1e6)
    held = DeepMarkov(trained(False), samples=SAMPLES, at_least=0.5)
    prediction = held.predict(held.start(runtimes(), seed=0), rate=1e6)
    assert free.cutoff == 1
    assert prediction.cutoff == 2 == best_cutoff(free.mean, rate=1e6, at_least=2)
    with pytest.raises(ValueError, match=r"at_least=1\.5 must be a finite number at least 0 and at most 1"):
        DeepMarkov(trained(False), at_least=1.5)
