"""Test what of Ray's transport needs no Ray."""

import os
import socket
import sys
import types

import pytest

from sgdlab.errors import HostLost
from sgdlab.live import environment, ray_cluster
from sgdlab.live import ray as transports
from sgdlab.live.messages import Joined
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


@pytest.mark.parametrize(
    ("kind", "text", "words"),
    [  # as Ray 2.60 says them
        (
            "ActorDiedError",
            "The actor died unexpectedly before finishing this task.\n\tpid: 7\nThe actor is dead because its worker "
            "process has died. Worker exit type: SYSTEM_ERROR Worker exit detail: Worker unexpectedly exits with a "
            "connection error code 2. End of file. Some common causes include: (1) this (2) that.",
            "its process has ended without a message (killed?)",
        ),
        (
            "ActorDiedError",
            "The actor died.\nWorker exit detail: it is gone. Some common causes include: (1) this (2) that.",
            "its process has ended (it is gone)",
        ),
        ("ActorDiedError", "The actor died because its node has died. Node Id: 4f", "its node counts as lost"),
        (
            "ActorUnavailableError",
            "The actor 7f84 is unavailable: The actor is temporarily unavailable: RpcError: RPC error: Socket closed "
            "rpc_code: 14. The task may or may not have been executed on the actor.",
            "it cannot be reached: its process, its node or the network between has failed",
        ),
        ("RayError", "first\nsecond", "it is lost (RayError: first)"),
    ],
)
def test_a_lost_worker_has_few_words_and_none_of_an_end_that_nobody_knows(kind, text, words):
    error = type(kind, (Exception,), {})(text)
    assert transports._words(error) == words


class _Joining(transports.Ray):
    """Workers whose hosts are told, on a cluster of three nodes."""

    def __init__(self, num_workers):
        self._num_workers, self._workers, self._named, self.said = num_workers, {}, set(), []
        self._say = self.said.append
        self._cluster = types.SimpleNamespace(nodes=lambda: {"node1", "node2", "node3"})

    def joins(self, worker, host, unlogged=""):
        of = self._workers[worker] = transports._Worker(None, None)
        of.joined, of.unlogged = Joined(worker, 7, host), unlogged
        self._name_nodes(of)


def test_nodes_without_a_worker_are_named_when_all_are_there_and_each_once():
    joining = _Joining(3)
    joining.joins(0, "node1")
    joining.joins(1, "node1")
    assert joining.said == []
    joining.joins(2, "node2")
    assert joining.said == ["node3: no worker"]
    joining.joins(2, "node1")  # as after a loss
    joining.joins(1, "node1")
    assert joining.said == ["node3: no worker", "node2: no worker"]


def test_a_node_that_cannot_write_the_work_directory_is_named_once():
    joining = _Joining(4)
    for worker in (0, 1):
        joining.joins(worker, "node3", "/shared/logs cannot be written (Read-only file system)")
    (line,) = joining.said
    assert line == (
        "node3: /shared/logs cannot be written (Read-only file system); what its workers print is in Ray's own logs"
    )


class _Placing(transports.Ray):
    """Workers without a cluster, which remember where they were placed."""

    def __init__(self, nodes, gpus_per_worker=None):
        self._workers, self._failed, self._calls, self._said = {}, {}, {}, []
        self._gpus_per_worker, self._ray = gpus_per_worker, types.SimpleNamespace(kill=lambda *told, **given: None)
        head = types.SimpleNamespace(lost="")
        self._cluster = types.SimpleNamespace(places=lambda: nodes, at=str.upper, head=head)
        self._remote = self.options("anywhere")

    def options(self, scheduling_strategy):
        return types.SimpleNamespace(remote=lambda worker: scheduling_strategy, options=self.options)

    def place(self, *workers):
        for worker in workers:
            self._workers[worker] = self._placed(worker)
        return [self._workers[worker].actor for worker in workers]


def test_a_worker_comes_to_the_node_with_the_fewest_but_to_none_that_has_just_failed(monkeypatch):
    nodes = ["a", "b", "c"]
    placing = _Placing(nodes)
    assert placing.place(0, 1, 2, 3, 4, 5) == ["A", "B", "C", "A", "B", "C"]
    placing._forget(4)  # its process has ended, and nothing is wrong with its node
    assert placing.place(4) == ["B"]
    placing.kill(1)  # it was silent
    placing.kill(4)
    assert placing.place(1, 4) == ["A", "C"]
    nodes.remove("a")  # what is left is b, which has failed, and c
    assert placing.place(0) == ["C"]
    monkeypatch.setattr(transports, "_AVOIDED", 0.0)
    assert placing.place(3) == ["B"]
    assert _Placing([]).place(0) == ["anywhere"]  # of this machine
    assert _Placing(nodes, gpus_per_worker=1).place(0) == ["anywhere"]  # where a GPU is free


