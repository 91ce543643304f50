"""Checkpoints of a training, written by Orbax: a training that was interrupted continues from the last one.

Over several processes each writes its part of the arrays, and the first one everything else; all call the same methods.
"""

import contextlib
import json
import os
import pathlib
import shutil
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any

import jax
import numpy as np
from absl import logging

from sgdlab import files, hosts
from sgdlab.errors import Stopped
from sgdlab.types import Tree

_SETTINGS = "settings.json"
_NEWEST = 2
_PROBE_BYTES = 2**20


class CheckpointError(ValueError):
    """Checkpoints that cannot be used, or written; the message is one line and names the directory."""


class Checkpoints:
    """The checkpoints of one training in one directory; without a directory nothing is saved.

    They are written while the training goes on, under another name until they are whole. The newest two are kept.

    Args:
      path: the directory, made by the first `save`. None: nothing is saved.
      settings: all values that the training depends on.
      least_seconds: time between two checkpoints, at least, by which `due` answers.
      facts: plain values that are saved with every checkpoint, besides those that `save` is given.
      say: called with a line where a checkpoint is continued from, or cannot be read.
      timeout_seconds: how long processes wait for each other's part of a checkpoint to be written.

    Raises:
      CheckpointError: if the directory holds the checkpoints of another training (it names the setting that differs),
        or it could not be written.

    Example:
      >>> import tempfile, jax.numpy as jnp
      >>> with Checkpoints(tempfile.mkdtemp(), {"seed": 0}) as checkpoints:
      ...     checkpoints.save(3, {"step": jnp.asarray(3)}, {"loss": 0.5})
      ...     progress, facts = checkpoints.latest({"step": jnp.asarray(0)})
      >>> int(progress["step"]), facts
      (3, {'loss': 0.5})
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None,
        settings: Mapping[str, Any],
        *,
        least_seconds: float = 0.0,
        facts: Mapping[str, Any] | None = None,
        say: Callable[[str], None] = logging.warning,
        timeout_seconds: float = 300.0,
    ):
        self._facts, self._say = dict(facts or {}), say if hosts.is_first() else lambda line: None
        self._timeout_seconds = timeout_seconds
        self._path: Any = None if path is None else pathlib.Path(path).absolute()
        self._settings = json.loads(json.dumps(settings))
        self._least_seconds, self._saved_at = least_seconds, time.monotonic()
        self._keeper: Any = None  # a `Checkpointer`, where there is a path
        self._coming: Any = None
        if self._path is None:
            return
        if hosts.gather("the checkpoints that are there", "some" if self._path.exists() else "")[0]:
            self._open()
            return
        there = next(parent for parent in self._path.parents if parent.exists())
        if not (there.is_dir() and os.access(there, os.W_OK | os.X_OK)):
            raise CheckpointError(f"checkpoints={str(path)!r} cannot be written: {there} is a file, or protected")

    def __enter__(self) -> "Checkpoints":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._keeper is None:
            return
        if hosts.connected() and error is not None and not isinstance(error, Stopped):
            return  # to close is to wait for the other processes, which do not know of this one's error
        try:
            try:
                self._written()
            finally:
                self._keeper.close()
        except Exception as failure:  # of the last writing: what has been trained is not lost with it
            if error is None:
                self._say(str(self._not_written(failure)))

    @property
    def newest(self) -> int | None:
        """The step of the newest checkpoint that is there; None if there is none."""
        return max(self._steps(), default=None)

    @property
    def facts(self) -> dict[str, Any] | None:
        """The facts of the newest checkpoint whose facts can be read; None if there is none."""
        for step in sorted(self._steps(), reverse=True):
            with contextlib.suppress(Exception):  # `latest` says what is damaged
                return dict(self._keeper.metadata(step).custom_metadata)
        return None

    def always(self, facts: Mapping[str, Any]) -> None:
        """Saves these facts with every checkpoint from now on."""
        self._facts = dict(facts)

    def clear(self) -> None:
        """Removes all checkpoints: the training begins anew."""
        if self._keeper is not None:
            self._keeper.close()
            self._keeper = None
            hosts.barrier("checkpoints that are not used any more")
            if hosts.is_first():
                shutil.rmtree(self._path, ignore_errors=True)
            hosts.barrier("their removal")

    def latest(self, begun: Tree) -> tuple[Tree, dict[str, Any] | None]:
        """The newest checkpoint that can be read.

        Args:
          begun: the training's state before its first step.

        Returns:
          A pytree like `begun`, placed as that is, and the facts that were saved with it; `begun` itself and None if
          there is no checkpoint. One that is damaged is passed over, with a line in the log.

        Raises:
          CheckpointError: if there are checkpoints, but none can be read.
        """
        if self._path is None:
            return begun, None
        self.wait()
        # File systems may show a new checkpoint to one host before another.
        steps = json.loads(hosts.gather("the checkpoints to continue from", json.dumps(self._steps()))[0])
        if not steps:
            return begun, None
        shapes = jax.tree.map(_described, begun)
        for step in sorted(steps, reverse=True):
            why, progress, facts = "", None, {}
            try:
                progress = self._keeper.load(step, shapes)
                facts = self._keeper.metadata(step).custom_metadata or {}
            except Exception as error:  # Orbax raises many kinds for files that are damaged or missing
                why = (str(error).splitlines() or [""])[0] or type(error).__name__
            wrong = [found for found in hosts.gather("a checkpoint", why) if found]
            if wrong:
                self._say(f"The checkpoint {step} in {self._path} cannot be read: {wrong[0]}")
                continue
            self._say(f"Continued from checkpoint {step:,} in {self._path}")
            return progress, facts
        raise CheckpointError(
            f"checkpoints={str(self._path)!r} holds none that can be read; remove the directory to begin anew"
        )

    @property
    def enabled(self) -> bool:
        """True if anything is saved."""
        return self._path is not None

    def due(self) -> bool:
        """Return True if the last checkpoint was saved so long ago that another is wanted."""
        return self.enabled and time.monotonic() - self._saved_at >= self._least_seconds

    def save(self, step: int, progress: Tree, facts: Mapping[str, Any] | None = None) -> None:
        """Begins to save a pytree of arrays.

        Args:
          step: rises from one to the next.
          progress: the pytree. It is copied: its memory may be used again at once.
          facts: plain values that go with it.

        Raises:
          CheckpointError: if this checkpoint, or the one before, cannot be written, such as to a disk that is full;
            those before stand.
        """
        if self._path is None:
            return
        self._saved_at = time.monotonic()
        if self._keeper is None:
            self._open()
        self.wait()
        try:
            self._check_disk(sum(leaf.nbytes for leaf in jax.tree.leaves(progress)))
            copied = jax.tree.map(lambda leaf: leaf.copy(), progress)
            custom = self._facts | dict(facts or {})
            # pyrefly: ignore[missing-attribute]  # `_open` has made it
            self._coming = self._keeper.save_async(step, copied, overwrite=True, custom_metadata=custom)
        except Exception as error:
            raise self._not_written(error) from error

    def wait(self) -> None:
        """Waits until what was saved is on the disk."""
        if self._keeper is not None:
            try:
                self._written()
            except Exception as error:
                raise self._not_written(error) from error

    def _written(self) -> None:
        """Waits until the last checkpoint is on the disk; asked for its result, Orbax ends the thread that wrote it."""
        coming, self._coming = self._coming, None
        if coming is not None:
            coming.result()
        self._keeper.wait()

    def _open(self) -> None:
        """Makes the directory this training's, or checks that it is."""
        from orbax.checkpoint import v1 as ocp  # noqa: PLC0415 (most runs end before they save anything)

        wrong = ""
        if hosts.is_first():
            try:
                _agree(self._path, self._settings)
            except OSError as error:
                wrong = f"checkpoints={str(self._path)!r} cannot be written: {error.strerror}"
            except CheckpointError as error:
                wrong = str(error)
        wrong = hosts.gather("the settings of the checkpoints", wrong)[0]
        if wrong:
            raise CheckpointError(wrong)
        context = ocp.Context()
        context.async_options.timeout_secs = max(1, int(self._timeout_seconds))
        # Random numbers, such as most parameters, do not become smaller: compressing them costs time and memory.
        context.array_options.saving.use_compression = False
        self._keeper = ocp.training.Checkpointer(
            self._path,
            context=context,
            # The default leaves out a checkpoint that is asked for while one is being written.
            save_decision_policy=ocp.training.save_decision_policies.FixedIntervalPolicy(1),
            preservation_policy=ocp.training.preservation_policies.LatestN(_NEWEST),
            cleanup_tmp_directories=True,
        )

    def _check_disk(self, needed: int) -> None:
        """Tries to write, where an error in the background would be known to other processes after a time-out alone.

        Raises:
          OSError: if that fails, or there is too little space for the whole checkpoint.
        """
        free = shutil.disk_usage(self._path).free
        if needed > free:
            raise OSError(f"it takes {needed:,} bytes, and {free:,} are free")
        if hosts.connected():
            probe = self._path / f"probe{hosts.process_id()}"
            try:
                with probe.open("wb") as file:
                    file.write(bytes(min(needed, _PROBE_BYTES)))
                    file.flush()
                    os.fsync(file.fileno())
            finally:
                probe.unlink(missing_ok=True)

    def _steps(self) -> list[int]:
        return [] if self._keeper is None else [found.step for found in self._keeper.checkpoints]

    def _not_written(self, error: Exception) -> CheckpointError:
        kept = "there is none" if self.newest is None else f"the one of step {self.newest} is kept"
        why = (str(error).splitlines() or [type(error).__name__])[0]
        return CheckpointError(f"checkpoints={str(self._path)!r} cannot be written ({kept}): {why}")


def _described(leaf: jax.Array | np.ndarray) -> Any:
    """Return what Orbax restores an array to: its shape and dtype, and, on a device, its place."""
    if isinstance(leaf, np.ndarray):
        return leaf
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=leaf.sharding)


def _agree(path: pathlib.Path, given: dict[str, Any]) -> None:
    """Checks the settings of the checkpoints that are there; writes them where there are none."""
    file = path / _SETTINGS
    if not file.exists():
        files.write_text(file, json.dumps(given, indent=2) + "\n")
        return
    try:
        stored = dict(json.loads(file.read_text(encoding="utf-8")))
    except (ValueError, TypeError) as error:
        raise CheckpointError(f"checkpoints={str(path)!r} holds a damaged {_SETTINGS}: {error}") from error
    for name in sorted(stored.keys() | given.keys()):
        if stored.get(name) != given.get(name):
            raise CheckpointError(
                f"checkpoints={str(path)!r} are of a training with {name}={stored.get(name)}, not {given.get(name)}; "
                "name another directory"
            )
