"""Rows that cannot be used: all at once, each with its cure; skipped and counted; and a naive reader beside."""

import csv
import math
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lib.tiers import examples

from sgdlab.traces import Options, read
from sgdlab.traces.problems import MOST_SHOWN

SKIP = Options(skip_bad_rows=True)
NAN = math.nan

DIRTY = """worker,step,duration
1,312,0.5
2,312,0.25
1,313,n/a (NCCL timeout)
2,313,0.75
2,313,0.75
1,314,-1
2,314,inf
1,315,2
1,315,3
2,315.5,1
2,316
,316,1
1,last,1
1,316,1
2,316,4
"""
CURES = [
    "row 4, column 'duration' is 'n/a (NCCL timeout)'; it must be a number, or the cell empty if it is missing",
    "row 7, column 'duration' is -1; a compute time must be positive and finite",
    "row 8, column 'duration' is inf; a compute time must be positive and finite",
    "worker 1 has two compute times in step 315 (rows 9, 10): delete one, or a column `phase` tells parts apart",
    "row 11, column 'step' is 315.5; it must be a whole number",
    "row 12 has 2 columns; it must have 3, as the first line",
    "row 13, column 'worker' is empty; it must be a name",
    "row 14, column 'step' is 'last'; it must be a number",
]


def written(tmp_path, text, name="trace.csv"):
    (tmp_path / name).write_text(text)
    return tmp_path / name


def counts(note) -> int:
    return sum(int(number.replace(",", "")) for number in re.findall(r"\(([\d,]+)\)", note))


def test_all_at_once_in_the_order_of_the_rows_or_counted_by_kind(tmp_path):
    path = written(tmp_path, DIRTY)
    with pytest.raises(ValueError, match="8 rows cannot be used") as caught:
        read(path)
    lines = str(caught.value).splitlines()[1:]
    assert len(lines) == len(CURES)
    for line, cure in zip(lines, CURES, strict=True):
        assert line.strip().startswith(cure)
    assert str(caught.value).count(str(tmp_path)) == 1
    recording = read(path, SKIP)
    np.testing.assert_array_equal(recording.steps, [312, 313, 315, 316])
    np.testing.assert_array_equal(recording.runtimes, [[0.5, 0.25], [NAN, 0.75], [2, NAN], [1, 4]])
    assert recording.notes[0] == "1 row that is the same as another was left out"
    assert recording.notes[1].startswith("8 bad rows were skipped: ")
    assert counts(recording.notes[1]) == 8


def test_a_single_one_is_one_line(tmp_path):
    with pytest.raises(
        ValueError, match=r"': row 3, column 'step' is 'x'.*\(--skip_bad_rows leaves it out\)$"
    ) as caught:
        read(written(tmp_path, "worker,step,duration\na,0,1\na,x,1\n"))
    assert "\n" not in str(caught.value)


def test_many_are_counted(tmp_path):
    rows = [f"a,{step},{'x' if step % 2 else 1}" for step in range(200)]
    with pytest.raises(ValueError, match="100 rows cannot be used") as caught:
        read(written(tmp_path, "\n".join(["worker,step,duration", *rows])))
    lines = str(caught.value).splitlines()[1:]
    assert [int(re.search(r"\d+", line).group()) for line in lines] == [*range(3, 3 + 2 * MOST_SHOWN, 2), 100]


def test_both_mistakes_of_a_row_are_shown_and_it_counts_once(tmp_path):
    path = written(tmp_path, "worker,step,duration\na,0,1\n,x,-1\n")
    with pytest.raises(ValueError, match="1 row cannot be used") as caught:
        read(path)
    assert sorted(line.split("'")[1] for line in str(caught.value).splitlines()[1:]) == ["duration", "step", "worker"]
    assert read(path, SKIP).notes[0].startswith("1 bad row was skipped")


def test_a_wide_table(tmp_path):
    path = written(tmp_path, "step,a,b\n1,1,2\n2,x,3\n3,4,0\n3,1\n2,1,1\n4,1,\n5,7,8\n")
    rows = ["row 3, column 'a' is 'x'", "row 4, column 'b' is 0", "row 5 has 2 columns", "row 6, column 'step' is 2"]
    with pytest.raises(ValueError, match="4 rows cannot be used") as caught:
        read(path)
    assert [
        line.strip()[: len(row)] for line, row in zip(str(caught.value).splitlines()[1:], rows, strict=True)
    ] == rows
    recording = read(path, SKIP)
    np.testing.assert_array_equal(recording.runtimes, [[1, 2], [1, NAN], [7, 8]])
    np.testing.assert_array_equal(recording.steps, [1, 4, 5])
    assert counts(recording.notes[0]) == 4


def test_steps_rise_above_all_before_them(tmp_path):
    path = written(tmp_path, "step,a\n5,1\n5,7\n3,2\n4,3\n6,4\n")
    with pytest.raises(ValueError, match=r"(?s)3 rows cannot be used.*row 3, .* is 5.*row 4, .* is 3.*row 5, .* is 4"):
        read(path)
    assert read(path, SKIP).steps.tolist() == [5, 6]


