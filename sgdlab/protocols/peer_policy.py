"""`PeerPolicy`: whose parameters are averaged when, decided event by event, where there is no server.

Nodes have the numbers of the workers that compute their gradients; N, past them, is a center. The k-th event of a node,
counted from 0, makes two versions of its parameters, as in a `PeerSchedule`: 2 k + 1 by averaging, and 2 k + 2 by its
step. Version 0 is the initial parameters. An event without a gradient makes two versions that are equal.

A node averages when it begins a gradient (`Mix`, `Begin`, and `Step` when the gradient has come), or when it makes its
step (`Begin`, and when the gradient has come, `Mix` and `Step`).
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from sgdlab.protocols.policy import Begin


class Step(NamedTuple):
    """The gradient that has just come, or was kept, is applied to the parameters of its node."""

    node: int


class Keep(NamedTuple):
    """The gradient that has just come is kept until the `Step` of its node."""

    node: int


class Source(NamedTuple):
    """Parameters that an averaging reads, and their weight."""

    node: int
    version: int
    weight: float


class Mix(NamedTuple):
    """The next version of a node, or of the center, is the weighted mean of sources.

    For a node `Begin` follows, or its `Step`, of which `scale` is a factor.
    """

    node: int
    sources: tuple[Source, ...]
    scale: float = 1.0


class Move(NamedTuple):
    """The next two versions of a node are the weighted mean of sources; what it computes goes on as it was."""

    node: int
    sources: tuple[Source, ...]


PeerAction = Step | Keep | Mix | Move | Begin


class PeerPolicy(Protocol):
    """Decides whose parameters are averaged when.

    Attributes:
      fresh: whether gradients are taken at the averaged parameters; else at the node's own before.
    """

    fresh: bool

    def start(self, nodes: Sequence[int]) -> list[PeerAction]:
        """The run begins, at 0 s, with these nodes."""
        ...

    def arrived(self, now: float, node: int) -> list[PeerAction]:
        """A node's gradient has come."""
        ...
