"""The frameworks of Barkai et al. 2020, each at three sizes, and the sweeps that its tables and figures share."""

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

from ml_collections import ConfigDict

from configs import cifar10_resnet20, cifar10_wrn, cifar100_wrn, digits
from experiments.harness import Sweep
from sgdlab.runs import configuration

Size = Literal["laptop", "gpu", "paper"]
Letter = Literal["R", "W", "W100"]

METHODS = {
    "asgd": "ASGD",
    "nag_asgd": "NAG-ASGD",
    "staleness_aware": "SA",
    "gap_aware": "GA",
    "dana": "DANA",
    "dana_staleness_aware": "DANA-SA",
    "dana_gap_aware": "DANA-GA",
}
"""The seven methods of section 6, by their names here: all but ASGD have Nesterov momentum."""

SINGLE = "nag_asgd"
"""The method of the single worker, which all are compared with: without others' gradients it is NAG."""

WORKERS = (4, 8, 16, 32, 48)
"""The numbers of workers at the size of a laptop, half of the paper's."""

RATE = 0.02
"""Learning rate of all methods at the size of a laptop."""

STAND_IN = "pairs of UCI digits (8 x 8 each) in place of CIFAR-10 and CIFAR-100"
DIFFERS = (
    "pairs of UCI digits and small conv nets with BatchNorm instead of CIFAR and (wide) ResNets, 16 examples a "
    "gradient instead of 128, a tenth of the epochs, and 4,096 or 5,120 gradients a run instead of 62,400 or 78,000."
)
"""Why numbers at the size of a laptop are not the paper's."""


@dataclasses.dataclass(frozen=True)
class Framework:
    """A network and a data set.

    Attributes:
      letter: R, W or W100.
      title: of the paper's network and data.
      paper: makes the paper's own configuration.
      classes: number of classes, here and in the paper.
      channels: of the conv net at the size of a laptop.
    """

    letter: str
    title: str
    paper: Callable[[], ConfigDict]
    classes: int
    channels: tuple[int, int]

    def config(self, size: Size, *, share: float = 1.0) -> ConfigDict:
        """Return the configuration of a single worker, or of any number of them.

        Args:
          size: "paper"; "gpu", the paper's in an eighth or a tenth of the epochs, 20; or "laptop".
          share: of the size's epochs.
        """
        config = self.paper()
        epochs, evaluations = config.epochs, 20
        if size == "laptop":
            epochs, config = epochs / 10, self._laptop(config)
        elif size == "gpu":
            epochs = 20.0
        else:
            evaluations = round(epochs)
        configuration.shorten(config, share * epochs)
        config.evaluations = max(round(share * evaluations), 1)
        config.method, config.target, config.average_decay = SINGLE, None, None
        return config

    def _laptop(self, paper: ConfigDict) -> ConfigDict:
        """Return the paper's training of a small conv net on pairs of digits, of which a seed tests on a fifth."""
        config = digits.get_config()
        config.network.kind, config.network.conv.channels, config.network.conv.batch_norm = "conv", self.channels, True
        config.data.kind, config.data.digit_pairs.classes = "digit_pairs", self.classes
        config.epochs, config.rate, config.optimizer = paper.epochs, paper.rate, paper.optimizer
        config.batch_size, config.optimizer.learning_rate = 16, RATE
        config.cluster.gamma.heterogeneous, config.split = False, "rotating"
        return config


FRAMEWORKS = {
    framework.letter: framework
    for framework in (
        Framework("R", "CIFAR-10, ResNet-20", cifar10_resnet20.get_config, 10, (8, 16)),
        Framework("W", "CIFAR-10, WRN-16-4", cifar10_wrn.get_config, 10, (16, 32)),
        Framework("W100", "CIFAR-100, WRN-16-4", cifar100_wrn.get_config, 100, (16, 32)),
    )
}
"""By letter."""


def title(letter: str, size: Size) -> str:
    """Return what a panel or a row is called: the paper's framework, or what stands for it here.

    Example:
      >>> title("W100", "laptop"), title("R", "paper")
      ('digits (in place of CIFAR-100): 100 classes, 16 and 32 channels', 'CIFAR-10, ResNet-20')
    """
    framework = FRAMEWORKS[letter]
    if size != "laptop":
        return framework.title
    first, second = framework.channels
    data = framework.title.partition(",")[0]
    return f"digits (in place of {data}): {framework.classes} classes, {first} and {second} channels"


def heading(letter: str, size: Size) -> str:
    """Return the title of a panel: `title` in two lines."""
    return title(letter, size).replace(": ", ":\n")


def sweep(
    letter: str,
    size: Size,
    *,
    num_workers: Iterable[int],
    seeds: int,
    methods: Iterable[str] = tuple(METHODS),
    single: bool = True,
    share: float = 1.0,
    changed: Mapping[str, Any] | None = None,
) -> Sweep:
    """Runs of a framework: all methods at all numbers of workers, and the single worker, with every seed.

    Runs are shared by all tables and figures: each is named by its own settings. At the size of a laptop, a seed has
    its own pairs of digits, and its own fifth of these to test on: with four fixed folds, every fourth seed would have
    the same test set, and intervals over seeds would be too narrow.

    Args:
      letter: R, W or W100.
      size: as `Framework.config` takes it.
      num_workers: numbers of workers, N.
      seeds: number of seeds: 0, 1, ...
      methods: of `METHODS`.
      single: whether the single worker is trained too.
      share: of the size's epochs.
      changed: other entries, such as {"cluster.gamma.heterogeneous": True}; the single worker has them too.
    """
    points = [(SINGLE, 1)] if single else []
    points += [(method, workers) for method in methods for workers in num_workers]
    over: Sequence[dict[str, Any]] = [
        {"method": method, "cluster.num_workers": workers, "seed": seed, **(changed or {})}
        | ({"data.digit_pairs.seed": seed} if size == "laptop" else {})
        for method, workers in points
        for seed in range(seeds)
    ]
    return Sweep(FRAMEWORKS[letter].config(size, share=share), over)
