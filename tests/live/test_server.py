import collections
import dataclasses

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lib.rehearsal import KINDS, Fault, Rehearsal, dyadic
from lib.tiers import examples
from rehearsing import POLICIES, QUICK, Creeping, NaiveSteps, after, compute, rehearse, replayed

from sgdlab import policies
from sgdlab.errors import HostLost, RunFailed, Stopped
from sgdlab.live.engine import LiveEngine
from sgdlab.live.server import serve
from sgdlab.protocols.recorder import FATES, Row

FIELDS = ("worker", "read", "update", "started", "arrived")


def rows_of(part):
    """The rows of a part of a record."""
    columns = [part.columns[name] for name in ("ticket", "worker", "read", "started", "arrived", "update", "fate")]
    return [Row(*fields, FATES[fate]) for *fields, fate in zip(*columns, strict=True)]


@pytest.fixture(autouse=True)
def checked_after_each_event(monkeypatch):
    """Check what must hold at every instant, by counting anew."""
    handle = LiveEngine.handle

    def handle_and_check(self, event, now):
        handle(self, event, now)
        rows, flying = rows_of(self.flying.recorder.part), self.flying.recorder.open
        made = self.updates
        fates = collections.Counter(row.fate or ("applied" if row.update < made else "open") for row in rows)
        assert sorted([row.ticket for row in rows] + list(flying)) == list(range(self.flying.begun))
        assert self.flying.counts() == {
            "begun": self.flying.begun,
            "applied": fates["applied"],
            "dropped": fates["late"] + fates["interrupted"],
            "lost": fates["lost"],
            "refused": fates["failed"] + fates["refused"],
            "in flight": fates["open"] + len(flying),
        }
        assert {(worker, ticket) for worker, ticket in self.flying.current.items()} == {
            (row.worker, row.ticket) for row in flying.values()
        }
        held = set(getattr(self.policy, "held", tuple)())  # for gradients that begin later
        assert set(self.flying.versions.held()) == {row.read for row in flying.values()} | held
        if isinstance(self.transport, Rehearsal):  # nothing is kept, or published, that nobody reads
            assert len(self.flying.versions._trees) <= len(set(self.flying.versions.held()) | {made})
            assert len(self.transport._trees) <= len(set(self.flying.versions.held()) | {made})
        assert set(self.fleet.there()) == self.policy.alive
        if not self.finished:  # at the end nobody begins again
            assert self.policy.busy == {row.worker: row.read for row in flying.values()}
        assert self.policy.version == made

    monkeypatch.setattr(LiveEngine, "handle", handle_and_check)


def without_pending(schedule):
    rows = ~schedule.pending()[:, 0]
    return {name: getattr(schedule, name)[rows] for name in FIELDS} | {"applied": schedule.applied}


@pytest.mark.parametrize("name", POLICIES)
def test_a_run_without_faults_is_what_simulate_says(name):
    runtimes = dyadic(np.random.default_rng(1), (60, 4))
    recording, steps, _, policy = rehearse(POLICIES[name], runtimes, num_gradients=100)
    expected = without_pending(policies.simulate(POLICIES[name], runtimes, num_gradients=100))
    found = without_pending(recording.schedule)
    for field, values in expected.items():
        np.testing.assert_array_equal(found[field], values, err_msg=field)
    assert np.abs(steps.params - replayed(recording, policy.single)).max() == 0.0


def test_the_time_of_an_update_is_not_the_workers():
    """The clock is read after the update, when workers begin, so that they are not charged with it."""
    runtimes = np.full((1, 3), 2.0)
    recording, *_ = rehearse(policies.synchronous, runtimes, num_gradients=30, transport=Creeping(runtimes, compute))
    schedule = recording.schedule
    later = schedule.read[:, 0] > 0
    waited = schedule.started[later] - schedule.applied[schedule.read[later, 0] - 1, 0]
    assert (waited >= 2.0**-16).all()
    by_hand = schedule.arrived[:, 0] - schedule.started
    assert np.abs(by_hand - 2.0).max() < 10 * 2.0**-16


