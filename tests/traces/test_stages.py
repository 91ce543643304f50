"""Stages that contain the wait: told from the work beside them, found in ordinary vectors, and left alone elsewhere."""

import numpy as np
import pytest
from lib.stage_vectors import planted

from sgdlab.traces import Recording, read
from sgdlab.traces.phases import WAIT
from sgdlab.traces.stages import find_wait


def rows(path, seen, names=None):
    """Write a row for each phase, as a recorder does."""
    names = names or {}
    steps, workers = next(iter(seen.values())).shape
    path.write_text("worker,step,phase,duration\n" + "".join(
        f"{worker},{step},{names.get(name, name)},{float(times[step, worker])!r}\n"
        for worker in range(workers) for step in range(steps) for name, times in seen.items()
    ))  # fmt: skip
    return path


def columns(path, seen):
    """Write a row for each step, with a column of milliseconds for each stage."""
    steps, workers = next(iter(seen.values())).shape
    path.write_text("rank,step," + ",".join(f"{name}_ms" for name in seen) + "\n" + "".join(
        f"{worker},{step}," + ",".join(f"{1000 * times[step, worker]!r}" for times in seen.values()) + "\n"
        for worker in range(workers) for step in range(steps)
    ).replace("np.float64(", "").replace(")", ""))  # fmt: skip
    return path


@pytest.mark.parametrize("form", ["named", "found", "columns"])
def test_the_least_of_the_stage_is_work_and_the_rest_waiting(tmp_path, form):
    _, seen = planted(np.random.default_rng(1), slow=[(1, "data", 3.0, 60)])
    if form == "columns":
        recording = read(columns(tmp_path / "trace.csv", seen))
    else:
        recording = read(rows(tmp_path / "trace.csv", seen, {"backward": "backward" + WAIT} if form == "named" else {}))
    least = np.array([[min(row)] * 4 for row in seen["backward"].tolist()])
    np.testing.assert_allclose(recording.communication["backward + wait"], seen["backward"] - least, rtol=0, atol=1e-12)
    np.testing.assert_allclose(recording.phases["backward"], least, rtol=1e-12)
    expected = seen["data"] + seen["forward"] + seen["update"] + least
    np.testing.assert_allclose(recording.runtimes, expected, rtol=1e-12)
    np.testing.assert_allclose(recording.transfer(), 0.0, atol=1e-15)
    assert [*recording.phases] == ["data", "forward", "backward", "update"]
    assert recording.collectives == ()
    assert any("contains the wait" in note for note in recording.notes) == (form != "named")
    recording.save(tmp_path / "again.csv")
    again = read(tmp_path / "again.csv")
    assert [*again.phases] == [*recording.phases]
    np.testing.assert_allclose(again.runtimes, recording.runtimes, rtol=1e-12)
    np.testing.assert_allclose(again.communication["backward + wait"], seen["backward"] - least, atol=1e-12)


@pytest.mark.parametrize("stage", ["data", "forward", "update"])
@pytest.mark.parametrize("seed", range(5))
def test_the_wait_is_found_whatever_the_jitter(stage, seed):
    rng = np.random.default_rng(seed)
    _, seen = planted(rng, workers=int(rng.integers(2, 9)), jitter=0.02 + 0.04 * seed, slow=[(1, stage, 2.0, 30)])
    assert find_wait(seen, np.arange(120)) == "backward"
    sampled = np.sort(rng.choice(400, 120, replace=False))  # the update before a step was not recorded
    assert find_wait(seen, sampled) in (None, "backward")


def test_stages_that_wait_for_nobody_are_left_alone():
    for seed in range(20):
        own, _ = planted(np.random.default_rng(seed), slow=[(1, "data", 2.0, 30)])
        assert find_wait(own, np.arange(120)) is None
    assert find_wait({"data": np.ones((50, 2)), "backward": np.ones((50, 2))}, np.arange(50)) is None
    assert find_wait({"data": np.ones((50, 2))}, np.arange(50)) is None
    assert find_wait(planted(np.random.default_rng(0), steps=15)[1], np.arange(15)) is None  # too short to tell


def test_communication_beside_it_is_kept_and_own_work_is_not_doubled(tmp_path):
    seen = {
        "data": [[1.0, 2.0]],
        "backward": [[4.0, 4.0]],
        "backward + wait": [[3.0, 2.5]],
        "all_gather": [[0.5, 0.25]],
    }
    recording = read(rows(tmp_path / "trace.csv", {name: np.array(times) for name, times in seen.items()}))
    np.testing.assert_allclose(recording.phases["backward"], [[6.5, 6.5]])
    np.testing.assert_allclose(recording.runtimes, [[7.5, 8.5]])
    np.testing.assert_allclose(recording.communication["backward + wait"], [[0.5, 0.0]])
    assert recording.collectives == ("all_gather",)
    assert recording.transfer().tolist() == [0.25]


def test_a_worker_that_is_missing_in_a_step_stays_missing(tmp_path):
    path = tmp_path / "trace.csv"
    path.write_text(
        "worker,step,phase,duration\n"
        "0,0,data,1\n0,0,b + wait,5\n1,0,data,2\n1,0,b + wait,4\n0,1,data,1\n0,1,b + wait,3\n"
    )
    recording = read(path)
    np.testing.assert_array_equal(recording.runtimes, [[5.0, 6.0], [4.0, np.nan]])
    np.testing.assert_array_equal(recording.phases["b"], [[4.0, 4.0], [3.0, np.nan]])


def test_a_step_of_the_optimizer_is_a_stage_and_a_whole_step_is_not(tmp_path):
    own, _ = planted(np.random.default_rng(0))
    assert "step" in read(rows(tmp_path / "a.csv", own, {"update": "step"})).phases
    whole = {**own, "step": sum(own.values())}
    assert [*read(rows(tmp_path / "b.csv", whole)).phases] == [*own]
    assert isinstance(read(tmp_path / "b.csv"), Recording)
