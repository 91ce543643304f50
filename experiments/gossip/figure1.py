"""Loss and top-1 error of all-reduce, elastic averaging and gossip with 8 and 16 nodes (Jin et al. 2016, Figure 1).

As published (on arXiv; not legible in the available text) the aggregate minibatch of all nodes is 256 (32 a node at
p = 8, 16 at p = 16), Nesterov momentum 0.9, weight decay 1e-4, beta = 0.8 / p, and elastic averaging and gossip average
before every step (tau = 1) or every tenth (tau = 10). The learning rate 0.1 is multiplied by 0.1 twice, after each of
the first two thirds of the run; at the size paper, which has 90 epochs, these are the paper's 150,000 and 300,000
iterations. It is that of a node's own step, and of all-reduce's step along the averaged gradient; there is no warm-up.
At the size laptop, a small perceptron is trained on 20,000 pairs of digits, so that its test loss falls to the end, as
a validation loss on ImageNet does; at gpu, CIFAR-10 and ResNet-18 are trained for 15 epochs.

Speed is the virtual time until the test loss of the nodes' average, or the training loss at the nodes, is at a target
that is reached at the first learning rate or soon after. Compute times are gamma-distributed with 10 % scatter, and
their mean in seconds is the number of examples of a node's batch. How much compute times
scatter is not in the paper, and decides how long all-reduce waits: what is said of its speed is looked at with other
scatters too. Differences between methods are paired by seed, since machines are drawn for each seed and are the same
for all methods.
"""

import itertools
from collections.abc import Callable, Mapping
from typing import Annotated, Any

import numpy as np
import pandas as pd
from annotated_types import Ge

from experiments import papers
from experiments.gossip import sizes
from experiments.gossip.comparison import (
    ELASTIC,
    NOTE,
    PUSH,
    REDUCE,
    SCATTER,
    Compared,
    Run,
    draw,
    measured,
    name,
    paces,
    quantities,
    summarised,
    trained,
)
from experiments.gossip.sizes import CIFAR10, DIFFERS, IMAGENET, Network, Size, Targets
from experiments.harness import (
    Claim,
    Count,
    Evidence,
    Output,
    Positive,
    Scale,
    all_of,
    figure,
    interval,
    throughout,
)

RUNS = [REDUCE, *itertools.product(["elastic_averaging", "push_gossip", "pull_gossip"], [1, 10])]
"""Method and tau."""
SCATTERED = (REDUCE, ELASTIC, PUSH)
"""Those whose speeds the paper compares."""
TARGETS = {"laptop": Targets(0.6, 0.5), "gpu": CIFAR10, "paper": IMAGENET}
SLOW = "We think: with tau = 10 nodes come close to the center only after 12.5 p of their steps."
SPEED, LOWEST, PACE = "seconds_to_test_loss", "lowest_loss", "seconds_a_step"
Nodes = Annotated[int, Ge(2)]


