"""Recordings: what is missing, files that come back, schedules seen as recordings, and the two real traces.

The real traces stand beside a recomputation from their raw rows.
"""

import collections
import math
import pathlib
import re
import subprocess
import sys

import numpy as np
import pyarrow.parquet as pq
import pytest

from sgdlab import cluster, protocols
from sgdlab.cluster import Recording, from_schedule, recorded

NAN = math.nan
TRACES = pathlib.Path(__file__).resolve().parents[3] / "shared" / "traces"
RUNTIMES = np.random.default_rng(0).uniform(0.5, 2.0, (9, 5))

GAPPED = Recording(
    np.array([[1.5, NAN, 0.1], [NAN, 2.0, 1 / 3], [3.0, 4.0, 5.0]]), np.array([3, 4, 9]), ("2", "10", 'a "b", c')
)


def assert_same(recording: Recording, expected: Recording) -> None:
    np.testing.assert_array_equal(recording.runtimes, expected.runtimes, strict=True)
    np.testing.assert_array_equal(recording.steps, expected.steps, strict=True)
    assert recording.workers == expected.workers


class TestRecording:
    @pytest.mark.parametrize("ending", ["csv", "parquet"])
    def test_save_and_read(self, tmp_path, ending):
        path = tmp_path / "deep" / f"trace.{ending}"
        GAPPED.save(path)
        assert_same(recorded(path), GAPPED)
        assert [file.name for file in path.parent.iterdir()] == [path.name]

    @pytest.mark.parametrize("ending", ["csv", "parquet"])
    def test_steps_and_workers_of_which_nothing_is_known_come_back(self, tmp_path, ending):
        recording = Recording(np.array([[1.5, NAN], [NAN, NAN], [2.5, NAN]]), np.array([3, 4, 5]), ("a", "b"))
        recording.save(tmp_path / f"trace.{ending}")
        assert_same(recorded(tmp_path / f"trace.{ending}"), recording)

    def test_save_refuses_other_endings(self, tmp_path):
        with pytest.raises(ValueError, match=r"trace\.npy' must end in \.parquet or \.csv"):
            GAPPED.save(tmp_path / "trace.npy")
        assert not list(tmp_path.iterdir())

    def test_counts(self):
        assert (GAPPED.missing, GAPPED.gaps) == (2, 4)

    def test_complete(self):
        assert_same(GAPPED.complete(), Recording(np.array([[3.0, 4.0, 5.0]]), np.array([9]), GAPPED.workers))
        none = Recording(GAPPED.runtimes[:2], GAPPED.steps[:2], GAPPED.workers)
        with pytest.raises(ValueError, match="none of the 2 recorded steps has run-times of all 3 workers"):
            none.complete()

    def test_its_text_has_the_counts(self):
        numbers = [float(number) for number in re.findall(r"\d+\.?\d*", str(GAPPED))]
        np.testing.assert_allclose(numbers, [3, 3, np.nanmean(GAPPED.runtimes), GAPPED.gaps, GAPPED.missing], rtol=1e-3)


WITHOUT_PYARROW = """
import sys
import numpy as np
import sgdlab.cluster as cluster
path = sys.argv[1] + "/trace.csv"
cluster.Recording(np.ones((2, 1)), np.arange(2), ("0",)).save(path)
assert cluster.recorded(path).runtimes.shape == (2, 1)
assert "pyarrow" not in sys.modules
cluster.recorded(path).save(sys.argv[1] + "/trace.parquet")
assert "pyarrow" in sys.modules
"""


def test_pyarrow_is_imported_for_parquet_files_alone(tmp_path):
    subprocess.run([sys.executable, "-c", WITHOUT_PYARROW, str(tmp_path)], check=True, timeout=300)


def naive_runtimes(schedule) -> list[list[float]]:
    """Each worker's gradients in the order they were begun; NaN where it did not finish them."""
    lists = [[] for _ in range(schedule.num_workers)]
    for row in np.argsort(schedule.started, kind="stable"):
        update, arrived = schedule.update[row, 0], schedule.arrived[row, 0]
        interrupted = update == -1 and arrived in schedule.applied[:, 0]
        known = update != -2 and not interrupted
        lists[schedule.worker[row]].append(arrived - schedule.started[row] if known else NAN)
    longest = max(map(len, lists))
    return np.array([line + [NAN] * (longest - len(line)) for line in lists]).T


