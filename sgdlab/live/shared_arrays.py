"""Arrays in memory: where they lie, which of them stands where in a tree, and memory that a server shares with workers.

That memory is a file without a name, which a worker inherits as a file descriptor; both map it. It is gone when the
last of them is, however they end. JAX is imported where a tree asks for it alone.
"""

import json
import mmap
import os
import tempfile
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

Tree = Any
ALIGNMENT = 64
"""Bytes; what vector instructions want, and the width of a cache line."""


class Field(NamedTuple):
    """Holds the place of one array."""

    path: str  # its place in the tree, such as "['params']['kernel']"
    shape: tuple[int, ...]
    dtype: np.dtype
    offset: int  # bytes from the beginning, a multiple of `ALIGNMENT`


class Fields:
    """Arrays one after the other in memory.

    Args:
      arrays: [path, dtype and shape] of each, as `described` returns.

    Attributes:
      fields: their places.
      size: bytes that they take together.

    Example:
      >>> fields = Fields([["['bias']", "float32[2]"], ["['kernel']", "float32[3, 2]"]])
      >>> [field.offset for field in fields.fields], fields.size
      ([0, 64], 128)
    """

    def __init__(self, arrays: Iterable[Sequence[str]]):
        self.fields: list[Field] = []
        offset = 0
        for path, form in arrays:
            name, _, dimensions = form.partition("[")
            dtype, shape = dtype_of(name), tuple(json.loads("[" + dimensions))
            self.fields.append(Field(path, shape, dtype, offset))
            offset += -(-int(np.prod(shape, dtype=np.int64)) * dtype.itemsize // ALIGNMENT) * ALIGNMENT
        self.size = max(offset, ALIGNMENT)  # nothing at all cannot be mapped

    def described(self) -> list[list[str]]:
        """Return [path, dtype and shape] of each array: what both sides must agree on."""
        return [[field.path, f"{field.dtype.name}{list(field.shape)}"] for field in self.fields]

    def check(self, described: Sequence[Sequence[str]]) -> None:
        """Check that the arrays are those of another process, where `described` has returned this.

        Raises:
          ValueError: if they are not; it names the first array that differs.

        Example:
          >>> Fields([["['bias']", "float32[2]"]]).check([["['bias']", "float64[2]"]])
          Traceback (most recent call last):
          ...
          ValueError: ['bias'] is float32[2] in the worker and float64[2] in the server; both must make the same task
          with the same settings of JAX
        """
        ours, theirs = dict(map(tuple, self.described())), dict(map(tuple, described))
        for path in [*theirs, *ours]:
            if ours.get(path) != theirs.get(path):
                raise ValueError(
                    f"{path} is {ours.get(path, 'missing')} in the worker and {theirs.get(path, 'missing')} in the "
                    "server; both must make the same task with the same settings of JAX"
                )

    def views(self, memory: np.ndarray) -> list[np.ndarray]:
        """Return the arrays in a piece of memory, uint8[size], which they alias."""
        return [np.ndarray(field.shape, field.dtype, memory, field.offset) for field in self.fields]

    def check_arrays(self, arrays: Sequence[np.ndarray]) -> None:
        """Check that arrays are those; ValueError, which names the place, if one has another shape or dtype."""
        if len(arrays) != len(self.fields):
            raise ValueError(f"{len(arrays)} arrays have come where {len(self.fields)} were expected")
        for field, array in zip(self.fields, arrays, strict=True):
            if (array.shape, array.dtype) != (field.shape, field.dtype):
                raise ValueError(
                    f"{field.path} must be {field.dtype.name}{list(field.shape)}; it is "
                    f"{array.dtype.name}{list(array.shape)}"
                )


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
        import jax  # noqa: PLC0415 (workers that join may be without it)

        self._tree = jax.tree
        leaves, self.structure = jax.tree_util.tree_flatten_with_path(tree)
        form = lambda leaf: f"{np.dtype(leaf.dtype).name}{list(leaf.shape)}"
        super().__init__((jax.tree_util.keystr(path), form(leaf)) for path, leaf in leaves)

    def write(self, views: Sequence[np.ndarray], tree: Tree) -> None:
        """Copy a tree's arrays into `views`; ValueError if an array has another shape or dtype."""
        arrays = [np.asarray(leaf) for leaf in self._tree.leaves(tree)]
        self.check_arrays(arrays)
        for view, array in zip(views, arrays, strict=True):
            np.copyto(view, array)

    def tree(self, memory: np.ndarray) -> Tree:
        """Return the tree in a piece of memory, of arrays that alias it."""
        return self._tree.unflatten(self.structure, self.views(memory))

    def copied(self, memory: np.ndarray) -> Tree:
        """Return the tree in a piece of memory, of arrays that share nothing with it."""
        return self.tree(own(memory))


class TreeForm:
    """A tree's form: numbers of its arrays in dictionaries and lists, or a pytree like it, of whatever JAX knows."""

    def __init__(self, form: Any, like: Tree, name: str):
        self._form, self._like = form, like
        if form is None and like is None:
            raise ValueError(
                f"{name}=None must be a pytree like the parameters: they are not of dictionaries and lists alone"
            )

    def check(self, fields: Fields, like: Tree) -> None:
        """Check that arrays are those that the server has described."""
        MemoryLayout(like).check(fields.described())

    def made(self, arrays: list[np.ndarray]) -> Tree:
        """Return the tree of arrays."""
        if self._like is not None:
            import jax  # noqa: PLC0415

            return jax.tree.unflatten(jax.tree.structure(self._like), arrays)
        return _filled(self._form, arrays)

    def arrays(self, tree: Tree, name: str) -> list[Any]:
        """Return the arrays of a tree of this form; ValueError, which names the place, if it is another."""
        if self._like is not None:
            import jax  # noqa: PLC0415

            wanted, given = jax.tree.structure(self._like), jax.tree.structure(tree)
            if given != wanted:
                raise ValueError(f"{name} must be like the parameters, {wanted}; it is {given}")
            return jax.tree.leaves(tree)
        found: dict[int, Any] = {}
        _gather(self._form, tree, name, found)
        return [found[number] for number in sorted(found)]


def numbered(tree: Tree) -> Any:
    """Return a tree of dictionaries and lists in which each array is its number in `jax.tree.leaves`, as JSON has it.

    It is None if the tree is of something else too: a worker then needs an example of it.

    Example:
      >>> numbered({"w": 0.5, "b": [0.25, 0.125]})
      {'b': [0, 1], 'w': 2}
      >>> numbered((0.5, 0.25)) is None
      True
    """
    import jax  # noqa: PLC0415

    structure = jax.tree.structure(tree)
    found = jax.tree.unflatten(structure, range(structure.num_leaves))
    try:
        same = json.loads(json.dumps(found)) == found  # tuples are lists there, and keys are words
    except TypeError:
        return None
    return found if same else None


def aligned(size: int) -> np.ndarray:
    """Return new memory, uint8[size], whose first byte's address is a multiple of `ALIGNMENT`."""
    more = np.empty(size + ALIGNMENT, np.uint8)
    return more[-more.ctypes.data % ALIGNMENT :][:size]


def own(memory: np.ndarray) -> np.ndarray:
    """Return a copy of bytes, uint8[size], whose first one's address is a multiple of `ALIGNMENT`."""
    copy = aligned(len(memory))
    np.copyto(copy, memory)
    return copy


def dtype_of(name: str) -> np.dtype:
    """Return the dtype of a name, of NumPy or JAX."""
    try:
        return np.dtype(name)
    except TypeError:  # such as bfloat16, which NumPy has not
        import jax.numpy as jnp  # noqa: PLC0415

        return np.dtype(getattr(jnp, name))


def _filled(form: Any, arrays: list[np.ndarray]) -> Tree:
    if form is None:  # JAX knows it as a tree without arrays
        return None
    if isinstance(form, dict):
        return {name: _filled(part, arrays) for name, part in form.items()}
    return [_filled(part, arrays) for part in form] if isinstance(form, list) else arrays[form]


def _gather(form: Any, tree: Tree, name: str, found: dict[int, Any]) -> None:
    if isinstance(form, int):
        found[form] = tree
        return
    keys, there = _keys(form), _keys(tree)
    if keys != there or isinstance(form, dict) != isinstance(tree, dict):
        has = f"is a {type(tree).__name__}" if there is None else f"has {there}"
        raise ValueError(f"{name} must have {keys}, like the parameters; it {has}")
    for key in keys or ():
        _gather(form[key], tree[key], f"{name}[{key!r}]", found)


def _keys(tree: Any) -> list[Any] | None:
    """Return the keys of a dictionary, or places of a list; of None, which JAX knows as a tree without arrays, none."""
    if isinstance(tree, dict):
        return sorted(tree)
    return list(range(len(tree or ()))) if isinstance(tree, list | tuple | None) else None


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
