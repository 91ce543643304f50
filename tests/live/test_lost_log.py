"""A work directory that is deleted under a run: it ends with a line, what it had is saved, and nothing is removed."""

import errno
import fcntl
import os
import pathlib
import shutil

import numpy as np
import pytest
from rehearsing import POLICIES, opened, rehearse, replayed

from sgdlab import files
from sgdlab.errors import UsageError
from sgdlab.live import checkpoint
from sgdlab.live import log as logs
from sgdlab.live.lines import LogError, files_in, read
from sgdlab.live.log import Log

SAME, ENOUGH = np.full((1, 3), 1.0), 90
LIKE = {"params": np.zeros(3), "aux": {"loss": np.zeros([])}}


def run(name, folder, *, at=None, does=lambda: None, say=[].append):
    """A run to whose files something happens after so many updates; the updates, and what `rehearse` returns."""
    updates, log = [], opened(folder, say=say)

    def on_update(update):
        updates.append(update)
        if update.number == at:
            log._saved()  # no checkpoint is being written at this moment
            does()

    try:
        return updates, rehearse(POLICIES[name], SAME, num_gradients=ENOUGH, log=log, on_update=on_update)
    except UsageError as error:
        return updates, error


def continues(name, folder, updates):
    """The same command goes on from where the run has ended, and the whole run is one."""
    again, (recording, steps, _, policy) = run(name, folder)
    last = recording.schedule.num_updates
    assert [update.number for update in again] == list(range(len(updates) + 1, last + 1))  # nothing is told again
    assert all(update.computed for update in again)
    assert recording.ledger()["applied"] >= ENOUGH
    assert np.abs(steps.params - replayed(recording, policy.single)).max() == 0.0


@pytest.mark.parametrize("name", ["asynchronous", "synchronous", "softsync", "ringmaster, interrupting"])
def test_a_deleted_directory_ends_the_run_which_the_same_command_continues(name, tmp_path):
    folder, said = tmp_path / "work" / "run", []
    updates, error = run(name, folder, at=11, does=lambda: shutil.rmtree(tmp_path / "work"), say=said.append)
    assert len(updates) < 20  # at once, not at its end
    assert isinstance(error, UsageError)
    assert "\n" not in str(error)
    log = folder / "log.jsonl"
    assert str(error).startswith(f"log={str(log)!r} was deleted, moved or unmounted while the run wrote there")
    assert str(error).endswith(f"saved in {folder}: the same command continues")
    assert said == [f"The log is written again: {log}"]
    assert checkpoint.updates_of(folder)[-1] == len(updates)
    continues(name, folder, updates)


@pytest.mark.parametrize("name", ["asynchronous", "synchronous"])
def test_it_is_noticed_at_the_end_too(name, tmp_path):
    folder = tmp_path / "run"
    last = ENOUGH // (3 if name == "synchronous" else 1)
    updates, error = run(name, folder, at=last, does=lambda: shutil.rmtree(folder))
    assert len(updates) == last
    assert isinstance(error, UsageError)
    continues(name, folder, updates)


def test_a_run_that_was_moved_is_left_alone(tmp_path):
    folder, moved = tmp_path / "run", tmp_path / "moved"
    updates, error = run("asynchronous", folder, at=11, does=lambda: folder.rename(moved))
    assert isinstance(error, UsageError)
    assert (folder / "log.jsonl").read_bytes() == (moved / "log.jsonl").read_bytes()
    continues("asynchronous", folder, updates)


def test_another_log_in_its_place_is_left_alone(tmp_path):
    folder, others = tmp_path / "run", []

    def replaced():
        shutil.rmtree(folder)
        others.append(opened(folder))
        (tmp_path / "run.1").mkdir()
        shutil.copy(folder / "log.jsonl", tmp_path / "run.1")

    updates, error = run("asynchronous", folder, at=11, does=replaced)
    saved = tmp_path / "run.2"
    assert str(error).endswith(f"saved in {saved}: with that in the place of {folder}, the same command continues")
    assert [len(read(tmp_path / name / "log.jsonl")[0]) for name in ("run", "run.1")] == [1, 1]
    others[0].close()
    continues("asynchronous", saved, updates)


def test_where_nothing_can_be_written_that_is_said(tmp_path):
    folder = tmp_path / "work" / "run"

    def replaced():
        shutil.rmtree(tmp_path / "work")
        (tmp_path / "work").touch()

    _, error = run("asynchronous", folder, at=11, does=replaced)
    log = folder / "log.jsonl"
    assert str(error) == (
        f"log={str(log)!r} was deleted, moved or unmounted, and cannot be written again at {log}: File exists"
    )


