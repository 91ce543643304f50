"""One table puts every predictor through the same contract; then each against a computation by hand.

Further: the Kalman filter equals a textbook's, its likelihood is that of the whole series' normal distribution, and
compute times that were cut off are drawn from the law that each predictor says.
"""

import math

import numpy as np
import pytest
from scipy import special, stats

from sgdlab import predictors
from sgdlab.predictors import kalman

WINDOW, STEPS = 20, 12
SHAPES = {"five workers": 5, "one worker": 1}


def runtimes_of(workers: int, *, seed: int = 0) -> np.ndarray:
    """A first window and what follows it, float64[W + T, N]: slow ones, fast ones, and a level that moves."""
    generator = np.random.default_rng(seed)
    level = 1 + 0.3 * np.sin(np.arange(WINDOW + STEPS) / 4)[:, None]
    return level * np.linspace(1, 4, workers) * generator.gamma(25.0, 1 / 25, (WINDOW + STEPS, workers))


def _informed(runtimes: np.ndarray) -> predictors.Informed:
    return predictors.Informed(lambda step, generator: runtimes[WINDOW + step] * generator.uniform(0.9, 1.1, (8, 1)))


# Whole run -> predictor.
PREDICTORS = {
    "running mean": lambda runtimes: predictors.RunningMean(window=4),
    "running mean of very many": lambda runtimes: predictors.RunningMean(window=30),
    "Elfving": lambda runtimes: predictors.Elfving(window=10),
    "deadline": lambda runtimes: predictors.Deadline(deviations=1.0, window=3),
    "static": lambda runtimes: predictors.Static(min(3, runtimes.shape[1])),
    "full synchrony": lambda runtimes: predictors.Static(None),
    "Kalman": lambda runtimes: predictors.Kalman(kalman.fit(runtimes[:WINDOW])),
    "oracle": lambda runtimes: predictors.Oracle(runtimes[WINDOW:]),
    "informed": _informed,
}
WITHOUT_OPINION = ("static", "full synchrony")
RATE_BLIND = ("deadline", *WITHOUT_OPINION)
IGNORES_NAMES = ("running mean", "Elfving", "deadline", "static", "full synchrony", "oracle")


def censored(row: np.ndarray, count: int) -> tuple[np.ndarray, float]:
    order = np.argsort(row, kind="stable")
    seen = row.copy()
    seen[order[count:]] = np.nan
    return seen, row[order[count - 1]]


def begun(name: str, workers: int) -> tuple[np.ndarray, predictors.Predictor, object]:
    """The compute times, a predictor of them, and its state after the first window."""
    runtimes = runtimes_of(workers)
    predictor = PREDICTORS[name](runtimes)
    return runtimes, predictor, predictor.start(runtimes[:WINDOW], seed=0)


