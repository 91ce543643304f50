"""From a configuration to a run on processes: what its workers compute, and what its server does."""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any, cast

import numpy as np
from ml_collections import ConfigDict

from sgdlab import arguments, policies, user_files  # noqa: F401 (policies register themselves)
from sgdlab.errors import UsageError, said_of
from sgdlab.live import server
from sgdlab.live.gradients import Gradients
from sgdlab.live.work import LocalSteps, Work, WorkSource
from sgdlab.protocols.policy import Policy
from sgdlab.registry import PREDICTORS, PROTOCOLS
from sgdlab.replay.steps import Steps
from sgdlab.rules import ServerRule
from sgdlab.runs import digests, parts, tasks
from sgdlab.runs.experiment import Experiment, resolve
from sgdlab.runs.local_steps import optimizer_of
from sgdlab.runs.parts import check_rule
from sgdlab.runs.plan import Plan, make_plan
from sgdlab.runs.store import plain
from sgdlab.types import Tree

_CLAIRVOYANT = ("oracle", "informed")
"""Predictors that know compute times before they happen."""


def work(argument: Mapping[str, Any]) -> Work:
    """Return what a worker computes, in the worker's own process, by the argument that `source_of` makes."""
    for name, file in argument["modules"].items():
        user_files.import_or_execute(name, file)
    experiment = resolve(config_of(argument["config"]))
    task = tasks.task_of(experiment)
    of_worker = functools.partial(tasks.batches_by_ticket, experiment)
    return Work(
        task.params,
        task.grad_fn,
        of_worker(),
        micro_batches=experiment.data.micro_batches,
        seconds=None if argument["emulate"] is None else _slowness(experiment, argument["emulate"]),
        finish=tasks.finish_of(experiment),
        own=None if experiment.data.alpha is None else of_worker,
        local=_local_steps(experiment, argument.get("steps_per_update")),
        **({} if experiment.compression is None else experiment.compression.of_worker()),
    )


def _local_steps(experiment: Experiment, steps_per_update: float | None) -> LocalSteps | None:
    local, steps = experiment.local, experiment.steps
    if not local.active:
        return None
    return LocalSteps(
        optimizer_of(local),
        lambda worker: int(steps[worker]),
        local.steps,
        local.proximal or None,
        keep_state=local.keep_state,
        stream=local.stream,
        inner=None if steps_per_update is None else experiment.inner_rate(steps_per_update),
    )


def source_of(
    experiment: Experiment, *, emulate: float | None = None, steps_per_update: float | None = None
) -> WorkSource:
    """Return where workers find what `work` needs.

    With `emulate`, gradients (or local steps) take at least so many seconds on average, in proportion to those of
    the configuration's cluster; else what they take. The learning rate of workers goes by `steps_per_update`, as
    planned; None where it is constant.
    """
    found = {"config": plain(experiment.source), "emulate": emulate, "modules": parts.outside()}
    if steps_per_update is not None:
        found["steps_per_update"] = steps_per_update
    return WorkSource(f"{__name__}:work", found)


def config_of(entries: Mapping[str, Any]) -> ConfigDict:
    """Return the configuration of entries as JSON holds them: lists are tuples.

    Example:
      >>> config_of({"rate": {"steps": [1.0, 2.0]}}).rate.steps
      (1.0, 2.0)
    """
    return ConfigDict(_with_tuples(entries))


@dataclasses.dataclass(frozen=True)
class Job:
    """A run on processes, before they are started."""

    plan: Plan  # the simulated run of the same configuration; learning rates are as planned there
    task: Any  # its network as pure functions
    policy: Policy  # whom to wait for
    rule: ServerRule  # what to do with a gradient
    source: WorkSource  # what workers compute
    header: dict[str, Any]  # all values that the run depends on, as JSON holds them

    @property
    def num_workers(self) -> int:
        """Return N, the largest number of workers that can take part."""
        return self.plan.experiment.num_workers

    @property
    def identity(self) -> dict[str, Any]:
        """Return the entries that the run depends on: what its work directory belongs to."""
        return {**self.plan.experiment.identity, "live": {"emulate": self.header["emulate"]}}

    @functools.cached_property
    def gradients(self) -> Gradients:
        """Return what a worker computes, in this process: for shapes, and for gradients that are computed again."""
        return Gradients(self._work)

    @property
    def sent_like(self) -> Tree:
        """Return arrays like a message and its aux where workers keep something, and none can be computed again."""
        return {"params": self.gradients.sent, "aux": self.gradients.aux} if self._keeps else None

    @property
    def _keeps(self) -> bool:
        local, compression = self.plan.experiment.local, self.plan.experiment.compression
        remembers = compression is not None and compression.channel.remembers(self.task.params)
        return remembers or (local.active and local.keep_state)

    def compute_of(self, worker: int) -> Callable[..., Any]:
        """Return what computes the gradient of a ticket bit for bit as the worker does: see `Gradients.compute`."""
        if worker not in self._own:
            local, alpha = self.plan.experiment.local, self.plan.experiment.data.alpha
            differ = alpha is not None or local.by_speed or local.follow_rate
            alike = not (differ or self._keeps)
            self._own[worker] = self.gradients if alike else Gradients(self._work, worker=worker)
        return lambda ticket, params, **kept: self._own[worker].compute(ticket, params, lambda: False, **kept)

    @functools.cached_property
    def _work(self) -> Work:
        return cast(Work, self.source.make())._replace(seconds=None)

    @functools.cached_property
    def _own(self) -> dict[int, Gradients]:
        """Return what each worker computes."""
        return {}

    def steps(self) -> Steps:
        """Return the parameters and the state of the server, with all programs compiled."""
        task = self.task
        steps = Steps(
            self.rule,
            task.params,
            single=self.policy.single,
            stats=task.stats,
            fold=task.fold,
            average_decay=self.plan.experiment.reporting.average_decay,
            packer=self.gradients.packer,
        )
        steps.compile(self.gradients.aux)
        return steps


