"""A configuration: its parts' entries, the checks of what belongs to no part, and the entries that a run depends on."""

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ml_collections import ConfigDict

from sgdlab import arguments, cluster, data, networks, predictors, tasks  # noqa: F401 (the parts register themselves)
from sgdlab.errors import UsageError, said_of
from sgdlab.jobs import rates
from sgdlab.jobs.local_steps import Local, local_of
from sgdlab.jobs.methods import chosen
from sgdlab.registry import CLUSTERS, DATASETS, FAMILIES, NETWORKS, PREDICTORS, Part

MODES = ("event", "wave")
LANES = ("vmap", "map")
LAYOUTS = ("sharded", "replicated")
_NOT_OF_THE_RESULT = ("memory", "stream", "chunk", "readers", "evaluation_batch", "layout")


def parts(kinds: Mapping[str, str], /, **changed: Mapping[str, Mapping[str, Any]]) -> ConfigDict:
    """The entries of all registered parts, by family.

    Args:
      kinds: the part of each family that runs use; a family that is not named leaves it to `method`.
      **changed: by family and part, entries that differ from the part's defaults.

    Raises:
      ValueError: where a family, a part or an entry is not known.

    Example:
      >>> config = parts({"network": "conv"}, network={"conv": {"channels": (8, 16)}})
      >>> config.network.kind, config.network.conv.channels, config.rule.kind
      ('conv', (8, 16), None)
    """
    for family in {*kinds, *changed} - {registry.family for registry in FAMILIES}:
        raise ValueError(f"{family!r} must be one of {', '.join(registry.family for registry in FAMILIES)}")
    found = {r.family: r.entries(kinds.get(r.family), **changed.get(r.family, {})) for r in FAMILIES}
    return ConfigDict(found)


def check(config: ConfigDict) -> None:
    """Checks what belongs to no part; parts check themselves where they are made.

    Raises:
      UsageError: at the first entry that cannot be; it names the flag.
    """
    used_parts(config)
    with said_of("--config."):
        for name, least in (("seed", 0), ("batch_size", 1), ("evaluations", 1), ("cluster.num_workers", 1)):
            arguments.whole(name, _value(config, name), least=least)
        _check_cut(config.batch_size, config.micro_batches)
        arguments.real("epochs", config.epochs, above=0)
        if config.target is not None:
            most = {"most": 1} if tasks.kinds.kind_of(used_parts(config)["network"]).metric == "accuracy" else {}
            arguments.real("target", config.target, above=0, **most)
        for name, least in (("evaluation_batch", 1), ("chunk", 1), ("readers", 0)):
            arguments.whole(name, config[name], least=least)
        for name in ("train_examples", "test_examples"):
            if config[name] is not None:
                arguments.whole(name, config[name])
        if config.average_decay is not None and not 0 <= arguments.real("average_decay", config.average_decay) < 1:
            raise ValueError(f"average_decay={config.average_decay} must be at least 0 and below 1")
        for name, choices in (("mode", MODES), ("lanes", LANES), ("layout", LAYOUTS)):
            if config[name] is not None:
                arguments.one_of(name, config[name], choices)
        if config.memory is not None:
            arguments.real("memory", config.memory, above=0)
        for name in (name for name in config.optimizer if name.endswith("learning_rate")):
            arguments.real(f"optimizer.{name}", config.optimizer[name], above=0)
        arguments.real("optimizer.weight_decay", config.optimizer.weight_decay, least=0)
        if config.optimizer.clip_norm is not None:
            arguments.real("optimizer.clip_norm", config.optimizer.clip_norm, above=0)
        if config.cluster.first_workers is not None:
            most = config.cluster.num_workers
            arguments.whole("cluster.first_workers", config.cluster.first_workers, most=most, why="cluster.num_workers")
        choice = chosen(config)
        local_of(config, choice.method.local, own_rate="rate" in choice.rule.facts)
    with said_of("--config.rate."):
        rates.check(config.rate)


def _check_cut(batch_size: int, micro_batches: int) -> None:
    arguments.whole("micro_batches", micro_batches)
    if batch_size % micro_batches:
        raise ValueError(f"batch_size={batch_size} must be a multiple of micro_batches={micro_batches}")


