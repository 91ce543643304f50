"""`Notes`, the last things that went wrong with a run, or were mended, in words."""

import collections

_KEPT = 50


class Notes:
    """What happened lately.

    Example:
      >>> notes = Notes()
      >>> notes.add(2.5, "worker 3 is back after 1.0 s")
      >>> notes.last
      ((2.5, 'worker 3 is back after 1.0 s'),)
    """

    def __init__(self) -> None:
        self._notes: collections.deque[tuple[float, str]] = collections.deque(maxlen=_KEPT)

    def add(self, now: float, words: str) -> None:
        """Notes what has happened at this instant of the run."""
        self._notes.append((now, words))

    @property
    def last(self) -> tuple[tuple[float, str], ...]:
        """The last notes: (seconds, words)."""
        return tuple(self._notes)


def failing(bad: int, worker: int, error: str, fate: str) -> str:
    """Why a run cannot go on whose gradients are all bad.

    Args:
      bad: how many of them there were in a row.
      worker: whose the last one was.
      error: what was wrong with it.
      fate: "failed" or "refused".
    """
    if fate == "refused":
        return (
            f"the last {bad} gradients of all workers were not finite: the parameters have diverged; a smaller "
            "learning rate, or clip_norm, may help"
        )
    return f"the last {bad} gradients of all workers failed; of worker {worker}: {error}"
