"""Wave mode is event mode to 1e-12, of more rules and schedules than are compared bit for bit (`test_modes.py`).

Programs are compiled lightly, where XLA's two ways to optimise them do not matter: what is done is compared.
"""

import numpy as np
import pytest
from lib.replay_cases import heterogeneous, softsync, with_backups
from mode_cases import SEVERAL_BLOCKS, WIDTH, WORKERS, assert_same, replayed

from sgdlab import protocols
from sgdlab.replay import lower


@pytest.mark.sample(1)
@pytest.mark.parametrize(("kind", "rule"), [("partial", "staleness_aware"), ("layers, backward", "dana")])
def test_several_blocks(kind, rule):
    schedule = SEVERAL_BLOCKS[kind]()
    event, wave = (replayed("mlp", rule, schedule, mode=mode) for mode in ("event", "wave"))
    assert_same(wave, event, 1e-12, evaluations=2)


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("mlp", "adam"),
        ("conv", "staleness_aware"),
    ],
)
def test_long_runs(name, rule):
    schedule = heterogeneous(200)
    event, wave = (replayed(name, rule, schedule, mode=mode) for mode in ("event", "wave"))
    assert_same(wave, event, 1e-12)


def test_gap_aware():
    # The parameter-wise gap amplifies any rounding from gradient to gradient: a short run.
    event, wave = (replayed("conv", "gap_aware", heterogeneous(12), mode=mode) for mode in ("event", "wave"))
    assert_same(wave, event, 1e-12, evaluations=2)


@pytest.mark.full
def test_updates_of_several_gradients():
    runtimes = np.random.default_rng(0).uniform(1, 4, (40, WORKERS))
    uniform = with_backups(40), protocols.synchronous(runtimes)
    assert all(lower(schedule, every=50, width=WIDTH).uniform for schedule in uniform)
    for schedule in (softsync(120), *uniform):
        event, wave = (replayed("mlp", "staleness_aware", schedule, mode=mode) for mode in ("event", "wave"))
        assert (event.history.distance.max() > 0) == (schedule.staleness().max() > 0)
        assert_same(wave, event, 1e-12)
