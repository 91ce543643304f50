"""Simple models that a network has to beat: a histogram of every pixel, and an interpolated trigram of tokens."""

import numpy as np

from sgdlab import arguments

_STRENGTHS = np.geomspace(0.01, 1000, 26)
_HELD_OUT = 10
_MOST_BINS = 2**25
_ITERATIONS = 200
_TOLERANCE = 1e-3


def pixel_histogram(train: np.ndarray, test: np.ndarray, *, levels: int = 256) -> float:
    r"""Score images by a histogram of the levels of every dimension: position and colour, independent of each other.

    .. math:: p_d(x) = \frac{n_d(x) + \alpha\, p(x)}{n + \alpha}, \qquad
              p(x) = \frac{\sum_e n_e(x) + 1}{n D + V},

    where :math:`n_d(x)` counts the images of n with level x in dimension d, the D dimensions of p are those of one
    colour, and V is the number of levels. The strength :math:`\alpha` is, of a geometric grid from 0.01 to 1000, the
    one under which the training images are likeliest if each is left out of :math:`n_d` when it is scored.

    Args:
      train: levels, int[n, H, W, C], each from 0 to `levels` - 1; at least two images.
      test: levels, int[m, H, W, C].
      levels: V.

    Returns:
      The mean negative log-likelihood of a dimension of the test images, in nats.

    Raises:
      ValueError: if shapes or levels do not fit.

    Example:
      >>> images = np.array([0, 1] * 50).reshape(100, 1, 1, 1)
      >>> round(float(pixel_histogram(images, images, levels=2) / np.log(2)), 4)
      1.0
    """
    arguments.whole("levels", levels, least=2)
    for name, images in (("train", train), ("test", test)):
        _check_integers(name, images, levels)
        if images.ndim != 4 or images.shape[1:] != train.shape[1:]:
            raise ValueError(f"{name}.shape={images.shape} must be [images, H, W, C], with one H, W and C for both")
    num_images, *shape = train.shape
    if num_images < 2:
        raise ValueError(f"train.shape={train.shape} must hold at least two images")
    dimensions, colours = int(np.prod(shape)), shape[-1]
    flat, tested = (images.reshape(len(images), dimensions).astype(np.int64) for images in (train, test))
    index = np.arange(dimensions)
    counts = np.bincount((flat + index * levels).ravel(), minlength=dimensions * levels).reshape(dimensions, levels)
    of_colour = counts.reshape(-1, colours, levels).sum(axis=0)
    shared = np.tile((of_colour + 1) / (of_colour.sum(axis=1, keepdims=True) + levels), (dimensions // colours, 1))

    def left_out(strength: float) -> float:
        seen = np.maximum(counts - 1, 0)  # a level that no image has is scored by none
        return float((counts * np.log((seen + strength * shared) / (num_images - 1 + strength))).sum())

    strength = max(_STRENGTHS, key=left_out)
    likelihood = np.log((counts + strength * shared) / (num_images + strength))
    return float(-likelihood[index, tested].mean())


def interpolated_trigram(train: np.ndarray, test: np.ndarray, *, vocabulary: int) -> float:
    r"""Score a text by a trigram model that is interpolated with shorter contexts.

    .. math::

      p_0(w) &= 1 / V, \\
      p_k(w \mid h_k) &= \lambda_k(h_k)\, \frac{n(h_k w)}{n(h_k)} + (1 - \lambda_k(h_k))\, p_{k-1}(w \mid h_{k-1}),
      \qquad k = 1, 2, 3,

    where h is the context of the last k - 1 tokens and n counts the training text. The weight
    :math:`\lambda_k` depends on the order and on the number of binary digits of n(h); it is zero for a context that was
    never seen. The weights are fitted to the last tenth of the training text under the counts of its other nine tenths:
    expectation maximisation of the likelihood times :math:`\lambda (1 - \lambda)` for each weight. The counts of the
    model are those of the whole training text.

    Memory and time grow with the length of the text, and hardly with the vocabulary.

    Args:
      train: tokens, int[T], each from 0 to V - 1; at least 20.
      test: tokens, int[S], at least 2.
      vocabulary: V, at most 2,000,000.

    Returns:
      The mean negative log-likelihood of the test tokens after the first, in nats. The second has no context of two
      tokens and is scored as after one that was never seen.

    Raises:
      ValueError: if an argument is out of its range.

    Source: Jelinek and Mercer 1980.

    Example:
      >>> text = np.tile([0, 1, 2, 1], 100)
      >>> interpolated_trigram(text, text, vocabulary=3) < 0.1  # two tokens determine the next
      True
    """
    arguments.whole("vocabulary", vocabulary, most=2_000_000)
    for name, tokens, least in (("train", train, 2 * _HELD_OUT), ("test", test, 2)):
        _check_integers(name, tokens, vocabulary)
        if tokens.ndim != 1 or len(tokens) < least:
            raise ValueError(f"{name}.shape={tokens.shape} must be [T], with T of at least {least}")
    cut = len(train) - len(train) // _HELD_OUT
    weights = _fitted(*_frequencies(train[:cut], train[cut - 2 :], vocabulary), vocabulary)
    frequencies, seen = _frequencies(train, np.concatenate([[-1], test]), vocabulary)
    return float(-np.log(_mixed(weights, frequencies, seen, vocabulary)[-1]).mean())


def _check_integers(name: str, values: np.ndarray, most: int) -> None:
    if not np.issubdtype(values.dtype, np.integer):
        raise ValueError(f"{name}.dtype={values.dtype} must be one of whole numbers")
    if values.size == 0 or values.min() < 0 or values.max() >= most:
        extremes = f"{values.min()} to {values.max()}" if values.size else "none"
        raise ValueError(f"{name}={extremes} must be whole numbers from 0 to {most - 1}")


def _frequencies(train: np.ndarray, text: np.ndarray, vocabulary: int) -> tuple[np.ndarray, np.ndarray]:
    """Return n(h w) / n(h) of each token of a text from the third on, and the class of n(h), [3, S] each.

    A context that holds the token -1 was never seen. n(h) counts the places where a token follows.
    """
    shares, classes = [], []
    for order in (1, 2, 3):
        context, following = _keys(train, order - 1, vocabulary), _keys(train, order, vocabulary)
        asked = _keys(text[3 - order :], order, vocabulary)
        known = _keys(text[3 - order :], order - 1, vocabulary)[: len(asked)]
        both = _counts(following, asked, vocabulary**order)
        alone = _counts(context[: len(following)], known, vocabulary ** (order - 1))
        shares.append(both / np.maximum(alone, 1))
        classes.append(np.frexp(alone)[1])  # binary digits of a whole number
    return np.stack(shares), np.stack(classes)


def _keys(tokens: np.ndarray, order: int, vocabulary: int) -> np.ndarray:
    """Return a whole number for each run of so many tokens; -1 where one of them is."""
    length = len(tokens) - order + 1 if order else len(tokens)
    keys = np.zeros(length, np.int64)
    missing = np.zeros(length, bool)
    for shift in range(order):
        part = tokens[shift : shift + length].astype(np.int64)
        keys, missing = keys * vocabulary + part, missing | (part < 0)
    return np.where(missing, -1, keys)


def _counts(keys: np.ndarray, asked: np.ndarray, number: int) -> np.ndarray:
    """Return how often each key that is asked for occurs; keys are below `number`, and -1 occurs never."""
    if number <= _MOST_BINS:
        return np.where(asked < 0, 0, np.bincount(keys, minlength=number)[asked])
    known, counts = np.unique(keys, return_counts=True)
    index = np.minimum(np.searchsorted(known, asked), len(known) - 1)
    return np.where(known[index] == asked, counts[index], 0)


def _mixed(weights: np.ndarray, frequencies: np.ndarray, classes: np.ndarray, vocabulary: int) -> list[np.ndarray]:
    """Return p_0 to p_3 of each token, [S] each."""
    likelihoods = [np.full(frequencies.shape[1], 1 / vocabulary)]
    for order in range(3):
        weight = weights[order, classes[order]]
        likelihoods.append(weight * frequencies[order] + (1 - weight) * likelihoods[-1])
    return likelihoods


def _fitted(frequencies: np.ndarray, classes: np.ndarray, vocabulary: int) -> np.ndarray:
    """Return the weights of each order and class, [3, 64], by expectation maximisation."""
    weights = np.full((3, 64), 0.5)
    weights[:, 0] = 0  # contexts that were never seen
    for _ in range(_ITERATIONS):
        likelihoods = _mixed(weights, frequencies, classes, vocabulary)
        before = weights.copy()
        reached = np.ones(frequencies.shape[1])  # the probability that longer contexts did not give the token
        for order in (2, 1, 0):
            chosen = reached * before[order, classes[order]] * frequencies[order] / likelihoods[order + 1]
            of_class = [np.bincount(classes[order], part, minlength=64)[1:] for part in (chosen, reached)]
            weights[order, 1:] = (of_class[0] + 1) / (of_class[1] + 2)
            reached = reached - chosen
        if np.abs(weights - before).max() < _TOLERANCE:
            break
    for order in range(3):
        present = np.bincount(classes[order], minlength=64) > 0
        for number in range(2, 64):  # counts of the whole text can be larger than all that the weights were fitted to
            if not present[number]:
                weights[order, number] = weights[order, number - 1]
    return weights
