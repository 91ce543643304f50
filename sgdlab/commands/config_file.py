"""The configuration's file that a command line names: where it is, what it holds, and what is wrong with its name."""

import importlib.util
import inspect
import pathlib
from collections.abc import Callable, Sequence

from ml_collections import ConfigDict

import sgdlab
from sgdlab import jobs
from sgdlab.commands import flag_names


def with_file(given: list[str], default: str) -> list[str]:
    """The same arguments, with the configuration's file behind the command's name, as a path that is there."""
    named = flag_names.values(given[1:], "config", split=False)
    others = flag_names.without(given[1:], "config")
    return [given[0], f"--config={found(named[-1] if named else default)}", *others]


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


def wrong_variant(config: str) -> str | None:
    """What to say of a configuration whose file refuses the part after the colon; None where it does not."""
    path, colon, variant = config.partition(":")
    if not colon:
        return None
    try:
        get_config = _get_config(path)
        if not inspect.signature(get_config).parameters:
            return f"--config={config} must be --config={path}: this configuration has no variants"
        get_config(variant)
    except ValueError as error:
        return f"--config={config}: {error}"
    except Exception:
        return None
    return None


def _get_config(path: str) -> Callable[..., ConfigDict]:
    """The function of a configuration's file that makes the configuration."""
    spec = importlib.util.spec_from_file_location("_configuration", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.get_config
