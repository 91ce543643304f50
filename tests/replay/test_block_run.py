"""`run` of several blocks, in both modes, is the replay of `naive_blocks.py`, which keeps all and orders nothing.

The rules are those of `tests/lib/naive.py`, in NumPy; the network is differentiated by JAX here and by hand there.
Records of each gradient and each update are compared, so that no step can differ; programs share compilations,
since the capacity is fixed and all else is data.
"""

import functools

import hypothesis
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import strategies as st
from lib import naive
from lib.replay_cases import (
    any_blocks,
    batches,
    block_schedules,
    layers,
    network,
    opposite,
    partly,
    seeded,
)
from lib.tiers import examples
from naive_blocks import Blocks

from sgdlab import Schedule, protocols, rules
from sgdlab.replay import Capacity, Watch, lower, partition, run
from sgdlab.tasks import Task

WORKERS, BLOCKS, DECAY = 5, 3, 0.75
WIDTH = 8
CAPACITY = Capacity(rows=64, slots=16, width=WIDTH, workers=8, kept=16)
MODES = ("event", "wave")
both_modes = pytest.mark.parametrize("mode", MODES)

# A network of four arrays; a gradient depends on every block.
_random = np.random.default_rng(0)
INPUTS, TARGETS = _random.normal(size=(256, 2, 5)), _random.normal(size=(256, 2))
START = {
    "bias": _random.normal(size=4),
    "kernel": _random.normal(size=(5, 4)),
    "out": _random.normal(size=4),
    "scale": np.float64(_random.normal()),
}
LEAVES = tuple(START.values())


def grad_fn(params, batch):
    inputs, targets = batch

    def loss(params):
        hidden = jnp.tanh(inputs @ params["kernel"] + params["bias"])
        return jnp.sum((params["scale"] * hidden @ params["out"] - targets) ** 2) / 2

    value, grads = jax.value_and_grad(loss)(params)
    return grads, {"loss": value}


def batch_fn(number):
    return jnp.asarray(INPUTS)[number], jnp.asarray(TARGETS)[number]


def flat(tree):
    """All parameters as one vector."""
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)])


def by_hand(theta, number):
    """(gradient, aux) as `grad_fn`, of a vector."""
    cuts = np.split(theta, np.cumsum([leaf.size for leaf in LEAVES])[:-1])
    bias, kernel, out, scale = (part.reshape(leaf.shape) for part, leaf in zip(cuts, LEAVES, strict=True))
    hidden = np.tanh(INPUTS[number] @ kernel + bias)
    missed = scale * hidden @ out - TARGETS[number]
    inside = scale * missed[:, None] * out * (1 - hidden**2)
    grads = inside.sum(axis=0), INPUTS[number].T @ inside, scale * hidden.T @ missed, missed @ hidden @ out
    return np.concatenate([np.ravel(part) for part in grads]), {"loss": (missed**2).sum() / 2}


RULES = {
    "asgd": (
        rules.asgd(learning_rate=0.02, momentum=0.5),
        lambda theta: naive.Asgd(theta, eta=0.02, gamma=0.5),
    ),
    "nag": (
        rules.nag_asgd(learning_rate=0.01, weight_decay=0.05),
        lambda theta: naive.Asgd(theta, eta=0.01, gamma=0.9, nesterov=True, weight_decay=0.05),
    ),
    "gap_aware": (
        rules.gap_aware(learning_rate=0.02),
        lambda theta: naive.GapAware(theta, eta=0.02, gamma=0.9, nesterov=True),
    ),
    "dana": (
        rules.dana(learning_rate=0.01, momentum=0.7, num_workers=WORKERS),
        lambda theta: naive.Dana(theta, eta=0.01, gamma=0.7, num_workers=WORKERS),
    ),
    "adam": (rules.adam(learning_rate=0.01), lambda theta: naive.Adam(theta, eta=0.01)),
    "staleness_aware": (
        rules.staleness_aware(learning_rate=0.02),
        lambda theta: naive.StalenessAware(theta, eta=0.02, gamma=0.9, nesterov=True),
    ),
}


def sizes(params, num_blocks):
    """Return how many parameters each block has."""
    return [sum(array.size for array in block) for block in partition(params, num_blocks).split(params)]


def evaluated(params, stats):
    """Everything, as one number each."""
    return {f"{index}": value for index, value in enumerate(jnp.concatenate([jnp.ravel(x) for x in params.values()]))}


