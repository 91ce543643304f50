"""Parts outside of this package: which modules other processes must import."""

import sys
import types

import pytest

from sgdlab import user_files
from sgdlab.registry import RULES
from sgdlab.runs import configuration, methods, parts


@pytest.fixture(name="registered")
def rule_of_a_module(monkeypatch):
    """Registers a rule that belongs to a module of the given name and file."""
    for registry in configuration.FAMILIES:
        monkeypatch.setattr(registry, "_parts", dict(registry))

    def register(name, file):
        module = types.ModuleType(name)
        if file:
            module.__file__ = file
        monkeypatch.setitem(sys.modules, name, module)

        def rule(*, learning_rate):
            return learning_rate

        rule.__module__ = name
        RULES.register("of_mine", title="Mine")(rule)

    return register


def test_parts_of_files_are_imported_by_children(registered):
    registered("somebody", "/home/somebody/parts.py")
    assert parts.outside()["somebody"] == "/home/somebody/parts.py"
    assert parts.can_be_imported()


def test_parts_of_a_notebook_stay_in_its_process(registered):
    registered("notebook", None)
    assert "notebook" not in parts.outside()
    assert not parts.can_be_imported()


@pytest.mark.parametrize("file", [None, "/home/somebody/methods.py"])
def test_methods_of_a_notebook_stay_in_its_process_too(file, monkeypatch):
    monkeypatch.setattr(methods, "_modules", {"mine": {"__name__": "somewhere", "__file__": file}})
    assert parts.can_be_imported() == (file is not None)


def test_a_script_that_runs_is_imported_by_the_pool_itself(registered, monkeypatch):
    registered("__mp_main__", "/home/somebody/script.py")
    assert "__mp_main__" not in parts.outside()
    assert parts.can_be_imported()


def test_a_module_that_no_path_leads_to_is_executed_from_its_file(tmp_path, monkeypatch):
    file = tmp_path / "far_away.py"
    file.write_text("x = 3\n")
    monkeypatch.delitem(sys.modules, "far_away", raising=False)
    user_files.import_or_execute("far_away", str(file))
    assert sys.modules.pop("far_away").x == 3
    broken = tmp_path / "broken_one.py"
    broken.write_text("import no_such_module\n")
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        user_files.import_or_execute("broken_one", str(broken))
    assert "broken_one" not in sys.modules
