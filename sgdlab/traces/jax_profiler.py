"""Profiles of JAX: directories with `plugins/profile/{time}/{host}.trace.json.gz`."""

import pathlib
from array import array
from collections import defaultdict
from typing import Any

import numpy as np

from sgdlab.traces import events
from sgdlab.traces.family import TRACES
from sgdlab.traces.joining import WorkerSteps, naming, together
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
    found, parts, notes, of_hosts = _files(path), [], [], False
    for file, (worker, node) in zip(found, _workers(found), strict=True):
        with naming(file, options, notes):
            profile = _Profile(file)
            parts.append(profile.steps(worker, node))
            of_hosts = of_hosts or not profile.device_steps
    if not parts:
        raise BadTrace("must have a profile that can be used")
    if of_hosts:
        notes.append(
            "Steps are those of the hosts: they hold the device's work only if the loop waits for it "
            "(block_until_ready) inside of StepTraceAnnotation."
        )
    return together(parts, notes)


def _files(path: str | pathlib.Path) -> list[pathlib.Path]:
    found = pathlib.Path(path)
    several = [str(file) for file in found.rglob(f"*{ENDING}")] if found.is_dir() else map(str, files(path, (ENDING,)))
    return [pathlib.Path(name) for name in sorted(several, key=in_order)]


def _workers(found: list[pathlib.Path]) -> list[tuple[str, str]]:
    """A worker's name and its machine for each file: the host, and before it the directory where hosts repeat."""
    hosts = [file.name.removesuffix(ENDING) for file in found]
    logs = [file.parents[3] if file.parent.parent.name == "profile" else file.parent for file in found]
    several = any(len({log for log, h in zip(logs, hosts, strict=True) if h == host}) > 1 for host in set(hosts))
    return [(f"{log.name}/{host}" if several else host, host) for log, host in zip(logs, hosts, strict=True)]


class _Profile:
    """What is needed of one file."""

    def __init__(self, path: pathlib.Path):
        self._processes: dict[Any, str] = {}
        self._threads: dict[tuple[Any, Any], str] = {}
        self._host: dict[int, tuple[float, float]] = {}
        self._steps: dict[tuple[Any, Any], dict[int, tuple[float, float]]] = defaultdict(dict)
        # Begin and end by turns, by process, thread and collective; of other operations, those of devices are needed.
        self._times: dict[tuple[Any, Any, str], array] = defaultdict(lambda: array("d"))
        around = events.scan(path, self._take)
        if around.cut_off:
            raise BadTrace(
                f"ends after {around.events} events (was the process killed while it wrote?): what is missing is "
                "unknown; record again, or leave this file out (--skip_bad_rows)"
            )
        self.device_steps = self._of_devices()
        if not self._host and not self.device_steps:
            raise BadTrace(
                'has no steps: put `with jax.profiler.StepTraceAnnotation("train", step_num=step):` around each'
            )

    def _take(self, event: dict[str, Any]) -> None:
        phase, process, thread = event.get("ph"), event.get("pid"), event.get("tid")
        arguments = event.get("args") or {}
        if phase == "M":
            if event.get("name") == "process_name":
                self._processes[process] = str(arguments.get("name", ""))
            elif event.get("name") == "thread_name":
                self._threads[process, thread] = str(arguments.get("name", ""))
            return
        if not events.is_span(event):
            return
        name, begin = event["name"], event["ts"]
        end = begin + event["dur"]
        if str(arguments.get("step_num")).isdigit() and not self._is_device(process):
            self._host[int(arguments["step_num"])] = (begin, end)
        elif self._threads.get((process, thread)) == _STEPS:
            if (number := name.rpartition(" ")[2]).isdigit():  # "12", or "train 12"
                self._steps[process, thread][int(number)] = (begin, end)
        elif not name.startswith(_NO_WORK):
            kind = collective(name)
            if kind or self._is_device(process):
                self._times[process, thread, kind or ""].extend((begin, end))

    def _of_devices(self) -> dict[int, tuple[float, float]]:
        """Steps by the devices' own lines, from the first device's begin to the last one's end."""
        steps: dict[int, tuple[float, float]] = {}
        for line in self._steps.values():
            for step, (begin, end) in line.items():
                known = steps.get(step, (np.inf, -np.inf))
                steps[step] = (min(known[0], begin), max(known[1], end))
        return steps

    def steps(self, worker: str, node: str) -> WorkerSteps:
        """The process's steps, in seconds."""
        chosen = self.device_steps or self._host
        numbers = sorted(chosen)
        left, right = (np.array([chosen[number][side] for number in numbers], np.float64) for side in (0, 1))
        after = np.flatnonzero(np.diff(numbers) == 1) + 1
        left[after] = np.minimum(right[after - 1], right[after])
        devices = sorted({key[0] for key in self._times if self._is_device(key[0])}, key=str)
        waited = [self._waited([device], left, right) for device in devices] or [self._waited(None, left, right)]
        totals = np.stack([sum(times.values(), np.zeros(left.shape)) for times in waited])
        least = np.argmin(totals, axis=0)  # of the devices, which all work at the same time
        names = sorted({name for times in waited for name in times})
        communication = {
            name: np.choose(least, [times.get(name, np.zeros(left.shape)) for times in waited]) * 1e-6 for name in names
        }
        own = (right - left - totals.min(axis=0)) * 1e-6
        return WorkerSteps(worker, np.array(numbers), own, communication, {}, left * 1e-6, node)

    def _is_device(self, process: Any) -> bool:
        return self._processes.get(process, "").startswith(_DEVICE)

    def _waited(self, processes: list[Any] | None, left: np.ndarray, right: np.ndarray) -> dict[str, np.ndarray]:
        """Microseconds of nothing but communication in each step, on these devices, or anywhere on the host."""
        transfers: dict[str, list[np.ndarray]] = {}
        compute = [np.empty((0, 2))]
        for (process, thread, kind), times in self._times.items():
            if processes is not None and process not in processes:
                continue
            pairs = np.frombuffer(times, np.float64).reshape(-1, 2)
            if kind:
                transfers.setdefault(kind, []).append(pairs)
            elif self._threads.get((process, thread), "").startswith(_OPERATIONS):
                compute.append(pairs)
        parts = {kind: tuple(np.concatenate(pairs).T) for kind, pairs in sorted(transfers.items())}
        return events.exposed(parts, tuple(np.concatenate(compute).T), left, right)
