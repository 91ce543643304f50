"""Profiles of PyTorch (Kineto), one file for each rank, as Holistic Trace Analysis reads them."""

import pathlib
import re
from typing import Any

import numpy as np

from sgdlab.traces import events
from sgdlab.traces.family import TRACES
from sgdlab.traces.joining import WorkerSteps, each, rank_in, together
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
    notes: list[str] = []
    profiles = each(_files(path), options, notes, _Profile)
    host_steps = sum(not profile.on_device for profile in profiles)
    if 0 < host_steps < len(profiles):
        raise BadTrace(f"{host_steps} of {len(profiles)} profiles have no kernels; they must all have them, or none")
    notes += [note for profile in profiles for note in profile.notes]
    return together([profile.steps() for profile in profiles], notes)


def _files(path: str | pathlib.Path) -> list[pathlib.Path]:
    """The profiles; other files beside those whose names say it are left alone."""
    found = files(path, ENDINGS)
    return [file for file in found if file.name.endswith(_SURE)] or found


class _Profile(events.Trace):
    """Holds what is needed of one file."""

    def __init__(self, path: pathlib.Path):
        self._host: dict[int, events.Span] = {}
        self._device: dict[int, events.Span] = {}
        self._spans = events.spans()  # "kernel" and "work" by collective, "" for none; "part" by phase
        super().__init__(path)
        if not self._host:
            raise BadTrace(
                f"has no steps {_STEP}N: pass a schedule to torch.profiler.profile, and call its step() in the loop"
            )
        self.notes = []
        if self.skipped:
            self.notes.append(f"{self.skipped} events of {path.name} could not be read.")
        distributed = self.header.get("distributedInfo")
        distributed = distributed if isinstance(distributed, dict) else {}
        rank, tensorboard = distributed.get("rank"), _WORKER_OF_TENSORBOARD.match(path.name)
        self._worker: Any = str(rank) if rank is not None else rank_in(path)
        if rank is None and tensorboard:
            self._worker = tensorboard.group(0).partition(".")[0]
        if self._worker is None:
            raise BadTrace(
                "has no distributedInfo with the rank, and no number in its name: name it rank0.json and so on"
            )
        self._node = str(self.header.get("host_name") or (tensorboard.group(1) if tensorboard else ""))
        self._epoch = float(self.header.get("baseTimeNanoseconds") or 0) * 1e-9
        self.on_device = "kernel" in self._spans
        if not self.on_device and "nccl" in str(distributed.get("backend")):
            raise BadTrace("has no kernels, and NCCL's collectives are kernels: profile ProfilerActivity.CUDA too")
        if self.on_device and not self._device:
            self.notes.append(
                f"{path.name} has kernels and no annotations of the device: its steps are those of the host, which may "
                "run ahead of the device."
            )

    def _take(self, line: events.Line, name: str, span: events.Span, category: str, arguments: dict[str, Any]) -> None:
        category, step = category.lower(), _STEP_NAME.fullmatch(name)
        if category == "kernel":
            kind = collective(name)
            if kind and arguments.get("Collective name"):
                kind = collective(f"nccl:{arguments['Collective name']}")
            self._spans["kernel"][kind or ""].extend(span)
        elif category in ("cpu_op", "operator", "user_annotation"):
            if step:
                self._host[int(step.group(1))] = span
            elif name.startswith("enumerate(DataLoader)"):
                self._spans["part"]["data"].extend(span)
            elif name.startswith("Optimizer.step"):
                self._spans["part"]["optimizer"].extend(span)
            elif category == "user_annotation" or _BY_BACKENDS.match(name):
                if kind := collective(name):
                    self._spans["work"][kind].extend(span)
            elif _WORK_OF_PROCESSOR.match(name):
                self._spans["work"][""].extend(span)
        elif category == "gpu_user_annotation" and step:
            events.widen(self._device, int(step.group(1)), span)

    def steps(self) -> WorkerSteps:
        """The rank's steps, in seconds."""
        group, rest = ("kernel", "copies and idle") if self.on_device else ("work", "other")
        spans = {kind: events.intervals([times]) for kind, times in sorted(self._spans[group].items())}
        compute = spans.pop("", events.intervals([]))
        parts = {kind: events.intervals([times]) for kind, times in sorted(self._spans["part"].items())}
        parts = {"kernels": compute} if self.on_device else parts
        return events.worker_steps(
            self._worker, self._windows(), spans, compute, parts, rest=rest, epoch=self._epoch, node=self._node
        )

    def _windows(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Numbers, begins and ends of steps, int64[K] and float64[K], microseconds."""
        if not (self.on_device and self._device):
            return events.windows(self._host)
        steps, left, right = events.windows(self._device)
        ends = np.sort(events.intervals(self._spans["kernel"].values())[1])
        for row, step in enumerate(steps.tolist()):
            if row and steps[row - 1] == step - 1:
                left[row] = min(right[row - 1], right[row])
                continue
            # The first step of a cycle begins with its host's, or once the device has done what was there before.
            before = np.searchsorted(ends, left[row], side="right")
            begins = [self._host[step][0]] if step in self._host else []
            begins += [ends[before - 1]] if before else []
            left[row] = min(left[row], max(begins, default=left[row]))
        return steps, left, right
