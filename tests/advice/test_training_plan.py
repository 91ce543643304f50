"""The settings of the deep Markov model's training fit the number of tuning steps."""

import numpy as np
import pytest

from sgdlab.advice import learned, tuning


@pytest.mark.parametrize("most_steps", [1, 3000])
@pytest.mark.parametrize("steps", [4, 5, 11, 12, 22, 60, 100, 499, 500])
def test_windows_fit_the_tuning_steps(steps, most_steps):
    plan = learned.plan(steps, most_steps)
    held_out = int(np.ceil(plan.fitting.validation_share * steps))
    assert steps - held_out >= plan.widths.lag
    assert held_out == 0 or held_out >= plan.widths.lag
    assert plan.widths.lag <= tuning.HISTORY
    assert plan.fitting.steps <= most_steps
    assert bool(plan.note) == (steps < learned.ENOUGH)
