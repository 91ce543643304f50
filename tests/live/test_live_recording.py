import dataclasses

import numpy as np
import pytest
from lib.rehearsal import Fault, dyadic
from rehearsing import POLICIES, rehearse

from sgdlab import cluster, policies
from sgdlab.live.lines import LogError
from sgdlab.live.log import Log
from sgdlab.live.recording import FATES, LiveRecording
from sgdlab.live.resume import examined
from sgdlab.schedule import Schedule

FAULTS = (Fault("kill", 1, 10.3, 0.1), Fault("nan", 0, 6.0), Fault("raise", 2, 8.0))


def by_hand():
    """Two workers: one gradient applied, one late, one lost, one refused, one pending."""
    schedule = Schedule(
        worker=[0, 1, 1, 0, 0, 1],
        read=[0, 0, 0, 1, 1, 1],
        update=[0, -1, -1, -1, 1, -2],
        started=[0.0, 0.0, 3.0, 2.0, 4.5, 4.5],
        arrived=[2.0, 3.0, 4.0, 4.5, 6.0, 7.0],
        applied=[2.0, 6.0],
        num_workers=2,
    )
    return {
        "schedule": schedule,
        "ticket": [0, 1, 3, 2, 4, 5],
        "seconds": [1.9, 2.8, np.nan, 2.4, 1.4, np.nan],
        "loss": [1.0, 2.0, np.nan, np.nan, 0.5, np.nan],
        "fate": ["applied", "late", "lost", "refused", "applied", "pending"],
        "config": {"seed": 3},
        "versions": {"jax": "0"},
    }


def test_waiting_times_and_counts():
    recording = LiveRecording(**by_hand())
    # In the order in which each worker began: worker 1 was lost in its second, and its third is pending.
    np.testing.assert_array_equal(recording.runtimes(), [[2.0, 3.0], [2.5, np.nan], [1.5, np.nan]])
    np.testing.assert_array_equal(recording.used_tickets(), [0, 4])
    expected = {
        "begun": 6,
        "applied": 2,
        "late": 1,
        "interrupted": 0,
        "lost": 1,
        "failed": 0,
        "refused": 1,
        "pending": 1,
    }
    assert recording.ledger() == expected
    assert tuple(expected)[1:] == FATES
    assert str(recording).startswith("Recording: 2 workers, 6 s; 6 begun, 2 applied, 1 late, 1 lost")


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("ticket", [0, 1, 3, 2, 4], "ticket has shape"),
        ("ticket", [0, 1, 3, 3, 4, 5], r"ticket=3 in row 3 must be of one gradient only"),
        ("ticket", [0, -1, 3, 2, 4, 5], r"ticket=-1 in row 1 must be at least 0"),
        ("fate", ["applied", "late", "gone", "refused", "applied", "pending"], "fate=gone in row 2 must be one of"),
        ("fate", ["applied", "late", "lost", "applied", "applied", "pending"], "fate=applied in row 3"),
        ("fate", ["applied", "late", "lost", "refused", "applied", "lost"], "fate=lost in row 5"),
    ],
)
def test_fields_that_contradict_each_other(name, value, message):
    with pytest.raises(ValueError, match=message):
        LiveRecording(**by_hand() | {name: value})


def test_a_recording_is_read_as_it_was_written(tmp_path):
    runtimes = dyadic(np.random.default_rng(2), (40, 3))
    recording, *_ = rehearse(
        POLICIES["timeout"], runtimes, num_gradients=60, faults=FAULTS, log=Log(tmp_path, {"a": [1, None]})
    )
    path = tmp_path / "recording.npz"
    recording.save(path)
    read = LiveRecording.load(path)
    for field in dataclasses.fields(Schedule):
        np.testing.assert_array_equal(getattr(read.schedule, field.name), getattr(recording.schedule, field.name))
    for name in ("ticket", "seconds", "loss", "fate"):
        np.testing.assert_array_equal(getattr(read, name), getattr(recording, name))
        assert getattr(read, name).dtype == getattr(recording, name).dtype
    assert (read.config, read.versions) == ({"a": [1, None]}, recording.versions)
    assert read.versions["x64"] in ("True", "False")
    assert Schedule.load(path).num_updates == recording.schedule.num_updates  # also readable as a schedule
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(ValueError, match=r"is not a recording written by LiveRecording\.save"):
        LiveRecording.load(path)


def test_the_log_alone_says_what_happened(tmp_path):
    runtimes = dyadic(np.random.default_rng(2), (40, 3))
    recording, *_ = rehearse(
        POLICIES["softsync"], runtimes, num_gradients=60, faults=FAULTS, log=Log(tmp_path, {"n": 3})
    )
    found = examined(tmp_path, lambda config: POLICIES["softsync"](num_workers=config["n"]))
    for name in ("ticket", "seconds", "loss", "fate"):
        np.testing.assert_array_equal(getattr(found, name), getattr(recording, name))
    np.testing.assert_array_equal(found.schedule.arrived, recording.schedule.arrived)
    assert found.config == {"n": 3}
    with pytest.raises(LogError, match="there is none"):
        examined(tmp_path / "nowhere", lambda config: None)
    for match in (r"go on from checkpoint \d+ .* policy must be \S+:Softsync, .* it is \S+:Rounds", "does not follow"):
        with pytest.raises(LogError, match=match):
            examined(tmp_path, lambda config: policies.synchronous(num_workers=3))
        for path in tmp_path.glob("checkpoint-*"):
            path.unlink()


def test_run_times_are_those_that_were_given(tmp_path):
    """Without faults and interrupts the recorded times are the first rows of the compute times, and a trace."""
    runtimes = dyadic(np.random.default_rng(6), (40, 3))
    recording, *_ = rehearse(policies.synchronous, runtimes, num_gradients=30)
    np.testing.assert_array_equal(recording.runtimes(), runtimes[:10])
    np.testing.assert_array_equal(recording.seconds, (recording.schedule.arrived[:, 0] - recording.schedule.started))
    np.save(tmp_path / "trace.npy", recording.runtimes())
    assert cluster.Recorded(num_workers=3, trace=str(tmp_path / "trace.npy")).num_rows == 10


def test_who_begins_anew_and_after_what_by_hand():
    """Worker 0 has a new process for its third message, and has missed an update before its fourth."""
    worker, update, read = np.array([0, 1, 0, 0, 0]), np.arange(5), np.array([0, 0, 1, 2, 4])
    at = np.arange(5.0)
    schedule = Schedule(
        worker=worker, read=read, update=update, started=at, arrived=at + 1, applied=at + 1, num_workers=2
    )
    nothing = np.full(5, np.nan)
    recording = LiveRecording(schedule, np.arange(5), nothing, nothing, ["applied"] * 5, life=[0, 0, 0, 1, 1])
    assert recording.begins_anew().tolist() == [0, 0, -1, 2, -1]
    assert recording.after().tolist() == [-1, -1, 0, -1, 3]
    assert dataclasses.replace(recording, life=None).begins_anew(streams=True).tolist() == [0, 0, -1, 2, -1]
