"""Test what of Ray's transport needs no Ray."""

import os
import sys
import types

import pytest

from sgdlab.live import environment, ray_cluster
from sgdlab.live import ray as transports
from sgdlab.live.work import WorkSource


def test_without_ray_it_is_said_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ValueError, match=r"pip install 'sgdlab\[ray\]'"):
        ray_cluster.imported(local=True)


def test_workers_get_the_settings_on_which_bits_depend(monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "--xla_dump_to=there")
    monkeypatch.setenv("PYTHONPATH", "here")
    monkeypatch.setenv("SECRET", "1")
    names = environment.for_actors(64, None, {"OWN": "2"}, cores=127, local=True)
    assert names["JAX_PLATFORMS"] == "cpu"
    assert names["JAX_ENABLE_X64"] in ("True", "False")
    assert names["XLA_FLAGS"] == "--xla_dump_to=there --xla_cpu_multi_thread_eigen=false"
    assert names["PYTHONPATH"].endswith(":here")
    assert names["OWN"] == "2"
    assert "SECRET" not in names
    # The folders of this machine mean nothing on others.
    elsewhere = environment.for_actors(64, None, {}, cores=128, local=False)
    assert "PYTHONPATH" not in elsewhere
    # Two cores a worker, on all nodes together: each may use several.
    assert elsewhere["XLA_FLAGS"] == "--xla_dump_to=there"


@pytest.mark.parametrize(("gpus", "share"), [(2, None), (1, None), (0.25, 0.9 / 4)])
def test_workers_share_the_memory_of_a_gpu(gpus, share):
    names = environment.for_actors(4, gpus, {}, cores=None, local=False)
    assert names["JAX_PLATFORMS"] == "cuda,cpu"
    assert "CUDA_VISIBLE_DEVICES" not in names
    assert names.get("XLA_PYTHON_CLIENT_MEM_FRACTION") == (None if share is None else f"{share:.3f}")


def test_a_share_of_a_gpu_is_refused_as_elsewhere():
    source = WorkSource("process_works:plus", {})
    with pytest.raises(ValueError, match=r"^gpus_per_worker=0\.3 must be a whole number, or 1 over one"):
        transports.Ray(source, {}, {}, num_workers=1, gpus_per_worker=0.3)


def test_cores_are_those_of_all_nodes():
    cluster = object.__new__(ray_cluster.Cluster)
    resources = {"CPU": 48.0, "memory": 1e9}
    cluster.local, cluster.ray = False, types.SimpleNamespace(cluster_resources=lambda: resources)
    assert cluster.cores == 48
    del resources["CPU"]
    assert cluster.cores == float("inf")
    cluster.local = True
    assert cluster.cores is None


def test_only_this_user_can_use_a_cluster_of_this_machine(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN"):
        monkeypatch.setenv(name, "")  # and it is put back
        monkeypatch.delenv(name)
    with pytest.raises(ValueError, match="Ray"):
        ray_cluster.imported(local=False)
    assert "RAY_AUTH_MODE" not in os.environ
    with pytest.raises(ValueError, match="Ray"):
        ray_cluster.imported(local=True)
    assert os.environ["RAY_AUTH_MODE"] == "token"
    assert len(os.environ["RAY_AUTH_TOKEN"]) == 64


def test_of_a_death_the_detail_is_kept_and_the_speculation_left_out():
    text = "The actor died.\nWorker exit detail: it is gone. Some common causes include: (1) this (2) that."
    assert transports._detail(RuntimeError(text)) == "it is gone."
    assert transports._detail(RuntimeError("first\nsecond")) == "RuntimeError: first"
