"""Recordings: what is missing, files that come back, schedules seen as recordings, and the two real traces."""

import csv
import json
import math
import pathlib
import re
import subprocess
import sys

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lib.tiers import examples

from sgdlab import protocols
from sgdlab.cluster import Recording, from_schedule, recorded
from sgdlab.traces import text_tables, writing

NAN = math.nan
ENDINGS = ("csv", "jsonl", "parquet")
TRACES = pathlib.Path(__file__).resolve().parents[3] / "shared" / "traces"
RUNTIMES = np.random.default_rng(0).uniform(0.5, 2.0, (9, 5))

GAPPED = Recording(
    np.array([[1.5, NAN, 0.1], [NAN, 2.0, 1 / 3], [3.0, 4.0, 5.0]]), np.array([3, 4, 9]), ("2", "10", 'a "b", c')
)


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


def naively_filled(given):
    """The times after filling in, by name, and how many were filled in: one after another, as the docstring says."""
    times = {"runtimes": given.runtimes, **given.phases}
    expected, filled = {name: values.copy() for name, values in times.items()}, 0
    for step, worker in np.argwhere(np.isnan(given.runtimes)):
        known = np.flatnonzero(~np.isnan(given.runtimes[:, worker]))
        before, after = known[known < step], known[known > step]
        gap = (after[0] if after.size else 60) - (before[-1] if before.size else -1) - 1
        if gap > 3 or known.size < 54 or np.isnan(given.runtimes[step]).sum() > 2:
            continue
        source = min(known[abs(known - step) >= 8], key=lambda one: (abs(one - step), one))
        factor = np.nanmedian(given.runtimes[step]) / np.nanmedian(given.runtimes[source])
        filled += 1
        for name, values in times.items():
            expected[name][step, worker] = values[source, worker] * factor
    return expected, filled


class TestRecording:
    def test_save_and_read(self, tmp_path):
        path = tmp_path / "deep" / "trace.csv"
        GAPPED.save(path)
        assert_same(recorded(path), GAPPED)
        assert [file.name for file in path.parent.iterdir()] == [path.name]

    def test_save_refuses_other_endings(self, tmp_path):
        with pytest.raises(ValueError, match=r"trace\.npy' must end in \.parquet or \.csv"):
            GAPPED.save(tmp_path / "trace.npy")
        assert not list(tmp_path.iterdir())

    def test_counts(self):
        assert (GAPPED.missing, GAPPED.gaps) == (2, 4)

    def test_complete(self):
        assert_same(GAPPED.complete(), Recording(np.array([[3.0, 4.0, 5.0]]), np.array([9]), GAPPED.workers))
        none = Recording(GAPPED.runtimes[:2], GAPPED.steps[:2], GAPPED.workers)
        with pytest.raises(ValueError, match="none of the 2 recorded steps has compute times of all 3 workers"):
            none.complete()

    @pytest.mark.parametrize("seed", range(8))
    def test_missing_times_are_filled_in_like_one_by_one(self, seed):
        draw = np.random.default_rng(seed)
        phases = draw.gamma(4.0, 1.0, (2, 60, 4))
        missing = draw.random((60, 4)) < [0.0, 0.02, 0.05, 0.09]
        missing[draw.integers(60) : draw.integers(60), 1] = True  # a gap of any length
        missing[draw.integers(60), : draw.integers(5)] = True  # a step that few have, or nobody
        missing[[0, -1], 1 + draw.integers(3)] = True
        missing[:, 0] &= draw.random(60) < 0.5
        phases[:, missing] = np.nan
        given = Recording(
            phases.sum(axis=0), np.arange(60), tuple("abcd"), phases={"load": phases[0], "work": phases[1]}
        )
        found = given.filled()
        expected, filled = naively_filled(given)
        for name, times in {"runtimes": found.runtimes, **found.phases}.items():
            np.testing.assert_array_equal(times, expected[name])
        assert found.missing == given.missing - filled
        np.testing.assert_allclose(sum(found.phases.values()), found.runtimes)

    def test_eight_steps_away_the_earlier_of_two_and_no_more_than_three_in_a_row(self):
        times = np.arange(1.0, 221).reshape(110, 2)
        times[:, 0] = 1.0  # the only one whose times all steps have
        times[[5, 10, 18, 30, 31, 32], 1] = times[50:54, 1] = np.nan
        given = Recording(times[:79], np.arange(79), ("a", "b"))
        sources = [13, 2, 26, 22, 23, 24]  # 10 lacks as well
        found = Recording(times, np.arange(110), ("a", "b"))
        filled = found.filled().runtimes[:, 1]
        usual = (1 + times[sources, 1]) / 2  # median of a step, of which one time is 1
        np.testing.assert_allclose(filled[[5, 10, 18, 30, 31, 32]], times[sources, 1] / usual)
        assert np.isnan(filled[50:54]).all()
        assert given.filled() is given or given.missing == given.filled().missing  # more than a tenth is missing
        short = Recording(times[24:36], np.arange(12), ("a", "b"))
        assert short.filled().missing == 3

    def test_what_is_often_missing_and_longest_paths_are_not_filled_in(self):
        times = np.ones((50, 3))
        times[:30:5, 0] = times[1::10, 1] = np.nan
        given = Recording(times, np.arange(50), tuple("abc"))
        assert np.isnan(given.filled().runtimes).sum(axis=0).tolist() == [6, 0, 0]
        whole = Recording(np.ones((50, 3)), np.arange(50), tuple("abc"))
        assert whole.filled() is whole

    def test_its_text_has_the_counts(self):
        numbers = [float(number) for number in re.findall(r"\d+\.?\d*", str(GAPPED))]
        np.testing.assert_allclose(numbers, [3, 3, np.nanmean(GAPPED.runtimes), GAPPED.gaps, GAPPED.missing], rtol=1e-3)


