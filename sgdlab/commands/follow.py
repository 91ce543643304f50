"""`sgdlab advise --follow=TRACE`: a trace is read as it grows, and what becomes slow is said as soon as it is known."""

import contextlib
import dataclasses
import json
import os
import pathlib
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from absl import flags
from tqdm import tqdm

from sgdlab.commands import shared_flags
from sgdlab.errors import UsageError, said_of
from sgdlab.report.status_page import StatusPage
from sgdlab.report.words import counted, listed
from sgdlab.stragglers.diagnosis.causes import HANGS
from sgdlab.stragglers.follow.alarms import Alarm, AlarmFile
from sgdlab.stragglers.follow.outbox import Outbox, webhook
from sgdlab.traces.options import Options

if TYPE_CHECKING:
    from sgdlab.stragglers.follow.follower import Follower

EXIT_SLOW = 3
"""The exit code of --once and --until_idle where, at the end, something is slow or a worker is silent."""

_EVERY = 0.5  # seconds between two looks at a trace that does not grow
_SHOWN_EVERY = 0.5


def define_flags() -> None:
    """Defines them: --follow, --once, --until_idle, --alarms, --json, --serve, --metrics, --otlp, --webhook."""
    flags.DEFINE_string(
        "follow",
        None,
        "Watch a trace that grows: a CSV file or JSON lines, or a directory or glob of one file a worker. It is read "
        "from its beginning; until Ctrl-C, a line is printed for each alarm.",
    )
    flags.DEFINE_bool(
        "once",
        False,
        f"With --follow: read what is there, and end; exit code {EXIT_SLOW} if something is slow at the end.",
    )
    flags.DEFINE_float(
        "until_idle",
        None,
        "With --follow: like --once, but ends when the trace has not grown for UNTIL_IDLE seconds.",
        lower_bound=0.0,
    )
    flags.DEFINE_string(
        "alarms", None, "With --follow: file of JSON lines to add alarms to (default: alarms.jsonl in --workdir)."
    )
    flags.DEFINE_bool("json", False, "With --follow: print alarms as JSON lines.")
    shared_flags.define_serve("With --follow: show a page, on a port of this machine alone: --serve, or --serve=8080.")
    flags.DEFINE_string(
        "metrics", None, "With --follow: HOST:PORT at which Prometheus finds metrics, as 127.0.0.1:9100."
    )
    flags.DEFINE_string(
        "otlp", None, "With --follow: OpenTelemetry collector that is sent alarms as logs, as http://127.0.0.1:4318."
    )
    flags.DEFINE_string("webhook", None, "With --follow: address to which each alarm is posted as JSON.")


def run(path: str, options: Options, workdir: pathlib.Path) -> int:
    """Follows a trace, as the flags say.

    Returns:
      The exit code: 0; or `EXIT_SLOW`, where --once or --until_idle ended it and something is slow then.

    Raises:
      UsageError: where the trace cannot be followed, or the alarms cannot be written.
    """
    from sgdlab.stragglers.follow.follower import Follower  # noqa: PLC0415 (PyArrow takes a while to import)

    given = flags.FLAGS
    alarms = pathlib.Path(given.alarms or workdir / "alarms.jsonl")
    with contextlib.ExitStack() as stack:
        try:
            follower = Follower(path, options)
            file = stack.enter_context(AlarmFile(alarms, os.path.abspath(path)))
        except OSError as error:
            raise UsageError(f"--alarms={alarms} cannot be written: {error.strerror}") from None
        except ValueError as error:
            raise UsageError(f"--follow: {error}" if str(error).startswith(path) else f"--{error}") from None
        say, outboxes = _Terminal(as_json=given.json), _outboxes()
        shows: list[Callable[[bool], object]] = [lambda finished: say.trouble(outboxes)]
        if given.serve is not None:
            with said_of("--serve: "):
                page = stack.enter_context(StatusPage("sgdlab.stragglers.follow", given.serve))
            say.note(f"Watch it at {page.address}")
            shows.append(lambda finished: page.show(follower.state(finished=finished)))
        if given.metrics is not None:
            with _needing("metrics", "prometheus-client"):
                from sgdlab.stragglers.follow.metrics import Metrics, served  # noqa: PLC0415
            metrics = Metrics(follower, outboxes)
            say.note(f"Metrics: {stack.enter_context(served(metrics.registry, given.metrics))}")
            shows.append(lambda finished: metrics.update())
        until = 0.0 if given.once else given.until_idle
        if not _is_there(path):
            if given.once:
                raise UsageError(f"--follow={path} must be a file or a directory, or match some")
            say.note(f"waiting for {path} to appear")
        tell = lambda record: [box.put(record) for box in outboxes]
        show = lambda finished: [each(finished) for each in shows]
        with contextlib.ExitStack() as sending:
            for box in outboxes:
                sending.enter_context(box)
            ended = follow(follower, file, say, show=show, tell=tell, until_idle=until)
        say.trouble(outboxes, at_end=True)
        say.note(summary(follower))
        say.note(f"Alarms: {alarms}")
        return exit_code(follower) if ended else 0