FAULTS = {
    "kill": [Fault("kill", 1, 10.3, 0.1)],
    "kill two at once": [Fault("kill", 1, 10.3), Fault("kill", 2, 10.3)],
    "kill all": [Fault("kill", worker, 10.3) for worker in range(4)],
    "kill all but one": [Fault("kill", worker, 10.3) for worker in range(1, 4)],
    "stopped for a while": [Fault("stop", 0, 7.1, 4.0)],
    "stopped for longer than the patience": [Fault("stop", 0, 7.1, 45.0)],
    "slow": [Fault("slow", 2, 5.0, 1.0)],
    "raise": [Fault("raise", 3, 6.0)],
    "nan": [Fault("nan", 0, 6.0), Fault("nan", 1, 20.0)],
    "sent twice": [Fault("twice", 0, 5.0, 0.0), Fault("twice", 1, 9.0, 3.0), Fault("twice", 2, 3.0, 0.5)],
    "deaf": [Fault("deaf", worker, 0.0, 40.0) for worker in range(4)],
    "replaced without a word": [Fault("replace", 2, 8.2, 1.0)],
    "gives up by itself": [Fault("give_up", 2, 8.2)],
}


@pytest.mark.covering
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("name", POLICIES)
def test_faults(name, fault):
    runtimes = dyadic(np.random.default_rng(2), (80, 4))
    recording, steps, transport, policy = rehearse(POLICIES[name], runtimes, num_gradients=90, faults=FAULTS[fault])
    ledger, schedule = recording.ledger(), recording.schedule
    assert ledger["applied"] >= 90
    assert np.abs(steps.params - replayed(recording, policy.single)).max() == 0.0
    if "timeout" in name or name in ("synchronous", "backup_workers", "rennala"):
        assert (schedule.staleness().compressed() == 0).all()
    if "ringmaster" in name:
        assert (schedule.staleness().compressed() < 3).all()
    expected = {"raise": ("failed", 1), "nan": ("refused", 2), "replaced without a word": ("lost", 1)}
    if fault in expected:
        fate, number = expected[fault]
        assert ledger[fate] == number
    if fault in ("sent twice", "deaf", "stopped for a while"):
        assert ledger["lost"] == ledger["failed"] == ledger["refused"] == 0
    begun = [told for told in transport.told if told[0] == "begin"]
    assert [ticket for _, _, ticket in begun] == list(range(len(begun)))  # each ticket once, in order


@settings(
    max_examples=examples(40),
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    name=st.sampled_from(sorted(POLICIES)),
    workers=st.integers(2, 5),
    seed=st.integers(0, 10_000),
    faults=st.lists(
        st.tuples(
            st.sampled_from([kind for kind in KINDS if kind != "doomed"]),
            st.integers(0, 4),
            st.floats(0.0, 30.0),
            st.floats(0.0, 60.0),
        ),
        max_size=8,
    ),
)
def test_any_faults_together(name, workers, seed, faults):
    """The invariants of `checked_after_each_event` hold, and the record says what was computed."""
    faults = [Fault(kind, worker % workers, at, seconds) for kind, worker, at, seconds in faults]
    runtimes = np.random.default_rng(seed).exponential(2.0, (50, workers)) + 0.1
    recording, steps, transport, policy = rehearse(POLICIES[name], runtimes, num_gradients=30, faults=faults)
    assert recording.ledger()["applied"] >= 30
    assert np.abs(steps.params - replayed(recording, policy.single)).max() == 0.0
    begun = [ticket for kind, _, *ticket in transport.told if kind == "begin"]
    assert begun == [[ticket] for ticket in range(len(begun))]


def constant(workers=3, seconds=2.0):
    return np.full((1, workers), seconds)


def asynchronous(num_gradients, **given):
    return rehearse(policies.asynchronous, constant(), num_gradients=num_gradients, **given)


def test_a_worker_that_is_killed_begins_again_after_the_back_off():
    # Killed in its second gradient, at 3.5 s of the run, which begins when all have joined, at 1 s; heard of 0.25 s
    # later, started again after 0.5 s, and it joins 1 s after that.
    faults = [Fault("kill", 1, 4.5, 0.25)]
    join_seconds = {1: 1.0}
    recording, _, transport, _ = asynchronous(30, faults=faults, join_seconds=join_seconds)
    schedule = recording.schedule
    own = (schedule.worker == 1) & (recording.fate != "pending")
    again = 3.5 + 0.25 + 0.5 + 1.0
    assert schedule.started[own][:4] == pytest.approx([0.0, 2.0, again, again + 2.0], abs=1e-9)
    assert recording.fate[own][:4].tolist() == ["applied", "lost", "applied", "applied"]
    assert transport.told.count(("spawn", 1)) == 2


