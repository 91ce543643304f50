"""`--dry_run`: what a figure, or all of them, would take, before any run is begun."""

import collections
import contextlib
import dataclasses
import io
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import jax
import psutil
from ml_collections import ConfigDict
from tabulate import tabulate

from experiments.harness import cost, stand_ins
from experiments.harness.cost import Gradient, Speed
from experiments.harness.figures import Figure
from experiments.harness.machine import duration, processor, size
from sgdlab.errors import RunFailed, UsageError, failures_of
from sgdlab.runs import pool, resolve
from sgdlab.runs.executor import Unfinished
from sgdlab.runs.sweep import Noted, Session, within
from sgdlab.runs.work import Point, Work, name_of, train, trained_by

_BYTES_PER_RECORD = 500
"""A record of an evaluation on the disk; the first and the last record of a run are as large as five of them."""


@dataclasses.dataclass(frozen=True)
class Foreseen:
    """Holds what a figure asks for before it can go on.

    Attributes:
      name: of the figure.
      noted: its runs.
      whole: no run is missing: the figure would be made at once.
      error: why it cannot be foreseen, in a line; "" where it can.
    """

    name: str
    noted: Noted
    whole: bool
    error: str = ""


def foresee(made: Figure, scale: str, changed: Mapping[str, Any], session: Session) -> Foreseen:
    """Asks a figure for its runs, and does none of them."""
    session, error, whole = dataclasses.replace(session, used={}, noted=Noted()), "", False
    # What a figure says while it is made is not about this command.
    with stand_ins.used(), within(session), contextlib.redirect_stdout(io.StringIO()):
        try:
            with failures_of(made.name):
                try:
                    made(**made.values(scale) | dict(changed))
                    whole = True
                except Unfinished:
                    pass
        except (UsageError, RunFailed) as failure:
            error = str(failure).strip().splitlines()[-1]
    return Foreseen(made.name, session.noted, whole, error)


@dataclasses.dataclass(frozen=True)
class Item:
    """Runs that take the same time for each gradient; or those of one work that does not say that it trains anything.

    Attributes:
      title: what is trained, or the work.
      runs: number of runs.
      unknown: number of those of them whose time is not known.
      gradients: of all of them; 0 where nothing is said to be trained.
      speed: of a gradient; None where nothing is said to be trained.
      seconds: of all runs whose time is known, on one core (or on the device); None where it is of none.
      memory: bytes of the largest run; 0 where nothing is known.
      disk: bytes of the records.
    """

    title: str
    runs: int
    unknown: int
    gradients: int
    speed: Speed | None
    seconds: float | None
    memory: float
    disk: float


