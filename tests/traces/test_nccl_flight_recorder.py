"""Dumps of PyTorch's flight recorder, made by a small simulation in the form of version 2.10 of the format."""

import json
import pathlib
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sgdlab import traces
from sgdlab.traces import Options
from sgdlab.traces.nccl_flight_recorder import period, step_begins

RANKS, STEPS, TRANSFER = 3, 8, 0.25
BIG, SMALL = [[80400]], [[3]]


def entry(number, name, sizes, created, duration, group=("0", "default_pg"), *, p2p=False):
    measured = {} if duration is None else {"duration_ms": float(duration) * 1e3}
    return {
        "record_id": number,
        "process_group": group,
        "collective_seq_id": number,
        "profiling_name": name,
        "time_created_ns": round(created * 1e9),
        "input_sizes": sizes,
        "input_dtypes": ["Float"],
        "state": "completed",
        "is_p2p": p2p,
        **measured,
    }


def simulated(work, between, clocks):
    """Entries of each rank: in a step it works, reduces, works again, and reduces the loss. Clocks differ by rank."""
    entries = [[entry(1, "nccl:broadcast", [[12]], clock, 0.1)] for clock in clocks]
    free = np.full(RANKS, 0.5)
    number = 1
    for step in range(len(work)):
        for own, sizes in ((work[step], BIG), (between[step], SMALL)):
            number += 1
            came = free + own
            free = np.full(RANKS, came.max() + TRANSFER)
            for rank in range(RANKS):
                created = clocks[rank] + came[rank]
                entries[rank].append(entry(number, "nccl:all_reduce", sizes, created, free[rank] - came[rank]))
    return entries


def dump(folder: pathlib.Path, entries, *, as_json=False):
    folder.mkdir(exist_ok=True)
    for rank, mine in enumerate(entries):
        status = {"0": {"last_enqueued_collective": 1, "last_started_collective": 1, "last_completed_collective": 1}}
        config = {"0": {"name": "0", "desc": "default_pg", "ranks": str(list(range(RANKS)))}}
        whole = {"version": "2.10", "pg_config": config, "pg_status": status, "entries": mine}
        raw = json.dumps(whole).encode() if as_json else pickle.dumps(whole, protocol=2)
        (folder / f"nccl_trace_rank_{rank}").write_bytes(raw)
    return folder


@pytest.fixture(name="times")
def work_of_three_ranks():
    """Seconds before the gradients, and between them and the loss; and the clocks, years apart."""
    draw = np.random.default_rng(0)
    return draw.uniform(1.0, 3.0, (STEPS, RANKS)), draw.uniform(0.1, 0.5, (STEPS, RANKS)), [1.7e9, 1.6e9, 1.8e9]


@pytest.mark.parametrize("as_json", [False, True])
def test_own_work_is_the_time_between_collectives(tmp_path, times, as_json):
    work, between, _ = times
    recording = traces.read(dump(tmp_path / "dump", simulated(*times), as_json=as_json))
    assert recording.workers == ("0", "1", "2")
    # From one step's first collective to the next one's: what lies between the two, and the work that follows.
    np.testing.assert_allclose(recording.runtimes, between[:-1] + work[1:], rtol=1e-6)
    wait = work.max(axis=1, keepdims=True) - work + between.max(axis=1, keepdims=True) - between
    assert list(recording.communication) == ["all_reduce"]
    np.testing.assert_allclose(recording.communication["all_reduce"], (wait + 2 * TRANSFER)[:-1], rtol=1e-6)
    assert recording.nodes == ()


def test_buffers_that_begin_at_different_collectives_are_put_together_by_their_numbers(tmp_path, times):
    entries = simulated(*times)
    whole = traces.read(dump(tmp_path / "whole", entries))
    part = traces.read(dump(tmp_path / "part", [entries[0], entries[1][4:], entries[2][:-3]]))
    known = ~np.isnan(part.runtimes)
    np.testing.assert_array_equal(known.sum(axis=0), [STEPS - 1, STEPS - 3, STEPS - 2])
    np.testing.assert_allclose(part.runtimes[known], whole.runtimes[known], rtol=1e-6)