def test_patience_is_learned_and_a_silent_worker_that_speaks_joins_again():
    # Usually 2 s: silent for more than max(3 * 2, 10) s means lost. It is stopped at 5 s for 30 s.
    recording, _, transport, _ = asynchronous(80, faults=[Fault("stop", 0, 5.0, 30.0)])
    row = np.flatnonzero(recording.fate == "lost")
    assert row.size == 1
    assert recording.schedule.worker[row] == 0
    waited = (recording.schedule.arrived[row, 0] - recording.schedule.started[row])[0]
    assert 10.0 < waited < 10.0 + 3 * QUICK.turn_seconds
    again = recording.schedule.started[(recording.schedule.worker == 0) & (recording.schedule.started > 10)][0]
    assert again == pytest.approx(35.0, abs=1e-6)  # as soon as it has spoken
    assert ("kill", 0) not in transport.told
    interrupted = [ticket for kind, worker, *ticket in transport.told if (kind, worker) == ("interrupt", 0)]
    assert interrupted[0] == [int(recording.ticket[row][0])]


def test_a_stopped_worker_that_is_interrupted_again_and_again_is_lost_too():
    """Each update interrupts it, and it is told to begin anew; it never answers."""
    stopped = [Fault("stop", 0, 5.0, 1000.0)]
    recording, _, transport, _ = rehearse(
        POLICIES["timeout, interrupting"], constant(), num_gradients=60, faults=stopped
    )
    schedule = recording.schedule
    assert recording.ledger()["lost"] == 1
    lost = schedule.arrived[recording.fate == "lost", 0][0]
    last = schedule.arrived[(schedule.worker == 0) & (recording.fate == "applied"), 0]
    last = last[last < 5.0].max()
    assert last + 10.0 < lost < last + 10.0 + 4 * QUICK.turn_seconds
    assert ("kill", 0) in transport.told  # much later


def test_a_worker_that_has_given_up_one_gradient_is_expected_to_answer_the_next():
    # Worker 0 is interrupted at 1.75 s, says so, and begins again; then both are stopped.
    faults = [Fault("stop", worker, 2.0, 1e6) for worker in range(2)]
    recording, *_ = rehearse(
        POLICIES["timeout, interrupting"],
        np.array([[3.0, 1.0]]),
        num_gradients=20,
        faults=faults,
        stop=after(2_000),
    )
    lost = recording.fate == "lost"
    assert sorted(recording.schedule.worker[lost]) == [0, 1]
    # Nobody knows the usual time of worker 0; the other one's is 1 s.
    expected = [2.0 - 0.25 + QUICK.least_patience, 2.0 - 0.25 + QUICK.first_patience]
    assert sorted(recording.schedule.arrived[lost, 0]) == pytest.approx(expected, abs=3 * QUICK.turn_seconds)


def test_a_slow_worker_that_is_interrupted_again_and_again_is_not_lost():
    runtimes = np.array([[100.0, 1.0, 1.0]])
    recording, *_ = rehearse(POLICIES["timeout, interrupting"], runtimes, num_gradients=120)
    assert recording.ledger()["lost"] == 0
    assert recording.ledger()["interrupted"] > 50


def test_a_worker_that_stays_silent_is_killed_and_started_anew():
    # Lost after 10 s, killed after 4 * 10 s, started anew half a second later, and it joins at once.
    recording, _, transport, _ = asynchronous(150, faults=[Fault("stop", 0, 5.0, 1000.0)])
    assert transport.told.count(("kill", 0)) == 1
    begun = recording.schedule.started[recording.schedule.worker == 0]
    assert (np.diff(begun) > 30).sum() == 1
    assert recording.ledger()["lost"] == 1


@pytest.mark.sample(1)
@pytest.mark.parametrize(("faults", "silent", "kills"), [((), 3, 0), ((Fault("deaf", 2, 0.0, 1e6),), 3, 1)])
@pytest.mark.parametrize("name", ["asynchronous", "backup_workers"])
def test_a_worker_that_becomes_slower_than_its_patience_comes_back(name, faults, silent, kills):
    """From its fourth gradient on, worker 2 needs 70 s; 10, 20 and 40 s are allowed until the first of these comes.

    If it cannot give up, it is killed at 4 * 10 s, and then comes back at 70 s, until it is allowed 80 s.
    """
    runtimes = np.ones((400, 3))
    runtimes[3:, 2] = 70.0
    recording, _, transport, _ = rehearse(POLICIES[name], runtimes, num_gradients=1000, faults=faults)
    schedule = recording.schedule
    own = np.flatnonzero(schedule.worker == 2)
    own = own[np.argsort(schedule.started[own])]
    lost = recording.fate[own] == "lost"
    assert lost.sum() == silent
    waited = (schedule.arrived[own, 0] - schedule.started[own])[lost]
    assert waited == pytest.approx([10.0, 20.0, 40.0], abs=3 * QUICK.turn_seconds)
    assert transport.told.count(("kill", 2)) == kills
    came = schedule.arrived[own, 0][np.isin(recording.fate[own], ("applied", "late")) & (np.arange(own.size) >= 3)]
    assert came.size >= 2
    assert not lost[np.flatnonzero(lost)[-1] + 1 :].any()


