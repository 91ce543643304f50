"""One live run with faults of its workers: what is observed, and what must hold of it."""

import functools
import os
import pathlib
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np
import psutil

from experiments.benchmarks.faults import checks, work
from experiments.benchmarks.faults.faulty import Faulty
from experiments.benchmarks.faults.scenario import Scenario
from sgdlab import policies
from sgdlab.errors import Stopped
from sgdlab.live.lines import LogError, path_in, read
from sgdlab.live.log import Log
from sgdlab.live.recording import LiveRecording
from sgdlab.live.resume import examined
from sgdlab.live.server import serve
from sgdlab.live.settings import LiveSettings
from sgdlab.live.status import Status
from sgdlab.live.transport import Transport
from sgdlab.predictors import RunningMean
from sgdlab.replay.steps import Steps

Tree = Any

POLICIES: Mapping[str, Callable[..., Any]] = {
    "asynchronous": policies.asynchronous,
    "synchronous": policies.synchronous,
    "backup workers": policies.backup_workers,
    "timeout": functools.partial(policies.timeout, at_least=0.5, seconds=0.03),
    "timeout, interrupting": functools.partial(policies.timeout, at_least=0.5, seconds=0.03, interrupt=True),
    "cutoff": functools.partial(policies.cutoff, predictor=RunningMean(window=5), window=5),
    "softsync": functools.partial(policies.softsync, gradients_per_update=3),
    "rennala": functools.partial(policies.rennala, gradients_per_update=3),
    "ringmaster": functools.partial(policies.ringmaster, max_delay=checks.MAX_DELAY),
    "ringmaster, interrupting": functools.partial(policies.ringmaster, max_delay=checks.MAX_DELAY, interrupt=True),
    "bounded staleness": functools.partial(policies.bounded_staleness, bound=checks.BOUND),
}
SETTINGS = LiveSettings(
    min_workers=1,
    wait_seconds=120.0,
    least_patience=4.0,
    respawn_seconds=0.25,
    checkpoint_updates=10,
    checkpoint_seconds=0.0,
    watch_seconds=0.0,
)
"""A worker is lost when it is silent for 4 s; gradients take 0.1 s."""
PATIENCE = 180.0
"""Seconds without the end of a scenario after which it has failed."""
MANY = 10**6
AUX = {"loss": jax.ShapeDtypeStruct((), np.float32)}
_END = 15.0


class Outcome(NamedTuple):
    """Holds what became of a run.

    Attributes:
      scenario: its name.
      policy: the protocol.
      survived: whether everything holds.
      recovery: seconds from the end of the fault to a gradient of every worker that it concerned; None: never.
      gradients_lost: number of gradients that were lost, failed or were refused.
      updates_lost: number of updates that had been made, and are not in the record.
      updates_doubled: number of gradients that entered two updates.
      ledger: what is wrong with it; empty if it adds up.
      versions: what is wrong with them; empty if none is skipped.
      bound: what is wrong with the staleness; empty if it is within its bound.
      difference: between the parameters and those of a replay; None: there is none.
      left: number of processes that were left behind.
      wrong: what else is wrong.
      notes: what else was seen.
    """

    scenario: str
    policy: str
    survived: bool
    recovery: float | None = None
    gradients_lost: int = 0
    updates_lost: int = 0
    updates_doubled: int = 0
    ledger: str = ""
    versions: str = ""
    bound: str = ""
    difference: float | None = None
    left: int = 0
    wrong: str = ""
    notes: Mapping[str, Any] = {}

    def judged(self) -> "Outcome":
        """With `survived` as the other fields say."""
        wrong = (self.ledger, self.versions, self.bound, self.wrong)
        numbers = (self.updates_lost, self.updates_doubled, self.left)
        holds = not any(wrong) and not any(numbers) and self.difference == 0.0 and self.recovery is not None
        return self._replace(survived=holds)


