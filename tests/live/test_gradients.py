"""`Gradients`: what they are, that they can be given up, and how micro-batches add up."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from sgdlab import replay
from sgdlab.live.gradients import Gradients
from sgdlab.live.work import LocalSteps, Work

DATA = np.random.default_rng(0).normal(size=(5, 12, 3))  # of 5 tickets, 12 examples each
LOCAL = LocalSteps(functools.partial(optax.adamw, 0.1), lambda worker: 3, 3)


def grad_fn(params, batch):
    """Of the mean of |params - x|^2 / 2."""
    loss = jnp.mean(jnp.sum(jnp.square(params - batch), axis=1)) / 2
    return params - batch.mean(axis=0), {"loss": loss, "count": jnp.array(batch.shape[0]), "first": batch[0, 0]}


def batch_fn(ticket):
    return jnp.asarray(DATA)[ticket]


def asked(times):
    """`stop`, which says yes when it is asked once more than so often, and the list of its answers."""
    answers = []

    def stop():
        answers.append(len(answers) >= times)
        return answers[-1]

    return stop, answers


@pytest.mark.parametrize("micro_batches", [1, 2, 3])
def test_the_gradient_of_the_tickets_batch(micro_batches, compilations):
    params = np.array([1.0, -2.0, 0.5])
    gradients = Gradients(Work(np.zeros(3), grad_fn, batch_fn, micro_batches=micro_batches))
    assert jax.tree.map(lambda leaf: leaf.shape, gradients.aux) == {"loss": (), "count": (), "first": ()}
    gradients.compile()
    before = len(compilations)
    for ticket in (3, 0):
        version = params.copy()
        grads, aux = gradients.compute(ticket, version)
        version[...] = np.nan
        examples = DATA[ticket]
        np.testing.assert_allclose(grads, params - examples.mean(axis=0), rtol=1e-14)
        np.testing.assert_allclose(aux["loss"], 0.5 * np.square(params - examples).sum(axis=1).mean(), rtol=1e-14)
        assert (aux["count"], aux["count"].dtype) == (12, np.int64)
        np.testing.assert_allclose(aux["first"], examples[:: 12 // micro_batches, 0].mean(), rtol=1e-14)
        assert all(isinstance(leaf, np.ndarray) for leaf in jax.tree.leaves((grads, aux)))
    assert len(compilations) == before


@pytest.mark.parametrize(
    ("parts", "times", "local"), [(1, 0, None), (4, 0, None), (4, 1, None), (4, 3, None), (3, 2, LOCAL)]
)
def test_it_is_given_up_before_the_next_part_or_local_step(parts, times, local):
    gradients = Gradients(Work(np.zeros(3), grad_fn, batch_fn, micro_batches=1 if local else parts, local=local))
    stop, answers = asked(times)
    assert gradients.compute(0, np.zeros(3), stop) is None
    assert answers == [False] * times + [True]
    stop, answers = asked(parts)
    assert gradients.compute(0, np.zeros(3), stop) is not None
    assert answers == [False] * parts


def test_local_steps_are_compiled_before_the_first(compilations):
    gradients = Gradients(Work(np.zeros(3), grad_fn, batch_fn, local=LOCAL))
    gradients.compile()
    before = len(compilations)
    first, second = (gradients.compute(ticket, np.ones(3))[0] for ticket in (0, 1))
    assert len(compilations) == before
    assert not np.array_equal(first, second)


def test_a_slow_worker_sleeps_and_can_be_woken():
    wanted = []

    def seconds(worker, index):
        wanted.append((worker, index))
        return 0.02 if index else 3600.0

    gradients = Gradients(Work(np.zeros(3), grad_fn, batch_fn, seconds=seconds), worker=5)
    gradients.compile()
    assert not wanted  # compiling is no gradient
    stop, answers = asked(4)
    assert gradients.compute(0, np.zeros(3), stop) is None
    assert len(answers) == 5
    stop, answers = asked(1000)
    assert gradients.compute(1, np.zeros(3), stop) is not None
    assert len(answers) > 2
    assert wanted == [(5, 0), (5, 1)]


def test_the_whole_gradient_is_finished_once():
    clip = lambda grads: jnp.clip(grads, -0.1, 0.1)
    params = np.array([3.0, -3.0, 0.0])
    expected = np.clip(params - DATA[2].mean(axis=0), -0.1, 0.1)
    for micro_batches in (1, 3):
        work = Work(np.zeros(3), grad_fn, batch_fn, micro_batches=micro_batches, finish=clip)
        np.testing.assert_allclose(Gradients(work).compute(2, params)[0], expected, rtol=1e-13)
        whole = replay.in_micro_batches(grad_fn, micro_batches, clip)
        np.testing.assert_allclose(whole(params, DATA[2])[0], expected, rtol=1e-13)


class TestMicroBatches:
    def test_one_is_the_function_itself(self):
        assert replay.in_micro_batches(grad_fn, 1) is grad_fn

    def test_parts_have_keys_of_their_own_and_share_what_has_no_axis(self):
        def noisy(params, batch):
            assert batch["x"].shape == (3,)
            return batch["scale"] * jax.random.normal(batch["key"]), {}

        key = jax.random.key(3)
        grads, _ = replay.in_micro_batches(noisy, 2)(
            jnp.zeros([]), {"x": jnp.zeros(6), "key": key, "scale": jnp.array(2.0)}
        )
        parts = [2 * jax.random.normal(jax.random.fold_in(key, part)) for part in range(2)]
        np.testing.assert_allclose(grads, np.mean(parts), rtol=1e-15)

    def test_sums_are_in_float32_at_least(self):
        values = jnp.asarray([256.0, 1.0, 1.0, 1.0], jnp.bfloat16)
        grads, _ = replay.in_micro_batches(lambda params, batch: (batch[0], {}), 4)(jnp.bfloat16(0), values)
        assert grads.dtype == jnp.bfloat16
        assert grads == jnp.asarray(259.0 / 4, jnp.bfloat16) != jnp.asarray(256.0 / 4, jnp.bfloat16)

    @pytest.mark.parametrize("micro_batches", [5, 24])
    def test_parts_must_be_equal(self, micro_batches):
        with pytest.raises(ValueError, match=f"batch_size=12 must be a multiple of micro_batches={micro_batches}"):
            Gradients(Work(np.zeros(3), grad_fn, batch_fn, micro_batches=micro_batches))

    def test_a_batch_must_have_one_axis_of_examples(self):
        batch = {"x": np.zeros(4), "y": np.zeros(6)}
        with pytest.raises(ValueError, match=r"one first axis, of its examples; it has .*'x'.*4.*'y'.*6"):
            replay.in_micro_batches(lambda params, batch: (params, {}), 2)(0.0, batch)

    def test_a_whole_number_of_parts(self):
        with pytest.raises(ValueError, match="micro_batches=0"):
            replay.in_micro_batches(grad_fn, 0)