def test_a_pause_of_the_server_itself_is_no_silence_of_its_workers():
    class Slept(Rehearsal):
        def next(self, timeout):
            messages = super().next(timeout)
            if 20 < self.now < 21:  # everything was stopped for an hour, such as the whole machine
                self.now += 3600.0
                self._heap = [(when + 3600.0, order, happens) for when, order, happens in self._heap]
            return messages

    recording, *_ = rehearse(policies.synchronous, constant(), num_gradients=60, transport=Slept(constant(), compute))
    assert recording.ledger()["lost"] == 0
    assert recording.schedule.wall_clock() > 3600


def test_what_has_come_while_the_server_was_busy_is_heard_before_anybody_is_lost():
    class Busy(Rehearsal):
        def next(self, timeout):
            messages = super().next(timeout)
            if 19.3 < self.now < 19.6:  # just before its second gradient comes, which takes it 9.8 of 10 s allowed
                self.now += 5.0
            return messages

    own = dataclasses.replace(QUICK, patience=1.01)
    transport = Busy(constant(1, 9.8), compute)
    recording, *_ = rehearse(policies.asynchronous, constant(1), num_gradients=4, transport=transport, settings=own)
    assert recording.ledger()["lost"] == 0
    assert recording.schedule.arrived[1, 0] > 24.0


def test_a_time_out_comes_before_what_is_heard_after_it():
    class Busy(Rehearsal):
        def next(self, timeout):
            messages = super().next(timeout)
            if [message.worker for message in messages] == [1]:  # it listens again when worker 2 has spoken too
                self.now = 4.0
                messages += super().next(0.125)
            return messages

    make = lambda num_workers: policies.timeout(num_workers=num_workers, at_least=1, seconds=1.0)
    runtimes = np.array([[1.0, 1.5, 3.5]])
    recording, *_ = rehearse(make, runtimes, num_gradients=1, transport=Busy(runtimes, compute))
    assert recording.schedule.worker[recording.fate == "applied"].tolist() == [0]


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_what_comes_with_a_gradient_must_be_finite_too(wrong):
    def spoiled(ticket, params):
        grads, aux = compute(ticket, params)
        return grads, aux | {"mean": np.array([0.0, wrong if ticket == 7 else 1.0])}

    transport = Rehearsal(constant(), spoiled)
    recording, *_ = asynchronous(30, transport=transport)
    assert recording.ticket[recording.fate == "refused"].tolist() == [7]


def test_processes_are_named_when_they_join():
    statuses = []
    asynchronous(60, faults=[Fault("kill", 1, 5.0)], watch=statuses.append)
    words = [words for _, words in statuses[-1].events]
    assert words[0] == "the workers are there: on rehearsal 0 is process 1, 1 is process 2, 2 is process 3"
    assert "worker 1 has joined: process 4 on rehearsal" in words


def test_late_joiners_come_in():
    recording, *_ = asynchronous(60, join_seconds={0: 0.0, 1: 1.0, 2: 9.0})
    schedule = recording.schedule
    first = [schedule.started[schedule.worker == worker].min() for worker in range(3)]
    # After join_seconds = 5 its first process is given up, and the run begins with those that are there; the next one
    # is started 0.5 s later, needs 9 s, and is given 2 * 5 s.
    assert first[:2] == [0.0, 0.0]
    assert first[2] == pytest.approx(0.5 + 9.0, abs=2 * QUICK.turn_seconds)


def test_a_policy_may_begin_a_worker_that_never_joins():
    class Eager(policies.Softsync):
        def start(self, workers):
            return [*super().start(workers), *self.begin([2])]

    joins = {0: 0.0, 1: 1.0, 2: 400.0}
    recording, *_ = rehearse(lambda num_workers: Eager(size=1), constant(), num_gradients=30, join_seconds=joins)
    assert recording.ledger()["applied"] == 30
    assert not recording.life.any()


