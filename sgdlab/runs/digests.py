"""The origin of a run: digests of its parts' code and files, versions, device and commit.

A run whose rule has been edited since is not the same run.
"""

import ast
import functools
import hashlib
import inspect
import itertools
import pathlib
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax

import sgdlab
from sgdlab.registry import GRAPHS
from sgdlab.runs.experiment import Experiment

_PLAIN = (bool, int, float, complex, str, bytes, tuple, frozenset, type(None))
_WHOLE = ""
"""In the place of a name: all statements of a file."""

_SHOWN = ("title", "source", "families", "__repr__", "__str__")
"""Keywords of decorators, and methods of classes, that only show a part to people."""

_REGISTER, _REGISTRIES = "register", ".family"
"""Names of what makes parts of functions, with the drivers behind it, and of registries: they count with the engine."""


def of_run(experiment: Experiment) -> dict[str, str]:
    """Return the digest of each part that a run uses, by family.

    What counts is the part's definition, every statement of its file that it names, directly or by way of others, and
    what these import from files of the same folder; less comments, docstrings, layout, and what only shows a part to
    people: the keywords title, source and families of a decorator, `__repr__` and `__str__`. So do the files and
    directories that the part's entries name (those that it registers as `files`), and a custom graph that an entry
    `graph` names. The engines of simulation and replay (and `register`, which gives policies to the first) and
    libraries do not count: a run's record holds versions and the commit besides.

    Example:
      >>> from configs import digits
      >>> from sgdlab.runs.experiment import resolve
      >>> sorted(of_run(resolve(digits.get_config())))
      ['cluster', 'data', 'network', 'protocol', 'rule']
    """
    digests = {}
    for family, used in experiment.parts.items():
        named = (used.entries[entry] for entry in used.facts.files)
        paths = [path for each in named for path in (each if isinstance(each, list | tuple) else [each]) if path]
        digests[family] = _sha("\n".join([of_code(used.part.make), *(of_content(path) for path in paths)]))
        graph = GRAPHS.get(used.entries.get("graph"))
        # The graphs of this package count with its engine: their runs stay the same.
        if graph is not None and graph.is_foreign:
            digests["graph"] = of_code(graph.make)
    return digests


def changed(records: Sequence[Mapping[str, Any]], experiment: Experiment) -> list[str]:
    """Return the families of the parts whose code or files have changed since a run was made.

    A run whose records do not say what it was made with counts as unchanged.
    """
    before = records[0].get("code") or {}
    return [family for family, digest in of_run(experiment).items() if before.get(family, digest) != digest]


@functools.cache
def made_with() -> dict[str, str | None]:
    """Return the versions of this package and of jax, the kind of device, and the checkout's commit.

    The commit has a "+" where files of code differ from it, or are in none.

    Example:
      >>> sorted(made_with())
      ['commit', 'device', 'jax', 'version']
    """
    device = jax.devices()[0].device_kind
    return {"version": sgdlab.__version__, "jax": jax.__version__, "device": device, "commit": _commit()}


_CODE = ("sgdlab", "experiments", "configs", ":(exclude)experiments/results")


