"""Rules that keep gradients of workers: each is its naive twin (`naive_tables.py`) to 1e-12, and others where it must.

Workers have losses of their own. All runs of a rule share one program: the capacity is fixed, all else is data.
"""

import jax
import jax.numpy as jnp
import naive_tables as naive
import numpy as np
import pytest

from sgdlab import policies, protocols, replay, rules  # noqa: F401 (policies register protocols)
from sgdlab.registry import PROTOCOLS, RULES
from sgdlab.tasks import Task

ETA, ROWS = 0.1, 64
CAPACITY = replay.Capacity(rows=ROWS, slots=8, width=8, workers=8)


def grad_fn(x, batch):
    """Its aux is what was read: the path."""
    worker, noise = batch
    curvature, centre = jnp.asarray(naive.CURVATURE), jnp.asarray(naive.CENTRE)
    return curvature[worker] * (x - centre[worker]) + noise, {f"x{i}": x[i] for i in range(naive.SIZE)}


def _batch(worker, noise, g):
    return worker[g], noise[g]


def replayed(schedule, rule, *, noise=naive.NOISE):
    """The parameters at the end, and those that each gradient was computed on."""
    program = replay.lower(schedule, capacity=CAPACITY)
    worker = np.zeros(ROWS, np.int32)
    worker[: program.num_rows] = program.worker[: program.num_rows]
    batch_fn = jax.tree_util.Partial(_batch, jnp.asarray(worker), jnp.asarray(noise[:ROWS]))
    result = replay.run(program, rule, Task(grad_fn, jnp.asarray(naive.START)), batch_fn, mode="event")
    aux = result.history.aux
    return np.asarray(result.params), np.stack([aux[f"x{i}"] for i in range(naive.SIZE)], axis=1)


def assert_same(given, expected, rtol=1e-12):
    for one, other in zip(given, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=rtol, atol=1e-13)
    assert not np.allclose(given[0], naive.START, rtol=1e-2)


def made(name, runtimes, **own):
    return PROTOCOLS[name].make(runtimes, **own)


def seconds(seed, workers, rows=60):
    """Workers of different speeds, and no two events at one instant."""
    random = np.random.default_rng(seed)
    return random.uniform(0.3, 4.0, workers) * random.uniform(0.8, 1.2, (rows, workers))


EIGHT = {"num_workers": 8}  # more rows than workers take only memory
RUNS = [(0, 1), (1, 2), (2, 3), (3, 5), (4, 6)]


@pytest.mark.parametrize("points", ["own", "newest"])
@pytest.mark.parametrize(("seed", "workers"), RUNS)
def test_ringleader(seed, workers, points):
    runtimes = seconds(seed, workers)
    schedule = made("ringleader", runtimes, num_gradients=50, points=points)
    assert schedule.staleness().max() <= 2 * workers - 2
    assert not schedule.dropped().any()
    given = replayed(schedule, rules.ringleader(learning_rate=ETA, **EIGHT))
    assert_same(given, naive.ringleader(runtimes, ETA, 50, points))


@pytest.mark.parametrize("interrupt", [False, True])
@pytest.mark.parametrize(("seed", "workers", "collected"), [(0, 1, 0), (1, 3, 0), (2, 3, 6), (3, 5, 5.0), (4, 4, 7.5)])
def test_malenia(seed, workers, collected, interrupt):
    runtimes = seconds(seed, workers, 200)
    own = {"collected": float(collected), "interrupt": interrupt}
    schedule = made("malenia", runtimes, num_gradients=40, **own)
    assert schedule.staleness().max() == 0
    rule = rules.malenia(learning_rate=ETA, momentum=0.5, **EIGHT)
    assert_same(replayed(schedule, rule), naive.malenia(runtimes, ETA, 40, momentum=0.5, **own))


def asynchronous(runtimes):
    return protocols.asynchronous(runtimes, num_gradients=50)


@pytest.mark.parametrize("fill_first", [True, False])
@pytest.mark.parametrize(("seed", "workers"), RUNS)
def test_ace(seed, workers, fill_first):
    runtimes = seconds(seed, workers)
    own = {"momentum": 0.3, "weight_decay": 0.02, "fill_first": fill_first}
    rule = rules.ace(learning_rate=ETA, workers=workers, **own, **EIGHT)
    assert_same(replayed(asynchronous(runtimes), rule), naive.ace(runtimes, ETA, 50, **own))


