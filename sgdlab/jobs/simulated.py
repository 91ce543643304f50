"""Schedules on a configuration's cluster: that of its protocol, and that of synchronous SGD beside it."""

import functools
import math
from typing import Any

import numpy as np
from ml_collections import ConfigDict

from sgdlab import graphs, runtimes
from sgdlab.errors import UsageError, said_of
from sgdlab.jobs.local_steps import of_used
from sgdlab.jobs.methods import Choice
from sgdlab.jobs.run_times import local_in, num_workers, rows_of, steps_of, times_fn
from sgdlab.jobs.seeds import seed_of
from sgdlab.peer_schedule import AnySchedule
from sgdlab.registry import PREDICTORS, PROTOCOLS
from sgdlab.replay.blocks import check_num_blocks


def schedule(config: ConfigDict, law: Any, protocol: tuple[str, Any], gradients: int, steps: np.ndarray) -> AnySchedule:
    """A protocol, with its entries, on as few run-times as it needs."""
    given = {
        "num_gradients": gradients,
        "gradients_per_epoch": gradients / config.epochs,
        "seed": seed_of(config, "protocol"),
        "predictor": functools.partial(predictor_of, config),
    }
    # A trace that ends is taken whole at first: it may be long enough, though the guess at what is needed is longer.
    rows = rows_of(law, steps, -(-2 * gradients // num_workers(config)) + 2)
    return runtimes.with_enough_rows(
        lambda times: PROTOCOLS.make(*protocol, runtimes=times, **given), times_fn(config, law, steps), rows=rows
    )


def synchronous_twin(config: ConfigDict, law: Any, gradients: int) -> AnySchedule:
    """Synchronous SGD's on the same cluster; where a message is several local steps, each is a gradient of its own.

    Args:
      config: the configuration.
      law: its cluster.
      gradients: that its own schedule uses.
    """
    steps = steps_of(config)
    return schedule(config, law, ("synchronous", {}), math.ceil(gradients * steps.mean()), np.ones_like(steps))


def speedup(own: AnySchedule, twin: AnySchedule, steps: np.ndarray) -> float:
    """Steps of used gradients per second, over those of synchronous SGD on the same cluster.

    Args:
      own: the schedule.
      twin: synchronous SGD's.
      steps: int[N], local steps of each worker's gradients.
    """
    found = own.gradients_per_second() / twin.gradients_per_second()
    return found if steps.max() == 1 else found * float(of_used(own, steps).mean())


def check_local(config: ConfigDict, choice: Choice, schedule: AnySchedule) -> None:
    """Raises a `UsageError` where local steps do not go with the protocol or the rule."""
    local = local_in(config)
    if local.active and not schedule.has_server:
        given = [f"local.{name}={value}" for name, value in config.get("local", {}).items() if value is not None]
        what = f"{', '.join(given)} must be left out" if given else f"method={config.method} makes local steps"
        raise UsageError(
            f"--config.{what}, which protocol {choice.protocol.name} cannot have: without a server every node makes "
            "steps of its own already"
        )
    if local.streams and not choice.rule.facts.get("moves_fragments", False):
        raise UsageError(
            f"--config.local.fragments={local.fragments}, overlap={local.overlap} and mix={local.mix} must go with "
            f"--config.method=streaming_diloco: the rule {choice.rule.name} does not move one fragment at a time"
        )


def averages(choice: Choice, num_workers: int) -> graphs.Size:
    """The graph on which nodes average; nothing where a protocol has none."""
    size = choice.protocol.facts.get("averages")
    return graphs.Size(0) if size is None else size(choice.entries, num_workers)


def num_blocks(choice: Choice) -> int:
    """Parameter blocks of the protocol's schedules, which a compiled replay must bear."""
    name = choice.protocol.facts.get("blocks")
    if name is None:
        return 1
    with said_of(f"--config.protocol.{choice.protocol.name}."):
        return check_num_blocks(choice.entries[name], name)


def predictor_of(config: ConfigDict, times: np.ndarray) -> Any:
    """The configuration's predictor, for a run of these run-times, float64[T, N] seconds."""
    kind = config.predictor.kind
    return PREDICTORS.make(kind, config.predictor[kind], runtimes=times)
