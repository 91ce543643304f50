"""Callbacks of sgdlab-record in jobs of the real packages, each in processes of its own; what they record is read."""

import os
import pathlib
import socket
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import sgdlab_record
from environments import python_of
from sgdlab_record import levanter, nvrx

from sgdlab import traces
from sgdlab.stragglers import recording as recordings
from sgdlab.stragglers.diagnosis import find_causes

ROOT = pathlib.Path(__file__).parents[2]
PROGRAMS = pathlib.Path(__file__).parent / "programs"


def run(python, program, *arguments, ranks=2, **named):
    """Run the processes of a job, and return what they have recorded in the first argument."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    environment = {
        **{name: value for name, value in os.environ.items() if name not in ("XLA_FLAGS", "PYTHONPATH")},
        "PYTHONPATH": str(ROOT / "record"), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "JAX_PLATFORMS": "cpu",
        "WORLD_SIZE": str(ranks), "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port,
    }  # fmt: skip
    jobs = [
        subprocess.Popen(
            [python, PROGRAMS / program, *(each.format(rank=rank, port=port) for each in arguments)],
            env={**environment, "RANK": str(rank), "GROUP_RANK": str(rank), "NODE_RANK": str(rank)},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )
        for rank in range(ranks)
    ]  # fmt: skip
    try:
        said = [job.communicate(timeout=500)[0] for job in jobs]
    finally:
        for job in jobs:
            job.kill()
    assert [job.returncode for job in jobs] == [0] * ranks, said[0][-3000:]
    assert "done" in said[0]
    return traces.read(arguments[0])


def first_cause(recording):
    parts = recordings.split(recording)
    causes = [cause for cause in find_causes(parts.complete, parts.pauses).causes if cause.kind != "pauses"]
    return causes[0] if causes else None


def assert_slow_in_backward(recording, stage, since=20):
    """Worker 1 takes 0.2 s longer in a stage from a step on, and the other one waits for it in the all-reduce."""
    assert recording.steps.tolist() == list(range(60))
    usual, slow = (np.median(recording.phases[stage][rows], axis=0) for rows in (slice(2, since), slice(since, None)))
    assert slow[1] - usual[1] > 0.15
    assert slow[0] - usual[0] < 0.1
    waits = np.median(recording.communication["all_reduce"][since:], axis=0)
    assert waits[0] - waits[1] > 0.1


REASON = "imports a framework in two processes, and trains until a change can be seen"


@pytest.mark.integrations
@pytest.mark.long(REASON)
def test_a_worker_slow_inside_backward_of_ddp_is_named_with_its_stage(tmp_path):
    recording = run(python_of("trainers"), "torch_job.py", str(tmp_path / "trace"), "ddp")
    assert_slow_in_backward(recording, "backward")
    cause = first_cause(recording)
    assert (cause.kind, cause.workers, cause.stages) == ("slow worker", (1,), ("backward",))
    assert abs(cause.began(recording.steps) - 20) <= 1
    profile = traces.read(tmp_path / "trace-profile")
    assert profile.steps.tolist() == [*range(20, 25), *range(40, 45)]
    assert profile.workers == ("0", "1")
    notes = (tmp_path / "trace/rank0.0000.jsonl").read_text()
    assert notes.count('"first": 20, "last": 24') == 1


@pytest.mark.integrations
@pytest.mark.long(REASON)
@pytest.mark.parametrize(
    ("loop", "stage"), [("accelerate", "backward"), ("hugging_face", "compute"), ("lightning", "backward")]
)
def test_so_are_those_of_other_trainers(tmp_path, loop, stage):
    recording = run(python_of("trainers"), "torch_job.py", str(tmp_path / "trace"), loop)
    assert_slow_in_backward(recording, stage)
    assert {"data", "update"} < {*recording.phases}
    assert np.median(recording.phases["data"]) < 0.2  # what comes before the first step is no part of one


@pytest.mark.integrations
@pytest.mark.long(REASON)
def test_workers_of_ray_train_have_their_ranks(tmp_path):
    python = python_of("trainers")
    recording = run(python, "ray_workers.py", str(tmp_path / "trace"), ranks=1)
    assert recording.workers == ("0", "1")
    forward = np.median(recording.phases["forward"], axis=0)
    assert forward[1] - forward[0] > 0.03
    assert "all_reduce" in recording.communication


@pytest.mark.integrations
@pytest.mark.long(REASON)
def test_sections_of_nvrx_are_drained_before_its_reports(tmp_path):
    recording = run(python_of("trainers"), "nvrx_sections.py", str(tmp_path / "trace"), ranks=1)
    assert recording.steps.tolist() == list(range(0, 60, 2))
    assert recording.phases["forward"][21] >= 0.021
    assert recording.phases["forward"].min() >= 0.001  # NVRx's are milliseconds


def test_a_stub_of_nvrx_as_it_is_since_0_5(tmp_path):
    """The class of `attribution.straggler` at d8686d9, as far as it is used: PyPI has an older one."""

    class Detector:
        profiling_interval = 1
        custom_sections = {"step": SimpleNamespace(name="step", total_entry_cnt=0, cpu_elapsed_times=[])}  # noqa: RUF012

        @classmethod
        def generate_report(cls):
            cls.custom_sections["step"].cpu_elapsed_times.clear()
            return "report"

    with sgdlab_record.Recorder(tmp_path, 0) as recorder:
        nvrx.install(Detector, recorder)
        section = Detector.custom_sections["step"]
        for times in ([1.0, 2.0], [4.0], []):
            section.cpu_elapsed_times += times
            section.total_entry_cnt += len(times)
            assert Detector.generate_report() == "report"
        section.cpu_elapsed_times, section.total_entry_cnt = [8.0], 10  # the deque has lost what was before
        Detector.generate_report()
        assert recorder.errors == 0
        Detector.custom_sections["step"].cpu_elapsed_times = None
        with pytest.raises(AttributeError):  # NVRx's own error
            Detector.generate_report()
        assert recorder.errors == 1
    recording = traces.read(tmp_path)
    assert recording.steps.tolist() == [0, 1, 2, 9]
    np.testing.assert_allclose(recording.runtimes[:, 0], [0.001, 0.002, 0.004, 0.008])


def test_the_hook_of_levanter_in_a_loop_like_its_own(tmp_path, monkeypatch):
    """Its trainer at 9263f81: a batch is loaded, the step is timed, then come its hooks; the last ones come twice."""
    clock = SimpleNamespace(now=10.0)
    clock.perf_counter, clock.time = lambda: clock.now, lambda: clock.now
    monkeypatch.setattr(sgdlab_record.recorder, "time", clock)
    monkeypatch.setattr(levanter, "time", clock)
    with sgdlab_record.Recorder(tmp_path, 0) as recorder:
        hook = levanter.step_hook(recorder)
        for step in range(100, 104):
            clock.now += 2.0 + step / 100  # loads
            clock.now += 4.0  # the step
            info = SimpleNamespace(step=step, step_duration=4.0)
            clock.now += 1.0  # another hook
            hook(info)
        hook(info)
    recording = traces.read(tmp_path)
    assert recording.steps.tolist() == [101, 102, 103]
    np.testing.assert_allclose(recording.phases["data"][:, 0], [4.01, 4.02, 4.03])  # and the other hook
    np.testing.assert_allclose(recording.phases["compute"][:, 0], 4.0)


@pytest.mark.integrations
@pytest.mark.long(REASON)
@pytest.mark.parametrize(("slow", "how"), [("data", "vectors"), ("compute", "vectors"), ("compute", "boundary")])
def test_a_jitted_step_of_two_processes(tmp_path, slow, how):
    arguments = (str(tmp_path / "trace"), "{rank}", "{port}", slow, how)
    recording = run(sys.executable, "jax_step.py", *arguments)
    assert recording.steps.tolist() == list(range(80))
    cause = first_cause(recording)
    assert abs(cause.began(recording.steps) - 30) <= 1
    assert cause.stages == (slow,)
    if (slow, how) == ("compute", "vectors"):
        assert (cause.kind, cause.workers) == ("all slower", ())
        assert "in which workers 0 and 1 cannot be told apart" in cause.evidence
    else:
        assert (cause.kind, cause.workers) == ("slow worker", (1,))
