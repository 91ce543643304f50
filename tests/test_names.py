"""A class name has one owner, and what finds something says in its name what it finds."""

import ast
import collections
import pathlib

ROOT = pathlib.Path(__file__).parents[1]
MOST_SHARED = 8
"""Names that several private classes may share."""


def trees(*packages):
    """The path and the syntax tree of each file."""
    for package in packages:
        for path in sorted((ROOT / package).rglob("*.py")):
            yield path.relative_to(ROOT).as_posix(), ast.parse(path.read_text(encoding="utf-8"))


def several(found):
    """Those classes, by name, that are defined in more than one place."""
    owners = collections.defaultdict(list)
    for path, tree in found:
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                owners[node.name].append(f"{path}:{node.lineno}")
    return {name: places for name, places in owners.items() if len(places) > 1}


def test_a_class_name_has_one_owner():
    shared = several(trees("sgdlab"))
    assert {name: places for name, places in shared.items() if not name.startswith("_")} == {}
    assert len(shared) <= MOST_SHARED, shared


def test_classes_of_one_name_are_seen_with_their_places():
    inner = "def made():\n    class Rows:\n        pass\n"
    found = [("a.py", ast.parse("class Rows:\n    pass\n")), ("b.py", ast.parse(inner))]
    assert several(found) == {"Rows": ["a.py:1", "b.py:2"]}
    assert several(found[:1]) == {}


def test_no_public_function_is_called_just_find():
    vague = [
        f"{path}:{node.lineno}"
        for path, tree in trees("sgdlab", "experiments")
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and node.name == "find"
    ]
    assert vague == []
