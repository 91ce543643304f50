"""The work of a sweep's runs: a configuration is trained, or any function; and what the results of it depend on."""

import dataclasses
import functools
import importlib
import inspect
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ml_collections import ConfigDict

from sgdlab import replay
from sgdlab.families import FAMILIES
from sgdlab.report.words import number
from sgdlab.results.metric import Metric
from sgdlab.results.records import Records, as_stored
from sgdlab.runs import digests, plan
from sgdlab.runs.configuration import value_of
from sgdlab.runs.experiment import resolve
from sgdlab.runs.methods import chosen
from sgdlab.runs.train import Place, train_and_record

Settings = ConfigDict | dict[str, Any]
Work = Callable[..., Any]

GIVEN = ("alike", "folder", "place", "report")
"""Arguments that a work function is given where it names them; see `sgdlab.runs.Sweep`."""

_TRAINED = "experiments.harness.training.train"
"""The name of `train` in the keys of runs, which stays where the function moves."""


@dataclasses.dataclass(frozen=True)
class Alike:
    """The settings of all missing runs that share a compiled program, whose arrays are to have one size."""

    keys: tuple[str, ...]  # of the runs; two objects are equal where these are
    settings: tuple[Settings, ...] = dataclasses.field(compare=False)  # of each


@dataclasses.dataclass(frozen=True)
class Point:
    """The settings of one run of a sweep."""

    key: str  # the hash of all its settings
    varied: dict[str, Any]  # those of its settings that the sweep varies
    settings: Settings  # all of them
    label: str = ""  # what the name of its file begins with, for a person; the hash follows

    @property
    def name(self) -> str:
        """Return the name of the run's file in a store, less the ending."""
        return f"{self.label}-{self.key}" if self.label else self.key

    def __str__(self) -> str:
        alone = self.varied.get("cluster.first_workers") == 1
        named = {"cluster.first_workers": "cluster.num_workers"} if alone else {}
        shown = {named.get(name, name): value for name, value in self.varied.items()}
        unsaid = lambda name: ".kind" in name or name == "budget"
        words = [_in_words(name, value) for name, value in shown.items() if not (value is None and unsaid(name))]
        return ", ".join(words) or "the run"


def train(config: ConfigDict, *, alike: Alike, place: Place, report: Callable[[Mapping[str, Any]], None]) -> Records:
    """Train one configuration; a run that was killed continues from its last checkpoint."""
    return train_and_record(plan.make_plan(config), place, capacity=capacity(alike), report=report).records


@functools.lru_cache(maxsize=4)
def capacity(alike: Alike) -> replay.Capacity:
    """Return the array sizes that hold every run of a group."""
    sizes = (plan.make_plan(config).program.capacity for config in alike.settings)
    return functools.reduce(lambda a, b: a | b, sizes)


def label(config: ConfigDict) -> str:
    """Return what the name of a run's file begins with, which other entries than these do not change.

    Example:
      >>> from configs import digits
      >>> label(digits.get_config())
      'gap_aware-n8-seed0'
    """
    method = re.sub(r"[^\w.+-]+", "_", chosen(config)[0].name)
    return f"{method}-n{num_workers_of(config)}-seed{config.seed}"


def num_workers_of(config: Any) -> int:
    """Return how many workers take part."""
    return config.cluster.first_workers or config.cluster.num_workers


def amount(config: ConfigDict) -> int:
    """Return the number of gradients that a run uses, for its progress; 0 where that is not known before."""
    experiment = resolve(config)
    return 0 if experiment.ending.early else experiment.num_gradients


def identity(config: ConfigDict) -> dict[str, Any]:
    """Return the entries that a run depends on; of files that parts name, what they hold instead of where they are."""
    if "method" not in config:
        return config.to_dict()
    experiment = resolve(config)
    found = dict(experiment.identity)
    for family, used in experiment.parts.items():
        content = {name: digests.of_content(used.entries[name]) for name in used.facts.files if used.entries.get(name)}
        found[family] = {**found[family], used.name: {**found[family][used.name], **content}}
    return found


def group_of(work: Work, settings: Any, together: Sequence[str] = ()) -> str:
    """Return what the runs agree in that are better done together: by default, those that share a compiled program.

    The settings that `together` names, if any, decide instead.
    """
    if together or work is not train:
        values = [value_of(settings, name) for name in together]
    else:
        whole = identity(settings)
        values = [settings.batch_size, *(whole[family] for family in ("method", "network", "data"))]
        values += [whole[family].get("kind") for family in ("protocol", "rule")]
        values += [whole["compression"]] if "compression" in whole else []
    return json.dumps(as_stored({name_of(work): [list(together), values]}), sort_keys=True)


