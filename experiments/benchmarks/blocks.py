"""Speed of replay with several parameter blocks relative to one block, on the same run-times."""

from collections.abc import Iterator

import sgdlab
from experiments.benchmarks import setup
from experiments.benchmarks.timing import Figure, at_least, interleaved, ratio, speeds

WORKERS, GRADIENTS, GOAL = 32, 1000, 0.75


def figures() -> Iterator[Figure]:
    """Four blocks that are read and pushed together, as in the one-block schedule, and four read one by one."""
    runtimes = sgdlab.cluster.gamma(num_workers=WORKERS, num_gradients=60, seed=0)
    rule = sgdlab.rules.asgd(learning_rate=setup.LEARNING_RATE, momentum=setup.MOMENTUM)
    options = {
        "one block": {},
        "4 blocks": {"num_blocks": 4},
        "4 layers": {"num_blocks": 4, "reads": "forward", "pushes": "backward"},
    }
    for kind in ("mlp", "conv"):
        functions = {}
        for name, option in options.items():
            schedule = sgdlab.protocols.asynchronous(runtimes, num_gradients=GRADIENTS, **option)
            functions[name] = setup.replayed(kind, 32, sgdlab.replay.lower(schedule), rule)
        seconds = interleaved(functions)
        for name in ("4 blocks", "4 layers"):
            share = ratio(seconds["one block"], seconds[name])
            what, goal = ("of one schedule", GOAL) if name == "4 blocks" else ("with schedules of their own", None)
            detail = speeds(seconds, GRADIENTS, "one block", name)
            yield at_least(f"{name} {what} over one, {kind}, N={WORKERS}", share, "x", goal, detail)
