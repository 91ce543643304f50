"""From a configuration to what a run needs before its first gradient: a schedule and learning rates."""

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import optax
from ml_collections import ConfigDict

from sgdlab import replay, rules, theory
from sgdlab.data import Text
from sgdlab.errors import said_of
from sgdlab.jobs import configuration, local_steps, memory, own_data, simulated
from sgdlab.jobs.datasets import (
    AnyDataset,
    batches_per_epoch,
    check_text,
    dataset_of,
    network_arguments,
    num_gradients,
)
from sgdlab.jobs.inner_rate import InnerRate, inner_rate_of
from sgdlab.jobs.local_steps import Local
from sgdlab.jobs.methods import Choice, chosen
from sgdlab.jobs.peak_rate import counts_as, expected_gradients, peak_rate
from sgdlab.jobs.rates import CONSTANT, rates
from sgdlab.jobs.run_times import law_of, local_in, mean_steps, num_workers, steps_of
from sgdlab.jobs.spans import spans
from sgdlab.peer_schedule import AnySchedule
from sgdlab.registry import NETWORKS, RULES
from sgdlab.tasks.kinds import Kind, kind_of


@dataclasses.dataclass(frozen=True)
class Plan:
    """All that a run needs before its first gradient; made on the host, in milliseconds.

    Attributes:
      config: the configuration.
      choice: its method, protocol and rule.
      dataset: what it trains and tests on.
      law: its cluster.
      schedule: who computes what, and when.
      rates: float64[U], the learning rate of each update; of each gradient, where there is no server.
      num_gradients: gradients to use.
      speedup: used gradients per second, over those of synchronous SGD on the same cluster.
      inner: warm-up and decay of the learning rate of workers with local steps; None where it is constant.
      seconds: float64[N], `worker_seconds` where they are known already. None: they are simulated when asked for.
      live: whether its times are those of a real clock: it is executed on processes, or was, and is replayed.
      tickets: int[G], of a schedule that was recorded: which batch each of its gradients was computed on. None: the
        k-th gradient that is used has batch k.
      anew: int32[G], of a schedule that was recorded: the version from which the worker of each gradient begins anew,
        without what it keeps between its messages; -1 where it goes on. None: all go on.
      repeated: `(program, *, watch, checkpoints, stop) -> replay.Result`, which executes it, of a run that is repeated
        (`sgdlab.jobs.recorded.repeated`). None: `sgdlab.replay.run` does.
    """

    config: ConfigDict
    choice: Choice
    dataset: AnyDataset
    law: Any
    schedule: Any  # AnySchedule
    rates: np.ndarray
    num_gradients: int
    speedup: float
    seconds: np.ndarray | None
    inner: InnerRate | None = None
    live: bool = False
    tickets: Any = None  # np.ndarray | None
    anew: np.ndarray | None = None
    repeated: Callable[..., replay.Result] | None = None

    @functools.cached_property
    def program(self) -> Any:  # ServerProgram | PeerProgram
        """The lowered schedule, with a pause for every evaluation."""
        every = math.ceil(self.num_gradients / self.config.evaluations)
        own = self.kind.remembers or self.local.keep_state
        own = own or self.rule(self.rates, self.schedule.num_workers).point is not None
        return replay.lower(self.schedule, every=every, by_worker=own)

    @functools.cached_property
    def worker_seconds(self) -> np.ndarray | None:
        """float64[N], mean seconds of a gradient of each worker when none is interrupted, or of one local step of it.

        None of a run on processes: nobody knows them before it.
        """
        if self.seconds is not None or self.live:
            return self.seconds
        return theory.seconds_per_gradient(simulated.synchronous_twin(self.config, self.law, self.num_gradients))

    @property
    def kind(self) -> Kind:
        """Classification, density estimation or language modelling: what the network is for."""
        return kind_of(NETWORKS[self.config.network.kind])

    @property
    def outcomes(self) -> int:
        """Number of values that a target can take."""
        return getattr(self.dataset, {"density": "levels", "language": "vocabulary"}.get(self.kind.name, "num_classes"))

    @property
    def batches_per_epoch(self) -> float:
        """Gradients that use one epoch of data; fewer where each is of several local steps."""
        per_epoch = batches_per_epoch(self.config, self.dataset)
        if not self.local.active:
            return per_epoch
        made = local_steps.of_used(self.schedule, self.steps)
        return per_epoch / float(made.mean() if made.size else self.steps.mean())

    @functools.cached_property
    def local(self) -> Local:
        """What a worker does between two messages."""
        return local_in(self.config)

    @functools.cached_property
    def steps(self) -> np.ndarray:
        """int[N]: local steps of each worker's gradients; 1 where a gradient is a gradient."""
        return steps_of(self.config)

    @functools.cached_property
    def steps_of_rows(self) -> np.ndarray:
        """int[R]: local steps of each gradient of the program."""
        return self.steps[self.program.worker[: self.program.num_rows]]

    @property
    def anew_of_rows(self) -> np.ndarray | None:
        """int32[R]: `anew` of each gradient of the program; None where workers keep nothing, or all go on."""
        if self.anew is None or not self.local.keep_state:
            return None
        return self.anew[self.program.gradient[: self.program.num_rows]]

    @property
    def places_of_rows(self) -> np.ndarray | None:
        """int32[R]: where each gradient of the program begins in the factors of `inner`; None without one."""
        if self.inner is None:
            return None
        return self.inner.place(self.program.read[: self.program.num_rows, 0])

    @property
    def batch_workers(self) -> np.ndarray:
        """int[K]: the worker of each batch that is used; with one step, of each gradient of the program."""
        return np.repeat(self.program.worker[: self.program.num_rows], self.steps_of_rows)

    @property
    def batch_tickets(self) -> np.ndarray:
        """int[K], of a run that was recorded: step k of ticket t has the batch t H + k."""
        tickets = self.tickets[self.program.gradient[: self.program.num_rows]]
        first, _ = spans(self.steps_of_rows, self.steps_of_rows.size)
        within = np.arange(int(self.steps_of_rows.sum())) - np.repeat(first, self.steps_of_rows)
        return np.repeat(tickets * self.local.steps, self.steps_of_rows) + within

    def rule(self, learning_rate: np.ndarray | float, num_workers: int) -> rules.ServerRule:
        """The rule with the configuration's hyperparameters.

        Args:
          learning_rate: float64[U], of each update; or one for all.
          num_workers: how many to keep state for, where it is kept per worker.

        Raises:
          UsageError: where a hyperparameter cannot be, or the rule cannot be used with the schedule.
        """
        optimizer, table = self.config.optimizer, np.atleast_1d(np.asarray(learning_rate, float))
        given = {
            "learning_rate": rules.tabulated(table),
            "max_learning_rate": float(table.max()),
            "num_workers": num_workers,
            "workers": self.schedule.num_workers,
            "weight_decay": 0.0 if self.local.active else optimizer.weight_decay,  # then it is the workers' matter
            "momentum": optimizer.momentum,
            "nesterov": optimizer.nesterov,
            "expected_gradients": expected_gradients(self.choice, self.schedule.num_workers),
            "fragments": self.local.fragments,
        }
        # What the configuration leaves open is as the rule has it: momentum 0.9, or none.
        given = {name: value for name, value in given.items() if value is not None}
        made = RULES.make(self.choice.rule.name, self.choice.rule_entries, **given)
        if not isinstance(made, optax.GradientTransformation):
            return made
        with said_of(f"--config.rule.kind={self.choice.rule.name}: "):
            return rules.server_rule(made)


