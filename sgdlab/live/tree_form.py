"""`TreeForm`, a pytree without JAX: which of an ordered list of arrays stands where."""

from typing import Any

import numpy as np

from sgdlab.live.fields import Fields

Tree = Any


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
