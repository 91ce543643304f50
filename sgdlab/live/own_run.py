"""`OwnRun`, a run of a loop of one's own before it is run: what both sides compute, and what names it in its log."""

import dataclasses
import functools
import os
import pathlib
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np
import optax

from sgdlab import arguments, files
from sgdlab.live import checkpoint, own_work
from sgdlab.live.engine import Updated
from sgdlab.live.log import Log
from sgdlab.live.own_work import OwnGradients, OwnLoop, OwnWork
from sgdlab.live.progress import LiveProgress
from sgdlab.live.recording import LiveRecording
from sgdlab.live.server import check, serve
from sgdlab.live.settings import LiveSettings
from sgdlab.live.transport import Transport
from sgdlab.live.work import WorkSource
from sgdlab.protocols.policy import Policy
from sgdlab.replay.steps import Steps
from sgdlab.rules.server_rule import ServerRule
from sgdlab.types import Tree

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
        place, modules = own_work.place_of(work)
        source = WorkSource(f"{own_work.__name__}:loop", {"function": place, "given": dict(given)}, modules)
        source.check()
        loop = OwnLoop(work, given)
        first = loop.of_worker(0)
        named = {"work": place, "given": dict(given), "code": own_work.code_of(work)}
        found = cls._named(named, first, policy, rule, num_workers, num_gradients)
        kept = None if first.deterministic else found.sent_like
        return found._replace(source=source, compute_of=loop.compute_of, sent_like=kept)

    @classmethod
    def of_params(
        cls, params: Tree, policy: Callable[..., Policy], rule: Rule, num_workers: int, num_gradients: int
    ) -> "OwnRun":
        """Return the run of initial parameters alone: messages are written down, since nobody can repeat them."""
        work = own_work.checked((params, _unknown))
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
        arguments.whole("num_workers", num_workers)
        arguments.whole("num_gradients", num_gradients)
        decides = policy(num_workers=num_workers)
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
            np.savez(file, **_named_leaves(params))
        return Trained(params, recording)


def _unknown(params: Tree, ticket: int) -> tuple[Tree, float]:
    """Stand for a gradient that only the workers can compute."""
    raise NotImplementedError


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
    numbers = _digest(rule if isinstance(rule, ServerRule) else ())
    return {"name": getattr(update, "__qualname__", type(update).__name__), "numbers": numbers}


def _digest(tree: Tree) -> str:
    return checkpoint.digest(_named_leaves(tree)).hex()[:16]


def _named_leaves(tree: Tree) -> dict[str, Any]:
    return {jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in jax.tree_util.tree_leaves_with_path(tree)}
