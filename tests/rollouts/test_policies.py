"""Staleness policies: identities, Little's law to the integer, the bounds of admission; closed forms beside runs."""

import functools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_rollout_runs import MACHINES, VARIANTS, made

from sgdlab import rollouts
from sgdlab.rollouts.predict import mean_ceiling

WORK = rollouts.lognormal(prompts=4000, group=4, seed=1)
SYSTEM = rollouts.System(engines=4, slots=32, batch=8)
ROOMY = rollouts.System(engines=4, slots=256, batch=8)
"""Machines on which slots never bind."""


def same(first, second):
    return first.started.tobytes() == second.started.tobytes() and first.step.tobytes() == second.step.tobytes()


@pytest.mark.parametrize("bound", [0.0, 0.5, 1.0, 2.0, 4.0, 16.0])
@pytest.mark.parametrize("system", [SYSTEM, ROOMY])
def test_admission_is_the_budget(bound, system):
    assert same(made("admission", WORK, system, 120, eta=bound), made("budget", WORK, system, 120, theta=bound))


def batches(schedule):
    """The groups of each step."""
    return [frozenset(np.flatnonzero(schedule.step == step)) for step in range(schedule.num_steps)]


@pytest.mark.parametrize("eta", [0, 1, 2, 4])
def test_the_oldest_version_first_is_in_order_once_each_version_has_a_batch(eta):
    # eta + 1 batches begin on version 0, and the first steps take whichever of these are ready.
    fifo, order = (batches(made(name, WORK, ROOMY, 60, eta=float(eta))) for name in ("version_fifo", "in_order"))
    assert fifo[eta + 1 :] == order[eta + 1 :]
    assert frozenset().union(*fifo[: eta + 1]) == frozenset().union(*order[: eta + 1])
    assert (fifo == order) == (eta == 0)


def test_where_slots_bind_the_oldest_version_first_is_another_policy():
    small = rollouts.System(engines=1, slots=20, batch=8)
    fifo, order = (batches(made(name, WORK, small, 60, eta=2.0)) for name in ("version_fifo", "in_order"))
    assert fifo[20:] != order[20:]


def test_synchronous_and_one_step_off_are_in_order():
    for name, eta in (("synchronous", 0.0), ("one_step_off", 1.0)):
        first = made(name, WORK, SYSTEM, 40)
        assert same(first, made("in_order", WORK, SYSTEM, 40, eta=eta))
        assert first.staleness().max() == eta


def test_a_policy_without_its_bound_is_unbounded():
    free = made("unbounded", WORK, SYSTEM, 60)
    for stale in ("discard", "abort", "withhold"):
        assert same(free, made("window", WORK, SYSTEM, 60, lag=None, stale=stale))
    assert same(free, made("queue_drop", WORK, SYSTEM, 60, capacity=None))
    assert not same(free, made("window", WORK, SYSTEM, 60, lag=1))


@pytest.mark.parametrize(("hold", "refresh"), [machine for machine in MACHINES if machine[0] in ("trainer", "both")])
@pytest.mark.parametrize(("name", "own"), VARIANTS, ids=[f"{name} {own}" for name, own in VARIANTS])
def test_littles_law_holds_to_the_last_rollout(name, own, hold, refresh):
    system = rollouts.System(4, 32, batch=8, hold=hold, refresh=refresh)
    schedule = made(name, WORK, system, 80, **own)
    assert schedule.staleness().sum() == schedule.in_system().sum()


@pytest.mark.parametrize("hold", ["none", "engines"])
def test_without_a_trainer_that_waits_it_has_another_form(hold):
    system = rollouts.System(4, 32, batch=8, train=2.0, transfer=9.0, hold=hold)
    schedule = made("unbounded", WORK, system, 80)
    rows = schedule.trained()
    versions = np.arange(1, 81)[:, None]
    begun = schedule.started[rows] < schedule.applied[:, None]
    waiting = begun & (schedule.step[schedule.group[rows]] >= versions)
    assert schedule.staleness().sum() == waiting.sum() > schedule.in_system().sum()


LENGTHS = st.lists(st.integers(1, 400), min_size=4, max_size=60)


