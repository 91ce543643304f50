"""Modules that a user's files hold: found by their names, or else executed from their files."""

import importlib
import importlib.util
import pathlib
import sys


def import_or_execute(name: str, file: str | pathlib.Path) -> None:
    """Import a module by its name, or execute its file where there is no module of that name.

    Raises:
      ModuleNotFoundError: where the module is there, and imports one that is not.
      ValueError: where `execute` raises it.

    Example:
      >>> import_or_execute("json.decoder", "anywhere.py")
    """
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name not in (name, name.partition(".")[0]):
            raise
        execute(name, file)


def execute(name: str, file: str | pathlib.Path) -> None:
    """Execute a file as the module of that name; a module that fails is not left in `sys.modules`.

    Raises:
      ValueError: where the file's name is not that of a file of Python code.

    Example:
      >>> execute("mine", "mine.txt")
      Traceback (most recent call last):
      ...
      ValueError: modules['mine']='mine.txt' must be a file of Python code, *.py
    """
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ValueError(f"modules[{name!r}]={str(file)!r} must be a file of Python code, *.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
