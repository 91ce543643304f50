"""Digests of parts' code: what changes the program changes the digest, and nothing else does."""

import importlib
import pathlib
import re
import sys
import textwrap
import types

import numpy as np
import pytest
from lib import tiny

import sgdlab
from sgdlab import rules
from sgdlab.registry import GRAPHS, PROTOCOLS, RULES
from sgdlab.runs import digests, methods, resolve

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
        digests._parsed.cache_clear()  # two writes within one tick of the clock
        return digests.of_code(importlib.import_module(name).rule)

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


def test_what_a_rule_does_not_reach_does_not_count(digest):
    first = digest()
    assert digest(module=MODULE + "\n\ndef another(*, learning_rate):\n    return -learning_rate\n") == first
    assert digest(helper=HELPER + "\nOTHER = 1\n") == first
    constant = "FACTOR = {factor}\ndef scale(rate):\n    return FACTOR * rate\n"
    assert digest(helper=constant, factor=5) != digest(helper=constant, factor=6)
    indirect = "import {name}_helper as h\ndef rule(*, learning_rate):\n    return h.scale(learning_rate)\n"
    assert digest(module=indirect, factor=5) != digest(module=indirect, factor=6)
    within = "def rule(*, learning_rate):\n    from {name}_helper import scale\n    return scale(learning_rate)\n"
    assert digest(module=within, factor=5) != digest(module=within, factor=6)
    library = "import {library} as np\ndef rule(*, learning_rate):\n    return np.abs(learning_rate)\n"
    numbers = [library.replace("{library}", name) for name in ("numpy", "jax.numpy")]
    assert digest(module=numbers[0]) != digest(module=numbers[1])


@pytest.mark.parametrize(
    ("line", "counts"),
    [
        ("from {package}.helper import scale", True),
        ("from .helper import scale", True),
        ("from {package}.deep.helper import scale", False),
        ("from another.helper import scale", False),
        ("import another.package.helper as scale", False),
    ],
)
def test_a_module_of_another_package_is_not_that_of_the_same_name_here(line, counts, tmp_path, monkeypatch):
    def digest(factor):
        package = tmp_path / f"package{factor}"
        (package / "deep").mkdir(parents=True)
        (package / "helper.py").write_text(f"def scale(x):\n    return {factor} * x\n")
        (package / "deep" / "helper.py").write_text("def scale(x):\n    return x\n")
        code = f"{line.format(package=package.name)}\ndef rule(x):\n    return scale(x)\n"
        return digests._reached(package / _written(package / "rule.py", code), "rule")

    def _written(file, code):
        file.write_text(code)
        return file.name

    first, second = ([code for code in digest(factor) if "Constant" in code] for factor in (2, 3))
    assert (first != second) == counts


def test_the_predictor_behind_a_part_of_another_file_counts():
    part = pathlib.Path(sgdlab.__file__).parent / "deep_markov" / "part.py"
    assert any(code.startswith("ClassDef(name='DeepMarkov'") for code in digests._reached(part, "deep_markov"))


def test_no_module_is_used_by_its_dotted_name_which_digests_do_not_follow():
    for file in pathlib.Path(sgdlab.__file__).parent.rglob("*.py"):
        assert not re.search(r"^ *import .*\bsgdlab\.", file.read_text(), re.MULTILINE), file


def test_rules_of_one_file_differ():
    assert digests.of_code(rules.gap_aware) != digests.of_code(rules.dana)
    assert digests.of_code(rules.dana) != digests.of_code(rules.dana_gap_aware)