def test_collectives_of_other_groups_and_sends_are_communication(tmp_path, times):
    entries = simulated(*times)
    for mine in entries:
        for index in range(1, len(mine), 2):  # behind each step's first
            created = mine[index]["time_created_ns"] * 1e-9 + 0.01
            mine.append(entry(index, "nccl:_all_gather_base", [[5]], created, 0.02, ("7", "mesh_tp")))
            mine.append(entry(index + 1, "nccl:send 0->1", [[5]], created, 0.03, p2p=True))  # of the same group
    plain = traces.read(dump(tmp_path / "plain", simulated(*times)))
    recording = traces.read(dump(tmp_path / "more", entries))
    np.testing.assert_allclose(recording.communication["all_gather"], 0.02, rtol=1e-6)
    np.testing.assert_allclose(recording.communication["send_recv"], 0.03, rtol=1e-6)
    np.testing.assert_allclose(recording.runtimes, plain.runtimes - 0.05, rtol=1e-6)


def test_groups_of_some_ranks_each_are_matched_by_what_they_are_for(tmp_path, times):
    entries = simulated(*times)
    for rank, mine in enumerate(entries):
        for one in mine:
            one["process_group"] = (f"group {rank}", "data parallel")
    recording = traces.read(dump(tmp_path / "dump", entries))
    np.testing.assert_allclose(recording.runtimes, times[1][:-1] + times[0][1:], rtol=1e-6)


def test_where_computation_hides_transfers_only_waiting_is_communication(tmp_path):
    # Two steps of 1 s; collectives take 1.5 s on the rank that waits least, and run beside the computation.
    late = (0.0, 0.25, 0.5)
    entries = [[entry(n, "nccl:all_reduce", BIG, 1e9 + n, 2.0 - time) for n in range(1, 7)] for time in late]
    recording = traces.read(dump(tmp_path / "dump", entries))
    np.testing.assert_allclose(recording.communication["all_reduce"], np.tile([0.5, 0.25, 0.0], (5, 1)), atol=1e-9)
    np.testing.assert_allclose(recording.runtimes, np.tile([0.5, 0.75, 1.0], (5, 1)), rtol=1e-6)
    assert any("hides" in note for note in recording.notes)


def test_a_collective_without_a_duration_makes_its_step_unknown(tmp_path, times):
    entries = simulated(*times)
    del entries[1][5]["duration_ms"]  # the first collective of the third step
    recording = traces.read(dump(tmp_path / "dump", entries))
    assert np.argwhere(np.isnan(recording.runtimes)).tolist() == [[2, 1]]


def test_sizes_and_dtypes_become_messages_of_a_step(tmp_path, times):
    entries = simulated(*times)
    for mine in entries:
        for one in mine:
            one["input_dtypes"] = ["BFloat16"]
    recording = traces.read(dump(tmp_path / "dump", entries))
    small, big = recording.messages
    assert [(each.collective, each.size, each.bits, each.members) for each in recording.messages] == [
        ("all_reduce", 6.0, 16.0, RANKS),
        ("all_reduce", 160800.0, 16.0, RANKS),
    ]
    # Who comes last waits for nobody: the least is the transfer, of every step and each of its messages.
    for message in (small, big):
        assert message.per_step == 1
        np.testing.assert_allclose(message.seconds, np.full((STEPS - 1, 1), TRANSFER), rtol=1e-6)
    part = recording.select(rows=[1, 4], workers=[0, 2])
    assert [each.seconds.shape for each in part.messages] == [(2, 1), (2, 1)]


def test_messages_of_which_something_is_unknown(tmp_path, times):
    entries = simulated(*times)
    del entries[1][5]["duration_ms"]  # of one rank: another may have waited for it
    for mine in entries:
        mine[2]["input_dtypes"] = ["Unheard"]  # the loss of the first step
        mine[4]["input_sizes"], mine[4]["input_dtypes"] = [[2], [3]], ["Float", "Half"]  # that of the second has parts
    small, parts, big = traces.read(dump(tmp_path / "dump", entries)).messages
    assert np.isnan(big.seconds).ravel().tolist() == [False, False, True, *[False] * (STEPS - 4)]
    assert np.isnan(small.seconds).ravel().tolist() == [True, True, *[False] * (STEPS - 3)]
    assert (parts.size, parts.bits) == (14.0, 8 * 14 / 5)
    folder = dump(tmp_path / "plain", [[{**one, "input_sizes": None} for one in mine] for mine in simulated(*times)])
    assert traces.read(folder).messages == ()


