"""The cells of the heat map: what is reduced, and what must stay visible."""

import math

import numpy as np
import pytest

from sgdlab.advice.answer.pictures import heat


def naive(runtimes, most_steps, most_workers):
    """The same by loops over cells, workers and steps."""
    edges = [
        np.linspace(0, size, min(size, most) + 1).astype(int)
        for size, most in zip(runtimes.shape, (most_steps, most_workers), strict=True)
    ]
    result = np.full([edge.size - 1 for edge in edges], np.nan)
    for i, (first, last) in enumerate(zip(edges[0][:-1], edges[0][1:], strict=True)):
        for j, (left, right) in enumerate(zip(edges[1][:-1], edges[1][1:], strict=True)):
            means = []
            for worker in range(left, right):
                ratios = []
                for step in range(first, last):
                    known = [time for time in runtimes[step] if not math.isnan(time)]
                    if not math.isnan(runtimes[step, worker]):
                        ratios.append(min(runtimes[step, worker] / np.median(known), heat.LIMIT))
                if ratios:
                    means.append(np.mean(ratios))
            if means:
                result[i, j] = max(means)
    return result


@pytest.mark.parametrize(("most_steps", "most_workers"), [(600, 250), (4, 3), (5, 7), (1, 1)])
def test_cells_equal_loops_over_steps_and_workers(most_steps, most_workers):
    random = np.random.default_rng(0)
    runtimes = random.gamma(4, 0.25, (11, 7))
    runtimes[random.random(runtimes.shape) < 0.2] = np.nan
    runtimes[:6, 2:4] = np.nan  # whole cells
    runtimes[8] = np.nan  # a whole step
    found = heat.reduced(runtimes, most_steps=most_steps, most_workers=most_workers)
    np.testing.assert_allclose(found.ratios, naive(runtimes, most_steps, most_workers), rtol=1e-12)


def test_one_slow_worker_of_a_thousand_stays_visible_since_its_first_slow_step():
    runtimes = np.random.default_rng(0).gamma(900, 1 / 900, (2000, 1000))
    runtimes[1200:, 637] *= 1.5
    found = heat.reduced(runtimes)
    column = int(np.searchsorted(found.workers, 637, side="right")) - 1
    since = int(np.searchsorted(found.steps, 1200))
    assert found.ratios.shape == (600, 250)
    others = np.delete(found.ratios, column, axis=1)
    assert found.ratios[since:, column].min() > 1.1 * others.max()
    assert found.ratios[: since - 1, column].max() < 1.2


def test_a_step_that_is_slow_for_all_shows_nothing_and_a_ratio_is_clipped():
    runtimes = np.ones((4, 5))
    runtimes[2] *= 50
    runtimes[3, 1] = 9.0
    found = heat.reduced(runtimes).ratios
    assert (found[:3] == 1).all()
    assert found[3].tolist() == [1, heat.LIMIT, 1, 1, 1]
