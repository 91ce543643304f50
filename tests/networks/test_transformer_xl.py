"""Transformer-XL is its definition, segment by segment, and its memory reaches as far as it says and no further.

The likelihoods are compared in float64 with loops over pairs of positions in NumPy.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from sgdlab.networks import TransformerXL
from sgdlab.networks.parts import transformer_xl

VOCABULARY, SEGMENT, MEMORY = 12, 4, 5
CUTOFFS = (4, 7)
SMALL = {"layers": 2, "width": 6, "heads": 2, "head_width": 3, "inner": 7, "memory": MEMORY}
TEXTS = np.random.default_rng(1).integers(0, VOCABULARY, (2, 3 * SEGMENT + 1))


def structure(**options):
    make = functools.partial(TransformerXL, VOCABULARY, param_dtype=jnp.float64, **SMALL | options)
    return nnx.split(nnx.eval_shape(lambda: make(rngs=nnx.Rngs(0))))


@functools.cache
def network(**options):
    """Parameters, biases too, and one segment as a function of them."""
    graph, shapes = structure(**options)
    generator = np.random.default_rng(0)
    params = nnx.as_pure(jax.tree.map(lambda leaf: jnp.asarray(generator.normal(size=leaf.shape) / 2), shapes))

    def call(params, tokens, targets, memory, key=None):
        return nnx.merge(graph, params)(tokens, targets, memory, key)

    return params, jax.jit(call), lambda size: nnx.merge(graph, params).start(size)


def read(texts, segment=SEGMENT, **options):
    """The likelihoods of whole texts, [B, T], and the last memory."""
    params, call, start = network(**options)
    memory, parts = start(len(texts)), []
    for begin in range(0, texts.shape[1] - 1, segment):
        end = begin + segment
        nll, memory = call(params, texts[:, begin:end], texts[:, begin + 1 : end + 1], memory)
        parts.append(nll)
    return np.concatenate(parts, axis=1), memory


def log_softmax(logits):
    logits = logits - logits.max()
    return logits - np.log(np.exp(logits).sum())


def normalised(vector, layer):
    centred = vector - vector.mean()
    return centred / np.sqrt((centred**2).mean() + 1e-5) * layer["scale"] + layer["bias"]


def attended(query, inputs, layer, biases):
    """Return what one position sees: the positions `inputs`, the last of which is itself."""
    heads, size = SMALL["heads"], SMALL["head_width"]
    kernels = layer["queries_keys_values"]["kernel"].reshape(-1, 3, heads, size)
    position = layer["position"]["kernel"].reshape(-1, heads, size)
    frequencies = 10000.0 ** -(np.arange(0, SMALL["width"], 2) / SMALL["width"])
    outputs = []
    for head in range(heads):
        asked, scores, values = query @ kernels[:, 0, head], [], []
        for key, vector in enumerate(inputs):
            angles = (len(inputs) - 1 - key) * frequencies
            where = np.concatenate([np.sin(angles), np.cos(angles)]) @ position[:, head]
            content = vector @ kernels[:, 1, head]
            scores.append(((asked + biases[0][head]) @ content + (asked + biases[1][head]) @ where) / np.sqrt(size))
            values.append(vector @ kernels[:, 2, head])
        outputs.append(np.exp(log_softmax(np.array(scores))) @ values)
    return np.concatenate(outputs) @ layer["output"]["kernel"]


def naive(params, text, cutoffs):
    """The negative log-likelihoods of one text, position by position, with the memory as a list of vectors."""
    softmax, biases = params["softmax"], (params["content_bias"], params["position_bias"])
    remembered, nll = [[] for _ in range(SMALL["layers"])], []
    for begin in range(0, len(text) - 1, SEGMENT):
        hidden = [softmax["embedding"][token] * np.sqrt(SMALL["width"]) for token in text[begin : begin + SEGMENT]]
        for number in range(SMALL["layers"]):
            layer = jax.tree.map(lambda leaf, number=number: leaf[number], params["layers"])
            past = remembered[number][-MEMORY:]
            remembered[number] = past + hidden
            outputs = []
            for index, vector in enumerate(hidden):
                sees = past + hidden[: index + 1]
                middle = normalised(vector + attended(vector, sees, layer, biases), layer["attention_norm"])
                between = np.maximum(middle @ layer["expand"]["kernel"] + layer["expand"]["bias"], 0)
                total = middle + between @ layer["contract"]["kernel"] + layer["contract"]["bias"]
                outputs.append(normalised(total, layer["inner_norm"]))
            hidden = outputs
        for vector, token in zip(hidden, text[begin + 1 :], strict=False):
            logits = softmax["embedding"] @ vector + softmax["bias"]
            if not cutoffs:
                nll.append(-log_softmax(logits)[token])
                continue
            clusters = softmax["cluster_embedding"] @ vector + softmax["cluster_bias"]
            head = log_softmax(np.concatenate([logits[: cutoffs[0]], clusters]))
            cluster = sum(token >= cutoff for cutoff in cutoffs)
            if not cluster:
                nll.append(-head[token])
                continue
            start, stop = (*cutoffs, VOCABULARY)[cluster - 1 : cluster + 1]
            within = log_softmax(logits[start:stop])[token - start]
            nll.append(-head[-cluster] - within)  # the clusters' columns stand in reverse order
    return np.array(nll)


@pytest.mark.parametrize("cutoffs", [(), CUTOFFS])
def test_is_the_definition(cutoffs):
    params = jax.tree.map(np.asarray, network(cutoffs=cutoffs)[0])
    nll, memory = read(TEXTS, cutoffs=cutoffs)
    np.testing.assert_allclose(nll, [naive(params, text, cutoffs) for text in TEXTS], rtol=1e-11)
    assert memory["filled"] == MEMORY  # of 3 x 4 positions


def test_sees_its_segment_and_the_memory_of_each_layer():
    """Text d has another token at position d than the last text."""
    length = 5 * SEGMENT
    texts = np.random.default_rng(2).integers(0, VOCABULARY, (1, length + 1)).repeat(length + 1, axis=0)
    texts[np.arange(length), np.arange(length)] += 1
    texts %= VOCABULARY
    targets = texts[-1, 1:]  # the same for all
    params, call, start = network()
    memory, parts = start(len(texts)), []
    for begin in range(0, length, SEGMENT):
        piece = np.broadcast_to(targets[begin : begin + SEGMENT], (len(texts), SEGMENT))
        nll, memory = call(params, texts[:, begin : begin + SEGMENT], piece, memory)
        parts.append(nll)
    nll = np.concatenate(parts, axis=1)
    changed = np.abs(nll[:-1] - nll[-1])  # by each position, of each
    position = np.arange(length)
    first = position // SEGMENT * SEGMENT - MEMORY
    seen = (position[:, None] <= position) & (position[:, None] >= first)  # by one layer
    reached = np.linalg.matrix_power(seen.astype(int), SMALL["layers"]) > 0
    assert changed[~reached].max() < 1e-12
    assert changed[reached].min() > 1e-9
    assert not reached[0, -1]


def test_a_memory_of_the_whole_text_makes_segments_one():
    """Distances are relative: where a segment ends does not matter while everything before is remembered."""
    whole, _ = read(TEXTS, segment=12, memory=12)
    parts, memory = read(TEXTS, segment=SEGMENT, memory=12)
    np.testing.assert_allclose(parts, whole, rtol=1e-11)
    assert memory["filled"] == 12


def test_without_memory_segments_are_texts_of_their_own():
    nll, memory = read(TEXTS, memory=0)
    assert memory["hidden"].shape == (2, 2, 0, 6)
    params, call, start = network(memory=0)
    alone, _ = call(params, TEXTS[:, 4:8], TEXTS[:, 5:9], start(2))
    np.testing.assert_allclose(nll[:, 4:8], alone, rtol=1e-12)


def test_what_was_not_filled_is_not_seen():
    params, call, start = network()
    memory = start(2)
    other = {"hidden": jnp.ones_like(memory["hidden"]), "filled": memory["filled"]}
    left, right = (call(params, TEXTS[:, :4], TEXTS[:, 1:5], state)[0] for state in (memory, other))
    np.testing.assert_allclose(left, right, rtol=1e-12)


def gradients(memory, **options):
    """Of the second segment's likelihood, for parameters and memory."""
    params, call, _ = network(**options)

    def loss(params, hidden):
        nll, after = call(params, TEXTS[:, 4:8], TEXTS[:, 5:9], memory | {"hidden": hidden})
        return nll.mean() + after["hidden"].sum()

    return jax.jit(jax.value_and_grad(loss, argnums=(0, 1)))(params, memory["hidden"])


