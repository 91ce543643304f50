"""Digests of the code and the files of a run's parts: a run whose rule has been edited since is not the same run."""

import ast
import functools
import hashlib
import inspect
import pathlib
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence

from ml_collections import ConfigDict

from sgdlab.jobs.configuration import used_parts


def digests(config: ConfigDict) -> dict[str, str]:
    """The digest of each part that a configuration uses, by family.

    What counts is the code of the file that defines the part and of the files beside it that this one imports, less
    comments, docstrings and layout; and the content of files and directories that the part's entries name (those that
    it registers as `files`). The engine of the replay and libraries do not count: versions and the commit, which a
    run's record holds too, stand for them.

    Example:
      >>> from configs import digits
      >>> sorted(digests(digits.get_config()))
      ['cluster', 'data', 'network', 'protocol', 'rule']
    """
    found = {}
    for family, part in used_parts(config).items():
        named = [config[family][part.name][entry] for entry in part.facts.get("files", ())]
        found[family] = digest(part.make, tuple(pathlib.Path(name) for name in named if name))
    return found


def changed(before: dict[str, str] | None, now: dict[str, str]) -> list[str]:
    """Families whose code differs; those of a run that does not say what it was made with count as equal.

    Example:
      >>> changed({"rule": "1f0c", "data": "77aa"}, {"rule": "9e2b", "data": "77aa"})
      ['rule']
    """
    return [family for family, digest in now.items() if before and before.get(family, digest) != digest]


def digest(function: Callable, files: Sequence[pathlib.Path] = ()) -> str:
    """Of the code behind a function or class and of the content of files, 16 hexadecimal digits."""
    module = sys.modules.get(function.__module__)
    file = getattr(module, "__file__", None)
    texts = _of_file(path := pathlib.Path(file).resolve(), _stamp(path)) if file else tuple(_of_names(function))
    contents = [_content(found, found.stat().st_mtime_ns) for path in files for found in _files(path)]
    return hashlib.sha256("\n".join([*texts, *contents]).encode()).hexdigest()[:16]


def _files(path: pathlib.Path) -> list[pathlib.Path]:
    """The file, or all files of the directory; none where there is nothing, which the part itself refuses."""
    return [path] if path.is_file() else sorted(found for found in path.rglob("*") if found.is_file())


@functools.lru_cache(maxsize=256)
def _content(file: pathlib.Path, changed: int) -> str:
    """The digest of a file's content; one that has changed is read anew."""
    del changed
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def _stamp(file: pathlib.Path) -> int:
    """When a file of the folder last changed."""
    return max((path.stat().st_mtime_ns for path in file.parent.glob("*.py")), default=0)


@functools.lru_cache(maxsize=256)
def _of_file(file: pathlib.Path, stamp: int) -> tuple[str, ...]:
    """The code of a file and of all files of its folder that it imports, directly or by way of another."""
    del stamp  # an edited file is read anew
    seen: dict[pathlib.Path, str] = {}
    waiting = [file]
    while waiting:
        here = waiting.pop()
        if here in seen or not here.is_file():
            continue
        tree = ast.parse(here.read_text(encoding="utf-8"))
        waiting += [file.parent / f"{name}.py" for name in _imported(tree)]
        seen[here] = _bare(tree)
    return tuple(seen[path] for path in sorted(seen))


def _imported(tree: ast.AST) -> Iterator[str]:
    """The last word of every module that is imported: where a file of that name lies beside, it is meant."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (name.name.rpartition(".")[2] for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (node.module or "").rpartition(".")[2:]
            yield from (name.name for name in node.names)


def _bare(tree: ast.AST) -> str:
    """A program without comments, docstrings and layout."""
    for node in ast.walk(tree):
        documented = isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        if documented and ast.get_docstring(node, clean=False) is not None:
            node.body = node.body[1:] or [ast.Pass()]
    return ast.dump(tree)


def _of_names(function: Callable) -> Iterator[str]:
    """Of a function that stands in no file, as in a notebook: its code, and that of what it names beside it."""
    seen: set[str] = set()
    waiting = [function]
    while waiting:
        here = waiting.pop()
        name = here.__qualname__
        if name in seen:
            continue
        seen.add(name)
        try:
            tree = ast.parse(textwrap.dedent(inspect.getsource(here)))
        except (OSError, TypeError, SyntaxError):  # typed at a prompt: there is no source
            code = getattr(here, "__code__", None)
            yield f"{name} {code.co_code.hex() if code else ''}"
            continue
        yield _bare(tree)
        beside = sys.modules[function.__module__].__dict__
        for node in ast.walk(tree):
            found = beside.get(node.id) if isinstance(node, ast.Name) else None
            if (inspect.isfunction(found) or inspect.isclass(found)) and found.__module__ == function.__module__:
                waiting.append(found)