class Costs:
    """Holds the time and memory that missing runs take."""

    def __init__(self, missing: Mapping[str, tuple[Work, Point]], session: Session):
        self._session, self._missing = session, missing
        self.processes = session.jobs or (len(pool.cores()) if jax.default_backend() == "cpu" else 1)
        with stand_ins.used():
            configs = {key: trained_by(work, run.settings) for key, (work, run) in missing.items()}
            self._configs = {key: found for key, found in configs.items() if found}
            # What one program trains has one network, and batches of one size.
            self._gradients = {key: Gradient.of(found[0]) for key, found in self._configs.items()}
        self._speeds = cost.speeds(list(self._gradients.values()), session.path / "speeds", self.processes)
        self._seconds = _seconds_of_works({work for work, _ in missing.values()}, session)

    def items(self, keys: Iterable[str]) -> list[Item]:
        """Return what the runs of some keys take, by what is trained; the longest first."""
        groups: dict[Any, list[str]] = collections.defaultdict(list)
        for key in keys:
            groups[self._gradients[key] if key in self._gradients else self._missing[key][0]].append(key)
        with stand_ins.used():
            found = [
                self._training(what, of) if isinstance(what, Gradient) else self._work(what, of)
                for what, of in groups.items()
            ]
        return sorted(found, key=lambda item: -(item.seconds or 0))

    def data(self, keys: Iterable[str]) -> list[str]:
        """Return the data sets that have to be prepared first."""
        return sorted(
            {name for key in keys for config in self._configs.get(key, [])[:1] if (name := stand_ins.missing(config))}
        )

    def _training(self, gradient: Gradient, keys: Sequence[str]) -> Item:
        speed, configs = self._speeds[gradient], [config for key in keys for config in self._configs[key]]
        gradients = sum(resolve(config).num_gradients for config in configs)
        # The more workers, the more versions of the parameters; and a rule may hold a state for each.
        largest: dict[Any, ConfigDict] = {}
        for config, at_once in ((self._configs[key][0], len(self._configs[key])) for key in keys):
            kind = (at_once, *(part.name for part in resolve(config).parts.values()))
            if kind not in largest or config.cluster.num_workers > largest[kind].cluster.num_workers:
                largest[kind] = config
        return Item(
            gradient.title,
            len(keys),
            0,
            gradients,
            speed,
            sum(cost.seconds_of(config, speed) for config in configs),
            max(cost.memory_of(config, speed, at_once=at_once) for (at_once, *_), config in largest.items()),
            sum(_BYTES_PER_RECORD * (config.evaluations + 10) for config in configs),
        )

    def _work(self, work: Work, keys: Sequence[str]) -> Item:
        each = self._seconds.get(name_of(work))
        seconds, unknown = (None, len(keys)) if each is None else (each * len(keys), 0)
        title = name_of(work).removeprefix("experiments.")
        return Item(title, len(keys), unknown, 0, None, seconds, 0, 5e3 * len(keys))


def _seconds_of_works(works: Iterable[Work], session: Session) -> dict[str, float]:
    """Return the mean time of the finished runs of works that train nothing, by the works' names."""
    wanted, found = {name_of(work) for work in works} - {name_of(train)}, collections.defaultdict(list)
    for file in session.store.path.glob("*.jsonl") if wanted else ():
        records = session.store.read(file.stem)
        if records and records[0].get("work") in wanted:
            found[records[0]["work"]].append(records[-1]["compute_seconds"])
    return {name: statistics.fmean(seconds) for name, seconds in found.items()}


def report(foreseen: Foreseen, session: Session, takes: str) -> str:
    """Return what one figure takes, in a table and some sentences."""
    if foreseen.error:
        return f"{foreseen.name} cannot be foreseen: {foreseen.error}"
    missing, found = foreseen.noted.missing, len(foreseen.noted.found)
    if foreseen.whole:
        runs = f"All of its {found:,} runs are finished" if found else "It needs no runs"
        return f"{runs}: the figure is made at once."
    costs = Costs(missing, session)
    items = costs.items(missing)
    rows = [
        [
            item.title,
            f"{item.runs:,}",
            f"{item.gradients:,}" if item.gradients else "",
            "" if item.speed is None else str(item.speed),
            "not known" if item.seconds is None else duration(item.seconds),
            size(item.memory) if item.memory else "",
        ]
        for item in items
    ]
    headers = ["runs of", "runs", "gradients", "time of a gradient", f"time on one {_device()}", "memory of one"]
    table = tabulate(rows, headers, "simple", disable_numparse=True, maxcolwidths=[44, None, None, 26, None, None])
    total = _summed(items)
    lines = [
        f"{len(missing):,} runs to do, {found:,} found finished"
        + (f"; {total.gradients:,} gradients." if total.gradients else "."),
        _time(total, costs.processes),
        *_memory(total, costs.processes),
        f"Disk: {size(total.disk)} of records{_prepared(costs.data(missing))}.",
        *_to_prepare(costs.data(missing)),
        f"The scale says that the figure takes: {takes}.",
        "Runs that depend on the results of these are not counted.",
    ]
    return "\n".join([table, "", *lines])


