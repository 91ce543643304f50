"""`LiveServer`, a live run whose workers connect: processes that SLURM, Kubernetes, torchrun or a person starts."""

import os
from collections.abc import Callable
from typing import Any, Self

from sgdlab.live.endpoint import Endpoint
from sgdlab.live.own_run import OwnRun, Rule, Told, Trained
from sgdlab.live.progress import LiveProgress
from sgdlab.live.remote import Remote
from sgdlab.live.settings import LiveSettings, patient
from sgdlab.protocols.policy import Policy
from sgdlab.types import Tree


class LiveServer:
    """Trains by gradients of workers that connect, under a policy and a rule; it starts no process.

    It listens from the beginning on; workers come by `sgdlab.live.join`, at any time, and leave at any time. The run
    begins when `num_workers` are there, or `settings.min_workers` after `settings.join_seconds`. It goes on as long as
    `min_workers` are there, or come within `settings.wait_seconds`. Whoever comes when all places are taken waits.

    Log, resuming and what is left in the work directory are as of `sgdlab.live.train`.

    Args:
      work: as of `sgdlab.live.train`: then the server can compute a message again, so that it need not be written, and
        the run can be replayed. Or initial parameters, a pytree of arrays: messages are written to the disk until
        the next checkpoints.
      policy: makes a new policy, called with `num_workers`.
      rule: of `sgdlab.rules`, or any optax transform.
      num_workers: N, the largest number of workers that take part.
      num_gradients: the run ends with the first update by which so many have entered updates.
      workdir: a directory of this run alone.
      endpoint: where to listen, and whom to let in.
      settings: of the server.
      on_update: as of `sgdlab.live.train`.

    Attributes:
      address: where it listens, "HOST:PORT".

    Raises:
      ValueError: if an argument is impossible, gRPC is missing, there is no token, or nobody can listen there.
    """

    def __init__(
        self,
        work: Callable[..., Any] | Tree,
        *,
        policy: Callable[..., Policy],
        rule: Rule,
        num_workers: int,
        num_gradients: int,
        workdir: str | os.PathLike[str],
        endpoint: Endpoint = Endpoint(),  # noqa: B008 (it is frozen)
        settings: LiveSettings = LiveSettings(),  # noqa: B008
        on_update: Told | None = None,
    ):
        if callable(work):
            self._planned = OwnRun.of(work, policy, rule, num_workers, num_gradients, {})
        else:
            self._planned = OwnRun.of_params(work, policy, rule, num_workers, num_gradients)
        self._workdir, self._on_update = workdir, on_update
        self._settings = patient(settings)
        self._transport = Remote(self._planned.params, self._planned.aux, num_workers=num_workers, endpoint=endpoint)
        self.address = self._transport.address

    def run(self) -> Trained:
        """Run until enough gradients have entered updates; workers then know that the run has ended.

        Returns:
          The last parameters, and the recording.

        Raises:
          ValueError: if the directory holds a run with other arguments.
          HostLost: if too few workers are there; the same call continues, and workers that are left come back.
          RunFailed: if gradients fail again and again; it says why.
        """
        try:
            trained = self._planned.run(
                self._transport, self._workdir, settings=self._settings, on_update=self._on_update, begun=self._begun
            )
            self._transport.end()
            return trained
        finally:
            self.close()

    def close(self) -> None:
        """Listen no longer; workers look for the server until it is there again."""
        self._transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _begun(self, progress: LiveProgress) -> None:
        self._transport.say = progress.say
        progress.say(f"Workers may join at {self.address}")
