"""Entries that a comparison varies: what flags say, and what is refused."""

import pytest
from lib import tiny

from sgdlab.runs.compare import check_over, read_over


def test_values_are_of_the_type_of_their_entry():
    texts = [
        "optimizer.learning_rate=1,0.05,1", "network.mlp.widths=(8,),(16, 16)", "batch_size=8,16",
        "replacement=true,false", "optimizer.clip_norm=none,1.5", "cluster.kind=gamma,exponential",
    ]  # fmt: skip
    assert read_over(texts, tiny.config()) == {
        "optimizer.learning_rate": [1.0, 0.05],
        "network.mlp.widths": [(8,), (16, 16)],
        "batch_size": [8, 16],
        "replacement": [True, False],
        "optimizer.clip_norm": [None, 1.5],
        "cluster.kind": ["gamma", "exponential"],
    }


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        (["optimizer.learning_rate"], "must be an entry and its values, as in optimizer.learning_rate=0.01,0.05"),
        (["optimizer.learning_rate="], "must be an entry and its values"),
        (["learning_rate=0.1"], r"sweep=learning_rate must be an entry .* did you mean optimizer\.learning_rate\?"),
        (["batch_size=8,x"], "sweep=batch_size='x' must be of type int, as the entry is"),
        (["batch_size=8.5"], r"sweep=batch_size=8\.5 must be of type int"),
        (["seed=1,2"], "sweep=seed must be left out: a comparison sets it by seeds"),
        (["rule.kind=asgd,dana"], r"sweep=rule\.kind must be left out: a comparison sets it by methods"),
        (["batch_size=8", "batch_size=16"], "sweep=batch_size=16 must be joined with sweep=batch_size=8"),
    ],
)
def test_what_cannot_be_swept_is_named(texts, words):
    with pytest.raises(ValueError, match=words):
        read_over(texts, tiny.config())


@pytest.mark.parametrize("values", [[], "0.1"])
def test_values_are_several(values):
    with pytest.raises(ValueError, match=r"sweep=optimizer\.learning_rate=.* must be several values"):
        check_over({"optimizer.learning_rate": values}, tiny.config())
