"""Runs whose workers connect: they come late, leave, are killed, and outlive the server; replayed to the bit."""

import functools
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import jax
import numpy as np
import own_works
import pytest
from joining import HERE, TOKEN, come_late, kill_one, started
from test_own_loop import by_hand, difference

from sgdlab import live, policies, rules
from sgdlab.live.messages import Came, Failed, GaveUp, Joined, Lost, event_of

SETTINGS = live.LiveSettings(
    min_workers=1, join_seconds=0.2, wait_seconds=60.0, respawn_seconds=0.05, turn_seconds=0.05
)
RULE = rules.asgd(learning_rate=0.1)
WORKER = HERE / "joined_worker.py"


def served(work, folder, policy=policies.asynchronous, *, num_workers=2, num_gradients=60, **given):
    run = {"policy": policy, "rule": RULE, "num_workers": num_workers, "num_gradients": num_gradients}
    endpoint = given.pop("endpoint", live.Endpoint(token=TOKEN))
    return live.LiveServer(work, **run, workdir=folder, **{"settings": SETTINGS, "endpoint": endpoint, **given})


def ended(processes):
    """Returns what workers have printed, once they have ended by themselves."""
    said = [process.communicate(timeout=60) for process in processes]
    assert [process.returncode for process in processes] == [0] * len(processes), said
    return [out for out, _ in said]


