"""Every threshold of a claim that the paper does not give, with its reason and the day when it was set.

Those of before 2026-11-26 were set while their figures were written, at small scale, and are marked as seen wherever it
is not on record that they came first. From that day on a threshold stands here before the runs that it judges.
"""

from experiments.harness.thresholds import Threshold

# Teng and Wood 2018
CUTOFF_SUBSTANTIAL = Threshold(
    1.0, "points of the oracle, several times what another training changes", "2026-11-22", seen=True
)
CUTOFF_NEAR = Threshold(98.0, "% of the gradients per second of what it is compared with", "2026-11-22", seen=True)
FIGURE2_RECOVERED = Threshold(98.0, "% of the oracle's throughput is near the maximum", "2026-11-22", seen=True)
FIGURE2_IDLE = Threshold(0.1, "idle times that differ by a tenth are equal", "2026-11-22", seen=True)
FIGURE3_ERROR = Threshold(3.0, "points of error above the true law's are a high performance", "2026-11-22", seen=True)
FIGURE3_COVERAGE = Threshold(5.0, "points of coverage below the true law's are one too", "2026-11-22", seen=True)
FIGURE3_IMPUTED = Threshold(1.0, "points that imputation may cost a still accurate prediction", "2026-11-22", seen=True)
FIGURE3_WITHOUT = Threshold(95.0, "% of iterations without any slow worker: nearly all", "2026-11-26", seen=True)

# beyond
BIRCH_CONSTANT = Threshold(16.0, "12 from the theorem's constants, and a margin", "2026-11-23", seen=True)
DROPCOMPUTE_CLOSE = Threshold(0.05, "relative error of a formula that predicts", "2026-11-23", seen=True)
FOUR_SPEEDS_ALIKE = Threshold(0.1, "a loss that is a tenth higher matches", "2026-11-23", seen=True)
MINDFLAYER_ALIKE = Threshold(0.1, "a loss that is a tenth higher is as good", "2026-11-23", seen=True)
SINGLE_WORKER_CLOSE = Threshold(
    1.0, "points of accuracy within which methods are named as close", "2026-11-26", seen=True
)
DISAGREEING_STAYS = Threshold(0.5, "not even halved in runs many times as long: it stays away", "2026-11-26", seen=True)
RINGLEADER_AGREE = Threshold(0.95, "of all labels given by one network: clients agree", "2026-11-26", seen=True)