@figure(
    papers.GOSSIP,
    "Figure 1",
    scales={
        "smoke": Scale("12 s", num_nodes=[8], seeds=1, epochs=1.0, pull=False, network="mlp"),
        "laptop": Scale("4 min"),
        "decide": Scale("28 min", seeds=24, epochs=40.0, rates=[0.025, 0.05, 0.1, 0.2, 0.4]),
        "gpu": Scale("50 min on one GPU, estimated", size="gpu", seeds=3, epochs=15.0, scatters=None, pull=False),
        "paper": Scale(
            "GPU-days, estimated; see --dry_run", size="paper", seeds=1, epochs=90.0, scatters=None, pull=False
        ),
    },
    differs=f"{DIFFERS} 2,340 iterations instead of more than 300,000.",
    stand_in=sizes.STAND_IN,
)
def figure1(
    *,
    size: Size = "laptop",
    num_nodes: list[Nodes] = (8, 16),
    seeds: Count = 6,
    epochs: Positive = 30.0,
    rates: list[Positive] | None = None,
    scatters: list[Positive] | None = (0.02, 0.05),
    aggregate: Count = 256,
    heterogeneous: bool = False,
    pull: bool = True,
    network: Network = "mlp",
) -> Output:
    """Trains all methods and compares them.

    Args:
      size: laptop trains on pairs of digits, gpu on CIFAR-10, paper on ImageNet.
      num_nodes: numbers of nodes, p, which divide the aggregate minibatch.
      seeds: number of seeds.
      epochs: epochs of each run, counting used gradients.
      rates: first learning rates that each method is tuned over; none: all have the paper's.
      scatters: coefficients of variation of times that speeds are looked at with, besides 0.1; none: that alone.
      aggregate: examples of one step of all nodes.
      heterogeneous: whether machines differ in speed.
      pull: whether pull gossip is trained too, which the paper's figure does not show.
      network: kind of the network at the size laptop.
    """
    for p in num_nodes:
        if aggregate % p:
            raise ValueError(f"num_nodes={p} must divide aggregate={aggregate}")
    base, targets = sizes.configured(size, epochs=epochs, heterogeneous=heterogeneous, network=network), TARGETS[size]
    listed = [(p, run) for p, run in itertools.product(num_nodes, RUNS) if pull or run[0] != "pull_gossip"]
    others = [(s, pair) for s in scatters or () for pair in itertools.product(num_nodes, SCATTERED)]
    sizes_of = {p: aggregate // p for p in num_nodes}
    table, evaluations = trained(base, listed, sizes_of, seeds, rates=rates, scattered=others)
    first, swept = base.rate.steps[0], {}
    for scatter in (SCATTER, *(scatters or ())):
        parts = (each[each.scatter == scatter] for each in (table, evaluations))
        swept[scatter] = measured(*parts, annealed=first, targets=targets.of)
    runs = swept[SCATTER]
    notes = [
        NOTE,
        "Each averaging moves a node towards the center by the share 0.8 / p, so with tau = 10 it takes 12.5 p steps "
        "of a node to come close to it: 100 at p = 8 and 200 at p = 16, when the first rate ends after "
        f"{runs.steps.mean() * first / epochs:.0f}; the paper's ends after 150,000.",
    ]
    words = quantities(targets)
    shown = evaluations[evaluations.scatter == SCATTER]
    drawn = draw(shown, num_nodes, sizes.DATA[size], pace=paces(table))
    return Output(summarised(runs, words), drawn, claims(swept, words), notes)


def claims(swept: Mapping[float, pd.DataFrame], words: Mapping[str, str]) -> list[Claim]:
    """Return the paper's statements about 8 and 16 nodes, and about the largest number of nodes.

    Args:
      swept: coefficient of variation of the compute times -> runs; those of the first one are looked at in all else.
      words: quantity -> its words.
    """
    runs, found = next(iter(swept.values())), []
    counts = sorted(set(runs.index.get_level_values("p")))

    def add(says: str, ours: str, holds: Evidence, *, because: str = "", **more: Any) -> None:
        found.append(Claim(says, "section 4", ours, holds, because=because if holds.holds is False else "", **more))

    def scattered(
        p: int, first: Run, second: Run, quantity: str, test: Callable[[Compared], Evidence]
    ) -> tuple[str, Evidence]:
        """Return the ratios of two methods with each scatter, in words, and the evidence whichever the paper's is."""
        at = {scatter: Compared(each, p, words) for scatter, each in swept.items()}
        times = {scatter: interval(np.exp(each.ratio(first, second, quantity))) for scatter, each in at.items()}
        holds = {scatter: test(each) for scatter, each in at.items()}
        said = {True: ", where it holds", False: ", where it fails", None: ""}
        told = ", ".join(f"{times[s]} times with a scatter of {100 * s:g} %{said[e.holds]}" for s, e in holds.items())
        return f"{words[quantity]}, {name(first)} over {name(second)}: {told}", throughout(holds.values())

    if 8 in counts:
        at = Compared(runs, 8, words)
        others = [run for run in at.there if run not in (REDUCE, ELASTIC)]
        told, ahead = scattered(8, ELASTIC, REDUCE, SPEED, lambda at: at.less(ELASTIC, [REDUCE], SPEED))
        ahead = all_of([ahead, at.less(ELASTIC, others, SPEED)])
        says = "p = 8: elastic averaging with tau = 10 performs ahead of the other methods"
        add(says, f"{at.words(SPEED, [ELASTIC, *at.ends(SPEED, others)])}; {told}", ahead, because=SLOW, **at.costs())
        told = scattered(8, REDUCE, PUSH, SPEED, lambda at: at.alike(REDUCE, [PUSH], SPEED))
        add("p = 8: all-reduce is as fast as gossiping", *told, **at.costs())
        told = scattered(8, REDUCE, PUSH, PACE, lambda at: at.alike(REDUCE, [PUSH], PACE))
        add("p = 8: all-reduce has practically no synchronization overhead", *told)
        alike = at.alike(REDUCE, at.there[1:], LOWEST)
        says = "p = 8: all methods converge to roughly the same minimum loss value"
        add(says, at.words(LOWEST, [REDUCE, *at.ends(LOWEST, at.there[1:])]), alike, premises=[at.falls()])
    if 16 in counts:
        at = Compared(runs, 16, words)
        for first, second, because in ((PUSH, ELASTIC, ""), (PUSH, REDUCE, ""), (ELASTIC, REDUCE, SLOW)):
            faster = lambda at, first=first, second=second: at.less(first, [second], SPEED)
            told = scattered(16, first, second, SPEED, faster)
            costs = at.costs() if second == REDUCE else {}
            add(f"p = 16: {name(first)} converges faster than {name(second)}", *told, because=because, **costs)
        elastic = [run for run in at.there if run[0] == ELASTIC[0]]
        free = [run for run in at.there if run not in elastic]
        stuck = all_of(at.less(run, elastic, "test_loss") for run in free)
        says = (
            "p = 16: elastic averaging with both tau = 1 and 10 has trouble converging to the loss of the other "
            "methods once the step size has been annealed"
        )
        premises = [at.falls(), *map(at.settled, free)]
        add(says, at.words("test_loss", [*elastic, *at.ends("test_loss", free)]), stuck, premises=premises)
    at = Compared(runs, max(counts), words)
    ahead = at.less(REDUCE, at.there[1:], LOWEST)
    found.append(
        Claim(
            "All-reduce, run for many epochs, typically converges to a lower optimal validation loss than either "
            "elastic averaging or gossiping",
            "section 4",
            ours=f"p = {at.p}: {at.words(LOWEST, [REDUCE, *at.ends(LOWEST, at.there[1:])])}",
            holds=ahead,
            paper="68.7 % top-1 accuracy of all-reduce after over a million iterations",
            premises=[at.falls()],
        )
    )
    return found
