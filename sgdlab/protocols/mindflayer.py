"""MindFlayer SGD and Vecna SGD: trials with a time limit, and those that take longer are thrown away."""

import collections
import dataclasses
import math
import statistics
from collections.abc import Callable
from typing import Any

import numpy as np

from sgdlab import arguments
from sgdlab.bounds import Count, NotNegative, Share
from sgdlab.knobs import Knob
from sgdlab.protocols.policy import Action
from sgdlab.protocols.quotas import Quotas
from sgdlab.protocols.register import register

_PATIENCE = 4.0
"""While a worker's limit is learned, a trial may take so many times the median of those that have come.

Where half are to succeed, no limit above twice the median gives more successes per second than the median does: 1 / t
is the most that a limit t can give. Twice more is for the median of a few trials, which may be wrong by as much.
"""
_RECENT = 64
"""Number of the last trials that have come, of all workers, which tell what a trial takes."""

_ROUNDING = 1e-9
"""The relative distance from a whole number at which a quotient still counts as that."""

FAMILY = "Time-limited rounds"


@dataclasses.dataclass
class TimedTrials(Quotas):
    """Rounds in which worker i makes B_i trials, each of which is given up after t_i seconds.

    Limits are given, or learned as `mindflayer` says. While one is learned, a trial is given up after four times the
    median of the worker's own that have come, or of everybody's where that is less. The latter doubles with each that
    is given up, so that a slow worker is heard in the end: by then it has cost less than three times what a trial of
    its own takes. Trials that were given up sooner than its first one came say nothing of it, and are forgotten. Where
    trials are chosen, a worker whose first `window` trials were all given up has none any more.

    Attributes:
      num_workers: N.
      trials: B_i, of each worker; None: chosen in every round from `noise`, which they share equally until all
        limits are known.
      seconds: t_i, of each worker; None: learned.
      share: of the trials, how many are to succeed at least where limits are learned.
      window: number of trials that a limit is learned from.
      noise: S, gradients that make an update precise enough.
      seen: worker -> seconds of the trials that its limit is learned from; infinity of those that were given up.
      cut: worker -> how long its trials ran that were given up since its limit is learned, seconds.
      recent: seconds of the last trials that have come, of all workers; empty where limits are given.
      limits: worker -> its limit, seconds; of those whose limit is known.
      tried: worker -> number of trials that its probability is counted from.
      came: worker -> number of these that succeeded.
      failed: worker -> number of trials in a row that were given up.
      chosen: worker -> number of its trials in the open round, where they are chosen.
    """

    num_workers: int = 1
    trials: tuple[int, ...] | None = None
    seconds: Any = None  # tuple[float, ...] | None
    share: float = 0.5
    window: int = 8
    noise: float = 1.0
    seen: dict[int, list[float]] = dataclasses.field(default_factory=dict, init=False)
    cut: dict[int, list[float]] = dataclasses.field(default_factory=dict, init=False)
    recent: collections.deque[float] = dataclasses.field(
        default_factory=lambda: collections.deque(maxlen=_RECENT), init=False
    )
    limits: dict[int, float] = dataclasses.field(default_factory=dict, init=False)
    tried: dict[int, int] = dataclasses.field(default_factory=dict, init=False)
    came: dict[int, int] = dataclasses.field(default_factory=dict, init=False)
    failed: dict[int, int] = dataclasses.field(default_factory=dict, init=False)
    chosen: dict[int, int] = dataclasses.field(default_factory=dict, init=False)

    @property
    def single(self) -> bool:
        """Tell whether there is one worker, with one trial in each round."""
        return self.trials == (1,)

    def quota(self, worker: int) -> float:
        """B_i."""
        if self.trials is not None:
            return self.trials[worker]
        return self.chosen.get(worker, math.ceil(self.noise / self.num_workers))

    def limit(self, worker: int) -> float:
        """t_i; much more while it is learned, and none before a trial of anybody has come."""
        if self.seconds is not None:
            return self.seconds[worker]
        if worker in self.limits:
            return self.limits[worker]
        if not self.recent:
            return math.inf
        least = 2.0 ** len(self.cut.get(worker, ())) * statistics.median(self.recent)
        if came := [seconds for seconds in self.seen.get(worker, ()) if seconds < math.inf]:
            least = min(least, statistics.median(came))
        return _PATIENCE * least

    def arrival(self, now: float, worker: int, version: int, seconds: float) -> list[Action]:
        """Takes every gradient; the first of all gives a limit to the trials that run."""
        unlimited = self.seconds is None and not self.recent
        actions = super().arrival(now, worker, version, seconds)
        return actions + self.limit_running(now) if unlimited else actions

    def limit_entry(self) -> str:
        """The limits, as an error names them."""
        equal = self.seconds is not None and len(set(self.seconds)) == 1
        return f"seconds={self.seconds[0] if equal else self.seconds}"

    def choose(self) -> None:
        """Chooses the trials of the round, where they are not given and all limits and chances are known."""
        if self.trials is not None:
            return
        workers = sorted(self.alive)
        self.chosen = {}
        known = all(self.limit(worker) < math.inf and self.tried.get(worker, 0) >= self.window for worker in workers)
        chances = [self.came.get(worker, 0) / max(self.tried.get(worker, 0), 1) for worker in workers]
        if known and any(chances):
            limits = np.array([self.limit(worker) for worker in workers])
            numbers = optimal_trials(limits, np.array(chances), noise=self.noise)
            self.chosen = dict(zip(workers, numbers.tolist(), strict=True))

    def learn(self, worker: int, seconds: float, *, came: bool = True) -> None:
        """Counts successes, and learns limits."""
        self.tried[worker] = self.tried.get(worker, 0) + 1
        self.came[worker] = self.came.get(worker, 0) + came
        self.failed[worker] = 0 if came else self.failed.get(worker, 0) + 1
        if self.seconds is not None:
            return
        if worker not in self.limits:
            self._see(worker, seconds, came=came)
        elif self.failed[worker] == self.window:
            del self.limits[worker], self.tried[worker], self.came[worker]
        if came:
            self.recent.append(seconds)

    def _see(self, worker: int, seconds: float, *, came: bool) -> None:
        times, cut = self.seen.setdefault(worker, []), self.cut.setdefault(worker, [])
        if not came:
            cut.append(seconds)  # that it ran: its limit when it began may have been another than now
            times.append(math.inf)
        else:
            if min(times, default=math.inf) == math.inf:
                times[:] = [math.inf for ran in cut if ran >= seconds]
                self.tried[worker] = len(times) + 1
            times.append(seconds)
        if len(times) >= self.window and min(times) < math.inf:
            del self.seen[worker], self.cut[worker]
            self._settle(worker, sorted(times))

    def _settle(self, worker: int, times: list[float]) -> None:
        least = max(math.ceil(round(self.share * len(times), 9)), 1)
        came = sum(seconds < math.inf for seconds in times)
        number = max(range(min(least, came), came + 1), key=lambda number: number / times[number - 1])
        self.limits[worker] = times[number - 1]
        self.came[worker] = sum(seconds <= self.limits[worker] for seconds in times)


