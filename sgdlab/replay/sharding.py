"""How a replay lies on a mesh: parameters, state and slots by parameter; the gradients of a wave by lane."""

import dataclasses
from typing import Any

import jax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

Tree = Any


@dataclasses.dataclass(frozen=True)
class Layout:
    """Sharding constraints for one mesh axis; without a mesh, none.

    Server and slots are split along parameter axes (arrays that the devices do not divide are on all of them); a wave
    is split along its lanes, so that each device holds whole versions for its share of the gradients alone. XLA inserts
    the exchange between the two.
    """

    mesh: Mesh | None = None

    def __post_init__(self) -> None:
        if self.mesh is not None and len(self.mesh.axis_names) != 1:
            raise ValueError(f"mesh has axes {self.mesh.axis_names}; replay shards waves over exactly one axis")

    @property
    def num_devices(self) -> int:
        """Devices that share the work."""
        return 1 if self.mesh is None else self.mesh.size

    def by_parameter(self, tree: Tree, *, lanes: bool = False) -> Tree:
        """Splits each array along its last axis that the devices divide (`lanes`: the first axis never)."""
        return self._constrained(tree, lambda shape: self._last_divisible(shape, 1 if lanes else 0))

    def replicated(self, tree: Tree) -> Tree:
        """Keeps whole arrays on every device."""
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
