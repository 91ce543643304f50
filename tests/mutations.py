"""Breaks lines of sgdlab one at a time, and says which tier of the tests notices.

    python tests/mutations.py --number=24 --seed=0 --report=mutations.csv

Lines are drawn at random from the packages below; in each, one operator, comparison, constant or condition becomes
another. The tests of the line's own package run first, then tier 1, and what survives is left to all tests; each stops
at its first failure. Lines are broken in a copy of the newest commit. Lines that stand in the report already are not
tried again.
"""

import argparse
import ast
import csv
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import time

PACKAGES = ("rules", "protocols", "replay", "runs", "stragglers")
ROOT = pathlib.Path(__file__).parents[1]
FIELDS = ("file", "line", "before", "after", "noticed", "seconds")
_OPERATORS = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult}
_COMPARISONS = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
}
_COMPARISONS |= {ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In}


def main():
    """Draws lines, and tries each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--number", type=int, default=24, help="how many lines")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--report", type=pathlib.Path, required=True, help="a CSV file, which is appended to")
    given = parser.parse_args()
    drawn = random.Random(given.seed).sample(candidates(), given.number)
    done = set()
    if given.report.exists():
        with given.report.open(newline="", encoding="utf-8") as file:
            done = {(row["file"], int(row["line"])) for row in csv.DictReader(file)}
    with tempfile.TemporaryDirectory(dir=ROOT.parent) as folder:  # beside what tests may look for there
        copy = pathlib.Path(folder)
        subprocess.run(["git", "worktree", "add", "--quiet", "--detach", copy], cwd=ROOT, check=True)
        try:
            for arguments in (*map(_own, PACKAGES), []):
                if _fails(copy, arguments):
                    sys.exit(f"pytest {' '.join(arguments)} must pass before a line is broken, and does not.")
            for path, line, choice in drawn:
                if (path, line) not in done:
                    _append(given.report, tried(copy, path, line, choice))
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", copy], cwd=ROOT, check=True)


def candidates():
    """Return (file, line, number) of every line that can be broken; the number chooses among its ways."""
    found = []
    for package in PACKAGES:
        for path in sorted((ROOT / "sgdlab" / package).rglob("*.py")):
            lines = {node.lineno for node in _nodes(ast.parse(path.read_text(encoding="utf-8")))}
            found += [(str(path.relative_to(ROOT)), line, 7 * line) for line in sorted(lines)]
    return found


def tried(copy, path, line, choice):
    """Breaks a line, and returns its row of the report."""
    source = (copy / path).read_text(encoding="utf-8")
    tree = ast.parse(source)
    nodes = [node for node in _nodes(tree) if node.lineno == line]
    node = nodes[choice % len(nodes)]
    before, after = ast.unparse(node), ast.unparse(broken := _broken(node))
    (copy / path).write_text(_replaced(source, node, ast.unparse(broken)), encoding="utf-8")
    began = time.monotonic()
    package = pathlib.Path(path).parts[1]
    try:
        for tier, arguments in (
            ("own folder", _own(package)),
            ("tier 1", []),
            ("all", ["-m", "not machines and not integrations"]),
        ):
            if _fails(copy, arguments):
                noticed = tier
                break
        else:
            noticed = "nobody"
    finally:
        (copy / path).write_text(source, encoding="utf-8")
    row = (path, line, before, after, noticed, round(time.monotonic() - began))
    print(*row, flush=True)
    return row


def _own(package):
    """The tests of a package, its docstrings among them."""
    return [f"tests/{package}", f"sgdlab/{package}"]


def _fails(copy, arguments):
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-n", "2", "--dist", "loadfile", *arguments]
    environment = os.environ | {"PYTHONPATH": str(copy)}  # of the commands that tests start, too
    return subprocess.run(command, cwd=copy, env=environment, capture_output=True, check=False).returncode != 0


def _nodes(tree):
    """The expressions in functions that can be broken; annotations and messages are left out."""
    skipped = set()
    for node in ast.walk(tree):
        for part in (getattr(node, "annotation", None), getattr(node, "returns", None)):
            skipped |= set() if part is None else set(ast.walk(part))
        if isinstance(node, ast.Raise | ast.JoinedStr):
            skipped |= set(ast.walk(node))
    inside = [
        node
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef)
        for statement in function.body
        for node in ast.walk(statement)
    ]
    return [node for node in dict.fromkeys(inside) if node not in skipped and _broken(node) is not None]


def _broken(node):  # noqa: PLR0911 (a way for each kind)
    """Another expression in the place of this one; None where there is no way."""
    match node:
        case ast.BinOp(left, operator, right) if type(operator) in _OPERATORS:
            return ast.BinOp(left, _OPERATORS[type(operator)](), right)
        case ast.Compare(left, [operator], [right]) if type(operator) in _COMPARISONS:
            return ast.Compare(left, [_COMPARISONS[type(operator)]()], [right])
        case ast.BoolOp(operator, values):
            return ast.BoolOp(ast.Or() if isinstance(operator, ast.And) else ast.And(), values)
        case ast.UnaryOp(ast.Not() | ast.USub(), operand):
            return operand
        case ast.IfExp(test, body, orelse):
            return ast.IfExp(test, orelse, body)
        case ast.Constant(bool() as value):
            return ast.Constant(not value)
        case ast.Constant(int() | float() as value):
            return ast.Constant(value + 1)
    return None


def _replaced(source, node, text):
    """The source with a node's text replaced, in brackets."""
    lines = source.splitlines(keepends=True)
    begin = len("".join(lines[: node.lineno - 1]).encode()) + node.col_offset
    end = len("".join(lines[: node.end_lineno - 1]).encode()) + node.end_col_offset
    whole = source.encode()
    return (whole[:begin] + f"({text})".encode() + whole[end:]).decode()


def _append(report, row):
    new = not report.exists()
    with report.open("a", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        if new:
            writer.writerow(FIELDS)
        writer.writerow(row)


if __name__ == "__main__":
    main()