def test_an_array(tmp_path):
    np.save(tmp_path / "trace.npy", [[1.0, 2.0], [-1.0, 2.0], [3.0, np.inf], [4.0, 5.0]])
    with pytest.raises(ValueError, match=r"(?s)2 rows cannot be used.*row 1, column '0'.*row 2, column '1'"):
        read(tmp_path / "trace.npy")
    np.testing.assert_array_equal(read(tmp_path / "trace.npy", SKIP).runtimes, [[1, 2], [4, 5]])


def test_json_lines(tmp_path):
    good = '{"rank": %d, "step": %d, "duration": 1.5}\n'
    lines = good % (0, 0) + '{"event": "saved"}\n[1]\n{"rank": 1\n' + '{"rank": 1, "step": 0, "duration": true}\n\n'
    path = written(tmp_path, lines + good % (1, 1) + '{"rank": 1, "st', "log.jsonl")
    with pytest.raises(ValueError, match=r"(?s)3 rows cannot.*row 3 must be an object.*row 4 must.*row 5, .* is True"):
        read(path)
    recording = read(path, SKIP)
    np.testing.assert_array_equal(recording.runtimes, [[1.5, NAN], [NAN, 1.5]])
    joined = " ".join(recording.notes)
    assert "the last line is unfinished" in joined
    assert "lines without 'step' or 'duration' were left out: 1" in joined
    assert counts(next(note for note in recording.notes if "skipped" in note)) == 3


def test_a_phase_that_is_there_twice(tmp_path):
    path = written(tmp_path, "worker,step,phase,duration\na,0,f,1\na,0,b,1\na,0,f,2\na,1,f,0\na,1,b,0\na,2,f,3\n")
    with pytest.raises(
        ValueError, match=r"(?s)has two times of phase 'f' in step 0 \(rows 2, 4\).*row 5.*adds up to 0"
    ):
        read(path)
    np.testing.assert_array_equal(read(path, SKIP).runtimes, [[2], [3]])


def test_nothing_is_left(tmp_path):
    with pytest.raises(ValueError, match="no row can be used"):
        read(written(tmp_path, "worker,step,duration\na,0,x\n"), SKIP)


def test_a_column_that_is_no_step(tmp_path):
    """As many steps and workers as rows would make a table of hardly anything but missing compute times."""
    rows = [f"w{row},{row},1" for row in range(4_000)]
    with pytest.raises(ValueError, match=r"4,000 rows of 4,000 steps and 4,000 workers.*--columns"):
        read(written(tmp_path, "\n".join(["worker,step,duration", *rows])))


CELLS = {
    "worker": st.sampled_from(["a", "b", "b", "", " "]),
    "step": st.sampled_from(["0", "1", "1", "2", "x", "0.5", ""]),
    "duration": st.sampled_from(["1", "2.5", "", "nan", "-1", "0", "text", "inf", "1_0"]),
}


def naive(text):
    """The same rules, row by row: the rows that are bad, and the compute times of the others."""
    bad, times = set(), {}
    for line, row in list(enumerate(csv.reader(text.splitlines()), 1))[1:]:
        if not row:
            continue
        if len(row) != 3:
            bad.add(line)
            continue
        worker, step, duration = (cell.strip() for cell in row)
        try:
            time = NAN if duration in ("", "nan") else float(duration.replace("_", "?"))
            key = worker, int(step) if float(step) == int(float(step)) else int("x")
        except ValueError:
            bad.add(line)
            continue
        if not worker or time <= 0 or math.isinf(time):
            bad.add(line)
        elif key not in times:
            times[key] = time
        elif time != times[key] and not (math.isnan(time) and math.isnan(times[key])):
            bad.add(line)  # a row that is the same as another one is left out
    return bad, times


@settings(max_examples=examples(150), deadline=None)
@given(
    st.lists(st.one_of(st.tuples(*CELLS.values()), st.tuples(CELLS["worker"], CELLS["step"])), min_size=1, max_size=6)
)
def test_against_a_naive_reader(tmp_path_factory, rows):
    rows = [*rows, ("a", "7", "1")]  # the last row is no blank one, which would be left out without a word
    text = "worker,step,duration\n" + "".join(",".join(row) + "\n" for row in rows)
    path = written(tmp_path_factory.mktemp("naive"), text)
    bad, times = naive(text)
    recording = read(path, SKIP)
    steps, workers = sorted({step for _, step in times}), sorted({worker for worker, _ in times})
    assert (recording.steps.tolist(), list(recording.workers)) == (steps, workers)
    expected = [[times.get((worker, step), NAN) for worker in workers] for step in steps]
    np.testing.assert_array_equal(recording.runtimes, expected)
    if bad:
        with pytest.raises(ValueError, match=r"row") as caught:
            read(path)
        message = str(caught.value)
        found = {int(number) for number in re.findall(r"\brow (\d+)", message.split(": ", 1)[1])}
        found -= {int(number) for number in re.findall(r"same as row (\d+)", message)}
        found |= {int(number) for number in re.findall(r"\(rows \d+, (\d+)\)", message)}
        assert found == bad
    else:
        np.testing.assert_array_equal(read(path).runtimes, expected)
