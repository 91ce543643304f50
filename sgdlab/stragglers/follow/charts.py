r"""`Charts`, sequential tests of which workers are slow: cumulative sums over blocks of steps, for all workers at once.

Let x be a worker's mean logarithm of its compute time over the step's median, in a block of steps. A chart adds up by
how many standard deviations x exceeds what is normal and an allowance a, and forgets what is below:

.. math:: S_b = \max(0, S_{b-1} + (x_b - \mu - a) / \sigma), \qquad a = \max(\log 1.1, \sigma / 2)

The worker is slow where S reaches h. For a Gaussian x, this is the test that finds a shift of 2a fastest among all with
the same number of blocks between two false alarms. That number, for blocks that are independent and a of k deviations,

.. math:: (e^{2 k h'} - 2 k h' - 1) / (2 k^2), \qquad h' = h + 1.166

is 5.7e7 on average for h = 16 and k = 0.5.

Source: Page 1954, "Continuous inspection schemes"; Siegmund 1985, "Sequential analysis", equation 2.57, for the number.
"""

import math
from typing import Any

import numpy as np

THRESHOLD = 16.0
"""h, in standard deviations."""
LEAST_FACTOR = 1.1
"""A worker that is less than so many times slower is never called slow."""
LEAST_SIGMA = 0.005
CLIP = 0.5 * THRESHOLD
"""The most that a single block adds: no single block is an alarm."""
BACK = 6.0
"""Value that a slow worker's chart of being back must reach."""

_FLEET, _ITSELF, _FASTER, _BACK = range(4)
_SHIFT = math.log(LEAST_FACTOR)
_HISTORY, _NOISE_HISTORY, _KEPT = 200, 50, 64
_QUARTILE = 0.6745
"""Distance of a Gaussian's quartiles from its mean, in its deviations."""
_LEAST_OWN = 10
"""A worker is compared with itself after so many blocks."""


