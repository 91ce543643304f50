"""The networks are what they say: a multilayer perceptron, a convolutional net, BatchNorm with the batch's statistics.

Each is compared in float64 with the formula, written with jax.lax and jnp alone.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from sgdlab import networks, tasks
from sgdlab.data import Batch

M = networks.BATCH_NORM_MOMENTUM
EPSILON = 1e-5  # of flax's BatchNorm
CLASSES = 10


def batch(seed: int = 0, size: int = 6) -> Batch:
    generator = np.random.default_rng(seed)
    images = jnp.asarray(generator.normal(1, 2, size=(size, 8, 8, 1)))
    return Batch(images, jnp.asarray(generator.integers(0, CLASSES, size)))


def shifted(tree, seed: int = 0):
    """The tree with noise on every leaf: biases and scales too."""
    leaves, structure = jax.tree.flatten(tree)
    generator = np.random.default_rng(seed)
    return structure.unflatten([leaf + 0.1 * generator.normal(size=leaf.shape) for leaf in leaves])


def cross_entropy(logits, labels):
    return jnp.mean(jax.nn.logsumexp(logits, axis=1) - logits[jnp.arange(labels.size), labels])


def convolve(images, kernel, stride):
    return jax.lax.conv_general_dilated(
        images, kernel, (stride, stride), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )


def assert_trees_close(left, right, rtol=1e-10):
    assert jax.tree.structure(left) == jax.tree.structure(right)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=rtol, atol=1e-13), left, right)


class TestMLP:
    def classifier(self):
        return tasks.classification(networks.MLP((64, 16, 12, CLASSES), param_dtype=jnp.float64, rngs=nnx.Rngs(0)))

    @staticmethod
    def loss(params, batch):
        layers = [params["layers"][i] for i in range(3)]
        hidden = batch.inputs.reshape(batch.inputs.shape[0], -1)
        for layer in layers[:-1]:
            hidden = jnp.maximum(hidden @ layer["kernel"] + layer["bias"], 0)
        return cross_entropy(hidden @ layers[-1]["kernel"] + layers[-1]["bias"], batch.targets)

    def test_gradient_is_that_of_the_formula(self):
        net = self.classifier()
        params = shifted(net.params)
        grads, aux = gradient(net.grad_fn, params, batch())
        loss, expected = jax.jit(jax.value_and_grad(self.loss))(params, batch())
        assert aux.keys() == {"loss"}
        np.testing.assert_allclose(aux["loss"], loss, rtol=1e-12)
        assert_trees_close(grads, expected)
        assert (net.stats, net.fold) == (None, None)

    def test_evaluate(self):
        net = self.classifier()
        params = shifted(net.params)
        values = net.evaluate(params, None, batch(size=40))
        np.testing.assert_allclose(values["loss"], self.loss(params, batch(size=40)), rtol=1e-12)
        # Labels that the network gives itself, but for every fourth.
        data = batch(size=40)
        guess = jnp.stack([net_loss(params, data, label) for label in range(CLASSES)]).argmin(axis=0)
        wrong = jnp.arange(40) % 4 == 0
        accuracy = net.evaluate(params, None, data._replace(targets=jnp.where(wrong, (guess + 1) % CLASSES, guess)))
        assert float(accuracy["accuracy"]) == 0.75

    def test_dtype_of_parameters(self):
        net = tasks.classification(networks.MLP((64, CLASSES), rngs=nnx.Rngs(0)))
        assert {leaf.dtype for leaf in jax.tree.leaves(net.params)} == {jnp.dtype(jnp.float32)}


def net_loss(params, data, label):
    """Each example's loss, were this its label."""
    one = lambda image: TestMLP.loss(params, Batch(image[None], jnp.array([label])))
    return jax.vmap(one)(data.inputs)


def formula(params, batch, statistics):
    """The conv net with BatchNorm; `statistics(layer, hidden) -> (mean, var)` says what normalises."""
    hidden = batch.inputs
    for layer, (stride, before, after) in enumerate(((1, 1, 4), (2, 4, 8))):
        kernel = params["convolutions"][layer]["kernel"].reshape(3, 3, before, after)
        hidden = convolve(hidden, kernel, stride)
        mean, var = statistics(layer, hidden)
        norm = params["norms"][layer]
        hidden = jnp.maximum((hidden - mean) / jnp.sqrt(var + EPSILON) * norm["scale"] + norm["bias"], 0)
    logits = hidden.reshape(hidden.shape[0], -1) @ params["head"]["kernel"] + params["head"]["bias"]
    return cross_entropy(logits, batch.targets)


def own(layer, hidden):
    """The batch's own statistics."""
    return hidden.mean(axis=(0, 1, 2)), hidden.var(axis=(0, 1, 2))


def own_statistics(params, batch) -> dict:
    """Return what `own` finds, in the layout of the running statistics."""
    found = {}

    def recorded(layer, hidden):
        found[layer] = dict(zip(("mean", "var"), own(layer, hidden), strict=True))
        return own(layer, hidden)

    formula(params, batch, recorded)
    return {"norms": found}


@functools.cache
def normalised() -> tasks.NetworkTask:
    """A conv net with BatchNorm, in float64. Call it inside tests, where float64 is on."""
    return tasks.classification(networks.ConvNet((4, 8), batch_norm=True, param_dtype=jnp.float64, rngs=nnx.Rngs(0)))


