"""Density of the delays of servers' responses to pulls, without and with the injected delays (Figure 2).

The normal scenario is a gamma distribution of mean 0.05 s and shape 2; the paper's injected delays make 0.16 % of the
responses 4 s later. Shown are both densities and the delays that are drawn for one run: every response of 900
iterations with 32 servers and 32 workers. Times that are the same for all responses, such as that of transmitting the
parameters, are part of the compute times.
"""

import math

import numpy as np
import pandas as pd

from experiments import papers
from experiments.harness import PALETTE, Count, Output, Positive, Scale, canvas, figure
from experiments.weak_sync.simulation import Cluster
from sgdlab.cluster import MessageDelays


def density(delays: MessageDelays, seconds: np.ndarray) -> np.ndarray:
    """Return the probability density of a delay, per second.

    Args:
      delays: model of the delays, with a base delay above 0.
      seconds: float64[...], delays at which to evaluate the density.

    Returns:
      float64[...].
    """
    shape, scale, share = delays.base_shape, delays.base_seconds / delays.base_shape, delays.late_share

    def gamma(x: np.ndarray) -> np.ndarray:
        x = np.maximum(x, 0)
        return x ** (shape - 1) * np.exp(-x / scale) / (math.gamma(shape) * scale**shape)

    return (1 - share) * gamma(seconds) + share * gamma(seconds - delays.late_seconds)


@figure(
    papers.WEAK,
    "Figure 2",
    scales={"smoke": Scale("2 s", iterations=10), "laptop": Scale("3 s")},
    differs="The paper's measured delays are lost in the available text, so that the small delays are assumed.",
    full_size=True,
)
def figure2(*, iterations: Count = 900, base_seconds: Positive = 0.05) -> Output:
    """Draws the delays.

    Args:
      iterations: number of iterations, with 32 x 32 responses each.
      base_seconds: mean of the small delay of every response.
    """
    cluster = Cluster(iterations=iterations, base_seconds=base_seconds)
    end, rows = cluster.late_seconds + 1.2, []
    drawn, panels = canvas(1, 2, height=4.3, sharey=True)
    for panel, late, name in zip(panels[0], (False, True), ("normal scenario", "with injected delays"), strict=True):
        model = cluster.delays(late)
        seconds = model.draw((iterations, cluster.num_workers, 32), np.random.default_rng(0)).ravel()
        quantities = {
            "mean, s": seconds.mean(),
            "median, s": np.median(seconds),
            "99 %, s": np.quantile(seconds, 0.99),
            "99.9 %, s": np.quantile(seconds, 0.999),
            "longest, s": seconds.max(),
            "above 1 s, %": 100 * (seconds > 1).mean(),
        }
        paper = {"above 1 s, %": 0.16} if late else {}
        rows += [{"scenario": name, "quantity": q, "ours": v, "paper": paper.get(q)} for q, v in quantities.items()]
        x, edges = np.linspace(0, end, 2600), np.arange(0, end, 0.05)
        counts, _ = np.histogram(seconds, edges)
        heights = counts / seconds.size / np.diff(edges)
        panel.stairs(heights, edges, color=PALETTE[4], fill=True, label="drawn for one run, bins of 0.05 s")
        panel.plot(x, density(model, x), color=PALETTE[0], label="model")
        panel.set(title=name.capitalize(), xlabel="delay of a response to a pull (s)", xlim=(0, end))
        panel.set(yscale="log", ylim=(1e-6, 100))
    panels[0, 0].set_ylabel("probability density (1 / s)")
    panels[0, 1].legend(loc="upper right")
    own, every = (f"{100 * cluster.share_with_late(servers):.0f} %" for servers in (1, 32))
    note = f"Rare as they are, {own} of a server's iterations have an injected delay, and {every} of all."
    return Output(pd.DataFrame(rows), drawn, notes=[note])
