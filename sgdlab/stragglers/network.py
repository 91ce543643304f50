"""The cost of messages: latency and bandwidth by sizes and times, and steps with fewer messages, or fewer bits."""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from sgdlab.errors import UsageError
from sgdlab.report.words import figure
from sgdlab.stragglers.comparison.measured import Resamples
from sgdlab.stragglers.estimate import Estimate, duration
from sgdlab.stragglers.recording import SplitRecording
from sgdlab.traces import Messages
from sgdlab.traces.messages import DTYPES
from sgdlab.transports import ring

LOCAL_STEPS, BITS = 10, 4
"""Local steps a message, and bits a number, for which the share of communication is given."""

_SHORTEST, _FEWEST = 0.25, 8
"""Share of the times of a size from which the least is extrapolated, and their smallest number."""

_APART = 1.5
"""Least ratio of bytes between two messages that tell latency from bandwidth."""


@dataclasses.dataclass(frozen=True, eq=False)
class Link:
    """Holds what a message costs on the link of a worker.

    Attributes:
      members: N, workers of the ring.
      sizes: smallest and largest message, bytes.
      latency: seconds of a message one way.
      byte: seconds of a byte, 1 / bandwidth.
      apart: whether sizes tell the two apart; else each is what it is if the other is nothing, so an upper bound.
      draws: float64[1 + B, 2], both as estimated, and in each resample.
    """

    members: int
    sizes: tuple[float, float]
    apart: bool
    draws: np.ndarray

    @property
    def latency(self) -> Estimate:
        """Seconds of a message, one way."""
        found = Estimate.of(self.draws[:, 0])
        return found if self.apart else Estimate(math.nan, 0.0, found.high)

    @property
    def bandwidth(self) -> Estimate:
        """Bytes per second of a link, each way."""
        with np.errstate(divide="ignore"):
            found = Estimate.of(1 / self.draws[:, 1])
        return found if self.apart else Estimate(math.nan, found.low, math.inf)


@dataclasses.dataclass(frozen=True, eq=False)
class Network:
    """Holds what communication costs a recorded job.

    Attributes:
      share: of a step, that is the transfer of its collectives; None where computation hides it.
      local: the same with one message for `LOCAL_STEPS` local steps.
      link: latency and bandwidth; None where sizes are unknown.
      bits: of a number, as it is sent; None where that is unknown.
      few_bits: the share with `BITS` bits a number, or bounds of it.
      gradient: bytes that a worker gives in a step; 0 where unknown.
      own: mean seconds of a worker's own work in a step.
      saturated: workers from which a server with one such link is saturated; None where that is unknown.
    """

    share: Estimate | None
    local: Estimate | None
    link: Link | None
    bits: float | None
    few_bits: Estimate | None
    gradient: float
    own: float
    saturated: Estimate | None


def with_sizes(parts: SplitRecording, parameters: float, dtype: str) -> SplitRecording:
    """Return a recording of which it is known that the collectives of a step average so many parameters.

    Args:
      parts: a recording with times of collectives, but not their sizes.
      parameters: numbers that each worker averages with the others in a step, as by one all-reduce.
      dtype: of these, one of `sgdlab.traces.messages.DTYPES`.

    Raises:
      UsageError: where nothing would change: sizes are known, or no communication is.
    """
    whole, flag = parts.recording, f"--parameters={parameters:g}"
    if whole.messages:
        raise UsageError(f"{flag} must be left out: the trace has the sizes of its messages")
    if not whole.collectives or whole.job is not None:
        what = "is of pipelines, whose messages differ" if whole.job is not None else "has no times of collectives"
        raise UsageError(f"{flag} must be left out: the trace {what}, so that it would change nothing")
    bits, changed = DTYPES[dtype], {}
    for name in ("recording", "complete"):
        part = getattr(parts, name)
        times = part.transfer()[:, None]
        sent = Messages(
            "all_reduce", parameters * bits / 8, bits, len(part.workers), np.where(times > 0, times, np.nan)
        )
        changed[name] = dataclasses.replace(part, messages=(sent,))
    return dataclasses.replace(parts, **changed)


