"""Recordings of live runs as traces: the times that the run itself tells, from its file or its work directory."""

import numpy as np
import pytest

from sgdlab import Schedule
from sgdlab.live.recording import LiveRecording
from sgdlab.traces import Options, read

NAN = np.nan


@pytest.fixture
def run(tmp_path):
    """Two workers, two gradients each, of which one was lost."""
    schedule = Schedule(
        worker=[0, 1, 0, 1],
        read=[0, 0, 1, 1],
        update=[0, 1, 2, -1],
        started=[0.0, 0.0, 2.0, 3.0],
        arrived=[2.0, 3.0, 4.5, 5.0],
        applied=[2.0, 3.0, 4.5],
        num_workers=2,
    )
    fates = ["applied", "applied", "applied", "lost"]
    recording = LiveRecording(schedule, [0, 1, 2, 3], [1.9, 2.8, 2.4, NAN], [1.0] * 4, fates, {"seed": 3}, {"jax": "0"})
    recording.save(tmp_path / "recording.npz")
    return tmp_path, recording


@pytest.mark.parametrize("name", ["", "recording.npz"])
def test_row_t_is_each_workers_gradient_t(run, name):
    folder, live = run
    recording = read(folder / name)
    np.testing.assert_array_equal(recording.runtimes, [[2.0, 3.0], [2.5, NAN]])
    np.testing.assert_array_equal(recording.runtimes, live.runtimes())
    assert recording.steps.tolist() == [0, 1]
    assert recording.workers == ("worker 0", "worker 1")


def test_columns_and_units_are_known(run):
    with pytest.raises(ValueError, match="--columns and --unit must be left out"):
        read(run[0], Options(unit="ms"))


def test_an_archive_of_one_array_is_read_as_that_and_others_are_refused(tmp_path):
    times = np.random.default_rng(0).gamma(50, 0.02, (6, 3))
    np.savez(tmp_path / "trace.npz", times)
    np.testing.assert_array_equal(read(tmp_path / "trace.npz").runtimes, times)
    with pytest.raises(ValueError, match=r"trace\.npz'"):
        read(tmp_path / "trace.npz", Options(format="live_run"))
    np.savez(tmp_path / "trace.npz", a=times, b=times)
    with pytest.raises(ValueError, match=r"trace\.npz': must hold one array.*\[steps, workers\].*; it holds a, b$"):
        read(tmp_path / "trace.npz")
    (tmp_path / "trace.npz").write_text("no archive")
    with pytest.raises(ValueError, match=r"trace\.npz': must be an array of numbers, as numpy.save or"):
        read(tmp_path / "trace.npz")
