"""`LiveSettings`, what a server does about workers that fail, and how often it saves."""

import dataclasses

from sgdlab import arguments

_RESPAWNS = 1000
"""Number of times in a row, at least, that a place is freed without a gradient in between: it costs nothing."""


@dataclasses.dataclass(frozen=True)
class LiveSettings:
    """Sets what the server does about workers that are missing, silent or wrong, and how often it saves.

    Attributes:
      title: the method, for those who watch.
      unit: what workers send, for the same: a "gradient", or a "message" of several local steps.
      min_workers: how many workers a run needs. It begins, and goes on, with fewer than all of them, but ends with an
        error if fewer than these are there for `wait_seconds`.
      join_seconds: how long a worker's process may take until it is ready; then it is given up and started anew, and
        may take twice as long, and so on, at last 8 times as long. The start waits for the first process of every
        worker; then those that are there begin, if they are enough.
      wait_seconds: how long the run waits for `min_workers` whenever workers are lost; at the start, once every worker
        had a process, since the last one was ready.
      patience: a worker that says nothing for this many times its own usual time is lost.
      least_patience: seconds; no worker is lost earlier than this, however fast it usually is.
      first_patience: seconds; patience with a worker whose usual time is not known yet.
      kill_patience: a worker that says nothing for this many times as long is killed and started anew.
      respawns: how often in a row all workers' processes are started anew without a gradient in between before the run
        fails. A worker alone is started anew for ever while another is fine; and so are all that do not get ready where
        gradients have come before, until `wait_seconds` are over.
      respawn_seconds: time before a process is started anew; each further time in a row it is twice as long, at most a
        minute.
      failures: gradients in a row that may raise or be refused before their worker is started anew; so it is too if so
        many of its last 4 times as many were bad, and its share is 3 times that of the others. If all workers together
        fail so often on average, without one good gradient in between, the run fails.
      checkpoint_updates: updates between two checkpoints, at least.
      checkpoint_seconds: time between two checkpoints, at least.
      turn_seconds: longest time between two looks at the clock, at `stop` and at workers that are silent.
      watch_seconds: time between two calls of `watch`.

    Raises:
      ValueError: if a number is out of its range.
    """

    title: str = ""
    unit: str = "gradient"
    min_workers: int = 1
    join_seconds: float = 60.0
    wait_seconds: float = 300.0
    patience: float = 20.0
    least_patience: float = 10.0
    first_patience: float = 120.0
    kill_patience: float = 4.0
    respawns: int = 5
    respawn_seconds: float = 0.5
    failures: int = 10
    checkpoint_updates: int = 100
    checkpoint_seconds: float = 5.0
    turn_seconds: float = 0.25
    watch_seconds: float = 0.5

    def __post_init__(self) -> None:
        arguments.whole("min_workers", self.min_workers)
        arguments.whole("respawns", self.respawns, least=0)
        arguments.whole("failures", self.failures)
        arguments.whole("checkpoint_updates", self.checkpoint_updates)
        arguments.real("patience", self.patience, above=1)
        arguments.real("kill_patience", self.kill_patience, least=1)
        for name in ("wait_seconds", "respawn_seconds", "checkpoint_seconds", "watch_seconds"):
            arguments.real(name, getattr(self, name), least=0)
        for name in ("join_seconds", "least_patience", "first_patience", "turn_seconds"):
            arguments.real(name, getattr(self, name), above=0)


def patient(settings: LiveSettings) -> LiveSettings:
    """Return settings of a server that starts no process, by which a place may be freed as often as one likes."""
    return dataclasses.replace(settings, respawns=max(settings.respawns, _RESPAWNS))
