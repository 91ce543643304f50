"""PSP-SGD: every field equals a simulation of its messages, with delays, time-outs and ties; special cases, and rules.

A gradient's stamp is not in the schedule, but can be read off it: b of its blocks are stamped no earlier than it, the
others earlier, so it is the b-th largest version that the gradient was computed on.
"""

import functools

import numpy as np
import pytest
from comparison import FEW, RUNTIMES, WHOLE, arrays, assert_equal, assert_schedule_is, check, without_ties
from hypothesis import given, settings
from hypothesis import strategies as st
from lib.tiers import examples
from simulate_partial import simulate_partial

from sgdlab import DROPPED, PENDING, Schedule, cluster, protocols

TIMEOUTS = st.sampled_from([0.0, 1.0, 2.0, 0.5, 3.0])


UP_TO_6 = st.integers(1, 6)


@st.composite
def clusters(draw, *, workers=UP_TO_6, servers=UP_TO_6) -> dict:
    shape = draw(UP_TO_6), draw(workers), draw(servers)
    delays = st.sampled_from([[0], [0, 1], [0, 1, 2, 3], [0, 0, 0, 0, 9]]).flatmap(
        lambda values: arrays(shape, st.sampled_from([float(value) for value in values]))
    )
    return {
        "runtimes": draw(st.sampled_from([WHOLE, FEW]).flatmap(lambda elements: arrays(shape[:2], elements))),
        "num_servers": shape[2],
        "pull_delays": draw(delays),
        "push_delays": draw(delays),
        "push_at_least": draw(st.integers(1, shape[1])),
        "pull_at_least": draw(st.integers(1, shape[2])),
        "keep_newer": draw(st.booleans()),
    }


def expected_of(given: dict) -> dict[str, list]:
    return simulate_partial(
        given["runtimes"],
        given["pull_delays"],
        given["push_delays"],
        push=(given["push_at_least"], given.get("push_timeout", 0.0)),
        pull=(given["pull_at_least"], given.get("pull_timeout", 0.0)),
        keep_newer=given["keep_newer"],
    )


def assert_equals_messages(given: dict) -> Schedule:
    schedule = protocols.partial(**given)
    assert_schedule_is(schedule, expected_of(given), given["runtimes"].shape[1])
    return schedule


def stamps(schedule: Schedule, pull_at_least: int) -> np.ndarray:
    return np.sort(schedule.read, axis=1)[:, -pull_at_least]


class TestEvents:
    @settings(check, max_examples=examples(250))
    @given(given=clusters(), push_timeout=TIMEOUTS, pull_timeout=TIMEOUTS)
    def test_equals_messages_with_time_outs(self, given, push_timeout, pull_timeout):
        assert_equals_messages(given | {"push_timeout": push_timeout, "pull_timeout": pull_timeout})

    @pytest.mark.parametrize("seconds", [0.0, 0.5])
    @pytest.mark.parametrize("late", [0.0, 0.3])
    def test_many_workers_that_start_together(self, seconds, late):
        generator = np.random.default_rng(0)
        shape = 6, 40, 3
        delays = lambda: 3.0 * (generator.random(shape) < late)
        assert_equals_messages(
            {
                "runtimes": generator.integers(2, 9, shape[:2]) / 4,
                "num_servers": shape[2],
                "pull_delays": delays(),
                "push_delays": delays(),
                "push_at_least": 30,
                "pull_at_least": 2,
                "keep_newer": False,
                "push_timeout": seconds,
                "pull_timeout": seconds,
            }
        )

    @settings(check, max_examples=examples(100))
    @given(given=clusters(workers=st.just(1)), push_timeout=TIMEOUTS, pull_timeout=TIMEOUTS)
    def test_one_worker(self, given, push_timeout, pull_timeout):
        schedule = assert_equals_messages(given | {"push_timeout": push_timeout, "pull_timeout": pull_timeout})
        if given["pull_at_least"] == given["num_servers"]:  # it waits for all it has sent
            assert schedule.used().all()
            assert (schedule.staleness() == 0).all()

    @settings(check, max_examples=examples(100))
    @given(given=clusters(servers=st.just(1)), push_timeout=TIMEOUTS, pull_timeout=TIMEOUTS)
    def test_one_server(self, given, push_timeout, pull_timeout):
        schedule = assert_equals_messages(given | {"push_timeout": push_timeout, "pull_timeout": pull_timeout})
        assert (schedule.staleness().compressed() == 0).all()
        assert schedule.num_updates == len(given["runtimes"])

    @settings(check, max_examples=examples(100))
    @given(given=clusters(workers=st.integers(2, 6)), data=st.data(), push_timeout=TIMEOUTS)
    def test_all_but_one_are_slow(self, given, data, push_timeout):
        fast = data.draw(st.integers(0, given["runtimes"].shape[1] - 1))
        given["runtimes"][:, np.arange(given["runtimes"].shape[1]) != fast] += 10
        assert_equals_messages(given | {"push_timeout": push_timeout})

    @settings(check, max_examples=examples(100))
    @given(given=clusters(servers=st.integers(2, 6)), data=st.data(), pull_timeout=TIMEOUTS)
    def test_all_servers_but_one_are_slow(self, given, data, pull_timeout):
        fast = data.draw(st.integers(0, given["num_servers"] - 1))
        given["pull_delays"][:, :, np.arange(given["num_servers"]) != fast] += 10
        assert_equals_messages(given | {"pull_timeout": pull_timeout})


