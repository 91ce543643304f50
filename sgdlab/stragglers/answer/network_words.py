"""Communication in sentences: its share of a step, the network, and a server that it saturates."""

import math

from sgdlab.report.words import figure
from sgdlab.stragglers.estimate import duration
from sgdlab.stragglers.network import BITS, LOCAL_STEPS, Network

_GBIT = 1e9 / 8


def said(network: Network | None) -> str:
    """Say what share of a step is communication, what would be less, and what the network is; empty where unknown."""
    if network is None:
        return ""
    return " ".join([*_shares(network), *_link(network), "Intervals are of 95 %, over the steps."])


def _shares(network: Network) -> list[str]:
    if network.share is None or network.local is None:
        return ["Computation hides the transfer of the collectives."]
    local, few = network.local.worded(_percent), ""
    if network.few_bits is not None:
        few = f"; with {BITS} bits a number, instead of {network.bits:.0f}, {network.few_bits.worded(_percent)}"
    return [
        f"The transfer of the collectives is {network.share.worded(_percent)} of a step of full synchrony. With one "
        f"message for {LOCAL_STEPS} local steps (H = {LOCAL_STEPS}) it would be {local}{few}."
    ]


def _link(network: Network) -> list[str]:
    link, saturated = network.link, network.saturated
    if link is None:
        return ["--parameters=7e9 --dtype=bf16 would say how large messages are, for latency and bandwidth."]
    latency, bandwidth = link.latency.worded(duration), link.bandwidth.worded(_gbits)
    alike = "" if link.apart else "; sizes that are alike cannot tell the two apart"
    sizes = " to ".join(_bytes(size) for size in dict.fromkeys(link.sizes))
    sentences = [
        f"Messages of {sizes} take as long as in a ring of {link.members} workers with a latency of {latency} and "
        f"{bandwidth} on each link{alike}."
    ]
    if saturated is not None and math.isfinite(saturated.low):
        sentences.append(
            f"A server that receives {_bytes(network.gradient)} of gradients from each worker over one such link, "
            f"while the others compute for {duration(network.own)}, would be saturated by "
            f"{saturated.worded(_whole)} workers."
        )
    return sentences


def _percent(share: float) -> str:
    return f"{figure(100 * share, 3)} %"


def _gbits(rate: float) -> str:
    return f"{figure(rate / _GBIT, 3)} Gbit/s"


def _whole(number: float) -> str:
    return f"{math.ceil(number):,}"


def _bytes(size: float) -> str:
    units = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"))
    scale, unit = next((each for each in units if size >= each[0]), (1.0, "bytes"))
    return f"{size / scale:.3g} {unit}"