def optimal_trials(seconds: np.ndarray, probabilities: np.ndarray, *, noise: float) -> np.ndarray:
    r"""Return the trials of each worker in a round: all that fit into the time that makes its gradient precise enough.

    .. math:: t(m) = \Big(\sum_{j=1}^m \frac{p_j}{t_j}\Big)^{-1} \Big(S + \sum_{j=1}^m p_j\Big), \qquad
        B_i = \max\Big(\Big\lceil \frac{\min_m t(m)}{t_i} \Big\rceil - 1, 0\Big)

    Workers are numbered by their limits t, the shortest first. Those whose limit is longer than the round have no
    trial. The expected number of gradients, the sum of p_i B_i, is at least S.

    Args:
      seconds: t, float[N], the limits of a trial.
      probabilities: p, float[N], of a trial to end within its limit; at least one above 0.
      noise: S = max(1, sigma^2 / epsilon), the gradients that make an update precise enough.

    Returns:
      int64[N], B.

    Raises:
      ValueError: where a limit is not positive and finite, no probability is above 0, or `noise` is below 1.

    Source: Maranjyan, Omar and Richtarik 2025 (MindFlayer SGD), read in the authors' code (`MindFlayerBatchSize`),
    where the probabilities of the first sum are left unsorted; here they are sorted as their limits are.

    Example:
      >>> optimal_trials(np.array([1.0, 1.0, 50.0]), np.array([0.5, 0.5, 0.5]), noise=8.0)
      array([8, 8, 0])
    """
    noise = arguments.real("noise", noise, least=1)
    seconds, probabilities = np.asarray(seconds, np.float64), np.asarray(probabilities, np.float64)
    if not (seconds.size and np.isfinite(seconds).all() and (seconds > 0).all()):
        raise ValueError(f"seconds={seconds.tolist()} must be positive and finite, at least one")
    inside = probabilities.shape == seconds.shape and ((probabilities >= 0) & (probabilities <= 1)).all()
    if not inside or not probabilities.any():
        raise ValueError(
            f"probabilities={probabilities.tolist()} must be {seconds.size} numbers from 0 to 1, one of them above 0"
        )
    order = np.argsort(seconds, kind="stable")
    chance, limit = probabilities[order], seconds[order]
    with np.errstate(divide="ignore"):
        whole = (noise + np.cumsum(chance)) / np.cumsum(chance / limit)
    best = whole.min()
    ratio = best / seconds
    nearest = np.round(ratio)
    ratio = np.where(np.abs(ratio - nearest) <= _ROUNDING * nearest, nearest, ratio)  # else 3 may be 3 + 1e-16
    return np.maximum(np.ceil(ratio).astype(np.int64) - 1, 0)


