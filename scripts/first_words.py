"""Refuses docstrings, those of constants too, that begin with a noun clause: "What the rule takes."."""

import ast
import pathlib
import sys
from collections.abc import Iterator

REFUSED = ("What", "Whether", "How", "Who", "Whose", "That", "Where")
FOLDERS = ("sgdlab", "experiments", "configs", "docs", "scripts", "tests", "record")


def refused(path: pathlib.Path) -> Iterator[str]:
    """Yield a line for each text that stands as a statement and begins with one of the refused words."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.Expr(ast.Constant(str() as text)) if text.strip():
                first = text.split(maxsplit=1)[0].strip(",.:;")
                if first in REFUSED:
                    yield (
                        f'{path}:{node.lineno}: the docstring begins with "{first}": begin with a verb and its object, '
                        "or for a constant with a noun"
                    )


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
