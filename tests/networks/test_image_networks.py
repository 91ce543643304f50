"""Networks that classify images: their sizes, forward passes against NumPy, dtypes, dropout and arguments."""

import functools
import inspect

import jax
import jax.numpy as jnp
import naive_networks
import numpy as np
import pytest
from flax import nnx

from sgdlab import networks
from sgdlab.networks import inception, parts
from sgdlab.registry import NETWORKS

CLASSES = 5


def count(make) -> int:
    return sum(leaf.size for leaf in jax.tree.leaves(nnx.state(nnx.eval_shape(make), nnx.Param)))


def pure(tree):
    """Nested dictionaries of NumPy arrays."""
    return {key: pure(value) for key, value in tree.items()} if hasattr(tree, "items") else np.asarray(tree)


@pytest.mark.representatives("cifar_resnet", "wide_resnet", "resnet18", "cnn", "weight_norm_cnn")
@pytest.mark.parametrize(
    ("part", "entries", "image_shape", "num_classes", "parameters"),
    [
        # The sizes that He et al. (0.27 M for ResNet-20), Zagoruyko and Komodakis (2.7 M) and torchvision publish.
        ("cifar_resnet", {}, (32, 32, 3), 10, 269_722),
        ("wide_resnet", {}, (32, 32, 3), 10, 2_748_890),
        ("wide_resnet", {}, (32, 32, 3), 100, 2_772_020),
        ("resnet18", {}, (224, 224, 3), 1000, 11_689_512),
        ("resnet50", {}, (224, 224, 3), 1000, 25_557_032),
        ("resnet18", {"stem": "cifar"}, (32, 32, 3), 10, 11_173_962),
        ("resnet50", {"stem": "cifar"}, (32, 32, 3), 10, 23_520_842),
        ("inception", {}, (299, 299, 3), 1000, 23_834_568),
        # By hand, layer by layer.
        ("cnn", {}, (28, 28, 1), 10, 26 * 32 + (25 * 32 + 1) * 64 + (7 * 7 * 64 + 1) * 10),
        (
            "weight_norm_cnn",
            {},
            (28, 28, 1),
            10,
            11 * 32 + (9 * 32 + 2) * 32 + (9 * 32 + 2) * 64 + (9 * 64 + 2) * 64 + (2 * 2 * 64 + 2) * 10,
        ),
    ],
)
def test_number_of_parameters(part, entries, image_shape, num_classes, parameters):
    given = {"image_shape": image_shape, "num_classes": num_classes}
    assert count(lambda: NETWORKS.make(part, entries, **given, rngs=nnx.Rngs(0))) == parameters


@pytest.mark.full
def test_deeper_ones_have_the_published_sizes():
    """He et al. 2016, table 6, in millions."""
    sizes = [count(lambda depth=depth: networks.CifarResNet(depth, rngs=nnx.Rngs(0))) for depth in (32, 56)]
    assert [round(size / 1e6, 2) for size in sizes] == [0.46, 0.85]


@functools.cache
def drawn(make):
    """Structure, parameters, statistics and images at random: scales and biases of zero would hide mistakes."""
    network = nnx.eval_shape(make)
    graph, params, stats = nnx.split(network, nnx.Param, nnx.BatchStat)
    generator = np.random.default_rng(0)

    def draw(leaf):
        deviation = np.prod(leaf.shape[:-1]) ** -0.5 if leaf.ndim > 1 else 0.2
        return jnp.asarray((leaf.ndim == 1) + deviation * generator.standard_normal(leaf.shape))

    params, stats = (jax.tree.map(draw, nnx.as_pure(tree)) for tree in (params, stats))
    return graph, params, stats


def forward(graph, params, stats, images):
    return jax.jit(lambda params, images: nnx.merge(graph, params, stats)(images))(params, images)


def double(network, *args, **options):
    return lambda: network(*args, num_classes=CLASSES, param_dtype=jnp.float64, rngs=nnx.Rngs(0), **options)