def measure(parts: SplitRecording, *, seed: int = 0) -> Network | None:
    r"""Measure what communication costs; None where it was not recorded, or is that of pipelines.

    With c the transfer of all steps, and w the own work of their slowest workers, the share of a step is

    .. math:: \frac{c}{w + c}, \qquad \frac{c}{H w + c}, \qquad \frac{c f}{w + c f}

    as recorded, with a message for H local steps, and with messages of 4 bits a number, where f is the fit's share of
    the messages' time that remains: latency does not shrink with bits. A server that receives b bytes from each
    worker, in :math:`s = b / r` seconds, after W seconds of work, is saturated by (W + s) / s workers.

    Args:
      parts: the recording; sizes of its messages are optional.
      seed: of the bootstrap over steps.

    Source: own definition; the server's number of workers is that of a closed queue whose server is always busy.
    """
    complete = parts.complete
    if not complete.collectives or complete.job is not None:
        return None
    resamples = Resamples(complete.steps.size, seed=seed)
    transfer = complete.transfer()
    own = parts.runtimes.max(axis=1) - transfer
    sent, work = (np.append(times.sum(), resamples.weights @ times) for times in (transfer, own))
    link = fit_link(complete.messages, seed=seed, count=len(resamples.weights))
    share = local = few = saturated = None
    if transfer.sum() > 0:
        share, local = Estimate.of(sent / (work + sent)), Estimate.of(sent / (LOCAL_STEPS * work + sent))
    carried = [each for each in complete.messages if each.collective in ("all_reduce", "reduce_scatter")]
    gradient = float(sum(each.size * each.per_step for each in carried))
    bits = max(carried, key=lambda each: each.size * each.per_step).bits if carried else None
    mean = float(complete.runtimes.mean())
    if link is not None and gradient:
        with np.errstate(divide="ignore"):
            saturated = Estimate.of(mean / (gradient * link.draws[:, 1]) + 1)
        if not link.apart:
            saturated = Estimate(math.nan, saturated.low, math.inf)
        if share is not None and bits is not None and bits > BITS:
            less = sent * _remaining(complete.messages, link)
            few = Estimate.of(less / (work + less))
            if not link.apart:  # from all of it bandwidth to all of it latency
                few = Estimate(math.nan, few.low, share.high)
    return Network(share, local, link, bits, few, gradient, mean, saturated)


def fit_link(messages: Sequence[Messages], *, seed: int = 0, count: int = 1000) -> Link | None:
    r"""Fit latency and bandwidth to the least times of messages of several sizes.

    With :math:`y_k` the least time of messages of size k, of b bytes among N workers,

    .. math:: \min_{\alpha, \beta \ge 0} \sum_k \Big( \frac{2 (N - 1) (\alpha + b_k \beta / N)}{y_k} - 1 \Big)^2

    is the fit of a ring all-reduce with latency :math:`\alpha` and bandwidth :math:`1 / \beta`; a reduce-scatter and
    an all-gather are half of one. Other collectives, and those of other numbers of workers, are left out.

    Args:
      messages: of one recording.
      seed: of the draws.
      count: B, resamples of the steps.

    Returns:
      The `Link`, or None where no such message was measured often enough.

    Source: own definition; the ring's time as in Patarasuk and Yuan 2009.

    Example:
      >>> sizes = (1e5, 1e6, 1e7)
      >>> sent = [Messages("all_reduce", b, 32, 8, np.full((9, 1), ring(8, b, 1e9, 1e-4))) for b in sizes]
      >>> link = fit_link(sent, count=2)
      >>> round(link.latency.value, 9), round(link.bandwidth.value)
      (0.0001, 1000000000)
    """
    most = max((each.members for each in messages), default=0)
    kept = [each for each in messages if each.members == most and _rings(each) is not None]
    kept = [each for each in kept if np.isfinite(each.seconds).sum() >= _FEWEST]
    if not kept:
        return None
    costs = np.array([_rings(each) for each in kept], float)
    bytes_each = costs[:, 1] / costs[:, 0]
    apart = bool(bytes_each.max() >= _APART * bytes_each.min())
    generator, steps = np.random.default_rng(seed), len(kept[0].seconds)
    draws = np.zeros((1 + count, 2))
    for draw in range(1 + count):
        rows = generator.integers(steps, size=steps) if draw else slice(None)
        draws[draw] = _solved(costs, np.array([least_time(each.seconds[rows]) for each in kept]), apart=apart)
    sizes = [each.size for each in kept]
    return Link(most, (min(sizes), max(sizes)), apart, draws)