class TestRules:
    @check
    @given(given=clusters(), push_timeout=TIMEOUTS, pull_timeout=TIMEOUTS)
    def test_stamps(self, given, push_timeout, pull_timeout):
        schedule = protocols.partial(**given, push_timeout=push_timeout, pull_timeout=pull_timeout)
        stamp = stamps(schedule, given["pull_at_least"])
        used = schedule.used()
        # Nothing stamped earlier than the server's count is used, nothing is used before what it was computed on.
        assert (schedule.update <= stamp[:, None])[used].all()
        assert (schedule.staleness().compressed() >= 0).all()
        for block in range(schedule.num_blocks):
            sizes = np.bincount(schedule.update[used[:, block], block])
            assert (sizes >= given["push_at_least"]).all()
        for worker in range(schedule.num_workers):
            rows = np.flatnonzero(schedule.worker == worker)
            rows = rows[np.argsort(schedule.started[rows])]
            assert (np.diff(stamp[rows]) > 0).all()
            assert (np.diff(schedule.read[rows], axis=0) >= 0).all()

    @pytest.mark.full
    @check
    @given(given=clusters(), pull_timeout=TIMEOUTS)
    def test_who_waits_for_all_blocks_has_no_use_for_what_is_stamped_too_early(self, given, pull_timeout):
        given = given | {"pull_at_least": 1.0, "pull_timeout": pull_timeout}
        strict, eager = (protocols.partial(**given | {"keep_newer": newer}) for newer in (False, True))
        assert_equal(strict, eager)


