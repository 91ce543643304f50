"""A worker of a Ray cluster, called here without one: parameters and gradients as bytes, and what it says of errors."""

import subprocess
import sys

import jax
import numpy as np
import process_works
import pytest

from sgdlab.live.gradients import Gradients
from sgdlab.live.shared_arrays import MemoryLayout
from sgdlab.live.transport import ANEW
from sgdlab.live.worker import Actor


def started(layout=None, **argument):
    """An actor, what it answered, and where the arrays of parameters and of an answer lie."""
    params, answer = process_works.params(), Gradients(process_works.plus({})).aux
    places = MemoryLayout(params), MemoryLayout({"params": params, "aux": answer})
    source = {"function": "process_works:plus", "argument": argument, "modules": {}}
    start = {"source": source, "path": (), "layout": layout or places[1].described()}
    actor = Actor(0)
    return actor, actor.start(start, None)[0], *places


def asked(run, ticket):
    return {"run": run, "ticket": ticket, "after": ANEW, "version": 0}


@pytest.fixture(name="bytes_of")
def parameters_as_bytes():
    memory = np.zeros(MemoryLayout(process_works.params()).size, np.uint8)
    layout = MemoryLayout(process_works.params())
    layout.write(layout.views(memory), process_works.params())
    return memory


def test_it_answers_with_the_bytes_of_the_gradient(bytes_of):
    actor, ready, params, places = started()
    assert ready["kind"] == "joined"
    for run, ticket in ((0, 5), (0, 6), (1, 0)):  # a new run counts its tickets anew
        said, computed = actor.compute(asked(run, ticket), bytes_of)
        assert said == {"kind": "came", "seconds": said["seconds"], "run": run, "ticket": ticket}
        found = places.tree(computed)
        expected = jax.tree.map(lambda leaf, ticket=ticket: np.asarray(leaf + ticket), params.tree(bytes_of))
        jax.tree.map(np.testing.assert_array_equal, found["params"], expected)
        assert found["aux"]["loss"] == ticket / 2


def test_a_batch_that_raises_while_it_warms_up_ends_nothing(bytes_of, capfd):
    actor, ready, *_ = started(bad=0)
    assert ready["kind"] == "joined"
    assert "The warm-up of worker 0 has failed (ArithmeticError: a mistake of the user" in capfd.readouterr().out
    said = [actor.compute(asked(0, ticket), bytes_of)[0] for ticket in (0, 1, 2)]
    assert [one["kind"] for one in said] == ["failed", "came", "came"]


def test_it_gives_up_what_was_interrupted_and_what_has_no_parameters(bytes_of):
    actor, *_ = started()
    actor.interrupt(0, 3)
    kinds = [
        actor.compute(asked(0, ticket), memory)[0]["kind"]
        for ticket, memory in ((3, bytes_of), (4, None), (4, bytes_of))
    ]
    assert kinds == ["gave_up", "gave_up", "came"]


def test_what_it_prints_goes_to_a_file_where_its_folder_is_there(tmp_path):
    """In a process of its own, whose output is moved for good."""
    program = (
        "import pathlib, sys; from sgdlab.live.worker import _print_to; why = _print_to(pathlib.Path(sys.argv[1])); "
        "print('printed', why)"
    )
    for name, why in (("there.log", ""), ("missing/own.log", f"{tmp_path}/missing cannot be written (No such file or")):
        command = [sys.executable, "-c", program, tmp_path / name]
        told = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout
        assert (told == "") == (why == "")
        assert why in told
    assert (tmp_path / "there.log").read_text() == "printed \n"
    assert not (tmp_path / "missing").exists()  # nothing is left on the machines of a cluster


def test_its_errors_are_one_line(bytes_of, capfd):
    actor, *_ = started()
    said, computed = actor.compute(asked(0, process_works.BAD_TICKET), bytes_of)
    assert computed is None
    assert said["error"].startswith("ArithmeticError: a mistake of the user")
    _, ready, *_ = started(layout=[["['params']['scalar']", "int8[]"]])
    assert "['params']['scalar'] is float32[] in the worker and int8[] in the server" in ready["error"]
    assert "Traceback" in capfd.readouterr().err