BASIC = {"blocks": (1, 1, 1, 1), "bottleneck": False}
CASES = {
    "cnn": (double(networks.CNN, (3, 4), image_shape=(7, 8, 2)), (2, 7, 8, 2), naive_networks.cnn),
    "weight norm": (
        double(networks.WeightNormCNN, (3, 3, 4, 4), image_shape=(8, 8, 1)),
        (2, 8, 8, 1),
        naive_networks.weight_norm_cnn,
    ),
    # The last stage of digits of 8 x 8 pixels has 2 x 2 positions.
    "resnet8": (
        double(networks.CifarResNet, 8, channels=1),
        (3, 8, 8, 1),
        functools.partial(naive_networks.cifar_resnet, strides=(1, 2, 2)),
    ),
    "wide": (
        double(networks.WideResNet, 10, 2),
        (3, 8, 8, 3),
        functools.partial(naive_networks.wide_resnet, strides=(1, 2, 2)),
    ),
    "resnet, imagenet": (
        double(networks.ResNet, **BASIC),
        (2, 33, 40, 3),
        functools.partial(naive_networks.resnet, strides=(1, 2, 2, 2), stem="imagenet"),
    ),
    "resnet, bottleneck, cifar": (
        double(networks.ResNet, blocks=(1, 2), bottleneck=True, stem="cifar"),
        (2, 8, 6, 3),
        functools.partial(naive_networks.resnet, strides=(1, 2, 1), stem="cifar"),
    ),
    "inception": (
        double(networks.Inception),
        (2, 75, 75, 3),
        functools.partial(naive_networks.inception, kinds="abcde"),
    ),
}


@pytest.mark.representatives("cnn", "weight norm", "resnet8", "wide")
@pytest.mark.parametrize("name", CASES)
def test_forward_pass_is_that_of_numpy(name, monkeypatch):
    # A block of each kind: the others of that kind differ in their widths alone.
    monkeypatch.setattr(inception, "BLOCKS", [inception.BLOCKS[number] for number in (0, 3, 4, 8, 9)])
    make, shape, reference = CASES[name]
    graph, params, stats = drawn(make)
    images = np.random.default_rng(1).standard_normal(shape)
    expected = reference(pure(params), images)
    assert expected.shape == (shape[0], CLASSES)
    logits = forward(graph, params, stats, jnp.asarray(images))
    # BatchNorm over the two or eight values of a channel that the last stage leaves magnifies rounding.
    np.testing.assert_allclose(logits, expected, rtol=0, atol=1e-9 * np.abs(expected).max())


def test_a_network_has_the_same_gradient_in_every_form():
    make, shape, _ = CASES["cnn"]
    graph, params, stats = drawn(make)
    images = jnp.asarray(np.random.default_rng(1).standard_normal(shape))

    @functools.partial(jax.jit, static_argnums=1)
    def gradient(params, form):
        def loss(params):
            network = nnx.merge(graph, params, stats)
            network.set_attributes(form=form, raise_if_not_found=False)
            return (network(images) ** 2).sum()

        return jax.grad(loss)(params)

    expected = gradient(params, "lax")
    largest = max(float(jnp.abs(leaf).max()) for leaf in jax.tree.leaves(expected))
    for form in ("plain", "patches"):
        jax.tree.map(
            lambda found, right: np.testing.assert_allclose(found, right, rtol=0, atol=1e-11 * largest),
            gradient(params, form),
            expected,
        )


