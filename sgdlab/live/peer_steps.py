"""`PeerSteps`: the nodes of a replay one event at a time; live runs of peers average and step with it."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from sgdlab.protocols.peer_policy import Source
from sgdlab.replay.functions import Parts
from sgdlab.replay.mixing import mean_of_nodes, mixed, weighted
from sgdlab.replay.peer_step import node_step
from sgdlab.replay.watch import as_pytree
from sgdlab.rules.server_rule import ServerRule, server_rule
from sgdlab.xla import read_row

Tree = Any


class PeerSteps:
    """The parameters, optimisers and statistics of all nodes, and the parameters of the center.

    Given the same gradients as `sgdlab.replay.run` computes in event mode, it makes the same versions, to rounding;
    given them again, the same bits (`sgdlab.live.repeat`).
    Versions are numbered as in a `PeerSchedule`, and kept until they are forgotten.

    Args:
      rule: of each node's own optimiser: a rule of `sgdlab.rules` without workers, or any optax transform.
      params: initial parameters, of all nodes and the center.
      num_nodes: N; the center has this number.
      stats: initial running statistics of each node; None: none.
      fold: `(stats, aux) -> stats`, called for each gradient; together with `stats`.

    Raises:
      ValueError: if one of `stats` and `fold` is given without the other, or the rule keeps state for workers.

    Example:
      >>> from sgdlab import rules
      >>> steps = PeerSteps(rules.asgd(learning_rate=0.5), jnp.zeros([]), num_nodes=2)
      >>> steps.mix(0, 1, [Source(0, 0, 1.0)])
      >>> steps.step(0, 2, jnp.array(-2.0), {})
      >>> steps.mix(1, 1, [Source(1, 0, 0.5), Source(0, 2, 0.5)])
      >>> float(steps.at(0, 2)), float(steps.at(1, 1))
      (1.0, 0.5)
    """

    def __init__(
        self,
        rule: ServerRule | optax.GradientTransformation,
        params: Tree,
        *,
        num_nodes: int,
        stats: Tree = None,
        fold: Callable[[Tree, Tree], Tree] | None = None,
    ):
        if (stats is None) != (fold is None):
            raise ValueError("stats and fold must be given together: fold(stats, aux) -> stats")
        rule = rule if isinstance(rule, ServerRule) else server_rule(rule)
        if rule.num_workers is not None:
            raise ValueError(
                f"rule keeps state for num_workers={rule.num_workers} workers of a server; each node has its own "
                "optimiser, one without workers"
            )
        functions = (rule.init, rule.receive, rule.update, rule.send, None, None, fold)
        self._parts = Parts(*(as_pytree(function) for function in functions), None)
        self.num_nodes = num_nodes
        params, own = _start(params, stats, self._parts)
        self._own: list[Any] = [own] * num_nodes
        self._values: dict[tuple[int, int], Tree] = {(node, 0): params for node in range(num_nodes + 1)}
        self._newest = [0] * (num_nodes + 1)

    def compile(self, aux: Tree) -> None:
        """Compiles all that `mix` and `step` need, so that nothing is compiled later.

        Args:
          aux: of the gradient function, or objects with its shapes and dtypes.
        """
        values, own, newest = dict(self._values), list(self._own), list(self._newest)
        count = 2
        while count <= 2 * self.num_nodes:
            self.mix(0, 1, [Source(0, 0, 1.0 / count)] * count)
            count *= 2
        grads, aux = jax.tree.map(lambda leaf: np.zeros(np.shape(leaf), leaf.dtype), (values[0, 0], aux))
        for _ in range(2):  # what the first step returns may be less weakly typed than the initial state
            self._values[0, 1] = values[0, 0]
            self.step(0, 2, grads, aux)
        self._values, self._own, self._newest = values, own, newest

    def at(self, node: int, version: int) -> Tree:
        """A version of a node's parameters, or of the center's: arrays of JAX that never change."""
        return self._values[node, version]

    def newest(self, node: int) -> int:
        """Number of a node's newest version."""
        return self._newest[node]

    def mix(self, node: int, version: int, sources: Sequence[Source]) -> None:
        """A version becomes the weighted mean of others, or what its only source is."""
        trees = [self._values[source.node, source.version] for source in sources]
        value = mixture(trees, [source.weight for source in sources])
        self._made(node, version, value)

    def move(self, node: int, version: int, sources: Sequence[Source]) -> None:
        """A version, and the next one, become the weighted mean of others: the node takes no gradient between them."""
        self.mix(node, version, sources)
        self._made(node, version + 1, self._values[node, version])

    def step(self, node: int, version: int, grads: Tree, aux: Tree, *, scale: float = 1.0) -> None:
        """A version is made by a step of the node's optimiser from the version before.

        Args:
          node: whose step it is.
          version: which version it makes; the one before was made by an averaging.
          grads: the gradient, arrays like the parameters; they are not needed after the call.
          aux: what else the gradient function returned.
          scale: what the step is multiplied by.
        """
        averaged = self._values[node, version - 1]
        value, own = self.stepped(averaged, (grads, aux), self._own[node], node, scale)
        self._own[node] = own
        self._made(node, version, value)

    def stepped(
        self, averaged: Tree, gradient: tuple[Tree, Tree], own: Sequence[Tree], node: int, scale: float
    ) -> tuple[Tree, Any]:
        """A node's parameters after a step from what it has averaged, and the state and statistics of the node then.

        Args:
          averaged: where the step begins.
          gradient: arrays like the parameters, and what else the gradient function returned; not needed after the call.
          own: the state of the node's optimiser, and its running statistics.
          node: whose step it is.
          scale: what the step is multiplied by.
        """
        grads, aux = gradient
        gradient = grads, aux if self._parts.fold is not None else None
        factor = np.array(scale, jax.dtypes.canonicalize_dtype(np.float64))
        value, *own = _stepped(averaged, gradient, own, np.int32(node), factor, self._parts)
        jax.block_until_ready(value)  # JAX on CPU may read the memory of the gradient until then
        return value, tuple(own)

    def own(self, node: int) -> tuple[Tree, Tree]:
        """The state of a node's optimiser, and its running statistics."""
        return self._own[node]

    def keep(self, held: Iterable[tuple[int, int]]) -> None:
        """Forgets all versions but these, and the newest of all nodes and the center."""
        kept = {*held, *enumerate(self._newest)}
        self._values = {key: value for key, value in self._values.items() if key in kept}

    @property
    def nodes(self) -> Tree:
        """[N, *shape], the newest parameters of all nodes."""
        return _stacked([self._values[node, self._newest[node]] for node in range(self.num_nodes)])

    @property
    def params(self) -> Tree:
        """The mean of the nodes' parameters."""
        return mean_of_nodes(self.nodes)

    @property
    def center(self) -> Tree:
        """The center's parameters; the initial ones if nothing has moved it."""
        return self._values[self.num_nodes, self._newest[self.num_nodes]]

    @property
    def state(self) -> Tree:
        """[N, ...], the states of the nodes' optimisers."""
        return _stacked([state for state, _ in self._own])

    @property
    def own_stats(self) -> Tree:
        """[N, ...], the running statistics of all nodes; None without them."""
        return None if self._parts.fold is None else _stacked([stats for _, stats in self._own])

    @property
    def stats(self) -> Tree:
        """The mean of the nodes' running statistics; None without them."""
        return None if self._parts.fold is None else mean_of_nodes(self.own_stats)

    def _made(self, node: int, version: int, value: Tree) -> None:
        self._values[node, version] = value
        if node == self.num_nodes:  # the center takes no gradient: its step leaves it as it is
            version += 1
            self._values[node, version] = value
        self._newest[node] = version


