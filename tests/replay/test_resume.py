"""A run that is interrupted at any pause and continued equals the uninterrupted one, bit for bit."""

import contextlib
import functools
import json
import pathlib
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from lib.mesh_cases import Asked
from lib.replay_cases import anything, assert_close, layers, seeded

from sgdlab import protocols, rules
from sgdlab.checkpoints import CheckpointError, Checkpoints
from sgdlab.errors import Stopped
from sgdlab.replay import Feed, Watch, lower, run
from sgdlab.tasks import Task

WORKERS, SIZE, EVERY = 5, 3, 6
RUNTIMES = np.random.default_rng(0).uniform(1, 3, (6, WORKERS))
SCHEDULES = {
    "asynchronous": lambda: protocols.asynchronous(RUNTIMES),
    "several gradients": lambda: anything(seeded(1), 30, WORKERS),
    "blocks": lambda: layers(30, "forward", "backward", num_blocks=2),
    "peers": lambda: protocols.elastic_averaging(RUNTIMES),
}


# The same objects in every run, so that the runs of one kind share their compiled programs.
RULE, PEERS_RULE = rules.gap_aware(learning_rate=0.1), rules.nag_asgd(learning_rate=0.1)


class Killed(BaseException):
    """As if the process had been killed."""


def batch_fn(g):
    return jnp.sin(g + jnp.arange(SIZE, dtype=float))


def read(gradients):
    return (np.sin(g + np.arange(SIZE, dtype=float)) for g in gradients)


def grad_fn(params, batch, local):
    memory = 0.5 * local["memory"] + batch.astype(params["w"].dtype)
    grads = {"w": params["w"] - memory, "b": params["b"] + memory[:2]}
    stats = 0.1 * memory.mean()
    return (
        grads,
        {"loss": jnp.square(grads["w"]).sum(), "stats": stats},
        {"memory": memory},
    )


def fold(stats, aux):
    return 0.9 * stats + aux["stats"]


def evaluate(params, stats):
    return {"length": jnp.square(params["w"]).sum() + stats}


def replayed(name, mode, *, dtype=float, checkpoints=None, stop_after=None, fed=False, devices=None, stop=None):
    """All of a run's results; killed after so many reports if `stop_after`."""
    schedule, reports = SCHEDULES[name](), []
    axes = {"axis_types": (jax.sharding.AxisType.Auto,)}
    mesh = None if devices is None else jax.make_mesh((devices,), ("devices",), devices=jax.devices()[:devices], **axes)
    params = {"w": jnp.arange(3, dtype=dtype), "b": jnp.ones(2, dtype)}
    served = name != "peers"

    def report(history):
        reports.append(history.evaluations[-1])
        if checkpoints is not None:
            checkpoints.wait()
        if len(reports) == stop_after:
            raise Killed

    watch = Watch(
        every=EVERY,
        evaluate=evaluate,
        report=report,
        average_decay=0.9 if served else None,
        norms=served,
    )
    result = run(
        lower(schedule, every=EVERY, by_worker=True),
        RULE if served else PEERS_RULE,
        Task(grad_fn, params, stats=jnp.zeros([], dtype), fold=fold, local={"memory": jnp.zeros(SIZE, dtype)}),
        Feed(read, size=8) if fed else batch_fn,
        mode=mode,
        mesh=mesh,
        watch=watch,
        checkpoints=checkpoints,
        stop=stop,
    )
    return result, reports


@functools.cache
def uninterrupted(name, mode, dtype=float):
    """Return what interrupted runs are compared with. Call it inside tests, where float64 is on."""
    return replayed(name, mode, dtype=dtype)


def leaves(result):
    return {jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in jax.tree_util.tree_leaves_with_path(
        (result.params, result.state, result.stats, result.average, result.average_stats, result.nodes, result.local,
         result.history.aux, result.history.norm, result.history.distance, result.history.step, result.history.penalty)
    )}  # fmt: skip


def assert_same(left, right):
    (one, reports), (other, others) = left, right
    assert reports == others
    assert one.history.evaluations == other.history.evaluations
    assert leaves(one).keys() == leaves(other).keys()
    for name, leaf in leaves(one).items():
        np.testing.assert_array_equal(leaf, leaves(other)[name], err_msg=name, strict=True)


