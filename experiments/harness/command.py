"""The command `python -m experiments`: lists tables and figures, makes them, decides claims, draws the scoreboard."""

import collections
import concurrent.futures.process
import contextlib
import difflib
import functools
import json
import sys
from collections.abc import Callable, Sequence
from typing import Any

from absl import flags
from tabulate import tabulate

from experiments import papers
from experiments.harness import decide, dry, figures, publishing, restamp, scoreboard
from experiments.harness.claims import VERDICTS
from experiments.harness.figures import SCALES, Figure
from experiments.harness.machine import duration, seconds_of
from experiments.harness.publishing import produce
from sgdlab.commands import flag_names, launch
from sgdlab.errors import RunFailed, UsageError, failures_of, said_of
from sgdlab.runs.executor import Unfinished
from sgdlab.runs.sweep import DEFAULT_WORKDIR, Session, Shard

USAGE = """Reproduces the tables and figures of five papers, and says which of their claims hold.

    python -m experiments                            lists all tables and figures, and what each takes
    python -m experiments gossip.bounds --help       says what one shows, and lists its flags
    python -m experiments gossip.bounds --scale=smoke --workdir=runs/papers
    python -m experiments gossip.bounds --dry_run    says what it would take here, and does nothing
    python -m experiments all --scale=laptop         makes all; what is finished is not rerun
    python -m experiments beyond                     makes those of other papers, and the table of all methods
    python -m experiments scoreboard                 writes one page: every claim, with its verdict and picture
    python -m experiments decide --hours=4           runs more seeds for open claims, the cheapest to settle first
    python -m experiments restamp                    marks stored results as up to date if the changed code
                                                     reproduces a sample bit for bit
"""

_ALL = """Makes every table and figure of the papers at one scale; what is finished is not rerun.

    python -m experiments all --scale=laptop --workdir=runs/papers
    python -m experiments all --scale=gpu --shard=2/8        one task of a scheduler's array of eight
    python -m experiments all --scale=paper --dry_run        what all would take here, and which data they need
    python -m experiments beyond                             those of papers other than the five, and of all methods
"""


def _made(usage: str, define: Callable[[], None], main: Callable[[Sequence[str]], None]) -> launch.Command:
    return launch.Command(main=main, usage=usage, define=define, configured=False)


def main(argv: Sequence[str]) -> int:
    """Runs the command of a command line, less the program's name; commands end the process themselves."""
    found = _command(argv)
    if isinstance(found, int):
        return found
    sys.argv = [f"python -m experiments {argv[0]}", *argv[1:]]
    found.run()
    return 0


def answer(argv: Sequence[str]) -> int:
    """Does in this process what `python -m experiments` would, in a notebook or a test; returns the exit code."""
    found = _command(argv)
    if isinstance(found, int):
        return found
    line = [f"python -m experiments {argv[0]}", *argv[1:]]
    return found.answer(line)


def _command(argv: Sequence[str]) -> launch.Command | int:
    """Return what a command line asks for; an exit code where that is done, or wrong."""
    name = argv[0] if argv else "list"
    if name in ("list", "--help", "-help", "-h", "help"):
        return _shown(listing() if name == "list" else USAGE)
    for module in (scoreboard, restamp, decide):
        if name == module.__name__.rpartition(".")[2]:
            return _made(module.USAGE, module.define_flags, module.main)
    if name == "all" or ("." not in name and figures.is_apart(name)):
        apart = name != "all"
        found = _of_folders(apart)
        return _made(_ALL, lambda: _define_flags("laptop", _scales(found)), functools.partial(_make_all, apart=apart))
    try:
        made = figures.find_figure(name) if name in figures.names() else None
    except RunFailed as error:
        print(error, file=sys.stderr)
        return 1
    if made is None:
        known = [found.name for found in figures.figures(apart=True)]
        near = difflib.get_close_matches(name, known, n=1)
        meant = f"did you mean {near[0]}?" if near else "`python -m experiments` lists them"
        print(f"error: {name!r} is no table or figure; {meant}", file=sys.stderr)
        return 2
    return _of_figure(made, argv[1:])


