"""`Inception`: Inception v3."""

import dataclasses

import jax
import jax.numpy as jnp
from flax import nnx

from sgdlab.networks.convolution import Convolution
from sgdlab.networks.normalization import BATCH_NORM_MOMENTUM, batch_norm
from sgdlab.networks.windows import max_pool, mean_pool


@dataclasses.dataclass(frozen=True)
class _Layer:
    """A convolution with BatchNorm and ReLU: output channels, kernel, stride and padding."""

    features: int
    size: int | tuple[int, int] = 1
    stride: int = 1
    padding: str = "SAME"


@dataclasses.dataclass(frozen=True)
class _Branch:
    """Layers in a row, after 3x3 pooling if `pool`, and before two layers side by side if `fork`."""

    layers: tuple[_Layer, ...]
    pool: str | None = None
    fork: tuple[_Layer, ...] = ()


def _pooled(*layers: _Layer, pool: str = "mean") -> _Branch:
    return _Branch(layers, pool=pool)


def _plain(*layers: _Layer) -> _Branch:
    return _Branch(layers)


def _block_a(pooled: int) -> tuple[_Branch, ...]:
    """5x5 and 3x3 convolutions (figure 5), which the networks of 35 x 35 positions consist of."""
    return (
        _plain(_Layer(64)),
        _plain(_Layer(48), _Layer(64, 5)),
        _plain(_Layer(64), _Layer(96, 3), _Layer(96, 3)),
        _pooled(_Layer(pooled)),
    )


def _block_c(width: int) -> tuple[_Branch, ...]:
    """1x7 and 7x1 convolutions (figure 6) at 17 x 17 positions."""
    row, column = (1, 7), (7, 1)
    return (
        _plain(_Layer(192)),
        _plain(_Layer(width), _Layer(width, row), _Layer(192, column)),
        _plain(_Layer(width), _Layer(width, column), _Layer(width, row), _Layer(width, column), _Layer(192, row)),
        _pooled(_Layer(192)),
    )


def _block_e() -> tuple[_Branch, ...]:
    """Forks of 1x3 and 3x1 convolutions (figure 7) at 8 x 8 positions."""
    fork = (_Layer(384, (1, 3)), _Layer(384, (3, 1)))
    return (
        _plain(_Layer(320)),
        _Branch((_Layer(384),), fork=fork),
        _Branch((_Layer(448), _Layer(384, 3)), fork=fork),
        _pooled(_Layer(192)),
    )


_HALVED = {"size": 3, "stride": 2, "padding": "VALID"}
_BLOCK_B = (
    _plain(_Layer(384, **_HALVED)),
    _plain(_Layer(64), _Layer(96, 3), _Layer(96, **_HALVED)),
    _pooled(pool="max"),
)
_BLOCK_D = (
    _plain(_Layer(192), _Layer(320, **_HALVED)),
    _plain(_Layer(192), _Layer(192, (1, 7)), _Layer(192, (7, 1)), _Layer(192, **_HALVED)),
    _pooled(pool="max"),
)
_STEM = (
    (_Layer(32, **_HALVED), _Layer(32, 3, padding="VALID"), _Layer(64, 3)),
    (_Layer(80), _Layer(192, 3, padding="VALID")),
)
BLOCKS = (
    _block_a(32),
    _block_a(64),
    _block_a(64),
    _BLOCK_B,
    *map(_block_c, (128, 160, 160, 192)),
    _BLOCK_D,
    _block_e(),
    _block_e(),
)
"""The branches of each of the eleven blocks."""


