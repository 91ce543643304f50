"""WikiText-103 is prepared from its archive without TensorFlow: the words in order, numbered by frequency."""

import collections
import sys
import zipfile

import numpy as np
import pytest

from sgdlab import data
from sgdlab.data import preparing, wikitext_builder

WORDS = [f"word{number}" for number in range(50)]


def text(seed, lines):
    generator = np.random.default_rng(seed)
    drawn = (generator.zipf(1.5, generator.integers(0, 12)) % len(WORDS) for _ in range(lines))
    return "".join(" " + " ".join(WORDS[number] for number in line) + " \n" for line in drawn)


TEXTS = {"train": text(0, 300), "validation": text(1, 20), "test": text(2, 30) + "unheard of \n"}
MEMBERS = {"train": "wiki.train.tokens", "validation": "wiki.valid.tokens", "test": "wiki.test.tokens"}


def naive(split):
    return [word for line in TEXTS[split].splitlines() for word in (*line.split(), "<eos>")]


def save(directory):
    preparing.by_hand(directory).mkdir(parents=True)
    path = preparing.by_hand(directory) / "wikitext-103-v1.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for split, name in MEMBERS.items():
            archive.writestr(f"wikitext-103/{name}", TEXTS[split])
    return path


@pytest.fixture(autouse=True)
def of_this_size(monkeypatch):
    monkeypatch.setattr(wikitext_builder.Wikitext103, "TOKENS", {split: len(naive(split)) for split in TEXTS})
    monkeypatch.setattr(wikitext_builder.Wikitext103, "WORDS", len(set(naive("train"))))
    monkeypatch.setattr(wikitext_builder, "_PIECE", 100)


def test_words_in_order_by_frequency(tmp_path):
    save(tmp_path)
    counts = collections.Counter(naive("train"))
    ranked = sorted(counts, key=lambda word: (-counts[word], word))
    for again in (False, True):
        if again:  # from the arrays beside the records
            sys.modules["sgdlab.data.text"]._wikitext.cache_clear()
        for split in ("test", "validation"):
            found = data.wikitext103(data_dir=str(tmp_path), segment=7, test=split)
            assert found.vocabulary == len(ranked)
            assert [ranked[number] for number in found.train.tokens] == naive("train")
            expected = [word if word in counts else ranked[0] for word in naive(split)]
            assert [ranked[number] for number in found.test.tokens] == expected
        assert isinstance(found.train.tokens, np.memmap) == again
    assert len(found.train) == (len(naive("train")) - 1) // 7
    assert "tensorflow" not in sys.modules


@pytest.mark.parametrize("state", ["missing", "cut off", "another", "raw"])
def test_an_archive_that_is_missing_or_wrong(state, tmp_path, monkeypatch):
    if state != "missing":
        path = save(tmp_path)
        if state == "cut off":
            path.write_bytes(path.read_bytes()[:-100])
        elif state == "another":
            monkeypatch.setitem(TEXTS, "train", TEXTS["train"] + "one more")
            path.unlink()
            path.parent.rmdir()
            save(tmp_path)
        else:
            with zipfile.ZipFile(path, "w") as archive:
                archive.writestr("wikitext-103-raw/wiki.train.raw", "text")
    match = rf"^data_dir={str(tmp_path)!r} must hold wikitext103, .*wikitext-103-v1.zip"
    with pytest.raises(ValueError, match=match) as caught:
        data.wikitext103(data_dir=str(tmp_path))
    message = str(caught.value)
    assert len(message.splitlines()) == 1
    assert str(preparing.by_hand(tmp_path)) in message
    assert ("another file" in message) == (state != "missing")