def replayed(schedule, rule, *, mode, every=None, evaluate=None):
    program = lower(schedule, every=every, capacity=CAPACITY, width=WIDTH)
    assert program.capacity == CAPACITY  # else every schedule would compile anew
    watch = Watch(every=every, evaluate=evaluate, average_decay=DECAY, norms=True)
    return run(program, rule, Task(grad_fn, START), batch_fn, mode=mode, watch=watch)


def by_naive(schedule, server):
    return Blocks(schedule, server, by_hand, flat(START), sizes(START, schedule.num_blocks), decay=DECAY)


def near(given, expected, tolerance):
    """To a share of the largest number."""
    expected = np.asarray(expected)
    largest = np.nanmax(np.abs(expected), initial=0)
    np.testing.assert_allclose(given, expected, rtol=0, atol=tolerance * largest)


def assert_same(schedule, rule, mode, *, tolerance=1e-12, expected=None):
    expected = expected or by_naive(schedule, RULES[rule][1])
    result = replayed(schedule, RULES[rule][0], mode=mode)
    history, used = result.history, schedule.used()[expected.used]
    start, average, _ = expected.after(len(expected.used))
    np.testing.assert_array_equal(start, expected.params)
    assert not np.array_equal(expected.params, flat(START))
    near(flat(result.params), expected.params, tolerance)
    near(flat(result.average), average, tolerance)
    near(history.aux["loss"], [expected.aux[row]["loss"] for row in expected.used], tolerance)
    near(history.norm, [np.linalg.norm(expected.gradients[row]) for row in expected.used], tolerance)
    # Differences of parameters: to the parameters' precision.
    size = np.abs(expected.params).max()
    for name in ("distance", "step"):
        given, wanted = getattr(history, name), getattr(expected, name)[expected.used]
        assert given.shape == used.shape
        assert (np.isfinite(wanted) == used).all()
        np.testing.assert_allclose(given[used], wanted[used], rtol=tolerance, atol=10 * tolerance * size)
    assert len(result.state) == schedule.num_blocks
    return result, expected


SCHEDULES = {
    "partial": lambda: partly(8, num_workers=4, push_at_least=3, push_timeout=0.5, pull_timeout=0.3),
    "anything": lambda: any_blocks(seeded(5), 30, WORKERS, BLOCKS),
}
SINGLE = {
    "partial, one is enough": lambda: partly(8, num_workers=4, pull_at_least=1, push_at_least=1, keep_newer=True),
    "opposite": lambda: opposite(40, BLOCKS, num_workers=WORKERS),
    **{
        f"layers, {reads}, {pushes}": functools.partial(layers, 40, reads, pushes)
        for reads in ("start", "forward")
        for pushes in ("end", "backward")
    },
}


class TestIsTheNaiveReplay:
    @pytest.mark.covering
    @both_modes
    @pytest.mark.parametrize("rule", ["asgd", "nag", "adam", "staleness_aware"])
    def test_updates_of_several_gradients(self, rule, mode):
        for schedule in (make() for make in SCHEDULES.values()):
            assert_same(schedule, rule, mode)

    @pytest.mark.covering
    @both_modes
    @pytest.mark.parametrize("rule", ["asgd", "dana"])
    def test_updates_of_one_gradient(self, rule, mode):
        for schedule in (make() for make in SINGLE.values()):
            assert_same(schedule, rule, mode)

    @pytest.mark.sample(1)
    @both_modes
    def test_gap_aware(self, mode):
        # The parameter-wise gap amplifies any rounding from gradient to gradient: short runs.
        short = [partly(4, num_workers=4, push_at_least=3), any_blocks(seeded(3), 14, WORKERS, BLOCKS)]
        for schedule in short:
            assert schedule.staleness().max() > 0
            assert_same(schedule, "gap_aware", mode)

    @pytest.mark.parametrize(("num_servers", "mode"), [(2, "event"), (6, "wave")])
    def test_numbers_of_servers(self, num_servers, mode):
        schedule = partly(6, num_servers=num_servers, push_at_least=3, pull_timeout=0.5)
        assert_same(schedule, "asgd", mode)

    @hypothesis.settings(derandomize=True, deadline=None, max_examples=examples(50), database=None)
    @hypothesis.given(case=block_schedules(BLOCKS), mode=st.sampled_from(MODES))
    def test_any_schedule(self, case, mode):
        assert_same(case[1], "asgd", mode)

    def test_the_schedules_are_what_they_should_be(self):
        programs = {name: lower(make()) for name, make in (SCHEDULES | SINGLE).items()}
        schedules = {name: make() for name, make in (SCHEDULES | SINGLE).items()}
        assert {name for name, program in programs.items() if program.aligned} == {
            "layers, start, end",
            "layers, forward, end",
        }
        assert {name for name, program in programs.items() if program.single} == {*SINGLE}
        assert all((schedules[name].read != schedules[name].read[:, :1]).any() for name in SCHEDULES)
        for name in ("partial", "anything"):
            assert (schedules[name].dropped().any(axis=1) & schedules[name].used().any(axis=1)).any()
        for name in ("anything", "opposite", "layers, start, backward"):
            assert programs[name].kept.max() > 0
        assert len({*map(tuple, programs["opposite"].row.T)}) == 2
        updates = np.isfinite(schedules["anything"].applied).sum(axis=0)
        assert len({*updates.tolist()}) == BLOCKS

    @pytest.mark.parametrize("change", ["read", "order"])
    def test_the_comparison_can_fail(self, change):
        """Another version of one block, or another order in one block, shows."""
        schedule = opposite(8, 2, size=2)
        fields = {name: getattr(schedule, name) for name in ("worker", "started", "arrived", "applied", "num_workers")}
        read, update = schedule.read.copy(), schedule.update.copy()
        if change == "read":
            row = np.flatnonzero(read[:, 1] > 0)[0]
            read[row, 1] -= 1
        else:
            update[:2, 1] = update[1::-1, 1]
        expected = by_naive(Schedule(read=read, update=update, **fields), RULES["asgd"][1])
        with pytest.raises(AssertionError):
            assert_same(schedule, "asgd", "event", expected=expected)


