# my_trace.py
import re
import numpy as np
from sgdlab.traces import TRACES
from sgdlab.traces import Recording

LINE = re.compile(r"step (\d+) rank (\d+) took ([\d.]+) ms")


@TRACES.register("our_log", title="our trainer's log", endings=(".trainlog",))
def our_log(*, path):
    """Reads lines such as `step 12 rank 3 took 87.5 ms`; others are left out."""
    found = [match.groups() for match in map(LINE.search, path.read_text().splitlines()) if match]
    if not found:
        raise ValueError("must have lines such as 'step 12 rank 3 took 87.5 ms'")
    steps, ranks = (np.array([int(line[k]) for line in found]) for k in (0, 1))
    rows, row = np.unique(steps, return_inverse=True)
    names, column = np.unique(ranks, return_inverse=True)
    runtimes = np.full((len(rows), len(names)), np.nan)  # NaN: this worker is missing in this step
    runtimes[row, column] = [float(line[2]) / 1000 for line in found]
    return Recording(runtimes, rows, tuple(map(str, names)))
