"""From an experiment to what a run needs before its first gradient: a schedule and learning rates."""

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import optax
import psutil
from ml_collections import ConfigDict

from sgdlab import graphs, replay, rules, runtimes, theory
from sgdlab.errors import UsageError, said_of
from sgdlab.failures.outages import Outages
from sgdlab.peer_schedule import AnySchedule
from sgdlab.registry import PROTOCOLS
from sgdlab.replay.blocks import check_num_blocks
from sgdlab.report.words import counted
from sgdlab.runs import crossing, local_steps
from sgdlab.runs.experiment import Experiment, resolve
from sgdlab.runs.messages import after_losses, costs_of
from sgdlab.runs.methods import UsedPart
from sgdlab.runs.rates import CONSTANT, InnerRate, rates

_BYTES_PER_GRADIENT = 820
"""Peak bytes of making a schedule and its program, for each gradient and block. Measured from 100 to 10,000
workers, with 10^6 gradients: 160 to 180 for four blocks, 240 for `synchronous`, `partial` and `softsync`, 290 to 340
for `asynchronous`, `bounded_staleness` and `ringmaster` (with interrupts 410), 400 to 500 for `gossip`, and 800 for
`elastic_averaging`, which has two events a gradient."""

_BYTES_PER_EDGE = 190
"""Bytes besides for each parameter vector that nodes on a graph average. Measured with 20,000 gradients of 100
nodes: 1080 bytes a gradient for 3 of them (`d_psgd` on a ring), 2000 for 8, 9930 for 51 (on random graphs), 1330 for
the 4 of `ad_psgd`, 1860 for the 14 of `a2cid2`."""

_BYTES_PER_WEIGHT = 24
"""And for each entry of each matrix [N, N] of weights. Measured: 8 for ten matrices of 1000 nodes, 23 for one of
3000."""


MOST = 0.5
"""Share of the gradients, or of the workers' time, from which on a person is told that it comes to nothing."""


@dataclasses.dataclass(frozen=True)
class RecordedEvents:
    """The events of a run on processes that it has recorded besides its schedule."""

    tickets: np.ndarray  # int[G], the batch that each gradient of the schedule was computed on
    # int32[G], the version from which the worker of each gradient begins anew, without what it keeps between its
    # messages; -1 where it goes on
    anew: np.ndarray
    # `(program, *, watch, checkpoints, stop) -> replay.Result`, which calls the programs of the run once more
    # (`sgdlab.runs.recorded.repeated`). None: `sgdlab.replay.run` does
    repeat: Callable[..., replay.Result] | None = None


