"""Runs on processes whose workers differ: in their steps, what they keep, or their examples. Each replays exactly."""

import numpy as np
import pytest
from lib import tiny
from lib.rehearsal import workers_of

from sgdlab import policies, runs
from sgdlab.errors import Stopped, UsageError
from sgdlab.live import snapshot
from sgdlab.live.engine import Taken, Updated
from sgdlab.runs import live_run, recorded
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


@pytest.mark.parametrize(("entry", "value"), [("until_target", True), ("spacing", "geometric")])
def test_what_ends_or_evaluates_only_a_simulated_run_is_refused(entry, value):
    config = tiny.config(method="asgd", target=0.5, **{entry: value})
    with pytest.raises(UsageError, match=rf"^--config\.{entry}={value} must be left out on real processes"):
        runs.live.make_job(config)


@pytest.mark.parametrize("killed", [7, 8, 9, 29])
def test_evaluations_go_on_as_if_the_server_had_not_ended(killed):
    """Means over the gradients since the evaluation before are of gradients that another process was told of."""
    job = runs.live.make_job(tiny.config(method="asgd"))
    every = -(-job.plan.num_gradients // job.plan.experiment.reporting.evaluations)
    drawn = np.random.default_rng(0).random(4 * every)
    updates = [
        Updated(number, number, float(number), (Taken(number - 1, 0, number % 5, loss),), True)
        for number, loss in enumerate(drawn.tolist(), 1)
    ]
    killed = killed * every // 8
    alone, parts = [], []
    with live_run.Evaluations(job, job.steps(), (), alone.append) as evaluations:
        for update in updates:
            evaluations(update)
            evaluations.collect(wait=True)
    with live_run.Evaluations(job, job.steps(), (), parts.append) as evaluations:
        for update in updates[:killed]:
            evaluations(update)
            evaluations.collect(wait=True)
        policy = policies.asynchronous(num_workers=1)
        state = snapshot.taken(policy, evaluations.state())
        before = list(parts)
        for update in updates[killed : killed + every]:  # it goes on, and none of this is in the checkpoint
            evaluations(update)
            evaluations.collect(wait=True)
        ended = list(parts)
    for known in (before, ended):
        parts.clear()
        with live_run.Evaluations(job, job.steps(), known, parts.append) as evaluations:
            evaluations.go_on(snapshot.put(state, policy))
            for update in updates[killed:]:
                evaluations(update)
                evaluations.collect(wait=True)
        assert len(alone) == 5
        for one, other in zip(alone, parts, strict=True):
            assert one | {"evaluation_seconds": 0.0} == other | {"evaluation_seconds": 0.0}
        assert known is ended or len(evaluations.state()["loss"]) == 0
