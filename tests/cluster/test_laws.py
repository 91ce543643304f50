"""Test what all clusters promise: one table of laws, made as runs make them, and drawn from."""

import dataclasses
import math
import re
import subprocess
import sys

import numpy as np
import pytest

from sgdlab import cluster
from sgdlab.errors import UsageError
from sgdlab.registry import CLUSTERS

WORKERS, STEPS, SEED = 4, 30, 3
LAWS = {
    "gamma": {"heterogeneous": True, "mean": 3.0, "task_variation": 0.2, "machine_variation": 0.4},
    "gamma_quantiles": {"mean": 3.0, "task_variation": 0.2, "machine_variation": 0.4},
    "exponential": {"mean": 3.0},
    "long_tailed": {"median": 3.0, "tail_share": 0.4},
    "regimes": {"num_nodes": 2, "mean": 3.0, "std": 1.5, "contention": {"period": 5, "steps": 2, "factor": 1.5}},
    "recorded": {"extend": "bootstrap", "block": 4},
    "ladder": {"seconds": 2.0, "power": 0.5, "noise": 0.3},
    "fixed": {"seconds": (1.0, 2.0, 3.0, 4.5)},
}
CLASSES = {
    "gamma": cluster.Gamma,
    "gamma_quantiles": cluster.GammaQuantiles,
    "exponential": cluster.Exponential,
    "long_tailed": cluster.LongTailed,
    "regimes": cluster.RegimeCluster,
    "recorded": cluster.Recorded,
    "ladder": cluster.Ladder,
    "fixed": cluster.Fixed,
}


@pytest.fixture
def make(tmp_path):
    """(kind, **entries) -> the law, as a run makes it: a group of a configuration."""
    np.save(tmp_path / "trace.npy", np.random.default_rng(0).uniform(1.0, 2.0, (9, WORKERS)))

    def of_configuration(kind, given=None, **entries):
        if kind == "recorded":
            entries = {"trace": str(tmp_path / "trace.npy")} | entries
        group = CLUSTERS.entries(kind, **{kind: entries})[kind]
        return CLUSTERS.make(kind, group, **{"num_workers": WORKERS, "batch_size": 32} | (given or {}))

    return of_configuration


def test_the_table_has_every_cluster():
    assert set(LAWS) == set(CLASSES) == set(CLUSTERS)


@pytest.mark.parametrize("kind", LAWS)
class TestLaw:
    def test_is_a_frozen_dataclass_with_its_entries_as_fields(self, kind, make):
        law = make(kind, **LAWS[kind])
        assert type(law) is CLASSES[kind]
        assert law.num_workers == WORKERS
        fields = dataclasses.asdict(law)
        for name, value in LAWS[kind].items():
            assert fields[name] == (fields[name] | value if isinstance(value, dict) else value)
        with pytest.raises(dataclasses.FrozenInstanceError):
            law.num_workers = 1
        assert law == dataclasses.replace(law)
        assert hash(law) == hash(dataclasses.replace(law))

    def test_shape_and_dtype(self, kind, make):
        runtimes = make(kind, **LAWS[kind]).draw(STEPS, seed=SEED)
        assert runtimes.shape == (STEPS, WORKERS)
        assert runtimes.dtype == np.float64
        assert (runtimes > 0).all()

    @pytest.mark.parametrize("rows", [1, 7, 9, 10, 13])
    def test_more_rows_do_not_change_earlier_ones(self, kind, make, rows):
        law = make(kind, **LAWS[kind])
        np.testing.assert_array_equal(law.draw(rows, seed=SEED), law.draw(STEPS, seed=SEED)[:rows])

    def test_the_seed_decides(self, kind, make):
        law = make(kind, **LAWS[kind])
        np.testing.assert_array_equal(law.draw(STEPS, seed=0), make(kind, **LAWS[kind]).draw(STEPS, seed=0))
        assert (law.draw(STEPS, seed=0) != law.draw(STEPS, seed=1)).any() == (kind != "fixed")  # nothing is random

    def test_what_was_drawn_is_the_callers_own(self, kind, make):
        law = make(kind, **LAWS[kind])
        drawn = law.draw(5, seed=SEED)
        drawn[:] = 0.0
        assert (law.draw(5, seed=SEED) > 0).all()

    def test_its_text_is_one_line(self, kind, make):
        text = str(make(kind, **LAWS[kind]))
        assert text
        assert "\n" not in text

    @pytest.mark.parametrize("rows", [0, -1, 2.5, None])
    def test_impossible_rows_are_refused(self, kind, make, rows):
        with pytest.raises(ValueError, match=rf"^rows={rows} must be a whole number of at least 1"):
            make(kind, **LAWS[kind]).draw(rows, seed=0)

    @pytest.mark.parametrize("seed", [-1, 0.5, None])
    def test_impossible_seeds_are_refused(self, kind, make, seed):
        with pytest.raises(ValueError, match=rf"^seed={seed} must be a whole number of at least 0"):
            make(kind, **LAWS[kind]).draw(2, seed=seed)

    def test_every_argument_has_a_line_of_help(self, kind, make):
        part = CLUSTERS[kind]
        assert {name for name in part.help() if "." not in name} == {*part.defaults, *part.given}
        assert part.title


