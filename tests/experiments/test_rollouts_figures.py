"""Claims on stale rollouts: what they are judged by, on made-up numbers, and the law that a pilot's numbers give."""

import numpy as np
import pandas as pd
import pytest

from experiments.harness import command
from experiments.rollouts import learning, marin, policies, rules, six_runs, speed
from experiments.rollouts.arithmetic import addition

ALL = [policies.policies, marin.marin, rules.rules, six_runs.six_runs, speed.speed]


@pytest.mark.parametrize("made", ALL, ids=lambda made: made.name)
def test_a_figure_is_of_rows_of_its_source(made):
    assert set(made.numbers) <= set(made.paper.rows)


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


def test_the_closed_form_of_each_of_six_runs_by_hand():
    fewer = [120 / 240 * 1.42 + 0.63, 240 / 120 * 1.43 + 0.92, 240 / 120 * 1.42 + 0.86, 1.42 + 0.67]  # rho < 1
    more = [1.44 / 1.07 + 4.07 / 2.14, 1.45 / 1.14 + 2.14 / 2.28]
    expected = [*fewer[:2], more[0], *fewer[2:], more[1]]
    assert [six_runs.closed(run) for run in six_runs.RUNS] == pytest.approx(expected)


def test_a_run_has_the_staleness_of_its_closed_form():
    found = six_runs.simulated(run=0, steps=90, seed=1)["staleness"]
    assert found == pytest.approx(six_runs.closed(six_runs.RUNS[0]), rel=0.05)


@pytest.mark.parametrize(
    ("times", "marks"),
    [
        ({}, ["holds", "not in our regime", "holds", "holds"]),
        ({2: 1.2}, ["fails", "not in our regime", "fails", "holds"]),
        ({1: 1.2}, ["holds", "not in our regime", "fails", "holds"]),
        ({2: 0.6}, ["fails", "not in our regime", "fails", "fails"]),
    ],
)
def test_claims_on_six_runs_fail_where_their_numbers_are_others(times, marks):
    noise = 1 + 1e-4 * np.random.default_rng(0).standard_normal((6, 4))
    found = [times.get(run, 1.0) * six_runs.closed(of) * noise[run] for run, of in enumerate(six_runs.RUNS)]
    made = six_runs.claims(found)
    assert [claim.verdict for claim in made] == marks
    (premise,) = made[1].premises
    assert "run 2: 3.86, run 4: 3.34, run 5: 1.95" in premise.says
    assert "run 2: 3.78, run 4: 3.70, run 5: 2.09" in premise.ours


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


def noisy(value, seed):
    return (value + 1e-3 * np.random.default_rng(seed).standard_normal(8)).tolist()


def of_rules(**changed):
    """Verdicts of the claims on rules, on numbers of eight seeds; `changed` by policy, rule and number."""
    longest = {"discard": 0.1, "discard, again at the back": 0.8}
    cells = {}
    for task in learning.TASKS:
        for place, rule in enumerate(("none", "ppo", "decoupled", "truncated_is")):
            cells[task, rule] = {}
            for policy in rules.POLICIES:
                own = {
                    "reward": 0.8,
                    "longest": longest.get(policy, 0.9),
                    "over the run": 0.5 if rule == "ppo" else 0.6,
                }
                own |= changed.get(f"{policy} {rule}".replace(" ", "_"), {}) if task == "addition" else {}
                cells[task, rule][policy] = {name: noisy(value, place + len(policy)) for name, value in own.items()}
    return [claim.verdict for claim in rules.claims(cells)]


@pytest.mark.parametrize(
    ("changed", "place"),
    [
        ({}, None),
        ({"admission_4_none": {"longest": 0.05}}, 0),
        ({"discard,_again_at_the_back_ppo": {"longest": 0.05}}, 1),
        ({"admission_16_decoupled": {"reward": 0.7}}, 2),
        ({"admission_16_ppo": {"over the run": 0.7}}, 3),
    ],
)
def test_claims_on_rules_fail_where_their_numbers_are_others(changed, place):
    assert of_rules(**changed) == ["fails" if index == place else "holds" for index in range(4)]


def of_speed(**changed):
    """Verdicts of the claims on the speed of learning; the trainer is busy from eta 8 on."""
    cells = {}
    for seed, rule in enumerate(speed.RULES):
        cells[rule] = {}
        for eta, seconds in {0.0: 500.0, 8.0: 50.0, 32.0: 80.0 if rule == "none" else 50.0}.items():
            own = {"to target": seconds, "reward": 0.6 if (rule, eta) == ("none", 32.0) else 0.8}
            own |= changed.get(f"{rule}_{eta:g}", {})
            cells[rule][eta] = {name: noisy(value, seed + int(eta)) for name, value in own.items()}
    return [claim.verdict for claim in speed.claims(cells, 5)]


@pytest.mark.parametrize(
    ("changed", "places"),
    [
        ({}, []),
        ({"truncated_is_0": {"to target": 40.0}}, [0]),
        ({"none_32": {"to target": 49.0, "reward": 0.6}}, [1]),
        ({"truncated_is_32": {"to target": 30.0}}, [2]),
        ({"truncated_is_32": {"reward": 0.7}}, [3]),
        ({"none_32": {"reward": 0.9}}, [3]),
    ],
)
def test_claims_on_speed_fail_where_their_numbers_are_others(changed, places):
    assert of_speed(**changed) == ["fails" if index in places else "holds" for index in range(4)]


@pytest.mark.parametrize(
    ("given", "message"),
    [("none", "rules=['none'] must hold decoupled, ppo"), ("foo", "rules=foo must be one of none")],
)
def test_rules_that_the_claims_need_are_asked_for_before_anything_is_trained(given, message, tmp_path, capsys):
    flags = ["rollouts.rules", f"--rules={given}", "--scale=smoke", f"--workdir={tmp_path}"]
    assert command.answer(flags) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line


def test_sums_of_digits_are_asked():
    task = addition()
    assert task.answers[5 * 4 + 3].tolist() == [1, 2]  # 4 + 3 = 12 in base 5
    assert task.classes[0] == 0
    assert task.classes[24] == 4
    assert np.bincount(task.classes).tolist() == [5] * 5
    every = task.all_answers()
    probabilities = np.exp([np.asarray(task.log_probs(task.params, np.int32(7), answer)).sum() for answer in every])
    assert probabilities.sum() == pytest.approx(1.0)
    assert float(task.rewards(task.params).mean()) == pytest.approx(1 / 25, abs=0.03)
