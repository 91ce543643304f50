"""Claims on stale rollouts: what they are judged by, on made-up numbers, and the law that a pilot's numbers give."""

import numpy as np
import pandas as pd
import pytest

from experiments.rollouts import marin, policies

ALL = [policies.policies, marin.marin]


@pytest.mark.parametrize("made", ALL, ids=lambda made: made.name)
def test_a_figure_is_of_rows_of_its_source(made):
    assert set(made.numbers) == set(made.paper.rows)


def test_the_law_of_the_lengths_has_the_small_pilots_numbers():
    center, sigma = marin.law()
    lengths = np.minimum(np.exp(center + sigma * np.random.default_rng(0).standard_normal(2_000_000)), 2048)
    assert lengths.mean() == pytest.approx(981.2, rel=2e-3)
    assert (lengths == 2048).mean() == pytest.approx(0.146, abs=1e-3)


def test_a_pilot_waits_longer_for_slower_slots():
    found = [marin.pilot(2048, speed, "both", 0.5, 0.3, 1) for speed in (30.0, 60.0, 120.0)]
    assert np.all(np.diff([pilot["waiting"] for pilot in found]) < 0)
    for pilot in found:
        assert pilot["waiting"] == pytest.approx(1 - (marin.TRAIN + marin.TRANSFER) * marin.STEPS / pilot["seconds"])


def verdicts(**changed):
    """Verdicts of the claims on policies, on numbers of three seeds near those of runs."""
    usual = {
        "staleness": 2.0, "whole_staleness": 2.0, "largest_staleness": 25.0, "seconds_per_step": 10.0,
        "trainer_busy": 0.83, "smallest_eta": 1,
        "longest_tenth": 1.0, "trained_over_offered": 1.0, "growth": 1.0,
    }  # fmt: skip
    own = {
        ("in_order", 2.0): {"largest_staleness": 2.0, "seconds_per_step": 30.0},
        ("discard", 1.0): {"longest_tenth": 0.02, "trained_over_offered": 0.44},
        ("discard, again at the back", 1.0): {"longest_tenth": 0.95, "trained_over_offered": 0.8},
        ("discard, own length", 1.0): {"longest_tenth": 0.001},
        ("discard, again first, own length", 1.0): {"growth": 1.3},
    }
    found = {}
    for key in [("admission", 2.0), *own]:
        numbers = usual | own.get(key, {}) | changed.get(key[0].replace(" ", "_").replace(",", ""), {})
        noise = 1 + 1e-4 * np.random.default_rng(len(key[0])).standard_normal(3)
        found[key] = pd.DataFrame(
            {name: value * (1 - 1e-2 * (name == "whole_staleness")) * noise for name, value in numbers.items()}
        )
    return [claim.verdict for claim in policies.claims(found, [2.0])]


def test_all_claims_hold_on_the_usual_numbers():
    assert verdicts() == ["holds"] * 8


@pytest.mark.parametrize(
    ("changed", "place"),
    [
        ({"admission": {"whole_staleness": 2.5}}, 0),
        ({"admission": {"largest_staleness": 1.5}}, 0),
        ({"in_order": {"seconds_per_step": 9.0}}, 1),
        ({"admission": {"trainer_busy": 0.7}}, 2),
        ({"discard": {"longest_tenth": 0.8}}, 3),
        ({"discard_own_length": {"longest_tenth": 0.2}}, 4),
        ({"admission": {"longest_tenth": 0.7}}, 5),
        ({"discard_again_at_the_back": {"trained_over_offered": 1.0}}, 6),
        ({"discard_again_first_own_length": {"growth": 0.9}}, 7),
    ],
)
def test_each_claim_fails_where_its_numbers_are_others(changed, place):
    assert verdicts(**changed) == ["fails" if index == place else "holds" for index in range(8)]
