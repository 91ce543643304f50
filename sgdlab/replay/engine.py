"""`Engine`, the base of the engines of servers and of peers: where a program is on its devices, and its loop."""

import abc
import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from sgdlab.replay.lanes import for_devices, placed
from sgdlab.replay.program import Program
from sgdlab.replay.sharding import MeshLayout, kind_of
from sgdlab.types import Tree


class Engine(abc.ABC):
    """A program on its devices.

    Args:
      program: the program to execute.
      params: initial parameters.
      blocks: the arrays of the parameters that may be split, such as those of blocks, or objects with their shapes.
      waves: whether to run in wave mode.
      mesh: over which a wave is sharded; None: one device.
      layout: one of `sgdlab.replay.sharding.KINDS`; None: as suits the sizes.

    Attributes:
      layout: how arrays are distributed over the mesh.
      program: the program, with the waves that these devices execute.
      device: int[R], the position of the device that computes each gradient.
    """

    program: Any  # a `ServerProgram`, or a `PeerProgram`

    def __init__(
        self, program: Program, params: Tree, blocks: Tree, *, waves: bool, mesh: Mesh | None, layout: str | None
    ):
        self.layout = (
            MeshLayout() if mesh is None else MeshLayout.over(mesh, layout or kind_of(program, params), blocks)
        )
        self._waves = waves

    def _place(self, program: Program, *, workers: int, stateful: bool) -> None:
        """Gives each gradient a lane.

        Args:
          program: the program to execute.
          workers: whose states there is room for.
          stateful: whether workers have a state.
        """
        devices = self.layout.num_devices
        width = -(-program.capacity.width // devices) * devices if self._waves else 0
        self._placement = {"workers": workers, "stateful": stateful}
        self.program, self.device, lane = placed(program, width=width, devices=devices, **self._placement)
        self._prepare(width, lane)

    @abc.abstractmethod
    def _prepare(self, width: int, lane: np.ndarray) -> None:
        """Sets the static settings for so many lanes, and puts the program and the lanes on the devices."""

    def cut_at(self, gradients: int) -> None:
        """Makes the run begin after so many gradients, where a wave, of another layout perhaps, has ended."""
        if self._waves and gradients not in self.program.waves:
            waves = np.union1d(self.program.waves, [gradients])
            self._place(dataclasses.replace(self.program, waves=waves), **self._placement)


def loop(
    carry: Any, begin: jax.Array, end: jax.Array, body: Callable[[jax.Array, Any], Any], layout: MeshLayout
) -> Any:
    """A loop over gradients, or waves, during which each device has the state of equally many workers; traced.

    Args:
      carry: the state of the loop, with the state of the workers, [workers, ...], in `local`.
      begin: the first index.
      end: the index after the last.
      body: `(index, carry) -> carry`.
      layout: of the run.

    Returns:
      The state afterwards.
    """
    workers = jax.tree.map(lambda leaf: leaf.shape[0], carry.local)
    carry = carry._replace(local=layout.by_worker(for_devices(carry.local, layout.num_devices)))
    carry = jax.lax.fori_loop(begin, end, body, carry)
    return carry._replace(local=jax.tree.map(lambda leaf, size: leaf[:size], carry.local, workers))
