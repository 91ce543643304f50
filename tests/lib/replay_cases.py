"""Share between the replay tests: schedules of every kind, small networks in float64, and random batches."""

import functools

import hypothesis.extra.numpy as hnp
import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from hypothesis import strategies as st

from sgdlab import DROPPED, PENDING, Schedule, cluster, networks, protocols, tasks
from sgdlab.data import Batch

BATCH_SIZE = 4
EXAMPLES = 64


def heterogeneous(num_gradients: int, *, num_workers: int = 5, seed: int = 0) -> Schedule:
    """An asynchronous schedule."""
    draw = lambda rows: cluster.gamma(num_workers=num_workers, num_gradients=rows, heterogeneous=True, seed=seed)
    protocol = functools.partial(protocols.asynchronous, num_gradients=num_gradients)
    return protocols.with_enough_rows(protocol, draw, rows=num_gradients)


def with_backups(num_updates: int, *, num_workers: int = 5, backups: int = 2, seed: int = 0) -> Schedule:
    """A schedule with dropped rows among the used ones."""
    runtimes = cluster.gamma(num_workers=num_workers, num_gradients=num_updates, heterogeneous=True, seed=seed)
    return protocols.backup_workers(runtimes, backups=backups)


def anything(draw_integer, num_gradients: int, num_workers: int, *, most: int = 3) -> Schedule:
    """A schedule that no protocol makes: updates of 1 to `most` gradients, any reads, drops anywhere.

    Args:
      draw_integer: (low, high) -> a number from low to high.
      num_gradients: used ones, at least 1.
      num_workers: N.
      most: gradients of one update.
    """
    rows, applied = [], []
    while (used := sum(row[2] >= 0 for row in rows)) < num_gradients:
        size = draw_integer(1, min(most, num_gradients - used))
        for kind in [len(applied)] * size:
            for became in [DROPPED] * draw_integer(0, 1) + [kind]:
                rows += [(draw_integer(0, num_workers - 1), draw_integer(0, len(applied)), became)]
        applied.append(len(rows))
    rows += [(0, draw_integer(0, len(applied)), PENDING)] * draw_integer(0, 1)
    worker, read, update = np.array(rows).T
    arrived = np.arange(1.0, len(rows) + 1)
    return Schedule(
        worker=worker,
        read=read[:, None],
        update=update[:, None],
        started=arrived - 1,
        arrived=arrived[:, None],
        applied=np.array(applied, float)[:, None],
        num_workers=num_workers,
    )


def softsync(num_gradients: int, *, num_workers: int = 5, seed: int = 0) -> Schedule:
    """One schedule of `anything`: stale reads, several gradients an update, drops."""
    return anything(seeded(seed), num_gradients, num_workers)


def any_blocks(
    draw_integer, num_gradients: int, num_workers: int, num_blocks: int, *, most: int = 3, window: int = 6
) -> Schedule:
    """A schedule of several blocks that no protocol makes: each uses what it likes, in an order of its own.

    Args:
      draw_integer: (low, high) -> a number from low to high.
      num_gradients: rows, at least 1.
      num_workers: N.
      num_blocks: S.
      most: gradients of one update.
      window: a block uses a gradient at most so many rows late; of those equally late, every other block uses the last
        first.
    """
    shape = num_gradients, num_blocks
    update, arrived = np.empty(shape, int), np.empty(shape)
    applied = np.full(shape, np.nan)
    for block in range(num_blocks):
        late = {}
        for row in range(num_gradients):
            update[row, block] = draw_integer(PENDING, 4) if row or block else 0
            arrived[row, block] = row + 1
            if update[row, block] >= 0:
                late[row] = row + draw_integer(0, window)
        order = sorted(late, key=lambda row: (late[row], row * (-1) ** block))
        number = end = 0
        while end < len(order):
            begin, end = end, end + draw_integer(1, most)
            rows = order[begin:end]
            # As soon as all its gradients, and those of the updates before it, are computed.
            applied[number, block] = max(order[:end]) + 1
            update[rows, block], arrived[rows, block] = number, applied[number, block]
            number += 1
    return with_any_reads(draw_integer, update, arrived, applied, num_workers)


