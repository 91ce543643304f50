"""Premises that claims of several papers share, each computed from what was run."""

from experiments.harness import Premise
from experiments.thresholds import MESSAGES_COST

FREE = "messages and servers take no time"
"""The cause for which claims on seconds are not in our regime."""


def messages_cost(idle: float) -> Premise:
    """Return the premise of claims on seconds that rest on what messages and servers cost.

    Args:
      idle: share of the time in which workers are idle that never wait for one another.

    Example:
      >>> messages_cost(0.0).met, messages_cost(0.2).met
      (False, True)
    """
    return Premise(
        "messages and servers that take time, for which workers that never wait are idle",
        f"such workers are idle for {idle:.1%} of the time",
        idle > MESSAGES_COST,
        (MESSAGES_COST,),
    )
