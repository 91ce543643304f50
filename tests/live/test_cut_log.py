"""A log that goes on in other files, whose first ones are removed: killed between any two steps, nothing is lost."""

import collections
import dataclasses
import errno
import functools
import io
import json
import os
import pathlib
import shutil

import numpy as np
import pytest
from lib.rehearsal import QUICK, Fault, dyadic
from rehearsing import FAULTS, POLICIES, Creeping, after, compute, opened, rehearse, replayed

from sgdlab import policies
from sgdlab.errors import Stopped, UsageError
from sgdlab.live import checkpoint, lines, log, snapshot
from sgdlab.live.checkpoint import RecordFile, read_parts
from sgdlab.live.engine import LiveEngine, Taken, Updated
from sgdlab.live.lines import LogError
from sgdlab.live.log import Log
from sgdlab.live.resume import examined
from sgdlab.live.status import View
from sgdlab.protocols.recorder import Recorder
from sgdlab.schedule import DROPPED, PENDING

SAME = np.full((1, 3), 1.0)
SILENT = (*FAULTS, Fault("stop", 1, 16.0, 1000.0))
SHORT = 900
"""Bytes of a file of the log, in these tests: some checkpoints find it longer, others do not."""


@pytest.fixture(autouse=True)
def short_files(monkeypatch):
    monkeypatch.setattr(log, "LONG", SHORT)
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)  # no power is lost in these tests


class Later:
    """In the place of the thread: does what it was asked for when so many more lines were written, or at once."""

    def __init__(self, lines):
        self.lines, self.jobs = lines, []

    def submit(self, call, *given):
        job = Job(functools.partial(call, *given), self.lines)
        self.jobs.append(job)
        self.tick(0)
        return job

    def tick(self, number=1):
        for job in self.jobs:
            job.wait -= number
        while self.jobs and self.jobs[0].wait <= 0:
            self.jobs.pop(0).do()

    def shutdown(self):
        while self.jobs:
            self.jobs.pop(0).do()


class Job:
    def __init__(self, call, wait):
        self.call, self.wait, self.ended = call, wait, False

    def do(self):
        if not self.ended:
            self.ended = True
            self.call()

    def done(self):
        return self.ended

    def result(self):
        self.do()


def fates(recording):
    schedule = recording.schedule
    columns = (schedule.worker, schedule.update[:, 0], schedule.read[:, 0], schedule.started, schedule.arrived[:, 0])
    columns = [column.tolist() for column in (*columns, recording.loss.astype(str), recording.life)]
    rows = zip(recording.ticket.tolist(), recording.fate.tolist(), *columns, strict=True)
    return {ticket: facts for ticket, *facts in rows if facts[0] != "pending"}


def observed(monkeypatch, folder, look, lines=0):
    """A log in a folder, and `look` is called between any two things that are done to files there."""
    opened_log = opened(folder)
    later = opened_log._writer = Later(lines)

    def watched(owner, name):
        real = getattr(owner, name)

        def watching(*given, **named):
            look(name)
            return real(*given, **named)

        monkeypatch.setattr(owner, name, watching)

    for owner, name in ((os, "link"), (os, "replace"), (os, "fsync"), (pathlib.Path, "unlink"), (os, "fchmod")):
        watched(owner, name)
    write = Log.write

    def writes(self, entry):
        look("write")
        write(self, entry)
        if self is opened_log:
            later.tick()

    monkeypatch.setattr(Log, "write", writes)
    return opened_log


def spoiled(folder, newest):
    path = checkpoint.path_of(folder, newest)
    path.write_bytes(path.read_bytes()[:-40])


