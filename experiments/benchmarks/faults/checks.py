"""Checks what must hold after any fault: of the record, against the tickets that were sent, and by a replay."""

import collections
import functools
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.benchmarks.faults import work
from sgdlab import replay
from sgdlab.live.lines import Entry
from sgdlab.live.recording import LiveRecording
from sgdlab.live.status import Status
from sgdlab.tasks import Task

Tree = Any
BOUND = 2
"""Of bounded staleness."""
MAX_DELAY = 3
"""Of Ringmaster ASGD."""
_SIZES = replay.Capacity(rows=4096, slots=16, width=1)
"""Most recordings share one compiled replay."""


def ledger(recording: LiveRecording, tickets: Sequence[int] | None, statuses: Sequence[Status]) -> str:
    """Return whether every gradient has one fate; what is wrong, or ''.

    Args:
      recording: of the run.
      tickets: all that workers were sent, in this order; None: not known.
      statuses: what was shown on the way.
    """
    found, workers = recording.ticket.tolist(), recording.schedule.num_workers
    unknown = set(range(max(found, default=-1) + 1)) - set(found)
    sent = found if tickets is None else list(tickets)
    unequal = [status.ledger for status in statuses if not adds_up(status.ledger)]
    wrong = {
        f"at one instant it was {unequal[:1]}": bool(unequal),
        f"at the end it is {recording.ledger()}": not adds_up(recording.ledger()),
        "a ticket is in two rows": len(set(found)) < len(found),
        # Those that were begun after the last update are in no row.
        f"tickets {sorted(unknown)} have no fate": len(unknown) > workers,
        "tickets were not sent once each, in order": tickets is not None and sent != list(range(len(sent))),
        "a ticket that was not sent has a fate": not set(found) <= set(sent),
        f"of {len(sent)} tickets only {len(found)} have a fate": len(sent) - len(found) > 2 * workers,
    }
    return next((words for words, is_so in wrong.items() if is_so), "")


def versions(recording: LiveRecording, updates: Sequence[int]) -> str:
    """Return whether each update was made once, one after the other; what is wrong, or ''."""
    schedule = recording.schedule
    used = schedule.used()[:, 0]
    entered = np.unique(schedule.update[used, 0])
    made = schedule.num_updates
    wrong = {
        f"of {made} updates only {entered.size} have a gradient": entered.tolist() != list(range(made)),
        f"of {made} updates the server told of {len(updates)}": list(updates) != list(range(1, made + 1)),
        "two updates have one instant": not (np.diff(schedule.applied[:, 0]) > 0).all(),
        "a gradient has read a version that did not exist": (schedule.read > schedule.update)[used].any(),
    }
    return next((words for words, is_so in wrong.items() if is_so), "")


def bound(recording: LiveRecording, policy: str, entries: Sequence[Entry]) -> str:
    """Return whether no gradient is staler than the protocol allows; what is wrong, or ''.

    In bounded staleness a worker that has done c gradients when it begins another knows every other at c - s or
    more, and none gets beyond c + s + 1 before it ends: 2 s + 1 gradients of each, and s + 1 more for each worker
    that joins meanwhile, since who joins begins as far as the slowest.

    Args:
      recording: of the run.
      policy: its name.
      entries: the log; it says who joined when.
    """
    schedule = recording.schedule
    used = schedule.used()[:, 0]
    stale = (schedule.update - schedule.read)[used, 0]
    if policy == "bounded staleness":
        changes = np.array([entry[1] for entry in entries if entry[0] not in ("came", "begun") or entry[-1] is False])
        back = sum(entry[0] == "silent" for entry in entries)
        started, arrived = schedule.started[used], schedule.arrived[used, 0]
        joins = np.searchsorted(changes, arrived) - np.searchsorted(changes, started) + back
        most = (schedule.num_workers - 1) * (2 * BOUND + 1) + joins * (BOUND + 1)
    elif policy.startswith("ringmaster"):
        most = np.full(stale.shape, MAX_DELAY - 1)
    elif policy in ("synchronous", "backup workers", "timeout", "timeout, interrupting", "cutoff", "rennala"):
        most = np.zeros(stale.shape, int)
    else:
        return ""
    worst = int(np.argmax(stale - most)) if stale.size else 0
    return "" if not stale.size or (stale <= most).all() else f"staleness {stale[worst]} where {most[worst]} is most"


