"""`Steps` and `Gradients`, fed by a schedule event by event, are replay's event mode, to 1e-12 in float64.

Compared are parameters, the state of the rule, running statistics, Polyak averages and losses. In the middle of a run,
inside an open update, the server goes on as another object, from a snapshot that was written to a file.
"""

import functools
import io

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

from sgdlab import data, policies, protocols, replay, rules, tasks
from sgdlab.live.gradients import Gradients
from sgdlab.live.work import Work
from sgdlab.tasks import Task

WORKERS, TICKETS, BATCH_SIZE = 4, 64, 8
RUNTIMES = np.random.default_rng(1).uniform(1, 3, (8, WORKERS))
SCHEDULES = {
    "asynchronous": lambda: protocols.asynchronous(RUNTIMES, num_gradients=25),
    "synchronous": lambda: protocols.synchronous(RUNTIMES),
    "backup_workers": lambda: protocols.backup_workers(RUNTIMES, backups=1),
    "timeout": lambda: protocols.timeout(RUNTIMES, at_least=2, seconds=0.4),
    "softsync": lambda: protocols.softsync(RUNTIMES, gradients_per_update=3, num_gradients=24),
    "ringleader": lambda: policies.simulate(policies.ringleader, RUNTIMES, num_gradients=25),
}
RULES = {
    "asgd": lambda: rules.asgd(learning_rate=0.05, momentum=0.9, weight_decay=1e-2),
    "nag_asgd": lambda: rules.nag_asgd(learning_rate=0.02, weight_decay=1e-2),
    "staleness_aware": lambda: rules.staleness_aware(learning_rate=0.05, weight_decay=1e-2),
    "gap_aware": lambda: rules.gap_aware(learning_rate=0.02),
    "dana": lambda: rules.dana(learning_rate=0.02, num_workers=WORKERS, weight_decay=1e-2),
    "adam": lambda: rules.adam(learning_rate=0.003),
    "optax adam": lambda: optax.adam(0.003),
    "ringleader": lambda: rules.ringleader(learning_rate=0.05, num_workers=WORKERS, weight_decay=1e-2),
    "aced": lambda: rules.aced(learning_rate=0.05, momentum=0.5, max_staleness=4, num_workers=WORKERS),
}


class Perceptron(tasks.NetworkTask):
    """Without a network: its gradients end with elementwise operations, which XLA would fuse with the rule's."""

    def __init__(self, dtype):
        draw = lambda *shape: jnp.asarray(np.random.default_rng(0).normal(0, 0.2, shape), dtype)
        params = {"hidden": draw(64, 8), "bias": draw(8), "out": draw(8, 10)}
        others = dict.fromkeys(("kind", "stats", "local", "fold", "sums", "finish", "outcomes"))
        super().__init__(params=params, grad_fn=_decayed, **others)


def _decayed(params, batch):
    def loss_fn(params):
        hidden = jnp.tanh(batch.inputs.reshape(-1, 64) @ params["hidden"] + params["bias"])
        nll = optax.softmax_cross_entropy_with_integer_labels(hidden @ params["out"], batch.targets).mean()
        return nll + 0.01 * optax.tree.norm(params, squared=True), nll

    grads, nll = jax.grad(loss_fn, has_aux=True)(params)
    return grads, {"loss": nll, "largest": nll.astype(jnp.int32)}


def _drawn(key, shape, dtype, **options):
    """By NumPy: JAX's random numbers are compiled for a second."""
    del key, options
    return jnp.asarray(np.random.default_rng(1).normal(0, np.prod(shape[:-1]) ** -0.5, shape), dtype)


class Convolution(nnx.Module):
    """Of `jax.lax.conv`, whose gradients XLA rounds otherwise inside of loops than outside, with running statistics."""

    def __init__(self, rngs, dtype):
        options = {"rngs": rngs, "param_dtype": dtype, "kernel_init": _drawn}
        self.first = nnx.Conv(1, 4, (3, 3), strides=2, **options)
        self.normalised = nnx.BatchNorm(4, rngs=rngs, param_dtype=dtype)
        # Statistics have the dtype of the parameters.
        for statistic in (self.normalised.mean, self.normalised.var):
            statistic.set_value(statistic[...].astype(dtype))
        self.second = nnx.Linear(64, 10, **options)

    def __call__(self, images):
        return self.second(nnx.relu(self.normalised(self.first(images))).reshape(images.shape[0], -1))


TASKS = {
    "perceptron": Perceptron,
    "convolution": lambda dtype: tasks.classification(Convolution(nnx.Rngs(0), dtype)),
}