def observed(
    scenario: Scenario,
    transport: Transport,
    folder: pathlib.Path,
    *,
    seconds: float,
    workers: int,
    pids: set[int] | None = None,
) -> Outcome:
    """Executes a run in this process, over workers that serve other runs too.

    The numbers of all processes that have joined are added to `pids`.
    """
    make = POLICIES[scenario.policy]
    faulty = Faulty(transport, scenario, folder, seconds=seconds)
    policy = make(num_workers=workers)
    steps = Steps(work.RULE, work.params(), single=policy.single)
    steps.compile(AUX)
    lines = folder / "logs" / scenario.name.replace(" ", "_")
    updates: list[int] = []
    shown = _Shown()
    lasts = PATIENCE + sum(step.seconds for step in scenario.steps)
    begin = time.monotonic()
    wrong = ""
    try:
        serve(
            policy,
            steps,
            faulty,
            num_workers=workers,
            num_gradients=MANY,
            settings=SETTINGS,
            log=Log(lines, {"scenario": scenario.name}, say=lambda line: None),
            on_update=lambda update: updates.append(update.number),
            watch=shown.show,
            stop=lambda: faulty.finished or time.monotonic() > begin + lasts,
        )
    except Stopped:
        pass
    except Exception as error:  # whatever it is, the scenario was not survived, and the others are to run
        wrong = f"{type(error).__name__}: {error}"
    finally:
        faulty.leave()
    if not wrong and not faulty.finished:
        wrong = f"workers {sorted(faulty.missing)} are not back after {lasts:.0f} s"
    try:
        recording = examined(lines, lambda config: make(num_workers=workers))
    except LogError as error:  # a run that has not begun, say
        return Outcome(scenario.name, scenario.policy, False, wrong=wrong or str(error))
    outcome = judged(
        Outcome(scenario.name, scenario.policy, False, faulty.recovery, wrong=wrong, notes=faulty.notes),
        recording,
        steps.params,
        lines,
        folder=folder,
        tickets=faulty.tickets,
        updates=updates,
        statuses=shown.unequal,
    )
    missing = [word for word in scenario.expects_words if not any(word in words for words in shown.words)]
    missing += [f"{number} {fate}" for fate, number in scenario.expects.items() if recording.ledger()[fate] < number]
    gone = faulty.pids - set(faulty.alive.values())
    (set() if pids is None else pids).update(faulty.pids)
    return outcome._replace(
        updates_lost=len(updates) - recording.schedule.num_updates,
        left=left(gone),
        wrong=outcome.wrong or (f"the record lacks {', '.join(missing)}" if missing else ""),
        notes={
            **faulty.notes,
            "deaths": faulty.deaths,
            "updates": len(updates),
            **checks.pace(read(path_in(lines))[0][1:]),
        },
    ).judged()


class _Shown:
    """Keeps what the server has shown: all its words, and each status whose ledger does not add up."""

    def __init__(self) -> None:
        self.words: set[str] = set()
        self.unequal: list[Status] = []

    def show(self, status: Status) -> None:
        self.words.update(words for _, words in status.events)
        if not checks.adds_up(status.ledger):
            self.unequal.append(status)


def judged(
    outcome: Outcome,
    recording: LiveRecording,
    params: Tree,
    lines: pathlib.Path,
    *,
    folder: pathlib.Path,
    tickets: list[int] | None,
    updates: list[int],
    statuses: list[Status],
) -> Outcome:
    """Return an outcome with everything that a record, the log and the parameters say."""
    counts = recording.ledger()
    twice = recording.used_tickets().size - np.unique(recording.used_tickets()).size
    return outcome._replace(
        gradients_lost=counts["lost"] + counts["failed"] + counts["refused"],
        updates_doubled=twice + len(updates) - len(set(updates)),
        ledger=checks.ledger(recording, tickets, statuses),
        versions=checks.versions(recording, updates),
        bound=checks.bound(recording, outcome.policy, read(path_in(lines))[0][1:]),
        difference=checks.difference(recording, params, folder),
    ).judged()


def left(pids: set[int]) -> int:
    """Return how many of these processes are still there after a while."""
    end = time.monotonic() + _END
    while (still := [pid for pid in pids if _is_there(pid)]) and time.monotonic() < end:
        time.sleep(0.05)
    return len(still)


def _is_there(pid: int) -> bool:
    """Return True if a process is left; a zombie is one if it is ours to bury, not that of a server that was killed."""
    try:
        process = psutil.Process(pid)
        return process.status() != psutil.STATUS_ZOMBIE or process.ppid() == os.getpid()
    except psutil.NoSuchProcess:
        return False
