"""`Workers`, what transports over processes have in common: what a worker is told first, and what its answers mean."""

import os
import pathlib
import sys
import time
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Self

import numpy as np

from sgdlab.live import environment
from sgdlab.live.messages import Came, Failed, GaveUp, Joined, Message
from sgdlab.live.shared_arrays import MemoryLayout
from sgdlab.live.work import WorkSource
from sgdlab.types import Tree

_NOTHING: Mapping[str, str] = MappingProxyType({})


class Workers:
    """Workers in processes of their own: the base class of `sgdlab.live.transport.Transport`s.

    Each `begin` that reaches a living worker is answered once, by `Came`, `GaveUp` or `Failed`.

    Args:
      source: where a worker finds what it computes; None: it knows.
      params_like: arrays, or `jax.ShapeDtypeStruct`s, like the parameters.
      aux_like: the same of what the gradient function returns beside gradients.
      num_workers: the largest number of workers at once; their numbers are 0, ..., `num_workers` - 1.
      sent_like: the same of what workers send in the place of gradients; None: they are like the parameters.
      env: environment variables of workers that win over those of `sgdlab.live.environment`.
      gpus_per_worker: GPUs of a worker, such as 1 or 0.5; None: workers compute on the CPU.
      logs: a folder for what workers print, worker_0.log and so on; None: they print where this process does.

    Raises:
      ValueError: if the source cannot be found by another process, or there are not GPUs enough.

    Attributes:
      at_once: how many processes may start at the same time: more than two for each core make all of them late. A
        cluster has cores enough.
    """

    FIRST: int | None = 0
    """The worker of whose devices `sgdlab.live.environment.devices` is asked; None where a cluster gives them out."""

    STARTS = True

    def __init__(
        self,
        source: WorkSource | None,
        params_like: Tree,
        aux_like: Tree,
        *,
        num_workers: int,
        sent_like: Tree = None,
        env: Mapping[str, str] = _NOTHING,
        gpus_per_worker: float | None = None,
        logs: str | os.PathLike[str] | None = None,
    ):
        if source is not None:
            source.check()
        environment.devices(self.FIRST, num_workers, gpus_per_worker)
        self._source: Any = source
        self._num_workers, self._env, self._gpus_per_worker = num_workers, env, gpus_per_worker
        self._logs = None if logs is None else pathlib.Path(logs)
        own = self.STARTS and self.FIRST is not None
        self.at_once = 2 * environment.own_cores() if own else num_workers
        self._params = MemoryLayout(params_like)
        self._answer = MemoryLayout({"params": params_like if sent_like is None else sent_like, "aux": aux_like})
        self._workers: dict[int, Any] = {}
        self._said: list[Message] = []  # what is known without a process having said it

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """End all workers."""
        raise NotImplementedError

    def time(self) -> float:
        """Return seconds."""
        return time.monotonic()

    def _check(self, worker: int) -> None:
        if not 0 <= worker < self._num_workers:
            raise ValueError(f"worker={worker} must be from 0 to {self._num_workers - 1}")

    def _log(self, worker: int) -> pathlib.Path | None:
        """Return the file for what a worker prints."""
        return None if self._logs is None else self._logs / f"worker_{worker}.log"

    def _start(self) -> dict[str, Any]:
        """Return what a worker is told first: the source, where its modules are, and what is sent, as both must see."""
        return {
            "source": {**self._source._asdict(), "modules": dict(self._source.modules)},
            "path": [entry or str(pathlib.Path.cwd()) for entry in sys.path],
            "layout": self._answer.described(),
        }

    def _message(self, worker: int, of: Any, said: dict[str, Any], memory: Callable[[], np.ndarray]) -> Message:
        """Return the message of what a worker has said.

        Args:
          worker: its number.
          of: what is known of its process: `joined`, which is set here, `run` and `void`.
          said: as `sgdlab.live.gradients.Computer.answer` returns, or {"kind": "joined", "process": ..., "host": ...}.
          memory: `() -> uint8`, where a gradient that came lies.
        """
        match said["kind"]:
            case "joined":
                of.joined = Joined(worker, said["process"], said["host"])
                return of.joined
            case "failed":
                return Failed(worker, said["ticket"], said["error"])
            case "came" if said["ticket"] > of.void:
                tree = self._answer.tree(memory())
                return Came(worker, said["ticket"], tree["params"], tree["aux"], said["seconds"], said.get("finite"))
        # A gradient that crossed its interrupt is nobody's, and the next one may be overwriting it.
        return GaveUp(worker, said["ticket"], said["seconds"])