@dataclasses.dataclass(frozen=True)
class Plan:
    """All that a run needs before its first gradient; made on the host, in milliseconds."""

    experiment: Experiment
    schedule: Any  # AnySchedule, who computes what, and when
    rates: np.ndarray  # float64[U], the learning rate of each update; of each gradient, where there is no server
    num_gradients: int  # gradients to use
    speedup: float  # used gradients per second, over those of synchronous SGD on the same cluster
    # float64[N], `worker_seconds` where they are known already. None: they are simulated when asked for
    seconds: np.ndarray | None
    # warm-up and decay of the learning rate of workers with local steps; None where it is constant
    inner: InnerRate | None = None
    recorded: RecordedEvents | None = None  # of a run on processes; None: the k-th gradient that is used has batch k

    @functools.cached_property
    def program(self) -> Any:  # ServerProgram | PeerProgram
        """Return the lowered schedule, with a pause for every evaluation."""
        reporting, number = self.experiment.reporting, self.num_gradients
        every: Any = math.ceil(number / reporting.evaluations)
        if reporting.spacing == "geometric":
            every = crossing.geometric(number, reporting.evaluations)
        own = self.experiment.task.facts.remembers or self.experiment.local.keep_state
        own = own or self.rule(self.rates, self.schedule.num_workers).point is not None
        program: Any = replay.lower(self.schedule, every=every, by_worker=own)
        if self.recorded is not None:
            return program.of_run(self.recorded.tickets, self.recorded.anew)
        if self.experiment.compression is None or (outages := self._outages) is None:
            return program
        return dataclasses.replace(program, anew=after_losses(self.schedule, outages)[program.gradient])

    @property
    def _outages(self) -> Outages | None:
        return costs_of(self.experiment, self.experiment.protocol).get("outages")

    @functools.cached_property
    def worker_seconds(self) -> np.ndarray | None:
        """Return float64[N], mean seconds of a gradient, or local step, of each worker when none is interrupted.

        None of a run on processes: nobody knows them.
        """
        if self.seconds is not None or self.recorded is not None:
            return self.seconds
        return _seconds_of(self.experiment, synchronous_twin(self.experiment, self.num_gradients))

    @functools.cached_property
    def certificate(self) -> theory.Certificate:
        """Return the certificate of the schedule; each of several local steps is an edge of the computation tree."""
        return theory.certificate(self.schedule, steps=local_steps.edges(self.schedule, self.experiment.steps))

    @property
    def certified(self) -> dict[str, float | None]:
        """Return what the summary of a run says of its certificate and of the cluster's pace.

        These are `Certificate.figures`; `steps`, the used gradients, each local step for itself; and `capacity`: such
        gradients per second of all workers together if none ever waited, None of a recorded run.
        """
        seconds, found = self.worker_seconds, self.certificate
        capacity = None if seconds is None else float(np.sum(1 / seconds))
        return found.figures() | {"steps": found.gradients, "capacity": capacity}

    @property
    def down(self) -> np.ndarray | None:
        """Return float64[D, 3], a worker, and the seconds from and until which it is down; None where nobody fails.

        They are those that begin before the last update; of a worker that never comes back, until infinity.
        """
        outages = self._outages
        if outages is None:
            return None
        end, workers = self.schedule.wall_clock(), range(self.schedule.num_workers)
        found = [(worker, *interval) for worker in workers for interval in outages.of_worker(worker, end=end)]
        return np.array(found, float).reshape(-1, 3)

    @property
    def waste(self) -> list[str]:
        """Return what a person is told where most gradients, or most of the workers' time, come to nothing: a line.

        Example:
          >>> from configs import digits
          >>> config = digits.get_config()
          >>> config.method = "ata"
          >>> print(*make_plan(config).waste)
          Note: ata lets 8 workers wait 72 % of the time; see --config.protocol.ata.gradients_per_update
        """
        figures, protocol = self.schedule.figures(), self.experiment.protocol
        thrown = figures["dropped"] / (figures["dropped"] + self.num_gradients)
        of = f"{self.schedule.num_workers} workers"
        found, wasted, idle = [], figures["wasted_share"], figures["idle_share"]
        if max(thrown, wasted) > MOST:
            found.append(
                f"throws away {100 * thrown:.0f} % of the gradients of {of}, {100 * wasted:.0f} % of their time"
            )
        entry = protocol.facts.waste
        if idle > MOST and self.experiment.transport is None and self.experiment.failures is None:
            found.append(f"lets {of} wait {100 * idle:.0f} % of the time")
        elif idle > MOST:
            entry = entry if found else None  # it may be messages or failures, which the protocol does not set
            sending = figures.get("sending_share") or 0.0
            beside = f", messages being under way for {100 * sending:.0f} %" * (sending > 0)
            found.append(f"lets {of} compute only {100 - 100 * idle:.0f} % of the time{beside}")
        if not found:
            return []
        by = f"; see --config.protocol.{protocol.name}.{entry}" if entry else ""
        return [f"Note: {self.experiment.method.name} {' and '.join(found)}{by}"]

    @property
    def gradients_per_epoch(self) -> float:
        """Return the gradients that use one epoch of data; fewer than batches where each is of several local steps."""
        batches, steps = self.experiment.data.batches_per_epoch, self.experiment.steps
        if not self.experiment.local.active:
            return batches
        made = local_steps.of_used(self.schedule, steps)
        return batches / float(made.mean() if made.size else steps.mean())

    @functools.cached_property
    def steps_of_rows(self) -> np.ndarray:
        """Return int[R], local steps of each gradient of the program."""
        return self.experiment.steps[self.program.worker[: self.program.num_rows]]

    def rule(self, learning_rate: np.ndarray | float, num_workers: int, *, unpacked: bool = False) -> rules.ServerRule:
        """Return the rule with the configuration's hyperparameters.

        The learning rate is that of each update, float64[U], or one for all; state is kept for `num_workers`.
        `unpacked` is as of `sgdlab.rules.compressed`.
        """
        experiment, table = self.experiment, np.atleast_1d(np.asarray(learning_rate, float))
        optimizer, workers = experiment.optimizer, self.schedule.num_workers
        given = {
            "learning_rate": rules.tabulated(table),
            "max_learning_rate": float(table.max()),
            "num_workers": num_workers,
            "workers": workers,
            "weight_decay": 0.0 if experiment.local.active else optimizer.weight_decay,  # then the workers have it
            "momentum": optimizer.momentum,
            "nesterov": optimizer.nesterov,
            "expected_gradients": expected_gradients(experiment, workers),
            "fragments": experiment.local.fragments,
            "steps": np.resize(experiment.steps, num_workers) if "steps" in experiment.rule.part.given else None,
        }
        # What the configuration leaves open is as the rule has it: momentum 0.9, or none.
        given = {name: value for name, value in given.items() if value is not None}
        made = experiment.rule.make(**given)
        if isinstance(made, optax.GradientTransformation):
            with said_of(f"--config.rule.kind={experiment.rule.name}: "):
                made = rules.server_rule(made)
        compression = experiment.compression
        return made if compression is None else compression.rule(made, num_workers, unpacked=unpacked)


