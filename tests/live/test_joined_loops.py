"""Processes of PyTorch, and of JAX, join a run by gRPC: one is killed, one comes late; replayed to the bit."""

import functools
import subprocess

import joined_loops
import pytest
from joining import HERE, TOKEN, come_late, kill_one, started
from test_joined_runs import SETTINGS, ended
from test_own_loop import difference

from sgdlab import live, policies, predictors, rules

pytest.importorskip("grpc")
POLICIES = {
    "asynchronous": policies.asynchronous,
    "backup_workers": functools.partial(policies.backup_workers, backups=1),
    "cutoff": functools.partial(policies.cutoff, predictor=predictors.RunningMean(window=4), window=4),
}


@pytest.mark.integrations
@pytest.mark.long("workers are processes that import PyTorch or JAX")
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("work", ["of_torch", "of_jax"])
def test_one_is_killed_one_comes_late_and_it_replays(work, policy, tmp_path):
    if work == "of_torch":
        pytest.importorskip("torch", reason="PyTorch is not installed: install its CPU build to run this")
    begin = functools.partial(started, HERE / "joined_loops.py", work, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    rule = rules.gap_aware(learning_rate=0.05, momentum=0.5)
    processes, killed, losses = [], [], []

    def on_update(updates, params):
        if len(losses) == 10:
            killed.append(kill_one(server, processes))
        if len(losses) == 15:
            processes.append(come_late(server, lambda: begin(server.address, text=True)))
        losses.append(updates)

    server = live.LiveServer(
        getattr(joined_loops, work), policy=POLICIES[policy], rule=rule, num_workers=4, num_gradients=300,
        workdir=tmp_path / "run", endpoint=live.Endpoint(token=TOKEN), settings=SETTINGS, on_update=on_update,
    )  # fmt: skip
    processes += [begin(server.address, text=True) for _ in range(3)]
    params, recording = server.run()
    killed[0].communicate()
    assert all(int(out.split()[-1]) > 0 for out in ended(processes))
    assert recording.ledger()["lost"] >= 1
    assert difference(live.replay(getattr(joined_loops, work), recording, rule=rule), params) == 0.0
    used = recording.loss[recording.schedule.used()[:, 0]]
    assert used[-50:].mean() < 0.8 * used[:50].mean()  # and it has learnt something