@jax.tree_util.Partial
def clipped(grads):
    transform = optax.clip_by_global_norm(0.3)
    return transform.update(grads, transform.init(grads))[0]


def batches(dtype):
    """`batch_fn` of tickets: digits that are drawn for each ticket."""
    digits = data.digits().train
    order = np.random.default_rng(2).integers(0, len(digits.labels), (TICKETS, BATCH_SIZE), dtype=np.int32)
    images = np.asarray(digits.images).reshape(-1, 8, 8, 1) / 255
    return jax.tree_util.Partial(_batch, images.astype(dtype), np.asarray(digits.labels), order)


def _batch(images, labels, order, ticket):
    chosen = jnp.asarray(order)[ticket]
    return data.Batch(jnp.asarray(images)[chosen], jnp.asarray(labels)[chosen])


def _by_row(batch_fn, tickets, row):
    return batch_fn(jnp.asarray(tickets)[row])


def through_a_file(snapshot):
    file = io.BytesIO()
    np.savez(file, **snapshot)
    file.seek(0)
    return np.load(file, allow_pickle=False)


def fed(program, make_steps, gradients, tickets):
    """The server after all events of a program, and the losses of its gradients."""
    steps, losses = make_steps(), []
    steps.compile(gradients.aux)
    sent = {0: steps.sent()}
    for row in range(program.num_rows):
        read, update = int(program.read[row, 0]), int(program.update[row, 0])
        assert (steps.version, steps.single) == (update, program.single)
        params = jax.tree.map(np.array, sent[read])
        grads, aux = gradients.compute(int(tickets[row]), params, lambda: False)
        losses.append(aux["loss"])
        steps.receive(grads, aux, read=sent[read], worker=int(program.worker[row]), delay=update - read + 1.0)
        for leaf in jax.tree.leaves((grads, params)):
            if leaf.flags.writeable:
                leaf[...] = np.nan  # the memory of a transport, which it uses again
        if row == program.num_rows // 2:
            found, steps = steps, make_steps()
            steps.restore(through_a_file(found.snapshot()))
            assert jax.tree.all(jax.tree.map(np.array_equal, steps.sent(), found.sent()))
        if program.last[row, 0]:
            before = jax.tree.map(np.array, steps.sent())
            steps.close()
            assert jax.tree.all(jax.tree.map(np.array_equal, sent[update], before))  # and is still to be read
            sent[update + 1] = steps.sent()
    return steps, losses


@pytest.mark.covering
@pytest.mark.parametrize(
    ("task", "schedule", "rule", "micro_batches", "finish"),
    [
        ("convolution", "asynchronous", "nag_asgd", 1, None),
        ("convolution", "softsync", "asgd", 4, None),
        ("perceptron", "timeout", "gap_aware", 1, clipped),
        ("perceptron", "asynchronous", "dana", 1, None),
        ("perceptron", "asynchronous", "staleness_aware", 4, None),
        ("perceptron", "synchronous", "adam", 1, None),
        ("perceptron", "backup_workers", "optax adam", 4, None),
        ("perceptron", "ringleader", "ringleader", 1, None),
        ("perceptron", "asynchronous", "aced", 1, None),
    ],
)
def test_steps_are_event_mode(task, schedule, rule, micro_batches, finish):
    task, rule, batch_fn = TASKS[task](np.float64), RULES[rule](), batches(np.float64)
    program = replay.lower(SCHEDULES[schedule]())
    tickets = np.random.default_rng(3).permutation(TICKETS)[: program.num_rows].astype(np.int32)
    norms = micro_batches == 4 and finish is None  # what is recorded changes nothing
    watch = replay.Watch(average_decay=0.9, norms=norms)
    expected = replay.run(
        program,
        rule,
        Task(
            replay.in_micro_batches(task.grad_fn, micro_batches, finish), task.params, stats=task.stats, fold=task.fold
        ),
        jax.tree_util.Partial(_by_row, batch_fn, tickets),
        mode="event",
        watch=watch,
    )
    make_steps = lambda: replay.Steps(
        rule, task.params, single=program.single, stats=task.stats, fold=task.fold, average_decay=0.9
    )
    work = Work(task.params, task.grad_fn, batch_fn, micro_batches=micro_batches, finish=finish)
    steps, losses = fed(program, make_steps, Gradients(work), tickets)
    counts = np.bincount(program.update[:, 0])
    assert schedule != "timeout" or len(set(counts.tolist())) > 1
    close = functools.partial(np.testing.assert_allclose, rtol=1e-12, atol=1e-13)
    close(losses, expected.history.aux["loss"])
    for name in ("params", "state", "stats", "average", "average_stats"):
        found, wanted = getattr(steps, name), getattr(expected, name)
        assert jax.tree.structure(found) == jax.tree.structure(wanted)
        for path, leaf in jax.tree.leaves_with_path(wanted):
            other = dict(jax.tree.leaves_with_path(found))[path]
            assert leaf.dtype == other.dtype
            assert np.isfinite(leaf).all()
            close(other, leaf, err_msg=f"{name}{jax.tree_util.keystr(path)}")


