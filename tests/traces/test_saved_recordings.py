"""What `save` writes, `read` reads: the same recording, in every format, by either writer."""

import csv
import json
import math

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lib.tiers import examples

from sgdlab.traces import Recording, read, text_tables, writing

ENDINGS = ("csv", "jsonl", "parquet")
NAN = math.nan

TIMES = st.floats(1e-6, 1e4) | st.just(NAN)
NAMES = st.lists(
    st.text("ab19 ,;\"'é作\t.", min_size=1, max_size=5).map(str.strip).filter(bool), min_size=1, max_size=4, unique=True
)


@st.composite
def recordings(draw) -> Recording:
    workers, count = sorted(draw(NAMES)), draw(st.integers(1, 4))
    shape = (count, len(workers))

    def times(element=TIMES) -> np.ndarray:
        return np.array(draw(st.lists(element, min_size=math.prod(shape), max_size=math.prod(shape)))).reshape(shape)

    phases = {name: times() for name in sorted(draw(st.sets(st.sampled_from(["forward", "backward", "gc"]))))}
    runtimes = times()
    if phases:  # in the order in which they are read
        runtimes = sum(phases.values(), np.zeros(shape))
    runtimes[0, 0] = 1.0
    for number, name in enumerate(phases):
        phases[name][0, 0] = 1.0 if number == 0 else 0.0
    steps = np.array(sorted(draw(st.sets(st.integers(-(2**40), 2**40), min_size=count, max_size=count))))
    communication = {name: times() for name in sorted(draw(st.sets(st.sampled_from(["all_reduce", "barrier"]))))}
    nodes = tuple(draw(st.sampled_from(["n1", "n 2", ""])) for _ in workers) if draw(st.booleans()) else ()
    began = None
    if draw(st.booleans()):
        starts = draw(st.lists(st.floats(0, 1e13), min_size=count, max_size=count, unique=True))
        began = np.array(sorted(starts))
        began[1:][draw(st.lists(st.booleans(), min_size=count - 1, max_size=count - 1))] = NAN
    nodes = nodes if any(nodes) else ()
    return Recording(runtimes, steps, tuple(workers), nodes, phases, communication, began)


def assert_same(found: Recording, expected: Recording) -> None:
    order = [found.workers.index(name) for name in expected.workers]  # numbers in names come by their size
    assert sorted(found.workers) == sorted(expected.workers)
    found = Recording(
        found.runtimes[:, order], found.steps, expected.workers,
        tuple(found.nodes[i] for i in order) if found.nodes else (),
        {name: times[:, order] for name, times in found.phases.items()},
        {name: times[:, order] for name, times in found.communication.items()}, found.began,
    )  # fmt: skip
    np.testing.assert_array_equal(found.runtimes, expected.runtimes, strict=True)
    np.testing.assert_array_equal(found.steps, expected.steps, strict=True)
    assert found.nodes == expected.nodes
    for one, other in ((found.phases, expected.phases), (found.communication, expected.communication)):
        assert list(one) == list(other)
        for name, times in other.items():
            np.testing.assert_array_equal(one[name], times, strict=True)
    if expected.began is None:
        assert found.began is None
    else:
        np.testing.assert_array_equal(found.began, expected.began)


@settings(max_examples=examples(60), deadline=None)
@given(recordings(), st.sampled_from(ENDINGS), st.booleans(), st.booleans())
def test_what_was_saved_is_read(tmp_path_factory, recording, ending, written_at_once, read_at_once):
    path = tmp_path_factory.mktemp("saved") / f"trace.{ending}"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writing, "_LARGE", 0 if written_at_once else math.inf)
        patch.setattr(writing, "_BLOCK", 5)
        patch.setattr(text_tables, "LARGE", 0 if read_at_once else math.inf)
        recording.save(path)
        assert_same(read(path), recording)


WHOLE = Recording(
    np.array([[1.5, NAN]]),
    np.array([7]),
    ("a", "b"),
    ("n", "m"),
    {},
    {"sync": np.array([[NAN, 2.0]])},
    np.array([3.25]),
)


@pytest.mark.parametrize("ending", ENDINGS)
def test_the_columns_are_those_that_are_documented(tmp_path, ending):
    path = tmp_path / f"trace.{ending}"
    WHOLE.save(path)
    expected = [
        {"worker": worker, "step": 7, "duration": time, "phase": phase, "node": node, "start_s": 3.25}
        for worker, node, times in (("a", "n", (1.5, None)), ("b", "m", (None, 2.0)))
        for phase, time in zip(("compute", "sync"), times, strict=True)
    ]
    if ending == "csv":
        with path.open(newline="") as file:
            assert list(csv.DictReader(file)) == [
                {name: "" if cell is None else str(cell) for name, cell in row.items()} for row in expected
            ]
    elif ending == "jsonl":
        assert [json.loads(line) for line in path.read_text().splitlines()] == expected
    else:
        assert pq.read_table(path).to_pylist() == expected


def test_a_single_phase_of_another_name_comes_back(tmp_path):
    times = np.array([[1.0, 2.0]])
    for name, expected in (("forward", ["forward"]), ("compute", [])):  # compute: the run-time, which has no parts
        Recording(times, np.array([0]), ("a", "b"), phases={name: times}).save(tmp_path / "trace.csv")
        found = read(tmp_path / "trace.csv")
        assert list(found.phases) == expected
        np.testing.assert_array_equal(found.runtimes, times)