@pytest.mark.parametrize("name", PREDICTORS)
@pytest.mark.parametrize("workers", SHAPES.values(), ids=SHAPES)
class TestContract:
    def test_predictions_are_possible(self, name, workers):
        runtimes, predictor, state = begun(name, workers)
        for row in runtimes[WINDOW:]:
            prediction = predictor.predict(state)
            assert isinstance(prediction.cutoff, int)
            assert 1 <= prediction.cutoff <= workers
            assert prediction.mean.shape == prediction.std.shape == (workers,)
            if name in WITHOUT_OPINION:
                assert np.isnan([prediction.mean, prediction.std]).all()
            else:
                assert (prediction.mean > 0).all()
                assert (np.diff(prediction.mean) >= 0).all()
                assert np.isfinite(prediction.mean).all()
                assert name == "Elfving" or (prediction.std >= 0).all()
            state = predictor.observe(state, *censored(row, prediction.cutoff))

    def test_the_cutoff_is_the_best_for_what_is_expected(self, name, workers):
        _, predictor, state = begun(name, workers)
        found = {rate: predictor.predict(state, rate=rate) for rate in (None, 0.0, 1.5, 99.0)}
        if name in RATE_BLIND:
            assert len({prediction.cutoff for prediction in found.values()}) == 1
        else:
            least = -(-workers // 2) if name.startswith("running mean") else 1  # its own default
            for rate, prediction in found.items():
                assert prediction.cutoff == predictors.best_cutoff(prediction.mean, rate=rate, at_least=least)
            assert found[0.0].cutoff == workers  # time is worth nothing
            assert found[99.0].cutoff == least  # time is worth everything

    def test_the_same_state_gives_the_same_answer(self, name, workers):
        runtimes, predictor, state = begun(name, workers)
        before = predictor.predict(state)
        predictor.predict(state, rate=2.0)
        later = state
        for row in runtimes[WINDOW:-1]:
            later = predictor.observe(later, *censored(row, 1))
            predictor.predict(later)
        assert_same(predictor.predict(state), before)

    def test_what_it_is_shown_stays_as_it_is(self, name, workers):
        runtimes, predictor, _ = begun(name, workers)
        window, (seen, cut_at) = runtimes[:WINDOW].copy(), censored(runtimes[WINDOW], 1)
        shown = seen.copy()
        state = predictor.observe(predictor.start(window, seed=0), shown, cut_at)
        predictor.predict(state)
        np.testing.assert_array_equal(window, runtimes[:WINDOW])
        np.testing.assert_array_equal(shown, seen)
        before = predictor.predict(state)
        window[:], shown[:] = 99.0, 99.0
        assert_same(predictor.predict(state), before)

    def test_one_predictor_gives_the_same_run_for_the_same_seed(self, name, workers):
        runtimes, predictor, _ = begun(name, workers)
        runs = [predictors.run_online(runtimes, predictor, seed=seed) for seed in (3, 3, 4)]
        np.testing.assert_array_equal(runs[0].cutoff, runs[1].cutoff)
        np.testing.assert_array_equal(runs[0].mean, runs[1].mean)
        draws = name not in ("oracle", *WITHOUT_OPINION) and (workers > 1 or name == "informed")
        assert (not np.array_equal(runs[0].mean, runs[2].mean, equal_nan=True)) == draws

    @pytest.mark.parametrize("seconds", [0.1, 0.7, 1.0, 3.3])
    def test_equal_workers_are_all_waited_for(self, name, workers, seconds):
        runtimes = np.full((WINDOW + STEPS, workers), seconds)
        predictor = predictors.Deadline(deviations=1.0, window=20) if name == "deadline" else PREDICTORS[name](runtimes)
        record = predictors.run_online(runtimes, predictor)
        assert (record.cutoff[WINDOW:] == (min(3, workers) if name == "static" else workers)).all()


def assert_same(left: predictors.Prediction, right: predictors.Prediction) -> None:
    assert left.cutoff == right.cutoff
    np.testing.assert_array_equal(left.mean, right.mean)
    np.testing.assert_array_equal(left.std, right.std)


@pytest.mark.parametrize("name", IGNORES_NAMES)
def test_names_of_workers_do_not_count(name):
    runtimes, order = runtimes_of(5), np.array([3, 0, 4, 2, 1])
    both = (runtimes, runtimes[:, order])
    records = [predictors.run_online(each, PREDICTORS[name](each), censored=False) for each in both]
    np.testing.assert_array_equal(records[0].cutoff, records[1].cutoff)
    np.testing.assert_allclose(records[0].mean, records[1].mean, rtol=1e-14)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        *[(lambda of=of, value=value: of(window=value), f"^window={value} must be a whole number of at least 1")
          for of in (predictors.RunningMean, predictors.Elfving) for value in (0, 2.5)],
        (lambda: predictors.Deadline(deviations=1.0, window=0), "^window=0 must be a whole number of at least 1"),
        (lambda: predictors.Deadline(deviations=math.nan, window=1), "^deviations=nan must be a finite number"),
        (lambda: predictors.Static(0), "^cutoff=0 must be a whole number of at least 1"),
        (lambda: predictors.Static(2.0), r"^cutoff=2\.0 must be a whole number of at least 1"),
        (lambda: predictors.Static(4).start(np.ones((20, 3)), seed=0), "^cutoff=4 must be a whole number from 1 to 3"),
        (lambda: predictors.Kalman(law(), samples=0), "^samples=0 must be a whole number of at least 1"),
        (lambda: predictors.Kalman(law()).start(np.ones((20, 4)), seed=0), r"^window of shape \(20, 4\) must have 3 "),
        (lambda: predictors.Oracle(np.array([[1.0, 0.0]])), r"^runtimes\[0, 1\]=0\.0 must be positive and finite"),
        (lambda: predictors.Oracle(np.ones((9, 5))).start(np.ones((20, 2)), seed=0), "^window of .* must have 5 col"),
        (lambda: kalman.fit(np.array([[1.0, -1.0]])), r"^runtimes\[0, 1\]=-1\.0 must be positive and finite"),
    ],
)  # fmt: skip
def test_errors(make, message):
    with pytest.raises(ValueError, match=message):
        make()


