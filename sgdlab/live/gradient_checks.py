"""What the server looks for in a gradient that has come: whether it is finite, and its loss."""

import math
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

Tree = Any


def is_finite(tree: Tree) -> bool:
    """Whether all numbers of all arrays are finite.

    Example:
      >>> is_finite({"a": np.ones(2), "b": np.array([1.0, np.nan])}), is_finite([np.float32(3e38), np.float32(3e38)])
      (False, True)
    """
    return all(_all_finite(np.asarray(leaf)) for leaf in jax.tree.leaves(tree))


def loss_of(aux: Tree) -> float:
    """The entry "loss" of what a gradient function returned, if it is there and one number; otherwise NaN.

    Example:
      >>> loss_of({"loss": np.array(0.5)}), loss_of(())
      (0.5, nan)
    """
    loss = aux.get("loss") if isinstance(aux, Mapping) else None
    return math.nan if loss is None or np.size(loss) != 1 else float(loss)


def _all_finite(array: np.ndarray) -> bool:
    # A sum needs no memory; it is finite if all are, but for numbers so large that it overflows.
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.isfinite(array.sum())) or bool(np.isfinite(array).all())
