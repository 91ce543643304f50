"""CIFAR-10 and PixelCNN, as Chen et al. 2016 train it with 7 workers and a backup worker.

    sgdlab data cifar10
    sgdlab train --config=configs/cifar10_pixelcnn.py --workdir=runs/pixelcnn
    sgdlab train --config=configs/cifar10_pixelcnn.py --config.data.kind=mock --config.epochs=0.1 --workdir=runs/mock
    sgdlab train --config=configs/cifar10_pixelcnn.py:tiny --workdir=runs/tiny

With 15 workers and a backup, `--config.cluster.num_workers=16 --config.epochs=240.0`; serial RMSProp is
`--config.protocol.kind=synchronous --config.cluster.num_workers=1 --config.epochs=16.0`; without waiting,
`--config.protocol.kind=asynchronous --config.epochs=16.0`. Each of these is 200,000 updates.

Source: Chen et al. 2016, section 4.3 and appendix A.4: RMSProp with decay 0.95 and momentum 0.9, batches of 4, a rate
of 1e-4 "slowly decreased to" 3e-6 after 200,000 updates. A run is 200,000 updates of 7 gradients.

Expected: a test negative log-likelihood of 2.183 nats, 3.149 bits per dimension (`test_bits_per_dimension` in the
records). The paper reaches it serially in 40 hours and synchronously in less than 13 hours, and never without waiting
(section 4.3); how low it ends is not in our copy.

Memory (computed, for event mode; activations come on top): 5,856,128 parameters are 23 MB, of which 7 copies are held,
164 MB; the training images take 154 MB.

Not in the paper, and assumed here: the gated PixelCNN (Oord et al. 2016) with 15 layers of 128 features, 7x7 in the
first and 3x3 in the others, and 1024 features before the logits; its initial values; an exponential decrease that ends
at 3e-6, and training that ends there too; epsilon 1e-10 and an initial mean square of 1, the defaults of TensorFlow's
RMSProp; gamma-distributed compute times of equal machines.
"""

import math

from ml_collections import ConfigDict

from sgdlab import arguments
from sgdlab.runs import configuration

_PER_EPOCH = 50_000 // 4


def get_config(variant: str = "paper") -> ConfigDict:
    """Returns the configuration; what is not set here is as in `sgdlab/runs/configuration.py`.

    Args:
      variant: "paper", or "tiny" for seconds on data at hand.

    Raises:
      ValueError: if there is no such variant.
    """
    arguments.one_of("variant", variant, configuration.VARIANTS)
    config = configuration.entries(
        {"cluster": "gamma", "network": "pixelcnn", "data": "cifar10"},
        data={"cifar10": {"augment": False}, "mock": {"shape": "cifar10"}},
        protocol={"backup_workers": {"backups": 1}},
        rule={"rmsprop": {"decay": 0.95, "eps": 1e-10, "initial_scale": 1.0}},
    )
    config.method = "backup_workers"
    config.rule.kind = "rmsprop"
    # N + b, of which every update takes the first N = 7.
    config.cluster.num_workers = 8
    config.epochs = 200_000 * 7 / _PER_EPOCH
    config.batch_size = 4
    config.evaluations = 112
    config.evaluation_batch = 50
    config.train_examples = 1_000
    # Bits per dimension.
    config.target = 2.183 / math.log(2)

    # Of an update, however many gradients it averages.
    config.optimizer.learning_rate = 1e-4
    config.optimizer.momentum = 0.9
    config.optimizer.weight_decay = 0.0

    config.rate.of = "update"
    config.rate.warmup_epochs = 0.0
    config.rate.decay = "exponential"
    config.rate.unit = "updates"
    config.rate.period = 200_000.0
    config.rate.factor = config.rate.final = 0.03
    if variant == "tiny":
        _tiny(config)
    return config


def _tiny(config: ConfigDict) -> None:
    """Two layers of 12 features on patches of photographs, 8x8 pixels in 8 levels; 2 workers and a backup."""
    network, data = config.network.pixelcnn, config.data.photographs
    config.data.kind, data.size, data.stride, data.levels = "photographs", 8, 16, 8
    network.layers, network.width, network.first_kernel, network.head = 2, 12, 3, 24
    config.cluster.num_workers, config.evaluations, config.test_examples, config.target = 3, 4, 200, None
    # About 100 updates; the rate is higher, since they are few.
    config.epochs, config.optimizer.learning_rate, config.rate.period = 0.5, 1e-3, 100.0
