"""The networks, in Flax (nnx), and their pure functions."""

from sgdlab.models.classifier import Batch, Classifier, classifier
from sgdlab.models.convolution import MatmulConv
from sgdlab.models.networks import BATCH_NORM_MOMENTUM, MLP, ConvNet, conv, mlp

__all__ = ["BATCH_NORM_MOMENTUM", "MLP", "Batch", "Classifier", "ConvNet", "MatmulConv", "classifier", "conv", "mlp"]
