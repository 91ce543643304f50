"""Processes that end, hang, or compute wrongly: how they are started, and again, on a clock that is not real."""

import collections
import dataclasses

import numpy as np
import pytest
from lib.rehearsal import Fault, Rehearsal
from rehearsing import QUICK, compute, rehearse

from sgdlab import policies
from sgdlab.errors import HostLost, RunFailed
from sgdlab.live.fleet import NOT_FINITE
from sgdlab.live.progress import line_of
from sgdlab.live.settings import LiveSettings, patient


def constant(workers=3, seconds=2.0):
    return np.full((1, workers), seconds)


def asynchronous(num_gradients, **given):
    return rehearse(policies.asynchronous, constant(), num_gradients=num_gradients, **given)


class Noting(Rehearsal):
    """Notes when processes are started, and how many are starting then."""

    def __init__(self, *given, at_once, **named):
        super().__init__(*given, **named)
        self.at_once, self.times, self.starting = at_once, [], []

    def spawn(self, worker):
        super().spawn(worker)
        self.times.append((worker, self.now))
        self.starting.append(sum(not process.joined for process in self._processes.values()))


def test_a_worker_that_is_away_for_ten_minutes_comes_back():
    faults = [Fault("kill", 0, 10.1), Fault("doomed", 0, 10.1, 600.0)]
    transport = Noting(constant(3, 20.0), compute, faults=faults, at_once=3)
    own = dataclasses.replace(QUICK, respawns=3, patience=100.0)
    recording, *_ = rehearse(policies.asynchronous, None, num_gradients=90, transport=transport, settings=own)
    own = recording.schedule.started[recording.schedule.worker == 0]
    # Each process dies at once; the pauses are 0.5, 1, ..., 32 s, and then a minute each.
    pauses = np.cumsum([0.5, 1, 2, 4, 8, 16, 32, *[60] * 10])
    expected = 10.1 + pauses[: np.searchsorted(pauses, 600.0) + 1]
    assert [when for worker, when in transport.times if worker == 0] == pytest.approx([0.0, *expected], abs=1e-6)
    assert own[own > 10.1][0] == pytest.approx(expected[-1], abs=1e-6)


def test_a_run_none_of_whose_processes_live_ends_soon():
    doomed = [Fault("doomed", worker, 0.0, 1e9) for worker in range(3)]
    transport = Rehearsal(constant(), compute, faults=doomed)
    words = r"^error: processes of all workers have ended 18 times without a gradient; of worker 2: exit code 1 before"
    with pytest.raises(RunFailed, match=words):  # three times the first one and five more
        asynchronous(30, transport=transport)
    assert transport.now == pytest.approx(0.5 + 1 + 2 + 4 + 8)


@pytest.mark.parametrize("since", [1.0, 11.0])
def test_a_run_whose_processes_all_die_of_their_first_gradient_ends_too(since):
    dying = [Fault("kill", worker, since + 0.25 * time) for worker in range(3) for time in range(400)]
    transport = Rehearsal(constant(), compute, faults=dying)
    with pytest.raises(RunFailed, match="18 times without a gradient; of worker 2: killed by SIGKILL"):
        asynchronous(30, transport=transport)
    assert transport.now < since + 30.0


@pytest.mark.parametrize("seconds", [200.0, 400.0])
def test_where_gradients_have_come_a_machine_may_be_mended(seconds):
    """All workers are away for a while: shorter, or longer, than the run waits."""
    away = [Fault("kill", worker, 10.3) for worker in range(3)]
    away += [Fault("doomed", worker, 10.3, seconds) for worker in range(3)]
    own = dataclasses.replace(QUICK, wait_seconds=300.0)
    if seconds < 300.0:
        recording, *_ = asynchronous(30, faults=away, settings=own)
        assert recording.ledger()["lost"] == 3
    else:
        with pytest.raises(HostLost, match=r"^0 of 3 workers are there, and min_workers=1 .* worker 0, 1 and 2: exit"):
            asynchronous(30, faults=away, settings=own)


def test_all_processes_may_die_at_once_and_again_while_there_are_gradients_in_between():
    killed = [Fault("kill", worker, 10.3 + 10 * time) for worker in range(3) for time in range(9)]
    recording, *_ = asynchronous(150, faults=killed, settings=dataclasses.replace(QUICK, respawns=1))
    assert recording.ledger()["lost"] == 27


def test_many_workers_start_a_few_at_a_time():
    """Each needs half a minute, so that they need 13 minutes in all; no setting says so."""
    statuses, workers = [], 100
    joins = dict.fromkeys(range(workers), 30.0)
    transport = Noting(constant(workers), compute, join_seconds=joins, at_once=4)
    own = LiveSettings(min_workers=workers, watch_seconds=20.0)
    recording, *_ = rehearse(
        policies.synchronous, None, num_gradients=200, transport=transport, settings=own, watch=statuses.append
    )
    assert max(transport.starting) == 4
    assert [when for _, when in transport.times] == pytest.approx(np.repeat(30.0 * np.arange(25), 4), abs=1e-6)
    assert recording.schedule.num_updates == 2
    lines = [line_of(status) for status in statuses]
    assert "36 of 100 workers are there, 4 are starting, 60 wait for them" in " ".join(lines)
    assert "workers are there" not in lines[-1]
    # Who was still starting when a run ended is no longer waited for.
    some = next(status for status in statuses if "workers are there" in line_of(status))
    assert "workers are there" not in line_of(dataclasses.replace(some, finished=True))


class Others(Rehearsal):
    """Workers that others start: the server frees places for them."""

    STARTS = False


