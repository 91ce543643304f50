"""Profiles of PyTorch (Kineto), one file for each rank, as Holistic Trace Analysis reads them."""

import pathlib
import re
from array import array
from typing import Any

import numpy as np

from sgdlab.traces import events
from sgdlab.traces.family import TRACES
from sgdlab.traces.joining import WorkerSteps, naming, rank_in, together
from sgdlab.traces.options import Options
from sgdlab.traces.paths import files
from sgdlab.traces.phases import collective
from sgdlab.traces.problems import BadTrace
from sgdlab.traces.recording import Recording

ENDINGS = (".json", ".json.gz")
_SURE = (".pt.trace.json", ".pt.trace.json.gz")
_STEP = "ProfilerStep#"
_STEP_NAME = re.compile(f"{_STEP}([0-9]+)")
_WORKER_OF_TENSORBOARD = re.compile(r"^(.+)_\d+\.\d+\.pt\.trace\.json")  # {host}_{process}.{time}.pt.trace.json
_WORK_OF_PROCESSOR = re.compile(r"^(?!autograd|c10d|_c10d)\w+::")  # operators; around them, others may wait
_BY_BACKENDS = re.compile(r"^\w+:(?!:)")  # "gloo:all_reduce"


def recognises(path: pathlib.Path) -> bool:
    """Tell whether the first of the files is one of Kineto's."""
    found = _files(path)
    if not found:
        return False
    text = events.head(found[0])
    sure = found[0].name.endswith(_SURE) or '"schemaVersion"' in text or _STEP in text
    return sure and events.has_events(text)


@TRACES.register(
    "kineto",
    title="PyTorch profiler (Kineto)",
    source="https://docs.pytorch.org/docs/stable/profiler.html; https://hta.readthedocs.io",
    endings=ENDINGS,
    recognises=recognises,
)
def kineto(*, path: str | pathlib.Path, options: Options) -> Recording:
    r"""Reads profiles of PyTorch, one file for each rank.

    A step begins where the one before it has ended on the device, and ends with its own last kernel (the annotation
    `ProfilerStep#N` on the device); without kernels, steps are those of the host. A rank's own work is that time, less
    the time in which communication is under way and no kernel computes:

    .. math:: d_t = |W_t| - |W_t \cap (C \setminus K)|

    with the step W, the union C of the kernels of collectives, and the union K of all others. Time in which the device
    has nothing to do is the rank's own: its host was late. On processors, C is the work of the back end (`gloo:...`)
    and K that of operators.

    Args:
      path: of a directory, a pattern or a file.
      options: `skip_bad_rows` leaves out files that end too early.

    Raises:
      BadTrace: where a file cannot be used.

    Source: https://docs.pytorch.org/docs/stable/profiler.html
    """
    parts, notes, host_steps = [], [], 0
    for file in _files(path):
        with naming(file, options, notes):
            profile = _Profile(file)
            parts.append(profile.steps())
            notes += profile.notes
            host_steps += not profile.on_device
    if not parts:
        raise BadTrace("must have a file that can be used")
    if 0 < host_steps < len(parts):
        raise BadTrace(f"{host_steps} of {len(parts)} profiles have no kernels; they must all have them, or none")
    return together(parts, notes)


def _files(path: str | pathlib.Path) -> list[pathlib.Path]:
    """The profiles; other files beside those whose names say it are left alone."""
    found = files(path, ENDINGS)
    return [file for file in found if file.name.endswith(_SURE)] or found