def make_plan(config: ConfigDict, *, schedule: AnySchedule | None = None) -> Plan:
    """Check a configuration and make its learning rates and its schedule, unless one is given.

    Raises:
      UsageError: where an entry is impossible, or the run would not fit the memory; it names the flag.

    Example:
      >>> from configs import digits
      >>> config = digits.get_config()
      >>> config.epochs, config.method = 1.0, "synchronous"
      >>> print(make_plan(config).schedule)  # doctest: +ELLIPSIS
      Schedule: 8 workers, ... updates from ... gradients (0 dropped, 0 pending) in ... s, mean staleness 0
    """
    return planned(resolve(config), schedule=schedule)


def planned(experiment: Experiment, *, schedule: AnySchedule | None = None) -> Plan:
    """Make the schedule and the learning rates of an experiment, as `make_plan` does of its configuration."""
    data, workers = experiment.data, experiment.num_workers
    data.check(experiment.network, experiment.task, stream=experiment.computing.stream)
    batches, gradients = data.batches_per_epoch, experiment.num_gradients
    per_epoch = batches / experiment.mean_steps
    check_memory(experiment, gradients)
    speedup, seconds = 1.0, None
    if schedule is None:
        steps, twin = experiment.steps, synchronous_twin(experiment, gradients)
        make = functools.partial(_schedule, experiment, experiment.protocol, steps)
        ending = experiment.ending
        end = ending.seconds if ending.budget is None else ending.budget * twin.wall_clock()
        if end is not None:
            schedule = _until(experiment, make, end)
            check_local(experiment, schedule)
            gradients = _used(schedule)
            made = gradients * (float(local_steps.of_used(schedule, steps).mean()) if schedule.has_server else 1.0)
            experiment = dataclasses.replace(experiment, epochs=made / batches)
            per_epoch = gradients / experiment.epochs
        else:
            schedule = make(gradients)
            check_local(experiment, schedule)
            if steps.min() < steps.max():  # then it depends on who sends how often
                schedule, gradients = local_steps.with_enough_steps(make, schedule, steps, experiment.epochs * batches)
                per_epoch = gradients / experiment.epochs
                twin = synchronous_twin(experiment, gradients)
        seconds = _seconds_of(experiment, twin)
        speedup = schedule.gradients_per_second() / (twin.gradients_per_second() * experiment.cluster.pieces)
        if steps.max() > 1:
            speedup *= float(local_steps.of_used(schedule, steps).mean())
    nodes = _nodes(experiment, schedule)
    updates_per_epoch = per_epoch / nodes / schedule.gradients_per_update()
    table = rates(
        CONSTANT if experiment.rate_is_constant else experiment.rate,
        peak=_peak(experiment, schedule),
        num_workers=workers,
        epochs=experiment.epochs,
        updates_per_epoch=updates_per_epoch,
    )
    table = np.repeat(table, nodes)
    inner = experiment.inner_rate(batches / workers / updates_per_epoch)
    plan = Plan(experiment, schedule, table, gradients, speedup, seconds, inner)
    rule = plan.rule(table, schedule.num_workers)
    with said_of(f"--config.rule.kind={experiment.rule.name} with protocol {experiment.protocol.name}: "):
        replay.check_rule(schedule, rule)
    return plan