def test_a_worker_that_is_killed_before_the_run_begins_is_said_to_be_started_again():
    statuses, faults = [], [Fault("kill", 1, 0.5, 0.25)]
    recording, *_ = rehearse(
        policies.synchronous, constant(), num_gradients=9, faults=faults, join_seconds={1: 0.1, 2: 2.0},
        watch=statuses.append,
    )  # fmt: skip
    assert set(recording.schedule.worker.tolist()) == {0, 1, 2}
    (said,) = {words for status in statuses for _, words in status.events if "is lost" in words}
    assert said.startswith("worker 1 is lost: ")
    assert said.endswith("; started again in 0.5 s")


def test_the_run_needs_min_workers():
    own = dataclasses.replace(QUICK, min_workers=2, respawns=2)
    doomed = [Fault("doomed", worker, 0.0, 1e6) for worker in (1, 2)]
    with pytest.raises(HostLost, match=r"1 of 3 workers are there, and min_workers=2 .* worker 1 and 2: exit code 1"):
        asynchronous(30, faults=doomed, settings=own)
    killed = [Fault("kill", worker, 20.0) for worker in (1, 2)] + [Fault("doomed", w, 20.0, 1e6) for w in (1, 2)]
    with pytest.raises(HostLost, match="1 of 3 workers are there, and min_workers=2 are needed: worker 1 and 2: exit"):
        asynchronous(300, faults=killed, settings=own)
    for seconds in (40.0, 80.0):  # they come back before, or after, a wait of 60 s
        away = [Fault("kill", 1, 20.0), Fault("kill", 2, 20.0)]
        late = Rehearsal(constant(), compute, faults=away)
        late._join_seconds = collections.defaultdict(float)
        patient = dataclasses.replace(own, join_seconds=1000.0)
        late._at(19.0, lambda late=late, seconds=seconds: late._join_seconds.update({1: seconds, 2: seconds}) or [])
        if seconds < 60:
            asynchronous(90, transport=late, settings=patient)
        else:
            with pytest.raises(HostLost, match="worker 1 and 2: killed by SIGKILL"):
                asynchronous(300, transport=late, settings=patient)


def test_a_good_gradient_makes_up_for_what_was_before():
    own = dataclasses.replace(QUICK, respawns=1, failures=2, respawn_seconds=0.5)
    storm = [Fault("kill", 0, 10.1 + 10 * time) for time in range(6)]
    single = [Fault("raise", 0, 14.1 + 10 * time) for time in range(6)]
    recording, _, transport, _ = asynchronous(120, faults=storm + single, settings=own)
    assert transport.told.count(("spawn", 0)) == 1 + 6
    assert transport.told.count(("kill", 0)) == 0
    assert (recording.ledger()["lost"], recording.ledger()["failed"]) == (6, 6)


def test_gradients_that_are_never_good_end_the_run():
    def diverged(ticket, params):
        grads, aux = compute(ticket, params)
        return {"w": grads["w"] * (np.inf if ticket > 50 else 1.0)}, aux

    with pytest.raises(RunFailed, match=r"last \d+ gradients of all workers were not finite"):
        asynchronous(90, transport=Rehearsal(constant(), diverged))


def test_a_worker_that_always_fails_is_started_anew_after_ever_longer_pauses():
    own = dataclasses.replace(QUICK, failures=2, respawns=1)
    faults = [Fault("raise", 0, 1.0 + 0.01 * step) for step in range(1)]

    class Broken(Rehearsal):
        def next(self, timeout):
            self._next.add(("raise", 0))
            return super().next(timeout)

    transport = Broken(constant(), compute, faults=faults)
    recording, *_ = asynchronous(60, transport=transport, settings=own)
    # A life of two gradients is 4 s, and the run is 60 s: begun at 0, 4.5, 9.5, 15.5, 23.5, 35.5 and 55.5 s.
    assert transport.told.count(("kill", 0)) == 7
    assert transport.told.count(("spawn", 0)) == 7
    assert recording.ledger()["failed"] == 2 * 7  # two in each life


def test_a_refused_gradient_changes_nothing_and_is_named():
    statuses = []
    recording, *_ = rehearse(
        policies.synchronous, constant(), num_gradients=30, faults=[Fault("nan", 2, 3.0)], watch=statuses.append
    )
    assert recording.ledger()["refused"] == 1
    last = statuses[-1]
    assert any("worker 2" in words and "not finite" in words for _, words in last.events)
    assert (last.workers[2].lost, last.workers[2].refused) == (0, 1)
    assert "not finite" in last.workers[2].error