def outcome(work: Work, record: Mapping[str, Any]) -> str:
    """Return the result of a run in a few words, from its last record.

    Example:
      >>> outcome(train, {"diverged": False, "test_accuracy": 0.964, "seconds": 1213.4, "speedup": 2.031})
      '96.4 %, 1,213 virtual s, 2.03 x sync. SGD'
      >>> outcome(amount, {"compute_seconds": 2.5})
      'done in 2.5 s'
    """
    if work is not train:
        return f"done in {record['compute_seconds']:.1f} s"
    metric = Metric.of(record)
    end = "diverged" if record["diverged"] else metric.text(record[metric.test])
    speedup = f", {record['speedup']:.2f} x sync. SGD" if record.get("num_workers") != 1 else ""  # which it is
    return f"{end}, {number(record['seconds'])} virtual s{speedup}"


def goes_by(*functions: Callable[..., Any]) -> Callable[[Work], Work]:
    """Say that a work's results depend on code outside of its folder: its runs are done anew where that changes.

    Args:
      *functions: functions and classes, such as a protocol.

    Example:
      >>> from sgdlab import protocols
      >>> @goes_by(protocols.partial)
      ... def simulated(*, seed: int) -> dict[str, float]: ...
      >>> simulated.code[0].__name__
      'partial'
    """
    return functools.partial(_marked, "code", functions)


def trains(configuration: Callable[..., ConfigDict | list[ConfigDict]]) -> Callable[[Work], Work]:
    """Say which configuration, or configurations, a work trains, so that `--dry_run` knows what its runs take.

    It decorates the work, or is called on one below it, which leaves the code of the work, and so its runs, as it was.

    Args:
      configuration: from a run's settings, as the work itself is given them, to the configuration that it trains; or
        to a list of several, which it trains at once, as one program.

    Example:
      >>> def configured(*, epochs: float) -> ConfigDict:
      ...     return ConfigDict({"epochs": epochs})
      >>> def trained(*, epochs: float) -> dict[str, float]: ...
      >>> _ = trains(configured)(trained)
      >>> [config.epochs for config in trained_by(trained, {"epochs": 3.0})]
      [3.0]
    """
    return functools.partial(_marked, "trains", configuration)


def _marked(attribute: str, value: Any, work: Work) -> Work:
    setattr(work, attribute, value)
    return work


def trained_by(work: Work, settings: Settings) -> list[ConfigDict]:
    """Return the configurations that a run of a work trains; none where it trains nothing, or does not say so."""
    if work is train:
        return [settings]
    if (configuration := getattr(work, "trains", None)) is None:
        return []
    found = called(configuration, settings)
    return [found] if isinstance(found, ConfigDict) else list(found)


def name_of(work: Work) -> str:
    """Return the name of a work where its runs are stored."""
    return _TRAINED if work is train else f"{work.__module__}.{work.__qualname__}"


def code_of(work: Work, settings: Settings) -> dict[str, str]:
    """Return digests of the code that a run goes by."""
    own = {} if work is train else {"work": digests.of_code(work)}
    own |= {function.__qualname__: digests.of_code(function) for function in getattr(work, "code", ())}
    return own | (digests.of_run(resolve(settings)) if _names_parts(settings) else {})


def parts_of_code(work: Work, settings: Settings) -> dict[str, str]:
    """Return digests of the code that a run goes by, by names from which `digest_now` finds it again."""
    found = {} if work is train else {name_of(work): digests.of_code(work)}
    found |= {name_of(function): digests.of_code(function) for function in getattr(work, "code", ())}
    used = resolve(settings).parts if _names_parts(settings) else {}
    return found | {f"{family}:{one.name}": digests.of_code(one.part.make) for family, one in used.items()}


def _names_parts(settings: Settings) -> bool:
    return isinstance(settings, ConfigDict) and "method" in settings


def digest_now(name: str) -> str | None:
    """Return the digest of what `parts_of_code` names, as it is now; None where there is no such thing any more."""
    family, _, part = name.partition(":")
    if part:
        registry = {registry.family: registry for registry in FAMILIES}.get(family, {})
        return digests.of_code(registry[part].make) if part in registry else None
    module, _, attribute = name.rpartition(".")
    try:
        return digests.of_code(getattr(importlib.import_module(module), attribute))
    except (ImportError, AttributeError):
        return None


def called(function: Callable[..., Any], settings: Settings, **given: Any) -> Any:
    """Call a function with a run's settings: a configuration is its argument, a mapping its keyword arguments."""
    return function(settings, **given) if isinstance(settings, ConfigDict) else function(**settings, **given)


def called_with(work: Work, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings with the defaults of a function's signature.

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


def _in_words(name: str, value: Any) -> str:
    """Return a setting as a person would say it."""
    if name == "method":
        return str(value)
    if name == "cluster.num_workers":
        return f"{value} worker{'s' * (value != 1)}"
    text = f"{value:.4g}" if isinstance(value, float) else value
    return f"seed {value}" if name == "seed" else f"{name.rpartition('.')[2]}={text}"
