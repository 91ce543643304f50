"""Table 1 of the weak-synchronization paper: running time on the simulated cluster at full size, and error on digits.

    python -m experiments.weak_sync.table1 --workdir=runs/weak_sync

32 workers make 900 iterations, with 32 servers and with 64 (so many responses each worker gets in an iteration), for
the paper's four settings (c, b), with and without its injected delays: 0.16 % of the responses come 4 s later. The same
schedules, at 32 servers, are then replayed on UCI digits. About 3 minutes on two cores; runs that have finished
are found and never done again.

Expected, the reduction of running time against (32, 100 %) with injected delays, in %, for (28, 100 %), (28, 90 %) and
(20, 75 %); the paper's is -17.5, -30.0, -31.7:

    32 servers  -18.4   -25.2   -26.5
    64 servers  -16.0   -28.8   -30.1

and test errors on digits of 2.5, 2.6, 2.6 and 2.7 % for the four settings, with and without injected delays: that at
(20, 75 %) does not rise as the paper's does, from 14.8 to 29.1 %.
"""

import pathlib
from collections.abc import Sequence
from typing import Any

from absl import flags

from experiments import figure
from experiments.weak_sync import digits_runs, simulation
from experiments.weak_sync.simulation import SETTINGS, Case, Cluster
from sgdlab.commands import launch
from sgdlab.results.summary import Group

EXPECTED = {32: (0.0, -17.8, -24.5, -26.0), 64: (0.0, -15.0, -28.8, -29.5)}
"""Reductions in %, by servers, that a message-level simulation was expected to give, each +-1."""

CALIBRATION = (
    "The paper's two settings that hardly wait for late responses make 900 iterations in 139.95 and 136.54 minutes, "
    "9.3 and 9.1 s each, which sets the mean. The variation is chosen between 3.5 %, which the distance of these two "
    "would ask for, and 2 %, which fits the expected reductions best; between them no reduction moves by more than 0.7 "
    "points, and both times come within 1 %."
)
"""Of the defaults."""

Row = dict[str, object]


def time_cases(seeds: int) -> list[Case]:
    """All runs of the cluster, the longest first."""
    return [
        Case(setting, late, seed, servers)
        for servers in sorted(EXPECTED, reverse=True)
        for setting in SETTINGS
        for late in (False, True)
        for seed in range(seeds)
    ]


def error_cases(seeds: int, num_servers: int) -> list[Case]:
    """The runs on digits; those of one setting together, since they share a compiled program."""
    return [
        Case(setting, late, seed, num_servers)
        for setting in SETTINGS
        for late in (False, True)
        for seed in range(seeds)
    ]


def trained(
    cluster: Cluster, path: pathlib.Path, *, seeds: int, learning_rate: float, processes: int | None
) -> dict[bool, list[Group]]:
    """The groups of the four settings, without and with injected delays; what is missing is trained."""
    servers = digits_runs.most_blocks(cluster, Case(SETTINGS[0], False, 0))
    cases = error_cases(seeds, servers)
    groups = digits_runs.train_all(cluster, cases, path, learning_rate=learning_rate, processes=processes)
    return {late: [group for case, group in groups.items() if case.late == late] for late in (False, True)}


def times(runs: dict[Case, dict[str, Any]], seeds: int) -> list[Row]:
    """The rows of the table of running times."""
    paper = SETTINGS[0].paper_minutes
    rows = []
    for servers, reductions in EXPECTED.items():

        def spread(setting: simulation.Setting, late: bool, servers: int = servers) -> simulation.Spread:
            return simulation.minutes(runs, [Case(setting, late, seed, servers) for seed in range(seeds)])

        for setting, expected in zip(SETTINGS, reductions, strict=True):
            without, late = spread(setting, False), spread(setting, True)
            first = spread(SETTINGS[0], True)
            rows.append(
                {
                    "servers": servers,
                    "(c, b)": str(setting),
                    "min, no injected delays": plus_minus(without),
                    "min, injected delays": plus_minus(late),
                    "paper, min": f"{setting.paper_minutes:.2f}",
                    "reduction, %": f"{100 * (late.mean / first.mean - 1):.1f}",
                    "paper, %": f"{100 * (setting.paper_minutes / paper - 1):.1f}",
                    "expected, %": f"{expected:.1f}",
                }
            )
    return rows


def plus_minus(spread: simulation.Spread) -> str:
    """The mean, and the deviation over the seeds."""
    return f"{spread.mean:.2f} ± {spread.std:.2f}"