def opposite(num_gradients: int, num_blocks: int, *, size: int = 4, num_workers: int = 5, seed: int = 0) -> Schedule:
    """Of every `size` gradients, each an update, every other block uses the last first."""
    forth = np.arange(num_gradients)
    back = np.concatenate([part[::-1] for part in np.split(forth, range(size, num_gradients, size))])
    update = np.stack([back if block % 2 else forth for block in range(num_blocks)], axis=1)
    last = np.repeat(forth[size - 1 :: size] + 1.0, size)[:num_gradients]
    last = np.pad(last, (0, num_gradients - last.size), constant_values=num_gradients)
    arrived = np.stack([last if block % 2 else forth + 1.0 for block in range(num_blocks)], axis=1)
    return with_any_reads(seeded(seed), update, arrived, arrived, num_workers)


def with_any_reads(draw_integer, update: np.ndarray, arrived, applied, num_workers: int) -> Schedule:
    """A schedule of these updates; gradient g begins at g seconds and reads any versions that have been applied."""
    read, applied = np.zeros(update.shape, int), np.asarray(applied)
    for block, column in enumerate(update.T):
        made = 0
        for row in range(column.size):
            while (column == made).any() and applied[made, block] <= row:
                made += 1
            read[row, block] = draw_integer(0, made)
    return Schedule(
        worker=[draw_integer(0, num_workers - 1) for _ in update],
        read=read,
        update=update,
        started=np.arange(len(update), dtype=float),
        arrived=arrived,
        applied=applied[: update.max() + 1],
        num_workers=num_workers,
    )


def seeded(seed: int):
    """`draw_integer` from a seed."""
    generator = np.random.default_rng(seed)
    return lambda low, high: int(generator.integers(low, high + 1))


def partly(num_updates: int, *, num_servers: int = 3, num_workers: int = 4, seed: int = 0, **options) -> Schedule:
    """A schedule of `protocols.partial` with random delays of all messages."""
    generator = np.random.default_rng(seed)
    runtimes = generator.uniform(1, 4, (num_updates, num_workers))
    delays = lambda: generator.uniform(0, 3, (num_updates, num_workers, num_servers))
    given = {"pull_delays": delays(), "push_delays": delays(), "push_at_least": 2, "pull_at_least": 0.5}
    return protocols.partial(runtimes, num_servers=num_servers, **(given | options))


def layers(
    num_gradients: int, reads: str, pushes: str, *, num_blocks: int = 3, num_workers: int = 5, seed: int = 0
) -> Schedule:
    """An asynchronous schedule of several blocks."""
    runtimes = np.random.default_rng(seed).uniform(1, 4, (num_gradients, num_workers))
    return protocols.layerwise(runtimes, num_gradients=num_gradients, num_blocks=num_blocks, reads=reads, pushes=pushes)


@st.composite
def block_schedules(draw, num_blocks: int | None = None) -> tuple[str, Schedule]:
    """(kind, schedule) of several blocks, from every protocol that makes them, and from none."""
    kind = draw(st.sampled_from(["partial", "layers", "anything", "anything", "opposite"]))
    blocks, workers = num_blocks or draw(st.integers(2, 4)), draw(st.integers(1, 5))
    seed, size = draw(st.integers(0, 2**16)), draw(st.integers(1, 10))
    if kind == "anything":
        integer = lambda low, high: draw(st.integers(low, high))
        most, window = draw(st.integers(1, 3)), draw(st.integers(0, 6))
        return kind, any_blocks(integer, size, workers, blocks, most=most, window=window)
    if kind == "opposite":
        return kind, opposite(size, blocks, size=draw(st.integers(1, 5)), num_workers=workers, seed=seed)
    if kind == "layers":
        reads, pushes = draw(st.sampled_from(["start", "forward"])), draw(st.sampled_from(["end", "backward"]))
        return kind, layers(size, reads, pushes, num_blocks=blocks, num_workers=workers, seed=seed)
    timeouts = st.sampled_from([0.0, 0.5])
    options = {
        "push_at_least": draw(st.integers(1, workers)),
        "pull_at_least": draw(st.integers(1, blocks)),
        "push_timeout": draw(timeouts),
        "pull_timeout": draw(timeouts),
        "keep_newer": draw(st.booleans()),
    }
    return kind, partly(min(size, 5), num_servers=blocks, num_workers=workers, seed=seed, **options)