class TestByHand:
    RUN = runtimes_of(4)

    def predictions(self, predictor, steps: int) -> list[predictors.Prediction]:
        """After the first window and after each of some complete iterations."""
        state, found = predictor.start(self.RUN[:WINDOW], seed=0), []
        for row in self.RUN[WINDOW : WINDOW + steps]:
            found.append(predictor.predict(state))
            state = predictor.observe(state, row, row.max())
        return found

    @pytest.mark.parametrize("window", [1, 3, 20, 25])
    def test_running_mean(self, window):
        for step, found in enumerate(self.predictions(predictors.RunningMean(window=window), 6)):
            seen = [sorted(row) for row in self.RUN[max(0, WINDOW + step - window) : WINDOW + step].tolist()]
            mean = [sum(column) / len(seen) for column in zip(*seen, strict=True)]
            square = [sum(x * x for x in column) / len(seen) for column in zip(*seen, strict=True)]
            np.testing.assert_allclose(found.mean, mean, rtol=1e-12)
            np.testing.assert_allclose(found.std**2, np.array(square) - np.array(mean) ** 2, atol=1e-12)

    @pytest.mark.parametrize(("at_least", "cutoff"), [(0.0, 1), (0.4, 2), (0.5, 3), (0.75, 4), (1.0, 5)])
    @pytest.mark.parametrize("rate", [None, 0.1])
    def test_running_mean_waits_for_a_share_of_the_workers(self, at_least, cutoff, rate):
        window = np.array([[1.0, 30.0, 70.0, 100.0, 150.0]])  # the fastest alone is best, and each further one worse
        predictor = predictors.RunningMean(1, at_least=at_least)
        assert predictor.predict(predictor.start(window, seed=0), rate=rate).cutoff == cutoff
        default = predictors.RunningMean(1)
        assert default.predict(default.start(window, seed=0), rate=rate).cutoff == 3

    @pytest.mark.parametrize("window", [1, 7, 20])
    def test_elfving(self, window):
        for step, found in enumerate(self.predictions(predictors.Elfving(window=window), 6)):
            seen = self.RUN[WINDOW + step - window : WINDOW + step].ravel().tolist()
            mean = sum(seen) / len(seen)
            std = math.sqrt(sum((x - mean) ** 2 for x in seen) / len(seen))
            for j, expected in enumerate(found.mean, 1):
                quantile = special.ndtri((j - math.pi / 8) / (4 - math.pi / 4 + 1))
                assert expected == pytest.approx(max(mean + std * quantile, min(seen)), rel=1e-12)
            assert np.isnan(found.std).all()

    def test_elfving_never_expects_what_is_sooner_than_what_was_seen(self):
        # mean 4, deviation about 7: the first of four would come at a negative time.
        window = np.array([[1.0, 1.0, 1.0, 13.0]] * 20)
        predictor = predictors.Elfving(window=20)
        found = predictor.predict(predictor.start(window, seed=0))
        assert predictors.elfving(4, mean=4.0, std=float(window.std()))[0] < 0
        assert found.mean[0] == 1.0

    @pytest.mark.parametrize(("window", "deviations"), [(1, 1.0), (3, 2.0), (20, 0.0), (5, -1.0), (4, -9.0), (4, 50.0)])
    def test_deadline(self, window, deviations):
        for step, found in enumerate(self.predictions(predictors.Deadline(deviations=deviations, window=window), 6)):
            seen = self.RUN[WINDOW + step - window : WINDOW + step]
            median = np.quantile(seen, 0.5)
            deadline = median + deviations * np.quantile(np.abs(seen - median), 0.5)
            in_time = sum(np.mean([sorted(row)[j] for row in seen]) <= deadline for j in range(4))
            assert found.cutoff == max(in_time, 1)

    def test_oracle(self):
        known = self.RUN[WINDOW:]
        for row, found in zip(known, self.predictions(predictors.Oracle(known), 6), strict=False):
            np.testing.assert_array_equal(found.mean, np.sort(row))
            np.testing.assert_array_equal(found.std, 0)

    def test_informed(self):
        asked = []

        def draw(step, generator):
            asked.append(step)
            return generator.exponential(1.0, (500, 4))

        found = self.predictions(predictors.Informed(draw), 6)
        assert asked == list(range(6))
        # E[x_(j)] of four exponential times: 1/4 + ... + 1/(4 - j + 1).
        expected = np.cumsum(1 / np.arange(4, 0, -1))
        for prediction in found:
            assert (np.abs(prediction.mean - expected) < 5 * prediction.std / math.sqrt(500)).all()
        assert len({tuple(prediction.mean) for prediction in found}) == 6

    @pytest.mark.parametrize("window", [1, 2, 20])
    def test_missing_times_are_drawn_from_the_last_twenty_iterations(self, window):
        """Whatever window a predictor has: worker 1, always by far the slowest, is cut off; what was it filled with?"""
        generator = np.random.default_rng(0)
        runtimes = generator.normal([1.0, 50.0], [0.01, 2.0], (45, 2))
        predictor, row = predictors.RunningMean(window=window), np.array([1.0, np.nan])
        filled = []
        for seed in range(400):
            state = predictor.start(runtimes[:20], seed=seed)
            for complete in runtimes[20:]:
                state = predictor.observe(state, complete, complete.max())
            others = runtimes[len(runtimes) - window + 1 :, 1].sum()
            filled.append(predictor.predict(predictor.observe(state, row, 51.0)).mean[1] * window - others)
        mean, std = runtimes[-20:, 1].mean(), runtimes[-20:, 1].std()
        assert stats.kstest(filled, stats.truncnorm((51 - mean) / std, np.inf, mean, std).cdf).pvalue > 1e-3


