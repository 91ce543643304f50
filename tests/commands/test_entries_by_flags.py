"""Entries of a configuration by flags: those that can be None are set to it; a target is of the file's own metric."""

import jax.numpy as jnp
import pytest

from sgdlab.commands import launch
from sgdlab.runs.configuration import value_of
from sgdlab.tasks import TASKS

pytestmark = pytest.mark.filterwarnings(
    "ignore:the load_module:DeprecationWarning", "ignore::DeprecationWarning:importlib"
)


@pytest.fixture(name="read")
def configuration_of_a_command_line(capsys):
    """Parses a command line: (the configuration, the entries that were given), or the only line of its refusal."""

    def read(*arguments):
        found = []
        main = lambda argv: found.extend([launch.CONFIG.value.copy_and_resolve_references(), launch.given_entries()])
        code = launch.Command(main=main, usage="").answer(["reads", *arguments])
        return found if code == 0 else capsys.readouterr().err.strip()

    return read


def test_a_work_directory_may_be_below_home(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    found = []
    command = launch.Command(main=lambda argv: found.append(launch.workdir("runs/none")), usage="", configured=False)
    assert command.answer(["reads", "--workdir=~/runs/x"]) == 0
    assert found == [tmp_path / "runs" / "x"]


@pytest.mark.parametrize("word", ["None", "none"])
@pytest.mark.parametrize("name", ["target", "average_decay", "seconds", "mode", "optimizer.momentum", "rule.kind"])
def test_an_entry_that_can_be_none_is_set_to_it(read, name, word):
    for arguments in ([f"--config.{name}={word}"], [f"--config.{name}", word]):
        config, given = read(*arguments, "--config.epochs=3")
        assert value_of(config, name) is None
        assert (config.epochs, sorted(given)) == (3.0, sorted(["epochs", name]))


def test_the_last_flag_of_an_entry_counts(read):
    assert read("--config.target=0.5", "--config.target=None")[0].target is None


def test_other_entries_cannot_be_none(read):
    assert read("--config.epochs=None") == "error: --config.epochs=None must be a number"
    assert read("--config.failures.kind=none")[0].failures.kind == "none"
    assert "did you mean --config.target=None" in read("--config.tarhet=None")


def test_a_target_of_a_file_is_not_one_of_another_metric(read, monkeypatch):
    monkeypatch.setattr(TASKS, "_parts", dict(TASKS))
    TASKS.register("distance", title="Distance", metric="error")(lambda outputs, labels: jnp.abs(outputs - labels))
    assert read()[0].target == 0.95
    assert read("--config.network.kind=mlp")[0].target == 0.95
    assert read("--config.task.kind=distance")[0].target is None
    assert read("--config.network.kind=transformer_xl")[0].target is None
    assert read("--config.task.kind=distance", "--config.target=0.95")[0].target == 0.95
    assert read("--config.network.kind=nothing")[0].target == 0.95  # and the command refuses it
