"""A plausible run as a sequence of Status: synchronous rounds, one worker slow, one killed and started again."""

import itertools
import math

from sgdlab.live.status import Status, WorkerStatus

SLOW, KILLED, KILLED_AT, SPAWNED_AT, BACK_AT = 3, 1, 10.0, 11.0, 16.0
USUAL = 0.8
"""Seconds a gradient."""
ROUND = 3 * USUAL


def run(num_workers=8, seconds=40.0):
    """Statuses of a run, one each half second; the last one is finished."""
    total = num_workers * int(seconds / ROUND)
    happens = {
        KILLED_AT: f"worker {KILLED} lost (killed by SIGKILL); started again in 1 s",
        BACK_AT: f"worker {KILLED} joined again after 6 s",
    }
    for step in itertools.count(1):
        now = 0.5 * step
        updates, finished = int(now / ROUND), now >= seconds
        workers = tuple(_worker(worker, now, finished) for worker in range(num_workers))
        computing = tuple(each.worker for each in workers if each.state == "computing")
        gradients = total if finished else min(total, updates * num_workers)
        lost = sum(each.lost for each in workers)
        flying = {"dropped": 0, "lost": lost, "in flight": len(computing)}
        yield Status(
            title="synchronous SGD, momentum 0.9",
            seconds=now,
            updates=updates,
            gradients=gradients,
            num_gradients=total,
            gradients_per_second=num_workers / ROUND,
            loss=2.3 * math.exp(-updates / 6) + 0.1,
            evaluation={"accuracy": 1 - 0.9 * math.exp(-now / 12)} if now >= 5 else {},
            waiting_for=computing,
            wanted=num_workers - 1,
            staleness=0.0,
            idle_share=0.6,
            ledger={"begun": gradients + lost + len(computing), "applied": gradients, **flying},
            workers=workers,
            events=tuple((at, words) for at, words in happens.items() if at <= now),
            finished=finished,
        )
        if finished:
            return


def _worker(worker, now, finished):
    usual, phase = ROUND if worker == SLOW else USUAL * (0.9 + 0.02 * (worker % 10)), now % ROUND
    state, since = ("computing", phase) if phase < usual else ("waiting", phase - usual)
    killed = worker == KILLED and now >= KILLED_AT
    if killed and now < BACK_AT:
        state, since = ("lost", now - KILLED_AT) if now < SPAWNED_AT else ("starting", now - SPAWNED_AT)
    elif finished:
        state, since = "waiting", 0.0
    came = int(now / ROUND)
    return WorkerStatus(
        worker=worker,
        state=state,
        since=since,
        process=None if state in ("lost", "starting") else 4000 + worker + 1000 * killed,
        host="localhost",
        gradients=came,
        applied=came,
        dropped=0,
        lost=int(killed),
        seconds=usual if came else None,
        against_fleet=usual / USUAL if came else None,
        against_itself=1.0 if came else None,
        idle_share=0.6,
        respawns=int(killed and now >= SPAWNED_AT),
        error="killed by SIGKILL" if killed else "",
    )
