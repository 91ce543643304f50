"""The protocols as a configuration sets them: whom to wait for until enough gradients have been used."""

import dataclasses
import functools
from collections.abc import Callable

import numpy as np
from ml_collections import ConfigDict

from sgdlab import cluster, protocols
from sgdlab.cutoff import Deadline, DeepMarkov, Elfving, Oracle, Predictor, RunningMean, Static, TrainedModel
from sgdlab.errors import UsageError
from sgdlab.peer_schedule import PeerSchedule
from sgdlab.schedule import Schedule
from sgdlab.seeds import seed_of

AnySchedule = Schedule | PeerSchedule
Protocol = Callable[[np.ndarray], AnySchedule]
"""Run-times [T, N] -> a schedule."""


def asynchronous(config: ConfigDict, num_gradients: int) -> Protocol:
    """Nobody waits."""
    del config
    return functools.partial(protocols.asynchronous, num_gradients=num_gradients)


def layerwise(config: ConfigDict, num_gradients: int) -> Protocol:
    """Nobody waits, and layers are read and pushed one by one."""
    wait = config.protocol
    return functools.partial(
        protocols.asynchronous,
        num_gradients=num_gradients,
        num_blocks=wait.num_blocks,
        reads=wait.reads,
        pushes=wait.pushes,
        backward_share=wait.backward_share,
    )


def synchronous(config: ConfigDict, num_gradients: int) -> Protocol:
    """Everybody waits for everybody."""
    del config
    return _rounds(protocols.synchronous, num_gradients)


def backup_workers(config: ConfigDict, num_gradients: int) -> Protocol:
    """Some are not waited for."""
    return _rounds(functools.partial(protocols.backup_workers, backups=config.cluster.backups), num_gradients)


def timeout(config: ConfigDict, num_gradients: int) -> Protocol:
    """Some are waited for, then a while longer."""
    wait = config.protocol
    protocol = functools.partial(
        protocols.timeout, at_least=_count(wait.push_at_least), seconds=wait.push_timeout, interrupt=wait.interrupt
    )
    return _rounds(protocol, num_gradients)


def partial(config: ConfigDict, num_gradients: int) -> Protocol:
    """Servers wait for some workers, workers for some servers."""
    wait, delays = config.protocol, config.cluster.delays
    model = cluster.MessageDelays(delays.base_seconds, delays.base_shape, delays.late_share, delays.late_seconds)
    protocol = functools.partial(
        protocols.partial,
        num_servers=wait.num_blocks,
        push_at_least=_count(wait.push_at_least),
        push_timeout=wait.push_timeout,
        pull_at_least=_count(wait.pull_at_least),
        pull_timeout=wait.pull_timeout,
        pull_delays=model,
        keep_newer=wait.keep_newer,
        seed=seed_of(config, "delays"),
    )
    return _rounds(protocol, num_gradients)


def softsync(config: ConfigDict, num_gradients: int) -> Protocol:
    """Updates of several gradients of any age."""
    size = config.protocol.gradients_per_update
    return functools.partial(protocols.softsync, gradients_per_update=size, num_gradients=num_gradients)


def bounded_staleness(config: ConfigDict, num_gradients: int) -> Protocol:
    """The fastest wait for the slowest."""
    return functools.partial(protocols.bounded_staleness, bound=config.protocol.bound, num_gradients=num_gradients)


def ringmaster(config: ConfigDict, num_gradients: int) -> Protocol:
    """Gradients that are too old are ignored; by default those older than the number of workers."""
    limit = config.protocol.max_delay or config.cluster.num_workers
    return functools.partial(
        protocols.ringmaster, max_delay=limit, interrupt=config.protocol.interrupt, num_gradients=num_gradients
    )


def rennala(config: ConfigDict, num_gradients: int) -> Protocol:
    """Updates of several fresh gradients of any worker."""
    return functools.partial(protocols.rennala, batch=config.protocol.gradients_per_update, num_gradients=num_gradients)


