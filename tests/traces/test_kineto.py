"""PyTorch's profiles, written by hand in the form in which PyTorch 2.13 writes them."""

import gzip
import json

import numpy as np
import pytest

from sgdlab import traces
from sgdlab.traces import Options
from sgdlab.traces.kineto import kineto

ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
ELEMENTWISE = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>"


def event(category, name, begin, end, thread=7, **arguments):
    where = {"pid": 0 if category == "kernel" else 100, "tid": thread}
    return {"ph": "X", "cat": category, "name": name, **where, "ts": begin, "dur": end - begin, "args": arguments}


def write(path, events, rank=None, backend="nccl", **header):
    if rank is not None:
        header["distributedInfo"] = {"backend": backend, "rank": rank, "world_size": 2}
    metadata = [{"ph": "M", "name": "process_name", "ts": 0, "pid": 100, "tid": 0, "args": {"name": "python"}}]
    instants = [{"ph": "i", "s": "g", "name": "Record Window End", "pid": "", "tid": "", "ts": 999}]
    around = {"schemaVersion": 1, "deviceProperties": [], **header, "traceEvents": metadata + events + instants}
    text = json.dumps({**around, "traceName": "/tmp/x.json"}, indent=2)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())


def on_device(shift=0.0):
    """Two steps of a rank with kernels; microseconds."""
    return [
        event("user_annotation", "ProfilerStep#3", 0 + shift, 100 + shift, thread=100),
        event("user_annotation", "ProfilerStep#4", 100 + shift, 200 + shift, thread=100),
        event("gpu_user_annotation", "ProfilerStep#3", 20 + shift, 130 + shift),
        event("gpu_user_annotation", "ProfilerStep#4", 140 + shift, 250 + shift),
        event("user_annotation", "nccl:all_reduce", 10 + shift, 90 + shift, thread=100),  # the host enqueues
        event("cpu_op", "c10d::allreduce_", 10 + shift, 12 + shift, thread=100),
        event("kernel", ELEMENTWISE, 5 + shift, 15 + shift),  # of the step before
        event("kernel", ELEMENTWISE, 20 + shift, 60 + shift),
        event("kernel", ALL_REDUCE, 50 + shift, 130 + shift, thread=20),
        event("gpu_memcpy", "Memcpy HtoD", 100 + shift, 110 + shift, thread=21),
        event("kernel", ELEMENTWISE, 140 + shift, 180 + shift),
        event("kernel", "ncclDevKernel_Generic_4(x)", 170 + shift, 250 + shift, **{"Collective name": "allgather"}),
        event("kernel", "ncclDevKernel_ReduceScatter_Sum_f32", 240 + shift, 250 + shift, thread=22),
    ]


def test_own_work_on_a_device_is_the_step_less_exposed_communication(tmp_path):
    write(tmp_path / "a.json", on_device(), rank=0, host_name="east", baseTimeNanoseconds=2_000_000_000)
    write(tmp_path / "b.json.gz", on_device(shift=1000.0), rank=1, host_name="west")
    recording = traces.read(tmp_path)
    assert recording.workers == ("0", "1")
    assert recording.nodes == ("east", "west")
    assert recording.steps.tolist() == [3, 4]
    # Step 3 begins when the device has done what was there before, 15, and ends at 130; 60 to 130 is exposed.
    # Step 4 goes on to 250; 180 to 250 is exposed, and the scatter within is counted once.
    own, gather = np.array([115 - 70, 120 - 70]) * 1e-6, np.array([0, 70]) * 1e-6
    for rank in range(2):
        np.testing.assert_allclose(recording.runtimes[:, rank], own)
        np.testing.assert_allclose(recording.communication["all_reduce"][:, rank], [70e-6, 0])
        np.testing.assert_allclose(recording.communication["all_gather"][:, rank], gather)
        np.testing.assert_allclose(recording.phases["kernels"][:, rank], [40e-6, 40e-6])
        np.testing.assert_allclose(recording.phases["copies and idle"][:, rank], [5e-6, 10e-6])
    assert "reduce_scatter" not in recording.communication
    np.testing.assert_allclose(recording.began, [1015e-6, 1130e-6])  # the earlier of the two clocks