class TestSpecialCases:
    @check
    @given(runtimes=RUNTIMES, seconds=TIMEOUTS)
    def test_waiting_for_all_on_one_server_is_synchronous(self, runtimes, seconds):
        schedule = protocols.partial(runtimes, num_servers=1, push_timeout=seconds, pull_timeout=seconds)
        assert_equal(schedule, protocols.synchronous(runtimes))

    @check
    @given(data=st.data(), runtimes=without_ties())
    def test_one_server_without_ties_is_backup_workers(self, data, runtimes):
        backups = data.draw(st.integers(0, runtimes.shape[1] - 1))
        schedule = protocols.partial(runtimes, num_servers=1, push_at_least=runtimes.shape[1] - backups)
        assert_equal(schedule, protocols.backup_workers(runtimes, backups=backups))

    @check
    @given(data=st.data(), runtimes=without_ties(), seconds=st.floats(0, 3))
    def test_one_server_without_ties_is_timeout(self, data, runtimes, seconds):
        at_least = data.draw(st.integers(1, runtimes.shape[1]))
        schedule = protocols.partial(runtimes, num_servers=1, push_at_least=at_least, push_timeout=seconds)
        assert_equal(schedule, protocols.timeout(runtimes, at_least=at_least, seconds=seconds))

    @pytest.mark.parametrize("workers", [1, 2, 5])
    def test_all_that_came_at_one_instant_enter_an_update_that_waits(self, workers):
        # Everybody has responded at 1: the update takes all of them, whichever was the c-th.
        runtimes = np.ones((4, workers))
        schedule = protocols.partial(runtimes, num_servers=1, push_at_least=1, push_timeout=2.0)
        assert_equal(schedule, protocols.synchronous(runtimes))

    @check
    @given(runtimes=RUNTIMES, servers=st.integers(2, 4))
    def test_servers_without_delays_are_alike(self, runtimes, servers):
        one, many = (protocols.partial(runtimes, num_servers=n, push_at_least=0.5) for n in (1, servers))
        for name in ("read", "update", "arrived", "applied"):
            np.testing.assert_array_equal(getattr(many, name), np.repeat(getattr(one, name), servers, axis=1))
        np.testing.assert_array_equal(many.started, one.started)


class TestByHand:
    def test_a_late_block_is_kept_until_its_newer_version_has_come(self):
        # Version 1 of block 1 is under way for 5 seconds, version 2 for none. The worker computes on version 0 of that
        # block twice, and on version 2 as soon as that has come.
        pulls = np.zeros((3, 1, 2))
        pulls[1, 0, 1] = 5
        runtimes = np.ones((3, 1))
        schedule = protocols.partial(runtimes, num_servers=2, pull_at_least=1, pull_delays=pulls)
        np.testing.assert_array_equal(schedule.read, [[0, 0], [1, 0], [2, 2]])
        np.testing.assert_array_equal(schedule.staleness(), [[0, 0], [0, 1], [0, 0]])
        np.testing.assert_array_equal(protocols.blocks_behind(schedule), [5, 1])

    @pytest.mark.parametrize(("keep_newer", "version"), [(False, 0), (True, 1)])
    def test_keep_newer_takes_what_is_stamped_too_early(self, keep_newer, version):
        # Two workers, c = 1. Version 1 of block 1 comes to worker 1 at 2, while it is computing; version 2 of block 0
        # (at 2) and of block 1 (at 12) decide what it computes on at 3.
        pulls = np.zeros((3, 2, 2))
        pulls[1, 1, 1], pulls[2, 1, 1] = 1, 10
        runtimes = np.array([[1.0, 2.5], [1.0, 9.0], [9.0, 9.0]])
        schedule = protocols.partial(
            runtimes, num_servers=2, push_at_least=1, pull_at_least=1, pull_delays=pulls, keep_newer=keep_newer
        )
        second = np.flatnonzero((schedule.worker == 1) & (schedule.started == 2.5))
        np.testing.assert_array_equal(schedule.read[second], [[2, version]])

    def test_server_that_took_gradients_ahead_of_its_count_ends_with_fewer_updates(self):
        # c = 2, b = 1. Worker 1's gradients reach server 0 at once, and server 1 after 50 seconds. Server 0 updates at
        # 1 and 2, and lets both workers go on; server 1 takes worker 0's two gradients for its first update, at 2. Of
        # worker 1's, the first is too old at 51, the second is alone at 52, and nothing more can come.
        pushes = np.zeros((2, 2, 2))
        pushes[:, 1, 1] = 50
        schedule = protocols.partial(
            np.ones((2, 2)), num_servers=2, push_at_least=2, pull_at_least=1, push_delays=pushes
        )
        assert_schedule_is(
            schedule,
            {
                "worker": [0, 1, 0, 1],
                "read": [[0, 0], [0, 0], [1, 0], [1, 0]],
                "update": [[0, 0], [0, PENDING], [1, 0], [1, PENDING]],
                "started": [0, 0, 1, 1],
                "arrived": [[1, 1], [1, 51], [2, 2], [2, 52]],
                "applied": [[1, 2], [2, np.nan]],
            },
            2,
        )

    def test_worker_time_out(self):
        # Version 1 of block 1 comes to the worker at 1 + 3; it waits for it until 1 + 2, or (after 4 s) for it.
        pulls = np.zeros((2, 1, 2))
        pulls[1, 0, 1] = 3
        started = {
            seconds: protocols.partial(
                np.ones((2, 1)), num_servers=2, pull_at_least=1, pull_timeout=seconds, pull_delays=pulls
            ).started[1]
            for seconds in (0.0, 2.0, 3.0, 4.0)
        }
        assert started == {0.0: 1, 2.0: 3, 3.0: 4, 4.0: 4}


