"""`simulate` tells a policy what happens, and refuses what a policy cannot do."""

import numpy as np
import pytest

from sgdlab import policies


class Waiting(policies.Base):
    """Lets nobody begin again."""

    def arrival(self, now, worker, version, seconds):
        return [policies.Take(worker, self.version), self.close()]


class TestSimulate:
    def test_a_policy_is_told_run_times_that_the_clock_would_round(self):
        told = []

        class Listening(policies.Softsync):
            def arrival(self, now, worker, version, seconds):
                told.append((now, worker, version, seconds))
                return super().arrival(now, worker, version, seconds)

        runtimes = np.array([[0.1], [0.2], [0.3]])
        policies.simulate(lambda num_workers: Listening(), runtimes, num_gradients=3)
        assert told == [(0.1, 0, 0, 0.1), (0.1 + 0.2, 0, 1, 0.2), (0.1 + 0.2 + 0.3, 0, 2, 0.3)]

    def test_a_policy_that_lets_all_wait_is_named(self):
        with pytest.raises(ValueError, match=r"^policy=Waiting lets all workers wait after 2 gradients in 2 updates"):
            policies.simulate(lambda num_workers: Waiting(), np.ones((5, 2)), num_gradients=3)

    @pytest.mark.parametrize(
        ("answer", "words"),
        [
            ([], "neither takes nor drops the gradient of worker 0 at 1 s"),
            ([policies.Take(1, 0)], r"answers Take\(worker=1, update=0\) at 1 s, when workers \[0, 1\] are computing"),
            ([policies.Take(0, 1)], r"answers Take\(worker=0, update=1\)"),
            ([policies.Drop(0), policies.Close(0)], r"answers Close\(update=0\)"),
            ([policies.Take(0, 0), policies.Close(1)], r"answers Close\(update=1\)"),
            ([policies.Drop(0), policies.Begin(1, 0)], r"answers Begin\(worker=1, version=0\)"),
            ([policies.Drop(0), policies.Begin(0, 1)], r"answers Begin\(worker=0, version=1\)"),
            ([policies.Drop(0), policies.Interrupt(0)], r"answers Interrupt\(worker=0\)"),
            (["begin"], "answers 'begin'; it must be one of the actions"),
        ],
    )
    def test_an_impossible_answer_is_named(self, answer, words):
        class Wrong(policies.Base):
            def arrival(self, now, worker, version, seconds):
                return answer

        with pytest.raises(ValueError, match=f"^policy=Wrong {words}"):
            policies.simulate(lambda num_workers: Wrong(), np.ones((5, 2)), num_gradients=3)

    @pytest.mark.parametrize(("name", "value"), [("num_gradients", 0), ("num_updates", 1.0)])
    def test_a_number_that_is_none_is_refused(self, name, value):
        with pytest.raises(ValueError, match=f"^{name}={value!r} must be a whole number of at least 1"):
            policies.simulate(policies.asynchronous, np.ones((2, 2)), **{name: value})