class Inception(nnx.Module):
    """Inception v3, for images of at least 75 x 75 pixels (299 x 299 in the source).

    Five convolutions, eleven blocks of parallel branches whose outputs are concatenated, the mean over all positions,
    dropout, and a linear layer; BatchNorm with epsilon 0.001 and ReLU follow every convolution. The auxiliary
    classifier is left out: 23,834,568 parameters for 1000 classes, as PyTorch's (torchvision) has without it.

    Args:
      dropout: probability with which a feature is set to zero in training; 0.2 in TensorFlow's published models.
      channels: channels of the images.
      num_classes: number of classes.
      batch_norm_momentum: m of BatchNorm's running statistics; 0.9997 in TensorFlow's published models.
      dtype: dtype of the computation; None for `param_dtype`. Statistics and logits have at least float32.
      param_dtype: dtype of the parameters and of BatchNorm's statistics.
      rngs: random streams; uses `params`.

    Source:
      Szegedy et al. 2016, "Rethinking the Inception architecture for computer vision", table 1.

    Example:
      >>> import jax
      >>> from flax import nnx
      >>> network = nnx.eval_shape(lambda: Inception(rngs=nnx.Rngs(0)))
      >>> sum(leaf.size for leaf in jax.tree.leaves(nnx.state(network, nnx.Param)))
      23834568
    """

    def __init__(
        self,
        *,
        dropout: float = 0.2,
        channels: int = 3,
        num_classes: int = 1000,
        batch_norm_momentum: float = BATCH_NORM_MOMENTUM,
        dtype: jnp.dtype | None = None,
        param_dtype: jnp.dtype = jnp.float32,
        rngs: nnx.Rngs,
    ):
        options = {"momentum": batch_norm_momentum, "dtype": dtype, "param_dtype": param_dtype, "rngs": rngs}
        stem, before = [], channels
        for layers in _STEM:
            stem.append(_Chain(before, layers, **options))
            before = layers[-1].features
        self.stem = nnx.List(stem)
        blocks = []
        for branches in BLOCKS:
            block = _Block(before, branches, **options)
            blocks.append(block)
            before = block.features
        self.blocks = nnx.List(blocks)
        self.dropout = nnx.Dropout(dropout)
        init = nnx.initializers.truncated_normal(0.1)
        self.head = nnx.Linear(before, num_classes, kernel_init=init, param_dtype=param_dtype, rngs=rngs)

    def __call__(self, images: jax.Array, key: jax.Array | None = None) -> jax.Array:
        """Maps [B, H, W, C] to logits [B, classes]; with a key, dropout is applied."""
        hidden = images
        for layers in self.stem:
            hidden = max_pool(layers(hidden), 3, 2)
        for block in self.blocks:
            hidden = block(hidden)
        features = hidden.mean((1, 2), dtype=self.head.param_dtype)
        return self.head(self.dropout(features, rngs=key, deterministic=key is None))


class _Block(nnx.Module):
    """Branches side by side; `features` is the number of channels of their concatenated outputs."""

    def __init__(self, before: int, branches: tuple[_Branch, ...], **options):
        self.pools = tuple(branch.pool for branch in branches)
        chains, forks, self.features = [], [], 0
        for branch in branches:
            features = branch.layers[-1].features if branch.layers else before
            chains.append(_Chain(before, branch.layers, **options))
            forks.append(nnx.List([_Chain(features, (layer,), **options) for layer in branch.fork]))
            self.features += sum(layer.features for layer in branch.fork) or features
        self.chains, self.forks = nnx.List(chains), nnx.List(forks)

    def __call__(self, images: jax.Array) -> jax.Array:
        outputs = []
        for pool, chain, fork in zip(self.pools, self.chains, self.forks, strict=True):
            hidden = images
            if pool == "mean":
                hidden = mean_pool(hidden, 3, 1, padding=1)
            elif pool == "max":
                hidden = max_pool(hidden, 3, 2)
            hidden = chain(hidden)
            outputs += [layer(hidden) for layer in fork] or [hidden]
        return jnp.concatenate(outputs, axis=-1)


class _Chain(nnx.Module):
    """Convolutions in a row, each with BatchNorm and ReLU."""

    def __init__(self, before: int, layers: tuple[_Layer, ...], *, momentum: float, **options):
        convolutions = []
        for layer in layers:
            convolutions.append(
                Convolution(
                    before,
                    layer.features,
                    kernel_size=layer.size,
                    stride=layer.stride,
                    padding=layer.padding,
                    use_bias=False,
                    **options,
                )
            )
            before = layer.features
        self.convolutions = nnx.List(convolutions)
        self.norms = nnx.List([batch_norm(x.features, momentum=momentum, epsilon=1e-3, **options) for x in layers])

    def __call__(self, images: jax.Array) -> jax.Array:
        hidden = images
        for convolution, norm in zip(self.convolutions, self.norms, strict=True):
            hidden = nnx.relu(norm(convolution(hidden)))
        return hidden
