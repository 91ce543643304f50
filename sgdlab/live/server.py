"""The server of a live run: a policy, a rule, a recorder and a clock, in one thread, over any transport."""

from collections.abc import Callable

import numpy as np
import optax

from sgdlab.live.log import Log
from sgdlab.live.recording import LiveRecording, versions
from sgdlab.live.settings import LiveSettings
from sgdlab.live.status import Status
from sgdlab.live.transport import Transport
from sgdlab.live.turns import OnUpdate, Turns
from sgdlab.protocols.policy import Policy
from sgdlab.replay import check_rule
from sgdlab.replay.steps import Steps
from sgdlab.rules.server_rule import ServerRule
from sgdlab.schedule import Schedule


def serve(
    policy: Policy,
    steps: Steps,
    transport: Transport,
    *,
    num_workers: int,
    num_gradients: int,
    settings: LiveSettings = LiveSettings(),  # noqa: B008 (it is frozen)
    log: Log | None = None,
    on_update: OnUpdate | None = None,
    watch: Callable[[Status], None] | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> LiveRecording:
    """Executes a policy on workers until enough gradients have entered updates, and records what happened.

    The caller compiles `steps` before (`Steps.compile`), and closes the transport afterwards.

    Args:
      policy: whom to wait for; a new one, also when a run is resumed.
      steps: compiled; it holds parameters and state during and after the run.
      transport: the workers; the server spawns them, `num_workers` of them, numbered from 0.
      num_workers: N, the largest number of workers that may ever take part.
      num_gradients: the run ends with the first update by which so many have entered updates.
      settings: patience, respawning and saving.
      log: where the run is written, and read from if it was begun already. None: nothing is saved.
      on_update: called after each update, when the workers have begun again; `steps` holds that version if
        `Updated.computed`. What it returns is shown as the newest evaluation. A run that is resumed calls it for all
        updates of its log again.
      watch: called with the `Status` about twice a second, and at the end.
      stop: asked at each turn; if it says True, a checkpoint is made and `Stopped` raised.

    Returns:
      The `LiveRecording`.

    Raises:
      ValueError: if policy and steps do not fit together.
      LogError: (a ValueError) if the log cannot be followed, or written.
      UsageError: (a ValueError) if the log was deleted meanwhile; it says where it and the state are saved now.
      HostLost: if fewer than `settings.min_workers` are there, for too long or for good; it says why.
      RunFailed: if gradients of all workers fail, or are not finite, again and again.
      Stopped: if `stop` said so.
    """
    single = getattr(steps, "single", policy.single)
    if single != policy.single:
        raise ValueError(f"steps.single={single} must be {policy.single}, as the policy's updates are")
    server = Turns(policy, steps, transport, num_workers, num_gradients, settings, log)
    server.on_update, server.watch, server.stop = on_update, watch, stop
    try:
        server.run()
    finally:
        if log is not None:
            log.close()
    config, libraries = ({}, versions()) if log is None else (log.config, log.versions)
    return server.engine.recording(config, libraries)


def check(policy: Policy, rule: ServerRule | optax.GradientTransformation, num_workers: int) -> None:
    """Checks that a rule can be used with a policy, before processes are started.

    Args:
      policy: whom to wait for.
      rule: what the server does with gradients.
      num_workers: N, the largest number of workers that may ever take part.

    Raises:
      ValueError: as `sgdlab.replay.check_rule` does.

    Example:
      >>> from sgdlab import policies, rules
      >>> check(policies.asynchronous(num_workers=3), rules.dana(learning_rate=0.1, num_workers=2), 3)
      Traceback (most recent call last):
      ...
      ValueError: rule keeps state for num_workers=2, but schedule has 3 workers
    """
    size = 1 if policy.single else 2  # gradients of the one update
    schedule = Schedule(
        worker=np.zeros(size),
        read=np.zeros(size),
        update=np.zeros(size),
        started=np.arange(size),
        arrived=np.arange(1, size + 1),
        applied=np.array([size]),
        num_workers=num_workers,
    )
    check_rule(schedule, rule)
