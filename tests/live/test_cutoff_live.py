"""Cutoff live: what its predictor is told where the server is killed, and workers are lost or never there."""

import dataclasses

import numpy as np
import pytest
from lib.rehearsal import Fault, Rehearsal
from rehearsing import QUICK, compute, opened, rehearse, until_killed

from sgdlab import policies, predictors


class Told(predictors.RunningMean):
    """A running mean that says what it was told of each round, when it made its newest prediction."""

    def start(self, window, *, seed):
        return super().start(window, seed=seed), window.tolist()

    def observe(self, state, runtimes, cut_at):
        return super().observe(state[0], runtimes, cut_at), [*state[1], runtimes.tolist()]

    def predict(self, state, *, rate=None):
        self.rounds = state[1]
        return super().predict(state[0], rate=rate)


def make(num_workers):
    return policies.cutoff(num_workers=num_workers, predictor=Told(window=3, at_least=0.0), window=2)


def test_all_begin_the_first_round_after_the_server_was_killed(tmp_path):
    """Workers 0, 1 and 2 take 1, 2 and 8 s: the predictor waits for two of them, also after the server's death."""
    runtimes = np.array([[1.0, 2.0, 8.0]])
    rehearse(make, runtimes, num_gradients=12, log=opened(tmp_path / "whole"))
    lines = (tmp_path / "whole" / "log.jsonl").read_bytes().splitlines()
    came = [place for place, line in enumerate(lines) if b'"came"' in line]
    until_killed(tmp_path / "killed", came[6] + 1, tmp_path / "whole")  # worker 0 has come in the third round
    recording, _, _, policy = rehearse(make, runtimes, num_gradients=12, log=opened(tmp_path / "killed"))
    sizes = np.bincount(recording.schedule.update[recording.schedule.used()])
    assert sizes.tolist() == [3, 3, 1, 2, 2, 2]
    # Those lost in the third round had not come when worker 0 had. In the fourth, worker 2 joined after the others,
    # and was not heard of: it is left out. The last ends the run.
    np.testing.assert_array_equal(policy.predictor.rounds, [[1, 2, 8], [1, 2, 8], [1, np.nan, np.nan], [1, 2, np.nan]])


def test_a_worker_that_never_joins_does_not_put_the_prediction_off():
    """The other two take 1 and 4 s: updates of the first alone are right, once it is known that nobody else comes."""
    runtimes, settings = np.array([[1.0, 4.0, 1.0]]), dataclasses.replace(QUICK, min_workers=1)
    faults = [Fault("doomed", 2, 0.0, 1e6)]
    recording, _, _, policy = rehearse(make, runtimes, num_gradients=20, faults=faults, settings=settings)
    sizes = np.bincount(recording.schedule.update[recording.schedule.used()])
    assert sizes[:2].tolist() == [2, 2]
    assert set(sizes[4:].tolist()) == {1}
    assert policy.predictor.rounds[:2] == [[1.0, 4.0, 4.0]] * 2


@pytest.mark.parametrize("has_it", [True, False])
def test_the_predictor_compiles_before_a_worker_is_started_and_no_policy_has_to(has_it):
    runtimes, told = np.array([[1.0, 2.0]]), []
    transport = Rehearsal(runtimes, compute)

    class Compiling:
        """A policy around another one."""

        def __init__(self, num_workers):
            self.inner = make(num_workers)

        def __getattr__(self, name):
            if name != "warm":
                return getattr(self.inner, name)
            if not has_it:
                raise AttributeError(name)
            return lambda: told.append(list(transport.told))

    recording, *_ = rehearse(Compiling, runtimes, num_gradients=8, transport=transport)
    assert told == [[]] * has_it
    assert recording.ledger()["applied"] >= 8
