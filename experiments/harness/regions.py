"""Evidence where a verdict depends on a number of ours: over a region of it, or under a condition."""

from collections.abc import Iterable, Iterator

from experiments.harness.evidence import Evidence, all_of, any_of


def throughout(statements: Iterable[Evidence]) -> Evidence:
    """Return the evidence that a statement holds in a whole region; it fails only where it holds nowhere in it.

    For numbers that the paper does not print: where the verdict depends on them, there is none.

    Args:
      statements: its evidence at several places of the region.

    Example:
      >>> from experiments.harness.evidence import known
      >>> yes, no = known(True), known(False)
      >>> throughout([yes, yes]).holds, throughout([no, no]).holds, throughout([yes, no]).holds
      (True, False, None)
    """
    found = list(statements)
    return _of(all_of(found), any_of(found), found)


def given(condition: Evidence, statement: Evidence) -> Evidence:
    """Return the evidence for a statement where a condition holds; without it, neither the statement nor its opposite.

    Example:
      >>> from experiments.harness.evidence import known
      >>> yes, no = known(True), known(False)
      >>> given(yes, yes).holds, given(yes, no).holds, given(no, yes).holds, given(no, no).holds
      (True, False, None, None)
    """
    return _of(all_of([condition, statement]), all_of([condition, statement.opposite]).opposite, [condition, statement])


def for_only(statement: Evidence) -> Evidence:
    """Return what speaks for a statement, and nothing against it, as where a number of ours is not varied.

    Example:
      >>> from experiments.harness.evidence import known
      >>> for_only(known(True)).holds, for_only(known(False)).holds
      (True, None)
    """
    return given(statement, statement)


def _of(holds: Evidence, fails: Evidence, parts: list[Evidence]) -> Evidence:
    """Return the evidence with two sides of two statements; where neither is likely, more runs decide nothing."""
    tests = [test for part in parts for test in _tests(part)]
    p_for, p_against = holds.p_for, fails.p_against
    if min(p_for, p_against) > 0.5:
        p_for = p_against = 1.0
    return Evidence(
        p_for,
        p_against,
        exact=bool(tests) and all(test.exact for test in tests),
        about="; ".join(test.about for test in tests if test.about),
        thresholds=tuple(threshold for test in tests for threshold in test.thresholds),
    )


def _tests(evidence: Evidence) -> Iterator[Evidence]:
    """Yield the single tests that evidence is made of."""
    if not evidence.parts:
        yield evidence
    for part in evidence.parts:
        yield from _tests(part)
