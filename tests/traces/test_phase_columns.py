"""Phases: what adds up to a compute time, what is communication, and what the transfer itself is."""

import collections
import math
import pathlib

import numpy as np
import pyarrow.parquet as pq
import pytest

from sgdlab.traces import Options, Recording, read
from sgdlab.traces.phases import collective, is_communication, is_total

NAN = math.nan
TRACES = pathlib.Path(__file__).resolve().parents[3] / "shared" / "traces"

COMMUNICATION = [
    "all_reduce", "all-gather", "AllReduce", "allreduce", "reduce_scatter", "reduce-scatter", "grads-reduce-scatter",
    "params-all-gather", "embedding-grads-all-reduce", "nccl", "nccl:all_reduce", "ncclDevKernel_AllGather_RING_LL",
    "gloo:broadcast", "comm", "comm_time", "communication", "barrier", "sync", "grad_sync", "grads-sync", "synchronize",
    "wait", "waiting", "forward-send", "backward-recv", "psum", "all_to_all", "c10d::allreduce_",
]  # fmt: skip
OWN = [
    "forward", "backward", "forward-compute", "backward-compute", "compute", "data", "data_loading", "optimizer", "gc",
    "optimizer_step", "async_copy", "cuda_synchronize", "device_sync", "wait_for_data", "dataloader wait", "commit",
    "command", "receiver_setup", "checkpoint", "reduce_lr", "gather_metrics", "synchrotron", "prompt",
]  # fmt: skip


KINDS = {
    "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)": "all_reduce",
    "ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)": "all_reduce",
    "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL": "reduce_scatter",
    "ncclDevKernel_AllGather_RING_LL(ncclDevComm*, unsigned long, ncclWork*)": "all_gather",
    "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)": "send_recv",
    "ncclDevKernel_Broadcast_RING_LL": "broadcast",
    "ncclDevKernel_Generic_1(ncclDevKernelArgsStorage<4096ul>)": "communication",
    "void vllm::cross_device_reduce_2stage<__nv_bfloat16, 8>": "all_reduce",
    "void reduce_scatter_kernel(AllReduceParams<float>)": "reduce_scatter",
    "nccl:_allgather_base": "all_gather",
    "nccl:recv 0<-1": "send_recv",
    "gloo:all_reduce": "all_reduce",
    "all-reduce.17": "all_reduce",
    "all-gather-start.2": "all_gather",
    "collective-permute-done": "send_recv",
    "all-to-all.1": "all_to_all",
    "hcom_allReduce__123": "all_reduce",
}
NO_COLLECTIVES = (
    "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float>>",
    "void gemm_broadcast_scatter_gather",
    "broadcast_multiply_fusion",
    "torch::distributed::reducer::mul_out",
    "DistributedDataParallel.forward",
    "optimization-barrier.1",
    "Optimizer.step#SGD.step",
    "aten::scatter_",
    "reduce.4",
)


def test_collectives_are_told_by_the_names_of_kernels_and_operations():
    assert {name: collective(name) for name in KINDS} == KINDS
    assert [name for name in NO_COLLECTIVES if collective(name) is not None] == []


@pytest.mark.parametrize(("names", "expected"), [(COMMUNICATION, True), (OWN, False)])
def test_names(names, expected):
    assert [name for name in names if is_communication(name) != expected] == []


def test_names_of_whole_steps():
    assert [name for name in ("step", "Total", "iteration", "step-time") if not is_total(name)] == []
    assert [name for name in ("forward", "optimizer_step", "stepper") if is_total(name)] == []


def read_rows(tmp_path, rows, **options) -> Recording:
    """Rows of worker, step, phase and duration."""
    path = tmp_path / "trace.csv"
    path.write_text("worker,step,phase,duration\n" + "\n".join(rows))
    return read(path, Options(**options))


def assert_times(found, expected):
    assert set(found) == set(expected)
    for name, times in expected.items():
        np.testing.assert_array_equal(found[name], times)


def test_phases_add_up_and_communication_stands_beside(tmp_path):
    rows = ["a,0,forward,1", "a,0,backward,2", "a,0,all-reduce,0.5", "b,0,forward,1.5", "b,0,all-reduce,3"]
    rows += ["a,1,all-reduce,2", "b,1,forward,4", "b,1,backward,", "a,2,forward,7", "a,2,barrier,1"]
    recording = read_rows(tmp_path, rows)
    np.testing.assert_array_equal(recording.runtimes, [[3, 1.5], [NAN, NAN], [7, NAN]])
    forward, backward = [[1, 1.5], [NAN, 4], [7, NAN]], [[2, 0], [NAN, NAN], [0, NAN]]
    assert_times(recording.phases, {"backward": backward, "forward": forward})
    reduced = [[0.5, 3], [2, NAN], [NAN, NAN]]
    assert_times(recording.communication, {"all-reduce": reduced, "barrier": [[NAN, NAN], [NAN, NAN], [1, NAN]]})
    np.testing.assert_array_equal(recording.transfer(), [0.5, 2, 1])


def test_run_times_without_parts_beside_communication(tmp_path):
    recording = read_rows(tmp_path, ["a,0,compute,1", "a,0,sync,2", "b,0,compute,3", "b,0,sync,0.25"])
    np.testing.assert_array_equal(recording.runtimes, [[1, 3]])
    assert_times(recording.phases, {})
    assert_times(recording.communication, {"sync": [[2, 0.25]]})


def test_a_phase_that_is_the_whole_step_is_left_out(tmp_path):
    recording = read_rows(tmp_path, ["a,0,step,9", "a,0,forward,1", "a,0,backward,2", "a,0,nccl,4"])
    np.testing.assert_array_equal(recording.runtimes, [[3]])
    assert "'step'" in recording.notes[0]
    np.testing.assert_array_equal(read_rows(tmp_path, ["a,0,step,9", "a,0,nccl,4"]).runtimes, [[9]])


