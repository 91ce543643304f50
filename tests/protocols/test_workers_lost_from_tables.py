"""Ringleader ASGD and Malenia SGD event by event: by hand, and when workers are lost or join; nobody waits for ever."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from lib.events import Driver

from sgdlab import policies, rules
from sgdlab.policies import Begin, Close, Drop, Interrupt, Take


def ringleader(workers=3, **own):
    return Driver(policies.ringleader(num_workers=workers, **own), range(workers))


class TestRingleader:
    def test_a_round_by_hand(self):
        """Three workers; worker 0 is fast, and comes twice before worker 2 has come once."""
        run = ringleader()
        assert run.come(0) == [Take(0, 0), Begin(0, 0)]
        assert run.come(1) == [Take(1, 0), Begin(1, 0)]
        assert run.come(0) == [Take(0, 0), Begin(0, 0)]
        assert run.come(2) == [Take(2, 0), Close(0), Begin(2, 1)]  # everybody is there
        assert run.come(0) == [Take(0, 1), Close(1), Begin(0, 2)]
        assert run.come(2) == [Take(2, 2), Begin(2, 1)]  # it has had its update: for the next round
        assert run.come(0) == [Take(0, 2), Begin(0, 2)]
        assert run.come(1) == [Take(1, 2), Close(2), Begin(1, 3)]  # the round is over, and two are there already
        assert run.come(0) == [Take(0, 3), Begin(0, 2)]
        assert run.come(1) == [Take(1, 3), Close(3), Begin(1, 4)]
        assert run.updates == [[0, 1, 0, 2], [0], [2, 0, 1], [0, 1]]

    def test_the_newest_version_as_in_the_authors_code(self):
        run = ringleader(points="newest")
        for worker in (0, 1):
            run.come(worker)
        assert run.come(2) == [Take(2, 0), Close(0), Begin(2, 1)]
        assert run.come(0) == [Take(0, 1), Close(1), Begin(0, 2)]
        assert run.come(2) == [Take(2, 2), Begin(2, 2)]
        assert run.policy.held() == set()

    def test_it_holds_the_versions_that_workers_compute_on(self):
        run = ringleader()
        for worker in (0, 1, 2, 0):
            run.come(worker)
        assert run.policy.held() == {0, 1, 2}
        run.come(1)
        assert run.policy.held() == {1, 2, 3}

    def test_a_worker_lost_while_gradients_are_collected(self):
        run = ringleader()
        run.come(0)
        run.come(1)
        assert run.lose(2) == []
        assert run.come(0) == [Take(0, 0), Close(0), Begin(0, 1)]  # the next one closes
        assert run.come(1) == [Take(1, 1), Close(1), Begin(1, 2)]
        assert run.come(1) == [Take(1, 2), Begin(1, 2)]
        assert run.come(0) == [Take(0, 2), Close(2), Begin(0, 3)]

    def test_a_worker_lost_before_its_update(self):
        run = ringleader()
        for worker in (0, 1, 2, 0):
            run.come(worker)
        assert run.lose(1) == []  # the round is over
        assert run.come(0) == [Take(0, 2), Begin(0, 2)]
        assert run.come(2) == [Take(2, 2), Close(2), Begin(2, 3)]

    def test_all_but_one_lost(self):
        run = ringleader()
        for worker in (0, 1, 2):
            run.come(worker)
        run.lose(0)
        run.lose(1)
        for update in (1, 2, 3):
            assert run.come(2) == [Take(2, update), Close(update), Begin(2, update + 1)]

    def test_who_joins_while_gradients_are_collected_is_waited_for(self):
        run = ringleader(workers=2)
        run.come(0)
        assert run.join(2) == [Begin(2, 0)]
        assert run.come(1) == [Take(1, 0), Begin(1, 0)]
        assert run.come(2) == [Take(2, 0), Close(0), Begin(2, 1)]
        assert run.policy.waiting == {0, 1}

    def test_who_joins_later_is_of_the_next_round(self):
        run = ringleader(workers=2)
        run.come(0)
        run.come(1)
        assert run.join(2) == [Begin(2, 1)]
        assert run.come(2) == [Take(2, 1), Begin(2, 1)]
        assert run.come(0) == [Take(0, 1), Close(1), Begin(0, 2)]
        assert run.come(0) == [Take(0, 2), Begin(0, 2)]
        assert run.come(1) == [Take(1, 2), Close(2), Begin(1, 3)]

    def test_the_rule_follows_rounds_that_workers_leave(self):
        """Worker 1 is lost before its update: what it had sent is in this round's mean, and not in the next one's."""
        run, rule, x = ringleader(), rules.ringleader(learning_rate=1.0, num_workers=4), jnp.zeros([])
        state, steps = rule.init(x), []
        absorb, update = jax.jit(rule.absorb), jax.jit(rule.update)

        def come(worker, gradient):
            nonlocal state
            delay = len(run.updates) - run.busy[worker] + 1
            state = absorb(jnp.array(gradient), state, x, worker=worker, delay=delay, read_params=x)
            if any(isinstance(action, Close) for action in run.come(worker)):
                step, state = update((), state, x)
                steps.append(-float(step))

        for worker, gradient in ((0, 1.0), (1, 10.0), (2, 4.0), (2, 6.0), (0, 3.0)):
            come(worker, gradient)
        run.lose(1)
        for worker, gradient in ((2, 8.0), (0, 5.0), (2, 9.0)):
            come(worker, gradient)
        # Rounds: {0: 1, 1: 10, 2: 4}, with worker 0's second gradient, 3; then {2: 6 and 8, 0: 5}, and 9 of worker 2.
        np.testing.assert_allclose(steps, [5.0, (2 + 10 + 4) / 3, (7 + 5) / 2, (23 / 3 + 5) / 2], rtol=1e-6)


def malenia(workers=3, **own):
    return Driver(policies.malenia(num_workers=workers, **own), range(workers))


class TestMalenia:
    def test_a_round_by_hand(self):
        run = malenia()
        for worker in (0, 1, 0):
            assert run.come(worker) == [Take(worker, 0), Begin(worker, 0)]
        assert run.come(2) == [Take(2, 0), Close(0), Begin(2, 1)]
        assert run.come(0) == [Drop(0), Begin(0, 1)]

    def test_the_harmonic_mean_must_be_above_the_bound(self):
        """Of (1, 1) it is 1, of (2, 1) it is 4 / 3, of (2, 2) it is 2: S / n = 1.5."""
        run = malenia(workers=2, collected=3.0)
        for worker in (0, 1, 0):
            assert run.come(worker) == [Take(worker, 0), Begin(worker, 0)]
        assert run.come(1) == [Take(1, 0), Close(0), Begin(1, 1)]
        run = malenia(workers=2, collected=2.0)  # above 1, not 1
        assert Close(0) not in run.come(0) + run.come(1)
        assert Close(0) in run.come(0)

    def test_workers_that_are_interrupted_begin_anew(self):
        run = malenia(interrupt=True)
        run.come(1)
        run.come(0)
        assert run.come(2) == [
            Take(2, 0),
            *(Interrupt(0), Interrupt(1)),
            Close(0),
            *(Begin(0, 1), Begin(1, 1), Begin(2, 1)),
        ]

    @pytest.mark.parametrize("came", [False, True])
    def test_a_worker_that_is_lost_is_waited_for_no_more(self, came):
        run = malenia()
        if came:
            run.come(2)  # and its gradient stays in the update
        run.come(0)
        run.lose(2)
        assert run.come(1) == [Take(1, 0), Close(0), Begin(1, 1)]

    def test_who_joins_is_waited_for(self):
        run = malenia(workers=2)
        run.come(0)
        assert run.join(2) == [Begin(2, 0)]
        assert Close(0) not in run.come(1)
        assert Close(0) in run.come(2)