def _outboxes() -> list[Outbox]:
    """Return where the flags say that alarms are sent."""
    given, senders = flags.FLAGS, {}
    if given.webhook is not None:
        with said_of("--webhook "):
            senders["webhook"] = webhook(given.webhook)
    if given.otlp is not None:
        with _needing("otlp", "opentelemetry-exporter-otlp-proto-http"), said_of("--otlp "):
            from sgdlab.stragglers.follow.otlp import log_sender  # noqa: PLC0415 (it is in an extra of its own)

            senders["otlp"] = log_sender(given.otlp)
    return [Outbox(name, send) for name, send in senders.items()]


@contextlib.contextmanager
def _needing(flag: str, package: str) -> Iterator[None]:
    """Turns the lack of a package into one line, which names the extra, as the flag is called."""
    try:
        yield
    except ImportError as error:
        raise UsageError(f"--{flag} needs {package} ({error}): pip install 'sgdlab[{flag}]'") from None


def follow(
    follower: "Follower",
    file: AlarmFile,
    say: "_Terminal",
    *,
    show: Callable[[bool], object] | None = None,
    tell: Callable[[dict[str, Any]], object] | None = None,
    until_idle: float | None = None,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> bool:
    """Reads until it is interrupted, or the trace does not grow any more; returns whether it ended by itself.

    `show` is called twice a second, at each alarm and at the end, and told whether it is the end; `tell` is given each
    alarm that the file has not had, as it stands there, with its sentence as "text". It ends when the trace has not
    grown for `until_idle` seconds; None: never.

    Raises:
      UsageError: where the trace has not the columns of one.
    """
    shown = float("-inf")
    restarts = 0
    finished = False

    def poll(*, end: bool = False) -> bool:
        nonlocal restarts
        try:
            found = follower.poll(end=end)
        except ValueError as error:
            raise UsageError(f"--follow={error}") from None
        if follower.restarts > restarts:
            restarts = follower.restarts
            say.note(f"{follower.tail.path}: {follower.tail.why}")
        for alarm in found:
            record = file.write(alarm, follower.tail.run)
            say.alarm(alarm)
            if tell and record:
                tell(record | {"text": alarm.sentence()})
        return bool(found)

    try:
        while not finished:
            if poll() or clock() - shown >= _SHOWN_EVERY:
                shown = clock()
                say.status(follower)
                if show:
                    show(False)
            if follower.caught_up:
                if until_idle is not None and follower.idle >= until_idle:
                    finished = True
                else:
                    sleep(_EVERY if until_idle is None else min(_EVERY, max(until_idle - follower.idle, 0.0)))
        poll(end=True)
        while not follower.caught_up:
            poll(end=True)
    except KeyboardInterrupt:
        finished = False
    say.close()
    if show:
        show(True)
    return finished


def exit_code(follower: "Follower") -> int:
    """Return `EXIT_SLOW` if something is wrong; a job of which all workers are equally far has ended."""
    return EXIT_SLOW if any(alarm.kind != HANGS or alarm.workers for alarm in follower.standing) else 0


def summary(follower: "Follower") -> str:
    """Return what was read, and what stands, in a few lines."""
    monitor, steps = follower.monitor, follower.tail.steps
    if not monitor.steps:
        return "No step was read."
    lines = [f"{monitor.steps:,} steps of {len(monitor.workers):,} workers were read, up to step {monitor.newest}."]
    left_out = [f"{count:,} {kind}" for kind, count in follower.tail.bad.items()]
    left_out += [f"{steps.late:,} rows that came too late"] * (steps.late > 0)
    left_out += [f"{steps.repeated:,} rows of a worker's step that it had already"] * (steps.repeated > 0)
    if left_out:
        lines.append(f"Left out: {', '.join(left_out)}.")
    if 4 * steps.repeated > steps.added:
        lines.append(
            "Many rows are of a step that their worker had already: which column names the worker? "
            "--columns=worker=NAME says it."
        )
    if follower.tail.left_out:
        lines.append(f"Files that are no traces were left out: {', '.join(follower.tail.left_out)}.")
    pauses = monitor.pauses
    if pauses.count:
        period = f", every {pauses.period} steps" if pauses.period else ""
        lines.append(f"{pauses.count:,} pauses of all workers{period}.")
    calm = "Nothing is slow."
    if monitor.steps < monitor.needed:
        calm = f"Too few steps to say that nothing is slow: {monitor.steps} of {monitor.needed}."
    lines += [f"Still: {alarm.sentence()}" for alarm in follower.standing] or [calm]
    gained = follower.gains()
    if gained:
        lines.append(f"By the last {gained[0].steps} steps: {'; '.join(gain.sentence() for gain in gained)}.")
    return "\n".join(lines)


def _is_there(path: str) -> bool:
    from sgdlab.traces import paths  # noqa: PLC0415

    return os.path.exists(path) or bool(paths.files(path, ()))


class _Terminal:
    """Prints alarms on the standard output, and everything else on the standard error, the state in one line of it."""

    def __init__(self, *, as_json: bool):
        self._as_json = as_json
        self._said: set[str] = set()
        redraws = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self._line = tqdm(bar_format="{desc}", leave=False, dynamic_ncols=True, disable=not redraws)

    def alarm(self, alarm: Alarm) -> None:
        tqdm.write(json.dumps(dataclasses.asdict(alarm)) if self._as_json else alarm.sentence())
        sys.stdout.flush()

    def note(self, text: str) -> None:
        tqdm.write(text, file=sys.stderr)

    def trouble(self, outboxes: Sequence[Outbox], *, at_end: bool = False) -> None:
        """Says once of each that alarms do not arrive, and at the end how many did not."""
        for box in outboxes:
            if box.lost and at_end:
                self.note(f"--{box.name}: {box.lost} of {counted(box.given, 'alarm')} did not arrive: {box.why}")
            elif box.why and not at_end and box.name not in self._said:
                self._said.add(box.name)
                self.note(f"--{box.name}: {box.why}; it is tried again")

    def status(self, follower: "Follower") -> None:
        if not self._line.disable:
            self._line.set_description_str(status_line(follower))

    def close(self) -> None:
        self._line.close()


def status_line(follower: "Follower") -> str:
    """The state in one line."""
    monitor = follower.monitor
    if not monitor.steps:
        return f"waiting for steps in {follower.tail.path}"
    parts = [f"step {monitor.newest}", f"{monitor.steps:,} steps of {len(monitor.workers):,} workers"]
    if not follower.caught_up:
        parts.append("reading")
    elif follower.idle > 5:
        parts.append(f"nothing new for {follower.idle:.0f} s")
    lacks = follower.lacks()
    if lacks and lacks[1]:
        parts.append(f"step {lacks[0]} lacks worker {listed(lacks[1], 3)}")
    standing = [", ".join(alarm.workers[:3]) or "all" for alarm in follower.standing]
    if standing:
        parts.append(f"slow or silent: {'; '.join(standing[:4])}")
    return ", ".join(parts)
