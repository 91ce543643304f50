"""`sgdlab.live.train`: gradients of any function, in processes that die, fail and are resumed; replayed to the bit."""

import functools
import importlib
import json
import os
import re
import signal
import subprocess
import sys
import time
import types

import jax
import jax.numpy as jnp
import numpy as np
import optax
import own_works
import pytest

from sgdlab import compressions, live, policies, rules
from sgdlab.errors import RunFailed
from sgdlab.live.log import Log
from sgdlab.live.own_run import OwnRun, _named_leaves, _readable, _tell
from sgdlab.live.work import OwnGradients, OwnLoop, OwnWork, checked, code_of, place_of

QUICK = live.LiveSettings(respawn_seconds=0.05, join_seconds=60.0, turn_seconds=0.05, failures=3)
SCRIPT = """
import functools, sys
sys.path.insert(0, {tests!r})
import own_works
from sgdlab import live, policies, rules
live.train(
    own_works.{work}, policy=policies.asynchronous, rule=rules.asgd(learning_rate=0.1), num_workers=2,
    num_gradients={count}, workdir="run", given={given!r},
    settings=live.LiveSettings(checkpoint_seconds=0.0, checkpoint_updates=20),
)
"""


def by_hand(recording, rate):
    """The parameters by the schedule alone: SGD on the mean of each update's gradients, version by version."""
    schedule, versions = recording.schedule, [own_works.initial()]
    for update in range(schedule.num_updates):
        rows = np.flatnonzero(schedule.update[:, 0] == update)
        found = [own_works.gradient(versions[schedule.read[row, 0]], int(recording.ticket[row]))[0] for row in rows]
        mean = jax.tree.map(lambda *each: np.mean(each, axis=0), *found)
        versions.append(jax.tree.map(lambda leaf, grad: leaf - rate * grad, versions[-1], mean))
    return versions[-1]


def difference(one, other):
    return max(np.abs(a - b).max() for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True))


@pytest.mark.full
@pytest.mark.parametrize(
    ("compressor", "feedback"), [(compressions.RandomK(share=0.5), "error"), (compressions.Qsgd(levels=4), "none")]
)
def test_compressed_messages_of_workers_that_die_and_fail_are_replayed(compressor, feedback, tmp_path):
    """Random numbers go by tickets, one of which fails; and the memory of a process that dies is lost."""
    rule = rules.compressed(rules.asgd(learning_rate=0.1), compressor, num_workers=3, feedback=feedback)
    given = {"folder": str(tmp_path)}
    run = {"policy": policies.asynchronous, "num_workers": 3, "num_gradients": 60, "settings": QUICK, "given": given}
    params, recording = live.train(own_works.faulty, **run, rule=rule, workdir=tmp_path / "run")
    assert recording.ledger()["lost"] >= 1
    assert difference(live.replay(own_works.faulty, recording, rule=rule, given=given), params) == 0


@pytest.mark.long("workers are processes, one of which dies")
def test_a_run_whose_workers_die_and_fail_is_what_its_record_says(tmp_path):
    policy = functools.partial(policies.timeout, at_least=2, seconds=0.01)
    given, rule = {"folder": str(tmp_path)}, rules.asgd(learning_rate=0.1)
    run = {"policy": policy, "rule": rule, "num_workers": 3, "num_gradients": 60, "settings": QUICK, "given": given}
    told = []
    params, recording = live.train(
        own_works.faulty,
        **run,
        workdir=tmp_path / "run",
        on_update=lambda updates, params: told.append((updates, params)),
    )
    fates = recording.ledger()
    assert fates["lost"] >= 1
    assert fates["failed"] == 2
    warmed = [(tmp_path / f"run/workers/worker_{worker}.log").read_text() for worker in range(3)]
    assert all(
        f"The warm-up of worker {worker} has failed (ArithmeticError: a mistake" in said
        for worker, said in enumerate(warmed)
    )
    assert fates["begun"] == sum(count for fate, count in fates.items() if fate != "begun")
    np.testing.assert_allclose(params["w"], by_hand(recording, 0.1)["w"], rtol=2e-5)
    assert (
        difference(live.replay(own_works.faulty, tmp_path / "run/recording.npz", rule=rule, given=given), params) == 0
    )
    assert [updates for updates, _ in told] == list(range(1, recording.schedule.num_updates + 1))
    assert difference(told[-1][1], params) == 0
    with np.load(tmp_path / "run/parameters.npz") as stored:
        np.testing.assert_array_equal(stored["['w']"], params["w"])
    # The same call reads what is there, and runs nothing.
    begun = time.monotonic()
    again = live.train(own_works.faulty, **run, workdir=tmp_path / "run")
    assert time.monotonic() - begun < 5
    assert difference(again.params, params) == 0
    with pytest.raises(ValueError, match=r"is of a run with num_gradients=60, not 61"):
        live.train(own_works.faulty, **run | {"num_gradients": 61}, workdir=tmp_path / "run")
    with pytest.raises(ValueError, match=r"is of a run with rule\.numbers="):
        live.train(own_works.faulty, **run | {"rule": rules.asgd(learning_rate=0.2)}, workdir=tmp_path / "run")


