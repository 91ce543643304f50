"""The Schedule: which gradients enter which updates, and when.

The order in which gradients arrive never depends on their values. A schedule is therefore all that a protocol decides,
and all that replay needs.
"""

import dataclasses
import operator
import os
from typing import Any

import numpy as np
from jaxtyping import Float64, Int32

from sgdlab import arguments, arrays
from sgdlab.ordering import by_number
from sgdlab.traffic import Traffic

DROPPED = -1
"""`Schedule.update` of a gradient that was discarded, such as one that arrived too late."""

PENDING = -2
"""`Schedule.update` of a gradient that was still being computed when the run ended."""

_DTYPES = {
    "worker": np.int32,
    "read": np.int32,
    "update": np.int32,
    "started": np.float64,
    "arrived": np.float64,
    "applied": np.float64,
}
FIELDS = (*_DTYPES, "num_workers")
"""Arrays that every file of a `Schedule` holds."""

_OPTIONAL = {"asked": np.float64, "sent": np.float64, "paused": np.float64}
_BY_BLOCK = ("read", "update", "arrived", "applied", "sent")


@dataclasses.dataclass(frozen=True, eq=False)
class Schedule:
    """Holds which gradients enter which updates, and when.

    G gradients, U updates, S parameter blocks (one per server; 1 unless said otherwise), N workers. Version v of a
    block is the block after v updates. Rows are in dependency order: a row reads only versions formed by earlier
    rows. Protocols order them by first arrival at any server, equal times by worker number (`delayed_rounds` by rounds
    first: who is early waits); if S = 1, gradients enter updates in this order. Within a block, gradients enter by
    (update, row).

    Times agree with the reads: a gradient arrives at a block's server no earlier than the version that it read was
    applied, and begins no earlier than the first of its versions was applied (layers may be read one by one). A worker
    begins no two gradients at once, but it may begin one before the message of the last has arrived.

    Where messages cost time, a worker is told to begin at `asked`, has the parameters at `started`, is done at `sent`,
    and its message is there at `arrived`.

    Attributes:
      worker: int32[G], the worker that computed gradient g.
      read: int32[G, S], the version of each block that g was computed on; 0 is the initial parameters.
      update: int32[G, S], the update of that block that g entered, counted from 0; `DROPPED` (-1), or `PENDING` (-2)
        if the run ended first.
      started: float64[G], seconds, when the worker began.
      arrived: float64[G, S], seconds, when it arrived at the block's server (if pending: when it would have).
      applied: float64[U, S], seconds, when update u was applied to block s; NaN past a block's last update.
      num_workers: N, number of workers.
      asked: float64[G], seconds, when the server let the worker begin. None: `started`, as parameters take no time.
      sent: float64[G, S], seconds, when the worker had computed it. None: `arrived`, as gradients take no time.
      paused: float64[G], seconds between `started` and `sent` in which the worker was down. None: 0.
      traffic: what messages and the server's work cost. None: nothing.

    If S = 1, the axis of blocks can be left out of what is given.

    Raises:
      ValueError: from the constructor, where the arrays contradict each other; it names the first row that does.

    Example:
      >>> import numpy as np
      >>> from sgdlab import protocols
      >>> schedule = protocols.asynchronous(np.array([[2.0, 3.0], [2.0, 3.0], [2.0, 3.0]]))
      >>> print(schedule)
      Schedule: 2 workers, 4 updates from 4 gradients (0 dropped, 1 pending) in 6 s, mean staleness 0.5
      >>> schedule.staleness().compressed()
      array([0, 1, 1, 0], dtype=int32)
    """

    worker: Int32[np.ndarray, " G"]
    read: Int32[np.ndarray, "G S"]
    update: Int32[np.ndarray, "G S"]
    started: Float64[np.ndarray, " G"]
    arrived: Float64[np.ndarray, "G S"]
    applied: Float64[np.ndarray, "U S"]
    num_workers: int
    asked: Float64[np.ndarray, " G"] | None = None
    sent: Float64[np.ndarray, "G S"] | None = None
    paused: Float64[np.ndarray, " G"] | None = None
    traffic: Traffic | None = None

    def __post_init__(self) -> None:
        for name, dtype in (_DTYPES | _OPTIONAL).items():
            if name in _OPTIONAL and getattr(self, name) is None:
                continue
            array = np.asarray(getattr(self, name))
            if name in _BY_BLOCK and array.ndim == 1:
                array = array[:, None]
            object.__setattr__(self, name, arrays.frozen_copy(name, array, dtype))
        object.__setattr__(self, "num_workers", operator.index(self.num_workers))
        _check_shapes(self)
        _check_order(self)
        _check_times(self)

    @property
    def has_server(self) -> bool:
        """True: gradients enter updates of a server's parameters."""
        return True

    @property
    def num_gradients(self) -> int:
        """G, number of rows: gradients used, dropped or pending."""
        return self.worker.shape[0]

    @property
    def num_updates(self) -> int:
        """U, number of updates of the block that has most."""
        return self.applied.shape[0]

    @property
    def num_blocks(self) -> int:
        """S, number of parameter blocks, each with its own server."""
        return self.applied.shape[1]

    def used(self) -> np.ndarray:
        """bool[G, S]: the gradient entered an update."""
        return self.update >= 0

    def dropped(self) -> np.ndarray:
        """bool[G, S]: the gradient was discarded."""
        return self.update == DROPPED

    def pending(self) -> np.ndarray:
        """bool[G, S]: the gradient was in flight when the run ended."""
        return self.update == PENDING

    def staleness(self) -> np.ma.MaskedArray:
        """int32[G, S], masked where the gradient was not used: updates between reading and entering (0 is fresh)."""
        return np.ma.masked_array(self.update - self.read, mask=~self.used())

    def delay(self) -> np.ma.MaskedArray:
        """int32[G, S], masked where the gradient was not used: staleness + 1, Barkai et al.'s tau."""
        return self.staleness() + np.int32(1)

    def wall_clock(self) -> float:
        """Seconds from the start to the last update of any block."""
        return float(np.nanmax(self.applied)) if self.num_updates else 0.0

    def gradients_per_second(self) -> float:
        """Gradients that entered an update (of any block) per second of virtual time."""
        return _per_second(self.used().any(axis=1).sum(), self.wall_clock())

    def gradients_per_update(self) -> float:
        """Gradients that are used for one update, on average over the updates of all blocks."""
        return float(self.used().sum()) / max(int(np.isfinite(self.applied).sum()), 1)

    def figures(self) -> dict[str, float | None]:
        """Figures for tables: number of `dropped` gradients; means of `staleness`, `idle_share` and `wasted_share`.

        Where messages cost something: `sending_share`, `goodput`, `server_share` and `worker_bytes` besides.
        """
        used = self.used().any()
        found = {
            "dropped": int(self.dropped().all(axis=1).sum()),
            "staleness": float(self.staleness().mean()) if used else None,
            "idle_share": float(self.idle_share().mean()),
            "wasted_share": float(self.wasted_share().mean()),
        }
        if self.traffic is not None:
            found |= {"sending_share": float(self.sending_share().mean()), "goodput": self.goodput()}
            found |= {"server_share": max(self.server_shares().values()), "worker_bytes": self.worker_bytes()}
        return found

    def updates_per_second(self) -> float:
        """Updates of the block that has most, per second of virtual time."""
        return _per_second(self.num_updates, self.wall_clock())

    def ended(self) -> np.ndarray:
        """float64[G], seconds, when the worker ended it: when it was sent, or when it began the next, if earlier.

        A message can be in flight when its worker begins the next gradient.
        """
        order = np.lexsort((self.started, self.worker))
        following = np.full(self.num_gradients, np.inf)
        same = np.diff(self.worker[order]) == 0
        following[order[:-1][same]] = self.started[order[1:][same]]
        return np.minimum(self._sent(), following)

    def _sent(self) -> np.ndarray:
        """float64[G], seconds: when the last block of each gradient was computed."""
        return (self.arrived if self.sent is None else self.sent).max(axis=1)

    def busy_share(self) -> np.ndarray:
        """float64[N]: share of the wall clock that each worker spent on gradients, up to when they were sent.

        If `sent` is not known, it is up to their last arrival: a worker can have begun another by then, and both count.
        """
        return self._share(np.ones(self.num_gradients, bool))

    def idle_share(self) -> np.ndarray:
        """float64[N]: share of the wall clock in which each worker computed nothing: it waited, sent, or was down."""
        return np.clip(1.0 - self.busy_share(), 0.0, 1.0)

    def sending_share(self) -> np.ndarray:
        """float64[N]: share of the wall clock in which parameters for each worker, or gradients of it, were under way.

        The time that they wait in front of a link counts. If the worker computes meanwhile, both count.
        """
        end, last = self.wall_clock(), self.arrived.max(axis=1)
        spans = [(self.started if self.asked is None else self.asked, self.started), (self._sent(), last)]
        seconds = [np.minimum(until, end) - np.minimum(since, end) for since, until in spans]
        return self._of_workers(np.sum(seconds, axis=0))

    def goodput(self) -> float:
        r"""Share of the time of all workers in which they computed gradients that an update used.

        .. math:: \frac{1}{N T} \sum_{g\, used} (\mathrm{sent}_g - \mathrm{started}_g - \mathrm{paused}_g), \qquad
            T \text{ the wall clock}
        """
        return float(self._share(self.used().any(axis=1)).mean())

    def server_shares(self) -> dict[str, float]:
        """Shares of the wall clock for which the server's links, `receiving` and `sending`, and itself were `working`.

        Parameters that a worker has already are not sent again. What was begun before the last update counts.
        """
        traffic, end = Traffic() if self.traffic is None else self.traffic, self.wall_clock() or 1.0
        received = self._gradients_sent()
        busy = {
            "receiving": received * traffic.gradient_seconds,
            "sending": self._parameters_sent() * traffic.parameter_seconds,
            "working": received * traffic.receive_seconds + self.num_updates * traffic.update_seconds,
        }
        return {name: min(seconds / end, 1.0) for name, seconds in busy.items()}

    def worker_bytes(self) -> float:
        """Bytes that a worker sends and receives until the last update, on average."""
        traffic = Traffic() if self.traffic is None else self.traffic
        up, down = self._gradients_sent() * traffic.gradient_bytes, self._parameters_sent() * traffic.parameter_bytes
        return (up + down) / self.num_workers

    def _gradients_sent(self) -> int:
        """Return how many gradients have left their workers before the last update; an interrupted one has not."""
        sent, there = self._sent(), self.arrived.max(axis=1)
        left = sent < self.wall_clock()
        if (sent < there).any():  # where messages take time, one that was not sent takes none
            left &= (sent < there) | ~self.dropped().all(axis=1)
        return int(left.sum())

    def _parameters_sent(self) -> int:
        """Return how often the server sent parameters: once for each version that a worker began on."""
        order = np.lexsort((self.started, self.worker))
        worker, read = self.worker[order], self.read[order]
        same = (np.diff(worker) == 0) & (np.diff(read, axis=0) == 0).all(axis=1)
        return self.num_gradients - int(same.sum())

    def wasted_share(self) -> np.ndarray:
        """float64[N]: share of the wall clock that each worker spent on gradients that no update used."""
        return self._share(self.dropped().all(axis=1))

    def _share(self, rows: Any) -> np.ndarray:
        end = self.wall_clock()
        seconds = np.minimum(self._sent(), end) - np.minimum(self.started, end)
        if self.paused is not None:
            seconds = np.maximum(seconds - self.paused, 0.0)
        return self._of_workers(np.where(rows, seconds, 0.0))

    def _of_workers(self, seconds: np.ndarray) -> np.ndarray:
        """float64[N]: the seconds, float64[G], of each worker's gradients, over the wall clock."""
        return np.bincount(self.worker, weights=seconds, minlength=self.num_workers) / (self.wall_clock() or 1.0)

    def until(self, seconds: float) -> "Schedule":
        """Return the schedule up to the last update that was applied by an instant.

        It is what the protocol makes where that update ends the run: gradients that no update has used by then are
        pending, and those that began no earlier than that update are left out.

        Args:
          seconds: since the start, of virtual time.

        Raises:
          ValueError: where no update was applied by then, or `seconds` is not finite.

        Example:
          >>> import numpy as np
          >>> from sgdlab import protocols
          >>> print(protocols.asynchronous(np.array([[2.0, 3.0]] * 3)).until(3.5))
          Schedule: 2 workers, 2 updates from 2 gradients (0 dropped, 1 pending) in 3 s, mean staleness 0.5
        """
        end = arguments.real("seconds", seconds)
        kept = self.applied <= end  # NaN past a block's last update is not
        counts = kept.sum(axis=0)
        if not counts.any():
            first = f"the first is at {np.nanmin(self.applied):g} s" if self.num_updates else "it has none"
            raise ValueError(f"seconds={seconds:g} must be late enough for an update of the schedule: {first}")
        applied = self.applied[: counts.max()]
        applied = np.where(kept[: counts.max()], applied, np.nan)
        last = np.nanmax(applied)
        rows = self.started < last
        late = (self.update >= counts) | (self.dropped() & (self.arrived > last))
        return Schedule(
            worker=self.worker[rows],
            read=np.minimum(self.read, counts)[rows],  # a layer that was read later is not
            update=np.where(late, PENDING, self.update)[rows],
            started=self.started[rows],
            arrived=self.arrived[rows],
            applied=applied,
            num_workers=self.num_workers,
            traffic=self.traffic,
            **{name: column[rows] for name in _OPTIONAL if (column := getattr(self, name)) is not None},
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the schedule to one `.npz` file, whole or not at all."""
        fields = {name: value for name in (*FIELDS, *_OPTIONAL) if (value := getattr(self, name)) is not None}
        arrays.save(path, fields if self.traffic is None else {**fields, "traffic": self.traffic.array()})

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Schedule":
        """Reads and checks a schedule that `save` wrote; nothing is unpickled.

        Raises:
          ValueError: where the file is not such a schedule.
        """

        def make(traffic: np.ndarray | None = None, **fields: Any) -> "Schedule":
            return cls(**fields, traffic=None if traffic is None else Traffic.of(traffic))

        make.__name__ = cls.__name__
        return arrays.load(path, FIELDS, make, optional=(*_OPTIONAL, "traffic"))

    def __str__(self) -> str:
        return self.describe()

    def describe(self, unit: str = "gradient") -> str:
        """The schedule in a line.

        Args:
          unit: what workers send; a schedule does not know whether it is, say, a "message" of several local steps.
        """
        used, staleness = self.used().any(axis=1).sum(), self.staleness()
        mean = f"{staleness.mean():.3g}" if used else "undefined"
        blocks = f" of {self.num_blocks} blocks" if self.num_blocks > 1 else ""
        return (
            f"Schedule: {self.num_workers} workers, {self.num_updates} updates{blocks} from {used} {unit}s "
            f"({self.dropped().all(axis=1).sum()} dropped, {self.pending().all(axis=1).sum()} pending) "
            f"in {self.wall_clock():.6g} s, mean staleness {mean}"
        )


def _per_second(count: int, seconds: float) -> float:
    return float(count) / seconds if seconds > 0 else 0.0


def _check_shapes(schedule: Schedule) -> None:
    if schedule.num_workers < 1:
        raise ValueError(f"num_workers={schedule.num_workers} must be at least 1")
    if schedule.worker.ndim != 1 or schedule.applied.ndim != 2:
        raise ValueError(
            "worker must have shape [G] and applied [U, S]; they have "
            f"{schedule.worker.shape} and {schedule.applied.shape}"
        )
    gradients, blocks = schedule.worker.shape[0], schedule.applied.shape[1]
    if blocks < 1:
        raise ValueError(f"applied of shape {schedule.applied.shape} has no block; S must be at least 1")
    expected = {"read": (gradients, blocks), "update": (gradients, blocks), "arrived": (gradients, blocks)}
    expected |= {"sent": (gradients, blocks)} | dict.fromkeys(("started", "asked", "paused"), (gradients,))
    for name, shape in expected.items():
        if getattr(schedule, name) is not None and getattr(schedule, name).shape != shape:
            raise ValueError(f"{name} has shape {getattr(schedule, name).shape}; worker and applied call for {shape}")


def _check_order(schedule: Schedule) -> None:
    """Raises where a row contradicts the rows before it."""
    worker, update, used = schedule.worker, schedule.update, schedule.used()
    arrays.refuse((worker < 0) | (worker >= schedule.num_workers), "worker", worker, f"0 to {schedule.num_workers - 1}")
    arrays.refuse(
        (update < PENDING) | (update >= schedule.num_updates),
        "update",
        update,
        f"{PENDING} (pending), {DROPPED} (dropped) or 0 to {schedule.num_updates - 1}",
    )
    arrays.refuse(
        ~np.isfinite(schedule.started) | (schedule.started < 0), "started", schedule.started, "finite, not negative"
    )
    arrays.refuse(
        ~(np.isfinite(schedule.arrived) & (schedule.arrived > schedule.started[:, None])),
        "arrived",
        schedule.arrived,
        "finite and later than started (compute times must be long enough to move the clock)",
    )
    _check_messages(schedule)
    for block in range(schedule.num_blocks):
        rows = np.flatnonzero(used[:, block])
        if schedule.num_blocks > 1:  # two servers can use the same two gradients in different orders
            rows = rows[by_number(update[rows, block], schedule.num_updates)]
        entered = update[rows, block]
        steps = np.diff(entered, prepend=-1)
        bad = (steps < 0) | (steps > 1)
        if bad.any():
            right = f"non-decreasing from 0 without a gap{_advice(schedule)}"
            arrays.refuse(bad, "update", entered, right, rows)
        count = int(entered[-1]) + 1 if entered.size else 0
        _check_applied(schedule.applied[:, block], count, block)
        del steps, bad  # of long schedules, few numbers a gradient are to be in memory at once
        applied = schedule.applied[entered, block]
        early = applied < schedule.arrived[rows, block]
        arrays.refuse(early, "applied", applied, "no earlier than its gradients arrived", rows)
        del applied, early
        # Version v exists after all rows of the updates before v: count the updates that are complete before each row.
        complete = np.maximum.accumulate(rows[np.diff(entered, append=schedule.num_updates) != 0])
        del rows, entered
        made = np.bincount(complete, minlength=schedule.num_gradients)
        exists = np.cumsum(made)
        exists -= made
        read = schedule.read[:, block]
        bad = (read < 0) | (read > exists)
        if bad.any():
            arrays.refuse(bad, "read", read, f"0 or a version that earlier rows have formed{_advice(schedule)}")


def _check_messages(schedule: Schedule) -> None:
    """Raises where what is known of messages, or of pauses, contradicts when gradients started and arrived."""
    started, asked, sent, paused = schedule.started, schedule.asked, schedule.sent, schedule.paused
    if asked is not None:
        arrays.refuse(~((asked >= 0) & (asked <= started)), "asked", asked, "from 0 s to when it started")
    if sent is not None:
        between = (sent > started[:, None]) & (sent <= schedule.arrived)
        arrays.refuse(~between, "sent", sent, "later than started, and no later than arrived")
    if paused is not None:
        computing = schedule._sent() - started
        arrays.refuse(~((paused >= 0) & (paused <= computing)), "paused", paused, "from 0 s to what it took")


def _advice(schedule: Schedule) -> str:
    """Return what helps where rows contradict each other because they are in another order."""
    return "; sort the rows by arrival" if (np.diff(schedule.arrived.min(axis=1)) < 0).any() else ""


def _check_times(schedule: Schedule) -> None:
    """Raises where a gradient precedes the versions that it read, or a worker begins two gradients at once."""
    started, arrived, read = schedule.started, schedule.arrived, schedule.read
    applied = np.concatenate([np.zeros((1, schedule.num_blocks)), schedule.applied])
    available = np.take_along_axis(applied, read, axis=0)  # when each version was applied that was read
    # Layers can be read one after the other, but a forward pass needs one of them to begin.
    name, begins = ("started", started) if schedule.asked is None else ("asked", schedule.asked)
    early: Any = (available > begins[:, None]).all(axis=1)
    late = available > arrived
    if early.any() or late.any():
        row = int(np.argmax(early | late.any(axis=1)))
        block = int(available[row].argmin() if early[row] else late[row].argmax())
        time = f"{name}={begins[row]}" if early[row] else f"arrived={arrived[row, block]}"
        version = f"read={read[row, block]}" + f" of block {block}" * (schedule.num_blocks > 1)
        raise ValueError(
            f"{time} in row {row} must be at least {available[row, block]}, when version {version} was applied"
        )
    # Of one worker, gradients overlap where messages take time, but no two begin at once.
    order = by_number(schedule.worker, schedule.num_workers)
    worker, begun = schedule.worker[order], started[order]
    same = worker[1:] == worker[:-1]
    if (same & (begun[1:] <= begun[:-1])).any():
        order = np.lexsort((started, schedule.worker))
        twice = np.flatnonzero(same & (np.diff(started[order]) == 0))
        if twice.size:
            first, row = order[twice[0] : twice[0] + 2]
            raise ValueError(
                f"started={started[row]} in row {row} must differ from that of row {first}: worker "
                f"{schedule.worker[row]} computes one gradient at a time"
            )


def _check_applied(applied: np.ndarray, count: int, block: int) -> None:
    made = applied[:count]
    if not (np.isfinite(made).all() and (np.diff(made) >= 0).all() and np.isnan(applied[count:]).all()):
        raise ValueError(
            f"applied must rise over the {count} updates of block {block} that gradients entered, and be NaN past them"
        )