def _shown(text: str) -> int:
    with contextlib.suppress(BrokenPipeError):  # a pager that was closed, or head
        print(text, flush=True)
    return 0


def _of_figure(made: Figure, arguments: Sequence[str]) -> launch.Command | int:
    given = flag_names.values(arguments, "scale", split=False)
    scale = given[-1] if given else "laptop"
    if scale not in made.scales:
        print(f"error: --scale={scale} must be one of {', '.join(made.scales)}", file=sys.stderr)
        return 2
    takes = "\n".join(f"  {name:<8}{size.takes}" for name, size in made.scales.items())
    rows = " and ".join(made.numbers)
    usage = f"{made.text.strip()}\n\n    python -m experiments {made.name} --scale={scale}\n\n"
    usage += f"{made.paper.authors}, {rows}. Results: {DEFAULT_WORKDIR}. What it takes, by --scale:\n\n{takes}"

    def define() -> None:
        _define_flags(scale, list(made.scales))
        for name, option in made.options.items():
            option.define(made.values(scale)[name])

    def run(argv: Sequence[str]) -> None:
        del argv
        values, defaults = {name: flags.FLAGS[name].value for name in made.options}, made.values(scale)
        checked = {name: made.options[name].check(value) for name, value in defaults.items()}
        changed = {name: value for name, value in values.items() if value != checked[name]}
        if flags.FLAGS.dry_run:
            session = _session()
            foreseen = dry.foresee(made, scale, changed, session)
            print(dry.report(foreseen, session, made.scales[scale].takes))
            return
        try:
            produce(made, scale, changed, _session())
        except Unfinished as left:
            print(f"{left}. When they have done theirs, the same command goes on, or writes the figure")

    return _made(usage, define, run)


def _scales(found: Sequence[Figure]) -> list[str]:
    """Return the scales that some figure has."""
    return [scale for scale in SCALES if any(scale in made.scales for made in found)]


def _define_flags(scale: str, scales: Sequence[str]) -> None:
    flags.DEFINE_enum("scale", scale, list(scales), "How large: seconds, minutes, or the paper's own size.")
    flags.DEFINE_integer(
        "jobs", None, "Processes at once (default: one for each core; one on a GPU and at scale smoke).", lower_bound=1
    )
    flags.DEFINE_bool("dry_run", False, "Says what the missing runs take here, and which data they need; does none.")
    flags.DEFINE_string("shard", None, "Does a share of the runs: 2/8 is task 2 of a scheduler's array of 8.")


def _session() -> Session:
    path, shard = launch.workdir(DEFAULT_WORKDIR), flags.FLAGS.shard
    jobs = flags.FLAGS.jobs or (1 if flags.FLAGS.scale == "smoke" else None)  # starting processes would take longer
    with said_of("--"):
        return Session(path, jobs, Shard.of(shard) if shard else None)


def _of_folders(apart: bool, broken: Callable[[str, RunFailed], None] | None = None) -> list[Figure]:
    """Return all figures of the papers' folders, or those apart."""
    if not apart:
        return figures.figures(broken)
    return [made for made in figures.figures(broken, apart=True) if figures.is_apart(made.name)]


def _make_all(argv: Sequence[str], *, apart: bool = False) -> None:
    """Makes all figures, or those apart; one that fails does not keep the others."""
    del argv
    scale, session, failed, rows = flags.FLAGS.scale, _session(), [], []
    found = _of_folders(apart, lambda name, error: failed.append(name) or print(error, file=sys.stderr))
    found = [made for made in found if scale in made.scales]
    if flags.FLAGS.dry_run:
        _foresee_all(found, scale, session)
    else:
        for number, made in enumerate(found):
            print(
                f"\n=== [{number + 1}/{len(found)}] {made.name}: {made.title}{_left(found[number:], scale)}", flush=True
            )
            row = _made_of_all(made, scale, session)
            rows.append([made.name, *row])
            if row[-1] == "failed":
                failed.append(made.name)
        print(f"\n{_summary(rows, session)}")
    if failed:
        raise RunFailed(f"error: {', '.join(failed)} failed; see above. The same command continues")


