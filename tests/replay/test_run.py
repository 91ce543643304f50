"""`run` is what a loop of fifteen lines is that keeps every version of the parameters in a list.

Further: synchronous replay is large-batch SGD, evaluations are where they should be, arguments are not changed,
errors name the argument, and a second run of the same shape compiles nothing.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from lib.replay_cases import assert_close, batches, examples, heterogeneous, network, softsync, with_backups

from sgdlab import Schedule, protocols, rules
from sgdlab.replay import Capacity, Result, Watch, check_rule, lower, run, server_engine
from sgdlab.tasks import Task

CAPACITY = Capacity(rows=128, slots=8, width=8, workers=8)


def naive(schedule, rule, grad_fn, params, batch_fn, *, stats=None, fold=None, decay=0.5) -> dict:
    """Every version in a list, one gradient after the other."""
    state = rule.init(params)
    grad_fn, receive, apply = jax.jit(grad_fn), jax.jit(rule.receive), jax.jit(rule.update)
    server, averages, sent, inbox, losses, distances = [params], [params], [rule.send(params, state)], [], [], []
    average_stats, norms = [stats], []
    single = schedule.used().sum() == schedule.num_updates
    for number, row in enumerate(np.flatnonzero(schedule.update[:, 0] >= 0)):
        version, update = int(schedule.read[row, 0]), int(schedule.update[row, 0])
        worker, delay = int(schedule.worker[row]), update - version + 1
        grads, aux = grad_fn(sent[version], batch_fn(number))
        message = receive(grads, state, params, worker=worker, delay=delay, read_params=sent[version])
        inbox.append((message, delay))
        losses.append(aux["loss"])
        norms.append(np.sqrt(sum(float(np.sum(np.square(leaf))) for leaf in jax.tree.leaves(grads))))
        distances.append(optax.tree.norm(optax.tree.sub(params, sent[version])))
        stats = fold(stats, aux) if fold else None
        if len(inbox) < (schedule.update == update).sum():
            continue
        mean = jax.tree.map(lambda *leaves: sum(leaves) / len(leaves), *[message for message, _ in inbox])
        options = {"num_gradients": len(inbox), "delay": np.mean([d for _, d in inbox])}
        updates, state = apply(mean, state, params, worker=worker if single else None, **options)
        params, inbox = optax.apply_updates(params, updates), []
        server.append(params)
        sent.append(rule.send(params, state))
        for kept, values in ((averages, params), (average_stats, stats)):
            kept.append(jax.tree.map(lambda a, p: decay * a + (1 - decay) * p, kept[-1], values))
    return {
        "versions": server, "averages": averages, "average_stats": average_stats, "state": state, "stats": stats,
        "loss": losses, "gap": distances, "norm": norms,
    }  # fmt: skip


def _by_everything(updates, state, params=None, *, num_gradients, delay, **extra):
    return jax.tree.map(lambda u: -0.05 * u * num_gradients / delay, updates), state


def _clipped_by_worker(updates, state, params=None, *, worker, delay, read_params, **extra):
    scale = (worker + 1.0) / delay
    return jax.tree.map(lambda u, p: u * scale + 0.1 * p, updates, read_params), state


RULES = {
    "asgd": rules.asgd(learning_rate=0.05, momentum=0.5, weight_decay=1e-3),
    "gap_aware": rules.gap_aware(learning_rate=0.05),
    "dana": rules.dana(learning_rate=0.02, num_workers=5),
    "staleness_aware": rules.staleness_aware(learning_rate=0.05),
    # Every extra argument that a rule can ask for.
    "custom": rules.server_rule(
        optax.GradientTransformationExtraArgs(lambda p: optax.EmptyState(), _by_everything),
        receive=optax.GradientTransformationExtraArgs(lambda p: optax.EmptyState(), _clipped_by_worker),
    ),
}
SCHEDULES = {"asynchronous": heterogeneous, "backup_workers": lambda n: with_backups(n // 3), "softsync": softsync}


@pytest.mark.representatives("asynchronous", "softsync")
@pytest.mark.parametrize(
    ("kind", "rule", "name", "length"),
    [
        ("asynchronous", "asgd", "batch_norm", 30),
        ("asynchronous", "dana", "mlp", 40),
        ("asynchronous", "gap_aware", "mlp", 15),
        ("asynchronous", "custom", "mlp", 40),
        ("backup_workers", "custom", "mlp", 30),
        ("softsync", "staleness_aware", "mlp", 30),
        ("softsync", "asgd", "batch_norm", 24),
        ("softsync", "gap_aware", "mlp", 15),
        ("softsync", "custom", "mlp", 30),
    ],
)
def test_event_mode_is_the_naive_loop(kind, rule, name, length):
    schedule, net, decay = SCHEDULES[kind](length), network(name), 0.5
    assert kind == "asynchronous" or schedule.dropped().any()
    expected = naive(
        schedule, RULES[rule], net.grad_fn, net.params, batches(), stats=net.stats, fold=net.fold, decay=decay
    )
    watch = Watch(average_decay=decay, norms=True)
    program = lower(schedule, capacity=CAPACITY)
    result = run(
        program, RULES[rule], net, batches(), mode="event", watch=watch,
    )  # fmt: skip
    tolerance = 1e-10 if rule == "gap_aware" else 1e-12
    close = functools.partial(assert_close, tolerance=tolerance)
    close(result.params, expected["versions"][-1])
    close(result.average, expected["averages"][-1])
    close(result.state, expected["state"])
    close(result.stats, expected["stats"])
    close(result.average_stats, expected["average_stats"][-1])
    history, used = result.history, np.flatnonzero(schedule.used())
    np.testing.assert_allclose(history.aux["loss"], np.array(expected["loss"]), rtol=tolerance)
    np.testing.assert_allclose(history.norm, expected["norm"], rtol=tolerance)
    largest = max(expected["gap"])
    np.testing.assert_allclose(history.distance, np.array(expected["gap"]), rtol=0, atol=tolerance * float(largest))
    steps = [optax.tree.norm(optax.tree.sub(b, a)) for a, b in zip(*_pairs(expected["versions"]), strict=True)]
    completes = np.diff(history.update, append=-1) != 0
    np.testing.assert_allclose(history.step[completes], np.array(steps), rtol=1e-8)  # differences of parameters cancel
    assert (history.step[~completes] == 0).all()
    for field, values in (("gradient", used), ("worker", schedule.worker[used]), ("update", schedule.update[used, 0]),
                          ("delay", schedule.delay()[used, 0]), ("arrived", schedule.arrived[used, 0]),
                          ("applied", schedule.applied[schedule.update[used, 0], 0])):  # fmt: skip
        np.testing.assert_array_equal(getattr(history, field), values)


def _pairs(values):
    return values[:-1], values[1:]


def test_batches_are_asked_for_by_the_number_among_used_gradients():
    schedule = with_backups(8)
    assert schedule.dropped().any()
    numbered = lambda params, number: (params, {"number": number})
    for mode in ("event", "wave"):
        history = run(schedule, SGD, Task(numbered, jnp.ones(3)), lambda number: number, mode=mode).history
        np.testing.assert_array_equal(history.aux["number"], np.arange(schedule.used().sum()))
        np.testing.assert_array_equal(history.gradient, np.flatnonzero(schedule.used()))
        np.testing.assert_array_equal(history.gradient, lower(schedule).gradient)


def test_any_optax_transform_is_a_rule():
    lifted, plain = (
        small(heterogeneous(20), rule=rule) for rule in (rules.server_rule(optax.adam(0.1)), optax.adam(0.1))
    )
    assert_close(lifted.params, plain.params, 0.0)


def test_synchronous_is_large_batch_sgd():
    workers, updates, net = 4, 5, network("mlp")
    schedule = protocols.synchronous(np.random.default_rng(0).uniform(1, 2, (updates, workers)))
    tx = optax.sgd(0.05, momentum=0.9, nesterov=True)
    result = run(schedule, rules.server_rule(tx), net, batches())
    params, state, losses = net.params, tx.init(net.params), []
    for update in range(updates):
        parts = [batches()(row) for row in range(update * workers, (update + 1) * workers)]
        grads, aux = net.grad_fn(params, jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *parts))
        step, state = tx.update(grads, state, params)
        params = optax.apply_updates(params, step)
        losses.append(aux["loss"])
    assert_close(result.params, params, 1e-12)
    means = result.history.aux["loss"].reshape(updates, workers).mean(axis=1)
    np.testing.assert_allclose(means, np.array(losses), rtol=1e-12)


# A parabola with a minimum of its own for each gradient: small enough to compile in no time.
def parabola(params, target):
    return params - target, {"loss": 0.5 * jnp.sum((params - target) ** 2), "residual": params - target}


def target(number):
    return jnp.arange(3.0) + number


def evaluated(params, stats):
    assert stats is None
    return {"sum": params.sum()}


SGD = rules.asgd(learning_rate=0.25)


def small(schedule, *, rule=SGD, params=None, stats=None, fold=None, **options) -> Result:
    task = Task(parabola, jnp.ones(3) if params is None else params, stats=stats, fold=fold)
    return run(schedule, rule, task, target, **options)


class TestWatch:
    @pytest.mark.covering
    @pytest.mark.parametrize("mode", ["event", "wave"])
    @pytest.mark.parametrize("every", [None, 1, 4, 1000])
    @pytest.mark.parametrize("kind", ["asynchronous", "backup_workers", "softsync"])
    def test_evaluations(self, mode, every, kind):
        schedule, decay, reported = SCHEDULES[kind](20), 0.5, []
        expected = naive(schedule, SGD, parabola, jnp.ones(3), target, decay=decay)
        watch = Watch(every=every, evaluate=evaluated, report=reported.append, average_decay=decay, norms=True)
        history = small(schedule, mode=mode, watch=watch).history
        evaluations = history.evaluations
        assert [so_far.evaluations[-1] for so_far in reported] == evaluations
        for so_far in reported:  # what is known in the middle of a run stays as it is
            before = history.first(so_far.evaluations[-1]["gradients"])
            assert len(before.delay) == so_far.evaluations[-1]["gradients"]
            jax.tree.map(np.testing.assert_array_equal, dataclasses.asdict(so_far), dataclasses.asdict(before))
        used = int(schedule.used().sum())
        ends = np.cumsum(np.bincount(schedule.update[schedule.used()])).tolist()
        wanted = [*range(every, used, every), used] if every else [used]
        gradients = [0, *sorted({min(end for end in ends if end >= number) for number in wanted})]
        assert [values["gradients"] for values in evaluations] == gradients
        for values in evaluations:
            updates = values["updates"]
            assert updates == sum(end <= values["gradients"] for end in ends)
            assert values["seconds"] == (schedule.applied[updates - 1, 0] if updates else 0)
            assert values["sum"] == pytest.approx(float(expected["versions"][updates].sum()), rel=1e-12)
            assert values["average_sum"] == pytest.approx(float(expected["averages"][updates].sum()), rel=1e-12)
            assert all(isinstance(value, int | float) for value in values.values())

    def test_report_comes_during_the_run(self):
        """A report that raises stops the run: it was called before the end."""
        seen = []

        def report(history):
            values = history.evaluations[-1]
            seen.append(values["gradients"])
            if values["gradients"] >= 8:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            small(heterogeneous(20), watch=Watch(every=4, evaluate=evaluated, report=report))
        assert seen == [0, 4, 8]

    def test_nothing_is_kept_unasked(self):
        result = small(heterogeneous(20))
        history = result.history
        assert (result.average, result.average_stats, result.stats, result.nodes, result.center) == (None,) * 5
        assert (history.distance, history.step, history.norm) == (None,) * 3
        assert result.history.evaluations == []
        assert result.history.aux["residual"] is None  # only scalars are recorded

    @pytest.mark.parametrize("decay", [0.0, 0.25, 0.99])
    def test_polyak_average(self, decay):
        schedule = heterogeneous(20)
        expected = naive(schedule, SGD, parabola, jnp.ones(3), target, decay=decay)["averages"][-1]
        result = small(schedule, watch=Watch(average_decay=decay))
        assert_close(result.average, expected, 1e-12)

    @pytest.mark.parametrize("mode", ["event", "wave"])
    @pytest.mark.parametrize("kind", ["asynchronous", "softsync"])
    def test_average_is_evaluated_with_averaged_statistics(self, mode, kind):
        schedule, decay = SCHEDULES[kind](20), 0.75
        given = {"stats": jnp.ones(3), "fold": lambda stats, aux: 0.5 * stats + aux["residual"]}
        expected = naive(schedule, SGD, parabola, jnp.ones(3), target, decay=decay, **given)
        sums = lambda params, stats: {"params": params.sum(), "stats": stats.sum()}
        watch = Watch(every=3, evaluate=sums, average_decay=decay)
        result = small(schedule, mode=mode, watch=watch, **given)
        assert len(result.history.evaluations) > 4
        for values in result.history.evaluations:
            updates = values["updates"]
            for name, kept in (("average_params", "averages"), ("average_stats", "average_stats")):
                assert values[name] == pytest.approx(float(expected[kept][updates].sum()), rel=1e-12)
        assert_close(result.average_stats, expected["average_stats"][-1], 1e-12)

    def test_changes_nothing(self):
        plain, watched = (
            small(heterogeneous(20), watch=watch)
            for watch in (None, Watch(every=3, evaluate=evaluated, average_decay=0.5, norms=True))
        )
        assert_close(watched.params, plain.params, 1e-15)
        assert_close(watched.history.aux["loss"], plain.history.aux["loss"], 1e-15)


class TestMode:
    def test_processor_replays_events(self, monkeypatch):
        seen, advance = [], server_engine.advance
        monkeypatch.setattr(
            server_engine, "advance", lambda *a, mode: seen.append(mode.width > 0) or advance(*a, mode=mode)
        )
        small(heterogeneous(20))
        small(heterogeneous(20), mode="wave")
        assert seen == [False, True]


@pytest.mark.parametrize("mode", ["event", "wave"])
class TestCallersArrays:
    def test_are_still_there(self, mode):
        params, schedule = jnp.ones(3), heterogeneous(20)
        first = small(schedule, params=params, mode=mode)
        np.testing.assert_array_equal(params, np.ones(3))
        assert_close(small(schedule, params=params, mode=mode).params, first.params, 0.0)

    def test_statistics_and_average_too(self, mode):
        params, stats = jnp.ones(3), jnp.zeros(3)
        fold = lambda stats, aux: 0.9 * stats + aux["residual"]
        watch = Watch(average_decay=0.0)  # then the average is the parameters
        result = small(heterogeneous(20), params=params, mode=mode, stats=stats, fold=fold, watch=watch)
        np.testing.assert_array_equal(stats, np.zeros(3))
        np.testing.assert_array_equal(params, np.ones(3))
        assert_close(result.average, result.params, 1e-15)
        assert abs(result.stats).max() > 0

    def test_rule_that_keeps_the_initial_parameters(self, mode):
        params = jnp.ones(3)
        rule = rules.server_rule(optax.contrib.schedule_free_sgd(0.1))
        small(protocols.synchronous(np.ones((4, 2))), rule=rule, params=params, mode=mode)
        np.testing.assert_array_equal(params, np.ones(3))

    def test_numpy_arrays_will_do(self, mode):
        schedule = heterogeneous(20)
        assert_close(small(schedule, params=np.ones(3), mode=mode).params, small(schedule, mode=mode).params, 0.0)


class TestErrors:
    @pytest.mark.parametrize("mode", ["events", "", 1])
    def test_mode(self, mode):
        with pytest.raises(ValueError, match=rf"mode={mode!r} must be 'event', 'wave' or None"):
            small(heterogeneous(20), mode=mode)

    def test_mesh_in_event_mode(self):
        mesh = jax.make_mesh((2,), ("lane",), axis_types=(jax.sharding.AxisType.Auto,), devices=jax.devices()[:2])
        with pytest.raises(ValueError, match=r"mode='event' .* a mesh shards waves"):
            small(heterogeneous(20), mode="event", mesh=mesh)

    def test_layout(self):
        with pytest.raises(ValueError, match=r"layout='lane' must be"):
            small(heterogeneous(20), layout="lane")

    @pytest.mark.parametrize("given", [{"stats": np.zeros(3)}, {"fold": lambda stats, aux: stats}])
    def test_stats_and_fold_go_together(self, given):
        with pytest.raises(ValueError, match="stats and fold must be given together"):
            small(heterogeneous(20), **given)

    @pytest.mark.parametrize("decay", [-0.1, 1.0, 1.5, float("nan")])
    def test_average_decay(self, decay):
        with pytest.raises(ValueError, match=rf"average_decay={decay} must be at least 0 and below 1"):
            small(heterogeneous(20), watch=Watch(average_decay=decay))

    @pytest.mark.parametrize("every", [0, -1])
    def test_every(self, every):
        with pytest.raises(ValueError, match=rf"every={every} must be a whole number of at least 1"):
            small(heterogeneous(20), watch=Watch(every=every))

    @pytest.mark.parametrize("lowered", [lambda schedule: schedule, lower])
    def test_rule_for_fewer_workers(self, lowered):
        rule = rules.dana(learning_rate=0.1, num_workers=4)
        with pytest.raises(ValueError, match="num_workers=4, but schedule has 5 workers"):
            small(lowered(heterogeneous(20)), rule=rule)

    def test_rule_that_needs_the_sender_of_an_update(self):
        rule = rules.dana(learning_rate=0.1, num_workers=5)
        with pytest.raises(ValueError, match="schedules with one gradient per update"):
            small(softsync(20), rule=rule)

    def test_check_rule(self):
        """Before anything is compiled, of schedules and of programs; what fits is let through."""
        several, one = softsync(20), heterogeneous(20)
        dana = lambda workers: rules.dana(learning_rate=0.1, num_workers=workers)
        for fits in (SGD, optax.adam(0.1)):
            for schedule in (several, one):
                check_rule(schedule, fits)
                check_rule(lower(schedule), fits)
        check_rule(one, dana(5))
        check_rule(lower(one), dana(8))
        for schedule in (several, lower(several)):
            with pytest.raises(ValueError, match="schedules with one gradient per update"):
                check_rule(schedule, dana(5))
        for schedule in (one, lower(one)):
            with pytest.raises(ValueError, match="num_workers=4, but schedule has 5 workers"):
                check_rule(schedule, dana(4))

    def test_scale_of_steps_is_for_peers(self):
        with pytest.raises(ValueError, match="step_scale must be left out"):
            small(heterogeneous(20), step_scale=np.ones(20))

    def test_nothing_to_replay(self):
        nothing = Schedule([0], [[0]], [[-1]], [0], [[1]], np.zeros((0, 1)), num_workers=1)
        with pytest.raises(ValueError, match="no gradient that enters an update"):
            small(nothing)


def another_function(number):
    return batches()(number)


@pytest.mark.parametrize("mode", ["event", "wave"])
class TestCompilesOnce:
    def rule(self, rate):
        return rules.staleness_aware(learning_rate=rate, momentum=1 - rate, weight_decay=rate / 10)

    def run(self, schedule, mode, rate, order):
        net = network("mlp")
        watch = Watch(every=20, evaluate=functools.partial(net.evaluate, batch=examples(1)), average_decay=1 - rate)
        return run(schedule, self.rule(rate), net, batches(order), mode=mode, watch=watch)

    def test_another_seed_rate_and_order(self, mode, compilations):
        first, second = heterogeneous(50, seed=0), heterogeneous(64, seed=4)
        assert lower(first).capacity == lower(second).capacity
        before = self.run(first, mode, 0.05, 0)
        assert len(compilations) > 0  # the counter counts
        compilations.clear()
        after = self.run(second, mode, 0.02, 1)
        assert compilations == []
        assert before.history.aux["loss"][0] != after.history.aux["loss"][0]

    def test_another_number_of_workers(self, mode, compilations):
        several, two = heterogeneous(64, num_workers=7), heterogeneous(40, num_workers=2)
        program = lower(several, every=20)
        self.run(program, mode, 0.05, 0)
        assert lower(two).capacity != program.capacity
        compilations.clear()
        self.run(lower(two, capacity=program.capacity, every=20, width=program.capacity.width), mode, 0.05, 0)
        assert compilations == []

    def test_another_function_is_another_program(self, mode, compilations):
        schedule, net = heterogeneous(20), network("mlp")
        run(schedule, SGD, net, batches(), mode=mode)
        compilations.clear()
        run(schedule, SGD, net, another_function, mode=mode)
        assert len(compilations) > 0
