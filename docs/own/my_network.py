# my_network.py
import math
from flax import nnx
from sgdlab.networks import NETWORKS


def flat(images):  # not a lambda in the network: each would be a program of its own to compile
    return images.reshape(len(images), -1)


@NETWORKS.register(title="Two layers")
def two_layers(*, width: int = 64, image_shape, num_classes, rngs):
    """A layer of rectified units, and one of logits."""
    return nnx.Sequential(
        flat,
        nnx.Linear(math.prod(image_shape), width, rngs=rngs),
        nnx.relu,
        nnx.Linear(width, num_classes, rngs=rngs),
    )
