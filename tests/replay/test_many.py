"""Several runs as one program: each result is that of the run by itself."""

import dataclasses
import functools
import operator

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from lib import replay_cases
from lib.mesh_cases import RUNTIMES, SIZE, WORKERS, assert_close, grad_fn, leaves
from lib.replay_cases import anything, layers, partly, seeded

from sgdlab import protocols, rules
from sgdlab.replay import Feed, Watch, lower, many, run, run_many
from sgdlab.tasks import Task

RUNS = 3
EVERY = 9
RATES = (0.05, 0.03, 0.04)


def runtimes(seed):
    """float[15, WORKERS]: other workers are the fast ones."""
    return np.random.default_rng(seed).permuted(np.tile(RUNTIMES, (3, 1)), axis=1)


def asynchronous(seed):
    return protocols.asynchronous(runtimes(seed), num_gradients=18)


def softsync(seed):
    return protocols.softsync(runtimes(seed), gradients_per_update=2, num_gradients=18)


CASES = {
    "asgd": (asynchronous, rules.asgd, {}),
    "gap_aware": (asynchronous, rules.gap_aware, {"lanes": "map"}),
    "dana": (asynchronous, functools.partial(rules.dana, num_workers=8), {}),
    "softsync": (softsync, rules.gap_aware, {"lanes": "map"}),
    # Updates end, and gradients are dropped, at other gradients in every run.
    "anything": (lambda seed: anything(seeded(seed), 20, WORKERS), rules.staleness_aware, {"every": None}),
    "layers": (
        lambda seed: layers(12, "forward", "backward", num_workers=WORKERS, seed=seed),
        rules.gap_aware,
        {"stateful": False, "seeds": (0, 3, 4)},  # with as many gradients that are used
    ),
    "partial": (
        lambda seed: partly(5, num_workers=WORKERS, seed=seed, push_timeout=0.5),
        rules.asgd,
        {"every": None, "seeds": (7, 9, 13)},
    ),
}


@functools.cache
def params(seed):
    generator = np.random.default_rng(seed)
    return {"w": jnp.asarray(0.1 * generator.normal(size=(SIZE, SIZE))), "b": jnp.ones(3) + seed}


def batch_of(shared, phase, g):
    return jnp.cos(g * shared + phase)


@functools.cache
def shared():
    return 1.0 + jnp.arange(SIZE)


def batch_fn(seed):
    return jax.tree_util.Partial(batch_of, shared(), jnp.asarray(0.1 * seed))


def evaluate(params, stats):
    return {"length": jnp.square(params["w"]).sum() + stats.sum()}


def fold(stats, aux):
    return 0.9 * stats + 0.1 * aux["stats"]


def together_and_alone(name):
    """The results of the runs of one case, as one program and each by itself, and what has been reported."""
    schedule, rule, how = CASES[name]
    seeds, stateful = how.get("seeds", range(RUNS)), how.get("stateful", True)
    own_rules = [rule(learning_rate=rate) for rate in RATES]
    tasks = [
        Task(
            grad_fn,
            params(seed),
            stats=jnp.full(SIZE, 0.1 * seed),
            fold=fold,
            local={"memory": jnp.full(SIZE, 0.2 * seed)} if stateful else None,
        )
        for seed in seeds
    ]
    watch = Watch(every=how.get("every", EVERY), evaluate=evaluate, average_decay=0.9, norms=True)
    # Only so that the runs by themselves share one compilation.
    capacity = functools.reduce(operator.or_, (lower(schedule(seed)).capacity for seed in seeds))
    reported = []
    together = run_many(
        [schedule(seed) for seed in seeds],
        own_rules,
        tasks,
        [batch_fn(seed) for seed in seeds],
        lanes=how.get("lanes", "vmap"),
        watch=watch,
        report=lambda number, history: reported.append((number, history)),
    )
    alone = [
        run(
            lower(schedule(seed), every=watch.every, capacity=capacity),
            own_rule,
            task,
            batch_fn(seed),
            mode="event",
            watch=watch,
        )
        for seed, own_rule, task in zip(seeds, own_rules, tasks, strict=True)
    ]
    return together, alone, reported


def columns(history):
    return {name: getattr(history, name) for name in ("gradient", "worker", "update", "delay", "arrived", "applied")}