ABOVE, LEAST = "must be a finite number above 0", "must be a finite number at least 0"
BAD = {
    "gamma": [("batch_size", ABOVE, (0, -1.0, math.nan, math.inf)), ("mean", ABOVE, (0, -1.0, math.nan, math.inf))]
    + [(f"{name}_variation", "must be a finite number at least 1e-06 and at most 100", (0, -0.1, 101, math.nan))
       for name in ("task", "machine")],
    "gamma_quantiles": [(f"{name}_variation", "must be a finite number at least 1e-06 and at most 100", (0, 101))
                        for name in ("task", "machine")],
    "exponential": [("mean", ABOVE, (0, -1.0, math.nan, math.inf, None))],
    "long_tailed": [(f"tail_{name}", ABOVE, (0, -1.0, math.nan, math.inf, None)) for name in ("start", "index")]
    + [("median", ABOVE, (0, -1.0, math.nan, math.inf, None))]
    + [("spread", LEAST, (-0.1, math.nan)), ("tail_share", f"{LEAST} and at most 1", (-0.1, 1.1, math.nan, "0"))],
    "regimes": [("num_nodes", "must be a whole number from 1 to 4: every node has a worker", (0, 5, 1.5))],
    "ladder": [("seconds", ABOVE, (0.0, math.inf)), ("power", LEAST, (-1.0,)), ("noise", LEAST, (-1.0, math.nan))],
    "fixed": [("seconds", "must be one number, or 4, one for each worker", ((1.0, 2.0), ()))],
}  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "name", "right", "value"),
    [(kind, name, right, value) for kind in BAD for name, right, values in BAD[kind] for value in values],
)
def test_an_impossible_argument_is_named_with_its_value(kind, name, right, value):
    with pytest.raises(ValueError, match=f"^{re.escape(f'{name}={value!r} {right}')}"):
        CLASSES[kind](WORKERS, **{name: value})


@pytest.mark.parametrize("value", [0, -1, 2.5, None])
def test_an_impossible_number_of_workers_or_rows_is_named(value):
    right = f"={value!r} must be a whole number of at least 1"
    for law in CLASSES.values():
        with pytest.raises(ValueError, match=f"^num_workers{right}"):
            law(value)
    for draw in (cluster.gamma, cluster.exponential, cluster.long_tailed):
        with pytest.raises(ValueError, match=f"^num_gradients{right}"):
            draw(num_workers=2, num_gradients=value, seed=0)


@pytest.mark.parametrize(
    ("kind", "entries", "given", "flag"),
    [
        ("gamma", {"mean": -1.0}, {}, "--config.cluster.gamma.mean=-1.0 must be"),
        ("gamma", {}, {"batch_size": 0}, "--config.batch_size=0 must be"),
        ("gamma", {}, {"num_workers": 0}, "--config.cluster.num_workers=0 must be"),
        ("regimes", {"drift": {"period": -1}}, {}, "--config.cluster.regimes.drift.period=-1 must be"),
        ("fixed", {"seconds": (0.0,)}, {}, "--config.cluster.fixed.seconds=0.0 must be"),
        ("recorded", {"trace": ""}, {}, "--config.cluster.recorded.trace='' must be a file"),
        ("recorded", {"trace": "none.csv"}, {}, "--config.cluster.recorded.trace='none.csv' must be a file"),
        ("recorded", {"extend": "twice"}, {}, "--config.cluster.recorded.extend='twice' must be None or 'bootstrap'"),
        ("recorded", {"block": 0}, {}, "--config.cluster.recorded.block=0 must be a whole number of at least 1"),
        (
            "recorded",
            {"extend": "bootstrap"},
            {},
            "--config.cluster.recorded.block=10 must be a whole number from 1 to",
        ),
        ("recorded", {}, {"num_workers": 8}, "--config.cluster.num_workers=8 must be 4, the workers of "),
    ],
)
def test_errors_name_the_flag(make, kind, entries, given, flag):
    with pytest.raises(UsageError) as error:
        make(kind, given, **entries)
    assert str(error.value).startswith(flag)


@pytest.mark.parametrize(
    ("law", "drawn"),
    [
        *[
            (
                cluster.Gamma(5, batch_size=32, heterogeneous=heterogeneous),
                cluster.gamma(
                    num_workers=5, num_gradients=STEPS, batch_size=32, heterogeneous=heterogeneous, seed=SEED
                ),
            )
            for heterogeneous in (False, True)
        ],
        (
            cluster.Exponential(5, mean=2.0),
            cluster.exponential(num_workers=5, num_gradients=STEPS, mean=2.0, seed=SEED),
        ),
        (
            cluster.LongTailed(5, tail_share=0.3),
            cluster.long_tailed(num_workers=5, num_gradients=STEPS, tail_share=0.3, seed=SEED),
        ),
        (
            cluster.RegimeCluster(5, slow_steps=8.0),
            cluster.regimes(
                num_workers=5, num_nodes=4, num_steps=STEPS, mean=1.057, std=0.393, slow_steps=8.0, seed=SEED
            ),
        ),
    ],
    ids=["gamma, equal", "gamma, unequal", "exponential", "long_tailed", "regimes"],
)
def test_functions_draw_from_the_laws(law, drawn):
    np.testing.assert_array_equal(law.draw(STEPS, seed=SEED), drawn)


def test_scipy_is_imported_only_where_a_law_draws_with_it():
    program = (
        "import sys\n"
        "from sgdlab import cluster\n"
        "laws = [cluster.Gamma(2), cluster.Exponential(2), cluster.LongTailed(2), cluster.RegimeCluster(4)]\n"
        "for law in laws:\n"
        "    law.draw(1, seed=0)\n"
        "    print('scipy' in sys.modules)\n"
    )
    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert printed.split() == ["False", "False", "True", "True"]


def test_a_ladder_speaks_of_noise_where_there_is_some():
    assert "half-normal noise" in str(cluster.Ladder(num_workers=4))
    assert str(cluster.Ladder(num_workers=4, noise=0.0)) == (
        "compute times of 1 to 4 s, rising from worker to worker (Maranjyan and Richtarik 2025)"
    )
