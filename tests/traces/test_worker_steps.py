"""Steps of single workers become one recording."""

import numpy as np
import pytest

from sgdlab.traces.joining import WorkerSteps, together
from sgdlab.traces.problems import BadTrace


def worker(name, steps, own, node="", began=None, **communication):
    steps, own = np.array(steps, np.int64), np.array(own, np.float64)
    times = {kind: np.array(values, np.float64) for kind, values in communication.items()}
    began = np.full(own.shape, np.nan) if began is None else np.array(began)
    return WorkerSteps(name, steps, own, times, {"all": own}, began, node)


def test_workers_are_put_side_by_side_by_step_number():
    recording = together([
        worker("10", [3, 2], [3.0, 2.0], node="b", began=[30.0, 20.0], send=[1.0, 2.0]),
        worker("9", [2, 4], [5.0, 6.0], node="a", began=[19.0, 41.0]),
    ])  # fmt: skip
    assert recording.workers == ("9", "10")
    assert recording.nodes == ("a", "b")
    assert recording.steps.tolist() == [2, 3, 4]
    np.testing.assert_array_equal(recording.runtimes, [[5.0, 2.0], [np.nan, 3.0], [6.0, np.nan]])
    # A worker that does not know a collective spent no time in it; in a step that it has not recorded that is unknown.
    np.testing.assert_array_equal(recording.communication["send"], [[0.0, 2.0], [np.nan, 1.0], [0.0, np.nan]])
    np.testing.assert_array_equal(recording.phases["all"], recording.runtimes)
    np.testing.assert_array_equal(recording.began, [19.0, 30.0, 41.0])
    assert "2 of 3 steps" in recording.notes[-1]


def test_several_files_of_a_worker_are_joined_and_the_first_of_a_repeated_step_counts():
    recording = together([worker("0", [1, 2], [1.0, 2.0]), worker("0", [2, 3], [9.0, 3.0])])
    np.testing.assert_array_equal(recording.runtimes, [[1.0], [2.0], [3.0]])
    assert recording.notes == ("1 steps of a worker were recorded more than once: the first of each was taken.",)


def test_a_step_without_work_is_missing_and_machines_must_be_known_of_all():
    recording = together(
        [worker("0", [1, 2, 3], [1.0, 0.0, np.nan], node="a"), worker("1", [1, 2, 3], [1.0, 1.0, 1.0])]
    )
    np.testing.assert_array_equal(recording.runtimes, [[1.0, 1.0], [np.nan, 1.0], [np.nan, 1.0]])
    assert recording.nodes == ()
    assert recording.began is None


@pytest.mark.parametrize("parts", [[], [worker("0", [], [])], [worker("0", [1], [-1.0])]])
def test_without_a_step_there_is_no_recording(parts):
    with pytest.raises(BadTrace, match="steps"):
        together(parts)
