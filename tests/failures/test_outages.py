"""Outages: the same however far one asks, merged where a worker was never back, and what pauses adds up."""

import json
import math

import numpy as np
import pytest

from sgdlab.failures import FAILURES, Outages, Recovery, independent, spot, trace


def intervals(outages: Outages, worker: int, until: float) -> list[tuple[float, float]]:
    found, now = [], 0.0
    while (interval := outages.away(worker, now))[0] < until:
        found.append(interval)
        now = interval[1]
    return found


class TestOutages:
    def test_who_fails_while_it_rejoins_was_never_there(self):
        outages = Outages([iter([(1.0, 2.0), (4.0, 5.0), (5.5, 5.75), (9.0, 9.5)])], rejoin_seconds=1.0)
        assert intervals(outages, 0, math.inf) == [(1.0, 3.0), (4.0, 6.75), (9.0, 10.5)]

    def test_a_worker_is_back_at_the_end_of_its_interval(self):
        outages = Outages([iter([(1.0, 2.0)])])
        assert outages.away(0, 1.5) == (1.0, 2.0)
        assert outages.away(0, 2.0) == (math.inf, math.inf)

    @pytest.mark.parametrize(
        ("start", "seconds", "done"),
        [(0.0, 1.0, 1.0), (0.0, 1.5, 2.5), (1.25, 1.0, 3.0), (0.5, 3.0, 5.5), (7.0, 2.0, 9.0)],
    )
    def test_work_that_pauses_is_done_later(self, start, seconds, done):
        outages = Outages([iter([(1.0, 2.0), (4.0, 5.0)])], pauses=True)
        assert outages.finish(0, start, seconds) == done
        assert outages.within(0, start, done) == pytest.approx(done - start - seconds)

    def test_intervals_of_a_job_are_those_of_all_workers_in_order(self):
        outages = Outages([iter([(3.0, 4.0)]), iter([(1.0, 5.0), (9.0, 9.5)])])
        assert list(outages.of_job()) == [(1.0, 5.0), (3.0, 4.0), (9.0, 9.5)]
        assert list(outages.of_job()) == [(1.0, 5.0), (3.0, 4.0), (9.0, 9.5)]  # again


class TestDraws:
    def test_more_workers_change_nothing_earlier(self):
        few, many = (independent(num_workers=n, seed=3, mean_up_hours=1.0, group_up_hours=2.0) for n in (4, 16))
        for worker in range(4):
            assert intervals(few, worker, 1e5) == intervals(many, worker, 1e5)

    def test_how_far_one_asks_first_changes_nothing(self):
        late, early = (independent(num_workers=2, seed=0, mean_up_hours=1.0) for _ in range(2))
        late.away(1, 1e6)
        assert intervals(early, 1, 1e5) == intervals(late, 1, 1e5)

    @pytest.mark.parametrize("shape", [0.7, 1.0, 2.0])
    def test_means_are_those_asked_for(self, shape):
        """Of 4,000 failures: three standard errors of a Weibull law of this shape, and of a log-normal one."""
        outages = independent(num_workers=1, seed=1, mean_up_hours=1.0, repair_minutes=10.0, shape=shape, spread=0.5)
        found = np.array(intervals(outages, 0, 4000 * 4200.0))
        up, down = found[1:, 0] - found[:-1, 1], found[:, 1] - found[:, 0]
        assert np.mean(up) == pytest.approx(3600, rel=3 * np.std(up) / 3600 / math.sqrt(up.size))
        assert np.mean(down) == pytest.approx(600, rel=3 * np.std(down) / 600 / math.sqrt(down.size))
        spread = math.sqrt(math.gamma(1 + 2 / shape) / math.gamma(1 + 1 / shape) ** 2 - 1)
        assert np.std(up) / 3600 == pytest.approx(spread, rel=0.1)

    def test_workers_of_a_group_fail_together(self):
        outages = independent(num_workers=4, seed=0, mean_up_hours=1e9, group_size=2, group_up_hours=1.0)
        assert intervals(outages, 0, 1e5) == intervals(outages, 1, 1e5) != intervals(outages, 2, 1e5)
        assert intervals(outages, 2, 1e5) == intervals(outages, 3, 1e5)

    def test_the_server_fails_too_if_asked(self):
        assert len(independent(num_workers=4, seed=0)) == 4
        assert len(independent(num_workers=4, seed=0, server=True)) == 5

    def test_spot_machines_have_a_notice(self):
        outages = spot(num_workers=1, seed=0, notice_seconds=120.0, rejoin_seconds=30.0)
        assert outages.notice_seconds == 120
        down, back = outages.away(0, 0.0)
        assert back - down >= 30

    @pytest.mark.parametrize(
        ("given", "words"),
        [
            ({"mean_up_hours": 0.0}, "mean_up_hours=0.0 must be"),
            ({"group_up_hours": -1.0}, "group_up_hours=-1.0 must be a finite number above 0"),
            ({"recovery": Recovery(means="fail")}, "recovery.means='fail' must be 'lose', 'pause' or 'rollback'"),
            ({"recovery": Recovery(detect_seconds=-1.0)}, "recovery.detect_seconds=-1.0 must be"),
            ({"recovery": Recovery("rollback", interval_seconds=0.0)}, "recovery.interval_seconds=0.0 must be"),
        ],
    )
    def test_bad_numbers_are_named(self, given, words):
        with pytest.raises(ValueError, match=f"^{words}"):
            independent(num_workers=2, seed=0, **given)