def used_parts(config: ConfigDict) -> dict[str, Part]:
    """The parts that a run uses, by family.

    Raises:
      UsageError: where one is not known.

    Example:
      >>> from configs import digits
      >>> {family: part.name for family, part in used_parts(digits.get_config()).items()}
      {'protocol': 'asynchronous', 'rule': 'gap_aware', 'cluster': 'gamma', 'network': 'conv', 'data': 'digits'}
    """
    choice = chosen(config)
    used = {"protocol": choice.protocol, "rule": choice.rule}
    if "predictor" in choice.protocol.given:
        used["predictor"] = PREDICTORS.check(config.predictor.kind)
    return used | {r.family: r.check(config[r.family].kind) for r in (CLUSTERS, NETWORKS, DATASETS)}


def identity(config: ConfigDict) -> dict[str, Any]:
    """The entries that a run depends on: those of the parts that it uses, and those that belong to no part.

    So another part's new entry changes nothing of it, nor do micro-batches where there is one, nor shares of the
    examples where all workers draw from all of them, nor local steps where there are none.

    Example:
      >>> from configs import digits
      >>> found = identity(digits.get_config())
      >>> sorted(found["rule"]), "timeout" in found["protocol"], found["cluster"]["num_workers"]
      (['gap_aware', 'kind'], False, 8)
    """
    choice, entries, used = chosen(config), config.to_dict(), used_parts(config)
    for registry in FAMILIES:
        family = registry.family
        if family not in used:
            del entries[family]
            continue
        kind = used[family].name
        own = {name: value for name, value in entries[family].items() if name not in registry}
        entries[family] = {**own, "kind": kind, kind: entries[family].get(kind, {})}
    entries["protocol"][choice.protocol.name] |= _plain(choice.entries)
    entries["rule"][choice.rule.name] |= _plain(choice.rule_entries)
    entries["method"] = choice.method.name
    wanted = {choice.rule.facts.get("rate", "learning_rate"), *choice.rule.given, "clip_norm"}
    local = local_of(config, choice.method.local, own_rate="rate" in choice.rule.facts)
    entries.pop("local", None)
    if local != Local():  # as in runs from before there were any
        entries["local"] = local.record()
        wanted |= {"weight_decay", "adam_learning_rate" if local.optimizer == "adamw" else "learning_rate"}
    entries["optimizer"] = {name: value for name, value in entries["optimizer"].items() if name in wanted}
    if entries.get("micro_batches") == 1:  # as in runs from before there were any
        del entries["micro_batches"]
    if entries.get("heterogeneity", {}).get("alpha") is None:  # as in runs from before there were shares
        entries.pop("heterogeneity", None)
    return {name: value for name, value in entries.items() if name not in _NOT_OF_THE_RESULT}


def check_used(given: Iterable[str], identities: Sequence[Mapping[str, Any]]) -> None:
    """Checks that what a person has set makes a difference to some run.

    Args:
      given: names of the entries that were set, such as "data.npz.path".
      identities: of the runs.

    Raises:
      UsageError: where an entry belongs to a part that no run uses.

    Example:
      >>> from configs import digits
      >>> check_used(["data.npz.path"], [identity(digits.get_config())])
      Traceback (most recent call last):
      ...
      sgdlab.errors.UsageError: --config.data.npz.path has no effect: data.kind is digits; set --config.data.kind=npz
    """
    used = {name for entries in identities for name, _ in flat(entries)} | set(_NOT_OF_THE_RESULT)
    kinds = {
        registry.family: list(dict.fromkeys(entries.get(registry.family, {}).get("kind") for entries in identities))
        for registry in FAMILIES
    }
    for name in given:
        family, _, rest = name.partition(".")
        part = rest.partition(".")[0]
        if name in used or name == f"{family}.kind":
            continue
        flag = f"--config.{name} has no effect"
        if family in kinds and part not in kinds[family]:
            now = ", ".join(str(kind) for kind in kinds[family] if kind) or "not used by this protocol"
            raise UsageError(f"{flag}: {family}.kind is {now}; set --config.{family}.kind={part}")
        if family == "optimizer":
            raise UsageError(f"{flag}: no rule of these runs takes it")
        if family == "heterogeneity":
            raise UsageError(f"{flag}: all workers draw from all examples; set --config.heterogeneity.alpha")


def _plain(entries: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value.to_dict() if isinstance(value, ConfigDict) else value for name, value in entries.items()}


def _value(config: ConfigDict, name: str) -> Any:
    return functools.reduce(lambda entry, part: entry[part], name.split("."), config)


def flat(config: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every entry with its whole name, as in `cluster.num_workers`."""
    for name, value in config.items():
        if isinstance(value, Mapping | ConfigDict):
            yield from flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value
