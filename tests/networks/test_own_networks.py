"""Custom networks: any module from images to logits registers as a part and trains; what cannot be is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from lib import tiny

from sgdlab import data, tasks
from sgdlab.registry import DATASETS, NETWORKS
from sgdlab.runs.plan import make_plan
from sgdlab.runs.train import train

CLASSES = 3


@pytest.fixture(autouse=True)
def parts_of_this_module(monkeypatch):
    for registry in (NETWORKS, DATASETS):
        monkeypatch.setattr(registry, "_parts", dict(registry))


def flat(images):
    return images.reshape(images.shape[0], -1)


def layers(width, image_shape, num_classes, rngs):
    height, length, channels = image_shape
    return [
        nnx.Conv(channels, width, (3, 3), rngs=rngs),
        nnx.BatchNorm(width, momentum=0.8, rngs=rngs),
        nnx.relu,
        flat,
        nnx.LayerNorm(width * height * length, rngs=rngs),
        nnx.Linear(width * height * length, num_classes, rngs=rngs),
    ]


def registered(make_layers):
    @NETWORKS.register(title="A custom network")
    def own(*, width: int = 4, image_shape, num_classes, rngs):
        return nnx.Sequential(*make_layers(width, image_shape, num_classes, rngs))

    @DATASETS.register(title="Shades")
    def shades(*, noise: float = 0.2):
        labels = np.arange(96, dtype=np.int32) % CLASSES
        images = np.random.default_rng(0).normal(labels[:, None, None, None], noise, (96, 4, 6, 2)).astype(np.float32)
        return data.Dataset(data.Images(images, labels), data.Images(images[:24], labels[:24]), CLASSES)

    return tiny.config(
        network__kind="own", data__kind="shades", network__own__width=3, batch_size=8, epochs=8.0, method="synchronous"
    )


def test_a_network_of_the_library_s_layers_trains():
    run = train(make_plan(registered(layers)))
    assert run.records[-1]["test_accuracy"] > 2 / CLASSES
    shapes = {"/".join(map(str, path)): leaf.shape for path, leaf in nnx.to_flat_state(run.result.params)}
    assert shapes["layers/0/kernel"] == (3, 3, 2, 3)
    assert shapes["layers/5/kernel"] == (3 * 4 * 6, CLASSES)
    (mean, var) = jax.tree.leaves(run.result.stats)
    assert mean.shape == var.shape == (3,)
    assert (var != 1).all()  # statistics were folded


def test_its_statistics_are_those_of_flax():
    """One folded batch: what `nnx.BatchNorm` itself makes of it."""
    network = nnx.Sequential(*layers(3, (4, 6, 2), CLASSES, nnx.Rngs(0)))
    images = jnp.asarray(np.random.default_rng(0).normal(size=(8, 4, 6, 2)), jnp.float32)
    parts = tasks.classification(network)
    _, aux = parts.grad_fn(parts.params, data.Batch(images, jnp.zeros(8, int)))
    folded = parts.fold(parts.stats, aux)
    network.set_attributes(use_running_average=False, raise_if_not_found=False)
    network(images)
    for name in ("mean", "var"):
        expected = getattr(network.layers[1], name)[...]
        np.testing.assert_allclose(folded["layers"][1][name], expected, rtol=1e-6, atol=1e-7)


def test_networks_of_one_structure_share_their_program():
    structures = [
        jax.tree.structure((parts.grad_fn, parts.fold, parts.sums))
        for parts in (tasks.classification(nnx.Sequential(*layers(3, (4, 6, 2), 3, nnx.Rngs(seed)))) for seed in (0, 1))
    ]
    assert structures[0] == structures[1]


class Wrapped(nnx.Module):
    """A layer of another kind, behind an attribute."""

    def __init__(self, inner):
        self.inner, self.head = inner, nnx.Linear(8, CLASSES, rngs=nnx.Rngs(0))

    def __call__(self, images):
        return self.head(self.inner(flat(images)))


class Counting(nnx.Module):
    def __init__(self):
        self.calls = nnx.Variable(jnp.zeros([]))

    def __call__(self, inputs):
        return inputs


@pytest.mark.parametrize(
    ("network", "match"),
    [
        (lambda: Wrapped(nnx.Dropout(0.5, rngs=nnx.Rngs(0))), r"network has random streams in Dropout \(inner\)"),
        (
            lambda: nnx.Sequential(flat, nnx.Linear(8, CLASSES, rngs=nnx.Rngs(0)), nnx.Dropout(0.5, rngs=nnx.Rngs(0))),
            r"network has random streams in Dropout \(layers\.2\)",
        ),
        (lambda: Wrapped(Counting()), r"network has Variable inner\.calls in Counting \(inner\)"),
        (lambda: nnx.Sequential(flat, nnx.relu), "network=Sequential must have parameters"),
    ],
)
def test_what_cannot_be_replayed_is_refused_by_its_module(network, match):
    with pytest.raises(ValueError, match=match):
        tasks.classification(network())


def test_dropout_without_streams_is_the_identity():
    linear = nnx.Linear(8, CLASSES, rngs=nnx.Rngs(0))
    with_dropout, without = (
        tasks.classification(nnx.Sequential(flat, *first, linear))
        for first in ([nnx.Dropout(0.5, deterministic=True)], [])
    )
    batch = data.Batch(jnp.ones([2, 2, 4, 1], jnp.float32), jnp.array([0, 1]))
    left, right = (parts.grad_fn(parts.params, batch) for parts in (with_dropout, without))
    jax.tree.map(np.testing.assert_array_equal, *map(jax.tree.leaves, (left, right)))
