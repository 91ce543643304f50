"""`sgdlab live --listen` and `--join`: workers that others start learn from the server what they compute."""

import copy
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import jax
import numpy as np
import pytest
from lib import tiny

from sgdlab import live, runs
from sgdlab.live.messages import Came, Joined
from sgdlab.live.remote import Remote
from sgdlab.live.settings import VARIABLE, Endpoint
from sgdlab.live.transport import ANEW

ROOT = pathlib.Path(__file__).parents[2]
TOKEN = "of-these-tests-alone"

pytest.importorskip("grpc")
pytestmark = pytest.mark.filterwarnings(
    "ignore:the load_module:DeprecationWarning", "ignore::DeprecationWarning:importlib"
)


@pytest.fixture(name="token", autouse=True)
def in_the_environment(monkeypatch):
    monkeypatch.setenv(VARIABLE, TOKEN)


@pytest.fixture(name="job")
def small_job():
    return runs.live.make_job(tiny.config(cluster__num_workers=2))


def listening(job, **given):
    told = {"work": runs.joined.told(job, None), "num_workers": 1, "endpoint": Endpoint(token=TOKEN), **given}
    return Remote(job.task.params, job.gradients.aux, sent_like=job.gradients.sent, **told)


def one_line(answer):
    code, _, errors = answer
    assert code == 2, errors
    (line,) = errors.strip().splitlines()
    return line


def same(one, other):
    return jax.tree.all(jax.tree.map(lambda a, b: np.array_equal(a, b, equal_nan=True), one, other))


@pytest.mark.parametrize(
    "changes",
    [{}, {"method": "diloco", "local__steps": 2}, {"compression__kind": "top_k"}],
    ids=["gradients", "kept optimizers", "packets"],
)
def test_a_worker_computes_what_its_server_would(changes, call):
    job = runs.live.make_job(tiny.config(cluster__num_workers=2, **changes))

    def serve(transport):
        transport.spawn(0)
        assert type(transport.next(60.0)[0]) is Joined
        version, after, found = transport.publish(job.task.params), ANEW, []
        for ticket in (5, 9):  # the second goes on from after the first
            transport.begin(0, ticket, version, after=after)
            (came,) = transport.next(60.0)
            assert type(came) is Came, came
            found.append(jax.tree.map(np.array, (came.grads, came.aux)))
            after = ticket
        transport.end()
        return found

    with listening(job) as transport, ThreadPoolExecutor(1) as pool:
        served = pool.submit(serve, transport)
        code, output, errors = call("live", f"--join={transport.address}")
        first, second = served.result()
    assert (code, errors) == (0, "")
    assert output == "Worker 0 of 1 at most\nThe run has ended.\n"
    compute = runs.live.make_job(tiny.config(cluster__num_workers=2, **changes)).compute_of(0)
    assert same(compute(5, job.task.params), first)
    assert same(compute(9, job.task.params, after=5), second)
    anew = runs.live.make_job(tiny.config(cluster__num_workers=2, **changes)).compute_of(0)
    assert same(anew(9, job.task.params), second) == (not changes)  # what is kept counts


class TestDifferences:
    """A worker that differs from its server computes nothing."""

    def made(self, job, change):
        told = json.loads(json.dumps(runs.joined.told(job, None)))
        change(told)
        said = []
        welcome = {"work": told, "worker": 0, "workers": 1, "answer": []}
        with pytest.raises(ValueError, match=r".") as caught:  # at last, that it computes other arrays
            runs.joined.maker(said.append)(welcome)
        return str(caught.value), said

    def test_alike_comes_as_far_as_the_arrays(self, job):
        error, said = self.made(job, lambda told: None)
        assert error.endswith("is float32[] in the worker and missing in the server; both must make the same task with "
                              "the same settings of JAX")  # fmt: skip
        assert said == ["Worker 0 of 1 at most"]

    def test_versions(self, job):
        error, _ = self.made(job, lambda told: told["versions"].update(jax="0.1", numpy="0.2"))
        theirs = (
            f"jax is {jax.__version__} here and 0.1 on the server and numpy is {np.__version__} here and 0.2 on the"
        )
        assert error == f"{theirs} server: both sides must have the same"

    def test_code_of_the_package(self, job):
        error, _ = self.made(job, lambda told: told["code"].update(sgdlab="0" * 12))
        assert error.startswith("the code of sgdlab is ")
        assert error.endswith(" on the server: both sides must have the same")

    def test_code_of_a_part(self, job):
        error, _ = self.made(job, lambda told: told["code"].update({"--config.rule": "0" * 16}))
        assert error.startswith("the code or the files of --config.rule is ")

    def test_a_part_that_is_not_here(self, job):
        error, _ = self.made(job, lambda told: told["argument"]["modules"].update(elsewhere="/there/elsewhere.py"))
        assert error.startswith("/there/elsewhere.py of the server's --parts must be on this machine too")

    def test_processors_may_differ(self, job):
        error, said = self.made(job, lambda told: told["versions"].update(cpus="1024"))
        assert error.startswith("['aux']")
        assert "the server 1024: what is computed of large batches is the same to rounding" in said[0]


def test_a_worker_that_differs_says_so_to_both_sides(job, call):
    said, told = [], copy.deepcopy(runs.joined.told(job, None))
    told["versions"]["jaxlib"] = "0.1"
    with listening(job, work=told, say=said.append) as transport:
        transport.spawn(0)
        line = one_line(call("live", f"--join={transport.address}"))
        while not said:
            transport.next(0.1)
        assert line.startswith(f"error: jaxlib is {runs.joined.recording.versions()['jaxlib']} here and 0.1 on the")
        assert said == [f"Refused a worker that has connected from 127.0.0.1: it has left: {line[7:]}"]
        assert transport._free == {0}  # for the next one