def test_bfloat16_computes_with_parameters_statistics_and_logits_in_float32():
    made = {
        dtype: nnx.eval_shape(lambda dtype=dtype: networks.CifarResNet(8, dtype=dtype, rngs=nnx.Rngs(0)))
        for dtype in ("bfloat16", "float32")
    }
    generator = np.random.default_rng(0)
    images = jnp.asarray(generator.standard_normal((4, 8, 8, 3)), jnp.float32)
    splits = {dtype: nnx.split(network, nnx.Param, nnx.BatchStat) for dtype, network in made.items()}
    _, params, stats = splits["bfloat16"]
    assert {leaf.dtype for leaf in jax.tree.leaves((params, stats))} == {jnp.dtype(jnp.float32)}
    draw = lambda leaf: jnp.asarray((leaf.ndim == 1) + 0.1 * generator.standard_normal(leaf.shape), jnp.float32)
    params, stats = (jax.tree.map(draw, nnx.as_pure(tree)) for tree in (params, stats))

    def apply(dtype, params, stats):
        network = nnx.merge(splits[dtype][0], params, stats)
        return network(images), nnx.as_pure(nnx.state(network, nnx.BatchStat)), network.stem(images)

    (logits, after, hidden), (expected, expected_after, _) = (
        jax.jit(functools.partial(apply, dtype))(params, stats) for dtype in ("bfloat16", "float32")
    )
    assert hidden.dtype == jnp.bfloat16
    assert {leaf.dtype for leaf in jax.tree.leaves((logits, after))} == {jnp.dtype(jnp.float32)}
    # bfloat16 has 8 bits: rounding of every layer adds up, and BatchNorm keeps it in proportion.
    error = 20 * 2.0**-8
    np.testing.assert_allclose(logits, expected, rtol=0, atol=error * np.abs(expected).max())
    assert np.abs(logits - expected).max() > 1e-4 * np.abs(expected).max()  # it was computed in bfloat16
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=error, atol=error), after, expected_after)


@pytest.mark.representatives("conv", "mlp", "cnn", "weight_norm_cnn", "cifar_resnet")
@pytest.mark.parametrize(
    ("part", "entries", "image_shape"),
    [
        ("conv", {}, (8, 8, 1)),
        ("mlp", {}, (8, 8, 1)),
        ("cnn", {}, (8, 8, 1)),
        ("weight_norm_cnn", {}, (8, 8, 1)),
        ("cifar_resnet", {}, (8, 8, 1)),
        ("cifar_resnet", {"depth": 26, "dtype": "bfloat16"}, (32, 32, 3)),
        ("wide_resnet", {"widen": 2, "dropout": 0.3}, (8, 8, 1)),
        ("resnet18", {"stem": "cifar", "zero_last_scale": True}, (8, 8, 1)),
        ("resnet18", {"dtype": "bfloat16"}, (64, 64, 3)),
        ("resnet50", {}, (32, 32, 3)),
    ],
)
def test_parts_map_images_to_logits(part, entries, image_shape):
    given = {"image_shape": image_shape, "num_classes": CLASSES}
    momentum = {"batch_norm_momentum": 0.75} if "batch_norm_momentum" in NETWORKS[part].defaults else {}
    assert NETWORKS[part].facts.task == "classification"

    def make():
        return NETWORKS.make(part, {**entries, **momentum}, **given, rngs=nnx.Rngs(0))

    def of_zeros():
        network = make()
        key = {"key": jax.random.key(0)} if "key" in inspect.signature(type(network).__call__).parameters else {}
        return network(jnp.zeros((3, *image_shape), jnp.float32), **key), network

    logits, network = nnx.eval_shape(of_zeros)
    assert (logits.shape, logits.dtype) == ((3, CLASSES), jnp.float32)
    norms = [m for _, m in nnx.iter_graph(network) if isinstance(m, nnx.BatchNorm)]
    if momentum:
        assert {norm.momentum for norm in norms} == {0.75}


def test_zero_last_scale():
    """Then every block without a shortcut of its own is the identity at first."""
    make = double(networks.ResNet, blocks=(2,), bottleneck=False, stem="cifar", zero_last_scale=True)
    network = nnx.jit(make)()
    inputs = jnp.abs(jnp.asarray(np.random.default_rng(0).normal(size=(2, 4, 4, 64))))
    np.testing.assert_array_equal(network.blocks[0](inputs), inputs)
    assert [float(norm.scale[...].sum()) for norm in network.blocks[0].norms] == [64.0, 0.0]


