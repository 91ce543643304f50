"""The loops that the page shows make the same choices as the protocols that were measured."""

import heapq
import itertools

import numpy as np
import pytest
from toy_traces import WORKERS, toy

from sgdlab import predictors, protocols
from sgdlab.stragglers.answer import rules
from sgdlab.stragglers.comparison.protocol import DEPLOYABLE, Protocol
from sgdlab.stragglers.comparison.sweeps import FINISHING, INTERRUPTED

HISTORY = 20


def paused():
    """Two steps that pause all workers, from which nothing is to be learned."""
    runtimes = toy()
    runtimes[[30, 45]] += 3000.0
    return runtimes


class FakeCluster:
    """Workers whose next compute times are the rows of a table, and what the loop calls of a training program."""

    def __init__(self, runtimes):
        self.rows, self.counts, self.updates = iter(runtimes), [], []

    def first_arrivals(self, params, count):
        assert params == len(self.updates)  # the newest parameters were sent
        row = next(self.rows)
        order = np.argsort(row, kind="stable")[:count]
        seconds = np.full(row.size, np.nan)
        seconds[order] = row[order]
        self.counts.append(count)
        return seconds, order.tolist()

    def update(self, params, gradients):
        self.updates.append(gradients)
        return params + 1

    def names(self, **more):
        return {"params": 0, "mean": list, "update": self.update, "first_arrivals": self.first_arrivals, **more}


def protocol(method, objective="throughput", **parameters):
    return Protocol(method, "", DEPLOYABLE, {}, parameters=parameters, objective=objective)


def run(chosen, runtimes):
    """The numbers of gradients that the printed loop waits for, after 20 steps of history."""
    cluster, test = FakeCluster(runtimes[HISTORY:]), runtimes[HISTORY:]
    code = rules.loop(chosen, WORKERS)
    exec(compile(code, "loop", "exec"), cluster.names(steps=range(len(test)), history=runtimes[:HISTORY]))
    return cluster


@pytest.mark.parametrize(
    ("chosen", "predictor"),
    [
        (
            protocol("median + k MAD", deviations=1.5, window=2),
            predictors.Deadline(deviations=1.5, window=2),
        ),
        (protocol("running mean", window=5), predictors.RunningMean(5)),
        (protocol("running mean", "rate", window=1), predictors.RunningMean(1)),
        (protocol("Elfving", window=10), predictors.Elfving(10)),
        (protocol("Kalman filter"), predictors.Kalman(predictors.kalman.fit(toy()[:HISTORY]))),
    ],
    ids=lambda value: getattr(value, "title", ""),
)
def test_the_loop_waits_for_as_many_as_the_predictor_that_was_measured(chosen, predictor):
    runtimes = paused()
    expected = predictors.run_online(
        runtimes[HISTORY:], predictors.Guarded(predictor), objective=chosen.objective, history=runtimes[:HISTORY]
    )
    cluster = run(chosen, runtimes)
    assert cluster.counts == expected.cutoff.tolist()
    assert [len(gradients) for gradients in cluster.updates] == cluster.counts


def test_a_fixed_number_is_waited_for_and_the_first_enter():
    runtimes = toy()
    cluster = run(Protocol(INTERRUPTED, "b = 2", DEPLOYABLE, {}, 2), runtimes)
    order = np.argsort(runtimes[HISTORY:], axis=1, kind="stable")[:, : WORKERS - 2]
    assert cluster.updates == order.tolist()


class FinishingCluster(FakeCluster):
    """Workers that finish what they began, and begin anew when they are sent parameters."""

    def __init__(self, runtimes):
        super().__init__(runtimes)
        self.own = [iter(column) for column in np.asarray(runtimes).T.tolist()]
        self.now, self.flying, self.number = 0.0, [], itertools.count()
        for worker in range(runtimes.shape[1]):
            self.send(worker, 0, 0)

    def send(self, worker, params, version):
        assert params == version == len(self.updates)
        seconds = next(self.own[worker], None)
        if seconds is not None:
            heapq.heappush(self.flying, (self.now + seconds, next(self.number), worker, version))

    def arrivals(self):
        while self.flying:
            self.now, _, worker, version = heapq.heappop(self.flying)
            yield worker, version, (worker, self.now)


@pytest.mark.parametrize("backups", [1, 3])
def test_the_loop_that_lets_late_workers_finish_makes_the_schedule_of_backup_workers(backups):
    runtimes = toy()
    cluster = FinishingCluster(runtimes)
    chosen = Protocol(FINISHING, f"b = {backups}", DEPLOYABLE, {}, backups)
    names = cluster.names(arrivals=cluster.arrivals, send=cluster.send)
    exec(compile(rules.loop(chosen, WORKERS), "loop", "exec"), names)
    schedule = protocols.backup_workers(runtimes, backups=backups)
    ends = [max(seconds for _, seconds in gradients) for gradients in cluster.updates]
    assert len(ends) >= schedule.applied.shape[0] > 10
    np.testing.assert_allclose(ends[: schedule.applied.shape[0]], schedule.applied[:, 0], rtol=1e-12)
    for update, gradients in enumerate(cluster.updates[: schedule.applied.shape[0]]):
        entered = (
            schedule.worker[schedule.update[:, 0] == update]
            if schedule.update.ndim > 1
            else schedule.worker[schedule.update == update]
        )
        assert sorted(worker for worker, _ in gradients) == sorted(entered.tolist())


def test_loops_are_short_and_full_synchrony_needs_none():
    full = Protocol("full synchrony", "", DEPLOYABLE, {}, 0)
    assert rules.loop(full, 16) == rules.rule(full, 16) == ""
    code = rules.loop(protocol("Elfving", window=10), 16)
    assert sum(line.startswith(("for", "    ")) for line in code.splitlines()) == 5


@pytest.mark.parametrize(
    "title", [INTERRUPTED, FINISHING, "median + k MAD", "running mean", "Elfving", "Kalman filter"]
)
def test_what_is_fitted_again_has_a_rule_without_parameters_and_no_loop(title):
    again = Protocol(title, "every 50 steps", DEPLOYABLE, {}, refitted=True)
    assert "every 50 steps" in rules.rule(again, 16)
    assert "{" not in rules.rule(again, 16)
    assert rules.loop(again, 16) == ""


def test_a_rule_names_its_parameters():
    text = rules.rule(protocol("median + k MAD", deviations=6.0, window=2), 16)
    assert "last 2 steps" in text
    assert "6.0 times" in text
    assert "?" not in text
    text = rules.rule(Protocol(INTERRUPTED, "b = 3", DEPLOYABLE, {}, 3), 16)
    assert "13 of the 16" in text
