"""Speed of replay of gossip and elastic averaging relative to a hand-written serial loop."""

from collections.abc import Callable, Iterator

import sgdlab
from experiments.benchmarks import setup
from experiments.benchmarks.timing import Figure, at_least, interleaved, ratio, speeds

NODES, GRADIENTS, GOAL = 16, 1000, 0.9


def figures() -> Iterator[Figure]:
    """Yield gradients per second of peers, each with its own optimiser, relative to serial SGD."""
    runtimes = sgdlab.cluster.gamma(num_workers=NODES, num_gradients=90, seed=0)
    schedules = {
        "pull gossip": sgdlab.protocols.gossip(runtimes, num_gradients=GRADIENTS, seed=0),
        "push gossip": sgdlab.protocols.gossip(runtimes, kind="push", num_gradients=GRADIENTS, seed=0),
        "pull gossip in rounds": sgdlab.protocols.gossip(runtimes, clock="rounds", num_gradients=GRADIENTS, seed=0),
        "elastic averaging": sgdlab.protocols.elastic_averaging(runtimes, num_gradients=GRADIENTS),
    }
    functions = {"serial": setup.serial(setup.network("conv"), setup.batches(32), GRADIENTS)}
    for name, schedule in schedules.items():
        functions[name] = _replayed(sgdlab.replay.lower(schedule))
    functions["pull gossip, wave"] = _replayed(sgdlab.replay.lower(schedules["pull gossip"]), "wave")
    seconds = interleaved(functions)
    for name in list(functions)[1:]:
        share = ratio(seconds["serial"], seconds[name])
        goal, detail = None if "wave" in name else GOAL, speeds(seconds, GRADIENTS, "serial", name)
        yield at_least(f"{name} over serial SGD, conv, B=32, p={NODES}", share, "x", goal, detail)


def _replayed(program: sgdlab.replay.PeerProgram, mode: str = "event") -> Callable[[], object]:
    parts, rule = setup.network("conv"), sgdlab.rules.nag_asgd(learning_rate=setup.LEARNING_RATE)
    batches = setup.batches(32)
    return lambda: sgdlab.replay.run(program, rule, parts, batches, mode=mode).params
