"""Every threshold of a claim that the paper does not give, with its reason and the day when it was set.

Those of before 2026-11-26 were set while their figures were written, at small scale, and are marked as seen wherever it
is not on record that they came first. From that day on a threshold stands here before the runs that it judges.
"""
