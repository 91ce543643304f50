"""Workers around a server, whose network card they share; and racks or regions, whose uplinks they share before."""

import dataclasses
import math
from typing import Literal

from sgdlab import arguments
from sgdlab.bounds import Count, NotNegative
from sgdlab.traffic import Traffic
from sgdlab.transports.family import TRANSPORTS, Sizes
from sgdlab.transports.links import Fifo, Flows

Sharing = Literal["fifo", "fair"]

_GBIT = 1e9 / 8
"""Bytes of a gigabit."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Star:
    """A server and its workers, with the seconds that messages and the server's work take.

    A gradient's life: the server lets a worker begin -> the server's outgoing link -> latency -> the worker computes ->
    latency -> the server's incoming link -> the server's queue, in which each gradient takes `receive_seconds` and each
    update `update_seconds`. All is in bytes, seconds and bytes per second.

    Attributes:
      gradient_bytes: size of what a worker sends.
      parameter_bytes: size of what the server answers.
      server_rate: of the server's link, each way.
      worker_rate: of each worker's own link, each way.
      latency: of each worker's messages, one way, seconds.
      sharing: messages cross the server's link one after the other ("fifo"), or all at once with max-min fair shares.
      receive_seconds: of the server, for each gradient.
      update_seconds: of the server, for each update.
      overlap: share of a gradient's compute time during which its message is sent already.
      groups: of each worker, the rack or region that it is in.
      uplinks: of each group, the rate of the link that its workers share, each way.
      collective: workers average among themselves: `update_seconds` are those of an all-reduce.

    Raises:
      ValueError: where a number is negative, a rate is 0, or groups meet a link that is not shared fairly.

    Example:
      >>> slow = Star(latency=(0.0,) * 8, gradient_bytes=1e8, server_rate=1e9)
      >>> slow.traffic.gradient_seconds
      0.1
    """

    latency: tuple[float, ...]
    gradient_bytes: float = 0.0
    parameter_bytes: float = 0.0
    server_rate: float = math.inf
    worker_rate: float = math.inf
    sharing: Sharing = "fifo"
    receive_seconds: float = 0.0
    update_seconds: float = 0.0
    overlap: float = 0.0
    groups: tuple[int, ...] = ()
    uplinks: tuple[float, ...] = ()
    collective: bool = False

    def __post_init__(self) -> None:
        for name in ("gradient_bytes", "parameter_bytes", "receive_seconds", "update_seconds"):
            arguments.real(name, getattr(self, name), least=0)
        arguments.real("overlap", self.overlap, least=0, most=1)
        for name in ("server_rate", "worker_rate"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name}={getattr(self, name)} must be above 0")
        if self.sharing not in ("fifo", "fair"):
            raise ValueError(f"sharing={self.sharing!r} must be 'fifo' or 'fair'")
        if self.groups and self.sharing != "fair":
            raise ValueError(f"sharing={self.sharing!r} must be 'fair' where workers share uplinks")

    @property
    def num_workers(self) -> int:
        """N, number of workers."""
        return len(self.latency)

    @property
    def is_free(self) -> bool:
        """Tell whether nothing costs any time."""
        links = any(link.takes_time for link in self.links())
        return not (links or any(self.latency) or self.receive_seconds or self.update_seconds)

    @property
    def traffic(self) -> Traffic:
        """Return what every message costs, for the schedule."""
        return Traffic(
            gradient_bytes=self.gradient_bytes,
            parameter_bytes=self.parameter_bytes,
            gradient_seconds=self.gradient_bytes / self.server_rate,
            parameter_seconds=self.parameter_bytes / self.server_rate,
            receive_seconds=self.receive_seconds,
            update_seconds=self.update_seconds,
        )

    def links(self) -> tuple[Fifo | Flows, Fifo | Flows]:
        """Return the outgoing and the incoming side of the server's link, empty."""
        sizes = self.parameter_bytes, self.gradient_bytes
        rates = min(self.server_rate, self.worker_rate, *self.uplinks)
        if self.sharing == "fair" and rates < math.inf:
            uplinks = self.uplinks or (math.inf,)
            out, into = (Flows(self.server_rate, self.worker_rate, uplinks) for _ in sizes)
            return out, into
        out, into = (Fifo(size, self.server_rate, self.worker_rate) for size in sizes)
        return out, into


@TRANSPORTS.register(title="Free messages")
def free(*, num_workers: Count) -> Star:
    """Make a star in which messages, and what the server does with them, take no time.

    Args:
      num_workers: N.

    Example:
      >>> free(num_workers=2).is_free
      True
    """
    return Star(latency=(0.0,) * num_workers)