def _each(name: str, value: Any, num_workers: int, check: Callable[[str, Any], Any]) -> tuple:
    """Check one value for each worker, from one for all (which a flag makes a tuple of one) or a sequence of them."""
    if isinstance(value, list | tuple | np.ndarray):
        if len(value) == 1:
            return (check(name, value[0]),) * num_workers
        if len(value) != num_workers:
            raise ValueError(f"{name}={value!r} must be one number, or {num_workers}, one for each worker")
        return tuple(check(f"{name}[{worker}]", number) for worker, number in enumerate(value))
    return (check(name, value),) * num_workers


def _limit(name: str, value: Any) -> float:
    return math.inf if value == math.inf else arguments.real(name, value, above=0)


@register(
    title="MindFlayer SGD",
    source="Maranjyan et al. 2025b",
    families=(FAMILY,),
    rule="expected_count",
    tunes=Knob("share", 0.1, 0.9, log=False),
)
def mindflayer(
    *,
    num_workers: Count,
    trials: int | tuple[int, ...] | None = None,
    seconds: float | tuple[float, ...] | None = None,
    share: Share = 0.5,
    window: Count = 8,
    noise: float = 16.0,
    communication: NotNegative = 0.0,
) -> TimedTrials:
    r"""Every update takes what comes of B_i trials of each worker; a trial of more than t_i seconds is thrown away.

    .. math:: \theta_{k+1} = \theta_k - \frac{\gamma}{B} \sum_{i=1}^N \sum_{j=1}^{B_i} 1\{\eta_{i,j} \le t_i\} \,
        \nabla f(\theta_k; \xi_{i,j}), \qquad B = \sum_{i=1}^N p_i B_i, \quad p_i = P(\eta_i \le t_i)

    A worker makes its trials one after the other, all on the newest version; eta is how long one takes. The update
    waits for the last trial of all. `rules.expected_count` divides by B: as p is seldom known, B is counted, the mean
    number of gradients of an update. A round of which no trial succeeds makes no step: the next is on the same version.
    Without limits and with one trial each it is synchronous SGD.

    Args:
      num_workers: N.
      trials: B_i, of every worker, or one number for each. None: chosen in every round (`policies.optimal_trials`) from
        `noise` and what is known of the workers, so that slow ones may have none; equal until all limits are known.
      seconds: t_i, of every worker, or one for each; infinity: no limit. None: learned from worker i's first trials, as
        the time with the largest p_i / t_i, the rate of successes. Until a first trial of anybody has come, none has a
        limit; until a worker has been heard, each failure doubles its limit.
      share: what part of the trials is to succeed at least where limits are learned; 0.5: t_i is their median or more.
      window: number of trials that a limit is learned from, each of which may take four times the median of the
        worker's own that have come, or of everybody's; so many failures in a row later, and its pace is learned anew.
      noise: S = max(1, sigma^2 / epsilon), the number of gradients that make an update precise enough, from which the
        trials are chosen.
      communication: seconds from the end of a round's last trial to its update.

    Source: Maranjyan, Omar and Richtarik 2025 (UAI), MindFlayer SGD, read in the authors' code (`FixedClipping`), with
    B_i, t_i and p_i given. How limits are learned is sgdlab's own; that B is counted is a reconstruction.

    Example:
      >>> import numpy as np
      >>> from sgdlab.protocols.family import PROTOCOLS
      >>> runtimes = np.array([[1.0, 9.0], [9.0, 1.0]])
      >>> schedule = PROTOCOLS["mindflayer"].make(runtimes, trials=2, seconds=2.0, num_gradients=2)
      >>> schedule.update[:, 0], schedule.applied[:, 0].round(6)
      (array([ 0, -1, -1,  0], dtype=int32), array([3.]))
    """
    return TimedTrials(
        communication=communication,
        num_workers=num_workers,
        trials=None if trials is None else _each("trials", trials, num_workers, arguments.whole),
        seconds=None if seconds is None else _each("seconds", seconds, num_workers, _limit),
        share=share,
        window=window,
        noise=arguments.real("noise", noise, least=1),
    )


