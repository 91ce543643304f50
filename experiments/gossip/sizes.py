"""Settings that the runs of Figures 1 and 2 share at each size: data, network, optimiser, losses that are timed."""

import dataclasses
from collections.abc import Mapping
from typing import Literal

from ml_collections import ConfigDict

from configs import digits, imagenet_resnet18

Size = Literal["laptop", "gpu", "paper"]
Network = Literal["conv", "mlp"]

DATA = {
    "laptop": "pairs of digits (in place of ImageNet)",
    "gpu": "CIFAR-10 (in place of ImageNet)",
    "paper": "ImageNet",
}
STAND_IN = "pairs of UCI digits (8 x 16) and a perceptron in place of ImageNet and ResNet-18"
TEST_EXAMPLE = {"laptop": 100 / 4096, "gpu": 0.01, "paper": 0.002}
"""Points of per cent of one test example: no error is known to less."""
DIFFERS = (
    "At the size laptop, 20,000 pairs of UCI digits and a perceptron of 32 units instead of ImageNet and "
    "ResNet-18; at gpu, CIFAR-10 and ResNet-18 with a stem for small images. Messages take no time: "
    "all-reduce waits for stragglers but never for messages."
)


@dataclasses.dataclass(frozen=True)
class Targets:
    """Losses to which times and steps are measured; runs are to reach them at the first learning rate or soon after.

    Attributes:
      test_loss: of the nodes' average.
      train_loss: at the nodes, mean over the gradients between two evaluations.
    """

    test_loss: float
    train_loss: float

    @property
    def of(self) -> Mapping[str, float]:
        """Name of a record's entry -> its target."""
        return {"test_loss": self.test_loss, "train_loss": self.train_loss}


# Those of CIFAR-10 and ImageNet are estimates: half of the images of ImageNet are recognised at a loss of about 2.3.
CIFAR10, IMAGENET = Targets(0.6, 0.6), Targets(2.3, 2.6)


def configured(
    size: Size, *, epochs: float, learning_rate: float = 0.1, heterogeneous: bool = False, network: Network = "mlp"
) -> ConfigDict:
    """Return the configuration of all runs of one size, before method, nodes and minibatch are set.

    The learning rate is that of a node's own step, and of all-reduce's step along the averaged gradient; it is
    multiplied by 0.1 after each of the first two thirds of the run, without warm-up. Momentum 0.9 is Nesterov's, weight
    decay is 1e-4. At the size paper the rate falls where the paper says, after the epochs of 150,000 and 300,000
    iterations of 256 examples, which are thirds of 90 epochs.

    Args:
      size: laptop has pairs of digits, gpu CIFAR-10, paper ImageNet as configs/imagenet_resnet18.py has it.
      epochs: epochs of each run, counting used gradients.
      learning_rate: the first one.
      heterogeneous: whether machines differ in speed.
      network: kind of the network at the size laptop.
    """
    config = digits.get_config() if size != "paper" else imagenet_resnet18.get_config()
    config.epochs, config.evaluations, config.cluster.gamma.heterogeneous = epochs, 60, heterogeneous
    config.optimizer.learning_rate, config.optimizer.momentum, config.optimizer.weight_decay = learning_rate, 0.9, 1e-4
    if size == "paper":
        return config
    config.data.kind, config.data.digit_pairs.num_examples, config.data.digit_pairs.num_test = (
        "digit_pairs",
        20_000,
        4096,
    )
    config.network.kind, config.network.conv.channels, config.network.mlp.widths = network, (8, 16), (32,)
    if size == "gpu":
        config.data.kind, config.network.kind, config.network.resnet18.stem = "cifar10", "resnet18", "cifar"
    config.rate.of, config.rate.warmup_epochs, config.rate.decay, config.rate.factor = "update", 0.0, "step", 0.1
    config.rate.steps = (epochs / 3, 2 * epochs / 3)
    return config
