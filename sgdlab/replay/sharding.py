"""`MeshLayout`: where the arrays of a replay are on a mesh of devices, of one process or of many."""

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from sgdlab import hosts
from sgdlab.replay.feed import Chunk
from sgdlab.replay.program import Program
from sgdlab.types import Tree

AXIS = "lane"
"""The one axis over which a replay is sharded; the axes of a mesh are put together, the first one outside."""

KINDS = ("sharded", "replicated")
WHOLE = -1
"""In the place of an axis: the array is on every device."""

# Smaller arrays cost more to exchange than they take of a device's memory.
_LEAST_SPLIT = 8192

_MOST_REPLICATED_PARAMETERS = 1_000_000
_MOST_REPLICATED_BYTES = 2**31


@dataclasses.dataclass(frozen=True)
class MeshLayout:
    """Says where the arrays of a replay are on a mesh; without a mesh, on one device.

    The gradients of a wave are always split by lane. "sharded" splits everything that grows with the parameters or the
    number of workers along axes of the parameters: each device holds its part of every version. "replicated" holds all
    of it on every device, so that applying a gradient needs no communication. Both hold the state of the workers
    (`local`) split by worker, and compute a gradient where its worker's state is.

    Attributes:
      mesh: the mesh, with the one axis `AXIS`. None: one device.
      kind: one of `KINDS`.
      shapes: those of the parameters, by which arrays of a rule's state are recognized.
    """

    mesh: Any = None  # `Mesh | None`
    kind: str = "sharded"
    shapes: frozenset[tuple[int, ...]] = frozenset()

    @classmethod
    def over(cls, mesh: Mesh, kind: str, params: Tree) -> "MeshLayout":
        """The layout over all devices of a mesh, in its order: those that are next to each other exchange most.

        Args:
          mesh: any mesh, such as `sgdlab.hosts.mesh()`.
          kind: one of `KINDS`.
          params: arrays, or objects with shapes.
        """
        line = Mesh(mesh.devices.reshape(-1), (AXIS,), axis_types=(AxisType.Auto,))
        return cls(line, kind, frozenset(np.shape(leaf) for leaf in jax.tree.leaves(params)))

    @property
    def num_devices(self) -> int:
        """Number of devices; 1 without a mesh."""
        return 1 if self.mesh is None else self.mesh.size

    @property
    def many_processes(self) -> bool:
        """Return True if devices of other processes take part."""
        return self.mesh is not None and self.mesh.is_multi_process

    @property
    def evaluates(self) -> bool:
        """Return True if this process evaluates and reports: one of many does."""
        return not self.many_processes or hosts.is_first()

    @property
    def own_devices(self) -> list[int]:
        """Positions of this process's devices on the axis."""
        if self.mesh is None:
            return [0]
        own = jax.process_index()
        return [index for index, device in enumerate(self.mesh.devices) if device.process_index == own]

    def axis(self, shape: tuple[int, ...]) -> int:
        """The axis of a parameter, of this shape, along which it is split; `WHOLE` if it is not."""
        if self.mesh is None or self.kind == "replicated" or math.prod(shape) < _LEAST_SPLIT:
            return WHOLE
        axes = [axis for axis, size in enumerate(shape) if size % self.num_devices == 0]
        return axes[-1] if axes else WHOLE

    def axes(self, tree: Tree, *, lead: int = 0) -> Tree:
        """The axis of each parameter, in a tree of arrays [..., *shape] with `lead` axes before the parameter's."""
        return jax.tree.map(lambda leaf: self.axis(leaf.shape[lead:]), tree)

    def specs(self, tree: Tree, *, lead: int = 0) -> Tree:
        """The `PartitionSpec` of each array of such a tree."""
        return jax.tree.map(lambda axis: spec(axis, lead), self.axes(tree, lead=lead))

    def by_parameter(self, tree: Tree, *, lead: int = 0) -> Tree:
        """Splits arrays [..., *shape], with `lead` axes before the parameter's, along axes of the parameters."""
        return self._constrained(tree, lambda shape: spec(self.axis(shape[lead:]), lead))

    def by_shape(self, tree: Tree) -> Tree:
        """Splits arrays that belong to a rule: like a parameter's, or like [workers, *shape] of one."""

        def of(shape: tuple[int, ...]) -> PartitionSpec:
            lead = int(shape not in self.shapes and shape[1:] in self.shapes)
            return spec(self.axis(shape[lead:]), lead)

        return self._constrained(tree, of)

    def by_worker(self, tree: Tree) -> Tree:
        """Splits arrays [workers, ...] by worker; those that cannot be split evenly are on every device."""
        return self._constrained(
            tree, lambda shape: PartitionSpec() if shape[0] % self.num_devices else PartitionSpec(AXIS)
        )

    def replicated(self, tree: Tree) -> Tree:
        """Whole arrays on every device."""
        return self._constrained(tree, lambda shape: PartitionSpec())

    def by_device(self, function: Callable[..., Tree], in_specs: Any, out_specs: Any) -> Callable[..., Tree]:
        """A function that each device executes on its own part of the arrays; without a mesh, the function itself."""
        if self.mesh is None:
            return function
        # Without the check of varying values: gradients with respect to whole parameters stay those of the device.
        return jax.shard_map(function, mesh=self.mesh, in_specs=in_specs, out_specs=out_specs, check_vma=False)

    def of_parts(self, parts: Tree) -> Tree:
        """The `PartitionSpec`s of the functions of a run: data are on every device, but for a chunk of a `Feed`."""
        chunk = lambda leaf: isinstance(leaf, Chunk)
        return jax.tree.map(lambda leaf: PartitionSpec(AXIS) if chunk(leaf) else PartitionSpec(), parts, is_leaf=chunk)

    def put(self, tree: Tree) -> Tree:
        """Puts arrays that this process has, the same as all others, on every device of the mesh."""
        if self.mesh is None:
            return tree
        return jax.tree.map(self._put, tree)

    def local(self, tree: Tree) -> Tree:
        """Whole arrays that this process can use by itself. All processes call it, with the same arrays."""
        if not self.many_processes:
            return tree
        return jax.tree.map(lambda leaf: leaf.addressable_data(0), _gathered(tree, self))

    def _everywhere(self) -> NamedSharding:
        return NamedSharding(self.mesh, PartitionSpec())

    def _put(self, leaf: Any) -> Any:
        if not isinstance(leaf, jax.Array | np.ndarray) or isinstance(leaf, jax.core.Tracer):
            return leaf
        if not self.many_processes:
            return jax.device_put(leaf, self._everywhere())
        if isinstance(leaf, jax.Array) and jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            return jax.random.wrap_key_data(self._put(jax.random.key_data(leaf)), impl=jax.random.key_impl(leaf))
        if isinstance(leaf, jax.Array) and not leaf.is_fully_addressable:
            return leaf
        if isinstance(leaf, jax.Array) and leaf.weak_type and leaf.ndim == 0:
            return leaf.item()  # as weakly typed as before
        values = np.asarray(leaf)
        return jax.make_array_from_callback(values.shape, self._everywhere(), lambda index: values[index])

    def _constrained(self, tree: Tree, spec_of: Callable[[tuple[int, ...]], PartitionSpec]) -> Tree:
        if self.mesh is None:
            return tree
        constrain = jax.lax.with_sharding_constraint
        return jax.tree.map(lambda leaf: constrain(leaf, NamedSharding(self.mesh, spec_of(leaf.shape))), tree)


