"""Run-times relative to their step, and the median of a step without its slow workers."""

import numpy as np

from sgdlab.advice.diagnosis.history import reference, relative


def test_reference_is_the_median_of_the_workers_that_are_not_slow():
    generator = np.random.default_rng(0)
    for workers in (2, 3, 4, 7):
        times = generator.gamma(4.0, size=(50, workers))
        slow = generator.random(times.shape) < 0.4
        expected = [
            np.median(row[~out]) if not out.all() else np.median(row) for row, out in zip(times, slow, strict=True)
        ]
        np.testing.assert_allclose(reference(times, slow), expected)


def test_a_factor_that_a_step_has_in_common_cancels():
    times = np.random.default_rng(1).gamma(4.0, size=(20, 5))
    np.testing.assert_allclose(relative(times * np.arange(1.0, 21.0)[:, None]), relative(times))
