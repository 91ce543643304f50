"""The entry `micro_batches` of a configuration."""

import jax
import numpy as np
import pytest
from lib import tiny

from sgdlab.errors import UsageError
from sgdlab.runs import resolve
from sgdlab.runs.plan import make_plan
from sgdlab.runs.train import train


def test_one_has_no_entry():
    config = tiny.config()
    assert config.micro_batches == 1
    assert "micro_batches" not in resolve(config).identity
    assert resolve(tiny.config(micro_batches=4)).identity == resolve(config).identity | {"micro_batches": 4}


def test_a_batch_must_have_equal_parts():
    resolve(tiny.config(micro_batches=8))
    with pytest.raises(UsageError, match=r"--config\.batch_size=32 must be a multiple of micro_batches=5"):
        resolve(tiny.config(micro_batches=5))


def test_the_mean_of_the_parts_is_the_whole_gradient():
    # Clipped as a whole, and not part by part.
    options = {"optimizer__clip_norm": 0.5, "epochs": 0.3, "rate__warmup_epochs": 0.1}
    whole, parts = (train(make_plan(tiny.config(micro_batches=m, **options))) for m in (1, 4))
    for left, right in zip(jax.tree.leaves(whole.result.params), jax.tree.leaves(parts.result.params), strict=True):
        assert left.dtype == right.dtype
        np.testing.assert_allclose(left, right, rtol=0, atol=1e-5)
    assert parts.result.history.norm.max() <= 0.5 * (1 + 1e-6)
    np.testing.assert_allclose(parts.result.history.norm[0], 0.5, rtol=1e-5)  # it clips