def test_the_status_of_a_run():
    runtimes = np.array([[1.0, 1.0, 1.0, 5.0]])
    statuses = []
    own = dataclasses.replace(QUICK, title="Synchronous SGD", unit="message", watch_seconds=0.0)
    recording, *_ = rehearse(policies.synchronous, runtimes, num_gradients=40, watch=statuses.append, settings=own)
    last = statuses[-1]
    assert (last.title, last.updates, last.gradients, last.num_gradients) == ("Synchronous SGD", 10, 40, 40)
    assert last.unit == "message"
    assert last.finished
    assert not statuses[-2].finished
    assert last.seconds == recording.schedule.wall_clock() == 50.0
    assert last.gradients_per_second == pytest.approx(40 / 50, rel=0.2)
    assert last.wanted == 4
    assert last.staleness == 0.0
    assert [worker.seconds for worker in last.workers] == pytest.approx([1.0, 1.0, 1.0, 5.0])
    assert [worker.against_fleet for worker in last.workers] == pytest.approx([1.0, 1.0, 1.0, 5.0])
    assert [worker.against_itself for worker in last.workers] == pytest.approx([1.0] * 4)
    assert [worker.idle_share for worker in last.workers] == pytest.approx([0.8, 0.8, 0.8, 0.0])
    assert last.idle_share == pytest.approx(0.6)
    assert last.loss == pytest.approx(recording.loss[-50:].mean())
    waiting = [status for status in statuses if 2.0 < status.seconds % 5 < 4.0]
    assert waiting
    assert {status.waiting_for for status in waiting} == {(3,)}
    for status in statuses:
        ledger = dict(status.ledger)
        assert ledger.pop("begun") == sum(ledger.values())


def test_who_is_slower_than_usual():
    statuses = []
    own = dataclasses.replace(QUICK, patience=20.0)
    asynchronous(
        60,
        faults=[Fault("slow", 1, 9.0, 1.5)],
        watch=statuses.append,
        settings=own,
    )
    # It begins a gradient of 20 s at 10 s, in the place of one of 2 s.
    late = next(status for status in statuses if status.seconds > 26).workers[1]
    assert late.against_itself == pytest.approx((statuses[0].seconds + 26 - 10) / 2, rel=0.05)
    assert max(status.workers[0].against_itself or 0 for status in statuses) == pytest.approx(1.0, abs=0.01)


def test_who_asks_to_stop_is_obeyed():
    seen, transport = [], Rehearsal(constant(), compute)
    given = {"stop": after(30), "watch": seen.append, "transport": transport}
    settings = dataclasses.replace(QUICK, watch_seconds=1e9)
    with pytest.raises(Stopped, match="gradients, without a checkpoint") as stopped:
        asynchronous(300, settings=settings, **given)
    # The last status is that of the end, and the next run finds the workers free, with nothing left of this one.
    assert seen[-1].gradients == stopped.value.gradients > 0
    assert not transport._trees
    _, steps, *_ = asynchronous(20, transport=transport)
    _, same, *_ = asynchronous(20)
    assert (steps.params == same.params).all()


def test_an_error_of_who_watches_is_not_hidden():
    def watch(status):
        raise OSError(f"{status.gradients} gradients")

    with pytest.raises(OSError, match=r"^0 gradients$"):
        asynchronous(30, watch=watch)


def test_each_update_is_told():
    updates = []
    _, steps, *_ = rehearse(policies.softsync, constant(), num_gradients=40, on_update=updates.append)
    assert [update.number for update in updates] == list(range(1, steps.version + 1))
    assert [update.gradients for update in updates] == np.cumsum([len(update.taken) for update in updates]).tolist()
    assert all(update.computed for update in updates)


def test_one_transport_serves_two_runs():
    transport = Rehearsal(constant(), compute)
    first, steps, *_ = asynchronous(20, transport=transport)
    again, same, *_ = asynchronous(20, transport=transport)
    assert (steps.params == same.params).all()
    np.testing.assert_allclose(again.schedule.arrived, first.schedule.arrived, atol=1e-9)
    assert not transport._trees  # nothing is left behind


def test_policies_rules_and_steps_that_do_not_fit():
    policy = policies.softsync(num_workers=3, gradients_per_update=2)
    with pytest.raises(ValueError, match=r"steps\.single=True must be False"):
        serve(policy, NaiveSteps(True), Rehearsal(constant(), compute), num_workers=3, num_gradients=3)
