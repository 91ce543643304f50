import collections
import dataclasses
import errno
import functools
import io
import os
import shutil
import threading
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lib.rehearsal import Fault, Rehearsal, dyadic
from rehearsing import (
    FAULTS,
    POLICIES,
    QUICK,
    Creeping,
    NaiveSteps,
    after,
    compute,
    opened,
    rehearse,
    replayed,
    until_killed,
)

from sgdlab import policies, predictors
from sgdlab.errors import RunFailed, Stopped
from sgdlab.live import checkpoint
from sgdlab.live.lines import LogError, line_of, read
from sgdlab.live.recording import versions
from sgdlab.live.resume import examined

SAME = np.full((1, 3), 1.0)


@pytest.fixture(autouse=True)
def keep_all_checkpoints(monkeypatch):
    monkeypatch.setattr(checkpoint, "_KEPT", 1_000_000)
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)  # no power is lost in these tests


def asynchronous(num_gradients, **given):
    return rehearse(policies.asynchronous, SAME, num_gradients=num_gradients, **given)


def fates(recording):
    """Ticket -> what became of it, when that is final."""
    schedule = recording.schedule
    columns = (schedule.worker, schedule.update[:, 0], schedule.read[:, 0], schedule.started, schedule.arrived[:, 0])
    rows = zip(
        recording.ticket.tolist(), recording.fate.tolist(), *(column.tolist() for column in columns), strict=True
    )
    return {ticket: facts for ticket, *facts in rows if facts[0] != "pending"}


@pytest.mark.sample(6)
@pytest.mark.parametrize("name", ["cutoff", *POLICIES])
def test_killed_at_every_line_nothing_is_lost_or_doubled(name, tmp_path):
    predicting = functools.partial(policies.cutoff, predictor=predictors.RunningMean(window=3), window=2)
    make, runtimes = {**POLICIES, "cutoff": predicting}[name], dyadic(np.random.default_rng(3), (40, 3))
    whole, folder = tmp_path / "whole", tmp_path / "killed"
    creeping = Creeping(runtimes, compute, faults=FAULTS)
    # Updates of "malenia" have more gradients, and a predictor must have seen some rounds.
    enough, step = {"malenia": (30, 1), "cutoff": (40, 5)}.get(name, (15, 1))
    *_, policy = rehearse(make, runtimes, num_gradients=enough, log=opened(whole), transport=creeping)
    assert name != "cutoff" or policy.prediction is not None
    lines = len((whole / "log.jsonl").read_bytes().splitlines())
    assert len(checkpoint.updates_of(whole)) >= 2
    for kept in range(2, lines + 1, step):
        until_killed(folder, kept, whole)
        before = fates(examined(folder, lambda config: make(num_workers=3)))
        creeping = Creeping(runtimes, compute)
        recording, steps, _, policy = rehearse(
            make, runtimes, num_gradients=enough, log=opened(folder), transport=creeping
        )
        found = fates(recording)
        assert {ticket: found[ticket] for ticket in before} == before, kept
        assert recording.ledger()["applied"] >= enough
        assert np.abs(steps.params - replayed(recording, policy.single)).max() == 0.0, kept
        # Its log says the same once more, also to the policy.
        again, same, transport, other = rehearse(make, runtimes, num_gradients=enough, log=opened(folder))
        assert fates(again) == found
        assert (same.params == steps.params).all()
        assert transport.told == []
        assert other == policy
        if name == "cutoff":
            np.testing.assert_array_equal(other.prediction.mean, policy.prediction.mean)
        shutil.rmtree(folder)