def law() -> kalman.KalmanParameters:
    """Of three workers, which are never in another order."""
    return kalman.KalmanParameters(
        mean=np.array([1.0, 10.0, 100.0]),
        std=np.array([0.1, 0.5, 4.0]),
        memory=np.array([0.3, 0.9, 0.99]),
        share=np.array([0.9, 0.65, 0.2]),
    )


def textbook(runtimes: np.ndarray, *, mean, std, memory, share) -> list[tuple[float, float]]:
    """Mean and variance of every next compute time of one worker: predict and update, with F, Q, H = 1 and R."""
    transition, process = memory, (1 - memory**2) * share * std**2
    noise = (1 - share) * std**2
    level, variance = 0.0, share * std**2  # stationary
    predictions = []
    for x in runtimes:
        predictions.append((mean + level, variance + noise))
        innovation, innovation_variance = x - mean - level, variance + noise
        gain = variance / innovation_variance
        level, variance = level + gain * innovation, (1 - gain) ** 2 * variance + gain**2 * noise  # Joseph's form
        level, variance = transition * level, transition**2 * variance + process
    return [*predictions, (mean + level, variance + noise)]


def worker_of(law: kalman.KalmanParameters, i: int) -> dict[str, float]:
    return {name: float(getattr(law, name)[i]) for name in ("mean", "std", "memory", "share")}


def series(law: kalman.KalmanParameters, steps: int, *, seed: int = 0) -> np.ndarray:
    generator = np.random.default_rng(seed)
    level, rows = np.sqrt(law.share) * law.std * generator.normal(size=law.mean.size), []
    for _ in range(steps):
        rows.append(law.mean + level + np.sqrt(1 - law.share) * law.std * generator.normal(size=law.mean.size))
        fresh = np.sqrt(law.share * (1 - law.memory**2)) * law.std
        level = law.memory * level + fresh * generator.normal(size=law.mean.size)
    return np.array(rows)


