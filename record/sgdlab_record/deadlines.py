"""Deadlines of rounds: how long to wait in the next one, and for how many, from who came when in those before it.

    from sgdlab_record.deadlines import Deadline

    deadline = Deadline.fit(times)  # float[T, N]: seconds of N workers in T rounds that waited for all
    seconds, how_many = deadline.next()  # wait until all are there, or `seconds` have passed and `how_many` are there
    seconds, how_many = deadline.next(arrivals)  # float[N], NaN of those that were late

It needs `pip install "sgdlab-record[deadlines]"`. The predictors are those of sgdlab.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

try:
    from sgdlab_record.taken import arguments  # pyrefly: ignore[missing-import]
    from sgdlab_record.taken.predictors import dropping, kalman, order_statistics, windowed  # pyrefly: ignore[missing-import]
    from sgdlab_record.taken.predictors.guarded import Guarded  # pyrefly: ignore[missing-import]
    from sgdlab_record.taken.runtimes import checked  # pyrefly: ignore[missing-import]
except ModuleNotFoundError:  # a checkout, or an editable installation, beside sgdlab
    from sgdlab import arguments
    from sgdlab.predictors import dropping, kalman, order_statistics, windowed
    from sgdlab.predictors.guarded import Guarded
    from sgdlab.runtimes import checked

PREDICTORS = {
    "deadline": windowed.Deadline,
    "elfving": windowed.Elfving,
    "kalman": kalman.from_window,
    "running_mean": windowed.RunningMean,
}
"""Predictors by the names that sgdlab gives them: median + k MAD, order statistics of normal times, and so on."""

_ROUNDING = 1e-9
"""So much longer, in proportion, deadlines are than they are computed: means of equal times differ by rounding."""


class Next(NamedTuple):
    """Says how long to wait in a round.

    Attributes:
      seconds: from the beginning of the round; infinite where too little is known to drop anybody.
      how_many: workers that the round waits for even if they come later.
    """

    seconds: float
    how_many: int


class Deadline:
    """Tells how long to wait in each round, from the rounds before it; `fit` makes one.

    A predictor says which number of workers to wait for and when the last of them is expected. Its deadline is made
    longer where it would drop a worker that is only late with a probability above `max_false_drop`, and its number is
    made larger where dropped workers take `rejoin_seconds` to come back, and waiting is cheaper than that.
    """

    def __init__(
        self, predictor: Any, times: np.ndarray, memory: int, share: float, confidence: float, healing: np.ndarray
    ):
        self._predictor, self._rows = Guarded(predictor), times  # of those that were late infinite, of gone ones NaN
        self._memory, self._share, self._confidence, self._healing = memory, share, confidence, healing
        self._last, self._here = times[-1], np.ones(times.shape[1], bool)

    @classmethod
    def fit(
        cls,
        times: Any,
        *,
        predictor: Any = "deadline",
        max_false_drop: float = 0.01,
        confidence: float = 0.95,
        rejoin_seconds: float = 0.0,
        memory: int = 1000,
        seed: int = 0,
        **parameters: Any,
    ) -> Deadline:
        """Return a deadline that has seen some rounds.

        Args:
          times: float[T, N], seconds from the beginning of a round until each worker was there; all of them were
            waited for. One row is enough to begin with; the bound on false drops then waits for all for a while.
          predictor: a name in `PREDICTORS`, or a predictor of sgdlab, such as `sgdlab.deep_markov.DeepMarkov`.
          max_false_drop: the largest probability, for each worker and round, that a worker which takes part is dropped.
            1: any.
          confidence: with which it is no larger, as long as rounds are alike and independent. 0.01 with 0.95 takes 299
            rounds; until then the deadline is infinite.
          rejoin_seconds: that a dropped worker takes until it takes part again: to heal, or to load a checkpoint.
          memory: number of last rounds by which false drops are judged.
          seed: of the predictor's random numbers.
          **parameters: of the predictor, such as `deviations=3.0` and `window=20`.

        Raises:
          ValueError: where an argument is out of its range.

        Example:
          >>> times = np.array([[1.0, 1.1, 0.9, 5.0]] * 20)
          >>> Deadline.fit(times, max_false_drop=1).next().how_many
          3
          >>> Deadline.fit(times, max_false_drop=1, rejoin_seconds=60.0).next().how_many
          4
          >>> Deadline.fit(times).next().seconds
          inf
        """
        if isinstance(predictor, str):
            arguments.one_of("predictor", predictor, tuple(PREDICTORS))
            predictor = PREDICTORS[predictor](**parameters)
        elif parameters:
            raise ValueError(f"{', '.join(parameters)} must be left out beside a predictor that is made already")
        times = np.array(checked(times, "times"))
        made = cls(
            predictor,
            times[-arguments.whole("memory", memory) :],
            memory,
            arguments.real("max_false_drop", max_false_drop, above=0, most=1),
            arguments.real("confidence", confidence, above=0, below=1),
            dropping.healing_seconds(times.shape[1], rejoin_seconds),
        )
        made._state = made._predictor.start(times, seed=arguments.whole("seed", seed, least=0))
        made._next = made._computed()
        return made

    def next(self, arrivals: Any = None, *, cut_at: float | None = None) -> Next:
        """Return how long to wait in the next round, after the last one has ended.

        Args:
          arrivals: float[N], seconds until each worker was there in the last round; NaN for one that was late and is
            there still, infinite for one that is gone, which is no false drop. None: there was no round.
          cut_at: seconds after which nobody was waited for. None: the deadline that was given for it, or when the last
            one came, whichever is later.

        Raises:
          ValueError: where arrivals have another shape, are not positive, or nobody has come.
        """
        if arrivals is not None:
            self._observe(np.array(arrivals, float), cut_at)
            self._next = self._computed()
        return self._next

    def false_drop(self, seconds: float | None = None) -> tuple[float, float]:
        """Return the share of rounds in which a deadline would drop the worker that it drops most, and its upper bound.

        Args:
          seconds: the deadline. None: that of the next round.
        """
        seconds = self._next.seconds if seconds is None else seconds
        rounds = np.count_nonzero(~np.isnan(self._rows), axis=0)
        late = np.count_nonzero(self._rows > seconds, axis=0)
        counts = [(int(late[n]), int(rounds[n])) for n in np.flatnonzero(rounds)]
        bounds = [dropping.most_likely(drops, of, confidence=self._confidence) for drops, of in counts]
        return max(drops / of for drops, of in counts), max(bounds)

    def _observe(self, arrivals: np.ndarray, cut_at: float | None) -> None:
        came = np.isfinite(arrivals)
        if arrivals.shape != self._here.shape or not came.any() or (arrivals <= 0).any():
            raise ValueError(
                f"arrivals={arrivals.tolist()} must hold the seconds of {self._here.size} workers, above 0, NaN of "
                "those that were late and infinite of those that are gone; at least one must have come"
            )
        closed = float(arrivals[came].max())
        if cut_at is None:
            cut_at = max(closed, self._next.seconds) if math.isfinite(self._next.seconds) else closed
        arguments.real("cut_at", cut_at, least=closed)
        self._here = ~np.isposinf(arrivals)
        row = np.where(np.isnan(arrivals), np.inf, np.where(self._here, arrivals, np.nan))
        self._rows = np.concatenate([self._rows, row[None]])[-self._memory :]
        self._last = np.where(came, arrivals, self._last)
        # Of a worker that is gone nothing is learned: it counts as it was last seen.
        self._state = self._predictor.observe(self._state, np.where(self._here, arrivals, self._last), cut_at)

    def _computed(self) -> Next:
        predicted = self._predictor.predict(self._state)
        if not np.isfinite(predicted.mean).all():
            raise ValueError(f"predictor {self._predictor.title} must predict order statistics")
        cutoff = predicted.cutoff
        if self._healing[0]:
            cutoff = order_statistics.best_cutoff(predicted.mean + self._healing, at_least=cutoff)
        seconds = float(predicted.mean[cutoff - 1])
        if self._share < 1:
            least = dropping.least_deadline(self._rows, self._share, confidence=self._confidence)
            seconds = max(seconds, float(least[self._here].max()))
        return Next((1 + _ROUNDING) * seconds, min(cutoff, int(self._here.sum())))


def replay(deadline: Deadline, times: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return the seconds of each round, [T], that a deadline would have waited for, and who was in time, bool[T, N].

    Args:
      deadline: it learns from the rounds as it goes, and has seen them afterwards.
      times: float[T, N], seconds; when each worker would have been there.

    Example:
      >>> times = np.array([[1.0, 1.1, 0.9, 5.0]] * 40)
      >>> seconds, in_time = replay(Deadline.fit(times[:20], max_false_drop=1), times[20:])
      >>> in_time.mean(axis=0)
      array([1., 1., 1., 0.])
    """
    times = checked(times, "times")
    seconds, in_time = np.empty(len(times)), np.empty(times.shape, bool)
    for number, row in enumerate(times):
        least, how_many = deadline.next()
        seconds[number] = closes = min(max(least, np.sort(row)[how_many - 1]), row.max())
        in_time[number] = row <= closes
        deadline.next(np.where(row <= closes, row, np.nan), cut_at=closes)
    return seconds, in_time
