"""`train`, a live run of a loop of your own: your gradients in processes, sgdlab's policies and rules in the server."""

import contextlib
import dataclasses
import functools
import hashlib
import json
import os
import pathlib
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import numpy as np
import optax

from sgdlab import arguments, files
from sgdlab.live import own_work
from sgdlab.live.engine import Updated
from sgdlab.live.log import Log
from sgdlab.live.own_work import OwnGradients, OwnLoop
from sgdlab.live.processes import Processes
from sgdlab.live.progress import LiveProgress
from sgdlab.live.recording import LiveRecording
from sgdlab.live.repeat import as_computed, repeat
from sgdlab.live.server import check, serve
from sgdlab.live.settings import LiveSettings
from sgdlab.live.work import WorkSource
from sgdlab.protocols.policy import Policy
from sgdlab.replay.lowering import lower
from sgdlab.replay.steps import Steps
from sgdlab.rules.server_rule import ServerRule
from sgdlab.types import Tree

Rule = ServerRule | optax.GradientTransformation
Told = Callable[[int, Tree], Mapping[str, float] | None]
_NOTHING: Mapping[str, Any] = MappingProxyType({})
_DEFAULT = LiveSettings()


class Trained(NamedTuple):
    """Holds what a run has left.

    Attributes:
      params: the last parameters, NumPy arrays.
      recording: what happened: a `LiveRecording`.
    """

    params: Tree
    recording: LiveRecording


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
    nothing is run. In the work directory are the log and the checkpoints from the beginning on, what workers print (in
    workers/), and in the end recording.npz, for `sgdlab advise`, `sgdlab timeline` and `sgdlab.live.replay`, and
    parameters.npz.

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
      on_update: `(updates, params) -> None`, or numbers to show; called after each update whose parameters are there,
        while the server waits.

    Returns:
      The last parameters, and the recording.

    Raises:
      ValueError: where an argument is impossible, work cannot be found by another process, or the directory holds a
        run with other arguments, or other code in the file of `work`.
      HostLost: if too few workers are there; the same call continues.
      RunFailed: if gradients fail again and again; it says why.
    """
    job = _Job.of(work, policy, rule, num_workers, num_gradients, given)
    folder = pathlib.Path(workdir)
    steps = job.steps()
    with LiveProgress() as progress, contextlib.ExitStack() as stack:
        transport = stack.enter_context(
            Processes(
                job.source, job.params, job.aux, num_workers=num_workers, logs=folder / "workers"
            )
        )  # fmt: skip
        log = Log(folder, job.header, compute_of=job.compute_of, sent_like=job.sent_like, say=progress.say)
        recording = serve(
            job.policy,
            steps,
            transport,
            num_workers=num_workers,
            num_gradients=num_gradients,
            settings=dataclasses.replace(settings, title=settings.title or job.header["work"]),
            log=log,
            on_update=None if on_update is None else functools.partial(_tell, on_update, steps),
            watch=progress.show,
        )
    params = jax.tree.map(np.asarray, steps.params)
    recording.save(folder / "recording.npz")
    with files.replacing(folder / "parameters.npz") as file:
        np.savez(
            file, **{jax.tree_util.keystr(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(params)}
        )
    return Trained(params, recording)


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
    make, first = functools.cache(lambda worker: OwnGradients(loop.of_worker(worker))), loop.of_worker(0)
    if not first.deterministic:
        raise ValueError("work must be deterministic to be computed again; it says deterministic=False")
    steps = Steps(rule, first.params, single=recording.config["single"])
    program: Any = lower(recording.schedule)
    compute = as_computed(recording, program, lambda worker: make(worker).compute)
    return jax.tree.map(np.asarray, repeat(program, steps, compute, aux=make(0).aux).params)


class _Job(NamedTuple):
    """Holds all that a run needs, before processes are started."""

    policy: Policy
    rule: Rule
    source: WorkSource
    header: dict[str, Any]
    params: Tree
    aux: Tree
    compute_of: Callable[[int], Callable[..., Any]]
    sent_like: Tree

    @classmethod
    def of(
        cls,
        work: Callable[..., Any],
        policy: Callable[..., Policy],
        rule: Rule,
        num_workers: int,
        num_gradients: int,
        given: Mapping[str, Any],
    ) -> "_Job":
        arguments.whole("num_workers", num_workers)
        arguments.whole("num_gradients", num_gradients)
        place, modules = own_work.place_of(work)
        source = WorkSource(f"{own_work.__name__}:loop", {"function": place, "given": dict(given)}, modules)
        source.check()
        loop, decides = OwnLoop(work, given), policy(num_workers=num_workers)
        make, first = functools.cache(lambda worker: OwnGradients(loop.of_worker(worker))), loop.of_worker(0)
        check(decides, rule, num_workers)
        header = {
            "work": place, "given": dict(given), "code": own_work.code_of(work), "policy": _described(decides),
            "rule": _numbers(rule), "num_workers": num_workers, "num_gradients": num_gradients,
            "single": decides.single,
        }  # fmt: skip
        aux = OwnGradients(first).aux
        kept = None if first.deterministic else {"params": first.params, "aux": aux}
        return cls(decides, rule, source, header, first.params, aux, lambda worker: make(worker).compute, kept)

    def steps(self) -> Steps:
        """Return the server's parameters and state, with all programs compiled."""
        steps = Steps(self.rule, self.params, single=self.policy.single)
        steps.compile(self.aux)
        return steps


def _tell(on_update: Told, steps: Steps, updated: Updated) -> dict[str, float | str] | None:
    """Tell the caller of an update whose parameters are there."""
    if not updated.computed:
        return None
    found = on_update(updated.number, jax.tree.map(np.asarray, steps.params))
    return None if found is None else {name: f"{value:.6g}" for name, value in found.items()}


def _described(policy: Policy) -> dict[str, Any]:
    """Return the name of a policy, and the settings of it that JSON can hold."""
    found: dict[str, Any] = {"name": type(policy).__qualname__}
    for field in dataclasses.fields(policy) if dataclasses.is_dataclass(policy) else ():
        value = getattr(policy, field.name)
        if field.init and isinstance(value, int | float | str | bool | None):
            found[field.name] = value if not isinstance(value, float) else repr(value)
    return found


def _numbers(rule: Rule) -> dict[str, str]:
    """Return the name of a rule's update, and a digest of its hyperparameters."""
    update = getattr(rule.update, "func", rule.update)
    digest = hashlib.sha256()
    for leaf in jax.tree.leaves(rule) if isinstance(rule, ServerRule) else ():
        array = np.asarray(leaf)
        digest.update(json.dumps([array.dtype.str, array.shape]).encode() + array.tobytes())
    return {"name": getattr(update, "__qualname__", type(update).__name__), "numbers": digest.hexdigest()[:16]}
