"""The settings of the deep Markov model's training fit the number of tuning steps."""

import numpy as np
import pytest

from sgdlab.advice.comparison import learned, tuning


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


@pytest.mark.parametrize("model", ["auto", "yes"])
@pytest.mark.parametrize("workers", [511, 512, 1000, 4000])
def test_a_wide_cluster_is_trained_on_for_fewer_steps_unless_in_full(workers, model):
    found = learned.plan(5000, 3000, workers=workers, model=model)
    if model == "auto" and workers >= 512:
        assert found.fitting.steps * workers <= max(1_000_000, 500 * workers)
        assert found.samples < 64
        assert str(found.fitting.steps) in found.note
    else:
        assert found == learned.plan(5000, 3000)
    assert learned.plan(5000, 300, workers=workers, model=model).fitting.steps <= 500


@pytest.mark.parametrize(
    ("steps", "workers", "model", "left_out"),
    [
        (5000, 1000, "auto", False),
        (5000, 8000, "auto", True),
        (5000, 8000, "yes", False),
        (10, 2, "no", True),
        (10, 2, "auto", False),
    ],
)
def test_the_model_is_left_out_by_size_and_by_choice(steps, workers, model, left_out):
    assert bool(learned.why_not(steps, workers, model)) == left_out