def test_who_joins_another_kind_of_run_is_told_so(job, call):
    with listening(job) as transport:
        transport.spawn(0)
        with pytest.raises(ConnectionRefusedError, match=r"its workers are started by `sgdlab live --join`$"):
            live.join(transport.address, TOKEN).__enter__()
    with listening(job, work=None) as transport:
        transport.spawn(0)
        line = one_line(call("live", f"--join={transport.address}"))
    assert line.endswith("trains no configuration: `sgdlab.live.join` joins it")


def test_a_wrong_token_and_a_server_that_is_not_there(job, call, monkeypatch):
    with listening(job) as transport:
        monkeypatch.setenv(VARIABLE, "another token of 16 letters".replace(" ", "-"))
        line = one_line(call("live", f"--join={transport.address}"))
    assert line.endswith("has refused this worker: the token is not the server's")
    code, _, errors = call("live", f"--join={transport.address}", "--wait_seconds=0.1")
    assert code == 69, errors
    assert errors.startswith(f"error: --join: {transport.address} cannot be reached")


@pytest.mark.parametrize(("flags", "words"), [
    (["--join=here:1", "--config.method=asgd"], "--config.method must be left out: a worker learns from the server"),
    (["--join=here:1", "--workdir=there"], "--workdir must be left out: a worker learns from the server"),
    (["--join=here:1"], "--join='here:1' is beyond this machine, where others could read the token: give a certificate "
                        "(and the server its key), or --insecure if the network is encrypted already"),
    (["--join=8476"], "--join='8476' must be HOST:PORT, such as 10.0.0.5:4321"),
    (["--listen=0.0.0.0:0"], "--listen='0.0.0.0:0' is beyond this machine"),
    (["--listen=127.0.0.1:0", "--token_file=none"], "--token_file='none' cannot be read: No such file"),
    (["--listen=127.0.0.1:0", "--certificate=one"], "certificate and key must be given together: two PEM files"),
    (["--listen=127.0.0.1:0", "--transport=ray"], "--transport must be left out beside --listen, whose workers others"),
    (["--key=one"], "--key must be left out without --listen or --join"),
    (["--num_workers=3:2"], "--min_workers=3 must be a whole number from 1 to 2: the workers there are"),
    (["--num_workers=few"], "--num_workers=few must be a whole number, or the least and the largest one, such as 2:4"),
    (["--num_workers=2:4", "--min_workers=1"], "--num_workers=2:4 differs from --min_workers=1"),
])  # fmt: skip
def test_flags_that_do_not_fit(flags, words, call):
    assert one_line(call("live", *flags)).startswith(f"error: {words}")


@pytest.mark.full
def test_a_worker_and_the_server_are_killed_and_the_run_replays_to_the_bit(tmp_path, call, request):
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]), "JAX_PLATFORMS": "cpu"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}

    def begun(command, **more):
        process = subprocess.Popen(command, cwd=tmp_path, env={**environment, **more}, **pipes)
        request.addfinalizer(process.kill)
        return process

    (tmp_path / "mine.py").write_text(
        "import optax\nfrom sgdlab.rules import RULES\n\n\n@RULES.register(title='Mine')\n"
        "def mine(*, learning_rate):\n    return optax.sgd(learning_rate)\n"
    )
    command = [sys.executable, "-m", "sgdlab", "live"]
    serve = [
        *command, f"--listen={address}", "--num_workers=1:3", "--workdir=run", "--emulate=0.02", "--parts=mine.py",
        "--config.method=mine", "--config.epochs=4.0", "--config.batch_size=32",
        "--config.evaluations=3", "--config.network.kind=mlp", "--config.network.mlp.widths=(8,)", "--join_seconds=60",
        "--checkpoint_updates=20", "--checkpoint_seconds=0.0",
    ]  # fmt: skip
    server, log = begun(serve, JAX_ENABLE_X64="true"), tmp_path / "run/states/run/log.jsonl"
    workers = [begun([*command, f"--join={address}"]) for _ in range(3)]  # precision they learn from the server

    def until(lines):
        while server.poll() is None and not (log.exists() and log.read_bytes().count(b'["came"') >= lines):
            time.sleep(0.02)
        assert server.poll() is None, server.communicate()

    until(20)
    killed = workers.pop()
    killed.kill()
    killed.communicate()
    until(50)
    server.kill()
    server.communicate()
    assert server.returncode == -signal.SIGKILL
    server = begun(serve, JAX_ENABLE_X64="true")
    workers.append(begun([*command, f"--join={address}"]))
    said = [process.communicate(timeout=120) for process in (server, *workers)]
    assert [process.returncode for process in (server, *workers)] == [0] * 4, said
    assert "Workers may join: sgdlab live --join=" in said[0][0]
    assert said[1][0].count("Worker ") == 2  # before and after the server was lost
    assert not list((tmp_path / "run").rglob("messages-*"))
    recording = live.LiveRecording.load(tmp_path / "run/recording.npz")
    assert recording.ledger()["lost"] >= 2
    code, output, errors = call("replay", "--recording=run/recording.npz", "--workdir=again", "--parts=mine.py")
    assert code == 0, errors
    assert re.findall(r"largest difference from the parameters of the live run: (\S+)", output) == ["0.0"]