@given(
    lengths=LENGTHS,
    eta=st.sampled_from([0.0, 0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 7.0]),
    slots=st.integers(1, 40),
    train=st.floats(0.0, 20.0),
    hold=st.sampled_from(["trainer", "both"]),
    refresh=st.sampled_from(["in_flight", "drain"]),
    group=st.integers(1, 4),
)
@settings(max_examples=40, deadline=None)
def test_admission_bounds_the_mean_and_order_every_rollout(lengths, eta, slots, train, hold, refresh, group):
    prompts = len(lengths) // group
    work = rollouts.Workload(np.array(lengths[: prompts * group]).reshape(1, prompts, group))
    system = rollouts.System(2, slots, 50.0, batch=3, train=train, transfer=0.5, hold=hold, refresh=refresh)
    for name in ("admission", "version_fifo", "in_order"):
        schedule = made(name, work, system, 20, eta=eta)
        # Groups are whole: the gate lets the last one begin that has a place in part.
        assert schedule.staleness().mean() <= rollouts.predict(work, system).admitted(eta) == math.ceil(3 * eta) / 3
        assert schedule.staleness().sum() == schedule.in_system().sum()
        if name != "admission":
            assert schedule.staleness().max() <= math.ceil(eta)
            assert sum(schedule.wasted().values()) == 0


def test_the_mean_is_the_bound_where_the_gate_binds_and_single_rollouts_are_far_staler():
    schedule = made("admission", WORK, SYSTEM, 300, eta=2.0)
    assert 1.9 < schedule.staleness().mean() <= 2
    assert schedule.staleness().max() > 10
    assert made("in_order", WORK, SYSTEM, 100, eta=2.0).staleness().max() == 2


@pytest.mark.parametrize(("hold", "transfer"), [("trainer", 1.0), ("engines", 0.0)])
def test_the_least_seconds_of_a_step_by_hand(hold, transfer):
    work = rollouts.lognormal(prompts=10, group=4, mean=100.0, sigma=0.0)
    system = rollouts.System(batch=2, train=0.5, train_token=1e-3, transfer=1.0, hold=hold)
    assert rollouts.predict(work, system).step_seconds == pytest.approx(0.5 + 1e-3 * 2 * 4 * 100 + transfer)


@pytest.mark.covering
@pytest.mark.parametrize("group", [1, 8])
@pytest.mark.parametrize("batches_held", [1, 2, 4])
@pytest.mark.parametrize("rho", [0.6, 0.7, 1.5, 2.0])
def test_a_queue_that_drops_has_the_predicted_staleness(group, batches_held, rho):
    # Equal prompts of equal lengths would lock in step.
    work = rollouts.lognormal(prompts=12_000, group=group, sigma=0.8 if group > 1 else 0.3, share=0.3, seed=3)
    seconds = rho * 16 * group * work.mean() / (256 * 100.0)
    system = rollouts.System(1, 256, batch=16, train=seconds, transfer=0.0)
    found = rollouts.predict(work, system)
    schedule = made("queue_drop", work, system, 400, capacity=batches_held)
    assert found.rho == pytest.approx(rho)
    relation, total = found.staleness(rollouts.queue_drop(batch=16, capacity=batches_held))
    assert relation == "="
    assert total == found.pre_queue() + found.in_queue(batches_held, exact=False)
    assert schedule.staleness(warmup=60).mean() == pytest.approx(total, rel=0.05)
    ready = np.searchsorted(schedule.applied, schedule.ready[schedule.group], side="right")
    waited = (schedule.step[schedule.group] - ready)[schedule.trained(60)].mean()
    assert waited == pytest.approx(found.in_queue(batches_held), abs=0.2)  # ages are not quite uniform
    assert schedule.figures(60)["seconds_per_step"] == pytest.approx(found.seconds_per_step, rel=0.05)


def test_the_printed_formula_is_not_the_mean_of_what_is_rounded_up():
    found = rollouts.predict(WORK, rollouts.System(4, 64, batch=8, train=8.0))
    assert found.rho > 1
    assert found.in_queue(1) == 1.0
    assert found.in_queue(1, exact=False) == (1 + found.rho) / (2 * found.rho) < 1
    for low, high in ((0.0, 0.4), (0.3, 2.9), (1.0, 4.0), (0.75, 0.8)):
        draws = np.ceil(np.linspace(low, high, 200_001)[1:])
        assert mean_ceiling(low, high) == pytest.approx(draws.mean(), rel=1e-4)