@pytest.mark.sample(2)
@pytest.mark.parametrize("lines_later", [0, 2])
@pytest.mark.parametrize("name", POLICIES)
def test_killed_between_any_two_steps_nothing_is_lost_or_doubled(name, lines_later, tmp_path, monkeypatch):
    make, runtimes = POLICIES[name], dyadic(np.random.default_rng(5), (40, 3))
    folder, left, seen, files = tmp_path / "run", [], set(), []
    enough = 36 if name == "malenia" else 24

    def look(step):
        found = tuple(sorted((path.name, path.stat().st_size) for path in folder.iterdir()))
        if found not in seen:
            seen.add(found)
            left.append(tmp_path / f"left{len(left)}")
            shutil.copytree(folder, left[-1])
            files.append(step)

    with monkeypatch.context() as patched:
        creeping = Creeping(runtimes, compute, faults=FAULTS)
        own = observed(patched, folder, look, lines_later)
        whole, *_ = rehearse(make, runtimes, num_gradients=enough, log=own, transport=creeping)
    shutil.copytree(folder, left_last := tmp_path / "ended")
    expected = fates(whole)
    assert {"link", "replace", "unlink"} <= set(files)
    assert own.cut
    assert len(checkpoint.updates_of(left_last)) == 2
    for number, killed in enumerate([*left, left_last]):
        updates = checkpoint.updates_of(killed)
        if number % 3 == 1 and len(updates) > 1:
            spoiled(killed, updates[-1])
        if number % 3 == 2:
            with (killed / "record.bin").open("ab") as file:
                file.write(b"half of a part")
        before = {}
        if lines.read(lines.path_in(killed))[1].lines > 1 or updates:  # the run had begun
            before = fates(examined(killed, lambda config: make(num_workers=3)))
        assert before.items() <= expected.items(), number
        statuses = []
        recording, steps, _, policy = rehearse(
            make, runtimes, num_gradients=enough, log=opened(killed), watch=statuses.append
        )
        found, ledger = fates(recording), statuses[-1].ledger
        assert all(2 * status.ledger["begun"] == sum(status.ledger.values()) for status in statuses), number
        assert ledger["applied"] == recording.ledger()["applied"]
        assert ledger["lost"] == recording.ledger()["lost"]
        assert {ticket: found[ticket] for ticket in before} == before, number
        assert recording.ledger()["applied"] >= enough
        assert np.unique(recording.ticket).size == recording.ticket.size
        assert np.abs(steps.params - replayed(recording, policy.single)).max() == 0.0, number
        again, same, transport, other = rehearse(make, runtimes, num_gradients=enough, log=opened(killed))
        assert fates(again) == found
        assert (same.params == steps.params).all()
        assert transport.told == []
        assert other == policy
        shutil.rmtree(killed)


def finished(folder, make=policies.asynchronous, **given):
    recording, steps, *_ = rehearse(make, SAME, num_gradients=90, log=opened(folder, **given))
    assert recording.ledger()["applied"] == 90
    assert np.abs(steps.params - replayed(recording, True)).max() == 0.0


def begun(folder, gradients=30, make=policies.asynchronous, **given):
    """A run of 90 gradients that ends after some, by what is told of updates."""

    def on_update(update):
        if update.number == gradients:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        rehearse(make, SAME, num_gradients=90, log=opened(folder, **given), on_update=on_update)


class Closure(policies.Softsync):
    """Its state cannot be written from its `first`-th gradient on."""

    first = 0

    def arrival(self, now, worker, version, seconds):
        self.seen = getattr(self, "seen", 0) + 1
        self.choose = max if self.seen >= self.first else None
        return super().arrival(now, worker, version, seconds)


class Fortieth(Closure):
    first = 40


def test_of_a_policy_whose_state_cannot_be_written_the_whole_log_is_kept(tmp_path):
    said, make = [], lambda num_workers: Closure(size=1)
    begun(tmp_path, make=make, say=said.append)
    why = "policy.choose is a builtin_function_or_method, which no checkpoint can hold"
    assert said == [f"A run that is resumed will read its whole log: {why}"]
    assert len(lines.files_in(tmp_path)) > 3
    assert min(lines.files_in(tmp_path)) == 0
    said.clear()
    finished(tmp_path, make=make, say=said.append)
    assert said[0].startswith(f"Resumed from {tmp_path / 'log.jsonl'}: 30 updates, 30 of 90 gradients; ")


