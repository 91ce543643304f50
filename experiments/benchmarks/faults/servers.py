"""A live run whose server ends, is started again by the same command, and goes on."""

import collections
import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence

import jax
import numpy as np

from experiments.benchmarks.faults import checks, runs, server, work
from experiments.benchmarks.faults.runs import Outcome
from experiments.benchmarks.faults.scenario import ServerScenario
from sgdlab.live.lines import Entry, path_in, read
from sgdlab.live.recording import LiveRecording
from sgdlab.live.resume import examined

_ROOT = pathlib.Path(__file__).parents[3]
_PAUSE = 0.02
_ROUNDING = ("jax_enable_x64", "jax_disable_most_optimizations")
"""Settings with which a replay in this process rounds as the server does."""
_CHECKPOINTS = 2


def observed(
    scenario: ServerScenario, folder: pathlib.Path, *, transport: str, seconds: float, workers: int, gradients: int = 60
) -> Outcome:
    """Executes a run by a server in a process of its own, ends it, and starts it again.

    So many gradients come before the server ends, and at least as many afterwards.
    """
    work.store_data(folder)
    given = {"policy": scenario.policy, "workers": workers, "seconds": seconds, "transport": transport}
    (folder / server.RUN).write_text(json.dumps(given), encoding="utf-8")
    lines = folder / "log"
    try:
        with _started(folder) as first:
            _wait_until(first, lambda: _came(lines) >= gradients and _checkpoints(lines) >= _CHECKPOINTS, folder)
            _end(first, scenario.signal)
        workers_left = runs.left(_pids(_entries(lines)))
        for damage in scenario.damage:
            damage(lines)
        before, ended = examined_in(lines, scenario.policy, workers), len(_entries(lines))
        with _started(folder) as second:
            begin = time.monotonic()
            came = lambda: sum(entry[0] == "came" for entry in _entries(lines)[ended:])
            _wait_until(second, lambda: came() >= 1, folder)
            recovery = time.monotonic() - begin
            _wait_until(second, lambda: came() >= gradients, folder)
            _end(second, "SIGTERM")
        printed = (folder / "server.log").read_text(encoding="utf-8")
        missing = [words for words in scenario.expects_words if words not in printed]
        wrong = f"there is no {', no '.join(missing)}" if missing else ""
        outcome = Outcome(scenario.name, scenario.policy, False, recovery, left=workers_left, wrong=wrong)
        return judged(outcome, folder, [before], workers)
    except Exception as error:  # whatever it is, the scenario was not survived, and the others are to run
        return Outcome(scenario.name, scenario.policy, False, wrong=f"{type(error).__name__}: {error}")


def judged(outcome: Outcome, folder: pathlib.Path, before: Sequence[LiveRecording], workers: int) -> Outcome:
    """Return the outcome of a run whose server was started again, once for each record of `before`, its newest last."""
    lines = folder / "log"
    entries = _entries(lines)
    recording = examined_in(lines, outcome.policy, workers)
    with np.load(folder / server.PARAMS) as stored:
        leaves = [stored[name] for name in stored.files]
    outcome = runs.judged(
        outcome,
        recording,
        jax.tree.unflatten(jax.tree.structure(work.params()), leaves),
        lines,
        folder=folder,
        tickets=None,
        updates=_told(json.loads((folder / server.UPDATES).read_text(encoding="utf-8"))),
        statuses=[],
    )
    again = collections.Counter(entry[2] for entry in entries if entry[0] == "restart")  # workers that were there
    wrong = [outcome.wrong] if outcome.wrong else []
    if bool(again) != bool(before) or max(again.values(), default=0) > len(before):
        wrong.append(f"of {len(before)} restarts the log has those of {dict(again)}")
    amiss = [checks.lost_or_doubled(each, recording) for each in before]
    return outcome._replace(
        updates_lost=sum(lost for lost, _ in amiss),
        updates_doubled=outcome.updates_doubled + sum(doubled for _, doubled in amiss),
        left=outcome.left + runs.left(_pids(entries)),
        wrong="; ".join(wrong),
        notes={"updates": recording.schedule.num_updates, **checks.pace(entries), **outcome.notes},
    ).judged()


@contextlib.contextmanager
def _started(folder: pathlib.Path) -> Iterator[subprocess.Popen]:
    with (folder / "server.log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", server.__name__, str(folder)],
            cwd=_ROOT,
            env=os.environ | rounding(),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            process_group=0,
        )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def rounding() -> dict[str, str]:
    """Return the environment in which another process rounds as this one does."""
    own = {name.upper(): str(jax.config.values[name]) for name in _ROUNDING}
    return {"JAX_ENABLE_COMPILATION_CACHE": "false", **own}


def _end(process: subprocess.Popen, name: str) -> None:
    """Ends the server, and sees that it ends as it should."""
    number = signal.Signals[name]
    if number == signal.SIGINT:
        os.killpg(process.pid, number)
    else:
        process.send_signal(number)
    code = process.wait(runs.PATIENCE)
    if code not in (-signal.SIGKILL, server.STOPPED) or (code < 0) != (number == signal.SIGKILL):
        raise RuntimeError(f"the server has ended with exit code {code} after {name}")


def _wait_until(process: subprocess.Popen, reached: Callable[[], bool], folder: pathlib.Path) -> None:
    end = time.monotonic() + runs.PATIENCE
    while not reached():
        if process.poll() is not None or time.monotonic() > end:
            words = (folder / "server.log").read_text(encoding="utf-8").strip().splitlines()[-3:]
            why = "has ended" if process.returncode is not None else f"takes more than {runs.PATIENCE:.0f} s"
            raise RuntimeError(f"the server {why}: {' | '.join(words)}")
        time.sleep(_PAUSE)


def _told(updates: list[int]) -> list[int]:
    """Return the updates that the two servers have told of; the first one told of those before the second's."""
    return [*range(1, updates[0]), *updates] if updates else []


def _entries(lines: pathlib.Path) -> list[Entry]:
    """Return what the log has, but for its header."""
    path = path_in(lines)
    return read(path)[0][1:] if path.is_file() else []


def _came(lines: pathlib.Path) -> int:
    return sum(entry[0] == "came" for entry in _entries(lines))


def _checkpoints(lines: pathlib.Path) -> int:
    return len(list(lines.glob("checkpoint-*.npz")))


def _pids(entries: list[Entry]) -> set[int]:
    """Process numbers of all workers that a log names."""
    joined = {entry[3] for entry in entries if entry[0] == "joined"}
    return joined | {worker[1] for entry in entries if entry[0] == "start" for worker in entry[2]}


def examined_in(lines: pathlib.Path, policy: str, workers: int) -> LiveRecording:
    """Return what a log says."""
    return examined(lines, lambda config: runs.POLICIES[policy](num_workers=workers))
