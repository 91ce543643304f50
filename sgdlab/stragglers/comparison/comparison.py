"""Compares all protocols on the evaluation steps, with parameters from the tuning steps."""

import dataclasses
import functools
import pathlib
from collections.abc import Callable, Mapping, Sequence

from sgdlab import arguments
from sgdlab.predictors import OBJECTIVES, CutoffRecord, dropping
from sgdlab.stragglers import second_process
from sgdlab.stragglers.comparison import cutting, halves, learned, measured, refit, sweeps, tuning, without
from sgdlab.stragglers.comparison.cutting import BY_RATE
from sgdlab.stragglers.comparison.halves import Halves
from sgdlab.stragglers.comparison.measured import Measured
from sgdlab.stragglers.comparison.protocol import CEILING, DEPLOYABLE, HINDSIGHT, REFITTED, STALE, Protocol
from sgdlab.stragglers.comparison.sweeps import INTERRUPTED, BackupSweep
from sgdlab.stragglers.diagnosis.diagnosis import Diagnosis
from sgdlab.stragglers.recording import SplitRecording, SplitTimes

DEEP_MARKOV = "deep Markov cutoff"
SYNCHRONOUS = ("--config.method=synchronous",)

Report = Callable[[str], None]
"""Called with one line about the progress."""


@dataclasses.dataclass(frozen=True)
class ComparisonSettings:
    """Sets how much is compared.

    Attributes:
      model: whether the deep Markov model is trained: "auto" (as far as the size of the recording allows, from 500
        tuning steps on), "yes" or "no".
      most_steps: upper bound on the optimiser's steps in training it.
      refit: number of evaluation steps after which predictors are fitted again, in rows of their own; None: no such
        rows.
      seed: of the training and of the predictors' random draws.
      rejoin_seconds: that a worker which is dropped takes until it takes part again: what it computes in that time is
        lost.

    Raises:
      ValueError: if one of them is out of its range.
    """

    model: str = "auto"
    most_steps: int = 3000
    refit: int | None = None
    seed: int = 0
    rejoin_seconds: float = 0.0

    def __post_init__(self) -> None:
        arguments.one_of("model", self.model, learned.MODELS)
        arguments.whole("most_steps", self.most_steps)
        arguments.whole("seed", self.seed, least=0)
        arguments.real("rejoin_seconds", self.rejoin_seconds, least=0)
        if self.refit is not None:
            arguments.whole("refit", self.refit)


@dataclasses.dataclass(frozen=True, eq=False)
class Comparison:
    """The measurements of all protocols.

    Attributes:
      protocols: the rows of the table, full synchrony first and the oracle last.
      sweeps: interrupted and finishing backup workers.
      record: predictions and cutoffs of the deep Markov model with the paper's objective; None if it was left out.
      note: a sentence on how its training differs from the paper's; empty if it does not.
      left_out: title of what was not run -> why not, in a sentence.
      halves: how the evaluation steps differ from the tuning steps; None if they do not.
    """

    protocols: Sequence[Protocol]
    sweeps: Sequence[BackupSweep]
    record: CutoffRecord | None
    note: str
    left_out: Mapping[str, str] = dataclasses.field(default_factory=dict)
    halves: Halves | None = None

    @property
    def synchrony(self) -> Measured:
        """The measurements of full synchrony, to which all others are relative."""
        return self.protocols[0].result

    def by_role(self, role: str) -> list[Protocol]:
        """The protocols of one role, in the order of the table."""
        return [protocol for protocol in self.protocols if protocol.role == role]


