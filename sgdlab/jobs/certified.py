"""The certificate of a plan's schedule, and the pace of its cluster, as tables and records have them."""

import numpy as np
from ml_collections import ConfigDict

from sgdlab import theory
from sgdlab.jobs.plan import Plan
from sgdlab.jobs.run_times import local_in, steps_of
from sgdlab.peer_schedule import AnySchedule


def certificate(plan: Plan) -> theory.Certificate:
    """The certificate of a plan's schedule; of several local steps, each is an edge of the computation tree."""
    return theory.certificate(plan.schedule, steps=edges(plan.schedule, plan.steps))


def of_recording(config: ConfigDict, schedule: AnySchedule) -> tuple[theory.Certificate, np.ndarray]:
    """The same of a schedule that was recorded, and int[N], the local steps of each worker's messages.

    Args:
      config: of the recorded run.
      schedule: what happened.
    """
    steps = steps_of(config)[: schedule.num_workers] if local_in(config).active else np.ones(schedule.num_workers, int)
    return theory.certificate(schedule, steps=edges(schedule, steps)), steps


def edges(schedule: AnySchedule, steps: np.ndarray) -> int | np.ndarray:
    """Edges of the computation tree that each gradient of a schedule is; 1 where all of them are.

    Args:
      schedule: of gradients, or of messages of several local steps.
      steps: int[N], local steps of each worker's.
    """
    # pyrefly: ignore[missing-attribute]  # that of a server has it
    return steps[schedule.worker] if schedule.has_server and steps.max() > 1 else 1


def figures(plan: Plan) -> dict[str, float | None]:
    """What the summary of a run says of them.

    Returns:
      `Certificate.figures`; `steps`, the used gradients, each local step for itself; and `capacity`: such gradients per
      second of all workers together if none ever waited, None of a recorded run.
    """
    seconds, found = plan.worker_seconds, certificate(plan)
    capacity = None if seconds is None else float(np.sum(1 / seconds))
    return found.figures() | {"steps": found.gradients, "capacity": capacity}
