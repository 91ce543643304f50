"""Length bias of prompts and of answers: by hand, and of discarding the stale; splits and recommendations."""

import functools

import numpy as np
import pytest
from test_rollout_runs import made

from sgdlab import rollouts
from sgdlab.rollouts import compare, table
from sgdlab.rollouts.bias import length_bias
from sgdlab.rollouts.predict import largest_rate

WORK = rollouts.lognormal(prompts=20_000, group=4, attempts=8, seed=2)
SYSTEM = rollouts.System(4, 64, batch=32, train=5.0, transfer=0.0)


def test_shares_by_hand():
    # Ten prompts, the longest last but one; each step takes two groups of one rollout.
    tokens = np.array([1, 2, 3, 4, 5, 6, 7, 8, 200, 9]).reshape(1, 10, 1)
    work = rollouts.Workload(tokens)
    system = rollouts.System(1, 10, 1.0, batch=2, train=0.5, transfer=0.0)
    run = rollouts.simulate(work, system, rollouts.window, num_steps=9)
    bias = length_bias(run, work)
    prompts = run.prompt[run.step >= 0]
    expected = [np.mean(prompts == prompt) for prompt in [0, 1, 2, 3, 4, 5, 6, 7, 9, 8]]
    assert bias.shares.tolist() == expected
    assert bias.offered == tokens.mean()
    assert bias.trained == tokens[0, prompts, 0].mean()
    late = length_bias(run, work, warmup=5)
    assert late.shares[0] == np.mean(run.prompt[run.step >= 5] == 0) != bias.shares[0]
    assert late.trained == tokens[0, run.prompt[run.step >= 5], 0].mean()
    figures = bias.figures()
    assert figures["longest_tenth"] == 0 == figures["least_tenth"]
    assert figures["effective_tenths"] == pytest.approx(1 / np.square(expected).sum())
    with pytest.raises(ValueError, match="warmup=9 must be a whole number from 0 to 8"):
        length_bias(run, work, warmup=9)


def test_the_tenth_of_a_prompt_is_by_all_its_rollouts():
    equal = rollouts.Workload(np.full((1, 2000, 4), 7)).classes()
    assert np.bincount(equal).tolist() == [200] * 10
    assert np.bincount(equal[:500], minlength=10).min() > 30
    tokens = np.full((2, 10, 2), 7)
    tokens[1, :, 1] = [30, 10, 20, 60, 50, 40, 100, 70, 90, 80]
    assert rollouts.Workload(tokens).classes().tolist() == [2, 0, 1, 5, 4, 3, 9, 6, 8, 7]


def test_discarding_starves_the_longest_prompts_and_requeueing_the_longest_answers():
    found = {
        name: length_bias(made(policy, WORK, SYSTEM, 120, **given), WORK, warmup=12).figures()
        for name, policy, given in (
            ("admission", "admission", {"eta": 2.0}),
            ("discard", "window", {"lag": 1}),
            ("requeue", "window", {"lag": 1, "requeue": "back"}),
        )
    }
    # Of design's measurement: 1.00, 0.44 and 0.80 of the offered length; 1.02, 0.02 and 0.95 of the share.
    assert found["admission"]["trained_over_offered"] == pytest.approx(1.0, abs=0.05)
    assert found["admission"]["longest_tenth"] == pytest.approx(1.0, abs=0.12)
    assert found["discard"]["trained_over_offered"] == pytest.approx(0.44, abs=0.04)
    assert found["discard"]["longest_tenth"] < 0.05
    assert found["requeue"]["trained_over_offered"] == pytest.approx(0.8, abs=0.06)
    assert found["requeue"]["longest_tenth"] > 0.75


def test_intervals_are_two_deviations_over_workloads():
    works = [rollouts.lognormal(prompts=500, group=2, seed=seed) for seed in range(3)]
    one = compare.tried(works, SYSTEM, compare.Candidate("admission", {"eta": 1.0}), steps=12, warmup=2)
    each = [
        rollouts.simulate(work, SYSTEM, functools.partial(rollouts.admission, eta=1.0), num_steps=12).figures(2)
        for work in works
    ]
    speeds = [figures["goodput"] for figures in each]
    value, low, high = one.interval("goodput")
    assert value == np.mean(speeds)
    assert (value - low, high - value) == pytest.approx(2 * (2 * np.std(speeds, ddof=1),))
    assert one.as_dict()["closed_form"] == {"relation": "<=", "staleness": 1.0}
    assert one.as_dict()["largest_rate"] == pytest.approx(3 / sum(figures["largest_staleness"] for figures in each))


def test_the_rate_that_staleness_allows_is_a_constant_over_the_largest():
    # Of two policies, one four times as stale as the other: R / (4 G) and R / (16 G).
    drift, update = 0.3, 5.0
    by_hand = [drift / (4 * update), drift / (16 * update)]
    assert [largest_rate(staleness) * drift / update for staleness in (4, 16)] == pytest.approx(by_hand)
    work = rollouts.lognormal(prompts=500, group=2)
    names = [("synchronous", {}), ("one_step_off", {}), ("admission", {"eta": 3.0})]
    found = [compare.tried([work], SYSTEM, compare.Candidate(*name), steps=12, warmup=2) for name in names]
    most = found[2].schedule.staleness(2).max()
    assert most > 3
    assert [one.as_dict()["largest_rate"] for one in found] == [np.inf, 1.0, 1 / most]
    said = table.table(found, []).notes[-1]
    assert said.endswith(f"c / 1 under `one_step_off`, c / {most} under `admission, eta 3`.")
    assert table.table(found[1:2], []).notes[-1].endswith("not known (arXiv 2607.01083): c / 1 under `one_step_off`.")
    assert not table.table(found[:1], []).notes


def test_splits_share_the_gpus():
    system = rollouts.System(engines=24, train=4.0, train_token=1e-5)
    found = compare.splits(system, 64)
    assert [one.engines for one in found] == [8, 16, 24, 32, 40, 48, 56]
    assert [one.train * (64 - one.engines) for one in found] == pytest.approx([160.0] * 7)
    assert found[2].train_token == 1e-5
    with pytest.raises(ValueError, match="gpus=24 must be more than the 24 engines"):
        compare.splits(system, 24)


def test_the_freshest_of_those_that_are_nearly_fastest_is_recommended():
    def tried(goodput, staleness, longest=1.0):
        figures = {"goodput": goodput, "staleness": staleness, "longest_tenth": longest}
        return compare.Tried(compare.Candidate("unbounded"), SYSTEM, figures, {}, np.ones(10), ("", 0.0), None)

    found = [tried(100, 3.0), tried(99.5, 2.0), tried(90, 0.5), tried(120, 0.1, longest=0.4), tried(200, 9.0)]
    assert compare.recommended(found, 4.0) is found[1]
    assert compare.recommended(found, 1.985) is found[1]  # a bound of the whole run, measured after its beginning
    assert compare.recommended(found, 1.0) is found[2]
    assert compare.recommended(found, 10.0) is found[4]
    assert compare.recommended(found, 0.2) is None
