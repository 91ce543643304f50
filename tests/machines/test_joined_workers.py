"""Workers of three machines that join one server by TLS: a machine is killed, one is parted, the server restarts."""

import os
import pathlib
import shutil
import signal
import sys
import time

import pytest

from experiments.benchmarks.faults.namespaces import Machines, why_not
from experiments.benchmarks.faults.nodes import certify

ROOT = pathlib.Path(__file__).parents[2]
SERVE = """
import functools, sys
import joined_loops, numpy as np, own_works
from jax.tree import leaves
from sgdlab import live, policies, predictors, rules

policies_of = {{
    "asynchronous": policies.asynchronous,
    "backup_workers": functools.partial(policies.backup_workers, backups=1),
    "cutoff": functools.partial(policies.cutoff, predictor=predictors.RunningMean(window=4), window=4),
}}
if __name__ == "__main__":
    rule = rules.gap_aware(learning_rate=0.05, momentum=0.5)
    server = live.LiveServer(
        {work}, policy=policies_of[{policy!r}], rule=rule, num_workers=3, num_gradients={count},
        workdir="run", endpoint=live.Endpoint("{address}:8476", certificate="server.pem", key="server.key"),
        settings=live.LiveSettings(least_patience=4.0, join_seconds=20.0, wait_seconds=90.0, checkpoint_seconds=1.0),
    )
    done = server.run()
    again = live.replay({work}, done.recording, rule=rule)
    fates = done.recording.ledger()
    assert fates["begun"] == sum(count for fate, count in fates.items() if fate != "begun"), fates
    apart = max(np.abs(a - b).max() for a, b in zip(leaves(again), leaves(done.params), strict=True))
    print("replayed to", apart, fates, flush=True)
"""
WORK = """
import sys, time
import joined_loops, own_works
from sgdlab import live

gradient = {work}(0)[1]
with live.join(sys.argv[1] + ":8476", certificate="server.pem") as worker:
    for ticket, params in worker:
        time.sleep(0.05)
        worker.send(*gradient(params, ticket))
print("ended", flush=True)
"""

pytestmark = [
    pytest.mark.machines,
    pytest.mark.long("one run over three machines"),
    pytest.mark.skipif(
        bool(why_not()) or shutil.which("openssl") is None, reason=f"no machines can be made: {why_not() or 'openssl'}"
    ),
]


@pytest.mark.parametrize("policy", ["asynchronous", "backup_workers", "cutoff"])
@pytest.mark.parametrize("work", ["own_works.steady", "joined_loops.of_torch", "joined_loops.of_jax"])
def test_a_machine_is_killed_another_parted_and_the_server_restarted(work, policy, tmp_path, monkeypatch):
    pytest.importorskip("grpc")
    if "torch" in work:
        pytest.importorskip("torch", reason="PyTorch is not installed: install its CPU build to run this")
    monkeypatch.chdir(tmp_path)
    with Machines(3, tmp_path) as machines:
        address = machines.address("node1")
        certify(tmp_path, address)
        (tmp_path / "serve.py").write_text(SERVE.format(work=work, policy=policy, count=1200, address=address))
        (tmp_path / "work.py").write_text(WORK.format(work=work))
        env = {
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests/live"), *sys.path]),
            "JAX_PLATFORMS": "cpu",
            "SGDLAB_TOKEN": "a-token-of-this-test-alone",
        }
        begin = lambda name, *command: machines.start(name, [sys.executable, *command], **env)
        server = begin("node1", "serve.py")
        workers = {name: begin(name, "work.py", address) for name in machines.names}
        machines.wait_for(server, "the workers are there")
        machines.limit("node2", 5.0)
        time.sleep(5.0)
        machines.kill("node3")
        time.sleep(3.0)
        workers["node3"] = begin("node3", "work.py", address)  # joins late
        machines.cut("node2")
        time.sleep(10.0)
        machines.heal("node2")
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()
        server = begin("node1", "serve.py")
        assert server.wait(timeout=300) == 0, machines.log(server)
        assert "replayed to 0.0 " in machines.log(server)
        for name, worker in workers.items():
            assert worker.wait(timeout=60) == 0, machines.log(worker)
            assert "ended" in machines.log(worker), name
