"""Refuses docstrings that begin with a noun clause instead of a verb and its object."""

import ast
import pathlib
import sys
from collections.abc import Iterator

REFUSED = ("What", "Whether", "How", "Who", "Whose", "That", "Where")
FOLDERS = ("sgdlab", "experiments", "configs", "docs", "scripts", "tests")


def refused(path: pathlib.Path) -> Iterator[str]:
    """Yield a line for each docstring of a file that begins with one of the refused words."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = (ast.get_docstring(node) or "-").split(maxsplit=1)[0].strip(",.:;")
            if first in REFUSED:
                line = getattr(node, "lineno", 1)
                yield f'{path}:{line}: the docstring begins with "{first}": begin with a verb and its object'


def main(names: list[str]) -> int:
    """Print what is refused of the given files, by default all; return the exit code."""
    paths = [pathlib.Path(name) for name in names] or [
        p for f in FOLDERS for p in sorted(pathlib.Path(f).rglob("*.py"))
    ]
    found = [line for path in paths for line in refused(path)]
    print("\n".join(found), end="\n" if found else "")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
