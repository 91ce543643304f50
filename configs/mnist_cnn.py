"""MNIST and the weight-normalised CNN with which Chen et al. 2016 show what simulated staleness costs.

    sgdlab data mnist
    sgdlab train --config=configs/mnist_cnn.py --workdir=runs/mnist
    sgdlab train --config=configs/mnist_cnn.py --config.protocol.simulated_staleness.average=20 --workdir=runs/mnist20
    sgdlab train --config=configs/mnist_cnn.py --config.data.kind=mock --config.epochs=1.0 --workdir=runs/mock
    sgdlab train --config=configs/mnist_cnn.py:tiny --workdir=runs/tiny

Source: Chen et al. 2016, section 2.1 and appendix A.1: SGD for 25 epochs at a rate of 0.1, annealed linearly to 0 in
the last 10; a moving average of the parameters with decay 0.9999; small rotations and zooms; a staleness that rises
over the first 3 epochs. A run is 46,875 gradients.

Expected test error of the average (`average_accuracy` in the records), best of several runs chosen by a validation
set (section 2.1): 0.36 % without staleness, 0.47 % with an average staleness of 20 updates, 0.79 % with 50. From 20 on
the paper lowers the initial rate, and does not say by how much; above 15 training became much less stable.

Memory (computed, for event mode; activations come on top): 67,764 parameters are 0.3 MB; the training images take
47 MB. A staleness of S holds S + 1 versions of the parameters, rounded up to a power of 2.

Not in the paper, and assumed here: the widths of the four convolutions (32, 32, 64, 64), their initial values, and a
linear layer behind them; no momentum and no weight decay; rotations by up to 10 degrees and zooms by up to 10 %;
batches of 32, as in A.2 and A.3 (of larger ones, 25 epochs have too few updates for an average with decay 0.9999).
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
        {"cluster": "gamma", "network": "weight_norm_cnn", "data": "mnist"},
        network={"weight_norm_cnn": {"channels": (32, 32, 64, 64)}},
        data={"mnist": {"augment": True, "degrees": 10.0, "zoom": 0.1}, "mock": {"shape": "mnist"}},
        protocol={"simulated_staleness": {"average": 0.0, "ramp_epochs": 3.0}},
    )
    # One worker, whose gradients are computed on older parameters.
    config.method = "simulated_staleness"
    config.cluster.num_workers = 1
    config.epochs = 25.0
    config.batch_size = 32
    config.evaluations = 25
    config.average_decay = 0.9999

    config.optimizer.learning_rate = 0.1
    config.optimizer.momentum = 0.0
    config.optimizer.nesterov = False
    config.optimizer.weight_decay = 0.0

    config.rate.warmup_epochs = 0.0
    config.rate.decay = "hold_linear"
    config.rate.last = 10.0
    config.rate.final = 0.0
    if variant == "tiny":
        _tiny(config)
    return config


def _tiny(config: ConfigDict) -> None:
    """Two convolutions on UCI digits, an average staleness of 2, 5 epochs."""
    config.data.kind, config.network.weight_norm_cnn.channels = "digits", (8, 16)
    config.protocol.simulated_staleness.average, config.protocol.simulated_staleness.ramp_epochs = 2.0, 0.6
    # Of 220 updates, 0.9999 would hold the start.
    config.average_decay, config.evaluations = 0.98, 5
    configuration.shorten(config, 5.0)