class _Profile:
    """What is needed of one file."""

    def __init__(self, path: pathlib.Path):
        self._host: dict[int, tuple[float, float]] = {}
        self._device: dict[int, tuple[float, float]] = {}
        self._kernels: dict[str, array] = {"": array("d")}  # begin and end by turns, by collective
        self._work: dict[str, array] = {"": array("d")}
        self._loading, self._optimizer = array("d"), array("d")
        around = events.scan(path, self._take)
        if around.cut_off:
            raise BadTrace(
                f"ends after {around.events} events (was the profiler killed while it wrote?): events are not in order "
                "of time, so that what is missing is unknown; write it again, or leave this file out (--skip_bad_rows)"
            )
        if not self._host:
            raise BadTrace(
                f"has no steps {_STEP}N: pass a schedule to torch.profiler.profile, and call its step() in the loop"
            )
        self.notes = []
        if around.skipped:
            self.notes.append(f"{around.skipped} events of {path.name} could not be read.")
        distributed = around.header.get("distributedInfo")
        distributed = distributed if isinstance(distributed, dict) else {}
        rank = distributed.get("rank")
        self._worker: Any = str(rank) if rank is not None else rank_in(path)
        tensorboard = _WORKER_OF_TENSORBOARD.match(path.name)
        if rank is None and tensorboard:
            self._worker = tensorboard.group(0).partition(".")[0]
        if self._worker is None:
            raise BadTrace(
                "has no distributedInfo with the rank, and no number in its name: name it rank0.json and so on"
            )
        self._node = str(around.header.get("host_name") or (tensorboard.group(1) if tensorboard else ""))
        self._epoch = float(around.header.get("baseTimeNanoseconds") or 0) * 1e-9
        self.on_device = any(len(times) for times in self._kernels.values())
        if not self.on_device and "nccl" in str(distributed.get("backend")):
            raise BadTrace("has no kernels, and NCCL's collectives are kernels: profile ProfilerActivity.CUDA too")
        if self.on_device and not self._device:
            self.notes.append(
                f"{path.name} has kernels and no annotations of the device: its steps are those of the host, which may "
                "run ahead of the device."
            )

    def _take(self, event: dict[str, Any]) -> None:
        if not events.is_span(event):
            return
        name, begin, category = event["name"], event["ts"], str(event.get("cat", "")).lower()
        end = begin + event["dur"]
        if category == "kernel":
            arguments = event.get("args") or {}
            kind = collective(name)
            if kind and arguments.get("Collective name"):
                kind = collective(f"nccl:{arguments['Collective name']}")
            self._kernels.setdefault(kind or "", array("d")).extend((begin, end))
        elif category in ("cpu_op", "operator", "user_annotation"):
            if step := _STEP_NAME.fullmatch(name):
                self._host[int(step.group(1))] = (begin, end)
            elif name.startswith("enumerate(DataLoader)"):
                self._loading.extend((begin, end))
            elif name.startswith("Optimizer.step"):
                self._optimizer.extend((begin, end))
            elif category == "user_annotation" or _BY_BACKENDS.match(name):
                if kind := collective(name):
                    self._work.setdefault(kind, array("d")).extend((begin, end))
            elif _WORK_OF_PROCESSOR.match(name):
                self._work[""].extend((begin, end))
        elif category == "gpu_user_annotation" and (step := _STEP_NAME.fullmatch(name)):
            known = self._device.get(int(step.group(1)), (np.inf, -np.inf))
            self._device[int(step.group(1))] = (min(known[0], begin), max(known[1], end))

    def steps(self) -> WorkerSteps:
        """The rank's steps, in seconds."""
        steps, left, right = self._windows()
        by_kind = self._kernels if self.on_device else self._work
        pairs = {kind: _pairs(times) for kind, times in sorted(by_kind.items())}
        compute = pairs.pop("")
        waited = events.exposed(pairs, compute, left, right)
        own = right - left - sum(waited.values(), np.zeros(left.shape))
        if self.on_device:
            busy = events.covered(*compute, left, right)
            phases = {"kernels": busy, "copies and idle": np.maximum(own - busy, 0.0)}
        else:
            under_way = [np.concatenate(ends) for ends in zip(*pairs.values(), strict=True)] or [np.empty(0)] * 2
            waiting = events.difference((under_way[0], under_way[1]), compute)
            parts = {"data": _pairs(self._loading), "optimizer": _pairs(self._optimizer)}
            known = events.exposed(parts, waiting, left, right)
            phases = {name: times for name, times in known.items() if len(parts[name][0])}
            phases["other"] = np.maximum(own - sum(phases.values(), np.zeros(own.shape)), 0.0)
        return WorkerSteps(
            self._worker,
            steps,
            own * 1e-6,
            {kind: times * 1e-6 for kind, times in waited.items()},
            {name: times * 1e-6 for name, times in phases.items()} if len(phases) > 1 else {},
            self._epoch + left * 1e-6,
            self._node,
        )

    def _windows(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Numbers, begins and ends of steps, int64[K] and float64[K], microseconds."""
        on_device = self.on_device and bool(self._device)
        chosen = self._device if on_device else self._host
        steps = sorted(chosen)
        left, right = (np.array([chosen[step][side] for step in steps], np.float64) for side in (0, 1))
        if not on_device:
            return np.array(steps), left, right
        ends = np.sort(np.concatenate([_pairs(times)[1] for times in self._kernels.values()]))
        for row, step in enumerate(steps):
            if row and steps[row - 1] == step - 1:
                left[row] = min(right[row - 1], right[row])
                continue
            # The first step of a cycle begins with its host's, or once the device has done what was there before.
            before = np.searchsorted(ends, left[row], side="right")
            begins = [self._host[step][0]] if step in self._host else []
            begins += [ends[before - 1]] if before else []
            left[row] = min(left[row], max(begins, default=left[row]))
        return np.array(steps), left, right


def _pairs(times: array) -> tuple[np.ndarray, np.ndarray]:
    """Begins and ends, float64[K] each, of an array in which they take turns."""
    both = np.frombuffer(times, np.float64).reshape(-1, 2) if len(times) else np.empty((0, 2))
    return both[:, 0], both[:, 1]
