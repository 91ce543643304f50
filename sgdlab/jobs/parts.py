"""Parts that are defined outside of this package: the files that register them, in this process and in its children."""

import importlib
import importlib.util
import pathlib
import sys
from typing import Any

from sgdlab.errors import UsageError, mistakes_of
from sgdlab.registry import FAMILIES, GRAPHS

_loaded: dict[str, tuple[str, int]] = {}
"""Modules that `load` has imported: name -> file, and when its folder had last changed."""


def load(file: str) -> None:
    """Imports a Python file that registers parts; files beside it can be imported by it.

    If one of them has changed since, all of the folder are imported anew.

    Args:
      file: such as "my_parts.py".

    Raises:
      UsageError: where it is no Python file, its name is that of another module, or it raises.
    """
    path = python_file("--parts", file)
    if not path.stem.isidentifier():
        raise UsageError(f"--parts={file} must be renamed: {path.stem} is no name that Python can import")
    known = sys.modules.get(path.stem)
    other = importlib.util.find_spec(path.stem) if known is None else known.__spec__
    if other is not None and not (other.origin and pathlib.Path(other.origin).exists() and path.samefile(other.origin)):
        raise UsageError(f"--parts={file} must be renamed: there is another module {path.stem}")
    changed = max(beside.stat().st_mtime_ns for beside in path.parent.glob("*.py"))
    if known is not None and _loaded.get(path.stem, (str(path), changed)) == (str(path), changed):
        _loaded[path.stem] = str(path), changed
        return
    for name, module in list(sys.modules.items()) if known is not None else ():
        beside = getattr(module, "__file__", None)
        if beside and name != "__main__" and pathlib.Path(beside).resolve().parent == path.parent:
            del sys.modules[name]
    importlib.invalidate_caches()
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    # First the parts of this package, so that a name that is taken is the file's mistake.
    importlib.import_module("sgdlab.jobs.configuration")
    with mistakes_of(f"--parts={file}", path):
        _execute(path.stem, path)
    _loaded[path.stem] = str(path), changed


def python_file(flag: str, file: str) -> pathlib.Path:
    """Returns the whole path of a person's Python file.

    Raises:
      UsageError: where there is none, with the flag and why not.
    """
    path = pathlib.Path(file)
    if path.is_file() and path.suffix == ".py":
        return path.resolve()
    there = f"its name ends in {path.suffix}" if path.suffix else "its name has no ending"
    why = "it does not exist" if not path.exists() else "it is a directory" if path.is_dir() else there
    raise UsageError(f"{flag}={file} must be a Python file, such as mine.py: {why}")


def outside() -> dict[str, str]:
    """Modules outside of this package that other processes are to import: name -> file.

    They are the files that `load` was given, and those in which parts are registered, scripts that run left out.
    """
    names = dict.fromkeys(part.make.__module__ for registry in (*FAMILIES, GRAPHS) for part in registry.values())
    ours = ("sgdlab", "__main__", "__mp_main__")
    modules = {name: sys.modules.get(name) for name in names if name.partition(".")[0] not in ours}
    loaded = {name: file for name, (file, _) in _loaded.items() if name in sys.modules}
    # Whoever has registered a method has imported its module.
    if (own := sys.modules.get("sgdlab.jobs.own_methods")) is not None:
        loaded |= own.files()
    return loaded | {name: file for name, module in modules.items() if (file := getattr(module, "__file__", None))}


def can_be_imported() -> bool:
    """Whether all parts and methods stand in files, which other processes can import."""
    own = sys.modules.get("sgdlab.jobs.own_methods")
    if own is not None and not own.stand_in_files():
        return False
    makers = [part.make for registry in (*FAMILIES, GRAPHS) for part in registry.values()]
    return all(getattr(sys.modules.get(make.__module__), "__file__", None) for make in makers)


def import_again(name: str, file: str) -> None:
    """Imports, in a child, a module that `outside` found in the parent."""
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name.partition(".")[0] and error.name != name:
            raise
        _execute(name, pathlib.Path(file))


def _execute(name: str, path: pathlib.Path) -> None:
    spec: Any = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
