"""Faults over three machines: workers that join, and actors of Ray; all of the suite, with short storms."""

import importlib.util
import json
import shutil

import pytest

from experiments.benchmarks.faults import __main__ as suite
from experiments.benchmarks.faults import namespaces, scenarios

pytestmark = [
    pytest.mark.machines,
    pytest.mark.long("runs over three machines"),
    pytest.mark.skipif(
        bool(namespaces.why_not()) or shutil.which("openssl") is None,
        reason=f"no machines can be made: {namespaces.why_not() or 'openssl'}",
    ),
]


@pytest.mark.parametrize("transport", ["grpc", "ray"])
def test_what_befalls_machines_is_survived_and_replayed(transport, tmp_path, capsys):
    if importlib.util.find_spec(transport) is None:
        pytest.skip(f"needs {transport}")
    flags = ["--machines=3", f"--transport={transport}", "--storm_seconds=60", f"--json={tmp_path / 'found.json'}"]
    left = suite.main(flags)
    printed = capsys.readouterr().out
    assert left == 0, printed
    found = json.loads((tmp_path / "found.json").read_text())["outcomes"]
    assert len(found) == len(scenarios.of_machines(transport, 60.0))
    assert all(each["difference"] == 0.0 for each in found)
