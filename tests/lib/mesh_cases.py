"""One run of every family, small and quick to compile, to be executed on one device, on a mesh, and by processes."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from lib.replay_cases import layers, partly, with_backups

from sgdlab import protocols, rules
from sgdlab.checkpoints import Checkpoints
from sgdlab.errors import Stopped
from sgdlab.replay import Feed, Watch, lower, run
from sgdlab.tasks import Task

WORKERS, SIZE = 6, 96  # 96 * 96 parameters are worth splitting, and can be over 2, 3, 4, 6 and 8 devices
RUNTIMES = np.random.default_rng(0).uniform(1, 3, (5, WORKERS)) * np.array([0.4, 1.0, 1.0, 2.0, 1.0, 1.5])
EVERY = 9


def asynchronous():
    return protocols.asynchronous(RUNTIMES)


CASES = {
    "asgd": (asynchronous, lambda: rules.asgd(learning_rate=0.05, momentum=0.5), {}),
    "gap_aware": (asynchronous, lambda: rules.gap_aware(learning_rate=0.05), {}),
    "dana": (asynchronous, lambda: rules.dana(learning_rate=0.01, num_workers=8), {}),
    "synchronous": (lambda: protocols.synchronous(RUNTIMES), lambda: rules.nag_asgd(learning_rate=0.05), {}),
    "backup_workers": (lambda: with_backups(5), lambda: rules.staleness_aware(learning_rate=0.05), {"lanes": "map"}),
    "softsync": (
        lambda: protocols.softsync(RUNTIMES, gradients_per_update=2),
        lambda: rules.gap_aware(learning_rate=0.05),
        {"lanes": "map"},
    ),
    "partial": (lambda: partly(5, num_workers=WORKERS), lambda: rules.asgd(learning_rate=0.05), {"stateful": False}),
    "layers": (
        lambda: layers(12, "forward", "backward", num_workers=WORKERS),
        lambda: rules.gap_aware(learning_rate=0.05),
        {},
    ),
    "gossip": (lambda: protocols.gossip(RUNTIMES, seed=1), lambda: rules.nag_asgd(learning_rate=0.05), {}),
    "elastic_averaging": (
        lambda: protocols.elastic_averaging(RUNTIMES),
        lambda: rules.asgd(learning_rate=0.05),
        {"stateful": False},
    ),
    "alone": (
        lambda: protocols.asynchronous(RUNTIMES[:, :1]),
        lambda: rules.nag_asgd(learning_rate=0.05),
        {"fed": True},
    ),
    "streamed": (asynchronous, lambda: rules.asgd(learning_rate=0.05), {"fed": True}),
}
PEERS = ("gossip", "elastic_averaging")


@functools.cache
def params():
    wave = jnp.sin(jnp.arange(SIZE * SIZE, dtype=float)).reshape(SIZE, SIZE)
    return {"w": 0.1 * wave, "b": jnp.ones(3)}


def batch_fn(g):
    return jnp.cos(g * (1.0 + jnp.arange(SIZE)))


def read(gradients):
    return map(lambda g: np.cos(g * (1.0 + np.arange(SIZE))), gradients)  # noqa: C417 (an iterator that cannot be closed)


def grad_fn(params, batch, local=None):
    memory = 0.0 if local is None else local["memory"]

    def loss(params):
        out = jnp.tanh(params["w"] @ batch + memory) * params["b"].mean()
        return jnp.square(out - 0.5).mean(), out

    grads, out = jax.grad(loss, has_aux=True)(params)
    aux = {"loss": jnp.square(out - 0.5).mean(), "stats": out}
    return (grads, aux) if local is None else (grads, aux, {"memory": 0.5 * memory + 0.1 * out})


def replayed(name, *, every=EVERY, checkpoints=None, stop=None, report=None, **options):
    """A run of one case; `options` are those of a mesh."""
    schedule, rule, how = CASES[name]
    served = name not in PEERS
    stateful = how.get("stateful", True)
    return run(
        lower(schedule(), every=every, by_worker=True),
        rule(),
        Task(
            grad_fn,
            params(),
            stats=jnp.zeros(SIZE),
            fold=lambda stats, aux: 0.9 * stats + 0.1 * aux["stats"],
            local={"memory": jnp.zeros(SIZE)} if stateful else None,
        ),
        Feed(read, size=8) if how.get("fed") else batch_fn,
        lanes=how.get("lanes", "vmap"),
        watch=Watch(
            every=every,
            evaluate=lambda params, stats: {"length": jnp.square(params["w"]).sum() + stats.sum()},
            report=report,
            average_decay=0.9 if served else None,
            norms=served,
        ),
        checkpoints=checkpoints,
        stop=stop,
        **options,
    )


def whole(leaf):
    """An array as this process can use it, wherever its parts are. All processes call it."""
    if isinstance(leaf, jax.Array) and not leaf.is_fully_addressable:
        everywhere = jax.sharding.NamedSharding(leaf.sharding.mesh, jax.sharding.PartitionSpec())
        leaf = jax.jit(lambda x: x, out_shardings=everywhere)(leaf).addressable_data(0)
    return np.asarray(leaf)


def leaves(result):
    """Every array of a result, by its name."""
    fields = ("params", "state", "stats", "average", "average_stats", "nodes", "center", "local")
    trees = {name: getattr(result, name) for name in fields}
    history = result.history
    trees |= {name: getattr(history, name) for name in ("aux", "norm", "distance", "step", "penalty")}
    trees["evaluations"] = [list(found.values()) for found in history.evaluations]
    return {jax.tree_util.keystr(path): whole(leaf) for path, leaf in jax.tree_util.tree_leaves_with_path(trees)}


def assert_close(found, expected, tolerance):
    assert found.keys() == expected.keys()
    for name, leaf in found.items():
        scale = tolerance * (1 + np.abs(np.nan_to_num(expected[name])).max(initial=0))
        np.testing.assert_allclose(leaf, expected[name], rtol=0, atol=scale, err_msg=name)


class Asked:
    """`stop` of a run that is asked to stop at the given question."""

    def __init__(self, at, stops=True):
        self.questions, self.at, self.stops = 0, at, stops

    def __call__(self):
        self.questions += 1
        return self.stops and self.questions >= self.at


def stopped(name, folder, *, at=2, stops=True, **options):
    """Begins a run, or goes on with it, and stops it early; the number of gradients that it had done."""
    with Checkpoints(folder, {"case": name}) as checkpoints, pytest.raises(Stopped) as caught:
        replayed(name, checkpoints=checkpoints, stop=Asked(at, stops), **options)
    assert caught.value.saved
    return caught.value.gradients


def continued(name, folder, **options):
    """Every array of a run that goes on where it was stopped."""
    with Checkpoints(folder, {"case": name}) as checkpoints:
        assert checkpoints.newest
        return leaves(replayed(name, checkpoints=checkpoints, **options))


def stopped_and_continued(name, folder, **options):
    """Every array of a run that was stopped once here, and perhaps elsewhere before."""
    before = Checkpoints(folder, {"case": name}).newest or 0
    assert stopped(name, folder, at=1, **options) > before  # a quick machine would have ended at the second question
    options.pop("stops", None)
    return continued(name, folder, **options)


def mesh_of(*shape):
    names = ("host", "device")[-len(shape) :]
    size = functools.reduce(lambda a, b: a * b, shape)
    return jax.make_mesh(
        shape, names, devices=jax.devices()[:size], axis_types=(jax.sharding.AxisType.Auto,) * len(shape)
    )
