"""Wave mode is event mode: bit for bit where XLA rounds alike, to 1e-12 elsewhere, sharded over four devices too.

Compared is all results of a run: parameters, rule state, statistics, Polyak average, records and evaluations.
"""

import functools

import jax
import numpy as np
import pytest
from replay_cases import (
    any_blocks,
    assert_close,
    batches,
    examples,
    heterogeneous,
    layers,
    network,
    opposite,
    partly,
    seeded,
    softsync,
    with_backups,
)

from sgdlab import protocols, rules
from sgdlab.replay import Capacity, Result, Watch, lower, run, server_engine

pytestmark = pytest.mark.fully_compiled  # modes are compared bit for bit, as users compile them

WORKERS = 5
RULES = {
    "asgd": lambda: rules.asgd(learning_rate=0.01, momentum=0.9),
    "nag": lambda: rules.nag_asgd(learning_rate=0.01, weight_decay=1e-3),
    "staleness_aware": lambda: rules.staleness_aware(learning_rate=0.02),
    "dana": lambda: rules.dana(learning_rate=0.005, num_workers=WORKERS),
    "adam": lambda: rules.adam(learning_rate=0.002),
    "gap_aware": lambda: rules.gap_aware(learning_rate=0.02),
}
# One compilation for all schedules of several gradients an update.
WIDTH = 4
CAPACITY = Capacity(rows=256, slots=8, width=WIDTH)
BLOCK_CAPACITY = Capacity(rows=128, slots=32, width=WIDTH, kept=16)
SEVERAL_BLOCKS = {
    "anything": lambda: any_blocks(seeded(0), 60, WORKERS, 3),
    "opposite": lambda: opposite(60, 3),
    "partial": lambda: partly(15, push_at_least=3, pull_timeout=0.5),
    "layers, end": lambda: layers(60, "forward", "end"),
    "layers, backward": lambda: layers(60, "forward", "backward"),
}


def replayed(name: str, rule: str, schedule, **options) -> Result:
    net = network(name)
    watch = Watch(every=50, evaluate=functools.partial(net.evaluate, batch=examples(1)), average_decay=0.95, norms=True)
    capacity = CAPACITY if schedule.num_blocks == 1 else BLOCK_CAPACITY
    program = lower(schedule, every=watch.every, capacity=capacity, width=WIDTH)
    assert schedule.num_blocks == 1 or (program.capacity.rows, program.capacity.slots) == (
        capacity.rows,
        capacity.slots,
    )
    assert program.mean_wave_length() > 1.5  # else there is nothing to compare
    return run(
        program,
        RULES[rule](),
        net.grad_fn,
        net.params,
        batches(),
        stats=net.stats,
        fold=net.fold,
        watch=watch,
        **options,
    )


def assert_same(left: Result, right: Result, tolerance: float, *, evaluations: int = 3) -> None:
    everything = lambda result: {
        "params": result.params,
        "state": result.state,
        "stats": result.stats,
        "average": result.average,
        "average_stats": result.average_stats,
        "aux": result.history.aux,
        **{name: np.nan_to_num(getattr(result.history, name)) for name in ("distance", "step", "norm")},
        "evaluations": {
            f"{index}": {name: np.float64(value) for name, value in values.items()}
            for index, values in enumerate(result.history.evaluations)
        },
    }
    left, right = everything(left), everything(right)
    assert len(left["evaluations"]) >= evaluations
    assert {"loss", "accuracy", "average_loss"} <= left["evaluations"]["1"].keys()
    assert left["step"].max() > 0
    # The sum of squares of a gradient is taken in the order in which XLA holds it, which is no part of the run.
    assert_close(left.pop("norm"), right.pop("norm"), max(tolerance, 1e-15))
    assert_close(left, right, tolerance)


@pytest.fixture
def same_rounding(monkeypatch):
    """XLA's YNN fusions round a product by what it is fused with; without them both modes round alike."""
    calls = []
    advance = jax.jit(
        server_engine.advance.__wrapped__,
        static_argnames=("mode",),
        compiler_options={"xla_cpu_experimental_ynn_fusion_type": ""},
    )

    def counted(*args, mode):
        calls.append(mode.width > 0)
        return advance(*args, mode=mode)

    monkeypatch.setattr(server_engine, "advance", counted)
    return calls


@pytest.mark.parametrize(("name", "rule"), [("mlp", "nag"), ("conv", "asgd")])
def test_bit_for_bit(same_rounding, name, rule):
    schedule = heterogeneous(60)
    # Convolutions of several kernels at once are products of patches, which round otherwise than one convolution.
    lanes = "map" if name == "conv" else "vmap"
    event, wave = (replayed(name, rule, schedule, mode=mode, lanes=lanes) for mode in ("event", "wave"))
    assert set(same_rounding) == {False, True}  # `run` went through the replaced function, in both modes
    assert_same(wave, event, 0.0)


@pytest.mark.parametrize(
    ("kind", "rule", "name"),
    [
        ("anything", "asgd", "mlp"),
        ("partial", "asgd", "conv"),
        ("layers, end", "nag", "mlp"),
    ],
)
def test_several_blocks_bit_for_bit(same_rounding, kind, rule, name):
    schedule = SEVERAL_BLOCKS[kind]()
    # Convolutions of several kernels at once are products of patches, which round otherwise than one convolution.
    lanes = "map" if name == "conv" else "vmap"
    event, wave = (replayed(name, rule, schedule, mode=mode, lanes=lanes) for mode in ("event", "wave"))
    assert set(same_rounding) == {False, True}
    assert_same(wave, event, 0.0, evaluations=2)


@pytest.mark.parametrize(("kind", "rule"), [("partial", "staleness_aware"), ("layers, backward", "dana")])
def test_several_blocks(kind, rule):
    schedule = SEVERAL_BLOCKS[kind]()
    event, wave = (replayed("mlp", rule, schedule, mode=mode) for mode in ("event", "wave"))
    assert_same(wave, event, 1e-12, evaluations=2)


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("mlp", "dana"),
        ("mlp", "adam"),
        ("conv", "staleness_aware"),
        ("batch_norm", "asgd"),
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


def test_updates_of_several_gradients():
    runtimes = np.random.default_rng(0).uniform(1, 4, (40, WORKERS))
    uniform = with_backups(40), protocols.synchronous(runtimes)
    assert all(lower(schedule, every=50, width=WIDTH).uniform for schedule in uniform)
    for schedule in (softsync(120), *uniform):
        event, wave = (replayed("mlp", "staleness_aware", schedule, mode=mode) for mode in ("event", "wave"))
        assert (event.history.distance.max() > 0) == (schedule.staleness().max() > 0)
        assert_same(wave, event, 1e-12)
