"""Digests of parts' code: what changes the program changes the digest, and nothing else does."""

import importlib
import sys
import textwrap
import types

import pytest

from sgdlab import rules
from sgdlab.jobs import source

MODULE = '''
"""A module."""
from {name}_helper import scale

def rule(*, learning_rate):
    """A rule."""
    return scale(learning_rate)
'''
HELPER = "def scale(rate):\n    return {factor} * rate\n"


@pytest.fixture(name="digest")
def digest_of_files(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    name = "digested"

    def digest(module=MODULE, helper=HELPER, factor=2, other=""):
        (tmp_path / f"{name}.py").write_text(module.format(name=name))
        (tmp_path / f"{name}_helper.py").write_text(helper.format(factor=factor))
        (tmp_path / "unrelated.py").write_text(other)
        importlib.invalidate_caches()
        for each in (name, f"{name}_helper"):
            sys.modules.pop(each, None)
        source._of_file.cache_clear()  # two writes within one tick of the clock
        return source.digest(importlib.import_module(name).rule)

    yield digest
    for each in (name, f"{name}_helper"):
        sys.modules.pop(each, None)


def test_code_counts_and_comments_do_not(digest):
    first = digest()
    assert digest(module=MODULE.replace('"""A rule."""', '"""Other words."""\n    # A comment.\n')) == first
    assert digest(other="x = 1") == first
    assert digest(module=MODULE.replace("scale(learning_rate)", "-scale(learning_rate)")) != first
    assert digest(factor=3) != first
    assert digest() == first


def test_rules_of_one_package_differ_by_their_files():
    assert source.digest(rules.gap_aware) != source.digest(rules.dana)
    assert source.digest(rules.dana) == source.digest(rules.dana_gap_aware)  # of one file


def test_functions_of_a_notebook_count_with_those_that_they_name(monkeypatch):
    def cell(factor, comment=""):
        code = textwrap.dedent(f"""
            def scale(rate):
                return {factor} * rate  # {comment}

            def rule(*, learning_rate):
                return scale(learning_rate)
        """)
        module = types.ModuleType("notebook_cell")
        monkeypatch.setitem(sys.modules, "notebook_cell", module)
        exec(compile(code, "<cell>", "exec"), module.__dict__)
        for function in (module.scale, module.rule):
            function.__module__ = "notebook_cell"
        monkeypatch.setattr(
            source.inspect,
            "getsource",
            lambda function: textwrap.dedent(code.split("\n\n")[function.__name__ == "rule"]),
        )
        return source.digest(module.rule)

    assert cell(2) == cell(2, "the same")
    assert cell(2) != cell(3)


def test_runs_of_before_count_as_made_with_the_same_code():
    assert source.changed(None, {"rule": "a"}) == []
    assert source.changed({"rule": "b"}, {"rule": "a", "data": "c"}) == ["rule"]


def test_the_content_of_files_counts(tmp_path):
    file, folder = tmp_path / "data.npz", tmp_path / "model"
    folder.mkdir()
    file.write_bytes(b"one")
    (folder / "weights").write_bytes(b"two")
    found = {source.digest(rules.dana, ())}
    found.add(first := source.digest(rules.dana, (file, folder)))
    (folder / "weights").write_bytes(b"three")
    found.add(source.digest(rules.dana, (file, folder)))
    (folder / "weights").write_bytes(b"two")
    assert source.digest(rules.dana, (file, folder)) == first
    file.write_bytes(b"four")
    found.add(source.digest(rules.dana, (file, folder)))
    assert len(found) == 4
