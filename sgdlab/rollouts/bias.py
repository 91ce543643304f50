"""Length bias: whose prompts, and which answers, are trained on where some are thrown away."""

import dataclasses

import numpy as np

from sgdlab import arguments
from sgdlab.rollouts.schedule import RolloutSchedule
from sgdlab.rollouts.workload import Workload
from sgdlab.theory import participation


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class LengthBias(participation.OfWorkers):
    """Says which prompts are trained on, by length, and how long the answers are.

    Attributes:
      shares: float64[10], the share of each tenth of the prompts, the shortest first, of the trained rollouts; the
        tenth of a prompt is by all its rollouts of the workload. `effective_workers` is of ten equal ones.
      trained: mean tokens of a trained rollout.
      offered: mean tokens of the first attempts at the prompts that were begun.
    """

    trained: float
    offered: float

    def figures(self) -> dict[str, float]:
        """Return numbers for tables; shares are over equal ones, so that 1 is nobody starved.

        `longest_tenth` and `least_tenth` of the prompts, `effective_tenths` (of 10), and `trained_over_offered` length.
        """
        return {
            "longest_tenth": float(10 * self.shares[-1]),
            "least_tenth": self.least_share,
            "effective_tenths": self.effective_workers,
            "trained_over_offered": self.trained / self.offered,
        }


def length_bias(schedule: RolloutSchedule, workload: Workload, *, warmup: int = 0) -> LengthBias:
    """Return the length bias of a run.

    Short rollouts come first, so that the first steps of every policy are biased.

    Args:
      schedule: the run.
      workload: that it was made of.
      warmup: steps before this one do not count.

    Example:
      >>> from sgdlab import rollouts
      >>> work = rollouts.lognormal(prompts=2000, group=4, seed=0)
      >>> run = rollouts.simulate(work, rollouts.System(batch=8), rollouts.window, num_steps=50)
      >>> bool(length_bias(run, work, warmup=5).figures()["longest_tenth"] < 0.2)
      True
    """
    arguments.whole("warmup", warmup, least=0, most=schedule.num_steps - 1)
    rows, begun = schedule.trained(warmup), np.unique(schedule.prompt)
    tenths = workload.classes()[schedule.prompt[schedule.group[rows]]]
    return LengthBias(
        shares=participation.shares(np.bincount(tenths, minlength=10)),
        trained=float(schedule.tokens[rows].mean()),
        offered=float(workload.tokens[0, begun].mean()),
    )