def test_a_place_that_nobody_has_taken_is_free_and_nothing_is_said_to_start():
    own = LiveSettings(min_workers=2, join_seconds=5.0, wait_seconds=20.0, watch_seconds=0.0)
    joins = {0: 0.0, 1: 1.0, 2: 1e9, 3: 1e9}
    statuses, transport = [], Others(constant(4), compute, faults=[Fault("kill", 0, 10.3)], join_seconds=joins)
    asynchronous(30, transport=transport, settings=own, watch=statuses.append)
    lines = [line_of(status) for status in statuses]
    assert any("2 of 4 workers are there, 2 places are free" in line for line in lines)
    assert "starting" not in " ".join(lines)
    said = {words for status in statuses for _, words in status.events}
    assert "worker 0 is lost: killed by SIGKILL; its place is free in 0.5 s" in said
    assert not any("started again" in words for words in said)
    transport = Others(constant(4), compute, join_seconds=joins)
    words = r"^2 of 4 workers are there, and min_workers=3 are needed: worker 2 and 3: nobody has joined$"
    with pytest.raises(HostLost, match=words):
        asynchronous(30, transport=transport, settings=dataclasses.replace(own, min_workers=3))


def test_a_process_that_hangs_while_it_starts_is_given_up():
    class Hanging(Noting):
        def _start(self, worker, seconds):
            hangs = worker == 1 and sum(each == 1 for each, _ in self.times) < 2
            super()._start(worker, 1e9 if hangs else seconds)

    transport, statuses = Hanging(constant(), compute, at_once=3), []
    own = LiveSettings(watch_seconds=0.0)
    recording, *_ = asynchronous(180, transport=transport, settings=own, watch=statuses.append)
    # The run begins without it after a minute; the second process is given two.
    spawned = [when for worker, when in transport.times if worker == 1]
    assert spawned == pytest.approx([0.0, 60.5, 60.5 + 121.0], abs=3 * own.turn_seconds)
    assert ("kill", 1) in transport.told
    said = {words for status in statuses for _, words in status.events}
    why = "worker 1 is lost: it was not ready 60 s after its start, and was killed; started again in 0.5 s"
    assert why in said
    assert {at for status in statuses for at, words in status.events if words == why} == {0.0}  # its clock stood
    assert recording.schedule.started[recording.schedule.worker == 1].min() == pytest.approx(122.0, abs=1.0)


def test_the_line_of_too_few_workers_is_short():
    away = [Fault("doomed", worker, 0.0, 1e9) for worker in range(1, 100)]
    own = dataclasses.replace(QUICK, min_workers=50)
    words = r"^1 of 100 workers are there, and min_workers=50 are needed: worker 1, 2, 3 and 96 more: exit code 1"
    with pytest.raises(HostLost, match=words):
        rehearse(policies.asynchronous, constant(100), num_gradients=30, faults=away, settings=own)


class EveryThird(Rehearsal):
    """Every third gradient of some workers is not finite."""

    def __init__(self, *given, spoiling, **named):
        super().__init__(*given, **named)
        self.spoiling, self.sent = spoiling, collections.Counter()

    def _answer(self, worker, process, seconds):
        self.sent[worker] += 1
        if worker in self.spoiling and self.sent[worker] % 3 == 0:
            self._next.add(("nan", worker))
        return super()._answer(worker, process, seconds)


def test_a_worker_that_spoils_every_third_gradient_is_taken_out_for_ever_longer():
    transport, statuses = EveryThird(constant(), compute, spoiling={1}), []
    own = dataclasses.replace(QUICK, failures=4)
    recording, *_ = asynchronous(400, transport=transport, settings=own, watch=statuses.append)
    started = recording.schedule.started[recording.schedule.worker == 1]
    ended = recording.schedule.arrived[recording.fate == "lost", 0]
    pauses = [started[started > at].min() - at for at in sorted(ended)[:5]]
    # Its fourth bad gradient is its 12th; it is found out within turn_seconds, in the next gradient, which is lost.
    assert transport.told.count(("kill", 1)) == recording.ledger()["lost"] >= 5
    assert pauses == pytest.approx(0.5 * 2.0 ** np.arange(5), abs=1e-6)
    assert not {("kill", 0), ("kill", 2)} & set(transport.told)
    said = {words for status in statuses for _, words in status.events}
    why = f"4 of its last 12 gradients failed or were refused: {NOT_FINITE}"
    assert f"worker 1 is lost: {why}; started again in 0.5 s" in said
    assert statuses[-1].workers[1].refused == recording.ledger()["refused"] > 0


def test_gradients_that_are_bad_on_all_workers_are_no_workers_fault():
    transport = EveryThird(constant(), compute, spoiling={0, 1, 2})
    recording, *_ = asynchronous(200, transport=transport, settings=dataclasses.replace(QUICK, failures=4))
    assert recording.ledger()["refused"] > 60
    assert not any(kind == "kill" for kind, *_ in transport.told)


def test_a_worker_that_has_recovered_is_like_the_others_again():
    transport, statuses = EveryThird(constant(), compute, spoiling={1}, faults=[Fault("kill", 1, 150.0)]), []
    transport._at(60.0, lambda: transport.spoiling.clear() or [])  # after it was taken out twice
    own = dataclasses.replace(QUICK, failures=4)
    asynchronous(400, transport=transport, settings=own, watch=statuses.append)
    words = " ".join(words for _, words in statuses[-1].events)
    assert "failed or were refused" in words
    assert "worker 1 is lost: killed by SIGKILL; started again in 0.5 s" in words


@pytest.mark.parametrize(("respawns", "expected"), [(0, 1000), (2000, 2000)])
def test_a_server_that_starts_nobody_frees_places_as_often_as_one_likes(respawns, expected):
    given = LiveSettings(respawns=respawns)
    assert patient(given) == dataclasses.replace(given, respawns=expected)
