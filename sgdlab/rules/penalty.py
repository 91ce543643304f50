"""Penalties on stale gradients: none, and division by the delay; `sgdlab.rules.gap` has division by the gap."""

import dataclasses
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp

from sgdlab.rules.hyperparameters import like, static
from sgdlab.types import Tree


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
        """What a gradient is divided by, the mean over all parameters."""

    def fold(self, state: Tree, velocity: Tree) -> Tree:
        """The state after an update that formed `velocity`."""


class _Stateless:
    def init(self, params: Tree) -> tuple[()]:
        del params
        return ()

    def fold(self, state: tuple[()], velocity: Tree) -> tuple[()]:
        del velocity
        return state


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class NoPenalty(_Stateless):
    """No penalty: stale gradients are used as if they were fresh."""

    kind: str = static("none")  # see `static`: the tree structures of two penalties must differ

    def divide(self, grads: Tree, state: tuple[()], params: Tree, *, delay: Any, read_params: Tree) -> Tree:
        """The gradients as they are."""
        del state, params, delay, read_params
        return grads


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class DelayPenalty(_Stateless):
    """Gradients are divided by their delay (Zhang et al. 2015b)."""

    kind: str = static("delay")

    def divide(self, grads: Tree, state: tuple[()], params: Tree, *, delay: Any, read_params: Tree) -> Tree:
        """g / tau."""
        del state, params, read_params
        return divide_by_delay(grads, delay)

    def mean(self, state: tuple[()], params: Tree, *, delay: Any, read_params: Tree) -> jax.Array:
        """tau."""
        del state, params, read_params
        return jnp.asarray(delay, float)


def divide_by_delay(tree: Tree, delay: Any) -> Tree:
    """Every leaf divided by the delay, in its own dtype."""
    return jax.tree.map(lambda leaf: leaf / like(delay, leaf), tree)
