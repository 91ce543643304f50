"""`Fields`, where arrays lie in memory, and `TreeForm`, which of them stands where in a tree: without JAX."""

import json
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
        from sgdlab.live.shared_arrays import MemoryLayout  # noqa: PLC0415 (it needs JAX)

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
    if isinstance(form, dict):
        return {name: _filled(part, arrays) for name, part in form.items()}
    return [_filled(part, arrays) for part in form] if isinstance(form, list) else arrays[form]


def _gather(form: Any, tree: Tree, name: str, found: dict[int, Any]) -> None:
    if isinstance(form, int):
        found[form] = tree
        return
    keys = sorted(form) if isinstance(form, dict) else range(len(form))
    there = sorted(tree) if isinstance(form, dict) and isinstance(tree, dict) else range(len(tree))
    if list(keys) != list(there) or isinstance(form, dict) != isinstance(tree, dict):
        raise ValueError(f"{name} must have {list(keys)}, like the parameters; it has {list(there)}")
    for key in keys:
        _gather(form[key], tree[key], f"{name}[{key!r}]", found)
