"""Brings the parameters of a wave to the devices of its lanes, and the gradients back: one message for each dtype.

All are called by each device, inside of `MeshLayout.by_device`. Without a mesh they exchange nothing.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sgdlab.replay.lanes import NOWHERE, Lanes
from sgdlab.replay.sharding import AXIS, WHOLE, MeshLayout
from sgdlab.types import Tree


def own(layout: MeshLayout, lanes: Tree) -> Tree:
    """The part of arrays [lanes, ...] that belongs to this device's lanes."""
    if layout.mesh is None:
        return lanes

    def part(leaf: jax.Array) -> jax.Array:
        size = leaf.shape[0] // layout.num_devices
        return jax.lax.dynamic_slice_in_dim(leaf, jax.lax.axis_index(AXIS) * size, size)

    return jax.tree.map(part, lanes)


def to_lanes(layout: MeshLayout, sources: Sequence[tuple[Tree, jax.Array]], axes: Sequence[Tree]) -> tuple[Tree, ...]:
    """Rows of buffers for this device's lanes, in one all-to-all.

    Args:
      layout: of the run.
      sources: pairs of buffers [rows, *part], which hold this device's part of each array, and int[lanes], the row
        for each lane.
      axes: for each of them, the axis along which each array is split, or `WHOLE`.

    Returns:
      For each of them, arrays [lanes of this device, *shape].
    """
    flat, structures, axis_of = [], [], []
    for (buffers, index), tree in zip(sources, axes, strict=True):
        leaves, structure = jax.tree.flatten(buffers)
        structures.append(structure)
        for leaf, axis in zip(leaves, jax.tree.leaves(tree), strict=True):
            flat.append(leaf[own(layout, index) if axis == WHOLE else index])
            axis_of.append(axis)
    exchanged = _packed([leaf for leaf, axis in zip(flat, axis_of, strict=True) if axis != WHOLE], _all_to_all)
    joined = iter(exchanged)
    leaves = [
        leaf if axis == WHOLE else _joined(layout, next(joined), axis) for leaf, axis in zip(flat, axis_of, strict=True)
    ]
    return _unflattened(leaves, structures)


def from_lanes(layout: MeshLayout, trees: Sequence[Tree], axes: Sequence[Tree]) -> tuple[Tree, ...]:
    """The opposite: of what the lanes have computed, this device's part for all lanes.

    Args:
      layout: of the run.
      trees: of arrays [lanes of this device, *shape].
      axes: for each of them, the axis along which each array is to be split, or `WHOLE`.

    Returns:
      The trees, of arrays [lanes, *part]: those that are split by one all-to-all, the others by one all-gather.
    """
    if layout.mesh is None:
        return tuple(trees)
    leaves, structures, axis_of = [], [], []
    for tree, of in zip(trees, axes, strict=True):
        found, structure = jax.tree.flatten(tree)
        structures.append(structure)
        leaves += found
        axis_of += jax.tree.leaves(of)
    cut = [_cut(layout, leaf, axis) for leaf, axis in zip(leaves, axis_of, strict=True) if axis != WHOLE]
    uncut = [leaf for leaf, axis in zip(leaves, axis_of, strict=True) if axis == WHOLE]
    parts, gathered = iter(_packed(cut, _all_to_all)), iter(_packed(uncut, _all_gather))
    return _unflattened([next(gathered if axis == WHOLE else parts) for axis in axis_of], structures)


def whole(layout: MeshLayout, tree: Tree, axes: Tree) -> Tree:
    """Arrays of which each device has a part, as a whole on each, by one all-gather."""
    leaves, structure = jax.tree.flatten(tree)
    axis_of = jax.tree.leaves(axes)
    split = [leaf[None] for leaf, axis in zip(leaves, axis_of, strict=True) if axis != WHOLE]
    gathered = iter(_packed(split, _all_gather))
    join = lambda axis: jnp.squeeze(_joined(layout, next(gathered), axis), 0)
    found = [leaf if axis == WHOLE else join(axis) for leaf, axis in zip(leaves, axis_of, strict=True)]
    return jax.tree.unflatten(structure, found)


