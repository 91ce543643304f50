"""Graphs of peers: who sends to whom, with which weights, and how fast that mixes.

A graph is `bool[K, N, N]`: [k, i, j] says whether node i gets what node j sends, in rounds k, k + K, k + 2 K and so on.
"""

from sgdlab.graphs.family import GRAPHS
from sgdlab.graphs.graph import (
    Size,
    check_connected,
    complete,
    directed,
    exponential,
    make,
    one_peer_exponential,
    random,
    ring,
    size,
    torus,
)
from sgdlab.graphs.spectrum import acceleration, resistances, spectral_gap
from sgdlab.graphs.weights import doubly_stochastic, metropolis, pair_rates, push_sum_weights, sent_in_equal_shares

__all__ = [
    "GRAPHS",
    "Size",
    "acceleration",
    "check_connected",
    "complete",
    "directed",
    "doubly_stochastic",
    "exponential",
    "make",
    "metropolis",
    "one_peer_exponential",
    "pair_rates",
    "push_sum_weights",
    "random",
    "resistances",
    "ring",
    "sent_in_equal_shares",
    "size",
    "spectral_gap",
    "torus",
]
