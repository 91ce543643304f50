"""Test that what is read as a file grows is what `sgdlab.traces` reads when it is whole."""

import json
import os

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
from lib.tiers import examples

from sgdlab import traces
from sgdlab.stragglers.follow.parsing import ParsedRows
from sgdlab.stragglers.follow.step_collector import FIRST, WINDOW, StepCollector
from sgdlab.stragglers.follow.tail import Growing, Tail
from sgdlab.traces.options import Options

T, N = 60, 5
RUNTIMES = np.random.default_rng(0).gamma(50.0, 0.02, (T, N)).round(6)


def shuffled(seed=0):
    """Steps and workers, in any order of the workers of a step."""
    generator = np.random.default_rng(seed)
    return [(step, worker) for step in range(T) for worker in generator.permutation(N).tolist()]


def long_csv():
    rows = [f"{w},{100 + t},{1000 * RUNTIMES[t, w]:.3f},host{w // 2}" for t, w in shuffled()]
    return "\n".join(["rank,iteration,time_ms,host", *rows, ""])


def german_csv():
    rows = [f"{100 + t};{w};{str(RUNTIMES[t, w]).replace('.', ',')}" for t, w in shuffled()]
    return "\n".join(["step;worker;duration", *rows, ""])


def phases_csv():
    rows = []
    for t, w in shuffled():
        quarter = RUNTIMES[t, w] / 4
        rows += [
            f"{w},{100 + t},{name},{seconds}"
            for name, seconds in (("forward", quarter), ("backward", 3 * quarter), ("all_reduce", 7.0))
        ]
    return "\n".join(["worker,step,phase,duration", *rows, ""])


def wide_csv():
    rows = [",".join([str(100 + t), *map(str, row)]) for t, row in enumerate(RUNTIMES.tolist())]
    return "\n".join(["step,e,d,c,b,a", *rows, ""])


def json_lines():
    return "".join(
        json.dumps({"step": 100 + t, "rank": w, "seconds": RUNTIMES[t, w], "loss": 1}) + "\n" for t, w in shuffled()
    )


FORMATS = {
    "long.csv": long_csv,
    "german.csv": german_csv,
    "phases.csv": phases_csv,
    "wide.csv": wide_csv,
    "lines.jsonl": json_lines,
}


def taken(tail, more=()):
    """All steps, as the file gets more."""
    steps, runtimes = [], []
    for write in (*more, None):
        if write is not None:
            write()
        got = tail.poll(end=write is None)
        steps.append(got[0])
        runtimes += [np.pad(row, (0, N - row.size), constant_values=np.nan) for row in got[1]]
    return np.concatenate(steps), np.array(runtimes)


