"""Any other trace in Chrome's format whose events mark the steps of training."""

import pathlib
import re
from collections import defaultdict
from typing import Any

import numpy as np

from sgdlab.traces import events
from sgdlab.traces.family import TRACES
from sgdlab.traces.joining import WorkerSteps, rank_in, together
from sgdlab.traces.options import Options
from sgdlab.traces.paths import files
from sgdlab.traces.phases import collective, is_communication
from sgdlab.traces.problems import BadTrace
from sgdlab.traces.recording import Recording

ENDINGS = (".json", ".json.gz")
_STEP = re.compile(
    r"(?:((?:profiler|train(?:ing)?)?[ _.:/-]*(?:step|iteration|iter|batch))[ _#:=(/-]*([0-9]*)\)?)|(gradient) [0-9]+",
    re.IGNORECASE,
)
_NUMBERS = ("step_num", "step", "iteration", "global_step", "batch")
_MOST_PHASES = 12


def recognises(path: pathlib.Path) -> bool:
    """Tell whether the first of the files is in Chrome's format."""
    found = files(path, ENDINGS)
    return bool(found) and events.has_events(events.head(found[0]))


@TRACES.register(
    "chrome",
    title="Chrome trace events",
    source="Trace Event Format, Nat Duca and Dean Sinclair, 2016",
    endings=ENDINGS,
    recognises=recognises,
)
def chrome(*, path: str | pathlib.Path, options: Options) -> Recording:
    """Reads traces of one process for each worker, in one file or in several; or of one thread for each worker.

    Steps are events (X, or B with E) named `step`, `train_step`, `iteration` and the like, or as
    `columns=("step=NAME",)` says; their number is in the name or in the arguments, or else they are counted. A worker's
    own work is the time of a step less that of the events of its process inside of it that are communication by name
    (`all_reduce`, `nccl...`, `barrier`). Events of the step's thread are its phases.

    Args:
      path: of a directory, a pattern or a file.
      options: `columns` may hold `step=NAME`, the name of the events that are steps, up to a number at its end.

    Raises:
      BadTrace: where a file has no steps.

    Source: "Trace Event Format", Nat Duca and Dean Sinclair, 2016
    """
    named = next((column.partition("=")[2] for column in options.columns if column.startswith("step=")), None)
    pattern = re.compile(f"({re.escape(named)})" + r"[ _#:=(/-]*([0-9]*)\)?") if named else _STEP
    found, parts, notes = files(path, ENDINGS), [], []
    for file in found:
        trace = _Trace(file, pattern)
        if trace.cut_off or trace.skipped:
            notes.append(f"{file.name} is damaged: {trace.events} events could be read.")
        if not trace.steps:
            names = ", ".join(sorted(trace.names)[:8]) or "none"
            raise BadTrace(
                f"{file.name} has no events named as steps (step, train_step, iteration); name them by "
                f"--columns=step=NAME. Names of its events: {names}"
            )
        parts += trace.workers(rank_in(file) or file.name.partition(".")[0] if len(found) > 1 else None)
        notes += trace.notes
    return together(parts, list(dict.fromkeys(notes)))


class _Trace(events.Trace):
    """Events of one file, by process and thread."""

    reads_cut_off = True

    def __init__(self, path: pathlib.Path, pattern: re.Pattern[str]):
        self._pattern = pattern
        self._named: dict[Any, dict[events.Line, list[tuple[float, float, int | None]]]] = {}
        self._others = events.spans()
        self.names: set[str] = set()
        self.notes: list[str] = []
        super().__init__(path)
        # Where steps hold others (an iteration of several batches), those that take the most time are meant.
        stems = sorted(self._named, key=self._total)
        self.steps = self._named[stems[-1]] if stems else {}
        if len(stems) > 1:
            others = ", ".join(repr(stem) for stem in stems[:-1])
            self.notes.append(f"Steps are the events named {stems[-1]!r}, not {others} (--columns=step=NAME).")

    def _total(self, stem: str) -> float:
        return sum(end - begin for rows in self._named[stem].values() for begin, end, _ in rows if end > begin)

    def _take(self, line: events.Line, name: str, span: events.Span, category: str, arguments: dict[str, Any]) -> None:
        if found := self._pattern.fullmatch(name):
            stem, number, ours = (*found.groups(), None)[:3]
            number = number or next((arguments[key] for key in _NUMBERS if key in arguments), "")
            # In a time-line that sgdlab writes, gradients are numbered over all workers, and dropped ones cut short.
            end = np.nan if ours and arguments.get("became") != "used" else span[1]
            whole = str(number).strip().lstrip("+-").isdigit() and not ours
            rows = self._named.setdefault(stem or ours, defaultdict(list))[line]
            rows.append((span[0], end, int(number) if whole else None))
        else:
            if len(self.names) < 100:
                self.names.add(name)
            self._others[line][name].extend(span)

    def workers(self, file: str | None) -> list[WorkerSteps]:
        """The steps of each process, or of each thread where a process has several with steps."""
        processes = [process for process, _ in self.steps]
        several = len(set(processes)) < len(processes)
        alone = file is not None and len(self.steps) == 1
        return [self._worker(line, file if alone else self._name(line, several, file), several) for line in self.steps]

    def _name(self, line: events.Line, several: bool, file: str | None) -> str:
        process = self.processes.get(line[0], "")
        names = list(self.processes.values())
        name = process if process and names.count(process) == 1 else str(line[0])
        if several:
            thread = self.threads.get(line) or str(line[1])
            unique = list(self.threads.values()).count(thread) == 1
            name = thread if unique else f"{name}/{thread}"
        return f"{file}/{name}" if file is not None else name

    def _worker(self, line: events.Line, name: str, by_thread: bool) -> WorkerSteps:
        rows = sorted(self.steps[line], key=lambda row: row[0])
        left, right = (np.array([row[side] for row in rows]) for side in (0, 1))
        if all(row[2] is not None for row in rows):
            steps = np.array([row[2] for row in rows])
        else:
            steps = np.arange(len(rows))
            self.notes.append("Steps have no numbers: they were counted, worker by worker.")
        phases: dict[str, events.Intervals] = {}
        transfers = defaultdict(list)
        for other, names in self._others.items():
            if other[0] != line[0] or (by_thread and other[1] != line[1]):
                continue
            for event, times in names.items():
                if kind := collective(event) or (event if is_communication(event) else None):
                    transfers[kind].append(times)
                elif other == line:
                    phases[event] = events.intervals([times])
        inside = ~np.isnan(right)
        return events.worker_steps(
            name,
            (steps[inside], left[inside], right[inside]),
            {kind: events.intervals(times) for kind, times in transfers.items()},
            events.intervals([]),
            phases if len(phases) <= _MOST_PHASES else {},
        )
