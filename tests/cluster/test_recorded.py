"""Recorded compute times as a law: its rows are those of the trace, and what extends them are blocks of the same."""

import os

import numpy as np
import pytest
from scipy import stats

from sgdlab.cluster import Recorded, Recording, recorded

STEPS, WORKERS = 23, 3
# Every compute time tells its step and worker.
RUNTIMES = 1.0 + np.arange(STEPS * WORKERS, dtype=np.float64).reshape(STEPS, WORKERS)


@pytest.fixture
def trace(tmp_path) -> str:
    path = tmp_path / "trace.csv"
    Recording(RUNTIMES, np.arange(STEPS), ("a", "b", "c")).save(path)
    return str(path)


class TestReplay:
    @pytest.mark.parametrize("extend", [None, "bootstrap"])
    @pytest.mark.parametrize("rows", [1, 10, STEPS])
    def test_rows_are_those_of_the_trace(self, trace, rows, extend):
        for seed in (0, 1):
            drawn = Recorded(WORKERS, trace, extend=extend, block=5).draw(rows, seed=seed)
            np.testing.assert_array_equal(drawn, RUNTIMES[:rows])

    def test_incomplete_steps_are_left_out(self, trace):
        gapped = RUNTIMES.copy()
        gapped[[0, 4, 5], [1, 0, 2]] = np.nan
        Recording(gapped, np.arange(STEPS), ("a", "b", "c")).save(trace)
        law = Recorded(WORKERS, trace)
        np.testing.assert_array_equal(law.draw(20, seed=0), np.delete(RUNTIMES, [0, 4, 5], axis=0))
        np.testing.assert_array_equal(law.recording.steps, np.delete(np.arange(STEPS), [0, 4, 5]))
        words = "must have at least 21 complete steps, not 20; a shorter run or extend='bootstrap' would do$"
        with pytest.raises(ValueError, match=r"^trace='.*trace\.csv' " + words):
            law.draw(21, seed=0)

    def test_the_file_is_read_again_only_where_it_was_modified(self, trace):
        law, modified = Recorded(WORKERS, trace), os.stat(trace).st_mtime_ns
        Recording(2 * RUNTIMES, np.arange(STEPS), ("a", "b", "c")).save(trace)
        os.utime(trace, ns=(modified, modified))
        np.testing.assert_array_equal(Recorded(WORKERS, trace).draw(2, seed=0), RUNTIMES[:2])
        os.utime(trace, ns=(modified, modified + 1_000_000_000))
        np.testing.assert_array_equal(Recorded(WORKERS, trace).draw(2, seed=0), 2 * RUNTIMES[:2])
        np.testing.assert_array_equal(law.draw(2, seed=0), RUNTIMES[:2])  # a law stays what it is


def starts_of_blocks(drawn: np.ndarray, block: int) -> list[int]:
    """Return where each block that follows the recorded steps begins; every row of it must be the next recorded one."""
    starts = []
    for first in range(STEPS, len(drawn), block):
        rows = drawn[first : first + block]
        start = int((rows[0, 0] - 1.0) / WORKERS)
        assert start + block <= STEPS
        for place, row in enumerate(rows):
            assert row.tolist() == RUNTIMES[start + place].tolist()
        starts.append(start)
    return starts


class TestBootstrap:
    @pytest.mark.parametrize("block", [1, 4, STEPS])
    @pytest.mark.parametrize("rows", [STEPS + 1, STEPS + 4, 5 * STEPS + 2])
    def test_blocks_are_consecutive_recorded_steps(self, trace, block, rows):
        drawn = Recorded(WORKERS, trace, extend="bootstrap", block=block).draw(rows, seed=0)
        assert drawn.shape == (rows, WORKERS)
        np.testing.assert_array_equal(drawn[:STEPS], RUNTIMES)
        assert len(starts_of_blocks(drawn, block)) == -(-(rows - STEPS) // block)

    def test_seed_decides(self, trace):
        law = Recorded(WORKERS, trace, extend="bootstrap", block=4)
        one, again, other = (starts_of_blocks(law.draw(500, seed=seed), 4) for seed in (0, 0, 1))
        assert one == again != other

    @pytest.mark.parametrize("block", [1, 4, 20])
    def test_blocks_begin_anywhere_they_fit_equally_often(self, trace, block):
        law = Recorded(WORKERS, trace, extend="bootstrap", block=block)
        starts = starts_of_blocks(law.draw(STEPS + 4000 * block, seed=0), block)
        counts = np.bincount(starts, minlength=STEPS - block + 1)
        assert counts.size == STEPS - block + 1
        assert stats.chisquare(counts).pvalue > 1e-3
        if counts.size > 1:  # one block tells nothing of the next
            assert abs(np.corrcoef(starts[1:], starts[:-1])[0, 1]) < 5 / np.sqrt(len(starts))


class TestRefusals:
    @pytest.mark.parametrize(
        ("name", "text", "message"),
        [
            ("trace.csv", "a,b\n1,x\n", "row 2, column 'b' is 'x'"),
            ("trace.csv", "a,b\n1,\n,2\n", "none of the 2 recorded steps has compute times of all 2 workers"),
            ("trace.parquet", "a,b\n1,2\n", "cannot be read as Parquet"),
            ("trace.xml", "a,b\n1,2\n", "must end in"),
        ],
    )
    def test_what_cannot_be_read_is_named_as_the_library_names_it(self, tmp_path, name, text, message):
        path = tmp_path / name
        path.write_text(text)
        with pytest.raises(ValueError, match=rf"^trace='.*{name}'.*{message}"):
            Recorded(2, str(path))
        with pytest.raises(ValueError, match=rf"^path='.*{name}'|^none of"):
            recorded(path).complete()