@pytest.mark.representatives("asgd", "softsync", "partial")
@pytest.mark.parametrize("name", CASES)
def test_each_result_is_that_of_the_run_by_itself(name):
    together, alone, reported = together_and_alone(name)
    assert len(together) == RUNS
    for found, expected in zip(together, alone, strict=True):
        assert_close(leaves(found), leaves(expected), 1e-12)
        assert_close(columns(found.history), columns(expected.history), 0)
        assert [list(values) for values in found.history.evaluations] == [
            list(values) for values in expected.history.evaluations
        ]
    for one, other in ((0, 1), (1, 2)):  # the runs do differ
        assert not np.allclose(together[one].params["w"], together[other].params["w"])
        assert not np.array_equal(together[one].history.worker, together[other].history.worker)
    pauses = [history.evaluations[-1]["gradients"] for number, history in reported if number == 0]
    assert [(number, len(history.worker)) for number, history in reported] == [
        (number, pause) for pause in pauses for number in range(RUNS)
    ]
    last = dict(reported[-RUNS:])
    for number, result in enumerate(together):
        np.testing.assert_array_equal(last[number].aux["loss"], result.history.aux["loss"])
        assert last[number].evaluations == result.history.evaluations


@pytest.mark.full
def test_statistics_of_batch_norm():
    task = replay_cases.network("batch_norm")
    seeds = range(2)
    schedules = [replay_cases.heterogeneous(12, seed=seed) for seed in seeds]
    own_tasks = [
        dataclasses.replace(task, params=jax.tree.map(lambda leaf, factor=1 + 0.2 * seed: factor * leaf, task.params))
        for seed in seeds
    ]
    rule = rules.nag_asgd(learning_rate=0.05)
    batch_fns = [replay_cases.batches(seed) for seed in seeds]
    together = run_many(schedules, rule, own_tasks, batch_fns, lanes="map")
    for schedule, own_task, own_batches, found in zip(schedules, own_tasks, batch_fns, together, strict=True):
        expected = run(schedule, rule, own_task, own_batches, mode="event")
        assert_close(leaves(found), leaves(expected), 1e-12)


def without_state(params, batch):
    return grad_fn(params, batch)


def begun(seeds=(0, 1)):
    """Arguments of two runs."""
    return {
        "schedules": [asynchronous(seed) for seed in seeds],
        "rules": rules.asgd(learning_rate=0.05),
        "tasks": [Task(without_state, params(seed)) for seed in seeds],
        "batch_fns": [batch_fn(seed) for seed in seeds],
    }


def test_one_program_serves_other_seeds_and_rates(compilations):
    run_many(**begun() | {"rules": [rules.asgd(learning_rate=rate) for rate in (0.1, 0.2)]})
    assert len(compilations) > 0  # the counter counts
    compilations.clear()
    run_many(**begun((2, 3)) | {"rules": [rules.asgd(learning_rate=rate) for rate in (0.3, 0.4)]})
    assert compilations == []


def scaled(data, number, g):
    return data[g] * number


def test_arrays_of_all_runs_are_there_once(monkeypatch):
    programs = []
    advance = many._advance

    def seen(carry, program, *span, **mode):
        programs.append(program)
        return advance(carry, program, *span, **mode)

    monkeypatch.setattr(many, "_advance", seen)
    data = jnp.ones((1000, SIZE))
    fns = [jax.tree_util.Partial(scaled, data, jnp.asarray(number)) for number in (1.0, 2.0)]
    run_many(**begun() | {"batch_fns": fns})
    given = jax.tree.leaves(programs)
    assert any(leaf is data for leaf in given)
    assert sum(np.size(leaf) for leaf in given if leaf is not data) < data.size


def test_one_rule_of_optax_for_all():
    found = run_many(**begun() | {"rules": optax.sgd(0.05, momentum=0.9)})
    expected = run_many(**begun() | {"rules": rules.asgd(learning_rate=0.05, momentum=0.9)})
    for left, right in zip(found, expected, strict=True):
        np.testing.assert_allclose(left.params["w"], right.params["w"], rtol=1e-12)


def test_a_single_run():
    (found,) = run_many(**begun((1,)))
    expected = run(asynchronous(1), begun()["rules"], Task(without_state, params(1)), batch_fn(1), mode="event")
    assert_close(leaves(found), leaves(expected), 1e-12)


def read(gradients):
    for g in gradients:
        yield np.cos(g * np.ones(SIZE))