@st.composite
def schedules(draw) -> tuple[str, Schedule]:
    """(kind, schedule) of every protocol, with ties, and of no protocol at all."""
    kind = draw(st.sampled_from(["asynchronous", "synchronous", "backup_workers", "anything"]))
    if kind == "anything":
        integer = lambda low, high: draw(st.integers(low, high))
        return kind, anything(integer, draw(st.integers(1, 16)), draw(st.integers(1, 5)))
    shape = draw(st.tuples(st.integers(1, 8), st.integers(1, 6)))
    elements = draw(st.sampled_from([st.integers(1, 3).map(float), st.floats(0.1, 9.0)]))
    runtimes = draw(hnp.arrays(np.float64, shape, elements=elements, fill=st.nothing()))
    if kind == "backup_workers":
        return kind, protocols.backup_workers(runtimes, backups=draw(st.integers(0, shape[1] - 1)))
    return kind, getattr(protocols, kind)(runtimes)


@functools.cache
def network(name: str) -> tasks.NetworkTask:
    """A classifier in float64: "mlp", "conv" or "batch_norm". Call it inside tests, where float64 is on."""

    def make():
        options = {"param_dtype": jnp.float64, "rngs": nnx.Rngs(0)}
        if name == "mlp":
            return networks.MLP((64, 16, 10), **options)
        return networks.ConvNet((4, 8), batch_norm=name == "batch_norm", **options)

    graph, state = nnx.split(nnx.eval_shape(make))
    # By NumPy: to compile the drawing of normal numbers in float64 takes seconds.
    generator = np.random.default_rng(0)

    def drawn(path, leaf):
        if leaf.ndim > 1:
            return jnp.asarray(generator.normal(0, np.prod(leaf.shape[:-1]) ** -0.5, leaf.shape))
        return jnp.full(leaf.shape, float(path[-1].key in {"scale", "var"}), leaf.dtype)

    return tasks.classification(nnx.merge(graph, jax.tree.map_with_path(drawn, nnx.as_pure(state))))


@functools.cache
def examples(seed: int = 0) -> Batch:
    """Random images and labels."""
    generator = np.random.default_rng(seed)
    images = generator.normal(size=(EXAMPLES, 8, 8, 1))
    return Batch(jnp.asarray(images), jnp.asarray(generator.integers(0, 10, EXAMPLES)))


def batches(seed: int = 0) -> jax.tree_util.Partial:
    """`batch_fn`: each gradient has examples of its own, in the order of a seed, which is data."""
    order = np.random.default_rng(seed).permutation(EXAMPLES)
    return jax.tree_util.Partial(_batch, examples(), jnp.asarray(order))


def _batch(data: Batch, order: jax.Array, number: jax.Array) -> Batch:
    rows = order[(number * BATCH_SIZE + jnp.arange(BATCH_SIZE)) % EXAMPLES]
    return Batch(data.inputs[rows], data.targets[rows])


def assert_close(left, right, tolerance: float) -> None:
    """Trees of one structure, leaves apart by at most `tolerance` times their largest entry; 0: bit for bit."""
    assert jax.tree.structure(left) == jax.tree.structure(right)
    for path, leaf in jax.tree.leaves_with_path(left):
        other = dict(jax.tree.leaves_with_path(right))[path]
        leaf, other = np.asarray(leaf), np.asarray(other)  # noqa: PLW2901
        assert leaf.dtype == other.dtype, path
        assert np.isfinite(leaf).all(), path
        np.testing.assert_allclose(
            leaf, other, rtol=0, atol=tolerance * np.abs(other).max(initial=0), err_msg=jax.tree_util.keystr(path)
        )