def test_checkpoint_changes_nothing_and_memory_has_no_gradient():
    _, memory = read(TEXTS[:, :5])
    value, (grads, of_memory) = gradients(memory)
    again, (grads_again, _) = gradients(memory, checkpoint=True)
    np.testing.assert_allclose(value, again, rtol=1e-12)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12), grads, grads_again)
    np.testing.assert_array_equal(of_memory, 0)
    assert all(np.abs(leaf).max() > 0 for leaf in jax.tree.leaves(grads))


DROPPING = {"layers": 4, "width": 50, "dropout": 0.25, "attention_dropout": 0.3}


def test_dropout_follows_the_key():
    """Without a key there is none: `test_is_the_definition` has the default rates."""
    params, call, start = network(**DROPPING)
    segment = (params, TEXTS[:, :4], TEXTS[:, 1:5], start(2))
    results = [call(*segment, jax.random.key(seed))[0] for seed in (1, 1, 2)]
    np.testing.assert_array_equal(results[0], results[1])
    assert np.abs(results[0] - results[2]).min() > 0


def test_each_layer_drops_others():
    """With a bias that outweighs all else, a layer's outputs show its last mask."""
    params, call, start = network(**DROPPING)
    layers, rate = params["layers"], DROPPING["dropout"]
    layers = layers | {"contract": layers["contract"] | {"bias": jnp.full_like(layers["contract"]["bias"], 1e4)}}
    layers = layers | {"inner_norm": jax.tree.map(jnp.ones_like, layers["inner_norm"])}
    _, memory = call(params | {"layers": layers}, TEXTS[:, :4], TEXTS[:, 1:5], start(2), jax.random.key(0))
    outputs = np.asarray(memory["hidden"])[1:, :, -4:]  # the inputs of the layers after each
    masks = outputs > outputs.mean(axis=-1, keepdims=True)
    count = masks[0].size
    for mask in masks:
        assert mask.mean() == pytest.approx(1 - rate, abs=5 * np.sqrt(rate * (1 - rate) / count))
    for one, other in ((0, 1), (0, 2), (1, 2)):
        differ = 2 * rate * (1 - rate)
        assert (masks[one] != masks[other]).mean() == pytest.approx(differ, abs=5 * np.sqrt(differ / count))