class TestSteps:
    def test_the_mean_of_as_many_gradients_as_came(self):
        steps = replay.Steps(rules.asgd(learning_rate=1.0), np.zeros(2), single=False)
        for update in ([1.0], [2.0, 4.0], [3.0, 5.0, 10.0]):
            before = np.asarray(steps.params)
            for value in update:
                steps.receive(np.full(2, value), {}, read=steps.sent(), worker=0, delay=1.0)
            steps.close()
            np.testing.assert_array_equal(before - np.asarray(steps.params), np.full(2, np.mean(update)))
        assert steps.version == 3

    @pytest.mark.parametrize("single", [True, False])
    def test_nothing_is_compiled_after_compile(self, single, compilations):
        # A state that is weakly typed at first, and a server that has been restored.
        rule = optax.inject_hyperparams(optax.sgd)(learning_rate=0.5, momentum=0.9)
        make = lambda: replay.Steps(
            rule, np.zeros(3), single=single, stats=np.zeros([]), fold=lambda s, aux: s + aux, average_decay=0.5
        )
        steps, grads = make(), np.ones(3)
        steps.compile(jax.ShapeDtypeStruct((), np.float64))
        assert (steps.version, steps.params.tolist()) == (0, [0.0] * 3)
        before = len(compilations)
        for _ in range(3):
            steps.receive(grads, np.float64(1.0), read=steps.sent(), worker=1, delay=2.0)
            steps.restore(steps.snapshot())
            steps.close()
        found = steps.params, steps.state, steps.stats, steps.average, steps.average_stats, steps.snapshot()
        assert len(compilations) == before
        assert found[2] == 3.0

    def test_one_gradient_where_every_update_has_one(self):
        steps = replay.Steps(rules.asgd(learning_rate=1.0), np.zeros(2), single=True)
        with pytest.raises(ValueError, match="must come after a gradient"):
            steps.close()
        steps.receive(np.ones(2), {}, read=steps.sent(), worker=0, delay=1.0)
        assert (steps.version, steps.sent().tolist()) == (0, [0.0, 0.0])  # nobody is sent what is not closed
        with pytest.raises(ValueError, match="single=True must be False"):
            steps.receive(np.ones(2), {}, read=steps.sent(), worker=0, delay=1.0)
        steps.close()
        assert (steps.version, steps.sent().tolist()) == (1, [-1.0, -1.0])

    def test_a_snapshot_of_something_else(self):
        make = lambda size, **options: replay.Steps(rules.asgd(learning_rate=1.0), np.zeros(size), **options)
        with pytest.raises(ValueError, match=r"must be of the same rule, parameters and settings; .*message"):
            make(2, single=True).restore(make(2, single=False).snapshot())
        with pytest.raises(ValueError, match=r"float64\[3\], which must be float64\[2\]"):
            make(2, single=True).restore(make(3, single=True).snapshot())
        with pytest.raises(ValueError, match="stats and fold must be given together"):
            make(2, single=True, stats=np.zeros(1))

    def test_snapshots_of_narrow_numbers_and_random_keys_keep_their_bits(self):
        def init(params):
            return {"key": jax.random.key(7), "copy": params}

        def update(grads, state, params=None, **extra):
            key, _ = jax.random.split(state["key"])
            return jax.tree.map(jnp.negative, grads), {"key": key, "copy": grads}

        rule = optax.GradientTransformationExtraArgs(init, update)
        make = lambda: replay.Steps(rule, jnp.ones(2, jnp.bfloat16), single=True)
        steps, other = make(), make()
        steps.receive(jnp.full(2, 1 / 3, jnp.bfloat16), {}, read=steps.sent(), worker=0, delay=1.0)
        other.restore(through_a_file(steps.snapshot()))
        same = lambda left, right: (left.dtype == right.dtype) and bool((left == right).all())
        assert jax.tree.all(jax.tree.map(same, (other.params, other.state), (steps.params, steps.state)))
        assert (other.state["key"] != make().state["key"]).all()
