# my_graph.py
import numpy as np
from sgdlab.graphs import GRAPHS


@GRAPHS.register(title="Star")
def star(num_nodes):
    """Node 0 has all others, and they have node 0."""
    edges = np.zeros((1, num_nodes, num_nodes), bool)
    edges[0, 0, 1:] = edges[0, 1:, 0] = True  # [k, i, j]: in round k, node i gets what node j sends
    return edges
