"""The methods by name: whom each one waits for, and what it does with a gradient. Any protocol goes with any rule."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from ml_collections import ConfigDict

from sgdlab import arguments, policies, protocols, rules  # noqa: F401 (the parts register themselves)
from sgdlab.errors import UsageError
from sgdlab.jobs.method import OWN, Method, of_parts
from sgdlab.jobs.presets import PRESETS
from sgdlab.registry import PROTOCOLS, RULES, Part

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
    """Every method: each protocol with its usual rule, each rule where nobody waits, the presets, and one's own.

    Example:
      >>> from sgdlab.jobs.methods import methods
      >>> methods()["timeout"].rule, methods()["gap_aware"].protocol, methods()["push_gossip"].entries
      ('linear_scaling', 'asynchronous', {'kind': 'push'})
    """
    return {method.name: method for method in (*of_parts().values(), *PRESETS, *OWN.values())}


def baselines() -> dict[str, str]:
    """The single workers that methods are compared with: name -> title."""
    known = methods()
    names = dict.fromkeys(method.baseline for method in known.values())
    return {name: f"Single worker ({known[name].title})" for name in names}


def check(name: str, flag: str = "--config.method") -> Method:
    """Returns the method of that name.

    Args:
      name: of the method.
      flag: by which it is given.

    Raises:
      UsageError: where there is none.
    """
    known = methods()
    if name not in known:
        must = arguments.must_be_one_of(name, known, "sgdlab train --help")
        raise UsageError(f"{flag}={name} {must}{why_none(name)}")
    return known[name]


@dataclasses.dataclass(frozen=True)
class Choice:
    """What a configuration has chosen.

    Attributes:
      method: its method; one made for the purpose where it names a protocol or a rule of its own.
      protocol: the part.
      rule: the part.
      entries: of the protocol.
      rule_entries: of the rule.
      rank: of the method among all.
    """

    method: Method
    protocol: Part
    rule: Part
    entries: Mapping[str, Any]
    rule_entries: Mapping[str, Any]
    rank: int


def chosen(config: ConfigDict) -> Choice:
    """The protocol and the rule that a configuration names: those of its method, or its own kinds of them.

    Raises:
      UsageError: where one is not known, the rule is not one for the protocol, or the protocol's entries contradict
        what the method's name means.

    Example:
      >>> from configs import digits
      >>> config = digits.get_config()
      >>> config.protocol.kind, config.rule.kind = "bounded_staleness", "staleness_aware"
      >>> chosen(config).method.title
      'Staleness-Aware + Bounded staleness'
    """
    known, method = methods(), check(config.method)
    protocol = PROTOCOLS.check(config.protocol.kind or method.protocol)
    rule = RULES.check(config.rule.kind or method.rule)
    _check_pair(protocol, rule)
    entries = dict(config.protocol[protocol.name]) if protocol.name in config.protocol else {}
    if protocol.name == method.protocol:
        entries |= _meant(method, "protocol", protocol, method.entries, entries)
    of_rule = dict(config.rule[rule.name]) if rule.name in config.rule else {}
    if rule.name == method.rule:
        of_rule |= _meant(method, "rule", rule, method.rule_entries, of_rule)
    if (protocol.name, rule.name) != (method.protocol, method.rule):
        method = Method(
            f"{protocol.name}+{rule.name}",
            protocol.name,
            rule.name,
            f"{rule.title} + {protocol.title}",
            "; ".join(part.source for part in (rule, protocol) if part.source),
            (f"{protocol.title}, other rules",),
            method.entries if protocol.name == method.protocol else {},
            method.local,
            method.rule_entries if rule.name == method.rule else {},
        )
    rank = list(known).index(method.name) if method.name in known else len(known) + list(RULES).index(rule.name)
    return Choice(method, protocol, rule, entries, of_rule, rank)


def _check_pair(protocol: Part, rule: Part) -> None:
    only = rule.facts.get("protocols")  # the only ones whose schedules mean something to the rule
    if only is not None and protocol.name not in only:
        raise UsageError(
            f"--config.rule.kind={rule.name} must go with --config.protocol.kind={' or '.join(only)}: it follows the "
            f"rounds of that protocol, which {protocol.name} does not have"
        )


def _meant(
    method: Method, family: str, part: Part, meant: Mapping[str, Any], entries: Mapping[str, Any]
) -> Mapping[str, Any]:
    for name, value in meant.items():
        if name in entries and entries[name] not in (value, part.defaults[name]):
            raise UsageError(
                f"--config.{family}.{part.name}.{name}={entries[name]} must be left out: {method.name} is "
                f"{part.name} with {name}={value}"
            )
    return meant


def why_none(name: str) -> str:
    """Why a name that is a protocol's or a rule's is no method, for messages; "" of others.

    Example:
      >>> why_none("timout")
      ''
    """
    if name in PROTOCOLS:
        return f"; {name} is a protocol that names no `rule=` to go with: set --config.protocol.kind={name}"
    if name in RULES:
        return f"; {name} is a rule and no method by itself: set --config.rule.kind={name}"
    return ""