class TestDropout:
    def test_of_blocks_follows_the_key_alone(self):
        make = double(networks.WideResNet, 10, 1, dropout=0.5, channels=1)
        graph, params, stats = drawn(make)
        images = jnp.asarray(np.random.default_rng(1).standard_normal((2, 4, 4, 1)))
        apply = jax.jit(lambda key: nnx.merge(graph, params, stats)(images, key))
        keys = jax.random.split(jax.random.key(0), 2)
        one_by_one = [apply(key) for key in keys]
        np.testing.assert_array_equal(apply(keys[0]), one_by_one[0])
        assert jnp.abs(one_by_one[0] - one_by_one[1]).max() > 1e-3
        np.testing.assert_allclose(jax.vmap(apply)(keys), jnp.stack(one_by_one), rtol=0, atol=1e-10)
        without = drawn(double(networks.WideResNet, 10, 1, channels=1))
        np.testing.assert_allclose(apply(None), forward(*without, images), rtol=0, atol=1e-10)

    def test_of_features_keeps_their_share_and_mean(self, monkeypatch):
        monkeypatch.setattr(inception, "BLOCKS", inception.BLOCKS[-1:])  # whose width is that of the features
        width = 2048
        make = lambda: networks.Inception(dropout=0.25, num_classes=width, param_dtype=jnp.float64, rngs=nnx.Rngs(0))
        network = nnx.eval_shape(make)
        network.stem, network.blocks = nnx.List([]), nnx.List([])
        graph, _ = nnx.split(network)
        network = nnx.merge(graph, {"head": {"kernel": jnp.eye(width), "bias": jnp.zeros(width)}})
        images = jnp.ones((3, 1, 1, width))
        features = jax.jit(network.__call__)(images, jax.random.key(0))
        np.testing.assert_allclose(features[features > 0], 1 / 0.75, rtol=1e-12)
        # Five standard deviations of a binomial share.
        assert float((features > 0).mean()) == pytest.approx(0.75, abs=5 * np.sqrt(0.75 * 0.25 / features.size))
        np.testing.assert_array_equal(network(images), jnp.ones((3, width)))


def test_weight_norm_moves_directions_orthogonally():
    """Salimans and Kingma 2016, section 2.1: the gradient of v is orthogonal to v, that of g is dL/dw . v / |v|."""
    layer = networks.WeightNormConvolution(2, 3, param_dtype=jnp.float64, rngs=nnx.Rngs(0))
    direction = layer.direction[...] * jnp.array([0.5, 1.0, 3.0])  # w does not depend on the norm of v
    lengths = layer.length[...]
    images = jnp.asarray(np.random.default_rng(0).normal(size=(2, 5, 5, 2)))
    kernel = direction * lengths / jnp.sqrt((direction**2).sum((0, 1, 2)))
    of_kernel = jax.jit(jax.grad(lambda kernel: (networks.conv(images, kernel) ** 2).sum()))(kernel)

    graph, params = nnx.split(layer)

    def loss(direction, lengths):
        merged = nnx.merge(graph, nnx.as_pure(params) | {"direction": direction, "length": lengths})
        return (merged(images) ** 2).sum()

    of_direction, of_length = jax.jit(jax.grad(loss, (0, 1)))(direction, lengths)
    np.testing.assert_allclose((of_direction * direction).sum((0, 1, 2)), 0, atol=1e-10)
    np.testing.assert_allclose(of_length, (of_kernel * kernel / lengths).sum((0, 1, 2)), rtol=1e-12)


IMAGES, PIXELS, TEXT = (
    {"image_shape": (32, 32, 3), "num_classes": 10},
    {"image_shape": (8, 8, 3), "levels": 256},
    {"vocabulary": 256},
)
SOFTMAX = functools.partial(networks.TiedSoftmax, 11, 5)


