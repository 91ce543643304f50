"""All protocols on the second part of the run, tuned and trained on the first."""

import dataclasses
import pathlib
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from sgdlab import predictors
from sgdlab.advice import learned, measured, oracle, tuning
from sgdlab.advice.measured import Measured
from sgdlab.advice.recording import Parts
from sgdlab.advice.tuning import Tuned
from sgdlab.predictors import OBJECTIVES, CutoffRecord

DEPLOYABLE, HINDSIGHT, STALE, CEILING = "deployable", "hindsight", "asynchronous", "ceiling"
"""What a protocol is for: to use; chosen by knowing the second part; to use where staleness does no harm; a bound."""

MOST_SIMULATED = 256
"""Numbers of finishing backup workers that are simulated; of larger clusters, so many, evenly spread."""

Say = Callable[[str], None]


@dataclasses.dataclass(frozen=True, eq=False)
class Protocol:
    """A protocol and what it makes of the second part.

    Attributes:
      title: for tables.
      setting: what was chosen for it.
      role: one of those above.
      measured: by objective; the same where it has none.
      backups: b, where it is a fixed number.
      flags: that choose it in the lab's commands; none where they do not know it.
      by_rate: the same, tuned for the run's rate, where that makes a difference.
    """

    title: str
    setting: str
    role: str
    measured: Mapping[str, Measured]
    backups: int | None = None
    flags: tuple[str, ...] = ()
    by_rate: "Protocol | None" = None

    @classmethod
    def fixed(
        cls,
        title: str,
        setting: str,
        role: str,
        found: Measured,
        backups: int | None = None,
        flags: tuple[str, ...] = (),
    ) -> "Protocol":
        """One that does the same whatever the objective."""
        return cls(title, setting, role, dict.fromkeys(OBJECTIVES, found), backups, flags)

    @property
    def paper(self) -> Measured:
        """By the paper's objective."""
        return self.measured["throughput"]

    @property
    def has_objective(self) -> bool:
        """Whether what it does depends on the objective."""
        return self.measured["throughput"] is not self.measured["rate"]


@dataclasses.dataclass(frozen=True, eq=False)
class Sweep:
    """One kind of backup workers with every number of them.

    Attributes:
      title: of the kind.
      tuned: b, from the first part.
      test: b -> what it makes of the second part.
      train: b -> of the first.
    """

    title: str
    tuned: int
    test: Mapping[int, Measured]
    train: Mapping[int, Measured]

    @property
    def best(self) -> int:
        """The b that would have been best on the second part."""
        return best_of(self.test)


@dataclasses.dataclass(frozen=True, eq=False)
class Comparison:
    """Everything that was measured.

    Attributes:
      protocols: for the table, full synchrony first and the oracle last.
      sweeps: interrupted and finishing backup workers.
      record: of the deep Markov cutoff by the paper's objective.
      note: a sentence on how its training differs from the paper's; empty where it does not.
    """

    protocols: Sequence[Protocol]
    sweeps: Sequence[Sweep]
    record: CutoffRecord
    note: str

    @property
    def synchrony(self) -> Measured:
        """Full synchrony, which everything is relative to."""
        return self.protocols[0].paper

    def by_role(self, role: str) -> list[Protocol]:
        """The protocols of one role."""
        return [protocol for protocol in self.protocols if protocol.role == role]


INTERRUPTED = "backups, interrupted"
FINISHING = "backups, finishing"
DEEP_MARKOV = "deep Markov cutoff"
BY_RATE = "the run's rate as its objective"
SYNCHRONOUS = ("--config.method=synchronous",)


def compare(parts: Parts, directory: pathlib.Path, *, most_steps: int, seed: int, say: Say = print) -> Comparison:
    """Measures every protocol.

    Args:
      parts: of the recording.
      directory: where the deep Markov model is left.
      most_steps: of the optimiser that trains the deep Markov model.
      seed: of its training, and of what predictors draw.
      say: hears how far it is.
    """
    workers = parts.test.shape[1]
    say(f"[1/3] every number of backup workers, 1 to {workers - 1}")
    sweeps = [_interrupted_sweep(parts), _finishing_sweep(parts)]
    say("[2/3] tuning deadline, running mean and Elfving, fitting the Kalman filter")
    predicted = _tuned(parts, seed)
    plan = learned.plan(len(parts.train), most_steps)
    say(f"[3/3] training the deep Markov model, at most {plan.fitting.steps} steps")
    tuned = learned.trained(parts.train, plan, seed=seed, directory=directory)
    deep, record = _cut(parts, DEEP_MARKOV, dict.fromkeys(OBJECTIVES, tuned), seed)
    whole = measured.interrupted(parts.test, workers)
    protocols = [
        Protocol.fixed("full synchrony", "", DEPLOYABLE, whole, 0, SYNCHRONOUS),
        *(row for sweep in sweeps for row in _of_sweep(sweep)),
        *predicted,
        deep,
        Protocol.fixed("asynchrony", "", STALE, measured.asynchronous(parts.test), flags=("--config.method=asgd",)),
        Protocol("oracle", "", CEILING, {o: _oracle(parts.test, o) for o in OBJECTIVES}),
    ]
    return Comparison(protocols, sweeps, record, plan.note)


