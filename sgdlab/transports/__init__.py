"""Transports: the seconds that messages between workers and a server take, and those that the server works for them.

A protocol with a server takes one as `transport=`, such as `protocols.asynchronous(runtimes, transport=star(...))`.
"""

from sgdlab.transports.collectives import Racks, all_reduce, halving, hierarchical, ring, tree
from sgdlab.transports.family import TRANSPORTS, Sizes
from sgdlab.transports.links import Fifo, Flows
from sgdlab.transports.presets import ethernet_10g, ethernet_100g, infiniband_400g, internet_100m_30ms, wan_1g_50ms
from sgdlab.transports.star import ServerCosts, Star, Uplinks, free, star

__all__ = [
    "TRANSPORTS",
    "Fifo",
    "Flows",
    "Racks",
    "ServerCosts",
    "Sizes",
    "Star",
    "Uplinks",
    "all_reduce",
    "ethernet_10g",
    "ethernet_100g",
    "free",
    "halving",
    "hierarchical",
    "infiniband_400g",
    "internet_100m_30ms",
    "ring",
    "star",
    "tree",
    "wan_1g_50ms",
]