class TestHistory:
    @both_modes
    def test_says_what_the_schedule_says(self, mode):
        schedule = SCHEDULES["anything"]()
        history = replayed(schedule, RULES["asgd"][0], mode=mode).history
        rows = np.flatnonzero([any(update >= 0 for update in row) for row in schedule.update])
        np.testing.assert_array_equal(history.gradient, rows)
        for name in ("worker", "update", "arrived"):
            np.testing.assert_array_equal(getattr(history, name), getattr(schedule, name)[rows])
        assert history.update.shape == (len(rows), BLOCKS)
        assert (history.update < 0).any()
        for index, row in enumerate(rows):
            for block, update in enumerate(schedule.update[row]):
                if update >= 0:
                    assert history.delay[index, block] == update - schedule.read[row, block] + 1
                    assert history.applied[index, block] == schedule.applied[update, block]
                else:
                    assert np.isnan([history.delay[index, block], history.applied[index, block]]).all()

    @both_modes
    @pytest.mark.parametrize("name", ["distance", "step"])
    def test_norms_where_a_block_did_not_use_a_gradient(self, name, mode):
        schedule = SCHEDULES["anything"]()
        history = replayed(schedule, RULES["asgd"][0], mode=mode).history
        np.testing.assert_array_equal(np.isnan(getattr(history, name)), history.update < 0)


class TestWatch:
    @pytest.mark.covering
    @both_modes
    @pytest.mark.parametrize("every", [1, 7, 1000])
    def test_evaluations(self, every, mode):
        """Parameters, average and counts of an evaluation are those of the updates that are complete."""
        schedules = (SCHEDULES["anything"](), SCHEDULES["partial"](), SINGLE["layers, start, backward"]())
        for schedule in schedules:
            expected = by_naive(schedule, RULES["asgd"][1])
            result = replayed(schedule, RULES["asgd"][0], mode=mode, every=every, evaluate=evaluated)
            used = len(expected.used)
            wanted = [0, *range(every, used, every), used]
            assert [values["gradients"] for values in result.history.evaluations] == wanted
            for values in result.history.evaluations:
                params, average, _ = expected.after(values["gradients"])
                near([values[f"{index}"] for index in range(params.size)], params, 1e-12)
                near([values[f"average_{index}"] for index in range(params.size)], average, 1e-12)

    @both_modes
    @pytest.mark.parametrize("name", ["layers, start, end", "anything", "partial", "layers, start, backward"])
    def test_updates_and_seconds(self, name, mode):
        """Of the block that has made most updates; the time of the last one that any block has made."""
        schedule = (SCHEDULES | SINGLE)[name]()
        expected = by_naive(schedule, RULES["asgd"][1])
        result = replayed(schedule, RULES["asgd"][0], mode=mode, every=1, evaluate=evaluated)
        for values in result.history.evaluations:
            counts = expected.after(values["gradients"])[2]
            assert values["updates"] == max(counts)
            times = [schedule.applied[count - 1, block] for block, count in enumerate(counts) if count]
            assert values["seconds"] == max(times, default=0)

    @both_modes
    def test_watching_changes_nothing(self, mode):
        schedule = SCHEDULES["anything"]()
        watched = replayed(schedule, RULES["asgd"][0], mode=mode, every=7, evaluate=evaluated)
        plain = run(lower(schedule, capacity=CAPACITY), RULES["asgd"][0], Task(grad_fn, START), batch_fn, mode=mode)
        near(flat(plain.params), flat(watched.params), 1e-14)
        history = plain.history
        assert (plain.average, plain.stats, history.distance, history.step) == (None,) * 4
        assert history.evaluations == []


