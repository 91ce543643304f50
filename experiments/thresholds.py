"""Every threshold of a claim that the paper does not give, with its reason and the day when it was set.

Those of before 2026-11-26 were set while their figures were written, at small scale, and are marked as seen wherever it
is not on record that they came first. From that day on a threshold stands here before the runs that it judges.
"""

from experiments.harness.thresholds import Threshold

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