def simulated_staleness(config: ConfigDict, num_gradients: int) -> Protocol:
    """The first worker alone, whose gradients are late; by default as late as those of the number of workers."""
    wait = config.protocol
    average = config.cluster.num_workers - 1.0 if wait.average_staleness is None else wait.average_staleness
    schedule = protocols.simulated_staleness(
        num_gradients,
        average=average,
        ramp_epochs=wait.ramp_epochs,
        gradients_per_epoch=num_gradients / config.epochs,
    )

    def on_clock(runtimes: np.ndarray) -> Schedule:
        if runtimes.shape[0] < num_gradients:
            raise protocols.NotEnoughRuntimes(f"{num_gradients} gradients need as many rows", num_gradients)
        ends = np.cumsum(runtimes[:num_gradients, 0])
        started = np.concatenate([[0.0], ends[:-1]])
        return dataclasses.replace(schedule, started=started, arrived=ends[:, None], applied=ends[:, None])

    return on_clock


def cutoff(config: ConfigDict, num_gradients: int) -> Protocol:
    """Some are not waited for: as many as a predictor says, update by update."""
    wait = config.protocol

    def protocol(runtimes: np.ndarray) -> Schedule:
        predictor = PREDICTORS[wait.predictor](config, runtimes)
        schedule, _ = protocols.cutoff(
            runtimes, predictor, window=wait.warm_up, objective=wait.objective, seed=seed_of(config, "predictions")
        )
        return schedule

    return _rounds(protocol, num_gradients)


def _deep_markov(config: ConfigDict, runtimes: np.ndarray) -> Predictor:
    del runtimes
    try:
        return _trained(config.protocol.model)
    except ValueError as error:
        raise UsageError(f"--config.protocol.model: {error}") from error


@functools.cache
def _trained(path: str) -> DeepMarkov:
    return DeepMarkov(TrainedModel.load(path))


PREDICTORS: dict[str, Callable[[ConfigDict, np.ndarray], Predictor]] = {
    "running_mean": lambda config, runtimes: RunningMean(window=config.protocol.predictor_window),
    "elfving": lambda config, runtimes: Elfving(window=config.protocol.predictor_window),
    "deadline": lambda config, runtimes: Deadline(
        deviations=config.protocol.deviations, window=config.protocol.predictor_window
    ),
    "static": lambda config, runtimes: Static(config.protocol.cutoff),
    "deep_markov": _deep_markov,
    "oracle": lambda config, runtimes: Oracle(np.concatenate([runtimes[config.protocol.warm_up :], runtimes[-1:]])),
}
"""Predictors of the cutoff by name: configuration and run-times (which only the oracle looks at) -> predictor."""


def gossip(config: ConfigDict, num_gradients: int, *, kind: str) -> Protocol:
    """No server: nodes average with each other."""
    wait = config.protocol
    return functools.partial(
        protocols.gossip,
        kind=kind,
        period=wait.period,
        synchronous=wait.rounds,
        num_gradients=num_gradients,
        seed=seed_of(config, "partners"),
    )


def elastic_averaging(config: ConfigDict, num_gradients: int) -> Protocol:
    """No server: nodes average with a center."""
    wait = config.protocol
    return functools.partial(
        protocols.elastic_averaging,
        period=wait.period,
        beta=wait.beta,
        synchronous=wait.rounds,
        num_gradients=num_gradients,
    )


def _count(value: float) -> int | float:
    """A flag's 3.0 is three of them, as a share is at most 1."""
    return int(value) if value > 1 and value == int(value) else value


def _rounds(protocol: Protocol, num_gradients: int) -> Protocol:
    """As many updates, one row of run-times each, as use so many gradients."""

    def until(runtimes: np.ndarray) -> Schedule:
        least = -(-num_gradients // runtimes.shape[1])  # updates, if every worker is in time in each
        if runtimes.shape[0] < least:
            raise protocols.NotEnoughRuntimes(f"{num_gradients} gradients need {least} rows of runtimes", least)
        schedule = protocol(runtimes)
        enough = _updates_that_use(schedule, num_gradients)
        if enough is None:
            used = max(int(schedule.used().any(axis=1).sum()), 1)
            rows = max(runtimes.shape[0] + 1, -(-runtimes.shape[0] * num_gradients // used))
            raise protocols.NotEnoughRuntimes(f"{num_gradients} gradients need about {rows} rows of runtimes", rows)
        return protocol(runtimes[:enough])

    return until


def _updates_that_use(schedule: Schedule, num_gradients: int) -> int | None:
    """How many updates have used so many gradients, by the block that has them last; None where all have not."""
    longest = 0
    for block in range(schedule.num_blocks):
        entered = schedule.update[schedule.used()[:, block], block]
        if entered.size < num_gradients:
            return None
        longest = max(longest, int(np.sort(entered)[num_gradients - 1]) + 1)
    return longest