@jax.jit
def _start(params: Tree, stats: Tree, parts: Parts) -> tuple[Tree, tuple[Tree, Tree]]:
    copied = lambda tree: jax.tree.map(jnp.copy, tree)
    return copied(params), (copied(parts.init(params)), copied(stats))


def mixture(trees: Sequence[Tree], weights: Sequence[float]) -> Tree:
    """The weighted mean of parameters; one alone stays as it is."""
    if len(trees) == 1:
        return trees[0]
    size = 1 << (len(trees) - 1).bit_length()
    padded = np.zeros(size)
    padded[: len(trees)] = weights
    ends = np.int32(0), np.int32(len(trees))
    return _mixed([*trees, *([trees[0]] * (size - len(trees)))], padded, *ends)


@jax.jit
def _mixed(trees: list[Tree], weights: jax.Array, first: jax.Array, end: jax.Array) -> Tree:
    """As in replay: the sum begins with the first term, and each further one is added in turn."""
    buffers = jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)
    read = lambda edge: jax.tree.map(lambda buffer: read_row(buffer, edge), buffers)
    more = lambda edge, total: mixed(total, weights[edge], read(edge))
    total = jax.lax.fori_loop(first + 1, end, more, weighted(weights[first], read(first)))
    return jax.tree.map(lambda leaf, buffer: leaf.astype(buffer.dtype), total, buffers)


@jax.jit
def _stepped(
    averaged: Tree, gradient: tuple[Tree, Tree], own: tuple[Tree, Tree], node: jax.Array, scale: jax.Array, parts: Parts
) -> tuple[Tree, Tree, Tree]:
    # No output may be an input itself, whose memory is another's.
    averaged, gradient, own = jax.lax.optimization_barrier((averaged, gradient, own))
    return node_step(averaged, *gradient, own, node, scale, parts)


def _stacked(trees: list[Tree]) -> Tree:
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)
