"""A work function for the examples in docstrings."""

import numpy as np


def thrown(*, dice: int, sides: int, seed: int) -> dict[str, float]:
    """Throws dice.

    Args:
      dice: number of dice.
      sides: of each.
      seed: of the throw.
    """
    return {"total": int(np.random.default_rng(seed).integers(1, sides + 1, size=dice).sum())}