def batches_times(scale):
    return lambda g: scale * jnp.cos(g * shared())


WRONG = {
    "no schedules": ({"schedules": []}, r"schedules must be a list"),
    "one schedule": ({"schedules": asynchronous(0)}, r"schedules must be a list"),
    "peers": (
        {"schedules": [protocols.gossip(RUNTIMES, seed=seed) for seed in (0, 1)]},
        r"schedules\[0\] must be of servers",
    ),
    "another number of gradients": (
        {"schedules": [asynchronous(0), protocols.asynchronous(runtimes(1), num_gradients=17)]},
        r"schedules\[1\] must have the number of used gradients of schedules\[0\]: 17 must be 18",
    ),
    "several blocks": (
        {"schedules": [asynchronous(0), layers(18, "start", "end", num_blocks=2, num_workers=WORKERS)]},
        r"schedules\[1\] must have the number of blocks of schedules\[0\]: 2 must be 1",
    ),
    "updates of several gradients": (
        {"schedules": [asynchronous(0), softsync(1)]},
        r"schedules\[1\] must have the kind of updates .*: False must be True",
    ),
    "other pauses": (
        {"schedules": [lower(asynchronous(0), every=9), lower(asynchronous(1), every=6)]},
        r"schedules\[1\] must have the pauses.*: \[ 6 12 18\] must be \[ 9 18\]",
    ),
    "not as lowered": (
        {"schedules": [lower(asynchronous(0), every=9)] * 2, "watch": Watch(every=5)},
        r"every=5 differs from the every=9 that schedules\[0\]",
    ),
    "rules of too few": (
        {"rules": [rules.asgd(learning_rate=0.1)]},
        r"rules must be one for all runs, or be a list of 2, .* a list of 1",
    ),
    "other rules": (
        {"rules": [rules.asgd(learning_rate=0.1), rules.gap_aware(learning_rate=0.1)]},
        r"rules\[1\] must be like rules\[0\]",
    ),
    "workers of a rule": ({"rules": rules.dana(learning_rate=0.1, num_workers=2)}, r"num_workers=2"),
    "no rule": ({"rules": rules.asgd}, r"rules must be one for all runs"),
    "no tasks": ({"tasks": None}, r"tasks must be one for all runs, or be a list of 2, one for each run; it is None"),
    "no task": ({"tasks": [Task(without_state, np.ones(3)), 1.0]}, r"tasks\[1\] must be a task"),
    "parameters of other sizes": (
        {"tasks": [Task(without_state, {"w": np.ones(size)}) for size in (3, 4)]},
        r"tasks\[1\]\.params\['w'\] is float64\[4\], which must be float64\[3\]",
    ),
    "parameters of other names": (
        {"tasks": [Task(without_state, {name: np.ones(3)}) for name in "wv"]},
        r"tasks\[1\]\.params must be like tasks\[0\]\.params",
    ),
    "other gradients": (
        {"tasks": [Task(function, np.ones(3)) for function in (without_state, grad_fn)]},
        r"tasks\[1\]\.grad_fn must be like tasks\[0\]\.grad_fn, of the same functions",
    ),
    "other folds": (
        {
            "tasks": [
                Task(without_state, np.ones(3), stats=np.ones(3), fold=own) for own in (fold, lambda *given: given[0])
            ]
        },
        r"tasks\[1\]\.fold must be like tasks\[0\]\.fold, of the same functions",
    ),
    "statistics of one": (
        {"tasks": [Task(without_state, np.ones(3)), Task(without_state, np.ones(3), stats=np.ones(3), fold=fold)]},
        r"tasks\[1\]\.stats must be like",
    ),
    "other functions": (
        {"batch_fns": [batches_times(1.0), batches_times(2.0)]},
        r"batch_fns\[1\] must be like batch_fns\[0\], of the same functions",
    ),
    "a feed": ({"batch_fns": Feed(read)}, r"batch_fns must be functions of g: a Feed"),
    "no batches": ({"batch_fns": [np.ones(3), np.ones(3)]}, r"batch_fn must be a function"),
    "another report": ({"watch": Watch(report=print)}, r"watch.report must be left out"),
    "lanes": ({"lanes": "scan"}, r"lanes='scan'"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_cannot_be_together_is_named(name):
    changed, message = WRONG[name]
    with pytest.raises(ValueError, match=message):
        run_many(**begun() | changed)
