"""`TiedSoftmax`: token embeddings that are the output layer too, with a full or an adaptive softmax over the tokens."""

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from sgdlab import arguments

_DEVIATION = 0.02
_PIECES = 8


class TiedSoftmax(nnx.Module):
    r"""Embeddings of tokens, and the likelihood of tokens by the same embeddings.

    With no cutoffs the probability of token w after a hidden vector h is

    .. math:: p(w) = \operatorname{softmax}(E h + b)_w.

    With cutoffs :math:`c_1 < \ldots < c_k`, for tokens sorted by falling frequency, the first :math:`c_1` tokens and k
    clusters share one softmax, and the tokens :math:`[c_i, c_{i+1})` of cluster i have one of their own:

    .. math:: p(w) = \operatorname{softmax}([E_{<c_1}; C] h + [b_{<c_1}; b'])_i \,
              \operatorname{softmax}(E_{[c_i, c_{i+1})} h + b_{[c_i, c_{i+1})})_{w - c_i}.

    A cluster's softmax is computed only for the targets that lie in it. They are gathered and handled in pieces of at
    most `room`, as many pieces as are needed, so that the result does not depend on `room`. (Under `vmap` every piece
    is computed, whether it is needed or not: prefer `jax.lax.map`.)

    Args:
      vocabulary: V, number of tokens.
      width: d, of the embeddings and the hidden vectors.
      cutoffs: the cutoffs, increasing, each from 1 to V - 1; empty for the full softmax.
      room: most targets in a piece: memory for so many times the tokens of a cluster is needed; None for an eighth of
        all targets.
      dtype: of the matrix products; None for `param_dtype`. Likelihoods have `param_dtype`.
      param_dtype: dtype of the parameters.
      rngs: random streams; uses `params`.

    Raises:
      ValueError: if an argument is out of its range.

    Source: Grave et al. 2017 (adaptive softmax), with one width for all clusters as in the published code of
    Transformer-XL (Dai et al. 2019), whose cluster columns stand in reverse order.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> from flax import nnx
      >>> def after(tokens, targets):
      ...     softmax = TiedSoftmax(10, 4, cutoffs=(3, 6), rngs=nnx.Rngs(0))
      ...     return softmax.nll(softmax.embed(tokens), targets)
      >>> jax.eval_shape(after, jnp.array([[1, 2, 7]]), jnp.array([[2, 7, 9]])).shape
      (1, 3)
    """

    def __init__(
        self,
        vocabulary: int,
        width: int,
        *,
        cutoffs: Sequence[int] = (),
        room: int | None = None,
        dtype: jnp.dtype | None = None,
        param_dtype: jnp.dtype = jnp.float32,
        rngs: nnx.Rngs,
    ):
        arguments.whole("vocabulary", vocabulary, least=2)
        arguments.whole("width", width)
        self.edges = (*_checked(cutoffs, vocabulary), vocabulary)
        self.room = None if room is None else arguments.whole("room", room)
        self.dtype = jnp.dtype(param_dtype if dtype is None else dtype)
        self.param_dtype = jnp.dtype(param_dtype)
        init = nnx.initializers.normal(_DEVIATION)
        self.embedding = nnx.Param(init(rngs.params(), (vocabulary, width), param_dtype))
        self.bias = nnx.Param(jnp.zeros((vocabulary,), param_dtype))
        clusters = len(self.edges) - 1
        self.cluster_embedding: Any = (
            nnx.Param(init(rngs.params(), (clusters, width), param_dtype)) if clusters else None
        )
        self.cluster_bias: Any = nnx.Param(jnp.zeros((clusters,), param_dtype)) if clusters else None

    def embed(self, tokens: jax.Array) -> jax.Array:
        """Maps int[...] to [..., d]."""
        return self.embedding[...][tokens].astype(self.dtype)

    def nll(self, hidden: jax.Array, targets: jax.Array) -> jax.Array:
        """The negative log-likelihood, in nats, of targets int[...] after hidden vectors [..., d]."""
        embedding, bias = self.embedding[...], self.bias[...]
        flat, tokens = hidden.reshape(-1, hidden.shape[-1]), targets.ravel()
        shortlist, *starts = self.edges
        rows, biases = embedding[:shortlist], bias[:shortlist]
        if not starts:
            return self._softmax(flat, rows, biases, tokens).reshape(targets.shape)
        rows = jnp.concatenate([rows, self.cluster_embedding[...]])
        biases = jnp.concatenate([biases, self.cluster_bias[...]])
        cluster = sum((tokens >= edge).astype(jnp.int32) for edge in self.edges[:-1])  # 0 for the first tokens
        column = jnp.where(cluster == 0, tokens, shortlist + len(starts) - cluster)
        nll = self._softmax(flat, rows, biases, column)
        for number, (start, stop) in enumerate(zip(self.edges[:-1], starts, strict=True), 1):
            nll = self._add_cluster(
                nll, cluster == number, flat, embedding[start:stop], bias[start:stop], tokens - start
            )
        return nll.reshape(targets.shape)

    def _softmax(self, hidden: jax.Array, rows: jax.Array, bias: jax.Array, column: jax.Array) -> jax.Array:
        """The negative log-likelihood of one column each, [n], in `param_dtype`."""
        products = jnp.matmul(hidden, rows.astype(self.dtype).T, preferred_element_type=self.param_dtype)
        logits = products + bias
        chosen = jnp.take_along_axis(logits, column[:, None], axis=1)[:, 0]
        return jax.nn.logsumexp(logits, axis=1) - chosen

    def _add_cluster(
        self, nll: jax.Array, inside: Any, hidden: jax.Array, rows: jax.Array, bias: jax.Array, column: jax.Array
    ) -> jax.Array:
        """Adds the negative log-likelihood of a token within its cluster, for the targets that are `inside`."""
        total = len(inside)
        room = min(self.room or -(-total // _PIECES), total)
        pieces = -(-total // room)
        # The indices of the targets inside come first; `total`, which is no index, fills the rest.
        index = jnp.nonzero(inside, size=pieces * room, fill_value=total)[0].reshape(pieces, room)

        def compute(index: jax.Array) -> jax.Array:
            gathered = hidden.at[index].get(mode="fill", fill_value=0)
            own = jnp.clip(column.at[index].get(mode="fill", fill_value=0), 0, len(rows) - 1)
            return self._softmax(gathered, rows, bias, own)

        # Without the checkpoint, a gradient would hold the logits of all pieces at once. It stands outside of the
        # condition, which would otherwise return the rows themselves for every piece.
        @functools.partial(jax.checkpoint, prevent_cse=False)
        def piece(index: jax.Array) -> jax.Array:
            return jax.lax.cond(index[0] < total, compute, lambda index: jnp.zeros(room, self.param_dtype), index)

        return nll.at[index].add(jax.lax.map(piece, index), mode="drop")


def _checked(cutoffs: Sequence[int], vocabulary: int) -> tuple[int, ...]:
    cutoffs = tuple(cutoffs)
    try:
        for before, cutoff in zip((0, *cutoffs), cutoffs, strict=False):
            arguments.whole("cutoffs", cutoff, least=before + 1, most=vocabulary - 1)
    except ValueError as error:
        raise ValueError(
            f"cutoffs={cutoffs} must be whole numbers that increase from at least 1 to at most "
            f"{vocabulary - 1}, one less than the vocabulary"
        ) from error
    return tuple(int(cutoff) for cutoff in cutoffs)
