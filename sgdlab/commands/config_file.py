"""The configuration's file that a command line names: where it is, what it holds, and what is wrong with its name."""

import importlib.util
import inspect
import pathlib
from collections.abc import Sequence
from typing import Any

from ml_collections import ConfigDict

import sgdlab
from sgdlab import jobs
from sgdlab.commands import flag_names
from sgdlab.errors import UsageError, mistakes_of


def with_file(given: list[str], default: str) -> list[str]:
    """The same arguments, with the configuration's file behind the command's name, as a path that is there."""
    named = flag_names.values(given[1:], "config", split=False)
    others = flag_names.without(given[1:], "config")
    config = found(named[-1] if named else default)
    jobs.parts.python_file("--config", config.partition(":")[0])
    return [given[0], f"--config={config}", *others]


def found(config: str) -> str:
    """A configuration's file: as it is named or, where there is none, the one of that name in this package."""
    path, colon, variant = config.partition(":")
    if not pathlib.Path(path).exists():
        spec = importlib.util.find_spec("sgdlab.configs")
        folders = [*(spec.submodule_search_locations or ())] if spec else []
        folders.append(str(pathlib.Path(sgdlab.__file__).parents[1] / "configs"))  # of a checkout
        for folder in folders:
            packaged = pathlib.Path(folder) / pathlib.Path(path).name
            if packaged.exists():
                return f"{packaged}{colon}{variant}"
    return config


def named_in(given: Sequence[str]) -> str:
    """The file of a command line that names one, its name first; the last of several."""
    return flag_names.values(given[1:], "config", split=False)[-1]


def entries_of(config: str) -> list[str]:
    """All entries of a configuration's file as it stands; none where it cannot be read."""
    path, colon, variant = found(config).partition(":")
    try:
        return [name for name, _ in jobs.configuration.flat(_get_config(path)(*([variant] if colon else [])))]
    except Exception:
        return []


def check(config: str) -> None:
    """Executes a configuration's file, whose mistakes are one line: its own line, and what is wrong there.

    Raises:
      UsageError: where it raises, or makes no configuration, or refuses the variant, the part after the colon.
    """
    path, colon, variant = config.partition(":")
    flag = f"--config={path}"
    with mistakes_of(flag, pathlib.Path(path)):
        get_config = _get_config(path)
    if get_config is None:
        raise UsageError(f"{flag} must have a function get_config, which returns the configuration")
    if colon and not inspect.signature(get_config).parameters:
        raise UsageError(f"--config={config} must be {flag}: this configuration has no variants")
    try:
        with mistakes_of(flag, pathlib.Path(path)):
            made = get_config(*([variant] if colon else []))
    except UsageError as error:
        if colon and isinstance(error.__cause__, ValueError):  # of the variant, and no line is at fault
            raise UsageError(f"--config={config}: {error.__cause__}") from error
        raise
    if not isinstance(made, ConfigDict):
        raise UsageError(f"{flag}: get_config must return a ConfigDict, and returned a {type(made).__name__}")


def _get_config(path: str) -> Any:
    """The function of a configuration's file that makes the configuration; None where it has none."""
    spec: Any = importlib.util.spec_from_file_location("_configuration", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, "get_config", None)
