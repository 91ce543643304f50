"""Communication in sentences and as JSON: its share of a step, the network, and a server that it saturates."""

import math
from typing import Any

from sgdlab.report.words import figure
from sgdlab.stragglers.estimate import Estimate
from sgdlab.stragglers.network import BITS, LOCAL_STEPS, Link, Network

_GBIT = 1e9 / 8


def said(network: Network | None) -> str:
    """Say what share of a step is communication, what would be less, and what the network is; empty where unknown."""
    if network is None:
        return ""
    sentences = [_shares(network), _link(network.link), _server(network)]
    if network.link is None:
        sentences.append("--parameters=7e9 --dtype=bf16 would say how large messages are, for latency and bandwidth.")
    return " ".join(filter(None, [*sentences, "Intervals are of 95 %, over the steps."]))


def as_dict(network: Network | None) -> dict[str, Any] | None:
    """Return the same for programs; `machine_readable` describes it."""
    if network is None:
        return None
    link = network.link
    return {
        "share": network.share,
        "local_steps": LOCAL_STEPS,
        "local_share": network.local,
        "bits": BITS,
        "bits_share": network.few_bits,
        "link": link
        and {
            "workers": link.members,
            "latency": _of(link.latency, link.apart, "high"),
            "bandwidth": _of(link.bandwidth, link.apart, "low"),
            "apart": link.apart,
        },
        "gradient_bytes": network.gradient or None,
        "server_workers": network.saturated and _of(network.saturated, link is not None and link.apart, "low"),
    }


def _of(estimate: Estimate, apart: bool, bound: str) -> Estimate:
    """An estimate; or that of which one bound alone is known, with the other one left open."""
    if apart:
        return estimate
    only = getattr(estimate, bound)
    return Estimate(math.nan, *((only, math.inf) if bound == "low" else (0.0, only)))


def _shares(network: Network) -> str:
    share, local, few = network.share, network.local, network.few_bits
    if share is None or local is None:
        return "Computation hides the transfer of the collectives."
    text = (
        f"The transfer of the collectives is {_percent(share)} of a step of full synchrony. With one message for "
        f"{LOCAL_STEPS} local steps (H = {LOCAL_STEPS}) it would be {_percent(local)}"
    )
    if few is None or network.bits is None or network.bits <= BITS or network.link is None:
        return f"{text}."
    fewer = f"{text}; with {BITS} bits a number, instead of {network.bits:.0f}, it would be"
    if network.link.apart:
        return f"{fewer} {_percent(few)}."
    return f"{fewer} at least {_percent(few)}, and more as far as it is latency."


def _link(link: Link | None) -> str:
    if link is None:
        return ""
    latency, bandwidth, sizes = link.latency, link.bandwidth, [_bytes(size) for size in dict.fromkeys(link.sizes)]
    ring = f"a ring of {link.members} workers"
    if not link.apart:
        alike = "one size" if len(sizes) == 1 else "sizes so alike"
        return (
            f"Messages of {' to '.join(sizes)} in {ring} mean a latency of at most {_seconds(latency.high)} and at "
            f"least {figure(bandwidth.low / _GBIT, 3)} Gbit/s: {alike} cannot tell the two apart."
        )
    waits = f"at most {_seconds(latency.high)}"
    if latency.low > 0:
        waits = f"{_seconds(latency.value)} ({_seconds(latency.low)} to {_seconds(latency.high)})"
    rate = f"at least {figure(bandwidth.low / _GBIT, 3)} Gbit/s"
    if math.isfinite(bandwidth.high):
        rate = _interval(bandwidth, 1 / _GBIT, " Gbit/s")
    return (
        f"Messages of {' to '.join(sizes)} take as long as in {ring} with a latency of {waits} and {rate} on each link."
    )


def _server(network: Network) -> str:
    saturated, link = network.saturated, network.link
    if saturated is None or link is None or not math.isfinite(saturated.low):
        return ""
    low, value, high = (math.ceil(each) if math.isfinite(each) else 0 for each in
                        (saturated.low, saturated.value, saturated.high))  # fmt: skip
    known = link.apart and high
    many = f"{value:,}{f' ({low:,}-{high:,})' * (low != high)}" if known else f"at least {low:,}"
    return (
        f"A server that receives {_bytes(network.gradient)} of gradients from each worker over one such link, while "
        f"the others compute for {_seconds(network.own)}, would be saturated by {many} workers."
    )


def _percent(share: Estimate) -> str:
    return _interval(share, 100, " %")


def _interval(estimate: Estimate, scale: float, unit: str) -> str:
    value, *ends = (figure(scale * each, 3) for each in estimate)
    return f"{value}{unit}{'' if ends[0] == ends[1] else f' ({ends[0]}-{ends[1]})'}"


def _seconds(seconds: float) -> str:
    for scale, unit in ((1.0, "s"), (1e3, "ms")):
        if seconds * scale >= 1:
            return f"{figure(seconds * scale, 3)} {unit}"
    return f"{figure(seconds * 1e6, 3)} us"


def _bytes(size: float) -> str:
    for scale, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if size >= scale:
            return f"{size / scale:.3g} {unit}"
    return f"{size:.0f} bytes"
