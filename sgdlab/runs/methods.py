"""The methods by name: whom each one waits for, and what it does with a gradient. Any protocol goes with any rule."""

import dataclasses
import difflib
import functools
import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from ml_collections import ConfigDict

from sgdlab import arguments
from sgdlab.errors import UsageError
from sgdlab.knobs import Knob
from sgdlab.registry import PROTOCOLS, RULES, Part, Registry
from sgdlab.runs.local_steps import ENTRIES as LOCAL_ENTRIES

REPRESENTATIVE = (
    "synchronous", "backup_workers", "cutoff", "partial", "rennala", "softsync", "bounded_staleness", "ringmaster",
    "asgd", "nag_asgd", "staleness_aware", "gap_aware", "dana_gap_aware", "adam_gap_aware",
    "pull_gossip", "elastic_averaging",
)  # fmt: skip
"""Methods that stand for all families: what a first comparison shows."""

OTHERS = ("Others",)
"""The panel of methods whose parts name none of their own."""


@dataclasses.dataclass(frozen=True, eq=False)
class Method:
    """A protocol and a rule that are compared under one name; the attributes are those of `register_method`.

    An entry that its protocol or rule leaves open (None) is only a default of the method, which a configuration may
    change. Of the families, the first is the method's own.
    """

    name: str
    protocol: str
    rule: str
    title: str
    source: str = ""
    families: tuple[str, ...] = OTHERS
    entries: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    local: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    rule_entries: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    tunes: Knob | None = None

    @property
    def baseline(self) -> str:
        """Return the method that, with a single worker, is the serial run to compare with."""
        return RULES[self.rule].facts.baseline


@dataclasses.dataclass(frozen=True)
class UsedPart:
    """A part that a run uses."""

    registry: Registry  # of its family
    name: str  # what `config.<family>.kind` calls it
    entries: Mapping[str, Any]  # its entries of the configuration, with what the name of the run's method means

    @classmethod
    def of(cls, config: ConfigDict, registry: Registry, otherwise: Any = None) -> "UsedPart":
        """Return the part of a family that a configuration names; `otherwise` where that leaves it open."""
        group = config.get(registry.family) or ConfigDict({"kind": None})  # there was no such family when it was made
        name = registry.check(group.kind or otherwise).name
        return cls(registry, name, group[name].to_dict() if name in group else {})

    @property
    def part(self) -> Part:
        """Return what is registered by its name."""
        return self.registry[self.name]

    @property
    def facts(self) -> Any:
        """Return what its registry's users know of it."""
        return self.part.facts

    def make(self, **given: Any) -> Any:
        """Call it with its entries, and with those of the given arguments that it names (`Registry.make`)."""
        return self.registry.make(self.name, self.entries, **given)


OWN: dict[str, Method] = {}
"""Methods that were registered (`register_method`), by name."""

_modules: dict[str, dict[str, Any]] = {}
"""The globals of the module that registered each."""


_NO_SERVER, _OWN_DATA, _LOCAL = ("Decentralised",), ("Heterogeneous data",), ("Local updates",)
_STALENESS, _CLOCK, _ONE_LENGTH = ("Limits on staleness",), ("Time-limited rounds",), ("Normalised updates",)
_BUFFER = {"gradients_per_update": 4}  # the authors' buffers are a few messages, however many workers there are
_ISLAMOV, _SADIEV, _JIN = "Islamov et al. 2024", "Sadiev et al. 2026", "Jin et al. 2016"


def _local(name: str, protocol: str, rule: str, title: str, source: str, **entries: object) -> Method:
    """Return a method whose workers make eight steps for each message, unless the entries say otherwise."""
    local, steps = {"steps": 8, **entries}, Knob("local.steps", 2, 32, whole=True)
    own = _BUFFER if protocol == "softsync" else {}
    return Method(name, protocol, rule, title, source, _LOCAL, own, local=local, tunes=steps)


