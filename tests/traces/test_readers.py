"""Files of recorded compute times: every format by hand, and every refusal with its row and column.

Further: what users' files are like (quotes, byte-order marks, line ends, blanks).
"""

import math
import pathlib
import pickle
import re
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sgdlab.cluster import Recording, recorded
from sgdlab.traces import text_tables

NAN = math.nan
RUNTIMES = np.random.default_rng(0).uniform(0.5, 2.0, (9, 5))


@pytest.fixture
def write(tmp_path):
    """(text, bytes, an array or a mapping of columns) -> the path of a file."""

    def to_file(content, name="trace.csv") -> pathlib.Path:
        path = tmp_path / name
        if isinstance(content, str | bytes):
            path.write_bytes(content.encode() if isinstance(content, str) else content)
        elif isinstance(content, np.ndarray):
            np.save(path, content, allow_pickle=content.dtype == object)
        else:
            path = path.with_suffix(".parquet")
            pq.write_table(pa.table(content), path)
        return path

    return to_file


def assert_is(recording: Recording, runtimes, *, steps=None, workers=None) -> None:
    runtimes = np.array(runtimes, np.float64)
    np.testing.assert_array_equal(recording.runtimes, runtimes, strict=True)
    expected_steps = np.arange(len(runtimes)) if steps is None else np.array(steps)
    np.testing.assert_array_equal(recording.steps, expected_steps, strict=True)
    expected_workers = map(str, range(runtimes.shape[1])) if workers is None else workers
    assert recording.workers == tuple(expected_workers)


LONG = {
    "plain": "worker,step,duration\na,7,1.5\nb,7,2.5\na,8,1.0\nb,8,0.5\n",
    "any order of rows and columns": "duration,worker,step\n0.5,b,8\n2.5,b,7\n1,a,8\n1.5,a,7\n",
    "phases": "worker,step,phase,duration\na,7,f,0.5\na,7,b,1\nb,7,f,2.5\nb,8,b,0.25\na,8,f,1\nb,8,f,0.25\n",
    "a phase of no time": "worker,step,phase,duration\na,7,f,1.5\na,7,b,0\nb,7,f,2.5\na,8,f,1.0\nb,8,f,0.5\n",
    "start and what else there is": "worker,step,start,duration,host\na,7,0,1.5,x\nb,7,,2.5,\na,8,2,1,y\nb,8,2,0.5,y\n",
}


class TestLong:
    @pytest.mark.parametrize("text", LONG.values(), ids=LONG.keys())
    def test_csv(self, write, text):
        assert_is(recorded(write(text)), [[1.5, 2.5], [1.0, 0.5]], steps=[7, 8], workers="ab")

    @pytest.mark.parametrize(
        ("worker", "step", "duration"),
        [
            (pa.string(), pa.int8(), pa.float32()),
            (pa.dictionary(pa.int32(), pa.string()), pa.uint64(), pa.float64()),
            (pa.large_string(), pa.float32(), pa.int16()),
            (pa.string(), pa.string(), pa.string()),
        ],
    )
    def test_parquet(self, write, worker, step, duration):
        cells = {"worker": (["a", "b", "a"], worker), "step": ([7, 7, 9], step), "duration": ([1, 2, 3], duration)}
        columns = {name: pa.array(values).cast(kind) for name, (values, kind) in cells.items()}
        assert_is(recorded(write(columns)), [[1.0, 2.0], [3.0, NAN]], steps=[7, 9], workers="ab")

    def test_rows_of_several_groups(self, tmp_path):
        step, worker = (index.ravel() for index in np.indices(RUNTIMES.shape))
        table = pa.table({"worker": worker, "step": step, "duration": RUNTIMES.ravel()})
        pq.write_table(table, tmp_path / "trace.parquet", row_group_size=7)
        assert_is(recorded(tmp_path / "trace.parquet"), RUNTIMES)

    def test_what_is_missing_is_missing(self, write):
        recording = recorded(write("worker,step,duration\na,3,1\nb,3,\na,-2,nan\nb,-2,2\nc,3,4\n"))
        assert_is(recording, [[NAN, 2, NAN], [1, NAN, 4]], steps=[-2, 3], workers="abc")
        assert (recording.missing, recording.gaps) == (3, 4)

    def test_a_step_with_an_unknown_phase_is_unknown(self, write):
        text = "worker,step,phase,duration\na,0,f,1\na,0,b,\nb,0,f,1\nb,0,b,3\n"
        assert_is(recorded(write(text)), [[NAN, 4]], workers="ab")

    def test_numbers_come_by_their_size_and_before_names(self, write):
        names = ["10", "b", "9", "a10", "100", "a9"]
        text = "worker,step,duration\n" + "".join(f"{name},0,{1 + i}\n" for i, name in enumerate(names))
        assert_is(recorded(write(text)), [[3, 1, 5, 6, 4, 2]], workers=["9", "10", "100", "a9", "a10", "b"])
        columns = {"worker": [10, 9, 100], "step": [0, 0, 0], "duration": [1.0, 2.0, 3.0]}
        assert_is(recorded(write(columns)), [[2, 1, 3]], workers=["9", "10", "100"])