@register(
    title="Vecna SGD",
    source="Maranjyan et al. 2025b",
    families=(FAMILY,),
    rule="vecna",
    tunes=Knob("share", 0.1, 0.9, log=False),
)
def vecna(
    *,
    num_workers: int,
    trials: int | tuple[int, ...] | None = None,
    seconds: float | tuple[float, ...] | None = None,
    share: float = 0.5,
    window: int = 8,
    communication: float = 0.0,
) -> TimedTrials:
    r"""MindFlayer SGD for workers with data of their own: each counts the same, however few of its trials succeed.

    .. math:: \theta_{k+1} = \theta_k - \frac{\gamma}{N} \sum_{i=1}^N \frac{1}{p_i B_i} \sum_{j=1}^{B_i}
        1\{\eta_{i,j} \le t_i\} \, \nabla f_i(\theta_k; \xi_{i,j})

    The rounds are those of `mindflayer`, and `rules.vecna` weighs their gradients.

    Args:
      num_workers: N.
      trials: B_i, of every worker, or one number for each. None: 2.
      seconds: t_i, of every worker, or one for each; infinity: no limit. None: learned as in `mindflayer`.
      share: what part of the trials is to succeed at least where limits are learned; 0.5: t_i is their median or more.
      window: number of trials that a limit is learned from, each of which may take four times the median of the
        worker's own that have come, or of everybody's; so many failures in a row later, and its pace is learned anew.
      communication: seconds from the end of a round's last trial to its update.

    Source: Maranjyan, Omar and Richtarik 2025 (UAI), Vecna SGD; its text was not at hand, the formula is a
    reconstruction.

    Example:
      >>> vecna(num_workers=2, trials=(1, 3), seconds=2.0).start([0, 1])[0]
      Begin(worker=0, version=0)
    """
    return mindflayer(
        num_workers=num_workers,
        trials=2 if trials is None else trials,
        seconds=seconds,
        share=share,
        window=window,
        communication=communication,
    )
