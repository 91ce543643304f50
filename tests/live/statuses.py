"""A plausible run as a sequence of Status: synchronous rounds, one worker slow, one killed and started again."""

import itertools
import math
from collections.abc import Iterator

from sgdlab.live.status import Status, WorkerStatus

SLOW, KILLED, KILLED_AT, SPAWNED_AT, BACK_AT = 3, 1, 10.0, 11.0, 16.0
USUAL = 0.8
"""Seconds a gradient."""


def run(num_workers: int = 8, seconds: float = 40.0, every: float = 0.5) -> Iterator[Status]:
    """Statuses of a run at steps of `every` seconds; the last one is finished."""
    total = num_workers * int(seconds / (3 * USUAL))
    events: list[tuple[float, str]] = []
    waited = [0.0] * num_workers
    for step in itertools.count(1):
        now = step * every
        updates, phase = divmod(now, 3 * USUAL)
        finished = now >= seconds
        workers = tuple(_worker(w, now, phase, waited, every, finished) for w in range(num_workers))
        if now == KILLED_AT:
            events.append((now, f"worker {KILLED} lost (killed by SIGKILL); started again in 1 s"))
        if now == BACK_AT:
            events.append((now, f"worker {KILLED} joined again after 6 s"))
        gradients = total if finished else min(total, int(updates) * num_workers)
        dropped, lost = sum(each.dropped for each in workers), sum(each.lost for each in workers)
        flying = sum(each.state == "computing" for each in workers)
        yield Status(
            title="synchronous SGD, momentum 0.9",
            seconds=now,
            updates=int(updates),
            gradients=gradients,
            num_gradients=total,
            gradients_per_second=num_workers / (3 * USUAL),
            loss=2.3 * math.exp(-int(updates) / 6) + 0.1 + 0.05 * math.sin(7 * int(updates)),
            evaluation={"accuracy": 1 - 0.9 * math.exp(-now / 12)} if now >= 5 else {},
            waiting_for=tuple(each.worker for each in workers if each.state == "computing"),
            wanted=num_workers - 1,
            staleness=0.0,
            idle_share=sum(waited) / num_workers / now,
            ledger={
                "begun": gradients + dropped + lost + flying,
                "applied": gradients,
                "dropped": dropped,
                "lost": lost,
                "in flight": flying,
            },
            workers=workers,
            events=tuple(events[-20:]),
            finished=finished,
        )
        if finished:
            return


def _worker(worker: int, now: float, phase: float, waited: list[float], every: float, finished: bool) -> WorkerStatus:
    usual = 3 * USUAL if worker == SLOW else USUAL * (0.9 + 0.02 * (worker % 10))
    state, since = ("computing", phase) if phase < usual else ("waiting", phase - usual)
    if worker == KILLED and KILLED_AT <= now < BACK_AT:
        state, since = ("lost", now - KILLED_AT) if now < SPAWNED_AT else ("starting", now - SPAWNED_AT)
    elif finished:
        state, since = "waiting", 0.0
    waited[worker] += every * (state == "waiting")
    came = int(now / (3 * USUAL))
    killed = worker == KILLED and now >= KILLED_AT
    return WorkerStatus(
        worker=worker,
        state=state,
        since=since,
        process=None if state in ("lost", "starting") else 4000 + worker + 1000 * killed,
        host="localhost",
        gradients=came,
        applied=came,
        dropped=came // 6 if worker == SLOW else 0,
        lost=int(killed),
        seconds=usual if came else None,
        against_fleet=usual / USUAL if came else None,
        against_itself=1.0 + 0.1 * math.sin(now + worker) if came else None,
        idle_share=waited[worker] / now,
        respawns=int(worker == KILLED and now >= SPAWNED_AT),
        error="killed by SIGKILL" if killed else "",
    )
