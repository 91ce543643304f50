"""Windows of a profile beside a trace; PyTorch's are in test_frameworks."""

import json
import pathlib

import jax
import jax.numpy as jnp
import pytest
from sgdlab_record import Recorder, profiling

from sgdlab import traces


def test_windows_of_jax_are_read(tmp_path):
    step = jax.jit(lambda x: jnp.tanh(x @ x))
    with Recorder(tmp_path / "trace", 2) as recorder:
        profiling.jax_windows(recorder, every=10, steps=3)
        for _ in range(25):
            with recorder.phase("compute"):
                jax.block_until_ready(step(jnp.ones((64, 64))))
            recorder.step()
        assert recorder.errors == 0
    recording = traces.read(tmp_path / "trace-profile")
    assert recording.steps.tolist() == [10, 11, 12, 20, 21, 22]
    assert traces.read(tmp_path / "trace").steps.tolist() == list(range(25))
    rows = [json.loads(line) for line in pathlib.Path(recorder.path).read_text().splitlines()]
    said = [(row["first"], row["last"]) for row in rows if "profile" in row]
    assert said == [(10, 12), (20, 22)]


def test_a_profiler_that_fails_is_left_alone(tmp_path, monkeypatch, capsys):
    def start(path):
        raise RuntimeError("busy")

    monkeypatch.setattr(jax.profiler, "start_trace", start)
    with Recorder(tmp_path / "trace", 0) as recorder:
        profiling.jax_windows(recorder, every=2, steps=1)
        for _ in range(9):
            recorder.lap("compute")
            recorder.step()
    assert recorder.errors == 1
    assert "RuntimeError: busy" in capsys.readouterr().err
    assert traces.read(tmp_path / "trace").steps.size == 9


@pytest.mark.parametrize("steps", [0, 10])
def test_windows_must_fit(tmp_path, steps):
    with Recorder(tmp_path) as recorder, pytest.raises(ValueError, match=f"steps={steps} must be"):
        profiling.jax_windows(recorder, every=10, steps=steps)
