"""The registries of rollouts: laws of their lengths, and staleness policies."""

from sgdlab.registry import Registry

LISTED = "sgdlab rollouts --help"

ROLLOUT_LENGTHS = Registry(
    "lengths",
    given={"prompts": "", "group": "", "attempts": "", "seed": ""},
    listed=LISTED,
    modules=("sgdlab.rollouts.workload",),
)
"""Laws of the lengths of rollouts: `(*, prompts, group, attempts, seed, **own) -> Workload`."""

STALENESS_POLICIES = Registry(
    "staleness policy", given={"batch": ""}, listed=LISTED, modules=("sgdlab.rollouts.policies",)
)
"""Rules that say which groups begin, are discarded and are trained on: `(*, batch, **own) -> StalenessPolicy`."""

RATIO_RULES = Registry("ratio rule", given={}, listed=LISTED, modules=("sgdlab.rollouts.ratios",))
"""Rules for tokens that another version than the trained one has sampled: `(**own) -> RatioRule`."""