class Charts:
    """Four charts for each of N workers: slower than the fleet, than itself, faster than ever, and back to normal.

    What is normal for a worker itself is the mean of its blocks before it was slow; where it has become faster for
    good, it is learned anew. The standard deviation is that of differences between a worker's blocks, averaged over the
    fleet (for a worker that varies more, its own), and is increased where successive blocks are alike.

    The whole cluster is tested as a worker that is compared with itself alone.

    Args:
      workers: N.
      fleet: whether they are compared with each other, by an x of 0.

    Attributes:
      slow: bool[N].
      against_fleet: bool[N], whether it is slow against the fleet (else only against itself).
      sums: float32[4, N], the charts.
      since: int32[4, N], the block after the one in which each chart was last zero.
      back_since: int64[N], the block from which on a worker that was slow is back to normal.
      normal: float32[N], the x that was normal for a worker when it became slow.
      own: float32[N], the x that is normal for a worker by its own blocks.
    """

    def __init__(self, workers: int, *, fleet: bool = True):
        self.block, self._has_fleet = 0, fleet
        self.sums, self._gain = np.zeros((4, 0), np.float32), np.zeros((4, 0), np.float32)
        self.since = np.zeros((4, 0), np.int32)
        self.slow, self.against_fleet = np.zeros(0, bool), np.zeros(0, bool)
        self._any_slow = False
        self.own, self._spread = np.zeros(0, np.float32), np.zeros(0, np.float32)
        self._last, self.normal = np.zeros(0, np.float32), np.zeros(0, np.float32)
        self._count, self.back_since = np.zeros(0, np.int64), np.zeros(0, np.int64)
        self._history = np.zeros((_KEPT, 0), np.float32)
        self._pooled: Any = LEAST_SIGMA
        self._pooled_count = 0
        self._products, self._squares = [0.0, 0.0], [0.0, 0.0]  # around two levels, of which the lesser counts
        self.grow(workers)

    def grow(self, workers: int) -> None:
        """Adds workers, up to so many."""
        more = workers - self.slow.size
        for name, value in vars(self).items():
            if isinstance(value, np.ndarray):
                fill = np.nan if name == "_last" else 0
                width = [(0, 0)] * (value.ndim - 1) + [(0, more)]
                setattr(self, name, np.pad(value, width, constant_values=fill))
        self.since[:, self.slow.size - more :] = self.block
        self._rescale()

    def learn(self, blocks: np.ndarray, *, times: float = 1.0) -> None:
        """Learn the first standard deviation, from the first blocks, which `observe` is given afterwards.

        Args:
          blocks: float[B, N], x of each block and worker.
          times: how many times as large as the blocks say it is assumed to be.
        """
        steps = np.abs(np.diff(blocks, axis=0))
        # A worker that changes in these blocks must not count for much: the largest differences are left out.
        steps = np.sort(steps[np.isfinite(steps)])
        kept = steps[: max(1, -(-steps.size * 15 // 16))]
        # Of few differences the mean may be too small by chance.
        known = of_differences(kept.mean()) * (1 + 1 / math.sqrt(kept.size)) if kept.size else 0.0
        self._pooled = max(times * float(known), LEAST_SIGMA)
        self._pooled_count = len(blocks)
        self._rescale()

    def observe(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Adds a block.

        Args:
          x: float32[N], NaN where a worker has no compute time in the block.

        Returns:
          bool[N], who has become slow, and bool[N], who is back to normal.
        """
        missing = None if np.isfinite(x.sum()) else ~np.isfinite(x)
        if missing is not None:
            x = np.where(missing, self._last, x)
        self._history[self.block % len(self._history)] = x
        gain = self._gain
        np.multiply(x, self._slope, out=gain[:_BACK])
        gain[:_BACK] -= self._offset
        used = len(gain) if self._any_slow else _BACK  # nobody is on the way back where nobody is slow
        if self._any_slow:
            back = (self.normal - x) * self._precision + self._allowance
            gain[_BACK] = np.where(self.slow, back, np.float32(-np.inf))
        gain, sums = gain[:used], self.sums[:used]
        np.minimum(np.maximum(gain, -CLIP, out=gain), CLIP, out=gain)
        if missing is not None:
            gain[:, missing] = 0.0
        sums += gain
        np.maximum(sums, 0.0, out=sums)
        self.block += 1
        np.copyto(self.since[:used], self.block, where=sums == 0.0)
        raised, cleared = self._decide()
        # What is normal changes slowly: later, every eighth block is enough.
        if self.block <= _HISTORY or self.block % 8 == 0:
            self._learn(x, np.ones(x.size, bool) if missing is None else ~missing)
        self._last = x
        return raised, cleared

    def forget(self, workers: np.ndarray) -> None:
        """Begins the tests of some workers anew, by their indices or bool[N]; what is normal for them stays."""
        self.slow[workers] = False
        self.sums[:, workers], self.since[:, workers] = 0.0, self.block

    def centred(self, x: np.ndarray, rise: float) -> np.ndarray:
        """Return a block's x, less that of the workers that are as usual, where about half have become slower.

        By the median of all, those that are as usual are then faster than they were: the lower quartile is far below
        it, even with the distance of a Gaussian's added. Unless some have become faster, the median itself has risen.

        Args:
          x: float32[N].
          rise: of the logarithm of the median of all, over what is normal; NaN where it is unknown.
        """
        if 4 * np.count_nonzero(x < self._low) < x.size:
            return x
        others = np.nanquantile(x - self.own, 0.25) + _QUARTILE * self._typical
        return x - np.float32(others) if rise > -others / 2 else x

    def elevated(self) -> np.ndarray:
        """Return the workers that are slow, or on the way to it, bool[N]."""
        return self.slow | (self.sums[:2].max(axis=0) >= THRESHOLD / 3)

    def returning(self, workers: np.ndarray) -> np.ndarray:
        """Return which of these workers, int64[M], may soon be back to normal, bool[M]."""
        return self.sums[_BACK, workers] >= BACK / 6

    def began(self, worker: int) -> int:
        """Return the block in which a worker's slowness began, as its charts say."""
        return int(self.since[_FLEET if self.against_fleet[worker] else _ITSELF, worker])

    def _decide(self) -> tuple[np.ndarray, np.ndarray]:
        over = self.sums[:2] >= THRESHOLD
        if not self._any_slow and not over.any():
            return over[0], over[0]
        over_any = over.any(axis=0)
        raised = over_any & ~self.slow
        # A worker that is slow against itself may become so against the fleet; what is normal for it stays.
        self.against_fleet = np.where(raised, over[_FLEET], self.against_fleet)
        self.normal = np.where(raised, self.own * ~over[_FLEET], self.normal)
        cleared = self.slow & (self.sums[_BACK] >= BACK)
        self.slow = (self.slow | raised) & ~cleared
        self._any_slow = bool(self.slow.any())
        self.since[_BACK, raised] = self.block
        self.back_since = np.where(cleared, self.since[_BACK], self.back_since)
        np.minimum(self.sums[:2], THRESHOLD, out=self.sums[:2])
        self.forget(cleared)
        return raised, cleared

    def _learn(self, x: np.ndarray, there: np.ndarray) -> None:
        faster = np.flatnonzero(there & (self.sums[_FASTER] >= THRESHOLD))
        for worker in faster.tolist():
            blocks = min(self.block - int(self.since[_FASTER, worker]), len(self._history))
            rows = np.arange(self.block - blocks, self.block) % len(self._history)
            self.own[worker] = self._history[rows, worker].mean()
            self._count[worker], self.sums[_FASTER, worker] = _LEAST_OWN, 0.0
        calm = there & ~self.slow & (self.sums[:2].max(axis=0) < THRESHOLD / 3)
        self._count += calm
        self._learn_noise(x, calm & np.isfinite(self._last))
        weights = (calm / np.minimum(np.maximum(self._count, 1), _HISTORY)).astype(np.float32)
        self.own += np.where(calm, x - self.own, np.float32(0)) * weights
        self._rescale()

    def _learn_noise(self, x: np.ndarray, calm: np.ndarray) -> None:
        number = int(calm.sum())
        if not number:
            return
        last = np.where(calm, self._last, np.float32(0))
        difference = np.where(calm, np.minimum(np.abs(x - last), 4 / self._precision), np.float32(0))
        self._pooled_count += 1
        weight = 1.0 / min(self._pooled_count, _NOISE_HISTORY)
        self._pooled += (max(of_differences(difference.sum() / number), LEAST_SIGMA) - self._pooled) * weight
        weights = (calm / np.minimum(np.maximum(self._count, 1), _NOISE_HISTORY)).astype(np.float32)
        self._spread += (of_differences(difference) - self._spread) * weights
        known = calm & (self._count > _LEAST_OWN)
        if known.any():
            pairs = [np.stack([x, last]) - self.own]
            if not self._has_fleet and self.block >= _KEPT:
                # Blocks of a drift seem alike around a level that lags behind, but not in the middle of their own mean.
                rows = (self.block - _KEPT // 2 - np.arange(2)) % _KEPT
                pairs.append(self._history[rows] - self._history.mean(axis=0))
            for level, pair in enumerate(pairs):
                now, before = np.clip(pair * self._precision, -3, 3)[:, known]
                self._products[level] += (float((now * before).mean()) - self._products[level]) / _HISTORY
                self._squares[level] += (float((now * now).mean()) - self._squares[level]) / _HISTORY

    def _rescale(self) -> None:
        own = np.where(self._count >= _LEAST_OWN, self._spread, np.float32(0))
        found = [product / square for product, square in zip(self._products, self._squares, strict=True) if square > 0]
        alike = min(max(min(found, default=0.0), 0.0), 0.9)
        # The variance of sums of a first-order autoregression, over that of independent blocks. Differences between
        # blocks that are alike are too small, by 1 - alike.
        sigma = np.maximum(self._pooled, own) * math.sqrt((1 + alike) / (1 - alike) / (1 - alike))
        sigma = sigma.astype(np.float32)
        self._precision, self._allowance = 1.0 / sigma, np.maximum(_SHIFT / sigma, 0.5)
        uncertain = (0.5 + 2.5 / np.sqrt(np.maximum(self._count, 1))).astype(np.float32)
        known, normal = self._count >= _LEAST_OWN, self.own * self._precision
        allowed = np.where(known, np.maximum(_SHIFT / sigma, uncertain), np.float32(np.inf))
        self._typical = float(sigma.mean()) if sigma.size else 0.0
        below = max(_SHIFT / 2, self._typical) + _QUARTILE * self._typical
        self._low = np.where(known, self.own - np.float32(below), np.float32(-np.inf))
        # Of slower than the fleet, slower than itself, and faster than itself: what is gained is a line in x.
        self._slope = np.stack([self._precision, self._precision, -self._precision])
        fleet = self._allowance if self._has_fleet else np.full_like(allowed, np.inf)
        self._offset = np.stack([fleet, allowed + normal, allowed - normal])


def of_differences(mean: np.ndarray | float) -> np.ndarray | float:
    """Return the standard deviation of a Gaussian whose draws differ by so much in the mean: by 2 / sqrt(pi) of it."""
    return 0.5 * math.sqrt(math.pi) * mean
