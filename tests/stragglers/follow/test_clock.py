"""Alarms by the clock: a job that hangs, and a worker that is silent while the others go on."""

import numpy as np
import pytest
from planted_traces import noise
from test_follow import HEADER, Time, appending, followed, kept, text_of

from sgdlab.commands import follow
from sgdlab.stragglers.diagnosis import causes
from sgdlab.stragglers.follow import alarms
from sgdlab.stragglers.follow.alarms import AlarmFile
from sgdlab.stragglers.follow.follower import Follower
from sgdlab.traces.options import Options


class Live:
    """A trace of N workers that is written while it is followed, a step every `every` seconds, in epochs or not."""

    def __init__(self, path, tmp_path, workers=8, every=1.0, epoch=None):
        self.path, self.every, self.time, self.step, self.epoch = path, every, Time(), 0, epoch
        path.write_text(HEADER if epoch is None else f"epoch,{HEADER}")
        self.runtimes = every * noise(2000, workers, 0)
        self.follower = Follower(path, Options(), clock=self.time.clock)
        self.alarms = []

    def go(self, steps, without=(), slow=None):
        """Writes steps of the workers, and looks after each."""
        for _ in range(steps):
            row = self.runtimes[self.step] * (1.0 if slow is None else np.where(np.arange(8) == slow, 1.8, 1.0))
            epoch, number = divmod(self.step, self.epoch or len(self.runtimes))
            start = f"{epoch}," if self.epoch else ""
            lines = [f"{start}{w},{number},{seconds:.6f}\n" for w, seconds in enumerate(row) if w not in without]
            appending(self.path, "".join(lines))()
            self.step += 1
            self.wait(self.every)

    def wait(self, seconds):
        for _ in range(max(1, round(2 * seconds / self.every))):
            self.time.now += seconds / max(1, round(2 * seconds / self.every))
            self.alarms += [(self.time.now, alarm) for alarm in self.follower.poll()]

    def of(self, kind, event=alarms.RAISED):
        return [(when, alarm) for when, alarm in self.alarms if (alarm.kind, alarm.event) == (kind, event)]


def test_a_job_that_hangs_says_who_is_behind(tmp_path):
    live = Live(tmp_path / "trace.csv", tmp_path, every=1.0)
    live.go(100)
    live.go(1, without=[3])
    hung = live.time.now
    live.wait(29.0)
    assert not live.of(causes.HANGS)
    live.wait(3.0)
    ((when, alarm),) = live.of(causes.HANGS)
    assert when - hung <= 32
    assert alarm.workers == ("3",)
    assert "no step for 3" in alarm.sentence()
    assert "times the usual; worker 3 is 1 step behind the others" in alarm.sentence()
    live.wait(60.0)
    assert len(live.of(causes.HANGS)) == 1
    assert not live.of(causes.SILENT)  # the others have stopped as well
    assert [alarm.kind for alarm in live.follower.standing] == [causes.HANGS]
    live.go(3)
    ((_, cleared),) = live.of(causes.HANGS, alarms.CLEARED)
    assert cleared.sentence() == f"step {live.step - 3}: steps come again"
    assert not live.follower.standing


@pytest.mark.parametrize("every", [0.05, 1.0])
def test_a_dead_worker_is_told_within_ten_usual_steps(tmp_path, every):
    """At least 5 s; and the steps of the others are tested from then on."""
    live = Live(tmp_path / "trace.csv", tmp_path, every=every)
    live.go(120)
    dead, first = live.time.now, live.step
    live.go(round(12.0 / every), without=[5])
    ((when, alarm),) = live.of(causes.SILENT)
    assert when - dead <= max(5.0, 10 * 1.3 * every) + 2 * every
    assert (alarm.workers, alarm.since) == (("5",), first)
    assert live.follower.monitor.newest >= live.step - 2
    # Another fault does not wait for the dead worker.
    since = live.step
    live.go(60, without=[5], slow=2)
    ((_, slow),) = live.of(causes.SLOW_WORKER)
    assert slow.workers == ("2",)
    assert slow.step - since <= 40
    # It is there again.
    live.go(40)
    ((_, back),) = live.of(causes.SILENT, alarms.CLEARED)
    assert back.workers == ("5",)


def test_a_slow_worker_that_dies_is_slow_no_more(tmp_path):
    live = Live(tmp_path / "trace.csv", tmp_path)
    live.go(120, slow=5)
    assert [alarm.workers for _, alarm in live.of(causes.SLOW_WORKER)] == [("5",)]
    dead = live.step
    live.go(30, without=[5])
    ((_, over),) = live.of(causes.SLOW_WORKER, alarms.CLEARED)
    assert (over.workers, over.since, over.evidence) == (("5",), dead, alarms.GONE)
    assert [alarm.kind for alarm in live.follower.standing] == [causes.SILENT]
    lost = live.follower.monitor.lost
    live.go(100)  # it is there again, and as fast as the others
    before = lost.lost[causes.SLOW_WORKER]
    live.go(50)
    assert lost.lost[causes.SLOW_WORKER] == before


