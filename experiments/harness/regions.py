"""Evidence where a verdict depends on a number of ours: over a region of it, or under a condition."""

from collections.abc import Iterable

from experiments.harness.evidence import Evidence, combined, known


def throughout(statements: Iterable[Evidence]) -> Evidence:
    """Return the evidence that a statement holds in a whole region; it fails only where it holds nowhere in it.

    For numbers that the paper does not print: where the verdict depends on them, it holds in part (`in_part`).

    Args:
      statements: its evidence at several places of the region.

    Example:
      >>> from experiments.harness.evidence import known
      >>> yes, no = known(True), known(False)
      >>> throughout([yes, yes]).holds, throughout([no, no]).holds, throughout([yes, no]).holds
      (True, False, None)
      >>> throughout([yes, no]).in_part
      True
    """
    found = list(statements)
    return combined("throughout", 0, found) if found else known(None)


def given(condition: Evidence, statement: Evidence) -> Evidence:
    """Return the evidence for a statement where a condition holds; without it, neither the statement nor its opposite.

    Example:
      >>> from experiments.harness.evidence import known
      >>> yes, no = known(True), known(False)
      >>> given(yes, yes).holds, given(yes, no).holds, given(no, yes).holds, given(no, no).holds
      (True, False, None, None)
    """
    return combined("given", 0, [condition, statement])


def for_only(statement: Evidence) -> Evidence:
    """Return what speaks for a statement, and nothing against it, as where a number of ours is not varied.

    Example:
      >>> from experiments.harness.evidence import known
      >>> for_only(known(True)).holds, for_only(known(False)).holds
      (True, None)
    """
    return given(statement, statement)