start = functools.partial(started, WORKER, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.long("workers are processes")
@pytest.mark.parametrize("name", ["asynchronous", "backup_workers"])
def test_one_worker_is_killed_and_one_comes_late(name, tmp_path):
    policy = (
        functools.partial(policies.backup_workers, backups=1) if name == "backup_workers" else policies.asynchronous
    )
    processes, killed, told = [], [], []

    def on_update(updates, params):
        told.append(updates)
        if len(told) == 10:
            killed.append(kill_one(server, processes))
        if len(told) == 15:
            processes.append(come_late(server, lambda: start(server.address, 0.005)))

    server = served(own_works.steady, tmp_path / "run", policy, num_workers=3, num_gradients=120, on_update=on_update)
    processes += [start(server.address, 0.005) for _ in range(2)]
    params, recording = server.run()
    killed[0].communicate()
    assert killed[0].returncode == -signal.SIGKILL
    assert all(int(out.split()[-1]) > 0 for out in ended(processes))
    assert recording.ledger()["lost"] >= 1
    assert recording.schedule.used().sum() >= 120
    assert len(np.unique(recording.schedule.worker)) >= 2
    np.testing.assert_allclose(params["w"], by_hand(recording, 0.1)["w"], rtol=2e-5)
    assert difference(live.replay(own_works.steady, recording, rule=RULE), params) == 0
    assert not list((tmp_path / "run").glob("messages-*"))


SCRIPT = """
import sys
sys.path.insert(0, {tests!r})
import own_works, test_joined_runs
from sgdlab import live
settings = live.LiveSettings(join_seconds=5.0, respawn_seconds=0.05, checkpoint_updates=50, checkpoint_seconds=0.0)
if __name__ == "__main__":
    given = {{"num_gradients": 300, "endpoint": live.Endpoint({address!r}), "settings": settings}}
    test_joined_runs.served(own_works.initial(), "run", **given).run()
"""


@pytest.mark.full
def test_workers_outlive_a_server_that_is_killed(tmp_path):
    with served(own_works.initial(), tmp_path) as server:
        address = server.address  # a port that is free
    (tmp_path / "serve.py").write_text(SCRIPT.format(tests=str(HERE), address=address))
    serve = functools.partial(started, "serve.py", cwd=tmp_path)
    first, workers = serve(), [start(address, 0.01) for _ in range(2)]
    log = tmp_path / "run/log.jsonl"
    while first.poll() is None and not (log.exists() and log.read_bytes().count(b"\n") > 300):
        time.sleep(0.05)
    first.kill()
    assert first.wait() == -signal.SIGKILL
    assert list((tmp_path / "run").glob("messages-*.bin"))  # nobody can compute them again
    assert serve().wait() == 0
    computed = [int(out.split()[-1]) for out in ended(workers)]
    assert min(computed) > 10
    recording = live.LiveRecording.load(tmp_path / "run/recording.npz")
    assert recording.schedule.used().sum() == 300
    assert recording.ledger()["lost"] >= 1
    with np.load(tmp_path / "run/parameters.npz") as stored:
        np.testing.assert_allclose(stored["['w']"], by_hand(recording, 0.1)["w"], rtol=2e-5)


class TestInOneProcess:
    """The worker in a thread of this process: what it is told and answers."""

    @pytest.fixture(name="transport")
    def remote(self):
        from sgdlab.live.remote import Remote  # noqa: PLC0415

        params = {"w": np.arange(3, dtype=np.float32), "layers": [np.zeros((2, 2), np.float32)]}
        aux = {"loss": np.zeros([], np.float32)}
        with Remote(params, aux, num_workers=1, endpoint=live.Endpoint(token=TOKEN)) as transport:
            transport.params = params
            transport.spawn(0)
            yield transport

    def heard(self, transport):
        found = transport.next(30.0)
        assert len(found) == 1, found
        return found[0]

    def test_parameters_are_sent_once_a_version(self, transport):
        version = transport.publish(transport.params)
        with live.join(transport.address, TOKEN) as worker:
            line = worker._line
            arrived, body = [], line._frames.body
            line._frames.body = lambda memory: arrived.append(len(memory)) or body(memory)
            for ticket in range(3):
                if ticket == 0:
                    assert type(self.heard(transport)) is Joined
                transport.begin(0, ticket, version)
                found, params = next(worker)
                assert found == ticket
                assert difference(params, transport.params) == 0
                worker.send(params, 0.5)
                came = self.heard(transport)
                assert difference(came.grads, transport.params) == 0
                assert (came.ticket, float(came.aux["loss"])) == (ticket, 0.5)
            assert arrived == [line._params.size]
        assert self.heard(transport) == Lost(0, "it has left")

    def test_an_unknown_loss_is_fine_and_what_is_not_finite_is_found_where_it_arrives(self, transport):
        with live.join(transport.address, TOKEN) as worker:
            self.heard(transport)
            for ticket, (number, finite) in enumerate([(1.0, True), (np.inf, False), (np.nan, False)]):
                transport.begin(0, ticket, transport.publish(transport.params))
                next(worker)
                worker.send({**transport.params, "w": np.float32([0.0, number, 2.0])})
                came = self.heard(transport)
                assert (came.finite, np.isnan(came.aux["loss"])) == (finite, True)
                assert event_of(came).finite == finite
                assert event_of(came._replace(finite=not finite)).finite != finite  # it is not asked again

    def test_a_server_that_closes_is_looked_for(self, transport):
        first = live.join(transport.address, TOKEN).__enter__()  # has the only place
        self.heard(transport)
        with ThreadPoolExecutor(1) as pool:
            second = pool.submit(live.join(transport.address, TOKEN, wait_seconds=0.0).__enter__)
            assert transport.next(0.3) == []
            with transport._news:  # as it does first of all
                transport._closed = True
                transport._news.notify_all()
            with pytest.raises(ConnectionError) as caught:
                second.result(30.0)
        assert type(caught.value) is ConnectionError  # and not that it was refused
        first._line.close()

    def test_an_error_leaves_the_run_and_says_why(self, transport):
        worker = live.join(transport.address, TOKEN).__enter__()
        assert type(self.heard(transport)) is Joined
        transport.begin(0, 7, transport.publish(transport.params))
        assert next(worker)[0] == 7
        worker.__exit__(ArithmeticError, ArithmeticError("a mistake\nof the user"), None)
        assert self.heard(transport) == Lost(0, "it has left: ArithmeticError: a mistake of the user")

    def test_a_ticket_that_is_not_answered_is_given_up(self, transport):
        version = transport.publish(transport.params)
        with live.join(transport.address, TOKEN) as worker:
            self.heard(transport)
            transport.begin(0, 0, version)
            transport.begin(0, 1, version)
            assert [next(worker)[0], next(worker)[0]] == [0, 1]
            assert self.heard(transport).ticket == 0
            assert not worker.interrupted
            transport.interrupt(0, 1)
            while not worker.interrupted:
                time.sleep(0.001)
            worker.send("what is sent for nobody is not looked at")
            assert self.heard(transport)[:2] == (0, 1)

    def test_gradients_of_another_form_are_refused_where_they_are_made(self, transport):
        with live.join(transport.address, TOKEN) as worker:
            self.heard(transport)
            for ticket, (grads, words) in enumerate([
                ({"w": np.zeros(3)}, r"^grads must have \['layers', 'w'\], like the parameters; it has \['w'\]"),
                ({"w": np.zeros(4), "layers": [np.zeros((2, 2))]}, r"^\['params'\]\['w'\] must be float32\[3\]; it is"),
                ({"w": np.zeros(3), "layers": []}, r"^grads\['layers'\] must have \[0\], like the parameters; it has"),
                ({"w": np.zeros(3), "layers": 1.0}, r"^grads\['layers'\] must have \[0\], .* it is a float$"),
                ({**transport.params, "w": 1j * np.ones(3)}, r"\['w'\] must be .* real numbers: it is complex$"),
                ({**transport.params, "w": {"a": 1.0}}, r"\['w'\] must be an array of real numbers: float"),
            ]):  # fmt: skip
                transport.begin(0, ticket, transport.publish(transport.params))
                next(worker)
                with pytest.raises(ValueError, match=words):
                    worker.send(grads)
                if ticket == 0:  # it can still be answered otherwise
                    worker.fail("another shape")
                elif ticket == 1:
                    with pytest.raises(ValueError, match=r"^loss of shape \(1,\) must be a number$"):
                        worker.send(transport.params, [0.5])
                    worker.send(transport.params, 0.5)
                else:
                    worker._give_up()  # as `next` does with a ticket that was not answered
                assert type(self.heard(transport)) is (Failed, Came, *[GaveUp] * 4)[ticket]
            with pytest.raises(ValueError, match="there must be a ticket to answer"):
                worker.send({})

    def test_what_jax_alone_knows_needs_an_example(self):
        from sgdlab.live.remote import Remote  # noqa: PLC0415

        params = (np.zeros(3, np.float32), np.ones(2, np.float32))
        aux = {"loss": np.zeros([], np.float32)}
        with Remote(params, aux, num_workers=1, endpoint=live.Endpoint(token=TOKEN)) as transport:
            transport.spawn(0)
            with pytest.raises(ValueError, match=r"^params_like=None must be a pytree like the parameters"):
                live.join(transport.address, TOKEN).__enter__()
            with pytest.raises(
                ValueError, match=r"^\[1\] is float32\[3\] in the worker and float32\[2\] in the server"
            ):
                live.join(transport.address, TOKEN, params_like=(params[0], params[0])).__enter__()
            with live.join(transport.address, TOKEN, params_like=params) as worker:
                self.heard(transport)
                transport.begin(0, 0, transport.publish(params))
                _, found = next(worker)
                assert jax.tree.structure(found) == jax.tree.structure(params)
                with pytest.raises(
                    ValueError, match=r"^grads must be like the parameters, PyTreeDef\(\(\*, \*\)\); it"
                ):
                    worker.send({"b": params[0], "w": params[1]})  # whose arrays are as many, in another order
                worker.send(found)
                assert difference(self.heard(transport).grads, params) == 0

    def test_a_place_without_an_array_is_none_on_both_sides(self):
        from sgdlab.live.remote import Remote  # noqa: PLC0415

        params = {"w": np.ones(2, np.float32), "bias": None, "layers": [None, np.zeros(1, np.float32)]}
        with Remote(params, {"loss": np.float32(0)}, num_workers=1, endpoint=live.Endpoint(token=TOKEN)) as transport:
            transport.spawn(0)
            with live.join(transport.address, TOKEN) as worker:
                self.heard(transport)
                transport.begin(0, 0, transport.publish(params))
                _, found = next(worker)
                assert jax.tree.structure(found) == jax.tree.structure(params)
                with pytest.raises(ValueError, match=r"^grads\['bias'\] must have \[\], .* it is a ndarray$"):
                    worker.send({**found, "bias": np.zeros(1)})
                worker.send(found)
                assert difference(self.heard(transport).grads, params) == 0

    def test_who_comes_when_all_places_are_taken_waits(self, transport):
        first = live.join(transport.address, TOKEN).__enter__()
        self.heard(transport)
        with ThreadPoolExecutor(1) as pool:
            second = pool.submit(live.join(transport.address, TOKEN).__enter__)
            assert transport.next(0.3) == []
            first.__exit__(None, None, None)
            assert type(self.heard(transport)) is Lost
            assert not second.done()  # the server has not freed the place
            transport.spawn(0)
            worker = second.result(10.0)
            assert (worker.number, worker.num_workers) == (0, 1)
            assert type(self.heard(transport)) is Joined
            worker.__exit__(None, None, None)

    def test_who_comes_after_the_end_hears_of_it(self, transport):
        with live.join(transport.address, TOKEN) as first, ThreadPoolExecutor(1) as pool:
            self.heard(transport)
            second = pool.submit(lambda: list(live.join(transport.address, TOKEN).__enter__()))
            transport.end()
            assert list(first) == []
            assert second.result(10.0) == []


def test_the_worker_loads_neither_jax_nor_the_library():
    script = (
        "import sys; from sgdlab.live import join; print([m for m in ('jax', 'scipy', 'grpc') if m in sys.modules])"
    )
    environment = {**os.environ, "PYTHONPATH": str(HERE.parents[1])}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
