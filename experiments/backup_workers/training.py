"""Stand-ins for the paper's Inception and PixelCNN at three sizes, and the test that a run has converged."""

from collections.abc import Iterable, Mapping
from typing import Any, Literal

import numpy as np
import pandas as pd
import scipy.stats
from ml_collections import ConfigDict

from configs import cifar10_pixelcnn, imagenet_inception
from experiments import thresholds
from experiments.harness import Interval, Sweep, enough, interval
from sgdlab.runs import configuration, crossing, resolve

Size = Literal["laptop", "gpu", "paper"]
"""Set-ups of training: small networks on UCI digits, smaller ones than the paper's on CIFAR, or the paper's own."""
PRECISION = "average_accuracy"
"""The test precision of the parameters' moving average, on which the paper evaluates Inception."""
UPDATES = 76_200
"""Of the paper's runs on Inception, to converge with N = 100 (section 3.1)."""
SHORT = "runs are much shorter than the paper's"
"""Why updates, epochs and seconds to a level are not the paper's: a rate that falls with the run sets them."""
EPOCHS = {"laptop": 29.0, "gpu": 60.0}
"""Length of the runs of what stands for Inception; over it the learning rate falls as far as the paper's."""
RATES = {"laptop": 0.008, "gpu": 0.045, "paper": 0.045}
"""Initial learning rate of a gradient, for Inception and what stands for it; an update of N gradients has N times that.

Laptop: of 0.0005, 0.001, 0.002, ... half the largest with which N = 100 trained (0.032 lost its stability with seed 0),
since the paper shows that twice its own rate still trains well. It was chosen before anything was compared with it.
"""
DIFFERS = {
    "laptop": "a conv net with BatchNorm on pairs of UCI digits, 8 a gradient and about 300 updates at N = 100",
    "gpu": "ResNet-20 on CIFAR-100 and about 940 updates at N = 100",
}
STAND_IN = "pairs of digits (8 x 16) in place of ImageNet"
DATA = {
    "laptop": "pairs of digits (in place of ImageNet)",
    "gpu": "CIFAR-100 (in place of ImageNet)",
    "paper": "ImageNet",
}
"""In titles of pictures, in place of ImageNet."""


def inception(size: Size, *, epochs: float | None = None, evaluations: int | None = None) -> ConfigDict:
    """Synchronous training with N = 100 and b = 6 by RMSProp, as of Inception (Appendices A.2 and A.3).

    At all sizes decay and momentum are 0.9, the rate of an update is proportional to N and falls by 0.94 for 1/95 of
    the run (every 2 of the paper's 190 epochs), and the network has BatchNorm. The moving average's decay, 0.9999, is
    adapted to the number of updates at the smaller sizes: it reaches back over about a sixth of the run (of shorter
    runs, over as many updates), the paper's over an eighth.

    Args:
      size: what is trained.
      epochs: length of the run, to which the fall of the rate is adapted at the smaller sizes; None: that of the size.
      evaluations: number of evaluations; None: that of the size.

    Example:
      >>> small = inception("laptop")
      >>> small.network.kind, small.data.kind, small.cluster.num_workers, round(small.rate.period, 3)
      ('conv', 'digit_pairs', 106, 0.305)
    """
    config = imagenet_inception.get_config()
    config.optimizer.learning_rate, config.target = RATES[size], None
    if size == "laptop":
        config.network.kind, config.network.conv.channels, config.network.conv.batch_norm = "conv", (8, 16), True
        config.data.kind, config.data.digit_pairs.num_examples, config.split = "digit_pairs", 8192, "drawn"
        config.batch_size, config.average_decay, config.evaluation_batch = 8, 0.98, 1000
    elif size == "gpu":
        config.network.kind, config.data.kind, config.data.cifar100.augment = "cifar_resnet", "cifar100", True
        config.average_decay, config.evaluation_batch = 0.993, 1000
    if size != "paper":
        config.evaluations, config.train_examples = 60, 1000
    if evaluations is not None:
        config.evaluations = evaluations
    if size != "paper":
        epochs = EPOCHS[size] if epochs is None else epochs
        configuration.shorten(config, epochs)
        config.average_decay = 1 - (1 - config.average_decay) * min(1.0, EPOCHS[size] / epochs)
    elif epochs is not None:
        config.epochs = epochs
    return config


def pixelcnn(size: Size, *, updates: int, rate: float) -> ConfigDict:
    """RMSProp on PixelCNN by 7 workers and a backup, as in Appendix A.4.

    At all sizes there are 4 examples a gradient, decay is 0.95 and momentum 0.9, and the rate falls exponentially to 3
    % over the run.

    Args:
      size: what is trained: 2 layers of 16 features on the 17 grey levels of UCI digits; 5 of 64 on CIFAR-10; or the
        paper's.
      updates: updates of a run; its epochs are left to `taking`.
      rate: initial learning rate of an update.
    """
    config = cifar10_pixelcnn.get_config()
    config.target, config.optimizer.learning_rate, config.rate.period = None, rate, float(updates)
    if size == "laptop":
        config.data.kind, config.test_examples, config.train_examples, config.split = "digits", 180, 100, "drawn"
        config.network.pixelcnn.update(layers=2, width=16, first_kernel=5, head=32)
    elif size == "gpu":
        config.test_examples = 2_000
        config.network.pixelcnn.update(layers=5, width=64, head=256)
    if size != "paper":
        config.evaluations = 40
    return config


