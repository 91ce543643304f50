"""DropCompute and Anytime Minibatch: rounds that end by the clock (Giladi et al. 2023, Ferdinand et al. 2019)."""

import dataclasses
import functools
import math
from collections.abc import Callable

import numpy as np

from sgdlab import arguments
from sgdlab.bounds import Count, NotNegative, Positive
from sgdlab.protocols.effective_speedup import best_threshold
from sgdlab.protocols.policy import Action, Wake
from sgdlab.protocols.quotas import Quotas
from sgdlab.protocols.register import register
from sgdlab.runtimes import NotEnoughRuntimes, too_short
from sgdlab.schedule import DROPPED, Schedule

_EMPTY_ROUNDS = 1000
"""So many rounds in a row without a gradient, and the threshold is taken for an error."""

Choose = Callable[[list[np.ndarray]], float]
"""Seconds of the gradients of recorded rounds, a list of float64[N, M] -> the threshold, seconds."""


@dataclasses.dataclass
class Threshold(Quotas):
    """Rounds whose workers compute gradients, one after the other, until a threshold after the round's beginning.

    The threshold is given, or it is chosen from the times of the first rounds, which have none. Of these rounds only
    workers teach something that made all their gradients.

    Attributes:
      num_workers: N.
      patient: gradients of a worker in each of the first rounds, which have no threshold.
      most: largest number of gradients of a worker in a round; infinity: any number.
      choose_threshold: gives the threshold after the first rounds.
      seconds: the threshold where it is given; infinity: none.
      window: number of the first rounds; 0 where the threshold is given.
      interrupt: whether a gradient is given up at the threshold; else one that was begun by then is finished and used.
      learned: of each of the first rounds, the seconds of each worker's gradients.
      seen: worker -> the seconds of its gradients of the open round, while that teaches something.
      threshold: seconds from the beginning of a round; infinity while it is learned.
    """

    num_workers: int = dataclasses.field(kw_only=True)
    patient: int = dataclasses.field(kw_only=True)
    most: float = dataclasses.field(kw_only=True)
    choose_threshold: Choose = dataclasses.field(kw_only=True, compare=False)
    seconds: float | None = None
    window: int = 1
    interrupt: bool = False
    learned: list[list[list[float]]] = dataclasses.field(default_factory=list, init=False)
    seen: dict[int, list[float]] = dataclasses.field(default_factory=dict, init=False)
    threshold: float = dataclasses.field(default=math.inf, init=False)

    def __post_init__(self) -> None:
        self.window = arguments.whole("window", self.window)
        if self.seconds is not None:
            self.window = 0
            self.threshold = math.inf if self.seconds == math.inf else arguments.real("seconds", self.seconds, above=0)
        self.communication = arguments.real("communication", self.communication, least=0)

    @property
    def single(self) -> bool:
        """Tell whether there is one worker, with one gradient in each round."""
        return self.num_workers == 1 and max(self.patient, self.most) == 1

    @property
    def _learning(self) -> bool:
        return len(self.learned) < self.window

    def quota(self, worker: int) -> float:
        """The largest number of gradients of a worker in a round."""
        return self.patient if self._learning else self.most

    def limit_entry(self) -> str:
        """The threshold, as an error names it."""
        return f"seconds={self.threshold:g}"

    def goes_on(self, now: float) -> bool:
        """Tell whether the threshold is not over."""
        deadline = self.opened + self.threshold
        return now < deadline if self.interrupt else now <= deadline

    def open(self, now: float) -> list[Action]:
        """The actions with which a round begins, and a timer for its end."""
        actions = super().open(now)
        if actions and self.interrupt and self.threshold < math.inf:
            actions.append(Wake(now + self.threshold))
        return actions

    def timer(self, now: float) -> list[Action]:
        """Gives up what is computed at the threshold; applies a complete round."""
        if self.closes is None and self.busy and self.interrupt and not self.goes_on(now):
            return self.give_up(now, sorted(self.busy))
        return super().timer(now)

    def learn(self, worker: int, seconds: float, *, came: bool = True) -> None:
        """Remembers the times of the first rounds."""
        if self._learning and came:
            self.seen.setdefault(worker, []).append(seconds)

    def lost(self, now: float, worker: int) -> list[Action]:
        """The worker is forgotten, with what it computed; its times of this round teach nothing."""
        self.seen.pop(worker, None)
        return super().lost(now, worker)

    def end(self, now: float) -> None:
        """Chooses the threshold after the last of the first rounds."""
        if not self._learning:
            return
        whole = [times for _, times in sorted(self.seen.items()) if len(times) == self.patient]
        self.seen = {}
        if whole:
            self.learned.append(whole)
            if not self._learning:
                self.threshold = self.choose_threshold([np.array(times) for times in self.learned])


