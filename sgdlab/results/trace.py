"""A schedule in the Chrome trace format, which Perfetto (ui.perfetto.dev) and chrome://tracing open."""

import json
import os
from collections.abc import Iterator
from typing import Any

import numpy as np

from sgdlab import files
from sgdlab.peer_schedule import PeerSchedule
from sgdlab.schedule import DROPPED, PENDING, Schedule

_WORKERS, _SERVERS = 1, 2
_KINDS = {DROPPED: ("dropped", "terrible"), PENDING: ("pending", "grey")}


def write_trace(path: str | os.PathLike[str], schedule: Schedule | PeerSchedule) -> None:
    """Writes a schedule as JSON, whole or not at all.

    Every worker is a thread whose slices are its gradients, with the versions they read and the updates they entered as
    arguments; every server is a thread whose slices last from the first gradient of an update to the update; arrows go
    from gradients to updates. Of peers, arrows go from the node whose parameters are averaged to the one that averages.
    A second of virtual time is a second of the trace.

    Example:
      >>> import json, pathlib, tempfile
      >>> import numpy as np
      >>> from sgdlab import protocols
      >>> path = pathlib.Path(tempfile.mkdtemp()) / "trace.json"
      >>> write_trace(path, protocols.asynchronous(np.ones((2, 2))))
      >>> [event["name"] for event in json.loads(path.read_text())["traceEvents"] if event["ph"] == "X"][:2]
      ['gradient 0', 'gradient 1']
    """
    events = _of_peers(schedule) if isinstance(schedule, PeerSchedule) else _of_servers(schedule)
    with files.replacing(path) as file:
        file.write(b'{"displayTimeUnit": "ms", "traceEvents": [\n')
        for number, event in enumerate(events):
            file.write((b",\n" if number else b"") + json.dumps(event).encode())
        file.write(b"\n]}\n")


def _of_servers(schedule: Schedule) -> Iterator[dict[str, Any]]:
    yield from _names(_WORKERS, "workers", [f"worker {n}" for n in range(schedule.num_workers)])
    yield from _names(_SERVERS, "servers", [f"block {s}" for s in range(schedule.num_blocks)])
    end = schedule.wall_clock()
    ended = np.where(schedule.pending().all(axis=1), np.minimum(schedule.ended(), end), schedule.ended())
    for row in range(schedule.num_gradients):
        read, update = schedule.read[row].tolist(), schedule.update[row].tolist()
        look = _KINDS.get(max(update), ("used", "good"))
        stale = [u - r if u >= 0 else None for u, r in zip(update, read, strict=True)]
        where, span = (_WORKERS, int(schedule.worker[row])), (schedule.started[row], ended[row])
        yield _slice(where, f"gradient {row}", look, span, read=read, update=update, staleness=stale)
    for block in range(schedule.num_blocks):
        for update, (first, applied, count) in enumerate(_collected(schedule, block)):
            # An arrow ends in a slice, so that one that lasts no time is drawn as a microsecond.
            span, made = (min(first, applied - 1e-6), applied), {"gradients": count, "version made": update + 1}
            yield _slice((_SERVERS, block), f"update {update}", ("update", "thread_state_running"), span, **made)
    for row, block in np.argwhere(schedule.used()).tolist():  # behind the slices that they bind to
        applied = schedule.applied[schedule.update[row, block], block]
        left = min(schedule.arrived[row, block], ended[row])
        yield _flow("s", _WORKERS, int(schedule.worker[row]), left, f"{row}.{block}")
        yield _flow("f", _SERVERS, block, applied, f"{row}.{block}")


def _collected(schedule: Schedule, block: int) -> Iterator[tuple[float, float, int]]:
    rows = np.flatnonzero(schedule.used()[:, block])
    entered = schedule.update[rows, block]
    counts = np.bincount(entered) if rows.size else np.empty(0, int)
    first = np.full(counts.size, np.inf)
    np.minimum.at(first, entered, schedule.arrived[rows, block])
    yield from zip(first.tolist(), schedule.applied[: counts.size, block].tolist(), counts.tolist(), strict=True)


def _of_peers(schedule: PeerSchedule) -> Iterator[dict[str, Any]]:
    nodes = schedule.num_nodes
    name_of = [*(f"node {n}" for n in range(nodes)), "center", *(f"companion {n}" for n in range(nodes))]
    shown = schedule.num_variables if schedule.companions else nodes + schedule.has_center
    yield from _names(_WORKERS, "nodes", name_of[:shown])
    number, takes_gradient = schedule.number(), schedule.takes_gradient()
    edges = np.searchsorted(schedule.event, np.arange(schedule.node.size + 1))
    for event, node in enumerate(schedule.node.tolist()):
        mine = slice(edges[event], edges[event + 1])
        sources = [name_of[source] for source in schedule.source[mine].tolist()]
        parts = zip(sources, schedule.source_version[mine].tolist(), schedule.weight[mine].tolist(), strict=True)
        averaged = [{"of": source, "version": version, "weight": weight} for source, version, weight in parts]
        span = schedule.started[event], schedule.finished[event]
        name = f"gradient {number[event]}" if takes_gradient[event] else f"move {number[event]}"
        yield _slice((_WORKERS, node), name, ("used", "good"), span, averaged=averaged)
        for edge in range(edges[event], edges[event + 1]):
            source = int(schedule.source[edge])
            if source != node:
                yield _flow("s", _WORKERS, source, schedule.started[event], f"e{edge}")
                yield _flow("f", _WORKERS, node, schedule.started[event], f"e{edge}")


def _names(process: int, title: str, threads: list[str]) -> Iterator[dict[str, Any]]:
    yield {"ph": "M", "name": "process_name", "pid": process, "args": {"name": title}}
    yield {"ph": "M", "name": "process_sort_index", "pid": process, "args": {"sort_index": process}}
    for thread, name in enumerate(threads):
        yield {"ph": "M", "name": "thread_name", "pid": process, "tid": thread, "args": {"name": name}}
        yield {"ph": "M", "name": "thread_sort_index", "pid": process, "tid": thread, "args": {"sort_index": thread}}


def _slice(
    where: tuple[int, int], name: str, look: tuple[str, str], span: tuple[float, float], **arguments: Any
) -> dict[str, Any]:
    """Return a slice of a thread of a process, of some kind and colour."""
    (process, thread), (kind, colour), (begin, end) = where, look, span
    shown = {"ph": "X", "pid": process, "tid": thread, "name": name, "cat": kind, "cname": colour}
    return {**shown, "ts": 1e6 * begin, "dur": 1e6 * (end - begin), "args": {"became": kind, **arguments}}


def _flow(phase: str, process: int, thread: int, seconds: float, name: str) -> dict[str, Any]:
    enclosing = {"bp": "e"} if phase == "f" else {}
    where = {"pid": process, "tid": thread, "ts": 1e6 * seconds, **enclosing}
    return {"ph": phase, "name": "enters", "cat": "flow", "id": name, **where}