def synchronous_twin(experiment: Experiment, gradients: int) -> AnySchedule:
    """Return synchronous SGD's on the same cluster: of whole batches, each local step a gradient of its own."""
    steps, cluster = experiment.steps, experiment.cluster
    own = UsedPart(PROTOCOLS, "synchronous", {})
    if cluster.pieces > 1:
        experiment = dataclasses.replace(experiment, cluster=dataclasses.replace(cluster, pieces=1))
    return _schedule(experiment, own, np.ones_like(steps), math.ceil(gradients * steps.mean() / cluster.pieces))


def _seconds_of(experiment: Experiment, twin: AnySchedule) -> np.ndarray:
    """Return float64[N], mean seconds of a gradient of each worker, by the schedule of synchronous SGD."""
    return theory.seconds_per_gradient(twin) / experiment.cluster.pieces


def _until(experiment: Experiment, make: Callable[..., AnySchedule], seconds: float) -> AnySchedule:
    """Return the schedule of a run that ends at an instant; raises a `UsageError` where it would not fit the memory."""
    per_epoch = experiment.num_gradients / experiment.epochs

    def of(gradients: int) -> AnySchedule:
        check_memory(experiment, gradients)
        return make(gradients, per_epoch=per_epoch)

    with said_of("--config."):
        return runtimes.ending(of, seconds, first=experiment.num_gradients)


def _used(schedule: Any) -> int:  # AnySchedule
    """Return the gradients that a schedule uses; of several blocks, those of the one that uses fewest."""
    return int(schedule.used().sum(axis=0).min()) if schedule.has_server else schedule.num_gradients


def _schedule(
    experiment: Experiment, protocol: UsedPart, steps: np.ndarray, gradients: int, per_epoch: float | None = None
) -> AnySchedule:
    """Return a protocol's schedule on as few compute times as it needs."""
    given = {
        "num_gradients": gradients,
        "gradients_per_epoch": gradients / experiment.epochs if per_epoch is None else per_epoch,
        "seed": experiment.seeds.of("protocol"),
        "predictor": experiment.predictor_of,
        **costs_of(experiment, protocol),
    }

    def make(times: np.ndarray) -> Any:  # AnySchedule
        try:
            return protocol.make(runtimes=times, **given)
        except UsageError as error:
            if str(error.__cause__).startswith("runtimes["):  # the fault is not the protocol's
                raise UsageError(f"--config.cluster.kind={experiment.cluster.used.name}: {error.__cause__}") from error
            raise

    return runtimes.with_enough_rows(
        make,
        functools.partial(experiment.cluster.runtimes, steps),
        rows=experiment.cluster.rows(gradients, steps),
        name=f"protocol {protocol.name} of method {experiment.method.name}, with {counted(len(steps), 'worker')},",
    )


def check_local(experiment: Experiment, schedule: AnySchedule) -> None:
    """Raise a `UsageError` where local steps do not go with the protocol, whose schedule is given, or the rule.

    So it does where compressed messages do not.
    """
    local, stream = experiment.local, experiment.local.stream
    if (compression := experiment.compression) is not None:
        name = experiment.protocol.name
        compression.check(has_server=schedule.has_server, protocol=name, fragments=stream is not None)
    if local.active and not schedule.has_server:
        given = [f"local.{name}={value}" for name, value in experiment.source["local"].items() if value is not None]
        makes = f"method={experiment.source['method']} makes local steps"
        what = f"{', '.join(given)} must be left out" if given else makes
        raise UsageError(
            f"--config.{what}, which protocol {experiment.protocol.name} cannot have: without a server every node "
            "makes steps of its own already"
        )
    if stream is not None and not experiment.rule.facts.moves_fragments:
        raise UsageError(
            f"--config.local.fragments={stream.fragments}, overlap={stream.overlap} and mix={stream.mix} must go with "
            f"--config.method=streaming_diloco: the rule {experiment.rule.name} does not move one fragment at a time"
        )