class TestWide:
    @pytest.mark.parametrize(
        ("text", "runtimes", "expected"),
        [
            ("a,b\n1.5,2\n3,4e-1\n", [[1.5, 2], [3, 0.4]], {"workers": "ab"}),
            ("step,b,a\n4,1.5,2\n9,3,4\n", [[1.5, 2], [3, 4]], {"steps": [4, 9], "workers": "ba"}),
            ("0,1\n1.5,2\n3,4\n", [[1.5, 2], [3, 4]], {}),
            ("1.5,2.0\n3,4\n", [[1.5, 2], [3, 4]], {}),
            ("1e0,2e-1\n3,4\n", [[1, 0.2], [3, 4]], {}),
            ("1.5,1.5\n3,4\n", [[1.5, 1.5], [3, 4]], {}),
            ("1.5\n3\n", [[1.5], [3]], {}),
            ("a\n3\n", [[3]], {"workers": "a"}),
            ("a,b\n,2\nnan,4\n5,\n", [[NAN, 2], [NAN, 4], [5, NAN]], {"workers": "ab"}),
            ("a,b\n,2\n,4\n", [[NAN, 2], [NAN, 4]], {"workers": "ab"}),
            ("1.5,nan\n,4\n", [[1.5, NAN], [NAN, 4]], {}),
            ("b,a\n 1.5 ,2\n", [[1.5, 2]], {"workers": "ba"}),
            ("a\n1.5\n\n2.5\n", [[1.5], [NAN], [2.5]], {"workers": "a"}),
            ("1.5,,2.5\n1.0,2.0,3.0\n", [[1.5, NAN, 2.5], [1, 2, 3]], {}),
        ],
    )
    def test_csv(self, write, text, runtimes, expected):
        assert_is(recorded(write(text)), runtimes, **expected)

    def test_parquet(self, write):
        columns = {"b": [1.5, None], "step": [3, 4], "a": pa.array([2, 3], pa.int32())}
        assert_is(recorded(write(columns)), [[1.5, 2], [NAN, 3]], steps=[3, 4], workers="ba")

    @pytest.mark.parametrize("kind", ["C <f8", "F >f8", "C f4", "F f2", "C i8", "F u2"])
    def test_npy(self, write, kind):
        order, dtype = kind.split()
        array = np.asarray([[1, 2, 3], [4, 5, 6]], dtype=dtype, order=order)
        assert_is(recorded(write(array, "trace.npy")), [[1, 2, 3], [4, 5, 6]])

    def test_npy_with_missing_run_times(self, write):
        assert_is(recorded(write(np.array([[1.5, NAN]]), "trace.npy")), [[1.5, NAN]])


