"""Rollouts: staleness in asynchronous reinforcement learning of language models, exactly.

Engines decode rollouts, a queue holds the groups that are ready, a trainer takes batches of them, and a staleness
policy says which may begin, which are thrown away, and which are next. A run can be replayed: a policy is trained on
answers of the versions that it read, by a rule for the ratio of probabilities.
"""

from sgdlab import lazy

__getattr__, __dir__, __all__ = lazy.attach(
    __name__,
    modules=("engines",),
    names={
        "answers": ["AnswerTask", "toy"],
        "bias": ["LengthBias", "length_bias"],
        "engines": ["LoadedSpeed", "System"],
        "family": ["RATIO_RULES", "ROLLOUT_LENGTHS", "STALENESS_POLICIES"],
        "learn": ["Learned", "TrainedOn", "replay", "tuned"],
        "policies": [
            "StalenessPolicy", "admission", "budget", "in_order", "one_step_off", "queue_drop", "synchronous",
            "unbounded", "version_fifo", "window",
        ],
        "predict": ["ClosedForms", "predict"],
        "ratios": ["RatioRule", "SampledTokens"],
        "schedule": ["FATES", "RolloutSchedule"],
        "simulate": ["RolloutRun", "simulate"],
        "workload": ["Workload", "lognormal"],
    },
)  # fmt: skip