def test_members_of_a_group_are_those_of_its_configuration(tmp_path, times):
    folder = dump(tmp_path / "dump", simulated(*times))
    for file in folder.iterdir():
        whole = pickle.loads(file.read_bytes())
        whole["pg_config"]["0"]["ranks"] = "[0, 1, 2, 3, 4, 5, 6, 7]"  # of which three were dumped
        file.write_bytes(pickle.dumps(whole, protocol=2))
    assert {each.members for each in traces.read(folder).messages} == {8}


class Evil:
    def __reduce__(self):
        return (pathlib.Path.touch, (pathlib.Path("harm"),))


def test_a_pickled_file_can_import_nothing(tmp_path, times, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = dump(tmp_path / "dump", simulated(*times))
    evil = pickle.dumps({"pg_config": {}, "pg_status": {}, "entries": [Evil()]}, protocol=2)
    (folder / "nccl_trace_rank_1").write_bytes(evil)
    with pytest.raises(ValueError, match=r"nccl_trace_rank_1 asks for .*; a dump holds only"):
        traces.read(folder)
    assert not (tmp_path / "harm").exists()
    assert traces.read(folder, Options(skip_bad_rows=True)).workers == ("0", "2")


def test_what_is_missing_is_named(tmp_path, times):
    entries = simulated(*times)
    folder = dump(tmp_path / "dump", [[{**one, "duration_ms": None} for one in mine] for mine in entries])
    with pytest.raises(ValueError, match="TORCH_NCCL_ENABLE_TIMING=1"):
        traces.read(folder)
    dump(folder, [mine[:1] for mine in entries])
    with pytest.raises(ValueError, match="do not repeat themselves"):
        traces.read(folder)
    dump(folder, [[] for _ in entries])
    with pytest.raises(ValueError, match="has no entries"):
        traces.read(folder)
    dump(folder, entries)
    whole = (folder / "nccl_trace_rank_2").read_bytes()
    (folder / "nccl_trace_rank_2").write_bytes(whole[:-200])
    with pytest.raises(ValueError, match="nccl_trace_rank_2 is damaged or unfinished"):
        traces.read(folder)


def test_a_dump_without_a_rank_in_its_name_is_refused(tmp_path, times):
    folder = dump(tmp_path / "dump", simulated(*times), as_json=True)
    alone = (folder / "nccl_trace_rank_0").rename(tmp_path / "dump.json")
    with pytest.raises(ValueError, match="has no rank in its name: name it nccl_trace_rank_0"):
        traces.read(alone)


@given(st.lists(st.integers(0, 3), min_size=1, max_size=6), st.integers(4, 8))
def test_the_period_of_a_sequence_without_anything_else(cycle, times):
    kinds = np.array(cycle * times)
    shortest = next(p for p in range(1, len(cycle) + 1) if cycle * 2 == (cycle[:p] * 2 * len(cycle))[: 2 * len(cycle)]
                    and len(cycle) % p == 0)  # fmt: skip
    assert period(kinds) == (shortest, 0, kinds.size)


@pytest.mark.parametrize("layers", [3, 40])
def test_equal_operations_within_a_step_are_not_taken_for_the_period(layers):
    step = [1] * layers + [2] * layers + [3]  # as of layers that are all alike
    kinds = np.array([7, 8, 9] + step * 5 + [1, 1])
    length, begin, end = period(kinds)
    assert (length, begin) == (len(step), 3)
    assert end == kinds.size


def test_a_step_begins_behind_the_longest_gap():
    kinds, gaps = np.array([0, 1, 2] * 4), np.array([1.0, 5.0, 2.0] * 4)
    np.testing.assert_array_equal(step_begins(kinds, gaps), [1, 4, 7, 10])


def test_extra_operations_do_not_shift_the_steps_behind_them():
    kinds = np.array([0, 1, 0, 1, 0, 1, 5, 5, 5, 0, 1, 0, 1, 0, 1, 0, 1])
    np.testing.assert_array_equal(step_begins(kinds, np.where(kinds == 0, 3.0, 1.0)), np.flatnonzero(kinds == 0))


def test_a_step_in_which_everything_comes_twice_is_counted_off():
    kinds = np.array([9, 0, 0, 1, 1, 0, 0, 1, 1, 0, 0, 1, 1])
    gaps = np.where(np.arange(13) % 4 == 1, 3.0, 1.0)
    np.testing.assert_array_equal(step_begins(kinds, gaps), [1, 5, 9])


def test_nothing_repeats_itself():
    assert step_begins(np.arange(9), np.ones(9)) is None
    assert step_begins(np.array([], np.int64), np.array([])) is None