class TestTraces:
    def test_a_csv_of_workers(self, tmp_path):
        path = tmp_path / "down.csv"
        path.write_text("worker,down,up\n10,5,6\n9,1,3\n9,2,4\n")
        outages = trace(num_workers=3, path=str(path), scale=2.0)
        assert [intervals(outages, worker, 1e9) for worker in range(3)] == [[(2.0, 8.0)], [(10.0, 12.0)], []]

    def test_events_of_nodes(self, tmp_path):
        path = tmp_path / "faults.json"
        event = lambda node, what, when, fault="gpu": {
            "node_id": node, "fault_type": [fault], "event_type": f"fault_{what}", "event_time": when,
        }  # fmt: skip
        path.write_text(
            json.dumps(
                [
                    event("b", "start", 0.5), event("b", "start", 0.75, "nic"), event("b", "end", 1.0),
                    event("b", "end", 2.0, "nic"), event("a", "start", 3.0), event("b", "end", 4.0) | {"node_id": "c"} |
                    {"event_type": "fault_start"}, event("b", "start", 5.0), event("b", "end", 5.5),
                ]
            )
        )  # fmt: skip
        outages = trace(num_workers=6, path=str(path), workers_per_node=2)
        days = lambda worker: [(a / 86400, b / 86400) for a, b in intervals(outages, worker, 1e9)]
        assert days(0) == days(1) == [(3.0, 5.5)]  # it has not ended when the trace does
        assert days(2) == days(3) == [(0.5, 2.0), (5.0, 5.5)]
        assert days(4) == [(4.0, 5.5)]

    def test_who_never_comes_back_is_lost_and_nobody_waits_for_it(self, tmp_path):
        path = tmp_path / "down.csv"
        path.write_text("worker,down,up\n1,5,inf\n")
        assert intervals(trace(num_workers=2, path=str(path)), 1, 1e9) == [(5.0, math.inf)]
        for means in ("pause", "rollback"):
            with pytest.raises(ValueError, match=rf"^path=.* or go with recovery.means='lose': with '{means}'"):
                trace(num_workers=2, path=str(path), recovery=Recovery(means=means))

    @pytest.mark.parametrize(
        ("names", "workers", "who_fails"),
        [
            ([3], 5, [3]),  # numbers of workers
            ([3, 1], 4, [1, 3]),
            ([3, 4], 4, [0, 1]),  # there is no worker 4: in order
            (["3.0"], 5, [0]),
            (["w3", "w1"], 5, [0, 1]),
        ],
    )
    def test_numbers_of_workers_are_theirs(self, tmp_path, names, workers, who_fails):
        path = tmp_path / "down.csv"
        path.write_text("\n".join(["worker,down,up", *(f"{name},1,2" for name in names)]))
        outages = trace(num_workers=workers, path=str(path))
        assert [worker for worker in range(workers) if intervals(outages, worker, 1e9)] == who_fails

    def test_a_csv_of_a_spreadsheet_begins_with_a_mark(self, tmp_path):
        (tmp_path / "a.csv").write_text("worker,down,up\n0,2,3\n", encoding="utf-8-sig")
        assert trace(num_workers=1, path=str(tmp_path / "a.csv")).away(0, 0.0) == (2.0, 3.0)

    @pytest.mark.parametrize(
        ("name", "text", "words"),
        [
            ("a.csv", "worker,down\n1,2\n", "must have the columns worker, down, up; up is missing"),
            ("a.csv", "worker,down,up\n1,2,x\n", "line 2 must have numbers of seconds: '2', 'x'"),
            ("a.csv", "worker,down,up\n1,2,3\n1,5,4\n", "line 3: up=4.0 must be no earlier than down=5.0"),
            ("a.json", "{", "must be JSON"),
            ("a.json", "{}", "must be a list of events"),
            (
                "a.json",
                '[{"node_id": 1, "fault_type": "x", "event_type": "fault_start", "event_time": "1.0"}]',
                "event 0: event_time='1.0' must be a number of days",
            ),
            ("a.json", '[{"node_id": 1}]', "event 0 must have node_id, fault_type, event_type, event_time"),
        ],
    )
    def test_what_is_no_such_file_is_said(self, tmp_path, name, text, words):
        path = tmp_path / name
        path.write_text(text)
        with pytest.raises(ValueError, match=r"^path=.*" + words.replace("(", r"\(")):
            trace(num_workers=1, path=str(path))


def test_every_part_makes_outages():
    for name in set(FAILURES) - {"trace"}:
        assert isinstance(FAILURES.make(name, {}, num_workers=3, seed=0), Outages)
