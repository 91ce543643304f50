"""Two tiers of tests: marks choose which of a test's parameters `make test` runs; `make test-all` runs every one.

A product of parameters says much more than its price allows at every change. Of a test that is marked

* `covering(strength=1)`, tier 1 runs so few items that each value of each parameter (each pair of values of two
  parameters, with strength 2) is in one of them;
* `sample(number)`, tier 1 runs that number of items, evenly chosen;
* `representatives(*names)`, tier 1 runs the items with one of these names among the parts of their ids;
* `full`, tier 1 runs nothing.

All other items are marked `full`, which pyproject.toml leaves out. The choice depends on the names of the parameters
alone: it is the same in every process.

Tests that draw their own cases draw a fifth of them in tier 1, and all where SGDLAB_TESTS is "all": see `examples`.
"""

import itertools
import os
import re

import hypothesis
import pytest


def examples(number):
    """Return how many cases a test draws that draws this number where all is tested."""
    return number if os.environ.get("SGDLAB_TESTS") == "all" else max(number // 5, 5)


# Where a change is decided upon, the cases are the same each time; elsewhere new ones are drawn.
hypothesis.settings.register_profile("sgdlab", max_examples=examples(100), derandomize="CI" in os.environ)
hypothesis.settings.load_profile("sgdlab")


@pytest.hookimpl(wrapper=True)
def pytest_pycollect_makeitem():
    """Marks as `full` what tier 1 does not run: of all items of a test, before pytest leaves out any of them."""
    items = yield
    if isinstance(items, list) and items:
        for item, kept in zip(items, _kept(items), strict=True):
            if not kept:
                item.add_marker(pytest.mark.full)
    return items


def _kept(items):
    """Return whether tier 1 runs each of the items of one test."""
    kept = [True] * len(items)
    for mark in items[0].iter_markers():
        choose = {"covering": covering, "sample": sample, "representatives": representatives}.get(mark.name)
        if choose is not None:
            chosen = choose(items, *mark.args, **mark.kwargs)
            kept = [one and other for one, other in zip(kept, chosen, strict=True)]
    return kept


def covering(items, strength=1):
    """Keep an item if it has a value, or a pair of values, that no item kept before has; the richest come first.

    Args:
      items: of one test.
      strength: how many parameters are covered together.
    """
    values = [sorted((name, id(value)) for name, value in item.callspec.params.items()) for item in items]
    has = [set(itertools.combinations(found, strength)) for found in values]
    open_pairs, kept = set().union(*has), [False] * len(items)
    while open_pairs:
        best = max(range(len(items)), key=lambda index: len(has[index] & open_pairs))
        kept[best] = True
        open_pairs -= has[best]
    return kept


def sample(items, number):
    """Keep evenly chosen items, the first among them."""
    chosen = {index * len(items) // number for index in range(number)}
    return [index in chosen for index in range(len(items))]


def representatives(items, *names):
    """Keep the items whose ids name one of them."""
    parts = [set(re.split(r"[\[\]-]", item.nodeid.partition("[")[2])) for item in items]
    missing = [name for name in names if not any(name in part for part in parts)]
    if missing:
        raise pytest.UsageError(f"{items[0].nodeid}: no parameter is called {missing[0]!r}")
    return [bool(part & set(names)) for part in parts]
