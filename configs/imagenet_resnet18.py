"""ImageNet and ResNet-18, as Jin et al. 2016 train it on 8 nodes by all-reduce, gossip and elastic averaging.

    sgdlab data imagenet
    sgdlab train --config=configs/imagenet_resnet18.py --workdir=runs/resnet18
    sgdlab train --config=configs/imagenet_resnet18.py --config.method=push_gossip --workdir=runs/push
    sgdlab train --config=configs/imagenet_resnet18.py --config.data.kind=mock --config.epochs=1.0 --workdir=runs/mock
    sgdlab train --config=configs/imagenet_resnet18.py:tiny --workdir=runs/tiny

16 nodes with 16 examples each are `--config.cluster.num_workers=16 --config.batch_size=16`. Elastic averaging and
gossip every 10 iterations: `--config.protocol.elastic_averaging.period=10`, `--config.protocol.gossip.period=10`.
Images are streamed; `--config.readers=8` decodes them in eight processes, and needs `pip install 'sgdlab[stream]'`.

Source: Jin et al. 2016, experiments and appendix. In our copy: ResNet-18 with projection shortcuts; annealing after
150,000 and 300,000 iterations; "over 1 million iterations with a minibatch size of 256" for the number below; Nesterov
momentum; random scales, crops, mirrored images and colour noise; tests on centre crops at the smallest scale. Not in
our copy, which has lost its formulas, and as published (arXiv 1611.04581): 8 nodes with 32 examples; the rate 0.1,
annealed by 0.1; momentum 0.9; weight decay 1e-4; shortest sides of 256 to 480 pixels, crops of 224; beta = 0.8 / p. A
run is 8,000,000 gradients, 1,000,000 iterations of 256 examples.

Expected: 68.7 % top-1 validation accuracy, by all-reduce after more than 1,000,000 iterations (the paper's experiments;
"about 68.7 %" in its appendix). `--config.epochs=90.0` is 450,000 iterations, 150,000 of them after the second
annealing. The paper has no single worker.

Memory (computed, for event mode; activations come on top): 11,689,512 parameters are 47 MB. All-reduce holds 6 copies
of them, 0.3 GB, and gossip of 8 nodes 28, 1.3 GB; the test images, which are decoded once, take 7.5 GB.

Not in the paper, and assumed here: the standard deviation of the colour noise, 0.1, and its form, as Krizhevsky et al.
2012 have it; the initial values; BatchNorm's momentum, 0.9; no warm-up; gamma-distributed compute times of equal
machines, and messages that take no time. The paper scales copies of at most 480 pixels, we scale the images.
"""

from ml_collections import ConfigDict

from sgdlab import arguments
from sgdlab.runs import configuration

_PER_EPOCH = 1_281_167 // 32


def get_config(variant: str = "paper") -> ConfigDict:
    """Returns the configuration; what is not set here is as in `sgdlab/runs/configuration.py`.

    Args:
      variant: "paper", or "tiny" for seconds on data at hand, with a small network.

    Raises:
      ValueError: if there is no such variant.
    """
    arguments.one_of("variant", variant, configuration.VARIANTS)
    config = configuration.entries(
        {"cluster": "gamma", "network": "resnet18", "data": "imagenet"},
        network={"resnet18": {"stem": "imagenet"}},
        data={
            "imagenet": {
                "crops": "shortest_side", "sides": (256, 480), "size": 224, "test_side": 256, "colour_noise": 0.1,
            },
            "mock": {"shape": "imagenet", "num_examples": 2048, "num_test": 256},
        },
    )  # fmt: skip
    config.method = "all_reduce"
    config.cluster.num_workers = 8
    config.cluster.gamma.heterogeneous = False
    config.epochs = _epochs(1_000_000)
    # Of a node; 256 of all nodes together.
    config.batch_size = 32
    config.evaluations = 200
    config.evaluation_batch = 250

    # Of an update that averages the gradients of all nodes, and of a node's own step.
    config.optimizer.learning_rate = 0.1
    config.optimizer.momentum = 0.9
    config.optimizer.nesterov = True
    config.optimizer.weight_decay = 0.0001

    # In epochs, since an update of gossip is a node's own step, and an iteration is one of every node.
    config.rate.of = "update"
    config.rate.warmup_epochs = 0.0
    config.rate.decay = "step"
    config.rate.steps = (_epochs(150_000), _epochs(300_000))
    config.rate.factor = 0.1
    if variant == "tiny":
        _tiny(config)
    return config


def _epochs(iterations: int) -> float:
    """Epochs of so many iterations of 8 nodes with 32 examples each."""
    return iterations * 8 / _PER_EPOCH


def _tiny(config: ConfigDict) -> None:
    """A net of two convolutions with BatchNorm on UCI digits, pull gossip of 4 nodes, 2 epochs."""
    config.data.kind, config.network.kind, config.method = "digits", "conv", "pull_gossip"
    config.network.conv.channels, config.network.conv.batch_norm = (8, 16), True
    config.cluster.num_workers, config.evaluations = 4, 4
    configuration.shorten(config, 2.0)
