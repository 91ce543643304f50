"""The file of a configuration: where it is, what it makes, and what is wrong with it."""

import importlib.util
import inspect
import pathlib
from typing import Any

from ml_collections import ConfigDict

import sgdlab
from sgdlab.errors import UsageError, mistakes_of
from sgdlab.jobs.configuration import flat


def found(config: str) -> str:
    """Return a configuration's file: as it is named or, where there is none, the one of that name in this package."""
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


def entries_of(config: str) -> list[str]:
    """Return all entries of a configuration's file as it stands; none where it cannot be read."""
    path, colon, variant = found(config).partition(":")
    try:
        return [name for name, _ in flat(_get_config(path)(*([variant] if colon else [])))]
    except Exception:
        return []


def load(config: str) -> ConfigDict:
    """Execute a configuration's file, whose mistakes are one line: its own line, and what is wrong there.

    Args:
      config: the file and perhaps a variant, as in "configs/cutoff.py:two_state".

    Returns:
      The configuration.

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
    return made


def _get_config(path: str) -> Any:
    """Return the function of a configuration's file that makes the configuration; None where it has none."""
    spec: Any = importlib.util.spec_from_file_location("_configuration", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, "get_config", None)
