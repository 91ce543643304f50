"""`train` and `LiveServer`, live runs of a loop of your own, in processes that are started or join, and `replay`.

`OwnRun` is such a run before it is run: what both sides compute, and what names it in its log.
"""

import dataclasses
import functools
import json
import os
import pathlib
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, Self

import jax
import numpy as np
import optax

from sgdlab import arguments, files
from sgdlab.live import checkpoint
from sgdlab.live.engine import Updated
from sgdlab.live.fingerprint import fingerprint
from sgdlab.live.log import Log
from sgdlab.live.processes import Processes
from sgdlab.live.progress import LiveProgress
from sgdlab.live.recording import LiveRecording
from sgdlab.live.remote import Remote
from sgdlab.live.repeat import as_computed, repeat
from sgdlab.live.server import check, serve
from sgdlab.live.settings import Endpoint, LiveSettings, fitting, patient
from sgdlab.live.transport import Transport
from sgdlab.live.work import OwnGradients, OwnLoop, OwnWork, WorkSource, checked, code_of, place_of
from sgdlab.protocols.policy import Policy
from sgdlab.replay.lowering import lower
from sgdlab.replay.steps import Steps
from sgdlab.rules.server_rule import ServerRule
from sgdlab.types import Tree

_NOTHING: Mapping[str, Any] = MappingProxyType({})
_DEFAULT = LiveSettings()
_HERE = Endpoint()
Rule = ServerRule | optax.GradientTransformation
Told = Callable[[int, Tree], Mapping[str, float] | None]


class Trained(NamedTuple):
    """Holds what a run has left.

    Attributes:
      params: the last parameters, NumPy arrays.
      recording: what happened: a `LiveRecording`.
    """

    params: Tree
    recording: LiveRecording


class OwnRun(NamedTuple):
    """Holds all that a run needs, before processes are started."""

    policy: Policy
    rule: Rule
    source: WorkSource | None  # None: workers know what they compute
    header: dict[str, Any]
    params: Tree
    aux: Tree
    compute_of: Callable[[int], Callable[..., Any]] | None
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
    ) -> "OwnRun":
        """Return the run of a function that makes each worker's work, as `sgdlab.live.train` has it."""
        place, modules = place_of(work)
        try:
            json.dumps(dict(given))
        except (TypeError, ValueError) as error:
            raise ValueError(f"given={given!r} must be keywords of work, of values that JSON can write") from error
        source = WorkSource(f"{OwnLoop.__module__}:loop", {"function": place, "given": dict(given)}, modules)
        source.check()
        loop = OwnLoop(work, given)
        first = loop.of_worker(0)
        file = pathlib.Path(*modules.values()).name  # a refusal names it
        named = {"work": place, "given": dict(given), "code": {file: code_of(work)}}
        found = cls._named(named, first, policy, rule, num_workers, num_gradients)
        kept = None if first.deterministic else found.sent_like
        return found._replace(source=source, compute_of=loop.compute_of, sent_like=kept)

    @classmethod
    def of_params(
        cls, params: Tree, policy: Callable[..., Policy], rule: Rule, num_workers: int, num_gradients: int
    ) -> "OwnRun":
        """Return the run of initial parameters alone: messages are written down, since nobody can repeat them."""
        work = checked((params, _unknown))
        named = {"work": "joined", "params": _digest(work.params)}
        return cls._named(named, work, policy, rule, num_workers, num_gradients)

    @classmethod
    def _named(
        cls,
        named: dict[str, Any],
        work: OwnWork,
        policy: Callable[..., Policy],
        rule: Rule,
        num_workers: int,
        num_gradients: int,
    ) -> "OwnRun":
        num_workers = arguments.whole("num_workers", num_workers)
        num_gradients = arguments.whole("num_gradients", num_gradients)
        decides = policy(num_workers=num_workers) if callable(policy) else policy
        if decides is policy or not all(hasattr(decides, name) for name in ("single", "arrival")):
            raise ValueError(
                f"policy={policy!r} must make the policy of a server, called with num_workers, such as "
                "sgdlab.policies.asynchronous, or functools.partial(sgdlab.policies.backup_workers, backups=1)"
            )
        check(decides, rule, num_workers)
        header = {
            **named, "policy": _described(decides), "rule": _numbers(rule), "num_workers": num_workers,
            "num_gradients": num_gradients, "single": decides.single,
        }  # fmt: skip
        aux = OwnGradients(work).aux
        return cls(decides, rule, None, header, work.params, aux, None, {"params": work.params, "aux": aux})

    def run(
        self,
        transport: Transport,
        workdir: str | os.PathLike[str],
        *,
        settings: LiveSettings,
        on_update: Told | None,
        begun: Callable[[LiveProgress], None] = lambda progress: None,
    ) -> Trained:
        """Run it, or the rest of it, and write what it leaves; arguments and errors are as of `sgdlab.live.train`.

        Args:
          transport: the workers.
          workdir: a directory of this run alone.
          settings: of the server.
          on_update: called after each update.
          begun: called with what shows the run, before it begins.
        """
        folder, steps = pathlib.Path(workdir), Steps(self.rule, self.params, single=self.policy.single)
        steps.compile(self.aux)
        with LiveProgress() as progress:
            log = Log(folder, self.header, compute_of=self.compute_of, sent_like=self.sent_like, say=progress.say)
            begun(progress)
            recording = serve(
                self.policy,
                steps,
                transport,
                num_workers=self.header["num_workers"],
                num_gradients=self.header["num_gradients"],
                settings=dataclasses.replace(settings, title=settings.title or self.header["work"]),
                log=log,
                on_update=None if on_update is None else functools.partial(_tell, on_update, steps),
                watch=progress.show,
            )
        params = jax.tree.map(np.asarray, steps.params)
        recording.save(folder / "recording.npz")
        with files.replacing(folder / "parameters.npz") as file:
            np.savez(file, **_named_leaves(jax.tree.map(_readable, params)))
        return Trained(params, recording)


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
    and in the end recording.npz, for `sgdlab advise`, `sgdlab timeline` and `sgdlab.live.replay`, and parameters.npz
    (bfloat16 as float32).

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
    settings = fitting(settings, num_workers)
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
    program = program.of_run(recording.ticket, recording.begins_anew())
    compute = as_computed(recording, program, loop.compute_of)
    return jax.tree.map(np.asarray, repeat(program, steps, compute, aux=OwnGradients(first).aux).params)


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
      policy: as of `sgdlab.live.train`, as are the others.
      rule: see there.
      num_workers: see there.
      num_gradients: see there.
      workdir: see there.
      endpoint: where to listen, and whom to let in.
      settings: see there.
      on_update: see there.

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
        endpoint: Endpoint = _HERE,
        settings: LiveSettings = _DEFAULT,
        on_update: Told | None = None,
    ):
        if callable(work):
            self._planned = OwnRun.of(work, policy, rule, num_workers, num_gradients, {})
        else:
            self._planned = OwnRun.of_params(work, policy, rule, num_workers, num_gradients)
        self._workdir, self._on_update = workdir, on_update
        self._settings = patient(fitting(settings, num_workers))
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


