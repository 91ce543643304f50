"""Every protocol is a part: it runs as it stands in the registry, and all that it takes by keyword has a default."""

import inspect
import math
import subprocess
import sys

import numpy as np
import pytest

from sgdlab import PeerSchedule, Schedule, predictors, protocols, rules  # noqa: F401 (rules register themselves)
from sgdlab.registry import PROTOCOLS, RULES

RUNTIMES = np.random.default_rng(0).uniform(1, 3, (60, 6))
PEERS = ("gossip", "elastic_averaging", "d_psgd", "sgp", "ad_psgd", "a2cid2")
GIVEN = {
    "runtimes": RUNTIMES,
    "num_gradients": 40,
    "gradients_per_epoch": 10.0,
    "predictor": predictors.RunningMean(),
    "seed": 0,
}


@pytest.mark.parametrize("name", PROTOCOLS)
class TestContract:
    def test_runs_with_the_entries_that_it_declares(self, name):
        schedule = PROTOCOLS.make(name, PROTOCOLS[name].entries(), **GIVEN)
        assert isinstance(schedule, PeerSchedule if name in PEERS else Schedule)

    def test_its_entries_are_the_defaults_of_its_signature(self, name):
        own = {
            parameter.name: parameter.default
            for parameter in inspect.signature(getattr(protocols, name)).parameters.values()
            if parameter.name not in {*GIVEN, "num_seconds", "transport", "outages"}
        }
        assert dict(PROTOCOLS[name].defaults) == own

    def test_uses_enough_gradients_and_not_an_update_more(self, name):
        schedule = PROTOCOLS.make(name, {}, **GIVEN)
        if isinstance(schedule, PeerSchedule):
            assert schedule.num_gradients == GIVEN["num_gradients"]
            return
        used = schedule.used().sum(axis=0)
        fewest = schedule.update[:, used.argmin()]
        assert used.min() >= GIVEN["num_gradients"] > used.min() - np.count_nonzero(fewest == fewest.max())

    def test_says_what_tables_need(self, name):
        part = PROTOCOLS[name]
        assert part.title
        assert part.source
        assert isinstance(part.facts.families, tuple)
        assert part.facts.rule is None or part.facts.rule in RULES


def test_a_share_and_a_number_of_workers_are_told_apart():
    for at_least, expected in ((0.5, 3), (1.0, 6), (4.0, 4), (4, 4), (1, 1)):
        schedule = protocols.timeout(RUNTIMES, at_least=at_least, seconds=0.0)
        assert set(np.bincount(schedule.update[schedule.used()])) == {expected}


def test_one_layer_is_asynchronous():
    one, same = protocols.layerwise(RUNTIMES, num_blocks=1), protocols.asynchronous(RUNTIMES)
    np.testing.assert_array_equal(one.update, same.update)
    np.testing.assert_array_equal(one.read, same.read)


@pytest.mark.parametrize("workers", [1, 5, 6])
@pytest.mark.parametrize(
    ("name", "entry", "of"),
    [
        ("rennala", "gradients_per_update", lambda n: math.ceil(n / 2)),
        ("softsync", "gradients_per_update", lambda n: math.ceil(n / 2)),
        ("ata", "gradients_per_update", lambda n: math.ceil(n / 2)),
        ("ringmaster", "max_delay", lambda n: 2 * n),
    ],
)
def test_what_scales_with_the_number_of_workers_does_so_by_default(name, entry, of, workers):
    given = {"num_gradients": 48}
    default = PROTOCOLS[name].make(RUNTIMES[:, :workers], **given)
    explicit = PROTOCOLS[name].make(RUNTIMES[:, :workers], **{entry: of(workers)}, **given)
    np.testing.assert_array_equal(default.update, explicit.update)
    other = PROTOCOLS[name].make(RUNTIMES[:, :workers], **{entry: of(workers) + 1}, **given)
    assert workers == 1 or name == "ringmaster" or other.num_updates != default.num_updates


@pytest.mark.parametrize("module", ["protocols", "policies", "predictors", "cutoff"])
def test_nothing_heavy_is_imported(module):
    program = (
        f"import sys, sgdlab.{module}\n"
        "print(*sorted({'jax', 'flax', 'numpyro', 'orbax', 'optax', 'pyarrow', 'scipy'} & sys.modules.keys()))"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout.split() == []