@pytest.mark.covering
@pytest.mark.parametrize(
    ("name", "mode", "dtype"),
    [
        *((name, "event", np.float32) for name in SCHEDULES),
        *((name, "event", np.float64) for name in SCHEDULES),
        *((name, "wave", np.float64) for name in SCHEDULES),
    ],
)
def test_equals_the_uninterrupted_run(name, mode, dtype, tmp_path):
    whole = uninterrupted(name, mode, dtype)
    pauses = len(whole[1]) - 1
    for stop in (2, pauses) if (name, mode) == ("asynchronous", "event") else (1 + pauses // 2,):
        path = tmp_path / str(stop)
        with pytest.raises(Killed), Checkpoints(path, {}) as checkpoints:
            replayed(name, mode, dtype=dtype, checkpoints=checkpoints, stop_after=stop)
        with Checkpoints(path, {}) as checkpoints:
            continued = replayed(name, mode, dtype=dtype, checkpoints=checkpoints)
        # Reports are made again for evaluations that had been made, so that whoever writes them has all.
        assert_same(continued, whole)


@pytest.mark.sample(1)
@pytest.mark.parametrize(("before", "after"), [(None, 4), (4, None), (4, 2)])
def test_continues_on_another_number_of_devices(before, after, tmp_path):
    whole = uninterrupted("asynchronous", "wave")
    with pytest.raises(Killed), Checkpoints(tmp_path, {}) as checkpoints:
        replayed("asynchronous", "wave", devices=before, checkpoints=checkpoints, stop_after=3)
    with Checkpoints(tmp_path, {}) as checkpoints:
        continued = replayed("asynchronous", "wave", devices=after, checkpoints=checkpoints)
    assert_close(leaves(continued[0]), leaves(whole[0]), 1e-13)


def test_a_run_that_is_killed_again_and_again(tmp_path):
    whole = uninterrupted("asynchronous", "event")
    for stop in range(2, len(whole[1])):
        with pytest.raises(Killed), Checkpoints(tmp_path, {}) as checkpoints:
            replayed("asynchronous", "event", checkpoints=checkpoints, stop_after=stop)
    with Checkpoints(tmp_path, {}) as checkpoints:
        assert_same(replayed("asynchronous", "event", checkpoints=checkpoints), whole)


@pytest.mark.parametrize("mode", ["event", "wave"])
def test_batches_of_the_host_are_those_of_the_device(mode, tmp_path):
    whole = uninterrupted("asynchronous", mode)
    assert_same(replayed("asynchronous", mode, fed=True), whole)
    with pytest.raises(Killed), Checkpoints(tmp_path, {}) as checkpoints:
        replayed("asynchronous", mode, fed=True, checkpoints=checkpoints, stop_after=3)
    with Checkpoints(tmp_path, {}) as checkpoints:
        assert_same(replayed("asynchronous", mode, fed=True, checkpoints=checkpoints), whole)


@pytest.fixture(scope="module")
def killed_once(tmp_path_factory):
    """Two checkpoints, after 6 and 12 gradients."""
    folder = tmp_path_factory.mktemp("killed")
    # A fixture of the module comes before those of its tests.
    with jax.enable_x64(True), pytest.raises(Killed), Checkpoints(folder, {"seed": 1}) as checkpoints:
        replayed("asynchronous", "event", checkpoints=checkpoints, stop_after=4)
    assert sorted(found.name for found in folder.iterdir() if found.is_dir()) == ["12", "6"]
    return folder


class TestDamage:
    @pytest.fixture
    def killed(self, killed_once, tmp_path):
        """A copy of the checkpoints, to be damaged."""
        return shutil.copytree(killed_once, tmp_path, dirs_exist_ok=True)

    @pytest.mark.parametrize("damage", ["no state", "empty", "cut off"])
    def test_the_last_good_state_is_used(self, killed, damage, caplog):
        newest = killed / "12"
        if damage == "empty":
            shutil.rmtree(newest)
            newest.mkdir()
        elif damage == "no state":
            shutil.rmtree(newest / "state")
        else:
            for file in newest.rglob("*"):
                if file.is_file():
                    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
        with Checkpoints(killed, {"seed": 1}) as checkpoints:
            assert_same(
                replayed("asynchronous", "event", checkpoints=checkpoints), uninterrupted("asynchronous", "event")
            )
        (line,) = (record.getMessage() for record in caplog.records if "cannot be read" in record.getMessage())
        assert line.startswith(f"The checkpoint 12 in {killed}")
        assert "\n" not in line

    def test_where_none_can_be_read_it_says_so(self, killed):
        for step in ("6", "12"):
            shutil.rmtree(killed / step / "state")
        with Checkpoints(killed, {"seed": 1}) as checkpoints, pytest.raises(CheckpointError, match="none that can be"):
            replayed("asynchronous", "event", checkpoints=checkpoints)

    def test_what_was_half_written_is_not_taken(self, killed):
        half = killed / "18.orbax-checkpoint-tmp"
        shutil.copytree(killed / "12", half)
        with Checkpoints(killed, {"seed": 1}) as checkpoints:
            assert_same(
                replayed("asynchronous", "event", checkpoints=checkpoints), uninterrupted("asynchronous", "event")
            )
        assert not half.exists()

    def test_another_training_is_refused_by_what_differs(self, killed):
        with pytest.raises(CheckpointError, match=r"of a training with seed=1, not 2"):
            Checkpoints(killed, {"seed": 2})
        (killed / "settings.json").write_text("{")
        with pytest.raises(CheckpointError, match="damaged"):
            Checkpoints(killed, {"seed": 1})

    def test_a_directory_that_cannot_be_written_is_refused(self, tmp_path):
        file = pathlib.Path(tmp_path / "file")
        file.write_text(json.dumps({}))
        with pytest.raises(CheckpointError, match="cannot be written"):
            Checkpoints(file / "inside", {})

    def test_a_writing_that_fails_keeps_those_before(self, killed, monkeypatch):
        whole = uninterrupted("asynchronous", "event")

        def full(*args, **options):
            raise OSError(28, "No space left on device")

        with Checkpoints(killed, {"seed": 1}) as checkpoints:
            monkeypatch.setattr(checkpoints._keeper, "save_async", full)
            with pytest.raises(CheckpointError, match=r"\(the one of step 12 is kept\): .*No space left"):
                replayed("asynchronous", "event", checkpoints=checkpoints)
        with Checkpoints(killed, {"seed": 1}) as checkpoints:
            assert_same(replayed("asynchronous", "event", checkpoints=checkpoints), whole)


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("name", "mode"),
    [
        ("asynchronous", "event"),
        ("several gradients", "wave"),
        ("blocks", "event"),
        ("blocks", "wave"),
        ("peers", "wave"),
    ],
)
def test_a_run_that_is_asked_to_stop_goes_on_where_it_stopped(name, mode, tmp_path):
    """A run is asked between pauses, too, and every time it is begun it does at least one gradient more."""
    expected, found, done = uninterrupted(name, mode), None, []
    while found is None:
        with Checkpoints(tmp_path / "states", {}) as checkpoints, contextlib.suppress(Stopped):
            found = replayed(name, mode, checkpoints=checkpoints, stop=Asked(2))
        with Checkpoints(tmp_path / "states", {}) as checkpoints:
            done.append(checkpoints.newest)
    assert done[-1] < expected[0].history.worker.size
    assert done[:-1] == sorted(set(done[:-1]))
    assert len(done) > 2
    assert leaves(found[0]).keys() == leaves(expected[0]).keys()
    for key, leaf in leaves(found[0]).items():
        np.testing.assert_array_equal(leaf, leaves(expected[0])[key], err_msg=key)
    assert found[0].history.evaluations == expected[0].history.evaluations


def test_a_run_without_checkpoints_stops_too():
    with pytest.raises(Stopped) as caught:
        replayed("asynchronous", "event", stop=lambda: True)
    assert not caught.value.saved
