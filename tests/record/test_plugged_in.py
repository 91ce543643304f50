"""The examples of docs/own run in Flower, hivemind and torchft, each in an environment of its own, which is kept."""

import json
import os
import pathlib
import re
import subprocess

import numpy as np
import pytest
from environments import python_of

from sgdlab.stragglers import recording
from sgdlab.stragglers.timeouts import find_timeouts
from sgdlab.traces import Recording

pytestmark = [pytest.mark.integrations, pytest.mark.long("it starts Ray, or peers and their daemons")]

ROOT = pathlib.Path(__file__).parents[2]
PROGRAMS = pathlib.Path(__file__).parent / "programs"


def printed(name, program, *arguments):
    """Return the lines that a program prints, by their first words."""
    paths = (ROOT, ROOT / "record", ROOT / "docs/own", PROGRAMS)
    answer = subprocess.run(
        [python_of(name), PROGRAMS / program, *map(str, arguments)],
        env=os.environ | {"PYTHONPATH": ":".join(map(str, paths)), "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"},
        capture_output=True, text=True, timeout=400, check=False,
    )  # fmt: skip
    assert answer.returncode == 0, answer.stderr[-3000:]
    return answer.stdout


@pytest.mark.parametrize("policy", ["fedbuff", "ssp", "cutoff"])
def test_a_flower_app_by_a_policy_is_repeated_in_simulation(policy, tmp_path):
    output = printed("flower", "flower_run.py", policy, tmp_path / "log.jsonl")
    line = lambda word: re.search(rf"^{word} +(.*)$", output, re.MULTILINE).group(1)
    assert line("recorded") == line("simulated")
    real, simulated = map(float, line("seconds").split())
    assert abs(simulated / real - 1) < 1e-6
    rows, staleness = (
        json.loads(line("recorded")),
        [row.split() for row in re.findall("^staleness (.*)$", output, re.M)],
    )
    assert len(staleness) == 8
    ages = np.array([int(age) for row in staleness for age in row])
    if policy == "fedbuff":
        assert [len(row) for row in staleness] == [2] * 8
        assert ages.max() > 0
    elif policy == "ssp":
        assert [len(row) for row in staleness] == [1] * 8
        done = np.array([sum(row[0] == worker for row in rows) for worker in range(3)])
        assert np.ptp(done) <= 2  # nobody is more than one gradient ahead, and one comes
    else:
        assert ages.max() == 0
        assert [len(row) for row in staleness[:2]] == [3, 3]  # the first rounds wait for all
        assert all(sum(row[2] == update for row in rows) == len(staleness[update]) for update in range(8))
    # Every gradient is a tenth of the parameters it was taken of; the mean of those of an update is subtracted.
    versions = [1.0]
    for update in range(8):
        read = [row[1] for row in rows if row[2] == update]
        versions.append(versions[-1] - 0.1 * np.mean([versions[version] for version in read]))
    assert float(line("params").split()[0]) == pytest.approx(versions[-1], rel=1e-12)


def test_hivemind_averages_with_whoever_is_there_by_the_deadline():
    lines = printed("hivemind", "hivemind_run.py").splitlines()
    found = [line for line in lines if line.split()[0] in ("next", "group", "late", "average", "last")]
    seconds, how_many = found[0].split()[1:]
    assert (float(seconds), int(how_many)) == (pytest.approx(8.0), 2)
    assert found[1:3] == ["group [0, 1, 2] [0, 1, 2]", "late one [0, 1, 2]"]
    assert [float(line.split()[1]) for line in found[3:5]] == [pytest.approx(13 / 3)] * 2
    assert found[5:7] == ["group [0, 1] [0, 1]", "late one []"]
    assert found[-1].startswith("last [0, 1] ")  # whoever was late is censored


def test_torchft_waits_at_the_lighthouse_as_long_as_the_answer_says(tmp_path):
    times = np.random.default_rng(0).uniform(1.0, 2.5, (400, 4))
    parts = recording.split(Recording(times, np.arange(400), tuple("abcd")))
    found = find_timeouts(parts, 0.01)
    advice = {"timeouts": {**found._asdict(), "rows": [row._asdict() for row in found.rows]}}
    (tmp_path / "advice.json").write_text(json.dumps(advice))
    lines = printed("torchft", "torchft_run.py", tmp_path / "advice.json").splitlines()
    seconds = {row.name: row.seconds for row in found.rows}
    assert [float(word) for word in lines[0].split()[1:]] == pytest.approx(
        [seconds["process_group"], seconds["quorum"], np.ceil(1000 * seconds["join"])], abs=1e-6
    )
    assert lines[1:3] == ["quorum of the first a b c", "quorum of the first a b"]
    assert lines[3] == "participants 1"
