"""CPU seconds of each test file: measured in every run, compared with those that are stored in tests/budget.json.

    make test                     names files that take half as much again as is stored, and long tests
    make test ARGS=--store-budget stores what this run has measured, of the files that it has run

CPU seconds of this process and of those that it has started and waited for: a busy machine changes them little. A test
of tier 1 takes at most `LONGEST` seconds, or is marked `long(reason)`; it is named where it takes half as much again,
since the first test of a module pays for what the module shares.
"""

import collections
import json
import pathlib
import resource

import pytest
from lib import environment

STORED = pathlib.Path(__file__).parents[1] / "budget.json"
LONGEST = 3.0
_ALLOWED, _LEAST = 1.5, 2.0  # times what is stored, and seconds: smaller differences are noise
_began = pytest.StashKey[float]()
_spent = collections.defaultdict(float)  # (node id, tier) -> seconds
_excused = set()


def pytest_addoption(parser):
    """Defines the flag that stores what was measured."""
    parser.addoption("--store-budget", action="store_true", help="store the CPU seconds of each test file")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    """Reads the clock before the fixtures are made."""
    item.stash[_began] = _cpu_seconds()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Says with a test's last report what it has taken, so that the process which collects them knows."""
    if call.when == "teardown":
        item.user_properties.append(("cpu_seconds", _cpu_seconds() - item.stash[_began]))
    return (yield)


def pytest_runtest_logreport(report):
    """Adds up."""
    if report.when == "teardown":
        tier = "rest" if "full" in report.keywords else "tier 1"
        _spent[report.nodeid, tier] += dict(report.user_properties).get("cpu_seconds", 0.0)
        if "long" in report.keywords:
            _excused.add(report.nodeid)


def pytest_terminal_summary(terminalreporter, config):
    """Names what takes too long; stores what was measured if that is asked for."""
    if not _spent or environment.FULLY:
        return
    stored = json.loads(STORED.read_text(encoding="utf-8")) if STORED.exists() else {}
    files = _by_file()
    say = terminalreporter.write_line
    for tier in ("tier 1", "rest"):
        seconds = sum(found.get(tier, 0.0) for found in files.values())
        if seconds:
            say(f"{tier}: {seconds:,.0f} CPU seconds in tests")
    if config.getoption("store_budget"):
        merged = stored | {name: stored.get(name, {}) | found for name, found in files.items()}
        lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(merged[name])}" for name in sorted(merged))
        STORED.write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")
        return
    for name, found in sorted(files.items()):
        for tier, seconds in found.items():
            own = stored.get(name, {}).get(tier)
            if own is not None and seconds > max(_ALLOWED * own, own + _LEAST):
                say(f"over its budget: {name}, {tier}: {seconds:.1f} CPU seconds, {own:.1f} are stored")
    for (name, tier), seconds in sorted(_spent.items()):
        own = name.startswith("tests/") and name not in _excused  # a docstring's example is for its readers
        if tier == "tier 1" and seconds > _ALLOWED * LONGEST and own:
            say(f"long without a reason: {name}: {seconds:.1f} CPU seconds")


def _by_file():
    """File -> tier -> seconds, in tenths."""
    found = collections.defaultdict(lambda: collections.defaultdict(float))
    for (name, tier), seconds in _spent.items():
        found[name.partition("::")[0]][tier] += seconds
    return {name: {tier: round(seconds, 1) for tier, seconds in tiers.items()} for name, tiers in found.items()}


def _cpu_seconds():
    own, ended = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return own.ru_utime + own.ru_stime + ended.ru_utime + ended.ru_stime
