"""Runs on processes whose workers differ: in their steps, what they keep, or their examples. Each replays exactly."""

import numpy as np
import pytest
from lib import tiny
from lib.rehearsal import workers_of

from sgdlab import runs
from sgdlab.errors import Stopped, UsageError
from sgdlab.runs import recorded
from sgdlab.runs.tasks import batches_of
from sgdlab.runs.train import train

RUNS = {
    "other steps": {
        "method": "async_diloco",
        "local__keep_state": False,
        "local__steps": 4,
        "cluster__gamma__heterogeneous": True,
    },
    "a state": {"method": "streaming_diloco", "local__steps": 2, "cluster__gamma__heterogeneous": True},
    "own examples": {"method": "asgd", "heterogeneity__alpha": 0.1},
}


@pytest.mark.sample(1)
@pytest.mark.parametrize("differ", RUNS)
def test_a_run_on_processes_replays_to_the_bit(differ, tmp_path):
    """Some workers fail, and the server is started again."""
    config = tiny.config(**RUNS[differ], average_decay=None)
    job = runs.live.make_job(config, emulate=0.01)
    experiment = job.plan.experiment
    assert (len(set(experiment.steps.tolist())) > 1) == experiment.local.by_speed == (differ == "other steps")
    assert (job.sent_like is not None) == (differ == "a state")
    asked = iter([False] * 12)
    with pytest.raises(Stopped):
        runs.live_run.execute(job, workers_of(job), folder=tmp_path, stop=lambda: next(asked, True))
    if job.sent_like is None:  # all gradients are computed again, as each worker has computed them
        for checkpoint in tmp_path.glob("checkpoint-*.npz"):
            checkpoint.unlink()
    job, seen = runs.live.make_job(config, emulate=0.01), []
    run, recording = runs.live_run.execute(job, workers_of(job), folder=tmp_path, watch=seen.append)
    assert seen[-1].unit == ("gradient" if differ == "own examples" else "message")
    plan = recorded.plan_of(config, recording)
    again = train(recorded.repeated(plan, recording))
    ours, theirs = (runs.train.leaves(result.params) for result in (run.result, again.result))
    assert recorded.largest_difference(ours, theirs) == 0.0
    assert run.records[-1]["gradients"] >= job.plan.num_gradients
    if shares := experiment.data.shares:  # the batch of a ticket is its worker's own
        batches, counts = batches_of(plan, 64), shares.counts(experiment.data.dataset.train.labels)
        for row, worker in enumerate(plan.program.worker[: plan.program.num_rows]):
            assert (counts[worker, np.asarray(batches(np.int32(row)).targets)] > 0).all()


@pytest.mark.parametrize(("family", "kind"), [("transport", "star"), ("failures", "independent")])
def test_what_is_real_is_not_simulated(family, kind):
    config = tiny.config(method="asgd", **{f"{family}__kind": kind})
    with pytest.raises(UsageError, match=rf"^--config\.{family}\.kind={kind} must be left out on real processes"):
        runs.live.make_job(config)