def test_a_log_that_was_cut_is_kept_from_its_last_checkpoints_on(tmp_path):
    """See that none is made where the state of the policy cannot be written any more."""
    said, make = [], lambda num_workers: Fortieth(size=1)
    begun(tmp_path, 60, make=make, say=said.append)
    assert min(lines.files_in(tmp_path)) > 0
    assert max(checkpoint.updates_of(tmp_path)) < 40
    assert len(said) == 1
    said.clear()
    finished(tmp_path, make=make, say=said.append)
    assert "60 updates, 60 of 90 gradients" in said[0]


def test_without_a_checkpoint_a_log_that_was_cut_cannot_be_followed(tmp_path):
    begun(tmp_path)
    left = sorted(lines.files_in(tmp_path))
    for update in checkpoint.updates_of(tmp_path):
        spoiled(tmp_path, update)
    why = rf"the {left[0]:,} lines before '.*' were removed, and no checkpoint of later ones can be used"
    with pytest.raises(LogError, match=rf"^log=.* cannot be followed: {why}$"):
        opened(tmp_path)
    with pytest.raises(LogError, match=why):
        examined(tmp_path, lambda config: policies.asynchronous(num_workers=3))


def test_a_file_of_the_log_that_is_missing_is_noticed(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint, "_KEPT", 1000)  # so that all files are kept
    begun(tmp_path)
    for update in checkpoint.updates_of(tmp_path):
        checkpoint.path_of(tmp_path, update).unlink()
    first, second, *_ = lines.files_in(tmp_path).values()
    second.unlink()
    with pytest.raises(LogError, match="does not follow from the file before: lines are missing"):
        opened(tmp_path)
    first.unlink()
    with pytest.raises(LogError, match="were removed, and no checkpoint"):
        opened(tmp_path)


def test_without_links_the_log_goes_on_in_its_file(tmp_path, monkeypatch):
    def fails(*given):
        raise OSError("Operation not permitted")

    monkeypatch.setattr(os, "link", fails)
    begun(tmp_path)
    assert [path.name for path in lines.files_in(tmp_path).values()] == ["log.jsonl"]
    assert (tmp_path / "log.jsonl").stat().st_size > 3 * SHORT
    assert not list(tmp_path.glob(".*"))
    finished(tmp_path)


def test_a_record_that_is_shorter_than_a_checkpoint_says_is_not_used(tmp_path):
    said = []
    begun(tmp_path)
    older, newest = (checkpoint.load(tmp_path, update) for update in checkpoint.updates_of(tmp_path))
    os.truncate(tmp_path / "record.bin", older.record)
    finished(tmp_path, say=said.append)
    words = f"has {older.record:,} of the {newest.record:,} bytes of checkpoint {newest.update}"
    assert words in said[0]


