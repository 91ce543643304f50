"""The lanes of a wave: which gradient each computes, how all of them are computed, and where they write."""

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from sgdlab.replay.program import Program
from sgdlab.types import Tree

NOWHERE = np.iinfo(np.int32).max
"""An index that is out of bounds of every buffer, where JAX writes nothing."""


class Lanes(NamedTuple):
    """The lanes of one wave."""

    begin: jax.Array  # the first gradient of the wave.
    end: jax.Array  # the one after its last.
    row: jax.Array  # int[width], the gradient that each lane computes; an idle one repeats the last of the wave.
    used: jax.Array  # bool[width], whether the lane computes a gradient of the wave.

    @property
    def index(self) -> jax.Array:  # pyrefly: ignore[bad-override]  # nobody searches the tuple
        """int[width]: the row that each lane writes to; `NOWHERE` for idle lanes."""
        return jnp.where(self.used, self.row, NOWHERE)


def placed(
    program: Program, *, width: int, devices: int, workers: int, stateful: bool
) -> tuple[Program, np.ndarray, np.ndarray]:
    """Return which device, and which of its lanes, computes each gradient in wave mode.

    Args:
      program: its waves are those that `lanes_of` makes of them.
      width: number of lanes, a multiple of the devices; 0 is event mode.
      devices: n.
      workers: whose states there is room for.
      stateful: whether workers have a state, which stays on one device.

    Returns:
      The program, int[R], the device of each gradient, and int32[R], its lane.
    """
    if not width:
        nothing = np.zeros(program.num_rows, np.int32)
        return program, nothing, nothing
    share = -(-workers // devices)
    home = program.worker // share if stateful else None
    waves, lane = lanes_of(program.waves, width=width, devices=devices, home=home)
    return dataclasses.replace(program, waves=waves), lane // (width // devices), lane


def lanes_of(
    waves: np.ndarray, *, width: int, devices: int, home: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """The lane in which each gradient is computed; device d has the lanes from d width / devices on.

    The gradients of a wave go to the devices in turn or, if workers have a state, to the device that holds it; there, a
    wave ends early where one device's lanes are all taken.

    Args:
      waves: int[W + 1], the first gradient of each wave, and R.
      width: lanes, a multiple of the devices.
      devices: n.
      home: int[R], the device that holds the state of each gradient's worker. None: workers have no state.

    Returns:
      The waves, and int32[R], the lane of each gradient.

    Example:
      >>> lanes_of(np.array([0, 3, 5]), width=4, devices=2)
      (array([0, 3, 5], dtype=int32), array([0, 2, 1, 0, 2], dtype=int32))
      >>> lanes_of(np.array([0, 3, 5]), width=4, devices=2, home=np.array([1, 1, 1, 0, 1]))
      (array([0, 2, 3, 5], dtype=int32), array([2, 3, 2, 0, 2], dtype=int32))
    """
    share = width // devices
    if home is None or devices == 1:
        place = np.arange(waves[-1]) - np.repeat(waves[:-1], np.diff(waves))
        return waves.astype(np.int32), (place % devices * share + place // devices).astype(np.int32)
    starts, begins = [], set(waves[:-1].tolist())
    lane, taken = np.zeros(home.size, np.int32), np.zeros(devices, int)
    for row, device in enumerate(home.tolist()):
        if row in begins or taken[device] == share:
            starts.append(row)
            taken[:] = 0
        lane[row] = device * share + taken[device]
        taken[device] += 1
    return np.array([*starts, home.size], np.int32), lane


def lanes_at(lane: jax.Array, begin: jax.Array, end: jax.Array, width: int) -> Lanes:
    """The lanes of the gradients `begin` to `end`.

    Args:
      lane: int[R], the lane of each gradient of the run.
      begin: the first gradient of the wave.
      end: the one after its last; at most `width` after the first.
      width: number of lanes.

    Example:
      >>> lanes = lanes_at(jnp.array([0, 2, 1, 0, 2]), jnp.array(3), jnp.array(5), 4)
      >>> lanes.row.tolist(), lanes.used.tolist()
      ([3, 4, 4, 4], [True, False, True, False])
    """
    rows = begin + jnp.arange(width, dtype=begin.dtype)
    within = rows < end
    at = jnp.where(within, lane[jnp.minimum(rows, end - 1)], NOWHERE)
    row = jnp.full(width, end - 1).at[at].set(rows, mode="drop")
    return Lanes(begin, end, row, jnp.zeros(width, bool).at[at].set(within, mode="drop"))


def over_lanes(lanes: str, function: Callable[..., Tree], *arguments: Tree) -> Tree:
    """A function of each lane: at once ("vmap"), or in a loop ("map"), which takes the memory of one."""
    if lanes == "vmap":
        return jax.vmap(function)(*arguments)
    return jax.lax.map(lambda lane: function(*lane), arguments)


def summed_over_lanes(lanes: str, function: Callable[..., tuple[Tree, Tree]], *arguments: Tree) -> tuple[Tree, Tree]:
    """The sum over the lanes of a function's first value, and its second value of each lane.

    In a loop ("map") the first value takes the memory of one lane.
    """
    if lanes == "vmap":
        terms, others = jax.vmap(function)(*arguments)
        return jax.tree.map(lambda leaf: leaf.sum(axis=0), terms), others

    def add(total: Tree, lane: Tree) -> tuple[Tree, Tree]:
        term, other = function(*lane)
        return jax.tree.map(jnp.add, total, term), other

    first = jax.tree.map(lambda leaf: leaf[0], arguments)
    zero = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), jax.eval_shape(function, *first)[0])
    return jax.lax.scan(add, zero, arguments)


def of_each_worker(local: Tree, workers: int) -> Tree:
    """The state of so many workers at the start."""
    return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (workers, *jnp.shape(leaf))).copy(), local)


def for_devices(local: Tree, devices: int) -> Tree:
    """The state of the workers, with more of them where the devices could not have equally many."""
    more = lambda leaf: [(0, -leaf.shape[0] % devices)] + [(0, 0)] * (leaf.ndim - 1)
    return jax.tree.map(lambda leaf: jnp.pad(leaf, more(leaf)) if leaf.shape[0] % devices else leaf, local)


def workers_of(local: Tree, num_workers: int) -> Tree:
    """The state of the workers that there are, without those that a capacity has made room for."""
    return jax.tree.map(lambda leaf: leaf[:num_workers], local)


def write_lanes(buffers: Tree, lanes: Tree, index: jax.Array) -> Tree:
    """Writes what each lane of a wave has computed to its row of the buffers; `NOWHERE` writes nothing."""
    return jax.tree.map(lambda buffer, leaf: buffer.at[index].set(leaf, mode="drop"), buffers, lanes)


def record_aux(records: Tree, row: jax.Array, aux: Tree) -> Tree:
    """Records the scalars of a gradient's aux, or of several gradients if `row` and the leaves of `aux` are arrays."""
    return jax.tree.map(
        lambda leaf, record: None if record is None else record.at[row].set(leaf, mode="drop"),
        aux,
        records,
        is_leaf=lambda leaf: leaf is None,
    )
