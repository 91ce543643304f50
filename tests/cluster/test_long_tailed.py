"""Long-tailed compute times: shares and distribution by the formula of the mixture.

Further: with the defaults, the k-th of 100 workers comes when Chen et al. 2016 (section 3.1) say, nearly.
"""

import numpy as np
import pytest
from scipy import stats

from sgdlab.cluster import long_tailed

STANDARD_ERRORS = 5
DEFAULTS = {"median": 1.55, "spread": 0.03, "tail_share": 0.0135, "tail_start": 2.0, "tail_index": 1.6}


def beyond(x: float | np.ndarray, *, median, spread, tail_share, tail_start, tail_index) -> float | np.ndarray:
    """P(t > x) of a log-normal body and a Pareto tail."""
    body = stats.norm.sf(np.log(np.asarray(x) / median) / spread)
    tail = np.minimum(1.0, (tail_start / np.asarray(x)) ** tail_index)
    return (1 - tail_share) * body + tail_share * tail


def draw(**changed) -> np.ndarray:
    return long_tailed(**{"num_workers": 100, "num_gradients": 3000, "seed": 0} | changed)


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"tail_share": 0.2, "tail_start": 1.0, "tail_index": 0.7},
        {"median": 10.0, "spread": 0.5, "tail_share": 0.5, "tail_start": 20.0, "tail_index": 3.0},
        {"tail_share": 0.0},
        {"tail_share": 1.0, "tail_index": 2.5},
    ],
)
def test_shares_beyond_any_time(changed):
    times, model = draw(**changed), DEFAULTS | changed
    for x in model["median"] * np.array([0.8, 1.0, 1.1, 1.5, 4.0, 40.0]):
        exact = beyond(x, **model)
        error = np.sqrt(exact * (1 - exact) / times.size)
        assert abs((times > x).mean() - exact) <= STANDARD_ERRORS * error
    assert stats.kstest(times.ravel()[::10], lambda x: 1 - beyond(x, **model)).pvalue > 1e-3


def test_without_spread_the_body_is_the_median():
    times = draw(spread=0, tail_share=0.25)
    assert ((times == DEFAULTS["median"]) | (times >= DEFAULTS["tail_start"])).all()
    share = (times == DEFAULTS["median"]).mean()
    assert abs(share - 0.75) < STANDARD_ERRORS * np.sqrt(0.25 * 0.75 / times.size)


def test_nobody_in_the_tail_comes_before_its_start():
    assert draw(tail_share=1.0).min() >= DEFAULTS["tail_start"]


def test_the_kth_of_a_hundred_workers():
    late = beyond(2.0, **DEFAULTS)
    last, third_last = (1 - late) ** 100, stats.binom.cdf(2, 100, late)  # the k-th is in time if at most N - k are late
    times = np.sort(draw(), axis=1)
    for column, exact in ((99, last), (97, third_last)):
        error = np.sqrt(exact * (1 - exact) / len(times))
        assert abs((times[:, column] < 2.0).mean() - exact) < STANDARD_ERRORS * error
    # The paper: 80 % of the 98th gradients and 30 % of the last arrive under 2 s.
    assert last == pytest.approx(0.3, abs=0.06)
    assert third_last == pytest.approx(0.8, abs=0.06)
    assert times[:, 5:95].min() > 1.2
    assert np.median(times, axis=0)[5:95].max() < 1.8
