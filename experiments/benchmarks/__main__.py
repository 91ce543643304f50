"""The measured figures, each beside the one it is compared to: median of 9 interleaved rounds of one run.

    python -m experiments.benchmarks [schedule|compilation|replay|blocks|peers|wave|cutoff ...]

Ratios are of speeds: 0.9 means nine tenths of the gradients per second of what is compared to.
"""

import platform
import sys
from collections.abc import Callable, Iterator

import jax

from experiments.benchmarks import blocks, compilation, cutoff, peers, replay, schedule, wave
from experiments.benchmarks.timing import Figure

SUITES: dict[str, Callable[[], Iterator[Figure]]] = {
    "schedule": schedule.figures,
    "compilation": compilation.figures,  # before anything else has compiled the same
    "replay": replay.figures,
    "blocks": blocks.figures,
    "peers": peers.figures,
    "wave": wave.figures,
    "cutoff": cutoff.figures,
}


def main(names: list[str]) -> None:
    """Runs the named suites, or all."""
    for name in names:
        if name not in SUITES:
            print(f"error: {name!r} must be one of {', '.join(SUITES)}", file=sys.stderr)
            sys.exit(2)
    print(f"{platform.machine()}, Python {platform.python_version()}, jax {jax.__version__}, {jax.devices()}")
    for name in names or SUITES:
        for figure in SUITES[name]():
            print(figure, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