def make_job(config: ConfigDict, *, emulate: float | None = None) -> Job:
    """Check a configuration and make all that its run on processes needs.

    The learning rate of an update is that of the simulated run of the configuration, by the number of the update: how
    many gradients an update will have is taken from the simulation, since nobody knows it before, and so is the number
    of updates. The last rate holds for all further updates.

    Raises:
      UsageError: where an entry is impossible, or cannot be executed on processes; it names the flag.
    """
    if emulate is not None:
        with said_of("--"):
            arguments.real("emulate", emulate, above=0)
    return job_of(make_plan(config), emulate=emulate)


def job_of(plan: Plan, *, emulate: float | None) -> Job:
    """Make all that a run on processes needs, as `make_job` does, of its simulated run."""
    _check(plan)
    experiment = plan.experiment
    if experiment.local.by_speed and experiment.local.steps > 1 and emulate is None:
        raise UsageError(
            "--config.local.by_speed=True needs --emulate=SECONDS: how many steps a worker makes is planned from the "
            "speeds of the configuration's cluster, and nobody has measured those of these processes"
        )
    task, own = tasks.task_of(experiment), experiment.rule
    tasks.batches_by_ticket(experiment)  # which refuses what is not in memory
    policy = policy_of(plan)
    workers = experiment.num_workers
    rule = plan.rule(plan.rates, workers, unpacked=True)
    check_rule(own.part, rule, task.params, single=policy.single)
    with said_of(f"--config.rule.kind={own.name} with protocol {experiment.protocol.name}: "):
        server.check(policy, rule, workers)
    header = {"config": plain(experiment.source), "emulate": emulate, "code": digests.of_run(experiment)}
    steps_per_update = None if plan.inner is None else plan.inner.steps_per_update
    source = source_of(experiment, emulate=emulate, steps_per_update=steps_per_update)
    return Job(plan, task, policy, rule, source, header)


def policy_of(plan: Plan) -> Policy:
    """Return the policy of a plan's protocol; raises a `UsageError` where there is none, or an entry is impossible."""
    experiment, protocol = plan.experiment, plan.experiment.protocol
    part = PROTOCOLS.with_policy(protocol.name)
    given: dict[str, Any] = {
        "num_workers": experiment.num_workers,
        "num_gradients": plan.num_gradients,
        "seed": experiment.seeds.of("protocol"),
    }
    if "predictor" in part.given:
        kind = experiment.parts["predictor"].name
        if kind in _CLAIRVOYANT:
            fair = ", ".join(name for name in PREDICTORS if name not in _CLAIRVOYANT)
            raise UsageError(
                f"--config.predictor.kind={kind} knows times before they happen, which nobody does on processes: "
                f"it must be one of {fair}"
            )
        given["predictor"] = experiment.predictor_of(_times(experiment))
    return PROTOCOLS.policy(protocol.name, protocol.entries, **given)


def _check(plan: Plan) -> None:
    protocol, reporting = plan.experiment.protocol.name, plan.experiment.reporting
    if not plan.schedule.has_server:
        raise UsageError(
            f"--config.protocol.kind={protocol} must be a protocol with a server on real processes: nodes that average "
            "with each other have none, and are simulated and replayed exactly by `sgdlab train`"
        )
    PROTOCOLS.with_policy(protocol)
    for used in (plan.experiment.transport, plan.experiment.failures):
        if used is not None:
            raise UsageError(
                f"--config.{used.registry.family}.kind={used.name} must be left out on real processes: what their "
                "messages take, and who fails, is real"
            )
    for entry, value in {"until_target": plan.experiment.ending.until_target, "spacing": reporting.spacing}.items():
        if value not in (False, "even"):
            raise UsageError(
                f"--config.{entry}={value} must be left out on real processes: a run makes all of its gradients, with "
                "evaluations at equal distances"
            )
    if plan.experiment.task.facts.remembers:
        raise UsageError(
            f"--config.network.kind={plan.experiment.network.name} remembers what its worker has read, which is lost "
            "with a worker: on processes it must be a network without such a memory"
        )


def _times(experiment: Experiment) -> np.ndarray:
    """Return float64[T, N], seconds: compute times of the cluster, about twice as many as the run needs."""
    cluster, steps = experiment.cluster, experiment.steps
    return cluster.runtimes(steps, cluster.rows(experiment.num_gradients, steps))


def _slowness(experiment: Experiment, mean: float) -> Callable[[int, int], float]:
    times = _times(experiment)
    times = times * (mean * experiment.mean_steps / times.mean())
    return lambda worker, k: float(times[k % len(times), worker])


def _with_tuples(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _with_tuples(each) for name, each in value.items()}
    return tuple(_with_tuples(each) for each in value) if isinstance(value, list | tuple) else value