@settings(max_examples=examples(60), deadline=None)
@given(recordings(), st.sampled_from(ENDINGS), st.booleans())
def test_what_was_saved_is_read(tmp_path_factory, recording, ending, read_at_once):
    path = tmp_path_factory.mktemp("saved") / f"trace.{ending}"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writing, "_BLOCK", 5)
        if not read_at_once:
            patch.setattr(text_tables, "_csv_at_once", lambda *_: None)
            patch.setattr(text_tables, "json_rows", text_tables._json_by_line)
        recording.save(path)
        assert_same(recorded(path), recording)


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
                {name: "" if cell is None else str(cell).removesuffix(".0") for name, cell in row.items()}
                for row in expected
            ]
    elif ending == "jsonl":
        assert [json.loads(line) for line in path.read_text().splitlines()] == expected
    else:
        assert pq.read_table(path).to_pylist() == expected


def test_a_single_phase_of_another_name_comes_back(tmp_path):
    times = np.array([[1.0, 2.0]])
    for name, expected in (("forward", ["forward"]), ("compute", [])):  # compute: the compute time, which has no parts
        Recording(times, np.array([0]), ("a", "b"), phases={name: times}).save(tmp_path / "trace.csv")
        found = recorded(tmp_path / "trace.csv")
        assert list(found.phases) == expected
        np.testing.assert_array_equal(found.runtimes, times)


WITHOUT_PYARROW = """
import sys
import sgdlab.cluster, sgdlab.traces
assert "pyarrow" not in sys.modules
"""


def test_pyarrow_is_imported_where_a_table_is_read_or_written(tmp_path):
    subprocess.run([sys.executable, "-c", WITHOUT_PYARROW], check=True, timeout=300)


def naive_runtimes(schedule) -> list[list[float]]:
    """Each worker's gradients in the order they were begun; NaN where it did not finish them."""
    lists = [[] for _ in range(schedule.num_workers)]
    for row in np.argsort(schedule.started, kind="stable"):
        update, arrived = schedule.update[row, 0], schedule.arrived[row, 0]
        interrupted = update == -1 and arrived in schedule.applied[:, 0]
        known = update != -2 and not interrupted
        lists[schedule.worker[row]].append(arrived - schedule.started[row] if known else NAN)
    longest = max(map(len, lists))
    return np.array([line + [NAN] * (longest - len(line)) for line in lists]).T


class TestFromSchedule:
    def test_synchronous_shows_all(self):
        recording = from_schedule(protocols.synchronous(RUNTIMES))
        np.testing.assert_allclose(recording.runtimes, RUNTIMES, rtol=1e-14)
        assert_same(recording, Recording(recording.runtimes, np.arange(9), tuple("01234")))

    @pytest.mark.parametrize(
        "schedule",
        [
            protocols.backup_workers(RUNTIMES, backups=2),
            protocols.asynchronous(RUNTIMES),
            protocols.timeout(RUNTIMES, at_least=2, seconds=0.2),
            protocols.timeout(RUNTIMES, at_least=2, seconds=0.2, interrupt=True),
        ],
    )
    def test_every_row_in_its_place(self, schedule):
        recording = from_schedule(schedule)
        np.testing.assert_array_equal(recording.runtimes, naive_runtimes(schedule))
        assert np.isfinite(recording.runtimes).sum() >= schedule.used().sum() > 0

    def test_gradients_that_were_interrupted_or_are_pending_are_unknown(self):
        # Worker 1 comes at 5, when worker 0 is in the middle of its third gradient.
        runtimes, expected = np.array([[2.0, 5.0]] * 4), [[2, 5], [2, NAN], [2, NAN], [2, NAN]]
        late = from_schedule(protocols.backup_workers(runtimes, backups=1))
        np.testing.assert_array_equal(late.runtimes, expected)
        pending = from_schedule(protocols.asynchronous(runtimes[:2]))
        np.testing.assert_array_equal(pending.runtimes, [[2, NAN], [2, NAN]])


@pytest.mark.skipif(not TRACES.is_dir(), reason="the real traces are not here")
class TestRealTraces:
    @pytest.mark.parametrize(
        ("name", "shape", "mean", "slowest"), [("SE", (43, 32), 6.76, 1.35), ("AR", (44, 4), 27.77, 2.08)]
    )
    def test_longest_paths(self, name, shape, mean, slowest):
        recording = recorded(TRACES / f"trace-{name}.parquet")
        assert recording.runtimes.shape == shape
        assert recording.workers == tuple(map(str, range(shape[1])))
        assert recording.missing == 0
        assert recording.gaps > 0
        assert round(float(recording.runtimes.mean()), 2) == mean
        over_median = recording.runtimes.max(axis=1) / np.median(recording.runtimes, axis=1)
        assert round(float(over_median.mean()), 2) == slowest

    def test_waiting_for_three_of_four(self):
        ordered = np.sort(recorded(TRACES / "trace-AR.parquet").runtimes, axis=1)
        gain = (3 / ordered[:, 2].sum()) / (4 / ordered[:, 3].sum())
        assert round(float(gain), 2) == 1.55
