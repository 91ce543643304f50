"""Layers and networks in NumPy, by windows and sums, to compare forward passes with; norms are those of the batch."""

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

SAME = "SAME"


def windows(images, size, stride=1, padding=0, fill=0.0):
    """[B, H', W', C, kh, kw]; padding is a number on each side, or SAME, with less before than after."""
    pads = []
    for length, window in zip(images.shape[1:3], size, strict=True):
        total = max((-(-length // stride) - 1) * stride + window - length, 0)
        pads.append((total // 2, total - total // 2) if padding == SAME else (padding, padding))
    padded = np.pad(images, ((0, 0), *pads, (0, 0)), constant_values=fill)
    return sliding_window_view(padded, size, axis=(1, 2))[:, ::stride, ::stride]


def convolve(images, kernel, stride=1, padding=SAME):
    return np.einsum("bhwcij,ijcf->bhwf", windows(images, kernel.shape[:2], stride, padding), kernel, optimize=True)


def max_pool(images, size, stride, padding=0):
    return windows(images, (size, size), stride, padding, -np.inf).max((-1, -2))


def mean_pool(images, size, stride, padding=0):
    return windows(images, (size, size), stride, padding).mean((-1, -2))


def norm(hidden, params, epsilon=1e-5):
    mean, var = hidden.mean((0, 1, 2)), hidden.var((0, 1, 2))
    return (hidden - mean) / np.sqrt(var + epsilon) * params["scale"] + params["bias"]


def relu(hidden):
    return np.maximum(hidden, 0)


def linear(hidden, params):
    return hidden @ params["kernel"] + params["bias"]


def cnn(params, images):
    hidden = images
    for layer in params["convolutions"].values():
        hidden = max_pool(relu(convolve(hidden, layer["kernel"]) + layer["bias"]), 2, 2, SAME)
    return linear(hidden.reshape(len(hidden), -1), params["head"])


def weight_norm_cnn(params, images):
    def kernel(layer):
        lengths = np.sqrt((layer["direction"] ** 2).sum((0, 1, 2)))
        return layer["direction"] / lengths * layer["length"]

    hidden = images
    for layer in params["convolutions"].values():
        hidden = max_pool(relu(convolve(hidden, kernel(layer)) + layer["bias"]), 2, 2, SAME)
    return hidden.reshape(len(hidden), -1) @ kernel(params["head"])[0, 0] + params["head"]["bias"]


def cifar_resnet(params, images, *, strides):
    hidden = relu(norm(convolve(images, params["stem"]["kernel"]), params["norm"]))
    for stride, block in zip(strides, params["blocks"].values(), strict=True):
        (first, second), norms = block["convolutions"].values(), block["norms"]
        inner = relu(norm(convolve(hidden, first["kernel"], stride, 1), norms[0]))
        inner = norm(convolve(inner, second["kernel"], 1, 1), norms[1])
        shortcut, before = np.zeros(inner.shape), hidden.shape[3]
        begin = (inner.shape[3] - before) // 2
        shortcut[..., begin : begin + before] = hidden[:, ::stride, ::stride]
        hidden = relu(inner + shortcut)
    return linear(hidden.mean((1, 2)), params["head"])


def wide_resnet(params, images, *, strides):
    hidden = convolve(images, params["stem"]["kernel"])
    for stride, block in zip(strides, params["blocks"].values(), strict=True):
        (first, second), norms = block["convolutions"].values(), block["norms"]
        active = relu(norm(hidden, norms[0]))
        inner = relu(norm(convolve(active, first["kernel"], stride, 1), norms[1]))
        shortcut = convolve(active, block["shortcut"]["kernel"], stride, 0) if "shortcut" in block else hidden
        hidden = convolve(inner, second["kernel"], 1, 1) + shortcut
    return linear(relu(norm(hidden, params["norm"])).mean((1, 2)), params["head"])


def resnet(params, images, *, strides, stem):
    if stem == "imagenet":
        hidden = relu(norm(convolve(images, params["stem"]["kernel"], 2, 3), params["norm"]))
        hidden = max_pool(hidden, 3, 2, 1)
    else:
        hidden = relu(norm(convolve(images, params["stem"]["kernel"], 1, 1), params["norm"]))
    for stride, block in zip(strides, params["blocks"].values(), strict=True):
        kernels = [layer["kernel"] for layer in block["convolutions"].values()]
        strided = len(kernels) - 2  # the first of two, the second of three
        inner = hidden
        for layer, kernel in enumerate(kernels):
            step = stride if layer == strided else 1
            inner = norm(convolve(inner, kernel, step, len(kernel) // 2), block["norms"][layer])
            inner = relu(inner) if layer < len(kernels) - 1 else inner
        shortcut = hidden
        if "shortcut" in block:
            shortcut = norm(convolve(hidden, block["shortcut"]["kernel"], stride, 0), block["shortcut_norm"])
        hidden = relu(inner + shortcut)
    return linear(hidden.mean((1, 2)), params["head"])


def inception(params, images, *, kinds):
    """`kinds` has a letter for each block, of a to e."""
    first, second = params["stem"].values()
    hidden = inception_chain(first, images, paddings=(0, 0, SAME), strides=(2, 1, 1))
    hidden = inception_chain(second, max_pool(hidden, 3, 2), paddings=(SAME, 0), strides=(1, 1))
    hidden = max_pool(hidden, 3, 2)
    for kind, block in zip(kinds, params["blocks"].values(), strict=True):
        hidden = inception_block(block, hidden, kind)
    return linear(hidden.mean((1, 2)), params["head"])


def inception_chain(chain, hidden, paddings=None, strides=None):
    layers = len(chain["convolutions"])
    paddings, strides = paddings or [SAME] * layers, strides or [1] * layers
    for layer, padding, stride in zip(range(layers), paddings, strides, strict=True):
        hidden = convolve(hidden, chain["convolutions"][layer]["kernel"], stride, padding)
        hidden = relu(norm(hidden, chain["norms"][layer], 1e-3))
    return hidden


def inception_block(block, hidden, kind):
    chains = block["chains"]
    if kind in "bd":  # the last layer of each branch has stride 2, and so has the pooling
        outputs = []
        for chain in chains.values():
            layers = len(chain["convolutions"])
            paddings, strides = [SAME] * (layers - 1) + [0], [1] * (layers - 1) + [2]
            outputs.append(inception_chain(chain, hidden, paddings, strides))
        return np.concatenate([*outputs, max_pool(hidden, 3, 2)], -1)
    outputs = [inception_chain(chains[branch], hidden) for branch in range(3)]
    if kind == "e":
        forked = [[inception_chain(block["forks"][b][side], outputs[b]) for side in (0, 1)] for b in (1, 2)]
        outputs = [outputs[0], *forked[0], *forked[1]]
    return np.concatenate([*outputs, inception_chain(chains[3], mean_pool(hidden, 3, 1, 1))], -1)
