"""Penalties on stale gradients: by the delay, or a weight by staleness; `sgdlab.rules.gap` has those by the gap."""

import dataclasses
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp

from sgdlab.rules.hyperparameters import like, static
from sgdlab.types import Tree

WEIGHTS = ("constant", "polynomial", "hinge")
"""Functions s of the staleness in FedAsync, of which FedBuff takes one."""


class PenalisedGradient(NamedTuple):
    """Message of rules that need the penalised and the raw gradient."""

    penalised: Tree
    raw: Tree  # with the weight decay.


class Penalty(Protocol):
    """A penalty on stale gradients, with a state that follows the velocities of the server."""

    def init(self, params: Tree) -> Tree:
        """The state before the first update."""

    def divide(self, grads: Tree, state: Tree, params: Tree, *, delay: Any, read_params: Tree) -> Tree:
        """The penalised gradients, which were computed on `read_params` and are to be applied to `params`."""

    def mean(self, state: Tree, params: Tree, *, delay: Any, read_params: Tree) -> jax.Array:
        """Return what a gradient is divided by, the mean over all parameters."""

    def fold(self, state: Tree, velocity: Tree) -> Tree:
        """The state after an update that formed `velocity`."""


class _Stateless:
    def init(self, params: Tree) -> tuple[()]:
        return ()

    def fold(self, state: tuple[()], velocity: Tree) -> tuple[()]:
        return state


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class NoPenalty(_Stateless):
    """No penalty: stale gradients are used as if they were fresh."""

    kind: str = static("none")  # see `static`: the tree structures of two penalties must differ

    def divide(self, grads: Tree, state: tuple[()], params: Tree, *, delay: Any, read_params: Tree) -> Tree:
        """The gradients as they are."""
        return grads


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class DelayPenalty(_Stateless):
    """Gradients are divided by their delay (Zhang et al. 2015b)."""

    kind: str = static("delay")

    def divide(self, grads: Tree, state: tuple[()], params: Tree, *, delay: Any, read_params: Tree) -> Tree:
        """g / tau."""
        return divide_by_delay(grads, delay)

    def mean(self, state: tuple[()], params: Tree, *, delay: Any, read_params: Tree) -> jax.Array:
        """tau."""
        return jnp.asarray(delay, float)


def divide_by_delay(tree: Tree, delay: Any) -> Tree:
    """Every leaf divided by the delay, in its own dtype."""
    return jax.tree.map(lambda leaf: leaf / like(delay, leaf), tree)


def staleness_weight(kind: str, staleness: Any, a: Any, b: Any) -> Any:
    r"""The weight s of a message that is some updates old.

    .. math:: s(u) = 1, \qquad s(u) = (u + 1)^{-a}, \qquad
        s(u) = \begin{cases} 1 & u \le b \\ \frac{1}{a (u - b) + 1} & u > b \end{cases}

    Args:
      kind: "constant", "polynomial" or "hinge", in this order above.
      staleness: u, updates between reading and entering; 0 is fresh.
      a: of the polynomial and the hinge.
      b: of the hinge.

    Source: Xie et al. 2019, section 5.2; the hinge has the + 1 with which it is continuous.

    Example:
      >>> float(staleness_weight("polynomial", 3, 0.5, None)), float(staleness_weight("hinge", 6, 0.5, 4))
      (0.5, 0.5)
    """
    staleness = jnp.asarray(staleness)
    if kind == "constant":
        return jnp.ones_like(staleness)
    if kind == "polynomial":
        return (staleness + 1.0) ** -a
    return 1.0 / (a * jnp.maximum(staleness - b, 0.0) + 1.0)
