"""`TopK` and `RandomK`: a message is a share of the entries, the largest ones or random ones."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from sgdlab import arguments
from sgdlab.compressions.compressor import VectorCompressor
from sgdlab.compressions.family import COMPRESSIONS
from sgdlab.types import Tree

SEED_BYTES = 8
"""Bytes of a seed, from which the receiver draws the places that the sender has drawn."""


@dataclasses.dataclass(frozen=True)
class _Sparse(VectorCompressor):
    share: float = 0.01

    def __post_init__(self) -> None:
        arguments.real("share", self.share, above=0, most=1)

    def kept(self, size: int) -> int:
        """Return k of a vector of `size` entries: at least 1."""
        return max(math.ceil(self.share * size * (1 - 1e-12)), 1)  # 7 % of 100 are 7


@COMPRESSIONS.register("top_k", title="Top-k", source="Stich et al. 2018", feedback="error")
@dataclasses.dataclass(frozen=True)
class TopK(_Sparse):
    r"""Keeps the k entries of largest magnitude of a vector of d.

    .. math:: C(v)_i = v_i \text{ where } |v_i| \text{ is among the } k \text{ largest, else } 0, \qquad
        \|C(v) - v\|^2 \le \left(1 - \frac{k}{d}\right) \|v\|^2

    It is biased, and wants a memory of what was left out. A message has k (4 + ceil(log2 d) / 8) bytes, numbers and
    places, in float32; the packets of processes have int32 places.

    Attributes:
      share: k / d, in (0, 1]; k is rounded up.

    Raises:
      ValueError: where the share is no number in (0, 1].

    Source: Stich, Cordonnier and Jaggi 2018, "Sparsified SGD with Memory".

    Example:
      >>> TopK(share=0.5).compress(jnp.array([1.0, -3.0, 0.5, 2.0]))[0]
      Array([ 0., -3.,  0.,  2.], dtype=float32)
    """

    def encode(self, vector: jax.Array, key: Any) -> Tree:
        """Return the places of the entries, and the entries."""
        places = jax.lax.top_k(jnp.abs(vector), self.kept(vector.size))[1]
        return {"places": places, "values": vector[places]}

    def decode(self, packet: Tree, size: int, key: Any) -> jax.Array:
        """Return the entries in their places."""
        return jnp.zeros(size, packet["values"].dtype).at[packet["places"]].set(packet["values"])

    def bytes_of(self, size: int, each: int) -> float:
        """Return k (each + ceil(log2 d) / 8)."""
        return self.kept(size) * (each + math.ceil(math.log2(size)) / 8)


@COMPRESSIONS.register("random_k", title="Random-k", source="Stich et al. 2018")
@dataclasses.dataclass(frozen=True)
class RandomK(_Sparse):
    r"""Keeps k random entries of a vector of d, made longer so that the mean is right.

    .. math:: C(v)_i = \frac{d}{k} v_i \text{ for } k \text{ places, drawn without replacement, else } 0, \qquad
        E\, C(v) = v, \quad E \|C(v) - v\|^2 = \left(\frac{d}{k} - 1\right) \|v\|^2

    A message has 4 k bytes in float32, and 8 of a seed: the receiver draws the places too.

    Attributes:
      share: k / d, in (0, 1]; k is rounded up.

    Raises:
      ValueError: where the share is no number in (0, 1].

    Source: Stich, Cordonnier and Jaggi 2018, "Sparsified SGD with Memory"; scaled as in Gorbunov, Hanzely and
    Richtarik 2020.

    Example:
      >>> found, _ = RandomK(share=0.5).compress(jnp.ones(4), key=jax.random.key(0))
      >>> sorted(found.tolist())
      [0.0, 0.0, 2.0, 2.0]
    """

    random = True

    def encode(self, vector: jax.Array, key: Any) -> Tree:
        """Return the entries at the places that the key draws."""
        values = vector[self._places(vector.size, key)] * self._factor(vector.size)
        # Entries that are not sent could hide that a gradient is not finite.
        return jnp.where(jnp.isfinite(vector).all(), values, jnp.nan)

    def decode(self, packet: Tree, size: int, key: Any) -> jax.Array:
        """Return the entries in their places."""
        return jnp.zeros(size, packet.dtype).at[self._places(size, key)].set(packet)

    def excess(self, shapes: Sequence[tuple[int, ...]]) -> float:
        """Return d / k - 1."""
        return self._factor(sum(map(math.prod, shapes))) - 1

    def bytes_of(self, size: int, each: int) -> float:
        """Return k each, and the seed's."""
        return self.kept(size) * each + SEED_BYTES

    def _factor(self, size: int) -> float:
        return size / self.kept(size)

    def _places(self, size: int, key: Any) -> jax.Array:
        # Of random numbers the largest: a permutation takes ten times as long. XLA is quick at it in float32 alone.
        return jax.lax.top_k(jax.random.uniform(key, (size,), jnp.float32), self.kept(size))[1]