@pytest.mark.parametrize(
    ("part", "given", "entries", "match"),
    [
        (parts.conv, IMAGES, {"channels": (4, 8, 16)}, r"channels=\(4, 8, 16\) must be two"),
        (parts.mlp, IMAGES, {"widths": (4, 0)}, r"widths=\(4, 0\) must be"),
        (parts.cnn, IMAGES, {"kernel_size": 0}, "kernel_size=0 must be"),
        (parts.cnn, IMAGES, {"channels": (4, 2.5)}, r"channels=\(4, 2\.5\) must be"),
        (parts.weight_norm_cnn, IMAGES, {"channels": (0,)}, r"channels=\(0,\) must be"),
        (parts.cifar_resnet, IMAGES, {"depth": 18}, r"depth=18 must be 6 n \+ 2, such as 8, 14 or 20"),
        (parts.cifar_resnet, IMAGES, {"depth": 2}, r"depth=2 must be 6 n \+ 2"),
        (parts.cifar_resnet, IMAGES, {"dtype": "float16"}, "dtype='float16' must be one of float32, bfloat16"),
        (parts.wide_resnet, IMAGES, {"depth": 20}, r"depth=20 must be 6 n \+ 4"),
        (parts.wide_resnet, IMAGES, {"widen": 0}, "widen=0 must be"),
        (parts.wide_resnet, IMAGES, {"dropout": 1.0}, "dropout=1.0 must be"),
        (parts.resnet18, IMAGES, {"stem": "mnist"}, "stem='mnist' must be one of imagenet, cifar"),
        (parts.resnet50, IMAGES, {"batch_norm_momentum": 1.0}, "batch_norm_momentum=1.0 must be"),
        (parts.inception, IMAGES, {}, r"image_shape=\(32, 32, 3\) must be at least 75 x 75"),
        (parts.pixelcnn, PIXELS, {"layers": 0}, "layers=0"),
        (parts.pixelcnn, PIXELS, {"width": 2}, "width=2"),
        (parts.pixelcnn, PIXELS, {"head": 1}, "head=1"),
        (parts.pixelcnn, PIXELS, {"kernel": 4}, "kernel=4"),
        (parts.pixelcnn, PIXELS, {"first_kernel": 1}, "first_kernel=1"),
        (parts.pixelcnn, PIXELS, {"dtype": "float16"}, "dtype='float16'"),
        (parts.transformer_xl, TEXT, {"layers": 0}, "layers=0"),
        (parts.transformer_xl, TEXT, {"width": 7}, "width=7"),
        (parts.transformer_xl, TEXT, {"memory": -1}, "memory=-1"),
        (parts.transformer_xl, TEXT, {"dropout": 1.0}, r"dropout=1\.0"),
        (parts.transformer_xl, TEXT, {"attention_dropout": -0.5}, r"attention_dropout=-0\.5"),
        (parts.transformer_xl, TEXT, {"cutoffs": (300,)}, r"cutoffs=\(300,\)"),
        (parts.transformer_xl, TEXT, {"dtype": "float16"}, "dtype='float16'"),
        (SOFTMAX, {}, {"cutoffs": (4, 4)}, r"cutoffs=\(4, 4\)"),
        (SOFTMAX, {}, {"cutoffs": (0, 4)}, r"cutoffs=\(0, 4\)"),
        (SOFTMAX, {}, {"cutoffs": (4, 11)}, r"cutoffs=\(4, 11\)"),
        (SOFTMAX, {}, {"cutoffs": (1.5,)}, r"cutoffs=\(1\.5,\)"),
        (SOFTMAX, {}, {"cutoffs": (3,), "room": 0}, "room=0"),
    ],
)
def test_what_cannot_be_is_refused_by_its_name(part, given, entries, match):
    with pytest.raises(ValueError, match=f"^{match}"):
        nnx.eval_shape(lambda: part(**entries, **given, rngs=nnx.Rngs(0)))
