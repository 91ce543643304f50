"""Schedules on networks: by hand, by closed forms of queues, by two programs, and whatever fails meanwhile."""

import functools
import itertools
import math

import numpy as np
import pytest
from comparison import RUNTIMES, assert_equal, check
from hypothesis import given
from hypothesis import strategies as st
from lib.server_policies import SERVER_POLICIES

from sgdlab import PENDING, cluster, policies, protocols
from sgdlab.failures import Outages, Recovery, independent, rolled_back, spot
from sgdlab.failures.rollback import CheckpointCosts
from sgdlab.protocols import PROTOCOLS, fast_star
from sgdlab.transports import ServerCosts, Star, Uplinks, all_reduce, star

MORE = ("asked", "started", "sent", "arrived")


class TestByHand:
    def test_a_star(self):
        """Parameters take 1 s of the server's link, gradients 2 s, latency 0.5 s, the server 0.25 s and 1 s.

        Both workers are asked at 0; worker 0 has parameters at 1.5, worker 1 at 2.5. They compute 3 s and 1 s, and
        reach the server's link at 5 and 4. Worker 1's gradient is through at 6, worker 0's at 8; the server has taken
        and applied them at 7.25 and 9.25. Worker 1 is asked again at 7.25.
        """
        costs = Star(
            latency=(0.5, 0.5), gradient_bytes=2.0, parameter_bytes=1.0, server_rate=1.0, receive_seconds=0.25,
            update_seconds=1.0,
        )  # fmt: skip
        runtimes = np.array([[3.0, 1.0], [3.0, 4.0], [3.0, 4.0]])
        for made in (
            policies.simulate(policies.asynchronous, runtimes, num_gradients=2, transport=costs),
            protocols.asynchronous(runtimes, num_gradients=2, transport=costs),
        ):
            np.testing.assert_array_equal(made.worker, [1, 0, 1])
            np.testing.assert_array_equal(made.asked, [0, 0, 7.25])
            np.testing.assert_array_equal(made.started, [2.5, 1.5, 8.75])
            np.testing.assert_array_equal(made.sent[:, 0], [3.5, 4.5, 12.75])
            np.testing.assert_array_equal(made.arrived[:, 0], [6.0, 8.0, 15.25])
            np.testing.assert_array_equal(made.applied[:, 0], [7.25, 9.25])
            assert made.update[2, 0] == PENDING
            assert made.server_shares()["receiving"] == pytest.approx(4 / 9.25)

    def test_parameters_that_a_worker_has_are_not_sent_again(self):
        """Parameters take 1 s of the link and latency 0.5 s; an update is of two gradients, of 3 s each.

        The second gradient is of the first one's version: its worker has only to be told, at 5 s. Where it is down
        from 6 to 7 s, its memory is lost: it begins on that version again once parameters are there, at 8.5 s.
        """
        costs = Star(latency=(0.5,), parameter_bytes=1.0, server_rate=1.0)
        policy = functools.partial(policies.rennala, gradients_per_update=2)
        runtimes = np.full((4, 1), 3.0)
        made = policies.simulate(policy, runtimes, num_gradients=3, transport=costs)
        np.testing.assert_array_equal(made.started[:3], [1.5, 5.5, 10.5])
        down = Outages([iter([(6.0, 7.0)])])
        made = policies.simulate(policy, runtimes, num_updates=1, transport=costs, outages=down)
        np.testing.assert_array_equal(made.started[:3], [1.5, 5.5, 8.5])

    def test_a_message_that_travels_during_the_backward_pass(self):
        """Half of the 4 s of computing overlaps with the 3 s of the message; all of it cannot."""
        half, all_of_it = (Star(latency=(0.0,), gradient_bytes=3.0, server_rate=1.0, overlap=o) for o in (0.5, 1.0))
        runtimes = np.full((3, 1), 4.0)
        arrived = lambda costs: policies.simulate(policies.asynchronous, runtimes, transport=costs).arrived[0, 0]
        assert arrived(half) == 5.0
        assert arrived(all_of_it) == 4.0

    def test_an_interrupted_message_occupies_the_link(self):
        """Of two workers, each update takes one; the other, interrupted at 5 s, has sent at 2 s and is in the way."""
        costs = Star(latency=(0.0, 0.0), gradient_bytes=4.0, server_rate=1.0)
        policy = functools.partial(policies.timeout, at_least=1, seconds=0.0, interrupt=True)
        made = policies.simulate(policy, np.array([[1.0, 2.0]] * 4), num_updates=2, transport=costs)
        # 0 arrives at 5. 1 reached the link at 2, is through at 9. Both begin again at 5: 0 is there at 13.
        np.testing.assert_array_equal(made.applied[:, 0], [5.0, 13.0])
        np.testing.assert_array_equal(made.sent[made.dropped()[:, 0], 0], [2.0, 7.0])

    def test_an_interrupted_message_on_its_way_occupies_the_link(self):
        """Worker 1 has sent at 4 s, 2 s away from the server, which interrupts it at 5 s: it hears of that at 7 s.

        Its message crosses the link from 6 to 10 s; that of worker 0, there at 7 s, follows until 14 s.
        """
        costs = Star(latency=(0.0, 2.0), gradient_bytes=4.0, server_rate=1.0)
        policy = functools.partial(policies.timeout, at_least=1, seconds=0.0, interrupt=True)
        runtimes = np.array([[1.0, 2.0], [2.0, 9.0], [9.0, 9.0]])
        made = policies.simulate(policy, runtimes, num_updates=2, transport=costs)
        np.testing.assert_array_equal(made.applied[:, 0], [5.0, 14.0])

    def test_a_policy_hears_how_long_it_has_waited(self):
        """From when it let a worker begin until the message was there; the compute time, where that cost nothing."""
        costs = Star(latency=(0.5, 0.5), gradient_bytes=2.0, parameter_bytes=1.0, server_rate=1.0, receive_seconds=9.0)
        runtimes = np.array([[3.0, 1.0], [3.0, 4.0], [3.0, 4.0]])
        for transport, expected in ((costs, [6.0, 8.0]), (None, [1.0, 3.0])):
            heard = []

            def listening(num_workers, heard=heard):
                policy = policies.asynchronous(num_workers=num_workers)
                arrived = policy.arrived
                policy.arrived = lambda *event: heard.append(event[-1]) or arrived(*event)
                return policy

            policies.simulate(listening, runtimes, num_gradients=2, transport=transport)
            assert heard == expected

    def test_a_lost_gradient_and_its_worker(self):
        """Worker 1 is down from 1 to 4 s; the server knows at 2 s, and it begins again at 5 s."""
        outages = Outages([iter(()), iter([(1.0, 4.0)])], detect_seconds=1.0, rejoin_seconds=1.0)
        made = policies.simulate(policies.synchronous, np.full((6, 2), 3.0), num_updates=4, outages=outages)
        # Rounds: without worker 1 from 2 s on, which joins the third at 5 s.
        np.testing.assert_array_equal(made.applied[:, 0], [3.0, 8.0, 11.0, 14.0])
        assert made.dropped().sum() == 1
        row = int(np.flatnonzero(made.dropped()[:, 0])[0])
        assert (made.started[row], made.sent[row, 0], made.arrived[row, 0]) == (0.0, 1.0, 2.0)

    def test_a_pause_delays_and_loses_nothing(self):
        outages = Outages([iter([(1.0, 2.5)])], pauses=True)
        made = policies.simulate(policies.asynchronous, np.full((3, 1), 2.0), outages=outages)
        np.testing.assert_array_equal(made.applied[:, 0], [3.5, 5.5, 7.5])
        np.testing.assert_array_equal(made.paused, [1.5, 0.0, 0.0])
        assert made.goodput() == pytest.approx(6 / 7.5)

    def test_a_server_that_is_down_lets_gradients_wait(self):
        outages = Outages([iter(()), iter(()), iter([(1.5, 4.0)])])
        made = policies.simulate(policies.asynchronous, np.array([[1.0, 2.0]] * 5), num_gradients=3, outages=outages)
        np.testing.assert_array_equal(made.applied[:, 0], [1.0, 4.0, 4.0])
        np.testing.assert_array_equal(made.arrived[:, 0], [1.0, 2.0, 2.0])

    def test_a_spot_machine_sends_what_it_can_finish(self):
        """Worker 0 has its notice at 2 s, finishes at 3 s and begins no more; worker 1 cannot finish, and is lost."""
        outages = lambda: Outages([iter([(4.0, 9.0)]), iter([(4.0, 9.0)])], notice_seconds=2.0)
        made = policies.simulate(policies.asynchronous, np.array([[3.0, 7.0]] * 4), num_gradients=3, outages=outages())
        np.testing.assert_array_equal(made.applied[:, 0], [3.0, 12.0, 15.0])
        lost = made.dropped()[:, 0]
        assert (made.worker[lost].tolist(), made.arrived[lost, 0].tolist()) == ([1], [2.0])

    def test_a_spot_machine_begins_nothing_that_it_could_still_finish(self):
        """Worker 0 has its notice at 2 s and its gradient is there at 7 s. It sends no other, which would be in the way
        of worker 1's from 10 to 14 s.
        """
        costs = Star(latency=(0.0, 0.0), gradient_bytes=4.0, server_rate=1.0)
        outages = Outages([iter([(20.0, 30.0)]), iter(())], notice_seconds=18.0)
        runtimes = np.array([[3.0, 11.0]] * 4)
        made = policies.simulate(policies.asynchronous, runtimes, num_gradients=2, transport=costs, outages=outages)
        np.testing.assert_array_equal(made.applied[:, 0], [7.0, 15.0])

    def test_a_worker_that_never_comes_back_is_lost(self):
        """Until the server knows, at 4.5 s, the others wait for it; those who are left are enough."""
        outages = lambda: Outages([iter(()), iter([(2.5, np.inf)]), iter(())], detect_seconds=2.0)
        made = policies.simulate(policies.synchronous, np.ones((9, 3)), num_updates=4, outages=outages())
        np.testing.assert_array_equal(made.applied[:, 0], [1.0, 2.0, 4.5, 5.5])
        assert protocols.bounded_staleness(np.ones((9, 3)), bound=0, num_gradients=12, outages=outages()).num_updates
        every = Outages([iter([(when, np.inf)]) for when in (3.5, 2.5, 4.5)])
        with pytest.raises(ValueError, match=r"all workers are down for ever at 4\.5 s, after 9 gradients"):
            protocols.synchronous(np.ones((50, 3)), num_gradients=40, outages=every)

    def test_a_worker_that_is_interrupted_after_its_notice_is_lost_at_once(self):
        """Worker 1 takes longer than its limit; it would be waited for until it is back at 1,240 s."""
        outages = Outages([iter(()), iter([(40.0, 1240.0)])], notice_seconds=32.0)
        made = protocols.mindflayer(
            np.tile([1.0, 5.0], (2000, 1)), trials=1, seconds=4.0, num_gradients=200, outages=outages
        )
        own = made.started[made.worker == 1]
        assert made.applied[-1, 0] < 210
        assert ((own <= 8.0) | (own >= 1240.0)).all()

    def test_what_is_interrupted_was_not_sent(self):
        runtimes = np.tile([1.0, 100.0, 100.0, 100.0], (400, 1))
        costs = Star(latency=(0.0,) * 4, gradient_bytes=1e6, server_rate=1e7)
        made = protocols.timeout(runtimes, at_least=1, seconds=0.0, interrupt=True, num_gradients=100, transport=costs)
        assert made.dropped().sum() >= 3 * 90
        assert made.worker_bytes() * 4 == 100 * 1e6
        assert made.server_shares()["receiving"] == pytest.approx(100 * 0.1 / made.wall_clock())

    def test_a_run_of_all_compute_times_ends_although_workers_fail_for_ever(self):
        """Worker 0 has done its three at 3 s, and fails at 5 s; worker 1, down from 1.5 to 10 s, has one left."""
        for_ever = ((20.0 * when, 20.0 * when + 1.0) for when in itertools.count(1))
        outages = Outages([iter([(5.0, 6.0), (25.0, 26.0)]), itertools.chain([(1.5, 10.0)], for_ever)])
        made = protocols.bounded_staleness(np.ones((3, 2)), bound=9, outages=outages)
        np.testing.assert_array_equal(made.applied[:, 0], [1.0, 1.0, 2.0, 3.0, 11.0])