def test_bfloat16_computes_nearly_the_same():
    exact, _ = read(TEXTS)
    rough, memory = read(TEXTS, dtype=jnp.bfloat16)
    assert memory["hidden"].dtype == jnp.bfloat16
    assert rough.dtype == np.float64  # of the parameters
    error = np.abs(rough - exact).max() / np.abs(exact).max()
    assert 1e-6 < error < 16 * float(jnp.finfo(jnp.bfloat16).eps)


def test_parameters_of_the_published_model():
    """The number that the published code logs for its base model on WikiText-103."""
    make = functools.partial(transformer_xl, cutoffs=(20000, 40000, 200000), vocabulary=267735)
    count = sum(leaf.size for leaf in jax.tree.leaves(nnx.split(nnx.eval_shape(lambda: make(rngs=nnx.Rngs(0))))[1]))
    attention = 410 * 410 * (3 + 1 + 1)  # queries, keys and values; positions; output
    layer = attention + 2 * 410 * 2100 + 2100 + 410 + 2 * 2 * 410
    assert count == 267735 * (410 + 1) + 3 * (410 + 1) + 2 * 410 + 16 * layer == 151107538


def test_initial_values_are_those_of_single_layers():
    make = functools.partial(TransformerXL, VOCABULARY, layers=3, width=40, heads=2, head_width=20, inner=50, memory=1)
    kernel = jax.jit(lambda: nnx.split(make(rngs=nnx.Rngs(0)))[1]["layers"]["expand"]["kernel"][...])()
    assert kernel.dtype == np.float32
    assert kernel.std() == pytest.approx(0.02, rel=5 / np.sqrt(2 * kernel.size))
    assert np.abs(kernel[0] - kernel[1]).max() > 0.02
