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


_RESULTS = (
    "test_loss", "train_loss", "diverged", "seconds", "seconds_to_target", "epochs_to_target", "speedup", "staleness",
    "gap", "idle_share",
)  # fmt: skip
"""Numbers of a whole run besides its metric, each of which TensorBoard draws as a picture; the metrics file has all."""

BY_SECONDS = "by_seconds/"
"""In front of the names of the curves against virtual time."""


class TensorBoard:
    """Scalars of every evaluation, in `<directory>/tensorboard/<run>`, and the configuration as hyperparameters.

    The step is the number of used gradients; of the group `by_seconds`, virtual milliseconds. Results of the whole run
    are in the group `summary`. `tensorboard --logdir=<directory>/tensorboard` shows them. What an earlier, unfinished
    run left there is removed.
    """

    package = "tensorboardX"

    def __init__(self, directory: pathlib.Path, name: str):
        import tensorboardX  # noqa: PLC0415 (it is in an extra of its own)

        self._hparams = tensorboardX.summary.hparams
        logs = directory / "tensorboard" / name
        shutil.rmtree(logs, ignore_errors=True)
        self._writer: Any = tensorboardX.SummaryWriter(str(logs))
        self._run: Mapping[str, Any] = {}
        self._ended: Any = None

    def write(self, record: Mapping[str, Any]) -> None:
        """Adds the numbers of an evaluation; of the run, its configuration; of the summary, its results."""
        if record["kind"] == "run":
            self._begin(record)
            return
        step = int(record["gradients"])
        if record["kind"] == "evaluation":
            self._add("", _numbers(record), step)
            self._add(BY_SECONDS, _by_seconds(record), round(1000 * record.get("seconds", 0)))
            return
        metric = self._run.get("metric", "accuracy")
        shown = {f"test_{metric}", f"train_{metric}", *_RESULTS}
        self._add("summary/", {name: value for name, value in _numbers(record).items() if name in shown}, step)
        self._writer.file_writer.add_summary(self._ended)

    def _begin(self, record: Mapping[str, Any]) -> None:
        self._run, config = record, record.get("config", {})
        self._writer.add_text("configuration", f"```\n{json.dumps(config, indent=2)}\n```")
        metric = record.get("metric", "accuracy")
        judged = dict.fromkeys((f"summary/test_{metric}", "summary/test_loss", "summary/seconds_to_target"), 0.0)
        # Not `add_hparams`, which puts them into a run of their own, beside this one's curves.
        settings, begun, self._ended = self._hparams(dict(_settings(config)), judged)
        for summary in (settings, begun):
            self._writer.file_writer.add_summary(summary)

    def _add(self, group: str, numbers: Mapping[str, float], step: int) -> None:
        for key, value in numbers.items():
            self._writer.add_scalar(group + key, value, global_step=step)

    def close(self, *, failed: bool) -> None:
        """Writes what is left."""
        del failed
        self._writer.close()


class WeightsAndBiases:
    """One run of Weights & Biases for each run, in the project `WANDB_PROJECT`, by default the directory's name.

    The step is the number of used gradients; that of the group `by_seconds`, `seconds` of virtual time.
    `WANDB_MODE=offline` sends nothing; `wandb sync` does so later.

    wandb's own files are put in `wandb` of the directory of the runs.
    """

    package = "wandb"

    def __init__(self, directory: pathlib.Path, name: str):
        import wandb  # noqa: PLC0415 (likewise)

        directory.mkdir(parents=True, exist_ok=True)
        try:
            self._run = wandb.init(
                project=os.environ.get("WANDB_PROJECT") or directory.resolve().name,
                name=name,
                dir=str(directory),
                reinit="create_new",
                settings=wandb.Settings(silent=True, console="off"),
            )
        except wandb.errors.UsageError as error:  # such as that nobody is logged in
            raise UsageError(f"--writers=wandb: {error} WANDB_MODE=offline needs no login.") from error
        self._run.define_metric(f"{BY_SECONDS}*", step_metric="seconds")
        self._opening: Mapping[str, Any] = {}

    def write(self, record: Mapping[str, Any]) -> None:
        """Logs the numbers of an evaluation; of the run, its configuration; of the summary, its results."""
        if record["kind"] == "run":
            self._opening = record
            self._run.config.update(record.get("config", {}))
        elif record["kind"] == "evaluation":
            by_seconds = {BY_SECONDS + name: value for name, value in _by_seconds(record).items()}
            self._run.log(_numbers(record) | by_seconds, step=int(record["gradients"]))
        else:
            # What came of the run, and does not stand in its first record already.
            found = {name: value for name, value in _numbers(record).items() if name not in self._opening}
            self._run.summary.update(found)

    def close(self, *, failed: bool) -> None:
        """Ends the run."""
        self._run.finish(exit_code=int(failed))


WRITERS: dict[str, type] = {"tensorboard": TensorBoard, "wandb": WeightsAndBiases}
"""By the names that --writers takes; a custom one is a class as `TensorBoard` is, with a `Writer`'s methods."""


def check(names: Sequence[str]) -> None:
    """Raises a `UsageError` unless writers are known and installed; it says what to install."""
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


def _settings(config: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, bool | float | str]]:
    """Yield the entries of a configuration that are set, by their whole names; lists as texts."""
    for name, value in config.items():
        if isinstance(value, Mapping):
            yield from _settings(value, f"{prefix}{name}.")
        elif value is not None:
            yield prefix + name, value if isinstance(value, bool | int | float | str) else str(value)


def _by_seconds(record: Mapping[str, Any]) -> dict[str, float]:
    """Return the numbers of an evaluation that are drawn against virtual time; none where it has no time."""
    numbers = _numbers(record)
    return {name: value for name, value in numbers.items() if name != "seconds"} if "seconds" in numbers else {}


def _numbers(record: Mapping[str, Any]) -> dict[str, float]:
    """The finite numbers of a record."""
    plain = {key: value for key, value in record.items() if isinstance(value, int | float) and key != "seed"}
    return {key: float(value) for key, value in plain.items() if math.isfinite(value)}