def _unknown(params: Tree, ticket: int) -> tuple[Tree, float]:
    """Stand for a gradient that only the workers can compute."""
    raise NotImplementedError


def _tell(on_update: Told, steps: Steps, updated: Updated) -> dict[str, float | str] | None:
    """Tell the caller of an update whose parameters are there."""
    if not updated.computed:
        return None
    found = on_update(updated.number, jax.tree.map(np.asarray, steps.params))
    try:
        return None if found is None else {name: f"{value:.6g}" for name, value in found.items()}
    except (AttributeError, TypeError, ValueError):
        raise ValueError(f"on_update must return numbers by name, or None; it has returned {found!r}") from None


def _described(policy: Policy) -> dict[str, Any]:
    """Return the name of a policy, and its settings; of those that JSON cannot hold a fingerprint."""
    found: dict[str, Any] = {"name": type(policy).__qualname__}
    for field in dataclasses.fields(policy) if dataclasses.is_dataclass(policy) else ():
        value = getattr(policy, field.name)
        if field.init and isinstance(value, int | str | bool | None):
            found[field.name] = value
        elif field.init:
            found[field.name] = repr(value) if isinstance(value, float) else fingerprint(value)
    return found


def _numbers(rule: Rule) -> dict[str, str]:
    """Return the name of a rule's update, and a fingerprint of its hyperparameters."""
    update = getattr(rule.update, "func", rule.update)
    return {"name": getattr(update, "__qualname__", type(update).__name__), "numbers": fingerprint(rule)}


def _digest(tree: Tree) -> str:
    return checkpoint.digest(_named_leaves(tree)).hex()[:16]


def _readable(array: np.ndarray) -> np.ndarray:
    """Return an array that NumPy reads back as numbers: bfloat16, which it has not, as float32."""
    return array.astype(np.float32) if array.dtype.kind == "V" else array


def _named_leaves(tree: Tree) -> dict[str, Any]:
    return {jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in jax.tree_util.tree_leaves_with_path(tree)}