def time_reading(cluster: Cluster, runs: dict[Case, dict[str, Any]], seeds: int) -> list[str]:
    """What the running times say."""

    def mean(setting: simulation.Setting, late: bool, servers: int) -> float:
        return simulation.minutes(runs, [Case(setting, late, seed, servers) for seed in range(seeds)]).mean

    most, waits = {}, {}
    for servers in EXPECTED:
        waits[servers] = cluster.share_with_late(servers) * cluster.late_seconds * cluster.iterations / 60
        without = mean(SETTINGS[0], False, servers)
        most[servers] = 100 * waits[servers] / (without + waits[servers])
    slower = {n: 100 * (mean(SETTINGS[0], True, n) / mean(SETTINGS[0], False, n) - 1) for n in EXPECTED}
    off = {n: max(100 * abs(mean(s, True, n) / s.paper_minutes - 1) for s in SETTINGS) for n in EXPECTED}
    model = (
        f"The model: gamma run-times of mean {cluster.mean_seconds:g} s and coefficient of variation "
        f"{100 * cluster.variation:g} %, a gamma delay of every response of mean {cluster.base_seconds:g} s; the paper "
        "gives none of them."
    )
    return [
        model + (f" {CALIBRATION}" if cluster == Cluster() else ""),
        f"With 32 x 32 responses {100 * cluster.share_with_late(32):.0f} % of the iterations hold a late one: injected "
        f"delays cost {waits[32]:.1f} minutes at most, and waiting for none of them saves {most[32]:.1f} % of the "
        "synchronous time, beside what is saved by not waiting for slow workers. The paper's -30 % is out of reach.",
        f"With 32 x 64 responses it is {100 * cluster.share_with_late(64):.0f} % of the iterations, {waits[64]:.1f} "
        f"minutes, {most[64]:.1f} %.",
        f"All four running times lie within {off[32]:.1f} % of the paper's at 32 servers, within {off[64]:.1f} % at "
        "64: its minutes look like two responses of each server in an iteration. Its text does not: there injected "
        f"delays prolong the synchronous run by nearly 30 %, here by {slower[32]:.0f} % at 32 and by "
        f"{slower[64]:.0f} % at 64.",
        "A worker that got a block late finishes late, is dropped, starts the next gradient late, and so stays late "
        "until an update has to wait for it: that is why c = 28 alone does not save all that it could, and less at 64.",
    ]


def errors(groups: dict[bool, list[Group]]) -> list[Row]:
    """The rows of the table of test errors."""
    return [
        {
            "(c, b)": str(setting),
            "error, no injected delays, %": _percent(groups[False][place]),
            "error, injected delays, %": _percent(groups[True][place]),
            "above (32, 100 %), points": f"{_above(groups[True], place):+.2f}",
            "paper, %": f"{100 * setting.paper_error:.1f}",
            "paper, points": f"{100 * (setting.paper_error - SETTINGS[0].paper_error):+.2f}",
            "gradients": f"{groups[True][place].spread('gradients').mean:,.0f}",
            "mean versions behind": f"{groups[True][place].spread('staleness').mean:.3f}",
            "diverged": sum(groups[late][place].num_diverged for late in (False, True)),
        }
        for place, setting in enumerate(SETTINGS)
    ]


def _percent(group: Group) -> str:
    mean, std = digits_runs.final_error(group)
    return f"{100 * mean:.2f} ± {100 * std:.2f}"


def _above(groups: list[Group], place: int) -> float:
    return 100 * (digits_runs.final_error(groups[place])[0] - digits_runs.final_error(groups[0])[0])


def error_reading(groups: dict[bool, list[Group]], learning_rate: float) -> list[str]:
    """What the errors say."""
    rise, noise = _above(groups[True], 3), 100 * digits_runs.final_error(groups[True][3])[1]
    rises = "rises" if rise > 2 * max(noise, 0.1) else "does not rise beyond the spread of the seeds"
    blocks = groups[True][0].runs[0][0]["config"]["protocol"]["partial"]["num_servers"]
    return [
        f"UCI digits, a perceptron of one hidden layer of 64 in {blocks} blocks, 4 digits a gradient, "
        "momentum 0.9 (not Nesterov's, as in the paper), weight decay 0.0001. The rule is the paper's, linear in d: an "
        f"update of d gradients has rate {learning_rate:g} x d / 32, a tenth of it after each third. The paper's "
        "number, 0.02 x d n over one that our copy does not show, is for another network: by default ours is 0.1, the "
        "best of 0.02, 0.1, 0.5 and 0.8 for (32, 100 %) in two seeds (4.0, 2.6, 3.2 and 4.4 % error with injected "
        "delays and Nesterov momentum; at 1.2 it diverges).",
        f"At c = 20, b = 75 % the error {rises}: {rise:+.1f} points, where the paper's goes up by 14.4. Digits do not "
        "show the paper's loss: blocks a quarter of a version old on average are no obstacle to so small a network. At "
        "rates of 0.02, 0.5 and 0.8 the difference was +0.7, +0.3 and -1.0 points in two seeds.",
        "Injected delays change when updates happen, and at b = 100 % nothing else: the k-th gradient that is used "
        "gets the k-th batch. At a smaller b they hardly change which blocks are late.",
        "All settings make the same 900 iterations, so c = 20 uses 20/32 of the gradients.",
    ]


def main(argv: Sequence[str]) -> None:
    """Runs what is missing, then prints both tables."""
    del argv
    cluster, seeds, rate = simulation.cluster_of_flags(), flags.FLAGS.seeds, digits_runs.rate_of_flags()
    path, processes = figure.directory(simulation.DEFAULT_WORKDIR), flags.FLAGS.processes
    runs = simulation.simulate(cluster, time_cases(seeds), path, processes=processes)
    figure.publish(
        path,
        "table1_time",
        times(runs, seeds),
        title=f"Table 1, running time: {cluster.iterations} iterations of 32 workers, minutes; {seeds} seeds",
        reading=time_reading(cluster, runs, seeds),
    )
    groups = trained(cluster, path, seeds=seeds, learning_rate=rate, processes=processes)
    figure.publish(
        path,
        "table1_error",
        errors(groups),
        title=f"Table 1, error: on the test digits after {cluster.iterations} iterations; {seeds} seeds",
        reading=error_reading(groups, rate),
    )


if __name__ == "__main__":
    digits_runs.define_flags()
    launch.run(main, __doc__, configured=False)
