"""ImageNet and ResNet-50, as Barkai et al. 2020 train it on up to 128 asynchronous workers.

    sgdlab data imagenet
    sgdlab train --config=configs/imagenet_resnet50.py --config.method=dana_gap_aware --workdir=runs/resnet50
    sgdlab train --config=configs/imagenet_resnet50.py --config.data.kind=mock --config.epochs=1.0 --workdir=runs/mock
    sgdlab train --config=configs/imagenet_resnet50.py:tiny --workdir=runs/tiny

Images are streamed; `--config.readers=8` decodes them in eight processes, and needs `pip install 'sgdlab[stream]'`.
`--config.network.resnet50.dtype=bfloat16` computes in bfloat16; parameters stay float32.

Source: Barkai et al. 2020, appendix C.4 (hyperparameters), C.3 (cluster) and section 6.2. All methods and numbers of
workers share the hyperparameters of the single worker. A run is 450,360 gradients.

Expected test accuracy (Table 3, one run, %): 75.64 with a single worker (`--config.method=nag_asgd
--config.cluster.num_workers=1`), and

| workers | ASGD | NAG-ASGD | SA | GA | DANA | DANA-SA | DANA-GA |
|---|---|---|---|---|---|---|---|
| 32 | 70.53 | 70.64 | 61.73 | 70.27 | 74.89 | 65.66 | 75.06 |
| 48 | 69.05 | 66.78 | 56.22 | 67.75 | 73.75 | 61.16 | 74.23 |
| 64 | 67.10 | 59.81 | 50.79 | 64.78 | 69.88 | 56.98 | 74.11 |
| 128 | NaN | NaN | NaN | NaN | NaN | NaN | 72.18 |

Memory (computed, for event mode; activations come on top): 25,557,032 parameters are 102 MB. With 32 workers gap_aware
holds 38 copies of them, 3.9 GB, and dana_gap_aware 70, 7.2 GB; the test images, which are decoded once, take 7.5 GB.

Not in the paper, and assumed here: the augmentation (random parts of 8 to 100 % of the image, resized to 224x224,
mirrored) and the centre crop of 224x224 from a shortest side of 256 for tests; the initial values; BatchNorm's
momentum, 0.9. "Every asynchronous worker is a machine with 8 GPUs": here a worker normalises its 256 examples as one
batch, and not each GPU's share by itself.
"""

from ml_collections import ConfigDict

from sgdlab import arguments
from sgdlab.runs import configuration


def get_config(variant: str = "paper") -> ConfigDict:
    """Returns the configuration; what is not set here is as in `sgdlab/runs/configuration.py`.

    Args:
      variant: "paper", or "tiny" for seconds on data at hand, with a small network.

    Raises:
      ValueError: if there is no such variant.
    """
    arguments.one_of("variant", variant, configuration.VARIANTS)
    config = configuration.entries(
        {"cluster": "gamma", "network": "resnet50", "data": "imagenet"},
        network={"resnet50": {"stem": "imagenet"}},
        data={
            "imagenet": {"crops": "area", "size": 224, "test_side": 256},
            "mock": {"shape": "imagenet", "num_examples": 2048, "num_test": 256},
        },
    )
    config.method = "gap_aware"
    config.cluster.num_workers = 32
    config.cluster.gamma.heterogeneous = False
    config.epochs = 90.0
    config.batch_size = 256
    config.evaluations = 90
    config.evaluation_batch = 250

    # Momentum is the rules' own: 0.9 with Nesterov; asgd has none (section 6).
    config.optimizer.learning_rate = 0.1
    config.optimizer.weight_decay = 0.0001

    config.rate.warmup_epochs = 5.0
    config.rate.decay = "step"
    config.rate.steps = (30.0, 60.0)
    config.rate.factor = 0.1
    if variant == "tiny":
        _tiny(config)
    return config


def _tiny(config: ConfigDict) -> None:
    """A net of two convolutions with BatchNorm on UCI digits, 4 workers, 2 epochs."""
    config.data.kind, config.network.kind = "digits", "conv"
    config.network.conv.channels, config.network.conv.batch_norm = (8, 16), True
    config.cluster.num_workers, config.batch_size, config.evaluations = 4, 16, 4
    configuration.shorten(config, 2.0)