@pytest.mark.full
@pytest.mark.parametrize("work", ["steady", "random"])
def test_a_server_that_is_killed_goes_on(work, tmp_path):
    given = {"seconds": 0.01} if work == "steady" else {}
    script = SCRIPT.format(tests=os.path.dirname(__file__), work=work, count=600, given=given)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "JAX_PLATFORMS": "cpu"}
    run = functools.partial(subprocess.Popen, [sys.executable, "-c", script], cwd=tmp_path, env=environment)
    begun = run(stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    log = tmp_path / "run/log.jsonl"
    while begun.poll() is None and not (log.exists() and log.read_bytes().count(b"\n") > 300):
        time.sleep(0.05)
    begun.send_signal(signal.SIGKILL)
    begun.wait()
    assert begun.returncode == -signal.SIGKILL
    assert bool(list((tmp_path / "run").glob("messages-*.bin"))) == (work == "random")
    assert run().wait() == 0
    recording = live.LiveRecording.load(tmp_path / "run/recording.npz")
    assert recording.schedule.used().sum() == 600
    with np.load(tmp_path / "run/parameters.npz") as stored:
        found = {"w": stored["['w']"], "b": stored["['b']"]}
    rule = rules.asgd(learning_rate=0.1)
    if work == "steady":
        assert difference(live.replay(own_works.steady, recording, rule=rule, given=given), found) == 0
    else:
        with pytest.raises(ValueError, match="deterministic=False"):
            live.replay(own_works.random, recording, rule=rule)


@pytest.mark.long("workers are processes")
def test_gradients_of_another_shape_end_the_run_and_say_so(tmp_path):
    run = {"policy": policies.asynchronous, "rule": rules.asgd(learning_rate=0.1), "num_workers": 1}
    settings = live.LiveSettings(respawn_seconds=0.01, respawns=1, wait_seconds=0.5)
    words = r"^error: the last 10 gradients of all workers failed; of worker 0: ValueError: gradient\['w'\] has shape"
    with pytest.raises(RunFailed, match=words):
        live.train(own_works.misshapen, **run, num_gradients=9, workdir=tmp_path, settings=settings)


def test_the_code_of_work_is_that_which_workers_execute(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    texts = {
        "one": "def work(worker):\n    return 1\nif __name__ == '__main__':\n    print(work(0))\n",
        "two": 'def work(worker):\n    return 1  # one\nif __name__ == "__main__":\n    print(1)\nelse:\n    pass\n',
        "three": "def work(worker):\n    return 1\n",
        "four": "def work(worker):\n    return 2\n",
        "five": "def work(worker):\n    return 1\nif __name__ != '__main__':\n    print(work(0))\n",
    }
    codes = []
    for name, text in texts.items():
        (tmp_path / f"work_{name}.py").write_text(text)
        codes.append(code_of(importlib.import_module(f"work_{name}").work))
    assert codes[0] == codes[1] == codes[2]
    assert len({codes[0], *codes[3:]}) == 3


def test_a_code_of_another_file_is_refused_with_its_name(tmp_path):
    run = OwnRun.of(own_works.steady, policies.asynchronous, optax.sgd(0.1), 1, 5, {})
    Log(tmp_path, run.header, compute_of=run.compute_of).close()
    other = run.header | {"code": {"own_works.py": "another"}}
    with pytest.raises(ValueError, match=r"is of a run with code\.own_works\.py="):
        Log(tmp_path, other, compute_of=run.compute_of)


def test_bfloat16_is_read_back_as_numbers(tmp_path):
    params = {"w": jnp.array([0.5, -2.0, 3.0], jnp.bfloat16)}
    with open(tmp_path / "parameters.npz", "wb") as file:
        np.savez(file, **_named_leaves(jax.tree.map(_readable, jax.tree.map(np.asarray, params))))
    with np.load(tmp_path / "parameters.npz") as stored:
        np.testing.assert_array_equal(stored["['w']"], np.float32([0.5, -2.0, 3.0]), strict=True)


class TestErrors:
    def nothing(self, worker):
        return own_works.initial(), own_works.gradient

    def test_functions_that_no_process_finds(self):
        for work in (lambda worker: None, self.nothing, functools.partial(own_works.steady, seconds=1.0)):
            with pytest.raises(ValueError, match=r"^work must be a function that another process can import: "):
                place_of(work)

    @pytest.mark.parametrize(
        ("found", "words"),
        [
            (None, "work must return (params, gradient), or a sgdlab.live.OwnWork; it has returned a NoneType"),
            (
                ({"w": 1.0}, 2.0),
                "work must return (params, gradient), or a sgdlab.live.OwnWork; it has returned a pair",
            ),
            (({"n": np.arange(3)}, own_works.gradient), "params['n'] is int64; it must be an array of floats"),
            (({"w": np.float32([1.0, np.nan])}, own_works.gradient), "params['w'] must be finite: some of it is not"),
        ],
    )
    def test_other_things_than_work(self, found, words):
        with pytest.raises(ValueError, match=f"^{re.escape(words)}"):
            checked(found)

    @pytest.mark.parametrize(
        ("changed", "words"),
        [
            ({"policy": policies.asynchronous(num_workers=1)}, r"policy=Softsync\(.* must make the policy of a server"),
            ({"policy": "asynchronous"}, "policy='asynchronous' must make the policy of a server"),
            ({"policy": policies.d_psgd}, "policy=.* must make the policy of a server"),
            ({"given": {"folder": np.zeros(2)}}, "given={.* must be keywords of work, of values that JSON can write"),
            ({"settings": {"min_workers": 1}}, "settings={'min_workers': 1} must be a sgdlab.live.LiveSettings"),
            (
                {"settings": live.LiveSettings(min_workers=3)},
                "min_workers=3 must be a whole number from 1 to 2: the workers there are",
            ),
        ],
    )
    def test_arguments_that_are_wrong(self, changed, words, tmp_path):
        given = {"policy": policies.asynchronous, "rule": rules.asgd(learning_rate=0.1)} | changed
        with pytest.raises(ValueError, match=f"^{words}"):
            live.train(own_works.steady, num_workers=2, num_gradients=2, workdir=tmp_path, **given)
        assert not list(tmp_path.iterdir())
        if "given" in changed:
            return
        with pytest.raises(ValueError, match=f"^{words}"):
            live.LiveServer(own_works.initial(), num_workers=2, num_gradients=2, workdir=tmp_path, **given)

    def test_whole_numbers_of_numpy_are_whole_numbers(self):
        run = OwnRun.of(
            own_works.steady, policies.asynchronous, optax.sgd(0.1), np.int64(2), np.int32(5), {"seconds": 0.0}
        )
        assert json.loads(json.dumps(run.header)) == run.header
        assert (run.header["num_workers"], run.header["num_gradients"]) == (2, 5)

    @pytest.mark.parametrize("returned", [0.5, {"loss": "low"}, {"loss": None}])
    def test_what_on_update_returns_is_numbers_by_name(self, returned):
        steps = types.SimpleNamespace(params=own_works.initial())
        updated = types.SimpleNamespace(computed=True, number=3)
        with pytest.raises(ValueError, match=r"^on_update must return numbers by name, or None; it has returned"):
            _tell(lambda updates, params: returned, steps, updated)
        assert _tell(lambda updates, params: {"loss": np.float32(0.5)}, steps, updated) == {"loss": "0.5"}

    def test_work_is_asked_for_once_for_each_worker(self):
        asked = []

        def noting(worker):
            asked.append(worker)
            return own_works.initial(), lambda params, ticket: own_works.gradient(params, ticket + worker)

        loop, params = OwnLoop(noting, {}), own_works.initial()
        for worker in (0, 1, 0, 1):
            loop.of_worker(worker)
            grads, _ = loop.compute_of(worker)(7, params)
            assert difference(grads, own_works.gradient(params, 7 + worker)[0]) == 0
        assert asked == [0, 1]

    def test_float64_where_jax_has_none(self):
        before = jax.config.jax_enable_x64
        jax.config.update("jax_enable_x64", False)
        try:
            with pytest.raises(ValueError, match=r"^params\['w'\] is float64; make it float32, or set JAX_ENABLE_X64"):
                checked(({"w": np.zeros(3)}, own_works.gradient))
        finally:
            jax.config.update("jax_enable_x64", before)

    @pytest.mark.parametrize(
        ("returned", "words"),
        [
            (1.0, "gradient must return (grads, loss); it has returned a float"),
            (({"w": np.zeros(3)}, 0.0), "gradient must return gradients like the parameters"),
            (({"w": np.zeros((3, 1)), "b": 0.0}, 0.0), "gradient['w'] has shape (3, 1); its parameters have (3,)"),
        ],
    )
    def test_other_things_than_gradients(self, returned, words):
        gradients = OwnGradients(OwnWork(own_works.initial(), lambda params, ticket: returned))
        with pytest.raises(ValueError, match=f"^{re.escape(words)}"):
            gradients.compute(0, own_works.initial())

    def test_a_gradient_that_nobody_wants_is_not_begun(self):
        gradients = OwnGradients(OwnWork(own_works.initial(), own_works.gradient))
        assert gradients.compute(0, own_works.initial(), lambda: True) is None

    def test_other_recordings_are_refused(self, tmp_path):
        from sgdlab import protocols  # noqa: PLC0415

        schedule = protocols.asynchronous(np.ones((3, 1)), num_gradients=2)
        rows = schedule.num_gradients
        fates = ["applied"] * 2 + ["pending"] * (rows - 2)
        made = live.LiveRecording(schedule, np.arange(rows), np.ones(rows), np.ones(rows), np.array(fates))
        with pytest.raises(ValueError, match=r"must be of a run of `sgdlab\.live\.train`"):
            live.replay(own_works.steady, made, rule=rules.asgd(learning_rate=0.1))