def _commit() -> str | None:
    root = pathlib.Path(sgdlab.__file__).parents[1]
    if not (root / ".git").exists():
        return None
    try:
        commit, status = (
            subprocess.run(["git", "-C", str(root), *command], capture_output=True, text=True, timeout=10, check=True)
            for command in (("rev-parse", "--short", "HEAD"), ("status", "--porcelain", "--", *_CODE))
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return commit.stdout.strip() + ("+" if status.stdout.strip() else "")


@functools.cache
def of_code(function: Callable) -> str:
    """Return the digest of the code behind a function or class, 16 hexadecimal digits.

    It is computed once for each function object, so that it is that of the code that runs: an edited file counts when
    it is imported anew.
    """
    plain = inspect.unwrap(function)
    file = getattr(sys.modules.get(plain.__module__), "__file__", None)
    name = plain.__qualname__.partition(".")[0]
    if file and name in _statements(path := pathlib.Path(file).resolve()):
        return _sha("\n".join(_reached(path, name)))
    return _sha("\n".join(_of_session(plain)))


def of_content(path: str | pathlib.Path) -> str:
    """Return the digest of a file, or of the names and contents of all files of a directory; 16 digits.

    One that is not there has a digest of its own: whoever reads it refuses it.
    """
    root = pathlib.Path(path).expanduser()
    found = [(file.relative_to(root).as_posix(), _content(file, file.stat().st_mtime_ns)) for file in _files(root)]
    return _sha("\n".join(f"{name} {content}" for name, content in found))


def of_source(path: str | pathlib.Path) -> str:
    """Return the digest of a file of code; of a package's first file: of all that belong to the package. 12 digits."""
    first = pathlib.Path(path)
    total = hashlib.sha256()
    for file in sorted(first.parent.rglob("*.py")) if first.name == "__init__.py" else [first]:
        total.update(f"{file.relative_to(first.parent)}\n".encode() + file.read_bytes())
    return total.hexdigest()[:12]


def _sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _files(path: pathlib.Path) -> list[pathlib.Path]:
    """Return the file, or all files of the directory; none where there is nothing, which the part itself refuses."""
    return [path] if path.is_file() else sorted(found for found in path.rglob("*") if found.is_file())


@functools.lru_cache(maxsize=256)
def _content(file: pathlib.Path, changed: int) -> str:
    """Return the digest of a file's content; one that has changed is read anew."""
    del changed
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def _reached(file: pathlib.Path, name: str) -> list[str]:
    """Return the code of all statements that a name of a file reaches, in this file and in those of its folder."""
    folder = file.parent
    seen: set[tuple[pathlib.Path, str]] = set()
    codes: dict[tuple[pathlib.Path, int, str], str] = {}
    waiting = [(file, name)]
    while waiting:
        here = waiting.pop()
        if here in seen:
            continue
        seen.add(here)
        path, wanted = here
        table = _statements(path)
        for statement in itertools.chain.from_iterable(table.values()) if wanted == _WHOLE else table.get(wanted, ()):
            waiting += _imports(statement, path, folder, wanted)
            if isinstance(statement, ast.Import | ast.ImportFrom):
                codes[path, statement.lineno, wanted] = _meaning(statement, wanted)
            elif (key := (path, statement.lineno, _WHOLE)) not in codes:
                codes[key] = _bare(statement)
                names = [n.id for n in ast.walk(statement) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)]
                waiting += [(path, used) for used in names if used in table]
    return [code for _, code in sorted(codes.items())]


def _statements(file: pathlib.Path) -> dict[str, list[ast.stmt]]:
    """Return the statements at the top of a file, by the names that they bind."""
    return _parsed(file, file.stat().st_mtime_ns)


@functools.lru_cache(maxsize=256)
def _parsed(file: pathlib.Path, changed: int) -> dict[str, list[ast.stmt]]:
    del changed  # a file that has changed is read anew
    table: dict[str, list[ast.stmt]] = {}
    for statement in _unshown(file.read_text(encoding="utf-8")).body:
        for name in _bound(statement):
            table.setdefault(name, []).append(statement)
    return table