def report_all(foreseen: Sequence[Foreseen], session: Session) -> str:
    """Return what several figures take, a row each, and all of them, which share runs."""
    together: dict[str, tuple[Work, Point]] = {}
    for each in foreseen:
        together |= each.noted.missing
    costs, rows = Costs(together, session), []
    for each in foreseen:
        items, data = costs.items(each.noted.missing), costs.data(each.noted.missing)
        rows.append([each.name, *_cells(items, len(each.noted.found)), ", ".join(data)])
    found = len(set().union(*(each.noted.found for each in foreseen)))
    items, data = costs.items(together), costs.data(together)
    rows.append(["all, shared runs once", *_cells(items, found), ""])
    headers = ["", "found", "to do", "gradients", f"time on one {_device()}", "memory of one", "records"]
    headers.append("data missing")
    total = _summed(items)
    lines = [
        _time(total, costs.processes),
        *_memory(total, costs.processes),
        f"Disk: {size(total.disk)} of records{_prepared(data)}.",
        *_to_prepare(data),
        "Runs that depend on the results of these are not counted.",
        *(f"{each.name} cannot be foreseen: {each.error}" for each in foreseen if each.error),
    ]
    return "\n".join([tabulate(rows, headers, "simple", disable_numparse=True), "", *lines])


def _cells(items: Sequence[Item], found: int) -> list[str]:
    if not items:
        return [f"{found:,}", "0", "", "", "", ""]
    total = _summed(items)
    time = "not known" if total.seconds is None else duration(total.seconds)
    time += f" + {total.unknown:,} runs" if total.unknown and total.seconds is not None else ""
    gradients = f"{total.gradients:,}" if total.gradients else ""
    memory = size(total.memory) if total.memory else ""
    return [f"{found:,}", f"{total.runs:,}", gradients, time, memory, size(total.disk)]


def _summed(items: Sequence[Item]) -> Item:
    counts = (sum(getattr(item, name) for item in items) for name in ("runs", "unknown", "gradients"))
    known = [item.seconds for item in items if item.seconds is not None]
    memory, disk = max((item.memory for item in items), default=0), sum(item.disk for item in items)
    return Item("", *counts, None, sum(known) if known else None, memory, disk)


def _time(total: Item, processes: int) -> str:
    if not total.runs:
        return "Computing: none, since no run is missing."
    unknown = f"{total.unknown:,} run{'s' * (total.unknown != 1)} whose time is unknown"
    if total.seconds is None:
        return f"Computing: {unknown}, since none of the kind is finished here."
    besides = f", and {unknown}" if total.unknown else ""
    here = f"{duration(total.seconds / processes)} with {processes} processes" if processes > 1 else "in one process"
    what = f"one {_device()}" if jax.default_backend() != "cpu" else f"one core of {processor()}"
    return (
        f"Computing: {duration(total.seconds)} of {what}, {here}{besides}, estimated from the time of a gradient; "
        "compiling, rules and the reading of files come on top."
    )


def _memory(total: Item, processes: int) -> list[str]:
    if not total.memory:
        return []
    free = psutil.virtual_memory().total
    several = f", {processes} of which run at once" if processes > 1 else ""
    return [f"Memory of the largest run: {size(total.memory)}{several}; this machine has {size(free)}."]


def _prepared(names: Sequence[str]) -> str:
    disk = sum(stand_ins.KNOWN[name].disk for name in names if name in stand_ins.KNOWN)
    return f", and about {size(disk)} of data sets that are prepared first" if disk else ""


def _to_prepare(names: Sequence[str]) -> list[str]:
    if not names:
        return []
    return [f"Data that are missing here: {', '.join(f'{name} (`sgdlab data {name}`)' for name in names)}."]


def _device() -> str:
    """Core, or the name of the accelerator."""
    return "core" if jax.default_backend() == "cpu" else jax.devices()[0].device_kind
