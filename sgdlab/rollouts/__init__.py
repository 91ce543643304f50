"""Rollouts: staleness in asynchronous reinforcement learning of language models, exactly.

Engines decode rollouts, a queue holds the groups that are ready, a trainer takes batches of them, and a staleness
policy says which may begin, which are thrown away, and which are next.
"""

from sgdlab.rollouts.bias import LengthBias, length_bias
from sgdlab.rollouts.engines import LoadedSpeed, System
from sgdlab.rollouts.family import ROLLOUT_LENGTHS, STALENESS_POLICIES
from sgdlab.rollouts.policies import (
    Discard,
    StalenessPolicy,
    admission,
    budget,
    in_order,
    one_step_off,
    queue_drop,
    synchronous,
    unbounded,
    version_fifo,
    window,
)
from sgdlab.rollouts.predict import ClosedForms, predict
from sgdlab.rollouts.schedule import FATES, RolloutSchedule
from sgdlab.rollouts.simulate import RolloutRun, simulate
from sgdlab.rollouts.workload import Workload, lognormal, recorded

__all__ = [
    "FATES", "ROLLOUT_LENGTHS", "STALENESS_POLICIES", "ClosedForms", "Discard", "LengthBias", "LoadedSpeed",
    "RolloutRun", "RolloutSchedule", "StalenessPolicy", "System", "Workload", "admission", "budget", "in_order",
    "length_bias", "lognormal", "one_step_off", "predict", "queue_drop", "recorded", "simulate", "synchronous",
    "unbounded", "version_fifo", "window",
]  # fmt: skip
