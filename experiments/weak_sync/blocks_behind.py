"""Versions that the blocks at a worker are behind, because of line 10 of Algorithm 1.

A worker starts as soon as it has received b of the blocks. By line 10 of Algorithm 1 it discards a block that arrives
later, and continues with its previous version of that block until the block's server is again among the first b. Which
servers are late is drawn anew in each iteration, so that each further version behind is rarer by a factor of about
1 - b. Counted is, for each block that a used gradient was computed on, how many versions it is older than the newest
block of the same gradient, and of each gradient what share of its blocks are the newest: for the paper's four settings
(32 workers, 32 servers, 900 iterations), with and without injected delays, and for (20, 75 %) with workers that also
accept late blocks. Nothing is trained.
"""

import dataclasses
import itertools

import numpy as np
import pandas as pd
from matplotlib.ticker import MaxNLocator

from experiments import papers
from experiments.harness import PALETTE, Claim, Count, Output, Scale, Sweep, canvas, figure
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
    rows, least = [], {}
    drawn, panels = canvas(1, 2, width=11, height=4.6, sharex=True, sharey=True)
    for (setting, newer), late in cases:
        made = setting.of(runs, keep_newer=newer, late=late)
        counts = pd.DataFrame(made.behind.tolist()).fillna(0).to_numpy()
        shares = 100 * counts / counts.sum(axis=1, keepdims=True)  # [seeds, K], % of the blocks
        quantities = {
            "newest, %": shares[:, 0],
            "newest of a gradient's, least, %": 100 * made.least_newest,
            "1 behind, %": shares[:, 1:2].sum(axis=1),
            "2 behind, %": shares[:, 2:3].sum(axis=1),
            "5 or more behind, %": shares[:, 5:].sum(axis=1),
            "mean, versions": shares @ np.arange(shares.shape[1]) / 100,
            "most, versions": [np.flatnonzero(each).max() for each in shares],
        }
        about = {"delays": DELAYS[late], "late blocks": "accepted" if newer else "discarded"}
        rows += [setting.row(values, quantity=quantity, **about) for quantity, values in quantities.items()]
        least[setting] = min(made.least_newest.min(), least.get(setting, 1.0))
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
        ours="of no gradient is the share of newest blocks below "
        + ", ".join(f"{100 * share:.3g} % at {setting}" for setting, share in least.items()),
        holds=all(share >= setting.pull_at_least for setting, share in least.items()),
        because="A worker waits for them; counted is each gradient.",
        identity=True,
    )
    return Output(pd.DataFrame(rows), drawn, [claim], [HALF_WIDTH])