PRESETS = (
    Method("pull_gossip", "gossip", "nag_asgd", "Pull gossip", f"{_JIN}, Alg. 3", _NO_SERVER, {"kind": "pull"}),
    Method("push_gossip", "gossip", "nag_asgd", "Push gossip", f"{_JIN}, Alg. 4", _NO_SERVER, {"kind": "push"}),
    Method("osgp", "sgp", "nag_asgd", "Overlap stochastic gradient push", "Assran et al. 2019", _NO_SERVER,
           {"overlap": True}),
    Method("delay_compensated_adaptive", "asynchronous", "delay_compensated", "DC-ASGD-a", "Zheng et al. 2017",
           ("Staleness corrections (plain SGD)",), rule_entries={"adaptive": True, "variance_control": 2.0}),
    Method("dc_s3gd", "delayed_rounds", "dc_s3gd", "DC-S3GD", "Rigazzi 2019", ("Staleness corrections (plain SGD)",)),
    Method("softsync", "softsync", "fedbuff", "Softsync", "Zhang et al. 2015b", _STALENESS,
           rule_entries={"exponent": 1.0}),
    Method("ca2fl", "softsync", "ca2fl", "CA2FL", "Wang et al. 2024", _OWN_DATA, _BUFFER),
    Method("random_assignment", "assignment", "asgd", "Random assignment", _ISLAMOV, _STALENESS, {"kind": "random"}),
    Method("shuffled_assignment", "assignment", "asgd", "Shuffled assignment", _ISLAMOV, _STALENESS,
           {"kind": "shuffled"}),
    Method("dropcompute_count", "dropcompute", "nag_asgd", "DropCompute, by count", "Giladi et al. 2023", _CLOCK),
    Method("ringmaster_normalised", "ringmaster", "normalised_momentum", "Ringmaster, normalised momentum", _SADIEV,
           _ONE_LENGTH),
    Method("ringmaster_muon", "ringmaster", "muon", "Ringmaster-Muon", _SADIEV, _ONE_LENGTH),
    Method("ringmaster_muon_code", "ringmaster", "muon", "Ringmaster-Muon, as its authors' code", _SADIEV, _ONE_LENGTH,
           rule_entries={"form": "authors"}),
    _local("local_sgd", "synchronous", "asgd", "Local SGD", "McMahan et al. 2017; Stich 2019", momentum=0.9),
    _local("diloco", "synchronous", "nag_asgd", "DiLoCo", "Douillard et al. 2023",
           optimizer="adamw", keep_state=True, follow_rate=True, server_learning_rate=0.7),
    _local("streaming_diloco", "synchronous", "streaming_nesterov", "Streaming DiLoCo", "Douillard et al. 2025",
           steps=2, optimizer="adamw", keep_state=True, follow_rate=True, server_learning_rate=0.7,
           fragments=4, overlap=1, mix=0.5),
    _local("async_diloco", "asynchronous", "delayed_nesterov", "Async DiLoCo (DN + DyLU)", "Liu et al. 2024",
           optimizer="adamw", keep_state=True, follow_rate=True, by_speed=True, least_steps=2,
           server_learning_rate=0.7),
    _local("fedbuff", "softsync", "fedbuff", "FedBuff", "Nguyen et al. 2022", momentum=0.9),
    # Its rate is divided by the largest staleness of an update: over ten it is 0.001, Adam's usual one.
    _local("fadas", "softsync", "fadas", "FADAS", "Wang et al. 2024", momentum=0.9, server_learning_rate=0.01),
    _local("decoupled_diloco", "quorum", "token_weighted", "Decoupled DiLoCo", "Decoupled DiLoCo 2026",
           optimizer="adamw", keep_state=True, follow_rate=True, by_speed=True, server_learning_rate=0.7),
)  # fmt: skip
"""Methods of this package that are more than a part with its usual partner."""


def methods() -> dict[str, Method]:
    """Return every method: each protocol with its usual rule, each rule where nobody waits, the presets, custom ones.

    Example:
      >>> from sgdlab.runs.methods import methods
      >>> methods()["timeout"].rule, methods()["gap_aware"].protocol, methods()["push_gossip"].entries
      ('linear_scaling', 'asynchronous', {'kind': 'push'})
    """
    return dict(_known(tuple(PROTOCOLS.values()), tuple(RULES.values()), tuple(OWN.values())))


