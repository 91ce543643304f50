"""Reproduces Figures 3 and 4 of the weak-synchronization paper: error against time, without and with injected delays.

    python -m experiments.weak_sync.figures3_4 --workdir=runs/weak_sync

Writes figure3 and figure4 as .md, .csv, .png and .svg, and the runs that it shares with table1. Takes a few seconds
after table1, otherwise about two minutes on two cores.

The runs are those of table1 on digits, with the schedules of the simulated cluster (32 workers, 900 iterations). The
figures show the test error against the cluster's virtual time, as means over the seeds.

Results: without injected delays (Figure 3) the four runs end after 138 to 144 minutes. With them (Figure 4) the
synchronous run takes 187 minutes, (28, 100 %) 153, and the two settings with partial pulls take no longer than before.
The final errors are 2.5 to 2.7 % in all settings: digits do not reproduce the higher error of the paper at c = 20,
b = 75 %.
"""

from collections.abc import Sequence

import matplotlib as mpl
import numpy as np
from absl import flags
from matplotlib.figure import Figure

from experiments import figure
from experiments.weak_sync import digits_runs, simulation, table1
from experiments.weak_sync.blocks_behind import COLOURS, MARKERS
from experiments.weak_sync.simulation import SETTINGS
from sgdlab.commands import launch
from sgdlab.results import plots
from sgdlab.results.summary import Group

TARGET = 0.05
"""Test error; the table has the time that each setting takes to reach it."""


def curve(group: Group) -> tuple[np.ndarray, np.ndarray]:
    """Minutes and test error at each evaluation, means over the seeds."""
    seconds, accuracy = group.curve("seconds", "test_accuracy")
    return np.array(seconds) / 60, 1 - np.array(accuracy)


def draw(groups: Sequence[Group], title: str) -> Figure:
    """Draws the error against time, with a curve for each setting."""
    with mpl.rc_context(plots.STYLE):
        result = mpl.figure.Figure(figsize=(7.2, 4.6))
        axes = result.subplots()
        for index, (group, setting) in enumerate(zip(groups, SETTINGS, strict=True)):
            minutes, error = curve(group)
            axes.plot(
                minutes,
                100 * error,
                color=COLOURS[setting],
                marker=MARKERS[setting],
                markersize=5,
                markevery=(index, 8),
                label=str(setting),
            )
            axes.plot(
                minutes[-1], 100 * error[-1], color=COLOURS[setting], marker="|", markersize=14, markeredgewidth=2
            )
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(mpl.ticker.StrMethodFormatter("{x:g}"))
        axes.yaxis.set_minor_formatter(mpl.ticker.NullFormatter())
        axes.set_yticks([2, 5, 10, 20, 50, 100])
        axes.set_xlim(left=0)
        axes.set_xlabel("virtual time, minutes (a bar where a run ends)")
        axes.set_ylabel("test error on digits, %")
        axes.set_title(title)
        axes.legend(loc="upper right")
    return result


def rows(groups: Sequence[Group]) -> list[dict[str, object]]:
    """The rows of the table: when each setting first reached the target, and its end."""
    table = []
    for group, setting in zip(groups, SETTINGS, strict=True):
        minutes, error = curve(group)
        reached = np.flatnonzero(error <= TARGET)
        mean, std = digits_runs.final_error(group)
        table.append(
            {
                "(c, b)": str(setting),
                f"minutes to {100 * TARGET:g} % error": f"{minutes[reached[0]]:.1f}" if reached.size else "not reached",
                "minutes in all": f"{minutes[-1]:.1f}",
                "final error, %": f"{100 * mean:.2f} ± {100 * std:.2f}",
            }
        )
    return table


def main(argv: Sequence[str]) -> None:
    """Trains the missing runs, then writes both figures."""
    del argv
    cluster, seeds, rate = simulation.cluster_of_flags(), flags.FLAGS.seeds, digits_runs.rate_of_flags()
    path = figure.directory(simulation.DEFAULT_WORKDIR)
    trained = table1.trained(cluster, path, seeds=seeds, learning_rate=rate, processes=flags.FLAGS.processes)
    for late, number, title in (
        (False, 3, "Figure 3: error against time, no injected delays"),
        (True, 4, "Figure 4: error against time, 0.16 % of the responses arrive 4 s later"),
    ):
        groups = trained[late]
        first, *others = (curve(group)[0][-1] for group in groups)
        changes = ", ".join(f"{100 * (end / first - 1):+.1f} %" for end in others)
        figure.publish(
            path,
            f"figure{number}",
            rows(groups),
            title=f"{title}; {seeds} seeds",
            reading=[
                f"All runs have {cluster.iterations} iterations. Compared with (32, 100 %), the other three settings "
                f"change the total time by {changes}.",
                "The paper trains ResNet-50 on CIFAR-10, and these runs a perceptron on digits: the times can be "
                "compared, the errors cannot.",
            ],
            figure=draw(groups, title),
        )


if __name__ == "__main__":
    digits_runs.define_flags()
    launch.run(main, __doc__, configured=False)