# What a spreadsheet, an editor or another system makes of the same long table.
DIALECTS = {
    "line ends of Windows": LONG["plain"].replace("\n", "\r\n"),
    "byte-order mark": "\ufeff" + LONG["plain"],
    "quotes": re.sub(r"[^,\n]+", r'"\g<0>"', LONG["plain"]),
    "both and a mark": "\ufeff" + re.sub(r"[^,\n]+", r'"\g<0>"', LONG["plain"]).replace("\n", "\r\n"),
    "no last line end": LONG["plain"].rstrip("\n"),
    "blank lines": "\n" + LONG["plain"].replace("\n", "\n\n"),
    "spaces around numbers": LONG["plain"].replace(",7,", ", 7 , "),
    "leading zeros and signs": LONG["plain"].replace(",7,", ",+007,"),
    "steps with a fraction of nothing": LONG["plain"].replace(",7,", ",7.0,").replace(",8,", ",8e0,"),
    "spaces after commas": "worker, step, duration\na, 7, 1.5\nb, 7, 2.5\na, 8, 1.0\nb, 8, 0.5\n",
    "spaces around names": LONG["plain"].replace("a,8", " a ,8"),
}


class TestDialects:
    @pytest.mark.parametrize("text", DIALECTS.values(), ids=DIALECTS.keys())
    def test_long(self, write, text):
        assert_is(recorded(write(text)), [[1.5, 2.5], [1.0, 0.5]], steps=[7, 8], workers="ab")

    @pytest.mark.parametrize("end", ["\n", "\r\n"])
    @pytest.mark.parametrize("mark", ["", "\ufeff"])
    @pytest.mark.parametrize(("header", "workers"), [("", "01"), ("x,y\n", "xy"), ('"x","y"\n', "xy")])
    def test_wide(self, write, end, mark, header, workers):
        text = (mark + header + "1.5,2.5\n3.5,\n").replace("\n", end)
        assert_is(recorded(write(text)), [[1.5, 2.5], [3.5, NAN]], workers=workers)

    def test_commas_in_names(self, write):
        assert_is(recorded(write('"a,b","c"\n1.5,2\n,3\n')), [[1.5, 2], [NAN, 3]], workers=["a,b", "c"])
        text = 'worker,step,duration\n"a,b",0,1\n"say ""hi""",0,2\n'
        assert_is(recorded(write(text)), [[1, 2]], workers=["a,b", 'say "hi"'])

    def test_names_of_any_alphabet(self, write):
        text = "worker,step,duration\nZürich,0,1\n作業,0,2\n"
        assert_is(recorded(write(text)), [[1, 2]], workers=["Zürich", "作業"])

    def test_as_many_rows_as_are_read_in_several_pieces(self, write, monkeypatch):
        rows = 20_000
        monkeypatch.setattr(text_tables, "_PIECE", 30_000)
        text = "a,b\n" + "1.25,2.5\n" * rows
        recording = recorded(write(text))
        assert recording.runtimes.shape == (rows, 2)
        assert (recording.runtimes == [1.25, 2.5]).all()
        with pytest.raises(ValueError, match=f"row {rows + 2}, column 'b' is 'x'"):
            recorded(write(text + "1,x\n"))


OPERATION_ROWS = [
    # dp_rank, stage, step, optype, duration
    (0, 0, 16, "forward-compute", 1.0),
    (0, 0, 16, "backward-compute", 2.0),
    (0, 1, 16, "forward-compute", 2.5),
    (0, 1, 16, "backward-compute", 1.0),  # stage 1: 3.5, stage 0: 3.0
    (0, 1, 16, "grads-sync", 99.0),
    (10, 0, 16, "forward-compute", 4.0),
    (10, 1, 16, "forward-compute", 0.0),
    (0, 0, 40, "forward-compute", 0.25),
    (0, 0, 40, "forward-compute", 0.5),  # two micro-batches
    (9, 0, 40, "forward-compute", 7.0),
    (9, 0, 41, "params-sync", 3.0),  # no compute: no such step
]
OPERATIONS = {
    name: [row[i] for row in OPERATION_ROWS]
    for i, name in enumerate(("dp_rank", "stage", "step", "optype", "duration"))
}


