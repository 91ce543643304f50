"""Running time on the simulated cluster, and test error, of four settings of c and b (Table 1).

32 workers make 900 iterations for each of the paper's four settings (c, b), with and without the injected delays:
0.16 % of the responses arrive 4 s later. With 32 servers a worker waits for 32 responses in an iteration; 64 servers
stand for two responses of each of 32. A network is then trained with the schedules of 32 servers: at the size laptop a
small perceptron on UCI digits, at gpu ResNet-20 and at paper ResNet-50 on CIFAR-10, where 90 epochs are 879 iterations.
The learning rate is linear in the number of gradients of an update, as in the paper, and is multiplied by 0.1 after
each third of the run; the momentum of 0.9 is not Nesterov's. The paper's numbers are those with injected delays.

The paper does not print how much compute times scatter, nor the small delay of every response: what it says of running
times is looked at with other values too.
"""

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from experiments import papers
from experiments.harness import (
    PALETTE,
    PAPER,
    Claim,
    Count,
    Evidence,
    Interval,
    Output,
    Positive,
    Premise,
    Scale,
    Share,
    Sweep,
    above,
    below,
    between,
    canvas,
    enough,
    figure,
    interval,
    prepare,
    throughout,
)
from experiments.thresholds import NEARLY_POINTS, SAME_POINTS
from experiments.weak_sync import training
from experiments.weak_sync.settings import BOTH, HALF_WIDTH, PUSH, SETTINGS, SMALL, SYNCHRONOUS, Setting
from experiments.weak_sync.simulation import Cluster, simulate

NEEDED = ((SYNCHRONOUS, False), (SYNCHRONOUS, True), (PUSH, True), (BOTH, True))
"""Settings, and whether delays are injected, that claims on running times are about."""
OTHERWISE_SEEDS = 5
"""Seeds of a cluster with other assumptions, at most: its running times differ by less than a per cent."""


