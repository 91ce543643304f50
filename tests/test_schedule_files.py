"""Schedules with a server and without: nobody changes them, and a file of one is read whole or refused."""

import contextlib
import dataclasses
import gc
import os
import pickle
import warnings

import numpy as np
import pytest
import test_peer_schedule as peers
import test_schedule as servers
from test_schedule import assert_equal

KINDS = {"servers": servers, "peers": peers}


@pytest.fixture(name="kind", params=KINDS)
def examples_of_a_kind(request):
    return KINDS[request.param]


def class_of(kind):
    return type(kind.small())


class TestFrozen:
    def test_arrays_cannot_be_written(self, kind):
        for name, dtype in kind.ARRAYS.items():
            array = getattr(kind.small(), name)
            assert array.dtype == dtype
            with pytest.raises(ValueError, match="read-only"):
                array[0] = 0

    def test_fields_cannot_be_replaced(self, kind):
        for name in kind.fields():
            with pytest.raises(dataclasses.FrozenInstanceError):
                setattr(kind.small(), name, 1)

    def test_leaves_the_callers_arrays_alone(self, kind):
        given = {name: kind.fields()[name].astype(dtype) for name, dtype in kind.ARRAYS.items()}
        schedule = class_of(kind)(**kind.fields() | given)
        assert all(array.flags.writeable for array in given.values())
        first = next(iter(given))
        given[first][0] = 1
        assert getattr(schedule, first)[0] == 0


@pytest.fixture(name="path")
def path_below_a_new_folder(tmp_path):
    return tmp_path / "runs" / "schedule.npz"


@pytest.mark.parametrize(
    "make",
    [
        servers.small, servers.two_blocks, servers.empty,
        peers.small, peers.not_fresh, peers.no_center, peers.empty, peers.moving,
    ],
)  # fmt: skip
def test_round_trip(path, make):
    schedule = make()
    schedule.save(path)
    assert_equal(type(schedule).load(path), schedule)
    assert_equal(type(schedule).load(str(path)), schedule)
    assert os.listdir(path.parent) == ["schedule.npz"]


def test_any_name_will_do_and_an_older_one_is_replaced(tmp_path, kind):
    for schedule in (kind.small(), kind.empty()):
        schedule.save(tmp_path / "schedule.bin")
        assert os.listdir(tmp_path) == ["schedule.bin"]
        assert_equal(class_of(kind).load(tmp_path / "schedule.bin"), schedule)


def write_half(path, kind):
    kind.small().save(path)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def write_array(path, kind):
    with path.open("wb") as file:
        np.save(file, np.ones(3))


def write_changed(path, kind, **changed):
    """Writes the file of an example with other arrays; None leaves one out."""
    kind.small().save(path)
    with np.load(path) as file:
        arrays = dict(file) | changed
    np.savez(path, **{name: array for name, array in arrays.items() if array is not None})


def write_the_other_kind(path, kind):
    (other,) = (other for other in KINDS.values() if other is not kind)
    other.small().save(path)


WRONG = {
    "text": lambda path, kind: path.write_text("whom should I wait for?"),
    "nothing": lambda path, kind: path.touch(),
    "half": write_half,
    "a pickle": lambda path, kind: path.write_bytes(pickle.dumps(kind.fields())),
    "an array": write_array,
    "workers as an array": lambda path, kind: write_changed(path, kind, **{[*kind.fields()][-1]: np.arange(3)}),
    "objects": lambda path, kind: write_changed(path, kind, **{next(iter(kind.ARRAYS)): np.array([{}], object)}),
    "the other kind": write_the_other_kind,
}


def refused(kind, path, *words):
    with pytest.raises(ValueError, match=r"path='.*\.npz' is not a schedule written by .*\.save: .") as error:
        class_of(kind).load(path)
    for word in (class_of(kind).__name__, *words):
        assert word in str(error.value)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # see test_half_a_file_is_closed
@pytest.mark.parametrize("wrong", WRONG)
def test_what_is_not_a_schedule_is_a_value_error(tmp_path, kind, wrong):
    WRONG[wrong](tmp_path / "schedule.npz", kind)
    refused(kind, tmp_path / "schedule.npz")


def test_a_missing_entry_and_a_contradiction_are_named(tmp_path, kind):
    first, *_, last = kind.ARRAYS
    write_changed(tmp_path / "less.npz", kind, **{last: None})
    refused(kind, tmp_path / "less.npz", last)
    write_changed(tmp_path / "contradiction.npz", kind, **kind.put(first, 3, 9))
    refused(kind, tmp_path / "contradiction.npz", f"{first}=9 in row 3 must be 0 to 2")


def test_half_a_file_is_closed(tmp_path, kind):
    write_half(tmp_path / "schedule.npz", kind)
    with warnings.catch_warnings(record=True, action="always") as caught:
        with contextlib.suppress(ValueError):
            class_of(kind).load(tmp_path / "schedule.npz")
        gc.collect()
    assert [str(warning.message) for warning in caught] == []


def test_a_damaged_file_is_a_value_error_or_harmless(tmp_path, kind):
    path = tmp_path / "schedule.npz"
    kind.small().save(path)
    whole = path.read_bytes()
    for place in range(0, len(whole), 7):
        damaged = bytearray(whole)
        damaged[place] ^= 0xFF
        path.write_bytes(damaged)
        with contextlib.suppress(ValueError):
            assert_equal(class_of(kind).load(path), kind.small())


def test_no_file(tmp_path, kind):
    with pytest.raises(FileNotFoundError):
        class_of(kind).load(tmp_path / "schedule.npz")