def best_of(found: Mapping[int, Measured]) -> int:
    """The b of most gradients per second; the smallest where several are best."""
    return max(sorted(found), key=lambda b: found[b].gradients_per_second)


def _interrupted_sweep(parts: Parts) -> Sweep:
    workers = parts.test.shape[1]
    train, test = (
        {b: measured.interrupted(runtimes, workers - b) for b in range(workers)}
        for runtimes in (parts.train, parts.test)
    )
    return Sweep(INTERRUPTED, workers - tuning.static(parts.train), test, train)


def _finishing_sweep(parts: Parts) -> Sweep:
    numbers = np.unique(np.linspace(0, parts.test.shape[1] - 1, MOST_SIMULATED).astype(int)).tolist()
    train, test = ({b: measured.finishing(runtimes, b) for b in numbers} for runtimes in (parts.train, parts.test))
    return Sweep(FINISHING, best_of(train), test, train)


def _of_sweep(sweep: Sweep) -> list[Protocol]:
    """The tuned number, and the best one where that is another."""
    tuned, workers = sweep.tuned, max(sweep.test) + 1
    flags = _interrupting(workers - tuned) if sweep.title == INTERRUPTED else _finishing(tuned)
    rows = [Protocol.fixed(sweep.title, f"b = {tuned}", DEPLOYABLE, sweep.test[tuned], tuned, flags)]
    if sweep.best != tuned:
        setting = f"b = {sweep.best}, best afterwards"
        rows.append(Protocol.fixed(sweep.title, setting, HINDSIGHT, sweep.test[sweep.best], sweep.best))
    return rows


def _interrupting(cutoff: int) -> tuple[str, ...]:
    return tuning.cutoff_flags("static", 1, f"cutoff={cutoff}")


def _finishing(backups: int) -> tuple[str, ...]:
    return ("--config.method=backup_workers", f"--config.protocol.backup_workers.backups={backups}")


def _tuned(parts: Parts, seed: int) -> list[Protocol]:
    """The predictors but the deep Markov model."""
    deadline, kalman = tuning.deadline(parts.train), tuning.kalman(parts.train)
    choices: dict[str, dict[str, Tuned]] = {
        "median + k MAD": dict.fromkeys(OBJECTIVES, deadline),
        "running mean": {o: tuning.running_mean(parts.train, o) for o in OBJECTIVES},
        "Elfving": {o: tuning.elfving(parts.train, o) for o in OBJECTIVES},
        "Kalman filter": dict.fromkeys(OBJECTIVES, kalman),
    }
    return [_cut(parts, title, tuned, seed)[0] for title, tuned in choices.items()]


def _record(parts: Parts, tuned: Tuned, objective: str, seed: int) -> CutoffRecord:
    history = tuned.history(parts.train)
    return predictors.run_online(parts.test, tuned.predictor, objective=objective, history=history, seed=seed)


def _cut(parts: Parts, title: str, tuned: Mapping[str, Tuned], seed: int) -> tuple[Protocol, CutoffRecord]:
    """A predictor at work by both objectives, and its record by the paper's."""
    records = {o: _record(parts, tuned[o], o, seed) for o in OBJECTIVES}
    paper, rate = (tuned[o] for o in OBJECTIVES)
    found = {o: measured.interrupted(parts.test, records[o].cutoff) for o in OBJECTIVES}
    if (records["throughput"].cutoff == records["rate"].cutoff).all():
        alike = Protocol.fixed(title, paper.setting, DEPLOYABLE, found["throughput"], flags=paper.flags)
        return alike, records["throughput"]
    flags = (*rate.flags, "--config.protocol.cutoff.objective=rate") if rate.flags else ()
    by_rate = Protocol.fixed(title, f"{rate.setting}, {BY_RATE}", DEPLOYABLE, found["rate"], flags=flags)
    return Protocol(title, paper.setting, DEPLOYABLE, found, None, paper.flags, by_rate), records["throughput"]


def _oracle(runtimes: np.ndarray, objective: str) -> Measured:
    return measured.interrupted(runtimes, oracle.cutoffs(runtimes, objective))
