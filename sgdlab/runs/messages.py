"""The costs of a run: its transport and its failures, as its protocol takes them."""

import dataclasses
from typing import Any

import jax
import numpy as np

from sgdlab.errors import UsageError
from sgdlab.failures.outages import Outages
from sgdlab.runs.compression import names_with
from sgdlab.runs.experiment import Experiment
from sgdlab.runs.methods import UsedPart
from sgdlab.schedule import Schedule
from sgdlab.transports.family import Sizes


def costs_of(experiment: Experiment, protocol: UsedPart) -> dict[str, Any]:
    """Return the arguments `transport` and `outages` of a protocol, the run's own or another on the same cluster.

    There are none where nothing costs or fails.

    Raises:
      UsageError: where the protocol does not take them, or they refuse an entry; it names the flag.

    Example:
      >>> from configs import digits
      >>> from sgdlab.runs.experiment import resolve
      >>> config = digits.get_config()
      >>> config.transport.kind = "ethernet_10g"
      >>> found = resolve(config)
      >>> costs_of(found, found.protocol)["transport"].gradient_bytes  # 9,930 parameters of 4 bytes
      39720.0
    """
    given = {}
    for name, used in {"transport": experiment.transport, "outages": experiment.failures}.items():
        if used is None:
            continue
        if name not in protocol.part.given:
            why = "its nodes have no server" if protocol.facts.peers else "it is no policy"
            flag = f"--config.{used.registry.family}.kind={used.name}"
            raise UsageError(f"{flag} must be left out with protocol {protocol.name}: {why}")
        of_run: dict[str, Any] = {"num_workers": experiment.num_workers, "seed": experiment.seeds.of("failures")}
        if "sizes" in used.part.given and None in map(used.entries.get, ("gradient_bytes", "parameter_bytes")):
            of_run["sizes"] = sizes_of(experiment)
        made = used.make(**of_run)
        if name == "transport" and made.collective:
            compression = experiment.compression
            if compression is not None and not compression.channel.compressor.adds_up:
                raise UsageError(
                    f"--config.compression.kind={compression.used.name} must be one of {names_with('adds_up')} with "
                    f"--config.transport.kind={used.name}: an all-reduce adds messages up on their way"
                )
        if name == "transport" and (pieces := experiment.cluster.pieces) > 1:  # which are sent as one message
            of_piece = {
                "gradient_bytes": made.gradient_bytes / pieces,
                "receive_seconds": made.receive_seconds / pieces,
            }
            made = dataclasses.replace(made, **of_piece)
        given[name] = made
    return given


def sizes_of(experiment: Experiment) -> Sizes:
    """Return the bytes of a run's messages: all parameters, or a fragment of them, in their dtype; as they are sent."""
    from sgdlab.runs.tasks import outlined  # noqa: PLC0415 (Flax, which no other plan needs)

    arrays = jax.tree.leaves(outlined(experiment))
    sent = whole = float(sum(array.size * np.dtype(array.dtype).itemsize for array in arrays))
    if experiment.compression is not None:
        sent = experiment.compression.bytes_of(arrays)
    return Sizes(sent / experiment.local.fragments, whole / experiment.local.fragments)


def after_losses(schedule: Schedule, outages: Outages) -> np.ndarray:
    """Return whether the worker of each gradient was lost after its gradient before that was used, bool[G].

    Args:
      schedule: with gradients of one block.
      outages: of its workers; nobody is lost who pauses, or whose whole job restarts.

    Example:
      >>> from sgdlab import protocols
      >>> schedule = protocols.asynchronous(np.ones((4, 1)), num_gradients=4)
      >>> after_losses(schedule, Outages([iter([(1.5, 2.0)])])).tolist()
      [False, False, True, False]
    """
    used, found = schedule.used().any(axis=1), np.zeros(schedule.num_gradients, bool)
    if outages.pauses or outages.checkpoints is not None:
        return found
    for worker in range(schedule.num_workers):
        own = np.flatnonzero((schedule.worker == worker) & used)
        own = own[np.argsort(schedule.started[own], kind="stable")]
        back = [up for _, up in outages.of_worker(worker, end=schedule.wall_clock())]
        found[own[1:]] = np.diff(np.searchsorted(back, schedule.started[own], side="right")) > 0
    return found