@pytest.mark.sample(1)
class TestLearningRates:
    RATES = 0.03 / np.arange(1.0, 41.0)

    @both_modes
    def test_each_block_counts_its_own_updates(self, mode):
        rates = self.RATES
        rule = rules.asgd(learning_rate=rules.tabulated(rates), momentum=0.5)
        server = lambda theta: naive.Asgd(theta, eta=lambda count: rates[min(count, len(rates) - 1)], gamma=0.5)
        schedule = SCHEDULES["anything"]()
        near(flat(replayed(schedule, rule, mode=mode).params), by_naive(schedule, server).params, 1e-12)

    @both_modes
    def test_sum_of_rates(self, mode):
        """Move a block, where every gradient is 1, by the sum of the rates of the updates that it has made."""
        schedule = SCHEDULES["anything"]()
        rule = rules.asgd(learning_rate=rules.tabulated(self.RATES))
        params = {"a": jnp.zeros(6), "b": jnp.zeros((3, 2)), "c": jnp.zeros(5)}
        ones = lambda params, batch: (jax.tree.map(jnp.ones_like, params), {})
        result = run(lower(schedule, capacity=CAPACITY), rule, Task(ones, params), batch_fn, mode=mode)
        updates = np.isfinite(schedule.applied).sum(axis=0)
        assert len({*updates.tolist()}) == BLOCKS
        moved = [np.full(size, -self.RATES[:n].sum()) for size, n in zip(sizes(params, BLOCKS), updates, strict=True)]
        near(flat(result.params), np.concatenate(moved), 1e-14)


@pytest.mark.sample(1)
class TestStatistics:
    @both_modes
    def test_batch_norm(self, mode):
        net, schedule = network("batch_norm"), any_blocks(seeded(4), 16, WORKERS, BLOCKS)
        assert lower(schedule).num_rows > 12
        shapes = [leaf.shape for leaf in jax.tree.leaves(net.params)]
        structure, compiled = jax.tree.structure(net.params), jax.jit(net.grad_fn)

        def gradient(theta, number):
            parts = np.split(theta, np.cumsum([int(np.prod(shape)) for shape in shapes])[:-1])
            leaves = [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)]
            grads, aux = compiled(jax.tree.unflatten(structure, leaves), batches()(number))
            return flat(grads), aux

        expected = Blocks(schedule, RULES["asgd"][1], gradient, flat(net.params), sizes(net.params, BLOCKS))
        stats = average = net.stats
        for row in expected.used:
            stats = net.fold(stats, expected.aux[row])
            # The average moves with each update of the first block that the gradient allows.
            for _ in range(expected.num_updates(0, row), expected.num_updates(0, row + 1)):
                average = jax.tree.map(lambda a, s: DECAY * a + (1 - DECAY) * s, average, stats)
        program = lower(schedule, capacity=CAPACITY)
        result = run(
            program, RULES["asgd"][0], net, batches(), mode=mode,
            watch=Watch(average_decay=DECAY),
        )  # fmt: skip
        jax.tree.map(functools.partial(near, tolerance=1e-12), result.average_stats, average)
        near(flat(result.params), expected.params, 1e-12)
        jax.tree.map(functools.partial(near, tolerance=1e-12), result.stats, stats)
        assert any((a != b).any() for a, b in zip(*map(jax.tree.leaves, (stats, net.stats)), strict=True))

    @both_modes
    def test_are_folded_once_for_each_used_gradient_in_the_order_of_rows(self, mode):
        """A fold that does not commute, on a schedule whose blocks use gradients in other orders."""
        schedule = SCHEDULES["anything"]()
        numbered = lambda params, batch: (params, {"number": batch})
        fold = lambda stats, aux: {"sum": 0.5 * stats["sum"] + aux["number"], "count": stats["count"] + 1}
        result = run(
            lower(schedule, capacity=CAPACITY),
            rules.asgd(learning_rate=0.1),
            Task(
                numbered,
                {"a": jnp.ones(3), "b": jnp.ones(3), "c": jnp.ones(3)},
                stats={"sum": jnp.zeros([]), "count": jnp.zeros([], int)},
                fold=fold,
            ),
            lambda number: number.astype(float),
            mode=mode,
        )
        numbers = np.arange(schedule.used().any(axis=1).sum())
        near(result.stats["sum"], (numbers * 0.5 ** numbers[::-1]).sum(), 1e-14)
        assert result.stats["count"] == len(numbers)


