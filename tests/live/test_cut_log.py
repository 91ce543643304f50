"""A log that goes on in other files, whose first ones are removed: killed between any two steps, nothing is lost."""

import dataclasses
import functools
import os
import pathlib
import shutil

import numpy as np
import pytest
from lib.rehearsal import QUICK, dyadic
from rehearsing import FAULTS, POLICIES, Creeping, after, compute, opened, rehearse, replayed

from sgdlab import policies
from sgdlab.errors import Stopped
from sgdlab.live import checkpoint, lines, log, snapshot
from sgdlab.live.lines import LogError
from sgdlab.live.log import Log
from sgdlab.live.resume import examined

SAME = np.full((1, 3), 1.0)
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


@pytest.mark.sample(3)
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
        try:
            before = fates(examined(killed, lambda config: make(num_workers=3)))
        except LogError as error:
            assert "there is none" in str(error), number  # the run had not begun
            before = {}
        assert before.items() <= expected.items(), number
        recording, steps, _, policy = rehearse(make, runtimes, num_gradients=enough, log=opened(killed))
        found = fates(recording)
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
