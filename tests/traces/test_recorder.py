"""The documentation: its recorder, run as it is printed, whose files are read back; and its table of formats."""

import functools
import json
import pathlib
import re
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np

from sgdlab import traces
from sgdlab.registry import TRACES

ROOT = pathlib.Path(__file__).parents[2]
BLOCK = re.compile(r"^```python\n(# recorder\.py\n.*?)^```", re.DOTALL | re.MULTILINE)
TEXT = (ROOT / "docs/traces.md").read_text(encoding="utf-8")
CODE = BLOCK.findall(TEXT)[0]

RECORD_AND_WAIT = """
record = Recorder(int(sys.argv[1]))
for step in range(3):
    for phase in ("compute", "all_reduce"):
        with record(step, phase):
            pass
print("recorded", flush=True)
sys.stdin.readline()
"""


class Clock:
    """Stands in for the module `time`; two clocks, of which one tells the date."""

    def __init__(self):
        self.now = 100.0

    def perf_counter(self):
        return self.now

    def time(self):
        return self.now + 1e6


def test_it_has_15_lines():
    assert sum(bool(line.strip()) for line in CODE.splitlines()) <= 15


def test_its_files_are_read_back(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    seconds = {"data": [0.5, 0.25, 1.0], "compute": [2.0, 3.0, 4.0], "all_reduce": [2.5, 1.75, 0.25]}
    for rank in range(3):
        namespace = {}
        exec(CODE, namespace)
        namespace["time"] = clock = Clock()
        record = namespace["Recorder"](rank)
        for step in range(4):
            for phase, times in seconds.items():
                with record(step, phase):
                    clock.now += times[rank] * (step + 1)
        record.file.close()
    recording = traces.read("steps")
    scale = np.arange(1.0, 5.0)[:, None]
    assert recording.workers == ("0", "1", "2")
    assert recording.steps.tolist() == [0, 1, 2, 3]
    np.testing.assert_allclose(recording.runtimes, scale * [2.5, 3.25, 5.0])
    np.testing.assert_allclose(recording.communication["all_reduce"], scale * seconds["all_reduce"])
    np.testing.assert_allclose(recording.phases["data"], scale * seconds["data"])
    np.testing.assert_allclose(recording.transfer(), 0.25 * scale[:, 0])
    np.testing.assert_allclose(recording.began, 1e6 + 100.0 + 5.0 * np.array([0, 1, 3, 6]))
    assert len(set(recording.nodes)) == 1


def test_the_printed_loop_times_the_loader_too(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "docs/traces.md").read_text(encoding="utf-8")
    (loop,) = re.findall(r"^```(?:python)?\n(record = Recorder.*?)^```", text, re.DOTALL | re.MULTILINE)
    for rank in range(3):
        clock = Clock()

        def taking(seconds, clock=clock):
            def work(*arguments):
                clock.now += seconds
                return arguments[0]

            return work

        def loader(rank=rank, clock=clock):
            while True:
                clock.now += 1.0 + 4.0 * rank
                yield "batch"

        namespace = {"rank": rank, "loader": loader(), "steps": 4, "parameters": 0}
        namespace |= {"local_gradient": taking(2.0), "all_reduce": taking(0.5), "update": taking(0.25)}
        namespace["wait_for_device"] = lambda gradient: None
        exec(CODE, namespace)
        namespace["time"] = clock
        exec(loop, namespace)
        namespace["record"].file.close()
    recording = traces.read("steps")
    np.testing.assert_allclose(recording.runtimes, np.tile([3.25, 7.25, 11.25], (4, 1)))
    np.testing.assert_allclose(recording.phases["data"], np.tile([1.0, 5.0, 9.0], (4, 1)))
    np.testing.assert_allclose(recording.communication["all_reduce"], 0.5)


def test_lines_are_there_while_it_records_and_after_it_was_killed(tmp_path):
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", f"import sys\n{CODE}{RECORD_AND_WAIT}", str(rank)],
            cwd=tmp_path,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        for process in processes:
            assert process.stdout.readline() == "recorded\n"
        files = [tmp_path / "steps" / f"rank{rank}.jsonl" for rank in range(2)]
        before = [file.read_text() for file in files]  # of processes that still run
        for rank, text in enumerate(before):
            lines = [json.loads(line) for line in text.splitlines()]
            assert [(line["step"], line["phase"]) for line in lines] == [
                (step, phase) for step in range(3) for phase in ("compute", "all_reduce")
            ]
            assert {line["worker"] for line in lines} == {rank}
    finally:
        for process in processes:
            process.kill()
            process.communicate()
    assert [file.read_text() for file in files] == before
    assert traces.read(tmp_path / "steps").steps.tolist() == [0, 1, 2]


def test_a_jax_step_cut_in_two_has_its_collective_in_the_second_half():
    code = re.search(r"^```python\n(spread = .*?)^```", TEXT, re.DOTALL | re.MULTILINE).group(1)
    devices = jax.device_count()
    namespace = {
        "jax": jax,
        "partial": functools.partial,
        "mesh": jax.make_mesh((devices,), ("data",)),
        "loss": lambda weights, batch: jnp.mean((batch["x"] @ weights - batch["y"]) ** 2),
    }
    exec(code, namespace)
    draw = np.random.default_rng(0)
    x, y = draw.normal(size=(4 * devices, 3)), draw.normal(size=4 * devices)
    batch = jax.device_put({"x": x, "y": y}, jax.sharding.NamedSharding(namespace["mesh"], jax.P("data")))
    local = namespace["local_gradient"](jnp.ones(3), batch)
    each = [2 / 4 * x[i : i + 4].T @ (x[i : i + 4].sum(axis=1) - y[i : i + 4]) for i in range(0, 4 * devices, 4)]
    np.testing.assert_allclose(local, each, rtol=1e-4)
    np.testing.assert_allclose(namespace["all_reduce"](local), np.mean(each, axis=0), rtol=1e-4)
    if devices > 1:
        halves = namespace["local_gradient"].lower(jnp.ones(3), batch), namespace["all_reduce"].lower(local)
        assert ["all-reduce" in half.compile().as_text() for half in halves] == [False, True]


def test_the_table_has_every_format():
    table = TEXT.partition("| format (`--trace_format`)")[2].partition("\n\n")[0]
    first = [line.split("|")[1] for line in table.splitlines() if line.startswith("|")]
    assert {name for cell in first for name in re.findall(r"`(\w+)`", cell)} == set(TRACES)


def test_every_link_leads_to_a_heading():
    headings = {
        re.sub(r"[^a-z0-9 -]", "", line.lower()).strip().replace(" ", "-")
        for line in re.findall(r"^#+ (.*)", TEXT, re.M)
    }
    links = re.findall(r"\]\(#([^)]*)\)", TEXT)
    assert links
    assert set(links) <= headings
