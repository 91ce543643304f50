"""`Steps`, the server of a rule, one event after the other; whole runs are compared in `test_exact_replay.py`."""

import io

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from sgdlab import replay, rules


def through_a_file(snapshot):
    file = io.BytesIO()
    np.savez(file, **snapshot)
    file.seek(0)
    return np.load(file, allow_pickle=False)


def test_the_mean_of_as_many_gradients_as_came():
    make = lambda: replay.Steps(rules.asgd(learning_rate=1.0), np.zeros(2), single=False)
    steps = make()
    for update in ([1.0], [2.0, 4.0], [3.0, 5.0, 10.0]):
        before = np.asarray(steps.params)
        for value in update:
            steps.receive(np.full(2, value), {}, read=steps.sent(), worker=0, delay=1.0)
            found, steps = steps, make()  # inside of an open update another server goes on
            steps.restore(through_a_file(found.snapshot()))
        steps.close()
        np.testing.assert_array_equal(before - np.asarray(steps.params), np.full(2, np.mean(update)))
    assert steps.version == 3


@pytest.mark.parametrize("single", [True, False])
def test_nothing_is_compiled_after_compile(single, compilations):
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


def test_one_gradient_where_every_update_has_one():
    steps = replay.Steps(rules.asgd(learning_rate=1.0), np.zeros(2), single=True)
    with pytest.raises(ValueError, match="must come after a gradient"):
        steps.close()
    steps.receive(np.ones(2), {}, read=steps.sent(), worker=0, delay=1.0)
    assert (steps.version, steps.sent().tolist()) == (0, [0.0, 0.0])  # nobody is sent what is not closed
    with pytest.raises(ValueError, match="single=True must be False"):
        steps.receive(np.ones(2), {}, read=steps.sent(), worker=0, delay=1.0)
    steps.close()
    assert (steps.version, steps.sent().tolist()) == (1, [-1.0, -1.0])


def test_a_snapshot_of_something_else():
    make = lambda size, **options: replay.Steps(rules.asgd(learning_rate=1.0), np.zeros(size), **options)
    with pytest.raises(ValueError, match=r"must be of the same rule, parameters and settings; .*message"):
        make(2, single=True).restore(make(2, single=False).snapshot())
    with pytest.raises(ValueError, match=r"float64\[3\], which must be float64\[2\]"):
        make(2, single=True).restore(make(3, single=True).snapshot())
    with pytest.raises(ValueError, match="stats and fold must be given together"):
        make(2, single=True, stats=np.zeros(1))


def test_snapshots_of_narrow_numbers_and_random_keys_keep_their_bits():
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