def test_a_damaged_record_is_noticed_when_it_is_read(tmp_path):
    begun(tmp_path)
    data = bytearray((tmp_path / "record.bin").read_bytes())
    data[len(data) // 2] ^= 1
    (tmp_path / "record.bin").write_bytes(data)
    seen = lambda: examined(tmp_path, lambda config: policies.asynchronous(num_workers=3))
    for read in (lambda: finished(tmp_path), seen):
        with pytest.raises(LogError, match=r"record\.bin is damaged after \d+ bytes"):
            read()


def test_a_record_that_ends_before_its_next_part_is_damaged(tmp_path):
    with pytest.raises(LogError, match="is damaged after 0 bytes"):
        next(checkpoint._parts(io.BytesIO(), 10, tmp_path / "record.bin"))


def test_a_directory_that_is_deleted_when_its_log_was_cut_is_written_again(tmp_path):
    folder = tmp_path / "run"

    def on_update(update):
        if update.number == 40:
            own._saved()
            shutil.rmtree(folder)

    own = opened(folder)
    with pytest.raises(UsageError, match=r"saved in .*: the same command continues"):
        rehearse(policies.asynchronous, SAME, num_gradients=90, log=own, on_update=on_update)
    assert min(lines.files_in(folder)) > 0
    finished(folder)


def test_files_of_other_formats_are_refused_by_both_numbers(tmp_path, monkeypatch):
    with monkeypatch.context() as before:
        before.setattr(log.lines, "LOG", 1)
        begun(tmp_path / "log")
    with pytest.raises(LogError, match=r"log\.jsonl' is written in format 1; this version reads format 2$"):
        opened(tmp_path / "log")
    with monkeypatch.context() as before:
        before.setattr(checkpoint, "CHECKPOINT", 3)
        begun(tmp_path / "checkpoint", 6)
    said = []
    finished(tmp_path / "checkpoint", say=said.append)
    assert "is written in format 3; this version reads format 2; an earlier one, or the log alone, is used" in said[0]


def test_a_run_in_pieces_keeps_little_in_memory_and_reads_little(tmp_path, monkeypatch):
    """Count the lines that a resume reads: those since the newest checkpoint, however long the run was."""
    read, parsed = [], lines.json.loads
    for gradients in (60, 300):
        folder = tmp_path / f"{gradients}"
        settings = dataclasses.replace(QUICK, checkpoint_updates=20)
        with pytest.raises(Stopped):
            rehearse(
                policies.asynchronous, SAME, num_gradients=900, log=opened(folder), settings=settings,
                stop=after(gradients),
            )  # fmt: skip
        with monkeypatch.context() as counted:
            number = []
            counted.setattr(lines.json, "loads", lambda line, number=number: number.append(1) or parsed(line))
            own = opened(folder)
            assert own.found.newest is own.found.base is not None
            with pytest.raises(Stopped):
                rehearse(policies.asynchronous, SAME, num_gradients=900, log=own, stop=lambda: True)
        assert own.found == (None, None)  # whose memory the run has no use for
        read.append(len(number))
    assert abs(read[1] - read[0]) < 20, read


def test_lines_are_checked_and_not_parsed_where_a_log_is_opened(tmp_path, monkeypatch):
    monkeypatch.setattr(log, "LONG", 1 << 20)
    begun(tmp_path)
    for update in checkpoint.updates_of(tmp_path):
        checkpoint.path_of(tmp_path, update).unlink()
    count, parsed = [], lines.json.loads
    monkeypatch.setattr(lines.json, "loads", lambda line: count.append(1) or parsed(line))
    own = opened(tmp_path)
    assert len(count) < 10
    assert sum(1 for _ in own.entries()) > 60
    assert len(count) > 60
    own.close()


class Full:
    """A file that takes half of what it is given, and then nothing, so many times."""

    def __init__(self, file, times):
        self.file, self.times = file, times

    def __getattr__(self, name):
        return getattr(self.file, name)

    def write(self, data):
        if self.times > 0:
            self.times -= 1
            self.file.write(data[: len(data) // 2])
            raise OSError(errno.ENOSPC, "no space")
        return self.file.write(data[: max(len(data) // 2, 1)])  # a part may take several calls


@pytest.mark.parametrize("times", [1, 2, 1000])
def test_what_cannot_be_added_to_the_record_is_added_with_the_next_checkpoint(times, tmp_path):
    said = []
    own = opened(tmp_path, say=said.append)
    own._record._file = Full(own._record._file, times)
    recording, steps, *_ = rehearse(policies.asynchronous, SAME, num_gradients=90, log=own)
    assert "cannot be written, and the run goes on: [Errno 28] no space" in said[0]
    assert len(said) == times or times > 20
    assert bool(checkpoint.updates_of(tmp_path)) == (times < 20)
    assert recording.ledger()["applied"] == 90
    assert np.abs(steps.params - replayed(recording, True)).max() == 0.0
    seen = examined(tmp_path, lambda config: policies.asynchronous(num_workers=3))
    assert fates(seen) == fates(recording)
    again, *_ = rehearse(policies.asynchronous, SAME, num_gradients=90, log=opened(tmp_path))
    assert fates(again) == fates(recording)


def test_seconds_that_come_late_are_those_of_their_gradients(tmp_path):
    """An interrupted worker that did not hear of it says how long it took when its row is on the disk."""
    recorder, file = Recorder(), RecordFile(tmp_path)
    for ticket in range(4):
        recorder.began(ticket, worker=ticket % 2, version=0, now=float(ticket))
    for ticket, fate in ((2, "interrupted"), (0, "lost")):
        recorder.ended(ticket, now=5.0 + ticket, update=DROPPED, fate=fate)
    file.add(recorder.take())
    recorder.took(2, 0.25)
    recorder.took(1, 0.5)
    recorder.took(1, 9.0)  # it is said again
    recorder.ended(1, now=8.0, update=0)
    recorder.closed(8.0)
    file.add(recorder.take())
    recorder.took(2, 7.0)
    recorder.took(1, 6.0)
    recorder.took(0, 0.75)
    length = file.add(recorder.take(), recorder.take())
    file.close()
    parts = functools.partial(read_parts, tmp_path, length)
    schedule, rows = recorder.schedule(2, parts)
    order = np.argsort(rows["ticket"])
    assert rows["ticket"][order].tolist() == [0, 1, 2, 3]
    np.testing.assert_array_equal(rows["seconds"][order], [0.75, 0.5, 0.25, np.nan])
    assert rows["fate"][order].tolist() == ["lost", "", "interrupted", ""]
    assert schedule.applied.tolist() == [[8.0]]
    assert schedule.update[order, 0].tolist() == [DROPPED, 0, DROPPED, PENDING]


def plainly(value):
    """All attributes that are numbers, words or what holds them, so that none is forgotten."""
    kinds = (int, float, str, list, dict, frozenset, collections.deque)
    return {name: own for name, own in vars(value).items() if isinstance(own, kinds)}


@pytest.mark.sample(6)
@pytest.mark.parametrize("name", POLICIES)
def test_an_engine_is_the_same_by_its_checkpoint_and_by_the_whole_log(name, tmp_path, monkeypatch):
    monkeypatch.setattr(log, "LONG", 1 << 20)
    monkeypatch.setattr(checkpoint, "_KEPT", 1000)
    own, make, runtimes = opened(tmp_path), POLICIES[name], dyadic(np.random.default_rng(3), (40, 3))
    with pytest.raises(Stopped):
        rehearse(make, runtimes, num_gradients=900, faults=SILENT, log=own, stop=after(500))
    stored = {update: checkpoint.path_of(tmp_path, update) for update in checkpoint.updates_of(tmp_path)}
    stored = {path: (path.read_bytes(), checkpoint.load(tmp_path, update).place) for update, path in stored.items()}
    for path in stored:
        path.unlink()
    found, with_wakes, doubled = [], 0, 0
    monkeypatch.setattr(LiveEngine, "recording", lambda engine, *given: found.append(engine))
    for path, (data, place) in reversed(stored.items()):
        os.truncate(tmp_path / "log.jsonl", place.offset)
        path.write_bytes(data)
        examined(tmp_path, lambda config: make(num_workers=3))
        path.unlink()
        examined(tmp_path, lambda config: make(num_workers=3))
        one, other = found[-2:]
        first, second = (snapshot.taken(engine.policy, engine.state()) for engine in (one, other))
        assert json.dumps(first.tree) == json.dumps(second.tree)  # as written: no NaN is equal to another
        for engine in (one, other):
            engine.patience._expected.clear()  # as by a server that begins
        parts = [(one, other), (one.patience, other.patience), (one.flying, other.flying)]
        for first, second in [*parts, (one.flying.versions, other.flying.versions)]:
            assert plainly(first) | {"_trees": None} == plainly(second) | {"_trees": None}
        assert one.flying.counts() == other.flying.counts()
        with_wakes, doubled = with_wakes + bool(other.wakes), doubled + bool(other.patience.doubled)
    assert doubled or name != "asynchronous"
    assert with_wakes or name not in ("timeout", "timeout, interrupting", "anytime", "mindflayer")


def test_means_of_the_last_gradients_go_on():
    taken = (Taken(0, 1, 2, 0.5), Taken(1, 0, 1, float("nan")))
    view, other = View(None), View(None)
    view.updated(Updated(1, 2, 1.0, taken, True))
    other.go_on(view.state())
    assert [[*values] for values in other.state().values()] == [[0.5], [2, 1]]