def test_an_edited_file_counts_when_it_is_imported_anew(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "edited.py").write_text("def rule():\n    return 1\n")
    import edited  # noqa: PLC0415

    before = digests.of_code(edited.rule)
    (tmp_path / "edited.py").write_text("def rule():\n    return 22\n")
    assert digests.of_code(edited.rule) == before
    assert digests.of_code(importlib.reload(edited).rule) != before


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("def f(x):\n    'Words.'\n    return x", "def f(x):  # a comment\n    return x", True),
        ("class A:\n    'Words.'\n    x = 1", "class A:\n    x = 1", True),
        ("class A:\n    x = 1", "class A:\n    x = 2", False),
        ("def f(x):\n    return x", "def f(x=1):\n    return x", False),
        ("def f(x):\n    return x + ''", "def f(x):\n    return x + 'a'", False),
        ("@r(title='a', families=OLD)\ndef f(x): x", "@r(source='b', families=('c',))\ndef f(x): x", True),
        ("@r(title='a', rule='asgd')\ndef f(x): x", "@r(title='a', rule='dana')\ndef f(x): x", False),
        ("class A:\n    x = 1\n    def __str__(self): return WORDS", "class A:\n    x = 1", True),
        ("class A:\n    x = 1\n    def __call__(self): return 1", "class A:\n    x = 1", False),
    ],
)
def test_statements_are_compared_without_what_is_only_read(one, other, same):
    bare = [digests._bare(digests._unshown(text).body[0]) for text in (one, other)]
    assert (bare[0] == bare[1]) == same


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
            digests.inspect,
            "getsource",
            lambda function: textwrap.dedent(code.split("\n\n")[function.__name__ == "rule"]),
        )
        return digests.of_code(module.rule)

    assert cell(2) == cell(2, "the same")
    assert cell(2) != cell(3)


def test_runs_of_before_count_as_unchanged():
    config = tiny.config()
    now = digests.of_run(resolve(config))
    assert digests.changed([{}], resolve(config)) == []
    assert digests.changed([{"code": now}], resolve(config)) == []
    assert digests.changed([{"code": now | {"rule": "0"}}], resolve(config)) == ["rule"]


@pytest.fixture(name="register")
def method_of_a_test():
    """Registers methods, and forgets them."""
    names = []

    def register(name, **means):
        names.append(methods.register_method(name, title=f"Mine, {name}", **means).name)

    yield register
    for name in names:
        methods.forget_method(name)


def test_what_a_methods_name_means_counts(tmp_path, monkeypatch, register):
    for registry in (GRAPHS, PROTOCOLS, RULES):
        monkeypatch.setattr(registry, "_parts", dict(registry))

    def star(num_nodes):
        raise NotImplementedError

    @PROTOCOLS.register(title="Reads", files=("table",))
    def reads(runtimes, *, table: str = ""):
        raise NotImplementedError

    @RULES.register(title="Looks", files=("tables",))
    def looks(*, learning_rate, tables: tuple[str, ...] = ()):
        raise NotImplementedError

    star.__module__ = reads.__module__ = looks.__module__ = "theirs"
    GRAPHS.register("star", title="Star")(star)
    register("star_d", protocol="d_psgd", rule="nag_asgd", entries={"graph": "star"})
    assert digests.of_run(resolve(tiny.config(method="star_d")))["graph"] == digests.of_code(star)
    assert "graph" not in digests.of_run(resolve(tiny.config(method="d_psgd")))

    first, second = (tmp_path / name for name in ("first.csv", "second.csv"))
    register(
        "both",
        protocol="reads",
        rule="looks",
        entries={"table": str(first)},
        rule_entries={"tables": (str(first), str(second))},
    )
    found = []
    for one, other in (("1", "1"), ("1", "2"), ("2", "2")):
        first.write_text(one)
        second.write_text(other)
        digests._content.cache_clear()  # two writes within one tick of the clock
        config = tiny.config()
        config.method = "both"
        found.append(digests.of_run(resolve(config)))
    assert [entry["protocol"] == found[0]["protocol"] for entry in found] == [True, True, False]
    assert len({entry["rule"] for entry in found}) == 3


def test_the_content_of_files_counts(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    images, labels = np.zeros((6, 8, 8), np.uint8), np.arange(6) % 3

    def digest(value):
        np.savez(tmp_path / "mine.npz", x_train=images + value, y_train=labels, x_test=images, y_test=labels)
        config = tiny.config(data__kind="npz")
        config.data.npz.path = "~/mine.npz"
        return digests.of_run(resolve(config))

    first, other = digest(np.uint8(0)), digest(np.uint8(1))
    assert {family for family in first if first[family] != other[family]} == {"data"}