def _bound(statement: ast.stmt) -> set[str]:
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {statement.name}
    names = {node.id for node in ast.walk(statement) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    for node in ast.walk(statement):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names |= {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
    return names


def _imports(
    statement: ast.stmt, path: pathlib.Path, folder: pathlib.Path, wanted: str
) -> Iterator[tuple[pathlib.Path, str]]:
    """Yield what a statement imports from the folder: files and the names in them.

    Of a statement at the top of a file only what binds the wanted name counts; an import inside a function always does.
    """
    at_the_top = isinstance(statement, ast.Import | ast.ImportFrom)
    for node in ast.walk(statement):
        if not isinstance(node, ast.Import | ast.ImportFrom):
            continue
        for alias in node.names:
            if alias.name == _REGISTER or (getattr(node, "module", None) or "").endswith(_REGISTRIES):
                continue
            if at_the_top and wanted not in (_WHOLE, (alias.asname or alias.name).partition(".")[0]):
                continue
            if isinstance(node, ast.Import):
                if file := _file_of(alias.name, path, folder):
                    yield file, _WHOLE
            elif file := _file_of(f"{node.module or ''}.{alias.name}".strip("."), path, folder):
                yield file, _WHOLE
            elif file := _file_of(node.module or "", path, folder):
                yield file, _WHOLE if alias.name == "*" else alias.name


def _meaning(statement: ast.Import | ast.ImportFrom, wanted: str) -> str:
    """Return what a name stands for that is imported."""
    module = getattr(statement, "module", None) or ""
    names = ((alias.asname or alias.name, alias.name) for alias in statement.names)
    return " ".join(f"{bound}={module}.{name}" for bound, name in names if wanted in (_WHOLE, bound.partition(".")[0]))


def _file_of(module: str, path: pathlib.Path, folder: pathlib.Path) -> pathlib.Path | None:
    """Return the file of a module in the folder or below, which is named from the folder, or with its path there."""
    words = [word for word in module.split(".") if word]
    for base in dict.fromkeys((folder, path.parent)):
        for first in range(len(words)):
            if first and tuple(words[:first]) != base.parts[-first:]:
                continue  # another package's module of the same name
            candidate = base.joinpath(*words[first:]).with_suffix(".py")
            if candidate.is_file():
                return candidate
    return None


def _unshown(text: str) -> ast.Module:
    """Return code without docstrings, and without what only shows a part to people."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _REGISTER in map(_name, (node.func, *node.args[:1])):
            node.keywords = [keyword for keyword in node.keywords if keyword.arg not in _SHOWN]
        if not isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if ast.get_docstring(node) is not None:
            del node.body[0]
        if isinstance(node, ast.ClassDef):
            node.body = [inner for inner in node.body if getattr(inner, "name", None) not in _SHOWN]
        for decorator in node.decorator_list:
            if isinstance(decorator, ast.Call):
                decorator.keywords = [keyword for keyword in decorator.keywords if keyword.arg not in _SHOWN]
    return tree


def _name(node: ast.expr) -> str:
    """Return the last word of a name, as of `functools.partial`; empty of what is none."""
    return getattr(node, "attr", None) or getattr(node, "id", "")


def _bare(node: Any) -> str:
    """Return a statement without places and empty fields: one text on every version of Python."""
    if isinstance(node, ast.AST):
        inner = ((name, _bare(value)) for name, value in ast.iter_fields(node) if name != "type_comment")
        return f"{type(node).__name__}({', '.join(f'{name}={text}' for name, text in inner if text not in ('', '[]'))})"
    if isinstance(node, list):
        return f"[{', '.join(filter(None, map(_bare, node)))}]"
    return "" if node is None else repr(node)


def _of_session(function: Callable) -> Iterator[str]:
    """Yield the code of a function that stands in no file, as in a notebook, and of what it names beside it."""
    beside = getattr(sys.modules.get(function.__module__), "__dict__", {})
    seen: set[str] = set()
    waiting: list[Any] = [function]
    while waiting:
        here = inspect.unwrap(waiting.pop())
        if here.__qualname__ in seen:
            continue
        seen.add(here.__qualname__)
        try:
            tree = _unshown(textwrap.dedent(inspect.getsource(here)))
            names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
            yield _bare(tree.body[0])
        except (OSError, TypeError, SyntaxError):  # typed at a prompt: there is no source
            codes = [m.__code__ for m in (here, *vars(here).values()) if hasattr(m, "__code__")]
            names = {name for code in codes for name in code.co_names}
            yield from (_of_bytecode(code) for code in codes)
        for name in sorted(names & beside.keys()):
            value = beside[name]
            if callable(value) and getattr(inspect.unwrap(value), "__module__", None) == function.__module__:
                waiting.append(value)
            elif isinstance(value, _PLAIN):
                yield f"{name}={value!r}"


def _of_bytecode(code: Any) -> str:
    inner = [_of_bytecode(c) if hasattr(c, "co_code") else repr(c) for c in code.co_consts]
    return f"{code.co_code.hex()} {code.co_names} {inner}"
