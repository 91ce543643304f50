"""`TransformerXL`: a Transformer that reads a text segment by segment, with the segment before as its memory."""

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from sgdlab import arguments
from sgdlab.networks.adaptive_softmax import TiedSoftmax

Memory = dict[str, jax.Array]
"""`hidden` [layers, B, M, d], the input of each layer at the last M positions; of them the last `filled` (int32[]) were
computed, and the others are not attended to."""

_DEVIATION = 0.02
_EPSILON = 1e-5


class TransformerXL(nnx.Module):
    r"""Transformer-XL: attention by content and by relative position, over the segment and a memory before it.

    The score of query i and key j :math:`\le` i in one head is

    .. math:: s_{ij} = \frac{(q_i + u)^\top k_j + (q_i + v)^\top W_r r_{i-j}}{\sqrt{d_h}}

    with sinusoids r of the distance, and u and v shared by all layers; attention and two fully connected layers each
    follow with a residual connection and LayerNorm. The inputs of the last M positions of every layer are the memory
    for the next segment; no gradient flows into it. At the start of a text it is empty: its zeros are masked. (The
    published evaluation on WikiText-103 uses a longer memory than training, of 640 tokens; here both use M.)

    The layers are stacked and scanned, so that compilation does not take longer for more of them.

    Args:
      vocabulary: number of tokens.
      layers: number of layers.
      width: d, of the embeddings and the layers; even.
      heads: number of attention heads.
      head_width: d_h, of queries, keys and values in a head.
      inner: width between the two fully connected layers.
      memory: M, positions of the past that are remembered.
      dropout: rate of dropout on embeddings, distances, the output of attention, between and after the fully
        connected layers, and on the last hidden vectors.
      attention_dropout: rate of dropout on the attention's weights.
      cutoffs: of the adaptive softmax: see `TiedSoftmax`.
      room: most targets of a cluster at once: see `TiedSoftmax`.
      checkpoint: whether a gradient computes the inside of each layer a second time instead of storing it.
      dtype: of activations and memory; None for `param_dtype`. Softmaxes and likelihoods have `param_dtype`.
      param_dtype: dtype of the parameters.
      rngs: random streams; uses `params`.

    Raises:
      ValueError: if an argument is out of its range.

    Source: Dai et al. 2019, section 3; sizes, initial values and dropout as in their published code for the base model
    on WikiText-103, whose 151,107,538 parameters are those of vocabulary 267,735 with cutoffs (20000, 40000, 200000).

    Example:
      >>> import jax, jax.numpy as jnp
      >>> from flax import nnx
      >>> def read(tokens, targets):
      ...     network = TransformerXL(10, layers=2, width=8, heads=2, head_width=4, memory=5, rngs=nnx.Rngs(0))
      ...     return network(tokens, targets, network.start(1))
      >>> nll, memory = jax.eval_shape(read, jnp.array([[1, 2, 3]]), jnp.array([[2, 3, 4]]))
      >>> nll.shape, memory["hidden"].shape
      ((1, 3), (2, 1, 5, 8))
    """

    def __init__(  # noqa: PLR0913 (the sizes of the published model)
        self,
        vocabulary: int,
        *,
        layers: int = 16,
        width: int = 410,
        heads: int = 10,
        head_width: int = 41,
        inner: int = 2100,
        memory: int = 150,
        dropout: float = 0.1,
        attention_dropout: float = 0.0,
        cutoffs: Sequence[int] = (),
        room: int | None = None,
        checkpoint: bool = False,
        dtype: str | jnp.dtype | None = None,
        param_dtype: jnp.dtype = jnp.float32,
        rngs: nnx.Rngs,
    ):
        for name, value in (("layers", layers), ("heads", heads), ("head_width", head_width), ("inner", inner)):
            arguments.whole(name, value)
        if arguments.whole("width", width, least=2) % 2:
            raise ValueError(f"width={width} must be even: half of each position's vector are sines, half cosines")
        self.size = (layers, arguments.whole("memory", memory, least=0), width)
        self.checkpoint, self.dtype = bool(checkpoint), jnp.dtype(param_dtype if dtype is None else dtype)
        options: dict[str, Any] = {"dtype": self.dtype, "param_dtype": param_dtype}
        self.softmax = TiedSoftmax(vocabulary, width, cutoffs=cutoffs, room=room, rngs=rngs, **options)
        init = nnx.initializers.normal(_DEVIATION)
        self.content_bias, self.position_bias = (
            nnx.Param(init(rngs.params(), (heads, head_width), param_dtype)) for _ in range(2)
        )
        self.dropout = nnx.Dropout(arguments.real("dropout", dropout, least=0, below=1))
        rates = (self.dropout.rate, arguments.real("attention_dropout", attention_dropout, least=0, below=1))
        # One layer is initialised under vmap: an initialiser would take the stacked axis for a part of the fan-in.
        make = functools.partial(_Layer, width, heads, head_width, inner, rates, **options)
        self.layers = nnx.vmap(lambda rngs: make(rngs=rngs), in_axes=0, out_axes=0)(rngs.split(layers))

    def start(self, batch_size: int) -> Memory:
        """The empty memory of B texts."""
        layers, length, width = self.size
        hidden = jnp.zeros((layers, batch_size, length, width), self.dtype)
        return {"hidden": hidden, "filled": jnp.zeros((), jnp.int32)}

    def __call__(
        self, tokens: jax.Array, targets: jax.Array, memory: Memory, key: jax.Array | None = None
    ) -> tuple[jax.Array, Memory]:
        """Reads one segment of every text.

        Args:
          tokens: int[B, L], the segment that follows those in the memory.
          targets: int[B, L], the token after each.
          memory: of the same B texts.
          key: typed key of dropout; None for no dropout.

        Returns:
          The negative log-likelihood of each target, [B, L] in nats, and the memory for the next segment.
        """
        layers, length, width = self.size
        segment = tokens.shape[1]
        keys = [None if key is None else jax.random.fold_in(key, layers + number) for number in range(3)]
        distances = jnp.asarray(_sinusoids(length + segment, width), self.dtype)
        distances = _dropped(self.dropout, distances, keys[0])
        hidden = _dropped(self.dropout, self.softmax.embed(tokens) * width**0.5, keys[1])
        position, query = jnp.arange(length + segment), length + jnp.arange(segment)[:, None]
        visible = (position <= query) & (position >= length - memory["filled"])
        biases = (self.content_bias[...], self.position_bias[...])
        graph, params = nnx.split(self.layers)

        def apply(params: nnx.State, hidden: jax.Array, past: jax.Array, key: jax.Array | None) -> jax.Array:
            return nnx.merge(graph, params)(hidden, past, distances, biases, visible, key)

        if self.checkpoint:
            apply = jax.checkpoint(apply, prevent_cse=False)  # a scan keeps the two computations apart by itself

        def layer(hidden: jax.Array, inputs: tuple[nnx.State, jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            params, past, number = inputs
            after = jnp.concatenate([past, jax.lax.stop_gradient(hidden)], axis=1)[:, segment:]
            own = None if key is None else jax.random.fold_in(key, number)
            return apply(params, hidden, past, own), after

        past = jax.lax.stop_gradient(memory["hidden"])
        hidden, after = jax.lax.scan(layer, hidden, (params, past, jnp.arange(layers)))
        nll = self.softmax.nll(_dropped(self.dropout, hidden, keys[2]), targets)
        return nll, {"hidden": after, "filled": jnp.minimum(memory["filled"] + segment, length)}


class _Layer(nnx.Module):
    """Relative attention and two fully connected layers, each with a residual connection and LayerNorm after it."""

    def __init__(
        self,
        width: int,
        heads: int,
        head_width: int,
        inner: int,
        rates: tuple[float, float],
        *,
        dtype: jnp.dtype,
        param_dtype: jnp.dtype,
        rngs: nnx.Rngs,
    ):
        init = nnx.initializers.normal(_DEVIATION)
        options: dict[str, Any] = {"dtype": dtype, "param_dtype": param_dtype, "rngs": rngs}
        linear = functools.partial(nnx.Linear, kernel_init=init, **options)
        self.queries_keys_values = linear(width, 3 * heads * head_width, use_bias=False)
        self.position = linear(width, heads * head_width, use_bias=False)
        self.output = linear(heads * head_width, width, use_bias=False)
        self.expand, self.contract = linear(width, inner), linear(inner, width)
        norm = functools.partial(
            nnx.LayerNorm, width, epsilon=_EPSILON, use_fast_variance=False, scale_init=_near_one, **options
        )
        self.attention_norm, self.inner_norm = norm(), norm()
        self.shape, self.param_dtype = (heads, head_width), param_dtype
        self.dropout, self.attention_dropout = (nnx.Dropout(rate) for rate in rates)

    def __call__(
        self,
        hidden: jax.Array,
        past: jax.Array,
        distances: jax.Array,
        biases: tuple[jax.Array, jax.Array],
        visible: jax.Array,
        key: jax.Array | None,
    ) -> jax.Array:
        """Maps [B, L, d], with the memory [B, M, d], to [B, L, d]."""
        batch, segment, _ = hidden.shape
        keys = [None] * 4 if key is None else jax.random.split(key, 4)
        heads = lambda vectors: vectors.reshape(*vectors.shape[:-1], *self.shape)
        products = self.queries_keys_values(jnp.concatenate([past, hidden], axis=1))
        query, content, value = (heads(part) for part in jnp.split(products, 3, axis=-1))
        query, position = query[:, -segment:], heads(self.position(distances))
        content_bias, position_bias = (bias.astype(hidden.dtype) for bias in biases)
        wide = functools.partial(jnp.einsum, preferred_element_type=self.param_dtype)
        by_content = wide("bihd,bjhd->bhij", query + content_bias, content)
        by_position = _shifted(wide("bihd,jhd->bhij", query + position_bias, position))
        scores = jnp.where(visible, (by_content + by_position) / self.shape[1] ** 0.5, -jnp.inf)
        weights = _dropped(self.attention_dropout, jax.nn.softmax(scores), keys[0]).astype(hidden.dtype)
        attended = jnp.einsum("bhij,bjhd->bihd", weights, value).reshape(batch, segment, -1)
        hidden = self.attention_norm(hidden + _dropped(self.dropout, self.output(attended), keys[1]))
        between = _dropped(self.dropout, nnx.relu(self.expand(hidden)), keys[2])
        return self.inner_norm(hidden + _dropped(self.dropout, self.contract(between), keys[3]))


def _dropped(dropout: nnx.Dropout, values: jax.Array, key: jax.Array | None) -> jax.Array:
    return dropout(values, rngs=key, deterministic=key is None)


def _near_one(key: jax.Array, shape: Sequence[int], dtype: jnp.dtype) -> jax.Array:
    return 1 + _DEVIATION * jax.random.normal(key, shape, dtype)


def _sinusoids(length: int, width: int) -> np.ndarray:
    """[K, d]: sines and cosines of the distances K - 1 to 0."""
    angles = np.arange(length - 1, -1, -1)[:, None] / 10000 ** (np.arange(0, width, 2) / width)
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=1)


def _shifted(scores: jax.Array) -> jax.Array:
    """Turns columns of distances K - 1 to 0 into columns of the keys 0 to K - 1, [..., L, K].

    The row of query i moves to the left by L - 1 - i. What comes in from the right belongs to later keys.
    """
    *batch, segment, length = scores.shape
    padded = jnp.pad(scores, [(0, 0)] * (scores.ndim - 1) + [(1, 0)]).reshape(*batch, length + 1, segment)
    return padded[..., 1:, :].reshape(*batch, segment, length)