@settings(max_examples=10, deadline=None, derandomize=True)
@given(
    name=st.sampled_from(sorted(POLICIES)), seed=st.integers(0, 10_000), lives=st.lists(st.integers(3, 40), max_size=5)
)
def test_killed_again_and_again(name, seed, lives, tmp_path_factory):
    make, runtimes = POLICIES[name], dyadic(np.random.default_rng(seed), (40, 4))
    folder, written = tmp_path_factory.mktemp("killed"), 0
    for life in lives:
        rehearse(make, runtimes, num_gradients=40, faults=FAULTS, log=opened(folder))
        until_killed(folder / "left", written + life, folder)
        for path in folder.glob("*.*"):
            path.unlink()
        for path in (folder / "left").iterdir():
            shutil.move(path, folder)
        written = len((folder / "log.jsonl").read_bytes().splitlines())
    recording, steps, _, policy = rehearse(make, runtimes, num_gradients=40, faults=FAULTS, log=opened(folder))
    assert np.unique(recording.ticket).size == recording.ticket.size
    assert recording.ledger()["applied"] >= 40
    assert np.abs(steps.params - replayed(recording, policy.single)).max() == 0.0


def test_half_a_line_is_none(tmp_path):
    rehearse(policies.asynchronous, np.full((1, 2), 1.0), num_gradients=4, log=opened(tmp_path))
    path, data = tmp_path / "log.jsonl", (tmp_path / "log.jsonl").read_bytes()
    for length in range(len(data)):
        path.write_bytes(data[:length])
        entries, place = read(path)
        assert place.offset == data[:length].rfind(b"\n") + 1
        assert len(entries) == place.lines == data[:length].count(b"\n")
    path.write_bytes(data[:-5])
    log = opened(tmp_path)
    assert path.read_bytes() == data[: data[:-5].rfind(b"\n") + 1]
    log.close()
    path.write_bytes(data[:10])  # not even a header: the run had not begun
    recording, *_ = rehearse(policies.asynchronous, np.full((1, 2), 1.0), num_gradients=6, log=opened(tmp_path))
    assert recording.ledger()["applied"] == 6


def test_a_log_that_contradicts_itself_says_where(tmp_path):
    rehearse(policies.asynchronous, np.full((1, 2), 1.0), num_gradients=6, log=opened(tmp_path))
    path = tmp_path / "log.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    spoilt = [*lines[:4], lines[4].replace(b"1", b"2", 1), *lines[5:]]
    path.write_bytes(b"".join(spoilt))
    opened(tmp_path).close()  # the checkpoint after it knows what came before
    for update in checkpoint.updates_of(tmp_path):
        checkpoint.path_of(tmp_path, update).unlink()
    for wrong in (lines[:4] + lines[5:], spoilt):
        path.write_bytes(b"".join(wrong))
        with pytest.raises(LogError, match=r"damaged in line 5, or lines before it are missing; the 4 lines before"):
            opened(tmp_path)
    path.write_bytes(b"".join(lines[:4]))  # what remains can be used, as the message says
    recording, steps, *_ = rehearse(policies.asynchronous, np.full((1, 2), 1.0), num_gradients=6, log=opened(tmp_path))
    assert np.abs(steps.params - replayed(recording, True)).max() == 0.0
    path.write_bytes(b"something else\n")
    with pytest.raises(LogError, match="is not the log of a live run"):
        opened(tmp_path)


def test_another_configuration_is_refused(tmp_path):
    config = {"protocol": {"kind": "any"}, "seed": 3}
    rehearse(policies.asynchronous, np.full((1, 2), 1.0), num_gradients=6, log=opened(tmp_path, config))
    with pytest.raises(LogError, match=r'is of a run with protocol\.kind="any", not "other"'):
        opened(tmp_path, config | {"protocol": {"kind": "other"}})
    for match in ("does not go on from checkpoint 6 .*", "does not follow .*"):
        with pytest.raises(LogError, match=match + " num_gradients=9 must be 6, as the log says"):
            rehearse(policies.asynchronous, np.full((1, 2), 1.0), num_gradients=9, log=opened(tmp_path, config))
        for update in checkpoint.updates_of(tmp_path):
            checkpoint.path_of(tmp_path, update).unlink()


def stopped(log, turns=40):
    """A run that is stopped after so many turns."""
    with pytest.raises(Stopped, match="the same command continues"):
        asynchronous(90, log=log, stop=after(turns))