def expected_gradients(experiment: Experiment, num_workers: int) -> float | None:
    """Return the gradients that an update of the protocol has where nothing goes wrong; None where it does not say."""
    expected = experiment.protocol.facts.expected_gradients
    return None if expected is None else expected(experiment.protocol.entries, num_workers)


def _counts_as(experiment: Experiment, schedule: AnySchedule) -> float:
    """Return the gradients that an update counts as for its learning rate: those that it averages, or by the rule.

    Gradients are of whole batches: M pieces of one count as one. A rule that averages workers makes no longer steps
    because a worker has sent more. One that divides by the expected number makes shorter steps where fewer come; were
    its rate lower too, steps would fall with the square.
    """
    counts_as = experiment.rule.facts.counts_as
    if counts_as is not None and schedule.has_server:
        return counts_as(schedule)
    expected = expected_gradients(experiment, schedule.num_workers)
    if expected is None or "expected_gradients" not in experiment.rule.part.given:
        expected = schedule.gradients_per_update()
    return expected / experiment.cluster.pieces


def _nodes(experiment: Experiment, schedule: AnySchedule) -> int:
    """Return how many steps of nodes are one update of their mean: N where the rate is that of a gradient.

    Every node's step moves the mean of the N nodes by an N-th part of itself. With N times the rate of a gradient, N
    steps move it as far as an update of synchronous SGD moves the parameters, and as N single steps do. With the rate
    of an update, each node's own step has it. 1 where there is a server, and where nodes explore by themselves.
    """
    together = not (schedule.has_server or experiment.protocol.facts.explores)
    return schedule.num_workers if experiment.rate.of == "gradient" and together else 1


def _peak(experiment: Experiment, schedule: AnySchedule) -> float:
    """Return the rate after warm-up, as the rule takes it: of an update, or of a gradient where it scales itself."""
    rate, of = experiment.optimizer.learning_rate, experiment.rate.of
    if experiment.local.server_learning_rate is not None:
        rate, of = experiment.local.server_learning_rate, "update"
    if not schedule.has_server:
        return rate * _nodes(experiment, schedule)
    counts, pieces = _counts_as(experiment, schedule), experiment.cluster.pieces
    if experiment.rule.facts.scales_by_num_gradients:  # by the number of pieces
        return rate / pieces if of == "gradient" else rate / (counts * pieces)
    return rate * counts if of == "gradient" else rate


def check_memory(experiment: Experiment, gradients: int) -> None:
    """Raise a `UsageError` where times and a schedule of so many gradients will not fit this machine's memory."""
    workers, protocol = experiment.cluster.workers.cluster, experiment.protocol
    blocks, averages = protocol.facts.blocks, protocol.facts.averages
    graph = graphs.Size(0) if averages is None else averages(protocol.entries, experiment.num_workers)
    with said_of(f"--config.protocol.{protocol.name}."):
        number = 1 if blocks is None else check_num_blocks(protocol.entries[blocks], blocks)
    times = 8 * (2 * gradients // workers + 2) * workers
    each = _BYTES_PER_GRADIENT * number + _BYTES_PER_EDGE * graph.edges
    rest = each * max(gradients, workers) + _BYTES_PER_WEIGHT * graph.matrices * workers**2
    limit = experiment.computing.limit(psutil.virtual_memory().available)
    if times + rest > limit:
        raise UsageError(
            f"--config.cluster.num_workers={workers} with {gradients:,} gradients would take about "
            f"{in_words(times + rest)} for times and schedule, and {in_words(limit)} are free; fewer workers or "
            "epochs take less, and --config.memory=GIB sets another limit"
        )


def in_words(count: float) -> str:
    """Return a number of bytes for a message.

    Example:
      >>> in_words(3 * 2**30)
      '3.0 GiB'
    """
    for unit, size in (("GiB", 2**30), ("MiB", 2**20)):
        if count >= size:
            return f"{count / size:,.1f} {unit}"
    return f"{count / 2**10:,.1f} KiB"