class TestQueues:
    """The server's 20 ms an update, and workers of a mean of 1 s: at most 50 updates a second, from 51 workers on."""

    @staticmethod
    def speed(runtimes: np.ndarray, costs: Star, number: int) -> float:
        applied = protocols.asynchronous(runtimes, num_gradients=number, transport=costs).applied[:, 0]
        return (number - number // 4) / (applied[-1] - applied[number // 4 - 1])

    @pytest.mark.parametrize("workers", [4, 51, 128])
    def test_a_server_saturates_at_its_knee(self, workers):
        costs = star(num_workers=workers, server=ServerCosts(update_ms=20.0))
        fixed = self.speed(np.ones((12_000 // workers, workers)), costs, 8000)
        assert fixed == pytest.approx(min(workers / 1.02, 50.0), rel=0.002)

    @pytest.mark.parametrize("workers", [16, 48, 64])
    def test_exponential_workers_at_a_fair_link_are_a_product_form_network(self, workers):
        """Mean value analysis: r = s (1 + q), x = k / (1 + r), q = x r. Processor sharing needs only means."""
        queue = speed = 0.0
        for count in range(1, workers + 1):
            seconds = 0.02 * (1 + queue)
            speed = count / (1 + seconds)
            queue = speed * seconds
        costs = Star(latency=(0.0,) * workers, gradient_bytes=0.02, server_rate=1.0, sharing="fair")
        draw = np.random.default_rng(0)
        for runtimes in (
            draw.exponential(1.0, (30_000 // workers, workers)),
            draw.gamma(4, 0.25, (30_000 // workers, workers)),
        ):
            assert self.speed(runtimes, costs, 15_000) == pytest.approx(speed, rel=0.02)

    def test_a_server_of_fixed_seconds_is_between_two_bounds(self):
        """M/D/1//N: faster than M/M/1//N, by its exact solution, and slower than without waiting."""
        workers = 48
        states = [1.0]  # p(n) / p(n - 1) = (N - n + 1) s
        for count in range(1, workers + 1):
            states.append(states[-1] * (workers - count + 1) * 0.02)
        exact = (1 - states[0] / sum(states)) * 50
        costs = star(num_workers=workers, server=ServerCosts(update_ms=20.0))
        found = self.speed(np.random.default_rng(0).exponential(1.0, (1200, workers)), costs, 30_000)
        assert exact < found < min(workers / 1.02, 50.0)
        assert found == pytest.approx(45.16, rel=0.02)  # by a simulation of the queue alone


COSTS = {
    "links": {
        "gradient_bytes": 1e9,
        "parameter_bytes": 2e9,
        "latency_ms": 3.0,
        "server": ServerCosts(100.0, 1.0, 20.0),
    },
    "own links": {"gradient_bytes": 1e9, "parameter_bytes": 1e9, "worker_gbits": 10.0, "server": ServerCosts(30.0)},
    "saturated": {"server": ServerCosts(update_ms=300.0)},
    "latency": {"latency_ms": 70.0},
    "fair": {"gradient_bytes": 1e9, "parameter_bytes": 1e9, "sharing": "fair", "server": ServerCosts(30.0)},
    "racks": {"gradient_bytes": 1e9, "parameter_bytes": 1e9, "worker_gbits": 50.0, "uplinks": Uplinks(2, 60.0)},
    "overlap": {"gradient_bytes": 1e9, "parameter_bytes": 1e9, "overlap": 0.5, "server": ServerCosts(30.0)},
}


@pytest.mark.parametrize("name", ["asynchronous", "synchronous"])
@check
@given(
    runtimes=RUNTIMES,
    costs=st.sampled_from(["links", "own links", "saturated", "latency"]),
    number=st.one_of(st.none(), st.integers(1, 30)),
)
def test_fast_programs_are_the_driver(name, runtimes, costs, number):
    costs = star(num_workers=runtimes.shape[1], **COSTS[costs])
    assert fast_star.program(SERVER_POLICIES[name], costs, None)
    rows = len(runtimes) if name == "synchronous" and number is None else None
    given = {"num_gradients": number, "transport": costs}
    try:
        expected = policies.simulate(SERVER_POLICIES[name], runtimes, num_updates=rows, **given)
    except protocols.NotEnoughRuntimes:
        with pytest.raises(protocols.NotEnoughRuntimes):
            getattr(protocols, name)(runtimes, **given)
        return
    found = getattr(protocols, name)(runtimes, **given)
    assert_equal(found, expected)
    for column in MORE:
        np.testing.assert_array_equal(getattr(found, column), getattr(expected, column), err_msg=column)


@pytest.mark.covering
@pytest.mark.parametrize("costs", COSTS)
@pytest.mark.parametrize("name", SERVER_POLICIES)
def test_policies_survive_whatever_fails(name, costs, tmp_path):
    """No policy stands still or is refused; schedules are right, files of them too, and more rows change nothing."""
    for seed, means in itertools.product(range(3), ("lose", "spot", "pause", "server")):
        runtimes = np.random.default_rng(seed).gamma(4, 0.25, (900, 8))
        hours = {"mean_up_hours": 12 / 3600, "seed": seed, "num_workers": 8}
        if means == "spot":
            make = functools.partial(spot, back_minutes=4 / 60, notice_seconds=1.0, rejoin_seconds=1.0, **hours)
        else:
            recovery = Recovery("pause" if means == "pause" else "lose", [0.0, 0.5, 3.0][seed], 1.0)
            make = functools.partial(
                independent, repair_minutes=4 / 60, recovery=recovery, server=means == "server", **hours
            )
        found = [
            policies.simulate(
                SERVER_POLICIES[name],
                times,
                num_updates=25,
                transport=star(num_workers=8, **COSTS[costs]),
                outages=make(),
            )
            for times in (runtimes, runtimes[:600])
        ]
        assert found[0].num_updates == 25
        assert_equal(*found)
        assert 0 <= found[0].goodput() <= 1
        assert ((found[0].busy_share() <= 1 + 1e-9) & (found[0].sending_share() >= 0)).all()
    found[0].save(tmp_path / "costly.npz")
    assert_equal(type(found[0]).load(tmp_path / "costly.npz"), found[0])


class TestRollback:
    def test_parameters_are_those_without_failures(self):
        runtimes = cluster.gamma(num_workers=4, num_gradients=200, seed=0)
        recovery = Recovery("rollback", interval_seconds=200.0, checkpoint_seconds=5.0, restart_seconds=20.0)
        outages = independent(num_workers=4, seed=0, mean_up_hours=1.0, repair_minutes=1.0, recovery=recovery)
        free, failed = protocols.asynchronous(runtimes), protocols.asynchronous(runtimes, outages=outages)
        for column in ("worker", "read", "update"):
            np.testing.assert_array_equal(getattr(failed, column), getattr(free, column))
        assert failed.wall_clock() > free.wall_clock()
        assert failed.goodput() == pytest.approx(free.goodput() * free.wall_clock() / failed.wall_clock(), rel=1e-3)

    def test_without_failures_only_checkpoints_cost(self):
        free = protocols.asynchronous(np.full((10, 1), 1.0))
        moved = rolled_back(free, iter(()), CheckpointCosts(interval_seconds=2.0, checkpoint_seconds=0.5))
        np.testing.assert_allclose(moved.applied[:, 0], [1, 2, 3.5, 4.5, 6, 7, 8.5, 9.5, 11, 12])

    def test_youngs_interval_is_the_best(self):
        """Exponential failures of mean M, checkpoints of C seconds: sqrt(2 C M), and Daly's exact goodput.

        The exact mean time of an interval of work I with its checkpoint, each failure costing a restart of R, is
        (M + R) (e^((I + C) / M) - 1).
        """
        cost, restart, mean = 60.0, 300.0, 3600.0
        work = protocols.asynchronous(np.full((20_000, 1), 100.0))
        young = math.sqrt(2 * cost * mean)
        goodputs = {}
        for share in (0.25, 0.5, 1.0, 2.0, 4.0):
            interval = share * young
            outages = independent(num_workers=1, seed=1, mean_up_hours=mean / 3600, repair_minutes=0.0, spread=0.0)
            costs = CheckpointCosts(interval_seconds=interval, checkpoint_seconds=cost, restart_seconds=restart)
            goodputs[share] = work.wall_clock() / rolled_back(work, outages.of_job(), costs).wall_clock()
            # Failures during a restart do not count: `up` is at once, and the next failure is drawn from there.
            exact = interval / ((mean + restart) * (math.exp((interval + cost) / mean) - 1))
            assert goodputs[share] == pytest.approx(exact, rel=0.05)
        assert max(goodputs, key=goodputs.get) == 1.0

    def test_a_job_that_never_reaches_its_checkpoint_is_refused(self):
        free = protocols.asynchronous(np.full((10, 1), 1.0))
        failures = ((float(when), float(when)) for when in itertools.count(1))
        with pytest.raises(ValueError, match=r"^interval_seconds=2 must be less: 100,000 failures"):
            rolled_back(free, failures, CheckpointCosts(interval_seconds=2.0))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"transport": star(num_workers=3)}, "transport of 3 workers must be of 2"),
        ({"outages": independent(num_workers=4, seed=0)}, "outages of 4 workers must be of 2"),
    ],
)
def test_another_number_of_workers_is_refused(given, words):
    for protocol in (protocols.asynchronous, functools.partial(policies.simulate, policies.asynchronous)):
        with pytest.raises(ValueError, match=f"^{words}"):
            protocol(np.ones((4, 2)), **given)


class TestPeers:
    """Nodes without a server: a message for each edge."""

    def test_a_pair_by_hand(self):
        """Both average each other before every gradient but the first: 1 s out, 0.5 s latency and 1 s in."""
        costs = Star(latency=(0.5, 0.5), parameter_bytes=2.0, worker_rate=2.0)
        made = protocols.gossip(np.array([[1.0, 4.0]] * 6), kind="pull", seed=0, num_gradients=6, transport=costs)
        of_first = made.started[made.node == 0]
        np.testing.assert_array_equal(of_first[:3], [0.0, 1.0 + 2.5, 1.0 + 2.5 + 1.0 + 2.5])
        np.testing.assert_allclose(made.finished - made.started, np.where(made.node == 0, 1.0, 4.0))

    def test_a_node_that_is_asked_by_all_sends_one_after_the_other(self):
        costs = Star(latency=(0.0,) * 4, parameter_bytes=1.0, worker_rate=1.0)
        made = protocols.d_psgd(np.ones((4, 4)), graph="complete", num_gradients=12, transport=costs)
        starts = made.started[made.node == 0]
        np.testing.assert_array_equal(starts[:2], [0.0, 1.0])  # before the first round all have the same parameters
        assert starts[2] >= 2.0 + 3.0  # three messages into each link

    @pytest.mark.parametrize("name", ["gossip", "d_psgd", "ad_psgd", "sgp", "elastic_averaging"])
    def test_free_messages_change_nothing(self, name):
        runtimes = np.random.default_rng(0).gamma(4, 1.0, (40, 6))
        own = {"seed": 0} if "seed" in PROTOCOLS[name].given else {}
        free, same = (
            getattr(protocols, name)(runtimes, num_gradients=60, transport=costs, **own)
            for costs in (None, star(num_workers=6, worker_gbits=1.0))
        )
        slow = getattr(protocols, name)(
            runtimes, num_gradients=60, transport=star(num_workers=6, latency_ms=100.0), **own
        )
        for column in ("node", "started", "finished", "source", "source_version", "weight"):
            np.testing.assert_array_equal(getattr(free, column), getattr(same, column))
        assert slow.wall_clock() > free.wall_clock()
        assert slow.idle_share().mean() > free.idle_share().mean()

    def test_failures_and_all_reduces_are_refused(self):
        with pytest.raises(ValueError, match=r"^outages must be left out with gossip: its nodes have no server"):
            protocols.gossip(np.ones((4, 2)), seed=0, outages=independent(num_workers=2, seed=0))
        with pytest.raises(ValueError, match=r"^transport must be a star, and no all-reduce"):
            protocols.gossip(np.ones((4, 2)), seed=0, transport=all_reduce(num_workers=2, gradient_bytes=1e9))