@pytest.mark.parametrize("max_staleness", [0, 1, 4, 9])
@pytest.mark.parametrize(("seed", "workers"), RUNS[1:])
def test_aced(seed, workers, max_staleness):
    runtimes = seconds(seed, workers)
    own = {"max_staleness": max_staleness, "fill_first": seed != 3}
    rule = rules.aced(learning_rate=ETA, momentum=0.4, workers=workers, **own, **EIGHT)
    assert_same(replayed(asynchronous(runtimes), rule), naive.ace(runtimes, ETA, 50, momentum=0.4, **own))


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize(("seed", "workers"), RUNS)
def test_rescaled(seed, workers, known):
    runtimes = seconds(seed, workers)
    given = tuple(runtimes.mean(axis=0)) if known else ()
    rule = rules.rescaled(learning_rate=0.03, momentum=0.3, seconds=given, workers=workers, **EIGHT)
    assert_same(replayed(asynchronous(runtimes), rule), naive.rescaled(runtimes, 0.03, 50, given or None, momentum=0.3))


@pytest.mark.parametrize("size", [1, 2, 5])
@pytest.mark.parametrize(("seed", "workers"), RUNS)
def test_ca2fl(seed, workers, size):
    """Fast workers are in an update twice; slow ones are in the mean of all before they have come."""
    runtimes = seconds(seed, workers)
    schedule = protocols.softsync(runtimes, gradients_per_update=size, num_gradients=50)
    rule = rules.ca2fl(learning_rate=0.05, momentum=0.3, workers=workers, **EIGHT)
    assert_same(replayed(schedule, rule), naive.ca2fl(runtimes, 0.05, 50, size, momentum=0.3))


ALONE = {
    "ca2fl": lambda: rules.ca2fl(learning_rate=ETA, momentum=0.6, weight_decay=0.1, workers=1, **EIGHT),
    "ringleader": lambda: rules.ringleader(learning_rate=ETA, momentum=0.6, weight_decay=0.1, **EIGHT),
    "malenia": lambda: rules.malenia(learning_rate=ETA, momentum=0.6, nesterov=False, weight_decay=0.1, **EIGHT),
    "ace": lambda: rules.ace(learning_rate=ETA, momentum=0.6, weight_decay=0.1, workers=1, **EIGHT),
    "aced": lambda: rules.aced(learning_rate=ETA, momentum=0.6, weight_decay=0.1, workers=1, **EIGHT),
    "rescaled": lambda: rules.rescaled(learning_rate=ETA, momentum=0.6, weight_decay=0.1, workers=1, **EIGHT),
}
SGD = {"learning_rate": ETA, "momentum": 0.6, "weight_decay": 0.1}


@pytest.mark.parametrize("name", ALONE)
def test_one_worker_is_momentum_sgd(name):
    runtimes = seconds(0, 1)
    protocol = name if name in PROTOCOLS else "asynchronous"
    schedule = made(protocol, runtimes, num_gradients=30)
    alone = protocols.asynchronous(runtimes, num_gradients=30)
    assert_same(replayed(schedule, ALONE[name]()), replayed(alone, rules.asgd(**SGD)))


def test_the_first_round_of_equal_ringleaders_is_one_synchronous_step_of_n_times_the_rate():
    """Without noise: all n updates are made of gradients on the initial parameters."""
    quiet, equal = np.zeros_like(naive.NOISE), np.ones((8, 5))
    first = made("ringleader", equal, num_gradients=9)
    assert (first.num_updates, first.staleness().max()) == (5, 4)
    together = protocols.synchronous(equal, num_gradients=5)
    given = replayed(first, rules.ringleader(learning_rate=ETA / 5, **EIGHT), noise=quiet)
    assert_same(given[:1], replayed(together, rules.asgd(learning_rate=ETA), noise=quiet)[:1])


@pytest.mark.parametrize("workers", [3, 5, 7, 49])
def test_equal_workers_of_malenia_with_exactly_s_gradients_go_on(workers):
    """Their harmonic mean is S / n, and not above it, though sums of floats say so."""
    for each in (1, 3, 5):
        own = {"collected": float(each * workers), "num_gradients": 1}
        schedule = made("malenia", np.ones((each + 1, workers)), **own)
        assert np.bincount(schedule.worker[schedule.used()[:, 0]]).max() == each + 1


@pytest.mark.parametrize("each", [1, 2, 3])
def test_malenia_with_equal_numbers_of_gradients_is_rennala(each):
    """And with one of each it is synchronous SGD."""
    equal = np.ones((40, 4))
    schedule = made("malenia", equal, num_gradients=24, collected=4 * (each - 0.1))
    assert set(np.bincount(schedule.update[schedule.used()])) == {4 * each}
    given = replayed(schedule, rules.malenia(learning_rate=ETA, momentum=0.6, **EIGHT))
    rennala = protocols.rennala(equal, gradients_per_update=4 * each, num_gradients=24)
    np.testing.assert_array_equal(schedule.update[schedule.used()], rennala.update[rennala.used()])
    sgd = rules.nag_asgd(learning_rate=ETA, momentum=0.6)
    assert_same(given, replayed(rennala, sgd))
    if each == 1:
        assert_same(given, replayed(protocols.synchronous(equal, num_gradients=24), sgd))