def test_other_versions_are_said_and_recorded(tmp_path, monkeypatch):
    first, said = versions(), []
    stopped(opened(tmp_path))
    for jax in ("9.1", "9.2", "9.2"):
        monkeypatch.setattr("sgdlab.live.log.versions", lambda jax=jax: first | {"jax": jax})
        stopped(opened(tmp_path, say=said.append), turns=10)
    said = [line for line in said if "than before" in line]
    assert [line.split(";")[0].split(": ")[1] for line in said] == [
        f"jax {first['jax']} is now 9.1",
        "jax 9.1 is now 9.2",
    ]
    recording, steps, *_ = asynchronous(90, log=opened(tmp_path))
    assert recording.versions == first | {"jax": f"{first['jax']}, later 9.2"}
    assert examined(tmp_path, lambda config: policies.asynchronous(num_workers=3)).versions == recording.versions
    assert np.abs(steps.params - replayed(recording, True)).max() == 0.0


class FullDisk:
    """A file that can take so many lines, and a bit of the next one."""

    def __init__(self, file, lines, error):
        self.file, self.left, self.error = file, lines, error

    def __getattr__(self, name):
        return getattr(self.file, name)

    def write(self, line):
        self.left -= 1
        if self.left >= 0:
            return self.file.write(line)
        if self.error:
            raise OSError(errno.ENOSPC, "no space")
        return self.file.write(line[:7])


@pytest.mark.parametrize("error", [True, False])
@pytest.mark.parametrize("lines", [0, 1, 17, 40])
def test_when_the_disk_is_full_the_same_command_continues(tmp_path, lines, error):
    log = opened(tmp_path)
    log._file = FullDisk(log._file, lines, error)
    with pytest.raises(RunFailed, match=r"log=.* cannot be written: (?i:no space).*; the same command continues when"):
        asynchronous(30, log=log)
    recording, steps, *_ = asynchronous(30, log=opened(tmp_path))
    assert recording.ledger()["applied"] == 30
    assert np.abs(steps.params - replayed(recording, True)).max() == 0.0


def test_a_disk_that_fails_ends_the_run_in_one_line(tmp_path, monkeypatch):
    def fails(descriptor):
        raise OSError(errno.EIO, "input/output error")

    log = opened(tmp_path)
    with monkeypatch.context() as broken:
        broken.setattr(os, "fsync", fails)
        own = dataclasses.replace(QUICK, checkpoint_updates=10_000)
        with pytest.raises(RunFailed, match="cannot be written: input/output error; the same command continues"):
            asynchronous(30, log=log, settings=own)
    recording, *_ = asynchronous(30, log=opened(tmp_path))
    assert recording.ledger()["applied"] == 30


@pytest.mark.parametrize("slow", ["os.fsync", "sgdlab.live.checkpoint.save"])
def test_nobody_waits_for_the_disk(tmp_path, monkeypatch, slow):
    enough, heard, log = threading.Event(), [], opened(tmp_path)
    monkeypatch.setattr(slow, lambda *given: heard.append(enough.wait(20)))
    own = dataclasses.replace(QUICK, checkpoint_seconds=1e-3)
    asynchronous(60, log=log, settings=own, on_update=lambda update: enough.set() if update.number == 50 else None)
    assert heard
    assert all(heard)


@pytest.mark.full
def test_a_gradient_takes_little_memory(tmp_path):
    """All gradients of a run are remembered until its end, days of them."""
    transport, used = Rehearsal(SAME, compute), {}
    transport.told = collections.deque(maxlen=0)

    def measure(update):
        if update.number in (1000, 3000):
            used[update.number] = tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        own = dataclasses.replace(QUICK, checkpoint_updates=10_000)
        log = opened(tmp_path)
        asynchronous(3000, log=log, transport=transport, settings=own, on_update=measure)
    finally:
        tracemalloc.stop()
    assert (used[3000] - used[1000]) / 2000 < 120


def test_two_servers_do_not_write_one_log(tmp_path):
    first = opened(tmp_path)
    with pytest.raises(LogError, match="being written by another process"):
        opened(tmp_path)
    first.close()
    opened(tmp_path).close()


def exchanged(data):
    """The same archive with other numbers in it, whose checksums are right."""
    with np.load(io.BytesIO(data)) as stored:
        arrays = {name: stored[name] for name in stored.files}
    arrays["steps params"] = arrays["steps params"] + 1.0
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


