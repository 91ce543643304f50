"""Flags and variables of the environment for many hosts, and several devices in one process."""

import pathlib

import pytest
import records

from configs import digits
from sgdlab import hosts, runs
from sgdlab.commands import compare, train

# ml_collections loads a configuration's file by an importer's method that Python is about to drop.
pytestmark = pytest.mark.filterwarnings(
    "ignore:the load_module:DeprecationWarning", "ignore::DeprecationWarning:importlib"
)
MODULES = {"train": train, "compare": compare}
VARIABLES = (
    "SGDLAB_HOSTS",
    "SGDLAB_HOSTS_SECRET_FILE",
    "SGDLAB_COORDINATOR_ADDRESS",
    "SGDLAB_NUM_PROCESSES",
    "SGDLAB_PROCESS_ID",
)
TINY = (
    "--config.epochs=0.5",
    "--config.evaluations=2",
    "--config.network.kind=mlp",
    "--config.network.mlp.widths=(8,)",
    "--config.batch_size=32",
)


@pytest.fixture(name="call")
def call_in_process(capsys, monkeypatch):
    """Runs a command here: (exit code, output, errors)."""
    monkeypatch.chdir(pathlib.Path(__file__).parents[2])
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)

    def call(name, *arguments):
        capsys.readouterr()
        code = MODULES[name].COMMAND.answer([name, *arguments])
        return code, *capsys.readouterr()

    return call


@pytest.mark.parametrize("name", MODULES)
def test_the_first_page_has_one_of_them_and_all_have_all(call, name):
    _, page, _ = call(name, "--help")
    _, whole, _ = call(name, "--help=all")
    flags = ("--hosts:", "--num_processes:", "--process_id:", "--devices:", "--heartbeat_seconds:")
    assert [flag in page for flag in flags] == [True, False, False, False, False]
    assert all(flag in whole for flag in flags)


@pytest.mark.parametrize(
    ("arguments", "variables", "words"),
    [
        ("--hosts=node7", {}, "--hosts=node7 must be none, auto or HOST:PORT"),
        ("--coordinator_address=node7", {}, "--hosts=node7 must be none, auto or HOST:PORT"),
        *(
            (f"--hosts={wrong}", {}, f"--hosts={wrong} must be none, auto or HOST:PORT")
            for wrong in ("a,b:80", "user@host:3", "[]x:3", "node7:٣", "node7:" + "9" * 5000, "::1:80")
        ),
        ("--hosts=127.0.0.1:4321", {}, "--hosts=127.0.0.1:4321 needs --num_processes"),
        ("--num_processes=2", {}, "--num_processes=2 needs --hosts=HOST:PORT"),
        ("", {"SGDLAB_PROCESS_ID": "0"}, "--process_id=0 needs --hosts=HOST:PORT"),
        ("", {"SGDLAB_HOSTS": "node7"}, "--hosts=node7 must be"),
        ("", {"SGDLAB_HOSTS": "auto", "SGDLAB_NUM_PROCESSES": "two"}, "SGDLAB_NUM_PROCESSES=two must be a whole"),
        (
            "--hosts=a:1 --process_id=0 --num_processes=1:2:3",
            {},
            "--num_processes=1:2:3 must be a whole number, or the",
        ),
        ("--hosts=a:1 --process_id=0", {"SGDLAB_NUM_PROCESSES": "4:2"}, "--num_processes=4:2 must be the least"),
        ("--hosts=a:1 --process_id=5", {"SGDLAB_NUM_PROCESSES": "2"}, "--process_id=5 must be from 0 to 1"),
        ("--hosts=a:1 --coordinator_address=b:1", {}, "--coordinator_address=b:1 differs from --hosts=a:1"),
        ("--hosts=a:1 --hosts_secret_file=no/such", {}, "--hosts_secret_file=no/such cannot be read: No such file"),
        ("--devices=5", {}, "--devices=5 must be from 1 to 4"),
        ("--devices=2 --config.mode=event", {}, "--config.mode=event must be left out with several devices"),
        ("--config.layout=both", {}, "--config.layout='both' must be"),
    ],
)
def test_mistakes_are_one_line(call, monkeypatch, tmp_path, arguments, variables, words):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    code, _, errors = call("train", f"--workdir={tmp_path}/one", *TINY, *arguments.split())
    assert code == 2, errors
    (line,) = errors.strip().splitlines()
    assert words in line


def test_a_comparison_over_devices_has_no_pool(call, tmp_path):
    code, _, errors = call("compare", f"--workdir={tmp_path}/one", "--devices=2", "--processes=2", *TINY)
    assert code == 2
    assert "--processes=2 must be left out: with several devices, a run takes all of them" in errors


@pytest.mark.full
@pytest.mark.sample(1)
@pytest.mark.parametrize("layout", ["sharded", "replicated"])
def test_several_devices_of_one_process_give_the_same_run(call, tmp_path, monkeypatch, layout):
    monkeypatch.setenv("SGDLAB_PROCESS_ID", "7")  # has no effect on a process that is alone
    seen = []
    for name, flags in (("one", ()), ("several", ("--devices=3", f"--config.layout={layout}"))):
        folder = tmp_path / name
        code, _, errors = call("train", f"--workdir={folder}", "--hosts=none", *TINY, *flags)
        assert code == 0, errors
        seen.append(records.read(folder))
    records.same(*seen)


@pytest.mark.full
def test_a_comparison_over_devices_gives_the_same_records(tmp_path, capsys):
    config = digits.get_config()
    config.epochs, config.evaluations, config.network.kind, config.network.mlp.widths = 0.5, 2, "mlp", (8,)
    sweep = runs.compared.comparison(config, ["synchronous"], [2], 1)
    found = []
    for name, given in (("one", {"jobs": 1}), ("several", {"mesh": hosts.mesh(2)})):
        with runs.within(runs.Session(tmp_path / name, **given)):
            found.append([run for _, run in sweep.records()])
        assert "[2/2]" in capsys.readouterr().out
    for alone, over in zip(*found, strict=True):
        records.same(alone, over)
