"""`accuracies`, final accuracies of runs that nobody made, whose numbers are known."""

import numpy as np
import pandas as pd

from experiments.gap_aware.accuracies import Accuracies


def accuracies(of, *, train=lambda test: test, lost=()):
    """Returns the accuracies of runs: (framework, N, method) -> % of each seed; a loss is 101 less the accuracy.

    Args:
      of: test accuracies.
      train: makes the training accuracies of them.
      lost: methods that are lost.
    """
    rows = [
        {"framework": f, "N": n, "method": m, "seed": seed, "test": value, "lost": m in lost}
        for (f, n, m), values in of.items()
        for seed, value in enumerate(values)
    ]
    runs = pd.DataFrame(rows)
    runs = runs.assign(train=train(runs.test))
    losses = {f"{split}_loss": np.log(np.maximum(101 - runs[split], 1e-3)) for split in ("test", "train")}
    return Accuracies(runs.assign(**losses))