def _made_of_all(made: Figure, scale: str, session: Session) -> list[Any]:
    """Makes one of all figures: seconds, computing seconds, the number of claims by verdict, and what went wrong."""
    try:
        with failures_of(made.name):
            try:
                facts = json.loads((produce(made, scale, {}, session) / publishing.CLAIMS).read_text(encoding="utf-8"))
            except Unfinished as missing:
                return [*[None] * (2 + len(VERDICTS)), str(missing)]
    except (UsageError, RunFailed, MemoryError, concurrent.futures.process.BrokenProcessPool) as error:
        print(f"error: {made.name}: {error}", file=sys.stderr)
        return [*[None] * (2 + len(VERDICTS)), "failed"]
    counts = collections.Counter(claim["verdict"] for claim in facts["claims"] if not claim["identity"])
    verdicts = (counts[verdict] for verdict in VERDICTS)
    return [facts["seconds"], facts["computing_seconds"], *verdicts, ""]


def _left(found: Sequence[Figure], scale: str) -> str:
    """Return what the figures take that are left, by what their scales say."""
    takes = [seconds_of(made.scales[scale].takes) for made in found]
    known = sum(seconds for seconds in takes if seconds is not None)
    others = takes.count(None)
    words = f"{duration(known)} at most" if not others else f"{others} of unknown length" + f" and {duration(known)}"
    return f" ({found[0].scales[scale].takes}; {len(found)} left, {words})"


def _foresee_all(found: Sequence[Figure], scale: str, session: Session) -> None:
    foreseen = []
    for number, made in enumerate(found):
        print(f"[{number + 1}/{len(found)}] {made.name}", flush=True)
        foreseen.append(dry.foresee(made, scale, {}, session))
    print(f"\n{dry.report_all(foreseen, session)}")


def _summary(rows: Sequence[Sequence[Any]], session: Session) -> str:
    """Return a table of all figures, and their sum, in which runs that figures share count once."""
    shown = [
        ["" if cell is None else duration(cell) if isinstance(cell, float) else str(cell) for cell in row]
        for row in rows
    ]
    sums = [sum(row[column] or 0 for row in rows) for column in (1, *range(3, 3 + len(VERDICTS)))]
    computing = sum(records[-1].get("compute_seconds", 0.0) for records in session.used.values())
    shown.append(["all, shared runs once", duration(sums[0]), duration(computing), *map(str, sums[1:]), ""])
    headers = ["figure", "now", "computing", *VERDICTS, ""]
    return tabulate(shown, headers, "simple", disable_numparse=True)


def listing() -> str:
    """Return every table, figure and bound of the papers, with its command and what that takes at each scale."""
    found, lines = figures.figures(apart=True), []
    scales = _scales(found)
    for paper in [*papers.PAPERS, *papers.others(made.paper for made in found)]:
        rows = []
        for number, made in figures.by_number(paper, found).items():
            takes = [made.scales[scale].takes if made and scale in made.scales else "" for scale in scales]
            shows = paper.rows.get(number) or made.title
            rows.append([number, shows, made.name if made else "no command yet", *takes])
        headers = ["", "shows", "command", *scales]
        table = tabulate(
            rows, headers, "simple", disable_numparse=True, maxcolwidths=[22, 46, None, *[12] * len(scales)]
        )
        lines.append(f"{paper.authors}: {paper.title} ({paper.source})\n\n{table}\n")
    return "\n".join([*lines, "python -m experiments COMMAND --help describes one; scales are times on two cores."])
