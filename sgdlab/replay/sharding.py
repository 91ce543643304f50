"""`Layout`: how a replay is sharded over a mesh; parameters, state and slots by parameter, waves by lane."""

import dataclasses
from typing import Any

import jax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

Tree = Any


@dataclasses.dataclass(frozen=True)
class Layout:
    """Sharding constraints for a mesh with one axis; none without a mesh.

    Server and slots are split along axes of the parameters (arrays that cannot be split evenly are replicated); a wave
    is split along its lanes, so that each device holds whole versions only for its share of the gradients. XLA inserts
    the communication between the two.

    Attributes:
      mesh: the mesh, with one axis. None: no sharding.

    Raises:
      ValueError: if the mesh has several axes.
    """

    mesh: Mesh | None = None

    def __post_init__(self) -> None:
        if self.mesh is not None and len(self.mesh.axis_names) != 1:
            raise ValueError(f"mesh has axes {self.mesh.axis_names}; replay shards waves over exactly one axis")

    @property
    def num_devices(self) -> int:
        """Number of devices of the mesh; 1 without a mesh."""
        return 1 if self.mesh is None else self.mesh.size

    def by_parameter(self, tree: Tree, *, lanes: bool = False) -> Tree:
        """Splits each array along its last axis that the number of devices divides; never the first axis if `lanes`."""
        return self._constrained(tree, lambda shape: self._last_divisible(shape, 1 if lanes else 0))

    def replicated(self, tree: Tree) -> Tree:
        """Puts whole arrays on every device."""
        return self._constrained(tree, lambda shape: None)

    def by_lane(self, tree: Tree) -> Tree:
        """Splits each array along its first axis, the lanes of a wave."""
        return self._constrained(tree, lambda shape: 0)

    def _last_divisible(self, shape: tuple[int, ...], first: int) -> int | None:
        axes = [axis for axis in range(first, len(shape)) if shape[axis] % self.num_devices == 0 and shape[axis] > 0]
        return axes[-1] if axes else None

    def _constrained(self, tree: Tree, axis_of) -> Tree:
        if self.mesh is None:
            return tree

        def constrain(leaf: jax.Array) -> jax.Array:
            axis = axis_of(leaf.shape)
            spec = PartitionSpec() if axis is None else PartitionSpec(*[None] * axis, self.mesh.axis_names[0])
            return jax.lax.with_sharding_constraint(leaf, NamedSharding(self.mesh, spec))

        return jax.tree.map(constrain, tree)
