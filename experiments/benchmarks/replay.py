"""Speed of event mode relative to a hand-written serial loop, and of the more expensive rules relative to ASGD."""

from collections.abc import Iterator

import sgdlab
from experiments.benchmarks import setup
from experiments.benchmarks.timing import Figure, at_least, interleaved, ratio, speeds

CASES = (
    # network, batch size, workers, gradients, least share of serial speed
    ("mlp", 32, 32, 2000, 0.85),
    ("conv", 32, 32, 1500, 0.9),
    ("conv", 128, 8, 400, 1.0),
)


def figures() -> Iterator[Figure]:
    """Speed of `asgd` relative to serial SGD, and of `gap_aware` and `dana` relative to `asgd`."""
    rate = {"learning_rate": setup.LEARNING_RATE}
    asgd = sgdlab.rules.asgd(**rate, momentum=setup.MOMENTUM)
    for kind, batch_size, workers, gradients, goal in CASES:
        program = sgdlab.replay.lower(setup.schedule(workers, gradients))
        functions = {
            "serial": setup.serial(setup.network(kind), setup.batches(batch_size), gradients),
            "with copies": setup.serial_with_copies(kind, batch_size, program),
            "event": setup.replayed(kind, batch_size, program, asgd),
            "wave": setup.replayed(kind, batch_size, program, asgd, mode="wave"),
        }
        seconds = interleaved(functions)
        shared = f"{kind}, B={batch_size}, N={workers}"
        for mode in ("event", "wave"):
            share = ratio(seconds["serial"], seconds[mode])
            wanted, detail = goal if mode == "event" else None, speeds(seconds, gradients, "serial", mode)
            yield at_least(f"asgd ({mode} mode) over serial SGD, {shared}", share, "x", wanted, detail)
        own = ratio(seconds["with copies"], seconds["event"])
        detail = speeds(seconds, gradients, "with copies", "event")
        yield Figure(f"asgd (event mode) over that loop with copies, {shared}", own, "x", detail=detail)
    for workers, names in ((32, ("gap_aware", "dana")), (128, ("dana",))):
        gradients = 2000
        program = sgdlab.replay.lower(setup.schedule(workers, gradients))
        rules = {
            "asgd": asgd,
            "gap_aware": sgdlab.rules.gap_aware(**rate),
            "dana": sgdlab.rules.dana(**rate, num_workers=workers),
        }
        seconds = interleaved({n: setup.replayed("mlp", 32, program, rules[n]) for n in ("asgd", *names)})
        for name in names:
            share = ratio(seconds["asgd"], seconds[name])
            detail = speeds(seconds, gradients, "asgd", name)
            yield at_least(f"{name} over asgd, mlp, B=32, N={workers}", share, "x", 0.7, detail)