class TestOperations:
    EXPECTED = ([[3.5, NAN, 4.0], [0.75, 7.0, NAN]], {"steps": [16, 40], "workers": ["0", "9", "10"]})

    def test_sum_of_a_stage_and_largest_of_the_stages(self, write):
        lines = [",".join(OPERATIONS), *[",".join(map(str, row)) for row in OPERATION_ROWS]]
        recording = recorded(write("\n".join(lines)))
        assert_is(recording, self.EXPECTED[0], **self.EXPECTED[1])
        assert (recording.missing, recording.gaps) == (2, 23)
        types = {"dp_rank": pa.int8(), "stage": pa.int8(), "duration": pa.float32()}
        narrow = {name: pa.array(values, types.get(name)) for name, values in OPERATIONS.items()}
        narrow["optype"] = narrow["optype"].dictionary_encode()
        assert_is(recorded(write(narrow)), self.EXPECTED[0], **self.EXPECTED[1])

    def test_an_unknown_operation_makes_its_step_unknown(self, write):
        durations = [None if value == 2.5 else value for value in OPERATIONS["duration"]]
        expected = [[NAN, NAN, 4.0], self.EXPECTED[0][1]]
        assert_is(recorded(write(OPERATIONS | {"duration": durations})), expected, **self.EXPECTED[1])

    @pytest.mark.parametrize(
        ("changed", "message"),
        [
            ({"optype": ["grads-sync"] * 11}, "column 'optype' must have operations that end in '-compute'"),
            ({"optype": [None] * 11}, "column 'optype' must have operations that end in '-compute'"),
            ({"duration": [1.0] * 7 + [-3.0] + [1.0] * 3}, "row 8, column 'duration' is -3; a compute time must be"),
            ({"duration": [1.0] * 5 + [math.inf] * 6}, "6 rows.*row 6, column 'duration' is inf.*row 11"),
            ({"step": [16] * 6 + [16.5] + [40] * 4}, r"row 7, column 'step' is 16\.5; it must be a whole number"),
            ({"stage": [0] * 10 + [None]}, "row 11, column 'stage' is nan; it must be a whole number"),
            ({"dp_rank": ["0"] * 2 + ["x"] * 9}, "9 rows cannot.*row 3, column 'dp_rank' is 'x'; it must.*row 11"),
        ],
    )
    def test_errors_name_row_and_column(self, write, changed, message):
        with pytest.raises(ValueError, match=f"(?s)trace.parquet': {message}"):
            recorded(write(OPERATIONS | changed))


