"""PixelCNN is a distribution over images: causal, without a blind spot, and the one of its definition.

The forward pass is compared in float64 with loops over pixels in NumPy.
"""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from sgdlab.networks import PixelCNN
from sgdlab.networks.parts import pixelcnn

SMALL = {"layers": 3, "width": 12, "first_kernel": 5, "kernel": 3, "head": 24}


@functools.cache
def compiled(channels, levels, dtype=None):
    """Parameters and the logits as a function of them."""
    make = functools.partial(PixelCNN, channels, levels, dtype=dtype, param_dtype=jnp.float64, **SMALL)
    graph, shapes = nnx.split(nnx.eval_shape(lambda: make(rngs=nnx.Rngs(0))))
    generator = np.random.default_rng(0)

    def draw(leaf):
        if leaf.ndim == 1:
            return jnp.asarray(generator.uniform(0, 0.5, leaf.shape))  # above zero: few ReLUs are zero for all images
        return jnp.asarray(generator.normal(size=leaf.shape) / np.sqrt(np.prod(leaf.shape[:-1])))

    return nnx.as_pure(jax.tree.map(draw, shapes)), jax.jit(lambda params, images: nnx.merge(graph, params)(images))


def likelihoods(logits, images):
    chosen = np.take_along_axis(np.asarray(logits), images[..., None], axis=-1)[..., 0]
    return chosen - np.log(np.exp(np.asarray(logits)).sum(axis=-1))


@pytest.mark.parametrize("shape", [(2, 2, 1, 3), (1, 2, 3, 2)])
def test_probabilities_of_all_images_sum_to_one(shape):
    height, width, channels, levels = shape
    images = np.array(list(itertools.product(range(levels), repeat=height * width * channels)))
    images = images.reshape(-1, height, width, channels)
    params, call = compiled(channels, levels)
    each = likelihoods(call(params, images), images).sum(axis=(1, 2, 3))
    np.testing.assert_allclose(np.exp(each).sum(), 1, rtol=1e-12)
    assert each.std() > 0.1  # and not all alike


SHAPE, DIMENSIONS, BASES = (3, 4, 3), 36, 6
IMAGES = np.random.default_rng(1).integers(0, 4, (BASES, 1, *SHAPE)).repeat(DIMENSIONS + 1, axis=1)
for _dimension in range(DIMENSIONS):  # image d differs from the last in dimension d alone
    IMAGES[:, _dimension].reshape(BASES, -1)[:, _dimension] += 1
IMAGES = (IMAGES % 4).reshape(-1, *SHAPE)


@pytest.fixture(scope="module", name="logits")
def logits_of_perturbed():
    with jax.enable_x64(True):  # before the fixture of a test
        params, call = compiled(3, 4)
        return np.asarray(call(params, IMAGES))


def test_sees_every_earlier_dimension_and_no_later_one(logits):
    """Row, column and colour, in this order, among 3 x 4 pixels of 3 colours."""
    images = logits.reshape(BASES, DIMENSIONS + 1, DIMENSIONS, -1)
    # By each dimension, of the logits of each. One image does not show all: a ReLU that is zero hides what it reads.
    change = np.abs(images - images[:, -1:])[:, :-1].max(axis=(0, 3))
    earlier = np.triu(np.ones((DIMENSIONS, DIMENSIONS), bool), 1)
    assert change[~earlier].max() < 1e-12
    assert change[earlier].min() > 1e-9


def test_is_the_definition(logits):
    params = jax.tree.map(np.asarray, compiled(3, 4)[0])
    for index in (0, len(IMAGES) - 1):
        np.testing.assert_allclose(logits[index], naive(params, IMAGES[index]), rtol=1e-9, atol=1e-12)


def naive(params, image):
    """Gated PixelCNN by loops over pixels: [H, W, C] levels of 0 to 3 -> [H, W, C, 4]."""
    height, width, channels = image.shape
    vertical = horizontal = 2 * image / 3 - 1
    for number in range(SMALL["layers"]):
        layer, features = params["layers"][number], SMALL["width"]
        half = (SMALL["kernel"] if number else SMALL["first_kernel"]) // 2
        above = np.zeros((height, width, 2 * features))
        for row, column in np.ndindex(height, width):
            above[row, column] = layer["above"]["bias"]
            for up, aside in itertools.product(range(half + 1), range(-half, half + 1)):
                if row - up >= 0 and 0 <= column + aside < width:
                    kernel = layer["above"]["kernel"][half - up, half + aside]
                    above[row, column] += vertical[row - up, column + aside] @ kernel
        outputs = np.zeros((height, width, features))
        for row, column in np.ndindex(height, width):
            before = above[row - 1, column] if row else np.zeros(2 * features)
            total = before @ layer["across"]["kernel"][0, 0] + layer["across"]["bias"] + layer["here"]["bias"]
            for back in range(1, min(half, column) + 1):
                total = total + horizontal[row, column - back] @ layer["left"]["kernel"][0, half - back]
            total = total + masked(horizontal[row, column], layer["here"], strict=not number, halves=2)
            outputs[row, column] = masked(gated(total), layer["output"]) + layer["output"]["bias"]
        vertical, horizontal = gated(above), outputs + horizontal if number else outputs
    hidden = np.stack([[masked(np.maximum(x, 0), params["hidden"]) for x in row] for row in horizontal])
    hidden = np.maximum(hidden + params["hidden"]["bias"], 0)
    logits = np.stack([[masked(x, params["logits"]) for x in row] for row in hidden])
    return (logits + params["logits"]["bias"]).reshape(height, width, channels, -1)


def masked(features, layer, *, strict=False, halves=1):
    """Each output sums over the inputs of earlier colours, and those of its own unless strict."""
    kernel, channels = layer["kernel"], 3
    per_input, per_output = len(kernel) // channels, kernel.shape[1] // halves // channels
    outputs = np.zeros(kernel.shape[1])
    for index in range(kernel.shape[1]):
        colour = index % (kernel.shape[1] // halves) // per_output
        inputs = per_input * (colour if strict else colour + 1)
        outputs[index] = features[:inputs] @ kernel[:inputs, index]
    return outputs


def gated(features):
    values, gates = np.split(features, 2, axis=-1)
    return np.tanh(values) / (1 + np.exp(-gates))


def test_bfloat16_computes_nearly_the_same(logits):
    params, call = compiled(3, 4, jnp.bfloat16)
    rough = call(params, IMAGES)
    assert rough.dtype == params["logits"]["bias"].dtype
    error = np.abs(np.asarray(rough) - logits).max()
    assert 1e-6 < error < 16 * float(jnp.finfo(jnp.bfloat16).eps)


def test_parameters_of_the_published_size():
    make = lambda: pixelcnn(image_shape=(32, 32, 3), levels=256, rngs=nnx.Rngs(0))
    count = sum(leaf.size for leaf in jax.tree.leaves(nnx.split(nnx.eval_shape(make))[1]))
    first = 3 * 256 * (4 * 7 + 3 + 1)  # kernels that read the image: above, to the left, here
    other = 128 * 256 * (2 * 3 + 1 + 1)
    within = 256 * 256 + 128 * 128 + 3 * 256 + 128  # between the stacks, at the end, and biases
    head = 128 * 1024 + 1024 + 1024 * 768 + 768
    assert count == first + 14 * other + 15 * within + head == 5856128