def test_only_communication_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"must have a phase of a worker's own work.*all_reduce"):
        read_rows(tmp_path, ["a,0,all_reduce,1"])


def test_a_column_that_lines_of_another_kind_have_is_no_phase(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_text(
        '{"event": "began"}\n{"rank": 0, "step": 1, "duration": 2}\n{"rank": 1, "step": 1, "duration": 3}\n'
    )
    recording = read(path)
    np.testing.assert_array_equal(recording.runtimes, [[2, 3]])
    assert not recording.phases
    assert not any("phase" in note for note in recording.notes)


ROWS = [
    # dp_rank, stage, step, optype, duration: two workers, two stages
    (0, 0, 5, "forward-compute", 1.0),
    (0, 0, 5, "backward-compute", 2.0),
    (0, 1, 5, "forward-compute", 2.0),
    (0, 1, 5, "backward-compute", 2.0),
    (1, 0, 5, "forward-compute", 3.0),
    (1, 1, 5, "backward-compute", 0.5),
    (0, 0, 5, "grads-reduce-scatter", 6.0),  # stage 0: the transfer takes 6, of which worker 1 sees no more
    (1, 0, 5, "grads-reduce-scatter", 7.0),
    (0, 1, 5, "grads-reduce-scatter", 1.0),
    (1, 1, 5, "grads-reduce-scatter", 40.0),
    (0, 0, 5, "params-all-gather", 0.25),
    (0, 0, 5, "params-all-gather", 0.25),  # two in a step
    (0, 0, 5, "embedding-grads-all-reduce", 50.0),
    (0, 1, 5, "forward-recv", 60.0),
    (0, 0, 5, "optimizer", 70.0),
]


@pytest.mark.parametrize("unit", ["s", "ms"])
def test_operations(tmp_path, unit):
    path, scale = tmp_path / "trace.csv", {"s": 1, "ms": 1e3}[unit]
    header = "dp_rank,stage,step,optype,duration,start_ts\n"
    path.write_text(header + "\n".join(",".join(map(str, row)) + ",0" for row in ROWS))
    recording = read(path, Options(unit=unit))
    seconds = lambda times: {name: np.array(values) / scale for name, values in times.items()}
    np.testing.assert_array_equal(recording.runtimes, np.array([[4, 3]]) / scale)
    assert_times(recording.phases, seconds({"backward-compute": [[2, 0]], "forward-compute": [[2, 3]]}))
    expected = {"grads-reduce-scatter": [[6, 7]], "params-all-gather": [[0.5, NAN]]}
    assert_times(recording.communication, seconds(expected))
    np.testing.assert_allclose(recording.transfer(), [6.5 / scale], rtol=1e-15)
    for name in ("embedding-grads-all-reduce", "forward-recv", "optimizer"):
        assert name in recording.notes[0]
    assert recording.began is None


@pytest.mark.skipif(not TRACES.is_dir(), reason="the real traces are not here")
@pytest.mark.parametrize("name", ["AR", "SE"])
def test_real_operations(name, tmp_path):
    """Without begins, every sum again from the raw rows."""
    path = tmp_path / "trace.parquet"
    pq.write_table(pq.read_table(TRACES / f"trace-{name}.parquet").drop_columns(["start_ts"]), path)
    recording = read(path)
    assert "no column 'start_ts'" in recording.unseen
    sums = collections.defaultdict(float)
    for row in pq.read_table(path, columns=["dp_rank", "stage", "step", "optype", "duration"]).to_pylist():
        sums[row["optype"], row["step"], int(row["dp_rank"]), row["stage"]] += row["duration"]
    steps, ranks = recording.steps.tolist(), range(len(recording.workers))
    stages = sorted({stage for _, _, _, stage in sums})
    np.testing.assert_allclose(sum(recording.phases.values()), recording.runtimes, rtol=1e-12)
    own = ("forward-compute", "backward-compute")
    for t, step in enumerate(steps[:10]):
        for rank in ranks:
            slowest = max(stages, key=lambda stage: sum(sums[op, step, rank, stage] for op in own))
            for op in own:
                assert math.isclose(recording.phases[op][t, rank], sums[op, step, rank, slowest], rel_tol=1e-12)
    assert set(recording.communication) == {"grads-reduce-scatter", "params-all-gather"}
    transfer = np.zeros(len(steps))
    for op in recording.communication:
        least = np.array([[min(sums[op, step, rank, stage] for rank in ranks) for stage in stages] for step in steps])
        transfer += least[:, np.median(least, axis=0).argmax()]
    np.testing.assert_allclose(recording.transfer(), transfer, rtol=1e-12)


def test_select_keeps_what_belongs_together():
    times = {name: np.arange(6.0).reshape(3, 2) + number for number, name in enumerate("xyz", 1)}
    whole = Recording(
        times["x"], np.array([3, 5, 6]), ("a", "b"), ("n", "m"), {"y": times["y"]}, {"z": times["z"]}, np.arange(3.0)
    )
    part = whole.select(rows=[True, False, True], workers=[1])
    np.testing.assert_array_equal(part.runtimes, [[2], [6]])
    np.testing.assert_array_equal(part.phases["y"], [[3], [7]])
    np.testing.assert_array_equal(part.communication["z"], [[4], [8]])
    assert (part.steps.tolist(), part.workers, part.nodes, part.began.tolist()) == ([3, 6], ("b",), ("m",), [0, 2])
    np.testing.assert_array_equal(whole.select(rows=slice(2, 3)).began, [2])
    assert whole.complete() is whole