def make_plan(config: ConfigDict, *, schedule: AnySchedule | None = None) -> Plan:
    """Checks a configuration and makes its schedule and learning rates.

    Args:
      config: such as `configs/digits.py` makes.
      schedule: one that is given, instead of the protocol's own on the configuration's cluster.

    Raises:
      UsageError: where an entry is impossible, or the run would not fit the memory; it names the flag.

    Example:
      >>> from configs import digits
      >>> config = digits.get_config()
      >>> config.epochs, config.method = 1.0, "synchronous"
      >>> print(make_plan(config).schedule)  # doctest: +ELLIPSIS
      Schedule: 8 workers, ... updates from ... gradients (0 dropped, 0 pending) in ... s, mean staleness 0
    """
    configuration.check(config)
    choice, dataset, law = chosen(config), dataset_of(config), law_of(config)
    network_arguments(config, dataset)
    if isinstance(dataset, Text):
        check_text(config, dataset)
    own_data.shares_of(config, dataset)  # which refuses what cannot be divided
    per_epoch = batches_per_epoch(config, dataset) / mean_steps(config)
    gradients = num_gradients(config, dataset)
    size = {"num_blocks": simulated.num_blocks(choice), "graph": simulated.averages(choice, num_workers(config))}
    memory.check_schedule(config, gradients, **size)
    steps = steps_of(config)
    made = schedule is None
    if made:
        make = functools.partial(simulated.schedule, config, law, (choice.protocol.name, choice.entries), steps=steps)
        schedule = make(gradients)
        simulated.check_local(config, choice, schedule)
        if steps.min() < steps.max():  # then it depends on who sends how often
            batches = config.epochs * batches_per_epoch(config, dataset)
            schedule, gradients = local_steps.with_enough_steps(make, schedule, steps, batches)
            per_epoch = gradients / config.epochs
    updates_per_epoch = per_epoch / schedule.gradients_per_update()
    table = rates(
        CONSTANT if local_in(config).rate_is_constant else config.rate,
        peak=peak_rate(config, choice, counts_as(choice, schedule)),
        num_workers=num_workers(config),
        epochs=config.epochs,
        updates_per_epoch=updates_per_epoch,
    )
    steps_per_update = batches_per_epoch(config, dataset) / num_workers(config) / updates_per_epoch
    inner = inner_rate_of(config, dataset, steps_per_update)
    speedup, seconds = 1.0, None
    if made:
        twin = simulated.synchronous_twin(config, law, gradients)
        speedup, seconds = simulated.speedup(schedule, twin, steps), theory.seconds_per_gradient(twin)
    plan = Plan(config, choice, dataset, law, schedule, table, gradients, speedup, seconds, inner)
    rule = plan.rule(table, schedule.num_workers)
    with said_of(f"--config.rule.kind={choice.rule.name} with protocol {choice.protocol.name}: "):
        replay.check_rule(schedule, rule)
    return plan
