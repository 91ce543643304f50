"""Recorded failures: a CSV of workers that were down, or events of nodes as InfiniteHBD-Trace has them."""

import collections
import csv
import json
import math
import pathlib
from collections.abc import Iterator
from typing import Any

from sgdlab import arguments
from sgdlab.bounds import Count, Positive
from sgdlab.failures.drawn import Recovery
from sgdlab.failures.family import FAILURES
from sgdlab.failures.outages import Outages

_DAY = 86400.0
_AT_ONCE = Recovery()
_COLUMNS = ("worker", "down", "up")
_EVENTS = ("node_id", "fault_type", "event_type", "event_time")


@FAILURES.register(title="recorded failures", source="InfiniteHBD-Trace: stepfun-ai/InfiniteHBD-Trace", files=("path",))
def trace(
    *,
    num_workers: Count,
    path: str = "",
    workers_per_node: Count = 1,
    scale: Positive = 1.0,
    recovery: Recovery = _AT_ONCE,
) -> Outages:
    """Read when workers were down from a file.

    A CSV has the columns `worker` (a name or number), `down` and `up`, seconds since the start, a row for each time
    that one was down. JSON is a list of events with `node_id`, `fault_type`, `event_type` ("fault_start" or
    "fault_end") and `event_time`, days; a node is down while any of its faults lasts, one without an end until
    the last event of the file. Whole numbers are those of workers, or nodes, from 0, if there are that many; other
    names are taken in sorted order, numbers by size. Who is not in the file never fails.

    Args:
      num_workers: N.
      path: of the file, `.csv` or `.json`.
      workers_per_node: how many workers fail with each worker, or node, of the file.
      scale: what its times are multiplied by; 0.01 makes a year of failures one of four days.
      recovery: what a failure does, and what it costs.

    Raises:
      ValueError: where the file is no such file, with the row or event that is wrong.
    """
    file = pathlib.Path(path).expanduser()
    if not path:
        raise ValueError("path='' must name a CSV or JSON file of failures")
    read = _of_json if file.suffix == ".json" else _of_csv
    by_node = read(file.read_text(encoding="utf-8-sig"), path)
    nodes = -(-num_workers // workers_per_node)
    if recovery.means != "lose" and any(up == math.inf for spans in by_node.values() for _, up in spans):
        raise ValueError(
            f"path={path!r} must have an end of each failure, or go with recovery.means='lose': with "
            f"{recovery.means!r}, all would wait for ever for who never comes back"
        )
    names = sorted(by_node, key=lambda name: (0, float(name), "") if _is_number(name) else (1, 0.0, name))
    if all(name.isdecimal() and int(name) < nodes for name in names):
        of_nodes = {int(name): spans for name, spans in by_node.items()}
    else:
        of_nodes = {node: by_node[name] for node, name in enumerate(names)}
    intervals: list[Iterator[tuple[float, float]]] = []
    for worker in range(num_workers):
        spans = sorted(of_nodes.get(worker // workers_per_node, []))
        intervals.append(iter([(down * scale, up * scale) for down, up in spans]))
    return recovery.outages(intervals)


def _of_csv(text: str, path: str) -> dict[str, list[tuple[float, float]]]:
    rows = csv.DictReader(text.splitlines())
    if missing := [name for name in _COLUMNS if name not in (rows.fieldnames or ())]:
        raise ValueError(f"path={path!r} must have the columns {', '.join(_COLUMNS)}; {', '.join(missing)} is missing")
    found = collections.defaultdict(list)
    for number, row in enumerate(rows, 2):
        found[row["worker"]].append(_interval(row["down"], row["up"], f"path={path!r}, line {number}"))
    return found


def _of_json(text: str, path: str) -> dict[str, list[tuple[float, float]]]:
    try:
        events = json.loads(text)
    except ValueError as error:
        raise ValueError(f"path={path!r} must be JSON: {error}") from error
    if not isinstance(events, list):
        raise ValueError(f"path={path!r} must be a list of events")
    found, begun = collections.defaultdict(list), collections.defaultdict(list)
    for number, event in enumerate(events):
        where = f"path={path!r}, event {number}"
        if not isinstance(event, dict) or any(name not in event for name in _EVENTS):
            raise ValueError(f"{where} must have {', '.join(_EVENTS)}")
        node, when = str(event["node_id"]), event["event_time"]
        if isinstance(when, bool) or not isinstance(when, int | float) or not math.isfinite(when):
            raise ValueError(f"{where}: event_time={when!r} must be a number of days")
        fault = begun[node, json.dumps(event["fault_type"], sort_keys=True)]
        if event["event_type"] == "fault_start":
            fault.append(when)
        elif not fault:
            raise ValueError(f"{where} must end a fault that has begun: node {node}, {event['fault_type']}")
        else:
            down, up = _interval(fault.pop(0), when, where)
            found[node].append((down * _DAY, up * _DAY))
    last = max((event["event_time"] for event in events), default=0.0)
    for (node, _), since in begun.items():
        found[node] += [(down * _DAY, last * _DAY) for down in since if down < last]  # as far as the trace goes
    return found


def _interval(down: Any, up: Any, where: str) -> tuple[float, float]:
    try:
        found = float(down), float(up)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{where} must have numbers of seconds: {down!r}, {up!r}") from error
    arguments.real(f"{where}: down", found[0], least=0)
    if not found[1] >= found[0]:
        raise ValueError(f"{where}: up={found[1]} must be no earlier than down={found[0]}")
    return found


def _is_number(name: str) -> bool:
    try:
        float(name)
    except ValueError:
        return False
    return True
