"""A run of a sweep, the work that does it, and what the work's results depend on."""

import dataclasses
import functools
import importlib
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from ml_collections import ConfigDict

from experiments.harness.training import train
from sgdlab.jobs import digests, resolve
from sgdlab.registry import FAMILIES

Settings = ConfigDict | dict[str, Any]
Work = Callable[..., Any]

GIVEN = ("alike", "folder", "report")
"""What a work function is given where it names it; see `experiments.harness.Sweep`."""


@dataclasses.dataclass(frozen=True)
class Alike:
    """The settings of all missing runs that share a compiled program, whose arrays are to have one size.

    Attributes:
      keys: of the runs; two objects are equal where these are.
      settings: of each.
    """

    keys: tuple[str, ...]
    settings: tuple[Settings, ...] = dataclasses.field(compare=False)


@dataclasses.dataclass(frozen=True)
class Run:
    """One run of a sweep.

    Attributes:
      key: the hash of all its settings.
      varied: those of its settings that the sweep varies.
      settings: all of them.
    """

    key: str
    varied: dict[str, Any]
    settings: Settings

    def __str__(self) -> str:
        words = (f"{name.rpartition('.')[2]}={value}" for name, value in self.varied.items())
        return ", ".join(words) or "the run"


def goes_by(*functions: Callable[..., Any]) -> Callable[[Work], Work]:
    """Says that a work's results depend on code outside of its folder: its runs are done anew where that changes.

    Args:
      *functions: functions and classes, such as a protocol.

    Example:
      >>> from sgdlab import protocols
      >>> @goes_by(protocols.partial)
      ... def simulated(*, seed: int) -> dict[str, float]: ...
      >>> simulated.code[0].__name__
      'partial'
    """

    def mark(work: Work) -> Work:
        work.code = functions
        return work

    return mark


def trains(configuration: Callable[..., ConfigDict | list[ConfigDict]]) -> Callable[[Work], Work]:
    """Says which configuration, or configurations, a work trains, so that `--dry_run` knows what its runs take.

    It decorates the work, or is called on one below it, which leaves the code of the work, and so its runs, as it was.

    Args:
      configuration: from a run's settings, as the work itself is given them, to the configuration that it trains; or
        to a list of several, which it trains at once, as one program.

    Example:
      >>> from configs import digits
      >>> def configured(*, epochs: float) -> ConfigDict:
      ...     config = digits.get_config()
      ...     config.epochs = epochs
      ...     return config
      >>> def trained(*, epochs: float) -> dict[str, float]: ...
      >>> _ = trains(configured)(trained)
      >>> [config.epochs for config in trained_by(trained, {"epochs": 3.0})]
      [3.0]
    """

    def mark(work: Work) -> Work:
        work.trains = configuration
        return work

    return mark


def trained_by(work: Work, settings: Settings) -> list[ConfigDict]:
    """The configurations that a run of a work trains; none where it trains nothing, or does not say so."""
    if work is train:
        return [settings]
    if (configuration := getattr(work, "trains", None)) is None:
        return []
    found = called(configuration, settings)
    return [found] if isinstance(found, ConfigDict) else list(found)


def name_of(work: Work) -> str:
    """What a work is called where its runs are stored."""
    return f"{work.__module__}.{work.__qualname__}"


def code_of(work: Work, settings: Settings) -> dict[str, str]:
    """Digests of the code that a run goes by."""
    own = {} if work is train else {"work": digests.of_code(work)}
    own |= {function.__qualname__: digests.of_code(function) for function in getattr(work, "code", ())}
    parts = digests.of_run(resolve(settings)) if isinstance(settings, ConfigDict) and "method" in settings else {}
    return own | parts


def parts_of_code(work: Work, settings: Settings) -> dict[str, str]:
    """Digests of the code that a run goes by, by names from which `digest_now` finds it again."""
    found = {} if work is train else {name_of(work): digests.of_code(work)}
    found |= {name_of(function): digests.of_code(function) for function in getattr(work, "code", ())}
    if isinstance(settings, ConfigDict) and "method" in settings:
        used = resolve(settings).parts
        found |= {f"{family}:{one.name}": digests.of_code(one.part.make) for family, one in used.items()}
    return found


def digest_now(name: str) -> str | None:
    """The digest of what `parts_of_code` names, as it is now; None where there is no such thing any more."""
    family, _, part = name.partition(":")
    if part:
        registry = next((registry for registry in FAMILIES if registry.family == family), {})
        return digests.of_code(registry[part].make) if part in registry else None
    module, _, attribute = name.rpartition(".")
    try:
        return digests.of_code(getattr(importlib.import_module(module), attribute))
    except (ImportError, AttributeError):
        return None


def called(function: Callable[..., Any], settings: Settings, **given: Any) -> Any:
    """What a function makes of a run's settings: a configuration is its argument, a mapping its keyword arguments."""
    return function(settings, **given) if isinstance(settings, ConfigDict) else function(**settings, **given)


def called_with(work: Work, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings with the defaults of a function's signature.

    Raises:
      ValueError: where the function does not take a setting, or needs another.
    """
    parameters = {name: p for name, p in inspect.signature(work).parameters.items() if name not in GIVEN}
    unknown = [name for name in settings if name not in parameters]
    lacking = [name for name, p in parameters.items() if p.default is p.empty and name not in settings]
    if unknown or lacking:
        wrong = f"{', '.join(unknown)} not of its arguments" if unknown else f"{', '.join(lacking)} missing"
        raise ValueError(f"over: {wrong}; {work.__name__} takes {', '.join(parameters)}")
    return {name: settings.get(name, p.default) for name, p in parameters.items()}


def value_of(settings: Settings, name: str) -> Any:
    """A setting by its name; that of a group as "group.name"."""
    return functools.reduce(lambda entry, part: entry[part], name.split("."), settings)