def synchronous(machines: int, backups: int) -> dict[str, Any]:
    """Return the settings of N + b machines whose updates take the first N gradients.

    Example:
      >>> synchronous(106, 6)["cluster.num_workers"]
      106
    """
    waits = {"protocol.kind": "backup_workers", "protocol.backup_workers.backups": backups}
    return waits | {"cluster.num_workers": machines}


def asynchronous(machines: int, clip_norm: float | None) -> dict[str, Any]:
    """Return the settings of machines that never wait, each of which clips its gradient by the global norm."""
    never = {"protocol.kind": "asynchronous", "optimizer.clip_norm": clip_norm}
    return never | {"cluster.num_workers": machines}


def taking(config: ConfigDict, run: Mapping[str, Any], updates: int) -> dict[str, Any]:
    """Return a run's settings with the epochs that so many updates take.

    Example:
      A gradient has 4 of 1437 digits.

      >>> round(taking(pixelcnn("laptop", updates=359, rate=0.1), synchronous(8, 1), 359)["epochs"], 3)
      7.0
    """
    waits = run["protocol.kind"] == "backup_workers"
    used = run["cluster.num_workers"] - run["protocol.backup_workers.backups"] if waits else 1
    return {**run, "epochs": updates * used / resolve(config).data.batches_per_epoch}


def curves(sweep: Sweep) -> list[pd.DataFrame]:
    """Return the evaluations of each run, in the order of the sweep, with virtual time in `hours` too.

    Of the whole run there are `idle`, the share of their time in which its workers waited, and `test_examples`.
    """
    found = []
    for _, (*records, last) in sweep.records():
        run = pd.DataFrame([record for record in records if record["kind"] == "evaluation"])
        of_all = {"idle": last["idle_share"], "test_examples": last["test_examples"]}
        found.append(run.assign(hours=run.seconds / 3600, **of_all))
    return found


def highest(run: pd.DataFrame, *, precision: str = PRECISION) -> float:
    """Return the highest precision of a run's smoothed curve.

    Example:
      >>> run = pd.DataFrame({"average_accuracy": [0.1, 0.7, 0.6], "gradients": [0, 100, 200]})
      >>> highest(run)
      0.7
    """
    return float(crossing.smoothed(run.gradients, run[precision]).max())


def reached(run: pd.DataFrame, level: float, what: str, *, precision: str = PRECISION) -> float:
    """Return what a run had spent, such as its updates, when its smoothed precision first crossed a level.

    Between evaluations it is interpolated; it is infinite where the level is never reached.

    Example:
      >>> run = pd.DataFrame({"average_accuracy": [0.1, 0.7, 0.8], "gradients": [0, 100, 200], "updates": [0, 10, 20]})
      >>> round(reached(run, 0.4, "updates"), 3), reached(run, 0.9, "updates")
      (5.0, inf)
    """
    place = crossing.first(run.gradients, run[precision], level)
    return np.inf if place is None else float(np.interp(place, range(len(run)), run[what]))


def at_convergence(run: pd.DataFrame, what: str) -> float:
    """Return what a run had spent when its smoothed precision first came close to its highest.

    Example:
      >>> run = pd.DataFrame({"average_accuracy": [0.1, 0.6, 0.8], "gradients": [0, 100, 200], "updates": [0, 10, 20]})
      >>> round(at_convergence(run, "updates"), 3)
      19.875
    """
    return reached(run, highest(run) - thresholds.CONVERGED_WITHIN, what)


def late(runs: Iterable[pd.DataFrame], because: str, updates: float = UPDATES) -> dict[str, Any]:
    """Return what claims have in common that presuppose runs of at least half as many updates as the paper's.

    Example:
      >>> sorted(late([pd.DataFrame({"updates": [0, 300]})], "too short"))
      ['because', 'cause', 'premises']
    """
    premise = enough("updates", max(float(run.updates.iloc[-1]) for run in runs), updates)
    return {"premises": [premise]} | ({} if premise.met else {"because": because, "cause": SHORT})


def trend(values: np.ndarray) -> Interval:
    """Return the mean over seeds of the correlation of ranks between values and their order.

    Args:
      values: float64[cases, seeds], for the cases in their order; infinite where a run does not get there.

    Returns:
      Its interval, at least as wide as what it changes by where two neighbours change places.

    Source: Spearman 1904.

    Example:
      >>> str(trend(np.array([[1.0, 2.0, 1.0], [2.0, 3.0, 2.0], [5.0, np.inf, 7.0]])))
      '1.0 ± 0.5'
    """
    count = len(values)
    if count < 3:
        return interval([])
    ranks = scipy.stats.rankdata(values, axis=0)
    order = np.arange(1.0, count + 1)
    spread = np.sqrt(np.var(order) * np.var(ranks, axis=0))
    products = ((order - order.mean())[:, None] * (ranks - ranks.mean(axis=0))).mean(axis=0)
    found = np.divide(products, spread, out=np.zeros_like(products), where=spread > 0)
    return interval(found, resolution=12 / (count * (count**2 - 1)))


def times(logarithm: Interval) -> str:
    """Return a factor and the ends of its interval, from the interval of its logarithm.

    Example:
      >>> times(interval(np.log([1.5, 1.6, 1.55])))
      '1.55 (1.43 to 1.68) times'
    """
    if np.isnan(logarithm.mean):
        return "an unknown number of times"
    factor, low, high = np.exp([logarithm.mean, logarithm.low, logarithm.high])
    return f"{factor:.3g} ({low:.3g} to {high:.3g}) times"
