"""Numbers of the formats in which a live run writes: each file begins with its own; `frames.FORMAT` is the wire's."""

LOG = 2
CHECKPOINT = 2
"""Of checkpoints, and of the record of what has ended beside them."""
RECORDING = 2


def differs(theirs: object, ours: int) -> str:
    """Say that something cannot be read.

    Example:
      >>> differs(1, 2)
      'is written in format 1; this version reads format 2'
    """
    return f"is written in format {theirs}; this version reads format {ours}"
