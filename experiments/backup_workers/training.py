"""What stands for the paper's Inception and PixelCNN at three sizes, and when a run has converged."""

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import pandas as pd
import scipy.stats
from ml_collections import ConfigDict

from configs import cifar10_pixelcnn, imagenet_inception
from experiments.harness import Sweep
from sgdlab.runs import configuration, resolve

Size = Literal["laptop", "gpu", "paper"]
"""What is trained: small networks on UCI digits, smaller ones than the paper's on CIFAR, or the paper's own."""
PRECISION = "average_accuracy"
"""The test precision of the parameters' moving average, on which the paper evaluates Inception."""
NEAR = 0.0025
"""A run has converged at its first evaluation that is so close to its highest precision."""
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


def inception(size: Size, *, epochs: float | None = None, evaluations: int | None = None) -> ConfigDict:
    """Synchronous training with N = 100 and b = 6 by RMSProp, as of Inception (Appendices A.2 and A.3).

    At all sizes decay and momentum are 0.9, the rate of an update is proportional to N and falls by 0.94 for 1/95 of
    the run (every 2 of the paper's 190 epochs), and the network has BatchNorm. The moving average's decay, 0.9999, is
    adapted to the number of updates at the smaller sizes: it reaches back over about a sixth of the run, the paper's
    over an eighth.

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
        config.data.kind, config.data.digit_pairs.num_examples = "digit_pairs", 8192
        config.batch_size, config.average_decay, config.evaluation_batch = 8, 0.98, 1000
    elif size == "gpu":
        config.network.kind, config.data.kind, config.data.cifar100.augment = "cifar_resnet", "cifar100", True
        config.average_decay, config.evaluation_batch = 0.993, 1000
    if size != "paper":
        config.evaluations, config.train_examples = 60, 1000
    if evaluations is not None:
        config.evaluations = evaluations
    if size != "paper":
        configuration.shorten(config, EPOCHS[size] if epochs is None else epochs)
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
        config.data.kind, config.test_examples, config.train_examples = "digits", 180, 100
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
    """Return the evaluations of each run, in the order of the sweep, with virtual time in `hours` too."""
    found = (
        pd.DataFrame([record for record in records if record["kind"] == "evaluation"]) for _, records in sweep.records()
    )
    return [run.assign(hours=run.seconds / 3600) for run in found]


def reached(run: pd.DataFrame, level: float, what: str, *, precision: str = PRECISION) -> float:
    """What a run had spent, such as its updates, when it was first evaluated at a precision; infinite if it never was.

    Example:
      >>> run = pd.DataFrame({"average_accuracy": [0.1, 0.7, 0.6, 0.8], "updates": [0, 10, 20, 30]})
      >>> reached(run, 0.7, "updates"), reached(run, 0.9, "updates")
      (10.0, inf)
    """
    return float(np.min(run[what].to_numpy(float)[run[precision].to_numpy() >= level], initial=np.inf))


def at_convergence(run: pd.DataFrame, what: str) -> float:
    """Return what a run had spent when its precision first came close to its highest.

    Example:
      >>> run = pd.DataFrame({"average_accuracy": [0.1, 0.6, 0.799, 0.8], "updates": [0, 10, 20, 30]})
      >>> at_convergence(run, "updates")
      20.0
    """
    return reached(run, run[PRECISION].max() - NEAR, what)


def rises(values: np.ndarray) -> tuple[bool | None, float]:
    """Return whether values rise along an order, by Page's test of ordered alternatives at 2.5 % on each side.

    Args:
      values: float64[cases, seeds], for the cases in their order; infinite where a run does not get there.

    Returns:
      True, False where they fall, or None; and the mean over seeds of the correlation of ranks.

    Source: Page 1963.

    Example:
      >>> rises(np.array([[1.0, 2.0, 1.0], [2.0, 3.0, 2.0], [5.0, np.inf, 7.0]]))
      (True, 1.0)
    """
    if min(values.shape) < 2 or len(values) < 3:
        return None, np.nan
    ranks = scipy.stats.rankdata(values, axis=0)
    order = np.arange(1.0, len(ranks) + 1)
    spread = np.sqrt(np.var(order) * np.var(ranks, axis=0))
    products = ((order - order.mean())[:, None] * (ranks - ranks.mean(axis=0))).mean(axis=0)
    correlation = np.divide(products, spread, out=np.zeros_like(products), where=spread > 0).mean()
    up, down = (scipy.stats.page_trend_test(of_seeds.T, ranked=True).pvalue for of_seeds in (ranks, ranks[::-1]))
    return True if up < 0.025 else False if down < 0.025 else None, round(float(correlation), 6)
