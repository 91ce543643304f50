"""LB-BSP: synchronous rounds in which faster workers compute more (Chen et al. 2020)."""

import dataclasses

from sgdlab.bounds import Count, Decay, NotNegative
from sgdlab.knobs import Knob
from sgdlab.protocols.allotments import DividedRounds, allotted
from sgdlab.protocols.register import register


@dataclasses.dataclass
class LoadBalancing(DividedRounds):
    """Rounds of a fixed number of gradients, divided among workers in proportion to their speeds.

    While a worker's speed is not known, it counts as fast as the mean of those that are. Who joins waits for the next
    round, unless all do.

    Attributes:
      decay: of the moving average of the seconds that a worker's gradients take.
      pace: worker -> that average, seconds.
      sums: worker -> number and seconds of its gradients of the open round.
    """

    decay: float = 0.5
    pace: dict[int, float] = dataclasses.field(default_factory=dict, init=False)
    sums: dict[int, tuple[int, float]] = dataclasses.field(default_factory=dict, init=False)

    def choose(self) -> None:
        """Divides the round among the workers that are there."""
        workers = sorted(self.alive)
        known = [self.pace[worker] for worker in workers if worker in self.pace]
        usual = sum(known) / len(known) if known else 1.0
        seconds = {worker: self.pace.get(worker, usual) for worker in workers}
        self.chosen = allotted(self.total, seconds, least=1) if workers else {}

    def learn(self, worker: int, seconds: float, *, came: bool = True) -> None:
        """Adds up the times of the round."""
        number, total = self.sums.get(worker, (0, 0.0))
        self.sums[worker] = number + 1, total + seconds

    def end(self, now: float) -> None:
        """Moves the averages."""
        for worker, (number, total) in self.sums.items():
            mean = total / number
            self.pace[worker] = self.decay * self.pace.get(worker, mean) + (1 - self.decay) * mean
        self.sums = {}


@register(
    title="LB-BSP",
    source="Chen et al. 2020",
    families=("Time-limited rounds",),
    rule="nag_asgd",
    pieces="gradients",
    tunes=Knob("decay", 0.1, 0.95, log=False),
)
def lb_bsp(
    *, num_workers: Count, gradients: Count = 2, decay: Decay = 0.5, communication: NotNegative = 0.0
) -> LoadBalancing:
    r"""Every update averages as many gradients as any other, of which each worker computes a share like its speed.

    .. math:: \bar g_k = \frac{1}{N g} \sum_{i=1}^N \sum_{j=1}^{b_{k,i}} \nabla f(\theta_k; \xi_{i,j}), \qquad
        b_{k,i} \propto 1 / \tau_{k,i}, \quad \sum_i b_{k,i} = N g

    tau is the moving average of the seconds that the worker's gradients took in earlier rounds. All end at about the
    same time, and no gradient is thrown away. A gradient of the schedule is a part of a worker's batch; batches are
    weighted by their size. In runs, g of them are a batch and divide its seconds, so that with workers of one speed it
    is synchronous SGD.

    Args:
      num_workers: N.
      gradients: g, of a worker in a round on average; every worker has at least one.
      decay: of the moving average, from 0, the last round alone, to below 1.
      communication: seconds from the end of a round's last gradient to its update.

    Source: Chen, Weng, Wang, Li and Li 2020 (SoCC), LB-BSP, whose abstract was read. The paper predicts speeds of CPU
    workers by a network and sizes batches of GPU workers step by step; the moving average is a reconstruction.

    Example:
      >>> import numpy as np
      >>> from sgdlab.protocols.family import PROTOCOLS
      >>> schedule = PROTOCOLS["lb_bsp"].make(np.array([[1.0, 3.0]] * 20), gradients=4, num_gradients=16)
      >>> schedule.applied[:, 0], np.bincount(schedule.worker)
      (array([12., 18.]), array([10,  6]))
    """
    return LoadBalancing(communication=communication, total=num_workers * gradients, decay=decay)
