"""Every threshold of a claim that the paper does not give, with its reason and the day when it was set.

Those of before 2026-11-26 were set while their figures were written, at small scale, and are marked as seen wherever it
is not on record that they came first. From that day on a threshold stands here before the runs that it judges.
"""

from experiments.harness.thresholds import Threshold

# Barkai et al. 2020: others
FIGURE4_MUCH_LESS = Threshold(2.0, "much less is at most half", "2026-11-22", seen=True)
FIGURE12_LINEAR = Threshold(0.05, "a speed-up that is a twentieth off is still linear", "2026-11-22", seen=True)
IMAGENET_CLOSE = Threshold(
    2.0, "points; in print DANA-GA is 0.58 to 1.53 below with 32 to 64 workers, 3.46 with 128", "2026-11-22", seen=True
)
IMAGENET_RELATIVELY_CLOSE = Threshold(
    10.0, "points; in print NAG-ASGD is 5.0 to 15.83 below with 32 to 64 workers", "2026-11-22", seen=True
)
PENALTIES_ROUNDING = Threshold(1e-10, "smaller relative errors are rounding", "2026-11-22", seen=True)
PERPLEXITY_ALMOST_TWO_ORDERS = Threshold(10**1.5, "one and a half orders at least", "2026-11-22", seen=True)
PERPLEXITY_NEAR = Threshold(1.25, "times; just beyond the paper's 1.18 with 8 workers", "2026-11-22", seen=True)
PERPLEXITY_REGAINED = Threshold(10.0, "%; just beyond the paper's 8.34 with 8 workers", "2026-11-22", seen=True)
THEOREM1_EXPONENT = Threshold(-0.45, "-1/2, but for a tenth of it", "2026-11-22", seen=True)
