"""Messages sent, used and avoidable in an iteration, of four settings of c and b (third contribution, section 1).

A message is one block: of a gradient that a worker pushes to the block's server, or of the parameters in a server's
response to a worker. A push is avoidable if its server drops the gradient; the worker can foresee that if it has
received a newer version of this block by the time when it ends the gradient. A response is avoidable if its worker
computes no gradient on it, because it arrives after the worker has begun (line 10 of Algorithm 1). No server can
foresee that: all servers send a version at the same instant, and it is on the way that responses are late. All other
messages are used.

Counted are the 900 simulated iterations with injected delays of Table 1, with 32 workers and 32 servers. Nothing is
trained. Naive synchronous SGD sends and uses 32 x 32 pushes and as many responses in an iteration.
"""

import dataclasses

import pandas as pd

from experiments import papers
from experiments.harness import (
    PALETTE,
    Claim,
    Count,
    Output,
    Premise,
    Scale,
    Sweep,
    above,
    all_of,
    canvas,
    figure,
    interval,
)
from experiments.thresholds import MESSAGES_SOME
from experiments.weak_sync.settings import HALF_WIDTH, SETTINGS
from experiments.weak_sync.simulation import Cluster, simulate

PARTS = {
    "used": ("used", PALETTE[0]),
    "foreseeable": ("avoidable, foreseeable by the sender", PALETTE[1]),
    "hindsight": ("avoidable in hindsight", PALETTE[7]),
}


@figure(
    papers.WEAK,
    "messages",
    scales={"smoke": Scale("2 s", servers=4, iterations=7, seeds=1), "laptop": Scale("30 s")},
    differs="The paper gives no numbers.",
    full_size=True,
)
def messages(*, servers: Count = 32, iterations: Count = 900, seeds: Count = 3) -> Output:
    """Simulates the runs and counts.

    Args:
      servers: number of servers.
      iterations: number of updates.
      seeds: number of seeds.
    """
    over = [setting.waits | {"seed": seed} for setting in SETTINGS for seed in range(seeds)]
    base = {"cluster": dataclasses.asdict(Cluster(iterations=iterations)), "late": True, "num_servers": servers}
    runs = Sweep(base, over, work=simulate).table().assign(responses_foreseeable=0)
    rows, shares = [], {}
    drawn, panels = canvas(1, 2, width=11, height=4.4, sharex=True, sharey=True)
    for panel, kind in zip(panels[0], ("pushes", "responses"), strict=True):
        names = ["sent", "used", "avoidable", *["foreseeable"] * (kind == "pushes")]
        for setting in SETTINGS:
            counts = setting.of(runs).filter(like=f"{kind}_").rename(columns=lambda name: name.partition("_")[2])
            counts = (counts / iterations).eval("sent = used + avoidable\nhindsight = avoidable - foreseeable")
            rows += [setting.row(counts[name], messages=kind, quantity=name) for name in names]
            shares[kind, setting] = {name: interval(100 * counts[name] / counts.sent) for name in names}
            left = 0.0
            for name, (label, shade) in PARTS.items():
                panel.barh(str(setting), counts[name].mean(), 0.6, left, color=shade, label=label)
                left += counts[name].mean()
        panel.set(title=kind.capitalize(), xlabel="messages in an iteration", axisbelow=True)
    panels[0, 0].set_ylabel("(c, b)")
    panels[0, 0].invert_yaxis()
    panels[0, 0].set_xlim(0, 1.04 * 32 * servers)
    handles, labels = panels[0, 0].get_legend_handles_labels()
    drawn.legend(handles[: len(PARTS)], labels[: len(PARTS)], loc="outside lower center", ncols=3)
    pushes, responses = (
        ", ".join(f"{shares[kind, setting][name]} % at {setting}" for setting in SETTINGS[1:])
        for kind, name in (("pushes", "foreseeable"), ("responses", "avoidable"))
    )
    says, where = "can proactively choose not to send some of the messages", "section 1, contribution 3"
    claims = [
        Claim(
            f"the workers {says}",
            where,
            ours=f"of the pushes, those that workers can foresee to be dropped: {pushes}",
            holds=all_of(above(shares["pushes", setting]["foreseeable"], MESSAGES_SOME) for setting in SETTINGS[1:]),
            because=f"Some: more than {MESSAGES_SOME:g} % of the pushes, at each setting that does not wait for all.",
        ),
        Claim(
            f"the servers {says}",
            where,
            ours=f"of the responses, those that are not used: {responses}",
            holds=None,
            because="No server can foresee which of its responses will be late.",
            premises=[Premise("a rule by which servers choose", "none is printed", met=False)],
        ),
    ]
    return Output(pd.DataFrame(rows), drawn, claims, [f"Messages in an iteration. {HALF_WIDTH}"])
