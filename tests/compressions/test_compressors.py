"""Compressors by themselves: bytes by hand, means, variances and contractions, PowerSGD against NumPy, bad entries."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sgdlab import compressions
from sgdlab.compressions import COMPRESSIONS, FourBit, PowerSgd, Qsgd, RandomK, Sign, TopK, Uncompressed
from sgdlab.errors import UsageError

SHAPES = ((100, 100), (20, 5, 3), (100,), ())
SIZE = 10_401
_random = np.random.default_rng(0)
VECTOR = jnp.asarray(_random.normal(size=400) * np.exp(_random.normal(size=400)))
EACH = {part.name: part.make() for part in COMPRESSIONS.values()}


def tree(dtype="float64"):
    return {"w": jnp.arange(-6.0, 6.0).reshape(3, 4).astype(dtype), "b": jnp.array([0.5, -9.0], dtype)}


def square(array):
    return float(jnp.sum(jnp.square(array)))


@pytest.mark.parametrize(
    ("compressor", "expected"),
    [
        (Uncompressed(), 4 * SIZE),
        (TopK(share=0.01), 105 * (4 + 14 / 8)),
        (RandomK(share=0.01), 105 * 4 + 8),
        (Qsgd(levels=16), SIZE * math.log2(33) / 8 + 4),
        (Sign(), SIZE / 8 + 4),
        (FourBit(), SIZE / 2 + 4),
        (PowerSgd(rank=3), 4 * (3 * (100 + 100) + 3 * (20 + 15) + 100 + 1)),
        (PowerSgd(rank=50), 4 * (50 * (100 + 100) + 15 * (20 + 15) + 100 + 1)),
    ],
)
def test_bytes_of_a_message(compressor, expected):
    assert compressor.message_bytes(SHAPES) == pytest.approx(expected, rel=1e-15)


def test_bytes_follow_the_dtype():
    assert Uncompressed().message_bytes(SHAPES, "bfloat16") == 2 * SIZE
    assert TopK(share=0.01).message_bytes(SHAPES, "float64") == 105 * (8 + 14 / 8)


@pytest.mark.parametrize("name", EACH)
def test_packets_have_the_bytes_that_are_counted(name):
    """But for places, and multiples, in whole numbers of bytes."""
    compressor, vector = EACH[name], jax.ShapeDtypeStruct((96, 100), jnp.float32)
    made = lambda tree, key: compressor.pack(tree, compressor.begin(tree), key)[0]
    packet = jax.eval_shape(made, vector, jax.random.key(0))
    found = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(packet))
    counted = compressor.message_bytes([vector.shape])
    more = {"top_k": 96 * (4 - 14 / 8), "random_k": -8, "qsgd": 9600 - 9600 * math.log2(33) / 8}.get(name, 0)
    assert found == pytest.approx(counted + more)


@pytest.mark.parametrize("compressor", [RandomK(share=0.1), Qsgd(levels=4), Qsgd(levels=40)])
def test_random_ones_have_the_right_mean_and_a_bounded_variance(compressor):
    draws = 4000
    keys = jax.vmap(lambda number: jax.random.fold_in(jax.random.key(0), number))(jnp.arange(draws))
    found = jax.vmap(lambda key: compressor.compress(VECTOR, key=key)[0])(keys)
    bound = compressor.excess([VECTOR.shape]) * square(VECTOR)
    errors = jnp.sum(jnp.square(found - VECTOR), axis=1)
    # The mean of n draws is off by a variance of 1 / n of theirs.
    assert square(found.mean(axis=0) - VECTOR) < 1.2 * bound / draws
    assert float(errors.mean()) < bound * 1.02
    if isinstance(compressor, RandomK):
        assert bound == pytest.approx((10 - 1) * square(VECTOR))
        assert float(errors.mean()) == pytest.approx(bound, rel=0.05)


@pytest.mark.parametrize("share", [0.003, 0.07, 0.5, 1.0])
def test_top_k_is_a_contraction(share):
    compressor = TopK(share=share)
    found, _ = compressor.compress(VECTOR)
    assert jnp.count_nonzero(found) == math.ceil(share * 400 - 1e-9) == compressor.kept(400)
    assert square(found - VECTOR) <= (1 - compressor.kept(400) / 400) * square(VECTOR)
    assert float(jnp.abs(found[found != 0]).min()) >= float(jnp.abs(VECTOR[found == 0]).max(initial=0))


def test_signs_lose_what_the_paper_says():
    found, _ = Sign().compress(VECTOR)
    lost = 1 - float(jnp.sum(jnp.abs(VECTOR))) ** 2 / (400 * square(VECTOR))
    assert square(found - VECTOR) == pytest.approx(lost * square(VECTOR))


def test_four_bits_are_a_sign_and_a_power_of_two():
    found, _ = FourBit().compress(VECTOR)
    largest = float(jnp.abs(VECTOR).max())
    ratio = np.abs(np.asarray(found)) / largest
    assert set(ratio) <= {0.0, *(2.0**-e for e in range(7))}
    kept = ratio > 0
    assert (np.abs(np.asarray(VECTOR))[~kept] <= largest * 2**-6.5 * (1 + 1e-12)).all()
    shift = np.log2(np.asarray(found)[kept] / np.asarray(VECTOR)[kept])
    assert np.abs(shift).max() <= 0.5 + 1e-12


def test_power_sgd_is_that_of_numpy():
    """Vogels et al. 2019, Algorithm 1, with one worker."""
    compressor, matrices = PowerSgd(rank=2), _random.normal(size=(6, 5, 2, 3))
    state = compressor.begin({"a": jnp.zeros([5, 2, 3]), "b": jnp.zeros(4)})
    right = np.asarray(state[0])
    for matrix in matrices:
        found, state = compressor.compress({"a": jnp.asarray(matrix), "b": jnp.arange(4.0)}, state)
        flat = matrix.reshape(5, 6)
        left = flat @ right
        left[:, 0] /= np.linalg.norm(left[:, 0])
        left[:, 1] -= left[:, 0] * (left[:, 0] @ left[:, 1])
        left[:, 1] /= np.linalg.norm(left[:, 1])
        right = flat.T @ left
        np.testing.assert_allclose(np.asarray(found["a"]).reshape(5, 6), left @ right.T, rtol=1e-12, atol=1e-12)
        np.testing.assert_array_equal(found["b"], np.arange(4.0))


def test_power_sgd_of_full_rank_is_the_matrix():
    matrix = jnp.asarray(_random.normal(size=(3, 7)))
    compressor = PowerSgd(rank=9)
    np.testing.assert_allclose(compressor.compress(matrix, compressor.begin(matrix))[0], matrix, rtol=1e-12)


@pytest.mark.covering
@pytest.mark.parametrize("name", EACH)
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_messages_keep_shapes_and_dtypes_and_zeros_are_finite(name, dtype):
    compressor, key = EACH[name], jax.random.key(1)
    for given in (tree(dtype), jax.tree.map(jnp.zeros_like, tree(dtype))):
        found, state = compressor.compress(given, compressor.begin(given), key)
        found, _ = compressor.compress(given, state, key)
        assert jax.tree.map(jnp.shape, found) == jax.tree.map(jnp.shape, given)
        assert {leaf.dtype for leaf in jax.tree.leaves(found)} == {jnp.dtype(dtype)}
        assert all(jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(found))


@pytest.mark.parametrize("name", [name for name in EACH if EACH[name].entrywise])
def test_fragments_are_compressed_as_one_alone(name):
    """Zeros beside them change nothing, whatever keys draw."""
    whole = jnp.concatenate([jnp.zeros(100), VECTOR[:50], jnp.zeros(50)])
    found, _ = EACH[name].compress(whole, key=jax.random.key(0))
    assert not jnp.any(jnp.where(whole == 0, found, 0))
    assert float(jnp.abs(found[100:150] - VECTOR[:50]).max()) < float(jnp.abs(VECTOR[:50]).max())


@pytest.mark.parametrize("name", EACH)
def test_what_is_not_finite_stays_so(name):
    """A server refuses it, on whatever entries it is."""
    compressor = EACH[name]
    given = jnp.zeros([30, 40]).at[7, 9].set(jnp.nan)
    packet, _ = compressor.pack(given, compressor.begin(given), jax.random.key(0))
    assert not all(jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(packet))


@pytest.mark.parametrize("name", [name for name in EACH if EACH[name].random])
def test_random_ones_want_a_key(name):
    with pytest.raises(ValueError, match=r"^key=None must be a key of jax\.random"):
        EACH[name].compress(VECTOR)


@pytest.mark.parametrize(
    ("name", "entries", "message"),
    [
        ("top_k", {"share": 0.0}, "top_k.share=0.0 must be a finite number above 0 and at most 1"),
        ("top_k", {"share": 1.5}, "top_k.share=1.5"),
        ("random_k", {"share": "1"}, "random_k.share="),
        ("qsgd", {"levels": 0}, "qsgd.levels=0 must be a whole number"),
        ("qsgd", {"levels": 40_000}, "qsgd.levels=40000"),
        ("power_sgd", {"rank": 1.5}, "power_sgd.rank=1.5"),
    ],
)
def test_bad_entries_are_named(name, entries, message):
    with pytest.raises(ValueError, match=f"^{next(iter(entries))}="):
        COMPRESSIONS[name].make(**entries)
    with pytest.raises(UsageError, match=f"^--config.compression.{message}"):
        COMPRESSIONS.make(name, entries)


def test_all_parts_are_exported():
    assert {part.make.__name__ for part in COMPRESSIONS.values()} < set(compressions.__all__)
