"""Runs make room for more workers than there are; formulas with the number of workers have the true one."""

import jax.numpy as jnp
import numpy as np
import pytest

from configs import digits
from sgdlab.runs.plan import make_plan


@pytest.mark.parametrize("room", [6, 8])
def test_delay_adaptive_scales_by_the_true_number(room):
    config = digits.get_config()
    config.method, config.epochs, config.cluster.num_workers = "delay_adaptive", 0.5, 6
    params = jnp.ones(1)
    rule = make_plan(config).rule(1.0, room)
    step, _ = rule.update(params, rule.init(params), params, delay=12.0)
    np.testing.assert_allclose(step, [-6 / 12])