def test_messages_that_are_kept_go_along(tmp_path):
    folder = tmp_path / "run"
    log = Log(folder, {}, sent_like=LIKE, say=lambda line: None)
    shutil.rmtree(folder)
    log.sync(5.0)
    assert log.lost
    log.write_again()
    log.sync(10.0)
    assert not log.lost
    log.keep(4, np.arange(3.0), {"loss": np.zeros([])})
    log.close()
    log = Log(folder, {}, sent_like=LIKE, say=lambda line: None)
    assert log.messages.read(4)[0].tolist() == [0.0, 1.0, 2.0]
    log.close()


@pytest.mark.parametrize("spoil", [lambda path: path.unlink(), lambda path: path.write_bytes(b"")])
def test_checkpoints_without_a_log_are_put_aside(tmp_path, spoil):
    folder, said, before = tmp_path / "run", [], []
    for number in (1, 2):
        updates, _ = run("asynchronous", folder, say=said.append)
        assert len(updates) == ENOUGH
        (folder / "messages-7.bin").write_bytes(b"a message")
        before.append({path.name: path.read_bytes() for path in folder.iterdir() if path.name != "log.jsonl"})
        spoil(folder / "log.jsonl")
        said.clear()
        log = opened(folder, say=said.append)
        assert {path.name for path in folder.iterdir()} == {"log.jsonl", "record.bin"}
        assert not (folder / "record.bin").read_bytes()
        count = len(before[-1])
        assert said[0].startswith(f"{folder / 'log.jsonl'} has no line, but {count} files of a run lie beside it")
        assert said[0].endswith(f"they are put aside in {tmp_path / f'run.{number}'}, and the run begins at 0")
        assert len(said) == 1
        log.close()
    for number, contents in enumerate(before, 1):
        aside = tmp_path / f"run.{number}"
        assert {path.name: path.read_bytes() for path in aside.iterdir()} == contents


def test_a_run_that_has_not_begun_leaves_nothing_to_put_aside(tmp_path):
    said = []
    for _ in range(2):
        (tmp_path / "run").mkdir(exist_ok=True)
        (tmp_path / "run" / "log.jsonl").write_bytes(b'["log",1,')
        opened(tmp_path / "run", say=said.append).close()
    assert said == []
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_the_names_of_logs_and_checkpoints_are_on_the_disk(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr(os, "fsync", lambda handle: synced.append(os.readlink(f"/proc/self/fd/{handle}")))
    folder = tmp_path / "work" / "run"
    log = opened(folder)
    assert synced == [str(tmp_path), str(tmp_path / "work"), str(folder)]
    synced.clear()
    log.checkpoint(7, {"params": np.ones(3)}, {})
    log.close()
    assert synced.index(str(folder)) > min(place for place, name in enumerate(synced) if ".checkpoint-7" in name)
    synced.clear()
    files.put_aside([checkpoint.path_of(folder, 7)])
    assert synced == [str(folder.parent), str(folder.with_name("run.1")), str(folder)]


def test_a_configuration_with_an_infinite_entry_is_read_again(tmp_path):
    """The entries of parts that a run does not use are in its log too, such as transports without limits."""
    entries = {"transport": {"gbits": float("inf")}}
    for _ in range(2):
        log = opened(tmp_path, config=entries)
        log.close()
    assert read(log.path)[0][0][2] == entries


@pytest.mark.parametrize(("code", "lost"), [(errno.ENOENT, True), (errno.ESTALE, True), (errno.EACCES, False)])
def test_a_log_is_lost_where_nobody_finds_it_and_not_where_one_may_not_look(code, lost, tmp_path, monkeypatch):
    log = opened(tmp_path)

    def fails(path, **given):
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patched:
        patched.setattr(pathlib.Path, "stat", fails)
        log.sync(5.0)
    assert log.lost == lost
    log.close()


def test_a_log_that_went_on_in_another_file_is_still_one_processs_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(logs, "LONG", 1)
    log = opened(tmp_path)
    log.checkpoint(7, {"params": np.ones(3)}, {})
    assert len(files_in(tmp_path)) == 2
    with pytest.raises(LogError, match="is being written by another process"):
        opened(tmp_path)
    log.close()
    opened(tmp_path).close()


def test_a_log_that_goes_on_in_another_file_while_it_is_opened_is_another_processs(tmp_path, monkeypatch):
    opened(tmp_path).close()
    path, locked = tmp_path / "log.jsonl", fcntl.flock

    def flock(file, how):
        path.replace(tmp_path / "log-0.jsonl")  # as the other one does
        shutil.copy(tmp_path / "log-0.jsonl", path)
        locked(file, how)

    monkeypatch.setattr(fcntl, "flock", flock)
    with pytest.raises(LogError, match="is being written by another process"):
        opened(tmp_path)
