"""The work of most sweeps: a configuration is trained."""

import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ml_collections import ConfigDict

from sgdlab import replay
from sgdlab.jobs import digests, plan, resolve
from sgdlab.jobs.train import train as train_plan
from sgdlab.results.records import Records

if TYPE_CHECKING:
    from experiments.harness.runs import Alike


def train(config: ConfigDict, *, alike: "Alike", report: Callable[[Mapping[str, Any]], None]) -> Records:
    """Trains one configuration.

    Args:
      config: such as `configs/digits.py` makes.
      alike: configurations with which the run shares a compiled program.
      report: called with each record.

    Returns:
      The records of `sgdlab.jobs.train.train`.
    """
    return train_plan(plan.make_plan(config), capacity=capacity(alike), report=report).records


@functools.lru_cache(maxsize=4)
def capacity(alike: "Alike") -> replay.Capacity:
    """The array sizes that hold every run of a group."""
    sizes = (plan.make_plan(config).program.capacity for config in alike.settings)
    return functools.reduce(lambda a, b: a | b, sizes)


def amount(config: ConfigDict) -> int:
    """The gradients that a run uses, for its progress."""
    return resolve(config).num_gradients


def identity(config: ConfigDict) -> dict[str, Any]:
    """The entries that a run depends on; of files that parts name, what they hold instead of where they are."""
    if "method" not in config:
        return config.to_dict()
    experiment = resolve(config)
    found = dict(experiment.identity)
    for family, used in experiment.parts.items():
        files = [entry for entry in used.facts.get("files", ()) if used.entries.get(entry)]
        content = {entry: digests.of_content(used.entries[entry]) for entry in files}
        found[family] = {**found[family], used.name: {**found[family][used.name], **content}}
    return found