class TestFromSchedule:
    def test_synchronous_shows_all(self):
        recording = from_schedule(protocols.synchronous(RUNTIMES))
        np.testing.assert_allclose(recording.runtimes, RUNTIMES, rtol=1e-14)
        assert_same(recording, Recording(recording.runtimes, np.arange(9), tuple("01234")))

    def test_the_interrupted_are_missing(self):
        recording = from_schedule(protocols.timeout(RUNTIMES, at_least=3, seconds=0, interrupt=True))
        late = np.argsort(np.argsort(RUNTIMES, axis=1), axis=1) >= 3
        np.testing.assert_allclose(recording.runtimes, np.where(late, NAN, RUNTIMES), rtol=1e-14)
        assert recording.missing == 9 * 2

    @pytest.mark.parametrize(
        "schedule",
        [
            protocols.backup_workers(RUNTIMES, backups=2),
            protocols.asynchronous(RUNTIMES),
            protocols.timeout(RUNTIMES, at_least=2, seconds=0.2),
            protocols.timeout(RUNTIMES, at_least=2, seconds=0.2, interrupt=True),
        ],
    )
    def test_every_row_in_its_place(self, schedule):
        recording = from_schedule(schedule)
        np.testing.assert_array_equal(recording.runtimes, naive_runtimes(schedule))
        assert np.isfinite(recording.runtimes).sum() >= schedule.used().sum() > 0

    def test_late_gradients_that_were_finished_are_known(self):
        # Worker 1 comes at 5, when worker 0 is in the middle of its third gradient.
        schedule = protocols.backup_workers(np.array([[2.0, 5.0]] * 4), backups=1)
        np.testing.assert_array_equal(from_schedule(schedule).runtimes, [[2, 5], [2, NAN], [2, NAN], [2, NAN]])

    def test_pending_gradients_are_unknown(self):
        schedule = protocols.asynchronous(np.array([[2.0, 5.0]] * 2))
        np.testing.assert_array_equal(from_schedule(schedule).runtimes, [[2, NAN], [2, NAN]])

    @pytest.mark.parametrize("ending", ["csv", "parquet"])
    def test_written_and_read_back(self, tmp_path, ending):
        recording = from_schedule(protocols.timeout(RUNTIMES, at_least=3, seconds=0, interrupt=True))
        recording.save(tmp_path / f"trace.{ending}")
        assert_same(recorded(tmp_path / f"trace.{ending}"), recording)

    def test_what_comes_back_gives_the_same_schedule(self, tmp_path):
        runtimes = cluster.gamma(num_workers=4, num_gradients=6, seed=0)
        from_schedule(protocols.synchronous(runtimes)).save(tmp_path / "trace.csv")
        again = protocols.synchronous(recorded(tmp_path / "trace.csv").runtimes)
        np.testing.assert_allclose(again.applied, protocols.synchronous(runtimes).applied, rtol=1e-14)


@pytest.mark.skipif(not TRACES.is_dir(), reason="the real traces are not here")
class TestRealTraces:
    @pytest.mark.parametrize(
        ("name", "shape", "mean", "slowest"), [("SE", (43, 32), 6.09, 1.28), ("AR", (44, 4), None, 2.25)]
    )
    def test_as_their_readme_says(self, name, shape, mean, slowest):
        recording = recorded(TRACES / f"trace-{name}.parquet")
        assert recording.runtimes.shape == shape
        assert recording.workers == tuple(map(str, range(shape[1])))
        assert recording.missing == 0
        assert recording.gaps > 0
        assert mean is None or round(float(recording.runtimes.mean()), 2) == mean
        over_median = recording.runtimes.max(axis=1) / np.median(recording.runtimes, axis=1)
        assert round(float(over_median.mean()), 2) == slowest

    def test_waiting_for_three_of_four(self):
        ordered = np.sort(recorded(TRACES / "trace-AR.parquet").runtimes, axis=1)
        gain = (3 / ordered[:, 2].sum()) / (4 / ordered[:, 3].sum())
        assert round(float(gain), 2) == 1.69

    @pytest.mark.parametrize(("name", "rank"), [("SE", 17), ("AR", 3)])
    def test_a_worker_from_raw_rows(self, name, rank):
        path = TRACES / f"trace-{name}.parquet"
        recording = recorded(path)
        columns = ["dp_rank", "stage", "step", "optype", "duration"]
        table = pq.read_table(path, columns=columns, filters=[("dp_rank", "=", rank)])
        busy = collections.defaultdict(float)
        for row in table.to_pylist():
            if row["optype"].endswith("-compute"):
                busy[row["step"], row["stage"]] += row["duration"]
        expected = [max(busy[key] for key in busy if key[0] == step) for step in recording.steps]
        np.testing.assert_allclose(recording.runtimes[:, rank], expected, rtol=1e-12)