def test_a_rank_that_waits_and_one_that_does_not(tmp_path):
    for rank, work in enumerate([30.0, 80.0]):
        events = []
        for step in range(5, 9):
            begin = 100.0 * step
            events += [
                event("user_annotation", f"ProfilerStep#{step}", begin, begin + 100),
                event("gpu_user_annotation", f"ProfilerStep#{step}", begin, begin + 100),
                event("kernel", ELEMENTWISE, begin, begin + work),
                event("kernel", ALL_REDUCE, begin + work, begin + 100),
            ]
        write(tmp_path / f"host_{rank}.1700000000.pt.trace.json", events, rank=rank)
    (tmp_path / "notes.json").write_text("{}")
    recording = traces.read(tmp_path)
    np.testing.assert_allclose(recording.runtimes, np.tile([30e-6, 80e-6], (4, 1)))
    np.testing.assert_allclose(recording.transfer(), 20e-6)


def on_processor():
    """A step as gloo does it: the collective is in a thread of its own, and the main thread waits without an event."""
    return [
        event("user_annotation", "ProfilerStep#2", 0, 100, thread=100),
        event("user_annotation", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 0, 10, thread=100),
        event("cpu_op", "aten::mm", 10, 30, thread=100),
        event("cpu_op", "autograd::engine::evaluate_function: AddmmBackward0", 30, 90, thread=100),
        event("cpu_op", "aten::mm", 30, 50, thread=100),
        event("cpu_op", "c10d::allreduce_", 40, 42, thread=100),
        event("user_annotation", "gloo:all_reduce", 42, 93, thread=101),
        event("cpu_op", "aten::_foreach_add_", 90, 95, thread=100),
        event("user_annotation", "Optimizer.step#SGD.step", 90, 96, thread=100),
        event("python_function", "torch/distributed.py: all_reduce", 0, 100, thread=100),
    ]


def test_own_work_on_processors_is_the_step_less_waiting_for_the_back_end(tmp_path):
    write(tmp_path / "trace_4.json", on_processor())
    recording = kineto(path=tmp_path / "trace_4.json", options=Options())
    assert recording.workers == ("4",)  # by the file's name
    np.testing.assert_allclose(recording.runtimes, [[60e-6]])  # 50 to 90 is exposed
    np.testing.assert_allclose(recording.communication["all_reduce"], [[40e-6]])
    parts = {"data": 10e-6, "optimizer": 6e-6, "other": 44e-6}
    assert set(recording.phases) == set(parts)
    for name, time in parts.items():
        np.testing.assert_allclose(recording.phases[name], [[time]])


def test_an_unfinished_profile_is_refused_or_left_out(tmp_path):
    for rank in range(3):
        write(tmp_path / f"rank{rank}.json", on_device(), rank=rank)
    whole = (tmp_path / "rank1.json").read_text()
    (tmp_path / "rank1.json").write_text(whole[: 2 * len(whole) // 3])
    with pytest.raises(ValueError, match=r"rank1\.json ends after [0-9]+ events"):
        traces.read(tmp_path)
    recording = traces.read(tmp_path, Options(skip_bad_rows=True))
    assert recording.workers == ("0", "2")
    assert any("rank1.json was left out" in note for note in recording.notes)


def test_what_is_missing_is_named(tmp_path):
    write(tmp_path / "rank0.json", [event("cpu_op", "aten::mm", 0, 1)], rank=0)
    with pytest.raises(ValueError, match=r"rank0\.json has no steps ProfilerStep#N"):
        traces.read(tmp_path)
    write(tmp_path / "rank0.json", on_processor(), rank=0)
    with pytest.raises(ValueError, match=r"rank0\.json has no kernels, .*ProfilerActivity\.CUDA"):
        traces.read(tmp_path)
    write(tmp_path / "rank0.json", on_processor())
    write(tmp_path / "rank1.json", on_device(), rank=1)
    with pytest.raises(ValueError, match="1 of 2 profiles have no kernels"):
        traces.read(tmp_path)
    write(tmp_path / "rank0.json", [e for e in on_device() if e["cat"] != "gpu_user_annotation"], rank=0)
    assert any("steps are those of the host" in note for note in traces.read(tmp_path).notes)
    (tmp_path / "rank0.json").rename(tmp_path / "x.json")
    write(tmp_path / "x.json", on_device())
    with pytest.raises(ValueError, match=r"x\.json has no distributedInfo"):
        traces.read(tmp_path)
