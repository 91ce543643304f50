"""Every threshold of a claim that the paper does not give, with its reason and the day when it was set.

Those of before 2026-11-26 were set while their figures were written, at small scale, and are marked as seen wherever it
is not on record that they came first. From that day on a threshold stands here before the runs that it judges.
"""

from experiments.harness.thresholds import Threshold

# Chen et al. 2016
LOST_BELOW = Threshold(0.2, "training accuracy of a lost run: twice a guess at ten classes", "2026-11-22", seen=True)
RAMP_SHARE = Threshold(0.1, "what changes fewer runs, a tenth, is not relevant", "2026-11-26", seen=True)
LAYER_WITHIN = Threshold(0.02, "of a layer's mean staleness, which is printed to a tenth", "2026-11-22", seen=True)
NEARLY_HALF = Threshold(1.5, "times fewer, where half would be 2 times, and no gain 1", "2026-11-22", seen=True)
CONVERGED_WITHIN = Threshold(0.0025, "of the highest precision: half of what is compared", "2026-11-22", seen=True)
EPOCH_COMPARABLE = Threshold(1.1, "times as long, a tenth longer, is comparable", "2026-11-22", seen=True)
UNSTABLE_BELOW = Threshold(0.5, "of synchronous training's precision: half of it", "2026-11-26", seen=True)
MESSAGES_COST = Threshold(0.05, "idle share of workers that never wait", "2026-11-26")