def total(layout: MeshLayout, tree: Tree) -> Tree:
    """The sum over the devices of arrays of one shape, by one all-reduce."""
    if layout.mesh is None:
        return tree
    leaves, structure = jax.tree.flatten(tree)
    summed = _packed([leaf[None] for leaf in leaves], lambda flat: jax.lax.psum(flat, AXIS))
    return jax.tree.unflatten(structure, [leaf[0] for leaf in summed])


def everywhere(tree: Tree) -> Tree:
    """For each array of `from_lanes`, that it goes to every device as a whole."""
    return jax.tree.map(lambda leaf: WHOLE, tree)


def rows_of_workers(layout: MeshLayout, worker: jax.Array, lanes: Lanes, local: Tree) -> tuple[jax.Array, jax.Array]:
    """Return where the states of the workers of this device's lanes are in the part that it holds.

    Args:
      layout: of the run.
      worker: int[R], the worker of each gradient.
      lanes: of the wave.
      local: [workers of this device, ...], their states.

    Returns:
      For each lane, the row to read and the row to write; idle lanes write nothing.
    """
    row, used = own(layout, (lanes.row, lanes.used))
    workers = worker[row]
    if layout.mesh is not None:
        for leaf in jax.tree.leaves(local)[:1]:
            workers -= jax.lax.axis_index(AXIS) * leaf.shape[0]
    return jnp.where(used, workers, 0), jnp.where(used, workers, NOWHERE)


def _all_to_all(flat: jax.Array) -> jax.Array:
    return jax.lax.all_to_all(flat, AXIS, split_axis=0, concat_axis=0, tiled=True)


def _all_gather(flat: jax.Array) -> jax.Array:
    return jax.lax.all_gather(flat, AXIS, axis=0, tiled=True)


def _packed(arrays: Sequence[jax.Array], send: Callable[[jax.Array], jax.Array]) -> list[jax.Array]:
    """Sends arrays [m, ...] together: side by side, those of one dtype as one."""
    found: dict[int, jax.Array] = {}
    for dtype in dict.fromkeys(array.dtype for array in arrays):
        chosen = [index for index, array in enumerate(arrays) if array.dtype == dtype]
        flat = [arrays[index].reshape(arrays[index].shape[0], -1) for index in chosen]
        sent = send(jnp.concatenate(flat, axis=1))
        cuts = np.cumsum([array.shape[1] for array in flat])[:-1].tolist()
        for index, piece in zip(chosen, jnp.split(sent, cuts, axis=1), strict=True):
            found[index] = piece.reshape(sent.shape[0], *arrays[index].shape[1:])
    return [found[index] for index in range(len(arrays))]


def _joined(layout: MeshLayout, array: jax.Array, axis: int) -> jax.Array:
    """[n m, *part], device after device, as [m, *shape], put together along an axis of the shape."""
    devices = layout.num_devices
    parts = jnp.moveaxis(array.reshape(devices, -1, *array.shape[1:]), 0, axis + 1)
    shape = parts.shape
    return parts.reshape(*shape[: axis + 1], shape[axis + 1] * shape[axis + 2], *shape[axis + 3 :])


def _cut(layout: MeshLayout, array: jax.Array, axis: int) -> jax.Array:
    """The opposite of `_joined`."""
    devices, shape = layout.num_devices, array.shape
    parts = array.reshape(*shape[: axis + 1], devices, shape[axis + 1] // devices, *shape[axis + 2 :])
    parts = jnp.moveaxis(parts, axis + 1, 0)
    return parts.reshape(-1, *parts.shape[2:])


def _unflattened(leaves: Sequence[jax.Array], structures: Sequence[Any]) -> tuple[Tree, ...]:
    found, begin = [], 0
    for structure in structures:
        end = begin + structure.num_leaves
        found.append(jax.tree.unflatten(structure, leaves[begin:end]))
        begin = end
    return tuple(found)
