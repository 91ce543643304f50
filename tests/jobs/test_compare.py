"""Which runs of a comparison are there: finished, of this configuration, with this code."""

import pytest
from lib import tiny

from sgdlab.jobs import compare, digests, resolve
from sgdlab.results.directory import OtherConfiguration, RunDirectory

CELL = compare.Cell("asgd", 4, 0)


def stored(path, config, *, code=None, entries=None):
    directory = RunDirectory(path, {})
    own = CELL.configured(config)
    run = {
        "kind": "run",
        "config": resolve(own).identity | (entries or {}),
        "code": code or digests.of_run(resolve(own)),
    }
    directory.write(CELL.name(config), [run, {"kind": "summary", "test_accuracy": 0.5}])
    return directory


def test_a_finished_run_of_the_same_code_is_there(tmp_path):
    config = tiny.config()
    directory = stored(tmp_path, config)
    assert compare.read(config, CELL, directory)[-1]["test_accuracy"] == 0.5
    assert compare.superseded(config, [CELL], tmp_path) == []


def test_a_run_of_other_code_is_not(tmp_path):
    config = tiny.config()
    directory = stored(tmp_path, config, code={"rule": "0"}, entries={"epochs": 7.0})
    assert compare.read(config, CELL, directory) is None
    assert compare.superseded(config, [CELL], tmp_path) == [CELL.name(config)]


def test_a_run_of_another_configuration_is_refused(tmp_path):
    config = tiny.config()
    directory = stored(tmp_path, config, entries={"epochs": 7.0})
    with pytest.raises(OtherConfiguration, match=r"config\.epochs=7\.0"):
        compare.read(config, CELL, directory)
