"""Pieces of text are read by PyArrow, odd ones line by line: the same recording, or the same message."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lib.tiers import examples

from sgdlab.stragglers.follow.parsing import Parser
from sgdlab.traces import Options, read, text_tables

CELLS = st.sampled_from(
    ["1", "2.5", " 3 ", "1e-3", "", "NA", "NaN", "nan", "null", "None", "-1", "0", "x", "1_0", "0x1", "inf", "1,5", "٣",
     '"4"', "+5", ".5", "1.", "Infinity", "1e400", "true", "NONE", "#N/A", "n/a", " "]
)  # fmt: skip
USUAL = st.sampled_from(["1", "2.5", "3", "1e-3", "", "NaN"])
STEPS = st.sampled_from(["0", "1", "2", "3", "4", "1.0", "5", "", "a", " 6 "])
WORKERS = st.sampled_from(["a", "b", "NA", "nan", " a", '"c,d"', "", "'e'", "10", "9"])
ENDS = st.sampled_from(["\n", "\r\n", "\n\n"])


@st.composite
def texts(draw):
    """Long or wide tables, often with nothing wrong in them."""
    separator, end = draw(st.sampled_from([",", ";", "\t"])), draw(ENDS)
    times = draw(st.sampled_from([USUAL, CELLS]))
    if draw(st.booleans()):
        lines = [["worker", "step", "duration", "note"]]
        keys = draw(st.lists(st.tuples(WORKERS, STEPS), max_size=8, unique=draw(st.booleans())))
        lines += [[worker, step, draw(times), "text"] for worker, step in keys]
    else:
        lines = [["a", "b"], *draw(st.lists(st.tuples(times, times).map(list), max_size=6))]
    if draw(st.integers(0, 9)) == 0:
        lines.append(["1"])
    text = end.join(separator.join(line) for line in lines) + draw(st.sampled_from(["", end]))
    return draw(st.sampled_from(["", "\ufeff"])) + text


def outcome(path, options, *, by_line=False):
    with pytest.MonkeyPatch.context() as patch:
        if by_line:
            patch.setattr(text_tables, "_csv_at_once", lambda *_: None)
            patch.setattr(text_tables, "json_rows", text_tables._json_by_line)
        patch.setattr(text_tables, "_PIECE", 20)  # several pieces, whose rows are named by their lines
        patch.setattr(text_tables, "_LEAST", 10)
        try:
            recording = read(path, options)
        except ValueError as error:
            return str(error)
    return recording.runtimes.tobytes(), recording.steps.tolist(), recording.workers, recording.notes


@settings(max_examples=examples(100), deadline=None)
@given(texts(), st.booleans())
def test_csv(tmp_path_factory, text, skip):
    path = tmp_path_factory.mktemp("large") / "trace.csv"
    path.write_bytes(text.encode())
    options = Options(skip_bad_rows=skip)
    assert outcome(path, options) == outcome(path, options, by_line=True)


LONG = "worker,step,duration\n" + "".join(f"w{step % 3},{step},{step + 1}\n" for step in range(9))
AWKWARD = {
    "rows without text at the end": ("a,b\n1,2\n3,4\n,\n , \n", (2, 2)),
    "empty rows at the end": ("a,b\n" + "1,2\n" * 9 + ",\n,\n", (9, 2)),
    "as many of them as pieces": ("a,b\n" + "1,2\n" * 9 + " , \n" * 40, (9, 2)),
    "rows without text between others": ("a,b\n1,2\n,\n" + "3,4\n" * 9, (11, 2)),
    "rows without text behind an odd line": ("a,b\na,b\n1,2\n1,2\n" + ",\n" * 30 + "3,4\n", (33, 2)),
    "lines within quotes": (LONG.replace("w1,", '"w\n1",'), (9, 3)),
    "blank lines": (LONG.replace("\n", "\n\n"), (9, 3)),
    "line ends of old systems": (LONG.replace("\n", "\r"), (9, 3)),
    "separators at the ends of lines": (LONG.replace("\n", ",\n"), (9, 3)),
    "a mark and no header": ("\ufeff1.5,2.5\n" * 1 + "3,4\n" * 9, (10, 2)),
    "a single column": ("a\n1\n\n" + "2\n" * 9, (11, 1)),
}


@pytest.mark.parametrize("name", AWKWARD)
def test_awkward_files(tmp_path, name):
    text, shape = AWKWARD[name]
    path = tmp_path / "trace.csv"
    path.write_bytes(text.encode())
    assert read(path).runtimes.shape == shape
    assert outcome(path, Options()) == outcome(path, Options(), by_line=True)
    assert len(outcome(path, Options())[1]) == shape[0]
    path.write_bytes(text.encode() + b"x,y\n")  # whose number the message tells
    assert outcome(path, Options()) == outcome(path, Options(), by_line=True)
    assert f"row {1 + len(text.splitlines())}" in outcome(path, Options())


VALUES = st.sampled_from(["1", "2.5", "null", "NaN", "-1", '"x"', '"3"', "true", "[1]", "1e400", "0"])


@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(['"a"', '"b"', "1", "null"]), st.sampled_from(["0", "1", "2", '"3"', "null"]), VALUES
        ),
        min_size=1,
        max_size=6,
    ),
    st.booleans(),
    st.sampled_from(
        ["", '{"event": "saved"}\n', '{"rank": 1, "step": 8, "loss": 3}\n', '{"rank": 1, "dur', "nothing\n"]
    ),
)
def test_json_lines(tmp_path_factory, rows, skip, last):
    path = tmp_path_factory.mktemp("large") / "trace.jsonl"
    lines = [f'{{"rank": {rank}, "step": {step}, "duration": {time}}}\n' for rank, step, time in rows]
    path.write_text("".join(lines) + last)
    options = Options(skip_bad_rows=skip)
    assert outcome(path, options) == outcome(path, options, by_line=True)


def test_json_lines_of_another_kind(tmp_path):
    path = tmp_path / "trace.jsonl"
    path.write_text('{"rank": 0, "step": 7, "duration": 1}\n{"rank": 0, "step": 8, "loss": 3}\n')
    assert read(path).steps.tolist() == [7]
    assert outcome(path, Options()) == outcome(path, Options(), by_line=True)


def test_decimal_commas_and_dates_are_read_at_once(tmp_path, monkeypatch):
    """The fast reader gives up without a word: that it does not is seen where the other one cannot be called."""
    monkeypatch.setattr(text_tables, "_csv_by_line", None)
    path = tmp_path / "trace.csv"
    path.write_text("rank;iteration;time_ms;timestamp\n0;1;1,5;2024-05-01 00:00:00\n1;1;2;2024-05-01 00:00:01\n")
    recording = read(path)
    np.testing.assert_array_equal(recording.runtimes, [[0.0015, 0.002]])
    assert recording.began[0] == np.datetime64("2024-05-01T00:00:00").astype(int)
    path.write_text("a;b\n1.5;2.5\n")
    np.testing.assert_array_equal(read(path).runtimes, [[1.5, 2.5]])


def test_a_quote_that_does_not_end_costs_a_growing_file_no_more_than_these_lines():
    parser = Parser(b"worker,step,duration", Options())
    rows = parser.parse(b'a,0,1\n"a,1,1\n' + b"a,2,1\n" * 30_000)
    assert rows.step.size + sum(parser.bad.values()) == 30_002
    assert parser.parse(b"a,3,1\n").step.tolist() == [3]
