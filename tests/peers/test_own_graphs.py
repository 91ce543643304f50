"""Custom graphs: a part like others, whose code counts, and what is refused."""

import sys

import numpy as np
import pytest
from lib import tiny

from sgdlab import graphs
from sgdlab.registry import GRAPHS, PROTOCOLS
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


ON_GRAPHS = ("d_psgd", "ad_psgd", "sgp", "a2cid2")


def _schedule(protocol, edges):
    GRAPHS.register("mine", title="Mine")(lambda num_nodes: edges)
    return PROTOCOLS.make(protocol, {"graph": "mine"}, runtimes=np.ones((6, edges.shape[1])), num_gradients=6, seed=0)


@pytest.mark.parametrize("protocol", ON_GRAPHS)
def test_a_graph_in_pieces_is_refused(protocol):
    edges = np.zeros((1, 4, 4), bool)
    for pieces in ([], [(0, 1), (1, 0), (2, 3), (3, 2)]):
        for one, other in pieces:
            edges[0, one, other] = True
        words = rf"^--config\.protocol\.{protocol}\.graph='mine' must connect all 4 nodes: nothing that node 0 sends"
        with pytest.raises(ValueError, match=rf"{words} gets to node {2 if pieces else 1}$"):
            _schedule(protocol, edges)


def test_push_sum_needs_a_way_back_and_pairs_do_not():
    edges = np.zeros((1, 3, 3), bool)
    edges[0, 1, 0] = edges[0, 2, 1] = True  # from 0 to 1 to 2
    with pytest.raises(ValueError, match=r"nothing that node 1 sends gets to node 0$"):
        _schedule("sgp", edges)
    edges[0, 0, 1] = True
    with pytest.raises(ValueError, match=r"nothing that node 2 sends gets to node 0$"):
        _schedule("sgp", edges)
    for protocol in ("ad_psgd", "a2cid2"):
        assert _schedule(protocol, edges).num_gradients == 6


@pytest.mark.parametrize("protocol", ON_GRAPHS)
def test_rounds_connect_together_and_one_node_alone_is_connected(protocol):
    pairs = np.zeros((2, 4, 4), bool)
    for number, one, other in ((0, 0, 1), (0, 2, 3), (1, 1, 2), (1, 3, 0)):
        pairs[number, one, other] = pairs[number, other, one] = True
    for edges in (pairs, graphs.one_peer_exponential(6), np.zeros((1, 1, 1), bool)):
        assert _schedule(protocol, edges).num_gradients == 6


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
