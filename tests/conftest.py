"""Every test runs in float64 on four devices of this machine's processor; docstring examples in float32, as users'."""

from lib import environment  # noqa: F401 (before JAX is imported)

# isort: split
import gc
import pathlib
import resource

import jax
import pytest
from lib import budget, compiling, tiers

LARGE = 2 << 30
"""Bytes of a process."""

# Tracing makes many objects that live on for a while: to look for cycles seldom saves a tenth of all time.
gc.set_threshold(100_000, 50, 100)


def pytest_addoption(pluginmanager):
    """Registers what is written for this suite; the flags of these plugins are defined at once."""
    for plugin in (budget, tiers):
        pluginmanager.register(plugin)


def pytest_collection_finish():
    """Freezes what is there for all tests, so that it is not looked through again after each file."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True, scope="module")
def bounded_memory():
    """Forgets compiled programs where a process has got large; before that, other modules may use them too."""
    yield
    pages = int(pathlib.Path("/proc/self/statm").read_text(encoding="utf-8").split()[1])
    if pages * resource.getpagesize() > LARGE:
        jax.clear_caches()
        gc.collect()


@pytest.fixture(autouse=True)
def x64():
    """Computes in double precision: what is compared is the algorithm, not its rounding."""
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", False)


@pytest.fixture(name="compilations")
def compilations_since():
    """Returns a list that grows by one for each program that is compiled."""
    with compiling.compilations() as seen:
        yield seen
