"""Custom graphs: a part like others, whose code counts, and what is refused."""

import sys

import numpy as np
import pytest
from lib import tiny

from sgdlab import graphs
from sgdlab.registry import GRAPHS
from sgdlab.runs import digests, parts, resolve


@pytest.fixture(autouse=True)
def own_registry(monkeypatch):
    monkeypatch.setattr(GRAPHS, "_parts", dict(GRAPHS))


def test_a_graph_is_given_what_it_names():
    @GRAPHS.register("lines", title="Lines")
    def lines(num_nodes, *, seed=0):
        edges = np.zeros((1, num_nodes, num_nodes), bool)
        edges[0, 0, 1 + seed] = True
        return edges

    assert np.argwhere(graphs.make("lines", 5, seed=2)).tolist() == [[0, 0, 3]]


def test_the_size_of_ones_own_graph_is_counted():
    @GRAPHS.register("spokes", title="Spokes")
    def spokes(num_nodes):
        edges = np.zeros((2, num_nodes, num_nodes), bool)
        edges[:, 0, 1:] = edges[:, 1:, 0] = True
        if num_nodes == 3:
            raise ValueError("num_nodes=3 must be another")
        return edges

    assert graphs.size("spokes", 64, density=0.5) == (1 + 126 / 64, 2)
    # What cannot be known is not refused: neither what is too large to make, nor what its protocol will refuse.
    assert graphs.size("spokes", 2**15, density=0.5) == graphs.size("spokes", 3, density=0.5) == (2, 1)
    assert graphs.size("none", 5, density=0.5).edges == 5


def test_zeros_and_ones_are_edges_and_a_node_counts_itself_anyway():
    mine = np.eye(3, dtype=int)[None] + np.roll(np.eye(3, dtype=int), 1, axis=0)
    GRAPHS.register("mine", title="Mine")(lambda num_nodes: mine)
    edges = graphs.make("mine", 3)
    assert edges.dtype == bool
    assert np.argwhere(edges[0]).tolist() == [[0, 2], [1, 0], [2, 1]]
    assert mine.trace(axis1=1, axis2=2) == 3  # theirs is as it was


@pytest.mark.parametrize(
    ("edges", "words"),
    [
        (None, "returned None: is `return` missing"),
        (np.zeros((3, 3), bool), r"not bool\[3, 3\]: `edges\[None\]` is that of a single round"),
        (np.zeros((1, 3, 3)), r"not float64\[1, 3, 3\] "),
        (np.zeros((2, 4, 4), bool), r"must return bool\[K, 3, 3\] for 3 nodes"),
        (np.full((1, 3, 3), 2), r"not int64\[1, 3, 3\] "),
    ],
)
def test_what_is_no_graph_is_refused_by_its_name(edges, words):
    GRAPHS.register("mine", title="Mine")(lambda num_nodes: edges)
    with pytest.raises(ValueError, match=f"^graph='mine' .*{words}") as error:
        graphs.make("mine", 3)
    assert "test_own_graphs.py" in str(error.value)


def test_the_code_of_ones_own_graph_counts_and_of_ours_does_not(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    file, text = tmp_path / "my_own_graph.py", (
        "import numpy as np\nfrom sgdlab.registry import GRAPHS\n\n\n@GRAPHS.register('mine', title='Mine')\n"
        "def mine(num_nodes):\n    return np.roll(np.eye(num_nodes, dtype=bool), 1, axis=0)[None]\n"
    )  # fmt: skip
    found = []
    for written in (text, text.replace("), 1,", "), 2,")):
        file.write_text(written)
        parts.load(str(file))
        found.append(digests.of_run(resolve(tiny.config(method="sgp", protocol__sgp__graph="mine"))))
    assert found[0]["graph"] != found[1]["graph"]
    assert found[0] | found[1] == found[0] | {"graph": found[1]["graph"]}
    assert "graph" not in digests.of_run(resolve(tiny.config(method="sgp")))
    assert parts.outside()["my_own_graph"] == str(file)
    del sys.modules["my_own_graph"]