@functools.partial(jax.jit, static_argnames="layout")
def _gathered(tree: Tree, layout: MeshLayout) -> Tree:
    return layout.replicated(tree)


def spec(axis: int, lead: int = 0) -> PartitionSpec:
    """The `PartitionSpec` of an array that is split along this axis behind `lead` others.

    Example:
      >>> spec(1, lead=1), spec(WHOLE)
      (P(None, None, 'lane'), P())
    """
    return PartitionSpec() if axis == WHOLE else PartitionSpec(*[None] * (axis + lead), AXIS)


def kind_of(program: Program, params: Tree) -> str:
    """The layout of a run over a mesh for which none is named.

    Args:
      program: of the run.
      params: initial parameters.

    Returns:
      "replicated" for synchronous waves, which exchange only the mean, and for at most 10^6 parameters whose versions
      take at most 2 GiB; otherwise "sharded".

    Example:
      >>> from sgdlab import protocols, replay
      >>> program = replay.lower(protocols.asynchronous(np.ones((3, 4))))
      >>> [kind_of(program, np.zeros(size, np.float32)) for size in (272_000, 2_750_000)]
      ['replicated', 'sharded']
    """
    leaves = [jnp.asarray(leaf) if np.isscalar(leaf) else leaf for leaf in jax.tree.leaves(params)]
    number, size = (sum(value(leaf) for leaf in leaves) for value in (lambda leaf: leaf.size, lambda leaf: leaf.nbytes))
    small = number <= _MOST_REPLICATED_PARAMETERS and program.versions * size <= _MOST_REPLICATED_BYTES
    return "replicated" if program.synchronous or small else "sharded"
