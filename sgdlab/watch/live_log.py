"""The log of a live run, which `sgdlab live` writes ahead of all that it does, as rows of a trace."""

import io
import json
import pathlib
from collections import Counter

import numpy as np

from sgdlab.watch.parsing import ParsedRows

BEGINS = b'["log"'
"""So the first line begins."""
_CAME = b'["came"'
_PLACES = ("log.jsonl", "states/run/log.jsonl")


def path_in(folder: pathlib.Path) -> pathlib.Path | None:
    """The log of the run in a work directory; None where there is none."""
    return next((folder / place for place in _PLACES if (folder / place).is_file()), None)


class LiveLog:
    r"""Reads the gradients that came, each as long as its worker took for it.

    A row holds the gradients that came at about the same time: the next one of a worker is in the next row, or in the
    one before the newest, if it is farther behind, as it is where nobody waits for it. Such a worker has none in other
    rows.

    Attributes:
      bad: how many lines were left out, by what was wrong with them.

    Example:
      >>> log = LiveLog()
      >>> came = [["came", 1.0, 0, 0, 0.5, None, True, "sum"], ["came", 1.5, 1, 1, 0.75, None, True, "sum"]]
      >>> rows = log.parse("".join(json.dumps(line) + "\n" for line in came).encode())
      >>> rows.names, rows.step, rows.seconds
      (('worker 0', 'worker 1'), array([0, 0]), array([0.5 , 0.75]))
    """

    has_phases, skips, in_order, sorts = False, True, True, True
    has_epochs = counts_on_nodes = False

    def __init__(self) -> None:
        self.bad: Counter[str] = Counter()
        self._steps: dict[int, int] = {}
        self._newest = 0

    def parse(self, data: bytes) -> ParsedRows:
        """The rows of whole lines."""
        names: dict[str, int] = {}
        found: list[tuple[int, int, float]] = []
        for line in io.BytesIO(data):
            if not line.startswith(_CAME):
                continue
            try:
                _, _, worker, _, seconds, *_ = json.loads(line)
                step = max(self._steps.get(worker, -1) + 1, self._newest - 1)
                row = (names.setdefault(f"worker {worker}", len(names)), step, float(seconds))
            except (ValueError, TypeError):
                self.bad["lines that are not of a log"] += 1
                continue
            self._steps[worker], self._newest = step, max(self._newest, step)
            found.append(row)
        worker, step, seconds = zip(*found, strict=True) if found else ((), (), ())
        return ParsedRows(tuple(names), np.array(worker, int), np.array(step, int), np.array(seconds, float))