def _fast(policy: Threshold, runtimes: np.ndarray, num_gradients: int | None) -> Schedule:
    """Makes the schedule in arrays; gradients that were given up are dropped, none is pending."""
    wanted = math.inf if num_gradients is None else num_gradients
    run = _Run(runtimes, policy)
    while run.used < wanted and run.next_round():
        pass
    if run.used < (num_gradients or 1):
        raise NotEnoughRuntimes.after(
            num_gradients or runtimes.shape[1], rows=runtimes.shape[0], done=run.used, spare=True
        )
    return run.schedule()


class _Run:
    """The rounds so far."""

    def __init__(self, runtimes: np.ndarray, policy: Threshold):
        self.runtimes, self.policy = runtimes, policy
        self.workers = runtimes.shape[1]
        self.begun = np.zeros(self.workers, np.int64)
        self.now, self.used = 0.0, 0
        self.learned: list[np.ndarray] = []
        self.threshold = policy.threshold
        self.applied: list[float] = []
        self.rows: list[tuple[np.ndarray, ...]] = []  # worker, read, update, started, arrived
        self.idle: list[tuple[np.ndarray, ...]] = []  # the same of rounds since, which made no update

    def next_round(self) -> bool:
        """Makes a round; False where a worker runs out of compute times in it."""
        learning = len(self.learned) < self.policy.window
        threshold = math.inf if learning else self.threshold
        deadline = self.now + threshold
        most = self.policy.patient if learning else self.policy.most
        free, made = np.full(self.workers, self.now), 0
        steps: list[tuple[np.ndarray, ...]] = []  # worker, started, ended, whether it is used
        while made < most:
            worker = np.flatnonzero(free < deadline if self.policy.interrupt else free <= deadline)
            if not worker.size:
                break
            if (self.begun[worker] == len(self.runtimes)).any():
                return False
            started = free[worker]
            ended = started + self._seconds(worker, started)
            used = ended < deadline if self.policy.interrupt else np.ones(worker.size, bool)
            ended = np.where(used, ended, deadline)
            steps.append((worker, started, ended, used))
            self.begun[worker] += 1
            made += 1
            if made < most:
                free = np.full(self.workers, np.inf)
                free[worker] = ended
        if learning:
            self._learn(made)
        self._close(steps)
        return True

    def _seconds(self, worker: np.ndarray, started: np.ndarray) -> np.ndarray:
        rows = self.begun[worker]
        seconds = self.runtimes[rows, worker]
        stuck = ~(started + seconds > started)
        if stuck.any():
            first = int(np.argmax(stuck))
            raise too_short(rows[first], worker[first], seconds[first], started[first])
        return seconds

    def _learn(self, made: int) -> None:
        first = int(self.begun[0]) - made  # while it learns, all workers make as many
        self.learned.append(self.runtimes[first : first + made].T)
        if len(self.learned) == self.policy.window:
            self.threshold = self.policy.choose_threshold(self.learned)

    def _close(self, steps: list[tuple[np.ndarray, ...]]) -> None:
        worker, started, ended, used = (np.concatenate(column) for column in zip(*steps, strict=True))
        order = np.lexsort((worker, ended))
        update = len(self.applied)
        entered = np.where(used, update, DROPPED)
        self.idle.append((worker[order], np.full(order.size, update), entered[order], started[order], ended[order]))
        at = float(ended.max())
        self.now = at + self.policy.communication
        if used.any():
            self.applied.append(self.now)
            self.used += int(np.count_nonzero(used))
            self.rows += self.idle
            self.idle = []
        elif len(self.idle) >= _EMPTY_ROUNDS:
            raise ValueError(
                f"seconds={self.threshold:g} must be longer than a gradient takes: in {len(self.idle)} rounds in a row "
                f"no gradient was finished in time, of which the shortest takes {self._shortest():g} s"
            )

    def _shortest(self) -> float:
        """Compute time of the gradients since the last update."""
        numbers = np.bincount(np.concatenate([worker for worker, *_ in self.idle]), minlength=self.workers)
        spans = enumerate(zip(self.begun - numbers, self.begun, strict=True))
        return min(self.runtimes[first:end, worker].min(initial=math.inf) for worker, (first, end) in spans)

    def schedule(self) -> Schedule:
        worker, read, update, started, arrived = (np.concatenate(column) for column in zip(*self.rows, strict=True))
        return Schedule(
            worker=worker,
            read=read[:, None],
            update=update[:, None],
            started=started,
            arrived=arrived[:, None],
            applied=np.array(self.applied)[:, None],
            num_workers=self.workers,
        )


