"""Sends the records of a run to TensorBoard or Weights & Biases while it is under way, besides its metrics file."""

import contextlib
import importlib.util
import json
import math
import os
import pathlib
import shutil
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

from sgdlab.errors import UsageError


class Writer(Protocol):
    """Takes the records of one run, in their order: `run`, then one `evaluation` for each, then `summary`."""

    def write(self, record: Mapping[str, Any]) -> None:
        """Takes one record."""

    def close(self, *, failed: bool) -> None:
        """The run is over: it has finished, or it failed."""


class TensorBoard:
    """Scalars of every evaluation by the number of used gradients, in `<directory>/tensorboard/<run>`.

    `tensorboard --logdir=<directory>/tensorboard` shows them. What an earlier, unfinished run left there is removed.

    Args:
      directory: of the runs.
      name: of the run.
    """

    package = "tensorboardX"

    def __init__(self, directory: pathlib.Path, name: str):
        import tensorboardX  # noqa: PLC0415 (it is in an extra of its own)

        logs = directory / "tensorboard" / name
        shutil.rmtree(logs, ignore_errors=True)
        self._writer = tensorboardX.SummaryWriter(str(logs))

    def write(self, record: Mapping[str, Any]) -> None:
        """Adds the numbers of an evaluation; of the run, its configuration; of the summary, all its numbers."""
        if record["kind"] == "run":
            self._writer.add_text("configuration", f"```\n{json.dumps(record.get('config', {}), indent=2)}\n```")
            return
        group = "" if record["kind"] == "evaluation" else "summary/"
        for key, value in _numbers(record).items():
            self._writer.add_scalar(group + key, value, global_step=int(record["gradients"]))

    def close(self, *, failed: bool) -> None:
        """Writes what is left."""
        del failed
        self._writer.close()


class WeightsAndBiases:
    """One run of Weights & Biases for each run, in the project `WANDB_PROJECT`, by default the directory's name.

    The step is the number of used gradients. `WANDB_MODE=offline` sends nothing; `wandb sync` does so later.

    Args:
      directory: of the runs; wandb's own files are put in `wandb` there.
      name: of the run.
    """

    package = "wandb"

    def __init__(self, directory: pathlib.Path, name: str):
        import wandb  # noqa: PLC0415 (likewise)

        directory.mkdir(parents=True, exist_ok=True)
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT") or directory.resolve().name,
            name=name,
            dir=str(directory),
            reinit="create_new",
            settings=wandb.Settings(silent=True, console="off"),
        )

    def write(self, record: Mapping[str, Any]) -> None:
        """Logs the numbers of an evaluation; of the run, its configuration; of the summary, all its numbers."""
        if record["kind"] == "run":
            self._run.config.update(record.get("config", {}))
        elif record["kind"] == "evaluation":
            self._run.log(_numbers(record), step=int(record["gradients"]))
        else:
            self._run.summary.update(_numbers(record))

    def close(self, *, failed: bool) -> None:
        """Ends the run."""
        self._run.finish(exit_code=int(failed))


WRITERS: dict[str, type] = {"tensorboard": TensorBoard, "wandb": WeightsAndBiases}
"""By the names that --writers takes; one's own can be added: a class as `TensorBoard` is, with a `Writer`'s methods."""


def check(names: Sequence[str]) -> None:
    """Checks that writers are known and installed.

    Raises:
      UsageError: naming the flag and what to install.
    """
    for name in names:
        if name not in WRITERS:
            raise UsageError(f"--writers={name} must be one of {', '.join(WRITERS)}")
        package = getattr(WRITERS[name], "package", None)
        if package and importlib.util.find_spec(package) is None:
            raise UsageError(f"--writers={name} needs the package {package}: pip install 'sgdlab[{name}]'")


@contextlib.contextmanager
def opened(names: Sequence[str], directory: pathlib.Path, name: str) -> Iterator[list[Writer]]:
    """The writers of one run, closed at the end of the block."""
    found: list[Writer] = []
    failed = True
    try:
        found += (WRITERS[kind](directory, name) for kind in names)
        yield found
        failed = False
    finally:
        for writer in found:
            writer.close(failed=failed)


def _numbers(record: Mapping[str, Any]) -> dict[str, float]:
    """The finite numbers of a record."""
    plain = {key: value for key, value in record.items() if isinstance(value, int | float) and key != "seed"}
    return {key: float(value) for key, value in plain.items() if math.isfinite(value)}
