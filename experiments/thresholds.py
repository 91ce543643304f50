"""Every threshold of a claim that the paper does not give, with its reason and the day when it was set.

Those of before 2026-11-26 were set while their figures were written, at small scale, and are marked as seen wherever it
is not on record that they came first. From that day on a threshold stands here before the runs that it judges.
"""

from experiments.harness.thresholds import Threshold

# Barkai et al. 2020: accuracies

SHARP_CLIMB_POINTS = Threshold(
    10.0, "a sharp climb of the test error, or a collapse, is at least so many points", "2026-11-22", seen=True
)
CLOSE_TO_SINGLE_POINTS = Threshold(
    2.0, "a test error within so many points of the single worker's is close to it", "2026-11-22", seen=True
)
ZERO_TRAINING_ERROR_POINTS = Threshold(0.5, "the zero-error region of the training set", "2026-11-22", seen=True)
GRANULARITY_SIMILAR_POINTS = Threshold(
    0.5, "final errors of two granularities that differ by less are similar", "2026-11-22", seen=True
)
TUNED_SIMILAR_POINTS = Threshold(
    0.5, "in print Gap-Aware is 0.5 points below the tuned ASGD and similar to it", "2026-11-22", seen=True
)
CONVERGENCE_ALIKE_SHARE = Threshold(
    0.1, "epochs to a loss that differ by a tenth of the run are alike", "2026-11-22", seen=True
)
HARD_TASK_ERROR = Threshold(
    10.0, "a task with a larger test error of the single worker in print, in %, is a hard one", "2026-11-26", seen=True
)