def test_malenia_weighs_workers_equally_and_rennala_does_not():
    """Without noise the fixed point of Malenia is that of the mean loss; of equal weights per gradient it is not."""
    quiet = np.zeros_like(naive.NOISE)
    runtimes = np.tile([1.0, 3.5], (90, 1))
    schedule = made("malenia", runtimes, num_gradients=60)
    optimum = (naive.CURVATURE * naive.CENTRE)[:2].sum(axis=0) / naive.CURVATURE[:2].sum(axis=0)
    fair, _ = replayed(schedule, rules.malenia(learning_rate=1.2, momentum=0.0, nesterov=False, **EIGHT), noise=quiet)
    fast, _ = replayed(schedule, rules.asgd(learning_rate=1.2), noise=quiet)
    np.testing.assert_allclose(fair, optimum, atol=1e-3)
    assert np.abs(fast - optimum).max() > 0.05


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_estimates_of_workers_that_send_in_turn_have_a_mean_of_one(workers):
    """In every turn, from the first: no warm-up of the steps is hidden in the estimate."""
    rule, params = rules.rescaled(learning_rate=ETA, workers=workers, **EIGHT), jnp.zeros([])
    state = rule.init(params)
    for turn in range(1, 5):
        factors = []
        for worker in range(workers):
            use = {"worker": worker, "delay": 1, "read_params": params}
            state = rule.absorb(jnp.ones([]), state, params, **use)
            factors.append(float(rule.receive(jnp.ones([]), state, params, **use)))
        np.testing.assert_allclose(np.mean(factors), 1.0, rtol=1e-12)
        assert np.abs(np.array(factors) - 1.0).max() < 1 / (2 * turn)


def test_estimates_weigh_unequal_workers_equally():
    """Worker 0 sends nine times as often; both have moved the parameters equally far."""
    rule, params = rules.rescaled(learning_rate=ETA, num_workers=2), jnp.zeros([])
    state, moved = rule.init(params), np.zeros(2)
    for worker in ([0] * 9 + [1]) * 12:
        use = {"worker": worker, "delay": 1, "read_params": params}
        state = rule.absorb(jnp.ones([]), state, params, **use)
        moved[worker] += float(rule.receive(jnp.ones([]), state, params, **use))
    assert moved[1] / moved.sum() == pytest.approx(0.5, abs=0.03)


def test_a_worker_that_is_always_too_late_is_never_heard_by_aced():
    """Its rule is not one that balances workers, as certificates ask."""
    facts = {name: RULES[name].facts.balances_workers for name in ("ace", "aced")}
    assert facts == {"ace": True, "aced": False}
    runtimes = np.tile([1.0, 1.0, 7.3], (60, 1))
    schedule = protocols.asynchronous(runtimes, num_gradients=60)
    optimum = lambda n: (naive.CURVATURE * naive.CENTRE)[:n].sum(axis=0) / naive.CURVATURE[:n].sum(axis=0)
    quiet = np.zeros_like(naive.NOISE)
    heard = replayed(schedule, rules.aced(learning_rate=0.3, workers=3, **EIGHT), noise=quiet)[0]
    assert np.abs(heard - optimum(2)).max() < 0.2 * np.abs(heard - optimum(3)).max()


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        ((1.0, 2.0), r"seconds=\(1.0, 2.0\) must have 4 entries, one for each worker"),
        ((1.0, 2.0, 0.0, 1.0), r"seconds\[2\]=0.0 must be a finite number above 0"),
    ],
)
def test_bad_run_times_are_named(seconds, words):
    with pytest.raises(ValueError, match=f"^{words}"):
        rules.rescaled(learning_rate=ETA, num_workers=4, seconds=seconds)


@pytest.mark.parametrize(
    ("name", "own", "words"),
    [
        ("ringleader", {"points": "old"}, "points='old' must be"),
        ("malenia", {"collected": -1.0}, "collected=-1.0 must be a finite number at least 0"),
    ],
)
def test_bad_entries_of_protocols_are_named(name, own, words):
    with pytest.raises(ValueError, match=f"^{words}"):
        made(name, np.ones((4, 2)), **own)


@pytest.mark.parametrize("name", ["malenia", "ringleader", "ace", "aced", "ca2fl", "vecna"])
def test_more_workers_than_rows_are_refused(name):
    schedule = protocols.asynchronous(np.ones((3, 3)))
    with pytest.raises(ValueError, match="num_workers=2"):
        replay.check_rule(schedule, getattr(rules, name)(learning_rate=ETA, num_workers=2))


def test_peers_have_no_such_rule():
    schedule = protocols.gossip(np.ones((2, 2)), clock="rounds", seed=0)
    with pytest.raises(ValueError, match=r"^rule absorbs the gradients of a server's workers"):
        replay.check_rule(schedule, rules.malenia(learning_rate=ETA, num_workers=2))
