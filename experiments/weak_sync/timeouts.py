"""Running time and age of blocks against the time-outs tau1 = tau2 of servers and workers (section 4.4).

After c gradients a server waits up to tau1 for the others, and after b of the blocks a worker up to tau2. The paper has
both at 0, and says what larger ones would do. Each run is simulated with the injected delays at (28, 90 %) and at
(20, 75 %), with 32 workers, 32 servers and 900 iterations. A block that a gradient is computed on is as many versions
behind as the newest block of that gradient is newer; in synchronous SGD none is. Nothing is trained.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np
import pandas as pd

from experiments import papers
from experiments.harness import (
    Claim,
    Count,
    Evidence,
    NotNegative,
    Output,
    Scale,
    Sweep,
    all_of,
    below,
    canvas,
    figure,
)
from experiments.thresholds import TIMEOUTS_SLACK
from experiments.weak_sync.settings import BOTH, HALF_WIDTH, SMALL, SYNCHRONOUS
from experiments.weak_sync.simulation import Cluster, simulate

QUANTITIES = {"minutes": "running time (min)", "behind": "mean number of versions behind"}


@figure(
    papers.WEAK,
    "time-outs",
    scales={"smoke": Scale("2 s", timeouts=[0.0, 4.0], iterations=7, seeds=1), "laptop": Scale("2 min")},
    differs="The paper has no experiment with time-outs.",
    full_size=True,
)
def timeouts(
    *, timeouts: Sequence[NotNegative] = (0.0, 0.1, 0.5, 1.0, 2.0, 4.0), iterations: Count = 900, seeds: Count = 3
) -> Output:
    """Simulates the runs.

    Args:
      timeouts: tau1 = tau2, in seconds.
      iterations: number of updates.
      seeds: number of seeds.
    """
    taus = sorted(timeouts)
    waits = [(SYNCHRONOUS, 0.0), *((setting, tau) for setting in (BOTH, SMALL) for tau in taus)]
    over = [setting.waits | {"timeout": tau, "seed": seed} for setting, tau in waits for seed in range(seeds)]
    base = {"cluster": dataclasses.asdict(Cluster(iterations=iterations)), "late": True}
    runs = Sweep(base, over, work=simulate).table()
    runs["behind"] = [np.arange(len(counts)) @ counts / sum(counts) for counts in runs.behind]

    rows, closer, ours = [], [], []
    drawn, panels = canvas(1, 2, width=11, height=4.6)
    for panel, (name, quantity) in zip(panels[0], QUANTITIES.items(), strict=True):
        about = "tau1 = tau2, s"
        naive = SYNCHRONOUS.of(runs)[name].to_numpy()
        rows.append(SYNCHRONOUS.row(naive, quantity=quantity, **{about: 0.0}))
        panel.axhline(naive.mean(), color=SYNCHRONOUS.shade, linestyle="--", label=f"{SYNCHRONOUS}, synchronous")
        for setting in (BOTH, SMALL):
            found = np.stack([setting.of(runs, timeout=tau)[name] for tau in taus])
            rows += [setting.row(v, quantity=quantity, **{about: t}) for t, v in zip(taus, found, strict=True)]
            panel.plot(taus, found.mean(axis=1), **setting.line)
            closer.append(falls(abs(found - naive)))
            ours.append(f"{quantity} at {setting}: {', '.join(f'{mean:.3g}' for mean in found.mean(axis=1))}")
        panel.set(xlabel="time-outs of servers and workers (s)", ylabel=quantity)
        ours.append(f"with synchronous SGD {naive.mean():.3g}")
    says = "with larger tau1 and tau2, the performance will be closer to naive synchronous SGD"
    claim = Claim(says, "section 4.4", "; ".join(ours), all_of(closer))
    panels[0, 0].legend(loc="lower right")
    panels[0, 1].set(yscale="log", title="0 in synchronous SGD")
    notes = [
        HALF_WIDTH,
        "Closer: the distance to synchronous SGD, paired by seed, is smaller at the largest time-out than at the "
        f"smallest, and a longer time-out never makes it larger by over {100 * TIMEOUTS_SLACK:g} % of the distance at "
        "the smallest.",
    ]
    return Output(pd.DataFrame(rows), drawn, [claim], notes)


def falls(values: np.ndarray) -> Evidence:
    """Return the evidence that values, float64[K, seeds], nowhere rise and are lower at the end; paired by seed.

    A rise by less than `TIMEOUTS_SLACK` of the first value does not count, and values are known to a millionth of it.

    Example:
      >>> start, down = [3.0, 3.1, 3.3], [2.0, 2.05, 2.2]
      >>> falls(np.array([start, down, down])).holds, falls(np.array([start, down, [2.5, 2.56, 2.7]])).holds
      (True, False)
    """
    first = values[0].mean()
    slack, known = TIMEOUTS_SLACK.rewritten(TIMEOUTS_SLACK * first), 1e-6 * abs(first)
    steps = [below(step, slack, resolution=known) for step in np.diff(values, axis=0)]
    return all_of([*steps, below(values[-1] - values[0])])
