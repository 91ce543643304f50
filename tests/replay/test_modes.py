"""Wave mode is event mode as users compile it: bit for bit where XLA rounds alike, to 1e-12 elsewhere.

Compared is all results of a run: parameters, rule state, statistics, Polyak average, records and evaluations.
"""

import jax
import pytest
from lib.replay_cases import heterogeneous
from mode_cases import SEVERAL_BLOCKS, assert_same, replayed

from sgdlab.replay import server_engine


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


@pytest.mark.sample(1)
@pytest.mark.parametrize(("name", "rule"), [("mlp", "nag"), ("conv", "asgd")])
def test_bit_for_bit(same_rounding, name, rule):
    schedule = heterogeneous(60)
    # Convolutions of several kernels at once are products of patches, which round otherwise than one convolution.
    lanes = "map" if name == "conv" else "vmap"
    event, wave = (replayed(name, rule, schedule, mode=mode, lanes=lanes) for mode in ("event", "wave"))
    assert set(same_rounding) == {False, True}  # `run` went through the replaced function, in both modes
    assert_same(wave, event, 0.0)


@pytest.mark.sample(1)
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


@pytest.mark.sample(1)
@pytest.mark.parametrize(("name", "rule"), [("mlp", "dana"), ("batch_norm", "asgd")])
def test_long_runs_as_xla_rounds_them(name, rule):
    """With the fusions that round otherwise; more rules are compared where programs are compiled lightly."""
    schedule = heterogeneous(200)
    event, wave = (replayed(name, rule, schedule, mode=mode) for mode in ("event", "wave"))
    assert_same(wave, event, 1e-12)
