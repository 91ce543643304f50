"""What a changed protocol would gain from here, by the last steps."""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

LEAST_STEPS = 20
MOST_CAUSES = 4
"""Of the machines to leave out, so many are named, those that gain most."""
_LEAST = 1.005
"""What gains less gains nothing."""


@dataclasses.dataclass(frozen=True)
class Gain:
    """Tells what one change would gain, over the last steps.

    Attributes:
      without: what is left out, such as "worker 5"; empty where all take part, and updates do not wait for all.
      waits_for: how many workers an update waits for.
      of: how many take part.
      factor: gradients per second over those of full synchrony of all.
      steps: how many steps it was computed from.
    """

    without: str
    waits_for: int
    of: int
    factor: float
    steps: int

    def sentence(self) -> str:
        """Say what to do, in one line.

        Example:
          >>> Gain("worker 5", 15, 15, 1.172, 500).sentence()
          'without worker 5: x 1.17 gradients per second'
          >>> Gain("", 15, 16, 1.168, 500).sentence()
          'wait for 15 of 16: x 1.17 gradients per second'
          >>> Gain("node n1", 4, 4, 0.8, 500).sentence()
          'leaving node n1 out gains nothing'
        """
        if self.without and self.factor < _LEAST:
            return f"leaving {self.without} out gains nothing"
        what = f"without {self.without}" if self.without else f"wait for {self.waits_for} of {self.of}"
        return f"{what}: x {self.factor:.2f} gradients per second"


def find_gains(runtimes: np.ndarray, causes: Mapping[str, Sequence[int]]) -> list[Gain]:
    r"""The best fixed number of backup workers, and leaving out the workers to blame, each against full synchrony.

    With run-times in order, :math:`t_{(1)} \le \dots \le t_{(N)}`, an update that waits for k of N workers takes
    :math:`t_{(k)}`, and brings k gradients. Over the steps, the gain is

    .. math:: \frac{k \, / \sum t_{(k)}}{N \, / \sum t_{(N)}}

    Workers that are missing in a step, and the time of communication, which the run-times do not contain, are not
    counted: the latter makes gains smaller.

    Args:
      runtimes: float[R, N], seconds, NaN where missing.
      causes: for each alarm what it blames, such as "worker 5", and the indices of these workers. Where there are
        several, leaving out all of them is another change.

    Returns:
      The gains, the largest first; empty where fewer than `LEAST_STEPS` steps have all workers that have any.

    Example:
      >>> runtimes = np.tile([1.0, 1.0, 1.0, 2.0], (50, 1))
      >>> [(gain.without, gain.waits_for, gain.factor) for gain in find_gains(runtimes, {"worker d": [3]})]
      [('', 3, 1.5), ('worker d', 3, 1.5)]
    """
    present = np.flatnonzero(np.isfinite(runtimes).any(axis=0))
    whole = runtimes[:, present]
    whole = whole[np.isfinite(whole).all(axis=1)].astype(np.float64)
    size = present.size
    if len(whole) < LEAST_STEPS or size < 2:
        return []
    totals = np.sort(whole, axis=1).sum(axis=0)
    rates = np.arange(1, size + 1) / totals
    wait = int(rates.argmax()) + 1
    gains = []
    if wait < size:
        gains.append(Gain("", wait, size, float(rates[wait - 1] / rates[-1]), len(whole)))
    parts = [_without(whole, rates[-1], np.isin(present, np.asarray(out, int)), name) for name, out in causes.items()]
    if len(causes) > 1:
        everyone = np.isin(present, np.concatenate([np.asarray(out, int) for out in causes.values()]))
        gains += _without(whole, rates[-1], everyone, "all that are slow")
    gains += sorted((gain for part in parts for gain in part), key=_order)[:MOST_CAUSES]
    return sorted(gains, key=_order)


def _without(whole: np.ndarray, rate: float, out: np.ndarray, name: str) -> list[Gain]:
    rest = int((~out).sum())
    if not rest or not out.any():
        return []
    return [Gain(name, rest, rest, float(rest / whole[:, ~out].max(axis=1).sum() / rate), len(whole))]


def _order(gain: Gain) -> float:
    return -gain.factor
