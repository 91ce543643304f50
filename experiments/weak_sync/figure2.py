"""Reproduces Figure 2 of the weak-synchronization paper: the density of the delays of servers' responses to pulls.

    python -m experiments.weak_sync.figure2 --workdir=runs/weak_sync

Writes figure2.md, .csv, .png and .svg to the work directory. Takes a few seconds.

The figure shows the delays of the model in the normal scenario (gamma, mean 0.05 s, shape 2) and with the paper's
injected delays (0.16 % of the responses arrive 4 s later): the density, and the histogram of all responses in one run
of 900 iterations with 32 servers and 32 workers.

Results: both densities agree up to 0.5 s; with injected delays there is a second maximum, 4 s later and 1 / 625 as
high. The paper's figure shows measured delays, but the available text does not give them, so the base delay is assumed.
"""

import math
from collections.abc import Sequence

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from experiments import figure
from experiments.weak_sync import simulation
from experiments.weak_sync.simulation import Cluster
from sgdlab.cluster import MessageDelays
from sgdlab.commands import launch
from sgdlab.results import plots

TITLES = {False: "normal scenario", True: "with injected delays"}
COLOURS = {False: "#2166ac", True: "#d95f02"}


def density(delays: MessageDelays, seconds: np.ndarray) -> np.ndarray:
    """The probability density of a delay, per second.

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


def draw(drawn: dict[bool, np.ndarray], cluster: Cluster) -> Figure:
    """Draws the densities as lines and the histograms of the drawn delays as areas."""
    end = cluster.late_seconds + 1.2
    x, edges = np.linspace(0, end, 2600), np.arange(0, end, 0.05)
    with mpl.rc_context(plots.STYLE):
        result = mpl.figure.Figure(figsize=(9.5, 3.9))
        panels = result.subplots(1, 2, sharey=True)
        for axes, late in zip(panels, TITLES, strict=True):
            counts, _ = np.histogram(drawn[late], edges)
            axes.stairs(
                counts / drawn[late].size / np.diff(edges), edges, color=COLOURS[late], alpha=0.3, fill=True,
                label="drawn in one run, 0.05 s bins",
            )  # fmt: skip
            axes.plot(x, density(cluster.delays(late), x), color=COLOURS[late], label="model")
            axes.set_yscale("log")
            axes.set_ylim(1e-6, 50)
            axes.set_xlim(0, end)
            axes.set_xlabel("delay of a response to a pull, s")
            axes.set_title(TITLES[late][0].upper() + TITLES[late][1:])
            axes.legend(loc="upper right")
        panels[0].set_ylabel("probability density, per second")
        result.suptitle("Message delay (Figure 2)")
    return result


def rows(drawn: dict[bool, np.ndarray]) -> list[dict[str, object]]:
    """The rows of the table: mean and quantiles of the drawn delays in seconds."""
    return [
        {
            "scenario": TITLES[late],
            "responses": f"{delays.size:,}",
            "mean, s": float(delays.mean()),
            "median, s": float(np.median(delays)),
            "99 %, s": float(np.quantile(delays, 0.99)),
            "99.9 %, s": float(np.quantile(delays, 0.999)),
            "longest, s": float(delays.max()),
            "above 1 s, %": float(100 * (delays > 1).mean()),
        }
        for late, delays in drawn.items()
    ]


def main(argv: Sequence[str]) -> None:
    """Draws the delays and writes the table and the figure."""
    del argv
    cluster, num_servers = simulation.cluster_of_flags(), 32
    shape = (cluster.iterations, cluster.num_workers, num_servers)
    drawn = {late: cluster.delays(late).draw(shape, np.random.default_rng(0)).ravel() for late in TITLES}
    figure.publish(
        figure.directory(simulation.DEFAULT_WORKDIR),
        "figure2",
        rows(drawn),
        title="Figure 2: delay of the servers' responses to pulls, seconds",
        reading=[
            "The injected delays are the paper's: 0.16 % of the responses are 4 s later. The paper's text does not "
            f"give the base delays; a gamma distribution of mean {cluster.base_seconds:g} s and shape 2 is assumed. "
            "Times that are the same for all responses, such as that of transmitting the parameters, are part of the "
            "run-times.",
            "One response in 625 is late. Therefore a worker with 32 servers receives a late response in 5 % of its "
            f"iterations, and at least one of 32 workers in {100 * cluster.share_with_late(num_servers):.0f} %.",
        ],
        figure=draw(drawn, cluster),
    )


if __name__ == "__main__":
    simulation.define_flags()
    launch.run(main, __doc__, configured=False)
