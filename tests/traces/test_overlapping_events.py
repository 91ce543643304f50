"""Events: files of both forms, compressed, damaged; and the times that they cover against sums over small cells."""

import gzip
import json
import pathlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sgdlab.traces import events
from sgdlab.traces.problems import BadTrace

EVENTS = [{"ph": "X", "name": f"event {n}", "ts": n, "dur": 1.5, "args": {"list": [{"a": 1}, "]}"]}} for n in range(5)]


def scan(path: pathlib.Path):
    taken = []

    class Around(events.Trace):
        reads_cut_off = True

        def _event(self, event):
            taken.append(event)

    return taken, Around(path)


def write(path: pathlib.Path, text: str) -> pathlib.Path:
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


@pytest.mark.parametrize("name", ["a.json", "a.json.gz"])
@pytest.mark.parametrize("indent", [None, 2])
def test_an_object_is_read_with_what_stands_around_its_events(tmp_path, name, indent):
    text = json.dumps({"before": {"rank": 3}, "traceEvents": EVENTS, "after": [1, 2]}, indent=indent)
    taken, around = scan(write(tmp_path / name, text))
    assert taken == EVENTS
    assert around.header == {"before": {"rank": 3}, "after": [1, 2]}
    assert (around.events, around.skipped, around.cut_off) == (5, 0, False)


@pytest.mark.parametrize("end", ["]", "", ",\n", "]\n"])
def test_an_array_may_lack_its_bracket(tmp_path, end):
    taken, around = scan(write(tmp_path / "a.json", json.dumps(EVENTS)[:-1] + end))
    assert taken == EVENTS
    assert not around.cut_off


@pytest.mark.parametrize("left", [1, 3, 40, 200])
def test_an_object_without_its_end_is_cut_off(tmp_path, left):
    text = json.dumps({"traceEvents": EVENTS})
    taken, around = scan(write(tmp_path / "a.json", text[:-left]))
    assert taken == EVENTS[: len(taken)]
    assert len(taken) >= 5 - left // 40 - 1
    assert around.cut_off


def test_a_compressed_file_without_its_end_is_read_as_far_as_it_goes(tmp_path):
    events = [{"ph": "X", "name": str(n * 7919 % 1013), "ts": n, "dur": 1} for n in range(3_000)]
    raw = gzip.compress(json.dumps({"traceEvents": events}).encode())
    (tmp_path / "a.json.gz").write_bytes(raw[: len(raw) // 2])
    taken, around = scan(tmp_path / "a.json.gz")
    assert around.cut_off
    assert 0 < len(taken) < 3_000
    assert taken == events[: len(taken)]


def test_a_compressed_array_that_lacks_more_than_its_bracket_is_told_from_a_whole_one(tmp_path):
    raw = gzip.compress(json.dumps(EVENTS)[:-1].encode())
    for left in (0, 4):
        (tmp_path / "a.json.gz").write_bytes(raw[: len(raw) - left])
        assert scan(tmp_path / "a.json.gz")[1].cut_off == (left > 0)


def test_an_event_that_is_no_json_is_skipped(tmp_path):
    parts = [json.dumps(event) for event in EVENTS]
    parts[1] = parts[1].replace("event 1", "C:\\users\\x")  # \u must be followed by four digits
    taken, around = scan(write(tmp_path / "a.json", '{"traceEvents": [' + ",\n".join(parts) + "]}"))
    assert taken == [EVENTS[0], *EVENTS[2:]]
    assert (around.skipped, around.cut_off) == (1, False)


def test_control_characters_in_names_are_read(tmp_path):
    taken, _ = scan(write(tmp_path / "a.json", '[{"ph": "X", "name": "a\tb\nc"}]'))
    assert taken == [{"ph": "X", "name": "a\tb\nc"}]


@pytest.mark.parametrize("text", ["", "42", "worker,step\n", "{}", '{"other": [1]}'])
def test_what_holds_no_events_is_refused(tmp_path, text):
    with pytest.raises(BadTrace, match="traceEvents"):
        scan(write(tmp_path / "a.json", text))


def test_what_is_no_gzip_is_refused(tmp_path):
    (tmp_path / "a.json.gz").write_bytes(b"\x1f\x8b\x08\x00damaged damaged")
    with pytest.raises(BadTrace, match="decompressed"):
        scan(tmp_path / "a.json.gz")


def test_the_head_of_a_file_tells_whether_it_has_events(tmp_path):
    assert events.has_events(events.head(write(tmp_path / "a.json.gz", json.dumps({"traceEvents": []}))))
    assert events.has_events(events.head(write(tmp_path / "b.json", json.dumps(EVENTS))))
    assert not events.has_events(events.head(write(tmp_path / "c.json", json.dumps([{"worker": 1}]))))
    assert events.head(tmp_path / "none") == ""


END = 40
WHOLE = st.lists(st.tuples(st.integers(0, END - 1), st.integers(0, 8)), max_size=8)


def arrays(spans):
    begin = np.array([left for left, _ in spans], np.float64)
    return begin, begin + np.array([length for _, length in spans], np.float64)


def cells(begin, end):
    """bool[END + 8]: whether each unit of time is covered, one interval after the other."""
    covered = np.zeros(END + 8, bool)
    for left, right in zip(begin.astype(int), end.astype(int), strict=True):
        covered[left:right] = True
    return covered


@given(WHOLE)
def test_a_union_covers_the_same_times_once(spans):
    begin, end = arrays(spans)
    left, right = events.union(begin, end)
    np.testing.assert_array_equal(cells(left, right), cells(begin, end))
    assert (left[1:] > right[:-1]).all()


@given(WHOLE, st.integers(0, END), st.integers(0, 8))
def test_the_covered_time_of_a_window(spans, left, length):
    begin, end = arrays(spans)
    time = events.covered(begin, end, np.array([float(left)]), np.array([float(left + length)]))
    assert time == [cells(begin, end)[left : left + length].sum()]


@given(WHOLE, WHOLE)
def test_a_difference_covers_what_only_the_first_covers(first, second):
    first, second = arrays(first), arrays(second)
    left, right = events.difference(first, second)
    np.testing.assert_array_equal(cells(left, right), cells(*first) & ~cells(*second))


@given(WHOLE, WHOLE, WHOLE)
def test_exposed_parts_add_up_to_what_nothing_hides(first, second, hiding):
    first, second, hiding = arrays(first), arrays(second), arrays(hiding)
    left, right = np.array([0.0, 10.0]), np.array([10.0, END + 8.0])
    times = events.exposed({"a": first, "b": second}, hiding, left, right)
    seen = (cells(*first) | cells(*second)) & ~cells(*hiding)
    np.testing.assert_array_equal(times["a"] + times["b"], [seen[:10].sum(), seen[10:].sum()])
    alone = cells(*first) & ~cells(*hiding)
    np.testing.assert_array_equal(times["a"], [alone[:10].sum(), alone[10:].sum()])