BAD_CSV = [
    # Long: the header is line 1.
    (
        "worker,step,duration\na,0,1e400\n",
        "row 2, column 'duration' is inf; a compute time must be positive and finite",
    ),
    ("worker,step,duration\na,0,1_0\n", "row 2, column 'duration' is '1_0'; it must be a number"),
    ("worker,step,duration\na,0,0x1\n", "row 2, column 'duration' is '0x1'; it must be a number"),
    ("worker,step,duration\na,0,NA\n", "must have compute times; all are missing"),
    ("worker,step,duration\na,,1\n", "row 2, column 'step' is nan; it must be a whole number"),
    ("worker,step,duration\na,inf,1\n", "row 2, column 'step' is inf; it must be a whole number"),
    ("worker,step,duration\na,1e16,1\n", r"row 2, column 'step' is 1e\+16; it must be a whole number"),
    ("worker,step,duration\na,0,1\n  ,0,1\n", "row 3, column 'worker' is empty; it must be a name"),
    ("worker,step,phase,duration\na,0,,1\n", "row 2, column 'phase' is empty; it must be a name"),
    ("worker,step,phase,duration\na,0,f,1\na,0,b,1\na,0,f,1\n", "row 4 is the same as row 2: delete one"),
    (
        "worker,step,duration\na,0,1\nworker,steps,durations\n",
        "1 row .*row 3, column 'step' is 'steps'; it.*'duration' is",
    ),
    ("worker,step,step\na,0,1\n", "column 'step' must not stand twice"),
    ("worker,step\na,0\n", "column 'worker' must come with duration: worker, step, duration make a long table"),
    ("duration,step\n1,0\n", "column 'duration' must come with worker: worker, step, duration make a long table"),
    ("dp_rank,step,stage\n0,0,1\n", "column 'dp_rank' must come with duration: "),
    ("worker,step,duration\n", "must have rows below its header"),
    ("worker,step,duration\na,0,\n", "must have compute times; all are missing"),
    # Wide.
    ("a,b\n1,2\n-1,0\n", "1 row .*row 3, column 'a' is -1; a compute time must.*column 'b' is 0"),
    ("1.5,2.5\n3,x\n", "row 2, column '1' is 'x'; it must be a number"),
    ("1.5,-2.5\n3,4\n", r"row 1, column '1' is -2\.5; a compute time must be positive and finite"),
    ("step,a\n1.5,1\n", r"row 2, column 'step' is 1\.5; it must be a whole number"),
    ("step,a\nx,1\n", "row 2, column 'step' is 'x'; it must be a number"),
    ("step\n1\n2\n", "must have a column for each worker"),
    ("a,b,a\n1,2,3\n", "column 'a' must not stand twice"),
    ("0,1,1\n1,2,3\n", "column '1' must not stand twice"),
    ("a,b\n,\nnan,\n", "must have compute times; all are missing"),
    ("a;b\n1;x\n", "row 2, column 'b' is 'x'; it must be a number"),
    (
        "worker,step,duration\na,7,1\na,8,1\na,9,1\nb,9,0\n",
        "row 5, column 'duration' is 0; a compute time must be posit",
    ),
    ("worker,step,phase,duration\na,9,f,1e308\na,9,b,1e308\n", "2 rows .*row 2, column 'duration' adds up to inf"),
    ("a,b\n1,2\n\n3,x\n", "row 4, column 'b' is 'x'; it must be a number"),
    ("a,b\n1,2\n3,4,5\n", "row 3"),
    ("a,b,\n1,2,\n3,4,5\n", "column 3 must have a name"),
]


