"""All-reduces, by algorithm: the seconds from when the last worker comes until all have the mean."""

import dataclasses
import math
from typing import Literal

from sgdlab import arguments
from sgdlab.bounds import Count, NotNegative
from sgdlab.transports.family import TRANSPORTS, Sizes
from sgdlab.transports.star import Star, bytes_per_second

Algorithm = Literal["ring", "tree", "halving", "hierarchical"]


@dataclasses.dataclass(frozen=True)
class Racks:
    """The racks of a hierarchical all-reduce, whose rings of racks share uplinks.

    Attributes:
      size: workers of a rack.
      uplink_gbits: rate of a rack's uplink, Gbit/s. None: without limit.
      uplink_ms: latency between racks, milliseconds.
    """

    size: int = 8
    uplink_gbits: float | None = None
    uplink_ms: float = 0.0


def ring(nodes: int, size: float, rate: float, latency: float) -> float:
    r"""Return the seconds of a ring all-reduce, :math:`2 (N - 1) (\alpha + b / (N r))`.

    Args:
      nodes: N.
      size: b, bytes.
      rate: r, bytes per second of each node's link, each way.
      latency: alpha, seconds of a message one way.

    Example:
      >>> ring(4, 8e6, 1e6, 0.5)
      15.0
    """
    return 2 * (nodes - 1) * (latency + size / nodes / rate)


def tree(nodes: int, size: float, rate: float, latency: float) -> float:
    r"""Return the seconds of a binary tree, up and down: :math:`2 \lceil \log_2 N \rceil (\alpha + b / r)`.

    Arguments are those of `ring`.
    """
    return 2 * math.ceil(math.log2(nodes)) * (latency + size / rate)


def halving(nodes: int, size: float, rate: float, latency: float) -> float:
    r"""Return the seconds of recursive halving and doubling.

    .. math:: 2 \lceil \log_2 N \rceil \alpha + 2 (N - 1) b / (N r)

    Arguments are those of `ring`. Exact where N is a power of two (Rabenseifner 2004); else a lower bound.
    """
    return 2 * math.ceil(math.log2(nodes)) * latency + 2 * (nodes - 1) / nodes * size / rate


def hierarchical(nodes: int, size: float, rate: float, latency: float, racks: Racks) -> float:
    """Return the seconds of a reduce-scatter in each rack, a ring of racks for each shard, and an all-gather in each.

    The shards of a rack share its uplink. Arguments are those of `ring`; `racks` must divide the nodes.
    """
    number, uplink = nodes // racks.size, bytes_per_second("racks.uplink_gbits", racks.uplink_gbits)
    delay = latency + arguments.real("racks.uplink_ms", racks.uplink_ms, least=0) / 1e3
    inside = (racks.size - 1) * (latency + size / racks.size / rate)
    shard, slowest = size / racks.size, min(rate, uplink / racks.size)
    return 2 * inside + 2 * (number - 1) * (delay + shard / number / slowest)


@TRANSPORTS.register(title="All-reduce", source="Thakur et al. 2005; Patarasuk and Yuan 2009")
def all_reduce(
    *,
    num_workers: Count,
    sizes: Sizes | None = None,
    gradient_bytes: NotNegative | None = None,
    algorithm: Algorithm = "ring",
    gbits: float = 100.0,
    latency_ms: NotNegative = 0.01,
    buckets: Count = 1,
    hidden_ms: NotNegative = 0.0,
    racks: Racks = Racks(),
) -> Star:
    r"""Make an all-reduce: whoever comes last begins it, and every update is that many seconds later.

    No part of a ring hides behind waiting: it ends :math:`2 (N - 1) (\alpha + b / (N r))` after the last worker has
    come, however early the others were. For protocols in rounds; those that update with single gradients refuse.

    Args:
      num_workers: N.
      sizes: of messages, where the next does not say.
      gradient_bytes: b, bytes that each worker has. None: as the network's parameters, compressed, make it.
      algorithm: "ring", "tree", "halving" (and doubling), or "hierarchical" (over racks).
      gbits: rate of each worker's link, each way, Gbit/s.
      latency_ms: of a message, one way, milliseconds.
      buckets: parts of the gradient that are averaged one after the other, each as soon as it is computed.
      hidden_ms: milliseconds of the backward pass during which they are; the last bucket is never hidden.
      racks: of the hierarchical algorithm.

    Raises:
      ValueError: where a number is out of its range, or racks do not divide the workers.

    Example:
      >>> round(all_reduce(num_workers=64, gradient_bytes=1e8, gbits=100.0, latency_ms=0.005).update_seconds, 6)
      0.01638
    """
    size = gradient_bytes if gradient_bytes is not None else sizes.gradient if sizes else 0.0
    arguments.one_of("algorithm", algorithm, ("ring", "tree", "halving", "hierarchical"))
    link, part = (bytes_per_second("gbits", gbits), latency_ms / 1e3), size / buckets
    if num_workers == 1:
        each, share = 0.0, 0.0
    elif algorithm == "hierarchical":
        arguments.whole("racks.size", racks.size, most=num_workers)
        if num_workers % racks.size:
            raise ValueError(f"racks.size={racks.size} must divide the number of workers, {num_workers}")
        each, number = hierarchical(num_workers, part, *link, racks), num_workers // racks.size
        share = 2 * (racks.size - 1) / racks.size + 2 * (number - 1) / number / racks.size
    else:
        each = {"ring": ring, "tree": tree, "halving": halving}[algorithm](num_workers, part, *link)
        share = 2.0 if algorithm == "tree" else 2 * (num_workers - 1) / num_workers
    return Star(
        latency=(0.0,) * num_workers,
        gradient_bytes=share * size,  # of which every worker sends, and receives, as much
        parameter_bytes=share * size,
        update_seconds=max(buckets * each - hidden_ms / 1e3, each),
        collective=True,
    )