@pytest.mark.parametrize("sigma", [0.3, 0.8])
def test_three_means_of_one_runs_staleness(sigma):
    work = rollouts.lognormal(prompts=40_000, group=1, sigma=sigma, seed=5)
    seconds = 0.7 * 64 * work.mean() / (256 * 100.0)
    system = rollouts.System(1, 256, batch=64, train=seconds, transfer=0.0)
    found, schedule = rollouts.predict(work, system), made("unbounded", work, system, 500)
    lengths = work.tokens[0].astype(float)
    # A token's rollout began C / B E L^2 / (E L)^2 versions ago; half of it by the version that made the token.
    by_token = 256 / 64 * (lengths**2).mean() / lengths.mean() ** 2
    expected = {
        "staleness": found.pre_queue() + 0.7,
        "token_staleness": by_token + 0.7,
        "token_staleness_in_flight": by_token / 2 + 0.7,
    }
    figures = schedule.figures(warmup=60)
    assert {name: figures[name] for name in expected} == pytest.approx(expected, rel=0.05)
    assert figures["token_staleness"] > 1.4 * figures["token_staleness_in_flight"]


@pytest.mark.parametrize(("sigma", "train", "group"), [(1.0, 5.0, 4), (0.5, 2.0, 8), (1.2, 20.0, 1)])
def test_the_smallest_bound_that_keeps_the_trainer_busy(sigma, train, group):
    work = rollouts.lognormal(prompts=6000, group=group, sigma=sigma, seed=2)
    system = rollouts.System(8, 512, batch=16, train=train, transfer=0.0)
    eta = rollouts.predict(work, system).smallest_eta()
    assert made("admission", work, system, 150, eta=float(eta)).figures(20)["trainer_busy"] >= 0.98
    assert made("admission", work, system, 150, eta=float(eta - 2)).figures(20)["trainer_busy"] < 0.98


def test_what_is_known_of_each_policy():
    found = rollouts.predict(WORK, rollouts.System(1, 32, batch=8))
    known = {name: found.staleness(part.make(batch=8)) for name, part in rollouts.STALENESS_POLICIES.items()}
    free = found.pre_queue() + found.rho
    assert found.rho < 1
    assert known == {
        "synchronous": ("=", 0.0), "one_step_off": ("<=", 1.0), "admission": ("<=", 2.0), "budget": ("<=", 2.0),
        "in_order": ("<=", 2.0), "version_fifo": ("<=", 2.0), "window": ("<=", 1.0), "queue_drop": ("=", free),
        "unbounded": ("=", free),
    }  # fmt: skip
    slower = rollouts.predict(WORK, rollouts.System(4, 64, batch=8, train=8.0, hold="none"))
    assert slower.staleness(rollouts.unbounded(batch=8)) == ("", math.inf)
    assert np.isnan(slower.staleness(rollouts.admission(batch=8))[1])


def test_aborting_frees_slots_and_starves_the_long_as_discarding_does():
    found = {
        stale: made("window", WORK, SYSTEM, 120, lag=1, stale=stale).figures(12)
        for stale in ("discard", "abort", "withhold")
    }
    assert found["abort"]["goodput"] > 1.03 * found["discard"]["goodput"]
    assert found["abort"]["mean_tokens"] < found["discard"]["mean_tokens"]
    assert found["abort"]["aborted"] > 2 * found["abort"]["stale"]
    assert all(figures["largest_staleness"] == 1 for figures in found.values())


def test_requeueing_at_the_front_starves_more_and_more():
    # Prompts that can never make it take up more and more slots; no pilot of 25 steps shows it.
    work = rollouts.lognormal(prompts=20_000, group=4, share=1.0, attempts=1, seed=2)
    run = functools.partial(rollouts.window, lag=1, requeue="front")
    applied = rollouts.simulate(work, rollouts.System(batch=16, transfer=0.0), run, num_steps=200).applied
    seconds = np.diff(applied[[0, 49, 99, 199]]) / [49, 50, 100]
    assert (np.diff(seconds) > 2).all()