def compare(
    parts: SplitRecording,
    diagnosis: Diagnosis,
    directory: pathlib.Path,
    *,
    settings: ComparisonSettings | None = None,
    report: Report = print,
) -> Comparison:
    """Tunes and measures every protocol.

    Args:
      parts: the recording, split into tuning and evaluation steps.
      diagnosis: of the recording; there is a row without each machine that it names.
      directory: where the trained deep Markov model is saved.
      settings: how much is compared. None: the defaults.
      report: called with one line about the progress.
    """
    given = settings or ComparisonSettings()
    workers = parts.test.shape[1]
    left_out = {}
    plan = learned.plan(len(parts.train), given.most_steps, workers=workers, model=given.model)
    why_not = learned.why_not(len(parts.train), len(parts.test), workers, given.model)
    if why_not:
        left_out[DEEP_MARKOV] = why_not
    elif plan.objectives != OBJECTIVES:
        left_out[f"{DEEP_MARKOV}, {BY_RATE}"] = learned.NOT_BY_RATE
    steps, numbers = SplitTimes(parts.train, parts.test), {"seed": given.seed, "rejoin_seconds": given.rejoin_seconds}
    others = functools.partial(cutting.finishing_and_tuned, steps, **numbers)
    learnt, record = [], None
    report(f"measuring numbers of backup workers from 1 to {workers - 1}, tuning and fitting predictors")
    # Not in a thread: on arrays as short as these NumPy hardly ever lets go of Python's lock.
    with second_process.beside(others, elsewhere=not why_not) as result:
        if not why_not:
            report(f"training the deep Markov model for at most {plan.fitting.steps} steps meanwhile")
            deep = learned.trained(parts.train, plan, seed=given.seed, directory=directory)
            row, record = cutting.cut(steps, DEEP_MARKOV, dict.fromkeys(plan.objectives, deep), **numbers)
            learnt = [row]
        finishing, tuned = result()
    both = [sweeps.interrupted(steps, given.rejoin_seconds), finishing]
    full = measured.interrupted(parts.test, workers)
    rows = [
        Protocol("full synchrony", "", DEPLOYABLE, full, backups=0, flags=SYNCHRONOUS),
        *(row for sweep in both for row in _of_sweep(sweep, steps, given.rejoin_seconds)),
        *tuned,
        *learnt,
    ]
    if given.refit is not None:
        again, reasons = _refitted(parts, given, report)
        rows += again
        left_out |= reasons
    rows += [
        *without.rows(parts, diagnosis),
        Protocol("asynchrony", "", STALE, measured.asynchronous(parts.test), flags=("--config.method=asgd",)),
        _oracle(parts, given.rejoin_seconds),
    ]
    note = "" if why_not else plan.note
    return Comparison(rows, both, record, note, left_out, halves.find_difference(parts, diagnosis.causes))


def _of_sweep(sweep: BackupSweep, parts: SplitTimes, rejoin_seconds: float) -> list[Protocol]:
    """The tuned number of backup workers, and the best number on the evaluation steps if it differs."""
    title, tuned, best, workers = sweep.title, sweep.tuned, sweep.best, max(sweep.test) + 1
    is_cut = title == INTERRUPTED
    flags = ("--config.method=backup_workers", f"--config.protocol.backup_workers.backups={tuned}")
    if is_cut:
        flags = tuning.cutoff_flags("static", 1, f"cutoff={workers - tuned}")
    chosen = {"backups": tuned, "flags": flags, "warm_up": int(is_cut)}
    of = lambda b: measured.interrupted(parts.test, workers - b, rejoin_seconds) if is_cut else sweep.test[b]
    rows = [Protocol(title, f"b = {tuned}", DEPLOYABLE, of(tuned), **chosen)]
    if best != tuned:
        setting = f"b = {best}, best in hindsight"
        rows.append(Protocol(title, setting, HINDSIGHT, of(best), backups=best))
    return rows


def _refitted(
    parts: SplitRecording, given: ComparisonSettings, report: Report
) -> tuple[list[Protocol], dict[str, str]]:
    """The rows that are fitted again and again, and what is left out of them, with the reasons."""
    why_not = refit.why_not(parts, given.refit)  # pyrefly: ignore[bad-argument-type]  # a number where it is asked for
    if why_not:
        return [], {"fitting again": why_not}
    report(f"      fitting all but the deep Markov model again every {given.refit} steps")
    once = {DEEP_MARKOV + REFITTED: "It is trained once: to train it again would take as long every time."}
    # pyrefly: ignore[bad-argument-type]  # the same
    return refit.rows(parts, given.refit, seed=given.seed, rejoin_seconds=given.rejoin_seconds), once


def _oracle(parts: SplitRecording, rejoin_seconds: float) -> Protocol:
    healing, by_rate = dropping.healing_seconds(parts.test.shape[1], rejoin_seconds), None
    for objective in reversed(OBJECTIVES):
        cutoff = sweeps.oracle_cutoffs(parts.test, objective, healing)
        result = measured.interrupted(parts.test, cutoff, rejoin_seconds)
        by_rate = oracle = Protocol("oracle", "", CEILING, result, by_rate=by_rate, objective=objective)
    return oracle