@pytest.mark.parametrize("name", FORMATS)
def test_a_growing_file_gives_what_the_whole_one_does(tmp_path, name):
    path, text = tmp_path / name, FORMATS[name]()
    path.write_text(text)
    whole = traces.read(path)
    path.write_text("")
    cuts = sorted(np.random.default_rng(1).integers(0, len(text), 40).tolist())
    pieces = [text[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]

    def writer(piece):
        def write():
            with path.open("a") as file:
                file.write(piece)

        return write

    tail = Tail(path, Options())
    steps, runtimes = taken(tail, [writer(piece) for piece in pieces])
    assert steps.tolist() == whole.steps.tolist() == list(range(100, 100 + T))
    np.testing.assert_allclose(runtimes, whole.runtimes, rtol=1e-12)
    np.testing.assert_allclose(runtimes, RUNTIMES, rtol=1e-5)
    assert tuple(tail.steps.workers) == whole.workers
    assert tail.nodes == whole.nodes
    assert not tail.bad
    assert tail.steps.late == tail.steps.repeated == 0


@pytest.mark.parametrize("pattern", ["", "rank*.jsonl"])
def test_one_file_a_rank(tmp_path, pattern):
    for worker in range(N):
        with (tmp_path / f"rank{worker}.jsonl").open("w") as file:
            for step in range(T):
                file.write(json.dumps({"step": step, "seconds": RUNTIMES[step, worker]}) + "\n")
    path = os.path.join(tmp_path, pattern)
    tail = Tail(path, Options(workers_per_node=2))
    steps, runtimes = taken(tail)
    assert steps.tolist() == list(range(T))
    np.testing.assert_array_equal(runtimes, traces.read(path).runtimes)
    assert tail.steps.workers == ["0", "1", "2", "3", "4"]
    assert len(set(tail.nodes)) == 3


def test_bad_rows_are_counted_and_others_are_used(tmp_path):
    path = tmp_path / "trace.csv"
    lines = long_csv().splitlines()
    good = len(lines) - 1
    bad = ["3,7,n/a (timeout),host1", "3,7", "1,1.5,20.0,host0", "1,9,-3,host0", "1,9,inf,host0", ",9,3.0,host0"]
    path.write_text("\n".join([*lines[:50], *bad, *lines[50:], ""]))
    tail = Tail(path, Options())
    _, runtimes = taken(tail)
    np.testing.assert_allclose(runtimes, RUNTIMES, rtol=1e-5)
    assert good == runtimes.size
    assert sum(tail.bad.values()) == len(bad)


def test_bad_lines_of_json_are_counted_and_nan_is_missing(tmp_path):
    path = tmp_path / "trace.jsonl"
    bad = ["{broken", "[1, 2]", '{"step": 3, "rank": 1, "seconds": "fast"}']
    path.write_text(json_lines() + "\n".join(bad) + '\n{"step": 160, "rank": 0, "seconds": NaN}\n')
    tail = Tail(path, Options())
    steps, runtimes = taken(tail)
    assert sum(tail.bad.values()) == len(bad)
    assert steps[-1] == 160
    assert np.isnan(runtimes[-1]).all()
    np.testing.assert_array_equal(runtimes[:-1], RUNTIMES)


def test_what_is_no_trace_is_an_error_that_names_the_file(tmp_path):
    path = tmp_path / "trace.csv"
    path.write_text("rank,loss,duration\n1,2,3\n")
    with pytest.raises(ValueError, match=rf"^{path}: .*step"):
        Tail(path, Options()).poll()
    with pytest.raises(ValueError, match=r"trace\.parquet cannot be followed"):
        Tail(tmp_path / "trace.parquet", Options())


def test_half_a_line_waits_for_its_end(tmp_path):
    path = tmp_path / "file"
    growing = Growing(path)
    assert growing.read() == b""
    path.write_bytes(b"one\ntw")
    assert growing.read() == b"one\n"
    assert growing.read() == b""
    with path.open("ab") as file:
        file.write(b"o\nthree")
    assert growing.read() == b"two\n"
    assert growing.rest() == b"three"
    assert growing.generation == 0


def test_another_file_is_read_from_its_beginning(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"one\ntwo\n")
    growing = Growing(path)
    assert growing.read() == b"one\ntwo\n"
    path.write_bytes(b"new\n")  # shorter
    assert growing.read() == b"new\n"
    path.write_bytes(b"old\nlonger than before\n")  # the same file, written anew
    assert growing.read() == b"old\nlonger than before\n"
    (tmp_path / "other").write_bytes(b"old\nlonger than before\nand more\n")
    (tmp_path / "other").replace(path)
    assert growing.read() == b"old\nlonger than before\nand more\n"
    assert growing.generation == 3
    assert growing.read(4) == b""


def test_a_long_file_is_read_in_parts(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"".join(b"%d\n" % number for number in range(1000)))
    growing, parts = Growing(path), []
    while growing.unread:
        parts.append(growing.read(100))
    assert b"".join(parts) == path.read_bytes()


def rows(*triples):
    names = sorted({name for name, _, _ in triples})
    columns = [np.array(column) for column in zip(*((names.index(n), t, s) for n, t, s in triples), strict=True)]
    return ParsedRows(tuple(names), columns[0], columns[1], columns[2].astype(float))


@hypothesis.given(st.randoms(use_true_random=False), st.integers(1, 40))
@hypothesis.settings(max_examples=examples(40), deadline=None)
def test_rows_may_come_in_any_order_within_the_window(random, apart):
    triples = [(str(w), t, RUNTIMES[t, w]) for t in range(T) for w in range(N)]
    # One worker's stay in order: a step of which nothing was heard when all of the next are there is not waited for.
    triples.sort(key=lambda row: row[1] + (random.uniform(0, FIRST / 2) if row[0] != "0" else FIRST / 4))
    steps, numbers, times = StepCollector(), [], []
    for begin in range(0, len(triples), apart):
        steps.add(rows(*triples[begin : begin + apart]))
        number, time = steps.take()
        numbers, times = [*numbers, *number.tolist()], [*times, *time]
    number, time = steps.take(end=True)
    assert numbers + number.tolist() == list(range(T))
    np.testing.assert_array_equal([*times, *time], RUNTIMES)
    assert steps.late == steps.repeated == 0


def test_a_worker_that_is_far_behind_is_not_waited_for_until_it_is_back():
    steps, given = StepCollector(), []

    def add(names, numbers):
        for number in numbers:
            steps.add(rows(*((name, number, 1.0) for name in names)))
            given.extend(steps.take()[0].tolist())

    add("abc", range(30))
    add("ab", range(30, 30 + WINDOW))
    assert given[-1] == 29  # c may still come
    assert steps.lacks() == (30, ["c"])
    add("ab", range(30 + WINDOW, 300))
    assert given == list(range(300))
    add("c", [40])
    assert steps.late == 1
    add("abc", range(300, 400))
    assert given == list(range(400))
    add("ab", range(400, 410))
    assert given[-1] == 399  # it is waited for again


def test_the_first_of_repeated_rows_counts():
    steps = StepCollector()
    steps.add(rows(("a", 1, 5.0), ("b", 1, 6.0), ("a", 1, 7.0)))
    steps.add(rows(("a", 1, 8.0), ("a", 2, 9.0)))
    numbers, times = steps.take(end=True)
    assert numbers.tolist() == [1, 2]
    np.testing.assert_array_equal(times, [[5.0, 6.0], [9.0, np.nan]])
    assert steps.repeated == 2


def test_phases_of_a_step_may_come_apart():
    steps = StepCollector(has_phases=True)
    for number in range(FIRST + 5):
        steps.add(rows(("a", number, 1.0), ("b", number, 2.0)))
        steps.take()
        steps.add(rows(("a", number, 0.5)))
    numbers, times = steps.take(end=True)
    assert numbers[-1] == FIRST + 4
    assert {tuple(row) for row in times.tolist()} == {(1.5, 2.0)}
    assert steps.late == 0


def test_a_worker_that_skipped_a_step_is_not_waited_for_long():
    steps, given = StepCollector(), []
    for number in range(60):
        steps.add(rows(*((name, number, 1.0) for name in "abc" if (name, number) != ("b", 30))))
        given.extend(steps.take()[0].tolist())
    assert given == list(range(60))
    assert steps.lacks() is None


def logged(speeds, updates):
    """The log of an asynchronous run: workers of these times, in the order in which their gradients come."""
    came = sorted((speed * turn, worker, speed) for worker, speed in enumerate(speeds) for turn in range(1, updates))
    came = [one for one in came if one[0] < updates * min(speeds)]
    lines = [["log", 1, {}, {}, "sum"], ["start", 0.0, [], 3, 9, "sum"]]
    for ticket, (now, worker, seconds) in enumerate(came):
        lines += [["begun", now, ticket, "sum"], ["came", now, worker, ticket, seconds, 0.5, True, "sum"]]
    return "".join(json.dumps(line) + "\n" for line in lines)


@pytest.mark.parametrize("place", ["log.jsonl", "states/run/log.jsonl"])
def test_a_live_run_is_read_from_its_log(tmp_path, place):
    log = tmp_path / place
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text(logged([1.0, 1.0, 1.0], 50))
    tail = Tail(tmp_path, Options())
    steps, runtimes = tail.poll(end=True)
    assert steps.tolist() == list(range(49))
    np.testing.assert_array_equal(runtimes, np.ones((49, 3)))
    assert tail.steps.workers == ["worker 0", "worker 1", "worker 2"]
    assert not tail.bad


def test_a_worker_nobody_waits_for_has_gradients_in_fewer_rows(tmp_path):
    (tmp_path / "log.jsonl").write_text(logged([1.0, 1.0, 2.5], 400))
    tail = Tail(tmp_path, Options())
    steps, runtimes = tail.poll()
    assert steps.size > 390  # it is not waited for
    assert np.isfinite(runtimes[:, :2]).all()
    slow = np.isfinite(runtimes[:, 2])
    assert slow.mean() == pytest.approx(1 / 2.5, rel=0.05)
    assert set(runtimes[slow, 2]) == {2.5}
    assert tail.steps.late == 0


@pytest.mark.parametrize("read", [0, 60, 149])
def test_a_log_that_goes_on_in_another_file_is_read_on(tmp_path, read):
    """Read the rest of the one before first, which has another name by then."""
    path = tmp_path / "log.jsonl"
    header, *lines = logged([1.0, 1.0, 1.0], 50).splitlines(keepends=True)
    path.write_text(header + "".join(lines[:read]))
    tail = Tail(tmp_path, Options())
    given = [tail.poll()[0]]
    with path.open("a") as file:
        file.write("".join(lines[read:150]))
    os.link(path, tmp_path / "log-0.jsonl")
    (tmp_path / ".part").write_text(header + "".join(lines[150:]))
    os.replace(tmp_path / ".part", path)
    given += [tail.poll(end=turn == 2)[0] for turn in range(3)]
    assert np.concatenate(given).tolist() == list(range(49))
    assert (tail.why, tail.steps.late) == ("", 0)
    (tmp_path / ".part").write_text(header)
    os.replace(tmp_path / ".part", path)  # the one before is gone: another run
    assert tail.poll() is None


@pytest.mark.parametrize("header", ["worker,step,seconds\n", "", "# another part\nworker,step,seconds\n"])
@pytest.mark.parametrize("read", [0, 60, 149])
def test_a_trace_whose_file_rotates_is_read_on(tmp_path, read, header):
    """As logrotate and Python's RotatingFileHandler do: the file is renamed, and one with its old name is begun."""
    path, first = tmp_path / "trace.csv", "worker,step,seconds\n"
    lines = [f"w{worker},{step},{1.0 + worker / 4}\n" for step in range(100) for worker in range(3)]
    path.write_text(first + "".join(lines[:read]))
    tail = Tail(path, Options())
    given = [tail.poll()]
    with path.open("a") as file:
        file.write("".join(lines[read:150]))
    path.replace(tmp_path / "trace.csv.1")
    path.write_text("")
    given += [tail.poll(), tail.poll()]
    path.write_text(header + "".join(lines[150:250]))
    given.append(tail.poll())
    (tmp_path / "trace.csv.1").replace(tmp_path / "trace.csv.2")
    path.replace(tmp_path / "trace.csv.1")
    path.write_text(header + "".join(lines[250:]))
    given += [tail.poll(end=turn == 2) for turn in range(3)]
    steps, times = (np.concatenate(each) for each in zip(*(part for part in given if part[0].size), strict=True))
    assert steps.tolist() == list(range(100))
    np.testing.assert_array_equal(times, np.tile([1.0, 1.25, 1.5], (100, 1)))
    assert tail.why == ""


def test_a_file_with_other_columns_in_the_place_of_one_that_was_renamed_is_another(tmp_path):
    path = tmp_path / "trace.csv"
    path.write_text("worker,step,seconds\n" + "".join(f"{w},{t},1.0\n" for t in range(30) for w in "ab"))
    tail = Tail(path, Options())
    assert tail.poll()[0].size
    path.replace(tmp_path / "trace.csv.1")
    path.write_text("step,worker,ms\n" + "".join(f"{t},{w},2000\n" for t in range(20) for w in "ab"))
    assert tail.poll() is None
    assert tail.why.startswith("it was replaced")
    assert tail.poll(end=True)[1].tolist() == [[2.0, 2.0]] * 20


def test_a_directory_may_come_after_the_watch_has_begun(tmp_path):
    path = tmp_path / "run"
    tail = Tail(path, Options())
    assert tail.poll()[0].size == 0
    (path / "states" / "run").mkdir(parents=True)
    assert tail.poll()[0].size == 0
    assert tail.unread == 0
    (path / "states" / "run" / "log.jsonl").write_text(logged([1.0, 1.0], 30))
    assert tail.poll(end=True)[0].size == 29


@pytest.mark.parametrize("folder", [False, True])
def test_a_recorder_of_a_newer_format_is_refused_as_where_it_is_read_whole(tmp_path, folder):
    file = tmp_path / "rank0.jsonl"
    file.write_text('{"sgdlab_record": 9, "rank": 0}\n{"rank": 0, "step": 0, "phase": "data", "seconds": 1.0}\n')
    message = r"rank0.jsonl is of format 9 of sgdlab-record; this sgdlab reads up to 1"
    with pytest.raises(ValueError, match=message):
        Tail(tmp_path if folder else file, Options()).poll()
    with pytest.raises(ValueError, match="is of format 9 of sgdlab-record"):
        traces.read(file)


@pytest.mark.parametrize("lines_at_once", [1, 1000])
def test_columns_that_only_count_are_refused_before_a_step_is_given_out(tmp_path, lines_at_once):
    path = tmp_path / "trace.csv"
    lines = [f"{w},{100 + t},{RUNTIMES[t, w]}" for t in range(T) for w in range(N)]
    path.write_text("trainer,tick,took\n")
    tail, given = Tail(path, Options()), []

    def grow():
        for begin in range(0, len(lines), lines_at_once):
            with path.open("a") as file:
                file.write("\n".join([*lines[begin : begin + lines_at_once], ""]))
            given.extend(tail.poll()[0])

    with pytest.raises(ValueError, match=r"trace\.csv: columns 'trainer' and 'tick' only count, .* --columns='workers"):
        grow()
    assert not given
    tail = Tail(path, Options(columns=("trainer", "tick", "took")))
    grow()
    assert len(given) >= T - FIRST