@pytest.mark.parametrize(
    "spoil", [lambda data: data[: len(data) // 2], lambda data: bytes(len(data)), lambda data: b"", exchanged]
)
def test_a_damaged_checkpoint_is_passed_over(tmp_path, spoil):
    said = []
    stopped(opened(tmp_path))
    path = checkpoint.path_of(tmp_path, checkpoint.updates_of(tmp_path)[-1])
    path.write_bytes(spoil(path.read_bytes()))
    recording, steps, *_ = asynchronous(90, log=opened(tmp_path, say=said.append))
    assert "cannot be read" in said[0]
    assert f"{path}" in said[0]
    assert np.abs(steps.params - replayed(recording, True)).max() == 0.0


def test_gradients_since_the_checkpoint_alone_are_computed_again(tmp_path):
    runtimes = np.full((1, 3), 1.0) + np.arange(3) / 8
    with pytest.raises(Stopped):
        rehearse(policies.asynchronous, runtimes, num_gradients=90, log=opened(tmp_path), stop=after(60))
    used = examined(tmp_path, lambda config: policies.asynchronous(num_workers=3)).ledger()["applied"]
    newest = checkpoint.updates_of(tmp_path)[-1]
    checkpoint.path_of(tmp_path, newest).unlink()  # as if it had been killed before that
    before = checkpoint.updates_of(tmp_path)[-1]
    computed, updates = [], []

    def counted(ticket, params, version):
        computed.append(ticket)
        return compute(ticket, params)

    log = opened(tmp_path, compute=counted)
    rehearse(policies.asynchronous, runtimes, num_gradients=90, log=log, on_update=updates.append)
    assert len(computed) == used - before
    assert [update.number for update in updates] == list(range(before + 1, 91))
    assert all(update.computed for update in updates)


def test_a_checkpoint_of_another_log_is_not_used(tmp_path):
    """Two runs of the same length in one folder, one after the other: the older one's checkpoints are left over."""
    first, second = tmp_path / "first", tmp_path / "second"
    asynchronous(30, log=opened(first))
    rehearse(policies.asynchronous, np.full((1, 3), 1.5), num_gradients=30, log=opened(second))
    for update in checkpoint.updates_of(second):
        checkpoint.path_of(second, update).unlink()
    for update in checkpoint.updates_of(first):
        shutil.copy(checkpoint.path_of(first, update), second)
    said = []
    log = opened(second, say=said.append)
    recording, steps, *_ = rehearse(policies.asynchronous, np.full((1, 3), 1.5), num_gradients=30, log=log)
    assert "not of this log" in said[0]
    assert np.abs(steps.params - replayed(recording, True)).max() == 0.0


def test_two_checkpoints_are_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint, "_KEPT", 2)
    asynchronous(31, log=opened(tmp_path))
    assert checkpoint.updates_of(tmp_path) == [30, 31]


def test_nobody_begins_when_the_server_is_started_again(tmp_path):
    """All workers are gone: those who wait are told first, or a loss would seem to complete the round for them."""
    runtimes = np.array([[3.0, 5.0, 1.0]])
    rehearse(policies.synchronous, runtimes, num_gradients=12, log=opened(tmp_path / "whole"))
    entries, _ = read(tmp_path / "whole" / "log.jsonl")
    place = next(place for place, entry in enumerate(entries) if entry[0] == "came")  # worker 2 waits
    until_killed(tmp_path / "killed", place + 1, tmp_path / "whole")
    recording, *_ = rehearse(policies.synchronous, runtimes, num_gradients=12, log=opened(tmp_path / "killed"))
    entries, _ = read(tmp_path / "killed" / "log.jsonl")
    assert [entry[0] for entry in entries[place + 1 : place + 5]] == ["restart", "restart", "restart", "joined"]
    assert recording.ledger()["lost"] == 2


def test_a_policy_that_begins_when_somebody_is_lost(tmp_path):
    """Lose what it begins while the server is started again, in the same instant, or nearly."""

    class Eager(policies.Softsync):
        def after_loss(self, now):
            return self.begin(sorted(self.alive - self.busy.keys()))

        def joined(self, now, worker):
            self.alive.add(worker)
            return self.begin(sorted(self.alive - self.busy.keys()))

        def arrival(self, now, worker, version, seconds):
            actions = super().arrival(now, worker, version, seconds)
            if worker < 2 and len(self.busy) > 1:  # it waits until somebody is lost
                del self.busy[worker]
                actions = [action for action in actions if not isinstance(action, policies.Begin)]
            return actions

    runtimes = np.full((1, 3), 2.0) + np.arange(3) / 8
    make = lambda num_workers: Eager(size=1)
    rehearse(make, runtimes, num_gradients=20, log=opened(tmp_path / "whole"))
    lines, eager = len((tmp_path / "whole" / "log.jsonl").read_bytes().splitlines()), 0
    for kept in range(2, lines, 3):
        folder = tmp_path / f"killed{kept}"
        until_killed(folder, kept, tmp_path / "whole")
        recording, steps, *_ = rehearse(make, runtimes, num_gradients=20, log=opened(folder))
        assert np.abs(steps.params - replayed(recording, True)).max() == 0.0
        assert recording.ledger()["applied"] == 20
        after = [entry[0] for entry in read(folder / "log.jsonl")[0][kept:]]
        eager += ("restart", "begun", "restart") in zip(after, after[1:], after[2:], strict=False)
    assert eager


@pytest.mark.parametrize("old", [False, True])
def test_what_went_wrong_is_said_again_in_the_same_words(tmp_path, old):
    """Logs of before 1.1 do not say for how long a worker was silent, and can be followed nevertheless."""
    statuses, faults = [], [Fault("stop", 1, 5.0, 1000.0)]
    given = {"watch": statuses.append, "settings": dataclasses.replace(QUICK, watch_seconds=0.0)}
    with pytest.raises(Stopped):
        asynchronous(900, faults=faults, log=opened(tmp_path), stop=after(260), **given)
    before = [words for _, words in statuses[-1].events]
    assert sum(words.startswith("worker 1 is lost: silent for ") for words in before) == 2  # then it was killed
    if old:
        entries, chain, lines = read(tmp_path / "log.jsonl")[0], 0, []
        for entry in entries:
            short = {"silent": entry[:3], "killed": entry[:3]}.get(entry[0], entry)
            line, chain = line_of(short, chain)
            lines.append(line)
        (tmp_path / "log.jsonl").write_bytes(b"".join(lines))
    with pytest.raises(Stopped):
        asynchronous(900, log=opened(tmp_path), stop=after(3), **given)
    again = [words for _, words in statuses[-1].events]
    if old:
        assert "worker 1 is lost: silent" in again
        assert sum(words.startswith("worker 1 is lost: silent, and killed; started") for words in again) == 1
    else:
        assert again[: len(before)] == before


def test_a_worker_that_joins_a_resumed_run(tmp_path):
    """All processes are new ones, and none begins before all are there."""
    runtimes = np.full((1, 3), 2.0)
    with pytest.raises(Stopped):
        rehearse(policies.synchronous, runtimes, num_gradients=90, log=opened(tmp_path), stop=after(20))
    transport = Rehearsal(runtimes, compute, join_seconds={0: 0.0, 1: 1.0, 2: 3.0})
    recording, *_ = rehearse(
        policies.synchronous, runtimes, num_gradients=90, log=opened(tmp_path), transport=transport
    )
    sizes = np.bincount(recording.schedule.update[recording.schedule.used()])
    assert sizes[-1] == 3
    assert (sizes == 3).sum() >= len(sizes) - 1  # but for the one that was open


def test_steps_are_compared_by_a_second_implementation():
    """See that the check of all these tests can fail: one ticket exchanged, and the parameters differ."""
    recording, steps, *_ = asynchronous(20, settings=QUICK)
    tickets = np.array(recording.ticket)
    tickets[[3, 4]] = tickets[[4, 3]]
    object.__setattr__(recording, "ticket", tickets)
    assert np.abs(steps.params - replayed(recording, True)).max() > 1e-6
    assert isinstance(steps, NaiveSteps)
