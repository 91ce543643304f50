"""Runs the benchmarks and prints each measurement with its goal and the absolute numbers.

    python -m experiments.benchmarks [schedule|compilation|replay|wave|processes]
    python -m experiments.benchmarks planted [--draws=200] [--seed=0]
    python -m experiments.benchmarks advise what_if watch workers crossings
    python -m experiments.benchmarks live [--transport=ray|joined]
    python -m experiments.benchmarks resume [--gradients=1000000]
    python -m experiments.benchmarks joined
    python -m experiments.benchmarks accelerator [--help]
    python -m experiments.benchmarks.faults [--only=WORDS]
    python -m experiments.benchmarks schedule replay --store; python -m experiments.benchmarks history

Without a name the suites of the first line run; the others take minutes. Values are medians of 9 interleaved rounds in
one process. Ratios are ratios of speeds: 0.9 means 90 % of the gradients per second of the program that it is compared
to. `accelerator` has flags of its own, and leaves a file and a page. `--store` appends ratios, and figures with a goal,
to `experiments/results/benchmarks.csv`; `history` draws that table by commit.
"""

import argparse
import importlib
import platform
import sys
from collections.abc import Sequence

import jax

from experiments.benchmarks import history, live, planted, resume
from experiments.benchmarks.accelerator import command

# `compilation` stands before what compiles the same programs.
SHORT = ("schedule", "compilation", "replay", "wave", "processes")
LONG = ("advise", "crossings", "joined", "live", "resume", "workers", "planted", "what_if", "watch")
"""Suites, each a module, that run by default, and those that run only where they are named."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the named suites, or all that are short."""
    suites = SHORT + LONG
    parser = argparse.ArgumentParser(prog="python -m experiments.benchmarks", allow_abbrev=False)
    parser.add_argument("suites", nargs="*", metavar="suite", help=", ".join([*suites, "accelerator", "history"]))
    parser.add_argument(
        "--store", action="store_true", help="append ratios, and figures with a goal, to the stored table"
    )
    parser.add_argument(
        "--transport", choices=live.TRANSPORTS, default="processes", help="transport of the workers, in `live`"
    )
    parser.add_argument(
        "--draws", type=int, default=planted.DRAWS, metavar="NUMBER", help="draws a cause, in `planted`"
    )
    parser.add_argument("--seed", type=int, default=0, metavar="NUMBER", help="seed of the draws, in `planted`")
    parser.add_argument(
        "--gradients", type=int, default=resume.MANY, metavar="NUMBER", help="gradients before a resume, in `resume`"
    )
    given = parser.parse_args(arguments)
    if given.suites == ["history"]:
        print(f"Written: {history.draw(history.read())}")
        return
    made_by = history.commit() if given.store else None
    if given.store and made_by is None:
        parser.error("--store needs a committed tree: what is measured must be found again")
    for name in given.suites:
        if name not in suites:
            parser.error(f"{name!r} must be one of {', '.join(suites)}")
    if given.draws < 1:
        parser.error(f"--draws={given.draws} must be at least 1")
    own = {"live": (given.transport,), "planted": (given.draws, given.seed), "resume": (given.gradients,)}
    print(f"{platform.machine()}, Python {platform.python_version()}, jax {jax.__version__}, {jax.devices()}")
    for name in given.suites or SHORT:
        measured = []
        for figure in importlib.import_module(f"experiments.benchmarks.{name}").figures(*own.get(name, ())):
            print(figure, flush=True)
            measured.append(figure)
        if made_by is not None:
            history.append(history.rows_of(name, measured, made_by))


if __name__ == "__main__":
    if sys.argv[1:2] == ["accelerator"]:
        sys.exit(command.main(sys.argv[2:]))
    main()
