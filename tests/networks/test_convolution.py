"""The convolution in each of its forms against XLA's own and NumPy, in float64: values, gradients, lanes, platforms."""

import functools
import re

import jax
import jax.numpy as jnp
import naive_networks
import numpy as np
import pytest
from flax import nnx

from sgdlab import networks
from sgdlab.networks import convolution, windows

FORMS = (None, *convolution.FORMS)


def operands(size, lengths, lanes=()):
    generator = np.random.default_rng(0)
    inputs, kernel = (generator.normal(size=(*lanes, *shape)) for shape in ((2, *lengths, 3), (*size, 3, 4)))
    return jnp.asarray(inputs), jnp.asarray(kernel)


def loss(inputs, kernel, conv):
    return jnp.sin(conv(inputs, kernel)).sum()


@functools.partial(jax.jit, static_argnums=2)
def values(inputs, kernel, convs):
    """The outputs of each convolution, and their gradients."""
    return [(conv(inputs, kernel), jax.grad(loss, (0, 1))(inputs, kernel, conv)) for conv in convs]


def assert_close(found, expected):
    for left, right in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(left, right, rtol=0, atol=1e-12 * np.abs(right).max())


@pytest.mark.parametrize(
    ("size", "stride", "padding", "lengths"),
    [
        ((3, 3), 1, "SAME", (8, 7)),
        ((3, 3), 2, 1, (8, 7)),
        ((1, 7), 1, "SAME", (5, 9)),
        ((2, 3), 3, "VALID", (9, 11)),
        ((3, 3), (1, 2), ((3, 0), (0, 4)), (6, 6)),
        ((3, 3), 1, "SAME", (2, 2)),  # a kernel of more positions than the images
        ((1, 1), 2, 0, (8, 7)),
        ((1, 1), 1, 1, (3, 4)),
    ],
)
def test_every_form_is_the_convolution_of_xla(size, stride, padding, lengths):
    inputs, kernel = operands(size, lengths)
    strides = windows.pair(stride)
    explicit = ((padding, padding),) * 2 if isinstance(padding, int) else padding

    def of_xla(inputs, kernel):
        layout = ("NHWC", "HWIO", "NHWC")
        return jax.lax.conv_general_dilated(inputs, kernel, strides, explicit, dimension_numbers=layout)

    forms = [functools.partial(networks.conv, stride=stride, padding=padding, form=form) for form in FORMS]
    expected, *found = values(inputs, kernel, (of_xla, *forms))
    for values_of_form in found:
        assert_close(values_of_form, expected)


@pytest.mark.parametrize(("stride", "padding"), [(1, "SAME"), (2, 1)])
def test_is_a_sum_over_windows(stride, padding):
    inputs, kernel = operands((3, 3), (5, 6))
    expected = naive_networks.convolve(np.asarray(inputs), np.asarray(kernel), stride, padding)
    np.testing.assert_allclose(networks.conv(inputs, kernel, stride, padding), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("axes", [(0, 0), (0, None), (None, 0)])
@pytest.mark.parametrize("stride", [1, 2])
def test_lanes_are_those_one_by_one(axes, stride):
    inputs, kernel = operands((3, 3), (6, 6), lanes=(2,))
    shared = [array if axis == 0 else array[0] for array, axis in zip((inputs, kernel), axes, strict=True)]
    conv = functools.partial(networks.conv, stride=stride)
    found = jax.jit(jax.vmap(lambda *operands: values(*operands, (conv,)), axes))(*shared)
    for lane in range(2):
        alone = [array[lane] if axis == 0 else array for array, axis in zip(shared, axes, strict=True)]
        assert_close(jax.tree.map(lambda leaf, lane=lane: leaf[lane], found), values(*alone, (conv,)))


def lowered(function, *arrays, platform):
    return jax.jit(function).trace(*arrays).lower(lowering_platforms=(platform,)).as_text()


def test_a_cpu_has_no_flipped_windows_and_lanes_no_groups():
    """Leave out what XLA's fast code on a CPU does not take; elsewhere, the gradient is XLA's own."""
    inputs, kernel = operands((3, 3), (6, 6), lanes=(2,))
    gradient = jax.grad(functools.partial(loss, conv=networks.conv), (0, 1))
    for platform, barriers in (("cpu", True), ("cuda", False)):
        text = lowered(gradient, inputs[0], kernel[0], platform=platform)
        assert text.count("stablehlo.convolution") == 3  # the forward one and its two gradients
        layouts = set(re.findall(r"dim_numbers = (\[.*\])", text))
        assert ("optimization_barrier" in text, len(layouts) == 1) == (barriers, barriers)
    lanes = lowered(jax.vmap(gradient), inputs, kernel, platform="cpu")
    assert ("stablehlo.convolution" in lanes, "dot_general" in lanes) == (False, True)


def test_unknown_forms_and_paddings_are_refused():
    inputs, kernel = operands((3, 3), (4, 4))
    with pytest.raises(ValueError, match=r"form='fast' must be one of plain, lax, patches"):
        networks.conv(inputs, kernel, form="fast")
    with pytest.raises(ValueError, match=r"padding='HALF' must be SAME, VALID"):
        networks.conv(inputs, kernel, padding="HALF")


@pytest.mark.parametrize("use_bias", [True, False])
def test_module_adds_its_bias(use_bias):
    options = {"kernel_size": (2, 3), "stride": 2, "padding": ((1, 0), (0, 2)), "use_bias": use_bias}
    layer = networks.Convolution(3, 4, **options, param_dtype=jnp.float64, rngs=nnx.Rngs(0))
    bias = jnp.arange(1.0, 5.0) if use_bias else 0.0
    if use_bias:
        layer.bias[...] = bias
    inputs, _ = operands((2, 3), (7, 8))
    outputs = layer(inputs)
    assert (outputs.shape, outputs.dtype) == ((2, 4, 4, 4), jnp.float64)
    padded = np.pad(inputs, ((0, 0), (1, 0), (0, 2), (0, 0)))
    expected = naive_networks.convolve(padded, np.asarray(layer.kernel[...]), 2, 0) + bias
    np.testing.assert_allclose(outputs, expected, rtol=0, atol=1e-12)


def test_kernel_is_scaled_for_its_fan_in():
    layer = networks.Convolution(16, 64, rngs=nnx.Rngs(0))
    kernel = np.asarray(layer.kernel[...])
    assert (kernel.dtype, kernel.shape) == (np.float32, (3, 3, 16, 64))
    fan_in = 9 * 16
    assert kernel.var() == pytest.approx(2 / fan_in, rel=5 * np.sqrt(2 / kernel.size))


class TestPooling:
    @pytest.mark.parametrize(("size", "stride", "padding"), [(2, 2, "SAME"), (3, 2, 1), (3, 1, "VALID")])
    def test_is_that_of_windows(self, size, stride, padding):
        images = operands((1, 1), (7, 6))[0]
        naively = 0 if padding == "VALID" else padding
        for pool, reference in (
            (networks.max_pool, naive_networks.max_pool),
            (networks.mean_pool, naive_networks.mean_pool),
        ):
            expected = reference(np.asarray(images), size, stride, naively)
            np.testing.assert_allclose(pool(images, size, stride, padding), expected, rtol=1e-14)

    def test_gradient_goes_to_the_greatest(self):
        images = operands((1, 1), (4, 6))[0]
        gradient = jax.grad(lambda images: networks.max_pool(images, 2).sum())(images)
        greatest = np.asarray(networks.max_pool(images, 2)).repeat(2, axis=1).repeat(2, axis=2)
        np.testing.assert_array_equal(gradient, np.asarray(images) == greatest)
