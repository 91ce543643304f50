"""Speed of replay with several parameter blocks relative to one block, on the same run-times."""

import functools
from collections.abc import Iterator

import sgdlab
from experiments.benchmarks import setup
from experiments.benchmarks.timing import Figure, at_least, interleaved, ratio, speeds

WORKERS, GRADIENTS, GOAL = 32, 1000, 0.75


def figures() -> Iterator[Figure]:
    """Four blocks that are read and pushed together, as in the one-block schedule, and four read one by one."""
    runtimes = sgdlab.cluster.gamma(num_workers=WORKERS, num_gradients=60, seed=0)
    rule = sgdlab.rules.asgd(learning_rate=setup.LEARNING_RATE, momentum=setup.MOMENTUM)
    protocols = {
        "one block": sgdlab.protocols.asynchronous,
        "4 blocks": functools.partial(sgdlab.protocols.layerwise, pushes="end"),
        "4 layers": functools.partial(sgdlab.protocols.layerwise, reads="forward"),
    }
    for kind in ("mlp", "conv"):
        functions = {}
        for name, protocol in protocols.items():
            program = sgdlab.replay.lower(protocol(runtimes, num_gradients=GRADIENTS))
            functions[name] = setup.replayed(kind, 32, program, rule)
        seconds = interleaved(functions)
        for name in ("4 blocks", "4 layers"):
            share = ratio(seconds["one block"], seconds[name])
            what, goal = ("of one schedule", GOAL) if name == "4 blocks" else ("with schedules of their own", None)
            detail = speeds(seconds, GRADIENTS, "one block", name)
            yield at_least(f"{name} {what} over one, {kind}, N={WORKERS}", share, "x", goal, detail)
