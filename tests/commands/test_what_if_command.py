"""`--what_if`: files and answer for a trace that is a file, and one line for a trace that cannot be used."""

import csv
import pathlib
import subprocess
import sys

import numpy as np
import pytest

from sgdlab.commands import what_if
from sgdlab.errors import UsageError
from sgdlab.traces.options import Options


def written(path, runtimes):
    lines = ["rank,iteration,time_ms"]
    lines += [
        f"{worker},{step},{1000 * time:.6f}"
        for step, row in enumerate(runtimes, start=1)
        for worker, time in enumerate(row)
    ]
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def test_it_prints_the_answer_and_writes_tables_and_page(tmp_path, capsys):
    runtimes = np.random.default_rng(0).gamma(400.0, 1 / 400, (120, 8))
    runtimes[:, 3] *= 1.7
    what_if.run(written(tmp_path / "job.csv", runtimes), Options(), tmp_path / "out", 0)
    printed = capsys.readouterr().out
    assert printed.startswith("Repair worker 3 first")
    assert str(tmp_path / "out" / "what_if.html") in printed
    with (tmp_path / "out" / "what_if.csv").open() as file:
        *lines, left, recorded = csv.DictReader(file)
    assert lines[0]["workers"] == "3"
    assert float(recorded["in_turn_seconds"]) == pytest.approx(runtimes.max(axis=1).sum(), rel=1e-6)
    assert float(left["in_turn_seconds"]) < float(recorded["in_turn_seconds"])
    with (tmp_path / "out" / "scores.csv").open() as file:
        assert len(list(csv.DictReader(file))) == 8
    page = (tmp_path / "out" / "what_if.html").read_text()
    assert "http" not in page.replace("http-equiv", "")  # it refers to no other file


@pytest.mark.parametrize(
    ("runtimes", "named"), [(np.ones((20, 1)), "one worker"), (np.ones((3, 4)), "3 steps"), (None, "missing.csv")]
)
def test_a_trace_that_cannot_be_used_is_refused_in_one_line(tmp_path, runtimes, named):
    path = tmp_path / "missing.csv" if runtimes is None else written(tmp_path / "job.csv", runtimes)
    with pytest.raises(UsageError, match=named) as error:
        what_if.run(str(path), Options(), tmp_path / "out", 0)
    assert str(error.value).count(str(path)) == 1
    assert "\n" not in str(error.value)


def test_a_work_directory_that_is_a_file_is_refused(tmp_path):
    path = written(tmp_path / "job.csv", np.random.default_rng(0).gamma(9.0, 0.1, (20, 4)))
    (tmp_path / "out").write_text("")
    with pytest.raises(UsageError, match="--workdir="):
        what_if.run(path, Options(), pathlib.Path(tmp_path / "out"), 0)


def test_it_needs_neither_jax_nor_matplotlib():
    code = "import sys; from sgdlab.commands import what_if; sys.exit(bool({'jax', 'matplotlib'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=120).returncode == 0


def test_a_worker_that_stopped_is_named_first_and_excluded_steps_are_counted(tmp_path, capsys):
    runtimes = np.random.default_rng(0).gamma(400.0, 1 / 400, (120, 6))
    runtimes[:, 4] *= 1.5
    path = pathlib.Path(written(tmp_path / "job.csv", runtimes))
    gone = {f"3,{step}," for step in range(61, 121)} | {"0,5,"}
    lines = [line for line in path.read_text().splitlines() if not line.startswith(tuple(gone))]
    path.write_text("\n".join(lines))
    what_if.run(str(path), Options(), tmp_path / "out", 0)
    printed = capsys.readouterr().out
    assert printed.startswith("Worker 3 has no compute times since step 61")
    assert "1 step with a missing compute time was excluded" in printed
    assert "Repair worker 4" in printed


def test_errors_name_the_flag_of_the_path(tmp_path):
    with pytest.raises(UsageError, match="--recording="):
        what_if.run(str(tmp_path / "recording.npz"), Options(), tmp_path / "out", 0, flag="recording")
    path = written(tmp_path / "job.csv", np.ones((3, 4)))
    with pytest.raises(UsageError, match=r"--recording=.* has 3 steps"):
        what_if.run(path, Options(), tmp_path / "out", 0, flag="recording")
