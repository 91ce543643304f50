"""Versions that the blocks at a worker are behind, because of line 10 of Algorithm 1.

A worker starts as soon as it has received b of the blocks. By line 10 of Algorithm 1 it discards a block that arrives
later, and continues with its previous version of that block until the block's server is again among the first b. Which
servers are late is drawn anew in each iteration, so that each further version behind is rarer by a factor of about
1 - b. Counted is, for each block that a used gradient was computed on, how many versions it is older than the newest
block of the same gradient: for the paper's four settings (32 workers, 32 servers, 900 iterations), with and without
injected delays, and for (20, 75 %) with workers that also accept late blocks. Nothing is trained.
"""

import dataclasses
import itertools

import numpy as np
import pandas as pd
from matplotlib.ticker import MaxNLocator

from experiments import papers
from experiments.harness import PALETTE, Claim, Count, Output, Scale, Sweep, above, canvas, figure, interval
from experiments.weak_sync.settings import HALF_WIDTH, SETTINGS, SMALL
from experiments.weak_sync.simulation import Cluster, simulate

DELAYS = {False: "none", True: "injected"}
KINDS = [*((setting, False) for setting in SETTINGS), (SMALL, True)]
"""Settings, and whether late blocks are accepted."""


@figure(
    papers.WEAK,
    "blocks behind",
    scales={"smoke": Scale("2 s", servers=4, iterations=7, seeds=1), "laptop": Scale("1 min")},
    differs="The paper has no such numbers.",
    full_size=True,
)
def blocks_behind(*, servers: Count = 32, iterations: Count = 900, seeds: Count = 3) -> Output:
    """Simulates the runs and counts.

    Args:
      servers: number of servers.
      iterations: number of updates.
      seeds: number of seeds.
    """
    cases = list(itertools.product(KINDS, DELAYS))
    over = [
        s.waits | {"keep_newer": newer, "late": late, "seed": i} for (s, newer), late in cases for i in range(seeds)
    ]
    base = {"cluster": dataclasses.asdict(Cluster(iterations=iterations)), "num_servers": servers}
    runs = Sweep(base, over, work=simulate).table()
    rows, pulled, claimed = [], [], []
    drawn, panels = canvas(1, 2, width=11, height=4.6, sharex=True, sharey=True)
    for (setting, newer), late in cases:
        counts = pd.DataFrame(setting.of(runs, keep_newer=newer, late=late).behind.tolist()).fillna(0).to_numpy()
        shares = 100 * counts / counts.sum(axis=1, keepdims=True)  # [seeds, K], % of the blocks
        quantities = {
            "newest, %": shares[:, 0],
            "1 behind, %": shares[:, 1:2].sum(axis=1),
            "2 behind, %": shares[:, 2:3].sum(axis=1),
            "5 or more behind, %": shares[:, 5:].sum(axis=1),
            "mean, versions": shares @ np.arange(shares.shape[1]) / 100,
            "most, versions": [np.flatnonzero(each).max() for each in shares],
        }
        about = {"delays": DELAYS[late], "late blocks": "accepted" if newer else "discarded"}
        rows += [setting.row(values, quantity=quantity, **about) for quantity, values in quantities.items()]
        newest = interval(shares[:, 0])
        pulled.append(above(newest, 100 * setting.pull_at_least - 1e-9))
        claimed += [f"{newest} % at {setting}"] if late and not newer else []
        mean = shares.mean(axis=0)
        (seen,) = np.nonzero(mean)
        accepted = {"color": PALETTE[7], "marker": "x", "linestyle": "--", "label": f"{setting}, late ones accepted"}
        panels[0, int(late)].plot(seen, mean[seen], **(accepted if newer else setting.line))
    for panel, late in zip(panels[0], DELAYS, strict=True):
        panel.set(title=f"With{'' if late else 'out'} injected delays", yscale="log")
        panel.set_xlabel("versions behind the newest block of the gradient")
        panel.xaxis.set_major_locator(MaxNLocator(integer=True))
    panels[0, 0].set_ylabel("share of the blocks (%)")
    panels[0, 1].legend(loc="upper right")
    claim = Claim(
        "for the workers, at least b % of the blocks are guaranteed to be pulled",
        "section 3",
        ours=f"of all gradients together, with injected delays, the newest are {', '.join(claimed)}",
        holds=False if False in pulled else None,
        because="Blocks are counted over all gradients of a run; a guarantee is about each.",
    )
    return Output(pd.DataFrame(rows), drawn, [claim], [HALF_WIDTH])