def difference(recording: LiveRecording, params: Tree, folder: pathlib.Path) -> float:
    """Largest difference between the parameters of the live run and those of a replay of its record."""
    schedule = recording.schedule
    # The program is compiled once for all recordings that are not longer.
    program = replay.lower(schedule, capacity=_SIZES | replay.Capacity(0, 0, 1, workers=schedule.num_workers), width=1)
    tickets = np.zeros(program.capacity.rows, np.int32)
    tickets[: program.num_rows] = recording.used_tickets()
    batches = jax.tree_util.Partial(_batch_of_row, _work(folder).batch_fn, jnp.asarray(tickets))
    result = replay.run(program, work.RULE, Task(_work(folder).grad_fn, work.params()), batches, mode="event")
    pairs = zip(jax.tree.leaves(result.params), jax.tree.leaves(params), strict=True)
    return max(float(np.abs(np.asarray(a, np.float64) - np.asarray(b, np.float64)).max()) for a, b in pairs)


def fates(recording: LiveRecording) -> dict[int, tuple[str, int]]:
    """Ticket -> its fate and the update that it entered, of gradients whose fate is final."""
    updates = recording.schedule.update[:, 0].tolist()
    rows = zip(recording.ticket.tolist(), recording.fate.tolist(), updates, strict=True)
    return {ticket: (fate, update) for ticket, fate, update in rows if fate != "pending"}


def pace(entries: Sequence[Entry]) -> dict[str, float | None]:
    """Return gradients a second of a run, and the median seconds from the loss of a worker until it has joined again.

    Seconds are the run's, which end with a server and go on when workers are there again.
    """
    gone: dict[int, float] = {}
    seconds = []
    for kind, now, *fields in entries:
        if kind in ("lost", "killed"):
            gone.setdefault(fields[0], now)
        elif kind == "restart":
            gone.pop(fields[0], None)
        elif kind == "joined" and fields[0] in gone:
            seconds.append(now - gone.pop(fields[0]))
    came = sum(entry[0] == "came" for entry in entries)
    median = round(float(np.median(seconds)), 2) if seconds else None
    return {"gradients/s": round(came / max(entries[-1][1], 1e-9), 1), "losses": len(seconds), "s to join": median}


def lost_or_doubled(before: LiveRecording, after: LiveRecording) -> tuple[int, int]:
    """Number of updates of a record that a later one of the same run lacks, and of gradients that entered two."""
    first, second = _gradients_of_updates(before), _gradients_of_updates(after)
    lost = sum(second.get(update) != gradients for update, gradients in first.items())
    applied = collections.Counter(ticket for tickets in second.values() for ticket in tickets)
    return lost, sum(number - 1 for number in applied.values())


def adds_up(ledger: Mapping[str, int]) -> bool:
    """Return whether the number of gradients begun is the sum of all others."""
    return 2 * ledger["begun"] == sum(ledger.values())


def _gradients_of_updates(recording: LiveRecording) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for ticket, (fate, update) in sorted(fates(recording).items()):
        if fate == "applied" and update < recording.schedule.num_updates:
            found.setdefault(update, []).append(ticket)
    return found


@functools.cache
def _work(folder: pathlib.Path) -> Any:
    return work.source(folder, 0.0).make()


def _batch_of_row(batch_fn: Any, tickets: jax.Array, row: jax.Array) -> Tree:
    return batch_fn(tickets[row])
