"""Tries all that a live run must survive, on real processes, and prints what became of it.

    python -m experiments.benchmarks.faults [--transport=ray] [--only=killed] [--storm_seconds=30] [--json=faults.json]

    python -m experiments.benchmarks.faults --machines=3 [--transport=ray] [--only=partition] [--storm_seconds=60]

It takes about ten minutes on two cores, five of which are the storm. The exit code is 1 if something was not survived.
With --machines the server and its workers are on so many machines, network namespaces that are made by root alone, and
workers join by gRPC with TLS; power, network and processes of whole machines fail. Where they cannot be made, a line
says why, and the exit code is 2.
"""

import argparse
import json
import pathlib
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence

import psutil

from experiments.benchmarks.faults import clusters, namespaces, runs, scenarios, servers, transports, work
from experiments.benchmarks.faults.runs import Outcome
from experiments.benchmarks.faults.scenario import WORKERS

SECONDS = 0.1
"""Mean time of a gradient."""
_FILES = 16
HEADER = (
    f"{'scenario':<54} {'protocol':<24} {'survived':<8} {'recovery':>8} {'gradients':>9} {'updates lost':>12} "
    f"{'ledger':>6} {'versions':>8} {'staleness':>9} {'replay':>8} {'left':>4}\n"
    f"{'':<54} {'':<24} {'':<8} {'s':>8} {'lost':>9} {'or doubled':>12} {'':>6} {'':>8} {'':>9} {'differs':>8}"
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Tries the scenarios; returns the exit code."""
    given = _parsed(arguments)
    print(HEADER, flush=True)
    begin, outcomes = time.monotonic(), []
    found = tried_on_machines if given.machines else tried
    for outcome in found(given.transport, given.only, given.storm_seconds, *[given.machines] * bool(given.machines)):
        outcomes.append(outcome)
        print(line(outcome), flush=True)
    good = sum(outcome.survived for outcome in outcomes)
    print(f"{good} of {len(outcomes)} survived, over {given.transport}; {time.monotonic() - begin:.0f} s")
    if given.json:
        found = {"transport": given.transport, "outcomes": [outcome._asdict() for outcome in outcomes]}
        pathlib.Path(given.json).write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return 0 if good == len(outcomes) else 1


def tried(kind: str, only: str, storm_seconds: float) -> Iterator[Outcome]:
    """Yield the outcome of each scenario, as soon as it is known; at last, whether processes of workers are left.

    Args:
      kind: of the transport.
      only: words of the scenarios' names; '' means all.
      storm_seconds: how long the storm lasts.
    """
    with tempfile.TemporaryDirectory(prefix="sgdlab-faults-") as temporary:
        folder = pathlib.Path(temporary).resolve()
        chosen = [scenario for scenario in scenarios.of_workers(storm_seconds) if only in scenario.name]
        if chosen:
            work.store_data(folder)
            pids: set[int] = set()
            files = psutil.Process().num_fds()
            with transports.made(kind, folder, SECONDS, WORKERS) as transport:
                for scenario in chosen:
                    if kind in scenario.without:
                        print(f"{scenario.name:<54} not over {kind}: {scenario.without[kind]}", flush=True)
                        continue
                    yield runs.observed(scenario, transport, folder, seconds=SECONDS, workers=WORKERS, pids=pids)
            left = runs.left(pids)
            # Ray keeps what it has opened; JAX opens a few when it compiles.
            more = psutil.Process().num_fds() - files if kind == "processes" else 0
            wrong = f"{more} more files are open than before" if more > _FILES else ""
            name = "all workers, when the transport is closed"
            yield Outcome(name, "", not left and not wrong, left=left, wrong=wrong, notes={"files": more})
        for number, scenario in enumerate(each for each in scenarios.of_servers() if only in each.name):
            own = folder / f"server{number}"
            own.mkdir()
            yield servers.observed(scenario, own, transport=kind, seconds=SECONDS, workers=WORKERS)


def tried_on_machines(kind: str, only: str, storm_seconds: float, machines: int) -> Iterator[Outcome]:
    """Yield the outcome of each scenario over so many machines; arguments are as of `tried`."""
    for scenario in scenarios.of_machines(kind, storm_seconds):
        if only in scenario.name:
            with tempfile.TemporaryDirectory(prefix="faults") as folder:
                place = pathlib.Path(folder).resolve()
                yield clusters.observed(scenario, place, machines=machines, transport=kind, seconds=SECONDS)


def line(outcome: Outcome) -> str:
    """Return an outcome as a line of the table; what is wrong follows in lines of its own."""
    said = {True: "yes", False: "NO"}
    recovery = "" if outcome.recovery is None else f"{outcome.recovery:.1f}"
    difference = "" if outcome.difference is None else f"{outcome.difference:.3g}"
    text = (
        f"{outcome.scenario:<54} {outcome.policy:<24} {said[outcome.survived]:<8} {recovery:>8} "
        f"{outcome.gradients_lost:>9} {f'{outcome.updates_lost}, {outcome.updates_doubled}':>12} "
        f"{said[not outcome.ledger]:>6} {said[not outcome.versions]:>8} {said[not outcome.bound]:>9} "
        f"{difference:>8} {outcome.left:>4}"
    )
    wrong = [words for words in (outcome.ledger, outcome.versions, outcome.bound, outcome.wrong) if words]
    if "storm" in outcome.scenario:
        wrong.append(", ".join(f"{name}: {value}" for name, value in outcome.notes.items()))
    return "\n".join([text, *(f"    {words}" for words in wrong)])


def _parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m experiments.benchmarks.faults", allow_abbrev=False)
    kinds = sorted({*transports.KINDS, *transports.MACHINES})
    parser.add_argument("--transport", choices=kinds, help="processes, or grpc with --machines, unless it is given")
    parser.add_argument("--machines", type=int, default=0, metavar="NUMBER", help="3 or more; 0: this one alone")
    parser.add_argument("--only", default="", metavar="WORDS", help="of the names of the scenarios to try")
    parser.add_argument("--storm_seconds", type=float, default=300.0, metavar="SECONDS")
    parser.add_argument("--json", default="", metavar="FILE", help="where the outcomes are written too")
    given = parser.parse_args(arguments)
    if not given.storm_seconds > 0:
        parser.error(f"--storm_seconds={given.storm_seconds} must be above 0")
    kinds = transports.MACHINES if given.machines else transports.KINDS
    given.transport = given.transport or kinds[0]
    if given.transport not in kinds:
        parser.error(f"--transport={given.transport} must be {' or '.join(kinds)} with --machines={given.machines}")
    if given.machines:
        if given.machines < scenarios.MACHINES:
            parser.error(f"--machines={given.machines} must be at least {scenarios.MACHINES}, or 0")
        if why := namespaces.why_not():
            parser.exit(2, f"--machines={given.machines}: no machines can be made here: {why}\n")
        tried_here = scenarios.of_machines(given.transport, given.storm_seconds)
    else:
        tried_here = [*scenarios.of_workers(given.storm_seconds), *scenarios.of_servers()]
    names = [each.name for each in tried_here]
    if not any(given.only in name for name in names):
        parser.error(f"--only={given.only!r} must be words of a scenario's name: {'; '.join(names)}")
    return given


if __name__ == "__main__":
    sys.exit(main())
