"""Sentences of a paper with verdicts, which are computed from evidence, and from the premises of the sentence."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from experiments.harness import evidence
from experiments.harness.evidence import Evidence
from experiments.harness.thresholds import Threshold, chosen
from sgdlab import arguments

HOLDS, FAILS, IN_PART = "holds", "fails", "holds in part"
INCONCLUSIVE = "inconclusive"
OUTSIDE = "not in our regime"
VERDICTS = (HOLDS, IN_PART, FAILS, INCONCLUSIVE, OUTSIDE)


ENOUGH = Threshold(0.5, "half of what a claim is about is the same order of magnitude", "2026-11-26", seen=True)


@dataclasses.dataclass(frozen=True)
class Premise:
    """A condition of a claim that is not what was run, or that is.

    Attributes:
      says: what the claim is about, such as "1,757 updates a worker".
      ours: what was run, such as "18 updates a worker".
      met: whether that is the same regime; it is computed from both.
      thresholds: what it was computed by, where that was chosen.
    """

    says: str
    ours: str
    met: bool
    thresholds: tuple[Threshold, ...] = ()

    def __post_init__(self):
        object.__setattr__(self, "met", bool(self.met))

    def facts(self) -> dict[str, Any]:
        """Return it as JSON (docs/claims.md)."""
        found = {"says": self.says, "ours": self.ours, "met": self.met}
        return found | ({"thresholds": [each.facts() for each in self.thresholds]} if self.thresholds else {})


def enough(quantity: str, ours: float, paper: float, *, share: float = ENOUGH) -> Premise:
    """Return the premise that a quantity is large enough: at least a share of the paper's.

    Raises:
      ValueError: where a number is not finite.

    Example:
      >>> premise = enough("updates a worker", 18, 3518)
      >>> premise.says, premise.ours, premise.met
      ('3,518 updates a worker', '18 updates a worker', False)
    """
    for name, value in (("ours", ours), ("paper", paper)):
        arguments.real(name, value)
    says, here = (f"{value:,.0f}" if value >= 1000 else f"{value:.4g}" for value in (paper, ours))
    return Premise(f"{says} {quantity}", f"{here} {quantity}", ours >= share * paper, chosen(share))


@dataclasses.dataclass(frozen=True)
class Claim:
    """A sentence of a paper, checked.

    Attributes:
      says: the sentence, or what it comes to.
      where: in the paper, such as "section 3.1".
      ours: what was measured here, in a few words with numbers.
      holds: the evidence for what was measured; True, False or None for an identity.
      paper: what the paper measured, in a few words with numbers; "" where it gives none.
      on_paper: whether it holds for the paper's own printed numbers; None where these do not say.
      because: why it fails, or why it cannot be said; what of it fails.
      identity: it holds by construction, by arithmetic or by a proof: it is checked, and no finding.
      premises: what it presupposes; where one is not met, the runs say nothing of the claim.
      cause: why it fails, where others fail for the same: all of one cause are counted once.

    Raises:
      ValueError: where part of it was not measured, and it is no identity.

    Example:
      >>> faster = evidence.above([1.8, 1.9, 2.0], 1.0)
      >>> Claim("48 workers are faster", "section 2", ours="1.9 times", holds=faster, paper="2 times").verdict
      'holds'
      >>> free = Premise("a message takes time", "it takes none", met=False)
      >>> Claim("48 workers are faster", "section 2", ours="1.9 times", holds=faster, premises=[free]).verdict
      'not in our regime'
    """

    says: str
    where: str
    ours: str
    holds: Evidence | bool | None
    paper: str = ""
    on_paper: Evidence | bool | None = None
    because: str = ""
    identity: bool = False
    premises: Sequence[Premise] = ()
    cause: str = ""

    def __post_init__(self):
        for name in ("holds", "on_paper"):
            value = getattr(self, name)
            object.__setattr__(self, name, value if isinstance(value, Evidence) else evidence.known(value))
        object.__setattr__(self, "premises", tuple(self.premises))
        if not self.identity and any(test.exact for test in self.holds.tests):
            raise ValueError(
                f"evidence of {self.says!r} must all be measured (`above`, `all_of` of such), or the claim an identity "
                "(identity=True): arithmetic is no finding"
            )

    @property
    def verdict(self) -> str:
        """In words."""
        outside = not self.identity and not all(premise.met for premise in self.premises)
        return OUTSIDE if outside else verdict(self.holds)

    @property
    def thresholds(self) -> tuple[Threshold, ...]:
        """The thresholds of ours that it rests on, each once."""
        of_tests = (threshold for test in (self.holds, *self.holds.tests) for threshold in test.thresholds)
        of_premises = (threshold for premise in self.premises for threshold in premise.thresholds)
        return tuple({(each.origin, each.because): each for each in (*of_tests, *of_premises)}.values())

    @property
    def of_paper(self) -> str:
        """The paper's own numbers, and whether the sentence holds for them."""
        holds = self.on_paper.holds
        own = "" if holds is None else f"{verdict(self.on_paper)} on its own numbers"
        return "; ".join(filter(None, [self.paper, own]))

    @property
    def mark(self) -> str:
        """The verdict, or of an identity a tick or a cross."""
        return {True: "✓", False: "✗", None: "?"}[self.holds.holds] if self.identity else self.verdict

    def facts(self) -> dict[str, Any]:
        """Return it as JSON (docs/claims.md)."""
        return {
            "says": self.says,
            "where": self.where,
            "ours": self.ours,
            "verdict": self.verdict,
            "evidence": self.holds.facts(),
            "paper": self.paper,
            "on_paper": self.on_paper.holds,
            "because": self.because,
            "identity": self.identity,
            "premises": [premise.facts() for premise in self.premises],
            "cause": self.cause,
        }


def of_facts(facts: Mapping[str, Any]) -> Claim:
    """Return a claim of its JSON.

    Args:
      facts: as docs/claims.schema.json has it.

    Raises:
      ValueError: where p-values are impossible, or arithmetic is given as a finding.
    """
    premises = [
        Premise(each["says"], each["ours"], each["met"], tuple(map(Threshold.of_facts, each.get("thresholds", ()))))
        for each in facts.get("premises", ())
    ]
    others = {name: facts[name] for name in ("paper", "on_paper", "because", "identity", "cause") if name in facts}
    holds = evidence.of_facts(facts["evidence"])
    return Claim(facts["says"], facts["where"], facts["ours"], holds, premises=premises, **others)


def verdict(found: Evidence) -> str:
    """Return the verdict of evidence in words.

    Example:
      >>> [verdict(evidence.known(holds)) for holds in (True, False, None)]
      ['holds', 'fails', 'inconclusive']
    """
    if found.holds is None:
        return IN_PART if found.in_part else INCONCLUSIVE
    return HOLDS if found.holds else FAILS