@figure(
    papers.WEAK,
    "Table 1",
    scales={
        "smoke": Scale("5 s", servers=[4, 8], blocks=2, iterations=7, seeds=1),
        "laptop": Scale("4 min"),
        "decide": Scale("15 min", servers=[32, 16, 64], seeds=20),
        "gpu": Scale("40 min on one GPU, estimated", size="gpu", **training.WHOLE),
        "paper": Scale("3 h on one GPU, estimated; see --dry_run", size="paper", **training.WHOLE),
    },
    differs="The paper gives neither its run-times nor its base delays: the model's mean run-time follows from two of "
    f"the paper's four times. {training.DIFFERS}",
    stand_in=training.STAND_IN,
)
def table1(
    *,
    size: training.Size = "laptop",
    servers: Sequence[Count] = (32, 64),
    iterations: Count = 900,
    seeds: Count = 3,
    mean_seconds: Positive = 9.0,
    variation: Share = 0.025,
    variations: Sequence[Share] = (0.015, 0.035),
    base_delays: Sequence[Positive] = (0.01, 0.1),
    blocks: Count = 32,
    learning_rate: Positive = 0.1,
) -> Output:
    """Simulates the cluster, and trains.

    Args:
      size: what is trained: a perceptron on digits (laptop), ResNet-20 (gpu) or ResNet-50 (paper) on CIFAR-10.
      servers: numbers of servers; claims are about the first, the paper's.
      iterations: number of updates.
      seeds: number of seeds; the paper has 3.
      mean_seconds: mean compute time of a gradient.
      variation: coefficient of variation of the compute times.
      variations: others, which claims on running times are looked at with.
      base_delays: mean delays of a response in seconds, instead of 0.05, likewise.
      blocks: number of blocks into which the parameters are split, each with a server.
      learning_rate: of an update of 32 gradients; an update of d gradients has d / 32 of it.
    """
    cluster = Cluster(iterations=iterations, mean_seconds=mean_seconds, variation=variation)
    otherwise = [dataclasses.replace(cluster, variation=value) for value in variations]
    otherwise += [dataclasses.replace(cluster, base_seconds=value) for value in base_delays]
    sweeps = {model: simulations(model, servers, min(seeds, OTHERWISE_SEEDS), NEEDED) for model in otherwise}
    sweeps = {cluster: simulations(cluster, servers, seeds, training.EVERY)} | sweeps
    training_sweep = training.sweep(cluster, seeds=seeds, size=size, blocks=blocks, learning_rate=learning_rate)
    prepare(*sweeps.values(), training_sweep)
    simulated, learnt = {model: each.table() for model, each in sweeps.items()}, training_sweep.table()

    def minutes(setting: Setting, late: bool = True, number: int = servers[0], model: Cluster = cluster) -> np.ndarray:
        return setting.of(simulated[model], late=late, num_servers=number).minutes.to_numpy()

    def saved(setting: Setting, number: int = servers[0], model: Cluster = cluster) -> np.ndarray:
        its, naive = (minutes(each, number=number, model=model) for each in (setting, SYNCHRONOUS))
        return 100 * (1 - its / naive)

    def prolonged(number: int, model: Cluster) -> np.ndarray:
        return 100 * (minutes(SYNCHRONOUS, True, number, model) / minutes(SYNCHRONOUS, False, number, model) - 1)

    def error(setting: Setting, late: bool = True) -> np.ndarray:
        return 100 * (1 - setting.of(learnt, late=late).test_accuracy.to_numpy())

    paper_saved = {s: 100 * (1 - s.paper_minutes / SYNCHRONOUS.paper_minutes) for s in SETTINGS}
    rows = []
    for late, delays in ((False, "none"), (True, "injected")):
        for number in servers:
            about = {"servers": number, "delays": delays, "quantity": "running time, min"}
            rows += [s.row(minutes(s, late, number), s.paper_minutes if late else np.nan, **about) for s in SETTINGS]
            about["quantity"] = "reduction of the running time, %"
            rows += [s.row(saved(s, number), paper_saved[s], **about) for s in SETTINGS[1:] if late]
        about = {"servers": blocks, "delays": delays, "quantity": "error, %"}
        rows += [s.row(error(s, late), s.paper_error if late else np.nan, **about) for s in SETTINGS]
        about["quantity"] = "mean staleness, updates"
        rows += [s.row(s.of(learnt, late=late).staleness, **about) for s in SETTINGS]

    waits = cluster.share_with_late(servers[0]) * cluster.late_seconds * iterations / 60
    bound = 100 * waits / (minutes(SYNCHRONOUS, False).mean() + waits)
    harm = {s: interval(error(s) - error(SYNCHRONOUS), resolution=training.TEST_EXAMPLE[size]) for s in SETTINGS}
    paper_harm = {setting: setting.paper_error - SYNCHRONOUS.paper_error for setting in SETTINGS}
    same = lambda found: below(found, SAME_POINTS)

    because = (
        f"With {servers[0]} servers, late responses cost {waits:.3g} min at most, {bound:.3g} % of the running time, "
        "and no more than the rest is lost to slow workers: the late responses and servers that the paper prints do "
        "not give its times."
    )
    reduced = lambda setting: {n: [interval(saved(setting, n, model)) for model in simulated] for n in servers}
    longer = {n: [interval(prolonged(n, model)) for model in simulated] for n in servers}
    hard = enough("% error of synchronous SGD", float(error(SYNCHRONOUS).mean()), SYNCHRONOUS.paper_error)
    claims = [
        _timed(
            "with partial pushing only, the training time can be reduced by nearly 17 %", "4.3", reduced(PUSH), 17,
            because, paper_saved[PUSH],
        ),
        _timed(
            "by using both (c = 28, b = 90 %), the training time can be reduced by nearly 30 %", "4.3", reduced(BOTH),
            30, because, paper_saved[BOTH],
        ),
        _timed("the naive synchronous SGD is prolonged by nearly 30 %", "4.4", longer, 30, because),
        _claim(
            "the training time can be almost the same as the case with no delayed messages at all", "4.4",
            interval(100 * (minutes(BOTH) / minutes(BOTH, False) - 1)), "{} % longer at (28, 90 %)", same,
        ),
        _claim(
            "by using both, ... with the validation error remaining low", "4.3",
            harm[BOTH], "{} points higher at (28, 90 %)", same, paper_harm[BOTH],
        ),
        _claim(
            "when we set c and b to be too small, the algorithm may end up with relatively high validation error",
            "4.3", harm[SMALL], "{} points higher at (20, 75 %)", lambda found: above(found, SAME_POINTS),
            paper_harm[SMALL], [hard],
        ),
    ]  # fmt: skip
    off = {n: max(abs(100 * (minutes(s, True, n).mean() / s.paper_minutes - 1)) for s in SETTINGS) for n in servers}
    notes = [
        HALF_WIDTH,
        "The mean run-time follows from the two settings that almost never wait for late responses: 139.95 and 136.54 "
        "minutes for about 900 iterations are 9.3 and 9.1 s each.",
        "The largest difference from the paper's four running times is "
        + " and ".join(f"{off[number]:.1f} % with {number} servers" for number in servers)
        + ".",
        f"Nearly: within {NEARLY_POINTS:g} points of per cent. Almost the same, low: within {SAME_POINTS:g}.",
        f"Assumed are run-times that scatter by {100 * variation:g} % and a delay of every response of "
        f"{cluster.base_seconds:g} s; or a scatter of {' or '.join(f'{100 * each:g} %' for each in variations)}; or a "
        f"delay of {' or '.join(f'{each:g} s' for each in base_delays)}. A claim on running times holds, or fails, "
        f"where it does with {servers[0]} servers and all of these.",
    ]

    times = {"no injected delays": [minutes(s, False) for s in SETTINGS]}
    times |= {f"injected, {number} servers": [minutes(s, True, number) for s in SETTINGS] for number in servers}
    errors = {"no injected delays": [error(s, False) for s in SETTINGS], "injected": [error(s) for s in SETTINGS]}
    drawn = draw(times, errors, training.DATA[size])
    return Output(pd.DataFrame(rows), drawn, claims, notes)