@jax.jit
def gradient(grad_fn, params, batch):
    return grad_fn(params, batch)


class TestBatchNorm:
    def test_training_normalises_with_the_batch(self):
        params = shifted(normalised().params)
        loss, expected = jax.jit(jax.value_and_grad(formula), static_argnums=2)(params, batch(), own)
        grads, aux = gradient(normalised().grad_fn, params, batch())
        np.testing.assert_allclose(aux["loss"], loss, rtol=1e-12)
        assert_trees_close(grads, expected)

    def test_folds_are_running_statistics_in_order_of_arrival(self):
        params, stats, ends = shifted(normalised().params), normalised().stats, []
        start = {
            "norms": {layer: {"mean": jnp.zeros(width), "var": jnp.ones(width)} for layer, width in ((0, 4), (1, 8))}
        }
        assert_trees_close(nnx.to_pure_dict(stats), start)
        for order in ((1, 2, 3), (3, 2, 1)):
            running, expected = stats, start
            for seed in order:
                running = normalised().fold(running, gradient(normalised().grad_fn, params, batch(seed))[1])
                found = own_statistics(params, batch(seed))
                expected = jax.tree.map(lambda old, new: M * old + (1 - M) * new, expected, found)
            assert_trees_close(nnx.to_pure_dict(running), expected)
            ends.append(running["norms"][0]["mean"])
        assert abs(ends[0] - ends[1]).max() > 1e-6  # the order makes a difference

    def test_statistics_are_float64(self):
        _, aux = gradient(normalised().grad_fn, normalised().params, batch())
        for tree in (normalised().stats, aux["stats"], normalised().fold(normalised().stats, aux)):
            assert {leaf.dtype for leaf in jax.tree.leaves(tree)} == {jnp.dtype(jnp.float64)}

    def test_evaluation_normalises_with_the_running_statistics(self):
        params, stats = shifted(normalised().params), shifted(normalised().stats)
        running = lambda layer, hidden: (stats["norms"][layer]["mean"], stats["norms"][layer]["var"])
        values = normalised().evaluate(params, stats, batch())
        np.testing.assert_allclose(values["loss"], formula(params, batch(), running), rtol=1e-12)
        assert abs(values["loss"] - formula(params, batch(), own)) > 1e-3  # it makes a difference

    def test_evaluation_changes_no_statistics_and_batches_do_not_mix(self):
        params, stats = shifted(normalised().params), shifted(normalised().stats)
        data = batch(size=8)
        half = lambda part: normalised().evaluate(params, stats, Batch(data.inputs[part], data.targets[part]))
        halves = [half(part)["loss"] for part in (slice(0, 4), slice(4, 8))]
        np.testing.assert_allclose(normalised().evaluate(params, stats, data)["loss"], np.mean(halves), rtol=1e-12)


def test_conv_net_without_batch_norm():
    options = {"param_dtype": jnp.float64, "rngs": nnx.Rngs(0)}
    net = tasks.classification(networks.ConvNet((4, 8), image_shape=(7, 7, 1), num_classes=3, **options))
    params = shifted(net.params)
    generator = np.random.default_rng(0)
    data = Batch(jnp.asarray(generator.normal(size=(5, 7, 7, 1))), jnp.asarray(generator.integers(0, 3, 5)))

    def loss(params):
        hidden = data.inputs
        for (stride, before, after), layer in zip(((1, 1, 4), (2, 4, 8)), params["convolutions"].values(), strict=True):
            hidden = convolve(hidden, layer["kernel"].reshape(3, 3, before, after), stride) + layer["bias"]
            hidden = jnp.maximum(hidden, 0)
        logits = hidden.reshape(5, -1) @ params["head"]["kernel"] + params["head"]["bias"]
        return cross_entropy(logits, data.targets)

    expected, slope = jax.jit(jax.value_and_grad(loss))(params)
    grads, aux = gradient(net.grad_fn, params, data)
    np.testing.assert_allclose(aux["loss"], expected, rtol=1e-12)
    assert_trees_close(grads, slope)
    assert (net.stats, net.fold) == (None, None)


def test_running_statistics_are_folded_with_the_momentum_of_their_own_batch_norm():
    class Two(nnx.Module):
        def __init__(self):
            self.slow = networks.ConvNet((2, 2), batch_norm=True, param_dtype=jnp.float64, rngs=nnx.Rngs(0))
            self.slow.norms[1].momentum = 0.99

        def __call__(self, images):
            return self.slow(images)

    parts = tasks.classification(Two())
    ones = jax.tree.map(jnp.ones_like, parts.stats)
    folded = parts.fold(ones, {"stats": jax.tree.map(jnp.zeros_like, parts.stats)})
    assert sorted(float(leaf[0]) for leaf in jax.tree.leaves(folded)) == [0.9, 0.9, 0.99, 0.99]


def test_statistics_of_unknown_layers_are_refused():
    class Other(nnx.Module):
        def __init__(self):
            self.layer = nnx.Linear(64, 10, rngs=nnx.Rngs(0))
            self.seen = nnx.BatchStat(jnp.zeros([]))

        def __call__(self, images):
            return self.layer(images.reshape(len(images), -1))

    with pytest.raises(ValueError, match=r"statistic seen must be that of an nnx\.BatchNorm"):
        tasks.classification(Other())