@register(
    title="DropCompute",
    source="Giladi et al. 2023",
    families=("Time-limited rounds",),
    rule="expected_count",
    fast=_fast,
    expected_gradients=lambda entries, num_workers: num_workers * entries["micro_batches"],
    pieces="micro_batches",
)
def dropcompute(
    *,
    num_workers: Count,
    micro_batches: Count = 4,
    seconds: float | None = None,
    window: int = 20,
    interrupt: bool = False,
    communication: NotNegative = 0.0,
) -> Threshold:
    r"""Every update takes M micro-batches of every worker, or those that it has computed when time is up.

    .. math:: \bar g_k = \frac{1}{N M} \sum_{i=1}^N \sum_{m=1}^M \nabla f(\theta_k; \xi_{i,m}) \,
        1\{T_i^{(m)} < \tau\}

    T is when worker i ends its m-th micro-batch, since the round began. A micro-batch is a gradient of the schedule; in
    runs, M of them are a worker's batch and divide its seconds. With an infinite threshold it is synchronous SGD.
    `rules.expected_count` divides by N M, as here; any other rule divides by the number of micro-batches that were
    kept.

    A round in which no micro-batch was finished makes no update, and the next one is on the same version.

    Args:
      num_workers: N.
      micro_batches: M, gradients of a worker for one update.
      seconds: tau, the compute threshold, from the beginning of a round; infinity: none. None: the one with the largest
        effective speed-up (`protocols.best_threshold`) in the first rounds, which have none.
      window: number of rounds without a threshold from which it is chosen.
      interrupt: whether a micro-batch is given up at the threshold, as in the equation; else one that was begun by then
        is finished and kept, as in the authors' code, whose check follows a micro-batch.
      communication: T_c, seconds from the end of a round's last micro-batch to its update.

    Source: Giladi et al. 2023, DropCompute (NeurIPS). Read in the authors' code: the check after a micro-batch, the
    division by M, and how the threshold is chosen. The equation is a reconstruction.

    Example:
      >>> from sgdlab import protocols
      >>> runtimes = np.array([[1.0, 1.0], [1.0, 3.0], [1.0, 1.0]])
      >>> schedule = protocols.dropcompute(runtimes, micro_batches=2, seconds=2.5, interrupt=True, num_gradients=1)
      >>> schedule.worker, schedule.update[:, 0], schedule.applied[:, 0]
      (array([0, 1, 0, 1], dtype=int32), array([ 0,  0,  0, -1], dtype=int32), array([2.5]))
    """
    return Threshold(
        num_workers=num_workers,
        patient=micro_batches,
        most=micro_batches,
        seconds=seconds,
        window=window,
        interrupt=bool(interrupt),
        communication=communication,
        choose_threshold=functools.partial(best_threshold, communication=communication, interrupt=bool(interrupt)),
    )


@register(
    title="Anytime Minibatch",
    source="Ferdinand et al. 2019",
    families=("Time-limited rounds",),
    rule="nag_asgd",
    fast=_fast,
    pieces="gradients",
)
def anytime(
    *,
    num_workers: Count,
    seconds: Positive | None = None,  # not infinite: a round must end
    gradients: Count = 2,
    window: int = 1,
    interrupt: bool = True,
    communication: float = 0.0,
) -> Threshold:
    r"""Every update averages what all workers compute in a fixed time: a fast worker many gradients, a slow one few.

    .. math:: \bar g_k = \frac{1}{\sum_i b_i} \sum_{i=1}^N \sum_{j=1}^{b_i} \nabla f(\theta_k; \xi_{i,j})

    b is how many gradients worker i has ended T seconds after the round began. A gradient stands for what the paper
    calls a sample; in runs, g of them are a batch and divide its seconds, and with workers of one constant speed it is
    synchronous SGD. Workers are averaged by a server, exactly, and not by rounds of consensus, and the step is the
    rule's instead of dual averaging.

    A round in which no gradient was finished makes no update, and the next one is on the same version.

    Args:
      num_workers: N.
      seconds: T, how long every round computes. None: g times the mean time of a gradient in the first rounds.
      gradients: g, of a worker in each of these rounds; later ones have about as many on average.
      window: number of these rounds.
      interrupt: whether a gradient is given up when the time is over; else one that was begun by then is used.
      communication: seconds from the end of a round's computing to its update.

    Source: Ferdinand, Al-Lawati, Draper and Nokleby 2019 (ICLR), whose abstract was read. The choice of T is a
    reconstruction: the mean time that a worker takes for a batch.

    Example:
      >>> from sgdlab import protocols
      >>> schedule = protocols.anytime(np.array([[1.0, 2.0]] * 9), seconds=4.5, num_gradients=6)
      >>> np.bincount(schedule.worker[schedule.used()[:, 0]]), schedule.applied[:, 0]
      (array([4, 2]), array([4.5]))
    """
    return Threshold(
        num_workers=num_workers,
        patient=gradients,
        most=math.inf,
        seconds=seconds,
        window=window,
        interrupt=bool(interrupt),
        communication=communication,
        choose_threshold=functools.partial(_mean_times, gradients),
    )


def _mean_times(number: int, times: list[np.ndarray]) -> float:
    # A gradient that ends with the round, but for rounding, is in it: clocks of a run have 12 digits.
    return (1 + 1e-12) * number * float(np.mean(np.concatenate([seconds.ravel() for seconds in times])))