class TestRefusals:
    @pytest.mark.parametrize(("text", "message"), BAD_CSV)
    def test_errors_name_row_and_column(self, write, text, message):
        with pytest.raises(ValueError, match=rf"(?s)^path='.*trace\.csv': {message}"):
            recorded(write(text))

    @pytest.mark.parametrize(
        ("columns", "message"),
        [
            ({"worker": ["a"] * 2, "step": [0, 1], "duration": ["1", "x"]}, "row 2, column 'duration' is 'x'; it must"),
            (
                {"worker": ["a"] * 2, "step": [0, 1], "duration": [1.0, -1.0]},
                "row 2, column 'duration' is -1; a compute ",
            ),
            (
                {"worker": ["a"] * 2, "step": [0, 0], "duration": [1.0, 2.0]},
                r"worker a has two compute times in step 0 \(rows",
            ),
            ({"worker": ["a", None], "step": [0, 1], "duration": [1.0, 1.0]}, "row 2, column 'worker' is empty"),
            ({"worker": ["a"], "step": [0], "duration": [True]}, "row 1, column 'duration' of type bool must be num"),
            (
                {"a": [1.0, 2.0], "b": [1.0, math.inf]},
                "row 2, column 'b' is inf; a compute time must be positive and fin",
            ),
            ({"a": pa.array([], pa.float64())}, "must have rows below its header"),
        ],
    )
    def test_parquet(self, write, columns, message):
        with pytest.raises(ValueError, match=rf"^path='.*trace\.parquet': {message}"):
            recorded(write(columns))

    @pytest.mark.parametrize(
        ("array", "message"),
        [
            (np.ones(3), r"an array of shape \(3,\) must be numbers of shape \[steps, workers\]"),
            (np.ones((2, 0)), r"an array of shape \(2, 0\) must be numbers of shape \[steps, workers\]"),
            (np.ones((2, 2), bool), r"an array of shape \(2, 2\) must be numbers"),
            (np.ones((2, 2), complex), r"an array of shape \(2, 2\) must be numbers"),
            (np.array([["1"]]), r"an array of shape \(1, 1\) must be numbers"),
            (
                np.array([[1.0, 2.0], [3.0, -4.0]]),
                "row 1, column '1' is -4; a compute time must be positive and finite",
            ),
            (np.full((2, 2), NAN), "must have compute times; all are missing"),
        ],
    )
    def test_npy(self, write, array, message):
        with pytest.raises(ValueError, match=rf"^path='.*trace\.npy': {message}"):
            recorded(write(array, "trace.npy"))

    @pytest.mark.parametrize("kind", ["object array", "pickle"])
    def test_nothing_is_unpickled(self, write, kind, tmp_path):
        witness = tmp_path / "witness"
        array = np.array([[Touch(witness), None]], object)
        path = write(array if kind == "object array" else pickle.dumps(array), "trace.npy")
        with pytest.raises(ValueError, match=r"trace\.npy': must be an array of numbers"):
            recorded(path)
        assert not witness.exists()
        np.load(path, allow_pickle=True)
        assert witness.exists()  # it would have been

    @pytest.mark.parametrize("ending", ["csv", "parquet", "npy"])
    def test_files_that_are_empty_or_cut_short(self, write, ending):
        whole = {
            "csv": b"",
            "parquet": write({"a": [1.0, 2.0]}).read_bytes(),
            "npy": write(np.ones((2, 3)), "whole.npy").read_bytes(),
        }[ending]
        for content in (b"", whole[: len(whole) // 2], whole[:-1]):
            what = "(must (be|have)|cannot be read as)" if content else "it is empty$"
            with pytest.raises(ValueError, match=rf"^path='.*trace\.{ending}'.* {what}"):
                recorded(write(content, f"trace.{ending}"))

    @pytest.mark.parametrize("content", ["a,b\n\xff,1\n", "worker,step,duration\na\xe9,0,1\n"])
    def test_other_encodings(self, write, content):
        for encoding in ("latin-1", "utf-16"):
            with pytest.raises(ValueError, match=r"^path='.*trace\.csv' cannot be read as CSV"):
                recorded(write(content.encode(encoding)))

    @pytest.mark.parametrize(("ending", "content"), [("csv", b"step,duration\n\xe9,1\n"), ("parquet", b"PAR1")])
    def test_the_bad_file_of_a_directory_is_named(self, write, tmp_path, ending, content):
        rows = {"step": [0, 1], "duration": [1.0, 2.0]} if ending == "parquet" else "step,duration\n0,1\n1,2\n"
        folder = tmp_path / "ranks"
        folder.mkdir()
        for rank in range(3):
            shutil.copy(write(rows, f"rank.{ending}"), folder / f"rank{rank}.{ending}")
        (folder / f"rank1.{ending}").write_bytes(content)
        with pytest.raises(ValueError, match=rf"^path='.*ranks': rank1\.{ending} cannot be read as"):
            recorded(folder)

    @pytest.mark.parametrize("name", ["trace", "trace.csv.bz2", "trace.tx"])
    def test_wrong_ending(self, write, name):
        with pytest.raises(ValueError, match=r"must end in \.parquet, \.csv, \.tsv, \.csv\.gz, .*\.npy"):
            recorded(write("a\n1\n", name))

    def test_what_is_said_to_be_packed_and_is_not(self, write):
        with pytest.raises(ValueError, match=r"trace\.csv\.gz' cannot be read as CSV: Not a gzipped file"):
            recorded(write("a\n1\n", "trace.csv.gz"))

    def test_no_file(self, tmp_path):
        for path in (tmp_path, tmp_path / "none.csv"):
            with pytest.raises(FileNotFoundError, match=re.escape(f"path='{path}' must be a file")):
                recorded(path)


class Touch:
    """Writes a file where it is unpickled."""

    def __init__(self, path: pathlib.Path):
        self.path = path

    def __reduce__(self):
        return pathlib.Path.touch, (self.path,)