def least_time(seconds: np.ndarray) -> float:
    r"""Extrapolate the shortest quarter of times to the least one that is possible.

    Of n times in order, a line through the first n / 4 of the points :math:`(-\log(1 - i / (n + 1)), y_{(i)})`, at 0.
    It is unbiased where all that makes times longer is exponential; the shortest time, and low quantiles, are too long.

    Args:
      seconds: of any shape; NaN is left out.

    Returns:
      Seconds, not below 0; NaN where there are none.

    Source: own definition; the points are those of an exponential probability plot.

    Example:
      >>> round(least_time(2.0 - np.log1p(-np.arange(1, 100) / 100)), 12)
      2.0
    """
    known = np.sort(seconds[np.isfinite(seconds)])
    if known.size < 2:
        return float(known[0]) if known.size else np.nan
    first = known[: max(int(np.ceil(_SHORTEST * known.size)), 2)]
    place = -np.log1p(-np.arange(1, first.size + 1) / (known.size + 1))
    away = place - place.mean()
    slope = float(away @ first / (away @ away))
    return max(float(first.mean()) - slope * float(place.mean()), 0.0)


def _rings(messages: Messages) -> tuple[float, float] | None:
    """The latencies, and the bytes on a link, of which a message consists; None if it is no part of a ring."""
    parts = {"all_reduce": (1.0, 1), "reduce_scatter": (0.5, 1), "all_gather": (0.5, messages.members)}
    if messages.collective not in parts:
        return None
    share, shards = parts[messages.collective]
    size = messages.size * shards  # a worker hands its shard alone to an all-gather
    return share * ring(messages.members, 0.0, 1.0, 1.0), share * ring(messages.members, size, 1.0, 0.0)


def _solved(costs: np.ndarray, least: np.ndarray, *, apart: bool) -> np.ndarray:
    """Latency and seconds of a byte by the fit; or each as if the other were nothing."""
    from scipy import optimize  # noqa: PLC0415 (SciPy takes a while to import)

    known = np.isfinite(least) & (least > 0)
    if not known.any():
        return np.zeros(2)
    relative = costs[known] / least[known, None]
    if apart:
        return optimize.nnls(relative, np.ones(len(relative)))[0]
    return relative.sum(axis=0) / (relative**2).sum(axis=0)


def _remaining(messages: Sequence[Messages], link: Link) -> np.ndarray:
    """Share of the messages' time that remains with few bits, float64[1 + B]; at least, where nothing is told apart."""
    rings = [(each, costs) for each in messages if (costs := _rings(each)) is not None]
    waits, whole, less = np.sum(
        [each.per_step * np.array([a, b, b * min(BITS / each.bits, 1.0)]) for each, (a, b) in rings], axis=0
    )
    if not link.apart:
        return np.full(len(link.draws), less / whole)
    latency, byte = link.draws.T
    total = latency * waits + byte * whole
    return np.where(total > 0, (latency * waits + byte * less) / np.where(total > 0, total, 1.0), 1.0)


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
