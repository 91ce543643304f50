"""`Status`, a run at one instant: what the terminal and the page show."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class WorkerStatus:
    """A worker at one instant.

    Attributes:
      worker: its number.
      state: "computing", "waiting" (for others), "lost", "starting" or "gone" (for good).
      since: seconds since it is in that state.
      process: number of its process; None before it has joined.
      host: where it runs.
      gradients: how many of its gradients have come.
      applied: how many of them entered an update.
      dropped: how many were thrown away because they were late or interrupted.
      lost: how many were lost with it, refused, or failed.
      seconds: median time of its last gradients, as the server waits for them; None before the first.
      against_fleet: `seconds` over the median of all workers; 1 is as fast as the others.
      against_itself: its newest time over its own median; 1 is as fast as ever. It rises while a gradient is overdue.
      idle_share: share of the run that it has waited for others.
      respawns: how often its process was started again.
      error: the last thing that went wrong with it; empty if nothing did.
    """

    worker: int
    state: str
    since: float
    process: int | None
    host: str
    gradients: int
    applied: int
    dropped: int
    lost: int
    seconds: float | None
    against_fleet: float | None
    against_itself: float | None
    idle_share: float
    respawns: int
    error: str


@dataclasses.dataclass(frozen=True)
class Status:
    """A run at one instant.

    Attributes:
      title: the method.
      seconds: since its start.
      updates: how many were made.
      gradients: how many have entered updates.
      num_gradients: how many are to.
      gradients_per_second: over the last seconds.
      loss: mean of the last gradients; None before the first.
      evaluation: the last evaluation's values, by name, as numbers or texts; empty before the first.
      waiting_for: the workers that the open update waits for, in the order of their beginning.
      wanted: how many gradients the open update wants; None where the protocol does not say.
      staleness: mean of the last gradients used.
      idle_share: mean share of the run that workers have waited for others.
      ledger: number of gradients begun, applied, dropped, lost and in flight.
      workers: all workers, by number.
      events: the last things that went wrong or were mended: (seconds, words).
      finished: whether the run is over.
      unit: what workers send: a "gradient", or a "message" of several local steps, each of which counts as one here.
    """

    title: str
    seconds: float
    updates: int
    gradients: int
    num_gradients: int
    gradients_per_second: float
    loss: float | None
    evaluation: dict[str, float | str]
    waiting_for: tuple[int, ...]
    wanted: int | None
    staleness: float
    idle_share: float
    ledger: dict[str, int]
    workers: tuple[WorkerStatus, ...]
    events: tuple[tuple[float, str], ...]
    finished: bool
    unit: str = "gradient"