class TestDelays:
    runtimes = cluster.gamma(num_workers=4, num_gradients=12, batch_size=2, seed=0)

    def test_one_number_is_all_of_them(self):
        draw = functools.partial(protocols.partial, self.runtimes, num_servers=3, pull_at_least=2, push_at_least=3)
        full = np.full((12, 4, 3), 0.5)
        assert_equal(draw(pull_delays=0.5, push_delays=0.5), draw(pull_delays=full, push_delays=full))
        assert_equal(draw(), draw(pull_delays=0, push_delays=0.0))
        assert_equal(draw(), draw(pull_delays=None, push_delays=None))

    @pytest.mark.parametrize("late", [{"late_share": 0.0}, {"late_seconds": 0.0}])
    def test_a_model_of_no_delay_is_not_drawn_from(self, late, monkeypatch):
        none = cluster.MessageDelays(base_seconds=0.0, **late)
        assert (none.draw((4, 3, 2), np.random.default_rng(0)) == 0).all()
        monkeypatch.setattr(cluster.MessageDelays, "draw", None)
        expected = protocols.partial(self.runtimes, num_servers=3, pull_delays=0.0)
        assert_equal(protocols.partial(self.runtimes, num_servers=3, pull_delays=none), expected)

    def test_drawn_delays_are_a_matter_of_the_seed(self):
        model = cluster.MessageDelays(base_seconds=0.2, late_share=0.2)
        draw = functools.partial(
            protocols.partial, self.runtimes, num_servers=3, push_at_least=3, pull_delays=model, push_delays=model
        )
        assert_equal(draw(seed=1), draw(seed=1))
        assert draw(seed=1).wall_clock() != draw(seed=2).wall_clock()

    def test_arguments_are_left_alone(self):
        delays = np.ones((12, 4, 3))
        protocols.partial(self.runtimes, num_servers=3, pull_delays=delays, push_delays=delays)
        assert (delays == 1).all()
        assert delays.flags.writeable


class TestBlocksBehind:
    def test_by_hand(self):
        # Behind the newest: row 0 (0, 0, 0); row 1 (0, 1, 0); row 2, which only one block uses, (0, 2, 1). No block
        # uses rows 3 and 4.
        schedule = Schedule(
            worker=[0, 0, 0, 0, 0],
            read=[[0, 0, 0], [1, 0, 1], [2, 0, 1], [3, 0, 0], [3, 0, 0]],
            update=[[0, 0, 0], [1, 1, 1], [2, DROPPED, PENDING], [DROPPED, DROPPED, DROPPED], [PENDING] * 3],
            started=[0, 1, 2, 3, 4],
            arrived=[[1.0] * 3, [2.0] * 3, [3.0] * 3, [4.0] * 3, [5.0] * 3],
            applied=[[1, 1, 1], [2, 2, 2], [3, np.nan, np.nan]],
            num_workers=1,
        )
        np.testing.assert_array_equal(protocols.blocks_behind(schedule), [3 + 2 + 1, 1 + 1, 1])

    def test_one_block_is_never_behind(self):
        schedule = protocols.backup_workers(np.ones((5, 4)), backups=1)
        np.testing.assert_array_equal(protocols.blocks_behind(schedule), [schedule.used().sum()])
