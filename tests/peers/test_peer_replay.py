"""`run` of peers is a loop that keeps every version of everybody's parameters, in both modes, for every schedule.

Further: each node has an optimiser, statistics and a count of steps of its own; looks; errors name the argument; a
second run of the same shape compiles nothing.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from lib.compiling import compilations
from lib.replay_cases import assert_close, batches, network
from naive_peers import Replayed

from sgdlab import cluster, protocols, rules
from sgdlab.replay import Capacity, Watch, check_rule, lower, run
from sgdlab.tasks import Task

NODES = 4
ROOM = Capacity(rows=32, slots=16, width=NODES, events=64, edges=128)
RUNTIMES = np.random.default_rng(0).uniform(1, 3, (6, NODES))
UNEVEN = RUNTIMES * np.array([0.4, 1.0, 1.0, 2.0])  # some nodes make many more steps than others
both_modes = pytest.mark.parametrize("mode", ["event", "wave"])

SCHEDULES = {
    f"{name}{', rounds' if clock == 'rounds' else ''}{f', period {period}' if period > 1 else ''}": functools.partial(
        protocol, RUNTIMES, clock=clock, period=period, **options
    )
    for name, protocol, options in (
        ("pull", protocols.gossip, {"seed": 1}),
        ("push", protocols.gossip, {"kind": "push", "seed": 1}),
        ("pull, not fresh", protocols.gossip, {"fresh": False, "include_self": True, "seed": 3}),
        ("push, not fresh", protocols.gossip, {"kind": "push", "fresh": False, "seed": 3}),
        ("elastic", protocols.elastic_averaging, {}),
    )
    for clock in ("own", "rounds")
    for period in (1, 3)
} | {
    "ties": lambda: protocols.gossip(np.ones((5, NODES)), seed=2),
    "pull, poisson": lambda: protocols.gossip(RUNTIMES, clock="poisson", seed=4),
    "push, poisson": lambda: protocols.gossip(RUNTIMES, kind="push", clock="poisson", period=2, seed=4),
}
OPTIMIZERS = {
    "sgd": optax.sgd(0.05),
    "momentum": optax.sgd(0.05, momentum=0.9),
    "nesterov": optax.sgd(0.05, momentum=0.9, nesterov=True),
    "adam": optax.adam(0.01),
    "nag_asgd": rules.nag_asgd(learning_rate=0.05, momentum=0.9),
    "asgd": rules.asgd(learning_rate=0.05, momentum=0.5, weight_decay=0.01),
    "staleness_aware": rules.staleness_aware(learning_rate=0.05),
}


@functools.cache
def case(name, optimizer, network_name, scaled):
    """A schedule, the scale of steps, and what the naive loop leaves, for both modes to be compared with."""
    schedule, net = SCHEDULES[name](), network(network_name)
    scale = np.random.default_rng(5).uniform(0, 2, schedule.num_gradients) if scaled else None
    given = {"stats": net.stats, "fold": net.fold, "step_scale": scale}
    return schedule, scale, Replayed(schedule, OPTIMIZERS[optimizer], net.grad_fn, net.params, batches(), **given)


def assert_replayed(name, optimizer, network_name, mode, *, tolerance=1e-12, scaled=False):
    schedule, scale, expected = case(name, optimizer, network_name, scaled)
    net, optimizer = network(network_name), OPTIMIZERS[optimizer]
    program = lower(schedule, capacity=ROOM, width=NODES)
    result = run(program, optimizer, net, batches(), mode=mode, step_scale=scale)
    nodes, center, stats = expected.after(len(expected.order))
    close = functools.partial(assert_close, tolerance=tolerance)
    close(result.nodes, expected.stacked(nodes))
    close(result.params, jax.tree.map(lambda *leaves: sum(leaves) / len(leaves), *nodes))
    close(result.state, expected.stacked(expected.state))
    if schedule.has_center:
        close(result.center, center)
    else:
        assert result.center is None
    if stats[0] is not None:
        close(result.stats, jax.tree.map(lambda *leaves: sum(leaves) / len(leaves), *stats))
    assert not np.allclose(*(jax.tree.leaves(tree)[0] for tree in nodes[:2]))
    np.testing.assert_array_equal(result.history.worker, expected.order)
    ours = schedule.node < schedule.num_nodes
    by_hand = {
        "gradient": np.flatnonzero(ours),
        "worker": schedule.node[ours],
        "update": schedule.number()[ours],
        "delay": np.ones(len(expected.order)),
        "arrived": schedule.finished[ours],
        "applied": schedule.finished[ours],
    }
    for column, values in by_hand.items():
        np.testing.assert_array_equal(getattr(result.history, column), values, err_msg=column)
    assert (result.average, result.average_stats, result.history.distance, result.history.norm) == (None,) * 4
    losses = np.array([aux["loss"] for aux in expected.aux])
    np.testing.assert_allclose(result.history.aux["loss"], losses, rtol=tolerance)


@pytest.mark.covering
@both_modes
@pytest.mark.parametrize("name", SCHEDULES)
def test_every_schedule_is_the_naive_loop(name, mode):
    assert_replayed(name, "nag_asgd", "mlp", mode)


@pytest.mark.covering
@both_modes
@pytest.mark.parametrize("name", [name for name in OPTIMIZERS if name != "nag_asgd"])
def test_every_optimizer_is_the_naive_loop(name, mode):
    """Adam divides by the root of squares that are all but zero at first, which amplifies rounding."""
    tolerance = 1e-10 if name == "adam" else 1e-12
    assert_replayed("elastic", name, "mlp", mode, tolerance=tolerance)


@pytest.mark.covering
@both_modes
@pytest.mark.parametrize("name", ["pull", "elastic, rounds, period 3"])
def test_every_node_has_statistics_of_its_own(name, mode):
    assert network("batch_norm").stats is not None
    assert_replayed(name, "asgd", "batch_norm", mode)


@both_modes
@pytest.mark.parametrize("name", ["pull", "elastic", "push, rounds"])
def test_every_step_is_scaled_by_its_own_number(name, mode):
    """The step, not the gradient: momentum does not see it."""
    assert_replayed(name, "nag_asgd", "mlp", mode, scaled=True)


@both_modes
def test_a_schedule_of_rates_counts_the_steps_of_the_node(mode):
    """With the parameters at eta(0) + eta(1) + ... of its own steps, and averages that a beta of 0 leaves alone."""
    schedule = protocols.elastic_averaging(UNEVEN, beta=0.0)
    steps = np.bincount(schedule.node, minlength=NODES + 1)[:NODES]
    assert np.unique(steps).size > 2
    rates = 1.0 / (1 + np.arange(8))
    for optimizer in (optax.sgd(rules.tabulated(rates)), rules.asgd(learning_rate=rules.tabulated(rates))):
        result = run(
            schedule, optimizer, Task(lambda p, b: (jnp.ones_like(p), {}), jnp.zeros([])), lambda g: g, mode=mode
        )
        np.testing.assert_allclose(result.nodes, [-rates[:count].sum() for count in steps], rtol=1e-14)


# A parabola with a minimum of its own for each gradient.
def parabola(params, target):
    return params - target, {"loss": 0.5 * jnp.sum((params - target) ** 2), "residual": params - target}


def target(number):
    return jnp.arange(3.0) + number


def look(params, stats):
    total = 0.0 if stats is None else stats.sum()
    return {"sum": params.sum() + total, "largest": jnp.max(params**2)}


def averaged(stats, aux):
    return 0.5 * stats + aux["residual"]


def summed(params, stats):
    return {name: float(value) for name, value in look(jnp.asarray(params), stats).items()}


SGD = rules.asgd(learning_rate=0.25, momentum=0.5)


def small(schedule, *, optimizer=SGD, params=None, stats=None, fold=None, **options):
    task = Task(parabola, jnp.ones(3) if params is None else params, stats=stats, fold=fold)
    return run(schedule, optimizer, task, target, **options)


@functools.cache
def of_parabolas(name, with_stats):
    """A schedule, options of a run, and what the naive loop leaves."""
    schedule, options = SCHEDULES[name](), {"stats": jnp.zeros(3), "fold": averaged} if with_stats else {}
    return schedule, options, Replayed(schedule, SGD, parabola, jnp.ones(3), target, **options)


class TestWatch:
    @pytest.mark.covering
    @both_modes
    @pytest.mark.parametrize("name", ["pull", "push, rounds", "elastic", "elastic, rounds, period 3"])
    @pytest.mark.parametrize(("every", "with_stats"), [(None, False), (1, False), (5, False), (5, True), (1000, False)])
    def test_looks(self, name, every, mode, with_stats):
        (schedule, options, expected), reported = of_parabolas(name, with_stats), []
        watch = Watch(every=every, evaluate=look, report=lambda history: reported.append(history.evaluations[-1]))
        program = lower(schedule, every=every, capacity=ROOM, width=NODES)  # schedules share programs
        evaluations = small(program, mode=mode, watch=watch, **options).history.evaluations
        assert reported == evaluations
        assert all(a is b for a, b in zip(reported, evaluations, strict=True))
        rows = schedule.num_gradients
        wanted = [0, *range(every or rows, rows, every or rows), rows]
        assert [values["gradients"] for values in evaluations] == wanted
        finished = schedule.finished[schedule.node < NODES]
        for values in evaluations:
            made = values["gradients"]
            nodes, center, stats = expected.after(made)
            mean = sum(nodes) / NODES
            seen = sum(stats) / NODES if with_stats else None
            own = stats if with_stats else [None] * NODES
            each = [summed(*node) for node in zip(nodes, own, strict=True)]
            distance = np.sqrt(sum(float(((node - mean) ** 2).sum()) for node in nodes) / NODES)
            hand = summed(mean, seen) | {"consensus": distance}
            hand |= {"gradients": made, "seconds": max(finished[:made], default=0.0)}
            hand |= {"updates": max(expected.order[:made].count(node) for node in range(NODES))}
            for key in ("sum", "largest"):
                column = [values[key] for values in each]
                hand[f"node_mean_{key}"] = sum(column) / NODES
                hand[f"node_lowest_{key}"], hand[f"node_highest_{key}"] = min(column), max(column)
                if schedule.has_center:
                    hand[f"center_{key}"] = summed(center, seen)[key]
            assert set(values) == set(hand)
            for key, value in hand.items():
                assert values[key] == pytest.approx(value, rel=1e-12, abs=1e-12), key
                assert isinstance(values[key], int | float)

    @both_modes
    def test_nodes_at_end(self, mode):
        """The nodes are looked at one by one in the last evaluation alone; all other values are the same."""
        program = lower(SCHEDULES["elastic"](), every=5, capacity=ROOM, width=NODES)
        always, at_end = (
            small(program, mode=mode, watch=Watch(evaluate=look, nodes_at_end=at_end)).history.evaluations
            for at_end in (False, True)
        )
        assert len(always) > 2
        assert at_end[-1] == always[-1]
        for whole, found in zip(always[:-1], at_end[:-1], strict=True):
            assert found == {name: value for name, value in whole.items() if not name.startswith("node_")}

    @both_modes
    @pytest.mark.parametrize("name", ["pull", "elastic"])
    def test_a_run_that_ends_at_a_pause_is_of_that_pause(self, name, mode):
        """So are its nodes, which are evaluated one by one there alone, and its parameters."""
        program, reported = lower(SCHEDULES[name](), every=5, capacity=ROOM, width=NODES), []
        watch = Watch(
            evaluate=look,
            nodes_at_end=True,
            report=lambda history: reported.append(history.evaluations[-1]),
            ends=lambda evaluations: evaluations[-1]["gradients"] == 10,
        )
        whole = small(program, mode=mode, watch=Watch(evaluate=look)).history.evaluations
        result = small(program, mode=mode, watch=watch)
        last = result.history.evaluations[-1]
        assert last == reported[-1] == whole[2]
        assert len(reported) == len(result.history.evaluations) == 3
        assert last["sum"] == pytest.approx(float(result.params.sum()), rel=1e-12)
        assert last["node_lowest_sum"] == pytest.approx(float(result.nodes.sum(axis=1).min()), rel=1e-12)

    def test_report_comes_during_the_run(self):
        seen = []

        def report(history):
            values = history.evaluations[-1]
            seen.append(values["gradients"])
            if values["gradients"] >= 8:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            small(SCHEDULES["pull"](), watch=Watch(every=4, evaluate=look, report=report))
        assert seen == [0, 4, 8]

    @both_modes
    def test_changes_nothing(self, mode):
        plain, watched = (
            small(SCHEDULES["elastic"](), mode=mode, watch=watch) for watch in (None, Watch(every=3, evaluate=look))
        )
        assert_close(watched.nodes, plain.nodes, 1e-14)
        assert plain.history.evaluations == []
        assert plain.history.aux["residual"] is None  # only scalars are recorded


@both_modes
def test_callers_arrays_are_still_there(mode):
    params, stats = jnp.ones(3), jnp.zeros(3)
    options = {"params": params, "mode": mode, "stats": stats, "fold": lambda s, a: s + a["residual"]}
    first, second = (small(SCHEDULES["elastic"](), **options) for _ in range(2))
    np.testing.assert_array_equal(params, np.ones(3))
    np.testing.assert_array_equal(stats, np.zeros(3))
    assert_close(first.nodes, second.nodes, 0.0)
    assert_close(small(SCHEDULES["elastic"](), mode=mode, params=np.ones(3)).nodes, first.nodes, 0.0)


class TestErrors:
    @pytest.mark.parametrize("mode", ["events", "", 1])
    def test_mode(self, mode):
        with pytest.raises(ValueError, match=rf"mode={mode!r} must be 'event', 'wave' or None"):
            small(SCHEDULES["pull"](), mode=mode)

    @pytest.mark.parametrize("options", [{"stats": jnp.zeros(3)}, {"fold": lambda stats, aux: stats}])
    def test_stats_and_fold_belong_together(self, options):
        with pytest.raises(ValueError, match="stats and fold must be given together"):
            small(SCHEDULES["pull"](), **options)

    @pytest.mark.parametrize("watch", [Watch(norms=True), Watch(average_decay=0.5), Watch(average_decay=0.0)])
    def test_what_only_a_server_has(self, watch):
        with pytest.raises(ValueError, match="norms and average_decay are the server's; peers have none"):
            small(SCHEDULES["pull"](), watch=watch)

    def test_looks_of_a_lowered_program(self):
        program = lower(SCHEDULES["pull"](), every=4)
        small(program, watch=Watch(every=4, evaluate=look))
        small(program, watch=Watch(evaluate=look))
        with pytest.raises(ValueError, match="every=5 differs from the every=4 that the program was lowered with"):
            small(program, watch=Watch(every=5, evaluate=look))

    @pytest.mark.parametrize(
        "scale", [np.ones(3), np.ones((24, 1)), np.full(24, np.nan), np.full(24, np.inf), np.float64(1.0)]
    )
    def test_scale_of_steps(self, scale):
        schedule = SCHEDULES["pull, rounds"]()
        assert schedule.num_gradients == 24
        with pytest.raises(ValueError, match=r"step_scale of shape .* one for each of 24 gradients"):
            small(schedule, step_scale=scale)

    def test_an_optimizer_with_too_few_rows(self):
        dana = rules.dana(learning_rate=0.1, num_workers=NODES - 1)
        with pytest.raises(ValueError, match="num_workers=3 workers of a server"):
            small(SCHEDULES["pull"](), optimizer=dana)
        for schedule in (SCHEDULES["pull"](), lower(SCHEDULES["pull"]())):
            check_rule(schedule, SGD)
            check_rule(schedule, optax.adam(0.1))
            with pytest.raises(ValueError, match="num_workers=8 workers of a server"):
                check_rule(schedule, rules.dana(learning_rate=0.1, num_workers=8))


def test_compilations_are_seen():
    with compilations() as seen:
        jax.jit(lambda x: x + 1)(1.0)
    assert len(seen) == 1


MAKERS = {
    "pull": lambda times, seed: protocols.gossip(times, seed=seed),
    "push, rounds": lambda times, seed: protocols.gossip(times, kind="push", clock="rounds", seed=seed),
    "elastic": lambda times, seed: protocols.elastic_averaging(times, beta=0.1 + seed / 10),
}


@both_modes
@pytest.mark.parametrize("name", MAKERS)
def test_another_seed_and_another_rate_compile_nothing(name, mode):
    draw = lambda seed: cluster.exponential(num_workers=NODES, num_gradients=8, seed=seed)
    room = Capacity(rows=64, slots=32, width=2, workers=NODES, events=128, edges=256)
    first, second = (lower(MAKERS[name](draw(seed), seed), capacity=room, every=4, width=2) for seed in (0, 1))
    assert first.capacity == second.capacity == room
    assert (first.waves.size, first.num_slots) != (second.waves.size, second.num_slots) or name != "pull"
    watch = Watch(evaluate=look)
    one = small(first, optimizer=rules.asgd(learning_rate=0.1), mode=mode, watch=watch)
    with compilations() as seen:
        two = small(second, optimizer=rules.asgd(learning_rate=0.2), mode=mode, watch=watch)
    assert not seen
    assert not np.allclose(one.nodes, two.nodes)
