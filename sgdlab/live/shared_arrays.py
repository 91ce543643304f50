"""Arrays in memory that a server shares with its workers, without a name that a killed run could leave behind.

The memory is a file without a name, which a worker inherits as a file descriptor; both map it. It is gone when the last
of them is, however they end.
"""

import mmap
import os
import tempfile
from collections.abc import Sequence

import jax
import numpy as np

from sgdlab.live.fields import Fields, own
from sgdlab.types import Tree


class MemoryLayout(Fields):
    """Says where the arrays of a tree lie in memory, in the order of `jax.tree.leaves`.

    Args:
      tree: a pytree of arrays, or of `jax.ShapeDtypeStruct`.

    Example:
      >>> layout = MemoryLayout({"bias": np.zeros([2], np.float32), "kernel": np.zeros([3, 2], np.float32)})
      >>> [field.offset for field in layout.fields], layout.size
      ([0, 64], 128)
    """

    def __init__(self, tree: Tree):
        leaves, self.structure = jax.tree_util.tree_flatten_with_path(tree)
        form = lambda leaf: f"{np.dtype(leaf.dtype).name}{list(leaf.shape)}"
        super().__init__((jax.tree_util.keystr(path), form(leaf)) for path, leaf in leaves)

    def write(self, views: Sequence[np.ndarray], tree: Tree) -> None:
        """Copy a tree's arrays into `views`; ValueError if an array has another shape or dtype."""
        arrays = [np.asarray(leaf) for leaf in jax.tree.leaves(tree)]
        self.check_arrays(arrays)
        for view, array in zip(views, arrays, strict=True):
            np.copyto(view, array)

    def tree(self, memory: np.ndarray) -> Tree:
        """Return the tree in a piece of memory, of arrays that alias it."""
        return jax.tree.unflatten(self.structure, self.views(memory))

    def copied(self, memory: np.ndarray) -> Tree:
        """Return the tree in a piece of memory, of arrays that share nothing with it."""
        return self.tree(own(memory))


class Pieces:
    """Pieces of one size in a file without a name; a process maps them when it first asks for one.

    Each mapping takes a descriptor: the first is of one piece, and each further one of twice as many, so that there are
    few. Memory is taken for pieces that were asked for, and no others.

    Args:
      size: bytes of a piece.
      file: the file's descriptor in a process that has inherited it; None makes a new file.
    """

    def __init__(self, size: int, file: int | None = None):
        self.size = size
        self._stride = -(-size // mmap.ALLOCATIONGRANULARITY) * mmap.ALLOCATIONGRANULARITY
        self._owner = file is None
        self.file = _nameless() if file is None else file
        self._mapped: dict[int, np.ndarray] = {}  # block b has pieces 2^b - 1, ..., 2^(b + 1) - 2
        self._taken: set[int] = set()

    def __getitem__(self, index: int) -> np.ndarray:
        """Return piece `index`, uint8[size]; the process that has made the file makes it longer where it must."""
        block = (index + 1).bit_length() - 1
        first, pieces = (1 << block) - 1, 1 << block
        if block not in self._mapped:
            start, length = first * self._stride, pieces * self._stride
            if self._owner and os.fstat(self.file).st_size < start + length:
                os.ftruncate(self.file, start + length)
            self._mapped[block] = np.frombuffer(mmap.mmap(self.file, length, offset=start), np.uint8)
        if self._owner and index not in self._taken:
            _take(self.file, index * self._stride, self._stride)
            self._taken.add(index)
        start = (index - first) * self._stride
        return self._mapped[block][start : start + self.size]

    def leave_file(self) -> None:
        """Close the descriptor, when other processes have inherited it: what is mapped stays, and no more follows."""
        if self.file >= 0:
            os.close(self.file)
        self.file = -1

    def close(self) -> None:
        """Give the memory back, once no array aliases it."""
        self._mapped.clear()
        self.leave_file()


def _nameless() -> int:
    if hasattr(os, "memfd_create"):  # Linux: memory, whatever size a container gives /dev/shm
        return os.memfd_create("sgdlab", os.MFD_CLOEXEC)
    with tempfile.TemporaryFile(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as file:
        return os.dup(file.fileno())


def _take(file: int, start: int, size: int) -> None:
    """Take memory for `size` bytes; that there is none is an error now, not a signal at the first write."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file, start, size)


class Versions:
    """As many pieces of memory as versions are read at once; the pieces of released versions are used again.

    A worker that was told to give up may still read a piece that is used again: what it computes then is void.

    Args:
      layout: of the parameters.

    Example:
      >>> versions = Versions(MemoryLayout(np.zeros(2)))
      >>> first, second = versions.publish(np.zeros(2)), versions.publish(np.ones(2))
      >>> versions.release(first)
      >>> versions.publish(np.full(2, 2.0)) == first
      True
      >>> versions.close()
    """

    def __init__(self, layout: MemoryLayout):
        self._layout, self._pieces = layout, Pieces(layout.size)
        self._free: list[int] = []
        self._slots = 0

    @property
    def file(self) -> int:
        """Descriptor of the memory, for workers to inherit."""
        return self._pieces.file

    def publish(self, tree: Tree) -> int:
        """Copy a version into a free piece, or a new one, and return which piece it is."""
        if not self._free:
            self._free.append(self._slots)
            self._slots += 1
        self._layout.write(self._layout.views(self._pieces[self._free[-1]]), tree)
        return self._free.pop()

    def release(self, piece: int) -> None:
        """Free a version's piece, which nobody reads any more."""
        self._free.append(piece)

    def close(self) -> None:
        """Give the memory back."""
        self._pieces.close()
