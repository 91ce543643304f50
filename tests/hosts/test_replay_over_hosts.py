"""A run over several processes is the run of one, goes on with fewer and with more, and stops everywhere at once."""

import pathlib
import sys

import jax
import numpy as np
import pytest
from lib.mesh_cases import CASES, assert_close, continued, leaves, mesh_of, replayed, stopped
from processes import Processes, free_port

MEMBER = str(pathlib.Path(__file__).with_name("mesh_member.py"))
# Every family; layouts, and one and two devices of a process, in turn.
RUNS = [f"{name}:{i % 2 + 1}:{('sharded', 'replicated')[i // 2 % 2]}" for i, name in enumerate(CASES)]
# In the other layout.
RUNS += ["synchronous:1:sharded", "synchronous:2:sharded", "streamed:2:sharded", "gossip:1:replicated"]
STOPPED = "gap_aware:2:sharded:stopped"
REPEATED = "asgd:1:sharded:stopped"


def began(folder, count, *runs, devices=1):
    """So many processes that execute runs at once."""
    address = f"127.0.0.1:{free_port()}"
    own = [sys.executable, MEMBER, address, str(count)]
    return Processes(folder, [[*own, str(index), str(folder), *runs] for index in range(count)], devices=devices)


def spawned(folder, count, runs, devices, seconds=400.0):
    """Executes runs in so many processes at once, and returns every array of each."""
    with began(folder, count, *runs, devices=devices) as processes:
        assert processes.codes(seconds) == [0] * count, processes.output()
    return {run: dict(np.load(folder / f"{run}.npz")) for run in runs}


@pytest.fixture(scope="module")
def over_two(tmp_path_factory):
    """The runs of two processes, one of which goes on where one process has stopped; and the folder."""
    folder = tmp_path_factory.mktemp("two")
    with jax.enable_x64(True):  # a module's fixture comes before those of its tests
        stopped("gap_aware", folder / "states" / "gap_aware", mode="wave")
    return spawned(folder, 2, [*RUNS, STOPPED, REPEATED], devices=2), folder


@pytest.mark.full
@pytest.mark.parametrize("run", RUNS)
def test_two_processes_are_one(run, over_two):
    found, _ = over_two
    assert_close(found[run], leaves(replayed(run.split(":")[0], mode="wave")), 1e-12)


@pytest.mark.full
def test_a_run_goes_on_with_more_processes(over_two):
    found, _ = over_two
    assert_close(found[STOPPED], leaves(replayed("gap_aware", mode="wave")), 1e-12)


@pytest.mark.full
@pytest.mark.parametrize("shape", [None, (3,), (2, 2)])
def test_a_run_of_two_processes_goes_on_in_one(shape, over_two):
    _, folder = over_two
    on = {"mode": "wave"} if shape is None else {"mesh": mesh_of(*shape), "layout": "replicated"}
    found = continued("gap_aware", folder / "states" / "gap_aware", **on)
    assert_close(found, leaves(replayed("gap_aware", mode="wave")), 1e-12)


@pytest.mark.full
def test_a_run_that_was_stopped_is_the_same_to_the_bit(over_two):
    found, _ = over_two
    assert found[REPEATED].keys() == found["asgd:1:sharded"].keys()
    for name, leaf in found[REPEATED].items():
        np.testing.assert_array_equal(leaf, found["asgd:1:sharded"][name], err_msg=name)


@pytest.mark.full
def test_a_disk_that_is_full_for_one_ends_all(tmp_path):
    with began(tmp_path, 2, "gossip:1:replicated:full") as processes:
        codes = processes.codes(after_failure=60.0)
        assert all(code in (1, 2, 69) for code in codes), processes.output()
        assert "process 1" in processes.log(0), processes.output()
        assert "cannot be written" in processes.log(1), processes.output()


@pytest.mark.full
def test_processes_that_replay_different_schedules_are_told(tmp_path):
    with began(tmp_path, 2, "asgd:1:replicated:differs") as processes:
        assert processes.codes(allowed=(1,)) == [1, 1], processes.output()
        for index in (0, 1):
            assert "those of process 1 on" in processes.log(index), processes.output()


@pytest.mark.machines
@pytest.mark.parametrize("devices", [1, 2])
def test_four_processes_are_one(devices, tmp_path):
    names = ("gap_aware", "synchronous", "partial", "gossip", "streamed")
    runs = [f"{name}:{devices}:{('sharded', 'replicated')[i % 2]}" for i, name in enumerate(names)]
    for run, found in spawned(tmp_path, 4, runs, devices).items():
        assert_close(found, leaves(replayed(run.split(":")[0], mode="wave")), 1e-12)
