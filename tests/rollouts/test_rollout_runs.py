"""`simulate` against a naive simulation in exact fractions, closed forms to the bit, and conservation in tokens."""

import dataclasses
import functools
import itertools

import numpy as np
import pytest
from lib.naive_rollouts import Naive

from sgdlab import rollouts
from sgdlab.rollouts.schedule import ABORTED, FATES, RUNNING

POLICIES = {
    "synchronous": {},
    "one_step_off": {},
    "admission": {"eta": 1.5},
    "budget": {"theta": 1.5},
    "in_order": {"eta": 2.0},
    "version_fifo": {"eta": 2.0},
    "window": {"lag": 1},
    "queue_drop": {"capacity": 1},
    "unbounded": {},
}
VARIANTS = [
    *POLICIES.items(),
    ("window", {"lag": 1, "requeue": "front"}),
    ("window", {"lag": 0, "requeue": "back", "gate": 1.0}),
    ("window", {"lag": 2, "freshest": True}),
    ("window", {"lag": 1, "stale": "abort"}),
    ("window", {"lag": 0, "stale": "abort", "requeue": "front", "gate": 1.0}),
    ("window", {"lag": 1, "stale": "withhold"}),
    ("window", {"lag": 0, "stale": "withhold", "requeue": "back", "freshest": True}),
    ("queue_drop", {"capacity": 2, "requeue": "back"}),
]
MACHINES = list(itertools.product(rollouts.engines.HOLDS, rollouts.engines.REFRESHES))


