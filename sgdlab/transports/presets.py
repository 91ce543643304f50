"""Stars with the rates and latencies of usual networks: a cluster's Ethernet or InfiniBand, links between sites."""

from collections.abc import Callable

from sgdlab.bounds import Count, NotNegative
from sgdlab.transports.family import TRANSPORTS, Sizes
from sgdlab.transports.star import ServerCosts, Star, star


def _preset(name: str, title: str, gbits: float, latency_ms: float, where: str) -> Callable[..., Star]:
    """Register a star of a server and workers that have the same network card."""

    def preset(
        *,
        num_workers: Count,
        sizes: Sizes | None = None,
        gradient_bytes: NotNegative | None = None,
        parameter_bytes: NotNegative | None = None,
        receive_ms: NotNegative = 0.0,
        update_ms: NotNegative = 0.0,
        overlap: NotNegative = 0.0,
    ) -> Star:
        return star(
            num_workers=num_workers,
            sizes=sizes,
            gradient_bytes=gradient_bytes,
            parameter_bytes=parameter_bytes,
            worker_gbits=gbits,
            latency_ms=latency_ms,
            overlap=overlap,
            server=ServerCosts(gbits, receive_ms, update_ms),
        )

    preset.__name__ = preset.__qualname__ = name
    preset.__doc__ = f"""Make a star of network cards of {gbits:g} Gbit/s, {latency_ms:g} ms one way: {where}.

    Args:
      num_workers: N.
      sizes: of messages, where the next two do not say.
      gradient_bytes: size of what a worker sends. None: as the network's parameters, compressed, make it.
      parameter_bytes: size of what the server answers. None: likewise, not compressed.
      receive_ms: milliseconds that the server works for each gradient.
      update_ms: milliseconds that the server works for each update.
      overlap: share of a gradient's compute time, at its end, during which it is sent already.
    """
    return TRANSPORTS.register(title=title)(preset)


ethernet_10g = _preset("ethernet_10g", "10 Gbit/s Ethernet", 10.0, 0.05, "an older cluster")
ethernet_100g = _preset("ethernet_100g", "100 Gbit/s Ethernet", 100.0, 0.02, "a cluster of today")
infiniband_400g = _preset("infiniband_400g", "400 Gbit/s InfiniBand", 400.0, 0.002, "a cluster for large models")
wan_1g_50ms = _preset("wan_1g_50ms", "1 Gbit/s between sites", 1.0, 50.0, "sites of one continent")
internet_100m_30ms = _preset("internet_100m_30ms", "100 Mbit/s internet", 0.1, 30.0, "volunteers at home")
