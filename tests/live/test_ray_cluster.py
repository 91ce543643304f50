"""What of Ray's transport needs no Ray."""

import sys

import pytest

from sgdlab.live import ray as transports
from sgdlab.live import ray_cluster


def test_without_ray_it_is_said_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ValueError, match=r"pip install 'sgdlab\[ray\]'"):
        ray_cluster.imported(local=True)


def test_workers_get_the_settings_on_which_bits_depend(monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "--xla_dump_to=there")
    monkeypatch.setenv("PYTHONPATH", "here")
    monkeypatch.setenv("SECRET", "1")
    names = transports._environment(64, None, {"OWN": "2"}, local=True)
    assert names["JAX_PLATFORMS"] == "cpu"
    assert names["JAX_ENABLE_X64"] in ("True", "False")
    assert names["XLA_FLAGS"] == "--xla_dump_to=there --xla_cpu_multi_thread_eigen=false"
    assert names["PYTHONPATH"].endswith(":here")
    assert names["OWN"] == "2"
    assert "SECRET" not in names
    # The folders of this machine mean nothing on others.
    assert "PYTHONPATH" not in transports._environment(64, None, {}, local=False)


@pytest.mark.parametrize(("gpus", "share"), [(2, None), (1, None), (0.25, 0.9 / 4)])
def test_workers_share_the_memory_of_a_gpu(gpus, share):
    names = transports._environment(4, gpus, {}, local=False)
    assert names["JAX_PLATFORMS"] == "cuda,cpu"
    assert "CUDA_VISIBLE_DEVICES" not in names
    assert names.get("XLA_PYTHON_CLIENT_MEM_FRACTION") == (None if share is None else f"{share:.3f}")


def test_of_a_death_the_detail_is_kept_and_the_speculation_left_out():
    text = "The actor died.\nWorker exit detail: it is gone. Some common causes include: (1) this (2) that."
    assert transports._detail(RuntimeError(text)) == "it is gone."
    assert transports._detail(RuntimeError("first\nsecond")) == "RuntimeError: first"