@functools.lru_cache(maxsize=1)
def _known(protocols: Sequence[Part], rules: Sequence[Part], own: Sequence[Method]) -> dict[str, Method]:
    """Return the methods of the parts that are registered, which are made once and not at every look-up."""
    usual = [(part, part.name, part.facts.rule) for part in protocols if part.facts.rule is not None]
    usual += [(part, "asynchronous", part.name) for part in rules if part.facts.method]
    of_parts = [
        Method(
            *(part.name, protocol, rule, part.title, part.source),
            families=OTHERS if part.facts.families is None else tuple(part.facts.families),
            local=getattr(part.facts, "local", None) or {},
        )
        for part, protocol, rule in usual
    ]
    return {method.name: method for method in (*of_parts, *PRESETS, *own)}


def baselines() -> dict[str, str]:
    """Return the single workers that methods are compared with: name -> title."""
    known = methods()
    names = dict.fromkeys(method.baseline for method in known.values() if method.rule in RULES)
    return {name: f"Single worker ({known[name].title})" for name in names}


def check(name: str, flag: str = "--config.method") -> Method:
    """Return the method of a name, which a flag has given.

    Raises:
      UsageError: where there is none, or its protocol was registered with a rule that there is not: that is known only
        now, since a rule may register itself after the protocol.
    """
    known = methods()
    if name not in known:
        must = arguments.must_be_one_of(name, known, "sgdlab train --help")
        raise UsageError(f"{flag}={name} {must}{why_none(name)}")
    method = known[name]
    if method.rule not in RULES:
        where = PROTOCOLS[method.protocol].where
        raise UsageError(
            f"{flag}={name} is registered ({where}) with rule={method.rule!r}, which {RULES.right(method.rule)}"
        )
    return method


def why_none(name: str) -> str:
    """Return why a name that is a protocol's or a rule's is no method, for messages; "" of others."""
    if name in PROTOCOLS:
        return f"; {name} is a protocol that names no `rule=` to go with: set --config.protocol.kind={name}"
    if name in RULES:
        return f"; {name} is a rule and no method by itself: set --config.rule.kind={name}"
    return ""


def chosen(config: ConfigDict) -> tuple[Method, UsedPart, UsedPart, int]:
    """Return what a configuration names: the method, its protocol, its rule, and its rank among all methods.

    A configuration that names a protocol or a rule of its own has a method made for the purpose.

    Raises:
      UsageError: where one is not known, the rule is not one for the protocol, or their entries contradict what the
        method's name means.
    """
    known, method = methods(), check(config.method)
    protocol = UsedPart.of(config, PROTOCOLS, method.protocol)
    rule = UsedPart.of(config, RULES, method.rule)
    only = rule.facts.protocols  # the only ones whose schedules mean something to the rule
    if only is not None and protocol.name not in only:
        raise UsageError(
            f"--config.rule.kind={rule.name} must go with --config.protocol.kind={' or '.join(only)}: it follows the "
            f"rounds of that protocol, which {protocol.name} does not have"
        )
    meant = method.entries if protocol.name == method.protocol else {}
    meant_of_rule = method.rule_entries if rule.name == method.rule else {}
    protocol, rule = _with_meant(method, protocol, meant), _with_meant(method, rule, meant_of_rule)
    if (protocol.name, rule.name) != (method.protocol, method.rule):
        method = dataclasses.replace(
            method,
            name=f"{protocol.name}+{rule.name}",
            protocol=protocol.name,
            rule=rule.name,
            title=f"{rule.part.title} + {protocol.part.title}",
            source="; ".join(part.source for part in (rule.part, protocol.part) if part.source),
            families=(f"{protocol.part.title}, other rules",),
            entries=meant,
            rule_entries=meant_of_rule,
        )
    rank = list(known).index(method.name) if method.name in known else len(known) + list(RULES).index(rule.name)
    return method, protocol, rule, rank


def _with_meant(method: Method, used: UsedPart, meant: Mapping[str, Any]) -> UsedPart:
    """Return a method's part with the entries that the method's name means, which nothing may contradict."""
    # An entry that the part leaves open, and a configuration sets, the method only suggests.
    suggested = {name for name in meant if used.part.defaults[name] is None and used.entries.get(name) is not None}
    meant = {name: value for name, value in meant.items() if name not in suggested}
    for name, value in meant.items():
        if name in used.entries and used.entries[name] not in (value, used.part.defaults[name]):
            raise UsageError(
                f"--config.{used.registry.family}.{used.name}.{name}={used.entries[name]} must be left out: "
                f"{method.name} is {used.name} with {name}={value}"
            )
    return dataclasses.replace(used, entries={**used.entries, **meant})