class TestKalman:
    def test_likelihood_is_that_of_the_whole_series(self):
        runtimes = series(law(), 25)
        likelihood = kalman.log_density(law(), runtimes).sum(axis=0)
        apart = np.abs(np.subtract.outer(np.arange(25), np.arange(25)))
        for i in range(3):
            of = worker_of(law(), i)
            covariance = of["std"] ** 2 * (of["share"] * of["memory"] ** apart + (1 - of["share"]) * np.eye(25))
            expected = stats.multivariate_normal.logpdf(runtimes[:, i], np.full(25, of["mean"]), covariance)
            assert likelihood[i] == pytest.approx(expected, rel=1e-9)

    def test_predictions_are_a_textbook_filters(self):
        runtimes, samples = series(law(), 32, seed=1), 4000
        predictor = predictors.Kalman(law(), samples=samples)
        state = predictor.start(runtimes[:20], seed=0)
        for step in range(20, 32):
            prediction = predictor.predict(state)
            for i in range(3):  # in their order always: order statistic i is worker i's
                mean, variance = textbook(runtimes[:step, i], **worker_of(law(), i))[-1]
                assert abs(prediction.mean[i] - mean) < 5 * math.sqrt(variance / samples)
                assert prediction.std[i] == pytest.approx(math.sqrt(variance), rel=5 / math.sqrt(2 * samples))
            state = predictor.observe(state, runtimes[step], runtimes[step].max())

    def test_order_statistics_are_of_independent_workers(self):
        same = kalman.KalmanParameters(np.full(9, 5.0), np.ones(9), np.full(9, 0.5), np.full(9, 0.5))
        predictor = predictors.Kalman(same, samples=4000)
        state = predictor.start(np.full((1, 9), 5.0), seed=0)
        _, variance = textbook([5.0], mean=5.0, std=1.0, memory=0.5, share=0.5)[-1]
        expected = predictors.normal(9, mean=5.0, std=math.sqrt(variance))
        found = predictor.predict(state)
        assert (np.abs(found.mean - expected) < 5 * found.std / math.sqrt(4000)).all()

    def test_a_worker_cut_off_is_drawn_from_its_own_prediction(self):
        runtimes, cut_at = series(law(), 20), 104.0
        predictor = predictors.Kalman(law(), samples=1)
        # What is predicted is linear in what worker 2 was seen to take: two complete iterations give the slope.
        expected_after = lambda row, seed=0: predictor.predict(
            predictor.observe(predictor.start(runtimes, seed=seed), np.array(row), cut_at)
        ).mean[2]
        at_zero, at_one = (expected_after([1.0, 10.0, x]) for x in (0.0, 1.0))
        drawn = np.array([expected_after([1.0, 10.0, np.nan], seed) for seed in range(400)])
        filled = (drawn - at_zero) / (at_one - at_zero)
        mean, variance = textbook(runtimes[:, 2], **worker_of(law(), 2))[-1]
        tail = stats.truncnorm((cut_at - mean) / math.sqrt(variance), np.inf, mean, math.sqrt(variance))
        assert stats.kstest(filled, tail.cdf).pvalue > 1e-3

    def test_nobody_is_expected_at_once(self):
        wild = kalman.KalmanParameters(np.ones(2), np.full(2, 5.0), np.full(2, 0.5), np.full(2, 0.5))
        predictor = predictors.Kalman(wild)
        assert (predictor.predict(predictor.start(np.ones((1, 2)), seed=0)).mean > 0).all()

    def test_fit_takes_moments_and_the_greatest_likelihood(self):
        memories = np.array([0.3, 0.6, 0.8, 0.9, 0.95, 0.99])
        true = kalman.KalmanParameters(np.full(6, 9.0), np.ones(6), memories, np.full(6, 0.65))
        runtimes = series(true, 300)
        fitted = kalman.fit(runtimes)
        np.testing.assert_allclose(fitted.mean, runtimes.mean(axis=0), rtol=1e-12)
        np.testing.assert_allclose(fitted.std, runtimes.std(axis=0), rtol=1e-12)
        best = kalman.log_density(fitted, runtimes).sum(axis=0)
        for memory in kalman._MEMORIES:
            for share in kalman._SHARES:
                other = kalman.KalmanParameters(fitted.mean, fitted.std, np.full(6, memory), np.full(6, share))
                assert (kalman.log_density(other, runtimes).sum(axis=0) <= best + 1e-9).all()
        assert fitted.memory[0] < 0.7 < fitted.memory[4]

    def test_fit_of_workers_that_never_vary(self):
        fitted = kalman.fit(np.full((20, 3), 2.0))
        assert (fitted.std > 0).all()
        assert np.isfinite(kalman.log_density(fitted, np.full((20, 3), 2.0))).all()


@pytest.mark.parametrize("window", [1, 3, 8, 40])
@pytest.mark.parametrize("draw", [lambda r: r.gamma(4.0, 0.25, (40, 5)), lambda r: r.integers(1, 5, (40, 5)) * 0.25])
def test_the_deadline_is_that_of_the_compute_times_in_the_window(window, draw):
    predictor = predictors.Deadline(deviations=1.5, window=window)
    runtimes = draw(np.random.default_rng(window)).astype(float)
    state = predictor.start(runtimes[:6], seed=0)
    for row in range(6, 40):
        seen = runtimes[max(row - window, 0) : row]
        median = np.median(seen)
        deadline = median + 1.5 * np.median(np.abs(seen - median))
        expected = np.sort(seen, axis=1).mean(axis=0)
        counted = np.count_nonzero(expected <= deadline * (1 + 1e-9))
        assert predictor.predict(state).cutoff == max(1, counted)
        state = predictor.observe(state, runtimes[row], runtimes[row].max())
