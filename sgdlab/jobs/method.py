"""`Method`, a protocol and a rule under one name."""

import dataclasses
from collections.abc import Mapping
from typing import Any

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
      local: of `config.local`, what it means where the configuration leaves them open.
      rule_entries: of the rule, as `entries`.
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

    @property
    def baseline(self) -> str:
        """The method that, with a single worker, is the serial run to compare with."""
        return RULES[self.rule].facts.get("baseline", "nag_asgd")


OWN: dict[str, Method] = {}
"""Methods that were registered (`sgdlab.jobs.register_method`), by name."""


def of_parts() -> dict[str, Method]:
    """The methods that parts are by themselves: each protocol with its usual rule, each rule where nobody waits."""
    found = [_of_part(part, part.name, part.facts.rule) for part in PROTOCOLS.values() if part.facts.rule is not None]
    found += [_of_part(part, "asynchronous", part.name) for part in RULES.values() if part.facts.get("method", True)]
    return {method.name: method for method in found}


def _of_part(part: Part, protocol: str, rule: str) -> Method:
    families, local = tuple(part.facts.get("families", OTHERS)), part.facts.get("local", {})
    return Method(part.name, protocol, rule, part.title, part.source, families, local=local)
