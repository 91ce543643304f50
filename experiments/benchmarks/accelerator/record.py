"""`Record`, all that was measured, on the disk after every cell; `Row`, `Cell` and `Section`, what it is made of."""

import contextlib
import dataclasses
import json
import math
import os
import pathlib
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import jax

from experiments.benchmarks.timing import Figure
from experiments.harness.machine import processor
from sgdlab import files
from sgdlab.live.recording import versions
from sgdlab.runs.digests import made_with

JSON, PAGE = "accelerator.json", "accelerator.html"
_PREFIXES = ("CUDA_VISIBLE", "JAX_", "XLA_", "TF_", "NVIDIA_TF32", "CUBLAS_", "CUDNN_")
"""Environment variables that change what is computed, or how fast."""


@dataclasses.dataclass(frozen=True)
class Row(Figure):
    """A measurement or, with a goal, a check; `facts` are what a program reads, such as all rounds' seconds."""

    facts: Mapping[str, Any] = dataclasses.field(default_factory=dict)


class Cell(NamedTuple):
    """The least that is measured at once: it begins only where its section has the time, and fails alone."""

    name: str
    measure: Callable[[], Iterable[Row]]


class Section(NamedTuple):
    """Cells that belong together.

    Attributes:
      name: as in `--sections`.
      title: of its table.
      about: one or two sentences for the page.
      share: of the time that is left, relative to the shares of the sections that are left.
      cells: `(bench) -> cells`, where `bench` is what the command was asked for.
    """

    name: str
    title: str
    about: str
    share: float
    cells: Callable[[Any], list[Cell]]


class Record:
    """Keeps the measurements in one JSON file and one page, both written anew whenever something is added.

    Args:
      folder: where they are.
      sections: what is going to be measured.
      settings: what was asked for, of plain values.
      page: `(record) -> HTML`, of the record as JSON holds it.

    Attributes:
      data: the record as JSON holds it.
    """

    def __init__(
        self,
        folder: pathlib.Path,
        sections: Iterable[Section],
        settings: Mapping[str, Any],
        page: Callable[[Mapping[str, Any]], str],
    ):
        self._folder, self._page, self._lock, self._begun = folder, page, threading.RLock(), time.monotonic()
        self._ended = False
        self.data: dict[str, Any] = {
            "began": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
            "seconds": 0.0,
            "complete": False,
            "machine": machine(),
            "settings": _plain(settings),
            "sections": [
                {"name": section.name, "title": section.title, "about": section.about, "status": "not begun"}
                | {"seconds": 0.0, "rows": [], "left_out": [], "errors": []}
                for section in sections
            ],
        }
        self.write()

    @contextlib.contextmanager
    def changing(self) -> Iterator[dict[str, Any]]:
        """Gives the data to be changed, and writes them."""
        with self._lock:
            yield self.data
            if not self._ended:  # else another thread has ended the run, and is about to end the process
                self.write()

    def section(self, name: str) -> dict[str, Any]:
        """Return the entry of a section."""
        return next(found for found in self.data["sections"] if found["name"] == name)

    def add(self, section: str, row: Row) -> None:
        """Adds a row, and prints it."""
        with self.changing():
            self.section(section)["rows"].append(_plain(dataclasses.asdict(row)))
        print(row, flush=True)

    def fail(self, section: str, cell: str, error: BaseException) -> None:
        """Adds an error, and prints its first line."""
        text, said = "".join(traceback.format_exception(error)), str(error).strip().partition("\n")[0]
        line = f"{type(error).__name__}: {said}" if said else type(error).__name__
        with self.changing():
            self.section(section)["errors"].append({"cell": cell, "error": line, "traceback": text})
        print(f"{section}, {cell}: FAILED: {line}", flush=True)

    def end(self, status: str | None = None) -> int:
        """Ends the record, after which nothing is added.

        Returns:
          The exit code: 1 where a check failed, a cell raised an error, or the run was cut off; else 0.
        """
        with self._lock:
            for section in self.data["sections"]:
                if status is not None and section["status"] == "under way":
                    section["status"] = status
            self.data["complete"] = status is None
            self.write()
            self._ended = True
        failed = any(section["errors"] or any_failed(section) for section in self.data["sections"])
        return int(failed or status is not None)

    def write(self) -> None:
        """Writes both files, each whole or not at all."""
        self.data["seconds"] = round(time.monotonic() - self._begun, 1)
        text = json.dumps(self.data, indent=1, allow_nan=False)
        files.write_text(self._folder / JSON, text + "\n")
        files.write_text(self._folder / PAGE, self._page(self.data))


def machine() -> dict[str, Any]:
    """Return the device, versions and settings that measurements depend on."""
    device = jax.devices()[0]
    memory = (device.memory_stats() or {}).get("bytes_limit")
    return {
        "platform": device.platform,
        "is_cpu": device.platform == "cpu",
        "device": device.device_kind,
        "devices": len(jax.devices()),
        "memory_bytes": memory,
        "platform_version": " ".join(str(device.client.platform_version).split()),
        "processor": processor(),
        "commit": made_with()["commit"],
        "versions": versions(),
        "environment": {name: os.environ[name] for name in sorted(os.environ) if name.startswith(_PREFIXES)},
    }


def any_failed(section: Mapping[str, Any]) -> bool:
    """Return whether a check of a section has missed its goal."""
    return any(row["met"] is False for row in section["rows"])


def _plain(value: Any) -> Any:
    """Return what JSON can hold: a number that is not finite becomes None, or "inf" where it is infinite."""
    if isinstance(value, Mapping):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    return value
