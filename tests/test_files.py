"""Files are whole or not there: whatever goes wrong, the old file stays, and nothing else is left behind."""

import contextlib
import errno
import os
import stat

import pytest

from sgdlab import files


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "note.txt"
    path.write_bytes(b"old")
    return path


def test_new_file_appears_at_the_end(path):
    with files.replacing(path) as file:
        file.write(b"new")
        file.flush()
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"new"
    assert os.listdir(path.parent) == [path.name]


def test_a_link_stays_one_to_what_is_new(path, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    link = tmp_path / "elsewhere/link.txt"
    link.symlink_to(path)
    files.write_text(link, "new")
    assert link.is_symlink()
    assert path.read_bytes() == b"new"
    assert os.listdir(link.parent) == [link.name]


def test_a_pipe_is_written_to_and_stays_one(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    files.write_text(tmp_path / "pipe", "new")
    assert os.read(reader, 10) == b"new"
    os.close(reader)
    beyond, end = os.pipe()  # which has no name, as that of /dev/stdout
    files.write_text(f"/proc/self/fd/{end}", "new")
    assert os.read(beyond, 10) == b"new"
    for each in (beyond, end):
        os.close(each)
    assert os.listdir(tmp_path) == ["pipe"]
    assert stat.S_ISFIFO(os.stat(tmp_path / "pipe").st_mode)


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, SystemExit])
def test_error_in_the_block_leaves_the_old_file(path, error):
    with pytest.raises(error), files.replacing(path) as file:  # noqa: PT012
        file.write(b"half of")
        raise error
    assert path.read_bytes() == b"old"
    assert os.listdir(path.parent) == [path.name]


def test_error_in_the_block_leaves_no_file_where_there_was_none(tmp_path):
    with pytest.raises(RuntimeError), files.replacing(tmp_path / "note.txt"):
        raise RuntimeError
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("call", ["replace", "fsync"])
def test_error_of_the_disk_leaves_the_old_file(path, monkeypatch, call):
    def fail(*args):
        raise OSError("disk")

    monkeypatch.setattr(os, call, fail)
    with pytest.raises(OSError, match="disk"), files.replacing(path) as file:
        file.write(b"new")
    monkeypatch.undo()
    assert path.read_bytes() == b"old"
    assert os.listdir(path.parent) == [path.name]


def test_contents_are_on_the_disk_before_the_name(path, monkeypatch):
    order = []
    fsync, replace = os.fsync, os.replace
    kind = lambda handle: "folder" if stat.S_ISDIR(os.fstat(handle).st_mode) else "contents"
    monkeypatch.setattr(os, "fsync", lambda handle: order.append(kind(handle)) or fsync(handle))
    monkeypatch.setattr(os, "replace", lambda old, new: order.append("name") or replace(old, new))
    with files.replacing(path) as file:
        file.write(b"new")
    assert order == ["contents", "name", "folder"]


def test_the_names_of_new_folders_are_on_the_disk(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr(os, "fsync", lambda handle: synced.append(os.readlink(f"/proc/self/fd/{handle}")))
    files.make_folder(tmp_path / "a" / "b")
    assert synced == [str(tmp_path), str(tmp_path / "a")]
    files.make_folder(tmp_path / "a" / "b")
    assert len(synced) == 2


@pytest.mark.parametrize(("code", "passes"), [(errno.EINVAL, True), (errno.EIO, False)])
def test_a_file_system_that_cannot_sync_folders_is_used_all_the_same(tmp_path, monkeypatch, code, passes):
    def fails(handle):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "fsync", fails)
    with contextlib.nullcontext() if passes else pytest.raises(OSError, match="Input/output"):
        files.sync_folder(tmp_path)


@pytest.mark.parametrize("umask", [0o022, 0o077, 0o027, 0o000])
def test_permissions_are_those_of_any_new_file_and_umask_is_left_as_it_was(tmp_path, umask):
    before = os.umask(umask)
    try:
        with files.replacing(tmp_path / "note.txt"):
            pass
    finally:
        left = os.umask(before)
    assert left == umask
    assert stat.S_IMODE((tmp_path / "note.txt").stat().st_mode) == 0o666 & ~umask


def test_folders_are_made_and_text_is_utf_8(tmp_path):
    files.write_text(str(tmp_path / "a" / "b" / "note.txt"), "θ ← θ + v")
    assert (tmp_path / "a" / "b" / "note.txt").read_bytes() == "θ ← θ + v".encode()
