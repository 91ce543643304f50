"""The methods by name: whom each one waits for, and what it does with a gradient. Any protocol goes with any rule."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from ml_collections import ConfigDict

from sgdlab import protocols, rules  # noqa: F401 (the parts register themselves)
from sgdlab.errors import UsageError
from sgdlab.registry import PROTOCOLS, RULES, Part

OTHERS = ("Others",)
"""Where methods are drawn whose parts name no panel of their own."""


@dataclasses.dataclass(frozen=True)
class Method:
    """A protocol and a rule that are compared under one name.

    Attributes:
      name: what configurations call it.
      protocol: one of `sgdlab.registry.PROTOCOLS`.
      rule: one of `sgdlab.registry.RULES`.
      title: the field's name for it.
      source: where it is described.
      families: titles of the panels in which it is drawn; the first is its own.
      entries: of the protocol, where they differ from its defaults: what the name means.
    """

    name: str
    protocol: str
    rule: str
    title: str
    source: str = ""
    families: tuple[str, ...] = OTHERS
    entries: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def baseline(self) -> str:
        """The method that, with a single worker, is the serial run to compare with."""
        return RULES[self.rule].facts.get("baseline", "nag_asgd")


PRESETS = [
    Method(
        f"{kind}_gossip", "gossip", "nag_asgd", title, f"Jin et al. 2016, {algorithm}", ("No server",), {"kind": kind}
    )
    for kind, title, algorithm in (("pull", "Pull gossip", "Alg. 3"), ("push", "Push gossip", "Alg. 4"))
]
"""Methods that are more than a part with its usual partner; one's own can be added."""

REPRESENTATIVE = (
    "synchronous",
    "backup_workers",
    "cutoff",
    "partial",
    "rennala",
    "softsync",
    "bounded_staleness",
    "ringmaster",
    "asgd",
    "nag_asgd",
    "staleness_aware",
    "gap_aware",
    "dana_gap_aware",
    "adam_gap_aware",
    "pull_gossip",
    "elastic_averaging",
)
"""Methods that stand for all families: what a first comparison shows."""


def methods() -> dict[str, Method]:
    """Every method: each protocol with its usual rule, each rule where nobody waits, and the presets.

    Example:
      >>> from sgdlab.jobs.methods import methods
      >>> methods()["timeout"].rule, methods()["gap_aware"].protocol, methods()["push_gossip"].entries
      ('linear_scaling', 'asynchronous', {'kind': 'push'})
    """
    found = [
        _of_part(part, part.name, part.facts["rule"])
        for part in PROTOCOLS.values()
        if part.facts.get("rule") is not None
    ]
    found += [_of_part(part, "asynchronous", part.name) for part in RULES.values() if part.facts.get("method", True)]
    return {method.name: method for method in (*found, *PRESETS)}


def _of_part(part: Part, protocol: str, rule: str) -> Method:
    return Method(part.name, protocol, rule, part.title, part.source, tuple(part.facts.get("families", OTHERS)))


def baselines() -> dict[str, str]:
    """The single workers that methods are compared with: name -> title."""
    known = methods()
    names = dict.fromkeys(method.baseline for method in known.values())
    return {name: f"Single worker ({known[name].title})" for name in names}


@dataclasses.dataclass(frozen=True)
class Choice:
    """What a configuration has chosen.

    Attributes:
      method: its method; one made for the purpose where it names a protocol or a rule of its own.
      protocol: the part.
      rule: the part.
      entries: of the protocol.
      rank: of the method among all.
    """

    method: Method
    protocol: Part
    rule: Part
    entries: Mapping[str, Any]
    rank: int


def chosen(config: ConfigDict) -> Choice:
    """The protocol and the rule that a configuration names: those of its method, or its own kinds of them.

    Raises:
      UsageError: where one is not known, or the protocol's entries contradict what the method's name means.

    Example:
      >>> from configs import digits
      >>> config = digits.get_config()
      >>> config.protocol.kind, config.rule.kind = "bounded_staleness", "staleness_aware"
      >>> chosen(config).method.title
      'Staleness-Aware + Bounded staleness'
    """
    known = methods()
    if config.method not in known:
        raise UsageError(f"--config.method={config.method} must be one of {', '.join(known)}")
    method = known[config.method]
    protocol = PROTOCOLS.check(config.protocol.kind or method.protocol)
    rule = RULES.check(config.rule.kind or method.rule)
    entries = dict(config.protocol[protocol.name]) if protocol.name in config.protocol else {}
    if protocol.name == method.protocol:
        entries |= _meant(method, protocol, entries)
    if (protocol.name, rule.name) != (method.protocol, method.rule):
        method = Method(
            f"{protocol.name}+{rule.name}",
            protocol.name,
            rule.name,
            f"{rule.title} + {protocol.title}",
            "; ".join(part.source for part in (rule, protocol) if part.source),
            (f"{protocol.title}, other rules",),
            method.entries if protocol.name == method.protocol else {},
        )
    rank = list(known).index(method.name) if method.name in known else len(known) + list(RULES).index(rule.name)
    return Choice(method, protocol, rule, entries, rank)


def _meant(method: Method, protocol: Part, entries: Mapping[str, Any]) -> Mapping[str, Any]:
    for name, value in method.entries.items():
        if name in entries and entries[name] not in (value, protocol.defaults[name]):
            raise UsageError(
                f"--config.protocol.{protocol.name}.{name}={entries[name]} must be left out: {method.name} is "
                f"{protocol.name} with {name}={value}"
            )
    return method.entries
