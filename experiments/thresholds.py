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

# Anonymous 2018 (weak synchronization)

SAME_POINTS = Threshold(1.0, "points of per cent, of errors or times, that are almost none", "2026-11-22", seen=True)
NEARLY_POINTS = Threshold(3.0, "points of per cent by which a time may differ from 'nearly'", "2026-11-22", seen=True)
MUCH_FASTER = Threshold(0.9, "a time shorter by a tenth is much shorter", "2026-11-22", seen=True)
MESSAGES_SOME = Threshold(1.0, "per cent of the messages above which they are some", "2026-11-22", seen=True)
TIMEOUTS_SLACK = Threshold(0.01, "share of the first distance by which one may rise", "2026-11-22", seen=True)

# Jin et al. 2016

BOUNDS_FIXED = Threshold(0.05, "share by which a rate may differ from the exact one", "2026-11-22", seen=True)
ALIKE_TIMES = Threshold(1.1, "a factor by which values may differ and be roughly the same", "2026-11-22", seen=True)
ANNEALED_LITTLE = Threshold(5.0, "per cent of gain after the first rate that are almost none", "2026-11-22", seen=True)
ANNEALED_MUCH = Threshold(2.0, "how many times as much gain is much more", "2026-11-22", seen=True)
SETTLED = Threshold(0.1, "share by which a loss may fall in the last quarter of a rate", "2026-11-26", seen=True)
RISEN = Threshold(0.02, "share by which a test loss at its end may be above its lowest", "2026-11-26", seen=True)

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

# rollouts
BUSY_ENOUGH = Threshold(0.98, "a trainer that waits for a fiftieth of its time is busy", "2026-11-27", seen=True)
FAIR_SHARE = Threshold(0.1, "a share that is a tenth off an equal one is fair", "2026-11-27", seen=True)
LEARNS_FASTER = Threshold(0.1, "a tenth of the seconds to a reward is no difference", "2026-11-28", seen=False)
PILOT_CLOSE = Threshold(0.1, "of a share or of seconds: a tenth off is predicted", "2026-11-27", seen=True)
REWARD_ALIKE = Threshold(0.05, "of 1: a twentieth of the largest reward is as good", "2026-11-28", seen=True)
STALENESS_CLOSE = Threshold(0.1, "a mean staleness that is a tenth off is predicted", "2026-11-29", seen=True)
STALENESS_FOLLOWS = Threshold(0.05, "inputs of two decimals give a prediction within this", "2026-11-29", seen=True)
STARVED_SHARE = Threshold(0.5, "less than half of an equal share is starved", "2026-11-27", seen=True)

# beyond
BIRCH_CONSTANT = Threshold(16.0, "12 from the theorem's constants, and a margin", "2026-11-23", seen=True)
DECOUPLED_COMPETITIVE = Threshold(1.05, "a twentieth of a test loss is competitive", "2026-11-27", seen=False)
DROPCOMPUTE_CLOSE = Threshold(0.05, "relative error of a formula that predicts", "2026-11-23", seen=True)
GOODPUT_EXACT = Threshold(0.02, "relative error of an exact formula of goodput", "2026-11-27", seen=True)
SYNCHRONOUS_NEAR = Threshold(1.5, "times as long: half as long again is still near", "2026-11-29", seen=True)
GOODPUT_LOST = Threshold(0.02, "a fiftieth of all time is no loss", "2026-11-27", seen=True)
BYTES_CLOSE = Threshold(1.0, "points of accuracy that shorter messages may cost", "2026-11-27", seen=True)
DROPPED_LITTLE = Threshold(1.0, "points of accuracy that lost messages may cost", "2026-11-27")
HOURS_CLOSE = Threshold(0.05, "relative error of hours that a closed form says", "2026-11-27", seen=True)
MOST_THRESHOLDS = Threshold(0.9, "nine of ten numbers of a table are nearly all", "2026-11-27", seen=True)
FOUR_SPEEDS_ALIKE = Threshold(0.1, "a loss that is a tenth higher matches", "2026-11-23", seen=True)
MINDFLAYER_ALIKE = Threshold(0.1, "a loss that is a tenth higher is as good", "2026-11-23", seen=True)
SINGLE_WORKER_CLOSE = Threshold(
    1.0, "points of accuracy within which methods are named as close", "2026-11-26", seen=True
)
ONE_STEP_ROBUST = Threshold(0.01, "a test loss that is a hundredth higher is no degradation", "2026-11-29")
CLIPPED_ALIKE = Threshold(0.1, "a loss that is a tenth higher does not depend on the stragglers", "2026-11-29")
DISAGREEING_STAYS = Threshold(0.5, "not even halved in runs many times as long: it stays away", "2026-11-26", seen=True)
RINGLEADER_AGREE = Threshold(0.95, "of all labels given by one network: clients agree", "2026-11-26", seen=True)
