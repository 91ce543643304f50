"""Parts that are defined outside of this package: the files that register them, in this process and in its children."""

import importlib
import importlib.util
import pathlib
import sys

from sgdlab.errors import UsageError
from sgdlab.registry import FAMILIES


def load(file: str) -> None:
    """Imports a Python file that registers parts; files beside it can be imported by it.

    Args:
      file: such as "my_parts.py".

    Raises:
      UsageError: where it is no Python file, or its name is that of another module.
    """
    path = pathlib.Path(file).resolve()
    if path.suffix != ".py" or not path.is_file():
        raise UsageError(f"--parts={file} must be a Python file")
    known = sys.modules.get(path.stem)
    if known is not None and getattr(known, "__file__", None) == str(path):
        return
    other = importlib.util.find_spec(path.stem) if known is None else known.__spec__
    if other is not None and other.origin != str(path):
        raise UsageError(f"--parts={file} must be renamed: there is another module {path.stem}")
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    _execute(path.stem, path)


def outside() -> dict[str, str]:
    """Modules outside of this package in which parts are registered: name -> file. Scripts that run are left out."""
    names = dict.fromkeys(part.make.__module__ for registry in FAMILIES for part in registry.values())
    ours = ("sgdlab", "__main__", "__mp_main__")
    modules = {name: sys.modules.get(name) for name in names if name.partition(".")[0] not in ours}
    return {name: file for name, module in modules.items() if (file := getattr(module, "__file__", None))}


def can_be_imported() -> bool:
    """Whether all parts stand in files, which other processes can import."""
    makers = [part.make for registry in FAMILIES for part in registry.values()]
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
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
