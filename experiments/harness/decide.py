"""The command `python -m experiments decide`: makes figures at the scale decide, in the order of what that decides."""

import contextlib
import dataclasses
import math
import signal
import time
from collections.abc import Iterator, Mapping, Sequence

from absl import flags
from tabulate import tabulate

from experiments.harness import board, publishing
from experiments.harness.board import Result
from experiments.harness.claims import INCONCLUSIVE
from experiments.harness.figures import Figure, figures
from experiments.harness.machine import duration, seconds_of
from sgdlab.commands import launch
from sgdlab.errors import RunFailed, UsageError, failures_of
from sgdlab.runs.sweep import DEFAULT_WORKDIR, Session

USAGE = """Makes figures at the scale decide, those first that decide the most claims in a core-hour.

    python -m experiments decide --dry_run                       which claims are open, and what deciding them takes
    python -m experiments decide --hours=4 --workdir=runs/papers

What a figure decides is expected from the intervals of its claims now (`Evidence.chances`). Finished runs are kept: the
same command goes on after an end of its hours, or after it was killed. Then `scoreboard` shows what came out.
"""

SCALE = "decide"


@dataclasses.dataclass(frozen=True)
class Candidate:
    """A figure with claims that are open.

    Attributes:
      made: the figure.
      open: number of claims that are inconclusive.
      decisions: number of them that are expected to be decided; half of those of which nothing is known yet.
      seconds: core-seconds that the scale decide takes, and the figures whose runs it needs.
    """

    made: Figure
    open: int
    decisions: float
    seconds: float

    @property
    def worth(self) -> float:
        """Return the expected decisions of a core-second."""
        return self.decisions / self.seconds


def define_flags() -> None:
    """Defines the command's flags."""
    flags.DEFINE_float("hours", math.inf, "Ends after so many hours.", lower_bound=0.0)
    flags.DEFINE_list("figures", [], "Only these figures, such as gossip.figure1.")
    flags.DEFINE_integer("jobs", None, "Processes at once (default: one for each core).", lower_bound=1)
    flags.DEFINE_bool("dry_run", False, "Lists the figures in their order, and makes none.")


def main(argv: Sequence[str]) -> None:
    """Makes one figure after the other.

    Raises:
      UsageError: where a figure is not known.
      RunFailed: where a figure failed; the others are made before.
    """
    del argv
    given, begun, failed = flags.FLAGS, time.monotonic(), []
    session = Session(launch.workdir(DEFAULT_WORKDIR), given.jobs)
    everything = figures(apart=True)
    if unknown := sorted(set(given.figures) - {made.name for made in everything}):
        raise UsageError(f"--figures={unknown[0]} must be a table or figure; `python -m experiments` lists them")
    found = candidates([made for made in everything if not given.figures or made.name in given.figures], session)
    print(report(found), flush=True)
    if given.dry_run:
        return
    for number, each in enumerate(found):
        left = given.hours * 3600 - (time.monotonic() - begun)
        if left <= 0:
            break
        print(f"\n=== [{number + 1}/{len(found)}] {each.made.name}: {duration(each.seconds)} of a core", flush=True)
        try:
            with failures_of(each.made.name), _interrupted_after(left):
                publishing.produce(each.made, SCALE, {}, session)
        except KeyboardInterrupt:
            if time.monotonic() - begun < given.hours * 3600:
                raise
            print(
                f"The {given.hours:g} hours are over: finished runs are kept, and the same command goes on", flush=True
            )
            break
        except (UsageError, RunFailed, MemoryError) as error:
            print(f"error: {each.made.name}: {error}", flush=True)
            failed.append(each.made.name)
    print(f"\n{report(candidates(everything, session))}\n\n`python -m experiments scoreboard` shows all claims")
    if failed:
        raise RunFailed(f"error: {', '.join(failed)} failed; see above. The same command continues")


def candidates(found: Sequence[Figure], session: Session) -> list[Candidate]:
    """Return the figures that the scale decide can decide claims of, those with the most expected decisions first."""
    results = {made.name: board.find_result(made, session.path) for made in found}
    judged = board.judge({name: result for name, result in results.items() if result})
    done = [name for name, result in results.items() if result and result.facts["scale"] not in ("smoke", "laptop")]
    chosen = []
    for made in found:
        result, claims = results[made.name], judged.get(made.name, ())
        left = [each for each in claims if each.verdict == INCONCLUSIVE]
        if SCALE not in made.scales or made.name in done or (result and not left):
            continue
        times = _times(made, result)
        decisions = sum(sum(each.claim.holds.chances(times)) if each.claim.holds.measured else 0.5 for each in left)
        chosen.append(Candidate(made, len(left), decisions if result else 0.5, math.inf))
    return _in_order(chosen, {made.name: made for made in found}, set(done))


def _in_order(chosen: Sequence[Candidate], found: Mapping[str, Figure], done: set[str]) -> list[Candidate]:
    """Return candidates in the order of their worth; runs that figures share are paid by the first of them."""
    left, ordered = list(chosen), []
    while left:
        priced = [dataclasses.replace(each, seconds=_seconds(each.made, found, done)) for each in left]
        best = max(priced, key=lambda each: each.worth)
        ordered.append(best)
        done |= {best.made.name, best.made.scales[SCALE].after or best.made.name}
        left = [each for each in left if each.made is not best.made]
    return ordered


def _seconds(made: Figure, found: Mapping[str, Figure], done: set[str]) -> float:
    """Return core-seconds of a figure at the scale decide, and of the one whose runs it shares, less what is done."""
    scale = made.scales[SCALE]
    own = 60.0 if made.name in done else 2 * (seconds_of(scale.takes) or math.inf)  # said of two cores
    before = found.get(scale.after or "")
    return own + (_seconds(before, found, done) if before and before.name not in done else 0.0)


def report(found: Sequence[Candidate]) -> str:
    """Return the figures as a table, with what is decided and taken up to each."""
    rows, decisions, seconds = [], 0.0, 0.0
    for each in found:
        decisions, seconds = decisions + each.decisions, seconds + each.seconds
        sums = [f"{decisions:.1f}", duration(seconds)]
        rows.append([each.made.name, each.open, f"{each.decisions:.1f}", duration(each.seconds), *sums])
    headers = ["figure", "inconclusive", "decided, expected", "core time", "up to here", "core time"]
    table = tabulate(rows, headers, "simple", disable_numparse=True)
    return table if rows else f"No claim is open that the scale {SCALE} of its figure could decide"


@contextlib.contextmanager
def _interrupted_after(seconds: float) -> Iterator[None]:
    """Interrupts a block after some seconds, as Ctrl-C does, whose signal processes that wait for others note."""
    before = signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(signal.SIGINT))
    signal.setitimer(signal.ITIMER_REAL, seconds if math.isfinite(seconds) else 0)  # 0: never
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _times(made: Figure, result: Result | None) -> float:
    """Return how many times as many seeds the scale decide has; where that is not known, or as many, four."""
    now = (result.facts.get("arguments", {}) if result else {}).get("seeds")
    then = made.values(SCALE).get("seeds")
    try:
        times = float(then) / float(now)
    except (TypeError, ValueError, ZeroDivisionError):
        return 4.0
    return times if times > 1 else 4.0
