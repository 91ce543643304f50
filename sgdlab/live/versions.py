"""Versions of the parameters in memory that workers share."""

from typing import Any, NamedTuple

from sgdlab.live.shared_arrays import MemoryLayout, Pieces

Tree = Any


class Version(NamedTuple):
    """A handle.

    Attributes:
      slot: which piece of the memory holds the version.
      number: which of the versions published so far it is; a piece holds one after the other.
    """

    slot: int
    number: int


class Versions:
    """As many pieces of memory as versions are read at once; the pieces of released versions are used again.

    A worker that was told to give up may still read a piece that is used again: what it computes then is void.

    Args:
      layout: of the parameters.

    Example:
      >>> import numpy as np
      >>> versions = Versions(MemoryLayout(np.zeros(2)))
      >>> first, second = versions.publish(np.zeros(2)), versions.publish(np.ones(2))
      >>> versions.release(first)
      >>> versions.publish(np.full(2, 2.0)).slot == first.slot
      True
      >>> versions.close()
    """

    def __init__(self, layout: MemoryLayout):
        self._layout, self._pieces = layout, Pieces(layout.size)
        self._free: list[int] = []
        self._slots = self._number = 0
        self._published: set[Version] = set()

    @property
    def file(self) -> int:
        """Descriptor of the memory, for workers to inherit."""
        return self._pieces.file

    def publish(self, tree: Tree) -> Version:
        """Copies a version into a free piece, or a new one.

        Raises:
          ValueError: if an array of the tree has another shape or dtype than it should.
        """
        slot = self._free[-1] if self._free else self._slots
        self._layout.write(self._layout.views(self._pieces[slot]), tree)
        if self._free:
            self._free.pop()
        else:
            self._slots += 1
        self._number += 1
        version = Version(slot, self._number)
        self._published.add(version)
        return version

    def release(self, version: Version) -> None:
        """Nobody reads the version any more; releasing it twice does no harm."""
        if version in self._published:
            self._published.remove(version)
            self._free.append(version.slot)

    def close(self) -> None:
        """Gives the memory back."""
        self._pieces.close()