def test_pauses_and_files_that_are_written_in_parts_are_waited_for(tmp_path):
    """After a pause of 25 s, which is not too long, one of 60 s is not either."""
    live = Live(tmp_path / "trace.csv", tmp_path)
    live.go(60)
    live.wait(25.0)
    live.go(20)
    live.wait(60.0)
    live.go(5)
    assert not live.of(causes.HANGS)
    live.wait(200.0)
    assert len(live.of(causes.HANGS)) == 1


def test_a_worker_whose_rows_come_late_is_waited_for_as_long(tmp_path):
    live = Live(tmp_path / "trace.csv", tmp_path)
    live.go(30)
    for _ in range(6):  # worker 1 writes every 8 steps
        live.go(8, without=[1])
        late = "".join(f"1,{step},{live.runtimes[step, 1]:.6f}\n" for step in range(live.step - 8, live.step))
        appending(live.path, late)()
        live.wait(0.5)
    assert not live.of(causes.SILENT)


def test_a_trace_that_is_read_when_it_is_whole_has_no_such_alarm(tmp_path):
    path = tmp_path / "trace.csv"
    runtimes = noise(200, 8, 0)
    runtimes[100:, 5] = np.nan
    path.write_text(HEADER + text_of(runtimes).replace(",nan", ","))
    _, ended = followed(path, tmp_path, until_idle=0.0)
    assert ended
    assert not [record for record in kept(tmp_path) if record["kind"] == causes.HANGS]


@pytest.mark.parametrize(("without", "code"), [((), 0), ((4,), follow.EXIT_SLOW)])
def test_a_job_that_has_ended_is_not_wrong(tmp_path, monkeypatch, without, code):
    """All workers are equally far; with one that is behind, the exit code says it."""
    path = tmp_path / "trace.csv"
    runtimes = noise(100, 8, 0)
    path.write_text(HEADER + text_of(runtimes[:99]))
    last = "".join(f"{w},99,{seconds:.6f}\n" for w, seconds in enumerate(runtimes[99]) if w not in without)
    appending(path, last)()
    time = Time()
    follower = Follower(path, Options(), clock=time.clock)
    with AlarmFile(tmp_path / "alarms.jsonl", str(path), clock=time.clock) as file:
        terminal = follow._Terminal(as_json=False)
        follow.follow(follower, file, terminal, until_idle=60.0, clock=time.clock, sleep=time.sleep)
    hangs = [alarm for alarm in follower.standing if alarm.kind == causes.HANGS]
    assert len(hangs) == 1
    assert bool(hangs[0].workers) == bool(without)
    assert follow.exit_code(follower) == code


@pytest.mark.parametrize("epoch", [12, 100])
def test_steps_of_epochs_are_followed_as_they_are_written(tmp_path, epoch):
    live = Live(tmp_path / "trace.csv", tmp_path, epoch=epoch)
    live.go(250)
    live.go(50, slow=2)
    ((_, slow),) = live.of(causes.SLOW_WORKER)
    assert (slow.workers, len(live.alarms)) == (("2",), 1)
    assert live.follower.monitor.newest >= live.step - 2
    assert (live.follower.restarts, live.follower.tail.steps.late) == (0, 0)


@pytest.mark.parametrize("steps", [3, 24, 40])
def test_a_worker_that_dies_between_two_epochs_lacks_the_steps_since(tmp_path, steps):
    live = Live(tmp_path / "trace.csv", tmp_path, epoch=120)
    live.go(120)
    live.go(steps, without=[3])
    live.wait(60.0)
    silent, hangs = ([alarm for _, alarm in live.of(kind)] for kind in (causes.SILENT, causes.HANGS))
    assert [(alarm.workers, alarm.since) for alarm in silent] == [(("3",), 120)]
    assert f"worker 3 is {steps} steps behind the others" in hangs[0].sentence()


def test_the_file_of_a_worker_may_come_after_its_steps_were_used(tmp_path):
    (tmp_path / "logs").mkdir()
    runtimes, time = noise(100, 4, 0), Time()
    files = [tmp_path / "logs" / f"rank{worker}.csv" for worker in range(4)]
    texts = ["step,duration\n" + "".join(f"{t},{s:.6f}\n" for t, s in enumerate(own)) for own in runtimes.T.tolist()]
    for file, text in list(zip(files, texts, strict=True))[:3]:
        file.write_text(text)
    follower = Follower(tmp_path / "logs", Options(), clock=time.clock)
    follower.poll()
    time.now += 15.0
    files[3].write_text(texts[3])
    for _ in range(40):
        time.now += 1.0
        found = follower.poll()
        assert [alarm.kind for alarm in found] in ([], [causes.HANGS])
    assert follower.tail.steps.late > 0
