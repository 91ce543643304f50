"""`Qsgd`, `Sign` and `FourBit`: each entry is rounded to one of few values, in units of the whole vector."""

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


@COMPRESSIONS.register("qsgd", title="QSGD", source="Alistarh et al. 2017")
@dataclasses.dataclass(frozen=True)
class Qsgd(VectorCompressor):
    r"""Rounds each entry at random to a multiple of the vector's norm over s, so that the mean is right.

    .. math:: C(v)_i = \frac{\|v\|}{s} \operatorname{sign}(v_i)
        \left\lfloor s \frac{|v_i|}{\|v\|} + u_i \right\rfloor, \quad u_i \sim U[0, 1), \qquad
        E\, C(v) = v, \quad E \|C(v) - v\|^2 \le \min\left(\frac{d}{s^2}, \frac{\sqrt d}{s}\right) \|v\|^2

    A message has d log2(2 s + 1) / 8 + 4 bytes in float32, as an arithmetic code takes them; the packets of processes
    have whole bytes, one for each entry up to s = 127.

    Attributes:
      levels: s, at least 1.

    Raises:
      ValueError: where s is no whole number from 1 to 32767.

    Source: Alistarh et al. 2017, "QSGD", Section 3.1 and Lemma 3.1, without its Elias code.

    Example:
      >>> Qsgd(levels=5).compress(jnp.array([3.0, -4.0]), key=jax.random.key(0))[0]
      Array([ 3., -4.], dtype=float32)
    """

    levels: int = 16
    random = True
    entrywise = True

    def __post_init__(self) -> None:
        arguments.whole("levels", self.levels, most=2**15 - 1)

    def encode(self, vector: jax.Array, key: Any) -> Tree:
        """Return the norm, and the multiples, whole numbers from -s to s."""
        norm = jnp.linalg.norm(vector)
        parts = jnp.abs(vector) / jnp.where(norm > 0, norm, 1) * self.levels
        # A sum just below s + 1 may be rounded up to it.
        level = jnp.minimum(jnp.floor(parts + jax.random.uniform(key, vector.shape, vector.dtype)), self.levels)
        kind = jnp.int8 if self.levels < 2**7 else jnp.int16
        return {"norm": norm, "levels": (jnp.sign(vector) * level).astype(kind)}

    def decode(self, packet: Tree, size: int, key: Any) -> jax.Array:
        """Return the multiples of the norm over s."""
        return packet["levels"].astype(packet["norm"].dtype) * (packet["norm"] / self.levels)

    def excess(self, shapes: Sequence[tuple[int, ...]]) -> float:
        """Return min(d / s^2, sqrt(d) / s)."""
        size = sum(map(math.prod, shapes))
        return min(size / self.levels**2, math.sqrt(size) / self.levels)

    def bytes_of(self, size: int, each: int) -> float:
        """Return d log2(2 s + 1) / 8, and the norm's."""
        return size * math.log2(2 * self.levels + 1) / 8 + each


@COMPRESSIONS.register("sign", title="Scaled signs", source="Karimireddy et al. 2019", feedback="error")
@dataclasses.dataclass(frozen=True)
class Sign(VectorCompressor):
    r"""Keeps the signs of a vector, times the mean magnitude of its d entries; that of 0 is plus.

    .. math:: C(v) = \frac{\|v\|_1}{d} \operatorname{sign}(v), \qquad
        \|C(v) - v\|^2 = \left(1 - \frac{\|v\|_1^2}{d \|v\|^2}\right) \|v\|^2

    It is biased, and wants a memory of what was left out. A message has d / 8 + 4 bytes in float32.

    Source: Karimireddy et al. 2019, "Error Feedback Fixes SignSGD", Algorithm 1; Bernstein et al. 2018 without scale
    and memory.

    Example:
      >>> Sign().compress(jnp.array([1.0, -3.0]))[0]
      Array([ 2., -2.], dtype=float32)
    """

    def encode(self, vector: jax.Array, key: Any) -> Tree:
        """Return the mean magnitude, and the signs, eight in a byte."""
        return {"scale": jnp.mean(jnp.abs(vector)), "signs": jnp.packbits(vector >= 0)}

    def decode(self, packet: Tree, size: int, key: Any) -> jax.Array:
        """Return the signs times the magnitude."""
        return jnp.where(jnp.unpackbits(packet["signs"], count=size) > 0, packet["scale"], -packet["scale"])

    def bytes_of(self, size: int, each: int) -> float:
        """Return d / 8, and the scale's."""
        return size / 8 + each


@COMPRESSIONS.register("four_bit", title="4 bits (E3M0)", source="Douillard et al. 2025")
@dataclasses.dataclass(frozen=True)
class FourBit(VectorCompressor):
    r"""Rounds each entry to a sign and a power of two: E3M0, four bits, with one scale for the vector.

    .. math:: C(v)_i = \operatorname{sign}(v_i)\, m\, 2^{e_i}, \qquad m = \max_j |v_j|, \qquad
        e_i = \operatorname{round} \log_2 \frac{|v_i|}{m} \in \{-6, \dots, 0\}

    Entries below m 2^-6.5 are 0. A message has d / 2 + 4 bytes in float32.

    Source: Douillard et al. 2025 (Streaming DiLoCo), which sends outer gradients in E3M0; one scale for the vector, and
    rounding of the exponent, are ours.

    Example:
      >>> FourBit().compress(jnp.array([8.0, -3.0, 0.1, 0.01]))[0].tolist()
      [8.0, -4.0, 0.125, 0.0]
    """

    entrywise = True

    def encode(self, vector: jax.Array, key: Any) -> Tree:
        """Return the scale and the codes, two in a byte: 0, or 7 + e, and 8 more where the entry is negative."""
        scale = jnp.max(jnp.abs(vector))
        exponent = jnp.round(jnp.log2(jnp.abs(vector) / jnp.where(scale > 0, scale, 1)))
        code = (jnp.where(exponent >= -6, exponent + 7, 0) + jnp.where(vector < 0, 8, 0)).astype(jnp.uint8)
        first, second = jnp.pad(code, (0, code.size % 2)).reshape(-1, 2).T
        return {"scale": scale, "codes": first | (second << 4)}

    def decode(self, packet: Tree, size: int, key: Any) -> jax.Array:
        """Return the powers of two, with their signs, times the scale."""
        code = jnp.stack([packet["codes"] & 15, packet["codes"] >> 4], axis=1).reshape(-1)[:size]
        magnitudes = [0.0, *(2.0**e for e in range(-6, 1))]
        values = jnp.array([*magnitudes, *(-value for value in magnitudes)], packet["scale"].dtype)
        return values[code] * packet["scale"]

    def bytes_of(self, size: int, each: int) -> float:
        """Return d / 2, and the scale's."""
        return size / 2 + each
