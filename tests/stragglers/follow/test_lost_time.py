"""Seconds that steps lost, by cause: they add up to those of the steps, and agree with a naive implementation."""

import math

import numpy as np
import pytest
from planted_traces import names, noise, watched

from sgdlab.stragglers.diagnosis.causes import ALL_SLOWER, PAUSES, SLOW_NODE, SLOW_WORKER
from sgdlab.stragglers.follow.alarms import CLEARED, RAISED, WORSE, Alarm
from sgdlab.stragglers.follow.lost_time import HELD, WAITING, LostTime, StepBlock

NORMAL = 1.3


def naive(steps, runtimes, usual, paused, spans):
    """Seconds by cause, and "good", a step and a worker at a time; spans are (kind, workers, since, until)."""
    lost = dict.fromkeys((WAITING, SLOW_WORKER, SLOW_NODE, ALL_SLOWER, PAUSES, "good"), 0.0)
    for row, step in enumerate(steps):
        here = [(kind, workers) for kind, workers, since, until in spans if since <= step < until]
        known = [w for w in range(runtimes.shape[1]) if not math.isnan(runtimes[row, w])]
        if not known:
            continue
        blamed = {worker: kind for kind, workers in here for worker in workers}
        others = [worker for worker in known if worker not in blamed] or known
        slowest = max(known, key=lambda worker: runtimes[row, worker])
        rest = max(runtimes[row, worker] for worker in others)
        middle = float(np.median([runtimes[row, worker] for worker in others]))
        if slowest in blamed:
            lost[blamed[slowest]] += runtimes[row, slowest] - rest
        lost[WAITING] += rest - middle
        calm = min(middle, usual[row]) if paused[row] else middle
        needed = min(calm, NORMAL) if any(kind == ALL_SLOWER for kind, _ in here) else calm
        lost[PAUSES] += middle - calm
        lost[ALL_SLOWER] += calm - needed
        lost["good"] += needed
    return lost


@pytest.mark.parametrize("seed", range(20))
def test_it_agrees_with_a_step_and_a_worker_at_a_time_and_adds_up(seed):
    random = np.random.default_rng(seed)
    number, blocks = int(random.integers(1, 7)), 12
    index = {name: place for place, name in enumerate(names(number))}
    lost, spans, given = LostTime(), [], []
    for block in range(blocks):
        steps = 10 * block + np.arange(10)
        runtimes = random.gamma(5.0, 0.4, (10, number))
        runtimes[random.random((10, number)) < 0.2] = np.nan
        found = []
        for kind in (SLOW_WORKER, SLOW_NODE, ALL_SLOWER):
            own = [span for span in spans if span[0] == kind]
            since = int(max(random.integers(steps[0] - 10 * HELD + 1, steps[-1]), 0))
            who = tuple(str(w) for w in random.permutation(number)[: random.integers(1, number + 1)])
            who = () if kind == ALL_SLOWER else who
            if random.random() < 0.4 and not any({*who} & {*span[1]} for span in spans) and not own:
                spans.append([kind, who, since, math.inf])
                found += [Alarm(RAISED, kind, 0, since, who, "n"), Alarm(WORSE, kind, 0, since, who, "n")]
            elif own and own[0][3] == math.inf and random.random() < 0.5:
                own[0][3] = max(since, own[0][2])
                found.append(Alarm(CLEARED, kind, 0, own[0][3], own[0][1], "n"))
        usual, paused = random.gamma(5.0, 0.3, 10), random.random(10) < 0.2
        given.append((steps, runtimes, usual, paused))
        medians = np.array([np.median(row[~np.isnan(row)]) if not np.isnan(row).all() else np.nan for row in runtimes])
        lost.add(StepBlock(steps, runtimes, medians, usual, paused), found, index)
        lost.settle(NORMAL)
    lost.settle(NORMAL, held=0)
    every = [np.concatenate(each) for each in zip(*given, strict=True)]
    expected = naive(*every, [(kind, [int(w) for w in who], since, until) for kind, who, since, until in spans])
    assert lost.lost | {"good": lost.good} == pytest.approx(expected, abs=1e-9)
    assert lost.good + sum(lost.lost.values()) == pytest.approx(np.fmax.reduce(every[1], axis=1, initial=0.0).sum())


def test_a_slow_worker_costs_from_its_first_slow_step_on_however_late_the_alarm():
    runtimes = noise(600, 8, 0)
    runtimes[200:400, 5] *= 2.0
    monitor, found = watched(runtimes)
    since, until = (alarm.since for alarm in found if alarm.kind == SLOW_WORKER)
    monitor.lost.settle(held=0)
    others = np.delete(runtimes, 5, axis=1).max(axis=1)
    cost = np.maximum(runtimes[:, 5] - others, 0.0)[since:until].sum()
    assert monitor.lost.lost[SLOW_WORKER] == pytest.approx(cost, rel=1e-5)
    assert monitor.lost.lost[SLOW_NODE] == monitor.lost.lost[PAUSES] == 0.0


def test_pauses_and_a_slower_cluster_cost_what_is_above_the_usual():
    runtimes = noise(800, 8, 1, shape=400.0)
    runtimes[100::100] *= 4.0
    runtimes[500:] *= 1.5
    monitor, _ = watched(runtimes)
    monitor.lost.settle(monitor.naming.normal, held=0)
    medians = np.median(runtimes, axis=1)
    assert monitor.lost.lost[PAUSES] == pytest.approx((medians[100::100] * 3 / 4).sum(), rel=0.05)
    assert monitor.lost.lost[ALL_SLOWER] == pytest.approx(300 * 0.5, rel=0.05)
    assert monitor.lost.good == pytest.approx(800.0, rel=0.02)
