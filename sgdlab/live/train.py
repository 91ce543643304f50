"""`train`, a live run of a loop of your own: your gradients in processes, sgdlab's policies and rules in the server."""

import os
import pathlib
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import jax
import numpy as np

from sgdlab.live.own_run import OwnRun, Rule, Told, Trained
from sgdlab.live.own_work import OwnGradients, OwnLoop
from sgdlab.live.processes import Processes
from sgdlab.live.recording import LiveRecording
from sgdlab.live.repeat import as_computed, repeat
from sgdlab.live.settings import LiveSettings
from sgdlab.protocols.policy import Policy
from sgdlab.replay.lowering import lower
from sgdlab.replay.steps import Steps
from sgdlab.types import Tree

_NOTHING: Mapping[str, Any] = MappingProxyType({})
_DEFAULT = LiveSettings()


def train(
    work: Callable[..., Any],
    *,
    policy: Callable[..., Policy],
    rule: Rule,
    num_workers: int,
    num_gradients: int,
    workdir: str | os.PathLike[str],
    given: Mapping[str, Any] = _NOTHING,
    settings: LiveSettings = _DEFAULT,
    on_update: Told | None = None,
) -> Trained:
    """Train by gradients of your own, computed by processes of this machine, under a policy and a rule.

    A run that was stopped or killed continues where the same call is made again; one that has ended is read, and
    nothing is run. In the work directory are the log, the record and the checkpoints, what workers print (in workers/),
    and in the end recording.npz, for `sgdlab advise`, `sgdlab timeline` and `sgdlab.live.replay`, and parameters.npz.

    Args:
      work: `(worker, **given) -> (params, gradient)`, or an `OwnWork`; called in each worker's process with its number,
        and in this one. A function at the top of a file, such as of the script that makes this call below
        `if __name__ == "__main__":`. Initial parameters are the same for all workers.
      policy: makes a new policy, called with `num_workers`: `sgdlab.policies.asynchronous`, or
        `functools.partial(sgdlab.policies.backup_workers, backups=1)`.
      rule: of `sgdlab.rules`, or any optax transform.
      num_workers: N, the largest number of workers that take part.
      num_gradients: the run ends with the first update by which so many have entered updates.
      workdir: a directory of this run alone.
      given: keywords of `work`, of values that JSON can write.
      settings: of the server: patience with workers, restarts, checkpoints.
      on_update: `(updates, params) -> None`, or numbers to show; called after each update, while the server waits; in a
        run that continues, again for those since the checkpoint from which it does.

    Returns:
      The last parameters, and the recording.

    Raises:
      ValueError: where an argument is impossible, work cannot be found by another process, or the directory holds a
        run with other arguments, or other code in the file of `work`.
      HostLost: if too few workers are there; the same call continues.
      RunFailed: if gradients fail again and again; it says why.
    """
    run = OwnRun.of(work, policy, rule, num_workers, num_gradients, given)
    source, logs = run.source, pathlib.Path(workdir) / "workers"
    with Processes(source, run.params, run.aux, num_workers=num_workers, logs=logs) as transport:
        return run.run(transport, workdir, settings=settings, on_update=on_update)


def replay(
    work: Callable[..., Any],
    recording: LiveRecording | str | os.PathLike[str],
    *,
    rule: Rule,
    given: Mapping[str, Any] = _NOTHING,
) -> Tree:
    """Return the parameters to which the events of a recorded run lead, computed again in this process.

    With the rule of the run, deterministic work and the same kind of processor they are those of the run, to the bit.
    Another rule is applied to the same events.

    Args:
      work: as of `train`; `given` too.
      recording: of `train`, or its file.
      rule: to apply.
      given: keywords of `work`.

    Raises:
      ValueError: where the recording is not one of `train`, or the work is not deterministic.
    """
    recording = recording if isinstance(recording, LiveRecording) else LiveRecording.load(recording)
    if "single" not in recording.config:
        raise ValueError("recording must be of a run of `sgdlab.live.train`; of `sgdlab live`, use `sgdlab replay`")
    loop = OwnLoop(work, given)
    first = loop.of_worker(0)
    if not first.deterministic:
        raise ValueError("work must be deterministic to be computed again; it says deterministic=False")
    steps = Steps(rule, first.params, single=recording.config["single"])
    program: Any = lower(recording.schedule)
    compute = as_computed(recording, program, loop.compute_of)
    return jax.tree.map(np.asarray, repeat(program, steps, compute, aux=OwnGradients(first).aux).params)
