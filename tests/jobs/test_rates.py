"""Learning rates in epochs become one rate per update: warm-up, decays, and their dependence on N, by formula."""

import math

import numpy as np
import pytest
from ml_collections import ConfigDict

from sgdlab import rules
from sgdlab.jobs import rates as learning_rates

BASE = {
    "warmup_epochs": 0.0,
    "decay": "constant",
    "steps": (2.0, 3.0),
    "factor": 0.1,
    "period": 2.0,
    "last_epochs": 1.0,
}
EPOCHS, PER_EPOCH = 4, 5
EPOCH = np.arange(EPOCHS * PER_EPOCH) / PER_EPOCH


def rates(num_workers=1, **changes):
    config = ConfigDict(BASE | changes)
    return learning_rates.rates(config, peak=0.5, num_workers=num_workers, epochs=EPOCHS, updates_per_epoch=PER_EPOCH)


@pytest.mark.parametrize(
    ("decay", "expected"),
    [
        ("constant", np.ones_like(EPOCH)),
        ("linear", 1 - EPOCH / EPOCHS),
        ("hold_linear", np.minimum(1, EPOCHS - EPOCH)),
        ("cosine", 0.5 * (1 + np.cos(math.pi * EPOCH / EPOCHS))),
        ("exponential", 0.1 ** (EPOCH / 2.0)),
        ("step", 0.1 ** ((EPOCH >= 2.0).astype(int) + (EPOCH >= 3.0))),
    ],
)
def test_decays(decay, expected):
    np.testing.assert_allclose(rates(decay=decay), 0.5 * expected, rtol=1e-6, atol=1e-9)


def test_warm_up_rises_from_the_nth_part_to_the_whole_rate():
    values = rates(num_workers=4, warmup_epochs=2.0)
    np.testing.assert_allclose(values[0], 0.5 / 4)
    np.testing.assert_allclose(np.diff(values[: 2 * PER_EPOCH + 1]), 0.5 * 0.75 / (2 * PER_EPOCH))
    np.testing.assert_allclose(values[2 * PER_EPOCH :], 0.5)


def test_one_worker_has_no_warm_up():
    np.testing.assert_allclose(rates(num_workers=1, warmup_epochs=2.0), 0.5)


def test_unknown_decay_is_refused():
    with pytest.raises(ValueError, match="decay='sudden' must be one of"):
        rates(decay="sudden")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("warmup_epochs", -1.0),
        ("factor", 0.0),
        ("period", 0.0),
        ("last_epochs", 0.0),
        ("steps", (3.0, 1.0)),
        ("of", "run"),
    ],
)
def test_impossible_entries_are_refused_by_name(name, value):
    with pytest.raises(ValueError, match=f"^{name}="):
        rates(**{name: value})


def test_a_table_is_a_schedule_that_keeps_its_last_value():
    table = rules.tabulated([0.3, 0.2, 0.1])
    np.testing.assert_allclose([table(count) for count in (0, 1, 2, 3, 100)], [0.3, 0.2, 0.1, 0.1, 0.1])


@pytest.mark.parametrize("bad", [[], [0.1, math.nan], [[0.1]]])
def test_impossible_tables_are_refused(bad):
    with pytest.raises(ValueError, match="rates"):
        rules.tabulated(bad)
