"""The tied softmax is a distribution over the tokens, the one of its formula, whatever the size of its pieces."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from sgdlab.networks import TiedSoftmax

VOCABULARY, WIDTH = 11, 5
CUTOFFS = (3, 4, 9)


def structure(**options):
    make = functools.partial(TiedSoftmax, VOCABULARY, WIDTH, param_dtype=jnp.float64, **options)
    return nnx.split(nnx.eval_shape(lambda: make(rngs=nnx.Rngs(0))))


def drawn(shapes, seed=0):
    generator = np.random.default_rng(seed)
    return jax.tree.map(lambda leaf: jnp.asarray(generator.normal(size=leaf.shape)), shapes)


def log_softmax(logits):
    logits = logits - logits.max()
    return logits - np.log(np.exp(logits).sum())


def expected(params, cutoffs, hidden, token):
    """The formula, one target at a time."""
    embedding, bias = np.asarray(params["embedding"]), np.asarray(params["bias"])
    logits = embedding @ hidden + bias
    if not cutoffs:
        return -log_softmax(logits)[token]
    edges = (*cutoffs, VOCABULARY)
    clusters = np.asarray(params["cluster_embedding"]) @ hidden + np.asarray(params["cluster_bias"])
    head = log_softmax(np.concatenate([logits[: edges[0]], clusters[::-1]]))  # columns in reverse order
    for number, (start, stop) in enumerate(itertools.pairwise(edges)):
        if start <= token < stop:
            return -head[edges[0] + number] - log_softmax(logits[start:stop])[token - start]
    return -head[token]


@functools.cache
def compiled(**options):
    graph, shapes = structure(**options)

    def weighted(params, hidden, targets):
        nll = nnx.merge(graph, params).nll(hidden, targets)
        return (nll * jnp.cos(jnp.arange(nll.size)).reshape(nll.shape)).sum(), nll

    params = nnx.as_pure(drawn(shapes))
    return params, jax.jit(jax.grad(weighted, argnums=(0, 1), has_aux=True))


@pytest.fixture(scope="module", name="texts")
def texts_of_all_tokens():
    generator = np.random.default_rng(1)
    return generator.normal(size=(2, 13, WIDTH)), generator.integers(0, VOCABULARY, (2, 13))


@pytest.mark.parametrize("cutoffs", [(), CUTOFFS])
def test_is_the_formula(cutoffs, texts):
    params, call = compiled(cutoffs=cutoffs)
    _, nll = call(params, *texts)
    assert nll.shape == (2, 13)
    for index in np.ndindex(nll.shape):
        wanted = expected(params, cutoffs, texts[0][index], texts[1][index])
        np.testing.assert_allclose(nll[index], wanted, rtol=1e-12)


@pytest.mark.parametrize("cutoffs", [(), CUTOFFS])
def test_probabilities_of_all_tokens_sum_to_one(cutoffs):
    params, call = compiled(cutoffs=cutoffs)
    hidden = np.random.default_rng(2).normal(size=(2, 1, WIDTH)).repeat(13, axis=1)
    _, nll = call(params, hidden, np.broadcast_to(np.arange(13) % VOCABULARY, (2, 13)))
    np.testing.assert_allclose(np.exp(-nll[:, :VOCABULARY]).sum(axis=1), 1, rtol=1e-12)


@pytest.mark.parametrize("targets", ["drawn", "all of one cluster"])
@pytest.mark.parametrize("room", [4, 1000])
def test_room_changes_nothing(room, targets, texts):
    hidden, tokens = texts
    tokens = tokens if targets == "drawn" else np.full_like(tokens, VOCABULARY - 1)
    params, exact = compiled(cutoffs=CUTOFFS)
    _, call = compiled(cutoffs=CUTOFFS, room=room)
    left, right = call(params, hidden, tokens), exact(params, hidden, tokens)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-13), left, right)


def test_gradient_is_that_of_the_formula(texts):
    """Only a target's own cluster has a gradient, and it is the one of the formula, by finite differences."""
    hidden, tokens = texts
    tokens = np.where(tokens >= CUTOFFS[2], 0, tokens)
    params, call = compiled(cutoffs=CUTOFFS)
    grads, _ = call(params, hidden, tokens)
    np.testing.assert_array_equal(grads[0]["embedding"][CUTOFFS[2] :], 0)
    weights = np.cos(np.arange(tokens.size))
    directions, step = (drawn(params, seed=3), np.random.default_rng(4).normal(size=hidden.shape)), 1e-6

    def value(sign):
        moved, at = jax.tree.map(lambda p, d: np.asarray(p + sign * step * d), (params, hidden), directions)
        rows = zip(at.reshape(-1, WIDTH), tokens.ravel(), strict=True)
        return weights @ [expected(moved, CUTOFFS, row, token) for row, token in rows]

    along = sum(jax.tree.leaves(jax.tree.map(lambda g, d: (g * d).sum(), grads, directions)))
    np.testing.assert_allclose(along, (value(1) - value(-1)) / (2 * step), rtol=1e-7)
