"""Profiles of JAX: directories with `plugins/profile/{time}/{host}.trace.json.gz`."""

import pathlib
from collections import defaultdict
from typing import Any

import numpy as np

from sgdlab.traces import events
from sgdlab.traces.family import TRACES
from sgdlab.traces.joining import WorkerSteps, each, together
from sgdlab.traces.options import Options
from sgdlab.traces.paths import files, in_order
from sgdlab.traces.phases import collective
from sgdlab.traces.problems import BadTrace
from sgdlab.traces.recording import Recording

ENDING = ".trace.json.gz"
_NO_WORK = ("$", "PjitFunction", "CommonPjRt", "end: ", "[")
"""Functions of Python, the dispatch of programs by their names, and marks."""
_DEVICE, _OPERATIONS, _STEPS = "/device:", ("XLA Ops", "Async XLA Ops", "Stream"), "Steps"


def recognises(path: pathlib.Path) -> bool:
    """Tell whether there is a profile of JAX in the directory, or whether the file is one."""
    found = _files(path)
    if not found or found[0].name.endswith(".pt.trace.json.gz"):
        return False
    text = events.head(found[0])
    return found[0].parent.parent.name == "profile" or ('"highres-ticks"' in text and events.has_events(text))


@TRACES.register(
    "jax_profiler",
    title="JAX profiler",
    source="https://docs.jax.dev/en/latest/_autosummary/jax.profiler.StepTraceAnnotation.html",
    endings=(ENDING,),
    recognises=recognises,
)
def jax_profiler(*, path: str | pathlib.Path, options: Options) -> Recording:
    """Reads profiles of JAX whose loop marks its steps with `jax.profiler.StepTraceAnnotation("train", step_num=n)`.

    A worker is a process: its steps are those that a TPU's own line of steps tells, or else the annotations of the
    host, which hold the work of the device only where the loop waits for it inside of them (`jax.block_until_ready`).
    A step begins where the one before it has ended, so that reading data between two annotations counts. Its own work
    is the step's time, less the time in which a device does nothing but communicate; of several devices that which
    does so least counts.

    Args:
      path: of a directory, in which profiles are found wherever they are, of a pattern, or of a file.
      options: `skip_bad_rows` leaves out files that end too early.

    Raises:
      BadTrace: where a file cannot be used.

    Source: https://docs.jax.dev/en/latest/profiling.html
    """
    found, notes = _files(path), []
    workers = _workers(found)
    profiles = each(found, options, notes, lambda file: _Profile(file, *workers[file]))
    if not all(profile.on_device for profile in profiles):
        notes.append(
            "Steps are those of the hosts: they hold the device's work only if the loop waits for it "
            "(block_until_ready) inside of StepTraceAnnotation."
        )
    return together([profile.steps() for profile in profiles], notes)


def _files(path: str | pathlib.Path) -> list[pathlib.Path]:
    found = pathlib.Path(path)
    several = [str(file) for file in found.rglob(f"*{ENDING}")] if found.is_dir() else map(str, files(path, (ENDING,)))
    return [pathlib.Path(name) for name in sorted(several, key=in_order)]


def _workers(found: list[pathlib.Path]) -> dict[pathlib.Path, tuple[str, str]]:
    """A worker's name and its machine for each file: the host, and before it the directory where hosts repeat."""
    hosts = [file.name.removesuffix(ENDING) for file in found]
    logs = [file.parents[3] if file.parent.parent.name == "profile" else file.parent for file in found]
    several = any(len({log for log, h in zip(logs, hosts, strict=True) if h == host}) > 1 for host in set(hosts))
    names = [f"{log.name}/{host}" if several else host for log, host in zip(logs, hosts, strict=True)]
    return dict(zip(found, zip(names, hosts, strict=True), strict=True))


class _Profile(events.Trace):
    """Holds what is needed of one file."""

    def __init__(self, path: pathlib.Path, worker: str, node: str):
        self._worker, self._node = worker, node
        self._host: dict[int, events.Span] = {}
        self._device: dict[int, events.Span] = {}  # from the first device's begin to the last one's end
        # By process and thread, of collectives by their kinds; of other operations, those of devices are needed.
        self._spans = events.spans()
        super().__init__(path)
        self.on_device = bool(self._device)
        if not self._host and not self._device:
            raise BadTrace(
                'has no steps: put `with jax.profiler.StepTraceAnnotation("train", step_num=step):` around each'
            )

    def _take(self, line: events.Line, name: str, span: events.Span, category: str, arguments: dict[str, Any]) -> None:
        on_device = self._is_device(line[0])
        if str(arguments.get("step_num")).isdigit() and not on_device:
            self._host[int(arguments["step_num"])] = span
        elif self.threads.get(line) == _STEPS:
            if (number := name.rpartition(" ")[2]).isdigit():  # "12", or "train 12"
                events.widen(self._device, int(number), span)
        elif not name.startswith(_NO_WORK):
            kind = collective(name)
            if kind or on_device:
                self._spans[line][kind or ""].extend(span)

    def steps(self) -> WorkerSteps:
        """The process's steps, in seconds."""
        numbers, left, right = events.windows(self._device or self._host)
        after = np.flatnonzero(np.diff(numbers) == 1) + 1
        left[after] = np.minimum(right[after - 1], right[after])
        devices = sorted({process for process, _ in self._spans if self._is_device(process)}, key=str)
        waited = [self._waited([device], left, right) for device in devices]
        waited = waited or [self._waited([process for process, _ in self._spans], left, right)]
        nothing = np.zeros(left.shape)
        totals = np.stack([sum(times.values(), nothing) for times in waited])
        least = np.argmin(totals, axis=0)  # of the devices, which all work at the same time
        names = sorted({name for times in waited for name in times})
        communication = {
            name: np.choose(least, [times.get(name, nothing) for times in waited]) * 1e-6 for name in names
        }
        own = (right - left - totals.min(axis=0)) * 1e-6
        return WorkerSteps(self._worker, numbers, own, communication, {}, left * 1e-6, self._node)

    def _is_device(self, process: Any) -> bool:
        return self.processes.get(process, "").startswith(_DEVICE)

    def _waited(self, processes: list[Any], left: np.ndarray, right: np.ndarray) -> dict[str, np.ndarray]:
        """Microseconds of nothing but communication in each step, on these devices, or anywhere on the host."""
        transfers, compute = defaultdict(list), []
        for line, kinds in self._spans.items():
            if line[0] in processes:
                for kind in kinds.keys() - {""}:
                    transfers[kind].append(kinds[kind])
                if self.threads.get(line, "").startswith(_OPERATIONS):
                    compute.append(kinds[""])
        parts = {kind: events.intervals(times) for kind, times in sorted(transfers.items())}
        return events.exposed(parts, events.intervals(compute), left, right)
