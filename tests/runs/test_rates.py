"""Learning rates in epochs or updates become one rate per update: warm-up, decays and dependence on N, by formula."""

import math

import jax
import numpy as np
import pytest
from lib.compiling import compilations

from sgdlab import rules
from sgdlab.runs import rates as learning_rates

BASE = {
    "warmup_epochs": 0.0,
    "decay": "constant",
    "unit": "epochs",
    "steps": (2.0, 3.0),
    "factor": 0.1,
    "period": 2.0,
    "last": 1.0,
    "length": None,
    "final": 0.0,
}
LENGTHS = ("period", "last", "length")
EPOCHS, PER_EPOCH = 4, 5
EPOCH = np.arange(EPOCHS * PER_EPOCH) / PER_EPOCH


def rates(num_workers=1, **changes):
    schedule = learning_rates.RateSchedule(**BASE | changes)
    return learning_rates.rates(schedule, peak=0.5, num_workers=num_workers, epochs=EPOCHS, updates_per_epoch=PER_EPOCH)


def in_updates(**changes):
    """The same entries, in updates."""
    entries = BASE | changes
    lengths = {name: entries[name] * PER_EPOCH for name in LENGTHS if entries[name] is not None}
    return entries | lengths | {"unit": "updates", "steps": tuple(PER_EPOCH * step for step in entries["steps"])}


REACHED = (EPOCH >= 2.0).astype(int) + (EPOCH >= 3.0)  # of `steps`


@pytest.mark.parametrize("changed", [lambda **changes: changes, in_updates], ids=["epochs", "updates"])
@pytest.mark.parametrize(
    ("decay", "expected", "shorter"),
    [
        ("constant", np.ones_like(EPOCH), np.ones_like(EPOCH)),
        ("linear", 1 - EPOCH / EPOCHS, 1 - 0.8 * np.minimum(EPOCH / 2.5, 1)),
        ("hold_linear", np.minimum(1, EPOCHS - EPOCH), 1 - 0.8 * np.clip(EPOCH - 1.5, 0, 1)),
        (
            "cosine",
            0.5 * (1 + np.cos(math.pi * EPOCH / EPOCHS)),
            0.2 + 0.4 * (1 + np.cos(math.pi * np.minimum(EPOCH / 2.5, 1))),
        ),
        ("exponential", 0.1 ** (EPOCH / 2.0), np.maximum(0.1 ** (EPOCH / 2.0), 0.2)),
        ("step", 0.1**REACHED, np.maximum(0.1**REACHED, 0.2)),
    ],
)
def test_decays(decay, expected, shorter, changed):
    """Over the whole run to 0; and to 0.2 of the peak in 2.5 epochs, where the decay has a length of its own."""
    np.testing.assert_allclose(rates(**changed(decay=decay)), 0.5 * expected, rtol=1e-6, atol=1e-9)
    given = rates(**changed(decay=decay, length=2.5, final=0.2))
    np.testing.assert_allclose(given, 0.5 * shorter, rtol=1e-6, atol=1e-9)


def of_a_paper(num_updates, **changes):
    """The rates of so many updates with the peak 1, where an epoch has a number of updates that is not whole."""
    schedule, per_epoch = learning_rates.RateSchedule(unit="updates", **changes), 5004.6
    epochs = num_updates / per_epoch
    found = learning_rates.rates(schedule, peak=1.0, num_workers=1, epochs=epochs, updates_per_epoch=per_epoch)
    assert abs(found.size - num_updates) <= 1
    return found


@pytest.mark.parametrize("x64", [True, False])
def test_rates_of_the_papers(x64):
    """In single precision too, in which updates are counted exactly."""
    jax.config.update("jax_enable_x64", x64)
    updates = np.array([0, 1, 99_999, 149_999, 150_000, 199_999, 200_000, 299_999, 300_000, 319_999])
    # Barkai et al., C.4, Transformer-XL: cosine from the peak to 0 in 200,000 steps.
    cosine = of_a_paper(320_000, decay="cosine", length=200_000.0)[updates]
    expected = (1 + np.cos(np.pi * np.minimum(updates, 200_000) / 200_000)) / 2
    np.testing.assert_allclose(cosine, expected, atol=1e-6)
    # Jin et al., section 4: annealed twice, at exactly 150,000 and 300,000 iterations.
    steps = of_a_paper(320_000, decay="step", steps=(150_000.0, 300_000.0), factor=0.1)[updates]
    np.testing.assert_allclose(steps, [1, 1, 1, 1, 0.1, 0.1, 0.1, 0.1, 0.01, 0.01], rtol=1e-6)
    # Chen et al., A.4, PixelCNN: from 1e-4 to 3e-6 after 200,000 iterations.
    slow = of_a_paper(320_000, decay="exponential", period=200_000.0, factor=0.03, final=0.03)[updates]
    np.testing.assert_allclose(slow, 0.03 ** (np.minimum(updates, 200_000) / 200_000), rtol=1e-5)


@pytest.mark.parametrize("unit", ["epochs", "updates"])
def test_a_decay_multiplies_the_warm_up_which_is_in_epochs(unit):
    changes = {"decay": "linear"} if unit == "epochs" else in_updates(decay="linear")
    given = rates(**changes | {"warmup_epochs": 2.0, "num_workers": 4})
    np.testing.assert_allclose(given, rates(num_workers=4, warmup_epochs=2.0) * (1 - EPOCH / EPOCHS), rtol=1e-6)


def test_warm_up_rises_from_the_nth_part_to_the_whole_rate():
    values = rates(num_workers=4, warmup_epochs=2.0)
    np.testing.assert_allclose(values[0], 0.5 / 4)
    np.testing.assert_allclose(np.diff(values[: 2 * PER_EPOCH + 1]), 0.5 * 0.75 / (2 * PER_EPOCH))
    np.testing.assert_allclose(values[2 * PER_EPOCH :], 0.5)
    np.testing.assert_allclose(rates(num_workers=1, warmup_epochs=2.0), 0.5)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("warmup_epochs", -1.0), ("factor", 0.0), ("period", 0.0), ("last", 0.0), ("length", 0.0), ("final", -0.1),
        ("final", 1.5), ("unit", "seconds"), ("steps", (3.0, 1.0)), ("of", "run"), ("decay", "sudden"),
    ],
)  # fmt: skip
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


def test_runs_of_other_lengths_compile_nothing():
    """Steps in updates are exact: of 37 updates each has the rate that it has among 40."""
    falling = learning_rates.RateSchedule(decay="cosine", unit="updates", length=50.0)
    make = lambda updates: learning_rates.rates(falling, peak=1.0, num_workers=1, epochs=1.0, updates_per_epoch=updates)
    whole = make(40)
    with compilations() as seen:
        np.testing.assert_array_equal(make(37), whole[:37])
    assert seen == []
