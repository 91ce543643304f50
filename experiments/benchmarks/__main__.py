"""Runs the benchmarks and prints each measurement with its goal and the absolute numbers.

    python -m experiments.benchmarks [schedule|compilation|convolution|replay|blocks|peers|wave|streaming|cutoff|...]
    python -m experiments.benchmarks kills [--kills=50]
    python -m experiments.benchmarks soak [--gradients=1000000]
    python -m experiments.benchmarks planted [--draws=200] [--seed=0]
    python -m experiments.benchmarks advise what_if watch learning workers
    python -m experiments.benchmarks live [--transport=ray]
    python -m experiments.benchmarks accelerator [--help]
    python -m experiments.benchmarks.faults [--only=WORDS]

Without a name the suites of the first line run; the others take minutes. Values are medians of 9 interleaved rounds in
one process. Ratios are ratios of speeds: 0.9 means 90 % of the gradients per second of the program that it is compared
to. `accelerator` has flags of its own, and leaves a file and a page.
"""

import argparse
import functools
import platform
import sys
from collections.abc import Callable, Iterator, Sequence

import jax

from experiments.benchmarks import (
    advise,
    blocks,
    compilation,
    convolution,
    cutoff,
    kills,
    learning,
    live,
    live_transport,
    peers,
    planted,
    processes,
    replay,
    schedule,
    soak,
    streaming,
    watch,
    wave,
    what_if,
    workers,
)
from experiments.benchmarks.accelerator import command
from experiments.benchmarks.timing import Figure

SUITES: dict[str, Callable[[], Iterator[Figure]]] = {
    "schedule": schedule.figures,
    "compilation": compilation.figures,  # before another suite compiles the same programs
    "convolution": convolution.figures,
    "replay": replay.figures,
    "blocks": blocks.figures,
    "peers": peers.figures,
    "wave": wave.figures,
    "streaming": streaming.figures,
    "cutoff": cutoff.figures,
    "processes": processes.figures,
    "live_transport": live_transport.figures,
}

LONG_SUITES: dict[str, Callable[[], Iterator[Figure]]] = {
    "advise": advise.figures,
    "kills": kills.figures,
    "soak": soak.figures,
    "learning": learning.figures,
    "live": live.figures,
    "workers": workers.figures,
    "planted": planted.figures,
    "what_if": what_if.figures,
    "watch": watch.figures,
}
"""Suites that run only where they are named."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the named suites, or all that are short."""
    suites = SUITES | LONG_SUITES
    parser = argparse.ArgumentParser(prog="python -m experiments.benchmarks", allow_abbrev=False)
    parser.add_argument("suites", nargs="*", metavar="suite", help=", ".join([*suites, "accelerator"]))
    parser.add_argument("--kills", type=int, default=kills.KILLS, metavar="NUMBER", help="of processes, in `kills`")
    parser.add_argument("--gradients", type=int, default=soak.GRADIENTS, metavar="NUMBER", help="of the run, in `soak`")
    parser.add_argument("--transport", choices=live.TRANSPORTS, default="processes", help="of the workers, in `live`")
    parser.add_argument("--draws", type=int, default=planted.DRAWS, metavar="NUMBER", help="a cause, in `planted`")
    parser.add_argument("--seed", type=int, default=0, metavar="NUMBER", help="of the draws, in `planted`")
    given = parser.parse_args(arguments)
    for name in given.suites:
        if name not in suites:
            parser.error(f"{name!r} must be one of {', '.join(suites)}")
    if given.kills < 1:
        parser.error(f"--kills={given.kills} must be at least 1")
    if given.draws < 1:
        parser.error(f"--draws={given.draws} must be at least 1")
    if given.gradients < soak.FEWEST:
        parser.error(
            f"--gradients={given.gradients} must be at least {soak.FEWEST}, {soak.FEWEST // soak.EVALUATIONS} "
            "for each evaluation"
        )
    suites["kills"] = functools.partial(kills.figures, given.kills)
    suites["live"] = functools.partial(live.figures, given.transport)
    suites["planted"] = functools.partial(planted.figures, given.draws, given.seed)
    suites["soak"] = functools.partial(soak.figures, given.gradients)
    print(f"{platform.machine()}, Python {platform.python_version()}, jax {jax.__version__}, {jax.devices()}")
    for name in given.suites or SUITES:
        for figure in suites[name]():
            print(figure, flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["accelerator"]:
        sys.exit(command.main(sys.argv[2:]))
    main()
