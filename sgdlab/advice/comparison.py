"""Compares all protocols on the evaluation steps, with parameters from the tuning steps."""

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
"""Roles: deployable; tuned on the evaluation steps themselves; deployable if stale gradients are; an upper bound."""

MOST_SIMULATED = 256
"""Most numbers of finishing backup workers that are simulated; of larger clusters, evenly spaced ones."""

Report = Callable[[str], None]
"""Called with one line about the progress."""


@dataclasses.dataclass(frozen=True, eq=False)
class Protocol:
    """A protocol with its measurements on the evaluation steps.

    Attributes:
      title: name in tables.
      setting: its parameters as tables show them.
      role: one of the four above.
      measured: measurements for each objective; the same for both if the protocol has no objective.
      backups: b, if the number of workers that an update waits for is fixed.
      flags: flags of `sgdlab train` that select it; empty if no flags do.
      by_rate: the same protocol with the rate of the run as its objective, if its cutoffs differ.
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
        result: Measured,
        backups: int | None = None,
        flags: tuple[str, ...] = (),
    ) -> "Protocol":
        """A protocol without an objective."""
        return cls(title, setting, role, dict.fromkeys(OBJECTIVES, result), backups, flags)

    @property
    def paper(self) -> Measured:
        """The measurements with the paper's objective, the throughput of each iteration."""
        return self.measured["throughput"]

    @property
    def has_objective(self) -> bool:
        """Whether its cutoffs depend on the objective."""
        return self.measured["throughput"] is not self.measured["rate"]


@dataclasses.dataclass(frozen=True, eq=False)
class Sweep:
    """One kind of backup workers with every number b of them.

    Attributes:
      title: name of the kind.
      tuned: the best b on the tuning steps.
      test: b -> measurements on the evaluation steps.
      train: b -> measurements on the tuning steps.
    """

    title: str
    tuned: int
    test: Mapping[int, Measured]
    train: Mapping[int, Measured]

    @property
    def best(self) -> int:
        """The best b on the evaluation steps."""
        return best_of(self.test)


@dataclasses.dataclass(frozen=True, eq=False)
class Comparison:
    """The measurements of all protocols.

    Attributes:
      protocols: the rows of the table, full synchrony first and the oracle last.
      sweeps: interrupted and finishing backup workers.
      record: predictions and cutoffs of the deep Markov model with the paper's objective.
      note: a sentence on how its training differs from the paper's; empty if it does not.
    """

    protocols: Sequence[Protocol]
    sweeps: Sequence[Sweep]
    record: CutoffRecord
    note: str

    @property
    def synchrony(self) -> Measured:
        """The measurements of full synchrony, to which all others are relative."""
        return self.protocols[0].paper

    def by_role(self, role: str) -> list[Protocol]:
        """The protocols of one role, in the order of the table."""
        return [protocol for protocol in self.protocols if protocol.role == role]


INTERRUPTED = "backups, interrupted"
FINISHING = "backups, finishing"
DEEP_MARKOV = "deep Markov cutoff"
BY_RATE = "objective: rate of the run"
SYNCHRONOUS = ("--config.method=synchronous",)


def compare(parts: Parts, directory: pathlib.Path, *, most_steps: int, seed: int, report: Report = print) -> Comparison:
    """Tunes and measures every protocol.

    Args:
      parts: the recording, split into tuning and evaluation steps.
      directory: where the trained deep Markov model is saved.
      most_steps: upper bound on the optimiser's steps in training that model.
      seed: of its training and of the predictors' random draws.
      report: called with one line about the progress.
    """
    workers = parts.test.shape[1]
    report(f"[1/3] measuring every number of backup workers from 1 to {workers - 1}")
    sweeps = [_interrupted_sweep(parts), _finishing_sweep(parts)]
    report("[2/3] tuning the deadline, the running mean and Elfving, fitting the Kalman filter")
    predicted = _tuned(parts, seed)
    plan = learned.plan(len(parts.train), most_steps)
    report(f"[3/3] training the deep Markov model for at most {plan.fitting.steps} steps")
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


def best_of(results: Mapping[int, Measured]) -> int:
    """The number of backup workers with the most gradients per second; of equal ones, the smallest.

    Args:
      results: b -> measurements.
    """
    return max(sorted(results), key=lambda b: results[b].gradients_per_second)


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
    """The tuned number of backup workers, and the best number on the evaluation steps if it differs."""
    tuned, workers = sweep.tuned, max(sweep.test) + 1
    flags = _interrupting(workers - tuned) if sweep.title == INTERRUPTED else _finishing(tuned)
    rows = [Protocol.fixed(sweep.title, f"b = {tuned}", DEPLOYABLE, sweep.test[tuned], tuned, flags)]
    if sweep.best != tuned:
        setting = f"b = {sweep.best}, best in hindsight"
        rows.append(Protocol.fixed(sweep.title, setting, HINDSIGHT, sweep.test[sweep.best], sweep.best))
    return rows


def _interrupting(cutoff: int) -> tuple[str, ...]:
    return tuning.cutoff_flags("static", 1, f"cutoff={cutoff}")


def _finishing(backups: int) -> tuple[str, ...]:
    return ("--config.method=backup_workers", f"--config.protocol.backup_workers.backups={backups}")


def _tuned(parts: Parts, seed: int) -> list[Protocol]:
    """All predictors except the deep Markov model."""
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
    """A predictor with both objectives on the evaluation steps, and its record with the paper's objective."""
    records = {o: _record(parts, tuned[o], o, seed) for o in OBJECTIVES}
    paper, rate = (tuned[o] for o in OBJECTIVES)
    results = {o: measured.interrupted(parts.test, records[o].cutoff) for o in OBJECTIVES}
    if (records["throughput"].cutoff == records["rate"].cutoff).all():
        protocol = Protocol.fixed(title, paper.setting, DEPLOYABLE, results["throughput"], flags=paper.flags)
        return protocol, records["throughput"]
    flags = (*rate.flags, "--config.protocol.cutoff.objective=rate") if rate.flags else ()
    by_rate = Protocol.fixed(title, f"{rate.setting}, {BY_RATE}", DEPLOYABLE, results["rate"], flags=flags)
    return Protocol(title, paper.setting, DEPLOYABLE, results, None, paper.flags, by_rate), records["throughput"]


def _oracle(runtimes: np.ndarray, objective: str) -> Measured:
    return measured.interrupted(runtimes, oracle.cutoffs(runtimes, objective))
