"""Graphs of peers: their registry."""

from sgdlab.registry import Registry

GRAPHS = Registry(
    "graph", given={"num_nodes": "cluster.num_workers", "density": "", "seed": "seed"}, modules=("sgdlab.graphs.graph",)
)
"""Graphs of peers: `(num_nodes) -> bool[K, N, N]`; what a protocol's entry `graph` names. One that names `density` or
`seed` is given the protocol's."""