@pytest.mark.parametrize(("kind", "failed"), [("ActorUnavailableError", ["b"]), ("ActorDiedError", [])])
def test_a_worker_that_cannot_be_reached_speaks_against_its_node(kind, failed):
    error = type(kind, (Exception,), {})("it is gone")
    placing = _Placing(["a", "b"])
    placing.place(0, 1)

    def get(reference):
        raise error

    errors = types.SimpleNamespace(RayTaskError=KeyError, RayError=Exception)
    placing._ray, placing._why = types.SimpleNamespace(get=get, exceptions=errors), lambda error, call: "why"
    assert placing._answered(None, transports._Call(1, placing._workers[1])).error == "why"
    assert list(placing._failed) == failed


def test_names_of_nodes_are_those_that_are_alive():
    alive = (("a", True), ("b", False))
    nodes = [{"NodeManagerHostname": name, "NodeID": f"id of {name}", "Alive": there} for name, there in alive]
    cluster = object.__new__(ray_cluster.Cluster)
    cluster.local, cluster.ray = False, types.SimpleNamespace(nodes=lambda: nodes)
    assert (cluster.nodes(), cluster.places()) == ({"a"}, ["id of a"])
    cluster.local = True
    assert (cluster.nodes(), cluster.places()) == (set(), [])


class _Ray:
    """Stands in for Ray."""

    def __init__(self):
        self.connected = False

    def is_initialized(self):
        return self.connected

    def get_runtime_context(self):
        return types.SimpleNamespace(gcs_address="127.0.0.1:9")

    def shutdown(self):
        self.connected = False


@pytest.mark.parametrize(
    ("mode", "asks", "insecure", "joined"),
    [
        ("token", True, False, True),
        ("token", False, False, False),
        ("token", False, True, True),
        (None, None, False, False),  # what can be joined without a token asks for none
        (None, None, True, True),
    ],
)
def test_a_cluster_without_a_token_is_refused(monkeypatch, mode, asks, insecure, joined):
    ray = _Ray()
    monkeypatch.setattr(ray_cluster, "imported", lambda *, local: ray)
    monkeypatch.setattr(ray_cluster.Cluster, "_connect", lambda self, settings: setattr(ray, "connected", True))
    monkeypatch.setattr(ray_cluster.ray_private, "asks_for_token", lambda found, address: asks)
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    if mode:
        monkeypatch.setenv("RAY_AUTH_MODE", mode)
    if joined:
        cluster = ray_cluster.Cluster("auto", insecure=insecure)
        assert ray.connected
        cluster.close()
    else:
        with pytest.raises(ValueError, match=r"^address='auto' is a cluster that asks for no token"):
            ray_cluster.Cluster("auto", insecure=insecure)
    assert not ray.connected


def test_an_address_at_which_nobody_answers_is_a_lost_host_at_once(monkeypatch):
    monkeypatch.setattr(ray_cluster, "imported", lambda **named: _Ray())
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(HostLost, match=rf"^no head of a Ray cluster answers at 127\.0\.0\.1:{port} \(Conn"):
        ray_cluster.Cluster(f"127.0.0.1:{port}")


@pytest.mark.parametrize(
    ("kind", "text", "avoided"),
    [
        ("ActorDiedError", "The actor died because its node has died.", True),
        ("ActorDiedError", "The node was marked dead by the GCS.", True),
        ("ActorUnavailableError", "RPC error", True),
        ("ActorDiedError", "its worker process has died", False),
    ],
)
def test_a_node_that_has_lost_its_worker_is_avoided_where_the_node_may_be_at_fault(kind, text, avoided):
    error = type("RayError", (Exception,), {})

    def get(reference):
        raise type(kind, (error,), {})(text)

    joining = _Joining(1)
    joining._logs, joining._failed = None, {}
    joining._ray = types.SimpleNamespace(
        get=get, exceptions=types.SimpleNamespace(RayTaskError=type("RayTaskError", (error,), {}), RayError=error)
    )
    lost = joining._answered(None, transports._Call(0, transports._Worker(None, None, "node1")))
    assert lost.worker == 0
    assert ("node1" in joining._failed) == avoided