def draw(times: Mapping[str, Sequence[np.ndarray]], errors: Mapping[str, Sequence[np.ndarray]], data: str) -> Figure:
    """Return bars of times and errors, float64[seeds] of each setting, with their intervals and the paper's numbers."""
    drawn, panels = canvas(1, 2, width=11, height=4.8)
    x, paper = np.arange(len(SETTINGS)), ([s.paper_minutes for s in SETTINGS], [s.paper_error for s in SETTINGS])
    for panel, found, numbers in zip(panels[0], (times, errors), paper, strict=True):
        for index, (label, values) in enumerate(found.items()):
            middle, bars = x + 0.8 * ((index + 0.5) / len(found) - 0.5), [interval(each) for each in values]
            halves = [bar.half if np.isfinite(bar.half) else 0.0 for bar in bars]
            height, width = [bar.mean for bar in bars], 0.75 / len(found)
            panel.bar(middle, height, width, yerr=halves, color=PALETTE[index], label=label)
        panel.hlines(numbers, x - 0.45, x + 0.45, color=PAPER, label="paper (CIFAR-10), injected")
        panel.set_xticks(x, [str(setting) for setting in SETTINGS])
        panel.set(xlabel="(c, b)", axisbelow=True, ylim=(0, 1.35 * panel.get_ylim()[1]))
        panel.legend(loc="upper left", ncols=2)
    panels[0, 0].set(title="Running time", ylabel="minutes")
    panels[0, 1].set(title=f"Error of {data}", ylabel="top-1 error (%)")
    return drawn


def simulations(model: Cluster, servers: Sequence[int], seeds: int, kinds: Iterable[tuple[Setting, bool]]) -> Sweep:
    """Return the simulated runs of a cluster, the longest first, of settings without or with injected delays."""
    over = [
        setting.waits | {"num_servers": number, "late": late, "seed": seed}
        for number in sorted(servers, reverse=True)
        for setting, late in kinds
        for seed in range(seeds)
    ]
    return Sweep({"cluster": dataclasses.asdict(model)}, over, work=simulate)


def _off(number: float, side: int) -> float:
    """Return the number that is just not nearly another one any more."""
    return NEARLY_POINTS.rewritten(number + side * NEARLY_POINTS)


def _exactly(number: float) -> Interval:
    """Return a number that the paper prints."""
    return Interval(number, 0.0, 1)


def _timed(
    says: str,
    section: str,
    found: Mapping[int, Sequence[Interval]],
    near: float,
    because: str,
    paper: float | None = None,
) -> Claim:
    """Return a claim on running times in per cent, by number of servers: the first one decides, with all assumptions.

    Args:
      says: the sentence.
      section: of the paper.
      found: of each number of servers, with each assumption, the first of which is the default.
      near: what it is nearly, in the paper's words.
      because: why it fails, where it does.
      paper: what the paper's own times give.
    """
    nearly = lambda value: between(value, _off(near, -1), _off(near, 1))
    ours = []
    for servers, values in found.items():
        means, inside = [value.mean for value in values], [nearly(value).holds for value in values].count(True)
        ours.append(
            f"{values[0]} % with {servers} servers ({min(means):.3g} to {max(means):.3g} % with {len(values)} "
            f"assumptions on run-times and delays, {inside} of them nearly {near:g} %)"
        )
    holds = throughout(map(nearly, next(iter(found.values()))))
    printed = {} if paper is None else {"paper": f"{paper:.3g} %", "on_paper": nearly(_exactly(paper))}
    because = because if holds.holds is False else ""
    return Claim(says, f"section {section}", "; ".join(ours), holds, because=because, **printed)


def _claim(
    says: str,
    section: str,
    found: Interval,
    words: str,
    test: Callable[[Interval], Evidence],
    paper: float | None = None,
    premises: Sequence[Premise] = (),
) -> Claim:
    """Return a claim that is tested on our values, one for each seed, and on the paper's number."""
    printed = {}
    if paper is not None:
        printed = {"paper": words.format(f"{paper:.3g}"), "on_paper": test(_exactly(paper))}
    return Claim(says, f"section {section}", words.format(found), test(found), premises=premises, **printed)
