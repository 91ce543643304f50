"""Names on a command line: what a wrong one may have been meant for."""

import pytest

from sgdlab import arguments
from sgdlab.commands import flag_names

ENTRIES = [
    "epochs", "batch_size", "cluster.num_workers", "cluster.kind", "data.kind", "network.kind",
    "optimizer.learning_rate", "optimizer.adam_learning_rate", "rule.gap_aware.granularity",
    "protocol.softsync.gradients_per_update", "protocol.rennala.gradients_per_update",
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("learning_rate", ["optimizer.learning_rate"]),  # the end of a name
        ("clutser.num_workers", ["cluster.num_workers"]),  # nearly the whole of one
        ("epoch", ["epochs"]),
        ("granularty", ["rule.gap_aware.granularity"]),  # nearly the end of one
        ("gradients_per_update", ["protocol.softsync.gradients_per_update", "protocol.rennala.gradients_per_update"]),
        ("lr", ["optimizer.learning_rate"]),  # another word for it
        ("workers", ["cluster.num_workers"]),
        ("dataset", ["data.kind"]),
        ("optimizer.learning_rates", ["optimizer.learning_rate"]),
        ("colour", []),
    ],
)
def test_the_nearest_entries(name, meant):
    assert arguments.nearest(name, ENTRIES) == meant


def test_a_word_that_begins_with_dashes_is_no_value():
    words = ["--config.replacement", "--parts=a.py,b.py", "--workdir", "here", "stray"]
    assert flag_names.values(words, "parts") == ["a.py", "b.py"]
    assert flag_names.values(words, "workdir") == ["here"]
    assert flag_names.values(words, "config.replacement") == []
    assert flag_names.without(words, "workdir") == ["--config.replacement", "--parts=a.py,b.py", "stray"]
