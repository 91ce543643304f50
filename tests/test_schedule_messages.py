"""A schedule whose messages cost time: its shares of time and of the server are those of a run drawn by hand.

Two workers, 10 seconds; parameters take 1 s, gradients 2 s, and an update of the server 1 s (a > is parameters under
way, a < a gradient, u the server's update; worker 1 is down for a second of its first gradient):

    second      0   1   2   3   4   5   6   7   8   9  10
    worker 0    >>>>[  0   ]<<<<<<<<....>>>>[ 1 ]<<<<<<<<
    server                          uuuu            uuuu        (the policy waits before its second update)
    worker 1    >>>>[        0         ]<<<<<<<<....
"""

import numpy as np
import pytest

from sgdlab import PENDING, Schedule
from sgdlab.traffic import Traffic

TRAFFIC = Traffic(gradient_bytes=100.0, parameter_bytes=40.0, gradient_seconds=2.0, parameter_seconds=1.0,
                  receive_seconds=0.25, update_seconds=1.0)  # fmt: skip


def fields() -> dict:
    return {
        "worker": [0, 1, 0],
        "read": [0, 0, 1],
        "update": [0, 1, PENDING],
        "asked": [0.0, 0.0, 6.0],
        "started": [1.0, 1.0, 7.0],
        "sent": [3.0, 6.0, 8.0],
        "paused": [0.0, 1.0, 0.0],
        "arrived": [5.0, 8.0, 10.5],
        "applied": [6.0, 10.0],
        "num_workers": 2,
        "traffic": TRAFFIC,
    }


def made(**changed) -> Schedule:
    return Schedule(**{name: np.array(v) if isinstance(v, list) else v for name, v in (fields() | changed).items()})


def test_time_is_computing_sending_and_waiting():
    schedule = made()
    np.testing.assert_allclose(schedule.busy_share(), [0.3, 0.4])
    np.testing.assert_allclose(schedule.idle_share(), [0.7, 0.6])
    np.testing.assert_allclose(schedule.sending_share(), [(1 + 2 + 1 + 2) / 10, (1 + 2) / 10])
    assert schedule.goodput() == pytest.approx((2 + 4) / 20)
    np.testing.assert_array_equal(schedule.ended(), [3, 6, 8])


def test_the_server_is_busy_with_messages_and_updates():
    schedule = made()
    assert schedule.server_shares() == pytest.approx({"receiving": 0.6, "sending": 0.3, "working": 0.275})
    assert schedule.worker_bytes() == pytest.approx((3 * 100 + 3 * 40) / 2)
    figures = schedule.figures()
    assert figures["server_share"] == pytest.approx(0.6)
    assert figures["sending_share"] == pytest.approx(0.45)


def test_parameters_that_a_worker_has_are_not_sent_again():
    again = made(read=[0, 0, 0], update=[0, 1, PENDING])
    assert again.worker_bytes() == pytest.approx((3 * 100 + 2 * 40) / 2)


def test_without_costs_figures_are_as_they_were():
    free = made(asked=None, sent=None, paused=None, traffic=None)
    np.testing.assert_array_equal(free.sending_share(), [0, 0])
    assert free.figures().keys() == {"dropped", "staleness", "idle_share", "wasted_share"}
    assert free.worker_bytes() == 0


def test_files_hold_what_messages_cost(tmp_path):
    made().save(tmp_path / "costed.npz")
    loaded = Schedule.load(tmp_path / "costed.npz")
    assert loaded.traffic == TRAFFIC
    for name in ("asked", "sent", "paused", "arrived"):
        np.testing.assert_array_equal(getattr(loaded, name), getattr(made(), name))
    made(asked=None, sent=None, paused=None, traffic=None).save(tmp_path / "free.npz")
    assert set(np.load(tmp_path / "free.npz").files) == {
        "worker", "read", "update", "started", "arrived", "applied", "num_workers",
    }  # fmt: skip


def test_a_schedule_that_is_cut_off_keeps_its_messages():
    cut = made().until(7.0)
    assert cut.traffic == TRAFFIC
    assert cut.num_updates == 1
    np.testing.assert_array_equal(cut.sent[:, 0], [3, 6])
    np.testing.assert_array_equal(cut.asked, [0, 0])


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"asked": [0.0, 2.0, 6.0]}, "asked=2.0 in row 1 must be from 0 s to when it started"),
        ({"asked": [0.0, 0.0, 5.0]}, "asked=5.0 in row 2 must be at least 6.0, when version read=1 was applied"),
        ({"sent": [3.0, 9.0, 8.0]}, "sent=9.0 in row 1 must be later than started, and no later than arrived"),
        ({"paused": [0.0, 5.5, 0.0]}, "paused=5.5 in row 1 must be from 0 s to what it took"),
        ({"paused": [0.0, 5.0]}, r"paused has shape \(2,\)"),
    ],
)
def test_what_contradicts_itself_is_refused(changed, words):
    with pytest.raises(ValueError, match=f"^{words}"):
        made(**changed)


def test_negative_costs_are_refused():
    with pytest.raises(ValueError, match=r"^receive_seconds=-1\.0 must be a finite number at least 0"):
        Traffic(receive_seconds=-1.0)
