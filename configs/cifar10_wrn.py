"""CIFAR-10 and the wide ResNet WRN-16-4, as Barkai et al. 2020 train it on up to 48 asynchronous workers.

    sgdlab data cifar10
    sgdlab train --config=configs/cifar10_wrn.py --config.method=dana_gap_aware --workdir=runs/wrn
    sgdlab train --config=configs/cifar10_wrn.py --config.data.kind=mock --config.epochs=1.0 --workdir=runs/mock
    sgdlab train --config=configs/cifar10_wrn.py:tiny --workdir=runs/tiny

Source: Barkai et al. 2020, appendix C.4 (hyperparameters), C.3 (cluster) and section 6 (methods). All methods and
numbers of workers share the hyperparameters of the single worker. A run is 78,000 gradients.

Expected test accuracy (Table 5, mean of 5 runs, %): 95.17 with a single worker (`--config.method=nag_asgd
--config.cluster.num_workers=1`), and

| workers | ASGD | NAG-ASGD | SA | GA | DANA | DANA-SA | DANA-GA |
|---|---|---|---|---|---|---|---|
| 8 | 92.91 | 92.83 | 93.38 | 94.32 | 94.67 | 93.52 | 94.90 |
| 32 | 91.22 | 19.52 | 88.70 | 92.35 | 68.10 | 89.35 | 94.27 |

Memory (computed, for event mode; activations come on top): 2,748,890 parameters are 11 MB. With 8 workers gap_aware
holds 14 copies of them, 154 MB, and dana_gap_aware 22, 242 MB; the training images take 154 MB.

Not in the paper, and assumed here: no dropout; the augmentation (4 pixels of black on each side, random crops,
mirrored) and the normalisation of the images; the initial values; BatchNorm's momentum, 0.9. The last, incomplete
batch of an epoch is left out: 390 gradients instead of 391.
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
        {"cluster": "gamma", "network": "wide_resnet", "data": "cifar10"},
        network={"wide_resnet": {"depth": 16, "widen": 4, "dropout": 0.0}},
        data={"mock": {"shape": "cifar10", "augment": True}},
    )
    config.method = "gap_aware"
    config.cluster.num_workers = 8
    config.cluster.gamma.heterogeneous = False
    config.epochs = 200.0
    config.batch_size = 128
    config.evaluations = 200

    # Momentum is the rules' own: 0.9 with Nesterov; asgd has none (section 6).
    config.optimizer.learning_rate = 0.1
    config.optimizer.weight_decay = 0.0005

    config.rate.warmup_epochs = 5.0
    config.rate.decay = "step"
    config.rate.steps = (60.0, 120.0, 160.0)
    config.rate.factor = 0.2
    if variant == "tiny":
        _tiny(config)
    return config


def _tiny(config: ConfigDict) -> None:
    """WRN-10-1 on mocked images of 8x8 pixels and 10 classes, 4 workers, 2 epochs."""
    config.data.kind, mock = "mock", config.data.mock
    mock.image_shape, mock.num_classes, mock.num_examples, mock.num_test = (8, 8, 3), 10, 512, 128
    config.network.wide_resnet.depth, config.network.wide_resnet.widen = 10, 1
    config.cluster.num_workers, config.batch_size, config.evaluations = 4, 16, 4
    configuration.shorten(config, 2.0)
