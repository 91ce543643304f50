"""`LiveSettings`, what the server of a live run does about workers that fail, and how often it saves."""

import dataclasses

from sgdlab import arguments


@dataclasses.dataclass(frozen=True)
class LiveSettings:
    """What the server does about workers that are missing, silent or wrong, and how often it saves.

    Attributes:
      title: the method, for those who watch.
      unit: what workers send, for the same: a "gradient", or a "message" of several local steps.
      min_workers: how many workers a run needs. It begins, and goes on, with fewer than all of them, but ends with an
        error if fewer than these are there for `wait_seconds`.
      join_seconds: how long the start waits for all workers; then those that are there begin, if they are enough.
      wait_seconds: how long the run waits for `min_workers`, at the start and whenever workers are lost.
      patience: a worker that says nothing for this many times its own usual time is lost.
      least_patience: seconds; no worker is lost earlier than this, however fast it usually is.
      first_patience: seconds; patience with a worker whose usual time is not known yet, or that is starting.
      kill_patience: a worker that says nothing for this many times as long is killed and started anew.
      respawns: how often in a row a worker's process is started anew without a gradient in between.
      respawn_seconds: time before the first of these; each further one takes twice as long, at most a minute.
      failures: gradients in a row that may raise or be refused before their worker is started anew. If all workers
        together fail so often on average, without one good gradient in between, the run fails.
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
    join_seconds: float = 120.0
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
        for name in ("join_seconds", "wait_seconds", "respawn_seconds", "checkpoint_seconds", "watch_seconds"):
            arguments.real(name, getattr(self, name), least=0)
        for name in ("least_patience", "first_patience", "turn_seconds"):
            arguments.real(name, getattr(self, name), above=0)
