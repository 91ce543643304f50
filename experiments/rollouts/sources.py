"""Sources of the claims on stale rollouts: papers, and threads of open projects as they were read on 2026-11-27."""

from experiments.papers import Paper

TINKER = Paper(
    "tinker-cookbook 2026",
    "Async RL: enforce staleness by pacing sampling instead of discarding rollouts",
    "https://github.com/thinking-machines-lab/tinker-cookbook/pull/822",
    {"Policies": "Staleness, speed, waste and shares of the prompts, by staleness policy"},
)

MARIN = Paper(
    "marin 2026",
    "Two pilots of asynchronous reinforcement learning with caps of 2,048 and 4,096 tokens",
    "https://github.com/marin-community/marin/issues/8936",
    {"Pilots": "Seconds, stale tokens and waiting with the larger cap, from the numbers of the smaller one"},
)

AREAL = Paper(
    "Fu et al. 2025",
    "AReaL: A Large-Scale Asynchronous Reinforcement Learning System for Language Reasoning",
    "https://arxiv.org/abs/2505.24298",
    {
        "Rules": "Rewards by rule for stale tokens and staleness policy, in kind",
        "Speed": "Seconds to a reward by the bound of admission, in kind",
    },
)

APPLIED_COMPUTE = Paper(
    "Applied Compute 2026",
    "Predicting and Controlling Staleness in Fully Asynchronous RL Training",
    "https://www.appliedcompute.com/research/staleness-in-fully-async-rl",
    {"Six runs": "Mean staleness of six runs behind a queue that drops the oldest: closed form, simulated, measured"},
)