@dataclasses.dataclass(frozen=True)
class ServerCosts:
    """Holds what a message, and an update, cost at the server.

    Attributes:
      gbits: rate of its network card, each way, Gbit/s. None: without limit.
      receive_ms: milliseconds that it works for each gradient.
      update_ms: milliseconds that it works for each update.
    """

    gbits: float | None = None
    receive_ms: float = 0.0
    update_ms: float = 0.0


@dataclasses.dataclass(frozen=True)
class Uplinks:
    """Links that workers of a rack, or of a region, share on the way to the server.

    Attributes:
      groups: number of racks or regions, of equally many workers in order of their numbers.
      gbits: rate of each uplink, each way, Gbit/s. None: without limit.
      ms: its latency, one way, milliseconds, on top of that of all messages.
      near: the server is in the first group, whose messages cross no uplink.
    """

    groups: int = 1
    gbits: float | None = None
    ms: float = 0.0
    near: bool = False


@TRANSPORTS.register(title="Star network")
def star(
    *,
    num_workers: Count,
    sizes: Sizes | None = None,
    gradient_bytes: NotNegative | None = None,
    parameter_bytes: NotNegative | None = None,
    worker_gbits: float | None = None,
    latency_ms: NotNegative = 0.0,
    overlap: NotNegative = 0.0,
    sharing: Sharing | None = None,
    server: ServerCosts = ServerCosts(),
    uplinks: Uplinks = Uplinks(),
) -> Star:
    """Make a star network: messages share the server's network card, and the server works for each.

    Args:
      num_workers: N.
      sizes: of messages, where the next two do not say.
      gradient_bytes: size of what a worker sends. None: as the network's parameters, compressed, make it.
      parameter_bytes: size of what the server answers. None: likewise, not compressed.
      worker_gbits: rate of a worker's network card, each way, Gbit/s. None: without limit.
      latency_ms: of a message, one way, milliseconds.
      overlap: share of a gradient's compute time, at its end, during which it is sent already: 2/3 where the backward
        pass takes two thirds and each layer is sent when it is done.
      sharing: messages cross the server's card one after the other ("fifo"), or all at once with max-min fair shares
        ("fair"). None: "fair" where groups share uplinks, else "fifo".
      server: its network card, and the time that it works.
      uplinks: of racks or regions.

    Raises:
      ValueError: where a number is out of its range.

    Example:
      >>> star(num_workers=4, gradient_bytes=1e9, server=ServerCosts(gbits=10.0)).traffic.gradient_seconds
      0.8
      >>> star(num_workers=4, uplinks=Uplinks(groups=2, gbits=1.0, ms=50.0, near=True)).latency  # two regions
      (0.0, 0.0, 0.05, 0.05)
    """
    groups = arguments.whole("uplinks.groups", uplinks.groups, most=num_workers, why=f"there are {num_workers} workers")
    sizes = Sizes(0.0, 0.0) if sizes is None else sizes
    of = tuple(worker * groups // num_workers for worker in range(num_workers))
    far = [not (uplinks.near and group == 0) for group in range(groups)]
    uplink, shared = bytes_per_second("uplinks.gbits", uplinks.gbits), uplinks.gbits is not None
    further = arguments.real("uplinks.ms", uplinks.ms, least=0)
    return Star(
        latency=tuple((latency_ms + further * far[group]) / 1e3 for group in of),
        gradient_bytes=sizes.gradient if gradient_bytes is None else gradient_bytes,
        parameter_bytes=sizes.parameters if parameter_bytes is None else parameter_bytes,
        server_rate=bytes_per_second("server.gbits", server.gbits),
        worker_rate=bytes_per_second("worker_gbits", worker_gbits),
        sharing=sharing or ("fair" if shared else "fifo"),
        receive_seconds=arguments.real("server.receive_ms", server.receive_ms, least=0) / 1e3,
        update_seconds=arguments.real("server.update_ms", server.update_ms, least=0) / 1e3,
        overlap=overlap,
        groups=of if shared else (),
        uplinks=tuple(uplink if is_far else math.inf for is_far in far) if shared else (),
    )


def bytes_per_second(name: str, gbits: float | None) -> float:
    """Return bytes per second of a rate in Gbit/s; None is without limit.

    Raises:
      ValueError: where it is not above 0; it names the argument.

    Example:
      >>> bytes_per_second("gbits", 8.0)
      1000000000.0
    """
    return math.inf if gbits is None else arguments.real(name, gbits, above=0) * _GBIT