def register_method(
    name: str,
    *,
    protocol: str,
    rule: str,
    title: str,
    source: str = "",
    families: tuple[str, ...] = OTHERS,
    entries: Mapping[str, Any] | None = None,
    rule_entries: Mapping[str, Any] | None = None,
    local: Mapping[str, Any] | None = None,
    tunes: Knob | None = None,
) -> Method:
    """Make a method of a protocol and a rule: a name for `--methods`, and a row of its own in tables and pictures.

    A protocol that names its usual rule when it is registered, and a rule, are methods already, under their own names.

    Args:
      name: what configurations and `--methods` call it.
      protocol: one of `sgdlab.registry.PROTOCOLS`.
      rule: one of `sgdlab.registry.RULES`.
      title: what tables and pictures call it.
      source: where it is described.
      families: titles of the panels of pictures in which it is drawn.
      entries: of the protocol, where they differ from its defaults: what the name means.
      rule_entries: of the rule, likewise.
      local: of `config.local`, such as `{"steps": 8}`, what it means where the configuration leaves them open.
      tunes: the entry that is tuned, by its whole name, besides the learning rate and the momentum. None: what its
        protocol or its rule says.

    Returns:
      The `Method`.

    Raises:
      ValueError: where the name or the title is taken, or a protocol, a rule or an entry is not known.

    Example:
      >>> from sgdlab.runs.methods import methods
      >>> _ = register_method("tight", protocol="bounded_staleness", rule="asgd", title="Tight", entries={"bound": 1})
      >>> methods()["tight"].entries
      {'bound': 1}
      >>> register_method("looser", protocol="bounded_staleness", rule="asgd", title="Looser", entries={"bond": 9})
      Traceback (most recent call last):
      ...
      ValueError: entries name 'bond', which protocol bounded_staleness does not have; did you mean 'bound'?
      >>> forget_method("tight")
    """
    if not name.isidentifier():
        raise ValueError(f"name={name!r} must be a name such as 'tight_bound', of letters, digits and underscores")
    frame: Any = inspect.currentframe()
    caller = frame.f_back.f_globals
    known = _modules.get(name)
    # The same cell of a notebook, or the same module, may be run again.
    same = known is not None and known["__name__"] == caller["__name__"]
    again = same and (known is not caller or known["__name__"] == "__main__")
    if not again and name in methods():
        raise ValueError(f"name={name!r} must be another: there is a method of that name")
    for other in methods().values():
        if other.title == title and other.name != name:
            raise ValueError(f"title={title!r} must be another: the method {other.name} has it")
    entries, rule_entries, local = entries or {}, rule_entries or {}, local or {}
    for family, part, registry, own, named in (
        ("protocol", protocol, PROTOCOLS, entries, "entries"),
        ("rule", rule, RULES, rule_entries, "rule_entries"),
    ):
        if part not in registry:
            raise ValueError(f"{family}={part!r} {registry.right(part)}")
        _check_entries(named, own, registry[part].entries(), f"{family} {part}")
    _check_entries("local", local, dict.fromkeys(LOCAL_ENTRIES), "config.local")
    made = Method(name, protocol, rule, title, source, tuple(families), entries, local, rule_entries, tunes)
    OWN[name], _modules[name] = made, caller
    return made


def forget_method(name: str) -> None:
    """Remove a method that `register_method` made; raises a `ValueError` where there is none."""
    if name not in OWN:
        raise ValueError(f"name={name!r} must be one of {', '.join(OWN) or 'none: no method is registered'}")
    del OWN[name], _modules[name]


def modules() -> dict[str, str | None]:
    """Return the modules that registered methods: name -> file; None where there is none, as of a notebook."""
    return {module["__name__"]: module.get("__file__") for module in _modules.values()}


def _check_entries(argument: str, given: Mapping[str, Any], known: Any, of: str) -> None:
    for name, value in given.items():
        if name not in known:
            close = difflib.get_close_matches(name, list(known), n=1)
            cure = f"did you mean {close[0]!r}?" if close else f"it has {', '.join(known) or 'none'}"
            raise ValueError(f"{argument} name {name!r}, which {of} does not have; {cure}")
        try:
            known[name] = value
        except TypeError as error:
            raise ValueError(f"{argument}={{{name!r}: {value!r}}} must be of another kind: {error}") from error
