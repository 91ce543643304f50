"""CIFAR-10 and ResNet-20, as Barkai et al. 2020 train it on up to 48 asynchronous workers.

    sgdlab data cifar10
    sgdlab train --config=configs/cifar10_resnet20.py --config.method=dana_gap_aware --workdir=runs/resnet20
    sgdlab compare --config=configs/cifar10_resnet20.py --methods=nag_asgd,gap_aware,dana_gap_aware --workdir=runs/all

On images of the same shape that need no download, or in seconds on UCI digits with ResNet-8:

    sgdlab train --config=configs/cifar10_resnet20.py --config.data.kind=mock --config.epochs=1.0 --workdir=runs/mock
    sgdlab train --config=configs/cifar10_resnet20.py:tiny --workdir=runs/tiny

Source: Barkai et al. 2020, appendix C.4 (hyperparameters), C.3 (cluster) and section 6 (methods). All methods and
numbers of workers share the hyperparameters of the single worker. A run is 62,400 gradients.

Expected test accuracy (Table 4, mean of 5 runs, %): 92.43 with a single worker (`--config.method=nag_asgd
--config.cluster.num_workers=1`), and

| workers | ASGD | NAG-ASGD | SA | GA | DANA | DANA-SA | DANA-GA |
|---|---|---|---|---|---|---|---|
| 8 | 90.28 | 87.68 | 90.63 | 91.21 | 91.97 | 90.99 | 92.13 |
| 32 | 88.30 | 10.00 | 85.59 | 87.92 | 27.60 | 87.64 | 91.15 |

Memory (computed, for event mode; activations come on top): 269,722 parameters are 1.1 MB. With 8 workers gap_aware
holds 14 copies of them, 15 MB, and dana_gap_aware 22, 24 MB; the training images take 154 MB.

Not in the paper, and assumed here: the augmentation (4 pixels of black on each side, random crops, mirrored) and the
normalisation of the images by channel (He et al. 2016 subtract the mean of each pixel); the initial values; BatchNorm's
momentum, 0.9. The last, incomplete batch of an epoch is left out: 390 gradients instead of 391.
"""

from ml_collections import ConfigDict

from sgdlab import arguments
from sgdlab.runs import configuration


def get_config(variant: str = "paper") -> ConfigDict:
    """Returns the configuration; what is not set here is as in `sgdlab/runs/configuration.py`.

    Args:
      variant: "paper", or "tiny" for seconds on data at hand.

    Raises:
      ValueError: if there is no such variant.
    """
    arguments.one_of("variant", variant, configuration.VARIANTS)
    config = configuration.entries(
        {"cluster": "gamma", "network": "cifar_resnet", "data": "cifar10"},
        network={"cifar_resnet": {"depth": 20}},
        data={"mock": {"shape": "cifar10", "augment": True}},
    )
    config.method = "gap_aware"
    config.cluster.num_workers = 8
    config.cluster.gamma.heterogeneous = False
    config.epochs = 160.0
    config.batch_size = 128
    config.evaluations = 160

    # Momentum is the rules' own: 0.9 with Nesterov; asgd has none (section 6).
    config.optimizer.learning_rate = 0.1
    config.optimizer.weight_decay = 0.0005

    config.rate.warmup_epochs = 5.0
    config.rate.decay = "step"
    config.rate.steps = (80.0, 120.0)
    config.rate.factor = 0.1
    if variant == "tiny":
        _tiny(config)
    return config


def _tiny(config: ConfigDict) -> None:
    """ResNet-8 on UCI digits, 4 workers, 2 epochs."""
    config.data.kind, config.network.cifar_resnet.depth = "digits", 8
    config.cluster.num_workers, config.batch_size, config.evaluations = 4, 16, 4
    configuration.shorten(config, 2.0)
