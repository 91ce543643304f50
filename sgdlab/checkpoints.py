"""Checkpoints of a training, written by Orbax: a training that was interrupted continues from the last one."""

import json
import os
import pathlib
from collections.abc import Mapping
from types import TracebackType
from typing import Any

from orbax.checkpoint import v1 as ocp

from sgdlab import files

_SETTINGS = "settings.json"
_NEWEST = 2


class Checkpoints:
    """The checkpoints of one training in one directory; without a directory nothing is saved.

    Args:
      path: the directory, made if it does not exist. None: nothing is saved.
      settings: all values that the training depends on.

    Raises:
      ValueError: if the directory holds the checkpoints of another training; it names the setting that differs.

    Example:
      >>> import tempfile, numpy as np
      >>> with Checkpoints(tempfile.mkdtemp(), {"seed": 0}) as checkpoints:
      ...     checkpoints.save(3, {"step": np.asarray(3)})
      ...     int(checkpoints.latest({"step": np.asarray(0)})["step"])
      3
    """

    def __init__(self, path: str | os.PathLike[str] | None, settings: Mapping[str, Any]):
        self._keeper: ocp.training.Checkpointer | None = None
        if path is None:
            return
        path = pathlib.Path(path).absolute()
        given, file = json.loads(json.dumps(settings)), path / _SETTINGS
        if file.exists():
            try:
                stored = dict(json.loads(file.read_text(encoding="utf-8")))
            except (ValueError, TypeError) as error:
                raise ValueError(f"checkpoints={str(path)!r} holds a damaged {_SETTINGS}: {error}") from error
            for name in sorted(stored.keys() | given.keys()):
                if stored.get(name) != given.get(name):
                    raise ValueError(
                        f"checkpoints={str(path)!r} are of a training with {name}={stored.get(name)}, not "
                        f"{given.get(name)}; name another directory"
                    )
        else:
            files.write_text(file, json.dumps(given, indent=2) + "\n")
        policy = ocp.training.preservation_policies.LatestN(_NEWEST)
        self._keeper = ocp.training.Checkpointer(path, preservation_policy=policy)

    def __enter__(self) -> "Checkpoints":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._keeper is not None:
            self._keeper.close()

    def latest(self, begun: Any) -> Any:
        """The newest checkpoint, a pytree like `begun`; `begun` itself if there is none."""
        if self._keeper is None or self._keeper.latest is None:
            return begun
        return self._keeper.load(self._keeper.latest, begun)

    def save(self, step: int, progress: Any) -> None:
        """Saves a pytree of arrays, and deletes all but the newest checkpoints."""
        if self._keeper is not None:
            self._keeper.save(step, progress)
