"""`Bench`, what a run was asked for and the time that is left of it; `measure`, which goes through its sections."""

import contextlib
import os
import threading
import time
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any

import jax

from experiments.benchmarks.accelerator.problems import Outcome, Problem, computing
from experiments.benchmarks.accelerator.record import Record, Section
from experiments.benchmarks.accelerator.sizes import Scale

RESERVE = 0.04
"""Share of the time that no section is given: cells may take longer than expected."""


class Bench:
    """Measures what a section asks for, on the device and the other one.

    Attributes:
      scale: as given.
      device: the accelerator, or the first device of a CPU.
      other: the CPU beside it; where there is no accelerator, another device of the CPU, or the same one.
      section: the name of the section under way.
      until: the clock at which that section ends.
      cells: how many of its cells have not ended.
    """

    def __init__(self, scale: Scale, seconds: float):
        self.scale, self.begun, self.seconds = scale, time.monotonic(), seconds
        self.device = jax.devices()[0]
        alone = self.device.platform == "cpu"
        self.other = jax.devices()[-1] if alone else jax.devices("cpu")[0]
        self.section, self.until, self.cells = "", self.begun + seconds, 1
        self.errors: Callable[[str, BaseException], None] = lambda name, error: None
        self.seen: set[str] = set()  # programs that were called before, by name
        self._once: dict[Hashable, tuple[Any, Exception | None]] = {}

    @property
    def share(self) -> float:
        """Return seconds for the cell under way, if all that have not ended take as long."""
        return self.left / self.cells

    @property
    def left(self) -> float:
        """Return seconds that the section under way has left."""
        return self.until - time.monotonic()

    def name_of(self, device: jax.Device) -> str:
        """Return a device's name, such as gpu:0."""
        return f"{device.platform}:{device.id}"

    def outcome(
        self, case: str, dtype: str, device: jax.Device, *, precision: str | None = "highest", **how: Any
    ) -> Outcome:
        """Return the outcome of a case; each is computed once.

        Args:
          case: of `problems.CASES`.
          dtype: "float32" or "float64".
          device: that computes.
          precision: of products in float32; None: as users have them.
          **how: mode, lanes, mesh and layout of the replay.
        """

        def computed() -> Outcome:
            with computing(dtype, device, precision):
                return Problem.of(case, dtype, self.scale).run(**how)

        return self.once((case, dtype, device, precision, *sorted(how.items())), computed)

    def once(self, key: Hashable, compute: Callable[[], Any]) -> Any:
        """Return what `compute` returns or raises; for one key it is called once, also where it fails after minutes."""
        if key not in self._once:
            try:
                self._once[key] = compute(), None
            except Exception as error:
                self._once[key] = None, error
        found, error = self._once[key]
        if error is not None:
            raise error
        return found

    @contextlib.contextmanager
    def attempt(self, name: str) -> Iterator[None]:
        """Records an error, such as too little memory for one of several programs, and goes on behind the block."""
        try:
            yield
        except Exception as error:  # whatever a backend raises, the other measurements are wanted
            self.errors(name, error)


def measure(bench: Bench, record: Record, sections: Iterable[Section]) -> None:
    """Measures the sections, one after the other; each has its share of the time that is left.

    A cell begins where there is as much time as the last one of its section has taken; else it is left out, by name.
    """
    left = list(sections)
    end = bench.begun + bench.seconds * (1 - RESERVE)
    while left:
        section, now = left[0], time.monotonic()
        bench.until = now + (end - now) * section.share / sum(one.share for one in left)
        bench.section = section.name
        del left[0]
        bench.errors = lambda name, error, section=section: record.fail(section.name, name, error)
        with record.changing():
            record.section(section.name)["status"] = "under way"
        with bench.attempt("its cells"):
            _measured(bench, record, section)
        with record.changing():
            found = record.section(section.name)
            out_of_time = "out of time" if found["left_out"] else "done"
            found["status"] = "failed" if found["errors"] else out_of_time
            found["seconds"] = round(time.monotonic() - now, 1)


def _measured(bench: Bench, record: Record, section: Section) -> None:
    cells, longest = section.cells(bench), 0.0
    for index, cell in enumerate(cells):
        bench.cells = len(cells) - index
        if bench.left <= longest:
            with record.changing():
                record.section(section.name)["left_out"].append(cell.name)
            continue
        begun = time.monotonic()
        with bench.attempt(cell.name):
            for row in cell.measure():
                record.add(section.name, row)
        longest = max(longest, time.monotonic() - begun)


class Limit:
    """Ends the process where a run takes longer than it may: a compiler that is at work hears nothing else."""

    def __init__(self, record: Record, seconds: float, leave: Callable[[int], None] = os._exit):
        self._record, self._leave = record, leave
        self._timer = threading.Timer(seconds, self._cut_off)
        self._timer.daemon = True

    def __enter__(self) -> "Limit":
        self._timer.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._timer.cancel()

    def _cut_off(self) -> None:
        code = self._record.end("cut off")
        print("Out of time: what was measured is written.", flush=True)
        self._leave(code)
