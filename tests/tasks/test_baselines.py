"""The baselines are distributions, the ones of their formulas, and as good as the models they estimate."""

import collections
import itertools
import math

import numpy as np
import pytest

from sgdlab.tasks.baselines import interpolated_trigram, pixel_histogram


def images(*levels):
    return np.array(levels).reshape(len(levels), 1, 1, -1)


STRENGTHS = [0.01 * 10 ** (exponent / 5) for exponent in range(26)]


class TestPixelHistogram:
    def test_is_the_formula_with_loops(self):
        generator = np.random.default_rng(0)
        train, test = (generator.binomial(3, 0.3, (size, 2, 3, 2)) for size in (9, 4))
        train[..., 1] //= 2  # another distribution of the second colour
        counts = collections.Counter((*place, level) for image in train for place, level in np.ndenumerate(image))
        places = list(np.ndindex(2, 3, 2))

        def shared(place, level):
            same = sum(counts[*other, level] for other in places if other[2] == place[2])
            return (same + 1) / (9 * 6 + 4)

        def left_out(a):
            return sum(
                count * math.log((count - 1 + a * shared(place, level)) / (8 + a))
                for (*place, level), count in counts.items()
            )

        a = max(STRENGTHS, key=left_out)
        terms = [
            -math.log((counts[*place, level] + a * shared(place, level)) / (9 + a))
            for image in test
            for place, level in np.ndenumerate(image)
        ]
        assert pixel_histogram(train, test, levels=4) == pytest.approx(np.mean(terms), rel=1e-12)

    def test_is_a_distribution(self):
        train = images((0, 1), (2, 1), (2, 3))
        every = itertools.product(range(4), repeat=2)
        total = sum(math.exp(-2 * pixel_histogram(train, images(pair), levels=4)) for pair in every)
        assert total == pytest.approx(1, rel=1e-12)

    @pytest.mark.parametrize(
        ("train", "test", "message"),
        [
            (images(0, 4), images(0), r"^train=0 to 4"),
            (images(0, 1), images(-1), r"^test=-1 to -1"),
            (images(0), images(0), r"^train\.shape=\(1, 1, 1, 1\)"),
            (images(0, 1), images((0, 1)), r"^test\.shape=\(1, 1, 1, 2\)"),
            (images(0.0, 0.5), images(0), r"^train\.dtype=float64"),
        ],
    )
    def test_refuses(self, train, test, message):
        with pytest.raises(ValueError, match=message):
            pixel_histogram(train, test, levels=4)


def naive_trigram(train, test, vocabulary):
    """The definition with dictionaries, a token at a time."""
    cut = len(train) - len(train) // 10
    weights = collections.defaultdict(lambda: 0.5)

    def counted(text):
        return {
            order: collections.Counter(tuple(text[i : i + order]) for i in range(len(text) - order + 1))
            for order in (1, 2, 3)
        }

    def seen(counts, context):
        return sum(counts[len(context) + 1][*context, token] for token in range(vocabulary))

    def terms(counts, history, token):
        """The class of each context, the frequency after it, and the mixture."""
        mixed, found = 1 / vocabulary, []
        for order in (1, 2, 3):
            context = tuple(history[len(history) - order + 1 :])
            total = seen(counts, context) if len(history) >= order - 1 else 0
            frequency = counts[order][*context, token] / total if total else 0.0
            number = total.bit_length()
            weight = weights[order, number] if total else 0.0
            mixed = weight * frequency + (1 - weight) * mixed
            found.append((order, number, weight * frequency / mixed))
        return found, mixed

    counts = counted(train[:cut])
    for _ in range(200):
        chosen, reached = collections.Counter(), collections.Counter()
        for i in range(cut, len(train)):
            share = 1.0
            for order, number, part in reversed(terms(counts, train[i - 2 : i], train[i])[0]):
                chosen[order, number] += share * part
                reached[order, number] += share
                share *= 1 - part
        updated = {key: (chosen[key] + 1) / (total + 2) for key, total in reached.items() if key[1]}
        change = max(abs(updated[key] - weights[key]) for key in updated)
        weights.update(updated)
        if change < 1e-3:
            break
    fitted = set(updated)
    for order, number in itertools.product((1, 2, 3), range(2, 20)):
        if (order, number) not in fitted:
            weights[order, number] = weights[order, number - 1]
    counts = counted(train)
    return np.mean([-math.log(terms(counts, test[max(i - 2, 0) : i], test[i])[1]) for i in range(1, len(test))])


class TestInterpolatedTrigram:
    @pytest.mark.parametrize("vocabulary", [5, 400])  # counts in bins, and sorted
    def test_is_the_definition(self, vocabulary):
        generator = np.random.default_rng(0)
        train, test = (np.minimum(generator.geometric(0.5, size), 4) for size in (130, 20))
        train[1::3], test[1::3] = train[:-1:3], test[:-1:3]  # that a context tells something
        expected = naive_trigram(train.tolist(), test.tolist(), vocabulary)
        score = interpolated_trigram(train.astype(np.uint8), test.astype(np.uint8), vocabulary=vocabulary)
        assert score == pytest.approx(expected, rel=1e-9)

    def test_is_a_distribution(self):
        train = np.random.default_rng(1).integers(0, 3, 50)
        texts = [np.array([1, *following]) for following in itertools.product(range(4), repeat=2)]
        total = sum(math.exp(-2 * interpolated_trigram(train, text, vocabulary=4)) for text in texts)
        assert total == pytest.approx(1, rel=1e-9)

    def test_comes_close_to_the_text_s_own_entropy(self):
        """A text in which two tokens determine the distribution of the next."""
        generator = np.random.default_rng(2)
        table = generator.dirichlet(np.full(4, 0.5), size=(4, 4))
        text, uniform = [0, 1], generator.random(40_000)
        for value in uniform:
            probabilities = table[text[-2], text[-1]]
            text.append(min(int(np.searchsorted(probabilities.cumsum(), value)), 3))
        text = np.array(text)
        train, test = text[:30_000], text[30_000:]
        truth = -np.log(table[test[:-2], test[1:-1], test[2:]])
        score = interpolated_trigram(train, test, vocabulary=4)
        assert score == pytest.approx(truth.mean(), abs=0.01)  # 48 parameters, half a nat each, of 30,000 tokens

    @pytest.mark.parametrize(
        ("train", "test", "vocabulary", "message"),
        [
            (np.zeros(30, int), np.zeros(5, int), 3_000_000, "^vocabulary=3000000"),
            (np.full(30, 3), np.zeros(5, int), 3, "^train=3 to 3"),
            (np.zeros(19, int), np.zeros(5, int), 3, r"^train\.shape=\(19,\)"),
            (np.zeros(30, int), np.zeros(1, int), 3, r"^test\.shape=\(1,\)"),
            (np.zeros(30), np.zeros(5, int), 3, r"^train\.dtype=float64"),
        ],
    )
    def test_refuses(self, train, test, vocabulary, message):
        with pytest.raises(ValueError, match=message):
            interpolated_trigram(train, test, vocabulary=vocabulary)