class TestEqualColumns:
    """Layers that are read and pushed together are one block, for rules that act on each parameter alone."""

    @pytest.mark.sample(2)
    @pytest.mark.parametrize(
        ("rule", "mode"), [("dana", "event"), ("gap_aware", "event"), ("nag", "wave"), ("adam", "wave")]
    )
    def test_are_one_block(self, rule, mode):
        runtimes = np.random.default_rng(0).uniform(1, 4, (40, WORKERS))
        count = 12 if rule == "gap_aware" else 40
        one, three = (
            protocols.layerwise(runtimes, num_gradients=count, num_blocks=blocks, pushes="end")
            for blocks in (1, BLOCKS)
        )
        assert lower(three).aligned
        for name in ("read", "update", "arrived"):
            np.testing.assert_array_equal(getattr(three, name), np.repeat(getattr(one, name), BLOCKS, axis=1))
        single = run(
            lower(one, capacity=Capacity(64, 16, WIDTH), width=WIDTH), RULES[rule][0], Task(grad_fn, START), batch_fn,
            mode=mode, watch=Watch(average_decay=DECAY, norms=True),
        )  # fmt: skip
        several = replayed(three, RULES[rule][0], mode=mode)
        near(flat(several.params), flat(single.params), 1e-12)
        near(flat(several.average), flat(single.average), 1e-12)
        near(several.history.aux["loss"], single.history.aux["loss"], 1e-12)
        for name in ("distance", "step"):
            whole = np.sqrt((getattr(several.history, name) ** 2).sum(axis=1))
            near(whole, getattr(single.history, name), 1e-11)


@both_modes
class TestCompilesOnce:
    def run(self, schedule, mode, rate, capacity):
        rule = rules.adam(learning_rate=rate, b1=1 - rate)
        watch = Watch(every=5, evaluate=evaluated, average_decay=1 - rate)
        program = lower(schedule, every=5, capacity=capacity, width=capacity.width)
        assert program.capacity == capacity
        return run(program, rule, Task(grad_fn, START), batch_fn, mode=mode, watch=watch)

    def test_another_seed_and_rate(self, mode, compilations):
        # A capacity of its own, so that no other test has compiled this before.
        capacity = Capacity(rows=64, slots=32, width=4, workers=8, kept=16)
        first, second = any_blocks(seeded(6), 30, WORKERS, BLOCKS), any_blocks(seeded(7), 22, 3, BLOCKS)
        before = self.run(first, mode, 0.05, capacity)
        assert len(compilations) > 0  # the counter counts
        compilations.clear()
        after = self.run(second, mode, 0.02, capacity)
        self.run(partly(6), mode, 0.02, capacity)
        assert compilations == []
        assert before.history.aux["loss"].shape != after.history.aux["loss"].shape


class TestErrors:
    def test_more_blocks_than_parameters_can_be_cut_into(self):
        with pytest.raises(ValueError, match=r"num_blocks=3 must be at most 2"):
            run(opposite(4, 3), rules.asgd(learning_rate=0.1), Task(grad_fn, jnp.ones(2)), batch_fn)

    def test_rule_that_needs_the_sender_of_an_update(self):
        schedule = SCHEDULES["anything"]()
        with pytest.raises(ValueError, match="schedules with one gradient per update"):
            run(schedule, RULES["dana"][0], Task(grad_fn, START), batch_fn)

    def test_a_look_comes_too_late_for_a_program(self):
        with pytest.raises(ValueError, match="every=3 differs from the every=None"):
            run(lower(opposite(4, 3)), RULES["asgd"][0], Task(grad_fn, START), batch_fn, watch=Watch(every=3))
