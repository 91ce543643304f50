"""A work directory: ours or somebody else's, and of which configuration where it holds a single run."""

import json

import pytest

from sgdlab.errors import UsageError
from sgdlab.files import check_writable
from sgdlab.runs.store import check_ours, check_same, write_config

CONFIG = {"rate": 0.1, "rule": {"momentum": 0.9}, "widths": (1, 2)}


def test_other_files_are_left_alone(tmp_path):
    thesis = tmp_path / "thesis.tex"
    thesis.write_text("years of work")
    with pytest.raises(UsageError, match=r"--workdir=.*name a new or empty directory"):
        check_ours(tmp_path)
    for path in (thesis, thesis / "runs"):
        with pytest.raises(UsageError, match="--workdir="):
            check_writable(path)
    assert list(tmp_path.iterdir()) == [thesis]


@pytest.mark.parametrize(
    "name", ["metrics/under_way/run.7.jsonl", "states/run/settings.json", "tensorboard/run/x", None]
)
def test_what_a_kill_left_behind_is_ours(tmp_path, name):
    (tmp_path / ".parameters.npz.abc.part").write_text("{")
    if name:
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).touch()
        (tmp_path / "parameters.npz").touch()
    check_ours(tmp_path)
    check_ours(tmp_path / "new")


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (CONFIG | {"rule": {"momentum": 0.8}}, r"with config\.rule\.momentum=0\.9, not 0\.8"),
        ({"rate": 0.1, "widths": [1, 2]}, r"with config\.rule\.momentum=0\.9, not none"),
        (CONFIG | {"warm_up": 5}, r"without config\.warm_up=5"),
        (CONFIG | {"widths": (1, 3), "rate": 0.2}, r"config\.rate=0\.1, not 0\.2"),
    ],
)
def test_another_configuration_is_refused_by_its_first_difference(tmp_path, asked, words):
    check_same(tmp_path, {"rate": 0.1, "rule": {"momentum": 0.9}, "widths": [1, 2]}, CONFIG)
    with pytest.raises(UsageError, match=words + "; name another directory, or run it anew by --rerun"):
        check_same(tmp_path, CONFIG, asked)


def test_a_directory_says_what_its_run_is_and_what_made_it(tmp_path):
    write_config(tmp_path, CONFIG)
    stored = json.loads((tmp_path / "config.json").read_text())
    assert stored["config"] == CONFIG | {"widths": [1, 2]}
    assert {"version", "commit", "jax", "device"} == set(stored["made"])