def halves(busy):
    """A speed that falls with load, in numbers that floats hold exactly."""
    return 64.0 / 2 ** ((busy - 1) // 2)


def made(name, work, system, steps, **given):
    return rollouts.simulate(work, system, functools.partial(getattr(rollouts, name), **given), num_steps=steps)


def compared(schedule, naive):
    """All that is known of the rollouts, groups and steps of both."""
    ours = {
        name: getattr(schedule, name).tolist()
        for name in ("group", "engine", "read", "started", "withheld", "prompt", "attempt")
    }
    ours |= {name: getattr(schedule, name).tolist() for name in ("step", "applied", "began", "ended")}
    ours["fate"] = [FATES[fate] for fate in schedule.fate]
    ours["finished"] = [None if np.isnan(second) else second for second in schedule.finished]
    spans = (schedule.span_rollout, schedule.span_version, schedule.span_tokens)
    ours["spans"] = list(zip(*(column.tolist() for column in spans), strict=True))
    steps = schedule.num_steps
    for group in naive.groups:  # a step that the end has cut off
        if group["step"] >= steps:
            group.update(fate="queued", step=-1)
    for rollout in naive.rollouts:
        rollout["withheld"] &= naive.groups[rollout["group"]]["fate"] == "trained"
    theirs = {
        name: [row[name] for row in naive.rollouts]
        for name in ("group", "engine", "read", "started", "finished", "withheld")
    }
    theirs |= {name: [row[name] for row in naive.groups] for name in ("prompt", "attempt", "fate", "step")}
    theirs |= {"applied": naive.applied, "began": naive.steps_began[:steps], "ended": naive.steps_ended[:steps]}
    return ours, theirs | {"spans": naive.spans()}


@pytest.mark.parametrize(("hold", "refresh"), MACHINES)
@pytest.mark.parametrize(("name", "given"), VARIANTS, ids=[f"{name} {given}" for name, given in VARIANTS])
def test_a_naive_simulation_agrees_exactly(name, given, hold, refresh):
    work = rollouts.lognormal(prompts=23, group=3, attempts=2, mean=64.0, seed=3)
    for speed, engines, slots, transfer in ((64.0, 2, 5, 0.25), (halves, 3, 4, 0.75), (32.0, 1, 13, 0.0)):
        system = rollouts.System(
            engines, slots, speed, batch=2, train=0.5, train_token=2**-10, transfer=transfer, hold=hold, refresh=refresh
        )
        ours, theirs = compared(
            made(name, work, system, 14, **given), Naive(work.tokens, system, name, 14, given=given).go()
        )
        assert ours == theirs


@pytest.mark.parametrize(("hold", "refresh"), MACHINES)
@pytest.mark.parametrize("train", [0.0, 1.0])
def test_it_does_where_all_ends_at_the_same_instants(train, hold, refresh):
    work = rollouts.Workload(np.tile([[[64, 64], [128, 64], [64, 192]]], (2, 4, 1)))
    system = rollouts.System(2, 3, 64.0, batch=2, train=train, transfer=train, hold=hold, refresh=refresh)
    for name, given in VARIANTS:
        ours, theirs = compared(
            made(name, work, system, 9, **given), Naive(work.tokens, system, name, 9, given=given).go()
        )
        assert ours == theirs


@pytest.mark.parametrize(("hold", "refresh"), MACHINES)
@pytest.mark.parametrize(("name", "given"), VARIANTS, ids=[f"{name} {given}" for name, given in VARIANTS])
def test_tokens_are_conserved(name, given, hold, refresh):
    # What engines decode is what rollouts have made, but for less than a token each of those that did not end.
    work = rollouts.lognormal(prompts=500, group=4, seed=1)
    system = rollouts.System(3, 16, 64.0, batch=4, train=5.0, transfer=2.0, hold=hold, refresh=refresh)
    schedule = made(name, work, system, 60, **given)
    ledger = schedule.ledger()
    total = sum(ledger.values())
    assert total == schedule.tokens.sum() == schedule.span_tokens.sum()
    lengths = work.tokens[(schedule.attempt % work.attempts)[schedule.group], schedule.prompt[schedule.group]]
    place = np.arange(schedule.group.size) - np.searchsorted(schedule.group, schedule.group)
    asked = lengths[np.arange(place.size), place]
    cut = np.isnan(schedule.finished) | ((schedule.fates() == ABORTED) & (schedule.tokens < asked))
    assert (schedule.tokens[~cut] == asked[~cut]).all()
    assert (schedule.tokens[cut] < asked[cut]).all()
    assert 0 <= schedule.busy.sum() * 64 - total <= cut.sum()
    assert (np.isin(schedule.fate, [RUNNING, ABORTED]) == np.isnan(schedule.ready)).all()
    assert (ledger["aborted"] > 0) == (given.get("stale") == "abort")
    assert (ledger["withheld"] > 0) == schedule.withheld.any() == (given.get("stale") == "withhold")
    assert (np.bincount(schedule.step[schedule.step >= 0]) == 4).all()


@pytest.mark.parametrize("speed", [64.0, 128.0])
def test_synchronous_steps_take_their_longest_rollout(speed):
    work = rollouts.lognormal(prompts=400, group=4, sigma=1.2, seed=1)
    system = rollouts.System(8, 8, speed, batch=8, train=5.5, train_token=2**-12, transfer=1.25)
    schedule = made("synchronous", work, system, 50)
    batches = work.tokens[0].reshape(50, 32)
    seconds = batches.max(axis=1) / speed + 5.5 + 2**-12 * batches.sum(axis=1) + 1.25
    assert schedule.applied.tolist() == np.cumsum(seconds).tolist()  # to the bit: all are multiples of 2**-12
    assert schedule.staleness().max() == 0


def test_engines_of_one_slot_are_one_engine_but_for_names():
    work = rollouts.lognormal(prompts=600, group=4, seed=7)
    one, many = rollouts.System(1, 48, 64.0, batch=4), rollouts.System(48, 1, 64.0, batch=4)
    for name, given in VARIANTS:
        first, second = (made(name, work, system, 40, **given) for system in (one, many))
        for column in ("started", "finished", "read", "step", "applied", "span_version", "span_tokens"):
            np.testing.assert_array_equal(getattr(first, column), getattr(second, column))


def test_a_constant_speed_is_a_number():
    work, system = rollouts.lognormal(prompts=300, group=4, seed=2), rollouts.System(3, 8, 100.0, batch=4)
    first = made("window", work, system, 30)
    second = made("window", work, dataclasses.replace(system, speed=lambda busy: 100.0), 30)
    assert first.finished.tobytes() == second.finished.tobytes()
    slower = made("window", work, dataclasses.replace(system, speed=rollouts.LoadedSpeed(100.0, 8.0)), 30)
    assert slower.applied[-1] > 1.5 * first.applied[-1]


def test_two_runs_are_equal():
    for name, given in VARIANTS:
        first, second = (
            made(name, rollouts.lognormal(prompts=200, group=4, seed=4), rollouts.System(2, 16, batch=4), 40, **given)
            for _ in range(2)
        )
        for field in dataclasses.fields(first):
            assert getattr(first, field.name).tobytes() == getattr(second, field.name).tobytes()


@pytest.mark.parametrize("requeue", ["front", "back"])
def test_no_two_groups_of_a_prompt_are_the_same_attempt(requeue):
    # 23 prompts come again after 23 groups, and those that were discarded are tried again besides.
    work = rollouts.lognormal(prompts=23, group=3, attempts=40, seed=3)
    run = made("window", work, rollouts.System(2, 16, batch=2), 40, lag=0, requeue=requeue)
    assert run.wasted()["stale"] > 0
    assert run.attempt.max() > 2
    for prompt in range(23):
        assert run.attempt[run.prompt == prompt].tolist() == list(range((run.prompt == prompt).sum()))


def test_more_prompts_do_not_change_those_that_are_there():
    few, many = (rollouts.lognormal(prompts=count, group=2, loop=0.1, cap=4000) for count in (50, 80))
    np.testing.assert_array_equal(many.tokens[:, :50], few.tokens)
    assert 0.02 < (many.tokens == 4000).mean() < 0.3


def test_the_prompts_share_of_the_variance_is_its_own():
    work = rollouts.lognormal(prompts=20_000, group=4, sigma=0.8, share=0.3, attempts=2)
    logs = np.log(work.tokens)
    np.testing.assert_allclose(logs.var(), 0.64, rtol=0.02)
    between = np.mean((logs[0] - logs[0].mean()) * (logs[1] - logs[1].mean()))
    np.testing.assert_allclose(between / logs.var(), 0.3, atol=0.02)
    np.testing.assert_allclose(work.mean(), 1000, rtol=0.02)
    assert (np.diff([work.tokens[:, work.classes() == tenth].mean() for tenth in range(10)]) > 0).all()


class NoSlots(rollouts.StalenessPolicy):
    def admit(self, run):
        return run.begun < 3


class AbortsTheFirst(rollouts.StalenessPolicy):
    def abort(self, run):
        return 0


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: rollouts.window(batch=4, stale="drop"), "stale='drop' must be one of discard, abort, withhold"),
        (
            lambda: rollouts.simulate(
                rollouts.lognormal(prompts=9, group=2), rollouts.System(batch=1), AbortsTheFirst, num_steps=3
            ),
            "the policy aborts group 0, which must be one that is decoded",
        ),
        (lambda: rollouts.System(engines=0), "engines=0 must be a whole number of at least 1"),
        (lambda: rollouts.System(hold="all"), "hold='all' must be one of none, trainer, engines, both"),
        (lambda: rollouts.System(speed=0.0), "speed=0.0 must be a finite number above 0"),
        (lambda: rollouts.admission(batch=4, eta=-1.0), "eta=-1.0 must be a finite number at least 0"),
        (lambda: rollouts.window(batch=4, requeue="top"), "requeue='top' must be one of never, front, back"),
        (
            lambda: rollouts.lognormal(prompts=3, share=1.5),
            "share=1.5 must be a finite number at least 0 and at most 1",
        ),
        (lambda: rollouts.lognormal(prompts=3, loop=0.1), "loop=0.1 must be 0 without a cap"),
        (lambda: rollouts.Workload(np.zeros((1, 2, 2))), "tokens=0 in row 0 must be at least 1"),
        (lambda: rollouts.Workload(np.ones(3)), r"tokens of shape \(3,\) must have shape \[A, P, G\]"),
        (
            lambda: rollouts.simulate(
                rollouts.lognormal(prompts=9, group=2), rollouts.System(batch=4), NoSlots, num_steps=3
            ),
            "all wait for ever from .* s on, after 0 of 3 steps",
        ),
    ],
)
def test_mistakes_are_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()
