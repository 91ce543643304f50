"""A long run with a checkpoint at every evaluation, whose memory must not grow."""

import collections
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator

import psutil

from experiments.benchmarks.timing import Figure, at_most

GRADIENTS = 1_000_000
EVALUATIONS = 100
FEWEST = 200 * EVALUATIONS
LIMIT_PERCENT = 2.0
COMMAND = (
    "--config.method=gap_aware",
    "--config.network.kind=mlp",
    "--config.cluster.num_workers=32",
    f"--config.evaluations={EVALUATIONS}",
    "--checkpoint_seconds=0",
)
"""Flags of `experiments.main`: batches of 8 digits, a small perceptron, a checkpoint at every evaluation."""

_PER_EPOCH = 1437 // 8  # gradients
_ROOT = pathlib.Path(__file__).parents[2]
_SAMPLE_SECONDS = 0.02
_EVALUATION = re.compile(r"^ *(\d+) of (\d+) gradients")
_MIB = 2**20


def figures(gradients: int = GRADIENTS) -> Iterator[Figure]:
    """Yield the resident memory of the process in every tenth of the run; after the first its medians must agree.

    Args:
      gradients: how many the run makes, rounded to whole epochs.
    """
    with tempfile.TemporaryDirectory(prefix="sgdlab-soak-") as folder:
        run = _Run(pathlib.Path(folder) / "run", max(round(gradients / _PER_EPOCH), 1))
        run.watch()
    tenths = [run.sizes[tenth] for tenth in sorted(run.sizes)]
    medians, highest = [statistics.median(sizes) for sizes in tenths], [max(sizes) for sizes in tenths]
    for tenth, sizes in enumerate(tenths):
        yield Figure(
            f"memory in tenth {tenth + 1} of {run.total:,} gradients, over the second",
            100 * (medians[tenth] / medians[1] - 1),
            "%",
            detail=f"median {medians[tenth]:.0f} MiB, at most {highest[tenth]:.0f} MiB, of {len(sizes)} samples",
        )
    growth, of_highest = (100 * (max(sizes[1:]) / min(sizes[1:]) - 1) for sizes in (medians, highest))
    microseconds = 1e6 * run.seconds / run.total
    yield at_most(
        "memory after the first tenth: largest median over the least",
        growth,
        "%",
        LIMIT_PERCENT,
        f"of the highest in each tenth {of_highest:.2g} %; {len(run.checkpoints)} checkpoints, at most {run.most} at "
        f"one time; {run.seconds:.0f} s, {microseconds:.0f} us a gradient with evaluations and checkpoints",
    )


class _Run:
    """A process of `experiments.main`, whose memory is sampled from its first evaluation to its last.

    Attributes:
      total: gradients of the run.
      sizes: MiB, samples of its resident memory in each tenth of the gradients.
      checkpoints: names of the checkpoints that were seen.
      most: most whole checkpoints that were there at one time.
      seconds: from the first evaluation to the last.
    """

    def __init__(self, workdir: pathlib.Path, epochs: int):
        self.total, self.seconds, self.most = 0, 0.0, 0
        self.sizes: dict[int, list[float]] = collections.defaultdict(list)
        self.checkpoints: set[str] = set()
        self._states = workdir / "states" / "run"
        self._evaluated: int | None = None
        self._lines: list[str] = []
        self._process = subprocess.Popen(
            [sys.executable, "-m", "experiments.main", *COMMAND, f"--config.epochs={epochs}.0", f"--workdir={workdir}"],
            cwd=_ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def watch(self) -> None:
        """Samples until the run has ended.

        Raises:
          RuntimeError: if it fails.
        """
        process = psutil.Process(self._process.pid)
        begun = ended = None
        while self._process.poll() is None:
            if self._evaluated is not None and self._evaluated < self.total:
                begun, ended = begun or time.monotonic(), time.monotonic()
                self.sizes[10 * self._evaluated // self.total].append(process.memory_info().rss / _MIB)
                names = self._whole()
                self.checkpoints |= names
                self.most = max(self.most, len(names))
            time.sleep(_SAMPLE_SECONDS)
        self._reader.join()
        if self._process.returncode or begun is None:
            raise RuntimeError(f"the run has failed, exit code {self._process.returncode}:\n{''.join(self._lines)}")
        self.seconds = ended - begun

    def _whole(self) -> set[str]:
        """Names of the checkpoints that are whole; those that are being written have other names."""
        try:
            return {name for name in os.listdir(self._states) if name.isdigit()}
        except OSError:
            return set()

    def _read(self) -> None:
        for line in self._process.stdout:
            self._lines.append(line)
            if found := _EVALUATION.match(line):
                self.total = int(found[2])
                self._evaluated = int(found[1])
